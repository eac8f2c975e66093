/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a request comes from a page of another site. Such a site may have a name that its DNS
 * points at loopback: the browser then sends that name in Host, and in Origin.
 */
#ifndef ORIGIN_H
#define ORIGIN_H

#include <stdbool.h>

/* Whether the value of a Host header, HOST or HOST:PORT, is localhost, a loopback address, or the
 * host of `listen` (HOST:PORT, as --admin-listen has it). The port does not matter. */
bool origin_is_local_host(const char *host, const char *listen);

/* The same of the value of an Origin header, http://HOST:PORT. */
bool origin_is_local(const char *origin, const char *listen);

#endif
