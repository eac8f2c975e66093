/* SPDX-License-Identifier: Apache-2.0
 *
 * The engines of locks that are not on Redis. Each is in a package of its own; this build has those
 * that it was configured with. An engine has one rung, of the same name. Its URL names all servers
 * of one ensemble: <scheme>[login@]host,host...[/path][?query], with either scheme.
 */
#ifndef ENGINES_H
#define ENGINES_H

#include <dlock.h>

enum {
#define X(NAME, name, scheme, tls_scheme, example, package) ENGINE_##NAME,
#include "engines.def"
#undef X
    ENGINE_COUNT
};

struct engine {
    const char *name;
    const char *scheme;
    const char *tls_scheme;                  /* "": it has none */
    const char *example;                     /* of its URL */
    const char *option;                      /* of CMake, that builds it */
    const char *package;                     /* of Debian, that the build needs */
    const struct dlock_engine *(*get)(void); /* NULL: this build does not have it */
};
extern const struct engine engines[ENGINE_COUNT];

/* The engine whose rung that is, or whose scheme the URL has; NULL: Redis, or none. */
const struct engine *engine_of_rung(const struct dlock_rung *rung);
const struct engine *engine_of_url(const char *url);
/* The length of the scheme that the URL, which is of that engine, begins with. */
size_t engine_scheme_size(const struct engine *engine, const char *url);

#define ENGINE_NAME_MAX 512
#define ENGINE_HOSTS_MAX 64
/* The ensemble's name: the URL without its login and query, the hosts sorted. False: it is too
 * long, or has too many hosts. */
bool engine_name(const struct engine *engine, const char *url, char name[ENGINE_NAME_MAX + 1]);

#endif
