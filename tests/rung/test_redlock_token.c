/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock` with want.token: when a token counts, which servers may vote on it, and the identity of
 * the set of servers.
 */
#include "redlock_stage.h"
#include "validate.h"
#include "waiter.h"

#include <stdlib.h>

#define COUNT 3 /* of the servers in these tests */
#define TOKEN_KEY "dlock:token:" LOCK
#define IDENTITY_KEY "dlock:identity:set"
#define DAY_MS 86400000
#define AHEAD_US 3600000000LL
/* Each is in one script only: those of the two rounds, and that which makes an identity. */
#define ACQUIRES "KEYS[1] lock, KEYS[2] newest token"
#define PROPOSES "KEYS[1] newest token"
#define MAKES_IDENTITY "KEYS[1] the set's identity"

static const struct dlock_want wants = {.token = true};

static dlock_status tried_with_token(dlock *lock, dlock_hold **hold)
{
    struct dlock_want want = wants;
    want.size = sizeof want;
    return dlock_acquire(lock, &want, hold);
}

static uint64_t token_on(size_t server)
{
    return strtoull(server_text(servers[server], "GET " TOKEN_KEY), NULL, 10);
}

static bool all_accepted(uint64_t token)
{
    bool all = true;
    for (size_t i = 0; i < COUNT; i++)
        all = all && token_on(i) == token;
    return all;
}

static bool all_have(const char *identity)
{
    bool all = true;
    for (size_t i = 0; i < COUNT; i++)
        all = all && strcmp(server_text(servers[i], "GET " IDENTITY_KEY), identity) == 0;
    return all;
}

/* A lock whose servers have an identity, and have done all that earlier requests asked for. */
static dlock *settled(dlock_client *client)
{
    char identity[96];
    dlock *lock = connected(client);
    dlock_hold *hold = wanted(lock, wants);
    const uint64_t token = dlock_token(hold);
    snprintf(identity, sizeof identity, "%s", dlock_identity(hold));
    assert_status(dlock_release(hold, NULL), OK);
    eventually(all_have(identity) && all_accepted(token) && exist() == 0);
    return lock;
}

static int empty(void **state)
{
    (void)state;
    flush_all();
    return 0;
}

/* ---- The oracle ------------------------------------------------------------------------------ */

static void tokens_grow_over_processes(void **state)
{
    (void)state;
    const char *urls[COUNT + 1] = {NULL};
    for (size_t i = 0; i < COUNT; i++)
        urls[i] = server_url(servers[i]);
    assert_true(oracle_agrees(&(struct oracle){
        .ops = &rung_redlock,
        .servers = urls,
        .expected = HOLDS,
        .processes = 2,
        .threads = 3,
        .rounds = 8,
        .tokens = true,
    }));
}

/* ---- Who asks -------------------------------------------------------------------------------- */

static void no_token_that_was_not_asked_for(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_of_first(
        COUNT, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    dlock_hold *hold = wanted(lock, (struct dlock_want){.identity = true});
    assert_int_equal(dlock_token(hold), 0);
    assert_string_equal(dlock_identity(hold), "");
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(record_count(trace, "dlock:"), 0);
    hold = wanted(lock, wants);
    assert_true(dlock_token(hold) > 0);
    assert_true(record_count(trace, TOKEN_KEY) > 0);
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
    record_free(trace);
}

/* Several servers are no cluster, so a name needs no hash tag. */
static void names_with_braces(void **state)
{
    static const char *const names[] = {"a{b", "{}a", "a}b"};
    char key[64];
    (void)state;
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock_close(connected(client));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        dlock *lock;
        assert_status(dlock_open_ops(client, &rung_redlock, names[i], &lock), OK);
        dlock_hold *hold = wanted(lock, wants);
        snprintf(key, sizeof key, "dlock:token={%s}", names[i]);
        size_t accepted = 0;
        for (size_t j = 0; j < COUNT; j++)
            accepted += server_integer(servers[j], "EXISTS %s", key) == 1;
        assert_true(accepted > COUNT / 2);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

static void tokens_of_two_clients(void **state)
{
    (void)state;
    dlock_client *clients[2];
    dlock *locks[2];
    char identity[96] = "";
    uint64_t last = (uint64_t)server_us(servers[0]); /* no token is older than the first acquire */
    for (int i = 0; i < 2; i++) {
        clients[i] = client_of_first(COUNT, (struct dlock_options){0});
        locks[i] = settled(clients[i]);
    }
    for (int i = 0; i < 4; i++) {
        dlock_hold *hold = wanted(locks[i % 2], wants);
        assert_true(dlock_token(hold) > last);
        last = dlock_token(hold);
        if (i == 0)
            snprintf(identity, sizeof identity, "%s", dlock_identity(hold));
        assert_string_equal(dlock_identity(hold), identity);
        assert_status(dlock_release(hold, NULL), OK);
    }
    eventually(all_accepted(last));
    for (size_t i = 0; i < COUNT; i++) {
        assert_in_range(server_integer(servers[i], "PTTL " TOKEN_KEY), 1, DAY_MS);
        assert_int_equal(server_integer(servers[i], "PTTL " IDENTITY_KEY), -1);
    }
    for (int i = 0; i < 2; i++)
        end(clients[i], locks[i]);
}

/* ---- The identity ---------------------------------------------------------------------------- */

static void the_first_attempt_makes_the_identity(void **state)
{
    (void)state;
    char identity[96];
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    assert_status(tried_with_token(lock, &hold), REFUSED);
    assert_says(dlock_error(), "no majority of its servers has the same identity");
    snprintf(identity, sizeof identity, "1:%s:1", dlock_client_id(client));
    eventually(exist() == 0 && all_have(identity));
    assert_status(tried_with_token(lock, &hold), OK);
    assert_string_equal(dlock_identity(hold), identity);
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
}

/* The other two are the majority, and one of them is empty. */
static void refuses_without(size_t dead, dlock *lock, char identity[96])
{
    dlock_hold *hold;
    server_kill(servers[dead]);
    assert_status(tried_with_token(lock, &hold), REFUSED);
    assert_says(dlock_error(), "the same identity");
    hold = wanted(lock, wants);
    assert_string_not_equal(dlock_identity(hold), identity);
    assert_true(strtoull(dlock_identity(hold), NULL, 10) > strtoull(identity, NULL, 10));
    snprintf(identity, 96, "%s", dlock_identity(hold));
    assert_status(dlock_release(hold, NULL), OK);
    server_restart(servers[dead], NULL); /* empty */
    hold = acquired(lock);
    counted_by(hold, COUNT); /* so it is connected again */
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
}

static void a_server_that_lost_its_memory_gets_a_new_identity(void **state)
{
    (void)state;
    char identity[96];
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    snprintf(identity, sizeof identity, "%s", server_text(servers[0], "GET " IDENTITY_KEY));
    server_text(servers[2], "FLUSHALL");
    refuses_without(1, lock, identity);
    refuses_without(0, lock, identity);
    end(client, lock);
}

/* A server that gets it twice may have lost its memory in between, and has the value again. */
static void an_identity_is_proposed_once(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    proxy_plan(proxies[2], PROXY_CUT_REQUEST, MAKES_IDENTITY, NULL, 0);
    assert_status(tried_with_token(lock, &hold), REFUSED);
    eventually(proxy_done(proxies[2]));
    hold = acquired(lock);
    counted_by(hold, COUNT); /* so it is connected again */
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(proxy_requests(proxies[2], MAKES_IDENTITY), 1);
    assert_string_equal(server_text(servers[2], "GET " IDENTITY_KEY), "");
    end_behind_proxies(client, lock);
}

static void two_identities_of_a_client_differ(void **state)
{
    (void)state;
    char identity[96];
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    snprintf(identity, sizeof identity, "%s", server_text(servers[0], "GET " IDENTITY_KEY));
    flush_all();
    dlock_hold *hold = wanted(lock, wants);
    assert_string_not_equal(dlock_identity(hold), identity);
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
}

/* A proposal of an identity that comes late finds a larger one. */
static void a_smaller_identity_replaces_none(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    proxy_plan(proxies[2], PROXY_HOLD_REQUEST, MAKES_IDENTITY, NULL, 0);
    assert_status(tried_with_token(lock, &hold), REFUSED);
    eventually(proxy_done(proxies[2]));
    server_text(servers[2], "SET " IDENTITY_KEY " 7:later");
    struct monitor *monitor = monitor_start(servers[2]);
    proxy_let_go(proxies[2]);
    eventually(monitor_count(monitor, MAKES_IDENTITY) == 1);
    assert_string_equal(server_text(servers[2], "GET " IDENTITY_KEY), "7:later");
    monitor_free(monitor);
    end_behind_proxies(client, lock);
}

static void an_identity_that_is_too_long_is_none(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    for (size_t i = 0; i < COUNT; i++)
        server_text(servers[i], "SET " IDENTITY_KEY " %0100d", 7);
    assert_status(tried_with_token(lock, &hold), REFUSED);
    hold = wanted(lock, wants);
    assert_int_equal(strncmp(dlock_identity(hold), "1:", 2), 0);
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
}

/* It is larger than what the library reads of one reply. */
static void a_large_identity_is_none(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    for (size_t i = 1; i < COUNT; i++)
        server_integer(servers[i], "SETRANGE " IDENTITY_KEY " 3000000 x");
    assert_status(tried_with_token(lock, &hold), REFUSED);
    assert_status(dlock_release(wanted(lock, wants), NULL), OK);
    assert_int_equal(stats_of(client).connections_lost, 0);
    end(client, lock);
}

/* The number of each is too large to go above it, or a zero byte ends its text early. */
static void a_foreign_identity_is_replaced(void **state)
{
    static const char *const foreign[] = {"'18446744073709551615:x'", "'99999999999999999999:x'",
                                          "'5:a\\0b'", "'5:a b'"};
    char script[128];
    (void)state;
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        dlock *lock = settled(client);
        snprintf(script, sizeof script, "redis.call('SET', KEYS[1], %s .. ARGV[1])", foreign[i]);
        for (size_t j = 0; j < COUNT; j++)
            server_text(servers[j], "EVAL %s 1 " IDENTITY_KEY " %d", script, (int)j);
        assert_status(dlock_release(wanted(lock, wants), NULL), OK);
        server_text(servers[0], "EVAL %s 1 " IDENTITY_KEY " x", script);
        server_integer(servers[1], "DEL " IDENTITY_KEY);
        assert_status(dlock_release(wanted(lock, wants), NULL), OK);
        flush_all();
        dlock_close(lock);
    }
    dlock_client_close(client);
}

/* Numbers of a script are exact up to 2^53. If the other servers accepted such a token, they would
 * accept none after it. */
static void a_foreign_token_has_no_vote(void **state)
{
    static const char *const foreign[] = {"9007199254740992", "9200000000000000000", "nan", "inf"};
    (void)state;
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        dlock_hold *hold;
        dlock *lock = settled(client);
        server_text(servers[0], "SET " TOKEN_KEY " %s", foreign[i]);
        for (int j = 0; j < 3; j++) {
            hold = wanted(lock, wants);
            assert_true(dlock_token(hold) < (uint64_t)1 << 53);
            assert_status(dlock_release(hold, NULL), OK);
        }
        server_text(servers[1], "SET " TOKEN_KEY " %s", foreign[i]);
        assert_status(tried_with_token(lock, &hold), REFUSED);
        assert_says(dlock_error(), TOKEN_KEY " has no token");
        assert_string_equal(server_text(servers[1], "GET " TOKEN_KEY), foreign[i]);
        flush_all();
        dlock_close(lock);
    }
    dlock_client_close(client);
}

/* ---- The second round ------------------------------------------------------------------------ */

/* A server on which a key of the library holds something else has no vote. Nothing is changed. */
static void a_value_of_another_type(void **state)
{
    static const char *const keys[] = {TOKEN_KEY, IDENTITY_KEY};
    (void)state;
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        dlock_hold *hold;
        server_integer(servers[2], "DEL %s", keys[i]);
        server_integer(servers[2], "RPUSH %s one", keys[i]);
        assert_status(dlock_release(wanted(lock, wants), NULL), OK);
        server_integer(servers[1], "DEL %s", keys[i]);
        server_integer(servers[1], "RPUSH %s one", keys[i]);
        assert_status(tried_with_token(lock, &hold), REFUSED);
        assert_says(dlock_error(), "WRONGTYPE");
        assert_says(dlock_error(), keys[i]);
        for (size_t j = 1; j < COUNT; j++)
            assert_int_equal(server_integer(servers[j], "LLEN %s", keys[i]), 1);
        flush_all();
        dlock_close(lock);
        lock = settled(client);
    }
    end(client, lock);
}

/* The error names the key, also a long one. */
static void a_long_key_of_another_type(void **state)
{
    static const char name[] = "lock:{redlock}:of-the-second-floor-of-the-warehouse-in-the-east";
    (void)state;
    char key[DLOCK_NAME_MAX];
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock *lock;
    dlock_hold *hold;
    snprintf(key, sizeof key, "dlock:token:%s", name);
    assert_status(dlock_open_ops(client, &rung_redlock, name, &lock), OK);
    for (size_t i = 1; i < COUNT; i++)
        server_integer(servers[i], "RPUSH %s one", key);
    assert_status(tried_with_token(lock, &hold), REFUSED);
    assert_says(dlock_error(), key);
    end(client, lock);
}

/* An acquire whose proposals are kept before servers 1 and 2. Server 0 has accepted its token. */
static void propose_to_0(struct waiter *waiter)
{
    const uint64_t before = token_on(0);
    for (size_t i = 1; i < COUNT; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REQUEST, PROPOSES, NULL, 0);
    waiter_start(waiter);
    eventually(proxy_done(proxies[1]) && proxy_done(proxies[2]) && token_on(0) > before);
}

static void counts_only_by_a_majority(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    struct waiter waiter = {.lock = lock, .want = wants};
    size_t proposals = proxy_requests(proxies[1], PROPOSES);
    propose_to_0(&waiter);
    for (size_t i = 1; i < COUNT; i++) {
        server_text(servers[i], "FLUSHALL"); /* so it accepts none */
        proxy_let_go(proxies[i]);
    }
    assert_status(waiter_end(&waiter), REFUSED);
    assert_says(waiter.error, "of 3 servers accepted its token, and 2 are needed");
    eventually(exist() == 0);
    assert_true(token_on(1) == 0 && token_on(2) == 0);
    assert_int_equal(proxy_requests(proxies[1], PROPOSES), proposals + 2);
    assert_status(dlock_release(wanted(lock, wants), NULL), OK);
    end_behind_proxies(client, lock);
}

/* That command is carried out on server 2 before the proposal comes there. */
static void server_2_has_no_vote_after(const char *command)
{
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    struct waiter waiter = {.lock = lock, .want = wants};
    propose_to_0(&waiter);
    server_ask(servers[2], command);
    const uint64_t before = token_on(2);
    struct monitor *monitor = monitor_start(servers[2]);
    proxy_let_go(proxies[2]);
    eventually(monitor_count(monitor, PROPOSES) == 1);
    assert_int_equal(token_on(2), before);
    assert_false(atomic_load(&waiter.over)); /* only one server has accepted it */
    proxy_let_go(proxies[1]);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(dlock_token(waiter.hold), token_on(0));
    assert_int_equal(dlock_token(waiter.hold), token_on(1));
    assert_status(dlock_release(waiter.hold, NULL), OK);
    monitor_free(monitor);
    end_behind_proxies(client, lock);
}

static void an_empty_server_has_no_vote(void **state)
{
    (void)state;
    server_2_has_no_vote_after("DEL " TOKEN_KEY " " IDENTITY_KEY); /* the hold keeps its key */
}

static void a_server_with_another_identity_has_no_vote(void **state)
{
    (void)state;
    server_2_has_no_vote_after("SET " IDENTITY_KEY " 7:other");
}

/* The larger number comes first, and from another server than the smaller one. */
static void the_largest_number_is_proposed(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_behind_proxies(
        COUNT, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = settled(client);
    struct waiter waiter = {.lock = lock, .want = wants};
    char number[24];
    const uint64_t ahead = (uint64_t)server_us(servers[0]) + AHEAD_US;
    snprintf(number, sizeof number, "%llu", (unsigned long long)ahead + 1);
    server_text(servers[0], "SET " TOKEN_KEY " %llu", (unsigned long long)ahead);
    size_t proposals = proxy_requests(proxies[0], PROPOSES);
    proxy_plan(proxies[1], PROXY_HOLD_REPLY, ACQUIRES, NULL, 0);
    proxy_plan(proxies[2], PROXY_HOLD_REQUEST, ACQUIRES, NULL, 0);
    waiter_start(&waiter);
    eventually(proxy_done(proxies[1]) && proxy_done(proxies[2]) &&
               record_count(trace, number) == 1); /* the answer of server 0 */
    proxy_let_go(proxies[1]);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(dlock_token(waiter.hold), ahead + 1);
    assert_int_equal(proxy_requests(proxies[0], PROPOSES), proposals + 1);
    proxy_let_go(proxies[2]);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    end_behind_proxies(client, lock);
    record_free(trace);
}

/* Servers 1 and 2 have accepted a token that is `more` above the one that is proposed to them. */
static void repeats_above(uint64_t more)
{
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    struct waiter waiter = {.lock = lock, .want = wants};
    size_t proposals = proxy_requests(proxies[1], PROPOSES);
    propose_to_0(&waiter);
    const uint64_t ahead = token_on(0) + more;
    for (size_t i = 1; i < COUNT; i++) {
        server_text(servers[i], "SET " TOKEN_KEY " %llu", (unsigned long long)ahead);
        proxy_let_go(proxies[i]);
    }
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(dlock_token(waiter.hold), ahead + 1);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    eventually(all_accepted(ahead + 1));
    assert_int_equal(proxy_requests(proxies[1], PROPOSES), proposals + 2);
    dlock_hold *hold = wanted(lock, wants);
    if (more > 0) /* the clocks are behind by now */
        assert_int_equal(dlock_token(hold), ahead + 2);
    eventually(all_accepted(dlock_token(hold)));
    assert_int_equal(proxy_requests(proxies[1], PROPOSES), proposals + 3);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
}

static void a_refused_proposal_is_repeated_above(void **state)
{
    (void)state;
    repeats_above(AHEAD_US);
}

static void an_equal_token_is_refused(void **state)
{
    (void)state;
    repeats_above(0);
}

/* A server without a vote may be asked in the second round all the same. What it says is not
 * proposed to the others. */
static void a_foreign_token_is_not_proposed(void **state)
{
    static const char *const foreign[] = {"9007199254740992", "9000000000000000000"};
    (void)state;
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        dlock_hold *hold;
        server_text(servers[0], "SET " TOKEN_KEY " %s", foreign[i]);
        proxy_plan(proxies[2], PROXY_CUT_REQUEST, PROPOSES, NULL, 0);
        assert_status(tried_with_token(lock, &hold), REFUSED);
        assert_true(proxy_done(proxies[2]));
        assert_says(dlock_error(), TOKEN_KEY " has no token");
        assert_true(token_on(1) < (uint64_t)1 << 53);
        hold = wanted(lock, wants);
        assert_status(dlock_release(hold, NULL), OK);
    }
    end_behind_proxies(client, lock);
}

static void one_lost_answer_does_not_matter(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    struct waiter waiter = {.lock = lock, .want = wants};
    uint64_t attempts = stats_of(client).attempts;
    proxy_plan(proxies[2], PROXY_CUT_REPLY, PROPOSES, NULL, 0);
    waiter_start(&waiter);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(stats_of(client).attempts, attempts + 1);
    eventually(proxy_done(proxies[2]) && all_accepted(dlock_token(waiter.hold)));
    assert_status(dlock_release(waiter.hold, NULL), OK);
    eventually(!holder_of(lock).held && exist() == 0);
    end_behind_proxies(client, lock);
}

/* Most servers have accepted the token, and the client does not know that. It takes the acquire
 * back, and the next attempt gets a larger token. */
static void lost_answers_of_a_majority(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    uint64_t attempts = stats_of(client).attempts, before = token_on(1);
    dlock_hold *hold;
    for (size_t i = 1; i < COUNT; i++)
        proxy_plan(proxies[i], PROXY_CUT_REPLY, PROPOSES, NULL, 0);
    assert_status(tried_with_token(lock, &hold), REFUSED);
    assert_true(proxy_done(proxies[1]) && proxy_done(proxies[2]));
    const uint64_t lost = token_on(1);
    assert_true(lost > before);
    hold = wanted(lock, wants);
    assert_true(dlock_token(hold) > lost);
    assert_true(stats_of(client).attempts >= attempts + 2);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(!holder_of(lock).held && exist() == 0);
    end_behind_proxies(client, lock);
}

/* ---- The hold -------------------------------------------------------------------------------- */

static void validity_counts_from_before_the_first_round(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(COUNT, (struct dlock_options){0});
    dlock *lock = settled(client);
    struct waiter late = {.lock = lock, .want = {.token = true, .ttl_ms = 200}};
    propose_to_0(&late);
    const int64_t ends_ns = validity_end_ns(boot_ns(), 200);
    eventually(boot_ns() > ends_ns);
    for (size_t i = 1; i < COUNT; i++)
        proxy_let_go(proxies[i]);
    assert_status(waiter_end(&late), BUSY);
    assert_says(late.error, "longer than the time to live");
    eventually(exist() == 0);
    end_behind_proxies(client, lock);
}

static void renewals_leave_the_token_alone(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_of_first(
        COUNT, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = settled(client);
    dlock_hold *hold = wanted(lock, wants);
    const uint64_t token = dlock_token(hold);
    eventually(all_accepted(token));
    counted_by(hold, COUNT);
    record_clear(trace);
    server_text(servers[2], "FLUSHALL");
    assert_status(dlock_extend(hold), OK);
    eventually(dlock_extend(hold) == DLOCK_OK && exists_on(2)); /* its key is set again */
    counted_by(hold, COUNT);
    assert_int_equal(record_count(trace, "dlock:"), 0);
    assert_int_equal(token_on(2), 0);
    assert_int_equal(token_on(0), token);
    assert_int_equal(dlock_token(hold), token);
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
    record_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(tokens_grow_over_processes, empty), /* it forks: before any client */
        cmocka_unit_test_setup(no_token_that_was_not_asked_for, empty),
        cmocka_unit_test_setup(names_with_braces, empty),
        cmocka_unit_test_setup(tokens_of_two_clients, empty),
        cmocka_unit_test_setup(the_first_attempt_makes_the_identity, empty),
        cmocka_unit_test_setup(a_server_that_lost_its_memory_gets_a_new_identity, empty),
        cmocka_unit_test_setup(an_identity_is_proposed_once, empty),
        cmocka_unit_test_setup(two_identities_of_a_client_differ, empty),
        cmocka_unit_test_setup(a_smaller_identity_replaces_none, empty),
        cmocka_unit_test_setup(an_identity_that_is_too_long_is_none, empty),
        cmocka_unit_test_setup(a_large_identity_is_none, empty),
        cmocka_unit_test_setup(a_foreign_identity_is_replaced, empty),
        cmocka_unit_test_setup(a_foreign_token_has_no_vote, empty),
        cmocka_unit_test_setup(a_long_key_of_another_type, empty),
        cmocka_unit_test_setup(a_value_of_another_type, empty),
        cmocka_unit_test_setup(counts_only_by_a_majority, empty),
        cmocka_unit_test_setup(an_empty_server_has_no_vote, empty),
        cmocka_unit_test_setup(a_server_with_another_identity_has_no_vote, empty),
        cmocka_unit_test_setup(the_largest_number_is_proposed, empty),
        cmocka_unit_test_setup(a_refused_proposal_is_repeated_above, empty),
        cmocka_unit_test_setup(an_equal_token_is_refused, empty),
        cmocka_unit_test_setup(a_foreign_token_is_not_proposed, empty),
        cmocka_unit_test_setup(one_lost_answer_does_not_matter, empty),
        cmocka_unit_test_setup(lost_answers_of_a_majority, empty),
        cmocka_unit_test_setup(validity_counts_from_before_the_first_round, empty),
        cmocka_unit_test_setup(renewals_leave_the_token_alone, empty),
    };
    return cmocka_run_group_tests_name("redlock_token", tests, servers_start, servers_stop);
}
