/* SPDX-License-Identifier: Apache-2.0
 *
 * Every rung of the ladder under the one oracle: a rung's test is two lines. A rung of ladder.def
 * without one does not compile.
 */
#include "own_server.h"
#include "validate.h"

#include <stdarg.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

static bool must_hold; /* asked of any rung: does it hold? */

static void run(const char *rung, int processes, enum expectation expected)
{
    const char *servers[] = {server_url(server), NULL};
    if (must_hold)
        expected = HOLDS;
    server_text(server, "FLUSHALL");
    assert_true(oracle_agrees(&(struct oracle){
        .rung = rung,
        .servers = servers,
        .expected = expected,
        .processes = processes,
        .threads = 4,
        .rounds = expected == HOLDS ? 15 : 3, /* where names are overwritten, a crowd is slow */
        .riding = expected == HOLDS,
    }));
    assert_int_equal(server_integer(server, "EXISTS %s", ORACLE_LOCK), 0);
}

#define RUNG(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        static const char *const rung = #name;
#define PROCESSES(count, expected) run(rung, count, expected);
#define END }

/* clang-format off */
RUNG(none)             PROCESSES(1, BREAKS) PROCESSES(2, BREAKS) END
RUNG(local)            PROCESSES(1, HOLDS)  PROCESSES(2, BREAKS) END
RUNG(setnx)            PROCESSES(2, HOLDS) END
RUNG(setnx_expire)     PROCESSES(2, HOLDS) END
RUNG(setnx_multi)      PROCESSES(2, HOLDS) END
RUNG(set_nx_ex)        PROCESSES(2, HOLDS) END
RUNG(owner_check)      PROCESSES(2, HOLDS) END
RUNG(owner_lua)        PROCESSES(2, HOLDS) END
RUNG(reentrant_tls)    PROCESSES(2, HOLDS) END
RUNG(reentrant_getset) PROCESSES(1, BREAKS) PROCESSES(2, BREAKS) END
RUNG(reentrant)        PROCESSES(2, HOLDS) END
RUNG(watchdog_timer)   PROCESSES(2, HOLDS) END
RUNG(watchdog)         PROCESSES(2, HOLDS) END
RUNG(blpop_wake)       PROCESSES(1, HOLDS) END /* of two, the last would wait for lost signals */
RUNG(notify)           PROCESSES(2, HOLDS) END
RUNG(fair)             PROCESSES(2, HOLDS) END
RUNG(rw_counter)       PROCESSES(2, HOLDS) END
RUNG(read_write)       PROCESSES(2, HOLDS) END
    /* clang-format on */

    /* One argument: only the test of that name, as in test_setnx. And "holds": whatever is expected
     * of it, it must keep all but one out. */
    int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define X(name, flawed, adds, flaw) cmocka_unit_test(test_##name),
#include "ladder.def"
#undef X
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    must_hold = argc > 2 && strcmp(argv[2], "holds") == 0;
    return cmocka_run_group_tests_name("oracle", tests, start_server, stop_server);
}
