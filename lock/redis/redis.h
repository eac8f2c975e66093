/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections to one or several Redis servers, driven by poll() with an absolute deadline. A caller
 * appends commands and gathers the replies of all servers in parallel. hiredis formats and parses
 * the protocol, but the sockets are ours. Those of hiredis block, raise SIGPIPE, and hide what was
 * sent. Whether a command was sent decides between "failed" and "unknown".
 */
#ifndef DLOCK_REDIS_H
#define DLOCK_REDIS_H

#include "reach.h"

#include <hiredis/hiredis.h>

#define REPLY_BYTES_MAX (1 << 20)

/* All connections of a client share this. */
struct redis_config {
    struct server *servers;
    size_t server_count;
    bool checks_votes; /* its one server votes beside others; whether it may is checked */
    int64_t connect_timeout_ms;
    int64_t command_timeout_ms;
    enum dlock_replicas_ack replicas_ack; /* see acks.h */
    void (*on_trace)(void *arg, const struct dlock_trace *trace);
    void *on_trace_arg;
    _Atomic uint64_t commands; /* sent */
    _Atomic uint64_t connects; /* made */
    /* A connection that is not lent keeps commands: see pool_send_kept. It must not block. NULL: no
     * call. The argument is that of `outages`. */
    void (*keeps)(void *arg);
    struct outages outages;
};

/* Adds a server to config->servers, which has room for it: reads its URL, and prepares to reach it.
 * Nothing is sent. A sentinel:// URL starts a thread; user and password are the sentinels' login,
 * or NULL. The time limits, replicas_ack and the server's `replicas` are set before. OK, INVALID,
 * NO_MEMORY. */
dlock_status redis_add_server(struct redis_config *config, const char *url, const char *user,
                              const char *password);
/* Ends the threads. No outage is reported after that, and no sentinel is asked. */
void redis_stop_servers(struct redis_config *config);
/* Frees what redis_add_server made. There is no connection any more. */
void redis_free_servers(struct redis_config *config);

/* One connection to each server. It belongs to one thread at a time. */
struct redis;

/* Does not connect yet. NULL: out of memory. The config must outlive it. */
struct redis *redis_new(struct redis_config *config);
void redis_free(struct redis *redis);
size_t redis_nodes(const struct redis *redis);
const struct redis_config *redis_config_of(const struct redis *redis);

/* Connects and logs in, and waits until most servers are connected. It stops at the deadline, or
 * after connect_timeout_ms, or when wake_fd is readable (-1: none). If most are connected already,
 * it does not wait. A late server goes on connecting in later calls. Replies that servers still owe
 * to earlier exchanges are taken if they have come. A server that owes one, and has sent nothing
 * for command_timeout_ms, is disconnected. With several servers, each must be a master of its own,
 * and say so (INFO); otherwise its login is refused. A connection that the server has closed is
 * replaced. Host names are looked up at every connect.
 * A single server that owes a reply is not ready: it is awaited for command_timeout_ms at most, and
 * else disconnected.
 * Until the server answers a command, one connection at a time tries it, and the others wait. After
 * a failure the others fail at once, with the same error.
 * OK: at least one server is connected. UNREACHABLE. REFUSED: the login failed, or the server is
 * not a master. CANCELLED: wake_fd was readable before most were connected. */
dlock_status redis_ready(struct redis *redis, int64_t deadline_ns, int wake_fd);
/* The servers that refuse the login for good, a bit each. One that is away, or whose sentinels name
 * it too early or too late, may come back. */
uint32_t redis_refusing(const struct redis *redis);
/* Whether a majority is left without these. */
bool redis_leaves_majority(const struct redis *redis, uint32_t without);
/* After REFUSED: whether a majority does not refuse for good, so that a later attempt may
 * succeed. */
bool redis_refused_for_now(const struct redis *redis);

/* As redis_ready, but connects to no server. Whether a majority is still connected. */
bool redis_still_up(struct redis *redis, int64_t deadline_ns, int wake_fd);

/* After redis_ready: waits until a majority among these servers is connected, or no server is
 * connecting any more. */
void redis_ready_to(struct redis *redis, uint32_t servers, int64_t deadline_ns, int wake_fd);
/* The same until no server is connecting any more, late ones included. */
void redis_ready_each(struct redis *redis, int64_t deadline_ns, int wake_fd);

#define SERVERS_ALL UINT32_MAX
/* Whether those of these servers (a bit each) that are connected, as far as is known, are a
 * majority of all servers. redis_up: of any. redis_count_up: how many are connected. */
bool redis_up_to(const struct redis *redis, uint32_t servers);
bool redis_up(const struct redis *redis);
size_t redis_count_up(const struct redis *redis);
/* Whether there is a connection to that server, on which the login may be under way. */
bool redis_is_open(const struct redis *redis, size_t node);
/* Whether a command that redis_keep keeps must still be sent. */
bool redis_keeps_unsent(const struct redis *redis);
/* Whether it keeps any: their replies have not come. */
bool redis_keeps(const struct redis *redis);
/* Whether a server is being connected: redis_ready goes on with that. */
bool redis_connecting(const struct redis *redis);

