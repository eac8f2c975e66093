/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that are the same for engines whose holds live as long as a session or a lease. The
 * engine's stage comes first: it has RUNG, ENGINE, LOCK, url_here, client_here, lock_at, is_free,
 * and leave.
 */
#ifndef TESTS_ALIKE_H
#define TESTS_ALIKE_H

#include "child.h"
#include "cleanups.h"
#include "must.h"
#include "record.h"
#include "started.h"
#include "validate.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* ---- The oracle, and the calls --------------------------------------------------------------- */

static inline void under_the_oracle(void **state)
{
    (void)state;
    const char *servers[] = {url_here(), NULL};
    assert_true(oracle_agrees(&(struct oracle){.rung = RUNG,
                                               .engine = ENGINE,
                                               .servers = servers,
                                               .expected = HOLDS,
                                               .processes = 3,
                                               .threads = 4,
                                               .rounds = 15}));
}

static inline void started_calls(void **state)
{
    (void)state;
    _Atomic int over = 0;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    struct started *crowd = crowd_new(100, true, &over);
    for (size_t i = 0; i < 100; i++)
        start(lock, waiting(60000), &crowd[i]);
    eventually(atomic_load(&over) == 100);
    crowd_answered(crowd, 100, DLOCK_OK);
    free(crowd);
    assert_true(is_free(lock));
    leave(client, lock);
}

/* They are told in time, and leave the queue. */
static inline void in_vain_and_cancelled(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock), *none = NULL;
    dlock_cancel *cancel = dlock_cancel_new();
    struct started in_vain = {0}, cancelled = {0}, once_only = {0}, released = {0};
    start(lock, waiting(100), &in_vain);
    start(lock, (struct dlock_want){.wait_ms = -1, .cancel = cancel}, &cancelled);
    start(lock, (struct dlock_want){0}, &once_only);
    assert_status(tried(lock, &none), BUSY);
    dlock_cancel_now(cancel);
    started_answered(&in_vain);
    started_answered(&cancelled);
    started_answered(&once_only);
    assert_int_equal(in_vain.status, DLOCK_TIMED_OUT);
    assert_int_equal(cancelled.status, DLOCK_CANCELLED);
    assert_int_equal(once_only.status, DLOCK_BUSY);
    start_release(hold, NULL, &released);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_OK);
    eventually(kept_in_the_background(client) == 0);
    assert_true(is_free(lock));
    dlock_cancel_free(cancel);
    leave(client, lock);
}

