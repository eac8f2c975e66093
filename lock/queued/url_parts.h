/* SPDX-License-Identifier: Apache-2.0
 *
 * What is the same in the URLs of several engines: a login, hosts, and the path that all is below.
 */
#ifndef DLOCK_QUEUED_URL_PARTS_H
#define DLOCK_QUEUED_URL_PARTS_H

#include "status.h"

#include <stdbool.h>

#define ROOT_MAX 200 /* bytes of the path, with its NUL */

/* Decodes %XX in place. False: a '%' is not followed by two hex digits other than 00. */
bool url_decode(char *text);
/* One of a list: host, host:port, [host], [host]:port. *colon: the one before the port, or NULL. */
bool url_is_host(const char *host, const char **colon);
/* Copies a path without its last '/'; an empty one is "/dlock". Returns what is wrong with it: the
 * URL "has a path ..."; or NULL. */
const char *url_read_root(char root[ROOT_MAX], const char *from, const char *to);

#endif
