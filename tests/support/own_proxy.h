/* SPDX-License-Identifier: Apache-2.0
 *
 * A redis-server, and a proxy between it and the library, shared by all tests of one program:
 * fixtures for cmocka's groups.
 */
#ifndef TESTS_OWN_PROXY_H
#define TESTS_OWN_PROXY_H

#include "own_server.h"
#include "proxy.h"

static struct proxy *proxy;

static inline int start_server_and_proxy(void **state)
{
    start_server(state);
    proxy = proxy_start(server);
    return 0;
}

static inline int stop_server_and_proxy(void **state)
{
    proxy_free(proxy);
    return stop_server(state);
}

#endif
