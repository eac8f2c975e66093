/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h, "The layout of a stock": a stock with a version.
 */
#include "stock_redis.h"
#include "stock_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The key holds a hash, and not that of a stock with a version. */
static enum stock_status no_version(struct stock *stock, const char *key)
{
    return stock_failed(stock, STOCK_INVALID, "%s: %s holds no stock with a version",
                        stock_shown(stock), key);
}

enum stock_status stock_read_version(struct stock *stock, const char *key, int64_t *value,
                                     int64_t *version)
{
    const redisReply *reply;
    const char *const argv[] = {"HMGET", key, "stock", "version", "segments"};
    enum stock_status status = stock_command(stock, 5, argv, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
        return no_version(stock, key);
    if (reply->element[2]->type != REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_SEGMENTED, "%s: %s holds segments", stock_shown(stock),
                            key);
    const bool none = reply->element[0]->type == REDIS_REPLY_NIL;
    const bool bare = reply->element[1]->type == REDIS_REPLY_NIL;
    if (none && bare)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", key);
    if (none || bare)
        return no_version(stock, key);
    status = stock_to_number(stock, key, reply->element[0], value);
    return status == STOCK_OK ? stock_to_number(stock, key, reply->element[1], version) : status;
}

enum stock_status stock_take_version(struct stock *stock, const char *key, int64_t version,
                                     int64_t quantity, int64_t *after)
{
    char expected[24], units[24];
    const redisReply *reply;
    snprintf(expected, sizeof expected, "%" PRId64, version);
    snprintf(units, sizeof units, "%" PRId64, quantity);
    enum stock_status status =
        stock_run(stock, &lua_cas, (const char *const[]){"1", key, expected, units, NULL}, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", key);
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 1)
        return stock_failed(stock, STOCK_CHANGED, "%s was changed after it was read", key);
    if (reply->type != REDIS_REPLY_INTEGER || !stock_is_counted(reply->integer))
        return stock_unreadable(stock);
    *after = reply->integer;
    return STOCK_OK;
}
