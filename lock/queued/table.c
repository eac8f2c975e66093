/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of an engine's table that are the same: see session.h.
 */
#include "session.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANCEL_NS (5 * NS_PER_MS)

void queued_stats(const struct dlock_client *client, struct dlock_stats *stats)
{
    const struct session *session = session_of(client);
    stats->commands = session->commands;
    stats->connects = session->connects;
}

/* Nobody need hold back: a request waits for the connection itself. */
int64_t queued_pause_ms(struct dlock_client *client)
{
    (void)client;
    return 0;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* Of a path. The same in every locale, or one lock would have several. */
static bool is_plain(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           strchr(":{}-_", c) != NULL;
}

/* A node's name from a lock's: what a path may not have is written as %2F. */
static void write_path(char *path, const char *root, const char *name)
{
    char *to = path + sprintf(path, "%s" LOCKS, root);
    for (const unsigned char *from = (const unsigned char *)name; *from != '\0'; from++)
        to += sprintf(to, is_plain(*from) ? "%c" : "%%%02X", *from);
}

bool queued_open_lock(struct dlock *lock)
{
    struct session *session = session_of(lock->client);
    const size_t size = session->ops->queue_size;
    struct queue *queue =
        calloc(1, size + strlen(session->root) + sizeof LOCKS + 3 * strlen(lock->name));
    if (queue == NULL)
        return false;
    queue->session = session;
    queue->lock = lock;
    queue->path = (char *)queue + size;
    LIST_INIT(&queue->places);
    write_path(queue->path, session->root, lock->name);
    lock->engine_state = queue;
    pthread_mutex_lock(&session->mutex);
    LIST_INSERT_HEAD(&session->queues, queue, of_session);
    session->open_locks++;
    session_look(session);
    pthread_mutex_unlock(&session->mutex);
    return true;
}

/* The queue stays until its last node is gone: a hold may have been abandoned. */
void queued_close_lock(struct dlock *lock)
{
    struct session *session = session_of(lock->client);
    struct queue *queue = lock->engine_state;
    pthread_mutex_lock(&session->mutex);
    queue->lock = NULL;
    session->open_locks--;
    session_look(session);
    pthread_mutex_unlock(&session->mutex);
}

unsigned queued_abilities(const struct rung_ops *ops)
{
    (void)ops;
    return ABLE_TO_ASK_AGAIN | ABLE_TO_GIVE_UP;
}

/* ---- Exchanges ------------------------------------------------------------------------------- */

/* There may be some; the exchange refuses them. */
bool queued_begin_batch(struct dlock_batch *batch)
{
    (void)batch;
    return true;
}

bool queued_shares(const struct exchange *exchange, const struct exchange *other)
{
    (void)exchange, (void)other;
    return false;
}

static void refuse(struct exchange *exchange, dlock_status status)
{
    exchange_set(exchange, status);
    exchange_answered(exchange);
}

static void begin(struct exchange *exchange)
{
    struct dlock *lock = exchange->hold->lock;
    struct session *session = session_of(lock->client);
    if (exchange->last != NULL || exchange->reads != NULL) {
        refuse(exchange, fail(DLOCK_UNSUPPORTED,
                              "want.reads and the batch of a release are "
                              "commands of Redis; with %s leave them NULL",
                              lock->client->engine->name));
        return;
    }
    pthread_mutex_lock(&session->mutex);
    struct request *request =
        session->ops->start(session)
            ? request_new(lock->engine_state, exchange->step == STEP_ACQUIRE ? ACQUIRE : LET_GO,
                          exchange->hold->owner)
            : NULL;
    if (request == NULL) {
        session_unlock(session);
        refuse(exchange, fail(DLOCK_NO_MEMORY, "no memory or thread is left"));
        return;
    }
    request->exchange = exchange;
    request_begins(
        request,
        min_ns(exchange->limit_ns, mono_deadline_ns(lock->client->options.connect_timeout_ms)),
        exchange->ends_ns);
    session_unlock(session);
}

void queued_exchange(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    (void)client;
    for (size_t i = 0; i < count; i++)
        begin(all[i]);
}

/* ---- Waiters --------------------------------------------------------------------------------- */

/* The attempt has set the watch. */
bool queued_listen(struct dlock *lock, const struct busy *busy, int64_t limit_ns, int cancel_fd)
{
    (void)busy, (void)limit_ns, (void)cancel_fd;
    lock->woken_by = WAIT_CHANNEL;
    return true;
}

void queued_forget(struct dlock *lock)
{
    (void)lock;
}

void queued_tend(struct dlock_client *client)
{
    (void)client;
}

/* ---- Calls of a thread that waits ------------------------------------------------------------ */

static bool is_cancelled(int fd)
{
    struct pollfd cancel = {.fd = fd, .events = POLLIN};
    return poll(&cancel, 1, 0) > 0;
}

/* With the mutex. Looks at its cancel so often, which is only a descriptor. */
static void wait_for(struct session *session, const struct call *call)
{
    struct timespec until = timespec_of(mono_ns() + CANCEL_NS);
    if (!call->over)
        pthread_cond_timedwait(&session->changed, &session->mutex, &until);
}

static dlock_status ask(struct dlock *lock, enum what what, const char *owner, int64_t ends_ns,
                        int cancel_fd, struct call *call)
{
    struct session *session = session_of(lock->client);
    pthread_mutex_lock(&session->mutex);
    struct request *request =
        session->ops->start(session) ? request_new(lock->engine_state, what, owner) : NULL;
    if (request == NULL) {
        session_unlock(session);
        return fail(DLOCK_NO_MEMORY, "no memory or thread is left");
    }
    request->call = call;
    request_begins(request, mono_deadline_ns(lock->client->options.connect_timeout_ms), ends_ns);
    while (!call->over) {
        if (is_cancelled(cancel_fd))
            request_answer(request, fail(DLOCK_CANCELLED, "cancelled"));
        else
            wait_for(session, call);
    }
    session_unlock(session);
    return call->status == DLOCK_OK ? DLOCK_OK : fail(call->status, "%s", call->why);
}

dlock_status queued_extend(struct dlock_hold *hold, int64_t ends_ns, int64_t *sent_ns,
                           int64_t *ttl_ms)
{
    struct call call = {.over = false};
    dlock_status status = ask(hold->lock, EXTEND, hold->owner, ends_ns, -1, &call);
    *sent_ns = call.counts_ns;
    *ttl_ms = hold->ttl_ms;
    return status;
}

dlock_status queued_inspect(struct dlock *lock, int64_t ends_ns, int cancel_fd, struct look *look)
{
    struct call call = {.look = look};
    return ask(lock, LOOK, "", ends_ns, cancel_fd, &call);
}

dlock_status queued_break(struct dlock *lock, int64_t ends_ns, struct look *look)
{
    struct call call = {.look = look};
    return ask(lock, BREAK, "", ends_ns, -1, &call);
}

dlock_status queued_check_beside(struct dlock *lock, int64_t ends_ns, int cancel_fd)
{
    (void)lock, (void)ends_ns, (void)cancel_fd;
    return DLOCK_OK;
}
