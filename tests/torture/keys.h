/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys in Redis besides the library's: an application's keys, with names that a lock might use
 * internally. And a Redis user for each process, that may access only the keys that dlock.h lists.
 */
#ifndef TORTURE_KEYS_H
#define TORTURE_KEYS_H

#include "history.h"

#include "server.h"

#define KEYS_USER "torture" /* and the number of the process */
#define KEYS_PASSWORD "secret"

/* Creates the users and the application's keys, on a server that has just started. */
void keys_prepare(const struct plan *plan, struct server *server);
/* The users alone. */
void keys_users(const struct plan *plan, struct server *server);
/* Checks that the server refused no key to a process: it asked for the library's alone. */
void keys_judge_refused(struct server *server, struct world *world);
/* At the end: checks that the application's keys are unchanged, and that each key of the library
 * expires. */
void keys_judge(const struct plan *plan, struct server *server, struct world *world);
/* Applies rules of ACL SETUSER to all users. */
void keys_allow(struct server *server, const char *rules);

#endif
