/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses a client's engine by the scheme of its servers' URLs.
 */
#include "engine.h"

#include <string.h>

#define ENGINES_MAX 8

static const struct engine *engines[ENGINES_MAX] = {&engine_redis};

static bool is_of(const struct engine *engine, const char *url)
{
    for (size_t i = 0; engine->schemes[i] != NULL; i++)
        if (strncmp(url, engine->schemes[i], strlen(engine->schemes[i])) == 0)
            return true;
    return false;
}

static const struct engine *engine_find(const char *url)
{
    for (size_t i = 0; i < ENGINES_MAX && engines[i] != NULL; i++)
        if (url != NULL && is_of(engines[i], url))
            return engines[i];
    return engines[0];
}

const struct engine *engine_for(const char *const *urls, size_t count)
{
    const struct engine *engine = engine_find(urls[0]);
    for (size_t i = 1; i < count; i++)
        if (engine_find(urls[i]) != engine) {
            fail(DLOCK_INVALID,
                 "servers[0] is of %s, servers[%zu] of %s; all servers of a client "
                 "are of one kind",
                 engine->name, i, engine_find(urls[i])->name);
            return NULL;
        }
    return engine;
}

bool engine_add(const struct engine *engine)
{
    size_t i = 0;
    while (i < ENGINES_MAX && engines[i] != NULL)
        i++;
    if (i == ENGINES_MAX)
        return false;
    engines[i] = engine;
    return true;
}
