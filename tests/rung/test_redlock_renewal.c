/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: which servers' answers to a renewal count, and which servers get the key again.
 */
#include "extender.h"
#include "heard.h"
#include "redlock_stage.h"
#include "waiter.h"

/* ---- Which answers count --------------------------------------------------------------------- */

/* The late request of an acquire arrives after another client has held the lock. Two of three have
 * the key then, and one of them has not kept it all the time. */
static void a_late_grant_does_not_hide_a_loss(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock_client *others = client_of_first(3, (struct dlock_options){0});
    dlock *lock = connected(client), *other = connected(others);
    proxy_plan(proxies[2], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[2]) && exist() == 2);
    server_text(servers[1], "FLUSHALL");
    assert_status(dlock_release(acquired(other), NULL), OK); /* the servers 1 and 2 granted it */
    eventually(exist() == 1);
    proxy_let_go(proxies[2]);
    eventually(exists_on(2));
    assert_status(dlock_extend(hold), LOST);
    assert_false(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    end(others, other);
    end_behind_proxies(client, lock);
    flush_all();
}

#define HOUR_MS 3600000 /* a third and a thirtieth of it are longer than any test waits */

static struct record *renewals, *commands;

static dlock_client *recorded_client(void)
{
    renewals = record_new();
    commands = record_new();
    eventually(no_scripts_were_sent());
    return client_behind_proxies(3, (struct dlock_options){.ttl_ms = HOUR_MS,
                                                           .on_event = record_event,
                                                           .on_event_arg = renewals,
                                                           .on_trace = record_trace,
                                                           .on_trace_arg = commands});
}

static dlock *recorded_lock(dlock_client *client)
{
    dlock *lock = connected(client);
    timekeeper_reaches_all(lock, 3);
    return lock;
}

static void end_recorded(dlock_client *client, dlock *lock)
{
    end_behind_proxies(client, lock);
    record_free(renewals);
    record_free(commands);
    flush_all();
}

/* A hold for which the servers 0 and 1 count; server 2 answers to the acquire as planned. The
 * timekeeper has renewed it once, and does not any more. */
static dlock_hold *counted_by_two(dlock *lock, enum proxy_act act)
{
    proxy_plan(proxies[2], act, "NX", NULL, 0);
    record_clear(renewals);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[2]) && record_told(renewals, "RENEWED", hold) > 0);
    assert_int_equal(record_count(renewals, "RENEWAL_FAILED"), 0);
    assert_int_equal(hold->servers & 0xffff, 3);
    return hold;
}

/* How many answers to renewals of the hold have been read. */
static size_t renewals_answered(const dlock_hold *hold)
{
    char words[160];
    snprintf(words, sizeof words, "\" 1 " LOCK " %s ", hold->id);
    return record_count(commands, words);
}

/* Extends the hold of a client of three, behind proxies. Server 0 answers after the others, whose
 * answers are read by then. */
