/* SPDX-License-Identifier: Apache-2.0
 *
 * What needs no server: statuses and errors, batches, and calls whose arguments are wrong.
 */
#include "calls.h"
#include "child.h"
#include "must.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Statuses -------------------------------------------------------------------------------- */

static void statuses(void **state)
{
    static const struct {
        dlock_status status;
        const char *name;
        bool definite;
    } all[] = {
        {DLOCK_OK, "OK", true},
        {DLOCK_BUSY, "BUSY", true},
        {DLOCK_TIMED_OUT, "TIMED_OUT", true},
        {DLOCK_CANCELLED, "CANCELLED", true},
        {DLOCK_LOST, "LOST", true},
        {DLOCK_UNKNOWN, "UNKNOWN", false},
        {DLOCK_UNREACHABLE, "UNREACHABLE", true},
        {DLOCK_REFUSED, "REFUSED", true},
        {DLOCK_WRONG_TYPE, "WRONG_TYPE", true},
        {DLOCK_FLAWED, "FLAWED", true},
        {DLOCK_INVALID, "INVALID", true},
        {DLOCK_UNSUPPORTED, "UNSUPPORTED", true},
        {DLOCK_UPGRADE, "UPGRADE", true},
        {DLOCK_LIMIT, "LIMIT", true},
        {DLOCK_NO_MEMORY, "NO_MEMORY", true},
        {DLOCK_FORKED, "FORKED", true},
    };
    (void)state;
    assert_int_equal(DLOCK_OK, 0);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(all[i].status, i);
        assert_string_equal(dlock_status_name(all[i].status), all[i].name);
        assert_int_equal(dlock_status_definite(all[i].status), all[i].definite);
        assert_true(strlen(dlock_status_text(all[i].status)) >= 4);
    }
    const int none[] = {-1, sizeof all / sizeof all[0], 1000000};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_string_equal(dlock_status_name((dlock_status)none[i]), "?");
        assert_string_equal(dlock_status_text((dlock_status)none[i]), "no such status");
        assert_false(dlock_status_definite((dlock_status)none[i]));
    }
}

static void *its_own_error(void *arg)
{
    dlock_client *client;
    must(strcmp(dlock_error(), "") == 0);
    must(dlock_client_open(
             &(struct dlock_options){.size = sizeof(struct dlock_options), .ttl_ms = 1}, &client) ==
         DLOCK_INVALID);
    must(strstr(dlock_error(), "ttl_ms") != NULL);
    return arg;
}

static void an_error_belongs_to_its_thread(void **state)
{
    (void)state;
    char before[512];
    snprintf(before, sizeof before, "%s", dlock_error());
    thread_wait(thread_start(its_own_error, NULL));
    assert_string_equal(dlock_error(), before);
}

/* ---- Batches --------------------------------------------------------------------------------- */

static void batches(void **state)
{
    (void)state;
    dlock_batch *batch = dlock_batch_new();
    const char *const command[] = {"PING"};
    struct dlock_reply reply = {.size = sizeof reply};
    assert_non_null(batch);
    assert_status(dlock_batch_add(batch, 0, command, NULL), INVALID);
    assert_status(dlock_batch_add(batch, -1, command, NULL), INVALID);
    assert_status(dlock_batch_reply(batch, 0, &reply), INVALID);
    assert_says(dlock_error(), "holds 0 commands");
    for (int i = 0; i < DLOCK_BATCH_MAX; i++)
        assert_status(dlock_batch_add(batch, 1, command, NULL), OK);
    assert_status(dlock_batch_add(batch, 1, command, NULL), LIMIT);
    assert_says(dlock_error(), "at most 64");
    dlock_batch_clear(batch);
    const char *const set[] = {"SET", "a", "b"};
    const size_t sizes[] = {(512U << 20) + 1, SIZE_MAX};
    for (int i = 0; i < 2; i++) {
        assert_status(dlock_batch_add(batch, 3, set, (size_t[]){3, 1, sizes[i]}), INVALID);
        assert_says(dlock_error(), i == 0 ? "argv[2] has 536870913 bytes; at most 536870912"
                                          : "argv[2] has 18446744073709551615 bytes");
    }
    assert_status(dlock_batch_add(batch, (1 << 20) + 1, set, NULL), INVALID);
    assert_says(dlock_error(), "argc is 1048577; it must be 1 to 1048576");
    for (int i = 0; i < DLOCK_BATCH_MAX; i++)
        assert_status(dlock_batch_add(batch, 1, command, NULL), OK);
    assert_status(dlock_batch_reply(batch, 63, &reply), OK);
    assert_int_equal(reply.kind, DLOCK_REPLY_NONE);
    assert_string_equal(reply.text, "");
    assert_status(dlock_batch_reply(batch, 64, &reply), INVALID);
    assert_status(dlock_batch_reply(batch, 63, &(struct dlock_reply){.size = 0}), INVALID);
    assert_says(dlock_error(), "sizeof(struct dlock_reply)");
    dlock_batch_clear(batch);
    assert_status(dlock_batch_reply(batch, 0, &reply), INVALID);
    assert_status(
        dlock_batch_add(batch, 2, (const char *const[]){"GET", "a\0b"}, (const size_t[]){3, 3}),
        OK);
    dlock_batch_free(batch);
    dlock_batch_free(NULL);
}

