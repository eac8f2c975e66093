/* SPDX-License-Identifier: Apache-2.0 */
#include "csv.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* Some editors write a byte order mark, EF BB BF, at the beginning of a file. (cJSON skips it
 * itself.) */
static void skip_bom(FILE *file)
{
    static const unsigned char bom[] = {0xEF, 0xBB, 0xBF};
    for (size_t i = 0; i < sizeof bom; i++) {
        if (getc(file) == bom[i])
            continue;
        rewind(file);
        return;
    }
}

bool csv_open(struct csv *csv, const char *path, char error[INPUT_ERROR_MAX])
{
    memset(csv, 0, sizeof *csv);
    csv->file = input_open(path, error);
    if (csv->file == NULL)
        return false;
    skip_bom(csv->file);
    csv->buffer = memory_new(CSV_RECORD_MAX + 1, 1);
    return true;
}

void csv_close(struct csv *csv)
{
    if (csv->file != NULL)
        fclose(csv->file);
    free(csv->buffer);
    memset(csv, 0, sizeof *csv);
}

static int next_byte(struct csv *csv)
{
    int byte = getc_unlocked(csv->file);
    if (byte == '\n')
        csv->lines++;
    return byte;
}

/* Appends to the current field. A byte that does not fit is dropped, and the record gets a flaw. */
static void csv_put(struct csv *csv, size_t *used, int byte)
{
    if (*used < CSV_RECORD_MAX)
        csv->buffer[(*used)++] = (char)byte;
    else
        csv->flaw = "longer than 262144 bytes; a record must be shorter";
}

static void end_field(struct csv *csv, size_t *used, char **start)
{
    csv->buffer[*used < CSV_RECORD_MAX ? (*used)++ : CSV_RECORD_MAX] = '\0';
    if (csv->count < CSV_FIELDS_MAX)
        csv->fields[csv->count++] = *start;
    else
        csv->flaw = "more than 128 fields; a record must have fewer";
    *start = csv->buffer + *used;
}

/* Reads a quoted part up to the closing quote. Returns the byte after it. */
static int csv_quoted(struct csv *csv, size_t *used)
{
    for (;;) {
        int byte = next_byte(csv);
        if (byte == EOF) {
            csv->flaw = "a quote that never closes; every \" must have its partner";
            return EOF;
        }
        if (byte == '"') {
            byte = next_byte(csv);
            if (byte != '"')
                return byte;
        }
        csv_put(csv, used, byte);
    }
}

static bool csv_read_record(struct csv *csv)
{
    size_t used = 0;
    char *start = csv->buffer;
    csv->count = 0;
    csv->flaw = NULL;
    csv->line = csv->lines + 1;
    int byte = next_byte(csv);
    if (byte == EOF)
        return false;
    for (; byte != EOF && byte != '\n'; byte = next_byte(csv)) {
        if (byte == '"' && start == csv->buffer + used)
            byte = csv_quoted(csv, &used);
        if (byte == EOF || byte == '\n')
            break;
        if (byte == ',')
            end_field(csv, &used, &start);
        else if (byte != '\r' && byte != '\0')
            csv_put(csv, &used, byte);
    }
    end_field(csv, &used, &start);
    return true;
}

bool csv_next(struct csv *csv)
{
    while (csv_read_record(csv)) {
        if (csv->count > 1 || csv->fields[0][0] != '\0' || csv->flaw != NULL)
            return true;
    }
    return false;
}
