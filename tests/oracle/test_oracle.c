/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs every rung of the ladder under the same oracle.
 */
#include "must.h"
#include "own_server.h"
#include "validate.h"

#include <stdarg.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#define SEVERAL 3 /* servers of a rung that a majority grants */

static bool must_hold;              /* expects of every rung that it holds */
static struct server *all[SEVERAL]; /* `server` is the first */

static void run(const char *rung, int processes, enum expectation expected)
{
    const size_t count = dlock_rung_find(rung)->quorum ? SEVERAL : 1;
    const char *servers[SEVERAL + 1] = {NULL};
    if (must_hold)
        expected = HOLDS;
    for (size_t i = 0; i < count; i++) {
        servers[i] = server_url(all[i]);
        server_text(all[i], "FLUSHALL");
    }
    assert_true(oracle_agrees(&(struct oracle){
        .rung = rung,
        .servers = servers,
        .expected = expected,
        .processes = processes,
        .threads = 4,
        .rounds = expected == HOLDS ? 15 : 3, /* with reentrant_getset a crowd is slow */
        .riding = expected == HOLDS,
    }));
    for (size_t i = 0; i < count; i++)
        eventually(server_integer(all[i], "EXISTS %s", ORACLE_LOCK) == 0); /* one may be late */
}

/* Every rung provides mutual exclusion in two processes, except these. */
static const struct {
    const char *rung;
    int processes;
    enum expectation expected;
} exceptions[] = {
    {"none", 1, BREAKS},
    {"none", 2, BREAKS},
    {"local", 1, HOLDS},
    {"local", 2, BREAKS},
    {"reentrant_getset", 1, BREAKS},
    {"reentrant_getset", 2, BREAKS},
    {"blpop_wake", 1, HOLDS}, /* with two, the last waiter would miss its wake-up */
};

static void test_rung(void **state)
{
    const char *rung = *state;
    bool is_exception = false;
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; i++) {
        if (strcmp(exceptions[i].rung, rung) != 0)
            continue;
        is_exception = true;
        run(rung, exceptions[i].processes, exceptions[i].expected);
    }
    if (!is_exception)
        run(rung, 2, HOLDS);
}

static int start_all(void **state)
{
    start_server(state);
    all[0] = server;
    for (size_t i = 1; i < SEVERAL; i++)
        all[i] = server_start(NULL);
    return 0;
}

static int stop_all(void **state)
{
    for (size_t i = 1; i < SEVERAL; i++)
        server_free(all[i]);
    return stop_server(state);
}

/* Arguments: a rung, to run only that one. Then "holds", to require mutual exclusion whatever the
 * table expects. */
int main(int argc, char **argv)
{
    static struct CMUnitTest tests[256]; /* cmocka skips entries without a name */
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    must(count <= sizeof tests / sizeof tests[0]);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rungs[i].engine, rungs[i].name) != 0) /* it is of no other engine */
            tests[i] = (struct CMUnitTest){rungs[i].name, test_rung, NULL, NULL,
                                           (void *)(uintptr_t)rungs[i].name};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    must_hold = argc > 2 && strcmp(argv[2], "holds") == 0;
    return cmocka_run_group_tests_name("oracle", tests, start_all, stop_all);
}
