/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that fork, and processes that are killed.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "record.h"

#include <signal.h>
#include <unistd.h>

#define LOCK "lock:{process}"
/* Far from what a busy machine needs. */
#define PATIENT .connect_timeout_ms = 10000, .command_timeout_ms = 10000

struct inherited {
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    dlock_cancel *cancel;
};

/* Not with ThreadSanitizer, which cannot follow the threads that a forked child starts. */
#ifndef __SANITIZE_THREAD__
static void a_client_of_its_own(const struct inherited *in)
{
    dlock *lock;
    dlock_hold *hold;
    const char *url = server_url(server);
    struct dlock_options options = {
        .size = sizeof options, .servers = &url, .server_count = 1, PATIENT};
    dlock_client *own;
    must(dlock_client_open(&options, &own) == DLOCK_OK);
    must(strcmp(dlock_client_id(own), dlock_client_id(in->client)) != 0);
    must(dlock_open(own, NULL, LOCK, &lock) == DLOCK_OK);
    must(dlock_acquire(lock, NULL, &hold) == DLOCK_BUSY);
    dlock_close(lock);
    must(dlock_open(own, NULL, LOCK "2", &lock) == DLOCK_OK);
    must(dlock_acquire(lock, NULL, &hold) == DLOCK_OK);
    must(dlock_release(hold, NULL) == DLOCK_OK);
    dlock_close(lock);
    dlock_client_close(own);
}
#endif

/* In the child: what is inherited answers FORKED and is left alone; a client of its own works. */
static int child_body(void *arg)
{
    struct inherited *in = arg;
    struct dlock_holder holder = {.size = sizeof holder};
    dlock *lock;
    dlock_hold *hold = (dlock_hold *)&hold;
    must(!dlock_valid(in->hold));
    must(dlock_remaining_ms(in->hold) == 0);
    must(dlock_acquire(in->lock, NULL, &hold) == DLOCK_FORKED && hold == NULL);
    must(strstr(dlock_error(), "parent process") != NULL);
    must(dlock_open(in->client, NULL, "lock:new", &lock) == DLOCK_FORKED && lock == NULL);
    must(dlock_inspect(in->lock, &holder) == DLOCK_FORKED);
    must(dlock_break(in->lock, &holder) == DLOCK_FORKED);
    must(dlock_release(in->hold, NULL) == DLOCK_FORKED);
    must(strlen(dlock_owner(in->hold)) > 36); /* still there: nothing was freed */
    dlock_close(in->lock);
    dlock_client_close(in->client);
    must(strlen(dlock_client_id(in->client)) == 36);

#ifndef __SANITIZE_THREAD__
    a_client_of_its_own(in);
#endif
    return 23;
}

static void a_child_inherits_nothing(void **state)
{
    (void)state;
    struct record *events = record_new();
    struct inherited in = {
        .client = client_of(server_url(server), (struct dlock_options){.ttl_ms = 3000,
                                                                       .on_event = record_event,
                                                                       .on_event_arg = events})};
    in.lock = lock_of(in.client, NULL, LOCK);
    in.hold = acquired(in.lock);
    assert_int_equal(child_wait(child_start(child_body, &in)), 23);
    /* The parent's lock is unharmed and still renewed. */
    size_t renewed = record_count(events, "RENEWED");
    eventually(record_count(events, "RENEWED") > renewed);
    assert_true(dlock_valid(in.hold));
    assert_string_equal(server_text(server, "HGET " LOCK " %s", dlock_owner(in.hold)), "1");
    assert_int_equal(record_count(events, "LOST"), 0);
    assert_status(dlock_release(in.hold, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    dlock_close(in.lock);
    dlock_client_close(in.client);
    record_free(events);
}

/* The locks of a sanitizer's allocator may be held by a thread of the parent's at the fork, for
 * ever. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PLAIN 1
#else
#define PLAIN 0
#endif

#if PLAIN
/* Its parent could end its wait. */
static void takes_no_cancel_of_its_parents(const struct inherited *in)
{
    struct dlock_want want = {.size = sizeof want, .cancel = in->cancel};
    dlock_client *own;
    dlock *lock;
    dlock_hold *hold;
    must(dlock_client_open(NULL, &own) == DLOCK_OK);
    must(dlock_open(own, NULL, LOCK, &lock) == DLOCK_OK);
    must(dlock_acquire(lock, &want, &hold) == DLOCK_FORKED && hold == NULL);
    must(strstr(dlock_error(), "want.cancel belongs to the parent process") != NULL);
    dlock_close(lock);
    dlock_client_close(own);
}
#endif

static int throw_it(void *arg)
{
    struct inherited *in = arg;
    dlock_cancel_now(in->cancel);
    must(dlock_fd(in->client) == -1);
#if PLAIN
    takes_no_cancel_of_its_parents(in);
    dlock_cancel_free(in->cancel);
#endif
    _exit(23); /* a sanitizer's look for leaks takes those locks, too */
}

/* As a handler of SIGTERM does that it inherited. */
static void a_child_cancels_nothing_of_its_parents(void **state)
{
    (void)state;
    struct inherited in = {.cancel = dlock_cancel_new()};
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .cancel = in.cancel};
    in.client = client_of(server_url(server), (struct dlock_options){.own_loop = true});
    in.lock = lock_of(in.client, NULL, LOCK);
    dlock_hold *hold = acquired(in.lock);
    assert_int_equal(child_wait(child_start(throw_it, &in)), 23);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(dlock_fd(in.client) >= 0);
    assert_status(dlock_acquire(in.lock, &want, &in.hold), OK);
    assert_status(dlock_release(in.hold, NULL), OK);
    dlock_cancel_now(in.cancel);
    assert_status(dlock_acquire(in.lock, &want, &in.hold), CANCELLED);
    dlock_cancel_free(in.cancel);
    dlock_close(in.lock);
    dlock_client_close(in.client);
}

/* The holder is killed: on a rung that expires the lock is free again by itself. */
static int hold_for_ever(void *arg)
{
    const char *url = server_url(server);
    struct dlock_options options = {
        .size = sizeof options, .servers = &url, .server_count = 1, .ttl_ms = 1000, PATIENT};
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000};
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    must(dlock_client_open(&options, &client) == DLOCK_OK);
    must(dlock_open(client, arg, LOCK, &lock) == DLOCK_OK);
    must(dlock_acquire(lock, &want, &hold) == DLOCK_OK);
    for (;;)
        pause();
}

static void a_killed_holder_frees_it_in_the_end(void **state)
{
    static char rungs[][16] = {"owner_lua", "reentrant", "watchdog", "notify", "read_write"};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        pid_t pid = child_start(hold_for_ever, rungs[i]);
        dlock_client *client = client_of(server_url(server), (struct dlock_options){0});
        dlock *lock = lock_of(client, rungs[i], LOCK);
        eventually(server_integer(server, "EXISTS " LOCK) == 1);
        kill(pid, SIGKILL);
        assert_int_equal(child_wait(pid), 128 + SIGKILL);
        assert_status(dlock_release(acquired(lock), NULL), OK);
        dlock_close(lock);
        dlock_client_close(client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_inherits_nothing),
        cmocka_unit_test(a_child_cancels_nothing_of_its_parents),
        cmocka_unit_test(a_killed_holder_frees_it_in_the_end),
#if PLAIN
#endif
    };
    return cmocka_run_group_tests_name("process", tests, start_server, stop_server);
}
