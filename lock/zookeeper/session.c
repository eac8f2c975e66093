/* SPDX-License-Identifier: Apache-2.0
 *
 * See session.h. ZooKeeper's client library tries again for ever, and never says by itself that a
 * session is over. So a thread keeps the time: it answers what took too long, writes to the
 * session's node, and deletes nodes that nobody needs. Another thread opens a new session after one
 * has expired, because to look up a host, and to close, may take long.
 */
#include "session.h"

#include "thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_AGAIN_NS (50 * NS_PER_MS) /* at what could not be sent or told */
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
        request->in_flight > 0)
        return;
    request->queue->request_count--;
    TAILQ_REMOVE(&request->queue->session->requests, request, of_session);
    free(request);
}

void request_answer(struct request *request, dlock_status status)
{
    struct session *session = request->queue->session;
    struct call *call = request->call;
    struct place *place = place_of(request->queue, request->owner);
    if (request->what == LET_GO && status != DLOCK_OK && place != NULL)
        place->leaving = false; /* it may still be there: a later request deletes it */
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
    session->looked = false;
    pthread_cond_broadcast(&session->changed);
}

void request_begins(struct request *request, int64_t begins_ns, int64_t ends_ns)
{
    struct session *session = request->queue->session;
    request->begins_ns = begins_ns;
    request->ends_ns = ends_ns;
    request_go(request);
    if (min_ns(begins_ns, ends_ns) < session->looks_ns)
        session_look(session);
}

bool session_is_no_answer(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZCLOSING ||
           rc == ZSESSIONEXPIRED || rc == ZSESSIONMOVED || rc == ZINVALIDSTATE;
}

const struct ACL_vector *session_access(const struct session *session)
{
    return session->url.login != NULL ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

void session_ignore(int rc, const char *path, const void *data)
{
    (void)rc, (void)path, (void)data;
}

void session_make_above(struct session *session, const char *path)
{
    char above[PATH_MAX_BYTES];
    for (const char *end = strchr(path + 1, '/'); end != NULL; end = strchr(end + 1, '/')) {
        snprintf(above, sizeof above, "%.*s", (int)(end - path), path);
        session->commands += zoo_acreate(session->handle, above, "", 0, session_access(session),
                                         ZOO_PERSISTENT, session_ignore, NULL) == ZOK;
    }
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

/* Tells the core that the hold is lost; unless it does not watch the hold yet. */
static void place_lose(const struct queue *queue, struct place *place)
{
    place->lost = true;
    if (queue->lock == NULL || timekeeper_lose_owner(queue->lock, place->owner))
        place_free(place);
}

/* ---- The session's time ---------------------------------------------------------------------- */

int64_t session_valid_until(const struct session *session)
{
    int64_t counts_ns = session->proof.counts_ns;
    return counts_ns != 0 ? validity_end_ns(counts_ns, session->granted_ms) : 0;
}

/* A hold that the core no longer counts as valid is not kept longer. */
static void give_time(const struct queue *queue)
{
    const struct session *session = queue->session;
    int64_t counts_ns = session->proof.counts_ns;
    struct place *place;
    LIST_FOREACH(place, &queue->places, of_queue)
        if (place->holds && !place->leaving && !place->lost && queue->lock != NULL &&
            timekeeper_extend_owner(queue->lock, place->owner, counts_ns, session->granted_ms))
            place->until_ns = min_ns(counts_ns + session->granted_ms * NS_PER_MS, place->ends_ns);
}

static void session_has_time(struct session *session)
{
    struct queue *queue;
    struct request *request, *next;
    LIST_FOREACH(queue, &session->queues, of_session)
        give_time(queue);
    for (request = TAILQ_FIRST(&session->requests); request != NULL; request = next) {
        next = TAILQ_NEXT(request, of_session);
        if (request->first && request->in_flight == 0 && request_is_wanted(request))
            request_go(request);
    }
}

void session_heard(struct session *session, int64_t sent_ns, bool write)
{
    if (!write)
        proof_answered(&session->proof, sent_ns, boot_ns());
    else if (proof_written(&session->proof, sent_ns, boot_ns()))
        session_has_time(session);
}

/* ---- What ZooKeeper tells -------------------------------------------------------------------- */

static void tell_outage(struct session *session, bool outage, const char *why)
{
    char reason[SENTENCE_MAX];
    if (session->outage == outage)
        return;
    session->outage = outage;
    snprintf(reason, sizeof reason, "zk://%.200s: %s", session->url.hosts, why);
    timekeeper_notice(&session->client->timekeeper, outage ? OUTAGE_LOST : OUTAGE_RESTORED, reason);
}

/* Its nodes are gone with it. */
static void session_expired(struct session *session)
{
    struct queue *queue;
    session->expired = true;
    session->proof.counts_ns = 0;
    LIST_FOREACH(queue, &session->queues, of_session) {
        struct place *place, *next;
        for (place = LIST_FIRST(&queue->places); place != NULL; place = next) {
            next = LIST_NEXT(place, of_queue);
            if (place->holds)
                place_lose(queue, place);
            else
                place_free(place);
        }
        if (queue->lock == NULL)
            continue;
        pthread_mutex_lock(&queue->lock->client->loop.mutex);
        wait_wake(queue->lock, WAKE_ALL); /* its waiters ask again, in the next session */
        pthread_mutex_unlock(&queue->lock->client->loop.mutex);
    }
}

static void session_state(struct session *session, zhandle_t *handle, int state)
{
    const bool over = state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE;
    if (session->ending) { /* to close the handle ends the session */
        session->expired |= over || state == ZOO_CONNECTED_STATE;
        session_look(session);
        return;
    }
    if (session->connected)
        session->lost_ns = boot_ns();
    session->connected = state == ZOO_CONNECTED_STATE;
    if (session->connected) {
        session->granted_ms = zoo_recv_timeout(handle);
        session->connects++;
        session->beat.sent_ns = 0;
        proof_connected(&session->proof);
        tell_outage(session, false, "connected");
    } else {
        tell_outage(session, true,
                    state == ZOO_EXPIRED_SESSION_STATE ? "the session has expired"
                    : state == ZOO_AUTH_FAILED_STATE   ? "the login was refused"
                                                       : "the connection was lost");
    }
    if (over)
        session_expired(session);
    session_look(session);
}

/* A node is gone: the hold that it was is lost, or the waiter that watched it may be the first. */
static void node_is_gone(struct queue *queue, const char *node)
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
        } else if (strcmp(place->node, node) == 0 && place->holds && !place->leaving &&
                   !place->lost) {
            place_lose(queue, place);
        }
    }
}

