/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `fair` through the library: order, passing on, who is woken, and that whoever leaves,
 * dies or hears nothing leaves nobody waiting.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "redis_rung.h"
#include "started.h"
#include "validate.h"
#include "waiter.h"

#include <stdio.h>
#include <stdlib.h>

#define LOCK "lock:{fair}"
#define QUEUE "dlock:queue:" LOCK
#define OWNER 7
#define CLIENTS 3

extern const struct rung_ops rung_fair;

/* ---- The stage ------------------------------------------------------------------------------- */

struct member {
    dlock_client *client;
    dlock *lock;
    struct waiter waiter;
};

/* Grants run out after so long: far from what a busy machine needs, unless a test is about it. */
#define GRANT_MS 60000

static void join_with(struct member *member, const char *url, struct dlock_options options)
{
    if (options.grant_ms == 0)
        options.grant_ms = GRANT_MS;
    if (options.ttl_ms == 0)
        options.ttl_ms = 60000;
    *member = (struct member){.client = client_of(url, options)};
    assert_status(dlock_open_ops(member->client, &rung_fair, LOCK, &member->lock), OK);
    member->waiter = (struct waiter){.lock = member->lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
}

static void join(struct member *member)
{
    join_with(member, server_url(server), (struct dlock_options){0});
}

static void part(struct member *member)
{
    dlock_close(member->lock);
    dlock_client_close(member->client);
}

static uint64_t attempts(const struct member *member)
{
    return stats_of(member->client).attempts;
}

/* Stands in the queue at the server, and hears of its grant. */
static void line_up(struct member *member, long long place)
{
    waiter_start(&member->waiter);
    eventually(server_integer(server, "LLEN " QUEUE) == place && attempts(member) == 2);
}

/* A client leaves the queue in the background. */
static void nothing_is_left(void)
{
    eventually(server_integer(server, "EXISTS " LOCK " " QUEUE) == 0);
}

/* Started acquires that note in what order they were had. */
struct queue {
    dlock *lock;
    _Atomic int turns;
    _Atomic int had; /* and let go again */
    int order[64];
    uint64_t tokens[64];
    struct place {
        struct queue *queue;
        int number;
        dlock_hold *hold;
    } places[64];
};

static void noted(void *arg, dlock_status status, dlock_hold *hold)
{
    struct place *place = arg;
    struct queue *queue = place->queue;
    must(status == DLOCK_OK);
    /* Before the release: another thread may tell of the next while this one is in it. */
    int turn = atomic_fetch_add(&queue->turns, 1);
    queue->order[turn] = place->number;
    queue->tokens[turn] = dlock_token(hold);
    must(dlock_release(hold, NULL) == DLOCK_OK);
    atomic_fetch_add(&queue->had, 1);
}

static void enqueue(struct queue *queue, dlock *lock, int count)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER};
    queue->lock = lock;
    for (int i = 0; i < count; i++) {
        queue->places[i] = (struct place){.queue = queue, .number = i};
        assert_status(dlock_acquire_start(lock, &want, noted, &queue->places[i]), OK);
    }
}

/* One that waits until it is cancelled; in line from the start of it. */
struct ending {
    dlock_cancel *cancel;
    _Atomic bool over;
};

static void ended(void *arg, dlock_status status, dlock_hold *hold)
{
    struct ending *ending = arg;
    must(status == DLOCK_CANCELLED && hold == NULL);
    atomic_store(&ending->over, true);
}

static void wait_for(dlock *lock, struct ending *ending)
{
    ending->cancel = dlock_cancel_new();
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .cancel = ending->cancel};
    assert_status(dlock_acquire_start(lock, &want, ended, ending), OK);
}

/* ---- The tests ------------------------------------------------------------------------------- */

static void oracle(void **state)
{
    (void)state;
    const char *servers[] = {server_url(server), NULL};
    assert_true(oracle_agrees(&(struct oracle){
        .ops = &rung_fair,
        .servers = servers,
        .expected = HOLDS,
        .processes = 3,
        .threads = 4,
        .rounds = 30,
        .riding = true,
    }));
    assert_int_equal(server_integer(server, "LLEN dlock:queue:%s", ORACLE_LOCK), 0);
    assert_int_equal(server_integer(server, "EXISTS %s", ORACLE_LOCK), 0);
}

