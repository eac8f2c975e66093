/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection for wake-ups: what a client does where it is refused, cannot be watched or is
 * unblocked, and how locks share it.
 */
#include "calls.h"
#include "must.h"
#include "recorded_stage.h"
#include "redis_engine.h"
#include "waiter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static long long info_number(const char *section, const char *field)
{
    const char *at = strstr(server_text(server, "INFO %s", section), field);
    must(at != NULL);
    return atoll(at + strlen(field));
}

/* Of the one connection whose line says so. */
static long long id_of(const char *says)
{
    const char *text = server_text(server, "CLIENT LIST");
    const char *at = strstr(text, says);
    must(at != NULL);
    while (at > text && at[-1] != '\n')
        at--;
    return atoll(at + strlen("id="));
}

static const struct {
    const char *rung;
    const char *right;
    const char *refused;
    const char *says;
} listening[] = {
    {"notify", "&*", "resetchannels", "PUBLISH is refused"},
    {"notify", "+subscribe", "-subscribe", "NOPERM"},
    {"notify", "+publish", "-publish", "PUBLISH is refused"},
    {"read_write", "+publish", "-publish", "PUBLISH is refused"},
    {"fair", "+blpop", "-blpop", "NOPERM"},
};

/* Told once, polled around, asked for again seldom; and heard once it is allowed. */
static void listening_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof listening / sizeof listening[0]; i++) {
        struct stage stage;
        struct stage other;
        char url[80];
        server_text(server, "ACL SETUSER app on >pass ~* &* +@all %s", listening[i].refused);
        snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
        stage_at(&stage, listening[i].rung, url, (struct dlock_options){0});
        stage_at(&other, listening[i].rung, server_url(server), (struct dlock_options){0});
        dlock_hold *hold = acquired(other.lock);
        struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
        waiter_start(&waiter);
        eventually(record_count(stage.events, "SERVER_REFUSES") == 1);
        char line[256];
        record_line(stage.events, "SERVER_REFUSES", 0, line, sizeof line);
        assert_says(line, listening[i].says);
        eventually(stats_of(stage.client).attempts >= 20);
        assert_int_equal(record_count(stage.events, "SERVER"), 1);
        assert_int_equal(stats_of(stage.client).connections_refused, 1);
        assert_true(stats_of(stage.client).connects <= 4);
        assert_true(server_ask(server, "ACL LOG")->elements <= 2); /* equal lines are one */
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK); /* all the same */

        server_text(server, "ACL SETUSER app %s", listening[i].right);
        struct waiter later = {.lock = other.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
        waiter_start(&later);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        assert_status(waiter_end(&later), OK);
        waiter_start(&waiter);
        eventually(record_count(stage.events, "SERVER_BACK") == 1 ||
                   info_number("clients", "blocked_clients:") == 1);
        assert_status(dlock_release(later.hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        stage_clear(&stage);
        stage_clear(&other);
        server_integer(server, "ACL DELUSER app");
        server_text(server, "ACL LOG RESET");
    }
}

/* No descriptor is left, or no memory, to watch the connection for wake-ups. */
static _Atomic(const char *) lacking;

int __real_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
    const char *what_lacks = atomic_load(&lacking);
    if (what != EPOLL_CTL_ADD || what_lacks == NULL || strcmp(what_lacks, "memory") != 0)
        return __real_epoll_ctl(epoll, what, fd, event);
    errno = ENOMEM;
    return -1;
}

int __real_fcntl64(int fd, int what, ...);
int __wrap_fcntl64(int fd, int what, ...);
int __wrap_fcntl64(int fd, int what, ...)
{
    const char *what_lacks = atomic_load(&lacking);
    va_list arguments;
    va_start(arguments, what);
    int argument = va_arg(arguments, int);
    va_end(arguments);
    if (what != F_DUPFD_CLOEXEC || what_lacks == NULL || strcmp(what_lacks, "descriptors") != 0)
        return __real_fcntl64(fd, what, argument);
    errno = EMFILE;
    return -1;
}

