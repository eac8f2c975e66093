/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of `read_write` that acts for several owners, and what it leaves in Redis.
 */
#ifndef TESTS_READ_WRITE_STAGE_H
#define TESTS_READ_WRITE_STAGE_H

#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "record.h"
#include "redis_rung.h"
#include "waiter.h"

#include <stdlib.h>

#define LOCK "lock:{rw}"
#define LONG_MS 60000 /* a time to live that no test outlives; a reader's turn, neither */
#define SHORT_MS 3000 /* one that is meant to end */
#define BRIEF_MS 10   /* the shortest grant_ms */

/* The keys beside the lock's. */
#define HOLDS "dlock:holds:" LOCK
#define WAITING_READERS "dlock:readers:" LOCK
#define WAITING_WRITERS "dlock:writers:" LOCK
#define INVITED "dlock:invited:" LOCK
#define TOKEN "dlock:token:" LOCK

extern const struct rung_ops rung_read_write;

/* A client that acts for several owners: its threads, as far as the lock can tell. */
struct party {
    dlock_client *client;
    dlock *lock;
    struct record *trace;
    struct record *events;
};

static inline struct party party_at(const char *url, int64_t ttl_ms)
{
    struct party party = {.trace = record_new(), .events = record_new()};
    party.client = client_of(url, (struct dlock_options){
                                      .ttl_ms = ttl_ms,
                                      .grant_ms = LONG_MS,
                                      .on_trace = record_trace,
                                      .on_trace_arg = party.trace,
                                      .on_event = record_event,
                                      .on_event_arg = party.events,
                                  });
    assert_status(dlock_open_ops(party.client, &rung_read_write, LOCK, &party.lock), OK);
    assert_true(dlock_rung_of(party.lock)->shared);
    return party;
}

static inline struct party party_of(int64_t ttl_ms)
{
    return party_at(server_url(server), ttl_ms);
}

static inline void party_over(struct party *party)
{
    dlock_close(party->lock);
    dlock_client_close(party->client);
    record_free(party->trace);
    record_free(party->events);
}

/* One try for an owner. */
static inline dlock_status ask(const struct party *party, enum dlock_mode mode, uint64_t owner,
                               dlock_hold **hold)
{
    struct dlock_want want = {.size = sizeof want, .mode = mode, .owner_id = owner};
    return dlock_acquire(party->lock, &want, hold);
}

static inline dlock_hold *had(const struct party *party, enum dlock_mode mode, uint64_t owner)
{
    dlock_hold *hold;
    assert_status(ask(party, mode, owner, &hold), OK);
    return hold;
}

#define read_of(party, owner) had(party, DLOCK_SHARED, owner)
#define write_of(party, owner) had(party, DLOCK_EXCLUSIVE, owner)
#define assert_kept_out(party, mode, owner)                                                        \
    do {                                                                                           \
        dlock_hold *nobodys;                                                                       \
        assert_status(ask(party, mode, owner, &nobodys), BUSY);                                    \
        assert_null(nobodys);                                                                      \
    } while (0)
#define let_go(hold) assert_status(dlock_release(hold, NULL), OK)

static inline long long count_of(const char *key)
{
    return server_integer(server, "ZCARD %s", key);
}

/* One who waits: its mark is there, and counts. */
static inline void mark_of(const char *marks, const char *who)
{
    assert_int_equal(server_integer(server, "ZADD %s 9999999999999 %s", marks, who), 1);
}

/* Starts to wait for an owner, and until it is known in Redis that it does. */
static inline void waits(struct waiter *waiter, const struct party *party, enum dlock_mode mode,
                         uint64_t owner)
{
    const char *marks = mode == DLOCK_SHARED ? WAITING_READERS : WAITING_WRITERS;
    long long before = server_integer(server, "ZCOUNT %s 3 +inf", marks);
    *waiter = (struct waiter){.lock = party->lock,
                              .want = {.wait_ms = DLOCK_WAIT_FOREVER,
                                       .mode = mode,
                                       .owner_id = owner,
                                       .cancel = dlock_cancel_new()}};
    waiter_start(waiter);
    eventually(server_integer(server, "ZCOUNT %s 3 +inf", marks) > before);
}

static inline dlock_hold *comes_in(struct waiter *waiter)
{
    assert_status(waiter_end(waiter), OK);
    dlock_cancel_free(waiter->want.cancel);
    return waiter->hold;
}

static inline void gives_up(struct waiter *waiter)
{
    dlock_cancel_now(waiter->want.cancel);
    assert_status(waiter_end(waiter), CANCELLED);
    dlock_cancel_free(waiter->want.cancel);
}

/* Nothing is left but the newest token. Not DBSIZE: it counts what is over and not yet removed. */
static inline void assert_clean_of(const char *name)
{
    static const char *const kinds[] = {"holds", "readers", "writers", "invited"};
    assert_int_equal(server_integer(server, "EXISTS %s", name), 0);
    for (size_t i = 0; i < 4; i++)
        if (server_integer(server, "EXISTS dlock:%s:%s", kinds[i], name) != 0)
            failed("dlock:%s:%s is left", kinds[i], name);
    assert_int_equal(server_integer(server, "EXISTS dlock:token:%s", name), 1);
}

#define assert_clean() assert_clean_of(LOCK)

#define TOLD "\"PUBLISH\" \"dlock:free:" LOCK "\""
#define TOLD_READERS TOLD " \"r"  /* and, after a write, until when a writer need not ask */
#define TOLD_WRITER TOLD " \"0\"" /* one of each client */

/* When the time of the first that it will be over for is over, by the server's clock. */
static inline long long first_over_ms(const char *key)
{
    const redisReply *first = server_ask(server, "ZRANGE %s 0 0 WITHSCORES", key);
    assert_int_equal(first->elements, 2);
    return atoll(first->element[1]->str);
}

#define TEST(name) cmocka_unit_test_setup(name, empty_server)

#endif
