/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h: the commands about the stock, and how their replies are read.
 */
#include "stock_redis.h"
#include "stock_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The first arguments of a fence's script: the number of its keys, the keys, and the token. */
static int fence_words(const char *key, const struct stock_fence *fence, char token[24],
                       const char **words)
{
    int count = 0;
    words[count++] = fence->kind == FENCE_LAST_READ ? "3" : "2";
    words[count++] = key;
    words[count++] = fence->key;
    if (fence->kind == FENCE_LAST_READ)
        words[count++] = fence->lock_key;
    snprintf(token, 24, "%" PRIu64, fence->token);
    words[count++] = token;
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
    char token[24];
    if (fence == NULL)
        return stock_command(stock, argc, argv, reply);
    int count = fence_words(argv[1], fence, token, words);
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
    char token[24];
    const redisReply *reply;
    enum stock_status status;
    if (fence != NULL && fence->kind == FENCE_LAST_READ) {
        fence_words(key, fence, token, words);
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

/* SET replaces a value of any type. */
static enum stock_status stock_set(struct stock *stock, const char *key, int64_t value,
                                   const struct stock_fence *fence)
{
    char number[24];
    const redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, value);
    enum stock_status status =
        stock_guarded(stock, 3, (const char *const[]){"SET", key, number}, fence, &reply);
    if (status != STOCK_OK)
        return status;
    bool readable = reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
    return readable ? STOCK_OK : stock_unreadable(stock);
}

enum stock_status stock_write(struct stock *stock, const char *key, int64_t value)
{
    return stock_set(stock, key, value, NULL);
}

enum stock_status stock_replace(struct stock *stock, const char *key, int64_t value,
                                const struct stock_fence *fence, int64_t *before)
{
    char number[24];
    const redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, value);
    const char *argv[] = {"SET", key, number, "GET"};
    enum stock_status status = stock_guarded(stock, 4, argv, fence, &reply);
    if (status != STOCK_OK || stock_to_number(stock, key, reply, before) != STOCK_OK)
        *before = STOCK_NONE;
    bool readable =
        status != STOCK_OK || reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL;
    if (!readable)
        return stock_unreadable(stock);
    /* SET with GET refuses a key of another type; a plain SET replaces it. */
    return status == STOCK_INVALID ? stock_set(stock, key, value, fence) : status;
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

enum stock_status stock_shut_out(struct stock *stock, const struct stock_fence *fence)
{
    char token[24], why[STOCK_ERROR_MAX];
    const redisReply *reply;
    snprintf(why, sizeof why, "%s", stock_error(stock));
    snprintf(token, sizeof token, "%" PRIu64, fence->token);
    enum stock_status status = stock_run(
        stock, &lua_fenced_off, (const char *const[]){"1", fence->key, token, NULL}, &reply);
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