/* Its waiter knows that it is deaf, and looks often; it hears once there is room again. */
static void listening_lacks(void **state)
{
    static const char *const things[] = {"memory", "descriptors"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage, other;
        struct dlock_options options = {.grant_ms = 60000, .ttl_ms = 60000};
        stage_at(&stage, "fair", server_url(server), options);
        stage_at(&other, "fair", server_url(server), options);
        dlock_hold *hold = acquired(other.lock);
        struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
        atomic_store(&lacking, things[i]);
        waiter_start(&waiter);
        eventually(stats_of(stage.client).attempts >= 5);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_int_equal(stats_of(stage.client).missed_wakeups, 0);

        atomic_store(&lacking, NULL);
        hold = waiter.hold;
        waiter.lock = other.lock;
        waiter_start(&waiter);
        eventually(info_number("clients", "blocked_clients:") == 1);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        hold = waiter.hold;
        waiter.lock = stage.lock;
        waiter_start(&waiter);
        eventually(info_number("clients", "blocked_clients:") == 2);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        stage_clear(&stage);
        stage_clear(&other);
    }
}

/* What is refused still is told once more when the server was lost in between; and it is back only
 * when nothing is refused any more, whichever was told of. */
static void listening_stays_refused(void **state)
{
    (void)state;
    struct stage stage, other;
    char url[80];
    server_text(server, "ACL SETUSER app on >pass ~* &* +@all -subscribe -blpop");
    snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
    stage_at(&stage, "notify", url, (struct dlock_options){0});
    stage_at(&other, "notify", server_url(server), (struct dlock_options){0});
    dlock *locks[2] = {lock_of(stage.client, "fair", LOCK "2"),
                       lock_of(other.client, "fair", LOCK "2")};
    dlock_hold *holds[2] = {acquired(other.lock), acquired(locks[1])};
    struct waiter waiters[2] = {
        {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}},
        {.lock = locks[0], .want = {.wait_ms = DLOCK_WAIT_FOREVER}},
    };
    waiter_start(&waiters[0]);
    waiter_start(&waiters[1]);
    eventually(server_ask(server, "ACL LOG")->elements == 2);
    eventually(record_count(stage.events, "SERVER_REFUSES") == 1);
    server_integer(server, "CLIENT KILL USER app");
    eventually(record_count(stage.events, "SERVER_GONE") >= 1);
    eventually(record_count(stage.events, "SERVER_REFUSES") >= 2);
    server_text(server, "ACL SETUSER app +subscribe");
    eventually(server_ask(server, "PUBSUB CHANNELS *lock__channel*")->elements == 1);
    server_text(server, "ACL SETUSER app +blpop");
    eventually(info_number("clients", "blocked_clients:") == 1);
    assert_int_equal(record_count(stage.events, "SERVER_BACK"), 0);
    assert_status(dlock_release(holds[1], NULL), OK);
    assert_status(waiter_end(&waiters[1]), OK);
    eventually(record_count(stage.events, "SERVER_BACK") == 1);
    assert_int_equal(record_count(stage.events, "SERVER_REFUSES"),
                     record_count(stage.events, "SERVER_GONE") + 1);
    assert_status(dlock_release(holds[0], NULL), OK);
    assert_status(waiter_end(&waiters[0]), OK);
    for (size_t i = 0; i < 2; i++)
        assert_status(dlock_release(waiters[i].hold, NULL), OK);
    for (size_t i = 0; i < 2; i++)
        dlock_close(locks[i]);
    stage_clear(&stage);
    stage_clear(&other);
    server_integer(server, "ACL DELUSER app");
    server_text(server, "ACL LOG RESET");
}

