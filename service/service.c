/* SPDX-License-Identifier: Apache-2.0
 *
 * See service.h.
 */
#include "service.h"

#include "../lock/clock.h"
#include "conflict.h"
#include "handlers.h"
#include "lock_history.h"
#include "log.h"
#include "outage.h"
#include "shop_request.h"
#include "shop_routes.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_THREADS 2
#define WAIT_THREADS 1
#define QUEUE_THREADS 4
#define ASIDE_THREADS 2
#define SIDE_QUEUE 1024 /* the queue of each of these two pools */
#define LOCK_THREADS 2  /* the lock library's threads that make attempts for waiting sales */
#define LOCK_OTHERS 2   /* who ask a lock's server beside its threads: the timekeeper, the outage */
#define OTHER_DESCRIPTORS 64
#define ETCD_REQUESTS 64 /* connections of etcd's client beside those of watches: dlock_etcd.h */

static bool service_wrong(char error[SERVICE_ERROR_MAX], const char *text)
{
    snprintf(error, SERVICE_ERROR_MAX, "%s", text);
    return false;
}

/* ---- The state of a worker thread ------------------------------------------------------------ */

struct worker_state {
    struct service *service;
    struct sale_worker *worker;
};

static void *open_worker(struct service *service, struct stock *stock)
{
    struct sale_worker *worker = sale_worker_new(&service->env, stock);
    struct worker_state *state = worker != NULL ? calloc(1, sizeof *state) : NULL;
    if (state != NULL)
        *state = (struct worker_state){service, worker};
    else if (worker != NULL)
        sale_worker_free(worker);
    return state;
}

static void *open_sharing(void *arg)
{
    struct service *service = arg;
    return open_worker(service, stock_new_shared(service->env.stock_server));
}

/* /readyz and PUT /lock find out whether a connection can be made. */
static void *open_alone(void *arg)
{
    struct service *service = arg;
    return open_worker(service, stock_new(service->env.stock_server));
}

static void close_worker(void *arg)
{
    struct worker_state *state = arg;
    sale_worker_free(state->worker);
    free(state);
}

static void run_request(void *arg, struct request *request)
{
    struct worker_state *state = arg;
    bool answered = request->route->work(state->service, state->worker, request);
    sale_worker_rest(state->worker);
    if (answered)
        http_answer(request);
}

static void expire_request(void *arg, struct request *request)
{
    shop_routes_expire(arg, request);
    http_answer(request);
}

/* The threads for queues have ended: nobody waits for an answer. */
static void leave_request(void *arg, struct request *request)
{
    (void)arg;
    (void)request;
}

/* Its requests are no client's, so they wait as long as they must. There is at most one for each
 * item. */
static struct workers *start_queues(struct service *service)
{
    return workers_start(&(struct workers_options){.threads = QUEUE_THREADS,
                                                   .queue_max = SIZE_MAX,
                                                   .wait_ms = INT64_MAX / NS_PER_MS / 2,
                                                   .arg = service,
                                                   .open = open_sharing,
                                                   .close = close_worker,
                                                   .run = run_request,
                                                   .expire = leave_request});
}

static struct workers *start_workers(struct service *service, size_t threads, size_t queue_max,
                                     void *(*open)(void *arg))
{
    return workers_start(&(struct workers_options){.threads = threads,
                                                   .queue_max = queue_max,
                                                   .wait_ms = service->config.wait_ms,
                                                   .arg = service,
                                                   .open = open,
                                                   .close = close_worker,
                                                   .run = run_request,
                                                   .expire = expire_request});
}

/* ---- Start ----------------------------------------------------------------------------------- */

/* etcd's client also has a connection for each lock that is held or waited for. Each sale may be of
 * another item, and each check of the ensemble has a lock, too. */
static int64_t watches_max(const struct config *config)
{
    const bool has_etcd = config->engine_urls[ENGINE_ETCD] != NULL;
    return has_etcd ? config->connections + ADMIN_CONNECTIONS + ETCD_REQUESTS : 0;
}

static bool raise_descriptor_limit(const struct config *config, char error[SERVICE_ERROR_MAX])
{
    const int64_t per_thread = (int64_t)config->lock_url_count; /* a connection a server */
    const int64_t lock_threads =
        config->workers + QUEUE_THREADS + ASIDE_THREADS + LOCK_THREADS + LOCK_OTHERS;
    const int64_t needed = config->connections + ADMIN_CONNECTIONS + 2 * config->workers +
                           QUEUE_THREADS + per_thread * lock_threads + watches_max(config) +
                           OTHER_DESCRIPTORS;
    return process_raise_descriptors(
        needed, config->connections,
        watches_max(config) > 0 ? " with etcd, which may have a connection for each sale," : "",
        error);
}

