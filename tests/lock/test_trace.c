/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace when memory is short: each command has its event, and each event its own reply.
 */
#include "recorded_stage.h"

#include <stdlib.h>

static _Thread_local int fails_at; /* which one of this thread's next calls of realloc fails */
static _Thread_local bool no_texts;

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
FILE *__real_open_memstream(char **text, size_t *size);
FILE *__wrap_open_memstream(char **text, size_t *size);

void *__wrap_realloc(void *old, size_t size)
{
    return fails_at > 0 && --fails_at == 0 ? NULL : __real_realloc(old, size);
}

FILE *__wrap_open_memstream(char **text, size_t *size)
{
    return no_texts ? NULL : __real_open_memstream(text, size);
}

static void assert_line(struct stage *stage, size_t index, const char *expected)
{
    char line[200];
    record_line(stage->trace, "", index, line, sizeof line);
    assert_string_equal(line, expected);
}

static uint64_t commands_of(const struct stage *stage)
{
    struct dlock_stats stats = {.size = sizeof stats};
    dlock_client_stats(stage->client, &stats);
    return stats.commands;
}

/* Four commands go in one write, and the second finds no memory. */
static void no_memory_for_a_command(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_warm(&stage, "setnx_multi", (struct dlock_options){0});
    const uint64_t before = commands_of(&stage);
    fails_at = 2;
    dlock_hold *hold = acquired(stage.lock);
    assert_int_equal(fails_at, 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(record_count(stage.trace, ""), commands_of(&stage) - before);
    assert_line(&stage, 0, "MULTI -> OK");
    assert_line(&stage, 1, "? -> QUEUED");
    assert_line(&stage, 2, "? -> QUEUED");
    assert_line(&stage, 3, "? -> [(integer) 1, (integer) 1]");
    assert_line(&stage, 4, "DEL " LOCK " -> (integer) 1");
    stage_clear(&stage);
}

/* The same, and the replies are lost. */
static void no_memory_for_a_lost_command(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set_warm(&stage, "setnx_multi", (struct dlock_options){0});
    proxy_plan(stage.proxy, PROXY_CUT_REPLY, "MULTI", NULL, 0);
    fails_at = 2;
    assert_int_not_equal(tried(stage.lock, &hold), DLOCK_OK);
    assert_line(&stage, 0, "MULTI -> (lost)");
    for (size_t i = 1; i < 4; i++)
        assert_line(&stage, i, "? -> (lost)");
    stage_clear(&stage);
}

static void no_memory_for_texts(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_warm(&stage, "setnx_multi", (struct dlock_options){0});
    no_texts = true;
    dlock_hold *hold = acquired(stage.lock);
    no_texts = false;
    assert_int_equal(record_count(stage.trace, "? -> ?"), 4);
    assert_status(dlock_release(hold, NULL), OK);
    assert_line(&stage, 4, "DEL " LOCK " -> (integer) 1");
    stage_clear(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_for_a_command),
        cmocka_unit_test(no_memory_for_a_lost_command),
        cmocka_unit_test(no_memory_for_texts),
    };
    return cmocka_run_group_tests_name("trace", tests, start_server, stop_server);
}