/* The path's last name, if the path is in the folder; else NULL. */
static const char *name_in(const char *path, const char *folder)
{
    size_t size = strlen(folder);
    return strncmp(path, folder, size) == 0 && path[size] == '/' ? path + size + 1 : NULL;
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
            if (name_in(path, queue->path) != NULL)
                node_is_gone(queue, name_in(path, queue->path));
    session_unlock(session);
}

/* ---- The thread that keeps the time ---------------------------------------------------------- */

static void end_request(struct request *request)
{
    struct session *session = request->queue->session;
    if (request->first) {
        request_answer(request,
                       fail(DLOCK_BUSY, "zk://%.200s has not proven in time that the session lives",
                            session->url.hosts));
        return;
    }
    if (request->sent) {
        if (request->exchange != NULL && request->what == ACQUIRE)
            request->exchange->unresolved = true;
        request_answer(
            request, fail(DLOCK_UNKNOWN, "zk://%.200s did not answer in time", session->url.hosts));
        return;
    }
    if (!session->connected)
        tell_outage(session, true, "no connection");
    request_answer(request, fail(DLOCK_UNREACHABLE, "zk://%.200s could not be connected to",
                                 session->url.hosts));
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
        request_go(request);
    }
    return soonest_ns;
}

void place_leave(struct queue *queue, struct place *place)
{
    struct request *request = request_new(queue, LET_GO, place->owner);
    if (request == NULL)
        return;
    request->unasked = place->leaving = true;
    request_go(request);
}

/* CLOCK_BOOTTIME: when the place must be looked at again; the place may be gone by the return. */
static int64_t look_at_place(struct queue *queue, struct place *place, int64_t now_ns)
{
    if (place->lost) {
        if (now_ns >= place->until_ns)
            place_free(place);
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
        if (queue->lock != NULL || !LIST_EMPTY(&queue->places) || queue->request_count > 0)
            continue;
        LIST_REMOVE(queue, of_session);
        free(queue);
    }
    return soonest_ns;
}

