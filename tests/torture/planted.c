/* SPDX-License-Identifier: Apache-2.0
 *
 * See planted.h.
 */
#include "planted.h"

#include "redis_rung.h"

static enum planted planted;

void planted_set(enum planted mistake)
{
    planted = mistake;
}

struct votes __real_rung_poll(struct rung_env *env, const struct script *script,
                              const char *const *argv, const struct question *question, void *arg);
struct votes __wrap_rung_poll(struct rung_env *env, const struct script *script,
                              const char *const *argv, const struct question *question, void *arg);

struct votes __wrap_rung_poll(struct rung_env *env, const struct script *script,
                              const char *const *argv, const struct question *question, void *arg)
{
    struct votes votes = __real_rung_poll(env, script, argv, question, arg);
    if (planted == PLANTED_MINORITY)
        votes.needed--;
    return votes;
}