/* Redis knows no locales: in Turkish "i" and "I" are two letters. */
static void commands_in_turkish(void **state)
{
    static const char *const words[] = {"MULTI", "multi", "Wait", "client", "unsubscribe", "quit"};
    (void)state;
    char folder[] = "/tmp/ladder-locale-XXXXXX", make[200];
    assert_non_null(mkdtemp(folder));
    snprintf(make, sizeof make, "localedef -i tr_TR -f UTF-8 %s/tr_TR.UTF-8 2>&1", folder);
    bool made = system(make) == 0;
    setenv("LOCPATH", folder, 1);
    made = made && setlocale(LC_ALL, "tr_TR.UTF-8") != NULL;
    dlock_batch *batch = dlock_batch_new();
    dlock_status statuses[6];
    for (size_t i = 0; i < 6; i++)
        statuses[i] = dlock_batch_add(batch, 1, &words[i], NULL);
    dlock_batch_free(batch);
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    snprintf(make, sizeof make, "rm -r %s", folder);
    assert_int_equal(system(make), 0);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(statuses[i], DLOCK_INVALID);
    if (!made)
        skip_because("localedef makes no Turkish locale here");
}

/* ---- Wrong calls ----------------------------------------------------------------------------- */

static void never_done(void *arg, dlock_status status, dlock_hold *hold)
{
    (void)arg, (void)status, (void)hold;
    failed("done was called");
}