/* Clients in the order in which they asked; only the next is woken, and asks once to claim it. */
static void handed_on_in_order_and_only_the_next_is_woken(void **state)
{
    (void)state;
    struct member holder, members[CLIENTS];
    join(&holder);
    dlock_hold *hold = acquired(holder.lock);
    for (int i = 0; i < CLIENTS; i++) {
        join(&members[i]);
        line_up(&members[i], i + 1);
    }
    uint64_t token = dlock_token(hold);
    for (int i = 0; i < CLIENTS; i++) {
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&members[i].waiter), OK);
        hold = members[i].waiter.hold;
        assert_true(dlock_token(hold) > token);
        token = dlock_token(hold);
        assert_int_equal(attempts(&members[i]), 3);
        for (int behind = i + 1; behind < CLIENTS; behind++)
            assert_int_equal(attempts(&members[behind]), 2);
    }
    assert_status(dlock_release(hold, NULL), OK);
    nothing_is_left();
    for (int i = 0; i < CLIENTS; i++)
        part(&members[i]);
    part(&holder);
}

/* Inside a client: in order, without the server, each with a token above the one before. */
static void passed_on_inside_the_client(void **state)
{
    (void)state;
    struct member member;
    struct queue *queue = calloc(1, sizeof *queue);
    join_with(&member, server_url(server), (struct dlock_options){.handoff_ms = 60000});
    dlock_hold *hold = acquired(member.lock);
    uint64_t token = dlock_token(hold);
    enqueue(queue, member.lock, 20);
    uint64_t commands = stats_of(member.client).commands;
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&queue->had) == 20);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(queue->order[i], i);
        assert_true(queue->tokens[i] > token);
        token = queue->tokens[i];
    }
    assert_int_equal(stats_of(member.client).passed_on, 20);
    assert_int_equal(stats_of(member.client).commands - commands, 1); /* the last one's release */
    nothing_is_left();
    part(&member);
    free(queue);
}

/* However many wait, each release takes as long. */
static void a_long_line_is_no_slower(void **state)
{
    enum { LONG = 100000 };
    (void)state;
    struct member member;
    _Atomic int over = 0;
    join(&member);
    dlock_hold *hold = acquired(member.lock);
    struct started *line = crowd_new(LONG, true, &over);
    for (int i = 0; i < LONG; i++)
        start(member.lock, waiting(PATIENCE_MS), &line[i]);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&over) == LONG);
    crowd_answered(line, LONG, DLOCK_OK);
    nothing_is_left();
    free(line);
    part(&member);
}

/* With a budget of one, two clients take turns. */
static void strict_alternation(void **state)
{
    (void)state;
    struct member holder, a, b;
    struct queue *of_a = calloc(1, sizeof *of_a), *of_b = calloc(1, sizeof *of_b);
    struct dlock_options one = {.handoff_max = 1};
    join(&holder);
    join_with(&a, server_url(server), one);
    join_with(&b, server_url(server), one);
    dlock_hold *hold = acquired(holder.lock);
    enqueue(of_a, a.lock, 20);
    enqueue(of_b, b.lock, 20);
    eventually(server_integer(server, "LLEN " QUEUE) == 2);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&of_a->had) == 20 && atomic_load(&of_b->had) == 20);
    bool a_first = of_a->tokens[0] < of_b->tokens[0];
    const struct queue *first = a_first ? of_a : of_b, *second = a_first ? of_b : of_a;
    for (int i = 0; i < 20; i++) {
        assert_true(first->tokens[i] < second->tokens[i]);
        assert_true(i == 19 || second->tokens[i] < first->tokens[i + 1]);
    }
    assert_int_equal(stats_of(a.client).passed_on + stats_of(b.client).passed_on, 0);
    nothing_is_left();
    part(&holder);
    part(&a);
    part(&b);
    free(of_a);
    free(of_b);
}

