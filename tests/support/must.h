/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks and bounded waits for fixtures, threads and children. They cannot use cmocka's assertions,
 * because those jump back into the test's own thread.
 */
#ifndef TESTS_MUST_H
#define TESTS_MUST_H

#include <stdbool.h>
#include <stdint.h>

/* The longest wait before a test fails. It is no measure of speed. tests/mutants shortens it. */
#ifndef PATIENCE_MS
#define PATIENCE_MS 60000
#endif

/* Prints what was expected, and aborts. */
_Noreturn void broken(const char *file, int line, const char *what);

#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            broken(__FILE__, __LINE__, #condition);                                                \
    } while (0)

/* Polls until the condition holds; aborts after PATIENCE_MS. */
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
/* The longest time that this thread has spent outside its short pauses, or in one, since the call
 * before: so long the machine may have stalled. What only a stall explains is tried anew. */
int64_t stalled_ms(void);
/* Sleeps for at least that time, if no event says that it is over. */
void long_pause(int64_t ms);

#endif
