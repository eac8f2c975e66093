/* SPDX-License-Identifier: Apache-2.0
 *
 * See frame.h.
 */
#include "frame.h"

#include "../lock/clock.h"
#include "http_meter.h"
#include "lock_history.h"
#include "lock_meter.h"
#include "log.h"
#include "meter.h"
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASIDE_THREADS 2
#define ASIDE_QUEUE 1024
#define OTHER_DESCRIPTORS 64

static bool frame_wrong(char error[PROCESS_ERROR_MAX], const char *text)
{
    snprintf(error, PROCESS_ERROR_MAX, "%s", text);
    return false;
}

/* ---- Requests -------------------------------------------------------------------------------- */

struct frame_worker {
    struct frame *frame;
    void *state;
};

static void *open_with(struct frame *frame, struct store *store)
{
    void *state = store != NULL
                      ? frame->options.open(frame->options.service, store, frame->open_error)
                      : NULL;
    struct frame_worker *worker = state != NULL ? calloc(1, sizeof *worker) : NULL;
    if (worker != NULL)
        *worker = (struct frame_worker){frame, state};
    else if (state != NULL)
        frame->options.close(state);
    return worker;
}

static void *open_sharing(void *arg)
{
    struct frame *frame = arg;
    return open_with(frame, store_new_shared(frame->store_server));
}

/* GET /readyz finds out whether a connection can be made. */
static void *open_alone(void *arg)
{
    struct frame *frame = arg;
    return open_with(frame, store_new(frame->store_server));
}

static void frame_close(void *arg)
{
    struct frame_worker *worker = arg;
    worker->frame->options.close(worker->state);
    free(worker);
}

static void frame_run(void *arg, struct request *request)
{
    const struct frame_worker *worker = arg;
    if (request->route->work(worker->frame->options.service, worker->state, request))
        http_answer(request);
}

void frame_record_invoke(const struct frame *frame, const struct history_request *record,
                         const struct request *request)
{
    char members[128] = "";
    if (frame->options.invoke != NULL)
        frame->options.invoke(request, members, sizeof members);
    history_event(frame->history, record, "invoke", "%s", members);
}

/* Records a request that no worker has served. */
static void frame_record_refused(const struct frame *frame, const struct request *request)
{
    char item[ITEM_MAX + 1];
    const struct history_request record = {.request = request->id, .item = item};
    if (request->route->where != RUN_WORKERS)
        return;
    snprintf(item, sizeof item, "%.*s", ITEM_MAX, request->part);
    frame_record_invoke(frame, &record, request);
    history_event(frame->history, &record, "refused", ",\"code\":%u,\"reason\":\"%s\"",
                  request->answer.status, problem_type(request->answer.problem));
}

static void frame_expire(void *arg, struct request *request)
{
    struct frame *frame = arg;
    if (atomic_load(&frame->draining))
        answer_problem(request, PROBLEM_DRAINING,
                       "the instance began to shut down while the request waited");
    else
        answer_problem(request, PROBLEM_DEADLINE,
                       "it waited in the queue for longer than --wait-ms");
    frame_record_refused(frame, request);
    http_answer(request);
}

/* See http_options. */
static bool frame_serve(void *arg, struct request *request)
{
    struct frame *frame = arg;
    const struct route *route = request->route;
    if (route->where == RUN_WORKERS && atomic_load(&frame->draining)) {
        answer_problem(request, PROBLEM_DRAINING, "the instance takes no more requests");
        frame_record_refused(frame, request);
        return true;
    }
    if (route->accept != NULL)
        route->accept(frame->options.service, request);
    if (request->answer.status != 0 || route->where == RUN_HERE)
        return true;
    if (workers_push(route->where == RUN_WORKERS ? frame->workers : frame->aside, request))
        return false;
    if (atomic_load(&frame->draining))
        answer_problem(request, PROBLEM_DRAINING, "the instance is shutting down");
    else
        answer_problem(request, PROBLEM_QUEUE_FULL, "the queue of requests (--queue) is full");
    frame_record_refused(frame, request);
    return true;
}