/* The budget is used up and nobody else waits: the client goes on with a new tenure. */
static void goes_on_alone(void **state)
{
    (void)state;
    struct member member;
    struct queue *queue = calloc(1, sizeof *queue);
    join_with(&member, server_url(server),
              (struct dlock_options){.handoff_max = 5, .handoff_ms = 60000});
    dlock_hold *hold = acquired(member.lock);
    enqueue(queue, member.lock, 20);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&queue->had) == 20);
    assert_int_equal(stats_of(member.client).attempts, 1);
    assert_int_equal(stats_of(member.client).passed_on, 16);
    for (int i = 1; i < 20; i++)
        assert_true(queue->tokens[i] > queue->tokens[i - 1]);
    nothing_is_left();
    part(&member);
    free(queue);
}

/* One that has no thread, alone: it asks once more when its client listens, and is woken. */
static void a_lone_started_waiter(void **state)
{
    (void)state;
    struct member holder, other;
    struct queue *queue = calloc(1, sizeof *queue);
    join(&holder);
    join(&other);
    dlock_hold *hold = acquired(holder.lock);
    enqueue(queue, other.lock, 1);
    eventually(attempts(&other) == 2);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&queue->had) == 1);
    assert_int_equal(stats_of(other.client).unheard, 0);
    nothing_is_left();
    part(&other);
    part(&holder);
    free(queue);
}

/* The client has it, whichever of its owners acquired. */
static void inspected(void **state)
{
    (void)state;
    struct member member;
    struct dlock_holder holder = {.size = sizeof holder};
    join(&member);
    dlock_hold *hold = acquired(member.lock);
    assert_status(dlock_inspect(member.lock, &holder), OK);
    assert_true(holder.held);
    assert_string_equal(holder.owner, dlock_client_id(member.client));
    assert_true(holder.ttl_ms > 0 && holder.ttl_ms <= 60000);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(dlock_inspect(member.lock, &holder), OK);
    assert_false(holder.held);
    part(&member);
}

/* Who is kept out by its own client's holder is told so, and until when. */
static void kept_out_by_its_own_client(void **state)
{
    (void)state;
    struct member member;
    dlock_hold *none;
    join(&member);
    dlock_hold *hold = acquired(member.lock);
    assert_status(tried(member.lock, &none), BUSY);
    assert_says(dlock_error(), "': another hold of this client has it; held by '");
    assert_says(dlock_error(), "' (of this thread) for ");
    struct dlock_want want = {.size = sizeof want, .wait_ms = 20};
    assert_status(dlock_acquire(member.lock, &want, &none), TIMED_OUT);
    assert_says(dlock_error(), "' was not had in 20 ms: another hold of this client has it");
    assert_status(dlock_release(hold, NULL), OK);
    part(&member);
}

/* The same owner asks again: let in without the server, and the lock stays until the last release.
 */
static void nested(void **state)
{
    (void)state;
    struct member member, other;
    join(&member);
    join(&other);
    dlock_hold *outer = acquired_by(member.lock, OWNER);
    uint64_t commands = stats_of(member.client).commands;
    dlock_hold *inner = acquired_by(member.lock, OWNER);
    assert_true(dlock_token(inner) > dlock_token(outer));
    assert_true(dlock_valid(inner));
    dlock_hold *none;
    assert_status(tried(other.lock, &none), BUSY);
    assert_status(dlock_release(outer, NULL), OK);
    assert_int_equal(stats_of(member.client).commands, commands);
    assert_status(tried(other.lock, &none), BUSY);
    assert_status(dlock_release(inner, NULL), OK);
    nothing_is_left();
    part(&member);
    part(&other);
}