/* The token is the servers' own number of the change that made the place. */
static inline void tokens_grow(void **state)
{
    (void)state;
    uint64_t last = 0;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    for (int i = 0; i < 3; i++) {
        dlock_hold *hold = acquired(lock);
        assert_true(dlock_token(hold) > last);
        last = dlock_token(hold);
        assert_status(dlock_extend(hold), OK);
        assert_status(dlock_release(hold, NULL), OK);
    }
    leave(client, lock);
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* A process that holds until it hears that its hold is lost. */
struct holder {
    int64_t ttl_ms;
    void (*note)(struct holder *holder, dlock_client *client); /* while it holds; or NULL */
    char noted[64];
    _Atomic bool holds;
};

static inline int hold(void *arg)
{
    struct holder *holder = arg;
    const char *servers[] = {url_here()};
    struct record *record = record_new();
    struct dlock_options options = {.size = sizeof options,
                                    .engine = ENGINE,
                                    .servers = servers,
                                    .server_count = 1,
                                    .connect_timeout_ms = 10000,
                                    .command_timeout_ms = 10000,
                                    .ttl_ms = holder->ttl_ms,
                                    .on_event = record_event,
                                    .on_event_arg = record};
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
    dlock_client *client;
    dlock *lock;
    dlock_hold *mine;
    must(dlock_client_open(&options, &client) == DLOCK_OK);
    must(dlock_open(client, NULL, LOCK, &lock) == DLOCK_OK);
    must(dlock_acquire(lock, &want, &mine) == DLOCK_OK);
    if (holder->note != NULL)
        holder->note(holder, client);
    atomic_store(&holder->holds, true);
    eventually(record_count(record, "LOST #1") == 1);
    must(!dlock_valid(mine));
    must(dlock_release(mine, NULL) == DLOCK_LOST);
    must(dlock_acquire(lock, &want, &mine) == DLOCK_OK); /* in another session, or lease */
    must(dlock_release(mine, NULL) == DLOCK_OK);
    dlock_close(lock);
    dlock_client_close(client);
    record_free(record);
    return 0;
}

static inline pid_t holder_start(struct holder **made, int64_t ttl_ms,
                                 void (*note)(struct holder *holder, dlock_client *client))
{
    struct holder *holder =
        mmap(NULL, sizeof *holder, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(holder != MAP_FAILED);
    holder->ttl_ms = ttl_ms;
    holder->note = note;
    pid_t pid = child_start(hold, holder);
    eventually(atomic_load(&holder->holds));
    *made = holder;
    return pid;
}

static inline void stop_process(pid_t pid)
{
    int status = 0;
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

/* Another has the lock once the session or the lease is over, not before. False: the machine has
 * stalled for longer than the session or the lease lives by itself. */
static inline bool kept_until_its_holder_dies(void)
{
    struct holder *holder;
    stalled_ms();
    pid_t pid = holder_start(&holder, 1000, NULL);
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *none;
    dlock_status status = tried(lock, &none);
    if (status == DLOCK_BUSY) {
        assert_says(dlock_error(), "held by '");
        long_pause(1500); /* it lives as long as its process */
        status = tried(lock, &none);
    }
    bool kept = status == DLOCK_BUSY;
    if (!kept) {
        assert_status(status, OK);
        assert_true(stalled_ms() > 500);
        assert_status(dlock_release(none, NULL), OK);
    }
    struct started next = {0};
    start(lock, waiting(60000), &next);
    kill(pid, SIGKILL);
    int ended = child_wait(pid);
    assert_true(ended == 128 + SIGKILL || !kept);
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_status(dlock_release(next.hold, NULL), OK);
    leave(client, lock);
    munmap(holder, sizeof *holder);
    return kept;
}

static inline void its_holder_dies(void **state)
{
    (void)state;
    eventually(kept_until_its_holder_dies());
}

/* The process sleeps until another has the lock, and is told when it wakes. */
static inline void its_holder_is_frozen(void **state)
{
    (void)state;
    struct holder *holder;
    pid_t pid = holder_start(&holder, 1000, NULL);
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    stop_process(pid);
    dlock_hold *next = acquired(lock);
    kill(pid, SIGCONT);
    assert_status(dlock_release(next, NULL), OK);
    assert_int_equal(child_wait(pid), 0);
    leave(client, lock);
    munmap(holder, sizeof *holder);
}

/* ---- Holds ----------------------------------------------------------------------------------- */

/* A hold outlives its time to live as long as its session or lease lives. False: the machine has
 * stalled for longer than that lives by itself. */
static inline bool is_given_time(void)
{
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 2000});
    dlock *lock = lock_at(client);
    stalled_ms();
    dlock_hold *hold = acquired(lock);
    long_pause(2500);
    bool valid = dlock_valid(hold);
    assert_true(valid || stalled_ms() > 500);
    dlock_status status = dlock_release(hold, NULL);
    if (valid)
        assert_status(status, OK);
    leave(client, lock);
    return valid;
}

static inline void holds_are_given_time(void **state)
{
    (void)state;
    eventually(is_given_time());
}

static inline dlock_hold *identified(dlock *lock, char identity[96])
{
    dlock_hold *hold = wanted(lock, (struct dlock_want){.identity = true});
    snprintf(identity, 96, "%s", dlock_identity(hold));
    return hold;
}

/* The session or lease lives on, and the place has to go all the same. */
static inline void nobody_releases(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 1000});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_abandon(hold), OK);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .hold_max_ms = 200};
    dlock_hold *brief;
    assert_status(dlock_acquire(lock, &want, &brief), OK);
    hold = acquired(lock);
    assert_false(dlock_valid(brief));
    assert_status(dlock_release(brief, NULL), LOST);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

/* The commands are refused, and the lock must be released all the same. */
static inline void a_release_with_commands(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_batch *batch = dlock_batch_new();
    assert_status(dlock_release(acquired(lock), batch), UNSUPPORTED);
    dlock_batch_free(batch);
    eventually(is_free(lock));
    leave(client, lock);
}

static inline void it_is_broken(void **state)
{
    (void)state;
    struct record *record = record_new();
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_client *client = client_here(
        (struct dlock_options){.ttl_ms = 2000, .on_event = record_event, .on_event_arg = record});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_break(others, &holder), OK);
    assert_string_equal(holder.owner, dlock_owner(hold));
    eventually(record_count(record, "the lock no longer belongs to this owner") == 1);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_true(is_free(others));
    leave(client, lock);
    leave(other, others);
    record_free(record);
}

#endif
