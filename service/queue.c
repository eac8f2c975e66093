/* SPDX-License-Identifier: Apache-2.0
 *
 * See queue.h.
 */
#include "queue.h"

#include "config.h"
#include "stock_redis.h"
#include "stock_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define QUEUE_GROUP "workers"

void queue_name_keys(const struct config *config, struct sale *sale)
{
    const bool article = config->keys == KEYS_ARTICLE;
    snprintf(sale->queue_key, sizeof sale->queue_key, article ? "{%s}:queue" : "%s:queue",
             sale->item_key);
    snprintf(sale->pointer_key, sizeof sale->pointer_key, article ? "{%s}:id:%s" : "%s:id:%s",
             sale->item_key, sale->random);
}

void queue_make_random(char random[STOCK_RANDOM_DIGITS + 1])
{
    unsigned char bytes[STOCK_RANDOM_DIGITS / 2];
    while (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        ;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(random + 2 * i, 3, "%02x", bytes[i]);
}

/* ---- Replies --------------------------------------------------------------------------------- */

static bool queue_is_text(const redisReply *reply, size_t size_max)
{
    return reply->type == REDIS_REPLY_STRING && reply->len <= size_max &&
           strlen(reply->str) == reply->len;
}

static bool queue_copy(const redisReply *reply, size_t size_max, char *text)
{
    const bool fits = queue_is_text(reply, size_max) && reply->len > 0;
    snprintf(text, size_max + 1, "%s", fits ? reply->str : "");
    return fits;
}

static bool queue_is_pair(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == REDIS_REPLY_STRING &&
           reply->element[1]->type == REDIS_REPLY_STRING;
}

static enum stock_status queue_unreadable(struct stock *stock, const char *key)
{
    return stock_failed(stock, STOCK_INVALID,
                        "%s: the oldest entry of %s is none of this shop; an operator must look at "
                        "it (XRANGE %.100s - + COUNT 1)",
                        stock_shown(stock), key, key);
}

/* ---- The list of items ----------------------------------------------------------------------- */

static enum stock_status queue_note(struct stock *stock, const char *item, const char *age_ms)
{
    const redisReply *reply;
    return stock_run(stock, &lua_queue_list,
                     (const char *const[]){"1", STOCK_QUEUES_KEY, item, age_ms, NULL}, &reply);
}

enum stock_status queue_list(struct stock *stock, const char *item)
{
    return queue_note(stock, item, "");
}

enum stock_status queue_unlist(struct stock *stock, const char *item)
{
    char age_ms[24];
    snprintf(age_ms, sizeof age_ms, "%d", QUEUE_LISTED_MS);
    return queue_note(stock, item, age_ms);
}

enum stock_status queue_listed(struct stock *stock, void (*found)(void *arg, const char *item),
                               void *arg)
{
    char last[24];
    const redisReply *reply;
    snprintf(last, sizeof last, "%d", QUEUE_LIST_MAX - 1);
    enum stock_status status = stock_command(
        stock, 4, (const char *const[]){"ZRANGE", STOCK_QUEUES_KEY, "0", last}, &reply);
    if (status != STOCK_OK || reply->type != REDIS_REPLY_ARRAY)
        return status;
    for (size_t i = 0; i < reply->elements; i++)
        if (queue_is_text(reply->element[i], ITEM_MAX) && sale_is_item(reply->element[i]->str))
            found(arg, reply->element[i]->str);
    return STOCK_OK;
}

/* ---- Accepting ------------------------------------------------------------------------------- */

/* Reads the reply of queue_accept.lua. STOCK_LOST: it cannot be read. */
static enum stock_status to_accepted(struct stock *stock, const struct sale *sale,
                                     const redisReply *reply, struct stock_record *record,
                                     enum queue_accepted *accepted)
{
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", sale->stock_key);
    const char *word = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
                               reply->element[0]->type == REDIS_REPLY_STRING
                           ? reply->element[0]->str
                           : "";
    const bool was = strcmp(word, "was") == 0;
    *accepted = was ? QUEUE_ACCEPTED : QUEUE_IS_FULL;
    if (was) {
        *record = (struct stock_record){.code = 202, .quantity = sale->quantity};
        memcpy(record->random, sale->random, sizeof record->random);
    }
    if (was || strcmp(word, "full") == 0)
        return STOCK_OK;
    if (!queue_is_pair(reply))
        return stock_unreadable(stock);
    const bool is_made = strcmp(reply->element[0]->str, "made") == 0;
    enum stock_status status = stock_to_record(stock, sale->record_key, reply->element[1], record);
    *accepted = record->code == 202 ? QUEUE_ACCEPTED : QUEUE_DECIDED;
    return status == STOCK_INVALID && is_made ? stock_unreadable(stock) : status;
}

enum stock_status queue_accept(struct stock *stock, const struct config *config,
                               const struct sale *sale, struct stock_record *record,
                               enum queue_accepted *accepted)
{
    char quantity[24], life_ms[24], max[24];
    const redisReply *reply;
    snprintf(quantity, sizeof quantity, "%" PRId64, sale->quantity);
    snprintf(life_ms, sizeof life_ms, "%" PRId64, config->queue_life_ms);
    snprintf(max, sizeof max, "%" PRId64, config->queue_max);
    stock_ask_replicas(stock, true);
    enum stock_status status =
        stock_run(stock, &lua_queue_accept,
                  (const char *const[]){"4", sale->stock_key, sale->record_key, sale->queue_key,
                                        sale->pointer_key, quantity, sale->key, sale->random,
                                        sale->request, config->instance, life_ms, max, NULL},
                  &reply);
    stock_ask_replicas(stock, false);
    return status == STOCK_OK ? to_accepted(stock, sale, reply, record, accepted) : status;
}

/* ---- Entries --------------------------------------------------------------------------------- */

static bool queue_to_entry(const redisReply *reply, struct queue_entry *entry)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 7)
        return false;
    redisReply *const *word = reply->element;
    bool whole = queue_copy(word[0], STOCK_ENTRY_MAX, entry->number) &&
                 queue_copy(word[1], SALE_KEY_MAX, entry->key) &&
                 queue_copy(word[2], STOCK_RANDOM_DIGITS, entry->random) &&
                 queue_is_text(word[3], 7) && queue_copy(word[4], REQUEST_ID_MAX, entry->request) &&
                 queue_is_text(word[5], 20) && queue_is_text(word[6], 20);
    if (!whole)
        return false;
    entry->quantity = strtoll(word[3]->str, NULL, 10);
    entry->left_ms = strtoll(word[5]->str, NULL, 10);
    entry->length = strtoll(word[6]->str, NULL, 10);
    return entry->quantity >= 1 && entry->quantity <= QUANTITY_MAX;
}

