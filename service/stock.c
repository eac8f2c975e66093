/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h: the commands about the stock, and how their replies are read.
 */
#include "stock_redis.h"
#include "stock_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int stock_fenced_words(const struct stock_fence *fence, const char *const *keys,
                       const char *const *arguments, struct stock_fence_room *room,
                       const char **words)
{
    int count = 1;
    for (; *keys != NULL; keys++)
        words[count++] = *keys;
    if (fence != NULL)
        words[count++] = fence->key;
    if (fence != NULL && fence->kind == FENCE_LAST_READ)
        words[count++] = fence->lock_key;
    if (fence != NULL && fence->kind != FENCE_LAST_WRITE)
        words[count++] = STOCK_EPOCH_KEY;
    if (fence != NULL && fence->kind == FENCE_LAST_READ)
        words[count++] = STOCK_IDENTITY_KEY;
    snprintf(room->key_count, sizeof room->key_count, "%d", count - 1);
    words[0] = room->key_count;
    for (; *arguments != NULL; arguments++)
        words[count++] = *arguments;
    if (fence == NULL)
        return count;
    snprintf(room->token, sizeof room->token, "%" PRIu64, fence->token);
    snprintf(room->epoch, sizeof room->epoch, "%" PRIu64, fence->epoch);
    words[count++] = room->token;
    if (fence->kind != FENCE_LAST_WRITE)
        words[count++] = room->epoch;
    return count;
}

/* Sends a command about the key argv[1]. With a fence, one script compares the token and runs the
 * command. */
static enum stock_status stock_guarded(struct stock *stock, int argc, const char *const *argv,
                                       const struct stock_fence *fence, const redisReply **reply)
{
    static const struct script *const scripts[] = {[FENCE_NEWEST] = &lua_fenced,
                                                   [FENCE_LAST_READ] = &lua_fenced_apart,
                                                   [FENCE_LAST_WRITE] = &lua_fenced_textbook};
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    struct stock_fence_room room;
    if (fence == NULL)
        return stock_command(stock, argc, argv, reply);
    int count = stock_fenced_words(fence, (const char *const[]){argv[1], NULL},
                                   (const char *const[]){NULL}, &room, words);
    words[count++] = argv[0];
    memcpy(words + count, argv + 2, (size_t)(argc - 2) * sizeof *argv);
    return stock_run(stock, scripts[fence->kind], words, reply);
}

/* Reads *after from the reply to a write that was carried out. */
static enum stock_status take_after(struct stock *stock, enum stock_status status,
                                    const redisReply *reply, int64_t *after)
{
    if (status != STOCK_OK)
        return status;
    bool readable = reply->type == REDIS_REPLY_INTEGER && stock_is_counted(reply->integer);
    if (readable)
        *after = reply->integer;
    return readable ? STOCK_OK : stock_unreadable(stock);
}

enum stock_status stock_read(struct stock *stock, const char *key, const struct stock_fence *fence,
                             int64_t *value)
{
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    struct stock_fence_room room;
    const redisReply *reply;
    enum stock_status status;
    if (fence != NULL && fence->kind == FENCE_LAST_READ) {
        stock_fenced_words(fence, (const char *const[]){key, NULL}, (const char *const[]){NULL},
                           &room, words);
        status = stock_run(stock, &lua_fenced_read, words, &reply);
    } else
        status = stock_command(stock, 2, (const char *const[]){"GET", key}, &reply);
    if (status == STOCK_OK)
        status = stock_to_number(stock, key, reply, value);
    return status;
}

enum stock_status stock_decrement(struct stock *stock, const char *key, int64_t quantity,
                                  const struct stock_fence *fence, int64_t *after)
{
    char number[24];
    const redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, quantity);
    const char *argv[] = {quantity == 1 ? "DECR" : "DECRBY", key, number};
    enum stock_status status = stock_guarded(stock, quantity == 1 ? 2 : 3, argv, fence, &reply);
    return take_after(stock, status, reply, after);
}

enum stock_status stock_write(struct stock *stock, const char *key, int64_t value)
{
    char number[24];
    const redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, value);
    enum stock_status status =
        stock_command(stock, 3, (const char *const[]){"SET", key, number}, &reply);
    if (status != STOCK_OK)
        return status;
    bool readable = reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
    return readable ? STOCK_OK : stock_unreadable(stock);
}

