/* SPDX-License-Identifier: Apache-2.0
 *
 * Distinct: every unit is sold once. A sale of q units covers unit ... unit + q - 1. A stock of N
 * is the units 1 ... N on the shelf; a restock from B to A puts B + 1 ... A there again. A unit
 * that was sold more often than it was in stock is an oversale, whatever the write mode.
 *
 * Possible restocks may or may not have been carried out. They excuse at most as many sales as they
 * would have added units. Each of them excuses a unit once. No restock excuses a sale that happened
 * before it began.
 */
#include "check.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

/* From unit `at` on, the number of sales, and of units on the shelf, changes by these amounts. */
struct edge {
    int64_t at;
    uint32_t item;
    int8_t sold;
    int8_t supply;
};

static int distinct_by_unit(const void *a, const void *b)
{
    const struct edge *one = a;
    const struct edge *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    return (one->at > two->at) - (one->at < two->at);
}

struct edges {
    struct edge *list;
    size_t count;
};

enum what { SALE, SHELF };

static void add_range(struct edges *edges, size_t item, int64_t from, int64_t to, enum what what)
{
    if (from == to)
        return;
    for (int step = 1; step >= -1; step -= 2)
        edges->list[edges->count++] = (struct edge){
            .at = step > 0 ? from : to,
            .item = (uint32_t)item,
            .sold = what == SALE ? (int8_t)step : 0,
            .supply = what == SHELF ? (int8_t)step : 0,
        };
}

/* A client's record may state any number; a number that cannot be a unit proves nothing. */
static bool is_proof(const struct sale *sale)
{
    return !sale->disputed && sale->unit >= -UNITS_MAX && sale->unit <= UNITS_MAX;
}

/* Which sales are counted. ALL: all of them. EARLY: those before any possible restock of their
 * item. FIRST: those before any restock of it. */
enum which { ALL, EARLY, FIRST };

static bool is_before(const struct run *run, const struct sale *sale, int64_t t_ns)
{
    return sale->section != NULL && run_is_timed(run, sale->section) && sale->t_ns < t_ns;
}

static bool is_early(const struct run *run, const struct sale *sale)
{
    const struct possible *possible = &run->items[sale->item].possible;
    return possible->count == 0 || is_before(run, sale, possible->first_ns);
}

static bool is_among(const struct run *run, const struct sale *sale, enum which which)
{
    if (which == FIRST)
        return is_before(run, sale, run->items[sale->item].restocked_ns);
    return which == ALL || is_early(run, sale);
}

static void add_edges(const struct run *run, struct edges *edges, enum which which)
{
    for (size_t i = 0; i < run->item_count; i++)
        add_range(edges, i, 1, run->items[i].shelf + 1, SHELF);
    for (size_t i = 0; i < run->restock_count && which != FIRST; i++) {
        const struct restock *restock = &run->restocks[i];
        const struct possible *possible = &run->items[restock->item].possible;
        bool is_late = possible->count > 0 && restock->t_ns >= possible->first_ns;
        int64_t before = restock->before > 0 ? restock->before : 0;
        int64_t after = restock->after > 0 ? restock->after : 0;
        if (is_setup(run, restock) || (which == EARLY && is_late && after < before))
            continue; /* the units that it took away later were there before */
        /* if after < before, this removes units from the shelf */
        add_range(edges, restock->item, before + 1, after + 1, SHELF);
    }
    for (size_t i = 0; i < run->sale_count; i++) {
        const struct sale sale = run_sale(run, i);
        if (is_proof(&sale) && is_among(run, &sale, which))
            add_range(edges, sale.item, sale.unit, sale.unit + sale.quantity, SALE);
    }
}

/* Sales of an item beyond what was on the shelf. */
struct excess {
    int64_t units; /* units > 0 */
    int64_t deep;  /* those that remain if each possible restock excuses one sale of every unit */
    int64_t below; /* units <= 0, which no restock adds */
};

static int64_t distinct_beyond(int64_t count, int64_t most)
{
    return count > most ? count - most : 0;
}

/* Fills one excess for each item. Returns how many different units were sold. */
static int64_t count_units(const struct run *run, enum which which, struct excess *excesses)
{
    struct edges edges = {.count = 0};
    edges.list = memory_new(2 * (run->item_count + run->restock_count + run->sale_count),
                            sizeof *edges.list);
    add_edges(run, &edges, which);
    qsort(edges.list, edges.count, sizeof *edges.list, distinct_by_unit);
    int64_t sold = 0, supply = 0, distinct = 0;
    for (size_t i = 0; i + 1 < edges.count; i++) { /* each item's sums end at 0 */
        const struct edge *edge = &edges.list[i];
        struct excess *excess = &excesses[edge->item];
        sold += edge->sold;
        supply += edge->supply;
        if (sold == 0 || edge->item != edge[1].item)
            continue;
        int64_t units = edge[1].at - edge->at;
        int64_t below = edge->at > 0 ? 0 : edge[1].at > 1 ? 1 - edge->at : units; /* units <= 0 */
        int64_t beyond = distinct_beyond(sold, supply > 0 ? supply : 0);
        distinct += units;
        excess->below += beyond * below;
        excess->units += beyond * (units - below);
        excess->deep += distinct_beyond(beyond, (int64_t)run->items[edge->item].possible.count) *
                        (units - below);
    }
    free(edges.list);
    return distinct;
}

static int64_t distinct_is_greater(int64_t one, int64_t two)
{
    return one > two ? one : two;
}