enum stock_status queue_oldest(struct stock *stock, const char *queue_key,
                               struct queue_entry *entry)
{
    const redisReply *reply;
    enum stock_status status =
        stock_run(stock, &lua_queue_oldest, (const char *const[]){"1", queue_key, NULL}, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_NIL)
        return STOCK_MISSING;
    return queue_to_entry(reply, entry) ? STOCK_OK : queue_unreadable(stock, queue_key);
}

enum stock_status queue_take(struct stock *stock, const char *queue_key, const char *instance,
                             const char *number, bool *same)
{
    const redisReply *reply;
    enum stock_status status =
        stock_run(stock, &lua_queue_take,
                  (const char *const[]){"1", queue_key, QUEUE_GROUP, instance, NULL}, &reply);
    *same =
        status == STOCK_OK && reply->type == REDIS_REPLY_STRING && strcmp(reply->str, number) == 0;
    return status;
}

/* The number of the first entry of that range, or of the last one with XREVRANGE. */
static enum stock_status queue_range(struct stock *stock, const char *command,
                                     const char *queue_key, const char *from, const char *to,
                                     char number[STOCK_ENTRY_MAX + 1])
{
    const redisReply *reply;
    enum stock_status status = stock_command(
        stock, 6, (const char *const[]){command, queue_key, from, to, "COUNT", "1"}, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 0)
        return STOCK_MISSING;
    const bool whole = reply->type == REDIS_REPLY_ARRAY &&
                       reply->element[0]->type == REDIS_REPLY_ARRAY &&
                       reply->element[0]->elements == 2 &&
                       queue_copy(reply->element[0]->element[0], STOCK_ENTRY_MAX, number);
    return whole ? STOCK_OK : queue_unreadable(stock, queue_key);
}

static enum stock_status queue_has_between(struct stock *stock, const char *queue_key,
                                           const char *from, const char *to, bool *has)
{
    char number[STOCK_ENTRY_MAX + 1];
    enum stock_status status = queue_range(stock, "XRANGE", queue_key, from, to, number);
    *has = status == STOCK_OK;
    return status == STOCK_MISSING ? STOCK_OK : status;
}

enum stock_status queue_has(struct stock *stock, const char *queue_key, const char *number,
                            bool *has)
{
    return queue_has_between(stock, queue_key, number, number, has);
}

