/* SPDX-License-Identifier: Apache-2.0
 *
 * See zk_session.h. ZooKeeper's client library tries again for ever, and never says by itself that
 * a session is over. So a thread keeps the time: it answers what took too long, writes to the
 * session's node, and deletes nodes that nobody needs. Another thread opens a new session after one
 * has expired, because to look up a host, and to close, may take long.
 */
#include "zk_session.h"

#include "thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_AGAIN_NS (50 * NS_PER_MS)     /* at a handle that could not be opened */
#define LOG_IN_AGAIN_NS (1000 * NS_PER_MS) /* after a login was refused, or not sent */

bool zk_is_no_answer(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZCLOSING ||
           rc == ZSESSIONEXPIRED || rc == ZSESSIONMOVED || rc == ZINVALIDSTATE ||
           rc == ZRUNTIMEINCONSISTENCY || rc == ZSYSTEMERROR || rc == ZAUTHFAILED;
}

const struct ACL_vector *zk_access(const struct zk_session *zk)
{
    return zk->url.login != NULL ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

void zk_ignore(int rc, const char *path, const void *data)
{
    (void)rc, (void)path, (void)data;
}

void zk_make_above(struct zk_session *zk, const char *path)
{
    char above[PATH_MAX_BYTES];
    for (const char *end = strchr(path + 1, '/'); end != NULL; end = strchr(end + 1, '/')) {
        snprintf(above, sizeof above, "%.*s", (int)(end - path), path);
        zk->base.commands += zoo_acreate(zk->handle, above, "", 0, zk_access(zk), ZOO_PERSISTENT,
                                         zk_ignore, NULL) == ZOK;
    }
}

void zk_heard(struct zk_session *zk, int64_t sent_ns, bool write)
{
    zk->heard = true;
    session_tell(&zk->base, false, "it answers");
    if (!write)
        proof_answered(&zk->proof, sent_ns, boot_ns());
    else if (proof_written(&zk->proof, sent_ns, boot_ns()))
        session_counts(&zk->base, zk->proof.counts_ns);
}

/* ---- What ZooKeeper tells -------------------------------------------------------------------- */

/* Its nodes are gone with it. */
static void expired(struct zk_session *zk)
{
    zk->expired = true;
    zk->base.connected = false;
    zk->proof.counts_ns = 0;
    session_expired(&zk->base);
    pthread_cond_broadcast(&zk->base.changed);
}

/* Before the first request, which the server would refuse without it. The next connections begin
 * with it by themselves. False: the connection is lost again, and the next one will tell. Or there
 * was no memory to send it: the connection lives, and another handle takes its place. */
static bool logs_in(struct zk_session *zk, zhandle_t *handle)
{
    const char *login = zk->url.login;
    if (login == NULL || zk->logged_in)
        return true;
    int rc = zoo_add_auth(handle, "digest", login, (int)strlen(login), NULL, NULL);
    zk->logged_in = rc == ZOK;
    if (rc != ZOK && rc != ZINVALIDSTATE) {
        zk->pauses = true;
        expired(zk);
    }
    return zk->logged_in;
}

static void session_state(struct zk_session *zk, zhandle_t *handle, int state)
{
    struct session *session = &zk->base;
    const bool over = state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE;
    if (zk->expired) /* it may connect once more before it is closed */
        return;
    if (zk->ending) { /* to close the handle ends the session */
        zk->expired |= over || state == ZOO_CONNECTED_STATE;
        pthread_cond_broadcast(&session->changed); /* for the thread that opens and closes */
        return;
    }
    if (session->connected && (zk->heard || session->open_locks == 0))
        zk->lost_ns = boot_ns();
    session->connected = state == ZOO_CONNECTED_STATE && logs_in(zk, handle);
    if (session->connected) {
        session->granted_ms = zoo_recv_timeout(handle);
        session->connects++;
        session->refused = false;
        session->identity.text[0] = '\0'; /* perhaps servers that were restored from a copy */
        zk->beat.sent_ns = 0;
        zk->heard = session->open_locks == 0; /* nothing is asked: it is not silent */
        proof_connected(&zk->proof);
        if (session->open_locks == 0) /* else the answer to the first write tells it */
            session_tell(session, false, "connected");
    } else {
        session_tell(session, true,
                     state == ZOO_EXPIRED_SESSION_STATE ? "the session has expired"
                     : state == ZOO_AUTH_FAILED_STATE   ? "the login was refused"
                                                        : "the connection was lost");
    }
    if (state == ZOO_AUTH_FAILED_STATE) {
        zk->pauses = session->refused = true;
        strcpy(session->trouble, "the login was refused");
    }
    if (over)
        expired(zk);
    session_look(session);
}

/* The path's last name, if the path is in the folder; else NULL. */
static const char *name_in(const char *path, const char *folder)
{
    size_t size = strlen(folder);
    return strncmp(path, folder, size) == 0 && path[size] == '/' ? path + size + 1 : NULL;
}

static bool is_identity(const struct session *session, const char *path)
{
    const char *name = name_in(path, session->root);
    return name != NULL && strcmp(name, IDENTITY + 1) == 0;
}

/* Watches and the session's events, on a thread of ZooKeeper's client. */
static void watch(zhandle_t *handle, int type, int state, const char *path, void *arg)
{
    struct zk_session *zk = arg;
    struct session *session = &zk->base;
    struct queue *queue;
    pthread_mutex_lock(&session->mutex);
    if (zk->opening)
        zk->handle = handle;
    if (handle != zk->handle || (zk->expired && !zk->ending))
        ; /* it is being closed: nothing more is sent in its session */
    else if (type == ZOO_SESSION_EVENT)
        session_state(zk, handle, state);
    else if (is_identity(session, path)) /* an operator wants another one */
        session->identity.text[0] = '\0';
    else if (type == ZOO_DELETED_EVENT)
        LIST_FOREACH(queue, &session->queues, of_session)
            if (name_in(path, queue->path) != NULL)
                session_node_is_gone(queue, name_in(path, queue->path), UINT64_MAX);
    session_unlock(session);
}

/* ---- The thread that keeps the time ---------------------------------------------------------- */

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
static int64_t give_up(struct zk_session *zk, int64_t now_ns)
{
    if (zk->base.connected || zk->expired || zk->ending || zk->handle == NULL ||
        zk->base.granted_ms == 0)
        return INT64_MAX;
    int64_t due_ns = zk->lost_ns + zk->base.granted_ms * NS_PER_MS;
    if (now_ns < due_ns)
        return due_ns;
    zk->given_up = *zoo_client_id(zk->handle);
    zk->gives_up = true;
    expired(zk);
    return INT64_MAX;
}

static void *keep_time(void *arg)
{
    struct session *session = arg;
    pthread_mutex_lock(&session->mutex);
    while (!session->stop) {
        session->looked = true;
        int64_t now_ns = boot_ns();
        int64_t due_ns = min_ns(beat_go(zk_of(session), now_ns), give_up(zk_of(session), now_ns));
        int64_t until_ns = session_look_at_all(session);
        if (due_ns != INT64_MAX)
            until_ns = min_ns(until_ns, mono_ns() + due_ns - now_ns);
        rest(session, until_ns);
    }
    session_unlock(session);
    return NULL;
}

/* ---- The thread that opens and closes -------------------------------------------------------- */

/* The handle is closed. What was sent may have been carried out. */
static void end_flight(struct request *request)
{
    bool flew = request->in_flight > 0;
    request->in_flight = 0;
    request->first = false;
    request->repeated |= flew && request->what == LET_GO;
    if (flew && ((struct zk_request *)request)->breaks && request_is_wanted(request))
        request_answer(request, fail(DLOCK_UNKNOWN, "the session ended before the answer"));
    else
        request_settle(request);
}

/* Nothing is called back any more. */
static void end_flights(struct zk_session *zk)
{
    struct session *session = &zk->base;
    struct request *request, *next;
    zk->beat = (struct beat){.under_way = false};
    for (request = TAILQ_FIRST(&session->requests); request != NULL; request = next) {
        next = TAILQ_NEXT(request, of_session);
        end_flight(request);
    }
}

/* With the mutex at call and return, not in between. Most of what was under way is called back
 * before the return of zookeeper_close. */
static void close_handle(struct zk_session *zk)
{
    struct session *session = &zk->base;
    zhandle_t *handle = zk->handle;
    zk->handle = NULL;
    session->connected = zk->expired = false;
    if (handle == NULL)
        return;
    session_unlock(session);
    zookeeper_close(handle);
    pthread_mutex_lock(&session->mutex);
    end_flights(zk);
}

/* The library says what happens by events; ZooKeeper's client would write it to stderr. */
static void no_log(const char *message)
{
    (void)message;
}

static void *pass(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* ZooKeeper's client begins two, and ends the process if it gets none. */
static bool threads_are_left(void)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[2];
    int count = 0;
    pthread_mutex_lock(&gate);
    while (count < 2 && thread_begin(&threads[count], pass, &gate))
        count++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&gate);
    return count == 2;
}

