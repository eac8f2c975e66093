/* SPDX-License-Identifier: Apache-2.0
 *
 * See planted.h.
 */
#include "planted.h"

#include "reach.h"
#include "redis_rung.h"
#include "release.h"

#include <stdatomic.h>
#include <stdlib.h>

static enum planted planted;

void planted_set(enum planted mistake)
{
    planted = mistake;
}

/* Of the types that the library declares: a change there does not go unnoticed here. */
__typeof__(rung_poll) __real_rung_poll, __wrap_rung_poll;
__typeof__(reach_named) __real_reach_named, __wrap_reach_named;
__typeof__(release_by) __real_release_by, __wrap_release_by;
__typeof__(qsort) __real_qsort, __wrap_qsort;

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

/* Only dlock_acquire_many calls it from another file. */
dlock_status __wrap_release_by(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns)
{
    static _Atomic unsigned count;
    if (planted == PLANTED_KEEPS && atomic_fetch_add(&count, 1) % 2 == 0)
        return DLOCK_OK;
    return __real_release_by(hold, last, ends_ns);
}

/* Of the library, only dlock_acquire_many sorts. */
void __wrap_qsort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *))
{
    if (planted != PLANTED_UNSORTED)
        __real_qsort(base, count, size, compare);
}
