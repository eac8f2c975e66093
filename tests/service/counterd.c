/* SPDX-License-Identifier: Apache-2.0
 *
 * A small service on base/frame.h, as small as one can be: counters in Redis, each raised under its
 * lock by a GET and a SET.
 */
#include "../../lock/clock.h"
#include "frame.h"
#include "guard.h"
#include "http_meter.h"
#include "json.h"
#include "lock_meter.h"
#include "operators.h"
#include "program.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

static struct config {
    struct settings_common common;
    int64_t work_ms;
} config;

struct service {
    struct frame frame;
};
static struct service service;

struct counting {
    struct request request;
    int64_t by;
};

enum { PROBLEM_NOT_A_NUMBER = PROBLEM_BASE_COUNT, PROBLEM_STORE_UNAVAILABLE };
static const struct problem_row problems[] = {
    {PROBLEM_NOT_A_NUMBER, "not-a-number", 409, "The counter is no number", ""},
    PROBLEM_OF_BASE(QUEUE_FULL, "of requests; try again"),
    {PROBLEM_STORE_UNAVAILABLE, "store-unavailable", 503, "Redis is not available", ""},
};

static const struct failpoint_row points[] = {{"counter.after_read", "it is not written"},
                                              {.name = NULL}};

static const struct settings_row rows[] = {
    {.flag = "listen", .fallback = "127.0.0.1:8100", .help = "where counters are raised"},
    {"work-ms", SETTING_NUMBER, "", "ms", "0", 0, 60000, offsetof(struct config, work_ms),
     "business between the read and the write"},
    {.flag = NULL},
};

static void answer_store(struct request *request, struct store *store, enum store_status status)
{
    answer_problem(request,
                   status == STORE_INVALID ? PROBLEM_NOT_A_NUMBER : PROBLEM_STORE_UNAVAILABLE, "%s",
                   store_error(store));
}

/* False: the request is answered. */
static bool count(struct guard *guard, struct store *store, struct request *request)
{
    const int64_t by = ((const struct counting *)(const void *)request)->by;
    char key[ITEM_MAX + 16], number[24];
    const redisReply *reply;
    snprintf(key, sizeof key, "counter:{%s}", guard->item);
    enum store_status status = store_command(store, 2, (const char *const[]){"GET", key}, &reply);
    if (status != STORE_OK) {
        answer_store(request, store, status);
        return false;
    }
    const int64_t before = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
    GUARD_RECORD(guard, "read", ",\"before\":%" PRId64, before);
    if (frame_point(guard->frame, "counter", "after_read")) {
        answer_problem(request, PROBLEM_INTERNAL, "the point failed");
        return false;
    }
    nanosleep(&(struct timespec){config.work_ms / 1000, config.work_ms % 1000 * NS_PER_MS}, NULL);
    snprintf(number, sizeof number, "%" PRId64, before + by);
    status = store_command(store, 3, (const char *const[]){"SET", key, number}, &reply);
    if (status != STORE_OK) {
        answer_store(request, store, status);
        return false;
    }
    GUARD_RECORD(guard, "write", ",\"after\":%" PRId64, before + by);
    answer_json(request, 200, "{\"counter\":\"%s\",\"value\":%" PRId64 "}", guard->item,
                before + by);
    return true;
}

static bool work_count(struct service *of, void *state, struct request *request)
{
    struct guard guard;
    if (!guard_begin(&guard, &of->frame, request, request->part))
        return true;
    GUARD_RECORD(&guard, "invoke", "%s", "");
    if (guard_enter(&guard, request))
        count(&guard, state, request);
    guard_end(&guard);
    store_rest(state);
    return true;
}

static void take_name(struct request *request)
{
    const size_t size = strspn(request->part, "abcdefghijklmnopqrstuvwxyz");
    if (size == 0 || size > ITEM_MAX || request->part[size] != '\0')
        answer_problem(request, PROBLEM_NOT_FOUND, "a counter's name is 1 to %d of a-z", ITEM_MAX);
}

static bool work_ready(struct service *of, void *state, struct request *request)
{
    (void)of;
    if (store_check(state, "counter:{readyz}") == STORE_OK)
        answer_json(request, 200, "{\"ready\":true}");
    else
        answer_problem(request, PROBLEM_NOT_READY, "%s", store_error(state));
    store_rest(state);
    return true;
}

static void print_metrics(struct service *of, struct request *request)
{
    char *text = NULL;
    size_t size = 0;
    struct dlock_stats sum = {.size = sizeof sum};
    FILE *out = open_memstream(&text, &size);
    lock_meter_add(&sum, of->frame.client);
    lock_meter_print(out, &sum, 0);
    http_meter_print(out, of->frame.options.routes);
    fclose(out);
    answer_long(request, 200, "text/plain; version=0.0.4", text);
}

static const struct parameter of_count[] = {{"by", 1, 100, 1, "", offsetof(struct counting, by)},
                                            {.name = NULL}};
static const struct route route_rows[] = {
    {LISTENER_PUBLIC, METHOD_POST, "/counters/{name}", of_count, false, RUN_WORKERS, take_name,
     NULL, work_count, NULL},
    {LISTENER_ADMIN, METHOD_GET, "/readyz", NULL, false, RUN_ASIDE, NULL, NULL, work_ready, NULL},
    {LISTENER_ADMIN, METHOD_GET, "/metrics", NULL, false, RUN_HERE, NULL, print_metrics, NULL,
     NULL},
    OPERATORS_LIVEZ,
    OPERATORS_VERSION,
    OPERATORS_CONFIG,
    OPERATORS_FAILPOINTS,
};
static const struct routes routes = {route_rows, sizeof route_rows / sizeof route_rows[0]};

/* ---- The program ----------------------------------------------------------------------------- */

static const struct settings_common *common_of(const struct service *of)
{
    (void)of;
    return &config.common;
}

static struct failpoints *failpoints_of(const struct service *of)
{
    return of->frame.failpoints;
}

const struct program program = {
    .name = "counterd",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .settings = {.about = "counterd raises counters in Redis.", .example = "work-ms", .rows = rows},
    .points = points,
    .example_point = "counter.after_read",
    .common = common_of,
    .failpoints = failpoints_of};

static void *open_state(struct service *of)
{
    return store_new_shared(of->frame.store_server);
}

static void close_state(void *state)
{
    store_free(state);
}

static bool start(char error[PROCESS_ERROR_MAX])
{
    return frame_start(&service.frame,
                       &(struct frame_options){.service = &service,
                                               .settings = &config.common,
                                               .routes = &routes,
                                               .request_size = sizeof(struct counting),
                                               .begin = "",
                                               .open = open_state,
                                               .close = close_state},
                       error);
}

static void reopen(void)
{
    frame_reopen(&service.frame);
}

static bool drain(void)
{
    return frame_drain(&service.frame);
}

static void stop(void)
{
    frame_stop(&service.frame);
}

int main(int argc, char **argv)
{
    return process_main(
        &(struct process){
            .config = &config, .start = start, .reopen = reopen, .drain = drain, .stop = stop},
        argc, argv);
}
