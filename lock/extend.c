/* SPDX-License-Identifier: Apache-2.0
 *
 * How a hold is extended, and how its end can be watched.
 */
#include "client.h"
#include "explain.h"
#include "cleanup.h"
#include "owner.h"
#include "trace.h"

/* An answer after the end of the hold's validity is too late. */
static dlock_status renew_now(struct dlock_hold *hold, int64_t ends_ns)
{
    struct dlock_client *client = hold->lock->client;
    int64_t sent_ns = 0, ttl_ms = 0;
    dlock_status status = client->engine->extend(hold, ends_ns, &sent_ns, &ttl_ms);
    if (status == DLOCK_LOST)
        timekeeper_lose(&hold->lock->client->timekeeper, hold);
    if (status != DLOCK_OK)
        return status;
    if (ttl_ms <= 0) /* it has ended; its owner may have other holds */
        return DLOCK_LOST;
    timekeeper_extend(&client->timekeeper, hold, sent_ns, ttl_ms);
    return dlock_valid(hold) ? DLOCK_OK : DLOCK_LOST;
}

/* In turn with the owner's other requests. On several servers the engine begins a round instead. */
static bool begin_turn(struct dlock_hold *hold, int64_t ends_ns)
{
    return hold->quorum != NULL || owner_begin_renewal(hold, ends_ns);
}

/* True: the owner's hold is to be released in the background. */
static bool end_turn(struct dlock_hold *hold)
{
    return hold->quorum == NULL && owner_end(hold);
}

dlock_status dlock_extend(dlock_hold *hold)
{
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    struct dlock *lock = hold->lock;
    dlock_status status = check_fork(lock->client);
    if (status != DLOCK_OK)
        return status;
    if (!lock->rung.expires)
        return fail(DLOCK_UNSUPPORTED, "holds of '%s' have no time to live to extend",
                    lock->ops->name);
    if (lock->rung.flawed && !lock->rung.renewed)
        return fail(DLOCK_UNSUPPORTED, "'%s' has no command that extends a hold", lock->ops->name);
    int64_t began_ns = mono_ns(), ends_ns = mono_deadline_ns(bound_ms(lock->client));
    if (!begin_turn(hold, ends_ns))
        return no_turn(lock, began_ns);
    trace_for(hold->user);
    status = dlock_valid(hold) ? renew_now(hold, ends_ns) : DLOCK_LOST;
    if (end_turn(hold))
        cleanup_release_name(hold, 1);
    trace_for(NULL);
    if (status == DLOCK_LOST)
        fail(status, "'%s' was lost before it was extended", hold->key);
    return status == DLOCK_WRONG_TYPE ? explain_type(lock, ends_ns, -1) : status;
}

int dlock_lost_fd(dlock_hold *hold)
{
    if (!GIVEN(hold))
        return -1;
    struct dlock_client *client = hold->lock->client;
    if (check_fork(client) != DLOCK_OK)
        return -1;
    int fd = timekeeper_lost_fd(&client->timekeeper, hold);
    if (fd < 0)
        fail(DLOCK_NO_MEMORY, "no descriptor is left to report the loss of '%s'", hold->key);
    return fd;
}