static dlock_status extended_with_0_last(dlock_hold *hold)
{
    struct extender extender = {.hold = hold};
    record_clear(commands);
    proxy_plan(proxies[0], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    extender_start(&extender);
    eventually(proxy_done(proxies[0]) && renewals_answered(hold) == 2);
    proxy_let_go(proxies[0]);
    return extender_end(&extender);
}

static void a_server_that_says_no_counts_no_more(void **state)
{
    (void)state;
    dlock_client *client = recorded_client();
    dlock *lock = recorded_lock(client);
    dlock_hold *hold = counted_by_two(lock, PROXY_HOLD_REPLY);
    proxy_let_go(proxies[2]);
    counted_by(hold, 3);
    eventually((pool_catch_up(&redis_of(client)->pool, hold->acquired_on),
                !redis_owes(hold->acquired_on, 2)));
    server_text(servers[1], "FLUSHALL");
    assert_status(extended_with_0_last(hold), OK);
    assert_int_equal(hold->servers & 0xffff, 5);
    assert_status(dlock_release(hold, NULL), OK);
    end_recorded(client, lock);
}

/* The acquire came late, and its key was lost before anyone saw it. A renewal on the same
 * connection shows that, so the key is set again in the same round. */
static void a_request_that_was_followed_is_over_at_once(void **state)
{
    (void)state;
    dlock_client *client = recorded_client();
    dlock *lock = recorded_lock(client);
    dlock_hold *hold = counted_by_two(lock, PROXY_HOLD_REQUEST);
    proxy_let_go(proxies[2]);
    eventually(exists_on(2));
    server_text(servers[2], "FLUSHALL");
    assert_status(extended_with_0_last(hold), OK);
    assert_int_equal(hold->quorum->again, 4);
    counted_by(hold, 3);
    assert_status(dlock_release(hold, NULL), OK);
    end_recorded(client, lock);
}

/* In one round another client has held the lock after the yes of server 1, and before that of
 * server 2. So the latter says nothing about the time before it. */
static void a_server_joins_only_after_a_later_round(void **state)
{
    (void)state;
    dlock_client *client = recorded_client();
    dlock_client *others = client_of_first(3, (struct dlock_options){0});
    dlock *lock = recorded_lock(client), *other = connected(others);
    struct extender extender = {.hold = counted_by_two(lock, PROXY_HOLD_REQUEST)};
    record_clear(commands);
    proxy_plan(proxies[0], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    extender_start(&extender);
    eventually(proxy_done(proxies[0]) && renewals_answered(extender.hold) == 1); /* of server 1 */
    server_text(servers[1], "FLUSHALL");
    assert_status(dlock_release(acquired(other), NULL), OK); /* the servers 1 and 2 granted it */
    eventually(exist() == 1);
    proxy_let_go(proxies[2]);
    eventually(renewals_answered(extender.hold) == 2);
    proxy_let_go(proxies[0]);
    assert_status(extender_end(&extender), OK);
    assert_status(dlock_extend(extender.hold), LOST);
    assert_status(dlock_release(extender.hold, NULL), LOST);
    end(others, other);
    end_recorded(client, lock);
}

/* Server 2 has had the key before the round, and only one that counts confirms the hold in it. */
static void a_server_joins_only_after_a_majority(void **state)
{
    (void)state;
    dlock_client *client = recorded_client();
    dlock *lock = recorded_lock(client);
    dlock_hold *hold = counted_by_two(lock, PROXY_HOLD_REPLY);
    proxy_let_go(proxies[2]);
    eventually((pool_catch_up(&redis_of(client)->pool, hold->acquired_on),
                (heard_from(hold->quorum, HEARD_KEY) & 4) != 0));
    proxy_plan(proxies[1], PROXY_CUT_REPLY, "PEXPIRE", NULL, 0);
    assert_status(dlock_extend(hold), UNKNOWN);
    assert_true(proxy_done(proxies[1]));
    assert_int_equal(hold->servers & 0xffff, 3);
    counted_by(hold, 3);
    assert_status(dlock_release(hold, NULL), OK);
    end_recorded(client, lock);
}

/* ---- What is renewed, and set again ---------------------------------------------------------- */

static void renewed_by_a_majority(void **state)
{
    (void)state;
    struct record *events = record_new();
    dlock_client *client = client_of_first(
        5,
        (struct dlock_options){.ttl_ms = 3000, .on_event = record_event, .on_event_arg = events});
    dlock *lock = connected(client);
    server_kill(servers[3]);
    server_kill(servers[4]);
    dlock_hold *hold = acquired(lock);
    eventually(record_count(events, "RENEWED") >= 2);
    assert_true(dlock_valid(hold));
    for (int i = 0; i < 3; i++)
        server_integer(servers[i], "DEL " LOCK);
    eventually(record_count(events, "LOST #") == 1);
    assert_int_equal(record_count(events, "no longer belongs to this owner"), 1);
    assert_false(dlock_valid(hold));
    for (int i = 0; i < 3; i++)
        assert_false(exists_on((size_t)i)); /* it was not acquired again */
    assert_status(dlock_release(hold, NULL), LOST);
    server_restart(servers[3], NULL);
    server_restart(servers[4], NULL);
    end(client, lock);
    record_free(events);
}

/* Two of three servers have no room for the timekeeper's own connection. One of the pool is open to
 * all three. */
static void renewed_on_a_connection_to_a_majority(void **state)
{
    (void)state;
    struct record *events = record_new();
    dlock_client *client = client_of_first(
        3, (struct dlock_options){.on_event = record_event, .on_event_arg = events});
    dlock *lock = connected(client);
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 6000};
    for (int i = 0; i < 2; i++)
        server_text(servers[i], "CONFIG SET maxclients 1"); /* no more than there are */
    dlock_hold *hold = wanted(lock, want);
    eventually(record_count(events, "RENEWED") >= 2 || !dlock_valid(hold));
    assert_true(dlock_valid(hold));
    assert_int_equal(stats_of(client).renewals_failed, 0);
    for (int i = 0; i < 2; i++) /* the release may come while another renewal uses it */
        server_text(servers[i], "CONFIG SET maxclients 1000");
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
    record_free(events);
}

/* Two of the timekeeper's connections break before a renewal, one of them with a reply missing.
 * That is reported while it connects anew, which goes on all the same. */
static void renewed_although_an_outage_is_reported(void **state)
{
    (void)state;
    struct record *events = record_new();
    eventually(no_scripts_were_sent());
    dlock_client *client = client_of_first(3, (struct dlock_options){.ttl_ms = HOUR_MS,
                                                                     .on_event = record_event,
                                                                     .on_event_arg = events});
    dlock *lock = connected(client);
    timekeeper_reaches_all(lock, 3);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    server_text(servers[0], "CLIENT PAUSE 3600000 WRITE");
    record_clear(events);
    are_due(&hold, 1, hold);
    eventually(record_told(events, "RENEWED", hold) > 0);
    for (int i = 0; i < 2; i++)
        server_integer(servers[i], "CLIENT KILL TYPE normal");
    server_text(servers[0], "CLIENT UNPAUSE");
    record_clear(events);
    are_due(&hold, 1, hold);
    eventually(record_told(events, "RENEWED", hold) + record_told(events, "RENEWAL_FAILED", hold) >
               0);
    assert_int_equal(record_told(events, "RENEWAL_FAILED", hold), 0);
    assert_int_equal(stats_of(client).connections_lost, 1);
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
    record_free(events);
}

/* Two of three servers have it. The call's connection to one of them has broken, and the one to the
 * third has not. So it still has a majority, but not of those two. */
static void extended_by_its_own_majority(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){.ttl_ms = 600000});
    dlock *lock = connected(client);
    server_text(servers[0], "SET " LOCK " another");
    dlock_hold *hold = acquired(lock);
    server_integer(servers[2], "CLIENT KILL TYPE normal");
    assert_status(dlock_extend(hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    server_integer(servers[0], "DEL " LOCK);
    end(client, lock);
}

/* One server comes back empty: while a majority confirms the hold, its key is set there again. */
static void an_empty_server_gets_the_key_again(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){.ttl_ms = 600000});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    server_kill(servers[1]);
    server_restart(servers[1], NULL);
    eventually((dlock_extend(hold) == DLOCK_OK) && exists_on(1));
    assert_true(server_integer(servers[1], "PTTL " LOCK) > 500000);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    end(client, lock);
}