enum stock_status stock_replace(struct stock *stock, const char *key, int64_t value,
                                const struct stock_beside *beside, const struct stock_fence *fence,
                                int64_t *before)
{
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    char number[24];
    struct stock_fence_room room;
    const redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, value);
    stock_fenced_words(fence, (const char *const[]){key, beside->set_key, beside->bucket_key, NULL},
                       (const char *const[]){number, NULL}, &room, words);
    enum stock_status status = stock_run(stock, &lua_set_stock, words, &reply);
    if (status != STOCK_OK || stock_to_number(stock, key, reply, before) != STOCK_OK)
        *before = STOCK_NONE;
    bool readable =
        status != STOCK_OK || reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL;
    return readable ? status : stock_unreadable(stock);
}

enum stock_status stock_add(struct stock *stock, const char *key, int64_t quantity,
                            const struct stock_fence *fence, int64_t *after)
{
    char number[24];
    const redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, quantity);
    enum stock_status status =
        stock_guarded(stock, 3, (const char *const[]){"INCRBY", key, number}, fence, &reply);
    return take_after(stock, status, reply, after);
}

enum stock_status stock_confirm(struct stock *stock, const char *key, int64_t after)
{
    const redisReply *reply;
    stock_ask_replicas(stock, true);
    enum stock_status status =
        stock_command(stock, 3, (const char *const[]){"INCRBY", key, "0"}, &reply);
    stock_ask_replicas(stock, false);
    if (status != STOCK_OK)
        return status;
    bool is_there = reply->type == REDIS_REPLY_INTEGER && reply->integer == after;
    return is_there ? STOCK_OK
                    : stock_failed(stock, STOCK_LOST, "%s does not have the write of %s",
                                   stock_shown(stock), key);
}

enum stock_status stock_confirm_record(struct stock *stock, const char *record_key, int64_t keep_ms)
{
    char ms[24];
    const redisReply *reply;
    snprintf(ms, sizeof ms, "%" PRId64, keep_ms);
    stock_ask_replicas(stock, true);
    enum stock_status status = stock_run(stock, &lua_confirm_record,
                                         (const char *const[]){"1", record_key, ms, NULL}, &reply);
    stock_ask_replicas(stock, false);
    if (status != STOCK_OK)
        return status;
    bool is_there = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    return is_there ? STOCK_OK : stock_failed(stock, STOCK_MISSING, "%s has expired", record_key);
}

enum stock_status stock_shut_out(struct stock *stock, const struct stock_fence *fence)
{
    char token[24], epoch[24], why[STOCK_ERROR_MAX];
    const redisReply *reply;
    snprintf(why, sizeof why, "%s", stock_error(stock));
    snprintf(token, sizeof token, "%" PRIu64, fence->token);
    snprintf(epoch, sizeof epoch, "%" PRIu64, fence->epoch);
    enum stock_status status = stock_run(
        stock, &lua_fenced_off,
        (const char *const[]){"2", fence->key, STOCK_EPOCH_KEY, token, epoch, NULL}, &reply);
    if (status == STOCK_OK && reply->type != REDIS_REPLY_NIL)
        status = stock_unreadable(stock);
    return stock_failed(stock, status, "%s", why);
}

/* Reads the reply of sell.lua: the stock left, {a stock that is too small}, or nil. STOCK_LOST:
 * anything else. */
static enum stock_status to_taken(struct stock *stock, const char *key, int64_t quantity,
                                  const redisReply *reply, int64_t *before)
{
    if (reply->type == REDIS_REPLY_NIL)
        return stock_to_number(stock, key, reply, before);
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 1)
        return stock_to_few(stock, key, quantity, reply->element[0], before);
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0 ||
        reply->integer > STOCK_MOST - quantity)
        return STOCK_LOST;
    *before = reply->integer + quantity;
    return STOCK_OK;
}

enum stock_status stock_take(struct stock *stock, const char *key, int64_t quantity,
                             int64_t *before)
{
    char number[24];
    const redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, quantity);
    enum stock_status status =
        stock_run(stock, &lua_sell, (const char *const[]){"1", key, number, NULL}, &reply);
    if (status != STOCK_OK)
        return status;
    status = to_taken(stock, key, quantity, reply, before);
    return status == STOCK_LOST ? stock_unreadable(stock) : status;
}

