/* SPDX-License-Identifier: Apache-2.0
 *
 * Conservation: sold + left == initial and left >= 0. With sales whose outcome nobody knows:
 * sold <= initial - left <= sold + unknown. More than that came from nowhere (conjured, a lost
 * update); less, and units left the stock that nobody was told to have bought (vanished).
 */
#include "check.h"

#include <stdio.h>

static void add_supply(struct run *run)
{
    for (size_t i = 0; i < run->item_count; i++) {
        run->items[i].supply = run->items[i].stock;
        run->items[i].supply_exact = true;
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
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (!section->sold)
            continue;
        run->items[section->item].sold += section->quantity;
        run->counts.sold_by[section->instance] += section->quantity;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->item == NONE)
            continue;
        run->items[request->item].wanted += request->quantity;
        if (is_unknown(run, request))
            run->items[request->item].unknown += request->quantity;
    }
}

static int64_t at_least_0(int64_t number)
{
    return number > 0 ? number : 0;
}

enum fault { NO_RECORD, TOO_MANY, FROM_NOWHERE, BELOW_ZERO, VANISHED, FAULT_COUNT };

/* Adds the item to the sums; says what is wrong with it. */
static void weigh(struct run *run, const struct item *item, bool wrong[FAULT_COUNT])
{
    struct counts *counts = &run->counts;
    int64_t left = item->redis[AFTER].stock;
    counts->initial += item->supply;
    counts->sold += item->sold;
    counts->unknown += item->unknown;
    counts->oversold += at_least_0(item->sold - item->supply);
    wrong[TOO_MANY] = item->sold > item->supply;
    wrong[NO_RECORD] = left == NOT_KNOWN;
    if (wrong[NO_RECORD])
        return;
    counts->left += left;
    counts->conjured += at_least_0(item->sold + left - item->supply);
    wrong[FROM_NOWHERE] = !wrong[TOO_MANY] && item->sold + left > item->supply;
    wrong[BELOW_ZERO] = left < 0;
    wrong[VANISHED] = item->supply_exact && item->supply - left > item->sold + item->unknown;
    if (wrong[VANISHED])
        counts->vanished += item->supply - left - item->sold - item->unknown;
}

static void tell(struct run *run, enum fault fault, const struct item *item, size_t more)
{
    struct findings *findings = &run->findings;
    long long left = item->redis[AFTER].stock;
    long long sold = item->sold;
    long long supply = item->supply;
    char others[64] = "";
    if (more > 0)
        snprintf(others, sizeof others, "; the same with %zu more items", more);
    switch (fault) {
    case NO_RECORD:
        findings_add(findings, RESULT_INCONCLUSIVE,
                     "redis.json does not say how much of %.80s is "
                     "left; \"after\" must hold its stock%s",
                     item->name, others);
        break;
    case TOO_MANY:
        findings_add(findings, RESULT_OVERSOLD,
                     "%.80s: %lld sold, but only %lld were there: %lld "
                     "too many%s",
                     item->name, sold, supply, sold - supply, others);
        break;
    case FROM_NOWHERE:
        findings_add(findings, RESULT_OVERSOLD,
                     "%.80s: %lld sold and %lld left, but only %lld were "
                     "there: %lld came from nowhere (lost updates)%s",
                     item->name, sold, left, supply, sold + left - supply, others);
        break;
    case BELOW_ZERO:
        findings_add(findings, RESULT_OVERSOLD, "%.80s: the stock ended at %lld, below zero%s",
                     item->name, left, others);
        break;
    default:
        findings_add(findings, RESULT_UNDERSOLD,
                     "%.80s: %lld sold and %lld left of %lld: %lld "
                     "vanished, nobody was told to have bought them%s",
                     item->name, sold, left, supply, supply - left - sold - item->unknown, others);
        break;
    }
}

void check_conservation(struct run *run)
{
    const struct item *first[FAULT_COUNT] = {NULL};
    size_t items[FAULT_COUNT] = {0};
    add_supply(run);
    add_sales(run);
    for (size_t i = 0; i < run->item_count; i++) {
        bool wrong[FAULT_COUNT] = {false};
        weigh(run, &run->items[i], wrong);
        for (size_t fault = 0; fault < FAULT_COUNT; fault++) {
            if (wrong[fault] && items[fault]++ == 0)
                first[fault] = &run->items[i];
        }
    }
    for (size_t fault = 0; fault < FAULT_COUNT; fault++) {
        if (items[fault] > 0)
            tell(run, (enum fault)fault, first[fault], items[fault] - 1);
    }
}