void frame_take_name(struct request *request)
{
    if (!request_is_name(request->part, strlen(request->part)))
        answer_problem(request, PROBLEM_INVALID_NAME, "\"%.80s\" is not 1 to %d of a-z 0-9 _ -",
                       request->part, ITEM_MAX);
}

/* ---- Start ----------------------------------------------------------------------------------- */

static struct workers *start_pool(struct frame *frame, size_t threads, size_t queue_max,
                                  void *(*open)(void *arg))
{
    return workers_start(&(struct workers_options){.threads = threads,
                                                   .queue_max = queue_max,
                                                   .wait_ms = frame->options.settings->wait_ms,
                                                   .arg = frame,
                                                   .open = open,
                                                   .close = frame_close,
                                                   .run = frame_run,
                                                   .expire = frame_expire});
}

/* A dlock_options.on_event. A hold without a holder is nobody's request. */
static void frame_on_event(void *arg, const struct dlock_event *event)
{
    const struct frame *frame = arg;
    if (event->name != NULL && event->user != NULL)
        lock_history_event(frame->history, event);
    else if (event->name == NULL && event->kind != DLOCK_EVENT_CONNECTION_RESTORED)
        log_event(LOG_WARNING, "lock-server", "%s", event->reason);
}

static bool start_redis(struct frame *frame, char error[PROCESS_ERROR_MAX])
{
    const struct settings_common *settings = frame->options.settings;
    const char *servers[] = {settings->redis};
    struct dlock_options options = {
        .size = sizeof options,
        .servers = servers,
        .server_count = 1,
        .connect_timeout_ms = settings->redis_timeout_ms,
        .command_timeout_ms = settings->redis_timeout_ms,
        .ttl_ms = settings->ttl_ms,
        .retry_ms = settings->retry_ms,
        .connections_max = (size_t)settings->workers + ASIDE_THREADS,
        .allow_flawed = true, /* services demonstrate the flaws */
        .on_event = frame_on_event,
        .on_event_arg = frame,
        .on_trace = settings->history_commands ? lock_history_trace : NULL,
        .on_trace_arg = frame->history,
        .on_point = frame->failpoints != NULL ? failpoints_on_point : NULL,
        .on_point_arg = frame->failpoints,
    };
    frame->store_server =
        store_server_new(&(struct store_options){.url = settings->redis,
                                                 .what = "data",
                                                 .timeout_ms = settings->redis_timeout_ms,
                                                 .on_trace = options.on_trace,
                                                 .on_trace_arg = options.on_trace_arg});
    frame->cancel = dlock_cancel_new();
    if (frame->store_server == NULL || frame->cancel == NULL)
        return frame_wrong(error, "not enough memory or descriptors for --redis");
    return dlock_client_open(&options, &frame->client) == DLOCK_OK ||
           frame_wrong(error, dlock_error());
}

/* ",\"run\":..." and what the service adds. */
static void print_begin(const struct frame *frame, char *text, size_t size)
{
    const struct settings_common *settings = frame->options.settings;
    char own[256] = "";
    if (frame->options.begin != NULL)
        frame->options.begin(own, sizeof own);
    snprintf(text, size,
             ",\"run\":\"%s\",\"service\":\"%s\",\"rung\":\"%s\",\"pid\":%ld,\"version\":\"%s\","
             "\"ttl_ms\":%" PRId64 ",\"wait_ms\":%" PRId64 ",\"workers\":%" PRId64 "%s",
             settings->run, frame->options.name, settings->lock->name, (long)getpid(),
             DLOCK_VERSION, settings->ttl_ms, settings->wait_ms, settings->workers, own);
}

