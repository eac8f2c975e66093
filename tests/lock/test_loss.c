/* SPDX-License-Identifier: Apache-2.0
 *
 * What a hold's owner hears of its loss: the look, the callback and the descriptor, on every rung
 * that expires, in every mode it has; and what a release sends after it.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOCK "lock:{loss}"
#define SURVIVES_MS 2400 /* a time to live that a busy machine does not outlast by stalling */
#define EXPIRES_MS 300   /* one that is meant to end */

/* ---- The stage ------------------------------------------------------------------------------- */

struct stage {
    struct record *events;
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold; /* NULL: the rung has no such mode */
};

static void stage_set(struct stage *stage, const char *rung, enum dlock_mode mode, int64_t ttl_ms)
{
    server_text(server, "FLUSHALL");
    stage->events = record_new();
    stage->client = client_of(server_url(server), (struct dlock_options){
                                                      .ttl_ms = ttl_ms,
                                                      .on_event = record_event,
                                                      .on_event_arg = stage->events,
                                                  });
    stage->lock = lock_of(stage->client, rung, LOCK);
    stage->hold = acquired_as(stage->lock, mode);
}

static void stage_clear(struct stage *stage)
{
    if (stage->hold != NULL)
        dlock_release(stage->hold, NULL);
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->events);
}

/* Calls `body` on a hold of each rung that does or does not expire, in each mode it has. */
static void on_each(bool expires, int64_t ttl_ms, void (*body)(struct stage *stage))
{
    static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED};
    size_t count, called = 0;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < 2 * count; i++) {
        struct stage stage;
        if (rungs[i / 2].expires != expires)
            continue;
        stage_set(&stage, rungs[i / 2].name, modes[i % 2], ttl_ms);
        called += stage.hold != NULL;
        if (stage.hold != NULL)
            body(&stage);
        stage_clear(&stage);
    }
    assert_true(called > 0);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    must(poll(&ready, 1, timeout_ms) >= 0);
    return ready.revents == POLLIN;
}

/* Which clock ends it, as the kernel says. */
static int clock_of(int fd)
{
    char path[64], line[128];
    int clock = -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "r");
    must(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        sscanf(line, "clockid: %d", &clock);
    fclose(file);
    return clock;
}

/* 0: it is over, or never will be. */
static int64_t left_ns(int fd)
{
    struct itimerspec timer;
    must(timerfd_gettime(fd, &timer) == 0);
    return timer.it_value.tv_sec * INT64_C(1000000000) + timer.it_value.tv_nsec;
}

/* ---- The descriptor -------------------------------------------------------------------------- */

/* Redis hangs: the loss is heard of in all three ways while it does, so before it could give the
 * lock to anybody. */
static void hears_of_it(struct stage *stage)
{
    dlock_hold *hold = stage->hold;
    int fd = dlock_lost_fd(hold);
    assert_true(fd >= 0);
    assert_int_equal(dlock_lost_fd(hold), fd);
    assert_int_equal(clock_of(fd), CLOCK_BOOTTIME);
    server_pause(server);
    assert_true(readable(fd, PATIENCE_MS));
    assert_false(dlock_valid(hold));
    assert_int_equal(dlock_remaining_ms(hold), 0);
    eventually(record_told(stage->events, "LOST", hold) == 1);
    assert_true(readable(fd, 0));
    server_resume(server);
    dlock_release(hold, NULL);
    stage->hold = NULL;
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(record_count(stage->events, "LOST"), 1);
    assert_int_equal(stats_of(stage->client).lost, 1);
}

static void every_rung_hears_of_it_while_redis_hangs(void **state)
{
    (void)state;
    on_each(true, EXPIRES_MS, hears_of_it);
}

static void asks_too_late(struct stage *stage)
{
    server_pause(server);
    eventually(!dlock_valid(stage->hold));
    server_resume(server);
    assert_true(readable(dlock_lost_fd(stage->hold), 0));
}

static void readable_at_once_after_the_loss(void **state)
{
    (void)state;
    on_each(true, EXPIRES_MS, asks_too_late);
}

/* A timer that never runs. */
static void never_hears(struct stage *stage)
{
    int fd = dlock_lost_fd(stage->hold);
    assert_true(fd >= 0);
    assert_int_equal(left_ns(fd), 0);
    assert_false(readable(fd, 0));
}

static void never_readable_where_nothing_expires(void **state)
{
    (void)state;
    on_each(false, EXPIRES_MS, never_hears);
}

/* Renewed beyond the first time to live it is not readable; when another has the lock, it is. */
static void renewals_put_it_off(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", DLOCK_EXCLUSIVE, SURVIVES_MS);
    int fd = dlock_lost_fd(stage.hold);
    eventually(record_told(stage.events, "RENEWED", stage.hold) >= 4);
    assert_false(readable(fd, 0));
    assert_true(dlock_valid(stage.hold));
    server_integer(server, "DEL " LOCK);
    eventually(record_told(stage.events, "LOST", stage.hold) == 1);
    assert_true(readable(fd, 0)); /* and not only when its time is over */
    assert_false(dlock_valid(stage.hold));
    stage_clear(&stage);
}

/* One key counts for all holds of an owner: they end at one moment. */
static void an_inner_acquire_puts_it_off(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "reentrant", DLOCK_EXCLUSIVE, 60000);
    assert_status(dlock_release(stage.hold, NULL), OK);
    stage.hold = acquired_by(stage.lock, 7);
    int outer = dlock_lost_fd(stage.hold);
    int64_t first_ns = left_ns(outer);
    eventually(left_ns(outer) < first_ns);
    dlock_hold *hold = acquired_by(stage.lock, 7);
    int inner = dlock_lost_fd(hold);
    int64_t outer_ns = left_ns(outer); /* what is read later is less */
    int64_t inner_ns = left_ns(inner);
    assert_true(outer_ns >= inner_ns && inner_ns >= left_ns(outer));
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

