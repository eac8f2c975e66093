/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients, locks and cancels.
 */
#include "client.h"
#include "ladder.h"
#include "leftover.h"
#include "structs.h"

#include <errno.h>
#include <poll.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define TTL_MS 30000

/* ---- Forks ----------------------------------------------------------------------- */

static _Atomic int forks;
static pthread_once_t watch_forks_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

int fork_generation(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

dlock_status check_fork(const struct dlock_client *client)
{
    if (client->fork_generation == fork_generation())
        return DLOCK_OK;
    return fail(DLOCK_FORKED, "this client belongs to the parent process; open one in the child");
}

const char *dlock_version(void)
{
    return DLOCK_VERSION;
}

/* ---- Client ---------------------------------------------------------------------------------- */

/* Takes the default for 0 and checks the range. */
static dlock_status set_number(int64_t *value, const char *name, int64_t fallback, int64_t most,
                               int64_t least)
{
    if (*value == 0)
        *value = fallback;
    if (*value >= least && *value <= most)
        return DLOCK_OK;
    return fail(DLOCK_INVALID, "%s is %lld; it must be %lld to %lld, or 0 for %lld", name,
                (long long)*value, (long long)least, (long long)most, (long long)fallback);
}

static dlock_status set_count(size_t *value, const char *name, size_t fallback, size_t most)
{
    if (*value == 0)
        *value = fallback;
    if (*value <= most)
        return DLOCK_OK;
    return fail(DLOCK_INVALID, "%s is %zu; it must be 1 to %zu, or 0 for %zu", name, *value, most,
                fallback);
}

static dlock_status check_options(struct dlock_options *options)
{
    dlock_status status;
    if ((status = set_number(&options->connect_timeout_ms, "connect_timeout_ms", 1000, 60000,
                             1)) != DLOCK_OK ||
        (status = set_number(&options->command_timeout_ms, "command_timeout_ms", 1000, 60000,
                             1)) != DLOCK_OK ||
        (options->ttl_ms != 0 && /* the default is the rung's */
         (status = set_number(&options->ttl_ms, "ttl_ms", TTL_MS, TTL_MS_MOST,
                             TTL_MS_LEAST)) != DLOCK_OK) ||
        (status = set_number(&options->retry_ms, "retry_ms", 20, 60000, 1)) != DLOCK_OK ||
        (status = set_count(&options->connections_max, "connections_max", 64, 10000)) != DLOCK_OK ||
        (status = set_count(&options->contenders, "contenders", 16, 10000)) != DLOCK_OK ||
        (status = set_count(&options->waiters_max, "waiters_max", 100000, 1000000)) != DLOCK_OK ||
        (status = set_count(&options->handoff_max, "handoff_max", 64, 1000)) != DLOCK_OK ||
        (status = set_number(&options->handoff_ms, "handoff_ms", 10, 60000, 1)) != DLOCK_OK ||
        (status = set_number(&options->grant_ms, "grant_ms", 200, 60000, 10)) != DLOCK_OK)
        return status;
    if (options->server_count > SERVERS_MAX)
        return fail(DLOCK_INVALID, "%zu servers; at most %d", options->server_count, SERVERS_MAX);
    if (options->server_count > 0 && options->servers == NULL)
        return fail(DLOCK_INVALID, "server_count is %zu, but servers is NULL",
                    options->server_count);
    if (options->server_count == 0 && options->servers != NULL)
        return fail(DLOCK_INVALID, "server_count is 0, but servers is given; set server_count to "
                                   "the number of URLs in it, or servers to NULL for the default");
    return DLOCK_OK;
}

/* A version 4 UUID, RFC 9562. */
static dlock_status make_id(char id[37])
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != sizeof b)
        return fail(DLOCK_NO_MEMORY, "the system gives no random bytes");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    for (int i = 0, at = 0; i < 16; i++)
        at += snprintf(id + at, 37 - (size_t)at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x"
                                                                                      : "%02x",
                       b[i]);
    return DLOCK_OK;
}

static void client_free(struct dlock_client *client)
{
    completions_free(&client->completions);
    if (client->engine_state != NULL)
        client->engine->close(client);
    pthread_cond_destroy(&client->leftover_over);
    pthread_cond_destroy(&client->exchange_over);
    pthread_mutex_destroy(&client->mutex);
    free(client);
}

static dlock_status open_engine(struct dlock_client *client)
{
    struct dlock_options *options = &client->options;
    const char *const *urls = options->servers;
    size_t count = options->server_count;
    if (count == 0) {
        urls = &engine_redis.fallback_url;
        count = 1;
    }
    options->servers = NULL;
    client->engine = engine_for(urls, count);
    return client->engine != NULL ? client->engine->open(client, urls, count) : DLOCK_INVALID;
}