/* Whether it is connected to the same server process as one before it. It has no voice then, and is
 * not asked. This may begin at any connect: a host name or a proxy may lead elsewhere by then. */
bool redis_is_twin(const struct redis *redis, size_t index);
/* Whether all servers that are connected are different ones. OK; REFUSED, with a sentence. */
dlock_status redis_check_independent(const struct redis *redis);

/* How long the servers' longest pause still lasts: a waiter need not try before. */
int64_t redis_pause_ms(struct redis_config *config);

/* Begins an exchange: forgets the replies of the earlier one, and its uncertain requests. */
void redis_begin(struct redis *redis);
/* Forgets the replies only: what follows is part of the same exchange. */
void redis_go_on(struct redis *redis);

/* Adds a command for one server. sizes NULL: the arguments are NUL-terminated. */
void redis_append(struct redis *redis, size_t node, int argc, const char *const *argv,
                  const size_t *sizes);

/* The same for WAIT, as the last command of an exchange. If only its answer is missing, the
 * exchange has its answers: its status is OK, and a late answer breaks no connection. */
void redis_append_wait(struct redis *redis, size_t node, const char *replicas, const char *ms);

/* Why a command is kept. */
enum keep {
    KEEP_UNSENT,     /* it was not sent, also if its server is connected */
    KEEP_UNANSWERED, /* the exchange's last: left behind, or its connection broke */
    KEEP_REFUSED     /* the server refused it for now */
};
/* For a command that is to be carried out although no reply to it has come. It is kept
 * until the server has answered it, other than by an error that ends by itself. Each new connection
 * sends it again before any other command. After such an error this one does, too, a little later.
 * So the server carries it out although the connection breaks, perhaps more than once. */
void redis_keep(struct redis *redis, size_t node, int argc, const char *const *argv, enum keep why);

/* Tells what becomes of a command that was left behind: the last one of the exchange, or the one
 * that has `after` others after it. `came` is called once, on the thread that reads the reply, for
 * whatever it uses this connection then. reply NULL: it will not come, or was not left behind.
 * `came` may not use the connection, and the structure is its own again. */
struct late_reply {
    STAILQ_ENTRY(late_reply) of_node;
    uint64_t at; /* the number of the reply, as node.owed counts */
    void (*came)(struct late_reply *late, const redisReply *reply);
};
void redis_await_late(struct redis *redis, size_t node, struct late_reply *late, size_t after);
/* Adds a command whose reply is left behind at once, and tells what becomes of it. So many of them
 * may be under way, for callers that do not wait for each other. redis_send or redis_hear sends it.
 * False: the server is not connected, and `late` stays the caller's. */
bool redis_append_late(struct redis *redis, size_t node, int argc, const char *const *argv,
                       struct late_reply *late);
/* Sends what was added, and reads replies that were left behind, until heard() is true. It is asked
 * after each step. OK, TIMED_OUT, CANCELLED. As with redis_gather_until, no server is disconnected
 * because it is late, except after command_timeout_ms of silence. */
dlock_status redis_hear(struct redis *redis, bool (*heard)(void *arg), void *arg,
                        int64_t deadline_ns, int wake_fd);
/* Takes the replies that servers still owe, if they have come. Does not wait. */
void redis_catch_up(struct redis *redis);

/* Sends what was appended, in one write per server, and collects one reply per command. It stops
 * at the deadline, after command_timeout_ms, or when wake_fd is readable. A server that still owes
 * a reply, other than WAIT's, is disconnected, so that its late reply cannot be taken for another
 * command's. A server that says it is not a master is disconnected, so that the next call looks for
 * another. Returns the worst status of all servers. */
dlock_status redis_gather(struct redis *redis, int64_t deadline_ns, int wake_fd);

/* As redis_gather, but ends as soon as decided() is true. It is asked after each answer. No server
 * is disconnected because it is late: its replies stay due on the same connection, before those of
 * later exchanges, and are dropped when they come. So what is sent later is carried out later. The
 * server's status is then UNKNOWN. A server is disconnected, after the write, if it owes a reply to
 * an earlier exchange and has sent nothing for command_timeout_ms; or if it owes too many. */
void redis_gather_until(struct redis *redis, bool (*decided)(void *arg), void *arg,
                        int64_t deadline_ns, int wake_fd);
/* Whether a reply to this exchange may still come. */
bool redis_awaits(const struct redis *redis, size_t node);
/* Whether the server owes a reply to an earlier exchange. */
bool redis_owes(const struct redis *redis, size_t node);
/* Whether a reply may still come from a server that owes nothing to an earlier exchange. */
bool redis_awaits_prompt(const struct redis *redis);
/* Why there is no reply, in words. connected: why a connected server gave none. */
const char *redis_silence(const struct redis *redis, size_t node, const char *connected);

