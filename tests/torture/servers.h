/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis servers of a history: one, several independent ones, or a group: a master, its
 * replicas, and sentinels. Each is real, and behind the proxy. Of several, each writes every
 * command to its disk before it answers. So it comes back with all that it acknowledged.
 */
#ifndef TORTURE_SERVERS_H
#define TORTURE_SERVERS_H

#include "proxy.h"

#include "server.h"

struct servers;
struct servers *servers_new(const struct plan *plan, struct world *world);
/* Starts them, and leads the proxy to them. */
void servers_start(struct servers *servers, struct proxy *proxy);
void servers_free(struct servers *servers);

struct server *servers_at(struct servers *servers, int index);
/* Sends a signal to the server's process. */
void servers_signal(struct servers *servers, int index, int signal);

/* One of one server: returns when it is back. kind: FAULT_RESTART, _OLD or _EMPTY. */
void servers_restart(struct servers *servers, int index, enum fault_kind kind);
/* One of several: it is dead until servers_revive() and some rounds. */
void servers_kill(struct servers *servers, int index);
void servers_revive(struct servers *servers, int index);
bool servers_is_up(const struct servers *servers, int index);
/* Runs between the proxy's rounds: takes servers back that were revived. Of a group it looks which
 * one takes writes, and notes the loss of data when another one does. */
void servers_round(struct servers *servers);
/* Whether all are up; of a group, whether all agree about the master, too. */
bool servers_settled(struct servers *servers);
/* Orders the sentinels to promote a replica. */
void servers_fail_over(struct servers *servers);
/* The index of the server that takes writes: 0, if there is no group. */
int servers_master(const struct servers *servers);
/* How often another one took writes than before. */
int servers_fail_overs(const struct servers *servers);

#endif
