/* SPDX-License-Identifier: Apache-2.0
 *
 * The URL of an ensemble: zk://[user:password@]host[:port][,host[:port]...][/path][?tick_ms=N]
 */
#ifndef DLOCK_ZOOKEEPER_URL_H
#define DLOCK_ZOOKEEPER_URL_H

#include "queued/url_parts.h"

#include <stdint.h>

struct zk_url {
    char *hosts;         /* host:port,host:port */
    char *addresses;     /* the same as zookeeper_init wants them: [::1]:2181 is ::1:2181 */
    char *login;         /* user:password; or NULL */
    char root[ROOT_MAX]; /* all nodes of the library are below it */
    int64_t tick_ms;
};

/* OK, NO_MEMORY, INVALID. Unless OK, nothing is to be freed. */
dlock_status zk_url_read(struct zk_url *url, const char *text);
void zk_url_free(struct zk_url *url);

#endif