/* With the mutex at call and return, not in between. until_ns: CLOCK_MONOTONIC. */
static void rest(struct session *session, int64_t until_ns)
{
    struct timespec until = timespec_of(until_ns);
    session->looks_ns = until_ns;
    session_unlock(session);
    pthread_mutex_lock(&session->mutex);
    if (session->stop || !session->looked)
        return;
    if (until_ns == INT64_MAX)
        pthread_cond_wait(&session->changed, &session->mutex);
    else
        pthread_cond_timedwait(&session->changed, &session->mutex, &until);
}

/* Servers that have lost their data refuse a client that has seen more than they have, and do not
 * say that its session is over. When its holds have ended, nobody needs it: it is given up. A
 * handle that has seen nothing ends it, so that its nodes do not stay where servers have kept them.
 * CLOCK_BOOTTIME: when that is due. */
static int64_t give_up(struct session *session, int64_t now_ns)
{
    if (session->connected || session->expired || session->ending || session->handle == NULL ||
        session->granted_ms == 0)
        return INT64_MAX;
    int64_t due_ns = session->lost_ns + session->granted_ms * NS_PER_MS;
    if (now_ns < due_ns)
        return due_ns;
    session->given_up = *zoo_client_id(session->handle);
    session_expired(session);
    session->gives_up = true;
    pthread_cond_broadcast(&session->changed);
    return INT64_MAX;
}

static void *keep_time(void *arg)
{
    struct session *session = arg;
    pthread_mutex_lock(&session->mutex);
    while (!session->stop) {
        session->looked = true;
        int64_t now_ns = boot_ns();
        int64_t due_ns = min_ns(beat_go(session, now_ns), look_at_queues(session, now_ns));
        due_ns = min_ns(due_ns, give_up(session, now_ns));
        int64_t until_ns = look_at_requests(session);
        if (due_ns != INT64_MAX)
            until_ns = min_ns(until_ns, mono_ns() + due_ns - now_ns);
        rest(session, until_ns);
    }
    session_unlock(session);
    return NULL;
}

/* ---- The thread that opens and closes -------------------------------------------------------- */

/* Nothing is called back any more. */
static void end_flights(struct session *session)
{
    struct request *request, *next;
    session->beat = (struct beat){.under_way = false};
    for (request = TAILQ_FIRST(&session->requests); request != NULL; request = next) {
        next = TAILQ_NEXT(request, of_session);
        request->in_flight = 0;
        request->first = false;
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

/* The library says what happens by events; ZooKeeper's client would write it to stderr. */
static void no_log(const char *message)
{
    (void)message;
}

/* With the mutex at call and return, not in between. */
static void open_handle(struct session *session)
{
    session->opening = true;
    session->granted_ms = 0;
    session->identity.text[0] = '\0';
    proof_begin(&session->proof, boot_ns());
    session_unlock(session);
    zhandle_t *handle =
        zookeeper_init2(session->url.hosts, watch, session->asked_ms,
                        session->ending ? &session->given_up : NULL, session, 0, no_log);
    pthread_mutex_lock(&session->mutex);
    session->opening = false;
    session->handle = handle; /* NULL: a host is not known; the thread tries again */
    if (handle != NULL && session->url.login != NULL)
        zoo_add_auth(handle, "digest", session->url.login, (int)strlen(session->url.login), NULL,
                     NULL);
}

static void *keep_handle(void *arg)
{
    struct session *session = arg;
    pthread_mutex_lock(&session->mutex);
    while (!session->stop) {
        if (session->expired) {
            close_handle(session);
            session->ending = session->gives_up;
            session->gives_up = false;
        }
        if (session->handle == NULL)
            open_handle(session);
        while (!session->stop && !session->expired && session->handle != NULL)
            pthread_cond_wait(&session->changed, &session->mutex);
        if (!session->stop && session->handle == NULL) {
            struct timespec until = timespec_of(mono_ns() + LOOK_AGAIN_NS);
            pthread_cond_timedwait(&session->changed, &session->mutex, &until);
        }
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
