/* SPDX-License-Identifier: Apache-2.0
 *
 * See segments.h.
 */
#include "segments.h"

#include "conflict.h"
#include "section.h"
#include "write.h"

#include <stdlib.h>
#include <string.h>

/* ---- The flag's value ------------------------------------------------------------------------ */

static const char naive_prefix[] = "naive:";

bool segments_parse(const char *text, struct segments *segments, char error[SEGMENTS_ERROR_MAX])
{
    const size_t prefix = strlen(naive_prefix);
    const bool naive = strncmp(text, naive_prefix, prefix) == 0;
    const char *digits = text + (naive ? prefix : 0);
    const size_t size = strspn(digits, "0123456789");
    const int count = size > 0 && size <= 2 && digits[size] == '\0' ? atoi(digits) : 0;
    const bool valid = count >= 1 && count <= SEGMENTS_MAX;
    *segments = (struct segments){.count = valid ? count : 1, .naive = naive && count > 1};
    if (!valid)
        snprintf(error, SEGMENTS_ERROR_MAX,
                 "\"%.60s\" is not " SEGMENTS_FORM ", as in 16 or naive:16", text);
    return valid;
}

void segments_print(const struct segments *segments, char text[SEGMENTS_TEXT_MAX])
{
    snprintf(text, SEGMENTS_TEXT_MAX, "%s%d", segments->naive ? naive_prefix : "",
             segments->count % 100);
}

/* `reentrant_tls` counts in the memory of its thread, which waits for one lock at a time. */
bool segments_lock_fits(const struct dlock_rung *rung)
{
    return strcmp(rung->name, "reentrant_tls") != 0;
}

bool segments_fit(const struct segments *segments, const struct dlock_rung *rung, int write,
                  int on_conflict, char error[SEGMENTS_ERROR_MAX])
{
    const char *why = NULL;
    if (segments->count == 1)
        return true;
    if (write == WRITE_CAS)
        why = "the write mode \"cas\" keeps one version of the whole stock; give decr, set or "
              "atomic (--write), or 1 segment";
    else if (write_is_fenced(write))
        why = "a fence compares the token of one lock, and a sale may need several segments, each "
              "with a lock of its own; give decr, set or atomic (--write), or 1 segment";
    else if (on_conflict == CONFLICT_QUEUE)
        why = "with \"queue\" one sale of an item at a time is processed, so segments gain "
              "nothing; give wait or fail (--on-conflict), or 1 segment";
    else if (!segments_lock_fits(rung))
        why = "a sale may need the locks of several segments, and a thread of \"reentrant_tls\" "
              "waits for one at a time; give another lock (--lock), or 1 segment";
    if (why != NULL)
        snprintf(error, SEGMENTS_ERROR_MAX, "%d segments: %s", segments->count, why);
    return why == NULL;
}

/* ---- Names ----------------------------------------------------------------------------------- */

bool segments_several(const struct sale_env *env)
{
    return env->mode->now.segments.count > 1;
}

/* In the cluster slot of the item's key, as are all keys of the item. */
static void segments_name_key(const struct config *config, const char *item_key, int segment,
                              char text[SEGMENT_KEY_MAX])
{
    snprintf(text, SEGMENT_KEY_MAX,
             config->keys == KEYS_ARTICLE ? "{%s}:segment:%d" : "%s:segment:%d", item_key, segment);
}

void segments_turn(const struct sale_env *env, struct sale *sale, int segment)
{
    sale_name_keys(env->config, sale);
    sale->segment = segment;
    sale->segments = env->mode->now.segments.count;
    segments_name_key(env->config, sale->item_key, segment, sale->stock_key);
    if (segment > 1) {
        const size_t used = strlen(sale->lock_name);
        snprintf(sale->lock_name + used, sizeof sale->lock_name - used, ":%d", segment);
    }
}

void segments_keys(const struct config *config, const struct sale *sale, size_t count,
                   struct segment_keys *keys)
{
    for (size_t i = 0; i < count; i++) {
        segments_name_key(config, sale->item_key, (int)i + 1, keys->text[i]);
        keys->list[i] = keys->text[i];
    }
}

/* ---- What they have -------------------------------------------------------------------------- */

bool segments_read(struct sale_worker *worker, struct sale *sale, int64_t stocks[SEGMENTS_MAX])
{
    const size_t count = (size_t)worker->env->mode->now.segments.count;
    struct segment_keys keys;
    segments_keys(worker->env->config, sale, count, &keys);
    enum stock_status status =
        stock_read_segments(worker->stock, sale->item_key, keys.list, count, stocks);
    if (status != STOCK_OK)
        section_end_by_stock(worker, sale, status);
    return status == STOCK_OK;
}

static int64_t segments_at_least_none(int64_t units)
{
    return units > 0 ? units : 0;
}

int64_t segments_sum(const struct sale_env *env, const int64_t stocks[SEGMENTS_MAX])
{
    int64_t sum = 0;
    for (int i = 0; i < env->mode->now.segments.count; i++)
        sum += segments_at_least_none(stocks[i]);
    return sum;
}

int64_t segments_unit(int segments, int segment, int64_t after)
{
    return after * segments + segment;
}

/* The segment with the most that is not chosen yet. */
static int segments_largest(const int64_t stocks[SEGMENTS_MAX], int count,
                            const bool taken[SEGMENTS_MAX])
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (!taken[i] && (best < 0 || stocks[i] > stocks[best]))
            best = i;
    return best;
}

size_t segments_choose(const int64_t stocks[SEGMENTS_MAX], int count, int own, int64_t quantity,
                       int chosen[SEGMENTS_MAX])
{
    bool taken[SEGMENTS_MAX] = {false};
    size_t chosen_count = 0;
    for (int i = 0; i < count; i++) {
        const int next = (own + i) % count; /* numbered from 0: the one after its own comes first */
        if (stocks[next] < quantity)
            continue;
        chosen[0] = next + 1;
        return 1;
    }
    while (quantity > 0 && chosen_count < (size_t)count) {
        const int best = segments_largest(stocks, count, taken);
        taken[best] = true;
        chosen[chosen_count++] = best + 1;
        quantity -= segments_at_least_none(stocks[best]);
    }
    return chosen_count;
}
