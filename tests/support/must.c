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

static _Thread_local int64_t looked_ms, longest_ms;

static void look(void)
{
    int64_t now_ms = clock_ms();
    if (looked_ms != 0 && now_ms - looked_ms > longest_ms)
        longest_ms = now_ms - looked_ms;
    looked_ms = now_ms;
}

void short_pause(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
    look();
}

int64_t stalled_ms(void)
{
    look();
    int64_t stalled_ms = longest_ms;
    longest_ms = 0;
    return stalled_ms;
}

void long_pause(int64_t ms)
{
    for (int64_t until_ms = clock_ms() + ms; clock_ms() <= until_ms;)
        short_pause();
}
