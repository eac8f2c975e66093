/* SPDX-License-Identifier: Apache-2.0
 *
 * See session.h.
 */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_AGAIN_NS (50 * NS_PER_MS) /* at what could not be sent or told */
#define LEAVE_AGAIN_NS NS_PER_S
#define ANSWERS_MAX 16

void session_init(struct session *session, const struct session_ops *ops,
                  struct dlock_client *client)
{
    const struct dlock_options *options = &client->options;
    session->ops = ops;
    session->client = client;
    session->asked_ms = options->ttl_ms != 0 ? options->ttl_ms : TTL_MS_DEFAULT;
    pthread_mutex_init(&session->mutex, NULL);
    cond_init(&session->changed);
    TAILQ_INIT(&session->requests);
    STAILQ_INIT(&session->answers);
    LIST_INIT(&session->queues);
}

static void queue_free(struct queue *queue)
{
    struct place *place;
    while ((place = LIST_FIRST(&queue->places)) != NULL)
        place_free(queue, place);
    if (queue->session->ops->free_queue != NULL)
        queue->session->ops->free_queue(queue);
    LIST_REMOVE(queue, of_session);
    free(queue);
}

void session_free(struct session *session)
{
    struct queue *queue;
    struct request *request;
    while ((request = TAILQ_FIRST(&session->requests)) != NULL) {
        TAILQ_REMOVE(&session->requests, request, of_session);
        free(request);
    }
    while ((queue = LIST_FIRST(&session->queues)) != NULL)
        queue_free(queue);
    pthread_cond_destroy(&session->changed);
    pthread_mutex_destroy(&session->mutex);
    free(session);
}

/* ---- Requests -------------------------------------------------------------------------------- */

struct request *request_new(struct queue *queue, enum what what, const char *owner)
{
    struct request *request = calloc(1, queue->session->ops->request_size);
    if (request == NULL)
        return NULL;
    request->queue = queue;
    request->what = what;
    strcpy(request->owner, owner);
    request->begins_ns = request->ends_ns = INT64_MAX;
    queue->request_count++;
    TAILQ_INSERT_TAIL(&queue->session->requests, request, of_session);
    return request;
}

void request_settle(struct request *request)
{
    if (request->exchange != NULL || request->call != NULL || request->unasked ||
        request->in_flight > 0)
        return;
    request->queue->request_count--;
    TAILQ_REMOVE(&request->queue->session->requests, request, of_session);
    free(request);
}

/* A later request deletes it. Not at once: the servers may refuse that for ever. */
static void leave_again(struct session *session, struct place *place)
{
    session_look(session);
    place->leaving = false;
    place->released = true;
    place->until_ns = boot_ns() + LEAVE_AGAIN_NS;
}

/* Whether an acquire that ends so may be asked for again. */
static bool keeps_place(dlock_status status)
{
    return status == DLOCK_OK || status == DLOCK_BUSY || status == DLOCK_UNKNOWN ||
           status == DLOCK_UNREACHABLE;
}

/* Nothing wakes it: unless it asks again, it leaves. So does one that is the first for so long
 * without a proof: it must not stay in front of everybody. CLOCK_BOOTTIME: when. */
static int64_t unproven_until_ns(const struct session *session, const struct request *request,
                                 struct place *place)
{
    const int64_t now_ns = boot_ns(), half_ns = session->granted_ms * NS_PER_MS / 2;
    if (request->first && place->unproven_ns == 0)
        place->unproven_ns = now_ns;
    return request->first && now_ns - place->unproven_ns > half_ns ? 0 : now_ns + half_ns;
}