/* With the mutex at call and return, not in between. */
static void open_handle(struct zk_session *zk)
{
    struct session *session = &zk->base;
    zk->opening = true;
    zk->logged_in = zk->pauses = session->refused = false;
    zk->lost_ns = boot_ns();
    session->granted_ms = 0;
    session->counts_ns = 0;
    proof_begin(&zk->proof, boot_ns());
    session_unlock(session);
    zhandle_t *handle = NULL;
    if (threads_are_left())
        handle =
            zookeeper_init2(zk->url.addresses, watch, (int)session->asked_ms,
                            zk->ending ? &zk->given_up : NULL, zk, ZOO_NO_LOG_CLIENTENV, no_log);
    if (handle != NULL) /* a session that lives must not wait until names are looked up */
        zoo_set_servers_resolution_delay(handle, -1);
    pthread_mutex_lock(&session->mutex);
    zk->opening = false;
    zk->handle = handle; /* NULL: no host is known, or no thread is left; it is tried again */
}

/* With the mutex at call and return, not in between. */
static void pause_for(struct session *session, int64_t pause_ns)
{
    const int64_t until_ns = mono_ns() + pause_ns;
    struct timespec until = timespec_of(until_ns);
    while (!session->stop && mono_ns() < until_ns)
        pthread_cond_timedwait(&session->changed, &session->mutex, &until);
}