void service_begin_members(const struct service *service, const struct setting *setting, char *text,
                           size_t size)
{
    const struct config *config = &service->config;
    char admit[ADMISSION_TEXT_MAX], segments[SEGMENTS_TEXT_MAX];
    admission_print(&setting->admission, admit);
    segments_print(&setting->segments, segments);
    snprintf(text, size,
             ",\"run\":\"%s\",\"rung\":\"%s\",\"write\":\"%s\",\"pid\":%ld,\"version\":\"%s\","
             "\"ttl_ms\":%" PRId64 ",\"work_ms\":%" PRId64 ",\"wait_ms\":%" PRId64
             ",\"workers\":%" PRId64 ",\"on_conflict\":\"%s\",\"local_first\":%s,\"check_hold\":%s,"
             "\"guard_reads\":%s,\"admit\":\"%s\",\"segments\":\"%s\",\"keys\":\"%s\"",
             setting->run, setting->rung->name, write_ways[setting->write].name, (long)getpid(),
             DLOCK_VERSION, config->ttl_ms, config->work_ms, config->wait_ms, config->workers,
             conflict_word(setting->on_conflict), setting->local_first ? "true" : "false",
             setting->check_hold ? "true" : "false", setting->guard_reads ? "true" : "false", admit,
             segments, config->keys == KEYS_ARTICLE ? "article" : "item");
}

/* Reports a connection to the stock's server. arg: points to env.outage. */
static void service_on_connection(void *arg, bool works)
{
    outage_hint(*(struct outage **)arg, ROLE_STOCK, works ? OUTAGE_RESTORED : OUTAGE_LOST);
}

const char *service_probe_key(const struct service *service, enum server_role role)
{
    bool article = service->config.keys == KEYS_ARTICLE;
    if (role == ROLE_STOCK)
        return article ? "inventory" : "inventory:{readyz}";
    return article ? "redisLock" : "lock:{readyz}";
}

/* The servers of the locks: the single one, and those of --lock-servers. */
static bool start_locks(struct service *service, char error[SERVICE_ERROR_MAX])
{
    for (int role = 0; role < LOCK_ROLES; role++) {
        struct lock_servers *locks = &service->locks[role];
        locks->env = &service->env;
        if (!lock_servers_init(locks, &service->config, (enum server_role)role,
                               service->stock_server, error, SERVICE_ERROR_MAX))
            return false;
        if (locks->count > 0)
            service->env.locks[role] = locks;
    }
    return true;
}

/* Starts the stock's server and the locks', and prepares the threads that check them. */
static bool start_servers(struct service *service, char error[SERVICE_ERROR_MAX])
{
    const struct config *config = &service->config;
    struct store_options options = {.url = config->stock_redis,
                                    .what = "stock",
                                    .timeout_ms = config->redis_timeout_ms,
                                    .replicas_ack = (enum dlock_replicas_ack)config->replicas_ack,
                                    .replicas = (size_t)config->replicas,
                                    .sentinel_user = text_or_null(config->sentinel_user),
                                    .sentinel_password = text_or_null(config->sentinel_password),
                                    .on_trace =
                                        config->history_commands ? lock_history_trace : NULL,
                                    .on_trace_arg = service->env.history,
                                    .on_connection = service_on_connection,
                                    .on_connection_arg = &service->env.outage};
    service->stock_server = service->env.stock_server = store_server_new(&options);
    if (service->stock_server == NULL)
        return service_wrong(error, "out of memory");
    if (!start_locks(service, error))
        return false;
    service->env.outage =
        outage_new(&(struct outage_options){.fail_fast_ms = config->fail_fast_ms,
                                            .redis_timeout_ms = config->redis_timeout_ms,
                                            .locks = service->locks,
                                            .stock_server = service->stock_server,
                                            .lock_key = service_probe_key(service, ROLE_LOCK),
                                            .stock_key = service_probe_key(service, ROLE_STOCK)});
    return service->env.outage != NULL || service_wrong(error, "out of memory or descriptors");
}

/* Opens a client for each lock's servers, and starts the threads that check all servers: those of
 * an ensemble are asked by its client. */
static bool open_locks(struct service *service, const struct dlock_options *options,
                       char error[SERVICE_ERROR_MAX])
{
    for (size_t role = 0; role < LOCK_ROLES; role++)
        if (service->locks[role].count > 0 &&
            !lock_servers_open(&service->locks[role], &service->config, options))
            return service_wrong(error, dlock_error());
    lock_servers_use(&service->locks[lock_servers_role(service->config.lock)], true);
    return outage_start(service->env.outage) || service_wrong(error, "not enough threads");
}