dlock_status dlock_client_open(const struct dlock_options *options, dlock_client **client)
{
    if (!GIVEN(client))
        return DLOCK_INVALID;
    *client = NULL;
    pthread_once(&watch_forks_once, watch_forks);
    struct dlock_client *made = calloc(1, sizeof *made);
    if (made == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    dlock_status status = struct_take(&made->options, sizeof made->options, options, "options");
    if (status == DLOCK_OK)
        status = check_options(&made->options);
    if (status != DLOCK_OK) {
        free(made);
        return status;
    }
    made->now_ns = boot_ns;
    made->closes_ns = INT64_MAX;
    made->fork_generation = fork_generation();
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->leftover_over, NULL);
    pthread_cond_init(&made->exchange_over, NULL);
    status = loop_init(&made->loop, made);
    if (!completions_init(&made->completions, made->options.own_loop))
        status = fail(DLOCK_NO_MEMORY, "no memory or descriptor is left");
    if (status == DLOCK_OK)
        status = open_engine(made);
    if (status == DLOCK_OK)
        status = make_id(made->id);
    if (status == DLOCK_OK)
        status = timekeeper_start(&made->timekeeper, made);
    if (status != DLOCK_OK) {
        loop_stop(&made->loop);
        client_free(made);
        return status;
    }
    *client = made;
    return DLOCK_OK;
}

const char *dlock_client_id(const dlock_client *client)
{
    return client != NULL ? client->id : "";
}

void dlock_client_stats(const dlock_client *client, struct dlock_stats *stats)
{
    if (client == NULL || stats == NULL)
        return;
    struct dlock_stats all = {
        .acquired = client->acquired,
        .attempts = client->attempts,
        .released = client->released,
        .renewals = client->renewals,
        .renewals_failed = client->renewals_failed,
        .lost = client->lost,
        .unknown = client->unknown,
        .abandoned = client->abandoned,
        .scripts_loaded = client->scripts_loaded,
        .contended = client->contended,
        .passed_on = client->passed_on,
        .grants_expired = client->grants_expired,
        .unheard = client->unheard,
    };
    client->engine->stats(client, &all);
    struct_give(stats, &all, sizeof all);
}

/* ---- Lock ------------------------------------------------------------------------------------ */

static int compare_locks(const void *a, const void *b)
{
    const struct dlock *one = a;
    const struct dlock *other = b;
    int rungs = strcmp(one->ops->name, other->ops->name);
    return rungs != 0 ? rungs : strcmp(one->name, other->name);
}

static void lock_free(struct dlock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
    pthread_cond_destroy(&lock->answered);
    if (lock->engine_state != NULL)
        lock->client->engine->close_lock(lock);
    free(lock->state);
    free(lock);
}

static dlock_status check_name(const char *name)
{
    size_t size = strlen(name);
    if (size == 0 || size > DLOCK_NAME_MAX)
        return fail(DLOCK_INVALID, "a lock's name has 1 to %d bytes; this one has %zu",
                    DLOCK_NAME_MAX, size);
    return DLOCK_OK;
}

static struct dlock *lock_new(dlock_client *client, const struct rung_ops *ops, const char *name)
{
    struct dlock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return NULL;
    lock->client = client;
    lock->ops = ops;
    lock->rung = ladder_describe(ops);
    lock->abilities = client->engine->abilities(ops);
    strcpy(lock->name, name);
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->answered, NULL);
    lock->state = calloc(1, ops->state_size + 1);
    lock->ttl_ms = client->options.ttl_ms != 0 ? client->options.ttl_ms
                   : ops->ttl_ms != 0          ? ops->ttl_ms
                                               : TTL_MS;
    TAILQ_INIT(&lock->turns);
    TAILQ_INIT(&lock->line.waits);
    if (lock->state != NULL && client->engine->open_lock(lock))
        return lock;
    lock_free(lock);
    return NULL;
}

