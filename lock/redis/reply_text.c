/* SPDX-License-Identifier: Apache-2.0
 *
 * See reply_text.h.
 */
#include "reply_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENT_MAX 80

static void put_quoted(FILE *out, const char *bytes, size_t size)
{
    fputc('"', out);
    for (size_t i = 0; i < size && i < ARGUMENT_MAX; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (isprint(c))
            fputc(c, out);
        else
            fprintf(out, "\\x%02x", c);
    }
    fputs(size > ARGUMENT_MAX ? "...\"" : "\"", out);
}

static void put_argument(FILE *out, const char *bytes, size_t size)
{
    size_t plain = 0;
    while (plain < size && isgraph((unsigned char)bytes[plain]) && bytes[plain] != '"' &&
           bytes[plain] != '\\')
        plain++;
    if (size > 0 && plain == size && size <= ARGUMENT_MAX)
        fwrite(bytes, 1, size, out);
    else
        put_quoted(out, bytes, size);
}

static void put_reply(FILE *out, const redisReply *reply)
{
    switch (reply->type) {
    case REDIS_REPLY_NIL:
        fputs("(nil)", out);
        break;
    case REDIS_REPLY_INTEGER:
        fprintf(out, "(integer) %lld", reply->integer);
        break;
    case REDIS_REPLY_STATUS:
        fputs(reply->str, out);
        break;
    case REDIS_REPLY_ERROR:
        fprintf(out, "(error) %s", reply->str);
        break;
    case REDIS_REPLY_STRING:
        put_quoted(out, reply->str, (size_t)reply->len);
        break;
    case REDIS_REPLY_ARRAY:
        fputc('[', out);
        for (size_t i = 0; i < (size_t)reply->elements; i++) {
            if (i > 0)
                fputs(", ", out);
            put_reply(out, reply->element[i]);
        }
        fputc(']', out);
        break;
    default:
        fputs("(another type of reply)", out);
    }
}

char *command_text(int argc, const char *const *argv, const size_t *sizes)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    for (int i = 0; i < argc; i++) {
        if (i > 0)
            fputc(' ', out);
        put_argument(out, argv[i], sizes != NULL ? sizes[i] : strlen(argv[i]));
    }
    fclose(out);
    return text;
}

char *reply_text(const redisReply *reply)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    if (reply == NULL)
        fputs("(lost)", out);
    else
        put_reply(out, reply);
    fclose(out);
    return text;
}

static const char *skip(const char *text, const char *prefix)
{
    const size_t size = strlen(prefix);
    return strncmp(text, prefix, size) == 0 ? text + size : NULL;
}

/* The position in the script may stand there twice, with and without a blank. An error of Redis's
 * own has its minus sign then. */
const char *error_cause(const char *error)
{
    const char *cause = skip(error, "ERR Error running script (call to f_"), *position;
    cause = cause != NULL ? strstr(cause, "): ") : NULL;
    if (cause == NULL)
        return error;
    cause += strlen("): ");
    while ((position = skip(cause, "@user_script:")) != NULL) {
        position += strspn(position, " 0123456789");
        if (strncmp(position, ": ", 2) != 0)
            break;
        cause = position + 2;
    }
    return cause + (cause[0] == '-');
}

bool error_is_full(const char *error)
{
    return strncmp(error, "ERR max number of clients", 25) == 0;
}

bool error_is_transient(const char *error)
{
    static const char *const prefixes[] = {"LOADING",    "BUSY ",    "CLUSTERDOWN", "TRYAGAIN",
                                           "MASTERDOWN", "READONLY", "OOM ",        "NOREPLICAS",
                                           "MISCONF",    "NOSCRIPT"};
    error = error_cause(error);
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(error, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return error_is_full(error);
}
