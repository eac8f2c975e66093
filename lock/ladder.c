/* SPDX-License-Identifier: Apache-2.0
 *
 * The ladder as a table, from ladder.def and the ops of the rungs.
 */
#include "ladder.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_RUNG "watchdog"
#define FLAWED true
#define SOUND false

#define X(name, flawed, adds, flaw) extern const struct rung_ops rung_##name;
#define E(name, adds, flaw)
#include "ladder.def"
#undef X
#undef E

static const struct {
    const char *name;
    const struct rung_ops *ops; /* NULL: of another engine, which has that name */
    bool flawed;
    const char *adds;
    const char *flaw;
} ladder[] = {
#define X(name, flawed, adds, flaw) {#name, &rung_##name, flawed, adds, flaw},
#define E(name, adds, flaw) {#name, NULL, SOUND, adds, flaw},
#include "ladder.def"
#undef X
#undef E
};

#define RUNG_COUNT (sizeof ladder / sizeof ladder[0])

static struct dlock_rung described[RUNG_COUNT];
static char names[64 + 32 * RUNG_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct dlock_rung describe_ops(const struct rung_ops *ops)
{
    const bool serverless = (ops->traits & TRAIT_SERVERLESS) != 0;
    return (struct dlock_rung){
        .name = ops->name,
        .distributed = !serverless,
        .expires = (ops->traits & TRAIT_EXPIRES) != 0,
        .renewed = ops->renew != NULL || ops->send_renew != NULL,
        .reentrant = (ops->traits & TRAIT_REENTRANT) != 0,
        .handoff = (ops->traits & TRAIT_HANDOFF) != 0,
        .tokens = (ops->traits & TRAIT_TOKEN) != 0,
        .shared = (ops->traits & TRAIT_SHARED) != 0,
        .quorum = (ops->traits & TRAIT_QUORUM) != 0,
        .adds = "",
        .flaw = "",
        .engine = serverless ? "none" : "redis",
    };
}

static struct dlock_rung describe(size_t i)
{
    struct dlock_rung rung = {.name = ladder[i].name,
                              .distributed = true,
                              .expires = true,
                              .renewed = true,
                              .reentrant = true,
                              .tokens = true,
                              .engine = ladder[i].name};
    if (ladder[i].ops != NULL)
        rung = describe_ops(ladder[i].ops);
    rung.flawed = ladder[i].flawed;
    rung.adds = ladder[i].adds;
    rung.flaw = ladder[i].flaw;
    return rung;
}

struct dlock_rung ladder_describe(const struct rung_ops *ops)
{
    for (size_t i = 0; i < RUNG_COUNT; i++)
        if (ladder[i].ops == ops || (ladder[i].ops == NULL && ops->engine != NULL &&
                                     strcmp(ladder[i].name, ops->name) == 0))
            return describe(i);
    return describe_ops(ops);
}

static void add_names(bool flawed)
{
    const char *before = "";
    for (size_t i = 0; i < RUNG_COUNT; i++) {
        size_t used = strlen(names);
        if (ladder[i].flawed != flawed)
            continue;
        snprintf(names + used, sizeof names - used, "%s%s", before, ladder[i].name);
        before = ", ";
    }
}

static void describe_all(void)
{
    for (size_t i = 0; i < RUNG_COUNT; i++)
        described[i] = describe(i);
    add_names(false);
    strcat(names, " and, flawed, kept for teaching: ");
    add_names(true);
}

const struct dlock_rung *dlock_rungs(size_t *count)
{
    pthread_once(&once, describe_all);
    if (count != NULL)
        *count = RUNG_COUNT;
    return described;
}

const char *ladder_names(void)
{
    pthread_once(&once, describe_all);
    return names;
}

static size_t ladder_find(const char *name)
{
    size_t i = 0;
    while (i < RUNG_COUNT && strcmp(ladder[i].name, name != NULL ? name : DEFAULT_RUNG) != 0)
        i++;
    return i;
}

const struct dlock_rung *dlock_rung_find(const char *name)
{
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    size_t i = ladder_find(name);
    return i < count ? &rungs[i] : NULL;
}

const struct rung_ops *ladder_ops(const char *name)
{
    size_t i = ladder_find(name);
    return i < RUNG_COUNT ? ladder[i].ops : NULL;
}
