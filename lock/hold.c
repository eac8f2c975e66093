/* SPDX-License-Identifier: Apache-2.0
 *
 * What a hold answers without a request.
 */
#include "client.h"
#include "handoff.h"

#include <stdlib.h>

struct dlock_hold *hold_new(struct dlock *lock)
{
    bool is_quorum = (lock->ops->traits & TRAIT_QUORUM) != 0;
    size_t besides = lock->handoff != NULL ? sizeof(struct handoff_hold) : 0;
    struct dlock_hold *hold = calloc(1, sizeof *hold + besides);
    struct quorum_hold *quorum = is_quorum ? calloc(1, sizeof *quorum) : NULL;
    if (hold == NULL || (is_quorum && quorum == NULL)) {
        free(hold);
        free(quorum);
        return NULL;
    }
    hold->lock = lock;
    hold->key = lock->name;
    hold->beside = lock->beside;
    if (lock->handoff != NULL)
        hold->handoff = (struct handoff_hold *)(hold + 1);
    if (quorum != NULL)
        atomic_store(&quorum->users, 1);
    hold->quorum = quorum;
    return hold;
}

void hold_free(struct dlock_hold *hold)
{
    if (hold != NULL && hold->quorum != NULL)
        quorum_drop(hold->quorum);
    free(hold);
}

void quorum_drop(struct quorum_hold *quorum)
{
    if (atomic_fetch_sub(&quorum->users, 1) == 1)
        free(quorum);
}

void hold_set_end(struct dlock_hold *hold, int64_t begin_ns)
{
    if (hold->hold_max_ms != 0)
        hold->ends_ns = begin_ns + hold->hold_max_ms * NS_PER_MS;
}

bool dlock_valid(const dlock_hold *hold)
{
    if (hold == NULL)
        return false;
    int64_t until_ns = atomic_load_explicit(&hold->valid_until_ns, memory_order_acquire);
    return hold->fork_generation == fork_generation() && hold->lock->client->now_ns() < until_ns;
}

int64_t dlock_remaining_ms(const dlock_hold *hold)
{
    if (hold == NULL)
        return 0;
    int64_t until_ns = atomic_load_explicit(&hold->valid_until_ns, memory_order_acquire);
    if (hold->fork_generation != fork_generation())
        return 0;
    if (until_ns == INT64_MAX)
        return DLOCK_NEVER_EXPIRES;
    int64_t left_ns = until_ns - hold->lock->client->now_ns();
    return left_ns > 0 ? left_ns / NS_PER_MS : 0;
}

const char *dlock_owner(const dlock_hold *hold)
{
    return hold != NULL ? hold->owner : "";
}

uint64_t dlock_acquisition(const dlock_hold *hold)
{
    return hold != NULL ? hold->acquisition : 0;
}

uint64_t dlock_token(const dlock_hold *hold)
{
    return hold != NULL ? hold->token : 0;
}

const char *dlock_identity(const dlock_hold *hold)
{
    return hold != NULL ? hold->identity.text : "";
}

bool dlock_handed_off(const dlock_hold *hold)
{
    return hold != NULL && hold->handoff != NULL && hold->handoff->joined;
}
