/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection to the stock's Redis, for stock.c and stock_record.c: one command there and back.
 * The library's client (lock/redis/redis.h) does the talking, so that what it knows of outages,
 * restarts and late commands serves the stock, too.
 */
#ifndef STOCK_REDIS_H
#define STOCK_REDIS_H

#include "../lock/redis/script.h"
#include "stock.h"

#include <hiredis/hiredis.h>

#define STOCK_ERROR_MAX 256
#define STOCK_MOST                                                                                 \
    9007199254740991 /* 2^53 - 1: a double, which Lua counts in, is exact up to here */

/* Sets stock_error(), and returns the status. */
enum stock_status stock_failed(struct stock *stock, enum stock_status status, const char *format,
                               ...) __attribute__((format(printf, 3, 4)));

/* One command, on a connection that is made if there is none. OK: the reply is no error, and lives
 * until the next command. Else there is no reply; UNAVAILABLE: the command was not sent, or was
 * refused; LOST: it was sent. */
enum stock_status stock_command(struct stock *stock, int argc, const char *const *argv,
                                const redisReply **reply);
/* A script by its SHA1, and in full when the server does not know it. argv: the number of its keys,
 * they, its arguments, and NULL. */
enum stock_status stock_run(struct stock *stock, const struct script *script,
                            const char *const *argv, const redisReply **reply);
/* The reply to a write cannot be read. What the write did is not known, as if no reply had come:
 * LOST. The reply is gone. */
enum stock_status stock_unreadable(struct stock *stock);

/* There is a connection, as far as is known. */
bool stock_is_connected(const struct stock *stock);
/* The first word of the error that answered the latest command; "": none. */
const char *stock_code(const struct stock *stock);
/* For messages. */
const char *stock_shown(const struct stock *stock);

/* What a key holds, from the reply to a read: OK, MISSING, INVALID. */
enum stock_status stock_to_number(struct stock *stock, const char *key, const redisReply *reply,
                                  int64_t *value);
/* The step that sells says that it found too little. LOST: unless that is so, nothing that it says
 * is believed. */
enum stock_status stock_to_few(struct stock *stock, const char *key, int64_t quantity,
                               const redisReply *reply, int64_t *found);
bool stock_is_counted(int64_t value);

#endif
