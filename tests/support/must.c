/* SPDX-License-Identifier: Apache-2.0
 *
 * See must.h.
 */
#include "must.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void broken(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: expected: %s\n", file, line, what);
    fflush(NULL);
    abort();
}

int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void short_pause(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

void long_pause(int64_t ms)
{
    for (int64_t until_ms = clock_ms() + ms; clock_ms() <= until_ms;)
        short_pause();
}
