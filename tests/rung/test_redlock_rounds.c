/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: rounds of renewals that do not wait for each other, for a slow server, or for what
 * sets a key again.
 */
#include "extender.h"
#include "heard.h"
#include "redlock_stage.h"

#include <poll.h>
#include <stdio.h>

static pthread_t watched;
static int timeouts; /* how often the watched thread waited for a server, and nothing came */

int __real_ppoll(struct pollfd *polls, nfds_t count, const struct timespec *left,
                 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *polls, nfds_t count, const struct timespec *left,
                 const sigset_t *mask);

int __wrap_ppoll(struct pollfd *polls, nfds_t count, const struct timespec *left,
                 const sigset_t *mask)
{
    int ready = __real_ppoll(polls, count, left, mask);
    bool waits = left == NULL || left->tv_sec > 0 || left->tv_nsec > 0;
    if (pthread_equal(pthread_self(), watched) && ready == 0 && waits)
        timeouts++;
    return ready;
}

#define HOUR_MS 3600000 /* a third and a thirtieth of it are longer than any test waits */

/* When the timekeeper will renew the hold. */
static int64_t turn_of(dlock_hold *hold)
{
    struct timekeeper *timekeeper = &hold->lock->client->timekeeper;
    pthread_mutex_lock(&timekeeper->mutex);
    assert_ptr_equal(hold->turn.in, &timekeeper->waiting);
    int64_t at_ns = hold->turn.at_ns;
    pthread_mutex_unlock(&timekeeper->mutex);
    return at_ns;
}

/* Until end_calm the timekeeper does not renew the hold, and hears nothing from its servers. */
static void begin_calm(dlock_hold *hold)
{
    assert_true(timekeeper_begin_round(&hold->lock->client->timekeeper, hold,
                                       mono_deadline_ns(PATIENCE_MS)));
}

static void end_calm(dlock_hold *hold)
{
    timekeeper_end_round(&hold->lock->client->timekeeper, hold);
}

/* ---- One round of a hold at a time ----------------------------------------------------------- */

static void hold_renewals_at(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REQUEST, "PEXPIRE", NULL, 0);
}

static void let_go(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        proxy_let_go(proxies[i]);
}

/* However often a call fails, the timekeeper renews the hold when it would have done so. */
static void a_failed_call_puts_off_no_renewal(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){.ttl_ms = HOUR_MS});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    int64_t at_ns = turn_of(hold);
    for (int i = 1; i < 3; i++)
        proxy_plan(proxies[i], PROXY_CUT_REPLY, "PEXPIRE", NULL, 0);
    assert_status(dlock_extend(hold), UNKNOWN);
    assert_int_equal(turn_of(hold), at_ns);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
}

static bool pool_is_awaited(struct pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    bool awaited = !TAILQ_EMPTY(&pool->queue);
    pthread_mutex_unlock(&pool->mutex);
    return awaited;
}

/* A call that has no connection yet does not keep the timekeeper from the hold. */
static void renewed_while_a_call_waits_for_a_connection(void **state)
{
    (void)state;
    struct record *events = record_new();
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){.ttl_ms = 9000,
                                                                           .connections_max = 1,
                                                                           .on_event = record_event,
                                                                           .on_event_arg = events});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    struct extender extender = {.hold = hold};
    struct rung_env env;
    int64_t ends_ns = mono_deadline_ns(PATIENCE_MS);
    assert_status(env_begin(lock, ends_ns, ends_ns, -1, NULL, &env), OK);
    extender_start(&extender);
    eventually(pool_is_awaited(env.pool));
    record_clear(events);
    eventually(record_count(events, "RENEWED") > 1);
    env_end(lock, &env);
    assert_status(extender_end(&extender), OK);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
    record_free(events);
}

/* A call that waits for another round of its hold does not keep others from the connection. */
static void a_call_waits_without_a_connection(void **state)
{
    (void)state;
    dlock_client *client =
        client_behind_proxies(3, (struct dlock_options){.ttl_ms = HOUR_MS, .connections_max = 1});
    dlock *lock = connected(client), *other;
    assert_status(dlock_open_ops(client, &rung_redlock, OTHER, &other), OK);
    dlock_hold *hold = acquired(lock);
    struct extender extender = {.hold = hold};
    begin_calm(hold);
    extender_start(&extender);
    long_pause(200);
    assert_status(dlock_release(acquired(other), NULL), OK);
    end_calm(hold);
    assert_status(extender_end(&extender), OK);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(other);
    end_behind_proxies(client, lock);
    flush_all();
}