/* A grant of the server stands for a thousand tokens, and each acquisition uses one up. */
static void nested_as_often_as_there_are_tokens(void **state)
{
    (void)state;
    struct member member;
    join(&member);
    dlock_hold *outer = acquired_by(member.lock, OWNER), *none;
    for (int i = 1; i < 1000; i++) {
        dlock_hold *inner = acquired_by(member.lock, OWNER);
        assert_int_equal(dlock_token(inner), dlock_token(outer) + (uint64_t)i);
        assert_status(dlock_release(inner, NULL), OK);
    }
    assert_status(tried_by(member.lock, OWNER, &none), LIMIT);
    assert_says(dlock_error(), "1000 times");
    assert_true(dlock_valid(outer));
    uint64_t token = dlock_token(outer);
    assert_status(dlock_release(outer, NULL), OK);
    nothing_is_left();
    outer = acquired_by(member.lock, OWNER);
    assert_true(dlock_token(outer) >= token + 1000);
    assert_status(dlock_release(outer, NULL), OK);
    part(&member);
}

/* Nobody is let by: a try fails while others wait, be it in this client or another. */
static void nobody_gets_by(void **state)
{
    (void)state;
    struct member holder, waiting, late;
    /* A waiter asks again after half of this: not while its commands are counted. */
    struct dlock_options patient = {.grant_ms = 20000};
    join_with(&holder, server_url(server), patient);
    join_with(&waiting, server_url(server), patient);
    join_with(&late, server_url(server), patient);
    dlock_hold *hold = acquired(holder.lock), *none;
    line_up(&waiting, 1);
    uint64_t commands = stats_of(waiting.client).commands;
    assert_status(tried(waiting.lock, &none), BUSY);
    assert_int_equal(stats_of(waiting.client).commands, commands);
    assert_status(tried(late.lock, &none), BUSY);
    assert_int_equal(server_integer(server, "LLEN " QUEUE), 1);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&waiting.waiter), OK);
    assert_status(dlock_release(waiting.waiter.hold, NULL), OK);
    nothing_is_left();
    part(&holder);
    part(&waiting);
    part(&late);
}

/* The hold is lost, and its holder does not notice: whoever waits in this client does not wait for
 * it. */
static void nobody_waits_for_who_lost_it(void **state)
{
    (void)state;
    struct member member;
    join_with(&member, server_url(server), (struct dlock_options){.ttl_ms = 3000});
    dlock_hold *hold = acquired(member.lock);
    waiter_start(&member.waiter);
    uint64_t token = dlock_token(hold);
    server_integer(server, "DEL " LOCK);
    must(dlock_valid(hold));
    eventually(stats_of(member.client).lost == 1);
    assert_status(waiter_end(&member.waiter), OK);
    assert_true(dlock_token(member.waiter.hold) > token);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_true(dlock_valid(member.waiter.hold));
    assert_status(dlock_release(member.waiter.hold, NULL), OK);
    nothing_is_left();
    part(&member);
}

static void who_leaves_leaves_the_queue(void **state)
{
    (void)state;
    struct member holder, other;
    join(&holder);
    join(&other);
    dlock_hold *hold = acquired(holder.lock), *none;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 50};
    assert_status(dlock_acquire(other.lock, &want, &none), TIMED_OUT);
    assert_int_equal(server_integer(server, "EXISTS " QUEUE), 0);
    /* Two wait; one leaves: the client stays in the queue for the other, and leaves with it. */
    struct ending first = {0}, second = {0};
    wait_for(other.lock, &first);
    eventually(server_integer(server, "LLEN " QUEUE) == 1);
    wait_for(other.lock, &second);
    dlock_cancel_now(first.cancel);
    eventually(atomic_load(&first.over));
    assert_int_equal(server_integer(server, "LLEN " QUEUE), 1);
    assert_false(atomic_load(&second.over));
    dlock_cancel_now(second.cancel);
    eventually(atomic_load(&second.over));
    eventually(server_integer(server, "EXISTS " QUEUE) == 0); /* in the background */
    dlock_cancel_free(first.cancel);
    dlock_cancel_free(second.cancel);
    assert_status(dlock_release(hold, NULL), OK);
    part(&other);
    part(&holder);
}

