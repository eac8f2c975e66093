/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine as a table. It answers later: what is asked begins here, and goes on in steps.c.
 */
#include "zookeeper_engine.h"

#include "dlock_zookeeper.h"
#include "session.h"

#include <ctype.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define CANCEL_NS (5 * NS_PER_MS)

/* ---- Clients --------------------------------------------------------------------------------- */

static void free_session(struct session *session)
{
    pthread_cond_destroy(&session->changed);
    pthread_mutex_destroy(&session->mutex);
    zk_url_free(&session->url);
    free(session);
}

static dlock_status check_options(const struct dlock_options *options, size_t count)
{
    if (count != 1)
        return fail(DLOCK_INVALID,
                    "%zu servers; ZooKeeper has one URL, with all hosts of the ensemble: "
                    "zk://h1,h2,h3",
                    count);
    if (options->replicas_ack != DLOCK_REPLICAS_NONE)
        return fail(DLOCK_INVALID, "replicas_ack is of Redis; ZooKeeper confirms each write by a "
                                   "quorum, so leave it DLOCK_REPLICAS_NONE");
    if (options->sentinel_password != NULL)
        return fail(DLOCK_INVALID, "sentinel_password is of sentinel://; give ZooKeeper's login in "
                                   "the URL: zk://user:password@host");
    return DLOCK_OK;
}

static dlock_status open_session(struct dlock_client *client, const char *const *urls, size_t count)
{
    const struct dlock_options *options = &client->options;
    dlock_status status = check_options(options, count);
    if (status != DLOCK_OK)
        return status;
    struct session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    session->client = client;
    session->asked_ms = (int)(options->ttl_ms != 0 ? options->ttl_ms : TTL_MS_DEFAULT);
    pthread_mutex_init(&session->mutex, NULL);
    cond_init(&session->changed);
    TAILQ_INIT(&session->requests);
    STAILQ_INIT(&session->answers);
    LIST_INIT(&session->queues);
    status = zk_url_read(&session->url, urls[0]);
    session->proof.tick_ns = session->url.tick_ms * NS_PER_MS;
    if (status == DLOCK_OK)
        client->engine_state = session;
    else
        free_session(session);
    return status;
}

static void stop(struct dlock_client *client)
{
    session_stop(session_of(client));
}

static void close_session(struct dlock_client *client)
{
    struct session *session = session_of(client);
    struct queue *queue;
    struct request *request;
    struct place *place;
    while ((request = TAILQ_FIRST(&session->requests)) != NULL) {
        TAILQ_REMOVE(&session->requests, request, of_session);
        free(request);
    }
    while ((queue = LIST_FIRST(&session->queues)) != NULL) {
        while ((place = LIST_FIRST(&queue->places)) != NULL)
            place_free(place);
        LIST_REMOVE(queue, of_session);
        free(queue);
    }
    free_session(session);
    client->engine_state = NULL;
}

static void stats(const struct dlock_client *client, struct dlock_stats *stats)
{
    struct session *session = session_of(client);
    pthread_mutex_lock(&session->mutex);
    stats->commands = session->commands;
    stats->connects = session->connects;
    pthread_mutex_unlock(&session->mutex);
}

/* Nobody need hold back: a request waits for the connection itself. */
static int64_t pause_ms(struct dlock_client *client)
{
    (void)client;
    return 0;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

static dlock_status check_lock(const struct dlock_client *client, const struct rung_ops *ops,
                               const char *name)
{
    (void)client, (void)name;
    if (ops->engine == &engine_zookeeper)
        return DLOCK_OK;
    return fail(DLOCK_INVALID, "rung '%s' works with %s, and the client's servers are ZooKeeper",
                ops->name, ops->engine != NULL ? ops->engine->name : "Redis");
}

/* A node's name from a lock's: what a path may not have is written as %2F. */
static void write_path(char *path, const char *root, const char *name)
{
    char *to = path + sprintf(path, "%s" LOCKS, root);
    for (const unsigned char *from = (const unsigned char *)name; *from != '\0'; from++)
        to +=
            sprintf(to, isalnum(*from) || strchr(":{}-_", *from) != NULL ? "%c" : "%%%02X", *from);
}

static bool open_lock(struct dlock *lock)
{
    struct session *session = session_of(lock->client);
    struct queue *queue = calloc(1, sizeof *queue + strlen(session->url.root) + sizeof LOCKS +
                                        3 * strlen(lock->name));
    if (queue == NULL)
        return false;
    queue->session = session;
    queue->lock = lock;
    LIST_INIT(&queue->places);
    write_path(queue->path, session->url.root, lock->name);
    lock->engine_state = queue;
    pthread_mutex_lock(&session->mutex);
    LIST_INSERT_HEAD(&session->queues, queue, of_session);
    session->open_locks++;
    session_look(session);
    pthread_mutex_unlock(&session->mutex);
    return true;
}

/* The queue stays until its last node is gone: a hold may have been abandoned. */
static void close_lock(struct dlock *lock)
{
    struct session *session = session_of(lock->client);
    struct queue *queue = lock->engine_state;
    pthread_mutex_lock(&session->mutex);
    queue->lock = NULL;
    session->open_locks--;
    session_look(session);
    pthread_mutex_unlock(&session->mutex);
}

static unsigned abilities(const struct rung_ops *ops)
{
    (void)ops;
    return ABLE_TO_ASK_AGAIN | ABLE_TO_GIVE_UP;
}

/* ---- Exchanges ------------------------------------------------------------------------------- */

/* There may be some; the exchange refuses them. */
static bool begin_batch(struct dlock_batch *batch)
{
    (void)batch;
    return true;
}

static bool shares(const struct exchange *exchange, const struct exchange *other)
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
        refuse(exchange, fail(DLOCK_UNSUPPORTED, "want.reads and the batch of a release are "
                                                 "commands of Redis; with ZooKeeper leave them "
                                                 "NULL"));
        return;
    }
    pthread_mutex_lock(&session->mutex);
    struct request *request =
        session_start(session)
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

