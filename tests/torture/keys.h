/* SPDX-License-Identifier: Apache-2.0
 *
 * What is in Redis that is not the library's: an application's keys under names that a lock might
 * use for itself, and a user that may touch no key but those that the library's header lists.
 */
#ifndef TORTURE_KEYS_H
#define TORTURE_KEYS_H

#include "history.h"

#include "server.h"

#define KEYS_USER "torture"
#define KEYS_PASSWORD "secret"

/* On a server that has just started: makes the user and the application's keys. */
void keys_prepare(const struct plan *plan, struct server *server);
/* At rest: are they as they were, was no other key asked for, and has each of the library's a life
 * that ends? */
void keys_judge(const struct plan *plan, struct server *server, struct world *world);
pid_t server_process(struct server *server);

#endif