static void *keep_handle(void *arg)
{
    struct zk_session *zk = arg;
    struct session *session = &zk->base;
    pthread_mutex_lock(&session->mutex);
    while (!session->stop) {
        if (zk->expired) {
            close_handle(zk);
            zk->ending = zk->gives_up;
            zk->gives_up = false;
            if (zk->pauses)
                pause_for(session, LOG_IN_AGAIN_NS);
        }
        if (zk->handle == NULL && !session->stop)
            open_handle(zk);
        while (!session->stop && !zk->expired && zk->handle != NULL)
            pthread_cond_wait(&session->changed, &session->mutex);
        if (zk->handle == NULL)
            pause_for(session, LOOK_AGAIN_NS);
    }
    close_handle(zk);
    session_unlock(session);
    return NULL;
}

bool zk_start(struct session *session)
{
    struct zk_session *zk = zk_of(session);
    if (zk->thread_count == 0)
        zk->thread_count += thread_begin(&zk->threads[0], keep_time, session);
    if (zk->thread_count == 1)
        zk->thread_count += thread_begin(&zk->threads[1], keep_handle, session);
    return zk->thread_count == 2;
}

/* The end of the session ends its holds. But what the holder of an abandoned one sent last may
 * still come, and must not meet the next holder. */
static void await_abandoned(struct session *session)
{
    const int64_t until_ns = mono_ns() + session->granted_ms * NS_PER_MS;
    while (session_is_held(session) && mono_ns() < until_ns) {
        struct timespec look = timespec_of(mono_ns() + LOOK_AGAIN_NS);
        pthread_cond_timedwait(&session->changed, &session->mutex, &look);
    }
}

void zk_stop(struct session *session)
{
    struct zk_session *zk = zk_of(session);
    pthread_mutex_lock(&session->mutex);
    await_abandoned(session);
    session->stop = true;
    pthread_cond_broadcast(&session->changed);
    session_unlock(session);
    for (size_t i = 0; i < zk->thread_count; i++)
        pthread_join(zk->threads[i], NULL);
}