/* What requests need: the history, the failpoints, the client of the locks, the threads. */
static bool start_parts(struct frame *frame, char error[PROCESS_ERROR_MAX])
{
    const struct settings_common *settings = frame->options.settings;
    char begin[900];
    print_begin(frame, begin, sizeof begin);
    if (settings->enable_failpoints &&
        (frame->failpoints =
             failpoints_start(settings->failpoint_files, settings->failpoints, error)) == NULL)
        return false;
    if (settings->history[0] != '\0' &&
        (frame->history = history_open(settings->history, settings->instance, begin, error)) ==
            NULL)
        return false;
    if (!start_redis(frame, error))
        return false;
    error[0] = '\0';
    frame->open_error = error;
    frame->workers =
        start_pool(frame, (size_t)settings->workers, (size_t)settings->queue, open_sharing);
    if (frame->workers != NULL)
        frame->aside = start_pool(frame, ASIDE_THREADS, ASIDE_QUEUE, open_alone);
    if (frame->aside != NULL)
        return true;
    return error[0] == '\0' && frame_wrong(error, "not enough memory or threads for --workers");
}

/* A frame has one Redis. */
static bool has_servers(const struct settings_common *settings, char error[PROCESS_ERROR_MAX])
{
    if (settings->redis[0] == '\0')
        return frame_wrong(error, "--redis: a server's URL is missing");
    if (!settings->lock->quorum && engine_of_rung(settings->lock) == NULL)
        return true;
    snprintf(
        error, PROCESS_ERROR_MAX,
        "--lock %s needs other servers than the one that %s has, that of --redis: take another "
        "rung",
        settings->lock->name, program.name);
    return false;
}

bool frame_start(struct frame *frame, const struct frame_options *options,
                 char error[PROCESS_ERROR_MAX])
{
    const struct settings_common *settings = options->settings;
    const int64_t descriptors =
        settings->connections + ADMIN_CONNECTIONS + OTHER_DESCRIPTORS +
        (2 + options->worker_descriptors) * (settings->workers + ASIDE_THREADS);
    if (!has_servers(settings, error) || (options->fit != NULL && !options->fit(error)))
        return false;
    memset(frame, 0, sizeof *frame);
    frame->options = *options;
    atomic_init(&frame->draining, false);
    lock_owner_pool_init(&frame->owners);
    if (settings->enable_failpoints)
        log_event(LOG_WARNING, "failpoints",
                  "every client that may write on the admin listener can pause, break and kill "
                  "this process at its points");
    if (settings->lock->flawed)
        log_event(LOG_WARNING, "flawed-rung", "--lock %s is flawed: %s", settings->lock->name,
                  settings->lock->flaw);
    if (!process_raise_descriptors(descriptors, settings->connections, "", error) ||
        !listeners_open(&frame->listeners, settings, error) || !start_parts(frame, error))
        return false;
    if (!listeners_start(&frame->listeners, settings,
                         &(struct http_options){.routes = options->routes,
                                                .request_size = options->request_size,
                                                .arg = frame,
                                                .serve = frame_serve},
                         error))
        return false;
    log_event(LOG_INFO, "started", "%s " DLOCK_VERSION ", --lock %s", program.name,
              settings->lock->name);
    return true;
}

void frame_reopen(struct frame *frame)
{
    process_reopen(frame->options.settings->log_file, frame->history);
}

/* ---- End ------------------------------------------------------------------------------------- */

bool frame_drain(struct frame *frame)
{
    const int64_t drain_ms = frame->options.settings->drain_ms;
    const int64_t start_ns = mono_ns();
    atomic_store(&frame->draining, true);
    failpoints_end(frame->failpoints);
    listeners_quiesce(&frame->listeners);
    if (listeners_wait_idle(&frame->listeners, start_ns + drain_ms / 2 * NS_PER_MS))
        return true;
    log_event(LOG_WARNING, "drain", "requests still wait for locks: their waits are cancelled");
    dlock_cancel_now(frame->cancel);
    workers_expire_all(frame->workers);
    return listeners_wait_idle(&frame->listeners, start_ns + drain_ms * NS_PER_MS);
}

