/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a request comes from a page of another site. DNS may point a name of that site at
 * loopback. The browser then sends that name in Host, and in Origin.
 */
#ifndef ORIGIN_H
#define ORIGIN_H

#include <stdbool.h>

/* Whether a Host header's value, HOST or HOST:PORT, names localhost, a loopback address or the host
 * of `listen`. That is HOST:PORT, as in --admin-listen. The port does not matter. */
bool origin_is_local_host(const char *host, const char *listen);

/* The same for an Origin header's value, http://HOST:PORT. */
bool origin_is_local(const char *origin, const char *listen);

#endif
