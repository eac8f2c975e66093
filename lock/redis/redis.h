/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections to one or several Redis servers, driven by poll() against an absolute deadline:
 * append commands, gather the replies, of all servers side by side. hiredis writes and reads the
 * protocol; the sockets are ours, because its own are blocking, raise SIGPIPE and hide what was
 * sent, and whether a command was sent decides between "failed" and "unknown".
 */
#ifndef DLOCK_REDIS_H
#define DLOCK_REDIS_H

#include "reach.h"

#include <hiredis/hiredis.h>
#include <string.h>

#define REPLY_BYTES_MAX (1 << 20)

/* What all connections of a client share. */
struct redis_config {
    struct server *servers;
    size_t server_count;
    int64_t connect_timeout_ms;
    int64_t command_timeout_ms;
    void (*on_trace)(void *arg, const struct dlock_trace *trace);
    void *on_trace_arg;
    _Atomic uint64_t commands; /* sent */
    _Atomic uint64_t connects; /* made */
    struct outages outages;
};

/* A connection to each server. Belongs to one thread at a time. */
struct redis;

/* NULL when out of memory. The config must outlive it. Connects nothing yet. */
struct redis *redis_new(struct redis_config *config);
void redis_free(struct redis *redis);
size_t redis_nodes(const struct redis *redis);

/* Makes sure that enough servers are connected and logged in, most of several, within the deadline
 * and connect_timeout_ms, or until wake_fd is readable (-1: none). One that is late goes on
 * connecting in the calls to come; a connection that the server closed meanwhile is replaced. Host
 * names are looked up at every connect. Until the server answers a command, one connection at a
 * time tries it, and the others wait; after a failure they fail at once, as the latest attempt did.
 * OK when at least one is up; UNREACHABLE, REFUSED (the login), CANCELLED. */
dlock_status redis_ready(struct redis *redis, int64_t deadline_ns, int wake_fd);

/* Whether at least one is, as far as is known. */
bool redis_up(const struct redis *redis);

/* How long a waiter does well to wait before its next attempt: until a pause is over. */
int64_t redis_pause_ms(struct redis_config *config);

/* Forgets the replies of the exchange before, and its doubts. */
void redis_begin(struct redis *redis);
/* The replies alone: what follows is of the same exchange. */
void redis_go_on(struct redis *redis);

/* Adds a command for one server. sizes NULL: the arguments are NUL-terminated. */
void redis_append(struct redis *redis, size_t node, int argc, const char *const *argv,
                  const size_t *sizes);

/* Sends what was appended, one write a server, and collects one reply for each command within
 * command_timeout_ms and the deadline, or until wake_fd is readable. A server that owes a reply
 * then is disconnected, so that the next reply cannot be taken for it; and one that says that it is
 * no master, so that the next call looks for another. The worst status of all. */
dlock_status redis_gather(struct redis *redis, int64_t deadline_ns, int wake_fd);

/* The same of several servers, of which most are enough: once those have answered, the others get
 * as long again, or 50 ms. */
dlock_status redis_gather_most(struct redis *redis, int64_t deadline_ns, int wake_fd);

/* The same in steps, for a thread that has other things to do meanwhile: redis_wait disconnects
 * nothing, and may be called again. OK: all that can come has come; TIMED_OUT, CANCELLED.
 * redis_finish disconnects a server that owes a reply, and answers as redis_gather. */
void redis_send(struct redis *redis);
dlock_status redis_wait(struct redis *redis, int64_t deadline_ns, int wake_fd);
dlock_status redis_finish(struct redis *redis);
/* For requests that do not wait for each other: redis_append and redis_send may follow while
 * replies are missing. redis_next forgets the replies of the call before, and waits for others.
 * OK: some are there, the next from index 0 on, or none will come; TIMED_OUT, CANCELLED. */
dlock_status redis_next(struct redis *redis, int64_t deadline_ns, int wake_fd);
/* How long it took to connect and to log in, the look-up of the host's name not counted. */
int64_t redis_connect_ns(const struct redis *redis, size_t node);

/* Names a connection as its server does: what was sent on one that broke with a reply missing may
 * still be carried out. Numbers begin again with each server process, so that one says nothing
 * without the process. */
struct connection_id {
    size_t node;
    long long id;    /* CLIENT ID; 0: not known */
    char run_id[41]; /* of the process */
};
enum kill_result {
    KILL_DONE,       /* the server has ended it: its commands were carried out, or never will be */
    KILL_UNANSWERED, /* nobody answered: it may be tried again */
    KILL_IMPOSSIBLE, /* another server process answers, or refuses CLIENT ID, CLIENT KILL or INFO */
};

/* After an exchange that left a server UNKNOWN: which connection broke, the first from that server
 * on. False: none. */
bool redis_broken_connection(const struct redis *redis, size_t node, struct connection_id *broken);
/* Has the server end that connection, from one that redis_ready has connected. The sentence of the
 * exchange is kept. */
enum kill_result redis_kill_broken(struct redis *redis, const struct connection_id *broken,
                                   int64_t deadline_ns, int wake_fd);

/* For a connection that is listened on, in a loop of the caller's: neither waits.
 * redis_flush sends what was appended; redis_pull reads what is there, whose replies take the place
 * of those before. OK, perhaps without a reply; UNREACHABLE: the connection broke.
 * redis_fd: readable when redis_pull has something to read; -1 while it is not connected. */
int redis_fd(const struct redis *redis, size_t node);
dlock_status redis_flush(struct redis *redis, size_t node);
dlock_status redis_pull(struct redis *redis, size_t node);

/* The server said this in place of carrying a command out: it is no master, another may be. For
 * redis_gather, and for a connection that is listened on. */
bool redis_is_demotion(const char *error);
void redis_demoted(struct redis *redis, size_t node, const char *error);

/* It has no room for one more client (maxclients): said in place of the first reply. */
static inline bool redis_is_full(const char *error)
{
    return strncmp(error, "ERR max number of clients", 25) == 0;
}

/* What came on the connection does not answer what was sent: nothing that was sent in this exchange
 * counts as answered, and the connection is dropped with a doubt. */
void redis_distrust(struct redis *redis, size_t node);

/* The server refuses to tell this kind of wake-ups (a bit), or does not any more. */
void redis_wakeups_refused(struct redis *redis, size_t node, unsigned kind, const char *reason);
void redis_wakeups_accepted(struct redis *redis, size_t node, unsigned kind);

/* Cuts the connections. */
void redis_disconnect(struct redis *redis);

/* Of the latest exchange. OK: all replies came (what they say is not looked at); UNREACHABLE:
 * nothing was sent; UNKNOWN: something was sent and a reply is missing. */
dlock_status redis_status(const struct redis *redis, size_t node);
/* The index-th reply of the exchange, from 0; NULL when it did not come. */
const redisReply *redis_reply(const struct redis *redis, size_t node, size_t index);
const char *redis_server(const struct redis *redis, size_t node);

#endif