/* No majority has it any more: nothing is set again, and another's key stays. */
static void nothing_is_acquired_again(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){.ttl_ms = 600000});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    server_text(servers[0], "SET " LOCK " another PX 600000");
    assert_status(dlock_extend(hold), OK);
    assert_string_equal(server_text(servers[0], "GET " LOCK), "another");
    server_integer(servers[1], "DEL " LOCK);
    assert_status(dlock_extend(hold), LOST);
    assert_false(exists_on(1));
    assert_status(dlock_release(hold, NULL), LOST);
    flush_all();
    end(client, lock);
}

/* Takes the connection of the acquire from the pool, until env_end. The next call uses another one,
 * which is connected to all servers. */
static void take_acquires_connection(dlock_hold *hold, struct rung_env *env)
{
    struct rung_env other;
    int64_t ends_ns = mono_deadline_ns(PATIENCE_MS);
    assert_status(env_begin(hold->lock, ends_ns, ends_ns, -1, hold->acquired_on, env), OK);
    assert_ptr_equal(env->redis, hold->acquired_on);
    assert_status(env_begin(hold->lock, ends_ns, ends_ns, -1, NULL, &other), OK);
    eventually(redis_ready(other.redis, mono_ns(), -1) == DLOCK_OK &&
               redis_count_up(other.redis) == redis_nodes(other.redis));
    env_end(hold->lock, &other);
}