enum stock_status queue_has_until(struct stock *stock, const char *queue_key, const char *number,
                                  bool *has)
{
    return queue_has_between(stock, queue_key, "-", number, has);
}

enum stock_status queue_newest(struct stock *stock, const char *queue_key,
                               char number[STOCK_ENTRY_MAX + 1])
{
    return queue_range(stock, "XREVRANGE", queue_key, "+", "-", number);
}

/* ---- Selling --------------------------------------------------------------------------------- */

/* Reads the reply of queue_sell.lua. STOCK_LOST: it cannot be read. */
static enum stock_status to_sold(struct stock *stock, const struct queue_sell *sell,
                                 const redisReply *reply, struct stock_record *record,
                                 enum queue_sold *sold)
{
    int64_t found;
    if (!queue_is_pair(reply))
        return stock_unreadable(stock);
    const char *what = reply->element[0]->str;
    *sold = QUEUE_NOT;
    if (strcmp(what, "not") == 0)
        return STOCK_OK;
    if (strcmp(what, "few") == 0) {
        enum stock_status status = stock_to_number(stock, sell->key, reply->element[1], &found);
        return status == STOCK_INVALID ? status : stock_unreadable(stock);
    }
    *sold = strcmp(what, "made") == 0 ? QUEUE_MADE : QUEUE_KEPT;
    enum stock_status status = stock_to_record(stock, sell->record_key, reply->element[1], record);
    if (*sold == QUEUE_KEPT)
        return STOCK_OK; /* its entry is acknowledged, whatever the record is */
    return status == STOCK_OK && record->mark == sell->mark ? STOCK_OK : stock_unreadable(stock);
}

enum stock_status queue_sell(struct stock *stock, const struct queue_sell *sell,
                             struct stock_record *record, enum queue_sold *sold)
{
    const struct stock_fence *fence = sell->fence;
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    char by[STOCK_BY_MAX], keep_ms[24], token[24], epoch[24];
    int count = 0;
    const redisReply *reply;
    stock_print_by(by, sell->instance, sell->mark);
    snprintf(keep_ms, sizeof keep_ms, "%" PRId64, sell->keep_ms);
    snprintf(token, sizeof token, "%" PRIu64, fence != NULL ? fence->token : 0);
    snprintf(epoch, sizeof epoch, "%" PRIu64, fence != NULL ? fence->epoch : 0);
    words[count++] = ""; /* the number of keys */
    words[count++] = sell->key;
    words[count++] = sell->record_key;
    words[count++] = sell->queue_key;
    words[count++] = sell->pointer_key;
    count = stock_fence_keys(fence, words, count);
    words[0] = count == 5 ? "4" : count == 7 ? "6" : "8";
    words[count++] = sell->number;
    words[count++] = QUEUE_GROUP;
    words[count++] = by;
    words[count++] = keep_ms;
    words[count++] = sell->expires_only ? "expire" : "sell";
    words[count++] = token;
    words[count++] = epoch;
    enum stock_status status = stock_run(stock, &lua_queue_sell, words, &reply);
    return status == STOCK_OK ? to_sold(stock, sell, reply, record, sold) : status;
}

enum stock_status queue_settle(struct stock *stock, const struct queue_sell *sell,
                               const struct stock_record *record)
{
    char by[STOCK_BY_MAX], text[STOCK_BY_MAX + 64], keep_ms[24];
    const redisReply *reply;
    stock_print_by(by, sell->instance, sell->mark);
    snprintf(text, sizeof text, "%d %" PRId64 " %" PRId64 " %s", record->code, record->quantity,
             record->left, by);
    snprintf(keep_ms, sizeof keep_ms, "%" PRId64, sell->keep_ms);
    return stock_run(stock, &lua_queue_settle,
                     (const char *const[]){"3", sell->record_key, sell->queue_key,
                                           sell->pointer_key, sell->number, QUEUE_GROUP, text,
                                           keep_ms, NULL},
                     &reply);
}

/* ---- The id ---------------------------------------------------------------------------------- */

enum stock_status queue_find(struct stock *stock, const char *pointer_key,
                             char key[SALE_KEY_MAX + 1])
{
    const redisReply *reply;
    enum stock_status status =
        stock_command(stock, 2, (const char *const[]){"GET", pointer_key}, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_NIL || (reply->type == REDIS_REPLY_STRING && reply->len == 0))
        return STOCK_MISSING;
    return queue_copy(reply, SALE_KEY_MAX, key)
               ? STOCK_OK
               : stock_failed(stock, STOCK_INVALID, "%s holds no key of a sale", pointer_key);
}