/* How many sales beyond the stock no restock excuses. */
static int64_t distinct_proven(const struct item *item, const struct excess *all,
                               const struct excess *early, const struct excess *first)
{
    int64_t beyond =
        distinct_is_greater(distinct_beyond(all->units, item->possible.units), all->deep) +
        all->below;
    return distinct_is_greater(
        beyond, distinct_is_greater(early->units + early->below, first->units + first->below));
}

static void count_resold(struct run *run)
{
    struct excess *all = memory_new(run->item_count, sizeof *all);
    struct excess *early = memory_new(run->item_count, sizeof *early);
    struct excess *first = memory_new(run->item_count, sizeof *first);
    run->counts.distinct = count_units(run, ALL, all);
    if (run->intent_count > 0) {
        count_units(run, EARLY, early);
        count_units(run, FIRST, first);
    }
    for (size_t i = 0; i < run->item_count; i++)
        run->counts.duplicate_units +=
            distinct_proven(&run->items[i], &all[i], &early[i], &first[i]);
    free(all);
    free(early);
    free(first);
}

static int by_item_unit(const void *a, const void *b)
{
    const struct sale *one = a;
    const struct sale *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->unit != two->unit)
        return one->unit < two->unit ? -1 : 1;
    return (one->t_ns > two->t_ns) - (one->t_ns < two->t_ns);
}

static int64_t distinct_is_later(const struct sale *one, const struct sale *two)
{
    return one->t_ns > two->t_ns ? one->t_ns : two->t_ns;
}

/* The pair of sales of one unit that was complete first, and the first sale of a unit <= 0. */
struct first {
    struct sale twice[2];
    struct sale beyond;
    bool any_twice, any_beyond;
};

static struct first distinct_find_first(const struct run *run)
{
    size_t count = 0;
    struct first first = {.any_twice = false};
    struct sale *sales = memory_new(run->sale_count, sizeof *sales);
    for (size_t i = 0; i < run->sale_count; i++) {
        const struct sale sale = run_sale(run, i);
        if (!is_proof(&sale))
            continue;
        if (is_early(run, &sale))
            sales[count++] = sale;
        if (sale.unit > 0 || (first.any_beyond && sale.t_ns >= first.beyond.t_ns))
            continue;
        first.any_beyond = true;
        first.beyond = sale;
    }
    qsort(sales, count, sizeof *sales, by_item_unit);
    const struct sale *reach = NULL; /* the sale with the highest unit so far */
    for (size_t i = 0; i < count; i++) {
        const struct sale *sale = &sales[i];
        bool same_item = reach != NULL && reach->item == sale->item;
        if (same_item && reach->unit + reach->quantity > sale->unit &&
            (!first.any_twice || distinct_is_later(reach, sale) <
                                     distinct_is_later(&first.twice[0], &first.twice[1]))) {
            first.any_twice = true;
            first.twice[0] = *reach;
            first.twice[1] = *sale;
        }
        if (!same_item || reach->unit + reach->quantity < sale->unit + sale->quantity)
            reach = sale;
    }
    free(sales);
    return first;
}

/* Keeps them for the picture, which shows sections. */
static void distinct_keep_first(struct run *run, const struct first *first)
{
    run->beyond = first->beyond.section; /* NULL if there is none */
    if (first->twice[0].section == NULL || first->twice[1].section == NULL)
        return;
    run->twice = (struct collision){first->twice[0].section, first->twice[1].section};
    if (run->twice.first->at_ns[STAGE_ENTER] > run->twice.second->at_ns[STAGE_ENTER])
        run->twice = (struct collision){run->twice.second, run->twice.first};
}

/* "request 0f3a by a at 1.500 ms" */
static const char *name_sale(const struct run *run, const struct sale *sale, char text[160])
{
    int used = snprintf(text, 160, "request %.60s", run_request_id(run, sale->request));
    if (sale->instance != NONE)
        used += snprintf(text + used, 160 - (size_t)used, " by %.40s",
                         run->spec.instances[sale->instance]);
    if (sale->section != NULL)
        snprintf(text + used, 160 - (size_t)used, " at %.3f ms", run_ms(run, sale->t_ns));
    else
        snprintf(text + used, 160 - (size_t)used, ", as its client was told");
    return text;
}

static void distinct_report(struct run *run, const struct first *first)
{
    /* in the order of their times */
    bool turned = first->twice[0].t_ns > first->twice[1].t_ns;
    const struct sale *one = &first->twice[turned];
    const struct sale *two = &first->twice[!turned];
    char text[2][160];
    if (first->any_twice)
        findings_add(
            &run->findings, RESULT_OVERSOLD, "unit %lld of %.80s was sold twice: to %s and to %s",
            (long long)(one->unit > two->unit ? one->unit : two->unit), run->items[one->item].name,
            name_sale(run, one, text[0]), name_sale(run, two, text[1]));
    if (first->any_beyond)
        findings_add(&run->findings, RESULT_OVERSOLD,
                     "unit %lld of %.80s was sold to %s: there never was such a unit",
                     (long long)first->beyond.unit, run->items[first->beyond.item].name,
                     name_sale(run, &first->beyond, text[0]));
    findings_add(&run->findings, RESULT_OVERSOLD,
                 "units sold more often than they were in stock: %lld",
                 (long long)run->counts.duplicate_units);
}

void check_distinct(struct run *run)
{
    count_resold(run);
    if (run->restocks_lost)
        run->counts.duplicate_units = 0;
    if (run->counts.duplicate_units == 0)
        return;
    struct first first = distinct_find_first(run);
    distinct_keep_first(run, &first);
    distinct_report(run, &first);
}
