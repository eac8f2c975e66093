/* SPDX-License-Identifier: Apache-2.0
 *
 * See options.h.
 */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void option_refuse(const char *option, const char *value)
{
    fprintf(stderr, "%s: %s %s is not understood; see --help\n", program_invocation_short_name,
            option, value);
    exit(2);
}

unsigned long long option_number(const char *option, const char *text, unsigned long long most)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value > most)
        option_refuse(option, text);
    return value;
}