static void exchange(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    (void)client;
    for (size_t i = 0; i < count; i++)
        begin(all[i]);
}

/* ---- Waiters --------------------------------------------------------------------------------- */

/* The attempt has set the watch. */
static bool listen_to(struct dlock *lock, const struct busy *busy, int64_t limit_ns, int cancel_fd)
{
    (void)busy, (void)limit_ns, (void)cancel_fd;
    lock->woken_by = WAIT_CHANNEL;
    return true;
}

static void forget(struct dlock *lock)
{
    (void)lock;
}

static void tend(struct dlock_client *client)
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
        session_start(session) ? request_new(lock->engine_state, what, owner) : NULL;
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

static dlock_status extend(struct dlock_hold *hold, int64_t ends_ns, int64_t *sent_ns,
                           int64_t *ttl_ms)
{
    struct call call = {.over = false};
    dlock_status status = ask(hold->lock, EXTEND, hold->owner, ends_ns, -1, &call);
    *sent_ns = call.counts_ns;
    *ttl_ms = renewal_ms(hold, call.counts_ns);
    return status;
}

static dlock_status inspect(struct dlock *lock, int64_t ends_ns, int cancel_fd, struct look *look)
{
    struct call call = {.look = look};
    return ask(lock, LOOK, "", ends_ns, cancel_fd, &call);
}

static dlock_status break_lock(struct dlock *lock, int64_t ends_ns, struct look *look)
{
    struct call call = {.look = look};
    return ask(lock, BREAK, "", ends_ns, -1, &call);
}

static dlock_status check_beside(struct dlock *lock, int64_t ends_ns, int cancel_fd)
{
    (void)lock, (void)ends_ns, (void)cancel_fd;
    return DLOCK_OK;
}

/* ---- The table ------------------------------------------------------------------------------- */

const struct dlock_engine engine_zookeeper = {
    .version = DLOCK_VERSION,
    .name = "ZooKeeper",
    .rung = &rung_zookeeper,
    .fallback_url = "zk://127.0.0.1:2181",
    .answers_later = true,
    .open = open_session,
    .stop = stop,
    .close = close_session,
    .stats = stats,
    .check_lock = check_lock,
    .open_lock = open_lock,
    .close_lock = close_lock,
    .abilities = abilities,
    .begin_batch = begin_batch,
    .shares = shares,
    .exchange = exchange,
    .pause_ms = pause_ms,
    .listen = listen_to,
    .forget = forget,
    .tend = tend,
    .extend = extend,
    .inspect = inspect,
    .break_lock = break_lock,
    .check_beside = check_beside,
};

const struct rung_ops rung_zookeeper = {
    .name = "zookeeper",
    .engine = &engine_zookeeper,
    .traits = TRAIT_EXPIRES | TRAIT_TOKEN | TRAIT_REENTRANT,
    .contend = CONTEND_EACH,
};

const struct dlock_engine *dlock_zookeeper(void)
{
    return &engine_zookeeper;
}

clientid_t zookeeper_session(struct dlock_client *client)
{
    struct session *session = session_of(client);
    pthread_mutex_lock(&session->mutex);
    clientid_t id = {0};
    if (session->handle != NULL)
        id = *zoo_client_id(session->handle);
    pthread_mutex_unlock(&session->mutex);
    return id;
}
