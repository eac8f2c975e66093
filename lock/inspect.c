/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators' calls: they ask which owner holds a lock, and free it for any owner.
 */
#include "client.h"
#include "structs.h"

static dlock_status inspect_ask(struct dlock *lock, struct look *look, int64_t ends_ns, bool breaks)
{
    const struct dlock_engine *engine = lock->client->engine;
    if ((lock->ops->traits & TRAIT_SERVERLESS) != 0)
        return fail(DLOCK_UNSUPPORTED, "no server knows who holds a '%s' lock", lock->ops->name);
    return breaks ? engine->break_lock(lock, ends_ns, look)
                  : engine->inspect(lock, ends_ns, -1, look);
}

static dlock_status inspect_or_break(dlock *lock, struct dlock_holder *holder, bool breaks)
{
    struct look look = {0};
    dlock_status status = check_fork(lock->client);
    if (status != DLOCK_OK)
        return status;
    status = struct_check(holder, "holder");
    if (status != DLOCK_OK)
        return status;
    int64_t ends_ns = mono_deadline_ns(bound_ms(lock->client));
    status = inspect_ask(lock, &look, ends_ns, breaks);
    if (status == DLOCK_WRONG_TYPE && look.refused)
        status = explain_type(lock, ends_ns, -1);
    if (status != DLOCK_OK)
        look = (struct look){0};
    struct_give(holder, &look.holder, sizeof look.holder);
    return status;
}

dlock_status dlock_inspect(dlock *lock, struct dlock_holder *holder)
{
    if (!GIVEN(lock) || !GIVEN(holder))
        return DLOCK_INVALID;
    return inspect_or_break(lock, holder, false);
}

dlock_status dlock_break(dlock *lock, struct dlock_holder *broken)
{
    if (!GIVEN(lock))
        return DLOCK_INVALID;
    struct dlock_holder unasked = {.size = sizeof unasked};
    return inspect_or_break(lock, broken != NULL ? broken : &unasked, true);
}
