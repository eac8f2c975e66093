/* SPDX-License-Identifier: Apache-2.0
 *
 * See engines.h. The linker leaves an engine's function NULL if the build does not have the engine.
 */
#include "engines.h"

#include "text.h"

#include <stdlib.h>
#include <string.h>

#define HOSTS_MAX 64

#define X(NAME, name, scheme, example, package)                                                    \
    const struct dlock_engine *dlock_##name(void) __attribute__((weak));
#include "engines.def"
#undef X

const struct engine engines[ENGINE_COUNT] = {
#define X(NAME, name, scheme, example, package)                                                    \
    {#name, scheme, example, "DLOCK_" #NAME, package, dlock_##name},
#include "engines.def"
#undef X
};

const struct engine *engine_of_rung(const struct dlock_rung *rung)
{
    for (size_t i = 0; i < ENGINE_COUNT; i++)
        if (strcmp(engines[i].name, rung->engine) == 0)
            return &engines[i];
    return NULL;
}

const struct engine *engine_of_url(const char *url)
{
    for (size_t i = 0; i < ENGINE_COUNT; i++)
        if (strncmp(url, engines[i].scheme, strlen(engines[i].scheme)) == 0)
            return &engines[i];
    return NULL;
}

static int compare_hosts(const void *one, const void *two)
{
    return strcmp(*(char *const *)one, *(char *const *)two);
}

/* Appends the hosts of the list, which is cut up. */
static bool add_hosts(char *name, char *list)
{
    char *hosts[HOSTS_MAX];
    size_t count = 0;
    const size_t used = strlen(name);
    for (char *host; (host = strsep(&list, ",")) != NULL; count++) {
        if (count == HOSTS_MAX)
            return false;
        hosts[count] = host;
    }
    qsort(hosts, count, sizeof *hosts, compare_hosts);
    for (size_t i = 0; i < count; i++) {
        char *to = name + used;
        const char *separator = i > 0 ? "," : "";
        if (strlen(name) + strlen(hosts[i]) + 1 > ENGINE_NAME_MAX)
            return false;
        strcat(strcat(to, separator), hosts[i]);
    }
    return true;
}

bool engine_name(const struct engine *engine, const char *url, char name[ENGINE_NAME_MAX + 1])
{
    const char *from = url + strlen(engine->scheme);
    const char *end = from + strcspn(from, "?");
    const char *path = memchr(from, '/', (size_t)(end - from));
    const char *hosts_end = path != NULL ? path : end;
    const char *at = memrchr(from, '@', (size_t)(hosts_end - from));
    const char *hosts = at != NULL ? at + 1 : from;
    char *list = strndup(hosts, (size_t)(hosts_end - hosts));
    strcpy(name, engine->scheme);
    bool fits = list != NULL && add_hosts(name, list) &&
                strlen(name) + (size_t)(end - hosts_end) <= ENGINE_NAME_MAX;
    free(list);
    if (fits)
        strncat(name, hosts_end, (size_t)(end - hosts_end));
    return fits;
}
