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
#include "ladder.def"
#undef X

static const struct {
    const struct rung_ops *ops;
    bool flawed;
    const char *adds;
    const char *flaw;
} ladder[] = {
#define X(name, flawed, adds, flaw) {&rung_##name, flawed, adds, flaw},
#include "ladder.def"
#undef X
};

#define RUNG_COUNT (sizeof ladder / sizeof ladder[0])

static struct dlock_rung described[RUNG_COUNT];
static char names[64 + 32 * RUNG_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct dlock_rung ladder_describe(const struct rung_ops *ops)
{
    struct dlock_rung rung = {
        .name = ops->name,
        .distributed = (ops->traits & TRAIT_SERVERLESS) == 0,
        .expires = (ops->traits & TRAIT_EXPIRES) != 0,
        .renewed = ops->renew != NULL || ops->send_renew != NULL,
        .reentrant = (ops->traits & TRAIT_REENTRANT) != 0,
        .handoff = (ops->traits & TRAIT_HANDOFF) != 0,
        .tokens = (ops->traits & TRAIT_TOKEN) != 0,
        .shared = (ops->traits & TRAIT_SHARED) != 0,
        .quorum = (ops->traits & TRAIT_QUORUM) != 0,
        .adds = "",
        .flaw = "",
    };
    for (size_t i = 0; i < RUNG_COUNT; i++) {
        if (ladder[i].ops != ops)
            continue;
        rung.flawed = ladder[i].flawed;
        rung.adds = ladder[i].adds;
        rung.flaw = ladder[i].flaw;
    }
    return rung;
}

static void add_names(bool flawed)
{
    const char *before = "";
    for (size_t i = 0; i < RUNG_COUNT; i++) {
        size_t used = strlen(names);
        if (ladder[i].flawed != flawed)
            continue;
        snprintf(names + used, sizeof names - used, "%s%s", before, ladder[i].ops->name);
        before = ", ";
    }
}

static void describe_all(void)
{
    for (size_t i = 0; i < RUNG_COUNT; i++)
        described[i] = ladder_describe(ladder[i].ops);
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
    while (i < RUNG_COUNT && strcmp(ladder[i].ops->name, name != NULL ? name : DEFAULT_RUNG) != 0)
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
