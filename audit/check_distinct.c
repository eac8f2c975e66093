/* SPDX-License-Identifier: Apache-2.0
 *
 * Distinct: every unit is sold once. A sale of q units covers unit ... unit + q - 1. A stock of N
 * is the units 1 ... N on the shelf; a restock from B to A puts B + 1 ... A there again. A unit
 * that was sold more often than it was in stock is an oversale, whatever the write mode.
 *
 * Possible restocks may or may not have been carried out. They excuse at most as many sales as they
 * would have added units. Each of them excuses a unit once. No restock excuses a sale that happened
 * before it began.
 *
 * If a stock lies over n segments, there is a shelf for each. Segment s has the units s, s + n,
 * s + 2n and so on, here counted as its places 1, 2, 3. Any restock levels the segments, so a
 * possible one may have brought any number of units to any segment.
 */
#include "check.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

/* The units of a sale, as places on a shelf. */
struct spot {
    uint8_t segments; /* over which the stock lies */
    uint8_t segment;
    int64_t first;
    int64_t count;
};

/* The segment follows from the unit: the buyer was told only that. Of a sale that only the client's
 * record shows, only the unit is known if the others may be in another segment. */
static struct spot spot_of(const struct sale *sale)
{
    const int64_t segments = sale->segments;
    int64_t first = sale->unit - 1;
    int64_t rest = first % segments;
    if (rest < 0)
        rest += segments;
    return (struct spot){.segments = sale->segments,
                         .segment = (uint8_t)(rest + 1),
                         .first = (first - rest) / segments + 1,
                         .count = segments > 1 && sale->section == NULL ? 1 : sale->quantity};
}

static int64_t unit_at(const struct spot *place, int64_t at)
{
    return (at - 1) * place->segments + place->segment;
}

/* From unit `at` on, the number of sales, and of units on the shelf, changes by these amounts. */
struct edge {
    int64_t at;
    uint32_t item;
    uint8_t segments, segment; /* of the shelf */
    int8_t sold;
    int8_t supply;
};

static int distinct_by_shelf(const struct edge *one, const struct edge *two)
{
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->segments != two->segments)
        return one->segments < two->segments ? -1 : 1;
    return (one->segment > two->segment) - (one->segment < two->segment);
}

static int distinct_by_unit(const void *a, const void *b)
{
    const struct edge *one = a;
    const struct edge *two = b;
    int order = distinct_by_shelf(one, two);
    return order != 0 ? order : (one->at > two->at) - (one->at < two->at);
}

struct edges {
    struct edge *list;
    size_t count, capacity;
};

enum what { SALE, SHELF };

/* If count < 0, this removes units from the shelf. */
static void add_range(struct edges *edges, size_t item, const struct spot *place, enum what what)
{
    for (int step = 1; step >= -1 && place->count != 0; step -= 2) {
        edges->list = memory_grow(edges->list, edges->count, &edges->capacity, sizeof *edges->list);
        edges->list[edges->count++] = (struct edge){
            .at = step > 0 ? place->first : place->first + place->count,
            .item = (uint32_t)item,
            .segments = place->segments,
            .segment = place->segment,
            .sold = what == SALE ? (int8_t)step : 0,
            .supply = what == SHELF ? (int8_t)step : 0,
        };
    }
}

