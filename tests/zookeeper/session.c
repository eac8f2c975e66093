/* SPDX-License-Identifier: Apache-2.0
 *
 * See session.h. ZooKeeper's client library tries again for ever, and never says by itself that a
 * session is over. So a thread keeps the time: it answers what took too long, writes to the nodes
 * that hold, and deletes those that nobody needs. Another thread opens a new session after one has
 * expired.
 */
#include "session.h"

#include "thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 5 /* how often a thread looks */
#define WRITES_PER_TTL 3
#define ANSWERS_MAX 16

/* ---- Requests -------------------------------------------------------------------------------- */

struct request *request_new(struct queue *queue, enum what what, const char *owner)
{
    struct request *request = calloc(1, sizeof *request);
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
        request->in_flight)
        return;
    request->queue->request_count--;
    TAILQ_REMOVE(&request->queue->session->requests, request, of_session);
    free(request);
}

void request_answer(struct request *request, dlock_status status)
{
    struct session *session = request->queue->session;
    struct call *call = request->call;
    request->unasked = false;
    if (call != NULL) {
        call->over = true;
        call->status = status;
        call->sent_ns = request->sent_ns;
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

struct timespec *session_soon(struct timespec *until)
{
    int64_t until_ns = mono_deadline_ns(LOOK_MS);
    *until = (struct timespec){until_ns / 1000000000, until_ns % 1000000000};
    return until;
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

/* ---- Places ---------------------------------------------------------------------------------- */

struct place *place_of(const struct queue *queue, const char *owner)
{
    struct place *place;
    LIST_FOREACH(place, &queue->places, of_queue)
        if (strcmp(place->owner, owner) == 0)
            break;
    return place;
}

void place_free(struct place *place)
{
    LIST_REMOVE(place, of_queue);
    free(place);
}

void place_holds(struct place *place, int64_t sent_ns)
{
    place->until_ns = sent_ns + place->ttl_ms * NS_PER_MS;
    place->renew_ns = sent_ns + place->ttl_ms * NS_PER_MS / WRITES_PER_TTL;
}

/* ---- What ZooKeeper tells -------------------------------------------------------------------- */

static void tell_outage(struct session *session, bool outage, const char *why)
{
    char reason[SENTENCE_MAX];
    if (session->outage == outage)
        return;
    session->outage = outage;
    snprintf(reason, sizeof reason, "zookeeper://%.200s: %s", session->hosts, why);
    timekeeper_notice(&session->client->timekeeper, outage ? OUTAGE_LOST : OUTAGE_RESTORED, reason);
}

/* Its waiters look again. */
static void wake(const struct queue *queue)
{
    if (queue->lock == NULL)
        return;
    pthread_mutex_lock(&queue->lock->client->loop.mutex);
    wait_wake(queue->lock, WAKE_ALL);
    pthread_mutex_unlock(&queue->lock->client->loop.mutex);
}

/* All nodes are gone with it. */
static void session_expired(struct session *session)
{
    struct queue *queue;
    struct place *place;
    session->expired = true;
    LIST_FOREACH(queue, &session->queues, of_session) {
        while ((place = LIST_FIRST(&queue->places)) != NULL) {
            if (queue->lock != NULL)
                timekeeper_lose_owner(queue->lock, place->owner);
            place_free(place);
        }
        wake(queue);
    }
}

static void session_state(struct session *session, zhandle_t *handle, int state)
{
    session->connected = state == ZOO_CONNECTED_STATE;
    if (session->connected) {
        session->granted_ms = zoo_recv_timeout(handle);
        session->connects++;
        tell_outage(session, false, "connected");
    } else {
        tell_outage(session, true,
                    state == ZOO_EXPIRED_SESSION_STATE ? "the session has expired"
                                                       : "the connection was lost");
    }
    if (state == ZOO_EXPIRED_SESSION_STATE)
        session_expired(session);
    pthread_cond_broadcast(&session->changed); /* the thread goes on with what waits */
}

static bool is_in(const char *path, const char *folder)
{
    size_t size = strlen(folder);
    return strncmp(path, folder, size) == 0 && path[size] == '/';
}

/* Watches and the session's events, on a thread of ZooKeeper's client. */
static void watch(zhandle_t *handle, int type, int state, const char *path, void *arg)
{
    struct session *session = arg;
    struct queue *queue;
    pthread_mutex_lock(&session->mutex);
    if (session->opening)
        session->handle = handle;
    if (handle != session->handle)
        ; /* it is being closed */
    else if (type == ZOO_SESSION_EVENT)
        session_state(session, handle, state);
    else if (type == ZOO_DELETED_EVENT)
        LIST_FOREACH(queue, &session->queues, of_session)
            if (is_in(path, queue->path))
                wake(queue);
    session_unlock(session);
}

/* ---- The threads ----------------------------------------------------------------------------- */

static void end_request(struct request *request)
{
    struct session *session = request->queue->session;
    if (request->sent) {
        if (request->exchange != NULL && request->what == ACQUIRE)
            request->exchange->unresolved = true;
        request_answer(request, fail(DLOCK_UNKNOWN, "zookeeper://%.200s did not answer in time",
                                     session->hosts));
        return;
    }
    if (!session->connected)
        tell_outage(session, true, "no connection");
    request_answer(request, fail(DLOCK_UNREACHABLE, "zookeeper://%.200s could not be connected to",
                                 session->hosts));
}

static void look_at_requests(struct session *session, int64_t now_ns)
{
    struct request *request, *next;
    for (request = TAILQ_FIRST(&session->requests); request != NULL; request = next) {
        next = TAILQ_NEXT(request, of_session);
        if (!request_is_wanted(request))
            continue;
        int64_t limit_ns =
            request->sent ? request->ends_ns : min_ns(request->begins_ns, request->ends_ns);
        if (now_ns >= limit_ns)
            end_request(request);
        else if (!request->in_flight)
            request_go(request);
    }
}

static bool begin_own(struct queue *queue, enum what what, const char *owner)
{
    struct request *request = request_new(queue, what, owner);
    if (request == NULL)
        return false;
    request->unasked = true;
    request_go(request);
    return true;
}

static void look_at_places(struct queue *queue, int64_t now_ns)
{
    struct place *place, *next;
    for (place = LIST_FIRST(&queue->places); place != NULL; place = next) {
        next = LIST_NEXT(place, of_queue);
        if (now_ns >= place->until_ns && !place->dropped) {
            place->dropped = true;
            place->dropped = begin_own(queue, LET_GO, place->owner);
        } else if (now_ns >= place->renew_ns && !place->renewing && !place->dropped) {
            place->renewing = begin_own(queue, RENEW, place->owner);
        }
    }
}

static void look_at_queues(struct session *session)
{
    struct queue *queue, *next;
    for (queue = LIST_FIRST(&session->queues); queue != NULL; queue = next) {
        next = LIST_NEXT(queue, of_session);
        look_at_places(queue, boot_ns());
        if (queue->lock != NULL || !LIST_EMPTY(&queue->places) || queue->request_count > 0)
            continue;
        LIST_REMOVE(queue, of_session);
        free(queue);
    }
}

/* Nothing is called back any more. */
static void end_flights(struct session *session)
{
    struct request *request, *next;
    for (request = TAILQ_FIRST(&session->requests); request != NULL; request = next) {
        next = TAILQ_NEXT(request, of_session);
        request->in_flight = false;
        request_settle(request);
    }
}

/* With the mutex at call and return, not in between. Most of what was under way is called back
 * before the return of zookeeper_close. */
static void close_handle(struct session *session)
{
    zhandle_t *handle = session->handle;
    session->handle = NULL;
    session->connected = session->expired = false;
    if (handle == NULL)
        return;
    session_unlock(session);
    zookeeper_close(handle);
    pthread_mutex_lock(&session->mutex);
    end_flights(session);
}

/* With the mutex at call and return, not in between. */
static void open_handle(struct session *session)
{
    session->opening = true;
    session_unlock(session);
    zhandle_t *handle =
        zookeeper_init(session->hosts, watch, session->timeout_ms, NULL, session, 0);
    pthread_mutex_lock(&session->mutex);
    session->opening = false;
    session->handle = handle; /* NULL: a host is not known; the thread tries again */
}

/* With the mutex at call and return, not in between. Returns soon. */
static void rest(struct session *session)
{
    struct timespec until;
    session_unlock(session);
    pthread_mutex_lock(&session->mutex);
    if (!session->stop)
        pthread_cond_timedwait(&session->changed, &session->mutex, session_soon(&until));
}

static void *keep_time(void *arg)
{
    struct session *session = arg;
    pthread_mutex_lock(&session->mutex);
    while (!session->stop) {
        look_at_requests(session, mono_ns());
        look_at_queues(session);
        rest(session);
    }
    session_unlock(session);
    return NULL;
}

/* To look up a host, and to close, may take long. */
static void *keep_handle(void *arg)
{
    struct session *session = arg;
    pthread_mutex_lock(&session->mutex);
    while (!session->stop) {
        if (session->expired)
            close_handle(session);
        if (session->handle == NULL)
            open_handle(session);
        rest(session);
    }
    close_handle(session);
    session_unlock(session);
    return NULL;
}

bool session_start(struct session *session)
{
    if (session->thread_count == 0)
        session->thread_count += thread_begin(&session->threads[0], keep_time, session);
    if (session->thread_count == 1)
        session->thread_count += thread_begin(&session->threads[1], keep_handle, session);
    return session->thread_count == 2;
}

void session_stop(struct session *session)
{
    pthread_mutex_lock(&session->mutex);
    session->stop = true;
    pthread_cond_broadcast(&session->changed);
    session_unlock(session);
    for (size_t i = 0; i < session->thread_count; i++)
        pthread_join(session->threads[i], NULL);
}
