/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's URL, split into its parts.
 */
#ifndef DLOCK_URL_H
#define DLOCK_URL_H

#include "dlock.h"

#define SENTINELS_MAX 16

struct endpoint {
    char *host;
    char *port; /* as text, for getaddrinfo */
};

struct url {
    char *host;     /* NULL: a unix socket, or the master that sentinels name */
    char *port;     /* as text, for getaddrinfo */
    char *path;     /* of the unix socket, or NULL */
    char *user;     /* or NULL */
    char *password; /* or NULL */
    char *db;       /* as text, or NULL for 0 */
    char *master;   /* the name that the sentinels know it by; NULL: its address is in the URL */
    struct endpoint sentinels[SENTINELS_MAX]; /* with master */
    size_t sentinel_count;
    char *shown; /* the URL without its login, for messages */
    bool whole;  /* no part is missing for want of memory */
};

/* OK, INVALID (dlock_error() says what is wrong and what would be right), NO_MEMORY.
 * If it is not OK, there is nothing to free. */
dlock_status url_parse(const char *text, struct url *url);
void url_free(struct url *url);

/* Whether the two name the same server, whatever their logins, databases and spellings: the same
 * address; or the same master, and one sentinel in common. */
bool url_is_same_server(const struct url *one, const struct url *other);

#endif