static void no_descriptor_is_left(void **state)
{
    (void)state;
    struct stage stage;
    struct rlimit before, none = {0};
    stage_set(&stage, "watchdog", DLOCK_EXCLUSIVE, 60000);
    must(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none.rlim_max = before.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &none) == 0);
    int fd = dlock_lost_fd(stage.hold);
    must(setrlimit(RLIMIT_NOFILE, &before) == 0);
    assert_int_equal(fd, -1);
    assert_says(dlock_error(), "no descriptor is left");
    assert_true(dlock_lost_fd(stage.hold) >= 0);
    stage_clear(&stage);
}

static int ask_in_the_child(void *hold)
{
    must(dlock_lost_fd(hold) == -1);
    must(strstr(dlock_error(), "parent process") != NULL);
    return 23;
}

static void not_the_childs(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", DLOCK_EXCLUSIVE, 60000);
    assert_int_equal(child_wait(child_start(ask_in_the_child, stage.hold)), 23);
    assert_true(dlock_lost_fd(stage.hold) >= 0);
    stage_clear(&stage);
}

/* ---- Stopped --------------------------------------------------------------------------------- */

struct stopped {
    const char *rung;
    enum dlock_mode mode;
    int held[2]; /* pipes: the child says that it holds, or has no such mode; the parent that it is
                    over */
    int over[2];
};

/* The first thing that it does when it goes on is to look. */
static int hold_and_be_stopped(void *arg)
{
    struct stopped *stopped = arg;
    struct stage stage;
    char byte;
    stage_set(&stage, stopped->rung, stopped->mode, EXPIRES_MS);
    byte = stage.hold != NULL;
    int fd = byte ? dlock_lost_fd(stage.hold) : -1;
    must(write(stopped->held[1], &byte, 1) == 1);
    if (!byte)
        return 0;
    must(read(stopped->over[0], &byte, 1) == 1);

    must(!dlock_valid(stage.hold));
    must(readable(fd, 0));
    must(dlock_remaining_ms(stage.hold) == 0);
    eventually(record_told(stage.events, "LOST", stage.hold) == 1);
    bool flawed = dlock_rung_of(stage.lock)->flawed;
    uint64_t commands = stats_of(stage.client).commands;
    dlock_status status = dlock_release(stage.hold, NULL);
    must(flawed || status == DLOCK_LOST);
    must((stats_of(stage.client).commands > commands) == flawed);
    stage.hold = NULL;
    must(stats_of(stage.client).lost == 1 && record_count(stage.events, "LOST") == 1);
    stage_clear(&stage);
    return 23;
}

/* Stopped until its time to live has ended on the server. */
static int stop_and_go_on(struct stopped *stopped)
{
    char byte;
    int status;
    must(pipe(stopped->held) == 0 && pipe(stopped->over) == 0);
    pid_t pid = child_start(hold_and_be_stopped, stopped);
    must(read(stopped->held[0], &byte, 1) == 1);
    if (byte) {
        must(kill(pid, SIGSTOP) == 0);
        must(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
        eventually(server_integer(server, "EXISTS " LOCK) == 0);
        must(write(stopped->over[1], &byte, 1) == 1);
        must(kill(pid, SIGCONT) == 0);
    }
    for (int i = 0; i < 2; i++) {
        close(stopped->held[i]);
        close(stopped->over[i]);
    }
    return child_wait(pid);
}

static void every_rung_knows_it_after_a_stop(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stopped stopped = {.rung = rungs[i].name};
        if (!rungs[i].expires)
            continue;
        assert_int_equal(stop_and_go_on(&stopped), 23);
        stopped.mode = DLOCK_SHARED;
        int shared = stop_and_go_on(&stopped);
        assert_true(shared == 23 || shared == 0);
    }
}

/* ---- What a release sends -------------------------------------------------------------------- */

/* Of the release of a lost hold the server sees nothing on sound rungs; flawed ones send what they
 * always send. */
static void releases_what_it_lost(struct stage *stage)
{
    bool flawed = dlock_rung_of(stage->lock)->flawed;
    server_pause(server);
    eventually(record_told(stage->events, "LOST", stage->hold) == 1);
    server_resume(server);
    struct monitor *monitor = monitor_start(server);
    dlock_status status = dlock_release(stage->hold, NULL);
    stage->hold = NULL;
    assert_true(flawed || status == DLOCK_LOST);
    assert_int_equal(monitor_count(monitor, LOCK) > 0, flawed);
    if (!flawed)
        assert_says(dlock_error(), "'" LOCK "' was lost before its release");
    monitor_free(monitor);
}

static void no_network_after_the_loss(void **state)
{
    (void)state;
    on_each(true, EXPIRES_MS, releases_what_it_lost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rung_hears_of_it_while_redis_hangs),
        cmocka_unit_test(readable_at_once_after_the_loss),
        cmocka_unit_test(never_readable_where_nothing_expires),
        cmocka_unit_test(renewals_put_it_off),
        cmocka_unit_test(an_inner_acquire_puts_it_off),
        cmocka_unit_test(no_descriptor_is_left),
        cmocka_unit_test(not_the_childs),
        cmocka_unit_test(every_rung_knows_it_after_a_stop),
        cmocka_unit_test(no_network_after_the_loss),
    };
    return cmocka_run_group_tests_name("loss", tests, start_server, stop_server);
}
