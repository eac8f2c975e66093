/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `read_write`: what lost replies and late requests leave behind.
 */
#include "calls.h"
#include "must.h"
#include "proxy.h"
#include "read_write_stage.h"
#include "waiter.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* A party whose wire can be cut; the script is known to the server: its requests are short. */
static struct party party_on(struct proxy *proxy)
{
    struct party party = party_at(proxy_url(proxy), LONG_MS);
    let_go(read_of(&party, 1));
    record_clear(party.trace);
    return party;
}

static const char *list_of(const dlock_hold *hold)
{
    return server_text(server, "HGET " HOLDS " %s", dlock_owner(hold));
}

static void an_acquire_whose_reply_is_lost(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_CUT_REQUEST};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct proxy *proxy = proxy_start(server);
        struct party party = party_on(proxy);
        enum dlock_mode mode = i / 2 == 0 ? DLOCK_EXCLUSIVE : DLOCK_SHARED;
        struct dlock_want want = {
            .size = sizeof want, .wait_ms = PATIENCE_MS, .mode = mode, .owner_id = 1};
        dlock_hold *hold, *outer = had(&party, mode, 1);
        uint64_t attempts = stats_of(party.client).attempts;
        proxy_plan(proxy, acts[i % 2], "acquire", NULL, 0);
        assert_status(dlock_acquire(party.lock, &want, &hold), OK);
        assert_true(proxy_done(proxy));
        assert_int_equal(record_count(party.trace, " acquire "), 3); /* the outer one's is one */
        assert_int_equal(stats_of(party.client).attempts, attempts + 1);
        char list[64];
        char kind = mode == DLOCK_SHARED ? 'r' : 'w';
        snprintf(list, sizeof list, " %c%llu %c%llu ", kind,
                 (unsigned long long)dlock_acquisition(outer), kind,
                 (unsigned long long)dlock_acquisition(hold));
        assert_string_equal(list_of(hold), list);
        assert_true(dlock_token(hold) > dlock_token(outer));
        assert_int_equal(dlock_token(hold), atoll(server_text(server, "GET " TOKEN)));
        let_go(hold);
        let_go(outer);
        assert_clean();
        party_over(&party);
        proxy_free(proxy);
    }
}

/* When the reply to `lost` was cut off, what comes next is cut off as well. */
struct again {
    struct proxy *proxy;
    const char *lost, *next;
    enum proxy_act act;
    int cuts_most;
    _Atomic int cuts;
};

static void cut_again(void *arg, const struct dlock_trace *trace)
{
    struct again *again = arg;
    if (strstr(trace->sent, again->lost) != NULL && strcmp(trace->reply, "(lost)") == 0 &&
        strstr(trace->sent, again->next) != NULL &&
        atomic_fetch_add(&again->cuts, 1) < again->cuts_most)
        proxy_plan(again->proxy, again->act, again->next, NULL, 0);
}

/* As party_on, with that. */
static struct party party_cut_again(struct again *again)
{
    struct party warm = party_on(again->proxy);
    party_over(&warm);
    struct party party = {
        .client = client_of(proxy_url(again->proxy),
                            (struct dlock_options){
                                .ttl_ms = LONG_MS,
                                .on_trace = cut_again,
                                .on_trace_arg = again,
                            }),
        .trace = record_new(),
        .events = record_new(),
    };
    assert_status(dlock_open_ops(party.client, &rung_read_write, LOCK, &party.lock), OK);
    return party;
}

/* Nobody knows whether it was had: whoever gives up lets go of it, should it be. */
static void an_acquire_that_stays_unknown_is_let_go(void **state)
{
    (void)state;
    for (enum dlock_mode mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++) {
        struct again again = {.proxy = proxy_start(server),
                              .lost = "acquire",
                              .next = "acquire",
                              .act = PROXY_CUT_REPLY,
                              .cuts_most = 1};
        struct party party = party_cut_again(&again);
        dlock_hold *none;
        proxy_plan(again.proxy, PROXY_CUT_REPLY, "acquire", NULL, 0);
        assert_status(ask(&party, mode, 1, &none), UNKNOWN);
        assert_int_equal(again.cuts, 2);
        assert_clean();
        party_over(&party);
        proxy_free(again.proxy);
    }
}

/* Its last request may come for ever: it goes on under another name, and does not wait by the
 * first. What it reads comes with each acquire, and with nothing else. */
static void who_takes_another_name_leaves_no_mark(void **state)
{
    (void)state;
    dlock_batch *reads = dlock_batch_new();
    assert_status(dlock_batch_add(reads, 2, (const char *const[]){"GET", "stock"}, NULL), OK);
    server_text(server, "ACL SETUSER default -client|kill");
    for (enum dlock_mode mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++) {
        struct proxy *proxy = proxy_start(server);
        struct party party = party_on(proxy), other = party_of(LONG_MS);
        struct waiter waiter = {
            .lock = party.lock,
            .want = {.wait_ms = DLOCK_WAIT_FOREVER, .mode = mode, .reads = reads}};
        size_t before = proxy_requests(proxy, "acquire");
        dlock_hold *write = write_of(&other, 1);
        waiter_start(&waiter);
        eventually(count_of(mode == DLOCK_SHARED ? WAITING_READERS : WAITING_WRITERS) == 1);
        proxy_plan(proxy, PROXY_CUT_REQUEST, "acquire", NULL, 0);
        let_go(write);
        assert_status(waiter_end(&waiter), OK);
        assert_true(proxy_done(proxy));
        assert_int_equal(proxy_requests(proxy, "stock"), proxy_requests(proxy, "acquire") - before);
        let_go(waiter.hold);
        assert_clean();
        party_over(&party);
        party_over(&other);
        proxy_free(proxy);
    }
    server_text(server, "ACL SETUSER default +client|kill");
    dlock_batch_free(reads);
}

