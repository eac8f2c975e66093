/* SPDX-License-Identifier: Apache-2.0
 *
 * Statuses as words and as sentences.
 */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *text;
    bool definite;
} statuses[] = {
#define X(name, definite, text) {#name, text, definite},
    DLOCK_STATUS_MAP(X)
#undef X
};

#define HEAD_SIZE 100 /* bytes that are kept of the start of a sentence that is too long */
static _Thread_local char sentence[SENTENCE_MAX];

static bool status_is_known(dlock_status status)
{
    return (size_t)status < sizeof statuses / sizeof statuses[0];
}

const char *dlock_status_name(dlock_status status)
{
    return status_is_known(status) ? statuses[status].name : "?";
}

const char *dlock_status_text(dlock_status status)
{
    return status_is_known(status) ? statuses[status].text : "no such status";
}

bool dlock_status_definite(dlock_status status)
{
    return status_is_known(status) && statuses[status].definite;
}

const char *dlock_error(void)
{
    return sentence;
}

dlock_status fail(dlock_status status, const char *format, ...)
{
    /* In a copy, because the new sentence may quote the old one. */
    char text[SENTENCE_MAX + DLOCK_NAME_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* A long name comes first, and what happened to it last. So the middle is left out. */
    size_t size = strlen(text);
    size_t end = size < SENTENCE_MAX ? size : SENTENCE_MAX - 1 - HEAD_SIZE - strlen("...");
    if (end == size)
        memcpy(sentence, text, size + 1);
    else
        snprintf(sentence, sizeof sentence, "%.*s...%s", HEAD_SIZE, text, text + size - end);
    return status;
}

bool is_missing(const char *function, const char *argument)
{
    fail(DLOCK_INVALID, "%s(): %s is NULL", function, argument);
    return false;
}
