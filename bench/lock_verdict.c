/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_verdict.h.
 */
#include "lock_verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct totals {
    uint64_t turns;
    uint64_t sold;
    uint64_t sold_in_time;
    uint64_t sold_out;
    uint64_t failed;
    uint64_t overlapped;
    uint64_t unanswered; /* waiters with a turn that did not end */
    uint64_t starved;    /* waiters that bought nothing */
    int64_t client_cpu_us;
    double seconds; /* from the start to the latest end of a turn; in a loop, its time */
    double jain_processes;
    double jain_waiters;
};

struct waits {
    size_t count;
    uint32_t *us; /* ascending */
};

/* Jain's index: 1 if all have the same, 1/n if one has everything. */
struct jain {
    double sum;
    double squares;
    double count;
};

static void jain_add(struct jain *jain, double value)
{
    jain->sum += value;
    jain->squares += value * value;
    jain->count++;
}

static double jain_of(const struct jain *jain)
{
    return jain->squares > 0 ? jain->sum * jain->sum / (jain->count * jain->squares) : 0;
}

static void add_tally(struct totals *totals, const struct tally *tally)
{
    uint64_t ended = tally->sold + tally->sold_out + tally->failed;
    totals->turns += tally->turns;
    totals->sold += tally->sold;
    totals->sold_in_time += tally->sold_in_time;
    totals->sold_out += tally->sold_out;
    totals->failed += tally->failed;
    totals->overlapped += tally->overlapped;
    totals->unanswered += ended < tally->turns || tally->turns == 0;
    totals->starved += tally->sold == 0 && tally->sold_out == 0;
}

