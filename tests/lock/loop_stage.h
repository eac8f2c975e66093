/* SPDX-License-Identifier: Apache-2.0
 *
 * A client, and another that holds some of its locks.
 */
#ifndef TESTS_LOOP_STAGE_H
#define TESTS_LOOP_STAGE_H

#include "calls.h"
#include "own_server.h"

#include <stdio.h>

#define LOCK "lock:{loop}"
#define LOCKS 20
#define ASKERS 2 /* threads that may wait for a server */

struct stage {
    dlock_client *client;
    dlock *locks[LOCKS];
    dlock_client *holder;
    dlock *held[LOCKS];
    dlock_hold *holds[LOCKS];
};

static inline void stage_set(struct stage *stage, const char *rung, struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    *stage = (struct stage){
        .client = client_of(server_url(server), options),
        .holder = client_of(server_url(server), (struct dlock_options){.ttl_ms = 3600000})};
    for (int i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%d}", i);
        stage->locks[i] = lock_of(stage->client, rung, name);
        stage->held[i] = lock_of(stage->holder, rung, name);
    }
}

/* By another client. */
static inline void hold(struct stage *stage, int lock)
{
    stage->holds[lock] = acquired(stage->held[lock]);
}

static inline void let_go(struct stage *stage, int lock)
{
    assert_status(dlock_release(stage->holds[lock], NULL), OK);
    stage->holds[lock] = NULL;
}

static inline void stage_clear(struct stage *stage)
{
    for (int i = 0; i < LOCKS; i++) {
        if (stage->holds[i] != NULL)
            let_go(stage, i);
        dlock_close(stage->locks[i]);
        dlock_close(stage->held[i]);
    }
    dlock_client_close(stage->client);
    dlock_client_close(stage->holder);
}

/* Nothing that waits for the server is over before the test gives up. */
static const struct dlock_options patient = {.connect_timeout_ms = 60000,
                                             .command_timeout_ms = 60000};

#endif
