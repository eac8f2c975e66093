/* SPDX-License-Identifier: Apache-2.0
 *
 * A small service on base/frame.h, as small as one can be: counters in Redis, each raised under its
 * lock by a GET and a SET.
 */
#include "frame.h"
#include "guard.h"
#include "json.h"
#include "program.h"

#include <inttypes.h>
#include <string.h>

static struct config {
    struct settings_common common;
    int64_t work_ms;
    int64_t broken_worker;
} config;

struct service {
    struct frame frame;
};
static struct service service;

struct counting {
    struct request request;
    int64_t by;
};

static const struct problem_row problems[] = {
    FRAME_PROBLEMS, PROBLEM_OF_BASE(QUEUE_FULL, "of requests; try again")};

static const struct failpoint_row points[] = {{"counter.after_read", "it is not written"},
                                              {.name = NULL}};

static const struct settings_row rows[] = {
    {.flag = "listen", .fallback = "127.0.0.1:8100", .help = "where counters are raised"},
    {.flag = "admin-listen", .fallback = "127.0.0.1:8101", .help = "where operators ask"},
    {"work-ms", SETTING_NUMBER, "", "ms", "0", 0, 60000, offsetof(struct config, work_ms),
     "business between the read and the write"},
    {"broken-worker", SETTING_NUMBER, "", "", "0", 0, 1000, offsetof(struct config, broken_worker),
     "the one that cannot be opened; 0: none"},
    {.flag = NULL},
};

static struct frame_meter meters[] = {{.name = NULL}};

/* False: the request is answered. */
static bool count(struct guard *guard, struct store *store, struct request *request)
{
    const int64_t by = ((const struct counting *)(const void *)request)->by;
    char key[ITEM_MAX + 16], number[24];
    const redisReply *reply;
    snprintf(key, sizeof key, "counter:{%s}", guard->item);
    enum store_status status = store_command(store, 2, (const char *const[]){"GET", key}, &reply);
    if (status != STORE_OK)
        return guard_read_failed(guard, store, status);
    const int64_t before = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
    GUARD_RECORD(guard, "read", ",\"before\":%" PRId64, before);
    if (frame_point(guard->frame, "counter", "after_read")) {
        answer_problem(request, PROBLEM_INTERNAL, "the point failed");
        return false;
    }
    frame_take_ms(config.work_ms);
    snprintf(number, sizeof number, "%" PRId64, before + by);
    status = store_command(store, 3, (const char *const[]){"SET", key, number}, &reply);
    if (status != STORE_OK)
        return guard_write_failed(guard, store, status);
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
    if (guard_enter(&guard))
        count(&guard, state, request);
    guard_end(&guard);
    store_rest(state);
    return true;
}

static bool is_ready(void *state, char why[FRAME_WHY_MAX])
{
    return frame_store_ready(state, "counter:{readyz}", why);
}

static const struct parameter of_count[] = {
    {.name = "by", .min = 1, .max = 100, .fallback = 1, .offset = offsetof(struct counting, by)},
    {.name = NULL}};
static const struct route route_rows[] = {
    {LISTENER_PUBLIC, METHOD_POST, "/counters/{name}", of_count, false, RUN_WORKERS,
     frame_take_name, NULL, work_count, NULL},
    FRAME_ROUTES,
};
static const struct routes routes = {route_rows, sizeof route_rows / sizeof route_rows[0]};

/* ---- The program ----------------------------------------------------------------------------- */

const struct program program = {
    .name = "counterd",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .settings = {.about = "counterd raises counters in Redis.", .example = "work-ms", .rows = rows},
    .points = points,
    .example_point = "counter.after_read",
    .common = frame_common,
    .failpoints = frame_failpoints};

static void *open_state(struct service *of, struct store *store, char error[PROCESS_ERROR_MAX])
{
    static int64_t opened; /* one thread opens after the other */
    (void)of;
    if (++opened != config.broken_worker)
        return store;
    snprintf(error, PROCESS_ERROR_MAX, "worker %" PRId64 " is broken", opened);
    store_free(store);
    return NULL;
}

int main(int argc, char **argv)
{
    return frame_main(&service.frame,
                      &(struct frame_options){.name = "counter",
                                              .service = &service,
                                              .settings = &config.common,
                                              .routes = &routes,
                                              .request_size = sizeof(struct counting),
                                              .open = open_state,
                                              .close = frame_close_store,
                                              .ready = is_ready,
                                              .meters = meters},
                      &config, argc, argv);
}
