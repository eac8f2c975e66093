/* SPDX-License-Identifier: Apache-2.0
 *
 * See planted.h.
 */
#include "planted.h"

#include "reach.h"
#include "redis_rung.h"

static enum planted planted;

void planted_set(enum planted mistake)
{
    planted = mistake;
}

/* Of the types that the library declares: a change there does not go unnoticed here. */
__typeof__(rung_poll) __real_rung_poll, __wrap_rung_poll;
__typeof__(reach_named) __real_reach_named, __wrap_reach_named;

struct votes __wrap_rung_poll(struct rung_env *env, const struct script *script,
                              const char *const *argv, const struct question *question, void *arg)
{
    struct votes votes = __real_rung_poll(env, script, argv, question, arg);
    if (planted == PLANTED_MINORITY)
        votes.needed--;
    return votes;
}

void __wrap_reach_named(struct server *server, const struct addresses *addresses, uint64_t epoch,
                        bool anew, const char *reason)
{
    if (planted == PLANTED_STAYS && atomic_load(&server->generation) > 0) {
        struct addresses first = server->known;
        __real_reach_named(server, &first, epoch, false, reason);
        return;
    }
    __real_reach_named(server, addresses, epoch, anew, reason);
}
