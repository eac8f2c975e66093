/* SPDX-License-Identifier: Apache-2.0
 *
 * A service whose requests wait in a queue for worker threads, which may block. It has a client of
 * the lock library, a history and failpoints, as the common settings say; and it is drained and
 * stopped in the right order. A service with this frame has it in its struct service, and calls
 * these from the stages of its process.
 */
#ifndef FRAME_H
#define FRAME_H

#include "failpoints.h"
#include "history.h"
#include "listeners.h"
#include "lock_owner.h"
#include "operators.h"
#include "store.h"
#include "workers.h"

#include <dlock.h>
#include <stdatomic.h>

/* What can go wrong in each such service. Its own problems are numbered from PROBLEM_FRAME_COUNT,
 * and its table begins with these rows. */
enum {
    PROBLEM_INVALID_NAME = PROBLEM_BASE_COUNT,
    PROBLEM_OUTCOME_UNKNOWN,
    PROBLEM_STORE_INVALID,
    PROBLEM_STORE_UNAVAILABLE,
    PROBLEM_CLIENT_CLOSED,
    PROBLEM_FRAME_COUNT,
};
#define FRAME_PROBLEMS                                                                             \
    {PROBLEM_INVALID_NAME, "invalid-name", 400, "The name is not valid",                           \
     "1 to 64 of a-z 0-9 _ -"},                                                                    \
        {PROBLEM_OUTCOME_UNKNOWN, "outcome-unknown", 500, "Nobody knows what was changed",         \
         "a reply of a server was lost; the detail says what may be"},                             \
        {PROBLEM_STORE_INVALID, "data-invalid", 500, "A key of Redis holds something else",        \
         "the detail names the key; nothing was changed"},                                         \
        {PROBLEM_STORE_UNAVAILABLE, "data-unavailable", 503, "Redis is not available",             \
         "nothing was changed"},                                                                   \
    {                                                                                              \
        PROBLEM_CLIENT_CLOSED, "client-closed", 503, "The client has left",                        \
            "nobody reads this answer; nothing was changed"                                        \
    }

/* For route->take_part: the part of the path is a name. */
void frame_take_name(struct request *request);

/* A counter of GET /metrics. */
struct frame_meter {
    const char *name, *help;
    atomic_ulong count; /* raised by meter_add */
};

#define FRAME_WHY_MAX 512
struct frame_options {
    const char *name;        /* of what it serves, as the judge knows it: "menu" */
    struct service *service; /* each handler gets it */
    const struct settings_common *settings;
    const struct routes *routes;
    size_t request_size; /* see http_options */
    /* Whether the settings fit each other. False: error[] says what does not. NULL: they do. */
    bool (*fit)(char error[PROCESS_ERROR_MAX]);
    /* Prints further members of a request's `invoke` line, with a comma. NULL: there are none. */
    void (*invoke)(const struct request *request, char *text, size_t size);
    /* Prints further members of the history's `begin` line, with a comma. NULL: there are none. */
    void (*begin)(char *text, size_t size);
    /* Makes what a worker thread has of its own; route->work gets it. It takes the store, its
     * connection to --redis. NULL: the instance cannot start, and error[] says why; "": out of
     * memory. */
    void *(*open)(struct service *service, struct store *store, char error[PROCESS_ERROR_MAX]);
    void (*close)(void *state);
    /* Whether that thread's connections work. False: why[] says what does not. */
    bool (*ready)(void *state, char why[FRAME_WHY_MAX]);
    /* That a worker thread has open, beside its connections to --redis. */
    int64_t worker_descriptors;
    struct frame_meter *meters; /* the service's own counters; the last one has no name */
};

struct frame {
    struct frame_options options;
    struct listeners listeners;
    struct store_server *store_server; /* --redis */
    dlock_client *client;              /* of the same server */
    dlock_cancel *cancel;              /* for dlock_want: ends waits when the drain is half over */
    struct history *history;           /* or NULL */
    struct failpoints *failpoints;     /* or NULL */
    struct lock_owner_pool owners;     /* see guard.h */
    struct workers *workers;           /* --workers threads, for RUN_WORKERS */
    struct workers *aside;             /* for RUN_ASIDE */
    atomic_bool draining;
    char *open_error; /* for the thread that opens what it needs */
};

/* False: error[] says why; the process must end. */
bool frame_start(struct frame *frame, const struct frame_options *options,
                 char error[PROCESS_ERROR_MAX]);
/* See struct process. */
void frame_reopen(struct frame *frame);
bool frame_drain(struct frame *frame);
void frame_stop(struct frame *frame);

/* A service whose process has only a frame: what main() calls, with a config that begins with
 * the common settings; and two members of its struct program. Returns the exit code. */
int frame_main(struct frame *frame, const struct frame_options *options, void *config, int argc,
               char **argv);
const struct settings_common *frame_common(const struct service *service);
struct failpoints *frame_failpoints(const struct service *service);

/* GET /readyz and GET /metrics, and with them all that operators.h has, as rows of the routes. */
bool frame_work_ready(struct service *service, void *state, struct request *request);
void frame_print_metrics(struct service *service, struct request *request);
#define FRAME_ROUTES                                                                               \
    {LISTENER_ADMIN, METHOD_GET, "/readyz",        NULL, false, RUN_ASIDE,                         \
     NULL,           NULL,       frame_work_ready, NULL},                                          \
        OPERATORS_ROUTE(METHOD_GET, "/metrics", false, frame_print_metrics), OPERATORS_LIVEZ,      \
        OPERATORS_VERSION, OPERATORS_CONFIG, OPERATORS_FAILPOINTS

/* Records that the request was accepted, for the history. */
void frame_record_invoke(const struct frame *frame, const struct history_request *record,
                         const struct request *request);

/* A point of the service's that a worker reaches: the thread stays there if it is set so. True:
 * what follows shall fail, as the point defines. */
bool frame_point(struct frame *frame, const char *group, const char *name);

/* For frame_options, if a worker thread has nothing of its own but the store: open and close; and
 * what `ready` calls, with a key that the service may write. */
void *frame_open_store(struct service *service, struct store *store, char error[PROCESS_ERROR_MAX]);
void frame_close_store(void *store);
bool frame_store_ready(struct store *store, const char *key, char why[FRAME_WHY_MAX]);

/* Raises that one of the service's counters. */
void frame_count(struct frame *frame, size_t meter);

/* Takes that long, as business would. */
void frame_take_ms(int64_t ms);

/* For frame_options.fit: whether the rung of --lock gives tokens, which `flag` needs; `instead`
 * does not: "--fill fenced", "--fill plain". False: error[] says so. */
bool frame_has_tokens(const struct settings_common *settings, const char *flag, const char *instead,
                      char error[PROCESS_ERROR_MAX]);

#endif