void frame_stop(struct frame *frame)
{
    /* Nothing may be answered after the part that sends the answers is gone. */
    workers_stop(frame->workers);
    workers_stop(frame->aside);
    listeners_stop(&frame->listeners);
    workers_free(frame->workers);
    workers_free(frame->aside);
    lock_owner_pool_free(&frame->owners);
    dlock_client_close(frame->client);
    dlock_cancel_free(frame->cancel);
    store_server_stop(frame->store_server);
    store_server_free(frame->store_server);
    history_close(frame->history);
    failpoints_free(frame->failpoints);
}

bool frame_point(struct frame *frame, const char *group, const char *name)
{
    struct failpoint_stay stay = {0};
    return frame->failpoints != NULL &&
           failpoints_reach(frame->failpoints, group, name, &stay) == FAILPOINT_FAILS;
}

void *frame_open_store(struct service *service, struct store *store, char error[PROCESS_ERROR_MAX])
{
    (void)service;
    (void)error;
    return store;
}

void frame_close_store(void *store)
{
    store_free(store);
}

bool frame_store_ready(struct store *store, const char *key, char why[FRAME_WHY_MAX])
{
    const bool ready = store_check(store, key) == STORE_OK;
    snprintf(why, FRAME_WHY_MAX, "%s", store_error(store));
    store_rest(store);
    return ready;
}

void frame_count(struct frame *frame, size_t meter)
{
    meter_add(&frame->options.meters[meter].count, 1);
}

void frame_take_ms(int64_t ms)
{
    const struct timespec until = timespec_of(mono_deadline_ns(ms));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

bool frame_has_tokens(const struct settings_common *settings, const char *flag, const char *instead,
                      char error[PROCESS_ERROR_MAX])
{
    if (settings->lock->tokens)
        return true;
    snprintf(error, PROCESS_ERROR_MAX,
             "%s needs a rung that gives tokens, as --lock fair does; --lock %s gives none: take "
             "another, or %s",
             flag, settings->lock->name, instead);
    return false;
}

/* ---- The process ----------------------------------------------------------------------------- */

/* The only frame of this process, and what it is started with. */
static struct frame *only;
static const struct frame_options *only_options;

static bool start_only(char error[PROCESS_ERROR_MAX])
{
    return frame_start(only, only_options, error);
}

static void reopen_only(void)
{
    frame_reopen(only);
}

static bool drain_only(void)
{
    return frame_drain(only);
}

static void stop_only(void)
{
    frame_stop(only);
}

int frame_main(struct frame *frame, const struct frame_options *options, void *config, int argc,
               char **argv)
{
    only = frame;
    only_options = options;
    return process_main(&(struct process){.config = config,
                                          .start = start_only,
                                          .reopen = reopen_only,
                                          .drain = drain_only,
                                          .stop = stop_only},
                        argc, argv);
}

const struct settings_common *frame_common(const struct service *service)
{
    (void)service;
    return only_options->settings;
}

struct failpoints *frame_failpoints(const struct service *service)
{
    (void)service;
    return only->failpoints;
}

/* ---- What operators ask ---------------------------------------------------------------------- */

bool frame_work_ready(struct service *service, void *state, struct request *request)
{
    char why[FRAME_WHY_MAX] = "";
    (void)service;
    if (only_options->ready(state, why))
        answer_json(request, 200, "{\"ready\":true,\"instance\":\"%s\"}",
                    only_options->settings->instance);
    else
        answer_problem(request, PROBLEM_NOT_READY, "%s", why);
    return true;
}

void frame_print_metrics(struct service *service, struct request *request)
{
    char *text = NULL;
    size_t size = 0;
    struct dlock_stats sum = {.size = sizeof sum};
    FILE *out = open_memstream(&text, &size);
    (void)service;
    if (out != NULL) {
        for (struct frame_meter *meter = only_options->meters; meter->name != NULL; meter++)
            meter_print_single(out, meter->name, "counter", meter->help, meter_load(&meter->count));
        lock_meter_add(&sum, only->client);
        lock_meter_print(out, &sum, 0);
        http_meter_print(out, only_options->routes);
        fclose(out);
    }
    answer_long(request, 200, "text/plain; version=0.0.4", text);
}
