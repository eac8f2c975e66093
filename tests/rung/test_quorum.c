/* SPDX-License-Identifier: Apache-2.0
 *
 * A seam: a majority of three servers, asked side by side. One of them may be dead or hang.
 */
#include "background.h"
#include "calls.h"
#include "child.h"
#include "must.h"
#include "proxy.h"
#include "record.h"
#include "redis_rung.h"
#include "server.h"
#include "validate.h"

#include <string.h>

#define LOCK "lock:{quorum}"
#define SERVERS 3
/* ---- The rung -------------------------------------------------------------------------------- */

static bool is_ok(const struct answer *answer)
{
    return strcmp(answer->text, "OK") == 0;
}

static bool is_one(const struct answer *answer)
{
    return answer->kind == DLOCK_REPLY_INTEGER && answer->integer == 1;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    struct votes votes = VOTE(env, &lua_delete_if_owner, is_one, "1", hold->key, hold->id);
    if (votes.yes >= votes.needed)
        return DLOCK_OK;
    return votes.yes + votes.unknown >= votes.needed ? DLOCK_UNKNOWN : DLOCK_LOST;
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct votes votes = VOTE(env, NULL, is_ok, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
    if (votes.yes >= votes.needed)
        return DLOCK_OK;
    if (votes.yes + votes.unknown > 0 && redis_ready(env->redis, env->deadline_ns, -1) == DLOCK_OK)
        release(env, hold);
    if (votes.yes + votes.no < votes.needed)
        return fail(DLOCK_UNREACHABLE, "fewer than %zu servers answered", votes.needed);
    return DLOCK_BUSY;
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold, const char *ttl)
{
    struct votes votes = VOTE(env, &lua_renew_if_owner, is_one, "1", hold->key, hold->id, ttl);
    if (votes.yes >= votes.needed)
        return DLOCK_OK;
    return votes.no >= votes.needed ? DLOCK_LOST : DLOCK_UNREACHABLE;
}

static const struct rung_ops quorum = {
    .name = "quorum",
    .traits = TRAIT_EXPIRES | TRAIT_QUORUM,
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
};

/* As `quorum`, but it leaves lost replies to the exchange. */
static dlock_status try_or_doubt(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct votes votes = VOTE(env, NULL, is_ok, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
    if (votes.yes >= votes.needed)
        return DLOCK_OK;
    if (votes.unknown > 0)
        return fail(DLOCK_UNKNOWN, "%zu servers did not answer", votes.unknown);
    if (votes.yes > 0)
        release(env, hold);
    return DLOCK_BUSY;
}

static bool is_of(void *arg, const struct answer *answer)
{
    const struct dlock_hold *hold = arg;
    return strcmp(answer->text, hold->id) == 0;
}

static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    const char *const argv[] = {"GET", hold->key, NULL};
    struct votes votes = rung_poll(env, NULL, argv, is_of, hold);
    if (votes.yes >= votes.needed)
        return DLOCK_OK;
    if (votes.yes > 0)
        release(env, hold);
    return DLOCK_BUSY;
}

static const struct rung_ops doubtful = {
    .name = "doubtful",
    .traits = TRAIT_EXPIRES | TRAIT_QUORUM,
    .try_acquire = try_or_doubt,
    .release = release,
    .renew = renew,
    .resolve = resolve,
};

/* ---- The tests ------------------------------------------------------------------------------- */

static struct server *servers[SERVERS];
static const char *urls[SERVERS + 1];

static void oracle_of(int threads, int rounds)
{
    assert_true(oracle_agrees(&(struct oracle){
        .ops = &quorum,
        .servers = urls,
        .expected = HOLDS,
        .processes = 2,
        .threads = threads,
        .rounds = rounds,
    }));
}

static dlock_client *client_of_all(struct dlock_options options)
{
    dlock_client *client;
    options.size = sizeof options;
    options.servers = urls;
    options.server_count = SERVERS;
    if (options.connect_timeout_ms == 0)
        options.connect_timeout_ms = 10000;
    if (options.command_timeout_ms == 0)
        options.command_timeout_ms = 10000;
    assert_status(dlock_client_open(&options, &client), OK);
    return client;
}

static dlock *opened(dlock_client *client)
{
    dlock *lock;
    assert_status(dlock_open_ops(client, &quorum, LOCK, &lock), OK);
    return lock;
}

static int exist(void)
{
    int count = 0;
    for (int i = 0; i < SERVERS; i++)
        count += (int)server_integer(servers[i], "EXISTS " LOCK);
    return count;
}

static void all_alive(void **state)
{
    (void)state;
    oracle_of(3, 8);
    dlock_client *client = client_of_all((struct dlock_options){0});
    dlock *lock = opened(client);
    dlock_hold *hold = acquired(lock);
    assert_int_equal(exist(), SERVERS);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(exist(), 0);
    dlock_close(lock);
    dlock_client_close(client);
}

static void one_dead(void **state)
{
    (void)state;
    server_kill(servers[0]);
    oracle_of(3, 8);
    server_restart(servers[0], NULL);
}

static void one_hangs(void **state)
{
    (void)state;
    dlock_client *client = client_of_all((struct dlock_options){.ttl_ms = 5000});
    dlock *lock; /* of its own: what the server gets late stays there until it expires */
    assert_status(dlock_open_ops(client, &quorum, "lock:{hangs}", &lock), OK);
    dlock_hold *hold = acquired(lock); /* by a connection to each */
    assert_status(dlock_release(hold, NULL), OK);
    server_pause(servers[1]);
    for (int i = 0; i < 5; i++) {
        hold = acquired(lock);
        assert_status(dlock_release(hold, NULL), OK);
    }
    /* None waited for it, for 10 s: after that nothing of the validity is left, so it tries again.
     */
    struct dlock_stats stats = {.size = sizeof stats};
    dlock_client_stats(client, &stats);
    assert_int_equal(stats.attempts, 6);
    dlock_close(lock);
    dlock_client_close(client);
    server_resume(servers[1]);
}

static void one_hangs_for_many(void **state)
{
    (void)state;
    server_pause(servers[1]);
    oracle_of(1, 3);
    server_resume(servers[1]);
}

/* No majority: nobody has it, and what one server gave is given back. */
static void two_dead(void **state)
{
    (void)state;
    dlock_client *client = client_of_all((struct dlock_options){0});
    dlock *lock = opened(client);
    dlock_hold *hold;
    server_kill(servers[0]);
    server_kill(servers[2]);
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "fewer than 2");
    assert_int_equal(server_integer(servers[1], "EXISTS " LOCK), 0);
    server_restart(servers[0], NULL);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    server_restart(servers[2], NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

/* Another has a majority: what the minority gave is given back. */
static void a_minority_is_given_back(void **state)
{
    (void)state;
    dlock_client *client = client_of_all((struct dlock_options){0});
    dlock *lock = opened(client);
    dlock_hold *hold;
    server_text(servers[0], "SET " LOCK " another");
    server_text(servers[1], "SET " LOCK " another");
    assert_status(tried(lock, &hold), BUSY);
    assert_int_equal(exist(), 2);
    server_integer(servers[0], "DEL " LOCK);
    assert_status(tried(lock, &hold), OK);
    assert_int_equal(exist(), 3);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(exist(), 1);
    server_integer(servers[1], "DEL " LOCK);
    dlock_close(lock);
    dlock_client_close(client);
}

/* The timekeeper renews on all that answer, and says LOST when a majority says no. */
static void renewed_by_a_majority(void **state)
{
    (void)state;
    struct record *events = record_new();
    dlock_client *client = client_of_all(
        (struct dlock_options){.ttl_ms = 2000, .on_event = record_event, .on_event_arg = events});
    dlock *lock = opened(client);
    server_kill(servers[2]);
    dlock_hold *hold = acquired(lock);
    eventually(record_count(events, "RENEWED") >= 2);
    assert_true(dlock_valid(hold));
    server_integer(servers[0], "DEL " LOCK);
    server_integer(servers[1], "DEL " LOCK);
    eventually(record_count(events, "LOST") == 1);
    assert_int_equal(record_count(events, "no longer belongs to this owner"), 1);
    assert_false(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    server_restart(servers[2], NULL);
    dlock_close(lock);
    dlock_client_close(client);
    record_free(events);
}

/* The commands that ride go to the first server, in the lock's own write. */
static void riding_goes_to_the_first(void **state)
{
    (void)state;
    dlock_client *client = client_of_all((struct dlock_options){0});
    dlock *lock = opened(client);
    dlock_batch *batch = dlock_batch_new();
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .reads = batch};
    struct dlock_reply reply = {.size = sizeof reply};
    dlock_hold *hold;
    server_text(servers[0], "SET stock 7");
    dlock_batch_add(batch, 2, (const char *const[]){"GET", "stock"}, NULL);
    assert_status(dlock_acquire(lock, &want, &hold), OK);
    assert_status(dlock_batch_reply(batch, 0, &reply), OK);
    assert_string_equal(reply.text, "7");
    dlock_batch_clear(batch);
    dlock_batch_add(batch, 2, (const char *const[]){"DECR", "stock"}, NULL);
    assert_status(dlock_release(hold, batch), OK);
    assert_status(dlock_batch_reply(batch, 0, &reply), OK);
    assert_int_equal(reply.integer, 6);
    assert_int_equal(server_integer(servers[1], "EXISTS stock"), 0);
    dlock_batch_free(batch);
    dlock_close(lock);
    dlock_client_close(client);
}

/* Who holds it is whom a majority names; the longest time for which one does is left. */
static void a_majority_says_who_holds_it(void **state)
{
    (void)state;
    dlock_client *client = client_of_all((struct dlock_options){.ttl_ms = 600000});
    dlock *lock = opened(client);
    assert_false(holder_of(lock).held);
    dlock_hold *hold = acquired(lock);
    assert_string_equal(holder_of(lock).owner, hold->id);
    server_integer(servers[0], "PEXPIRE " LOCK " 100000");
    assert_true(holder_of(lock).ttl_ms > 500000);
    server_text(servers[2], "SET " LOCK " another PX 300000");
    assert_true(holder_of(lock).held);
    assert_true(holder_of(lock).ttl_ms <= 100000);
    server_text(servers[0], "SET " LOCK " a-third");
    assert_false(holder_of(lock).held);
    server_text(servers[0], "SET " LOCK " another");
    assert_string_equal(holder_of(lock).owner, "another");
    assert_true(holder_of(lock).ttl_ms > 200000 && holder_of(lock).ttl_ms <= 300000);
    assert_status(dlock_break(lock, NULL), OK);
    assert_status(dlock_release(hold, NULL), LOST);
    dlock_close(lock);
    dlock_client_close(client);
}

static void who_holds_it_is_not_known(void **state)
{
    (void)state;
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_client *client = client_of_all((struct dlock_options){0});
    dlock *lock = opened(client);
    dlock_hold *hold = acquired(lock);
    server_kill(servers[2]);
    assert_true(holder_of(lock).held);
    server_integer(servers[1], "DEL " LOCK);
    assert_status(dlock_inspect(lock, &holder), UNREACHABLE); /* the dead one may be for it */
    assert_says(dlock_error(), "2 of 3 servers");
    server_integer(servers[0], "DEL " LOCK);
    assert_false(holder_of(lock).held);
    server_restart(servers[2], NULL);
    for (int i = 0; i < SERVERS; i++)
        server_integer(servers[i], "RPUSH " LOCK " a");
    assert_status(dlock_inspect(lock, &holder), WRONG_TYPE);
    assert_status(dlock_break(lock, NULL), WRONG_TYPE);
    assert_int_equal(exist(), SERVERS);
    for (int i = 0; i < SERVERS; i++)
        server_integer(servers[i], "DEL " LOCK);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

/* OK: no majority is left. */
static void broken_on_all(void **state)
{
    (void)state;
    struct dlock_holder broken = {.size = sizeof broken};
    dlock_client *client = client_of_all((struct dlock_options){0});
    dlock *lock = opened(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_break(lock, &broken), OK);
    assert_string_equal(broken.owner, hold->id);
    assert_int_equal(exist(), 0);
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    server_kill(servers[0]);
    assert_status(dlock_break(lock, NULL), OK);
    server_kill(servers[1]);
    assert_status(dlock_break(lock, NULL), UNKNOWN);
    assert_says(dlock_error(), "freed on 1 of 3 servers");
    server_kill(servers[2]);
    assert_status(dlock_break(lock, NULL), UNREACHABLE);
    for (int i = 0; i < SERVERS; i++)
        server_restart(servers[i], NULL);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

/* A break waits for a server that hangs, but not for longer than for one. The next does not wait
 * for it. */
static void a_break_meets_one_that_hangs(void **state)
{
    (void)state;
    struct dlock_options options = {.connect_timeout_ms = 300, .command_timeout_ms = 300};
    int64_t bound_ms = options.connect_timeout_ms + 2 * options.command_timeout_ms;
    dlock_client *client = client_of_all(options);
    dlock *lock = opened(client);
    dlock_hold *hold = acquired(lock);
    server_pause(servers[1]);
    int64_t begun_ms = clock_ms();
    assert_status(dlock_break(lock, NULL), UNKNOWN);
    assert_says(dlock_error(), "1 of 3 servers did not answer");
    assert_true(clock_ms() - begun_ms >= options.command_timeout_ms);
    assert_true(clock_ms() - begun_ms < bound_ms + 5000);
    assert_status(dlock_break(lock, NULL), OK); /* it is not connected: nothing was sent to it */
    server_resume(servers[1]);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

/* ---- Behind proxies -------------------------------------------------------------------------- */

static struct proxy *proxies[SERVERS];

static dlock_client *client_behind_proxies(int64_t command_timeout_ms)
{
    const char *proxy_urls[SERVERS];
    dlock_client *client;
    for (int i = 0; i < SERVERS; i++) {
        proxies[i] = proxy_start(servers[i]);
        proxy_urls[i] = proxy_url(proxies[i]);
    }
    struct dlock_options options = {.size = sizeof options,
                                    .servers = proxy_urls,
                                    .server_count = SERVERS,
                                    .connect_timeout_ms = PATIENCE_MS,
                                    .command_timeout_ms = command_timeout_ms};
    assert_status(dlock_client_open(&options, &client), OK);
    return client;
}

static void end_behind_proxies(dlock_client *client, dlock *lock)
{
    dlock_close(lock);
    dlock_client_close(client);
    for (int i = 0; i < SERVERS; i++)
        proxy_free(proxies[i]);
}

/* Two of the servers do not answer, and the other does not know the script: what the two were sent
 * must not free the next holder's keys. */
static void a_break_does_not_come_late(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(300);
    dlock *lock = opened(client);
    assert_status(dlock_break(lock, NULL), OK); /* connected, and all know the script */
    server_text(servers[0], "SCRIPT FLUSH");
    for (int i = 1; i < SERVERS; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REQUEST, LOCK, NULL, 0);
    assert_status(dlock_break(lock, NULL), UNKNOWN);
    assert_says(dlock_error(), "2 of 3 servers did not answer");
    for (int i = 0; i < SERVERS; i++)
        server_text(servers[i], "SET " LOCK " next");
    for (int i = 1; i < SERVERS; i++) {
        assert_true(proxy_done(proxies[i]));
        proxy_let_go(proxies[i]);
    }
    assert_int_equal(exist(), SERVERS);
    for (int i = 0; i < SERVERS; i++)
        server_integer(servers[i], "DEL " LOCK);
    end_behind_proxies(client, lock);
}

static void *let_go_late(void *arg)
{
    struct proxy *proxy = arg;
    eventually(proxy_done(proxy));
    long_pause(200);
    proxy_let_go(proxy);
    return NULL;
}

/* Who must be sent the script in full is waited for, though nobody else is asked any more. */
static void one_has_lost_the_script(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(PATIENCE_MS);
    dlock *lock = opened(client);
    assert_status(dlock_break(lock, NULL), OK);
    server_text(servers[0], "SCRIPT FLUSH");
    proxy_plan(proxies[0], PROXY_HOLD_REPLY, "redis.call", NULL, 0);
    pthread_t thread = thread_start(let_go_late, proxies[0]);
    assert_status(dlock_break(lock, NULL), OK);
    thread_wait(thread);
    end_behind_proxies(client, lock);
}

/* One that answers late is waited for as one alone would be, and so is one that connects late. */
static void a_break_waits_for_each(void **state)
{
    (void)state;
    static const char *const late[] = {LOCK, "INFO"};
    for (size_t i = 0; i < sizeof late / sizeof late[0]; i++) {
        dlock_client *client = client_behind_proxies(PATIENCE_MS);
        dlock *lock = opened(client);
        if (i == 0)
            assert_status(dlock_break(lock, NULL), OK); /* connected */
        for (int j = 0; j < SERVERS; j++)
            server_text(servers[j], "SET " LOCK " gone");
        proxy_plan(proxies[1], PROXY_HOLD_REPLY, late[i], NULL, 0);
        pthread_t thread = thread_start(let_go_late, proxies[1]);
        assert_status(dlock_break(lock, NULL), OK);
        thread_wait(thread);
        assert_int_equal(exist(), 0);
        end_behind_proxies(client, lock);
    }
}

static dlock *opened_doubtful(dlock_client *client)
{
    dlock *lock;
    assert_status(dlock_open_ops(client, &doubtful, LOCK, &lock), OK);
    return lock;
}

/* Two servers do not answer an acquire: what both were sent must not come later. */
static void an_acquire_does_not_come_late(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(300);
    dlock *lock = opened_doubtful(client);
    assert_status(dlock_release(acquired(lock), NULL), OK); /* connected */
    for (int i = 1; i < SERVERS; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    for (int i = 1; i < SERVERS; i++) {
        assert_true(proxy_done(proxies[i]));
        proxy_let_go(proxies[i]);
    }
    assert_int_equal(exist(), 0);
    end_behind_proxies(client, lock);
}

static dlock_client *impatient_client(void)
{
    return client_of_all((struct dlock_options){
        .ttl_ms = 600000, .connect_timeout_ms = 300, .command_timeout_ms = 300});
}

/* One holds another's key, one gave it, and one does not answer: what was acquired is given back
 * though that one still hangs; there, too, once it answers. */
static void a_doubt_keeps_nothing_back(void **state)
{
    (void)state;
    dlock_client *client = impatient_client();
    dlock *lock = opened_doubtful(client);
    dlock_hold *hold = acquired(lock); /* connected */
    assert_status(dlock_release(hold, NULL), OK);
    server_text(servers[0], "SET " LOCK " another");
    server_pause(servers[2]);
    assert_status(tried(lock, &hold), UNKNOWN);
    eventually(server_integer(servers[1], "EXISTS " LOCK) == 0);
    server_resume(servers[2]);
    server_integer(servers[0], "DEL " LOCK);
    eventually(kept_in_the_background(client) == 0);
    assert_int_equal(exist(), 0);
    dlock_close(lock);
    dlock_client_close(client);
}

/* The same, and the other's key expires: two of three are enough, whatever the third still does. */
static void a_doubt_is_not_waited_for(void **state)
{
    (void)state;
    dlock_client *client = impatient_client();
    dlock *lock = opened_doubtful(client);
    dlock_hold *hold = acquired(lock); /* connected */
    assert_status(dlock_release(hold, NULL), OK);
    server_text(servers[0], "SET " LOCK " another PX 1000");
    server_pause(servers[2]);
    hold = acquired(lock);
    server_resume(servers[2]);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
    for (int i = 0; i < SERVERS; i++)
        server_integer(servers[i], "DEL " LOCK);
}

static int start(void **state)
{
    (void)state;
    for (int i = 0; i < SERVERS; i++) {
        servers[i] = server_start(NULL);
        urls[i] = server_url(servers[i]);
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < SERVERS; i++)
        server_free(servers[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_alive),
        cmocka_unit_test(one_dead),
        cmocka_unit_test(one_hangs_for_many), /* it forks: before any client */
        cmocka_unit_test(one_hangs),
        cmocka_unit_test(two_dead),
        cmocka_unit_test(a_minority_is_given_back),
        cmocka_unit_test(renewed_by_a_majority),
        cmocka_unit_test(riding_goes_to_the_first),
        cmocka_unit_test(a_majority_says_who_holds_it),
        cmocka_unit_test(who_holds_it_is_not_known),
        cmocka_unit_test(broken_on_all),
        cmocka_unit_test(a_break_meets_one_that_hangs),
        cmocka_unit_test(a_break_does_not_come_late),
        cmocka_unit_test(one_has_lost_the_script),
        cmocka_unit_test(a_break_waits_for_each),
        cmocka_unit_test(an_acquire_does_not_come_late),
        cmocka_unit_test(a_doubt_keeps_nothing_back),
        cmocka_unit_test(a_doubt_is_not_waited_for),
    };
    return cmocka_run_group_tests_name("quorum", tests, start, stop);
}
