/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of an acquire and a release that do not depend on the server: see session.h.
 */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define PLACE_SESSIONS 2    /* a waiter that has not asked for so many sessions' time is dropped */
#define LOOKS_PER_SESSION 2 /* a waiter asks so often, in case no watch reports */
#define LOOK_MS_MOST 60000  /* unless that is more often */
#define LOOKERS 32          /* if there are more waiters than that, each asks more seldom */

/* Each look costs the servers a walk over the queue: all looks together must not become their only
 * work. */
static int64_t patience_of(const struct queue *queue)
{
    return 1 + (int64_t)queue->place_count / LOOKERS;
}

static int64_t looks_again_ms(const struct queue *queue)
{
    const int64_t least_ms = queue->session->granted_ms / LOOKS_PER_SESSION;
    return max_ns(least_ms, min_ns(patience_of(queue) * least_ms, LOOK_MS_MOST));
}

/* CLOCK_BOOTTIME: until when a waiter that asks now must ask again. */
static int64_t asks_until_ns(const struct queue *queue)
{
    return boot_ns() + patience_of(queue) * PLACE_SESSIONS * queue->session->granted_ms * NS_PER_MS;
}

static struct place *take_place(struct request *request)
{
    const struct session *session = request->queue->session;
    struct place *place = place_of(request->queue, request->owner);
    if (place == NULL) {
        place = calloc(1, session->ops->place_size);
        if (place == NULL)
            return NULL;
        strcpy(place->owner, request->owner);
        LIST_INSERT_HEAD(&request->queue->places, place, of_queue);
        request->queue->place_count++;
    }
    place->acquisition = request->exchange->hold->acquisition;
    place->until_ns = asks_until_ns(request->queue);
    place->ends_ns = INT64_MAX;
    place->released = false;
    return place;
}

/* All holds of a client live as long as its session: false, with the request's answer, if another
 * time to live is wanted, or the servers grant less. */
static bool has_right_time(struct request *request)
{
    const struct session *session = request->queue->session;
    const struct dlock_hold *hold = request->exchange->hold;
    bool limited = hold->hold_max_ms != 0 && hold->ttl_ms == hold->hold_max_ms;
    if (session->granted_ms < session->asked_ms) {
        request_answer(request,
                       fail(DLOCK_INVALID, "ttl_ms is %lld, and %s grants %ss of at most %lld ms",
                            (long long)session->asked_ms, session->name, session->ops->kind,
                            (long long)session->granted_ms));
        return false;
    }
    if (limited || hold->ttl_ms == session->asked_ms || hold->ttl_ms == session->granted_ms)
        return true;
    request_answer(
        request, fail(DLOCK_INVALID,
                      "want.ttl_ms is %lld, but all holds of a client live as long as its "
                      "%s, %lld ms; leave it 0, or set options.ttl_ms",
                      (long long)hold->ttl_ms, session->ops->kind, (long long)session->granted_ms));
    return false;
}

bool claim_still_holds(const struct request *request, const struct place *place)
{
    return place != NULL && place->holds && !place->leaving && !place->lost &&
           session_valid_until(request->queue->session) > boot_ns();
}

/* It waited with a node of its own before its owner got the lock. */
static void leave_own_place(const struct request *request)
{
    struct place *place, *next;
    for (place = LIST_FIRST(&request->queue->places); place != NULL; place = next) {
        next = LIST_NEXT(place, of_queue);
        if (place->acquisition == request->exchange->hold->acquisition && !place->holds &&
            !place->leaving)
            place_leave(request->queue, place);
    }
}

struct place *claim_begins(struct request *request)
{
    struct place *place = place_of(request->queue, request->owner);
    request->first = false;
    if (place != NULL && (place->leaving || place->lost))
        return NULL; /* until it is gone: the delete that is under way would take this one */
    if (!has_right_time(request))
        return NULL;
    if (request->exchange->hold->depth > 1) {
        leave_own_place(request);
        if (claim_still_holds(request, place))
            return place;
        request_answer(request, fail(DLOCK_BUSY, "its owner no longer has the lock"));
        return NULL;
    }
    place = take_place(request);
    if (place == NULL)
        request_answer(request, fail(DLOCK_NO_MEMORY, "out of memory"));
    return place;
}

bool claim_is_try(const struct request *request)
{
    return request->what == ACQUIRE && request->exchange != NULL && request->exchange->once &&
           request->exchange->hold->depth <= 1;
}

/* Now, on the engine's thread: its caller may come to that later. */
static void leave_at_once(struct request *request, struct place *place)
{
    if (place->node[0] == '\0' && !place->doubtful)
        place_free(request->queue, place); /* it was never created */
    else if (!place->leaving) {
        place->until_ns = 0; /* without memory the timekeeper tries that again */
        place_leave(request->queue, place);
    }
}

