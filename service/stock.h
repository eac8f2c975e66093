/* SPDX-License-Identifier: Apache-2.0
 *
 * The stock in Redis. What decides here is whether a command was carried out: refused and
 * unreachable are certain, lost is not.
 */
#ifndef STOCK_H
#define STOCK_H

#include <dlock.h>
#include <stdbool.h>
#include <stdint.h>

/* What a Redis is for; one may be for both. */
enum redis_role { REDIS_LOCK, REDIS_STOCK, REDIS_ROLES };

enum stock_status {
    STOCK_OK,
    STOCK_MISSING,      /* there is no such key */
    STOCK_INSUFFICIENT, /* fewer than asked for; nothing was written */
    STOCK_INVALID,      /* the key holds something that is no whole number; nothing was written */
    STOCK_STALE,        /* the fence refused the token; nothing was written */
    STOCK_UNAVAILABLE,  /* not reached, or it refused; nothing was written */
    STOCK_LOST, /* the reply was lost, or cannot be read: it may have been carried out, or may be
                   later */
};

/* A server: shared by all threads. */
struct stock_server;
struct stock_options {
    const char *url; /* one that the lock library takes */
    int64_t timeout_ms;
    /* As the lock library's: after every command. NULL: nobody is told. */
    void (*on_trace)(void *arg, const struct dlock_trace *trace);
    void *on_trace_arg;
    /* After each attempt to connect, and when a connection has failed. NULL: nobody is told. */
    void (*on_connection)(void *arg, bool works);
    void *on_connection_arg;
};
/* timeout_ms is for connecting, and for each command to its whole reply.
 * NULL when out of memory. */
struct stock_server *stock_server_new(const struct stock_options *options);
void stock_server_free(struct stock_server *server);

/* A connection: belongs to one thread. Connects when it is used, and again when it must. */
struct stock;
struct stock *stock_new(struct stock_server *server); /* NULL when out of memory */
/* From here on this connection has another time-out than its server. */
void stock_limit(struct stock *stock, int64_t timeout_ms);
/* From here on its waits for answers end when that descriptor is readable. */
void stock_end_by(struct stock *stock, int fd);
void stock_free(struct stock *stock);

/* A fence: in the step that writes, where the stock is, it is decided by its token whether a write
 * is let in. */
enum fence_kind {
    FENCE_NEWEST, /* key: the newest token given out, which the lock keeps on this server. No older
                     one may write */
    FENCE_LAST_READ,  /* key: the last token that read. No older one may read, no other one may
                         write; lock_key:  FENCE_NEWEST's, which counts if it is here after all */
    FENCE_LAST_WRITE, /* key: the last token that wrote. No older one may write: the flaw */
};
struct stock_fence {
    enum fence_kind kind;
    const char *key;
    const char *lock_key;
    uint64_t token; /* of who reads and writes */
};

/* OK: it is connected, and logged in. */
enum stock_status stock_connect(struct stock *stock);
/* The server answered the latest attempt to connect: it refuses the login, or one client more. The
 * connections that others have may work. */
bool stock_refused(const struct stock *stock);
/* OK: the server is there, and takes writes, or refuses this key alone. Writes nothing. A
 * connection that was idle may have died alone: if it breaks, a new one is asked, each for half the
 * time-out. */
enum stock_status stock_takes_writes(struct stock *stock, const char *key);
/* The same of that key itself, each for the whole time-out. A server that may drop keys of its own
 * accord when its memory is full is none for locks or stocks: UNAVAILABLE. */
enum stock_status stock_check(struct stock *stock, const char *key);
/* fence: NULL where there is none, here and below. */
enum stock_status stock_read(struct stock *stock, const char *key, const struct stock_fence *fence,
                             int64_t *value);
/* *after: what the server says it is now. */
enum stock_status stock_decrement(struct stock *stock, const char *key, int64_t quantity,
                                  const struct stock_fence *fence, int64_t *after);
enum stock_status stock_write(struct stock *stock, const char *key, int64_t value);
/* Writes, whatever was there. *before: what that was, in the same step; STOCK_NONE: no number. */
#define STOCK_NONE INT64_MIN
enum stock_status stock_replace(struct stock *stock, const char *key, int64_t value,
                                const struct stock_fence *fence, int64_t *before);
/* Adds to the number that is there, in one step; where there is none, to 0. *after: what it is
 * then. */
enum stock_status stock_add(struct stock *stock, const char *key, int64_t quantity,
                            const struct stock_fence *fence, int64_t *after);
/* After a LOST write: the connection that brought it. */
struct stock_broken_connection {
    long long id;    /* at its server; 0: not known */
    char run_id[41]; /* of its server's process */
};
struct stock_broken_connection stock_broken_connection(const struct stock *stock);
/* Has the server end that connection. OK: from then on the write was carried out, or never will be.
 * UNAVAILABLE: ask again. LOST: this server can't tell, or refuses to. */
enum stock_status stock_kill_broken(struct stock *stock,
                                    const struct stock_broken_connection *broken);
/* A write that was lost may still be on its way: FENCE_NEWEST lets no write with its token in any
 * more. stock_error() goes on saying why it was not found out. */
enum stock_status stock_shut_out(struct stock *stock, const struct stock_fence *fence);
/* Reads, checks and decrements in one script. *before: what it read, with OK and
 * INSUFFICIENT_STOCK. */
enum stock_status stock_take(struct stock *stock, const char *key, int64_t quantity,
                             int64_t *before);

/* ---- Sales with a key ----
 * What is kept under a sale's Idempotency-Key, in a key of its own beside the stock: its answer. */
#define STOCK_ANSWERED_BY_MAX 32
struct stock_record {
    int code;                                    /* 200, or 409: sold out */
    int64_t quantity;                            /* what was asked for */
    int64_t left;                                /* what the answer says is left */
    char answered_by[STOCK_ANSWERED_BY_MAX + 1]; /* the instance that answered */
    uint64_t mark; /* the sale's; 0: the record is of a version that left none */
};
/* MISSING: nothing is kept there. INVALID: something else is. */
enum stock_status stock_recall(struct stock *stock, const char *record_key,
                               struct stock_record *record);
struct stock_once {
    const char *key;
    const char *record_key; /* in the stock's slot */
    int64_t quantity;
    const char *answered_by;
    uint64_t mark; /* the sale's own, not 0: by it the sale knows its record again */
    int64_t keep_ms;
    const struct stock_fence *fence; /* or NULL; not FENCE_LAST_WRITE */
};
/* Sells and keeps the answer, in one script that looks for the answer first, then at the fence,
 * then at the stock, and never takes more than is there. OK: *record; *kept: it was there before,
 * and nothing was sold now. INSUFFICIENT_STOCK: record->left is the stock; where that is
 * none and there is no fence, this answer is kept, too. */
enum stock_status stock_sell_once(struct stock *stock, const struct stock_once *once,
                                  struct stock_record *record, bool *kept);

/* What went wrong in the latest call that was not OK, in a sentence. */
const char *stock_error(const struct stock *stock);
/* After STALE: the token that stood against it; 0: it was not known. */
uint64_t stock_newest(const struct stock *stock);

#endif