/* An operator ends the wait for wake-ups; the client goes on with the same list. */
static void listening_is_unblocked(void **state)
{
    (void)state;
    struct stage stage, other;
    struct dlock_options options = {.ttl_ms = 600000, .grant_ms = 60000};
    stage_at(&stage, "fair", server_url(server), options);
    stage_at(&other, "fair", server_url(server), options);
    dlock_hold *hold = acquired(other.lock);
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&waiter);
    for (int i = 0; i < 2; i++) {
        eventually(info_number("clients", "blocked_clients:") == 1);
        assert_int_equal(server_integer(server, "CLIENT UNBLOCK %lld", id_of("cmd=blpop")), 1);
    }
    eventually(record_count(stage.trace, "BLPOP dlock:wake:") == 2);
    assert_int_equal(record_count(stage.trace, "BLPOP \"\""), 0);
    eventually(info_number("clients", "blocked_clients:") == 1);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(stats_of(stage.client).missed_wakeups, 0);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    stage_clear(&stage);
    stage_clear(&other);
}

/* The connection for wake-ups came up when the lock that it was for had gone. */
static void the_first_to_listen_has_gone(void **state)
{
    (void)state;
    struct stage stage;
    struct busy busy = {.kind = WAIT_LIST, .source = "dlock:wake:outage"};
    stage_at(&stage, "fair", server_url(server), (struct dlock_options){0});
    dlock *second = lock_of(stage.client, "fair", LOCK "2");
    struct loop *loop = &stage.client->loop;
    pthread_mutex_lock(&loop->mutex);
    assert_false(subscriber_listen(stage.lock, &busy, INT64_MAX, -1));
    subscriber_forget(stage.lock);
    redis_lock_of(stage.lock)->source = (struct source){.lock = stage.lock};
    pthread_mutex_unlock(&loop->mutex);
    eventually(info_number("clients", "connected_clients:") >= 2);
    for (bool idle = false; !idle;) { /* until the loop has seen it */
        pthread_mutex_lock(&loop->mutex);
        idle = redis_of(stage.client)->lists.state == SUBSCRIBER_WATCHED;
        pthread_mutex_unlock(&loop->mutex);
        short_pause();
    }
    pthread_mutex_lock(&loop->mutex);
    subscriber_listen(second, &busy, INT64_MAX, -1);
    pthread_mutex_unlock(&loop->mutex);
    eventually(info_number("clients", "blocked_clients:") == 1);
    dlock_close(second);
    stage_clear(&stage);
}

static enum source_state source_state(dlock *lock)
{
    struct loop *loop = &lock->client->loop;
    pthread_mutex_lock(&loop->mutex);
    enum source_state is = redis_lock_of(lock)->source.state;
    pthread_mutex_unlock(&loop->mutex);
    return is;
}

static uint64_t wakes(dlock *lock)
{
    struct loop *loop = &lock->client->loop;
    pthread_mutex_lock(&loop->mutex);
    uint64_t is = lock->queue.wakes;
    pthread_mutex_unlock(&loop->mutex);
    return is;
}

/* All of them in one go, locks of that client. */
static void listen_to(dlock_client *client, size_t count, const char *const *channels,
                      dlock **locks)
{
    struct loop *loop = &client->loop;
    for (size_t i = 0; i < count; i++) {
        char name[] = LOCK "0";
        name[strlen(LOCK)] += (char)i;
        locks[i] = lock_of(client, "notify", name);
    }
    pthread_mutex_lock(&loop->mutex);
    for (size_t i = 0; i < count; i++) {
        struct busy busy = {.kind = WAIT_CHANNEL};
        strcpy(busy.source, channels[i]);
        subscriber_listen(locks[i], &busy, INT64_MAX, -1);
    }
    pthread_mutex_unlock(&loop->mutex);
}

/* Its client may listen to channels that begin with "yes". */
static void stage_some_refused(struct stage *stage)
{
    char url[80];
    server_text(server, "ACL SETUSER app on >pass ~* +@all resetchannels &yes*");
    snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
    stage_at(stage, "notify", url, (struct dlock_options){0});
}