static void a_mode_that_is_none(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    static const char *const rungs[] = {"watchdog", "read_write"};
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        dlock *lock = lock_of(client, rungs[i], "lock:a");
        dlock_hold *hold;
        struct dlock_want want = {.size = sizeof want, .mode = (enum dlock_mode)7};
        assert_status(dlock_acquire(lock, &want, &hold), INVALID);
        assert_says(dlock_error(),
                    "want.mode is 7; it must be DLOCK_EXCLUSIVE (0) or DLOCK_SHARED (1)");
        assert_status(dlock_acquire_start(lock, &want, never_done, NULL), INVALID);
        want.mode = DLOCK_SHARED;
        assert_int_equal(dlock_acquire(lock, &want, &hold),
                         i == 0 ? DLOCK_UNSUPPORTED : DLOCK_UNREACHABLE);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

#define assert_null_is_named(call, text)                                                           \
    do {                                                                                           \
        assert_status(call, INVALID);                                                              \
        assert_string_equal(dlock_error(), text);                                                  \
    } while (0)

/* Where a status is answered. */
static void null_is_refused(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = lock_of(client, "watchdog", "lock:a");
    dlock *no_lock = (dlock *)&no_lock;
    dlock_hold *hold = (dlock_hold *)&hold;
    dlock_batch *batch = dlock_batch_new();
    struct dlock_holder holder = {.size = sizeof holder};
    struct dlock_reply reply = {.size = sizeof reply};
    const char *const argv[] = {"GET", NULL};
    assert_null_is_named(dlock_client_open(NULL, NULL), "dlock_client_open(): client is NULL");
    assert_null_is_named(dlock_open(NULL, NULL, "a", &no_lock), "dlock_open(): client is NULL");
    assert_null(no_lock);
    assert_null_is_named(dlock_open(client, NULL, "a", NULL), "dlock_open(): lock is NULL");
    assert_null_is_named(dlock_inspect(NULL, &holder), "dlock_inspect(): lock is NULL");
    assert_null_is_named(dlock_inspect(lock, NULL), "dlock_inspect(): holder is NULL");
    assert_null_is_named(dlock_break(NULL, &holder), "dlock_break(): lock is NULL");
    assert_null_is_named(dlock_acquire(NULL, NULL, &hold), "dlock_acquire(): lock is NULL");
    assert_null(hold);
    assert_null_is_named(dlock_acquire(lock, NULL, NULL), "dlock_acquire(): hold is NULL");
    assert_null_is_named(dlock_acquire_start(NULL, NULL, never_done, NULL),
                         "dlock_acquire_start(): lock is NULL");
    assert_null_is_named(dlock_acquire_start(lock, NULL, NULL, NULL),
                         "dlock_acquire_start(): done is NULL");
    assert_null_is_named(dlock_extend(NULL), "dlock_extend(): hold is NULL");
    assert_null_is_named(dlock_release(NULL, NULL), "dlock_release(): hold is NULL");
    assert_null_is_named(dlock_release(NULL, batch), "dlock_release(): hold is NULL");
    assert_null_is_named(dlock_batch_add(NULL, 1, argv, NULL), "dlock_batch_add(): batch is NULL");
    assert_null_is_named(dlock_batch_add(batch, 1, NULL, NULL), "dlock_batch_add(): argv is NULL");
    assert_null_is_named(dlock_batch_add(batch, 2, argv, NULL), "argv[1] is NULL, and argc is 2");
    assert_status(dlock_batch_add(batch, 1, argv, NULL), OK);
    assert_null_is_named(dlock_batch_reply(NULL, 0, &reply), "dlock_batch_reply(): batch is NULL");
    assert_null_is_named(dlock_batch_reply(batch, 0, NULL), "dlock_batch_reply(): reply is NULL");
    assert_int_equal(stats_of(client).attempts, 0);
    dlock_batch_free(batch);
    dlock_close(lock);
    dlock_client_close(client);
}

/* Where none is. */
static void null_is_harmless(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    struct dlock_stats stats = {.size = sizeof stats};
    dlock_client_close(NULL);
    dlock_close(NULL);
    dlock_cancel_free(NULL);
    dlock_cancel_now(NULL);
    dlock_batch_clear(NULL);
    dlock_batch_free(NULL);
    dlock_client_stats(NULL, &stats);
    dlock_client_stats(client, NULL);
    assert_int_equal(stats.attempts, 0);
    assert_non_null(dlock_rungs(NULL));
    assert_string_equal(dlock_client_id(NULL), "");
    assert_string_equal(dlock_name(NULL), "");
    assert_null(dlock_rung_of(NULL));
    assert_int_equal(dlock_fd(NULL), -1);
    assert_int_equal(dlock_process(NULL), 0);
    assert_false(dlock_valid(NULL));
    assert_int_equal(dlock_remaining_ms(NULL), 0);
    assert_int_equal(dlock_lost_fd(NULL), -1);
    assert_string_equal(dlock_error(), "dlock_lost_fd(): hold is NULL");
    assert_string_equal(dlock_owner(NULL), "");
    assert_int_equal(dlock_acquisition(NULL), 0);
    assert_int_equal(dlock_token(NULL), 0);
    dlock_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses),
        cmocka_unit_test(an_error_belongs_to_its_thread),
        cmocka_unit_test(batches),
        cmocka_unit_test(commands_in_turkish),
        cmocka_unit_test(a_mode_that_is_none),
        cmocka_unit_test(null_is_refused),
        cmocka_unit_test(null_is_harmless),
    };
    return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
