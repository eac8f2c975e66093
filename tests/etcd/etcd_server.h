/* SPDX-License-Identifier: Apache-2.0
 *
 * A real etcd server of a test's own: one member, on free ports, in a folder of its own, ended with
 * the test.
 */
#ifndef TESTS_ETCD_SERVER_H
#define TESTS_ETCD_SERVER_H

#include <stdbool.h>
#include <stddef.h>

struct etcd_server;

/* Starts it and waits until it serves. From the main thread only: it dies with that one. `more`:
 * further arguments, ended by NULL. Its leases live for at least 1 s. */
struct etcd_server *etcd_server_start(const char *const *more);
/* SIGSTOP, and when it is known to have stopped; SIGCONT. */
void etcd_server_pause(struct etcd_server *server);
void etcd_server_resume(struct etcd_server *server);
/* SIGKILL. */
void etcd_server_kill(struct etcd_server *server);
/* Another one with the same ports and data; it is killed before if it runs. */
void etcd_server_restart(struct etcd_server *server);
/* The same, without the data. */
void etcd_server_forget(struct etcd_server *server);
/* The same, as the member of another cluster. */
void etcd_server_replace(struct etcd_server *server);
/* Copies its data; or begins again with the copy, as an operator does from a backup. */
void etcd_server_save(struct etcd_server *server);
void etcd_server_restore(struct etcd_server *server);
void etcd_server_free(struct etcd_server *server);

int etcd_server_port(const struct etcd_server *server);
const char *etcd_server_folder(const struct etcd_server *server);
const char *etcd_server_url(const struct etcd_server *server); /* etcd://127.0.0.1:<port> */

/* A request of the test's own; must be answered with HTTP 200. The answer is valid until the next.
 */
const char *etcd_server_ask(struct etcd_server *server, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* That user makes the later requests. */
void etcd_server_log_in(struct etcd_server *server, const char *user, const char *password);
/* So many writes of a key of nobody's: revisions pass. */
void etcd_server_pass(struct etcd_server *server, int revisions);
/* Base64 of a text; valid for eight calls. */
const char *base64(const char *text);

#endif