dlock_status dlock_open_ops(dlock_client *client, const struct rung_ops *ops, const char *name,
                            dlock **lock)
{
    *lock = NULL;
    dlock_status status = check_fork(client);
    if (status != DLOCK_OK)
        return status;
    status = check_name(name);
    if (status == DLOCK_OK)
        status = client->engine->check_lock(client, ops, name);
    if (status != DLOCK_OK)
        return status;
    struct dlock *made = lock_new(client, ops, name);
    if (made == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&client->mutex);
    struct dlock **node = tsearch(made, &client->locks, compare_locks);
    struct dlock *found = node != NULL ? *node : NULL; /* the node itself may go with the mutex */
    if (found != NULL)
        found->opened++;
    pthread_mutex_unlock(&client->mutex);
    if (found != made)
        lock_free(made);
    if (found == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    *lock = found;
    return DLOCK_OK;
}

dlock_status dlock_open(dlock_client *client, const char *rung, const char *name, dlock **lock)
{
    if (!GIVEN(lock))
        return DLOCK_INVALID;
    *lock = NULL;
    if (!GIVEN(client) || !GIVEN(name))
        return DLOCK_INVALID;
    const struct rung_ops *ops = ladder_ops(rung);
    if (ops == NULL)
        return fail(DLOCK_INVALID, "there is no rung '%.64s'; there are %s", rung, ladder_names());
    const struct dlock_rung *known = dlock_rung_find(rung);
    if (known->flawed && !client->options.allow_flawed)
        return fail(DLOCK_FLAWED, "'%s' is flawed (%s); set allow_flawed to use it all the same",
                    known->name, known->flaw);
    return dlock_open_ops(client, ops, name, lock);
}

void lock_keep_open(struct dlock *lock)
{
    pthread_mutex_lock(&lock->client->mutex);
    lock->opened++;
    pthread_mutex_unlock(&lock->client->mutex);
}

const char *rung_client_id(const struct dlock_hold *hold)
{
    return hold->lock->client->id;
}

int64_t rung_grant_ms(const struct dlock_hold *hold)
{
    return hold->lock->client->options.grant_ms;
}

void rung_count_expired_grant(const struct dlock_hold *hold)
{
    add_one(&hold->lock->client->grants_expired);
}

void rung_count_renewal(struct dlock *lock)
{
    add_one(&lock->client->renewals);
}

const char *dlock_name(const dlock *lock)
{
    return lock != NULL ? lock->name : "";
}

const struct dlock_rung *dlock_rung_of(const dlock *lock)
{
    return lock != NULL ? &lock->rung : NULL;
}

/* ---- Closing --------------------------------------------------------------------------------- */

static int64_t line_closed_until_ns(struct dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    int64_t until_ns = lock->line.closed_until_ns;
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return until_ns;
}

/* The client's mutex is held. Whether nobody has it open any more, and nobody finds it. */
static bool let_go(struct dlock *lock)
{
    if (--lock->opened > 0)
        return false;
    tdelete(lock, &lock->client->locks, compare_locks);
    return true;
}

/* It is in the client's tree no more. */
static void lock_end(struct dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    lock->client->engine->forget(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    if (lock->ops->closed != NULL)
        lock->ops->closed(lock->state);
    lock_free(lock);
}

/* One that could not linger stays: who opens it before it has expired shall know. */
void dlock_close(dlock *lock)
{
    if (lock == NULL || check_fork(lock->client) != DLOCK_OK)
        return;
    pthread_mutex_t *mutex = &lock->client->mutex;
    pthread_mutex_lock(mutex);
    int64_t closed_until_ns = line_closed_until_ns(lock); /* in one step: a hold may be abandoned */
    bool lingers = lock->opened == 1 && closed_until_ns > mono_ns();
    bool last = !lingers && let_go(lock);
    pthread_mutex_unlock(mutex);
    if (lingers)
        leftover_linger(lock, closed_until_ns);
    else if (last)
        lock_end(lock);
}

static void locks_end(struct dlock_client *client)
{
    while (client->locks != NULL) {
        struct dlock *lock = *(struct dlock **)client->locks; /* of the tree's root */
        tdelete(lock, &client->locks, compare_locks);
        lock_end(lock);
    }
}

void dlock_client_close(dlock_client *client)
{
    if (client == NULL || check_fork(client) != DLOCK_OK)
        return;
    leftovers_end(client);
    locks_end(client);
    loop_stop(&client->loop); /* first: what it notices the timekeeper tells */
    timekeeper_stop(&client->timekeeper);
    client_free(client);
}

/* ---- Cancel ---------------------------------------------------------------------------------- */

dlock_cancel *dlock_cancel_new(void)
{
    struct dlock_cancel *cancel = malloc(sizeof *cancel);
    if (cancel == NULL) {
        fail(DLOCK_NO_MEMORY, "out of memory");
        return NULL;
    }
    cancel->process = getpid();
    cancel->thrown_ns = INT64_MAX;
    cancel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cancel->fd >= 0)
        return cancel;
    fail(DLOCK_NO_MEMORY, "a cancel needs a descriptor: %s", strerror(errno));
    free(cancel);
    return NULL;
}

/* Not by fork_generation(): in a child a signal may come before that counts the fork. */
bool cancel_is_inherited(const dlock_cancel *cancel)
{
    return cancel->process != getpid();
}

void dlock_cancel_now(dlock_cancel *cancel)
{
    uint64_t one = 1;
    int64_t never = INT64_MAX;
    if (cancel == NULL || cancel_is_inherited(cancel))
        return;
    atomic_compare_exchange_strong(&cancel->thrown_ns, &never, mono_ns());
    (void)!write(cancel->fd, &one, sizeof one);
}

bool cancel_thrown(const dlock_cancel *cancel)
{
    if (cancel == NULL)
        return false;
    struct pollfd thrown = {.fd = cancel->fd, .events = POLLIN};
    return poll(&thrown, 1, 0) > 0;
}

int64_t cancel_thrown_ns(const dlock_cancel *cancel)
{
    return cancel != NULL ? cancel->thrown_ns : INT64_MAX;
}

void dlock_cancel_free(dlock_cancel *cancel)
{
    if (cancel == NULL)
        return;
    close(cancel->fd);
    free(cancel);
}
