/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock_redis.h. What a store does, in the stock's words; and what its scripts' errors mean.
 */
#include "stock_redis.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stock {
    struct store *store;
    uint64_t newest; /* see stock_newest */
    int segments;    /* see stock_segments */
    bool other_type; /* see stock_was_of_other_type */
    char fault[128]; /* the key that was refused; "": not known */
};

/* ---- Connections ----------------------------------------------------------------------------- */

/* Takes the store, which may be NULL. */
static struct stock *stock_with(struct store *store)
{
    struct stock *stock = store != NULL ? calloc(1, sizeof *stock) : NULL;
    if (stock != NULL)
        stock->store = store;
    else
        store_free(store);
    return stock;
}

struct stock *stock_new(struct store_server *server)
{
    return stock_with(store_new(server));
}

struct stock *stock_new_shared(struct store_server *server)
{
    return stock_with(store_new_shared(server));
}

void stock_free(struct stock *stock)
{
    if (stock == NULL)
        return;
    store_free(stock->store);
    free(stock);
}

void stock_rest(struct stock *stock)
{
    store_rest(stock->store);
}

void stock_limit(struct stock *stock, int64_t timeout_ms)
{
    store_limit(stock->store, timeout_ms);
}

void stock_end_by(struct stock *stock, int fd)
{
    store_end_by(stock->store, fd);
}

const char *stock_code(const struct stock *stock)
{
    return store_code(stock->store);
}

const char *stock_shown(const struct stock *stock)
{
    return store_shown(stock->store);
}

const char *stock_error(const struct stock *stock)
{
    return store_error(stock->store);
}

bool stock_refused(const struct stock *stock)
{
    return store_refused(stock->store);
}

uint64_t stock_master(const struct stock *stock)
{
    return store_master(stock->store);
}

void stock_pin(struct stock *stock, uint64_t master)
{
    store_pin(stock->store, master);
}

void stock_ask_replicas(struct stock *stock, bool ask)
{
    store_ask_replicas(stock->store, ask);
}

bool stock_is_confirmed(struct stock *stock)
{
    return store_is_confirmed(stock->store);
}

bool stock_is_unconfirmed(const struct stock *stock)
{
    return store_is_unconfirmed(stock->store);
}

uint64_t stock_lost_count(const struct stock *stock)
{
    return store_lost_count(stock->store);
}

int stock_segments(const struct stock *stock)
{
    return stock->segments;
}

uint64_t stock_newest(const struct stock *stock)
{
    return stock->newest;
}

bool stock_was_of_other_type(const struct stock *stock, const char *key)
{
    return stock->other_type && (stock->fault[0] == '\0' || strcmp(stock->fault, key) == 0);
}

