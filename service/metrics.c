/* SPDX-License-Identifier: Apache-2.0
 *
 * See metrics.h.
 */
#include "metrics.h"

#include "http_meter.h"
#include "lock_meter.h"
#include "meter.h"
#include "shop_routes.h"
#include "text.h"

#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 256

static atomic_ulong sales[SALE_RESULT_COUNT], reads[SALE_RESULT_COUNT];
static atomic_ulong replayed, aborts, processed, requeued, admissions[STOCK_VERDICTS];
static atomic_bool servers_away[ROLE_COUNT][LOCK_SERVERS_MAX];

static pthread_mutex_t items_mutex = PTHREAD_MUTEX_INITIALIZER; /* protects the items */
static struct {
    char name[ITEM_MAX + 1];
    int64_t left;
} items[ITEMS_MAX];
static size_t item_count;
static atomic_ulong other; /* readings of items that have no place in `items` */

void metrics_sale(int result)
{
    meter_add(&sales[result], 1);
}

void metrics_read(int result)
{
    meter_add(&reads[result], 1);
}

void metrics_replayed(void)
{
    meter_add(&replayed, 1);
}

void metrics_admission(enum stock_verdict verdict)
{
    meter_add(&admissions[verdict], 1);
}

void metrics_abort(void)
{
    meter_add(&aborts, 1);
}

void metrics_queue(bool settled, bool passed)
{
    if (!passed)
        meter_add(settled ? &processed : &requeued, 1);
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
        meter_add(&other, 1);
    }
    pthread_mutex_unlock(&items_mutex);
}

void metrics_server(enum server_role role, size_t number, bool up)
{
    atomic_store(&servers_away[role][number], !up);
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* done: the outcome's name for SALE_SOLD. */
static void metrics_print_results(FILE *out, const char *metric, const char *help, const char *done,
                                  atomic_ulong results[SALE_RESULT_COUNT])
{
    static const char *const names[] = {
#define X(name, event, reason) #name,
        SALE_RESULTS(X)
#undef X
    };
    meter_print_head(out, metric, "counter", help);
    for (size_t i = 0; i < SALE_RESULT_COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", i == SALE_SOLD ? done : names[i]);
        for (char *c = name; *c != '\0'; c++)
            *c = (char)tolower((unsigned char)*c);
        fprintf(out, "%s{outcome=\"%s\"} %lu\n", metric, name, meter_load(&results[i]));
    }
}

static void print_admissions(FILE *out)
{
    static const char *const outcomes[STOCK_VERDICTS] = {[STOCK_ADMITTED] = "admitted",
                                                         [STOCK_ADMITTED_KEPT] = "stored_answer",
                                                         [STOCK_NOT_ADMITTED] = "refused"};
    meter_print_head(out, "inventory_admissions_total", "counter",
                     "With --admit: sales that asked for their admission. stored_answer: admitted "
                     "without a token.");
    for (int i = 0; i < STOCK_VERDICTS; i++)
        fprintf(out, "inventory_admissions_total{outcome=\"%s\"} %lu\n", outcomes[i],
                meter_load(&admissions[i]));
}

static void print_stock(FILE *out)
{
    meter_print_head(
        out, "inventory_stock", "gauge",
        "The stock by the latest sale, PUT, restock or guarded read of this instance.");
    pthread_mutex_lock(&items_mutex);
    for (size_t i = 0; i < item_count; i++)
        fprintf(out, "inventory_stock{item=\"%s\"} %" PRId64 "\n", items[i].name, items[i].left);
    pthread_mutex_unlock(&items_mutex);
    meter_print_single(
        out, "inventory_stock_untracked_total", "counter",
        "Readings of the stock of other items: inventory_stock has only the first 256.",
        meter_load(&other));
}

static void print_redis(FILE *out, const struct metrics_now *now)
{
    static const char *const roles[ROLE_COUNT] = {[ROLE_LOCK] = "lock", [ROLE_STOCK] = "stock"};
    meter_print_head(out, "inventoryd_redis_up", "gauge",
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
    meter_print_head(out, "inventoryd_ensemble_up", "gauge",
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

char *metrics_print(const struct metrics_now *now)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    meter_print_head(out, "inventoryd_info", "gauge", "The version and the current settings.");
    fprintf(out,
            "inventoryd_info{version=\"%s\",instance=\"%s\",rung=\"%s\",write=\"%s\","
            "on_conflict=\"%s\",local_first=\"%s\",admit=\"%s\",segments=\"%s\"} 1\n",
            now->version, now->instance, now->rung, now->write, now->on_conflict,
            now->local_first ? "on" : "off", now->admit, now->segments);
    metrics_print_results(out, "inventory_sales_total", "Sales by how they ended.", "sold", sales);
    metrics_print_results(out, "inventory_guarded_reads_total",
                          "With --guard-reads: reads by how they ended.", "read", reads);
    meter_print_single(out, "inventory_sales_replayed_total", "counter",
                       "Stored answers given to sales with an Idempotency-Key: nothing was sold.",
                       meter_load(&replayed));
    meter_print_single(out, "inventory_sales_aborts_total", "counter",
                       "With --write cas: a sale found the stock changed since it read it.",
                       meter_load(&aborts));
    print_admissions(out);
    meter_print_single(out, "inventory_queue_length", "gauge",
                       "Accepted sales in the items' queues, as this instance saw them last.",
                       (unsigned long)now->queued);
    meter_print_single(out, "inventory_queue_processed_total", "counter",
                       "Accepted sales that this instance gave their outcome.",
                       meter_load(&processed));
    meter_print_single(out, "inventory_queue_requeued_total", "counter",
                       "Attempts of this instance at an accepted sale that left it queued.",
                       meter_load(&requeued));
    print_stock(out);
    lock_meter_print(out, &now->lock, now->valid_ms);
    print_redis(out, now);
    print_ensembles(out, now);
    meter_print_single(out, "inventoryd_queue_depth", "gauge", "Requests that wait for a worker.",
                       now->queue_depth);
    meter_print_single(out, "inventoryd_queue_limit", "gauge", "Requests that may wait at most.",
                       now->queue_max);
    meter_print_single(out, "inventoryd_sales_in_flight", "gauge",
                       "Sales accepted and not answered yet.", (unsigned long)now->in_flight);
    meter_print_single(out, "inventoryd_sales_waiting", "gauge", "Sales that wait for their lock.",
                       (unsigned long)now->waiting);
    meter_print_single(out, "inventoryd_epoch", "gauge",
                       "The stock's epoch as this instance saw it last; 0: not seen.",
                       (unsigned long)now->epoch);
    meter_print_single(
        out, "inventoryd_epoch_refused", "gauge",
        "1: the epoch stands for another lock, and this instance sells nothing until it is "
        "switched.",
        now->epoch_refused);
    meter_print_single(out, "inventoryd_epoch_raised_total", "counter",
                       "Times this instance raised the stock's epoch.", now->epochs_raised);
    meter_print_single(out, "inventoryd_history_lost_total", "counter",
                       "Lines that the history lacks: they could not be written.",
                       now->history_lost);
    http_meter_print(out, &shop_routes);
    return fclose(out) == 0 ? text : NULL;
}
