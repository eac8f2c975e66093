/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include "memory.h"
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Writes the error, and returns false so that a caller can return it in one line. */
static bool json_refuse(char error[JSON_ERROR_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool json_refuse(char error[JSON_ERROR_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, JSON_ERROR_MAX, format, args);
    va_end(args);
    return false;
}

static cJSON *object_of(const char *text, size_t size, char error[JSON_ERROR_MAX])
{
    const char *end = NULL;
    cJSON *object = cJSON_ParseWithLengthOpts(text, size + 1, &end, 1);
    if (object == NULL) {
        json_refuse(error, "not JSON from byte %zu on; it must be one JSON object",
                    end == NULL ? (size_t)0 : (size_t)(end - text) + 1);
        return NULL;
    }
    if (!cJSON_IsObject(object)) {
        json_refuse(error, "JSON, but not an object; it must be one JSON object");
        cJSON_Delete(object);
        return NULL;
    }
    return object;
}

/* Reads the whole file, and adds a NUL. From a file that is too long it reads a little more than
 * JSON_FILE_MAX. */
static char *read_all(FILE *file, size_t *size)
{
    enum { CHUNK = 4096 };
    char *text = NULL;
    size_t capacity = 0;
    size_t got = 0;
    *size = 0;
    do {
        while (capacity < *size + CHUNK + 1)
            text = memory_grow(text, capacity, &capacity, 1);
        got = fread(text + *size, 1, CHUNK, file);
        *size += got;
    } while (got == CHUNK && *size <= JSON_FILE_MAX);
    text[*size] = '\0';
    return text;
}

cJSON *json_file(const char *path, char error[JSON_ERROR_MAX])
{
    cJSON *object = NULL;
    size_t size = 0;
    FILE *file = input_open(path, error);
    if (file == NULL)
        return NULL;
    char *text = read_all(file, &size);
    if (ferror(file))
        json_refuse(error, "cannot be read: %s; it must be a readable file", strerror(errno));
    else if (size > JSON_FILE_MAX)
        json_refuse(error, "longer than %d bytes; it must be one small JSON object", JSON_FILE_MAX);
    else
        object = object_of(text, size, error);
    free(text);
    fclose(file);
    return object;
}

/* Memory for the nodes of one line's object. It is freed in one step, because a file has millions
 * of them. The worst line, [0,0,...], takes 64 bytes for every 2 of its own. */
enum { PARTS_MAX = 48 * JSON_LINE_MAX };

static struct {
    char *room;
    size_t used;
} parts;

static void *new_part(size_t size)
{
    size_t from = parts.used;
    size_t wanted = (size + 15) & ~(size_t)15;
    if (wanted < size || wanted > PARTS_MAX - from)
        return NULL;
    parts.used += wanted;
    return parts.room + from;
}

static void drop_part(void *part)
{
    (void)part;
}

bool json_lines_open(struct json_lines *lines, const char *path, char error[JSON_ERROR_MAX])
{
    memset(lines, 0, sizeof *lines);
    lines->file = input_open(path, error);
    if (lines->file == NULL)
        return false;
    lines->chunk = memory_new(JSON_LINE_MAX, 1);
    lines->buffer = memory_new(JSON_LINE_MAX + 1, 1);
    parts.room = memory_new(PARTS_MAX, 1);
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = new_part, .free_fn = drop_part});
    return true;
}

/* Appends the bytes that fit to the line. If some do not fit, they are dropped, and the line gets a
 * flaw. */
static void json_keep(struct json_lines *lines, const char *bytes, size_t size)
{
    size_t room = JSON_LINE_MAX - lines->size;
    if (size > room)
        lines->flaw = "longer than 65536 bytes; a record must be shorter";
    memcpy(lines->buffer + lines->size, bytes, size < room ? size : room);
    lines->size += size < room ? size : room;
}

/* Reads one line of any length. False at the end of the file. */
static bool read_line(struct json_lines *lines)
{
    const char *newline = NULL;
    bool any = false;
    lines->size = 0;
    lines->flaw = NULL;
    while (newline == NULL) {
        if (lines->at == lines->end) {
            lines->at = 0;
            lines->end = fread(lines->chunk, 1, JSON_LINE_MAX, lines->file);
        }
        if (lines->end == 0)
            break;
        const char *from = lines->chunk + lines->at;
        size_t size = lines->end - lines->at;
        newline = memchr(from, '\n', size);
        if (newline != NULL)
            size = (size_t)(newline - from);
        json_keep(lines, from, size);
        lines->at += size + (newline != NULL);
        any = true;
    }
    if (!any)
        return false;
    if (lines->size > 0 && lines->buffer[lines->size - 1] == '\r')
        lines->size--;
    lines->buffer[lines->size] = '\0';
    lines->number++;
    return true;
}

bool json_lines_next(struct json_lines *lines)
{
    while (read_line(lines)) {
        if (lines->size > 0 || lines->flaw != NULL)
            return true;
    }
    return false;
}

