/* SPDX-License-Identifier: Apache-2.0
 *
 * See engines.h. The linker leaves an engine's function NULL if the build does not have the engine.
 */
#include "engines.h"

#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(NAME, name, scheme, tls_scheme, example, package)                                        \
    const struct dlock_engine *dlock_##name(void) __attribute__((weak));
#include "engines.def"
#undef X

const struct engine engines[ENGINE_COUNT] = {
#define X(NAME, name, scheme, tls_scheme, example, package)                                        \
    {#name, scheme, tls_scheme, example, "DLOCK_" #NAME, package, dlock_##name},
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

static bool begins_with(const char *url, const char *scheme)
{
    return scheme[0] != '\0' && strncmp(url, scheme, strlen(scheme)) == 0;
}

const struct engine *engine_of_url(const char *url)
{
    for (size_t i = 0; i < ENGINE_COUNT; i++)
        if (begins_with(url, engines[i].scheme) || begins_with(url, engines[i].tls_scheme))
            return &engines[i];
    return NULL;
}

size_t engine_scheme_size(const struct engine *engine, const char *url)
{
    return strlen(begins_with(url, engine->scheme) ? engine->scheme : engine->tls_scheme);
}

static int compare_hosts(const void *one, const void *two)
{
    return strcmp(*(char *const *)one, *(char *const *)two);
}

/* Appends the hosts of the list, which is cut up. */
static bool add_hosts(char *name, char *list)
{
    char *hosts[ENGINE_HOSTS_MAX];
    size_t count = 0;
    const size_t used = strlen(name);
    for (char *host; (host = strsep(&list, ",")) != NULL; count++) {
        if (count == ENGINE_HOSTS_MAX)
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
    const size_t scheme_size = engine_scheme_size(engine, url);
    const char *from = url + scheme_size;
    const char *end = from + strcspn(from, "?");
    const char *path = memchr(from, '/', (size_t)(end - from));
    const char *hosts_end = path != NULL ? path : end;
    const char *at = memrchr(from, '@', (size_t)(hosts_end - from));
    const char *hosts = at != NULL ? at + 1 : from;
    char *list = strndup(hosts, (size_t)(hosts_end - hosts));
    snprintf(name, ENGINE_NAME_MAX + 1, "%.*s", (int)scheme_size, url);
    bool fits = list != NULL && add_hosts(name, list) &&
                strlen(name) + (size_t)(end - hosts_end) <= ENGINE_NAME_MAX;
    free(list);
    if (fits)
        strncat(name, hosts_end, (size_t)(end - hosts_end));
    return fits;
}
