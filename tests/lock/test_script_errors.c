/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of commands in scripts, as Redis up to 6.2 words them: its own sentence goes before them.
 */
#include "recorded_stage.h"
#include "reply_text.h"

#include <stdio.h>

#define WRAPPED "ERR Error running script (call to f_a1b2): "
#define AT WRAPPED "@user_script:7: "    /* an error of a command */
#define AT_TWICE AT "@user_script: 7: -" /* one of Redis's own */
#define BYTES_MAX 200

static void where_the_error_begins(void **state)
{
    (void)state;
    static const char *const errors[][2] = {
        {"WRONGTYPE Operation", "WRONGTYPE Operation"},
        {"OOM command script: a1b2, on @user_script:7.",
         "OOM command script: a1b2, on @user_script:7."},
        {AT "WRONGTYPE Operation", "WRONGTYPE Operation"},
        {AT_TWICE "READONLY You", "READONLY You"},
        {WRAPPED "user_script:7: Script attempted", "user_script:7: Script attempted"},
        {WRAPPED "@user_script:x: OOM", "@user_script:x: OOM"},
        {WRAPPED "@user_script", "@user_script"},
        {WRAPPED, ""},
        {"ERR Error running script (call to f_a1b2", "ERR Error running script (call to f_a1b2"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        assert_string_equal(error_cause(errors[i][0]), errors[i][1]);
}

/* The next script is answered so, and carried out. */
static void answer_next(struct stage *stage, const char *error)
{
    char bytes[BYTES_MAX];
    snprintf(bytes, sizeof bytes, "-%s\r\n", error);
    server_text(server, "FLUSHALL");
    proxy_plan(stage->proxy, PROXY_REPLACE_REPLY, "EVAL", bytes, strlen(bytes));
}

static void what_one_attempt_answers(void **state)
{
    (void)state;
    static const struct {
        const char *error;
        dlock_status status;
    } answers[] = {
        {AT "WRONGTYPE Operation against a key", DLOCK_WRONG_TYPE},
        {AT "ERR value is not an integer", DLOCK_REFUSED},
        {AT_TWICE "NOPERM The user executing the script", DLOCK_REFUSED},
        {AT_TWICE "OOM command not allowed", DLOCK_REFUSED},
    };
    struct stage stage;
    stage_set_warm(&stage, "watchdog", (struct dlock_options){0});
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        dlock_hold *hold;
        answer_next(&stage, answers[i].error);
        assert_int_equal(tried(stage.lock, &hold), answers[i].status);
        assert_true(proxy_done(stage.proxy));
    }
    server_text(server, "FLUSHALL");
    works(&stage);
    stage_clear(&stage);
}

/* Errors that end by themselves: the waiter tries again. A replica is left. */
static void what_a_waiter_does(void **state)
{
    (void)state;
    static const char *const again[] = {"OOM command", "NOREPLICAS Not enough", "READONLY You",
                                        "MISCONF Redis", "MASTERDOWN Link"};
    struct stage stage;
    stage_set_warm(&stage, "owner_lua", (struct dlock_options){0});
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{waiter}");
    assert_status(dlock_release(acquired(lock), NULL), OK);
    for (size_t i = 0; i < sizeof again / sizeof again[0]; i++) {
        char error[BYTES_MAX];
        const bool left =
            strncmp(again[i], "READONLY", 8) == 0 || strncmp(again[i], "MASTER", 6) == 0;
        const size_t connects = proxy_requests(stage.proxy, "INFO");
        snprintf(error, sizeof error, AT_TWICE "%s", again[i]);
        answer_next(&stage, error);
        dlock_hold *hold = acquired(lock);
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(proxy_requests(stage.proxy, "INFO") > connects, left);
        assert_status(dlock_release(hold, NULL), OK);
    }
    dlock_close(lock);
    stage_clear(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_the_error_begins),
        cmocka_unit_test(what_one_attempt_answers),
        cmocka_unit_test(what_a_waiter_does),
    };
    return cmocka_run_group_tests_name("script_errors", tests, start_server, stop_server);
}