/* The grant of one server comes late. The first renewal comes soon, and that server counts from
 * then on: so the hold stays when another one loses it. */
static void a_late_grant_counts_after_a_renewal(void **state)
{
    (void)state;
    struct rung_env env;
    dlock_client *client = recorded_client();
    dlock *lock = recorded_lock(client);
    dlock_hold *hold = counted_by_two(lock, PROXY_HOLD_REQUEST);
    take_acquires_connection(hold, &env);
    assert_status(extended_with_0_last(hold), OK); /* server 2 has said that it has no key */
    assert_int_equal(hold->servers, 3 + (4 << 16));
    assert_int_equal(hold->quorum->again, 0); /* its own request is still on its way, */
    assert_false(exists_on(2));               /* so there is no second one */
    env_end(lock, &env);
    proxy_let_go(proxies[2]);
    eventually(exists_on(2));
    counted_by(hold, 3);
    assert_int_equal(hold->servers, 7);
    server_text(servers[1], "FLUSHALL");
    eventually(dlock_extend(hold) == DLOCK_OK && exists_on(1)); /* it was set again, */
    counted_by(hold, 3);                                        /* and counts from a round on */
    assert_int_equal(hold->servers, 7);
    assert_status(dlock_release(hold, NULL), OK);
    end_recorded(client, lock);
}

static dlock_status extended(dlock_hold *hold)
{
    hold->renews_ms = -1;
    return dlock_extend(hold);
}

/* A server comes back. The rounds look for it soon: when they have connected to it, and when they
 * have asked it for the first time. Each once, for it may be silent for ever. */
static void a_server_that_comes_back_is_looked_for_soon(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){.ttl_ms = HOUR_MS});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    server_kill(servers[2]);
    eventually(extended(hold) == DLOCK_OK && hold->quorum->met == 3 && hold->quorum->near == 0);
    assert_int_equal(hold->renews_ms, 0);

    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "INFO", NULL, 0);
    server_restart(servers[2], NULL);
    eventually(extended(hold) == DLOCK_OK && hold->quorum->near == 4);
    assert_int_equal(hold->renews_ms, HOUR_MS / 30);
    assert_status(extended(hold), OK);
    assert_int_equal(hold->quorum->near, 4);
    assert_int_equal(hold->renews_ms, 0);

    eventually(proxy_done(proxies[2]));
    proxy_let_go(proxies[2]);
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    eventually(extended(hold) == DLOCK_OK && hold->quorum->met == 7);
    assert_int_equal(hold->renews_ms, HOUR_MS / 30);
    assert_status(extended(hold), OK);
    assert_int_equal(hold->renews_ms, 0);
    eventually(proxy_done(proxies[2]));
    proxy_let_go(proxies[2]);
    eventually(dlock_extend(hold) == DLOCK_OK && exists_on(2));
    counted_by(hold, 3);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    flush_all();
}