/* Sent once more or not: one hold is let go, and it is this one. */
static void a_release_whose_reply_is_lost(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct party party = party_on(proxy);
    dlock_hold *outer = write_of(&party, 1), *inner = write_of(&party, 1);
    char list[32];
    snprintf(list, sizeof list, " w%llu ", (unsigned long long)dlock_acquisition(outer));
    proxy_plan(proxy, PROXY_CUT_REPLY, "release", NULL, 0);
    let_go(inner);
    assert_true(proxy_done(proxy));
    assert_string_equal(list_of(outer), list);
    assert_true(dlock_valid(outer));
    let_go(outer);
    assert_clean();
    party_over(&party);
    proxy_free(proxy);
}

/* What a release left behind is over with its own time: it does not live on because its owner comes
 * again and again, under other names. */
static void a_release_that_never_arrived(void **state)
{
    (void)state;
    struct again again = {.proxy = proxy_start(server),
                          .lost = "release",
                          .act = PROXY_CUT_REQUEST,
                          .cuts_most = INT_MAX};
    struct party party = party_cut_again(&again), other = party_of(LONG_MS);
    dlock_hold *lost = read_of(&party, 1);
    char owner[64];
    snprintf(owner, sizeof owner, "%s", dlock_owner(lost));
    again.next = owner; /* each request of its, also those in the background */
    proxy_plan(again.proxy, PROXY_CUT_REQUEST, owner, NULL, 0);
    assert_status(dlock_release(lost, NULL), UNKNOWN);
    assert_int_equal(count_of(LOCK), 1);
    long long over_ms = first_over_ms(LOCK);
    dlock_hold *read = read_of(&party, 1);
    assert_int_equal(count_of(LOCK), 2);
    assert_int_equal(first_over_ms(LOCK), over_ms);
    let_go(read);
    assert_kept_out(&other, DLOCK_EXCLUSIVE, 1);
    assert_int_equal(first_over_ms(LOCK), over_ms);
    assert_status(dlock_break(other.lock, NULL), OK);
    assert_clean();
    party_over(&party);
    party_over(&other);
    proxy_free(again.proxy);
}

/* It was on its way longer than its sender waited for it. Each of its holds is the hold of a name
 * of its own, which no late request of another touches. */
static void a_request_that_arrives_late(void **state)
{
    (void)state;
    for (int may_kill = 0; may_kill < 2; may_kill++) {
        struct proxy *proxy = proxy_start(server);
        struct party party = party_on(proxy), other = party_of(LONG_MS);
        struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = 1};
        dlock_hold *hold;
        char list[32];
        server_text(server, "ACL SETUSER default %sclient|kill", may_kill ? "+" : "-");
        /* of a release that was sent again, and its owner has come again since */
        hold = write_of(&party, 1);
        proxy_plan(proxy, PROXY_DELAY_REQUEST, "release", NULL, 0);
        let_go(hold);
        hold = write_of(&party, 1);
        snprintf(list, sizeof list, " w%llu ", (unsigned long long)dlock_acquisition(hold));
        proxy_let_go(proxy);
        assert_string_equal(list_of(hold), list);
        let_go(hold);
        /* of a hold that was had by what was sent next: it is that hold's, once */
        proxy_plan(proxy, PROXY_DELAY_REQUEST, "acquire", NULL, 0);
        assert_status(dlock_acquire(party.lock, &want, &hold), OK);
        snprintf(list, sizeof list, " w%llu ", (unsigned long long)dlock_acquisition(hold));
        proxy_let_go(proxy);
        assert_string_equal(list_of(hold), list);
        assert_int_equal(count_of(LOCK), 1);
        let_go(hold);
        assert_int_equal(count_of(LOCK), 0);
        if (may_kill)
            assert_clean(); /* else the late one waits, until its mark is over */
        server_text(server, "FLUSHALL");
        server_text(server, "ACL SETUSER default +client|kill");
        party_over(&party);
        party_over(&other);
        proxy_free(proxy);
    }
}

/* One argument: only the test of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(an_acquire_whose_reply_is_lost),        TEST(an_acquire_that_stays_unknown_is_let_go),
        TEST(who_takes_another_name_leaves_no_mark), TEST(a_release_whose_reply_is_lost),
        TEST(a_release_that_never_arrived),          TEST(a_request_that_arrives_late),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("read_write_lost_reply", tests, start_server, stop_server);
}
