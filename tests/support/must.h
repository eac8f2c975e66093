/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks and bounded waits for fixtures, threads and children, where cmocka's assertions cannot be
 * used, since they jump back into the test's own thread.
 */
#ifndef TESTS_MUST_H
#define TESTS_MUST_H

#include <stdbool.h>
#include <stdint.h>

/* How long anything is waited for before the test is called broken. Never a measure of speed. */
#define PATIENCE_MS 60000

/* Says what was expected and ends the process. */
_Noreturn void broken(const char *file, int line, const char *what);

#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            broken(__FILE__, __LINE__, #condition);                                                \
    } while (0)

/* Looks again and again until the condition holds. */
#define eventually(condition)                                                                      \
    do {                                                                                           \
        int64_t patience_ends_ms = clock_ms() + PATIENCE_MS;                                       \
        while (!(condition)) {                                                                     \
            if (clock_ms() > patience_ends_ms)                                                     \
                broken(__FILE__, __LINE__, "in the end " #condition);                              \
            short_pause();                                                                         \
        }                                                                                          \
    } while (0)

int64_t clock_ms(void);
void short_pause(void);
/* So long at least: for a time to be over that nothing tells of. */
void long_pause(int64_t ms);

#endif
