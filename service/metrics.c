/* SPDX-License-Identifier: Apache-2.0
 *
 * See metrics.h.
 */
#include "metrics.h"

#include "routes.h"
#include "text.h"

#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROUTES_MAX 16
#define ITEMS_MAX 256

static const double buckets_s[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                   0.1,    0.25,    0.5,    1,     2.5,    5,     10,   20,    30};
#define BUCKETS (sizeof buckets_s / sizeof buckets_s[0])

struct histogram {
    /* not cumulative; the last one counts what is above all limits */
    atomic_ulong counts[BUCKETS + 1];
    atomic_ulong sum_ns;
};

static const unsigned codes[] = {200, 202, 204, 400, 401, 403, 404, 405, 409,
                                 413, 414, 415, 422, 429, 431, 500, 503};
#define CODES (sizeof codes / sizeof codes[0])

static atomic_ulong sales[SALE_RESULT_COUNT], reads[SALE_RESULT_COUNT];
static atomic_ulong requests[ROUTES_MAX][METHOD_COUNT][CODES];
static atomic_ulong aborted, replayed, aborts, processed, requeued, admissions[STOCK_VERDICTS];
static atomic_ulong holds, releases, checks;
static atomic_bool servers_away[ROLE_COUNT][LOCK_SERVERS_MAX];
static struct histogram acquire_time, hold_time;

static pthread_mutex_t items_mutex = PTHREAD_MUTEX_INITIALIZER; /* protects the items */
static struct {
    char name[ITEM_MAX + 1];
    int64_t left;
} items[ITEMS_MAX];
static size_t item_count;
static atomic_ulong other; /* readings of items that have no place in `items` */

