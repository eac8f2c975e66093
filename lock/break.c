/* SPDX-License-Identifier: Apache-2.0
 *
 * Frees a lock whoever holds it. Where its key is all there is to a lock, one script serves every
 * rung.
 */
#include "client.h"
#include "holder.h"

extern const struct script lua_break;

static struct answer delete_key(struct rung_env *env, const char *key, const char *const *beside)
{
    (void)beside;
    return EVAL(env, &lua_break, "1", key, env->key_type);
}

dlock_status dlock_break(dlock *lock, struct dlock_holder *broken)
{
    if (!GIVEN(lock))
        return DLOCK_INVALID;
    struct dlock_holder unasked = {.size = sizeof unasked};
    return holder_ask(lock, broken != NULL ? broken : &unasked, true,
                      lock->ops->force_release != NULL ? lock->ops->force_release : delete_key);
}