void json_lines_close(struct json_lines *lines)
{
    if (lines->file == NULL)
        return;
    cJSON_InitHooks(NULL);
    fclose(lines->file);
    free(lines->chunk);
    free(lines->buffer);
    free(parts.room);
    memset(lines, 0, sizeof *lines);
}

cJSON *json_line(const struct json_lines *lines, char error[JSON_ERROR_MAX])
{
    if (lines->flaw != NULL) {
        json_refuse(error, "%s", lines->flaw);
        return NULL;
    }
    parts.used = 0;
    return object_of(lines->buffer, lines->size, error);
}

/* The field; NULL if it is absent or null. */
static cJSON *field_of(const cJSON *object, const char *field)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field);
    return cJSON_IsNull(item) ? NULL : item;
}

static bool json_absent(const char *field, enum json_need need, const char *kind,
                        char error[JSON_ERROR_MAX])
{
    return need == JSON_OPTIONAL || json_refuse(error, "no \"%s\"; it must be %s", field, kind);
}

bool json_text(const cJSON *object, const char *field, enum json_need need, const char **value,
               char error[JSON_ERROR_MAX])
{
    const cJSON *item = field_of(object, field);
    if (item == NULL)
        return json_absent(field, need, "a text", error);
    if (!cJSON_IsString(item))
        return json_refuse(error, "\"%s\" is no text; it must be one", field);
    if (item->valuestring[0] == '\0' && need == JSON_REQUIRED)
        return json_refuse(error, "\"%s\" is empty; it must say something", field);
    text_clean(item->valuestring);
    *value = item->valuestring;
    return true;
}

bool json_real(const cJSON *object, const char *field, enum json_need need, double *value,
               char error[JSON_ERROR_MAX])
{
    const cJSON *item = field_of(object, field);
    if (item == NULL)
        return json_absent(field, need, "a number", error);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return json_refuse(error, "\"%s\" is no number; it must be one", field);
    *value = item->valuedouble;
    return true;
}

bool json_int(const cJSON *object, const char *field, enum json_need need, int64_t min, int64_t max,
              int64_t *value, char error[JSON_ERROR_MAX])
{
    const cJSON *item = field_of(object, field);
    if (item == NULL)
        return json_absent(field, need, "a whole number", error);
    double number = item->valuedouble;
    if (!cJSON_IsNumber(item) || !(number >= (double)min && number <= (double)max) ||
        floor(number) < number)
        return json_refuse(error, "\"%s\" must be a whole number from %lld to %lld", field,
                           (long long)min, (long long)max);
    *value = (int64_t)number;
    return true;
}

bool json_bool(const cJSON *object, const char *field, enum json_need need, bool *value,
               char error[JSON_ERROR_MAX])
{
    const cJSON *item = field_of(object, field);
    if (item == NULL)
        return json_absent(field, need, "true or false", error);
    if (!cJSON_IsBool(item))
        return json_refuse(error, "\"%s\" is neither true nor false; it must be one of them",
                           field);
    *value = cJSON_IsTrue(item);
    return true;
}

/* Where the value of a top-level field begins, in JSON that is known to be valid. */
static const char *raw_value(const char *json, const char *field)
{
    size_t length = strlen(field);
    int depth = 0;
    for (const char *at = json; *at != '\0'; at++) {
        if (*at == '{' || *at == '[')
            depth++;
        if (*at == '}' || *at == ']')
            depth--;
        if (*at != '"')
            continue;
        const char *name = ++at;
        for (; *at != '"' && *at != '\0'; at++) {
            if (*at == '\\' && at[1] != '\0')
                at++;
        }
        if (*at == '\0')
            return NULL;
        const char *behind = at + 1 + strspn(at + 1, " \t\r\n");
        if (depth == 1 && *behind == ':' && (size_t)(at - name) == length &&
            memcmp(name, field, length) == 0)
            return behind + 1 + strspn(behind + 1, " \t\r\n");
    }
    return NULL;
}

bool json_line_time(const struct json_lines *lines, const cJSON *object, const char *field,
                    int64_t *t_ns, char error[JSON_ERROR_MAX])
{
    const cJSON *item = field_of(object, field);
    if (!cJSON_IsNumber(item) || fabs(item->valuedouble) < (double)JSON_EXACT_MAX)
        return json_int(object, field, JSON_REQUIRED, 0, JSON_EXACT_MAX, t_ns, error);
    const char *raw = raw_value(lines->buffer, field);
    char *end = NULL;
    errno = 0;
    long long exact = raw == NULL ? -1 : strtoll(raw, &end, 10);
    if (exact < 0 || exact > JSON_TIME_MAX || errno != 0 || *end == '.' || *end == 'e' ||
        *end == 'E')
        return json_refuse(error, "\"%s\" must be a whole number from 0 to 2^61", field);
    *t_ns = exact;
    return true;
}