/* Two calls that extend a hold take turns. */
static void a_hold_is_extended_once_at_a_time(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    hold_renewals_at(1, 2);
    struct extender first = {.hold = hold}, second = {.hold = hold};
    extender_start(&first);
    eventually(proxy_done(proxies[1]) && proxy_done(proxies[2]));
    long_pause(200);
    size_t before = proxy_requests(proxies[0], "PEXPIRE");
    extender_start(&second);
    long_pause(200);
    assert_int_equal(proxy_requests(proxies[0], "PEXPIRE"), before);
    let_go(1, 2);
    assert_status(extender_end(&first), OK);
    assert_status(extender_end(&second), OK);
    eventually(proxy_requests(proxies[0], "PEXPIRE") == before + 1);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
}

/* ---- Late answers ---------------------------------------------------------------------------- */

/* The grant of one server comes after the decision. It counts from the next renewal on, though the
 * server does not answer that. So the hold stays when another one loses it. The timekeeper does not
 * renew the hold, which has its longest time from the start: no other answer shows that the server
 * has the key. */
static void count_late_grant(struct dlock_want want)
{
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){.ttl_ms = HOUR_MS});
    dlock *lock = connected(client);
    want.hold_max_ms = HOUR_MS;
    assert_status(dlock_release(wanted(lock, want), NULL), OK); /* its servers get an identity */
    eventually(exist() == 0);
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "NX", NULL, 0);
    dlock_hold *hold = wanted(lock, want);
    eventually(proxy_done(proxies[2]));
    assert_int_equal(hold->servers, 3 + (4 << 16));
    proxy_let_go(proxies[2]);
    eventually((pool_catch_up(&redis_of(client)->pool, hold->acquired_on),
                !redis_owes(hold->acquired_on, 2)));
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    assert_status(dlock_extend(hold), OK);
    assert_int_equal(hold->servers, 7);
    eventually(proxy_done(proxies[2])); /* else the proxy keeps a later answer back */
    server_text(servers[0], "FLUSHALL");
    proxy_let_go(proxies[2]);
    eventually(dlock_extend(hold) == DLOCK_OK && exists_on(0));
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
}

static void a_grant_that_comes_late_counts(void **state)
{
    (void)state;
    count_late_grant((struct dlock_want){.token = false});
}

static void a_grant_with_a_token_that_comes_late_counts(void **state)
{
    (void)state;
    count_late_grant((struct dlock_want){.token = true});
}

/* Most grants come after the decision, and each has to be confirmed before it counts. */
static void late_grants_are_confirmed_at_once(void **state)
{
    (void)state;
    struct record *events = record_new();
    eventually(no_scripts_were_sent());
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){.ttl_ms = HOUR_MS,
                                                                           .on_event = record_event,
                                                                           .on_event_arg = events});
    dlock *lock = connected(client);
    timekeeper_reaches_all(lock, 3);
    record_clear(events);
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[2]));
    eventually(record_told(events, "RENEWED", hold) > 0);
    assert_int_equal(record_count(events, "RENEWAL_FAILED"), 0);
    proxy_let_go(proxies[2]);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
    record_free(events);
}

static bool is_yes(void *arg, size_t server, const struct answer *answer)
{
    (void)arg;
    (void)server;
    return answer->status == DLOCK_OK;
}

/* Sends a SET to all, and leaves the answer of server 2 behind. */
static void ask_late(struct rung_env *env, struct quorum_hold *quorum)
{
    const char *const argv[] = {"SET", OTHER, "hold", NULL};
    const struct question question = {.is_yes = is_yes, .hears = quorum};
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "hold", NULL, 0);
    assert_int_equal(rung_poll(env, NULL, argv, &question, NULL).yes, 2);
    eventually(proxy_done(proxies[2]));
}

static void answer_late(const struct rung_env *env)
{
    proxy_let_go(proxies[2]);
    eventually((redis_catch_up(env->redis), !redis_owes(env->redis, 2)));
}

/* A server has the key, loses it, and says so. What it said before, and is read now, is void. */
static void what_a_server_said_before_it_lost_the_key(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    struct rung_env env;
    int64_t ends_ns = mono_deadline_ns(PATIENCE_MS);
    begin_calm(hold);
    assert_status(env_begin(lock, ends_ns, ends_ns, -1, NULL, &env), OK);
    heard_anew(hold->quorum, 7);
    ask_late(&env, hold->quorum);
    answer_late(&env);
    assert_int_equal(heard_from(hold->quorum, HEARD_KEY) & 4, 4);
    heard_anew(hold->quorum, 7);
    ask_late(&env, hold->quorum);
    heard_anew(hold->quorum, 7);
    answer_late(&env);
    assert_int_equal(heard_from(hold->quorum, HEARD_KEY) & 4, 0);
    env_end(lock, &env);
    end_calm(hold);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
}