static void metrics_add(atomic_ulong *counter, unsigned long by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static unsigned long metrics_load(atomic_ulong *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void metrics_observe(struct histogram *histogram, int64_t took_ns)
{
    size_t i = 0;
    while (i < BUCKETS && (double)took_ns > buckets_s[i] * 1e9)
        i++;
    metrics_add(&histogram->counts[i], 1);
    metrics_add(&histogram->sum_ns, (unsigned long)took_ns);
}

void metrics_sale(int result)
{
    metrics_add(&sales[result], 1);
}

void metrics_read(int result)
{
    metrics_add(&reads[result], 1);
}

void metrics_replayed(void)
{
    metrics_add(&replayed, 1);
}

void metrics_admission(enum stock_verdict verdict)
{
    metrics_add(&admissions[verdict], 1);
}

void metrics_abort(void)
{
    metrics_add(&aborts, 1);
}

void metrics_queue(bool settled, bool passed)
{
    if (!passed)
        metrics_add(settled ? &processed : &requeued, 1);
}

void metrics_acquired(int64_t took_ns)
{
    metrics_observe(&acquire_time, took_ns);
}

void metrics_held(int64_t took_ns)
{
    metrics_observe(&hold_time, took_ns);
}

void metrics_hold(void)
{
    metrics_add(&holds, 1);
}

void metrics_release(void)
{
    metrics_add(&releases, 1);
}

void metrics_check(void)
{
    metrics_add(&checks, 1);
}

void metrics_stock(const char *item, int64_t left)
{
    size_t i = 0;
    pthread_mutex_lock(&items_mutex);
    while (i < item_count && strcmp(items[i].name, item) != 0)
        i++;
    if (i < ITEMS_MAX) {
        if (i == item_count)
            snprintf(items[item_count++].name, sizeof items[0].name, "%s", item);
        items[i].left = left;
    } else {
        metrics_add(&other, 1);
    }
    pthread_mutex_unlock(&items_mutex);
}

void metrics_http(size_t route, enum method method, unsigned status)
{
    for (size_t i = 0; i < CODES; i++)
        if (codes[i] == status)
            metrics_add(&requests[route][method][i], 1);
}

void metrics_server(enum server_role role, size_t number, bool up)
{
    atomic_store(&servers_away[role][number], !up);
}

void metrics_http_aborted(void)
{
    metrics_add(&aborted, 1);
}

/* ---- Printing -------------------------------------------------------------------------------- */

static void metrics_print_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metrics_print_single(FILE *out, const char *name, const char *type, const char *help,
                                 unsigned long value)
{
    metrics_print_head(out, name, type, help);
    fprintf(out, "%s %lu\n", name, value);
}

static void print_histogram(FILE *out, const char *name, const char *help,
                            struct histogram *histogram)
{
    unsigned long total = 0;
    metrics_print_head(out, name, "histogram", help);
    for (size_t i = 0; i < BUCKETS; i++) {
        total += metrics_load(&histogram->counts[i]);
        fprintf(out, "%s_bucket{le=\"%g\"} %lu\n", name, buckets_s[i], total);
    }
    total += metrics_load(&histogram->counts[BUCKETS]);
    fprintf(out, "%s_bucket{le=\"+Inf\"} %lu\n", name, total);
    fprintf(out, "%s_sum %.9f\n", name, (double)metrics_load(&histogram->sum_ns) / 1e9);
    fprintf(out, "%s_count %lu\n", name, total);
}

/* done: the outcome's name for SALE_SOLD. */
static void metrics_print_results(FILE *out, const char *metric, const char *help, const char *done,
                                  atomic_ulong results[SALE_RESULT_COUNT])
{
    static const char *const names[] = {
#define X(name, event, reason) #name,
        SALE_RESULTS(X)
#undef X
    };
    metrics_print_head(out, metric, "counter", help);
    for (size_t i = 0; i < SALE_RESULT_COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", i == SALE_SOLD ? done : names[i]);
        for (char *c = name; *c != '\0'; c++)
            *c = (char)tolower((unsigned char)*c);
        fprintf(out, "%s{outcome=\"%s\"} %lu\n", metric, name, metrics_load(&results[i]));
    }
}

static void print_admissions(FILE *out)
{
    static const char *const outcomes[STOCK_VERDICTS] = {[STOCK_ADMITTED] = "admitted",
                                                         [STOCK_ADMITTED_KEPT] = "stored_answer",
                                                         [STOCK_NOT_ADMITTED] = "refused"};
    metrics_print_head(
        out, "inventory_admissions_total", "counter",
        "With --admit: sales that asked for their admission. stored_answer: admitted "
        "without a token.");
    for (int i = 0; i < STOCK_VERDICTS; i++)
        fprintf(out, "inventory_admissions_total{outcome=\"%s\"} %lu\n", outcomes[i],
                metrics_load(&admissions[i]));
}

static void print_stock(FILE *out)
{
    metrics_print_head(
        out, "inventory_stock", "gauge",
        "The stock by the latest sale, PUT, restock or guarded read of this instance.");
    pthread_mutex_lock(&items_mutex);
    for (size_t i = 0; i < item_count; i++)
        fprintf(out, "inventory_stock{item=\"%s\"} %" PRId64 "\n", items[i].name, items[i].left);
    pthread_mutex_unlock(&items_mutex);
    metrics_print_single(
        out, "inventory_stock_untracked_total", "counter",
        "Readings of the stock of other items: inventory_stock has only the first 256.",
        metrics_load(&other));
}

static void print_redis(FILE *out, const struct metrics_now *now)
{
    static const char *const roles[ROLE_COUNT] = {[ROLE_LOCK] = "lock", [ROLE_STOCK] = "stock"};
    metrics_print_head(out, "inventoryd_redis_up", "gauge",
                       "1: the server was reachable when it was last checked.");
    for (int role = 0; role < ROLE_COUNT; role++)
        if (roles[role] != NULL)
            fprintf(out, "inventoryd_redis_up{role=\"%s\"} %d\n", roles[role],
                    !atomic_load(&servers_away[role][0]));
    for (size_t i = 0; i < now->lock_server_count; i++) {
        char name[2 * STOCK_SERVERS_MAX];
        text_quote(name, sizeof name, now->lock_servers[i]);
        fprintf(out, "inventoryd_redis_up{role=\"lock_servers\",server=\"%s\"} %d\n", name,
                !atomic_load(&servers_away[ROLE_LOCK_SERVERS][i]));
    }
}

static void print_ensembles(FILE *out, const struct metrics_now *now)
{
    metrics_print_head(out, "inventoryd_ensemble_up", "gauge",
                       "1: the ensemble granted a lock when it was last checked.");
    for (size_t i = 0; i < ENGINE_COUNT; i++) {
        char name[2 * ENGINE_NAME_MAX];
        if (now->ensembles[i] == NULL)
            continue;
        text_quote(name, sizeof name, now->ensembles[i]);
        fprintf(out, "inventoryd_ensemble_up{engine=\"%s\",servers=\"%s\"} %d\n", engines[i].name,
                name, !atomic_load(&servers_away[ROLE_ENGINES + i][0]));
    }
}

static void print_requests(FILE *out)
{
    metrics_print_head(out, "http_requests_total", "counter",
                       "Answers by route, method and status.");
    for (size_t route = 0; route <= routes_count(); route++)
        for (int method = 0; method < METHOD_COUNT; method++)
            for (size_t i = 0; i < CODES; i++)
                if (metrics_load(&requests[route][method][i]) > 0)
                    fprintf(out,
                            "http_requests_total{route=\"%s\",method=\"%s\",code=\"%u\"} %lu\n",
                            routes_name(route), method_name((enum method)method), codes[i],
                            metrics_load(&requests[route][method][i]));
    metrics_print_single(out, "http_requests_aborted_total", "counter",
                         "Requests whose client was gone before the answer was sent.",
                         metrics_load(&aborted));
}

static void print_locks(FILE *out, const struct metrics_now *now)
{
    const struct dlock_stats *lock = &now->lock;
    print_histogram(out, "lock_acquire_time_seconds", "From asking for the lock to acquiring it.",
                    &acquire_time);
    print_histogram(out, "lock_hold_time_seconds",
                    "From acquiring the lock to the answer to its release.", &hold_time);
    metrics_print_head(out, "lock_valid_seconds", "gauge",
                       "The most that a hold of the current lock had left when it was acquired; "
                       "0: none yet, or it does not expire.");
    fprintf(out, "lock_valid_seconds %.3f\n", (double)now->valid_ms / 1e3);
    metrics_print_single(out, "lock_acquired_total", "counter",
                         "Locks acquired, without those of checks.", metrics_load(&holds));
    metrics_print_single(out, "lock_released_total", "counter",
                         "Releases of these that were confirmed.", metrics_load(&releases));
    metrics_print_single(out, "lock_checks_total", "counter",
                         "Locks that checks acquired, to see whether an ensemble grants any.",
                         metrics_load(&checks));
    metrics_print_single(out, "lock_attempts_total", "counter",
                         "Attempts to acquire a lock; includes successful ones, and checks.",
                         lock->attempts);
    metrics_print_single(out, "lock_contended_total", "counter",
                         "Acquires that found the lock busy.", lock->contended);
    metrics_print_single(out, "lock_handoffs_total", "counter",
                         "Locks handed off inside this instance, without the server.",
                         lock->handoffs);
    metrics_print_single(
        out, "lock_missed_wakeups_total", "counter",
        "Acquisitions that the fallback poll found, not a wake-up: the holder died or the message "
        "was lost.",
        lock->missed_wakeups);
    metrics_print_single(
        out, "lock_grants_expired_total", "counter",
        "Grants that expired: the instance did not claim the lock within --grant-ms.",
        lock->grants_expired);
    metrics_print_single(out, "lock_scripts_loaded_total", "counter",
                         "Scripts sent in full because the server did not know them.",
                         lock->scripts_loaded);
    metrics_print_single(out, "lock_renewals_total", "counter", "Renewals that were confirmed.",
                         lock->renewals);
    metrics_print_single(out, "lock_renewals_failed_total", "counter",
                         "Renewals that were not confirmed.", lock->renewals_failed);
    metrics_print_single(out, "lock_lost_total", "counter",
                         "Holds that were lost before their release.", lock->lost);
    metrics_print_single(out, "lock_unknown_total", "counter", "Calls whose reply was lost.",
                         lock->unknown);
    metrics_print_single(out, "lock_abandoned_total", "counter",
                         "Holds left to expire: a write's reply was lost, and it may still arrive.",
                         lock->abandoned);
    metrics_print_single(out, "lock_redis_commands_total", "counter",
                         "Commands sent to the lock's server.", lock->commands);
    metrics_print_single(out, "lock_redis_connects_total", "counter",
                         "Connections made to the lock's server.", lock->connects);
    metrics_print_single(out, "lock_redis_connects_failed_total", "counter",
                         "Attempts to connect to the lock's server that failed.",
                         lock->connects_failed);
    metrics_print_single(
        out, "lock_redis_lost_total", "counter",
        "Times the lock's server was lost: a connection broke, or none could be made.",
        lock->connections_lost);
    metrics_print_single(out, "lock_redis_refused_total", "counter",
                         "Times the lock's server refused the login, a write, or a subscription.",
                         lock->connections_refused);
    metrics_print_single(out, "lock_redis_restored_total", "counter",
                         "Times the lock's server worked again after it was lost or had refused.",
                         lock->connections_restored);
}

char *metrics_print(const struct metrics_now *now)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    metrics_print_head(out, "inventoryd_info", "gauge", "The version and the current settings.");
    fprintf(out,
            "inventoryd_info{version=\"%s\",instance=\"%s\",rung=\"%s\",write=\"%s\","
            "on_conflict=\"%s\",local_first=\"%s\",admit=\"%s\",segments=\"%s\"} 1\n",
            now->version, now->instance, now->rung, now->write, now->on_conflict,
            now->local_first ? "on" : "off", now->admit, now->segments);
    metrics_print_results(out, "inventory_sales_total", "Sales by how they ended.", "sold", sales);
    metrics_print_results(out, "inventory_guarded_reads_total",
                          "With --guard-reads: reads by how they ended.", "read", reads);
    metrics_print_single(out, "inventory_sales_replayed_total", "counter",
                         "Stored answers given to sales with an Idempotency-Key: nothing was sold.",
                         metrics_load(&replayed));
    metrics_print_single(out, "inventory_sales_aborts_total", "counter",
                         "With --write cas: a sale found the stock changed since it read it.",
                         metrics_load(&aborts));
    print_admissions(out);
    metrics_print_single(out, "inventory_queue_length", "gauge",
                         "Accepted sales in the items' queues, as this instance saw them last.",
                         (unsigned long)now->queued);
    metrics_print_single(out, "inventory_queue_processed_total", "counter",
                         "Accepted sales that this instance gave their outcome.",
                         metrics_load(&processed));
    metrics_print_single(out, "inventory_queue_requeued_total", "counter",
                         "Attempts of this instance at an accepted sale that left it queued.",
                         metrics_load(&requeued));
    print_stock(out);
    print_locks(out, now);
    print_redis(out, now);
    print_ensembles(out, now);
    metrics_print_single(out, "inventoryd_queue_depth", "gauge", "Requests that wait for a worker.",
                         now->queue_depth);
    metrics_print_single(out, "inventoryd_queue_limit", "gauge", "Requests that may wait at most.",
                         now->queue_max);
    metrics_print_single(out, "inventoryd_sales_in_flight", "gauge",
                         "Sales accepted and not answered yet.", (unsigned long)now->in_flight);
    metrics_print_single(out, "inventoryd_sales_waiting", "gauge",
                         "Sales that wait for their lock.", (unsigned long)now->waiting);
    metrics_print_single(out, "inventoryd_epoch", "gauge",
                         "The stock's epoch as this instance saw it last; 0: not seen.",
                         (unsigned long)now->epoch);
    metrics_print_single(
        out, "inventoryd_epoch_refused", "gauge",
        "1: the epoch stands for another lock, and this instance sells nothing until it is "
        "switched.",
        now->epoch_refused);
    metrics_print_single(out, "inventoryd_epoch_raised_total", "counter",
                         "Times this instance raised the stock's epoch.", now->epochs_raised);
    metrics_print_single(out, "inventoryd_history_lost_total", "counter",
                         "Lines that the history lacks: they could not be written.",
                         now->history_lost);
    print_requests(out);
    return fclose(out) == 0 ? text : NULL;
}
