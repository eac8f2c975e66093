/* SPDX-License-Identifier: Apache-2.0
 *
 * A service's data in Redis: connections, one command and its reply at a time, scripts. It uses the
 * lock library's Redis client (lock/redis/redis.h). So outages, restarts and late commands are
 * handled as they are for locks. Each status says whether the command was carried out:
 * STORE_UNAVAILABLE means no, STORE_LOST means unknown.
 */
#ifndef STORE_H
#define STORE_H

#include "../lock/redis/script.h"

#include <dlock.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

enum store_status {
    STORE_OK,
    STORE_INVALID,     /* a key holds what it must not; nothing was written */
    STORE_UNAVAILABLE, /* the server was not reached, or refused; nothing was written */
    /* the reply was lost or cannot be read: the command was carried out, or not, or still may be */
    STORE_LOST,
    STORE_STATUS_COUNT, /* a service may count on from here */
};

/* A server, shared by all threads. */
struct store_server;
struct store_options {
    const char *url;  /* as in dlock_options.servers */
    const char *what; /* is kept there, for messages: "stock" */
    int64_t timeout_ms;
    /* As dlock_options: how many of the server's replicas must confirm a write. */
    enum dlock_replicas_ack replicas_ack;
    size_t replicas;
    /* It votes on locks beside others: a connection is refused as the lock's would be. */
    bool votes;
    const char *sentinel_user; /* as in dlock_options; NULL: none */
    const char *sentinel_password;
    /* Called after every command, as dlock_options.on_trace is. NULL: none. */
    void (*on_trace)(void *arg, const struct dlock_trace *trace);
    void *on_trace_arg;
    /* Called after each attempt to connect, and when a connection has failed. NULL: none. */
    void (*on_connection)(void *arg, bool works);
    void *on_connection_arg;
};
/* timeout_ms limits connecting, and the time from each command to its whole reply. NULL: out of
 * memory, or the URL is not valid. */
struct store_server *store_server_new(const struct store_options *options);
/* A random number of the server process to which a connection was made last; 0: not known. Any
 * thread. */
uint64_t store_server_process(const struct store_server *server);
/* Its URL without the login. Any thread. */
const char *store_server_shown(const struct store_server *server);
/* Calls on_connection no more. */
void store_server_stop(struct store_server *server);
void store_server_free(struct store_server *server);
/* The server's address without its login, with the port and the database that count if the URL has
 * none. Other spellings have other names: another name of the host, another order of sentinels. "":
 * the URL is not valid. */
#define STORE_SERVERS_MAX 512
void store_server_name(const char *url, char name[STORE_SERVERS_MAX + 1]);
/* Whether the two URLs name the same server, whatever their logins, databases and spellings. */
bool store_server_is_same(const char *one, const char *two);

#define STORE_ERROR_MAX 512 /* of a sentence; as long as dlock_error() */

/* A connection, used by one thread. It connects when it is used, and again after a failure. */
struct store;
struct store *store_new(struct store_server *server); /* NULL when out of memory */
/* The same, for one of many workers: they share connections. It borrows one when it is used. */
struct store *store_new_shared(struct store_server *server);
/* Returns what it has borrowed. Nothing if it is not shared. */
void store_rest(struct store *store);
/* From now on this connection has another time-out than its server. */
void store_limit(struct store *store, int64_t timeout_ms);
/* From now on its waits for a connection or a reply end when fd is readable. */
void store_end_by(struct store *store, int fd);
void store_free(struct store *store);

/* The server's URL without its login. Any thread may ask. */
const char *store_shown(const struct store *store);
/* A sentence about the latest call that was not STORE_OK. */
const char *store_error(const struct store *store);
/* Sets store_error(). */
void store_say(struct store *store, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* STORE_OK: connected and logged in. A shared one does not wait for a new connection while others
 * have one: it takes the first that is returned. See pool_take. */
enum store_status store_connect(struct store *store);
/* True: the server answered the latest attempt to connect, but refused the login or one more
 * client. Connections that exist may still work. */
bool store_refused(const struct store *store);

/* Sends one command; connects first if necessary. STORE_OK: *reply is not an error, and is valid
 * until the next command. Otherwise *reply is NULL. STORE_LOST: the command was sent, and its reply
 * was lost. Any other status: it was not sent, or the server refused it. */
enum store_status store_command(struct store *store, int argc, const char *const *argv,
                                const redisReply **reply);
/* Asks COMMAND KEY for each key, in one exchange; not for writes. STORE_OK: replies[i] may be an
 * error, and is valid until the next command. */
enum store_status store_ask_each(struct store *store, const char *command, const char *const *keys,
                                 size_t count, const redisReply **replies);
/* Runs a script by its SHA1; sends it in full if the server does not know it. argv: the number of
 * keys, the keys, the arguments, and NULL. */
enum store_status store_run(struct store *store, const struct script *script,
                            const char *const *argv, const redisReply **reply);
/* The first and the last word of the error that answered the latest command, as a script's
 * redis.error_reply gives them; "": there was none. They cannot be taken from store_error(): that
 * text may be cut off, and begins with a host's name, which may be any word. */
const char *store_code(const struct store *store);
const char *store_last_word(const struct store *store);

/* Call this if the reply to a write cannot be read. What the write did is unknown, as if no reply
 * had come: STORE_LOST. The reply must not be used after this. */
enum store_status store_unreadable(struct store *store);
/* After a write with STORE_LOST: the connection on which it was sent. */
struct store_broken {
    long long id;     /* CLIENT ID at its server; 0: not known */
    uint64_t process; /* a random number of its server's process */
};
struct store_broken store_broken(const struct store *store);
/* How many replies were lost so far: it tells whether one was since then. */
uint64_t store_lost_count(const struct store *store);
/* Makes the server end that connection. STORE_OK: the write was carried out, or never will be.
 * STORE_UNAVAILABLE: try again. STORE_LOST: this server cannot do it, or refuses to. */
enum store_status store_kill_broken(struct store *store, const struct store_broken *broken);

/* STORE_OK: the server accepts writes, or refuses only this key; and if replicas_ack says so,
 * enough replicas confirmed one. Sends a write that changes nothing, and for the replicas one of a
 * key that lives for a second. If an idle connection breaks, a new one is tried; each attempt has
 * half the time-out. The replicas have as long as after a command's write. */
enum store_status store_takes_writes(struct store *store, const char *key);
/* The same, but this key must be writable, and each attempt has the whole time-out.
 * STORE_UNAVAILABLE also if the server may evict keys, and with them a lock or the data. */
enum store_status store_check(struct store *store, const char *key);
/* After either: whether it failed only because too few replicas confirmed a write. */
bool store_is_unconfirmed(const struct store *store);
/* From here on each command asks the replicas (WAIT, in the same write), if replicas_ack says so;
 * or no longer does. Returns whether it did before. store_is_confirmed: after a command with
 * STORE_OK, whether enough confirmed it. If not, store_error() says how many did. True if none was
 * asked. */
bool store_ask_replicas(struct store *store, bool ask);
bool store_is_confirmed(struct store *store);
/* Which master the connection is made to, over Sentinel: it differs after a fail-over. 0: the URL
 * names the server. From store_pin on no command goes to another one: STORE_UNAVAILABLE. 0: any. */
uint64_t store_master(const struct store *store);
void store_pin(struct store *store, uint64_t master);

#endif