/* A client's record may state any number; a number that cannot be a unit proves nothing. */
static bool is_proof(const struct sale *sale)
{
    return !sale->disputed && sale->segments > 0 && sale->unit >= -UNITS_MAX &&
           sale->unit <= UNITS_MAX;
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

static int64_t at_least_none(int64_t units)
{
    return units > 0 ? units : 0;
}

/* What a segment has of that many units; as levelled if no record states it. */
static int64_t part_of(const struct run *run, struct layout laid, int64_t units, uint8_t segment)
{
    return at_least_none(laid.parts == NONE ? run_level(units, laid.segments, segment)
                                            : run->parts[laid.parts + segment - 1U]);
}

static int64_t sum_of(const struct run *run, struct layout laid)
{
    int64_t sum = 0;
    for (size_t i = 0; i < laid.segments; i++)
        sum += run->parts[laid.parts + i];
    return sum;
}

/* What is on the shelves at the start. If records differ, no segment has less than any says. */
static void add_shelves(const struct run *run, struct edges *edges)
{
    for (size_t i = 0; i < run->item_count; i++) {
        const struct item *item = &run->items[i];
        const bool differs = item->laid.parts != NONE && sum_of(run, item->laid) != item->shelf;
        for (uint8_t segment = 1; segment <= item->laid.segments; segment++) {
            int64_t part = part_of(run, item->laid, item->shelf, segment);
            int64_t level = run_level(item->shelf, item->laid.segments, segment);
            if (differs && level > part)
                part = level;
            add_range(edges, i, &(struct spot){item->laid.segments, segment, 1, part}, SHELF);
        }
    }
}

/* It laid the stock as `laid`; what was there before stays where it was, unless the layout differs.
 * falls: whether units that it took away are to be removed. */
static void add_laid(const struct run *run, struct edges *edges, const struct restock *restock,
                     bool falls)
{
    const struct layout *laid = restock->laid;
    const int64_t units[2] = {restock->before == NOT_KNOWN ? 0 : restock->before, restock->after};
    const bool same = laid[BEFORE].segments == laid[AFTER].segments;
    for (uint8_t segment = 1; segment <= laid[BEFORE].segments; segment++) {
        int64_t before = part_of(run, laid[BEFORE], units[BEFORE], segment);
        int64_t after = same ? part_of(run, laid[AFTER], units[AFTER], segment) : 0;
        if (falls || after > before)
            add_range(edges, restock->item,
                      &(struct spot){laid[BEFORE].segments, segment, before + 1, after - before},
                      SHELF);
    }
    for (uint8_t segment = 1; !same && segment <= laid[AFTER].segments; segment++)
        add_range(edges, restock->item,
                  &(struct spot){laid[AFTER].segments, segment, 1,
                                 part_of(run, laid[AFTER], units[AFTER], segment)},
                  SHELF);
}

static void add_edges(const struct run *run, struct edges *edges, enum which which)
{
    add_shelves(run, edges);
    for (size_t i = 0; i < run->restock_count && which != FIRST; i++) {
        const struct restock *restock = &run->restocks[i];
        const struct possible *possible = &run->items[restock->item].possible;
        bool is_late = possible->count > 0 && restock->t_ns >= possible->first_ns;
        if (!is_setup(run, restock)) /* the units that it took away later were there before */
            add_laid(run, edges, restock, which != EARLY || !is_late);
    }
    for (size_t i = 0; i < run->sale_count; i++) {
        const struct sale sale = run_sale(run, i);
        if (!is_proof(&sale) || !is_among(run, &sale, which))
            continue;
        const struct spot place = spot_of(&sale);
        add_range(edges, sale.item, &place, SALE);
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
    add_edges(run, &edges, which);
    if (edges.count > 0)
        qsort(edges.list, edges.count, sizeof *edges.list, distinct_by_unit);
    int64_t sold = 0, supply = 0, distinct = 0;
    for (size_t i = 0; i + 1 < edges.count; i++) { /* each shelf's sums end at 0 */
        const struct edge *edge = &edges.list[i];
        struct excess *excess = &excesses[edge->item];
        sold += edge->sold;
        supply += edge->supply;
        if (sold == 0 || distinct_by_shelf(edge, &edge[1]) != 0)
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
static int64_t distinct_proven(const struct run *run, const struct item *item,
                               const struct excess *all, const struct excess *early,
                               const struct excess *first)
{
    const bool levels = item->possible.count > 0 && run->segments != 1;
    int64_t units = levels ? 0 : distinct_beyond(all->units, item->possible.units);
    int64_t beyond = distinct_is_greater(units, all->deep) + all->below;
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
            distinct_proven(run, &run->items[i], &all[i], &early[i], &first[i]);
    free(all);
    free(early);
    free(first);
}

struct placed {
    struct sale sale;
    struct spot place;
};

static bool is_same_shelf(const struct placed *one, const struct placed *two)
{
    return one->sale.item == two->sale.item && one->place.segments == two->place.segments &&
           one->place.segment == two->place.segment;
}

static int by_item_unit(const void *a, const void *b)
{
    const struct placed *one = a;
    const struct placed *two = b;
    if (one->sale.item != two->sale.item)
        return one->sale.item < two->sale.item ? -1 : 1;
    if (one->place.segments != two->place.segments)
        return one->place.segments < two->place.segments ? -1 : 1;
    if (one->place.segment != two->place.segment)
        return one->place.segment < two->place.segment ? -1 : 1;
    if (one->place.first != two->place.first)
        return one->place.first < two->place.first ? -1 : 1;
    return (one->sale.t_ns > two->sale.t_ns) - (one->sale.t_ns < two->sale.t_ns);
}

static int64_t distinct_is_later(const struct sale *one, const struct sale *two)
{
    return one->t_ns > two->t_ns ? one->t_ns : two->t_ns;
}

/* The pair of sales of one unit that was complete first, and the first sale of a unit <= 0. */
struct first {
    struct sale twice[2];
    int64_t unit; /* of those two */
    struct sale beyond;
    bool any_twice, any_beyond;
};

static struct first distinct_find_first(const struct run *run)
{
    size_t count = 0;
    struct first first = {.any_twice = false};
    struct placed *sales = memory_new(run->sale_count, sizeof *sales);
    for (size_t i = 0; i < run->sale_count; i++) {
        const struct sale sale = run_sale(run, i);
        if (!is_proof(&sale))
            continue;
        if (is_early(run, &sale))
            sales[count++] = (struct placed){sale, spot_of(&sale)};
        if (sale.unit > 0 || (first.any_beyond && sale.t_ns >= first.beyond.t_ns))
            continue;
        first.any_beyond = true;
        first.beyond = sale;
    }
    qsort(sales, count, sizeof *sales, by_item_unit);
    const struct placed *reach = NULL; /* the sale with the highest unit so far */
    for (size_t i = 0; i < count; i++) {
        const struct placed *sale = &sales[i];
        bool same = reach != NULL && is_same_shelf(reach, sale);
        if (same && reach->place.first + reach->place.count > sale->place.first &&
            (!first.any_twice || distinct_is_later(&reach->sale, &sale->sale) <
                                     distinct_is_later(&first.twice[0], &first.twice[1]))) {
            first.any_twice = true;
            first.twice[0] = reach->sale;
            first.twice[1] = sale->sale;
            first.unit = unit_at(&sale->place, sale->place.first);
        }
        if (!same ||
            reach->place.first + reach->place.count < sale->place.first + sale->place.count)
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
        findings_add(&run->findings, RESULT_OVERSOLD,
                     "unit %lld of %.80s was sold twice: to %s and to %s", (long long)first->unit,
                     run->items[one->item].name, name_sale(run, one, text[0]),
                     name_sale(run, two, text[1]));
    if (first->any_beyond)
        findings_add(&run->findings, RESULT_OVERSOLD,
                     "unit %lld of %.80s was sold to %s: there never was such a unit",
                     (long long)first->beyond.unit, run->items[first->beyond.item].name,
                     name_sale(run, &first->beyond, text[0]));
    findings_add(&run->findings, RESULT_OVERSOLD,
                 "units sold more often than they were in stock: %lld",
                 (long long)run->counts.duplicate_units);
}

/* If no record states how the stock lay at the start, its first sale shows it. */
static void find_layouts(struct run *run)
{
    int64_t *first_ns = memory_new(run->item_count, sizeof *first_ns);
    for (size_t i = 0; i < run->item_count; i++)
        first_ns[i] = run->items[i].laid.segments == 0 ? INT64_MAX : INT64_MIN;
    for (size_t i = 0; i < run->sale_count; i++) {
        const struct sale sale = run_sale(run, i);
        if (sale.segments == 0 || sale.section == NULL || sale.t_ns >= first_ns[sale.item])
            continue;
        first_ns[sale.item] = sale.t_ns;
        run->items[sale.item].laid.segments = sale.segments;
    }
    for (size_t i = 0; i < run->item_count; i++) {
        struct layout *laid = &run->items[i].laid;
        if (laid->segments == 0)
            laid->segments = run->segments > 0 ? run->segments : 1;
    }
    free(first_ns);
}

void check_distinct(struct run *run)
{
    find_layouts(run);
    count_resold(run);
    if (run->restocks_lost)
        run->counts.duplicate_units = 0;
    if (run->counts.duplicate_units == 0)
        return;
    struct first first = distinct_find_first(run);
    distinct_keep_first(run, &first);
    distinct_report(run, &first);
}
