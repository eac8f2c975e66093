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

enum stock_status {
    STOCK_OK,
    STOCK_MISSING,     /* there is no such key */
    STOCK_TOO_FEW,     /* fewer than asked for; nothing was written */
    STOCK_INVALID,     /* the key holds something that is no whole number; nothing was written */
    STOCK_UNAVAILABLE, /* not reached, or it refused; nothing was written */
    STOCK_LOST,        /* the reply was lost: it may have been carried out */
};

/* A server: shared by all threads, never changed. */
struct stock_server;
struct stock_options {
    const char *url; /* one that the lock library takes */
    int64_t timeout_ms;
    /* As the lock library's: after every command. NULL: nobody is told. */
    void (*on_trace)(void *arg, const struct dlock_trace *trace);
    void *on_trace_arg;
};
/* NULL when out of memory. */
struct stock_server *stock_server_new(const struct stock_options *options);
void stock_server_free(struct stock_server *server);

/* A connection: belongs to one thread. Connects when it is used, and again when it must. */
struct stock;
struct stock *stock_new(const struct stock_server *server); /* NULL when out of memory */
void stock_free(struct stock *stock);

enum stock_status stock_ping(struct stock *stock);
enum stock_status stock_read(struct stock *stock, const char *key, int64_t *value);
/* *after: what the server says it is now. */
enum stock_status stock_decrement(struct stock *stock, const char *key, int64_t quantity,
                                  int64_t *after);
enum stock_status stock_write(struct stock *stock, const char *key, int64_t value);
/* Writes, whatever was there. *before: what that was, in the same step; STOCK_NONE: no number. */
#define STOCK_NONE INT64_MIN
enum stock_status stock_replace(struct stock *stock, const char *key, int64_t value,
                                int64_t *before);
/* Reads, checks and decrements in one script. *before: what it read, with OK and TOO_FEW. */
enum stock_status stock_take(struct stock *stock, const char *key, int64_t quantity,
                             int64_t *before);

/* What went wrong in the latest call that was not OK, in a sentence. */
const char *stock_error(const struct stock *stock);

#endif
