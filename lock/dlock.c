/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients, locks, holds, and the acquire loop. No Redis command in here: those are the rungs'.
 */
#include "batch.h"
#include "client.h"
#include "ladder.h"
#include "wait.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- Forks and threads ----------------------------------------------------------------------- */

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

/* The calling thread's number: counted up, never used again. */
static uint64_t thread_number(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t mine;
    if (mine == 0)
        mine = atomic_fetch_add(&last, 1) + 1;
    return mine;
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

static dlock_status check_options(struct dlock_options *options)
{
    int64_t connections = options->connections_max > 1000000
                              ? 1000000
                              : (int64_t)options->connections_max;
    dlock_status status;
    if ((status = set_number(&options->connect_timeout_ms, "connect_timeout_ms", 1000, 60000,
                             1)) != DLOCK_OK ||
        (status = set_number(&options->command_timeout_ms, "command_timeout_ms", 1000, 60000,
                             1)) != DLOCK_OK ||
        (status = set_number(&options->ttl_ms, "ttl_ms", 30000, 86400000, 100)) != DLOCK_OK ||
        (status = set_number(&options->retry_ms, "retry_ms", 20, 60000, 1)) != DLOCK_OK ||
        (status = set_number(&connections, "connections_max", 64, 10000, 1)) != DLOCK_OK)
        return status;
    options->connections_max = (size_t)connections;
    if (options->server_count > SERVERS_MAX)
        return fail(DLOCK_INVALID, "%zu servers; at most %d", options->server_count, SERVERS_MAX);
    if (options->server_count > 0 && options->servers == NULL)
        return fail(DLOCK_INVALID, "server_count is %zu, but servers is NULL",
                    options->server_count);
    return DLOCK_OK;
}

static dlock_status read_servers(struct dlock_client *client)
{
    static const char *const fallback[] = {"redis://127.0.0.1:6379/0"};
    struct dlock_options *options = &client->options;
    const char *const *urls = options->server_count > 0 ? options->servers : fallback;
    size_t count = options->server_count > 0 ? options->server_count : 1;
    client->config.servers = calloc(count, sizeof *client->config.servers);
    if (client->config.servers == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        struct server *server = &client->config.servers[i];
        dlock_status status = url_parse(urls[i], &server->url);
        if (status != DLOCK_OK)
            return status;
        pthread_mutex_init(&server->mutex, NULL);
        client->config.server_count++;
    }
    options->servers = NULL;
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
    pool_destroy(&client->pool);
    for (size_t i = 0; i < client->config.server_count; i++) {
        url_free(&client->config.servers[i].url);
        pthread_mutex_destroy(&client->config.servers[i].mutex);
    }
    free(client->config.servers);
    pthread_mutex_destroy(&client->mutex);
    free(client);
}

dlock_status dlock_client_open(const struct dlock_options *options, dlock_client **client)
{
    *client = NULL;
    if (options != NULL && options->size == 0)
        return fail(DLOCK_INVALID, "options.size is 0; set it to sizeof(struct dlock_options)");
    pthread_once(&watch_forks_once, watch_forks);
    struct dlock_client *made = calloc(1, sizeof *made);
    if (made == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    if (options != NULL)
        memcpy(&made->options, options,
               options->size < sizeof made->options ? options->size : sizeof made->options);
    dlock_status status = check_options(&made->options);
    if (status != DLOCK_OK) {
        free(made);
        return status;
    }
    made->now_ns = boot_ns;
    made->fork_generation = fork_generation();
    pthread_mutex_init(&made->mutex, NULL);
    made->config.connect_timeout_ms = made->options.connect_timeout_ms;
    made->config.command_timeout_ms = made->options.command_timeout_ms;
    made->config.on_trace = made->options.on_trace;
    made->config.on_trace_arg = made->options.on_trace_arg;
    if (!pool_init(&made->pool, &made->config, made->options.connections_max))
        status = fail(DLOCK_NO_MEMORY, "out of memory");
    if (status == DLOCK_OK)
        status = read_servers(made);
    if (status == DLOCK_OK)
        status = make_id(made->id);
    if (status == DLOCK_OK)
        status = timekeeper_start(&made->timekeeper, made);
    if (status != DLOCK_OK) {
        client_free(made);
        return status;
    }
    *client = made;
    return DLOCK_OK;
}

void dlock_client_close(dlock_client *client)
{
    if (client == NULL || check_fork(client) != DLOCK_OK)
        return;
    timekeeper_stop(&client->timekeeper);
    client_free(client);
}

const char *dlock_client_id(const dlock_client *client)
{
    return client->id;
}

void dlock_client_stats(const dlock_client *client, struct dlock_stats *stats)
{
    struct dlock_stats all = {
        .size = stats->size,
        .acquired = client->acquired,
        .attempts = client->attempts,
        .released = client->released,
        .renewals = client->renewals,
        .renewals_failed = client->renewals_failed,
        .lost = client->lost,
        .unknown = client->unknown,
        .commands = client->config.commands,
        .connects = client->config.connects,
        .scripts_loaded = client->scripts_loaded,
        .contended = client->contended,
    };
    memcpy(stats, &all, stats->size < sizeof all ? stats->size : sizeof all);
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
    if (lock->released_fd >= 0)
        close(lock->released_fd);
    pthread_mutex_destroy(&lock->mutex);
    free(lock->state);
    free(lock);
}

static struct dlock *lock_new(dlock_client *client, const struct rung_ops *ops, const char *name)
{
    struct dlock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return NULL;
    lock->client = client;
    lock->ops = ops;
    lock->rung = ladder_describe(ops);
    strcpy(lock->name, name);
    pthread_mutex_init(&lock->mutex, NULL);
    lock->state = calloc(1, ops->state_size + 1);
    lock->released_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (lock->state != NULL && lock->released_fd >= 0)
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
    size_t size = name != NULL ? strlen(name) : 0;
    if (size == 0 || size > DLOCK_NAME_MAX)
        return fail(DLOCK_INVALID, "a lock's name has 1 to %d bytes; this one has %zu",
                    DLOCK_NAME_MAX, size);
    if (client->config.server_count > 1 && (ops->traits & (TRAIT_QUORUM | TRAIT_SERVERLESS)) == 0)
        return fail(DLOCK_INVALID, "'%s' works with one server; the client has %zu", ops->name,
                    client->config.server_count);
    struct dlock *made = lock_new(client, ops, name);
    if (made == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory or descriptors");
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
    *lock = NULL;
    const struct rung_ops *ops = ladder_ops(rung);
    if (ops == NULL)
        return fail(DLOCK_INVALID, "there is no rung '%.64s'; there are %s", rung, ladder_names());
    const struct dlock_rung *known = dlock_rung_find(rung);
    if (known->flawed && !client->options.allow_flawed)
        return fail(DLOCK_FLAWED, "'%s' is flawed (%s); set allow_flawed to use it all the same",
                    known->name, known->flaw);
    return dlock_open_ops(client, ops, name, lock);
}

void dlock_close(dlock *lock)
{
    if (lock == NULL || check_fork(lock->client) != DLOCK_OK)
        return;
    pthread_mutex_lock(&lock->client->mutex);
    bool last = --lock->opened == 0;
    if (last)
        tdelete(lock, &lock->client->locks, compare_locks);
    pthread_mutex_unlock(&lock->client->mutex);
    if (!last)
        return;
    if (lock->ops->closed != NULL)
        lock->ops->closed(lock->state);
    lock_free(lock);
}

const char *dlock_name(const dlock *lock)
{
    return lock->name;
}

const struct dlock_rung *dlock_rung_of(const dlock *lock)
{
    return &lock->rung;
}

/* ---- One slot of a rung ---------------------------------------------------------------------- */

dlock_status env_begin(struct dlock *lock, int64_t limit_ns, int cancel_fd, struct rung_env *env)
{
    struct dlock_client *client = lock->client;
    int64_t request_ms = client->options.connect_timeout_ms + client->options.command_timeout_ms;
    *env = (struct rung_env){
        .deadline_ns = INT64_MAX, /* each request has command_timeout_ms */
        .wake_fd = -1,            /* a request that was sent is not cut off: it may have worked */
        .now_ns = client->now_ns,
        .rung = lock->ops->name,
        .on_point = client->options.on_point,
        .on_point_arg = client->options.on_point_arg,
        .scripts_loaded = &client->scripts_loaded,
    };
    if ((lock->ops->traits & TRAIT_SERVERLESS) != 0)
        return DLOCK_OK;
    int64_t pool_ns = mono_deadline_ns(request_ms);
    dlock_status status =
        pool_take(&client->pool, pool_ns < limit_ns ? pool_ns : limit_ns, &env->redis);
    return status == DLOCK_OK ? redis_ready(env->redis, limit_ns, cancel_fd) : status;
}

void env_end(struct dlock *lock, struct rung_env *env)
{
    if (env->redis != NULL)
        pool_give(&lock->client->pool, env->redis);
    env->redis = NULL;
}

/* A serverless rung has no write to ride on: the batch goes alone. Its replies say what came. */
static void send_alone(struct dlock *lock, struct dlock_batch *batch)
{
    struct dlock_client *client = lock->client;
    struct redis *redis = NULL;
    int64_t request_ms = client->options.connect_timeout_ms + client->options.command_timeout_ms;
    if (batch == NULL ||
        pool_take(&client->pool, mono_deadline_ns(request_ms), &redis) != DLOCK_OK)
        return;
    if (redis_ready(redis, INT64_MAX, -1) == DLOCK_OK) {
        redis_begin(redis);
        env_ride_append(redis, batch);
        redis_gather(redis, INT64_MAX, -1);
        env_ride_take(redis, batch, 0);
    }
    pool_give(&client->pool, redis);
}

/* ---- Acquire --------------------------------------------------------------------------------- */

/* An acquire under way: steps over a struct, so that a thread may drive it or a loop. */
struct acquiring {
    struct dlock *lock;
    struct dlock_want want;
    struct dlock_hold *hold;
    struct busy busy;
    int cancel_fd;
    int64_t limit_ns; /* CLOCK_MONOTONIC: no try begins later; INT64_MAX where it is to try once */
    int64_t sent_ns;  /* CLOCK_BOOTTIME, before the try that may have worked */
    bool unresolved;  /* a try's reply was lost, and the rung can find out what became of it */
    bool transient;   /* refused for a while only */
    bool late;        /* given, but nothing of its validity was left */
    bool tried;       /* at least one try may have left something behind: BUSY or UNKNOWN */
    bool contended;   /* at least one try found the lock busy: counted */
};

/* Holds whose time is over do not count: the key that counted them is gone. */
static uint64_t depth_of(struct dlock *lock, const char *owner)
{
    uint64_t depth = 1;
    struct dlock_hold *hold;
    pthread_mutex_lock(&lock->mutex);
    LIST_FOREACH(hold, &lock->holds, of_lock)
        depth += strcmp(hold->owner, owner) == 0 && dlock_valid(hold);
    pthread_mutex_unlock(&lock->mutex);
    return depth;
}

static struct dlock_hold *hold_new(struct dlock *lock, const struct dlock_want *want)
{
    struct dlock_client *client = lock->client;
    struct dlock_hold *hold = calloc(1, sizeof *hold);
    if (hold == NULL)
        return NULL;
    hold->lock = lock;
    hold->key = lock->name;
    hold->lock_state = lock->state;
    hold->user = want->user;
    hold->mode = want->mode;
    hold->fork_generation = client->fork_generation;
    hold->ttl_ms = client->options.ttl_ms;
    hold->acquisition = atomic_fetch_add(&client->acquisitions, 1) + 1;
    hold->valid_until_ns = INT64_MAX;
    snprintf(hold->ttl, sizeof hold->ttl, "%lld", (long long)hold->ttl_ms);
    snprintf(hold->owner, sizeof hold->owner, want->owner_id != 0 ? "%s:x%llu" : "%s:%llu",
             client->id,
             (unsigned long long)(want->owner_id != 0 ? want->owner_id : thread_number()));
    snprintf(hold->id, sizeof hold->id, "%s#%llu", hold->owner,
             (unsigned long long)hold->acquisition);
    return hold;
}

static dlock_status run_try(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    struct rung_env env;
    add_one(&lock->client->attempts);
    a->busy = (struct busy){0};
    if ((lock->ops->traits & TRAIT_REENTRANT) != 0)
        a->hold->depth = depth_of(lock, a->hold->owner);
    a->transient = a->late = false;
    dlock_status status = env_begin(lock, a->limit_ns, a->cancel_fd, &env);
    env.reads = a->want.reads;
    a->sent_ns = env.now_ns();
    if (status == DLOCK_OK)
        status = lock->ops->try_acquire(&env, a->hold, &a->busy);
    if (status == DLOCK_BUSY && !a->contended)
        add_one(&lock->client->contended);
    a->contended |= status == DLOCK_BUSY;
    a->transient = env.transient;
    if (status == DLOCK_OK && env.redis == NULL)
        send_alone(lock, a->want.reads);
    env_end(lock, &env);
    return status;
}

/* Belongs to the try that it asks about: neither the limit nor a cancel cuts it off. */
static dlock_status run_resolve(struct acquiring *a)
{
    struct rung_env env;
    dlock_status status = env_begin(a->lock, INT64_MAX, -1, &env);
    if (status == DLOCK_OK)
        status = a->lock->ops->resolve(&env, a->hold);
    env_end(a->lock, &env);
    return status;
}

/* One try, or one look at what became of the try before. */
static dlock_status step(struct acquiring *a)
{
    dlock_status status = a->unresolved ? DLOCK_UNKNOWN : run_try(a);
    if (status != DLOCK_UNKNOWN || a->lock->ops->resolve == NULL)
        return status;
    status = run_resolve(a);
    a->unresolved = status != DLOCK_OK && status != DLOCK_BUSY;
    return a->unresolved ? DLOCK_UNKNOWN : status;
}

/* The rung runs also where no server is there, for what it keeps in the process: its calls answer
 * UNREACHABLE then. */
static dlock_status run_release(struct dlock_hold *hold, struct dlock_batch *last)
{
    struct dlock *lock = hold->lock;
    struct rung_env env;
    dlock_status status = env_begin(lock, INT64_MAX, -1, &env);
    bool serverless = (lock->ops->traits & TRAIT_SERVERLESS) != 0;
    if (serverless)
        send_alone(lock, last);
    env.last = last;
    if (serverless || env.redis != NULL)
        status = lock->ops->release(&env, hold);
    env_end(lock, &env);
    return status;
}

/* The rung gave the lock. BUSY when that came so late that nothing of its validity is left. */
static dlock_status granted(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    struct dlock_hold *hold = a->hold;
    if (lock->rung.expires) {
        hold->valid_until_ns = validity_end_ns(a->sent_ns, hold->ttl_ms);
        if (!dlock_valid(hold)) {
            a->late = true;
            run_release(hold, NULL);
            return fail(DLOCK_BUSY, "the answer took longer than the time to live");
        }
    }
    pthread_mutex_lock(&lock->mutex);
    LIST_INSERT_HEAD(&lock->holds, hold, of_lock);
    pthread_mutex_unlock(&lock->mutex);
    if (lock->rung.expires)
        timekeeper_watch(&lock->client->timekeeper, hold, a->sent_ns);
    add_one(&lock->client->acquired);
    return DLOCK_OK;
}

static bool worth_another_try(const struct acquiring *a, dlock_status status)
{
    switch (status) {
    case DLOCK_BUSY:
    case DLOCK_UNREACHABLE:
    case DLOCK_LIMIT:
        return true;
    case DLOCK_UNKNOWN:
        return a->unresolved;
    case DLOCK_REFUSED:
        return a->transient;
    default:
        return false;
    }
}

static dlock_status drive(struct acquiring *a)
{
    struct wait wait;
    dlock_status status = wait_begin(&wait, a->lock, &a->want);
    a->limit_ns = wait.deadline_ns != 0 ? wait.deadline_ns : INT64_MAX;
    while (status == DLOCK_OK) {
        status = step(a);
        if (status == DLOCK_OK)
            status = granted(a);
        a->tried |= status == DLOCK_BUSY || status == DLOCK_UNKNOWN;
        if (status == DLOCK_OK || !worth_another_try(a, status))
            break;
        dlock_status cause = status;
        char why[256];
        snprintf(why, sizeof why, "%s",
                 cause == DLOCK_BUSY && !a->late ? dlock_status_text(cause) : dlock_error());
        status = wait_again(&wait, &a->busy);
        if (status == DLOCK_BUSY)
            status = fail(cause, "'%s': %s", a->lock->name, why);
        else if (status == DLOCK_TIMED_OUT)
            status = fail(a->unresolved ? DLOCK_UNKNOWN : status, "'%s' was not had in %lld ms: %s",
                          a->lock->name, (long long)a->want.wait_ms, why);
        else if (status == DLOCK_CANCELLED && a->unresolved)
            status = fail(DLOCK_UNKNOWN, "'%s': cancelled before this was known: %s",
                          a->lock->name, why);
    }
    wait_end(&wait);
    return status;
}

static void give_up(struct acquiring *a)
{
    struct rung_env env;
    if (!a->tried || a->lock->ops->give_up == NULL)
        return;
    if (env_begin(a->lock, INT64_MAX, -1, &env) == DLOCK_OK)
        a->lock->ops->give_up(&env, a->hold);
    env_end(a->lock, &env);
}

dlock_status dlock_acquire(dlock *lock, const struct dlock_want *want, dlock_hold **hold)
{
    *hold = NULL;
    dlock_status status = check_fork(lock->client);
    if (status != DLOCK_OK)
        return status;
    if (want != NULL && want->size == 0)
        return fail(DLOCK_INVALID, "want.size is 0; set it to sizeof(struct dlock_want)");
    struct acquiring a = {.lock = lock};
    if (want != NULL)
        memcpy(&a.want, want, want->size < sizeof a.want ? want->size : sizeof a.want);
    if (a.want.mode != DLOCK_EXCLUSIVE &&
        (a.want.mode != DLOCK_SHARED || (lock->ops->traits & TRAIT_SHARED) == 0))
        return fail(DLOCK_UNSUPPORTED, "'%s' locks are not shared (want.mode is %d)",
                    lock->ops->name, (int)a.want.mode);
    if (a.want.reads != NULL)
        batch_forget(a.want.reads);
    a.cancel_fd = a.want.cancel != NULL ? a.want.cancel->fd : -1;
    a.hold = hold_new(lock, &a.want);
    if (a.hold == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    status = drive(&a);
    if (status == DLOCK_OK) {
        *hold = a.hold;
        return DLOCK_OK;
    }
    if (status == DLOCK_UNKNOWN)
        add_one(&lock->client->unknown);
    char why[256];
    snprintf(why, sizeof why, "%s", dlock_error());
    give_up(&a);
    free(a.hold);
    return fail(status, "%s", why);
}

/* ---- Release and questions ------------------------------------------------------------------- */

dlock_status dlock_release(dlock_hold *hold, dlock_batch *last)
{
    struct dlock *lock = hold->lock;
    struct dlock_client *client = lock->client;
    dlock_status status = check_fork(client);
    if (status != DLOCK_OK)
        return status;
    if (last != NULL)
        batch_forget(last);
    if (lock->rung.expires)
        timekeeper_forget(&client->timekeeper, hold);
    /* A flawed rung sends what it sends: that is its lesson. */
    if (!lock->rung.flawed && !dlock_valid(hold))
        status = fail(DLOCK_LOST, "'%s' was lost before its release", lock->name);
    else
        status = run_release(hold, last);
    pthread_mutex_lock(&lock->mutex);
    LIST_REMOVE(hold, of_lock);
    pthread_mutex_unlock(&lock->mutex);
    wait_wake_local(lock);
    if (status == DLOCK_OK)
        add_one(&client->released);
    else if (status == DLOCK_UNKNOWN)
        add_one(&client->unknown);
    free(hold);
    return status;
}

bool dlock_valid(const dlock_hold *hold)
{
    int64_t until_ns = atomic_load_explicit(&hold->valid_until_ns, memory_order_acquire);
    return hold->fork_generation == fork_generation() && hold->lock->client->now_ns() < until_ns;
}

int64_t dlock_remaining_ms(const dlock_hold *hold)
{
    int64_t until_ns = atomic_load_explicit(&hold->valid_until_ns, memory_order_acquire);
    if (hold->fork_generation != fork_generation())
        return 0;
    if (until_ns == INT64_MAX)
        return DLOCK_NEVER_EXPIRES;
    int64_t left_ns = until_ns - hold->lock->client->now_ns();
    return left_ns > 0 ? left_ns / NS_PER_MS : 0;
}

const char *dlock_owner(const dlock_hold *hold)
{
    return hold->owner;
}

uint64_t dlock_acquisition(const dlock_hold *hold)
{
    return hold->acquisition;
}

uint64_t dlock_token(const dlock_hold *hold)
{
    return hold->token;
}

/* ---- Cancel ---------------------------------------------------------------------------------- */

dlock_cancel *dlock_cancel_new(void)
{
    struct dlock_cancel *cancel = malloc(sizeof *cancel);
    if (cancel == NULL)
        return NULL;
    cancel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cancel->fd >= 0)
        return cancel;
    free(cancel);
    return NULL;
}

void dlock_cancel_now(dlock_cancel *cancel)
{
    uint64_t one = 1;
    (void)!write(cancel->fd, &one, sizeof one);
}

void dlock_cancel_free(dlock_cancel *cancel)
{
    if (cancel == NULL)
        return;
    close(cancel->fd);
    free(cancel);
}
