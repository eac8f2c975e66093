/* SPDX-License-Identifier: Apache-2.0
 *
 * See span.h.
 */
#include "span.h"

#include "../lock/clock.h"
#include "section.h"
#include "segments.h"

#include <inttypes.h>
#include <stdlib.h>

struct span *span_new(const int *segments, size_t count)
{
    struct span *span = calloc(1, sizeof *span);
    if (span == NULL)
        return NULL;
    span->count = count;
    for (size_t i = 0; i < count; i++)
        span->parts[i].segment = segments[i];
    return span;
}

void span_close(struct span *span)
{
    for (size_t i = 0; span != NULL && i < span->count; i++) {
        dlock_close(span->locks[i]);
        span->locks[i] = NULL;
    }
}

void span_free(struct span *span)
{
    span_close(span);
    free(span);
}

struct span *span_first(struct sale *sale, size_t count)
{
    int segments[SEGMENTS_MAX];
    for (size_t i = 0; i < count; i++)
        segments[i] = (int)i + 1;
    struct span *span = span_new(segments, count);
    if (span == NULL)
        section_end(sale, SALE_INTERNAL, "out of memory");
    return span;
}

bool span_open(const struct sale_env *env, struct sale *sale)
{
    struct span *span = sale->span;
    dlock_status status = DLOCK_OK;
    for (size_t i = span->count; status == DLOCK_OK && i-- > 0;) {
        span_turn(env, sale, i);
        status = dlock_open(sale_locks(env)->client, env->mode->now.rung->name, sale->lock_name,
                            &span->locks[i]);
    }
    if (status != DLOCK_OK)
        section_end(sale, SALE_INTERNAL, dlock_error());
    return status == DLOCK_OK;
}

size_t span_count(const struct sale *sale)
{
    return sale->span != NULL ? sale->span->count : 1;
}

void span_name_hold(struct sale *sale)
{
    sale->hold_id[0] = '\0';
    if (sale->hold != NULL)
        snprintf(sale->hold_id, sizeof sale->hold_id, "%s#%" PRIu64, dlock_owner(sale->hold),
                 dlock_acquisition(sale->hold));
}

void span_turn(const struct sale_env *env, struct sale *sale, size_t part)
{
    const struct span *span = sale->span;
    if (span == NULL)
        return;
    segments_turn(env, sale, span->parts[part].segment);
    sale->hold = span->holds[part];
    span_name_hold(sale);
}

void span_forget(const struct sale_env *env, struct sale *sale)
{
    struct lock_owner *lock_owner = sale->lock_owner;
    for (size_t i = sale->span->count; i-- > 0;) {
        dlock_close(lock_owner->lock);
        lock_owner->lock = sale->span->locks[i];
        sale->span->locks[i] = NULL;
        if (lock_owner_forget(lock_owner, sale->span->holds[i])) {
            sale->span->holds[i] = NULL;
        } else {
            sale->span->locks[i] = lock_owner->lock;
            lock_owner->lock = NULL;
        }
    }
    span_turn(env, sale, 0);
}

bool span_is_valid(const struct sale *sale)
{
    if (sale->span == NULL)
        return dlock_valid(sale->hold);
    return dlock_remaining_many_ms(sale->span->holds, sale->span->count) > 0;
}

bool span_share(struct sale *sale)
{
    int64_t wanted = sale->quantity;
    for (size_t i = 0; i < sale->span->count; i++) {
        struct span_part *part = &sale->span->parts[i];
        const int64_t units = part->stock > 0 ? part->stock : 0;
        part->quantity = min_ns(units, wanted);
        wanted -= part->quantity;
        if (part->quantity == 0) /* not needed any more: units were added elsewhere */
            return false;
    }
    return wanted == 0;
}