void claim_is_busy(struct request *request)
{
    struct place *place = place_of(request->queue, request->owner);
    if (place != NULL && claim_is_try(request))
        leave_at_once(request, place);
    else if (place != NULL) /* others may have come since it asked */
        place->until_ns = asks_until_ns(request->queue);
    request->exchange->busy->kind = WAIT_CHANNEL;
    request->exchange->busy->again_ms = looks_again_ms(request->queue);
    request->exchange->unresolved = false;
    request_answer(request, fail(DLOCK_BUSY, "another holder has the lock"));
}

bool claim_lacks_identity(const struct request *request, const struct place *place)
{
    return request->exchange->hold->wants_identity &&
           (!place->holds || place->identity.text[0] == '\0') &&
           request->queue->session->identity.text[0] == '\0';
}

bool claim_is_granted(struct request *request, struct place *place)
{
    const struct session *session = request->queue->session;
    struct exchange *exchange = request->exchange;
    struct dlock_hold *hold = exchange->hold;
    int64_t ends_ns =
        hold->hold_max_ms != 0 ? request->sent_ns + hold->hold_max_ms * NS_PER_MS : INT64_MAX;
    bool is_new = !place->holds;
    place->ends_ns = place->holds ? max_ns(place->ends_ns, ends_ns) : ends_ns;
    place->until_ns = min_ns(session->counts_ns + session->granted_ms * NS_PER_MS, place->ends_ns);
    place->before[0] = '\0';
    place->holds = true;
    hold->ttl_ms = session->granted_ms;
    hold->token = place->number;
    if (is_new || place->identity.text[0] == '\0')
        place->identity = session->identity;
    if (hold->wants_identity) /* a nested one has that of its token */
        hold->identity = place->identity;
    exchange->sent_ns = request->sent_ns;
    exchange->counts_ns = session->counts_ns;
    exchange->unresolved = false;
    request_answer(request, DLOCK_OK);
    return is_new;
}

void claim_forget(struct request *request, struct place *place)
{
    if (place != NULL)
        place_free(request->queue, place);
    session_look(request->queue->session); /* a new place of that owner may wait for it */
}

void claim_is_gone(struct request *request, struct place *place, bool deleted)
{
    const struct exchange *exchange = request->exchange;
    claim_forget(request, place);
    if (deleted || exchange == NULL || exchange->step == STEP_GIVE_UP)
        request_answer(request, DLOCK_OK);
    else if (request->repeated)
        request_answer(request,
                       fail(DLOCK_UNKNOWN,
                            "'%s' is free, but whether it was released before its %s ended is not "
                            "known",
                            exchange->hold->key, request->queue->session->ops->kind));
    else
        request_answer(request, fail(DLOCK_LOST, "its node is gone"));
}

/* The core counts the new time for holds that it watches since the latest proof, too. */
void claim_is_extended(struct request *request, struct place *place)
{
    const struct session *session = request->queue->session;
    if (!claim_still_holds(request, place)) {
        request_answer(request, fail(DLOCK_LOST, "its node is being deleted"));
        return;
    }
    int64_t until_ns = min_ns(session->counts_ns + session->granted_ms * NS_PER_MS, place->ends_ns);
    place->until_ns = max_ns(place->until_ns, until_ns);
    request->call->counts_ns = session->counts_ns;
    request_answer(request, DLOCK_OK);
}

void claim_is_lost(struct request *request, struct place *place)
{
    const struct queue *queue = request->queue;
    if (queue->lock != NULL)
        timekeeper_lose_owner(queue->lock, request->owner);
    claim_forget(request, place);
    request_answer(request, fail(DLOCK_LOST, "its node is gone"));
}

bool claim_lets_go(struct request *request, struct place *place)
{
    if (request_nests(request)) {
        leave_own_place(request);
        bool held = place != NULL && place->holds && !place->lost;
        request_answer(request,
                       held ? DLOCK_OK : fail(DLOCK_LOST, "its owner no longer has the lock"));
        return false;
    }
    if (request->unasked && (place == NULL || !place->leaving)) {
        request_answer(request, DLOCK_OK); /* its place went with its session; this is another */
        return false;
    }
    if (place == NULL || place->lost) {
        claim_is_gone(request, place, false);
        return false;
    }
    place->leaving = place->released = true;
    return true;
}

bool claim_draws_identity(char text[IDENTITY_TEXT_MAX])
{
    unsigned char bytes[(IDENTITY_TEXT_MAX - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    return true;
}
