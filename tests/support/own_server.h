/* SPDX-License-Identifier: Apache-2.0
 *
 * A redis-server that all tests of one program share: fixtures for cmocka's groups.
 */
#ifndef TESTS_OWN_SERVER_H
#define TESTS_OWN_SERVER_H

#include "calls.h"
#include "server.h"

static struct server *server;

static inline int start_server(void **state)
{
    (void)state;
    server = server_start(NULL);
    return 0;
}

static inline int stop_server(void **state)
{
    (void)state;
    server_free(server);
    return 0;
}

static inline dlock_client *new_client(void)
{
    return client_of(server_url(server), (struct dlock_options){0});
}

/* A fixture for a single test. */
static inline int empty_server(void **state)
{
    (void)state;
    server_text(server, "FLUSHALL");
    return 0;
}

#endif