static void *released_apart(void *arg)
{
    must(dlock_release(arg, NULL) == DLOCK_OK);
    return NULL;
}

/* The server keeps the lock for those of this client that wait, and by then they have all left: it
 * is let go for good, and whoever comes next has it. */
static void kept_for_nobody(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member member;
    struct ending ending = {0};
    pthread_t thread;
    join_with(&member, proxy_url(proxy), (struct dlock_options){.handoff_max = 1});
    dlock_hold *hold = acquired(member.lock);
    wait_for(member.lock, &ending);
    proxy_plan(proxy, PROXY_HOLD_REPLY, "release", NULL, 0);
    must(pthread_create(&thread, NULL, released_apart, hold) == 0);
    eventually(proxy_done(proxy));
    dlock_cancel_now(ending.cancel);
    eventually(atomic_load(&ending.over));
    proxy_let_go(proxy);
    pthread_join(thread, NULL);
    nothing_is_left();
    assert_status(dlock_release(acquired(member.lock), NULL), OK);
    nothing_is_left();
    dlock_cancel_free(ending.cancel);
    part(&member);
    proxy_free(proxy);
}

/* On the thread that released: the server comes back with its data before the doubt is looked
 * into. */
static void comes_back(void *arg, const struct dlock_trace *trace)
{
    int *comebacks = arg;
    if (strcmp(trace->reply, "(lost)") != 0 || strstr(trace->sent, " release ") == NULL)
        return;
    must((*comebacks)++ == 0);
    server_text(server, "SAVE");
    server_restart(server, NULL);
}

/* The release was carried out, and its reply is lost together with the server: the next process
 * can't say whether the request still comes. What it kept for this client is passed on. */
