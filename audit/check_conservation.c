/* SPDX-License-Identifier: Apache-2.0
 *
 * Conservation: sold + left == initial, and left >= 0. If more was sold, units came from nowhere
 * (surplus, a lost update). If less was sold, units left the stock without a recorded sale
 * (shortfall), unless sales of unknown outcome took them: the sum of some of their quantities.
 */
#include "check.h"
#include "memory.h"
#include "unknown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each item's stock when the first request to buy came: the latest setup restock, otherwise
 * redis.json. */
static void find_start(struct run *run)
{
    int64_t *set_ns = memory_new(run->item_count, sizeof *set_ns);
    for (size_t i = 0; i < run->item_count; i++)
        run->items[i].began = run->items[i].redis[BEFORE].stock;
    for (size_t i = 0; i < run->restock_count; i++) {
        const struct restock *restock = &run->restocks[i];
        if (!is_setup(run, restock) || restock->t_ns < set_ns[restock->item])
            continue;
        run->items[restock->item].began = restock->after;
        run->items[restock->item].laid = restock->laid[AFTER];
        set_ns[restock->item] = restock->t_ns;
    }
    free(set_ns);
}

static void add_supply(struct run *run)
{
    for (size_t i = 0; i < run->item_count; i++) {
        struct item *item = &run->items[i];
        item->shelf = item->began > item->stock ? item->began : item->stock;
        item->supply = item->shelf;
        item->supply_exact = true;
    }
    for (size_t i = 0; i < run->restock_count; i++) {
        const struct restock *restock = &run->restocks[i];
        struct item *item = &run->items[restock->item];
        if (is_setup(run, restock))
            continue;
        item->supply += restock->after;
        if (restock->before == NOT_KNOWN)
            item->supply_exact = false;
        else
            item->supply -= restock->before;
    }
}

static void add_sales(struct run *run)
{
    for (size_t i = 0; i < run->sale_count; i++) {
        const struct sale sale = run_sale(run, i);
        run->items[sale.item].sold += sale.quantity;
        if (sale.disputed)
            run->items[sale.item].disputed += sale.quantity;
        if (sale.instance != NONE)
            run->counts.sold_by[sale.instance] += sale.quantity;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->item == NONE || request->repeats)
            continue;
        run->items[request->item].wanted += request->quantity;
        unknown_add(&run->items[request->item], run_missing_parts(run, request));
        if (is_unknown(run, request))
            unknown_add(&run->items[request->item], request->quantity);
    }
}

enum fault { TOO_MANY, FROM_NOWHERE, BELOW_ZERO, VANISHED, UNEXPLAINED, UNCOMPUTED, FAULT_COUNT };

/* With --write set a late write undoes other sales. So a sum that does not fit proves that the run
 * is not right, and does not prove how. */
static bool conservation_subtracts(const struct run *run)
{
    return strcmp(run->spec.write, "set") != 0;
}

/* Whether the number of missing units is exact. If it is not, the run is inconclusive anyway. */
static bool conservation_is_exact(const struct item *item)
{
    const struct possible *possible = &item->possible;
    return item->supply_exact && item->disputed == 0 && (possible->count == 0 || possible->done);
}

/* Finds out what of the missing units the sales of unknown outcome took. */
static void conservation_explain(struct run *run, struct item *item, bool wrong[FAULT_COUNT])
{
    int64_t most = 0;
    int64_t left = item->redis[AFTER].stock;
    int64_t missing = left == NOT_KNOWN ? item->unknown : item->supply - item->sold - left;
    item->taken = missing < 0 ? 0 : missing > item->unknown ? item->unknown : missing;
    if (item->taken != missing || !conservation_is_exact(item))
        return;
    enum unknown_answer answer = unknown_ask(run, item, missing, &most);
    wrong[UNCOMPUTED] = answer == UNKNOWN_TOO_LARGE;
    wrong[UNEXPLAINED] = answer == UNKNOWN_NEVER_FITS;
    if (!wrong[UNEXPLAINED] || !conservation_subtracts(run))
        return;
    item->taken = most;
    run->counts.shortfall += missing - most;
}

