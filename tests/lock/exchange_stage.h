/* SPDX-License-Identifier: Apache-2.0
 *
 * A client with many locks, and a call for each of them.
 */
#ifndef TESTS_EXCHANGE_STAGE_H
#define TESTS_EXCHANGE_STAGE_H

#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "started.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define CROWD 400

struct stage {
    struct proxy *proxy; /* or NULL */
    dlock_client *client;
    dlock *locks[CROWD];
    struct started *crowd;
    _Atomic int over;
};

/* A client that has connected and whose scripts the server knows. */
static inline void stage_set(struct stage *stage, const char *rung, bool by_proxy,
                             struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    *stage = (struct stage){.proxy = by_proxy ? proxy_start(server) : NULL};
    if (options.ttl_ms == 0)
        options.ttl_ms = 3600000; /* renewed never */
    stage->client = client_of(by_proxy ? proxy_url(stage->proxy) : server_url(server), options);
    for (int i = 0; i < CROWD; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%d}", i);
        stage->locks[i] = lock_of(stage->client, rung, name);
    }
    assert_status(dlock_release(acquired(stage->locks[0]), NULL), OK);
    stage->crowd = crowd_new(CROWD, false, &stage->over);
}

static inline void stage_clear(struct stage *stage)
{
    for (int i = 0; i < CROWD; i++)
        dlock_close(stage->locks[i]);
    dlock_client_close(stage->client);
    if (stage->proxy != NULL)
        proxy_free(stage->proxy);
    free(stage->crowd);
}

/* The crowd's first so many answers. */
static inline void all_answered(struct stage *stage, int count)
{
    eventually(atomic_load(&stage->over) == count);
    atomic_store(&stage->over, 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(atomic_exchange(&stage->crowd[i].answers, 0), 1);
}

#endif
