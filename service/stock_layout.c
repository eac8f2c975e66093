/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h, "The layout of a stock": how a stock is laid, and laid anew.
 */
#include "stock_redis.h"
#include "stock_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum stock_status stock_find_layout(struct stock *stock, const char *key, enum stock_layout *layout,
                                    int *segments)
{
    const redisReply *reply;
    *segments = 0;
    *layout = LAYOUT_NONE;
    enum stock_status status =
        stock_run(stock, &lua_layout, (const char *const[]){"1", key, NULL}, &reply);
    if (status != STOCK_OK || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
        return status;
    for (size_t i = 0; i < 3; i++)
        if (reply->element[i]->str == NULL)
            return STOCK_OK;
    if (reply->element[1]->len > 0) {
        *segments = atoi(reply->element[1]->str);
        *layout = LAYOUT_SEGMENTS;
    } else if (reply->element[2]->len > 0) {
        *layout = LAYOUT_VERSION;
    } else if (strcmp(reply->element[0]->str, "string") == 0) {
        *layout = LAYOUT_NUMBER;
    }
    return STOCK_OK;
}

/* Reads {what each segment has}. False: anything else. */
static bool stock_layout_take_parts(struct stock *stock, const char *key, const redisReply *reply,
                                    int *count, int64_t parts[SEGMENTS_MAX])
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements > SEGMENTS_MAX)
        return false;
    *count = (int)reply->elements;
    for (size_t i = 0; i < reply->elements; i++)
        if (stock_to_number(stock, key, reply->element[i], &parts[i]) != STOCK_OK)
            return false;
    return true;
}

/* Reads what lay.lua returns. False: anything else. */
static bool stock_layout_take(struct stock *stock, const char *key, const redisReply *reply,
                              struct stock_laid *laid)
{
    const bool whole = reply->type == REDIS_REPLY_ARRAY && reply->elements == 4 &&
                       reply->element[0]->type == REDIS_REPLY_STRING &&
                       stock_to_number(stock, key, reply->element[1], &laid->after) == STOCK_OK &&
                       stock_layout_take_parts(stock, key, reply->element[2],
                                               &laid->segments_before, laid->parts_before) &&
                       stock_layout_take_parts(stock, key, reply->element[3], &laid->segments_after,
                                               laid->parts_after);
    if (whole && (reply->element[0]->len == 0 ||
                  stock_to_number(stock, key, reply->element[0], &laid->before) != STOCK_OK))
        laid->before = STOCK_NONE;
    return whole;
}

enum stock_status stock_lay(struct stock *stock, const struct stock_laying *laying,
                            struct stock_laid *laid)
{
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    char key_count[12], units[24], layout[12];
    int count = 0;
    const redisReply *reply;
    snprintf(key_count, sizeof key_count, "%zu", laying->key_count + 3);
    snprintf(units, sizeof units, "%" PRId64, laying->units);
    snprintf(layout, sizeof layout, "%d", laying->segments);
    words[count++] = key_count;
    words[count++] = laying->key;
    words[count++] = laying->beside.set_key;
    words[count++] = laying->beside.bucket_key;
    for (size_t i = 0; i < laying->key_count; i++)
        words[count++] = laying->keys[i];
    words[count++] = laying->adds ? "add" : "set";
    words[count++] = units;
    words[count++] = laying->layout == LAYOUT_NUMBER    ? "number"
                     : laying->layout == LAYOUT_VERSION ? "version"
                                                        : layout;
    *laid = (struct stock_laid){.before = STOCK_NONE};
    enum stock_status status = stock_run(stock, &lua_lay, words, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no stock in %s to add to", laying->key);
    return stock_layout_take(stock, laying->key, reply, laid) ? STOCK_OK : stock_unreadable(stock);
}