/* ---- The epoch ------------------------------------------------------------------------------- */

/* Copies a member of the epoch. False: it is no text, or too long. */
static bool take_member(const redisReply *reply, char *text, size_t size)
{
    bool fits =
        reply->type == REDIS_REPLY_STRING && reply->len == strlen(reply->str) && reply->len < size;
    snprintf(text, size, "%s", fits ? reply->str : "");
    return fits;
}

/* The epoch's key holds something else. */
static enum stock_status no_epoch(struct stock *stock)
{
    return stock_failed(stock, STOCK_INVALID,
                        "%s: %s holds no epoch; an operator must delete this key (DEL %s): the "
                        "next sale or PUT /lock makes a new epoch",
                        stock_shown(stock), STOCK_EPOCH_KEY, STOCK_EPOCH_KEY);
}

/* It holds a number that scripts do not count exactly. An instance makes no epoch below one that it
 * has seen. So it would make such a one again. */
static enum stock_status too_high(struct stock *stock)
{
    return stock_failed(stock, STOCK_INVALID,
                        "%s: the epoch in %s is beyond %" PRId64 ", or an instance has seen that "
                        "one; an operator must end all instances, delete this key (DEL %s), and "
                        "start them again",
                        stock_shown(stock), STOCK_EPOCH_KEY, (int64_t)STOCK_MOST, STOCK_EPOCH_KEY);
}

static bool is_too_high(const redisReply *number)
{
    return number->type == REDIS_REPLY_STRING && number->len > 0 &&
           strspn(number->str, "0123456789") == number->len &&
           strtod(number->str, NULL) > STOCK_MOST;
}

/* Reads {epoch, rung, engine, servers, identity}; a nil in place of the epoch: there is none. */
static enum stock_status to_epoch(struct stock *stock, const redisReply *reply,
                                  struct stock_epoch *epoch)
{
    int64_t number = 0;
    *epoch = (struct stock_epoch){0};
    bool whole = reply->type == REDIS_REPLY_ARRAY && reply->elements >= 5;
    if (whole && reply->element[0]->type == REDIS_REPLY_NIL)
        return STOCK_OK;
    if (whole && is_too_high(reply->element[0]))
        return too_high(stock);
    whole = whole &&
            stock_to_number(stock, STOCK_EPOCH_KEY, reply->element[0], &number) == STOCK_OK &&
            number > 0 && take_member(reply->element[1], epoch->rung, sizeof epoch->rung) &&
            take_member(reply->element[2], epoch->engine, sizeof epoch->engine) &&
            take_member(reply->element[3], epoch->servers, sizeof epoch->servers) &&
            take_member(reply->element[4], epoch->identity, sizeof epoch->identity);
    if (!whole)
        return no_epoch(stock);
    epoch->number = (uint64_t)number;
    return STOCK_OK;
}

enum stock_status stock_read_epoch(struct stock *stock, struct stock_epoch *epoch)
{
    const redisReply *reply;
    const char *argv[] = {"HMGET",  STOCK_EPOCH_KEY, "epoch",   "rung",
                          "engine", "servers",       "identity"};
    *epoch = (struct stock_epoch){0};
    enum stock_status status = stock_command(stock, 7, argv, &reply);
    if (status == STOCK_OK)
        return to_epoch(stock, reply, epoch);
    return status == STOCK_INVALID ? no_epoch(stock) : status;
}

enum stock_status stock_raise_epoch(struct stock *stock, uint64_t from, uint64_t above,
                                    const struct stock_epoch *to, struct stock_epoch *now,
                                    bool *raised)
{
    char number[24] = "", more[24];
    const redisReply *reply;
    if (from != 0)
        snprintf(number, sizeof number, "%" PRIu64, from);
    snprintf(more, sizeof more, "%" PRIu64, above);
    *now = (struct stock_epoch){0};
    *raised = false;
    enum stock_status status =
        stock_run(stock, &lua_epoch,
                  (const char *const[]){"1", STOCK_EPOCH_KEY, number, more, to->rung, to->engine,
                                        to->servers, to->identity, NULL},
                  &reply);
    if (status != STOCK_OK)
        return status;
    *raised =
        reply->type == REDIS_REPLY_ARRAY && reply->elements == 6 && reply->element[5]->integer == 1;
    return to_epoch(stock, reply, now);
}