enum stock_status stock_failed(struct stock *stock, enum stock_status status, const char *format,
                               ...)
{
    char text[STOCK_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    store_say(stock->store, "%s", text);
    return status;
}

/* ---- Commands -------------------------------------------------------------------------------- */

static enum stock_status stock_redis_status(enum store_status status)
{
    static const enum stock_status statuses[STORE_STATUS_COUNT] = {
        [STORE_OK] = STOCK_OK,
        [STORE_INVALID] = STOCK_INVALID,
        [STORE_UNAVAILABLE] = STOCK_UNAVAILABLE,
        [STORE_LOST] = STOCK_LOST,
    };
    return statuses[status];
}

/* The token in the text; 0: there is none. UINT64_MAX: no lock has given it. */
static uint64_t to_token(const char *text)
{
    return strtod(text, NULL) > STOCK_MOST ? UINT64_MAX : strtoull(text, NULL, 10);
}

/* What the scripts' own errors mean. */
static enum stock_status take_status(struct stock *stock, enum store_status status)
{
    const char *code = store_code(stock->store), *last_word = store_last_word(stock->store);
    stock->other_type = strcmp(code, "WRONGTYPE") == 0;
    if (status != STORE_UNAVAILABLE)
        return stock_redis_status(status);
    if (strcmp(code, "EPOCH") == 0)
        return STOCK_EPOCH;
    if (strcmp(code, "STALE") == 0) {
        stock->newest = to_token(last_word);
        return STOCK_STALE;
    }
    if (strcmp(code, "SEGMENTS") == 0) {
        stock->segments = atoi(last_word);
        return STOCK_SEGMENTED;
    }
    return STOCK_UNAVAILABLE;
}

enum stock_status stock_connect(struct stock *stock)
{
    return stock_redis_status(store_connect(stock->store));
}

enum stock_status stock_command(struct stock *stock, int argc, const char *const *argv,
                                const redisReply **reply)
{
    enum stock_status status = take_status(stock, store_command(stock->store, argc, argv, reply));
    if (status != STOCK_OK && argc > 1) /* a script names its keys elsewhere: see find_fault */
        snprintf(stock->fault, sizeof stock->fault, "%s", argv[1]);
    return status;
}

enum stock_status stock_ask_each(struct stock *stock, const char *command, const char *const *keys,
                                 size_t count, const redisReply **replies)
{
    return stock_redis_status(store_ask_each(stock->store, command, keys, count, replies));
}

enum stock_status stock_takes_writes(struct stock *stock, const char *key)
{
    return stock_redis_status(store_takes_writes(stock->store, key));
}

enum stock_status stock_check(struct stock *stock, const char *key)
{
    return stock_redis_status(store_check(stock->store, key));
}

/* ---- Scripts --------------------------------------------------------------------------------- */

#define FAULT_MAX 96

static bool is_token_key(const char *key)
{
    const char *last = strrchr(key, ':');
    return strncmp(key, "dlock:token", 11) == 0 || (last != NULL && strcmp(last, ":fence") == 0);
}

/* See admission_keys. */
static bool is_admission_key(const char *key)
{
    static const char *const ends[] = {"}:set", "}:bucket", "}:window"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t size = strlen(key), end = strlen(ends[i]);
        if (size > end && strcmp(key + size - end, ends[i]) == 0)
            return true;
    }
    return false;
}

/* What the server says about the key, if it is of that type; else NULL. */
static const redisReply *ask_about(struct stock *stock, const char *command, const char *key,
                                   int type)
{
    const redisReply *reply;
    stock_command(stock, 2, (const char *const[]){command, key}, &reply);
    return reply != NULL && reply->type == type ? reply : NULL;
}

/* Whether the key is why a script was refused. what: what is wrong with it. */
static bool is_at_fault(struct stock *stock, const char *key, char what[FAULT_MAX])
{
    const char *last_part = strrchr(key, ':');
    const char *needs = strcmp(key, STOCK_EPOCH_KEY) == 0                       ? "hash"
                        : strcmp(key, STOCK_QUEUES_KEY) == 0                    ? "zset"
                        : last_part != NULL && strcmp(last_part, ":queue") == 0 ? "stream"
                                                                                : "string";
    const redisReply *reply = ask_about(stock, "TYPE", key, REDIS_REPLY_STATUS);
    if (reply == NULL || strcmp(reply->str, "none") == 0)
        return false;
    snprintf(what, FAULT_MAX, "is a %.20s, where a %s is needed", reply->str, needs);
    if (strcmp(reply->str, needs) != 0)
        return true;
    reply = is_token_key(key) ? ask_about(stock, "GET", key, REDIS_REPLY_STRING) : NULL;
    if (reply == NULL)
        return false;
    const char *last = strrchr(reply->str, ' ');
    last = last != NULL ? last + 1 : reply->str;
    snprintf(what, FAULT_MAX, "holds %.30s, above all tokens that a lock gives", last);
    return to_token(last) == UINT64_MAX;
}

static void say_cure(const char *key, char *text, size_t size)
{
    static const char tokens[] = "dlock:token";
    const size_t prefix = strlen(tokens);
    if (strcmp(key, STOCK_EPOCH_KEY) == 0)
        snprintf(text, size, "delete it (DEL %s): the next sale or PUT /lock makes a new epoch",
                 key);
    else if (strncmp(key, tokens, prefix) == 0) /* the next token is above both */
        snprintf(text, size, "delete it and its note (DEL %.100s dlock:grant%.100s)", key,
                 key + prefix);
    else
        snprintf(text, size,
                 is_token_key(key) || is_admission_key(key) ? "delete it (DEL %.100s)"
                                                            : "look at it",
                 key);
}

/* A script's error names no key. Finds the one that an operator must mend, if there is one. Then
 * the status is STOCK_INVALID, because to wait does not help. argv: as of stock_run. */
static enum stock_status find_fault(struct stock *stock, enum stock_status status,
                                    const char *const *argv)
{
    const int count = atoi(argv[0]);
    const char *key = NULL;
    char said[STOCK_ERROR_MAX], what[FAULT_MAX], cure[STOCK_ERROR_MAX / 2];
    const bool other_type = stock->other_type;
    if (!other_type && !(status == STOCK_STALE && stock->newest == UINT64_MAX))
        return status;
    snprintf(said, sizeof said, "%s", stock_error(stock));
    const bool asks_replicas = store_ask_replicas(stock->store, false);
    /* the stock comes first: of a hash of segments the segment is at fault */
    for (int i = count; i >= 1 && key == NULL; i--)
        key = is_at_fault(stock, argv[i], what) ? argv[i] : NULL;
    stock_ask_replicas(stock, asks_replicas);
    stock->other_type = other_type;
    snprintf(stock->fault, sizeof stock->fault, "%s", key != NULL ? key : "");
    if (key == NULL)
        return stock_failed(stock, status, "%s", said);
    say_cure(key, cure, sizeof cure);
    return stock_failed(stock, STOCK_INVALID, "%s: %.100s %s; an operator must %s",
                        stock_shown(stock), key, what, cure);
}

enum stock_status stock_run(struct stock *stock, const struct script *script,
                            const char *const *argv, const redisReply **reply)
{
    return find_fault(stock, take_status(stock, store_run(stock->store, script, argv, reply)),
                      argv);
}

/* ---- Uncertain outcomes ---------------------------------------------------------------------- */

enum stock_status stock_unreadable(struct stock *stock)
{
    return stock_redis_status(store_unreadable(stock->store));
}

struct stock_broken_connection stock_broken_connection(const struct stock *stock)
{
    const struct store_broken broken = store_broken(stock->store);
    return (struct stock_broken_connection){.id = broken.id, .process = broken.process};
}

enum stock_status stock_kill_broken(struct stock *stock, const struct stock_broken_connection *of)
{
    const struct store_broken broken = {.id = of->id, .process = of->process};
    return stock_redis_status(store_kill_broken(stock->store, &broken));
}

/* ---- Replies --------------------------------------------------------------------------------- */

bool stock_is_counted(int64_t value)
{
    return value >= -STOCK_MOST && value <= STOCK_MOST;
}

enum stock_status stock_to_number(struct stock *stock, const char *key, const redisReply *reply,
                                  int64_t *value)
{
    int64_t number = 0;
    char text[24] = ""; /* the number as Redis writes it: "05", "-0" and " 5" are none to it */
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", key);
    if (reply->type == REDIS_REPLY_STRING) {
        number = strtoll(reply->str, NULL, 10);
        snprintf(text, sizeof text, "%" PRId64, number);
    }
    if (text[0] == '\0' || reply->len != strlen(text) || memcmp(reply->str, text, reply->len) != 0)
        return stock_failed(stock, STOCK_INVALID, "%s does not hold a whole number", key);
    if (!stock_is_counted(number))
        return stock_failed(stock, STOCK_INVALID, "%s holds a number beyond %" PRId64, key,
                            (int64_t)STOCK_MOST);
    *value = number;
    return STOCK_OK;
}

enum stock_status stock_to_few(struct stock *stock, const char *key, int64_t quantity,
                               const redisReply *reply, int64_t *found)
{
    enum stock_status status =
        reply->type == REDIS_REPLY_STRING ? stock_to_number(stock, key, reply, found) : STOCK_LOST;
    return status != STOCK_OK ? status : *found < quantity ? STOCK_INSUFFICIENT : STOCK_LOST;
}