/* Server 0 answers last, so server 2 has said that it has no key. */
static int64_t renews_ms_after_extending(dlock_hold *hold)
{
    hold->renews_ms = -1;
    assert_status(extended_with_0_last(hold), OK);
    assert_int_equal(hold->quorum->again & 4, 4);
    return hold->renews_ms;
}

/* All that was sent on the connection of the pool is answered. */
static bool pool_owes_nothing(dlock_client *client, const dlock_hold *hold)
{
    const struct redis *redis = hold->acquired_on;
    pool_catch_up(&redis_of(client)->pool, redis);
    return !redis_owes(redis, 0) && !redis_owes(redis, 1) && !redis_owes(redis, 2);
}

static bool is_refused(dlock_client *client, const dlock_hold *hold)
{
    return pool_owes_nothing(client, hold) && (heard_from(hold->quorum, HEARD_REFUSED) & 4) != 0;
}

/* A server has lost the key, and has no room for it. After it has said so, no renewal comes sooner
 * because of it. Each still sets the key, until that succeeds. */
static void a_server_that_refuses_the_key_makes_no_renewal_sooner(void **state)
{
    (void)state;
    dlock_client *client = recorded_client();
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    eventually(pool_owes_nothing(client, hold));
    server_text(servers[2], "FLUSHALL");
    server_text(servers[2], "CONFIG SET maxmemory 1");
    assert_int_equal(renews_ms_after_extending(hold), HOUR_MS / 30);
    for (int i = 0; i < 2; i++) {
        eventually(is_refused(client, hold));
        assert_int_equal(renews_ms_after_extending(hold), 0);
    }
    eventually(is_refused(client, hold));
    server_text(servers[2], "CONFIG SET maxmemory 0");
    counted_by(hold, 3);
    assert_status(dlock_release(hold, NULL), OK);
    end_recorded(client, lock);
}

/* It has never granted the hold. It is asked in each round, and makes only one come sooner. */
static void a_server_that_is_silent_from_the_start(void **state)
{
    (void)state;
    dlock_client *client = recorded_client();
    dlock *lock = connected(client);
    server_pause(servers[2]);
    dlock_hold *hold = acquired(lock);
    eventually(extended(hold) == DLOCK_OK && hold->renews_ms == 0 && hold->quorum->silent == 4);
    server_resume(servers[2]);
    counted_by(hold, 3);
    assert_status(dlock_release(hold, NULL), OK);
    end_recorded(client, lock);
}

/* A majority has renewed it, and one that counts does not answer. It goes on counting. */
static void one_that_does_not_answer_goes_on_counting(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    server_pause(servers[2]);
    assert_status(dlock_extend(hold), OK);
    server_resume(servers[2]);
    assert_int_equal(hold->servers, 7);
    server_text(servers[1], "FLUSHALL");
    assert_status(dlock_extend(hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
    flush_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_grant_does_not_hide_a_loss),
        cmocka_unit_test(a_server_that_says_no_counts_no_more),
        cmocka_unit_test(a_request_that_was_followed_is_over_at_once),
        cmocka_unit_test(a_server_joins_only_after_a_later_round),
        cmocka_unit_test(a_server_joins_only_after_a_majority),
        cmocka_unit_test(a_late_grant_counts_after_a_renewal),
        cmocka_unit_test(a_server_that_comes_back_is_looked_for_soon),
        cmocka_unit_test(a_server_that_is_silent_from_the_start),
        cmocka_unit_test(a_server_that_refuses_the_key_makes_no_renewal_sooner),
        cmocka_unit_test(one_that_does_not_answer_goes_on_counting),
        cmocka_unit_test(renewed_by_a_majority),
        cmocka_unit_test(renewed_on_a_connection_to_a_majority),
        cmocka_unit_test(renewed_although_an_outage_is_reported),
        cmocka_unit_test(extended_by_its_own_majority),
        cmocka_unit_test(an_empty_server_gets_the_key_again),
        cmocka_unit_test(nothing_is_acquired_again),
    };
    return cmocka_run_group_tests_name("redlock_renewal", tests, servers_start, servers_stop);
}
