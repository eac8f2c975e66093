/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's parsers alone: the input as one JSON file, as lines of JSON, as CSV and as a text.
 */
#include "csv.h"
#include "json.h"
#include "target.h"
#include "text.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file in memory that holds the input, and its path. */
static int open_file(const uint8_t *data, size_t size, char path[64])
{
    int fd = memfd_create("input", 0);
    REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static void read_fields(const cJSON *object)
{
    static const char *const fields[] = {"t_ns", "seq", "event", "items", "a", ""};
    char error[JSON_ERROR_MAX] = "";
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *text = "";
        int64_t number = 0;
        double real = 0;
        bool yes = false;
        REQUIRE(json_text(object, fields[i], JSON_REQUIRED, &text, error) || error[0] != '\0');
        if (json_int(object, fields[i], JSON_OPTIONAL, -7, JSON_EXACT_MAX, &number, error))
            REQUIRE(number >= -7 && number <= JSON_EXACT_MAX);
        json_real(object, fields[i], JSON_OPTIONAL, &real, error);
        json_bool(object, fields[i], JSON_OPTIONAL, &yes, error);
    }
}

static void try_json(const char *path)
{
    char error[JSON_ERROR_MAX] = "";
    struct json_lines lines;
    cJSON *json = json_file(path, error);
    REQUIRE((json == NULL) == (error[0] != '\0'));
    read_fields(json);
    cJSON_Delete(json);
    REQUIRE(json_lines_open(&lines, path, error));
    for (int64_t number = 0; json_lines_next(&lines); number = lines.number) {
        int64_t t_ns = 0;
        REQUIRE(lines.number > number);
        cJSON *line = json_line(&lines, error);
        if (line != NULL && json_line_time(&lines, line, "t_ns", &t_ns, error))
            REQUIRE(t_ns >= 0 && t_ns <= JSON_TIME_MAX);
        if (line != NULL)
            read_fields(line);
    }
    json_lines_close(&lines);
}

static void try_csv(const char *path)
{
    struct csv csv;
    char error[INPUT_ERROR_MAX];
    REQUIRE(csv_open(&csv, path, error));
    for (int64_t line = 0; csv_next(&csv); line = csv.line) {
        REQUIRE(csv.line > line && csv.count >= 1 && csv.count <= CSV_FIELDS_MAX);
        for (size_t i = 0; i < csv.count; i++)
            REQUIRE(strlen(csv.fields[i]) <= CSV_RECORD_MAX);
    }
    csv_close(&csv);
}

static void try_text(const uint8_t *data, size_t size)
{
    char *text = copy_text(data, size);
    int64_t number = 0;
    size_t length = strlen(text);
    text_int(text, &number);
    text_clean(text);
    REQUIRE(strlen(text) == length);
    char *once = copy_text((const uint8_t *)text, length);
    text_clean(text);
    REQUIRE(strcmp(text, once) == 0); /* what is clean stays as it is */
    free(once);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = open_file(data, size, path);
    try_json(path);
    try_csv(path);
    close(fd);
    try_text(data, size);
    return 0;
}