/* Starts what sales need: the mode, the history, the lock's client, the stock's server. */
static bool start_parts(struct service *service, char error[SERVICE_ERROR_MAX])
{
    const struct config *config = &service->config;
    struct setting setting = {.rung = config->lock,
                              .write = config->write,
                              .on_conflict = config->on_conflict,
                              .local_first = config->local_first,
                              .check_hold = config->check_hold,
                              .guard_reads = config->guard_reads,
                              .admission = config->admission,
                              .segments = config->segments};
    snprintf(setting.run, sizeof setting.run, "%s", config->run);
    char begin[640];
    mode_init(&service->mode, &setting);
    lock_owner_pool_init(&service->lock_owner_pool);
    idempotency_init(&service->keys);
    pthread_mutex_init(&service->readiness.mutex, NULL);
    atomic_init(&service->waiting, 0);
    atomic_init(&service->changes, 0);
    const bool named = config->lock_service[0] != '\0';
    const char *names[LOCK_ROLES];
    for (size_t role = 0; role < LOCK_ROLES; role++)
        names[role] = named ? config->lock_service : service->locks[role].all;
    epochs_init(&service->epochs, names);
    service->env = (struct sale_env){.config = config,
                                     .epochs = &service->epochs,
                                     .mode = &service->mode,
                                     .lock_owner_pool = &service->lock_owner_pool,
                                     .codes = shop_codes,
                                     .waiting = &service->waiting};
    service_begin_members(service, &setting, begin, sizeof begin);
    if (config->enable_failpoints &&
        (service->env.failpoints =
             failpoints_start(config->failpoint_files, config->failpoints, error)) == NULL)
        return false;
    if (config->history[0] != '\0' &&
        (service->env.history = history_open(config->history, config->instance, begin, error)) ==
            NULL)
        return false;
    if (!start_servers(service, error))
        return false;
    struct dlock_options options = {
        .size = sizeof options,
        .connect_timeout_ms = config->redis_timeout_ms,
        .command_timeout_ms = config->redis_timeout_ms,
        .ttl_ms = config->ttl_ms,
        .retry_ms = config->retry_ms,
        .connections_max = (size_t)config->workers + QUEUE_THREADS + ASIDE_THREADS + LOCK_THREADS,
        .contenders = (size_t)config->contenders,
        .waiters_max = (size_t)config->queue,
        .handoff_max = (size_t)config->handoff_max,
        .handoff_ms = config->handoff_ms,
        .grant_ms = config->grant_ms,
        .replicas_ack = (enum dlock_replicas_ack)config->replicas_ack,
        .replicas = (size_t)config->replicas,
        .sentinel_user = text_or_null(config->sentinel_user),
        .sentinel_password = text_or_null(config->sentinel_password),
        .allow_flawed = true, /* this service demonstrates the flaws */
        .on_event = sale_on_event,
        .on_point = config->enable_failpoints ? failpoints_on_point : NULL,
        .on_point_arg = service->env.failpoints,
        .on_trace = config->history_commands ? lock_history_trace : NULL,
        .on_trace_arg = service->env.history,
    };
    if (!open_locks(service, &options, error))
        return false;
    service->sales =
        start_workers(service, (size_t)config->workers, (size_t)config->queue, open_sharing);
    service->reads = start_workers(service, READ_THREADS, SIDE_QUEUE, open_sharing);
    service->aside = start_workers(service, ASIDE_THREADS, SIDE_QUEUE, open_alone);
    service->waits = start_workers(service, WAIT_THREADS, SIDE_QUEUE, open_sharing);
    service->queues = start_queues(service);
    service->heads = queue_heads_new(service);
    service->queue = queue_worker_new(service);
    service->env.queue = service->queue;
    return (service->queue != NULL && service->heads != NULL && service->sales != NULL &&
            service->reads != NULL && service->waits != NULL && service->queues != NULL &&
            service->aside != NULL) ||
           service_wrong(error, "not enough memory or threads for --workers");
}

static bool listen_now(struct service *service, char error[SERVICE_ERROR_MAX])
{
    return listeners_start(&service->listeners, &service->config.common,
                           &(struct http_options){.routes = &shop_routes,
                                                  .request_size = sizeof(struct shop_request),
                                                  .take_key = shop_routes_take_key,
                                                  .arg = service,
                                                  .serve = shop_routes_serve},
                           error);
}

/* Begins to process queues, also those of earlier instances. */
static bool service_start_queues(struct service *service)
{
    queue_worker_start(service->queue);
    return true;
}