/* What goes to every server is not sent to one that was named twice. It is kept. The answer to an
 * earlier request is not the answer to it. */
static void what_was_not_sent_stays_kept(void **state)
{
    (void)state;
    struct proxy *twin = proxy_start(servers[1]);
    const char *urls[] = {server_url(servers[0]), server_url(servers[1]), proxy_url(twin)};
    dlock_client *client = client_of_urls(urls, 3, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    struct rung_env env;
    int64_t ends_ns = mono_deadline_ns(PATIENCE_MS);
    const char *const argv[] = {"DEL", OTHER, NULL}, *const earlier[] = {"ECHO", "earlier"};
    const struct question question = {.is_yes = is_yes, .kept = 4};
    assert_status(env_begin(lock, ends_ns, ends_ns, -1, NULL, &env), OK);
    redis_ready_each(env.redis, ends_ns, -1);
    proxy_plan(twin, PROXY_HOLD_REPLY, "earlier", NULL, 0);
    redis_begin(env.redis);
    redis_append(env.redis, 2, 2, earlier, NULL);
    redis_send(env.redis);
    eventually(proxy_done(twin));
    assert_int_equal(rung_poll(&env, NULL, argv, &question, NULL).asked, 3);
    assert_true(redis_owes(env.redis, 2) && redis_keeps(env.redis));
    proxy_let_go(twin);
    eventually((redis_catch_up(env.redis), !redis_owes(env.redis, 2)));
    assert_true(redis_keeps(env.redis));
    env_end(lock, &env);
    end(client, lock);
    proxy_free(twin);
}

/* ---- Nobody waits ---------------------------------------------------------------------------- */

static void a_renewal_ends_when_it_is_decided(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    hold_renewals_at(2, 1);
    watched = pthread_self();
    timeouts = 0;
    assert_status(dlock_extend(hold), OK);
    assert_int_equal(timeouts, 0);
    eventually(proxy_done(proxies[2]));
    let_go(2, 1);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
}

/* A server does not answer what sets a key again. Another hold is renewed meanwhile, and the loss
 * of a third one is reported. */
static void what_sets_a_key_again_delays_nobody(void **state)
{
    (void)state;
    char event[64];
    struct record *events = record_new();
    dlock_client *client = client_behind_proxies(
        3,
        (struct dlock_options){.ttl_ms = 9000, .on_event = record_event, .on_event_arg = events});
    dlock *lock = connected(client), *other, *third;
    assert_status(dlock_open_ops(client, &rung_redlock, OTHER, &other), OK);
    assert_status(dlock_open_ops(client, &rung_redlock, "third", &third), OK);
    dlock_hold *hold = acquired(lock), *renewed = acquired(other);
    counted_by(hold, 3);
    counted_by(renewed, 3);
    proxy_plan(proxies[1], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    server_text(servers[1], "FLUSHALL");
    eventually(proxy_done(proxies[1])); /* by the timekeeper */
    record_clear(events);
    dlock_hold *brief = wanted(third, (struct dlock_want){.ttl_ms = 100, .hold_max_ms = 100});
    eventually(record_count(events, "LOST #") == 1);
    assert_false(dlock_valid(brief));
    snprintf(event, sizeof event, "RENEWED #%llu ", (unsigned long long)dlock_acquisition(renewed));
    eventually(record_count(events, event) > 1);
    assert_int_equal(record_count(events, "LOST #"), 1);
    proxy_let_go(proxies[1]);
    assert_status(dlock_release(brief, NULL), LOST);
    assert_status(dlock_release(renewed, NULL), OK);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(other);
    dlock_close(third);
    end_behind_proxies(client, lock);
    flush_all();
    record_free(events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_call_puts_off_no_renewal),
        cmocka_unit_test(renewed_while_a_call_waits_for_a_connection),
        cmocka_unit_test(a_call_waits_without_a_connection),
        cmocka_unit_test(a_hold_is_extended_once_at_a_time),
        cmocka_unit_test(a_grant_that_comes_late_counts),
        cmocka_unit_test(a_grant_with_a_token_that_comes_late_counts),
        cmocka_unit_test(late_grants_are_confirmed_at_once),
        cmocka_unit_test(what_a_server_said_before_it_lost_the_key),
        cmocka_unit_test(what_was_not_sent_stays_kept),
        cmocka_unit_test(a_renewal_ends_when_it_is_decided),
        cmocka_unit_test(what_sets_a_key_again_delays_nobody),
    };
    return cmocka_run_group_tests_name("redlock_rounds", tests, servers_start, servers_stop);
}
