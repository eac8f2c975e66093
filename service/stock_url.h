/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a Redis URL. What a valid one is, is decided by the lock library when the settings
 * are read; here it is only taken apart.
 */
#ifndef STOCK_URL_H
#define STOCK_URL_H

#include <stdbool.h>

struct stock_url {
    char *host; /* NULL: a unix socket */
    int port;
    char *path; /* of the unix socket, or NULL */
    char *user; /* or NULL */
    char *password; /* or NULL */
    char *db;       /* or NULL */
    char *shown;    /* without the login, for messages */
};

bool stock_url_parse(const char *url, struct stock_url *parts);
void stock_url_free(struct stock_url *parts);

#endif
