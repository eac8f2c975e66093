/* SPDX-License-Identifier: Apache-2.0
 *
 * Scenarios that every sound rung of one server must pass: one test for each rung, so that a
 * failure names its rung.
 */
#ifndef TESTS_SOUND_H
#define TESTS_SOUND_H

#include "calls.h"
#include "must.h"

#include <stdio.h>
#include <string.h>

/* EACH_NESTED_ASKS: rungs whose nested acquires and releases ask the server; those of `fair` do
 * not. */
enum scope { ONCE, EACH_SOUND, EACH_REENTRANT, EACH_NESTED_ASKS };

struct scenario {
    const char *name;
    CMUnitTestFunction body; /* *state is the rung; NULL for ONCE */
    enum scope scope;
};
#define SCENARIO(body, scope)                                                                      \
    {                                                                                              \
#body, body, scope                                                                         \
    }

#define SCENARIO_TESTS_MAX 256

/* Whether it locks inside the process, without a server. */
static inline bool is_local(const struct dlock_rung *rung)
{
    return strcmp(rung->name, "local") == 0;
}

/* Whether the server has a wait queue of its clients. */
static inline bool queues(const struct dlock_rung *rung)
{
    return strcmp(rung->name, "fair") == 0;
}

static inline bool is_in_scope(const struct dlock_rung *rung, enum scope scope)
{
    bool asks = rung->reentrant && !queues(rung);
    return !rung->flawed && (scope == EACH_SOUND || (scope == EACH_REENTRANT && rung->reentrant) ||
                             (scope == EACH_NESTED_ASKS && asks));
}

static inline int run_scenarios(const char *group, const struct scenario *scenarios, size_t count,
                                CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    static struct CMUnitTest tests[SCENARIO_TESTS_MAX];
    static char names[SCENARIO_TESTS_MAX][96];
    size_t rung_count, test_count = 0;
    const struct dlock_rung *rungs = single_rungs(&rung_count);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < rung_count; j++) {
            const struct scenario *scenario = &scenarios[i];
            bool once = scenario->scope == ONCE;
            if (once ? j > 0 : !is_in_scope(&rungs[j], scenario->scope))
                continue;
            must(test_count < SCENARIO_TESTS_MAX);
            snprintf(names[test_count], sizeof names[0], "%s%s%s", scenario->name, once ? "" : ": ",
                     once ? "" : rungs[j].name);
            tests[test_count] = (struct CMUnitTest){
                .name = names[test_count],
                .test_func = scenario->body,
                .initial_state = once ? NULL : (void *)(uintptr_t)&rungs[j],
            };
            test_count++;
        }
    return _cmocka_run_group_tests(group, tests, test_count, set_up, tear_down);
}

#endif