void request_answer(struct request *request, dlock_status status)
{
    struct session *session = request->queue->session;
    struct call *call = request->call;
    struct place *place = place_of(request->queue, request->owner);
    if (request->what == LET_GO && status != DLOCK_OK && place != NULL && !request_nests(request) &&
        (place->leaving || !request->unasked))
        leave_again(session, place); /* it may still be there. (Else the owner has another one.) */
    if (request->what == ACQUIRE && place != NULL && !place->holds && !keeps_place(status)) {
        place->until_ns = 0; /* what is there would be in front of everybody */
        session_look(session);
    } else if (request->what == ACQUIRE && place != NULL && !place->holds &&
               (status == DLOCK_UNKNOWN || status == DLOCK_UNREACHABLE || request->first)) {
        int64_t until_ns = unproven_until_ns(session, request, place);
        place->until_ns = request->first ? min_ns(place->until_ns, until_ns) : until_ns;
        session_look(session);
    }
    request->unasked = false;
    if (call != NULL) {
        call->over = true;
        call->status = status;
        snprintf(call->why, sizeof call->why, "%s", status == DLOCK_OK ? "" : dlock_error());
        request->call = NULL;
        pthread_cond_broadcast(&session->changed);
    } else if (request->exchange != NULL) {
        exchange_set(request->exchange, status);
        request->answered = true;
        STAILQ_INSERT_TAIL(&session->answers, request, of_answers);
        return; /* session_unlock settles it */
    }
    request_settle(request);
}

/* The answers are given without the mutex: they take the loop's, and may ask for more. */
void session_unlock(struct session *session)
{
    struct exchange *answered[ANSWERS_MAX];
    size_t count;
    do {
        struct request *request;
        for (count = 0; count < ANSWERS_MAX && (request = STAILQ_FIRST(&session->answers)) != NULL;
             count++) {
            STAILQ_REMOVE_HEAD(&session->answers, of_answers);
            answered[count] = request->exchange;
            request->exchange = NULL;
            request_settle(request);
        }
        pthread_mutex_unlock(&session->mutex);
        for (size_t i = 0; i < count; i++)
            exchange_answered(answered[i]);
        if (count == ANSWERS_MAX)
            pthread_mutex_lock(&session->mutex);
    } while (count == ANSWERS_MAX);
}

void session_look(struct session *session)
{
    bool was_woken = !session->looked; /* and has not looked since */
    session->looked = false;
    if (!was_woken)
        session->ops->wake(session);
}

void request_begins(struct request *request, int64_t begins_ns, int64_t ends_ns)
{
    struct session *session = request->queue->session;
    request->begins_ns = begins_ns;
    request->ends_ns = ends_ns;
    session->ops->go(request);
    if (min_ns(begins_ns, ends_ns) < session->looks_ns)
        session_look(session);
}

/* ---- Places ---------------------------------------------------------------------------------- */

struct place *place_of(const struct queue *queue, const char *owner)
{
    struct place *place;
    LIST_FOREACH(place, &queue->places, of_queue)
        if (strcmp(place->owner, owner) == 0)
            break;
    return place;
}

void place_free(struct queue *queue, struct place *place)
{
    if (queue->session->ops->free_place != NULL)
        queue->session->ops->free_place(queue->session, place);
    LIST_REMOVE(place, of_queue);
    queue->place_count--;
    free(place);
}

bool session_is_held(const struct session *session)
{
    const struct queue *queue;
    const struct place *place;
    LIST_FOREACH(queue, &session->queues, of_session)
        LIST_FOREACH(place, &queue->places, of_queue)
            if (place->holds && !place->released && !place->lost)
                return true;
    return false;
}

/* Tells the core that the hold is lost; unless it does not watch the hold yet. */
static void place_lose(struct queue *queue, struct place *place)
{
    place->lost = true;
    if (queue->lock == NULL || timekeeper_lose_owner(queue->lock, place->owner))
        place_free(queue, place);
}

void place_leave(struct queue *queue, struct place *place)
{
    struct request *request = request_new(queue, LET_GO, place->owner);
    if (request == NULL)
        return;
    request->unasked = place->leaving = place->released = true;
    queue->session->ops->go(request);
}

