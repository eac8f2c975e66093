/* SPDX-License-Identifier: Apache-2.0
 *
 * The URL of a cluster: etcd://[user:password@]host[:port][,host[:port]...][/path], or etcds:// for
 * TLS, with [?ca=FILE][&cert=FILE&key=FILE].
 */
#ifndef DLOCK_ETCD_URL_H
#define DLOCK_ETCD_URL_H

#include "queued/url_parts.h"

#include <stddef.h>

#define ENDPOINTS_MAX 16

struct etcd_url {
    char *endpoints[ENDPOINTS_MAX]; /* http://host:port */
    size_t endpoint_count;
    char *hosts;           /* as the URL has them */
    char *user, *password; /* or NULL */
    char root[ROOT_MAX];   /* all keys of the library are below it */
    bool tls;
    char *ca, *cert, *key; /* files; or NULL */
};

/* OK, NO_MEMORY, INVALID. Unless OK, nothing is to be freed. */
dlock_status etcd_url_read(struct etcd_url *url, const char *text);
void etcd_url_free(struct etcd_url *url);

#endif