static void stage_some_refused_clear(struct stage *stage)
{
    stage_clear(stage);
    server_integer(server, "ACL DELUSER app");
    server_text(server, "ACL LOG RESET");
}

/* An error does not say which request it answers: the order does. */
static void some_channels_are_refused(void **state)
{
    static const char *const channels[] = {"yes0", "no1", "yes2", "no3", "no4", "yes5"};
    (void)state;
    struct stage stage;
    dlock *locks[6];
    stage_some_refused(&stage);
    listen_to(stage.client, 6, channels, locks);
    for (size_t i = 0; i < 6; i++)
        eventually(source_state(locks[i]) ==
                   (channels[i][0] == 'y' ? SOURCE_SUBSCRIBED : SOURCE_REFUSED));
    assert_int_equal(record_count(stage.events, "SERVER_BACK"), 0);
    for (size_t i = 0; i < 6; i++)
        dlock_close(locks[i]);
    eventually(record_count(stage.events, "SERVER_BACK") == 1); /* none lacks them any more */
    stage_some_refused_clear(&stage);
}

/* The refusal of a lock that was closed meanwhile is not another lock's. */
static void a_lock_is_closed_before_its_refusal(void **state)
{
    static const char *const channels[] = {"yes0", "no1", "yes2"};
    (void)state;
    struct stage stage;
    dlock *locks[3];
    stage_some_refused(&stage);
    listen_to(stage.client, 1, channels, locks);
    eventually(source_state(locks[0]) == SOURCE_SUBSCRIBED);
    server_pause(server);
    listen_to(stage.client, 3, channels, locks);
    eventually(source_state(locks[2]) == SOURCE_SUBSCRIBING);
    dlock_close(locks[1]);
    server_resume(server);
    eventually(source_state(locks[2]) == SOURCE_SUBSCRIBED);
    assert_int_equal(record_count(stage.events, "SERVER_REFUSES"), 0);
    dlock_close(locks[0]);
    dlock_close(locks[0]);
    dlock_close(locks[2]);
    stage_some_refused_clear(&stage);
}

static int64_t listeners(const char *channel)
{
    return server_ask(server, "PUBSUB NUMSUB %s", channel)->element[1]->integer;
}

/* A message is for each of them, for no other lock, and comes until the last of them is closed. */
static void locks_that_share_a_channel(void **state)
{
    static const char *const channels[] = {"both", "one", "both"};
    (void)state;
    struct stage stage;
    dlock *locks[3];
    uint64_t before[3];
    stage_at(&stage, "notify", server_url(server), (struct dlock_options){0});
    listen_to(stage.client, 3, channels, locks);
    for (size_t i = 0; i < 3; i++) {
        eventually(source_state(locks[i]) == SOURCE_SUBSCRIBED);
        before[i] = wakes(locks[i]);
    }
    assert_int_equal(server_integer(server, "PUBLISH both 0"), 1);
    eventually(wakes(locks[0]) == before[0] + 1 && wakes(locks[2]) == before[2] + 1);
    assert_int_equal(wakes(locks[1]), before[1]);
    dlock_close(locks[0]);
    dlock_close(locks[1]);
    eventually(listeners("one") == 0); /* what was sent before has come, too */
    assert_int_equal(server_integer(server, "PUBLISH both 0"), 1);
    eventually(wakes(locks[2]) == before[2] + 2);
    dlock_close(locks[2]);
    eventually(listeners("both") == 0);
    stage_clear(&stage);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listening_is_refused),
        cmocka_unit_test(listening_lacks),
        cmocka_unit_test(listening_stays_refused),
        cmocka_unit_test(listening_is_unblocked),
        cmocka_unit_test(the_first_to_listen_has_gone),
        cmocka_unit_test(some_channels_are_refused),
        cmocka_unit_test(a_lock_is_closed_before_its_refusal),
        cmocka_unit_test(locks_that_share_a_channel),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("subscriber", tests, start_server, stop_server);
}