void session_node_is_gone(struct queue *queue, const char *node, uint64_t number)
{
    struct place *place, *next;
    for (place = LIST_FIRST(&queue->places); place != NULL; place = next) {
        next = LIST_NEXT(place, of_queue);
        if (strcmp(place->before, node) == 0) {
            place->before[0] = '\0';
            if (queue->lock == NULL)
                continue;
            pthread_mutex_lock(&queue->lock->client->loop.mutex);
            wait_wake_owner(queue->lock, place->owner);
            pthread_mutex_unlock(&queue->lock->client->loop.mutex);
        } else if (strcmp(place->node, node) == 0 && place->number < number && place->holds &&
                   !place->leaving && !place->lost) {
            place_lose(queue, place);
            session_look(queue->session); /* the core may not watch it yet: it is told again soon */
        }
    }
}

/* ---- The session's time ---------------------------------------------------------------------- */

int64_t session_valid_until(const struct session *session)
{
    int64_t counts_ns = session->counts_ns;
    return counts_ns != 0 ? validity_end_ns(counts_ns, session->granted_ms) : 0;
}

/* A hold that the core no longer counts as valid is not kept longer. */
static void give_time(const struct queue *queue)
{
    const struct session *session = queue->session;
    int64_t counts_ns = session->counts_ns;
    struct place *place;
    LIST_FOREACH(place, &queue->places, of_queue)
        if (place->holds && !place->leaving && !place->lost && queue->lock != NULL &&
            timekeeper_extend_owner(queue->lock, place->owner, counts_ns, session->granted_ms))
            place->until_ns = min_ns(counts_ns + session->granted_ms * NS_PER_MS, place->ends_ns);
}

void session_counts(struct session *session, int64_t counts_ns)
{
    struct queue *queue;
    struct request *request, *next;
    if (counts_ns <= session->counts_ns)
        return;
    session->counts_ns = counts_ns;
    LIST_FOREACH(queue, &session->queues, of_session)
        give_time(queue);
    for (request = TAILQ_FIRST(&session->requests); request != NULL; request = next) {
        next = TAILQ_NEXT(request, of_session);
        if (request->first && request->in_flight == 0 && request_is_wanted(request))
            session->ops->go(request);
    }
}

void session_expired(struct session *session)
{
    struct queue *queue;
    struct request *request;
    session->counts_ns = 0;
    TAILQ_FOREACH(request, &session->requests, of_session)
        request->first = false; /* it begins anew, in the next session */
    LIST_FOREACH(queue, &session->queues, of_session) {
        struct place *place, *next;
        for (place = LIST_FIRST(&queue->places); place != NULL; place = next) {
            next = LIST_NEXT(place, of_queue);
            if (place->holds)
                place_lose(queue, place);
            else
                place_free(queue, place);
        }
        if (queue->lock == NULL)
            continue;
        pthread_mutex_lock(&queue->lock->client->loop.mutex);
        wait_wake(queue->lock, WAKE_ALL); /* its waiters ask again, in the next session */
        pthread_mutex_unlock(&queue->lock->client->loop.mutex);
    }
}

void session_tell(struct session *session, bool outage, const char *why)
{
    char reason[SENTENCE_MAX];
    if (session->outage == outage)
        return;
    session->outage = outage;
    snprintf(reason, sizeof reason, "%s: %s", session->name, why);
    timekeeper_notice(&session->client->timekeeper, outage ? OUTAGE_LOST : OUTAGE_RESTORED, reason);
}

/* ---- What is due ----------------------------------------------------------------------------- */

bool request_is_late(const struct request *request)
{
    const int64_t limit_ms = request->queue->session->client->options.command_timeout_ms;
    return boot_ns() - request->launched_ns >= limit_ms * NS_PER_MS;
}