static void kept_by_a_server_that_comes_back(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member member;
    struct queue *queue = calloc(1, sizeof *queue);
    int comebacks = 0;
    join_with(&member, proxy_url(proxy),
              (struct dlock_options){
                  .handoff_max = 1, .on_trace = comes_back, .on_trace_arg = &comebacks});
    dlock_hold *hold = acquired(member.lock);
    enqueue(queue, member.lock, 2);
    proxy_plan(proxy, PROXY_CUT_REPLY, "release", NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(proxy_done(proxy));
    assert_int_equal(comebacks, 1);
    eventually(atomic_load(&queue->had) == 2);
    assert_true(queue->tokens[0] < queue->tokens[1]);
    nothing_is_left();
    part(&member);
    proxy_free(proxy);
    free(queue);
}

/* The first request gave it its time. The second, once that was not answered, gives none. */
static void kept_since_the_first_request(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member member;
    struct started waits = {0};
    join_with(&member, proxy_url(proxy),
              (struct dlock_options){.handoff_max = 1, .command_timeout_ms = 1000});
    dlock_hold *hold = acquired(member.lock);
    start(member.lock, waiting(PATIENCE_MS), &waits);
    proxy_plan(proxy, PROXY_MUTE, "release", NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(proxy_done(proxy));
    started_answered(&waits);
    long long left_ms = server_integer(server, "PTTL " LOCK);
    assert_true(dlock_remaining_ms(waits.hold) <= left_ms);
    assert_status(dlock_release(waits.hold, NULL), OK);
    nothing_is_left();
    part(&member);
    proxy_free(proxy);
}

/* Whoever is chosen waits for what the holder still sends. Who may not wait that long is not. */
static void who_must_be_answered_soon_is_not_chosen(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member member;
    join_with(&member, proxy_url(proxy),
              (struct dlock_options){
                  .handoff_ms = 60000, .ttl_ms = 60000000, .command_timeout_ms = 60000});
    struct releaser releaser = {.hold = acquired(member.lock), .last = dlock_batch_new()};
    struct started waits = {0};
    assert_status(dlock_batch_add(releaser.last, 2, (const char *const[]){"INCR", "sold"}, NULL),
                  OK);
    start(member.lock, (struct dlock_want){.wait_ms = PATIENCE_MS, .limit_ms = 2000}, &waits);
    proxy_plan(proxy, PROXY_HOLD_REQUEST, "sold", NULL, 0);
    releaser_start(&releaser);
    eventually(proxy_done(proxy));
    started_answered(&waits);
    assert_int_not_equal(waits.status, DLOCK_OK);
    assert_false(atomic_load(&releaser.over));
    proxy_let_go(proxy);
    assert_int_equal(releaser_end(&releaser), DLOCK_OK);
    dlock_batch_free(releaser.last);
    nothing_is_left();
    part(&member);
    proxy_free(proxy);
}

/* An operator frees it: the next in the queue has it, and whoever had it learns that. */
static void broken_open(void **state)
{
    (void)state;
    struct member holder, next;
    join_with(&holder, server_url(server), (struct dlock_options){.ttl_ms = 3000});
    join(&next);
    dlock_hold *hold = acquired(holder.lock);
    line_up(&next, 1);
    struct dlock_holder was = {.size = sizeof was};
    assert_status(dlock_break(next.lock, &was), OK);
    assert_true(was.held);
    assert_memory_equal(was.owner, dlock_owner(hold), 36);
    assert_status(waiter_end(&next.waiter), OK);
    assert_true(dlock_token(next.waiter.hold) > dlock_token(hold));
    eventually(stats_of(holder.client).lost == 1);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_status(dlock_release(next.waiter.hold, NULL), OK);
    assert_status(dlock_break(next.lock, &was), OK);
    assert_false(was.held);
    nothing_is_left();
    part(&next);
    part(&holder);
}

/* The lock is handed to one that is about to leave and has not heard of it: it hands it on. */
static void who_was_given_the_lock_and_leaves_hands_it_on(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member holder, deaf, next;
    join(&holder);
    join_with(&deaf, proxy_url(proxy), (struct dlock_options){0});
    join(&next);
    dlock_hold *hold = acquired(holder.lock);
    deaf.waiter.want.cancel = dlock_cancel_new();
    proxy_plan(proxy, PROXY_HOLD_REPLY, "BLPOP", NULL, 0);
    line_up(&deaf, 1);
    line_up(&next, 2);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(proxy_done(proxy));
    assert_false(atomic_load(&deaf.waiter.over));
    dlock_cancel_now(deaf.waiter.want.cancel);
    assert_status(waiter_end(&deaf.waiter), CANCELLED);
    assert_status(waiter_end(&next.waiter), OK);
    assert_status(dlock_release(next.waiter.hold, NULL), OK);
    nothing_is_left();
    dlock_cancel_free(deaf.waiter.want.cancel);
    part(&next);
    part(&deaf);
    part(&holder);
    proxy_free(proxy);
}

/* The leave never arrives: it is sent again in the background, and no grant is made to nobody. */
static void a_lost_leave(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member holder, other;
    join(&holder);
    join_with(&other, proxy_url(proxy), (struct dlock_options){0});
    dlock_hold *hold = acquired(holder.lock);
    other.waiter.want.cancel = dlock_cancel_new();
    line_up(&other, 1);
    proxy_plan(proxy, PROXY_CUT_REQUEST, "leave", NULL, 0);
    dlock_cancel_now(other.waiter.want.cancel);
    assert_status(waiter_end(&other.waiter), CANCELLED);
    assert_true(proxy_done(proxy));
    eventually(server_integer(server, "EXISTS " QUEUE) == 0);
    assert_status(dlock_release(hold, NULL), OK);
    nothing_is_left();
    dlock_cancel_free(other.waiter.want.cancel);
    part(&other);
    part(&holder);
    proxy_free(proxy);
}

/* The release queues the client for those of it that wait, and by then they have all left: so does
 * the client. */
static void queued_for_nobody(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member member, next;
    struct ending ending = {0};
    pthread_t thread;
    join_with(&member, proxy_url(proxy), (struct dlock_options){.handoff_max = 1});
    join(&next);
    dlock_hold *hold = acquired(member.lock);
    wait_for(member.lock, &ending);
    line_up(&next, 1);
    proxy_plan(proxy, PROXY_HOLD_REPLY, "release", NULL, 0);
    must(pthread_create(&thread, NULL, released_apart, hold) == 0);
    eventually(proxy_done(proxy));
    dlock_cancel_now(ending.cancel);
    eventually(atomic_load(&ending.over));
    proxy_let_go(proxy);
    pthread_join(thread, NULL);
    assert_status(waiter_end(&next.waiter), OK);
    eventually(server_integer(server, "EXISTS " QUEUE) == 0);
    assert_status(dlock_release(next.waiter.hold, NULL), OK);
    nothing_is_left();
    dlock_cancel_free(ending.cancel);
    part(&next);
    part(&member);
    proxy_free(proxy);
}

/* A client whose server cannot end its connections: what was sent on a broken one may still come.
 */
static void join_in_doubt(struct member *member, struct proxy *proxy)
{
    char url[96];
    server_text(server, "ACL SETUSER weak on >weak ~* &* +@all -client|kill");
    snprintf(url, sizeof url, "redis://weak:weak@%s", proxy_url(proxy) + strlen("redis://"));
    join_with(member, url,
              (struct dlock_options){.connect_timeout_ms = 300, .command_timeout_ms = 300});
}

/* With a command that is kept on its way. */
static void release_in_doubt(dlock_hold *hold, struct proxy *proxy)
{
    dlock_batch *last = dlock_batch_new();
    must(dlock_batch_add(last, 3, (const char *const[]){"SET", "resource", "late"}, NULL) ==
         DLOCK_OK);
    proxy_plan(proxy, PROXY_HOLD_REQUEST, "late", NULL, 0);
    assert_status(dlock_release(hold, last), UNKNOWN);
    assert_true(proxy_done(proxy));
    dlock_batch_free(last);
}

/* The client does not let itself in either: what comes late would meet its own next holder. */
static void kept_from_itself(struct member *member)
{
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .owner_id = OWNER + 1};
    assert_status(dlock_acquire(member->lock, &want, &hold), BUSY);
    want.wait_ms = 100;
    dlock_status status = dlock_acquire(member->lock, &want, &hold);
    assert_true(status == DLOCK_TIMED_OUT || status == DLOCK_UNREACHABLE);
}

/* Also when the lock is closed, and opened again. */
static void what_may_come_keeps_the_lock_closed(void **state)
{
    (void)state;
    struct member member;
    struct proxy *proxy = proxy_start(server);
    server_text(server, "FLUSHALL");
    join_in_doubt(&member, proxy);
    release_in_doubt(acquired_by(member.lock, OWNER), proxy);
    dlock_close(member.lock);
    assert_status(dlock_open_ops(member.client, &rung_fair, LOCK, &member.lock), OK);
    kept_from_itself(&member);
    part(&member);
    proxy_free(proxy);
}

/* Also when the outer hold is lost after the inner one was released so. */
static void what_a_nested_hold_sent_keeps_the_lock_closed(void **state)
{
    (void)state;
    struct member member;
    dlock_hold *outer;
    struct proxy *proxy = proxy_start(server);
    server_text(server, "FLUSHALL");
    join_in_doubt(&member, proxy);
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = OWNER, .hold_max_ms = 4000};
    assert_status(dlock_acquire(member.lock, &want, &outer), OK);
    release_in_doubt(acquired_by(member.lock, OWNER), proxy);
    eventually(!dlock_valid(outer));
    kept_from_itself(&member);
    assert_status(dlock_release(outer, NULL), LOST);
    kept_from_itself(&member);
    part(&member);
    proxy_free(proxy);
}