static struct totals add_up(const struct round *round)
{
    const struct plan *plan = round->plan;
    struct totals totals = {0};
    struct jain processes = {0};
    struct jain waiters = {0};
    int64_t last_ns = 0;
    for (int p = 0; p < plan->processes; p++) {
        double of_process = 0;
        for (int w = 0; w < plan->waiters; w++) {
            const struct tally *tally = &round->parts[p].tallies[w];
            add_tally(&totals, tally);
            of_process += (double)tally->sold_in_time;
            jain_add(&waiters, (double)tally->sold_in_time);
            if (tally->done_ns > last_ns)
                last_ns = tally->done_ns;
        }
        jain_add(&processes, of_process);
        totals.client_cpu_us += round->parts[p].client_cpu_us;
    }
    totals.jain_processes = jain_of(&processes);
    totals.jain_waiters = jain_of(&waiters);
    totals.seconds = (double)(last_ns - round->parts[0].start->opened_ns) / 1e9;
    if (plan->shape == SHAPE_LOOP)
        totals.seconds = (double)plan->loop_ms / 1e3;
    return totals;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static struct waits gather_waits(const struct round *round)
{
    struct waits waits = {0};
    size_t max = (size_t)round->plan->processes * SAMPLES_MAX;
    waits.us = malloc(max * sizeof *waits.us);
    if (waits.us == NULL)
        return waits;
    for (int p = 0; p < round->plan->processes; p++) {
        const struct samples *samples = round->parts[p].samples;
        size_t count = atomic_load(&samples->count);
        for (size_t i = 0; i < count && i < SAMPLES_MAX; i++)
            waits.us[waits.count++] = samples->wait_us[i];
    }
    qsort(waits.us, waits.count, sizeof *waits.us, ascending);
    return waits;
}

static double wait_ms(const struct waits *waits, double quantile)
{
    if (waits->count == 0)
        return 0;
    size_t at = (size_t)(quantile * (double)(waits->count - 1) + 0.5);
    return waits->us[at] / 1e3;
}

/* The reason number `which` why the round is invalid; NULL if there is none. */
static const char *doubt(const struct round *round, const struct totals *totals, int which)
{
    const struct plan *plan = round->plan;
    uint64_t waiters = (uint64_t)plan->processes * (uint64_t)plan->waiters;
    uint64_t stock = (uint64_t)plan->stock;
    uint64_t to_sell = waiters < stock ? waiters : stock;
    bool burst = plan->shape == SHAPE_BURST;
    bool sells = plan->shape != SHAPE_PAIRS;
    const struct {
        bool holds;
        const char *text;
    } doubts[] = {
        {!round->in_time, "not every process was done in time"},
        {totals->failed > 0, "waiters failed"},
        {totals->unanswered > 0, "waiters were never answered"},
        {totals->overlapped > 0, "critical sections overlapped"},
        {burst && totals->starved > 0, "waiters starved"},
        {burst && totals->sold != to_sell, "the units sold are not min(waiters, stock)"},
        {burst && totals->sold_out != waiters - to_sell,
         "waiters were refused while stock was left"},
        {plan->shape == SHAPE_LOOP && totals->sold_out > 0, "the stock ran out within the loop"},
        {sells && round->remains.stock != plan->stock - (int64_t)totals->sold,
         "the stock left is not the initial stock minus the units sold"},
        {round->remains.locked, "the lock's key was left behind"},
    };
    for (size_t i = 0; i < sizeof doubts / sizeof doubts[0]; i++)
        if (doubts[i].holds && which-- == 0)
            return doubts[i].text;
    return NULL;
}

static const char *shape_name(enum shape shape)
{
    return shape == SHAPE_BURST ? "burst" : shape == SHAPE_LOOP ? "loop" : "pairs";
}

bool round_print(const struct round *round)
{
    const struct plan *plan = round->plan;
    struct totals totals = add_up(round);
    struct waits waits = gather_waits(round);
    double sales = totals.sold > 0 ? (double)totals.sold : 1;
    double in_time = (double)totals.sold_in_time;
    bool ok = doubt(round, &totals, 0) == NULL;

    printf("{\"contestant\":\"%s\",\"rung\":\"%s\",\"shape\":\"%s\",\"processes\":%d,"
           "\"waiters\":%d,\"stock\":%" PRId64 ",",
           round->contestant->name, plan->rung != NULL ? plan->rung : "", shape_name(plan->shape),
           plan->processes, plan->waiters, plan->stock);
    printf("\"verdict\":\"%s\",\"reasons\":[", ok ? "ok" : "INVALID");
    for (int i = 0; doubt(round, &totals, i) != NULL; i++)
        printf("%s\"%s\"", i > 0 ? "," : "", doubt(round, &totals, i));
    printf("],\"sold\":%" PRIu64 ",\"sold_out\":%" PRIu64 ",\"failed\":%" PRIu64
           ",\"unanswered\":%" PRIu64 ",\"starved\":%" PRIu64 ",\"overlapped\":%" PRIu64
           ",\"stock_left\":%" PRId64 ",",
           totals.sold, totals.sold_out, totals.failed, totals.unanswered, totals.starved,
           totals.overlapped, round->remains.stock);
    printf("\"sales_per_s\":%.1f,\"makespan_ms\":%.3f,\"us_per_sale\":%.3f,",
           totals.seconds > 0 ? in_time / totals.seconds : 0, totals.seconds * 1e3,
           in_time > 0 ? totals.seconds * 1e6 / in_time : 0);
    printf("\"wait_p50_ms\":%.3f,\"wait_p99_ms\":%.3f,\"wait_max_ms\":%.3f,", wait_ms(&waits, 0.5),
           wait_ms(&waits, 0.99), wait_ms(&waits, 1));
    printf("\"commands_per_sale\":%.3f,\"round_trips_per_sale\":%.3f,"
           "\"redis_cpu_us_per_sale\":%.2f,\"client_cpu_us_per_sale\":%.2f,",
           (double)(round->after.commands - round->before.commands) / sales,
           (double)(round->after.reads - round->before.reads) / sales,
           (double)(round->after.cpu_us - round->before.cpu_us) / sales,
           (double)totals.client_cpu_us / sales);
    printf("\"connections\":%d,\"threads\":%d,\"jain_processes\":%.4f,\"jain_waiters\":%.4f}\n",
           round->connections_peak, round->threads_peak, totals.jain_processes,
           totals.jain_waiters);
    free(waits.us);
    return ok;
}