static void end_request(struct request *request)
{
    struct session *session = request->queue->session;
    const char *colon = session->trouble[0] != '\0' ? ": " : "";
    if (request->first) {
        request_answer(request, fail(request->what == ACQUIRE ? DLOCK_BUSY : DLOCK_UNKNOWN,
                                     "%s has not proven in time that the %s lives%s%s",
                                     session->name, session->ops->kind, colon, session->trouble));
        return;
    }
    if (request->in_flight > 0 && request_is_late(request))
        session_tell(session, true, "a request was not answered in time");
    if (request->sent && request->only_read) {
        request_answer(request, fail(DLOCK_UNREACHABLE, "%s did not answer in time%s%s",
                                     session->name, colon, session->trouble));
        return;
    }
    if (request->sent) {
        if (request->exchange != NULL && request->what == ACQUIRE)
            request->exchange->unresolved = true;
        request_answer(request, fail(DLOCK_UNKNOWN, "%s did not answer in time%s%s", session->name,
                                     colon, session->trouble));
        return;
    }
    if (session->refused) {
        request_answer(request, fail(DLOCK_REFUSED, "%s: %s", session->name, session->trouble));
        return;
    }
    if (!session->connected)
        session_tell(session, true, "no connection");
    request_answer(request, fail(DLOCK_UNREACHABLE, "%s %s%s%s", session->name,
                                 session->connected ? "has not answered what had to be asked first"
                                                    : "could not be connected to",
                                 colon, session->trouble));
}

/* CLOCK_MONOTONIC: when it must be looked at again. */
static int64_t look_at_requests(struct session *session)
{
    struct request *request, *next;
    int64_t now_ns = mono_ns(), soonest_ns = INT64_MAX;
    for (request = TAILQ_FIRST(&session->requests); request != NULL; request = next) {
        next = TAILQ_NEXT(request, of_session);
        if (!request_is_wanted(request))
            continue;
        int64_t limit_ns =
            request->sent ? request->ends_ns : min_ns(request->begins_ns, request->ends_ns);
        if (now_ns >= limit_ns) {
            end_request(request);
            continue;
        }
        soonest_ns = min_ns(soonest_ns, limit_ns);
        if (request->in_flight > 0 || request->first || !session->connected)
            continue;
        soonest_ns = min_ns(soonest_ns, now_ns + LOOK_AGAIN_NS);
        session->ops->go(request);
    }
    return soonest_ns;
}

/* CLOCK_BOOTTIME: when the place must be looked at again; the place may be gone by the return. */
static int64_t look_at_place(struct queue *queue, struct place *place, int64_t now_ns)
{
    if (place->lost) {
        if (now_ns >= place->until_ns)
            place_free(queue, place);
        else
            place_lose(queue, place);
        return now_ns + LOOK_AGAIN_NS;
    }
    if (place->leaving || now_ns < place->until_ns)
        return place->leaving ? INT64_MAX : place->until_ns;
    place_leave(queue, place);
    return now_ns + LOOK_AGAIN_NS;
}

/* CLOCK_BOOTTIME. */
static int64_t look_at_queues(struct session *session, int64_t now_ns)
{
    struct queue *queue, *next;
    int64_t soonest_ns = INT64_MAX;
    for (queue = LIST_FIRST(&session->queues); queue != NULL; queue = next) {
        struct place *place, *after;
        next = LIST_NEXT(queue, of_session);
        for (place = LIST_FIRST(&queue->places); place != NULL; place = after) {
            after = LIST_NEXT(place, of_queue);
            soonest_ns = min_ns(soonest_ns, look_at_place(queue, place, now_ns));
        }
        if (queue->lock == NULL && LIST_EMPTY(&queue->places) && queue->request_count == 0)
            queue_free(queue);
    }
    return soonest_ns;
}

int64_t session_look_at_all(struct session *session)
{
    int64_t now_ns = boot_ns();
    int64_t due_ns = look_at_queues(session, now_ns);
    int64_t until_ns = look_at_requests(session);
    return due_ns == INT64_MAX ? until_ns : min_ns(until_ns, mono_ns() + due_ns - now_ns);
}
