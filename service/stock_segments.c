/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h, "The layout of a stock": a stock over segments.
 */
#include "stock_redis.h"
#include "stock_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The words of a script: the number of its keys, the stock's, and those of the segments. */
static int stock_segments_words(const char *key, const char *const *keys, size_t count,
                                char key_count[12], const char **words)
{
    int used = 0;
    snprintf(key_count, 12, "%zu", count + 1);
    words[used++] = key_count;
    words[used++] = key;
    for (size_t i = 0; i < count; i++)
        words[used++] = keys[i];
    return used;
}

enum stock_status stock_read_segments(struct stock *stock, const char *key, const char *const *keys,
                                      size_t count, int64_t stocks[SEGMENTS_MAX])
{
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    char key_count[12];
    const redisReply *reply;
    stock_segments_words(key, keys, count, key_count, words);
    enum stock_status status = stock_run(stock, &lua_read_segments, words, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", key);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count)
        return stock_failed(stock, STOCK_INVALID, "%s: %s does not hold segments",
                            stock_shown(stock), key);
    for (size_t i = 0; i < count; i++) {
        if (reply->element[i]->type == REDIS_REPLY_NIL)
            return stock_failed(stock, STOCK_INVALID,
                                "%s: the segment %s is missing; an operator must set the stock",
                                stock_shown(stock), keys[i]);
        status = stock_to_number(stock, keys[i], reply->element[i], &stocks[i]);
        if (status != STOCK_OK)
            return status;
    }
    return STOCK_OK;
}

enum stock_status stock_write_segment(struct stock *stock, const char *key, int segments,
                                      const char *segment_key, const char *command, int64_t number,
                                      int64_t *after)
{
    char of[12], units[24];
    const redisReply *reply;
    snprintf(of, sizeof of, "%d", segments);
    snprintf(units, sizeof units, "%" PRId64, number);
    enum stock_status status =
        stock_run(stock, &lua_write_segment,
                  (const char *const[]){"2", key, segment_key, of, command, units, NULL}, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", key);
    *after = reply->type == REDIS_REPLY_INTEGER ? reply->integer : number;
    const bool readable = reply->type == REDIS_REPLY_INTEGER
                              ? stock_is_counted(reply->integer)
                              : reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
    return readable ? STOCK_OK : stock_unreadable(stock);
}

enum stock_status stock_take_segments(struct stock *stock, const char *key, int segments,
                                      const char *const *keys, const int64_t *quantities,
                                      size_t count, int64_t *after)
{
    const char *words[2 * SEGMENTS_MAX + 4] = {NULL};
    char key_count[12], of[12], numbers[SEGMENTS_MAX][24];
    const redisReply *reply;
    int used = stock_segments_words(key, keys, count, key_count, words);
    snprintf(of, sizeof of, "%d", segments);
    words[used++] = of;
    for (size_t i = 0; i < count; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%" PRId64, quantities[i]);
        words[used++] = numbers[i];
    }
    enum stock_status status = stock_run(stock, &lua_take_segments, words, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", key);
    if (reply->type != REDIS_REPLY_ARRAY)
        return stock_unreadable(stock);
    if (reply->elements == 0)
        return stock_failed(stock, STOCK_INSUFFICIENT, "a segment of %s has too few", key);
    for (size_t i = 0; i < count; i++) {
        if (reply->elements != count || reply->element[i]->type != REDIS_REPLY_INTEGER ||
            !stock_is_counted(reply->element[i]->integer))
            return stock_unreadable(stock);
        after[i] = reply->element[i]->integer;
    }
    return STOCK_OK;
}
