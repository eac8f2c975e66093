/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `fair` through the library: no waiter is left waiting when a client leaves or dies, or
 * when a request, a reply or a wake-up is lost.
 */
#include "calls.h"
#include "fair_stage.h"
#include "loop.h"
#include "must.h"
#include "proxy.h"
#include "started.h"
#include "wait.h"
#include "waiter.h"

#include <stdio.h>
#include <stdlib.h>

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

/* ---- Nested while all that ask are kept ------------------------------------------------------ */

/* It asks nobody, so it waits for no thread that waits for a server. */
static void nested_while_all_that_ask_are_kept(void **state)
{
    (void)state;
    static const char *const names[] = {"lock:{first}", "lock:{second}"};
    struct proxy *proxy = proxy_start(server);
    struct started kept[2] = {{0}}, nested = {0};
    struct member one;
    dlock *locks[2];
    join_with(&one, proxy_url(proxy), (struct dlock_options){0});
    dlock_hold *hold = acquired_by(one.lock, OWNER);
    for (size_t i = 0; i < 2; i++) {
        locks[i] = lock_of(one.client, "fair", names[i]);
        proxy_plan(proxy, PROXY_HOLD_REPLY, names[i], NULL, 0);
        start(locks[i], waiting(PATIENCE_MS), &kept[i]);
        eventually(proxy_done(proxy));
    }
    start(one.lock, (struct dlock_want){.wait_ms = PATIENCE_MS, .owner_id = OWNER}, &nested);
    started_answered(&nested);
    assert_int_equal(nested.status, DLOCK_OK);
    assert_int_equal(kept[0].answers + kept[1].answers, 0);
    proxy_let_go(proxy);
    for (size_t i = 0; i < 2; i++) {
        started_answered(&kept[i]);
        dlock_release(kept[i].hold, NULL);
        dlock_close(locks[i]);
    }
    assert_status(dlock_release(nested.hold, NULL), OK);
    assert_status(dlock_release(hold, NULL), OK);
    part(&one);
    proxy_free(proxy);
}

/* ---- Let in when the lock is lost ------------------------------------------------------------ */

static _Atomic bool begins_again; /* who was let in, and found the lock lost */
static _Atomic bool had_again;    /* it goes on then */
static _Atomic bool on_listener; /* it runs on the thread that listens, which must not be stopped */

enum wait_next __real_wait_begin(struct wait *wait);
enum wait_next __wrap_wait_begin(struct wait *wait);

enum wait_next __wrap_wait_begin(struct wait *wait)
{
    if (wait->state == WAIT_GIVEN) {
        on_listener = loop_listens();
        begins_again = true;
        eventually(had_again || on_listener);
    }
    return __real_wait_begin(wait);
}

/* The lock is passed on to the first of three waiters of one owner, and lost while it reads. It
 * lets the third in then, but the second has the lock anew: the third nests in that. False: the
 * lock was not passed on in time, or the first could not be stopped. */
static bool let_in_too_late(void)
{
    struct member one, rival;
    struct started waiters[3] = {{0}};
    struct proxy *proxy = proxy_start(server);
    dlock_batch *reads = dlock_batch_new();
    assert_status(dlock_batch_add(reads, 2, (const char *const[]){"GET", "stock"}, NULL), OK);
    server_text(server, "FLUSHALL");
    begins_again = had_again = on_listener = false;
    join(&rival);
    join_with(&one, proxy_url(proxy), (struct dlock_options){.ttl_ms = 1500, .handoff_ms = 60000});
    dlock_hold *hold = acquired(one.lock);
    proxy_plan(proxy, PROXY_HOLD_REPLY, "stock", NULL, 0);
    for (size_t i = 0; i < 3; i++)
        start(one.lock,
              (struct dlock_want){
                  .wait_ms = PATIENCE_MS, .owner_id = OWNER, .reads = i == 0 ? reads : NULL},
              &waiters[i]);
    dlock_release(hold, NULL);
    bool handoffs = stats_of(one.client).handoffs == 1;
    eventually(proxy_done(proxy));
    if (handoffs) {
        server_integer(server, "DEL " LOCK);
        hold = acquired(rival.lock);
        eventually(stats_of(one.client).lost == 1);
        proxy_let_go(proxy);
        eventually(begins_again);
        assert_status(dlock_release(hold, NULL), OK);
        started_answered(&waiters[1]);
    } else {
        proxy_let_go(proxy);
    }
    had_again = true;
    for (size_t i = 0; i < 3; i++) {
        started_answered(&waiters[i]);
        assert_int_equal(waiters[i].status, DLOCK_OK);
    }
    bool shown = handoffs && !on_listener;
    if (shown) {
        uint64_t token = dlock_token(waiters[1].hold);
        assert_int_equal(atoll(server_text(server, "HGET " LOCK " token")), token);
        assert_int_equal(dlock_token(waiters[2].hold), token + 1);
    }
    for (size_t i = 0; i < 3; i++)
        dlock_release(waiters[i].hold, NULL);
    dlock_batch_free(reads);
    part(&one);
    part(&rival);
    proxy_free(proxy);
    return shown;
}

static void let_in_when_the_lock_is_lost(void **state)
{
    (void)state;
    while (!let_in_too_late())
        ;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_leaves_leaves_the_queue),
        cmocka_unit_test(kept_for_nobody),
        cmocka_unit_test(kept_by_a_server_that_comes_back),
        cmocka_unit_test(kept_since_the_first_request),
        cmocka_unit_test(who_was_given_the_lock_and_leaves_hands_it_on),
        cmocka_unit_test(a_lost_leave),
        cmocka_unit_test(queued_for_nobody),
        cmocka_unit_test(what_may_come_keeps_the_lock_closed),
        cmocka_unit_test(what_a_nested_hold_sent_keeps_the_lock_closed),
        cmocka_unit_test(a_lost_hint),
        cmocka_unit_test(the_ear_is_cut),
        cmocka_unit_test(who_does_not_know_asks_again),
        cmocka_unit_test(nested_while_all_that_ask_are_kept),
        cmocka_unit_test(let_in_when_the_lock_is_lost),
    };
    return cmocka_run_group_tests_name("fair_faults", tests, start_server, stop_server);
}
