/* SPDX-License-Identifier: Apache-2.0
 *
 * Distinct: every unit is sold once. A sale of q units covers unit ... unit + q - 1; a stock of N
 * is the units 1 ... N on the shelf, and a restock from B to A puts B + 1 ... A there anew. A unit
 * that was sold more often than it was there is an oversale, whichever way the stock is written.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

/* From unit `at` on, so many more (or fewer) sales cover, and so many more are on the shelf. */
struct edge {
    size_t item;
    int64_t at;
    int64_t sold;
    int64_t supply;
};

static int by_unit(const void *a, const void *b)
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

static void add_range(struct edges *edges, size_t item, int64_t from, int64_t to, int64_t sold,
                      int64_t supply)
{
    if (from == to)
        return;
    edges->list[edges->count++] = (struct edge){item, from, sold, supply};
    edges->list[edges->count++] = (struct edge){item, to, -sold, -supply};
}

static void add_edges(const struct run *run, struct edges *edges)
{
    for (size_t i = 0; i < run->item_count; i++)
        add_range(edges, i, 1, run->items[i].stock + 1, 0, 1);
    for (size_t i = 0; i < run->restock_count; i++) {
        const struct restock *restock = &run->restocks[i];
        int64_t before = restock->before > 0 ? restock->before : 0;
        int64_t after = restock->after > 0 ? restock->after : 0;
        if (!is_setup(run, restock)) /* after < before takes units off the shelf */
            add_range(edges, restock->item, before + 1, after + 1, 0, 1);
    }
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (section->sold)
            add_range(edges, section->item, section->unit, section->unit + section->quantity, 1, 0);
    }
}

static void count_units(struct run *run)
{
    struct edges edges = {.count = 0};
    edges.list = memory_new(2 * (run->item_count + run->restock_count + run->section_count),
                            sizeof *edges.list);
    add_edges(run, &edges);
    qsort(edges.list, edges.count, sizeof *edges.list, by_unit);
    int64_t sold = 0;
    int64_t supply = 0;
    for (size_t i = 0; i + 1 < edges.count; i++) { /* each item's sums end at 0 */
        sold += edges.list[i].sold;
        supply += edges.list[i].supply;
        if (sold == 0 || edges.list[i].item != edges.list[i + 1].item)
            continue;
        int64_t units = edges.list[i + 1].at - edges.list[i].at;
        int64_t there = supply > 0 ? supply : 0;
        run->counts.distinct += units;
        run->counts.resold += sold > there ? (sold - there) * units : 0;
    }
    free(edges.list);
}

static int by_item_unit(const void *a, const void *b)
{
    const struct section *one = *(const struct section *const *)a;
    const struct section *two = *(const struct section *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->unit != two->unit)
        return one->unit < two->unit ? -1 : 1;
    int64_t one_ns = one->at_ns[STAGE_WRITE];
    int64_t two_ns = two->at_ns[STAGE_WRITE];
    return (one_ns > two_ns) - (one_ns < two_ns);
}

static int64_t later_write(const struct section *one, const struct section *two)
{
    int64_t one_ns = one->at_ns[STAGE_WRITE];
    int64_t two_ns = two->at_ns[STAGE_WRITE];
    return one_ns > two_ns ? one_ns : two_ns;
}

/* The two sales of one unit that were the first to be both done, and the first sale of a unit that
 * never was. */
static void find_first(struct run *run)
{
    size_t count = 0;
    const struct section **sales = memory_new(run->section_count, sizeof *sales);
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (!section->sold)
            continue;
        sales[count++] = section;
        if (section->unit <= 0 &&
            (run->beyond == NULL || section->at_ns[STAGE_WRITE] < run->beyond->at_ns[STAGE_WRITE]))
            run->beyond = section;
    }
    qsort(sales, count, sizeof *sales, by_item_unit);
    const struct section *reach = NULL; /* covers the highest unit so far */
    for (size_t i = 0; i < count; i++) {
        const struct section *sale = sales[i];
        bool same_item = reach != NULL && reach->item == sale->item;
        struct collision *twice = &run->twice;
        if (same_item && reach->unit + reach->quantity > sale->unit &&
            (twice->first == NULL ||
             later_write(reach, sale) < later_write(twice->first, twice->second)))
            *twice = (struct collision){reach, sale};
        if (!same_item || reach->unit + reach->quantity < sale->unit + sale->quantity)
            reach = sale;
    }
    free(sales);
    if (run->twice.first != NULL &&
        run->twice.first->at_ns[STAGE_ENTER] > run->twice.second->at_ns[STAGE_ENTER])
        run->twice = (struct collision){run->twice.second, run->twice.first};
}

static void tell(struct run *run)
{
    const struct section *first = run->twice.first;
    const struct section *second = run->twice.second;
    if (first != NULL) {
        int64_t unit = first->unit > second->unit ? first->unit : second->unit;
        findings_add(&run->findings, RESULT_OVERSOLD,
                     "unit %lld of %.80s was sold twice: to request "
                     "%.60s by %.40s at %.3f ms and to request %.60s by %.40s at %.3f ms",
                     (long long)unit, run->items[first->item].name,
                     run_request_id(run, first->request), run->asked.instances[first->instance],
                     run_ms(run, first->at_ns[STAGE_WRITE]), run_request_id(run, second->request),
                     run->asked.instances[second->instance],
                     run_ms(run, second->at_ns[STAGE_WRITE]));
    }
    if (run->beyond != NULL)
        findings_add(&run->findings, RESULT_OVERSOLD,
                     "unit %lld of %.80s was sold to request %.60s "
                     "by %.40s at %.3f ms: there never was such a unit",
                     (long long)run->beyond->unit, run->items[run->beyond->item].name,
                     run_request_id(run, run->beyond->request),
                     run->asked.instances[run->beyond->instance],
                     run_ms(run, run->beyond->at_ns[STAGE_WRITE]));
    findings_add(&run->findings, RESULT_OVERSOLD,
                 "units sold more often than they were there: %lld", (long long)run->counts.resold);
}

void check_distinct(struct run *run)
{
    count_units(run);
    if (run->counts.resold == 0)
        return;
    find_first(run);
    tell(run);
}
