/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection to the stock's Redis (store.h), for stock.c and stock_record.c.
 */
#ifndef STOCK_REDIS_H
#define STOCK_REDIS_H

#include "stock.h"

#define STOCK_MOST                                                                                 \
    9007199254740991 /* 2^53 - 1: Lua counts in doubles, which are exact up to here */

/* Sets stock_error(), and returns the status. */
enum stock_status stock_failed(struct stock *stock, enum stock_status status, const char *format,
                               ...) __attribute__((format(printf, 3, 4)));

/* Sends one command; connects first if necessary. STOCK_OK: *reply is not an error, and is valid
 * until the next command. Otherwise *reply is NULL. STOCK_LOST: the command was sent, and its reply
 * was lost. Any other status: it was not sent, or the server refused it. */
enum stock_status stock_command(struct stock *stock, int argc, const char *const *argv,
                                const redisReply **reply);
/* Asks COMMAND KEY for each key, in one exchange; not for writes. STOCK_OK: replies[i] may be an
 * error, and is valid until the next command. */
enum stock_status stock_ask_each(struct stock *stock, const char *command, const char *const *keys,
                                 size_t count, const redisReply **replies);
/* Runs a script by its SHA1; sends it in full if the server does not know it. argv: the number of
 * keys, the keys, the arguments, and NULL. */
enum stock_status stock_run(struct stock *stock, const struct script *script,
                            const char *const *argv, const redisReply **reply);
/* Call this if the reply to a write cannot be read. What the write did is unknown, as if no reply
 * had come: STOCK_LOST. The reply must not be used after this. */
enum stock_status stock_unreadable(struct stock *stock);

/* The first word of the error that answered the latest command; "": none. */
const char *stock_code(const struct stock *stock);

/* Reads a key's number from the reply to a read: STOCK_OK, STOCK_MISSING or STOCK_INVALID. */
enum stock_status stock_to_number(struct stock *stock, const char *key, const redisReply *reply,
                                  int64_t *value);
/* Reads the stock that a selling script reports as too small: STOCK_INSUFFICIENT. STOCK_LOST: it is
 * not too small, so no part of the reply can be trusted. */
enum stock_status stock_to_few(struct stock *stock, const char *key, int64_t quantity,
                               const redisReply *reply, int64_t *found);
struct stock_record;
/* Reads a sale's record as the scripts write it. STOCK_INVALID: it is none. */
enum stock_status stock_to_record(struct stock *stock, const char *record_key,
                                  const redisReply *reply, struct stock_record *record);
/* The words of a script that compares a fence: the number of its keys, its own keys, the fence's;
 * its own arguments, the fence's token and its epoch, if it has one. keys and arguments end with
 * NULL. fence NULL: none. Returns how many words there are; they point into the room, too. */
struct stock_fence_room {
    char key_count[12];
    char token[24];
    char epoch[24];
};
int stock_fenced_words(const struct stock_fence *fence, const char *const *keys,
                       const char *const *arguments, struct stock_fence_room *room,
                       const char **words);
/* The instance and the mark that stock_to_record reads at the end of a record. */
#define STOCK_BY_MAX (STOCK_ANSWERED_BY_MAX + 18)
void stock_print_by(char text[STOCK_BY_MAX], const char *instance, uint64_t mark);
/* Whether a Lua script counts that number exactly. */
bool stock_is_counted(int64_t value);

#endif
