/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h, "Sales with a key".
 */
#include "config.h"
#include "stock_redis.h"
#include "stock_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK_DIGITS 16

/* Reads a number and the space after it, and moves *text past both. It must be in the one form in
 * which sell_once.lua writes it: "+1", "01", "-0" and a number that is too large are none. */
static bool take_word(const char **text, int64_t *number)
{
    char own[24];
    *number = strtoll(*text, NULL, 10);
    size_t size = (size_t)snprintf(own, sizeof own, "%" PRId64 " ", *number);
    bool taken = strncmp(*text, own, size) == 0;
    *text += taken ? size : 0;
    return taken;
}

/* Whether a script stores such an answer: 409 only if too few are left; 200 only from a stock that
 * it counts. */
static bool is_answer(int64_t code, int64_t quantity, int64_t left)
{
    if (quantity < 1 || !stock_is_counted(quantity) || !stock_is_counted(left))
        return false;
    if (code == 404 || code == 503)
        return left == 0;
    return code == 200 ? left >= 0 && stock_is_counted(left + quantity)
                       : code == 409 && left < quantity;
}

void stock_print_by(char text[STOCK_BY_MAX], const char *instance, uint64_t mark)
{
    snprintf(text, STOCK_BY_MAX, "%s %0*" PRIx64, instance, MARK_DIGITS, mark);
}

/* Copies a word of these characters, and moves *text past it and the space after it. False: it is
 * empty or too long. */
static bool take_text(const char **text, const char *characters, size_t size_max, char *word)
{
    const size_t size = strspn(*text, characters);
    if (size == 0 || size > size_max || (*text)[size] != ' ')
        return false;
    snprintf(word, size_max + 1, "%.*s", (int)size, *text);
    *text += size + 1;
    return true;
}

/* "INSTANCE MARK" or "INSTANCE", up to the end of the text. */
static bool take_answered_by(const char *text, struct stock_record *record)
{
    size_t size = strcspn(text, " ");
    const char *mark = text + size + (text[size] == ' ');
    if (size > STOCK_ANSWERED_BY_MAX || (text[size] == ' ' && strlen(mark) != MARK_DIGITS) ||
        strspn(mark, "0123456789abcdef") != strlen(mark))
        return false;
    snprintf(record->answered_by, sizeof record->answered_by, "%.*s", (int)size, text);
    record->mark = strtoull(mark, NULL, 16);
    return settings_is_name(record->answered_by, STOCK_ANSWERED_BY_MAX);
}

/* Reads "CODE QUANTITY LEFT INSTANCE MARK", or what queue_accept.lua writes: "202 QUANTITY ENTRY
 * RANDOM INSTANCE". */
enum stock_status stock_to_record(struct stock *stock, const char *record_key,
                                  const redisReply *reply, struct stock_record *record)
{
    const char *text = reply->type == REDIS_REPLY_STRING ? reply->str : "";
    int64_t code = 0;
    *record = (struct stock_record){0};
    bool whole = take_word(&text, &code) && take_word(&text, &record->quantity);
    if (code == 202)
        whole = whole && record->quantity > 0 &&
                take_text(&text, "0123456789-", STOCK_ENTRY_MAX, record->entry) &&
                take_text(&text, "0123456789abcdef", STOCK_RANDOM_DIGITS, record->random);
    else
        whole = whole && take_word(&text, &record->left) &&
                is_answer(code, record->quantity, record->left);
    whole = whole && take_answered_by(text, record) && strlen(reply->str) == reply->len;
    if (!whole)
        return stock_failed(stock, STOCK_INVALID, "%s holds no record of a sale", record_key);
    record->code = (int)code;
    return STOCK_OK;
}

enum stock_status stock_recall(struct stock *stock, const char *record_key,
                               struct stock_record *record)
{
    const redisReply *reply;
    enum stock_status status =
        stock_command(stock, 2, (const char *const[]){"GET", record_key}, &reply);
    if (status != STOCK_OK)
        return status;
    /* sell_once.lua leaves an empty record if its DECRBY was refused. */
    bool none =
        reply->type == REDIS_REPLY_NIL || (reply->type == REDIS_REPLY_STRING && reply->len == 0);
    status = none ? STOCK_MISSING : stock_to_record(stock, record_key, reply, record);
    return status;
}

static bool stock_record_is_pair(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == REDIS_REPLY_STRING &&
           reply->element[1]->type == REDIS_REPLY_STRING;
}

/* Reads the reply of sell_once.lua: {what, text} or nil. STOCK_LOST: anything else. */
static enum stock_status to_once(struct stock *stock, const struct stock_once *once,
                                 const redisReply *reply, struct stock_record *record, bool *kept)
{
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", once->key);
    if (!stock_record_is_pair(reply))
        return STOCK_LOST;
    const char *what = reply->element[0]->str;
    if (strcmp(what, "few") == 0)
        return stock_to_few(stock, once->key, once->quantity, reply->element[1], &record->left);
    *kept = strcmp(what, "kept") == 0;
    enum stock_status status = stock_to_record(stock, once->record_key, reply->element[1], record);
    if (*kept)
        return status;
    bool made = strcmp(what, "made") == 0 && status == STOCK_OK && record->mark == once->mark;
    return !made ? STOCK_LOST : record->code == 409 ? STOCK_INSUFFICIENT : STOCK_OK;
}

enum stock_status stock_sell_once(struct stock *stock, const struct stock_once *once,
                                  struct stock_record *record, bool *kept)
{
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    char quantity[24], worker[STOCK_BY_MAX], keep_ms[24];
    struct stock_fence_room room;
    const redisReply *reply;
    stock_print_by(worker, once->answered_by, once->mark);
    snprintf(quantity, sizeof quantity, "%" PRId64, once->quantity);
    snprintf(keep_ms, sizeof keep_ms, "%" PRId64, once->keep_ms);
    stock_fenced_words(once->fence, (const char *const[]){once->key, once->record_key, NULL},
                       (const char *const[]){quantity, worker, keep_ms, NULL}, &room, words);
    enum stock_status status = stock_run(stock, &lua_sell_once, words, &reply);
    if (status != STOCK_OK)
        return status;
    status = to_once(stock, once, reply, record, kept);
    return status == STOCK_LOST ? stock_unreadable(stock) : status;
}
