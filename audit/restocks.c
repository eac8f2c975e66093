/* SPDX-License-Identifier: Apache-2.0
 *
 * Restocks with a recorded intent and no known outcome: each may or may not have been carried out.
 * If each sale subtracts its units by a Redis command, the units sold and left may decide it. They
 * do if exactly one of the two fits. Otherwise the run is inconclusive, and the units that they may
 * have added prove no oversale.
 */
#include "check.h"
#include "unknown.h"

#include <stdio.h>
#include <string.h>

/* The time, if the history's times can be compared with others; otherwise INT64_MIN. */
static int64_t proven_ns(const struct run *run, uint32_t number, int64_t t_ns)
{
    const struct history *history = &run->histories[number];
    return history->timed && !history->clock_disputed ? t_ns : INT64_MIN;
}

static void add_possible(struct run *run)
{
    for (size_t i = 0; i < run->intent_count; i++) {
        const struct intent *intent = &run->intents[i];
        if (intent->item == NONE || intent->state == INTENT_SETTLED)
            continue;
        struct possible *possible = &run->items[intent->item].possible;
        int64_t t_ns = proven_ns(run, intent->history, intent->t_ns);
        if (possible->count++ == 0 || t_ns < possible->first_ns)
            possible->first_ns = t_ns;
        possible->units += intent->units;
        possible->sets |= intent->sets;
    }
}

/* Whether what was sold and what is left add up to that supply, apart from sales of unknown
 * outcome. */
static bool restocks_fits(struct run *run, struct item *item, int64_t supply)
{
    int64_t most = 0;
    int64_t missing = supply - item->sold - item->redis[AFTER].stock;
    return unknown_ask(run, item, missing, &most) != UNKNOWN_NEVER_FITS;
}

/* Whether at most one explanation fits the sums. A sale with --write set creates or destroys units
 * itself. A sale of unknown outcome may hide what one of several restocks added, or a restock that
 * sets. */
static bool is_telling(const struct run *run, const struct item *item)
{
    const struct possible *possible = &item->possible;
    bool single = possible->count == 1;
    bool known = item->supply_exact && item->disputed == 0 && item->redis[AFTER].stock != NOT_KNOWN;
    return known && strcmp(run->spec.write, "set") != 0 && (single || !possible->sets) &&
           (item->unknown == 0 || (single && !possible->sets));
}

/* A restock that sets adds an amount that depends on the stock before it. So the sums can only show
 * that it added nothing. */
static bool restocks_settle_item(struct run *run, struct item *item)
{
    struct possible *possible = &item->possible;
    if (!is_telling(run, item))
        return false;
    bool with =
        run->spec.restocked && !possible->sets && restocks_fits(run, item, item->supply_most);
    bool without = restocks_fits(run, item, item->supply);
    if (with == without)
        return false;
    if (with)
        item->supply = item->supply_most;
    else
        *possible = (struct possible){.count = 0};
    possible->done = with;
    item->supply_most = item->supply;
    return true;
}

static const struct intent *first_of(const struct run *run, size_t item)
{
    for (size_t i = 0; i < run->intent_count; i++) {
        if (run->intents[i].item == item && run->intents[i].state != INTENT_SETTLED)
            return &run->intents[i];
    }
    return NULL;
}

static void restocks_report(struct run *run, size_t item, enum result rank, const char *what)
{
    const struct intent *first = first_of(run, item);
    char more[64] = "";
    if (run->items[item].possible.count > 1)
        snprintf(more, sizeof more, ", and %zu more of the item,",
                 run->items[item].possible.count - 1);
    findings_add(
        &run->findings, rank, "%.80s: a restock (%s %lld) that %.40s began at %.3f ms%s %s; %s",
        run->items[item].name, first->sets ? "set to" : "add", (long long)first->units,
        run->spec.instances[run->histories[first->history].instance], run_ms(run, first->t_ns),
        more, what, first->state == INTENT_LOST ? "its reply was lost" : "no outcome is recorded");
}

static void restocks_find_first(struct run *run)
{
    for (size_t i = 0; i < run->item_count; i++) {
        const struct possible *possible = &run->items[i].possible;
        run->items[i].restocked_ns = possible->count > 0 ? possible->first_ns : INT64_MAX;
    }
    for (size_t i = 0; i < run->restock_count; i++) {
        const struct restock *restock = &run->restocks[i];
        struct item *item = &run->items[restock->item];
        int64_t began_ns = proven_ns(run, restock->history, restock->began_ns);
        if (!is_setup(run, restock) && began_ns < item->restocked_ns)
            item->restocked_ns = began_ns;
    }
}

void restocks_settle(struct run *run)
{
    add_possible(run);
    size_t open = 0;
    for (size_t i = 0; i < run->item_count; i++) {
        struct item *item = &run->items[i];
        item->supply_most = item->supply + item->possible.units;
        if (item->possible.count == 0)
            continue;
        if (!restocks_settle_item(run, item)) {
            if (open++ == 0)
                restocks_report(run, i, RESULT_INCOMPLETE, "may or may not have been carried out");
        } else if (item->possible.done)
            restocks_report(run, i, RESULT_OK,
                            "was carried out: only then the units sold and left add up");
    }
    restocks_find_first(run);
}