/* Adds the item to the sums, and sets `wrong` for each fault that it shows. */
static void conservation_weigh(struct run *run, struct item *item, bool wrong[FAULT_COUNT])
{
    struct counts *counts = &run->counts;
    int64_t left = item->redis[AFTER].stock;
    int64_t proven = item->sold - item->disputed;
    counts->initial += item->supply;
    counts->sold += item->sold;
    counts->unknown += item->unknown;
    wrong[TOO_MANY] = !run->restocks_lost && proven > item->supply_most;
    if (wrong[TOO_MANY])
        counts->oversold += proven - item->supply_most;
    conservation_explain(run, item, wrong);
    if (left == NOT_KNOWN)
        return; /* read_redis has reported it */
    counts->left += left;
    wrong[FROM_NOWHERE] = !run->restocks_lost && proven + left > item->supply_most;
    if (wrong[FROM_NOWHERE])
        counts->surplus += proven + left - item->supply_most;
    wrong[FROM_NOWHERE] = wrong[FROM_NOWHERE] && !wrong[TOO_MANY];
    wrong[BELOW_ZERO] = left < 0;
    bool set_lower = item->possible.sets; /* it may have taken units away */
    wrong[VANISHED] =
        item->supply_exact && !set_lower && item->supply - left > item->sold + item->unknown;
    if (wrong[VANISHED])
        counts->shortfall += item->supply - left - item->sold - item->unknown;
}

/* Units are missing, though not too many for the sales of unknown outcome. */
static void conservation_report_missing(struct run *run, enum fault fault, struct item *item,
                                        const char *others)
{
    struct findings *findings = &run->findings;
    long long missing = item->supply - item->sold - item->redis[AFTER].stock;
    const char *are = missing == 1 ? "unit is" : "units are";
    const char *sales = item->unknown_count == 1 ? "sale" : "sales";
    char list[160];
    unknown_list(item, list, sizeof list);
    if (fault == UNCOMPUTED)
        findings_add(findings, RESULT_INCONCLUSIVE,
                     "%.80s: %lld %s missing; whether the unknown %s of %s explain just so many "
                     "takes too long to compute%s",
                     item->name, missing, are, sales, list, others);
    else if (conservation_subtracts(run))
        findings_add(findings, RESULT_UNDERSOLD,
                     "%.80s: %lld %s missing; the unknown %s of %s cannot explain it%s", item->name,
                     missing, are, sales, list, others);
    else
        findings_add(findings, RESULT_INCONCLUSIVE,
                     "%.80s: %lld %s missing; the unknown %s of %s cannot explain it. With --write "
                     "set a late write may have undone other sales%s",
                     item->name, missing, are, sales, list, others);
}

static void conservation_report(struct run *run, enum fault fault, struct item *item, size_t more)
{
    struct findings *findings = &run->findings;
    long long left = item->redis[AFTER].stock;
    long long sold = item->sold - item->disputed;
    long long supply = fault == VANISHED ? item->supply : item->supply_most;
    char others[64] = "";
    if (more > 0)
        snprintf(others, sizeof others, "; the same with %zu more items", more);
    switch (fault) {
    case TOO_MANY:
        findings_add(findings, RESULT_OVERSOLD,
                     "%.80s: %lld sold of a stock of %lld: %lld too many%s", item->name, sold,
                     supply, sold - supply, others);
        break;
    case FROM_NOWHERE:
        findings_add(findings, RESULT_OVERSOLD,
                     "%.80s: %lld sold and %lld left of a stock of %lld: %lld came from nowhere "
                     "(lost updates)%s",
                     item->name, sold, left, supply, sold + left - supply, others);
        break;
    case BELOW_ZERO:
        findings_add(findings, RESULT_OVERSOLD, "%.80s: the stock ended at %lld, below zero%s",
                     item->name, left, others);
        break;
    case VANISHED:
        findings_add(findings, RESULT_UNDERSOLD,
                     "%.80s: %lld sold and %lld left of a stock of %lld: %lld vanished without a "
                     "recorded sale%s",
                     item->name, sold, left, supply, supply - left - sold - item->unknown, others);
        break;
    default:
        conservation_report_missing(run, fault, item, others);
        break;
    }
}

void check_conservation(struct run *run)
{
    struct item *first[FAULT_COUNT] = {NULL};
    size_t items[FAULT_COUNT] = {0};
    find_start(run);
    add_supply(run);
    add_sales(run);
    restocks_settle(run);
    for (size_t i = 0; i < run->item_count; i++) {
        bool wrong[FAULT_COUNT] = {false};
        conservation_weigh(run, &run->items[i], wrong);
        for (size_t fault = 0; fault < FAULT_COUNT; fault++) {
            if (wrong[fault] && items[fault]++ == 0)
                first[fault] = &run->items[i];
        }
    }
    for (size_t fault = 0; fault < FAULT_COUNT; fault++) {
        if (items[fault] > 0)
            conservation_report(run, (enum fault)fault, first[fault], items[fault] - 1);
    }
}