/* The hint was lost: half a grant's time later it looks itself. */
static void a_lost_hint(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member holder, deaf;
    join(&holder);
    join_with(&deaf, proxy_url(proxy), (struct dlock_options){.grant_ms = 2000});
    dlock_hold *hold = acquired(holder.lock);
    proxy_plan(proxy, PROXY_HOLD_REPLY, "BLPOP", NULL, 0);
    waiter_start(&deaf.waiter);
    eventually(server_integer(server, "LLEN " QUEUE) == 1 && attempts(&deaf) >= 2);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&deaf.waiter), OK);
    assert_status(dlock_release(deaf.waiter.hold, NULL), OK);
    part(&deaf);
    part(&holder);
    proxy_free(proxy);
}

/* The connection that listens is cut: made anew, and the lock is had. */
static void the_ear_is_cut(void **state)
{
    (void)state;
    struct member holder, other;
    join(&holder);
    join(&other);
    dlock_hold *hold = acquired(holder.lock);
    line_up(&other, 1);
    const redisReply *clients;
    eventually(strstr((clients = server_ask(server, "CLIENT LIST"))->str, "cmd=blpop") != NULL);
    const char *line = strstr(clients->str, "cmd=blpop");
    while (line > clients->str && line[-1] != '\n')
        line--;
    long long id = atoll(line + strlen("id="));
    assert_int_equal(server_integer(server, "CLIENT KILL ID %lld", id), 1);
    eventually(attempts(&other) >= 4); /* at once, and once more when it hears again */
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&other.waiter), OK);
    assert_status(dlock_release(other.waiter.hold, NULL), OK);
    part(&other);
    part(&holder);
}

