/* SPDX-License-Identifier: Apache-2.0
 *
 * A real redis-server of a test's own: on a free port and a unix socket in a folder of its own,
 * ended with the test. It keeps nothing on disk unless told to. REDIS_SERVER in the environment
 * names another program to start, such as valkey-server.
 */
#ifndef TESTS_SERVER_H
#define TESTS_SERVER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

struct server;

/* Starts it and waits until it answers. args: more of redis-server's arguments, ended by NULL.
 * From the main thread only: the server dies with the thread that started it. */
struct server *server_start(const char *const *args);
/* The same port and folder again, with other arguments; the data are lost unless it saved them. */
void server_restart(struct server *server, const char *const *args);
/* As restart, but does not wait: the server may be loading. */
void server_restart_unready(struct server *server, const char *const *args);
/* SIGKILL. */
void server_kill(struct server *server);
/* SIGSTOP, and when it is known to have stopped; SIGCONT. */
void server_pause(struct server *server);
void server_resume(struct server *server);
void server_free(struct server *server);

int server_port(const struct server *server);
const char *server_url(const struct server *server);    /* redis://127.0.0.1:<port> */
const char *server_socket(const struct server *server); /* the unix socket's path */
const char *server_folder(const struct server *server);

/* The test's own commands, on a connection of their own; formats are hiredis'. The reply and the
 * text live until the next one. server_ask is for any reply, the others insist on its type. */
const redisReply *server_ask(struct server *server, const char *format, ...);
long long server_integer(struct server *server, const char *format, ...);
const char *server_text(struct server *server, const char *format, ...); /* "" for nil */
long long server_us(struct server *server);                              /* its clock */
/* Whether it refuses to write anything. */
void server_refuse_writes(struct server *server, bool refuse);

/* Everything that the server carries out, in order. */
struct monitor;
struct monitor *monitor_start(struct server *server);
/* How many of the commands so far contain the text, case ignored; the monitor's own mark aside. */
size_t monitor_count(struct monitor *monitor, const char *text);
void monitor_free(struct monitor *monitor);

/* A port below those that the kernel gives to connections, so that it is still free when a server
 * comes back to it, and low enough for a cluster's second port, 10000 above. */
int free_port(void);

/* Nobody listens here (tcpmux). Not a port that was free a moment ago: a server of another test
 * may have it by now. */
#define NOBODYS_PORT 1

#endif
