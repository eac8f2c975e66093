/* SPDX-License-Identifier: Apache-2.0
 *
 * Subset sums: bit n of a bitset says that some of the quantities sum up to n. A quantity q adds
 * to each sum s the sum s + q, which is the bitset shifted by q. Quantities that occur often are
 * taken in lots of 1, 2, 4 ... of them, so a million sales of one unit cost twenty shifts.
 */
#include "unknown.h"

#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { WORD_BITS = 64, LISTED_MAX = 6 };

struct sums {
    uint64_t *words;
    size_t count;
    int64_t units; /* the greatest sum of interest */
};

void unknown_add(struct item *item, int64_t quantity)
{
    if (quantity <= 0)
        return;
    item->unknowns = memory_grow(item->unknowns, item->unknown_count, &item->unknown_capacity,
                                 sizeof *item->unknowns);
    item->unknowns[item->unknown_count++] = quantity;
    item->unknown += quantity;
}

static int unknown_by_quantity(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a;
    int64_t two = *(const int64_t *)b;
    return (one > two) - (one < two);
}

static void unknown_sort(struct item *item)
{
    if (item->unknown_count > 0)
        qsort(item->unknowns, item->unknown_count, sizeof *item->unknowns, unknown_by_quantity);
}

static bool unknown_has(const struct sums *sums, int64_t units)
{
    return (sums->words[units / WORD_BITS] >> (units % WORD_BITS) & 1) != 0;
}

/* From the highest word down: the words below are still the old ones. */
static void unknown_shift(struct sums *sums, int64_t units)
{
    size_t words = (size_t)(units / WORD_BITS);
    unsigned bits = (unsigned)(units % WORD_BITS);
    for (size_t i = sums->count; i-- > words;) {
        uint64_t shifted = sums->words[i - words] << bits;
        if (bits > 0 && i > words)
            shifted |= sums->words[i - words - 1] >> (WORD_BITS - bits);
        sums->words[i] |= shifted;
    }
}

/* Adds so many sales of one quantity. Returns false beyond the limit. */
static bool unknown_add_lots(struct run *run, struct sums *sums, int64_t quantity, size_t sales)
{
    int64_t rest = sums->units / quantity; /* more of them exceed the greatest sum */
    if ((uint64_t)rest > sales)
        rest = (int64_t)sales;
    for (int64_t lot = 1; rest > 0 && !unknown_has(sums, sums->units); lot *= 2) {
        if (run->unknown_steps + sums->count > UNKNOWN_STEPS_MAX)
            return false;
        run->unknown_steps += sums->count;
        lot = lot < rest ? lot : rest;
        rest -= lot;
        unknown_shift(sums, lot * quantity);
    }
    return true;
}

static enum unknown_answer unknown_search(struct run *run, const struct item *item,
                                          struct sums *sums, int64_t *most)
{
    sums->words[0] = 1;
    for (size_t i = 0, next = 0; i < item->unknown_count; i = next) {
        while (next < item->unknown_count && item->unknowns[next] == item->unknowns[i])
            next++;
        if (!unknown_add_lots(run, sums, item->unknowns[i], next - i))
            return UNKNOWN_TOO_LARGE;
    }
    if (unknown_has(sums, sums->units))
        return UNKNOWN_FITS;
    for (*most = sums->units - 1; !unknown_has(sums, *most);)
        --*most;
    return UNKNOWN_NEVER_FITS;
}

enum unknown_answer unknown_ask(struct run *run, struct item *item, int64_t units, int64_t *most)
{
    if (units == 0 || units == item->unknown)
        return UNKNOWN_FITS;
    *most = units < 0 ? 0 : item->unknown;
    if (units < 0 || units > item->unknown)
        return UNKNOWN_NEVER_FITS;
    if (units > UNKNOWN_UNITS_MAX)
        return UNKNOWN_TOO_LARGE;
    unknown_sort(item);
    struct sums sums = {.count = (size_t)(units / WORD_BITS) + 1, .units = units};
    sums.words = memory_new(sums.count, sizeof *sums.words);
    enum unknown_answer answer = unknown_search(run, item, &sums, most);
    free(sums.words);
    return answer;
}

void unknown_list(struct item *item, char *text, size_t size)
{
    size_t used = 0;
    size_t listed = item->unknown_count <= LISTED_MAX ? item->unknown_count : LISTED_MAX;
    unknown_sort(item);
    for (size_t i = 0; i < listed && used < size; i++) {
        bool last = i + 1 == item->unknown_count;
        used += (size_t)snprintf(text + used, size - used, "%s%lld",
                                 i == 0 ? ""
                                 : last ? " and "
                                        : ", ",
                                 (long long)item->unknowns[i]);
    }
    if (used < size)
        used +=
            (size_t)snprintf(text + used, size - used, " unit%s", item->unknown == 1 ? "" : "s");
    if (listed < item->unknown_count && used < size)
        snprintf(text + used, size - used, " and of %zu more", item->unknown_count - listed);
}