/* The try that queued it lost its reply: whoever leaves then leaves the queue as well. */
static void who_does_not_know_asks_again(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member holder, other;
    join(&holder);
    join_with(&other, proxy_url(proxy), (struct dlock_options){0});
    dlock_hold *hold = acquired(holder.lock), *none;
    proxy_plan(proxy, PROXY_CUT_REPLY, "EVALSHA", NULL, 0);
    assert_status(tried(other.lock, &none), BUSY);
    assert_true(proxy_done(proxy));
    assert_int_equal(server_integer(server, "EXISTS " QUEUE), 0);
    assert_status(dlock_release(hold, NULL), OK);
    /* And the one that acquired it: held already, so held, with a new token. */
    proxy_plan(proxy, PROXY_CUT_REPLY, "EVALSHA", NULL, 0);
    hold = acquired(other.lock);
    assert_true(proxy_done(proxy));
    proxy_plan(proxy, PROXY_CUT_REPLY, "EVALSHA", NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(proxy_done(proxy));
    nothing_is_left();
    part(&other);
    part(&holder);
    proxy_free(proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle),
        cmocka_unit_test(handed_on_in_order_and_only_the_next_is_woken),
        cmocka_unit_test(passed_on_inside_the_client),
        cmocka_unit_test(a_long_line_is_no_slower),
        cmocka_unit_test(strict_alternation),
        cmocka_unit_test(goes_on_alone),
        cmocka_unit_test(a_lone_started_waiter),
        cmocka_unit_test(inspected),
        cmocka_unit_test(kept_out_by_its_own_client),
        cmocka_unit_test(nested),
        cmocka_unit_test(nested_as_often_as_there_are_tokens),
        cmocka_unit_test(nobody_gets_by),
        cmocka_unit_test(nobody_waits_for_who_lost_it),
        cmocka_unit_test(who_leaves_leaves_the_queue),
        cmocka_unit_test(kept_for_nobody),
        cmocka_unit_test(kept_by_a_server_that_comes_back),
        cmocka_unit_test(kept_since_the_first_request),
        cmocka_unit_test(who_must_be_answered_soon_is_not_chosen),
        cmocka_unit_test(broken_open),
        cmocka_unit_test(who_was_given_the_lock_and_leaves_hands_it_on),
        cmocka_unit_test(a_lost_leave),
        cmocka_unit_test(queued_for_nobody),
        cmocka_unit_test(what_may_come_keeps_the_lock_closed),
        cmocka_unit_test(what_a_nested_hold_sent_keeps_the_lock_closed),
        cmocka_unit_test(a_lost_hint),
        cmocka_unit_test(the_ear_is_cut),
        cmocka_unit_test(who_does_not_know_asks_again),
    };
    return cmocka_run_group_tests_name("fair", tests, start_server, stop_server);
}
