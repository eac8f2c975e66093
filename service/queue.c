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
    return stock_failed(
        stock, STOCK_INVALID,
        "%s: the oldest entry of %s was not written by this shop, and stops its item; look "
        "at it (XRANGE %.100s - + COUNT 1), and delete it (XDEL)",
        stock_shown(stock), key, key);
}

/* ---- The list of items ----------------------------------------------------------------------- */

enum stock_status queue_tidy(struct stock *stock, const char *item, const char *queue_key)
{
    char age_ms[24];
    const redisReply *reply;
    snprintf(age_ms, sizeof age_ms, "%d", QUEUE_UNUSED_MS);
    return stock_run(
        stock, &lua_queue_tidy,
        (const char *const[]){"2", STOCK_QUEUES_KEY, queue_key, item, QUEUE_GROUP, age_ms, NULL},
        &reply);
}

static void queue_name(const struct config *config, const char *item, struct queue_listed *listed)
{
    struct sale names = {0};
    snprintf(names.item, sizeof names.item, "%s", item);
    sale_name_keys(config, &names);
    queue_name_keys(config, &names);
    snprintf(listed->item, sizeof listed->item, "%s", item);
    memcpy(listed->queue_key, names.queue_key, sizeof listed->queue_key);
}

/* Reads {cursor, {item, time, item, time, ...}}. Names that are none of an item are left out.
 * NULL: out of memory, or it is no such reply. */
static struct queue_listed *queue_to_page(const struct config *config, const redisReply *reply,
                                          char cursor[QUEUE_CURSOR_MAX + 1], size_t *count)
{
    *count = 0;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[1]->type != REDIS_REPLY_ARRAY ||
        !queue_copy(reply->element[0], QUEUE_CURSOR_MAX, cursor))
        return NULL;
    const redisReply *members = reply->element[1];
    struct queue_listed *page = calloc(members->elements / 2 + 1, sizeof *page);
    for (size_t i = 0; page != NULL && i < members->elements; i += 2)
        if (queue_is_text(members->element[i], ITEM_MAX) && sale_is_item(members->element[i]->str))
            queue_name(config, members->element[i]->str, &page[(*count)++]);
    return page;
}

/* Asks for the lengths of these queues. */
static enum stock_status queue_ask_lengths(struct stock *stock, struct queue_listed *page,
                                           size_t count)
{
    const char **keys = calloc(count + 1, sizeof *keys);
    const redisReply **replies = calloc(count + 1, sizeof *replies);
    enum stock_status status = STOCK_UNAVAILABLE;
    for (size_t i = 0; keys != NULL && i < count; i++)
        keys[i] = page[i].queue_key;
    if (keys != NULL && replies != NULL)
        status = stock_ask_each(stock, "XLEN", keys, count, replies);
    for (size_t i = 0; status == STOCK_OK && i < count; i++)
        page[i].has_entries = replies[i] == NULL || replies[i]->type != REDIS_REPLY_INTEGER ||
                              replies[i]->integer > 0;
    free(keys);
    free(replies);
    return status;
}

enum stock_status queue_walk(struct stock *stock, const struct config *config,
                             char cursor[QUEUE_CURSOR_MAX + 1],
                             void (*found)(void *arg, const struct queue_listed *listed), void *arg)
{
    size_t count;
    const redisReply *reply;
    enum stock_status status = stock_command(
        stock, 5, (const char *const[]){"ZSCAN", STOCK_QUEUES_KEY, cursor, "COUNT", "256"}, &reply);
    if (status != STOCK_OK)
        return status;
    struct queue_listed *page = queue_to_page(config, reply, cursor, &count);
    if (page == NULL)
        return stock_failed(stock, STOCK_UNAVAILABLE, "%s: a page of %s cannot be read",
                            stock_shown(stock), STOCK_QUEUES_KEY);
    status = queue_ask_lengths(stock, page, count);
    for (size_t i = 0; status == STOCK_OK && i < count; i++)
        found(arg, &page[i]);
    free(page);
    return status;
}

enum stock_status queue_probe(struct stock *stock, const struct config *config)
{
    /* No item has these keys: what follows the braces is none of a shop's. */
    const bool article = config->keys == KEYS_ARTICLE;
    const char *const keys[] = {
        STOCK_QUEUES_KEY, article ? "{inventory}:none" : "inventory:{readyz}:none",
        article ? "{inventory}:none:key:none" : "inventory:{readyz}:none:key:none",
        article ? "{inventory}:none:queue" : "inventory:{readyz}:none:queue",
        article ? "{inventory}:none:id:none" : "inventory:{readyz}:none:id:none"};
    const redisReply *reply;
    enum stock_status status = stock_run(
        stock, &lua_queue_probe,
        (const char *const[]){"5", keys[0], keys[1], keys[2], keys[3], keys[4], NULL}, &reply);
    const char *refused = status == STOCK_OK && reply->type == REDIS_REPLY_STRING ? reply->str : "";
    if (status == STOCK_OK && refused[0] == '\0')
        return STOCK_OK;
    if (status == STOCK_OK)
        return stock_failed(stock, STOCK_UNAVAILABLE,
                            "%s refuses what --on-conflict queue needs; change the rights of its "
                            "user: %.256s",
                            stock_shown(stock), refused);
    char why[STOCK_ERROR_MAX / 2];
    snprintf(why, sizeof why, "%s", stock_error(stock));
    return stock_failed(stock, status, "whether its user may do what a queue needs: %s", why);
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
                  (const char *const[]){"5", sale->stock_key, sale->record_key, sale->queue_key,
                                        sale->pointer_key, STOCK_QUEUES_KEY, quantity, sale->key,
                                        sale->random, sale->request, config->instance, life_ms, max,
                                        sale->item, NULL},
                  &reply);
    stock_ask_replicas(stock, false);
    return status == STOCK_OK ? to_accepted(stock, sale, reply, record, accepted) : status;
}

enum stock_status queue_recall(struct stock *stock, const struct sale *sale,
                               struct stock_record *record)
{
    const redisReply *reply;
    enum stock_status status =
        stock_run(stock, &lua_queue_recall,
                  (const char *const[]){"2", sale->record_key, sale->queue_key, NULL}, &reply);
    if (status != STOCK_OK)
        return status;
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", sale->stock_key);
    return stock_to_record(stock, sale->record_key, reply, record);
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
                 queue_is_text(word[5], 20) && word[5]->len > 0 && queue_is_text(word[6], 20);
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

enum stock_status queue_first(struct stock *stock, const char *queue_key,
                              char number[STOCK_ENTRY_MAX + 1])
{
    return queue_range(stock, "XRANGE", queue_key, "-", "+", number);
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
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    const char *const keys[] = {sell->key, sell->record_key, sell->queue_key, sell->pointer_key,
                                NULL};
    char by[STOCK_BY_MAX], keep_ms[24];
    struct stock_fence_room room;
    const redisReply *reply;
    stock_print_by(by, sell->instance, sell->mark);
    snprintf(keep_ms, sizeof keep_ms, "%" PRId64, sell->keep_ms);
    stock_fenced_words(sell->fence, keys,
                       (const char *const[]){sell->number, QUEUE_GROUP, by, keep_ms,
                                             sell->expires_only ? "expire" : "sell", sell->random,
                                             NULL},
                       &room, words);
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
               : stock_failed(stock, STOCK_INVALID,
                              "%s does not hold the Idempotency-Key of a sale", pointer_key);
}