bool service_start(struct service *service, struct config *config, char error[SERVICE_ERROR_MAX])
{
    memset(service, 0, sizeof *service);
    service->config = *config;
    *config = (struct config){0};
    config = &service->config;
    atomic_init(&service->draining, false);
    if (config->enable_failpoints)
        log_event(LOG_WARNING, "failpoints",
                  "every client that may write on the admin listener can pause, break and kill "
                  "this process at its points");
    if (config->lock->flawed)
        log_event(LOG_WARNING, "flawed-rung", "--lock %s is flawed: %s", config->lock->name,
                  config->lock->flaw);
    if (write_ways[config->write].flawed)
        log_event(LOG_WARNING, "flawed-write", "--write %s is flawed: %s",
                  write_ways[config->write].name, write_ways[config->write].flaw);
    if (admission_is_flawed(&config->admission))
        log_event(LOG_WARNING, "flawed-admission", "--admit window is flawed: %s", ADMISSION_FLAW);
    if (config->segments.naive)
        log_event(LOG_WARNING, "flawed-segments", "--segments naive is flawed: %s", SEGMENTS_FLAW);
    return raise_descriptor_limit(config, error) &&
           listeners_open(&service->listeners, &config->common, error) &&
           start_parts(service, error) && listen_now(service, error) &&
           service_start_queues(service);
}

/* ---- End ------------------------------------------------------------------------------------- */

int64_t service_section_ms(const struct config *config)
{
    /* if each request is answered just in time: see docs/reference/http.md, "When Redis is away" */
    return config->work_ms + 10 * config->redis_timeout_ms;
}

/* Waits for locks are cancelled so early that there is time for the critical sections after
 * them. */
static int64_t cancel_after_ms(const struct config *config)
{
    int64_t after_ms = config->drain_ms - service_section_ms(config);
    return after_ms > config->drain_ms / 2 ? after_ms : config->drain_ms / 2;
}

/* Waits for operators' requests, too: they may have written, and must be answered. */
static bool wait_idle(const struct service *service, int64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = NS_PER_MS};
    if (!listeners_wait_idle(&service->listeners, deadline_ns))
        return false;
    while (!queue_worker_is_idle(service->queue) && mono_ns() < deadline_ns)
        nanosleep(&pause, NULL);
    return queue_worker_is_idle(service->queue);
}

bool service_drain(struct service *service)
{
    const struct config *config = &service->config;
    int64_t start_ns = mono_ns();
    atomic_store(&service->draining, true);
    queue_worker_end(service->queue);
    failpoints_end(service->env.failpoints);
    listeners_quiesce(&service->listeners);
    if (wait_idle(service, start_ns + cancel_after_ms(config) * NS_PER_MS))
        return true;
    log_event(LOG_WARNING, "drain", "requests still wait for locks: their waits are cancelled");
    outage_end_waits(service->env.outage);
    workers_expire_all(service->sales);
    return wait_idle(service, start_ns + config->drain_ms * NS_PER_MS);
}

/* Waits until every acquire is answered. A cancelled one ends when its request to Redis has
 * ended. */
static void wait_resumed(struct service *service)
{
    const struct timespec pause = {.tv_nsec = NS_PER_MS};
    outage_end_waits(service->env.outage);
    while (atomic_load(&service->waiting) > 0)
        nanosleep(&pause, NULL);
}

void service_stop(struct service *service)
{
    /* Nothing may be answered after the part that sends the answers is gone. So the waits for
     * locks, which were cancelled, end first; then the workers; then HTTP. */
    wait_resumed(service);
    workers_stop(service->sales);
    workers_stop(service->queues);
    workers_stop(service->reads);
    workers_stop(service->waits);
    workers_stop(service->aside);
    listeners_stop(&service->listeners);
    workers_free(service->sales);
    queue_worker_free(service->queue);
    queue_heads_free(service->heads);
    workers_free(service->queues);
    workers_free(service->reads);
    workers_free(service->waits);
    workers_free(service->aside);
    lock_owner_pool_free(&service->lock_owner_pool);
    idempotency_destroy(&service->keys);
    pthread_mutex_destroy(&service->readiness.mutex);
    outage_stop(service->env.outage); /* its threads use the clients */
    for (size_t role = 0; role < LOCK_ROLES; role++)
        lock_servers_close(&service->locks[role]);
    store_server_stop(service->stock_server);
    outage_free(service->env.outage);
    for (size_t role = 0; role < LOCK_ROLES; role++)
        lock_servers_free(&service->locks[role]);
    store_server_free(service->stock_server);
    history_close(service->env.history);
    failpoints_free(service->env.failpoints);
    epochs_destroy(&service->epochs);
    mode_destroy(&service->mode);
}
