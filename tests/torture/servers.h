/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis servers of a history: one, or several independent ones. Each is real, and behind the
 * proxy. Of several, each writes every command to its disk before it answers, so that it comes back
 * with all that it acknowledged.
 */
#ifndef TORTURE_SERVERS_H
#define TORTURE_SERVERS_H

#include "proxy.h"

#include "server.h"

struct servers;
struct servers *servers_start(const struct plan *plan, struct world *world);
void servers_free(struct servers *servers);
/* Leads the proxy to the servers. */
void servers_join(struct servers *servers, struct proxy *proxy);

struct server *servers_at(struct servers *servers, int index);
/* Sends a signal to the server's process. */
void servers_signal(const struct servers *servers, int index, int signal);

/* One of one server: returns when it is back. kind: FAULT_RESTART, _OLD or _EMPTY. */
void servers_restart(struct servers *servers, int index, enum fault_kind kind);
/* One of several: it is dead until servers_revive() and some rounds. */
void servers_kill(struct servers *servers, int index);
void servers_revive(struct servers *servers, int index);
bool servers_is_up(const struct servers *servers, int index);
/* Runs between the proxy's rounds: takes servers back that were revived. */
void servers_round(struct servers *servers);
bool servers_all_up(const struct servers *servers);

#endif
