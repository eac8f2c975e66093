/* SPDX-License-Identifier: Apache-2.0
 *
 * See conflict.h.
 */
#include "conflict.h"

#include "../lock/clock.h"
#include "section.h"

#include <string.h>

static const char *const words[] = {
    [CONFLICT_WAIT] = "wait", [CONFLICT_FAIL] = "fail", [CONFLICT_QUEUE] = "queue"};

const char *conflict_word(int on_conflict)
{
    return words[on_conflict];
}

bool conflict_find(const char *word, int *on_conflict)
{
    for (int i = 0; i < (int)(sizeof words / sizeof words[0]); i++) {
        if (strcmp(words[i], word) != 0)
            continue;
        *on_conflict = i;
        return true;
    }
    return false;
}

bool conflict_fits(int on_conflict, int write, bool flaws, char error[CONFLICT_ERROR_MAX])
{
    char names[WRITE_NAMES_MAX];
    const bool demonstrates = flaws && (write == WRITE_DECR || write == WRITE_SET);
    if (on_conflict != CONFLICT_QUEUE || write_keeps_keys(write) || demonstrates)
        return true;
    write_keeper_names(names);
    snprintf(
        error, CONFLICT_ERROR_MAX,
        "\"queue\" needs a write mode that changes stock, outcome and acknowledgement in one "
        "step: %.80s; with \"%s\" a worker may die between the sale and the acknowledgement, and "
        "another one then sells the request again%s",
        names, write_ways[write].name,
        write == WRITE_DECR || write == WRITE_SET
            ? " (to demonstrate that, start with --enable-failpoints)"
            : "");
    return false;
}

bool conflict_needs_lock(const struct sale_env *env, const struct sale *sale)
{
    if (sale->processes)
        return !sale->expires;
    return env->mode->now.on_conflict != CONFLICT_QUEUE || sale->purpose != SALE_SELL;
}

static bool fails_at_once(const struct sale_env *env, const struct sale *sale)
{
    return env->mode->now.on_conflict == CONFLICT_FAIL && sale->purpose == SALE_SELL &&
           sale->step == STEP_ANSWERED;
}

int64_t conflict_wait_ms(const struct sale_env *env, const struct sale *sale)
{
    const int64_t left_ns = sale->deadline_ns - mono_ns();
    return fails_at_once(env, sale) || left_ns < 0 ? 0 : left_ns / NS_PER_MS;
}

void conflict_end(const struct sale_env *env, struct sale *sale, const char *error)
{
    section_end(sale, fails_at_once(env, sale) ? SALE_LOCK_BUSY : SALE_LOCK_TIMEOUT, error);
}
