/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts a real redis-server for a test: on a free port and a unix socket, in a temporary folder.
 * The folder is in TMPDIR, or in /tmp if that is too long for a socket's path. The server ends with
 * the test. It writes nothing to disk unless told to. REDIS_SERVER in the environment names another
 * program, such as valkey-server.
 */
#ifndef TESTS_SERVER_H
#define TESTS_SERVER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

struct server;

/* Starts it and waits until it answers. args: more arguments of redis-server, ended by NULL. Call
 * it from the main thread only: the server dies with the thread that started it. */
struct server *server_start(const char *const *args);
/* The same as a sentinel of `shop`, whose master has that port; two sentinels decide. Its file is
 * sentinel.conf in the folder; it is read again at a restart. */
struct server *server_start_sentinel(int master_port);
/* Restarts it on the same port and folder, with other arguments. The data are lost unless it saved
 * them. */
void server_restart(struct server *server, const char *const *args);
/* The same, but returns at its first reply, which may say that it is still loading. */
void server_restart_unready(struct server *server, const char *const *args);
/* The same, but returns at once. It is restarted when server_restarted() is true. */
void server_restart_begin(struct server *server, const char *const *args);
bool server_restarted(struct server *server);
/* SIGKILL. */
void server_kill(struct server *server);
/* Sends SIGSTOP or SIGCONT, and returns when the server has stopped or continued. */
void server_pause(struct server *server);
void server_resume(struct server *server);
void server_free(struct server *server);

int server_port(const struct server *server);
const char *server_url(const struct server *server);    /* redis://127.0.0.1:<port> */
const char *server_socket(const struct server *server); /* the unix socket's path */
const char *server_folder(const struct server *server);

/* Commands of the test, on a separate connection; formats are hiredis'. A reply or text is valid
 * until the next command. server_ask accepts any reply; the others require its type. */
/* NULL: the connection broke. A fail-over breaks it, too. */
const redisReply *server_try(struct server *server, const char *command);
const redisReply *server_ask(struct server *server, const char *format, ...);
long long server_integer(struct server *server, const char *format, ...);
const char *server_text(struct server *server, const char *format, ...); /* "" for nil */
long long server_us(struct server *server);                              /* its clock */
/* Makes the server refuse all writes, or accept them again. */
void server_refuse_writes(struct server *server, bool refuse);

/* Records all commands that the server carries out, in order. */
struct monitor;
struct monitor *monitor_start(struct server *server);
/* How many commands so far contain the text, ignoring case and without the monitor's own. */
size_t monitor_count(struct monitor *monitor, const char *text);
void monitor_free(struct monitor *monitor);

/* A free port below the range that the kernel uses for connections, so that it is still free when a
 * server restarts. It is low enough for a cluster's second port, which is 10000 higher. */
int free_port(void);

/* No process listens on this port (tcpmux). A port that was free a moment ago would not do: a
 * server of another test may use it by now. */
#define NOBODYS_PORT 1

#endif
