/* SPDX-License-Identifier: Apache-2.0
 *
 * A master and two replicas, which a test freezes, kills or cuts off; and a client that waits for
 * them.
 */
#ifndef TESTS_REPLICAS_STAGE_H
#define TESTS_REPLICAS_STAGE_H

#include "must.h"
#include "recorded_stage.h"

#include <stdio.h>
#include <stdlib.h>

#define REPLICAS 2
#define FROZEN_MS 2000 /* of command_timeout_ms; WAIT takes half of it where too few confirm */

static struct server *replicas[REPLICAS];
static char master_port[16];
static const char *const replica_args[] = {"--replicaof", "127.0.0.1", master_port, NULL};

static inline size_t count_in(const char *text, const char *word)
{
    size_t count = 0;
    for (; (text = strstr(text, word)) != NULL; text += strlen(word))
        count++;
    return count;
}

static inline size_t replicas_online(void)
{
    return count_in(server_text(server, "INFO replication"), "state=online");
}

/* A replica that is online may not confirm yet: it sends its offset once a second. */
static inline bool replicas_confirm(int count)
{
    server_text(server, "SET asked 1");
    bool confirm = server_integer(server, "WAIT %d 1000", count) >= count;
    server_integer(server, "DEL asked");
    return confirm;
}

static inline int start_replicas(void **state)
{
    (void)state;
    server = server_start((const char *const[]){"--repl-diskless-sync-delay", "0",
                                                "--repl-ping-replica-period", "1", NULL});
    snprintf(master_port, sizeof master_port, "%d", server_port(server));
    for (size_t i = 0; i < REPLICAS; i++)
        replicas[i] = server_start(replica_args);
    eventually(replicas_confirm(REPLICAS));
    return 0;
}

static inline int stop_replicas(void **state)
{
    for (size_t i = 0; i < REPLICAS; i++)
        server_free(replicas[i]);
    return stop_server(state);
}

static inline void freeze(size_t count)
{
    for (size_t i = 0; i < count; i++)
        server_pause(replicas[i]);
}

static inline void thaw(size_t count)
{
    for (size_t i = 0; i < count; i++)
        server_resume(replicas[i]);
    eventually(replicas_confirm(REPLICAS));
}

/* The replicas lose their connections, and get no other. */
static inline void cut_off(void)
{
    server_text(server, "ACL SETUSER default -psync -sync");
    server_integer(server, "CLIENT KILL TYPE replica");
    eventually(replicas_online() == 0);
}

/* PSYNC comes first. A replica whose PSYNC was refused tries SYNC, and one that joins by SYNC never
 * confirms anything. */
static inline void join_again(void)
{
    server_text(server, "ACL SETUSER default +psync");
    eventually(replicas_confirm(REPLICAS));
    server_text(server, "ACL SETUSER default +sync");
}

static inline struct dlock_options needing(enum dlock_replicas_ack ack)
{
    return (struct dlock_options){
        .replicas_ack = ack, .replicas = REPLICAS, .command_timeout_ms = FROZEN_MS};
}

static inline void stage_needs(struct stage *stage, const char *rung, enum dlock_replicas_ack ack)
{
    stage_at(stage, rung, server_url(server), needing(ack));
}

/* How many WAITs the server has carried out. */
static inline long long waits(void)
{
    const char *stats = strstr(server_text(server, "INFO commandstats"), "cmdstat_wait:calls=");
    return stats != NULL ? strtoll(strchr(stats, '=') + 1, NULL, 10) : 0;
}

#endif
