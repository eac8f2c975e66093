/* SPDX-License-Identifier: Apache-2.0
 *
 * Statuses as words and sentences.
 */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    const char *text;
    bool definite;
} statuses[] = {
#define X(name, definite, text) {#name, text, definite},
    DLOCK_STATUS_MAP(X)
#undef X
};

static _Thread_local char sentence[SENTENCE_MAX];

static bool known(dlock_status status)
{
    return (size_t)status < sizeof statuses / sizeof statuses[0];
}

const char *dlock_status_name(dlock_status status)
{
    return known(status) ? statuses[status].name : "?";
}

const char *dlock_status_text(dlock_status status)
{
    return known(status) ? statuses[status].text : "no such status";
}

bool dlock_status_definite(dlock_status status)
{
    return known(status) && statuses[status].definite;
}

const char *dlock_error(void)
{
    return sentence;
}

dlock_status fail(dlock_status status, const char *format, ...)
{
    /* Through a copy, since the new sentence may quote the old one. */
    char text[sizeof sentence];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(sentence, sizeof sentence, "%s", text);
    return status;
}

bool is_missing(const char *function, const char *argument)
{
    fail(DLOCK_INVALID, "%s(): %s is NULL", function, argument);
    return false;
}