/* redis_gather in steps, for a thread with other work. redis_wait disconnects no server, and may
 * be called again. OK: no further reply can come; TIMED_OUT; CANCELLED. redis_finish disconnects a
 * server that still owes a reply, and returns what redis_gather would. */
void redis_send(struct redis *redis);
dlock_status redis_wait(struct redis *redis, int64_t deadline_ns, int wake_fd);
dlock_status redis_finish(struct redis *redis);
/* For requests that do not wait for each other, on the first server: more may be appended and sent
 * while replies are missing. A call forgets the first `taken` replies of the previous call, and
 * waits until at least `least` are here. OK: they are, from index 0 on, or no more will come;
 * TIMED_OUT; CANCELLED. */
dlock_status redis_next(struct redis *redis, size_t taken, size_t least, int64_t deadline_ns,
                        int wake_fd);
/* How long the login took: one round trip of a new connection. */
int64_t redis_connect_ns(const struct redis *redis, size_t node);

/* A connection's identity at its server. It is needed when the connection broke with a reply
 * missing: what was sent on it may still be carried out. Each server process counts its connections
 * from 1, so the number means nothing without the process. */
struct connection_id {
    size_t node;
    long long id;     /* CLIENT ID; 0: not known */
    uint64_t process; /* the first 16 hex digits of the process's run_id, which is random */
};
enum kill_result {
    KILL_DONE,       /* it has ended: its commands were carried out, or never will be */
    KILL_UNANSWERED, /* not known: it may be tried again */
    KILL_IMPOSSIBLE, /* another server process answers, or refuses CLIENT ID, CLIENT KILL or INFO */
};

/* After an exchange that left a server UNKNOWN: the first broken connection from that node on.
 * False: there is none. */
bool redis_broken_connection(const struct redis *redis, size_t node, struct connection_id *broken);
/* Makes the server end that connection, by a command on one that redis_ready has connected. The
 * thread's sentence is kept. */
enum kill_result redis_kill_broken(struct redis *redis, const struct connection_id *broken,
                                   int64_t deadline_ns, int wake_fd);

/* Adds CLIENT KILL for another connection to the same server. Once it is answered, what was sent on
 * that connection was carried out, or never will be. False: nothing was added, because this server
 * is not connected, another process answers, or CLIENT KILL was refused lately. */
bool redis_append_kill(struct redis *redis, const struct connection_id *other);
/* What the answer to it says; NULL: there is none. */
enum kill_result redis_kill_says(const struct redis *redis, size_t node, const redisReply *reply);
/* Whether a command that is sent now follows all that were sent on the other connection: it is this
 * one, or the server process that had it has ended. */
bool redis_follows(const struct redis *redis, const struct connection_id *other);

/* The current connection. */
struct connection_id redis_connection(const struct redis *redis, size_t node);
/* Makes the server end the command that blocks that connection, as if it had timed out. Nothing is
 * sent to another server process, and the outcome is not reported. The thread's sentence is
 * kept. */
void redis_unblock(struct redis *redis, const struct connection_id *blocked, int64_t deadline_ns,
                   int wake_fd);

/* For a subscriber connection, in the caller's event loop. None of these waits.
 * redis_flush sends what was appended. redis_pull reads what has arrived; its replies replace the
 * earlier ones. OK, perhaps without a reply; UNREACHABLE: the connection broke.
 * redis_fd is readable when redis_pull has something to read; -1: not connected. */
int redis_fd(const struct redis *redis, size_t node);
dlock_status redis_flush(struct redis *redis, size_t node);
dlock_status redis_pull(struct redis *redis, size_t node);

#define NOT_MASTER "ROLE says" /* how the reason begins when the login finds that out */
/* redis_is_demotion: whether this error says that the server is not a master. redis_demoted: drops
 * such a server's connection, so that the next call looks for another. */
bool redis_is_demotion(const char *error);
void redis_demoted(struct redis *redis, size_t node, const char *error);

/* For a reply that does not fit its command: drops the connection, and counts nothing of this
 * exchange as answered. The outcome of what was sent is uncertain. */
void redis_distrust(struct redis *redis, size_t node);

/* The server refuses this kind of wake-ups (a bit). */
void redis_wakeups_refused(struct redis *redis, size_t node, unsigned kind, const char *reason);

/* Closes the connections. */
void redis_disconnect(struct redis *redis);

/* The latest exchange with that server. OK: all replies came, also if they are errors; UNREACHABLE:
 * nothing was sent; UNKNOWN: something was sent, and a reply is missing. */
dlock_status redis_status(const struct redis *redis, size_t node);
/* The exchange's reply number `index`, from 0; NULL: it did not come. */
const redisReply *redis_reply(const struct redis *redis, size_t node, size_t index);
const char *redis_server(const struct redis *redis, size_t node);
/* Of a connected server that sentinels name: how often they had named another master when this
 * connection was begun. 0: no sentinel names it. */
uint64_t redis_generation(const struct redis *redis, size_t node);
/* The configuration epoch in which they had named it. False: no sentinel names it. */
bool redis_sentinel_epoch(const struct redis *redis, size_t node, uint64_t *epoch);

#endif
