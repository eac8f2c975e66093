/* SPDX-License-Identifier: Apache-2.0
 *
 * See redisson.h.
 */
#include "redisson.h"

#include "must.h"
#include "redis_rung.h"
#include "test_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATCH_MS 20000
#define PLACE_MS 300000 /* how long a fair lock keeps a waiter's place */
#define RW_CHANNEL "redisson_rwlock:{" LOCK "}"
#define RW_LEASES "{" LOCK "}" /* what the readers' own leases begin with */
#define QUEUE "redisson_lock_queue:{" LOCK "}"
#define DEADLINES "redisson_lock_timeout:{" LOCK "}"
#define TOKEN "redisson_lock_token:{" LOCK "}"
#define TEXT_MAX 4096

/* ---- Steps ----------------------------------------------------------------------------------- */

static int64_t number_of(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR)
        fprintf(stderr, "%s\n", reply->str);
    must(reply->type == REDIS_REPLY_INTEGER || reply->type == REDIS_REPLY_NIL);
    return reply->type == REDIS_REPLY_NIL ? NIL : reply->integer;
}

static const redisReply *ask_for_lock(struct server *server, const char *owner, int64_t lease_ms)
{
    return server_ask(server, "EVAL %s 1 " LOCK " %" PRId64 " %s", lua_redisson_acquire.text,
                      lease_ms, owner);
}

int64_t lock_acquire(struct server *server, const char *owner, int64_t lease_ms)
{
    return number_of(ask_for_lock(server, owner, lease_ms));
}

const char *lock_acquire_error(struct server *server, const char *owner)
{
    static char word[32];
    const redisReply *reply = ask_for_lock(server, owner, LEASE_MS);
    must(reply->type == REDIS_REPLY_ERROR && sscanf(reply->str, "%31s", word) == 1);
    return word;
}

#define UNLOCK "EVAL %s 3 " LOCK " " LOCK_CHANNEL " " LATCH "%s 0 %d %s PUBLISH %d"

int64_t lock_unlock(struct server *server, const char *owner, const char *request)
{
    return number_of(
        server_ask(server, UNLOCK, lua_redisson_unlock.text, request, LEASE_MS, owner, LATCH_MS));
}

int64_t lock_unlock_unheard(struct server *server, const char *owner, const char *request)
{
    server_text(server, "MULTI");
    server_text(server, "CLIENT KILL TYPE pubsub");
    server_text(server, UNLOCK, lua_redisson_unlock.text, request, LEASE_MS, owner, LATCH_MS);
    const redisReply *both = server_ask(server, "EXEC");
    must(both->type == REDIS_REPLY_ARRAY && both->elements == 2);
    must(both->element[0]->type == REDIS_REPLY_INTEGER && both->element[0]->integer >= 1);
    return number_of(both->element[1]);
}

int64_t lock_renew(struct server *server, const char *owner, int64_t lease_ms)
{
    const redisReply *each = server_ask(server, "EVAL %s 1 " LOCK " %" PRId64 " %s",
                                        lua_redisson_renew.text, lease_ms, owner);
    must(each->type == REDIS_REPLY_ARRAY && each->elements == 1);
    return number_of(each->element[0]);
}

int64_t lock_force(struct server *server)
{
    return number_of(
        server_ask(server, "EVAL %s 2 " LOCK " " LOCK_CHANNEL " 0", lua_redisson_force.text));
}

struct pair fenced_acquire(struct server *server, const char *owner)
{
    const redisReply *both = server_ask(server, "EVAL %s 2 " LOCK " " TOKEN " %d %s",
                                        lua_redisson_fenced_acquire.text, LEASE_MS, owner);
    must(both->type == REDIS_REPLY_ARRAY && both->elements == 2);
    return (struct pair){number_of(both->element[0]), number_of(both->element[1])};
}

int64_t read_acquire(struct server *server, const char *owner)
{
    return number_of(server_ask(server,
                                "EVAL %s 2 " LOCK " " RW_LEASES ":%s:rwlock_timeout %d %s %s:write",
                                lua_redisson_read_acquire.text, owner, LEASE_MS, owner, owner));
}

int64_t read_unlock(struct server *server, const char *owner, const char *request)
{
    return number_of(server_ask(server,
                                "EVAL %s 5 " LOCK " " RW_CHANNEL " " RW_LEASES
                                ":%s:rwlock_timeout " RW_LEASES " " LATCH "%s 0 %s PUBLISH %d",
                                lua_redisson_read_unlock.text, owner, request, owner, LATCH_MS));
}

int64_t write_acquire(struct server *server, const char *owner)
{
    return number_of(server_ask(server, "EVAL %s 1 " LOCK " %d %s:write",
                                lua_redisson_write_acquire.text, LEASE_MS, owner));
}

int64_t write_unlock(struct server *server, const char *owner, const char *request)
{
    return number_of(
        server_ask(server, "EVAL %s 3 " LOCK " " RW_CHANNEL " " LATCH "%s 1 %d %s:write PUBLISH %d",
                   lua_redisson_write_unlock.text, request, LEASE_MS, owner, LATCH_MS));
}

int64_t fair_acquire(struct server *server, const char *owner, int64_t now_ms)
{
    return number_of(server_ask(server,
                                "EVAL %s 3 " LOCK " " QUEUE " " DEADLINES " %d %s %d %" PRId64,
                                lua_redisson_fair_acquire.text, LEASE_MS, owner, PLACE_MS, now_ms));
}

int64_t fair_unlock(struct server *server, const char *owner, int64_t now_ms, const char *request)
{
    return number_of(server_ask(server,
                                "EVAL %s 5 " LOCK " " QUEUE " " DEADLINES " " LOCK_CHANNEL " " LATCH
                                "%s 0 %d %s %" PRId64 " PUBLISH %d",
                                lua_redisson_fair_unlock.text, request, LEASE_MS, owner, now_ms,
                                LATCH_MS));
}

/* ---- What is there --------------------------------------------------------------------------- */

/* Adds to a text of TEXT_MAX, behind the separator unless it is the first. */
static void add(char *text, const char *separator, const char *first, const char *join,
                const char *second)
{
    size_t size = strlen(text);
    int more = snprintf(text + size, TEXT_MAX - size, "%s%s%s%s", size > 0 ? separator : "", first,
                        join, second);
    must(size + (size_t)more < TEXT_MAX);
}

static int by_name(const void *one, const void *other)
{
    return strcmp((*(redisReply *const *)one)->str, (*(redisReply *const *)other)->str);
}

const char *all_keys(struct server *server)
{
    static char text[TEXT_MAX];
    const redisReply *keys = server_ask(server, "KEYS *");
    qsort(keys->element, keys->elements, sizeof *keys->element, by_name);
    text[0] = '\0';
    for (size_t i = 0; i < keys->elements; i++)
        add(text, " ", keys->element[i]->str, "", "");
    return text;
}

const char *hash_at(struct server *server, const char *key)
{
    static char text[TEXT_MAX];
    const redisReply *hash = server_ask(server, "HGETALL %s", key);
    must(hash->type == REDIS_REPLY_ARRAY);
    text[0] = '\0';
    for (size_t i = 0; i < hash->elements; i += 2)
        add(text, " ", hash->element[i]->str, "=", hash->element[i + 1]->str);
    return text;
}

const char *list_at(struct server *server, const char *key)
{
    static char text[TEXT_MAX];
    const redisReply *list = server_ask(server, "LRANGE %s 0 -1", key);
    must(list->type == REDIS_REPLY_ARRAY);
    text[0] = '\0';
    for (size_t i = 0; i < list->elements; i++)
        add(text, " ", list->element[i]->str, "", "");
    return text;
}

int64_t subscribers(struct server *server)
{
    return server_ask(server, "PUBSUB NUMSUB " LOCK_CHANNEL)->element[1]->integer;
}

#define ROUNDED_MS 50 /* two clocks, and the server's is adjusted */

bool is_left(int64_t left_ms, int64_t all_ms, int64_t began_ms)
{
    bool is = left_ms <= all_ms && left_ms >= all_ms - (clock_ms() - began_ms) - ROUNDED_MS;
    if (!is)
        fprintf(stderr, "%" PRId64 " ms are left of %" PRId64 ", after at most %" PRId64 "\n",
                left_ms, all_ms, clock_ms() - began_ms);
    return is;
}

/* ---- Messages -------------------------------------------------------------------------------- */

#define MARK "the-mark-of-the-messages"

struct messages {
    struct server *server;
    redisContext *context;
    char text[TEXT_MAX];
};

struct messages *messages_start(struct server *server)
{
    struct messages *messages = calloc(1, sizeof *messages);
    must(messages != NULL);
    messages->server = server;
    messages->context = redisConnectUnix(server_socket(server));
    must(messages->context != NULL && messages->context->err == 0);
    redisSetTimeout(messages->context, (struct timeval){.tv_sec = PATIENCE_MS / 1000});
    redisReply *reply = redisCommand(messages->context, "PSUBSCRIBE *");
    must(reply != NULL && reply->type == REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    return messages;
}

void messages_free(struct messages *messages)
{
    redisFree(messages->context);
    free(messages);
}

/* Reads up to a mark that is sent now: all that was published before is then known. */
const char *messages_new(struct messages *messages)
{
    server_integer(messages->server, "PUBLISH " MARK " now");
    messages->text[0] = '\0';
    for (;;) {
        redisReply *reply = NULL;
        must(redisGetReply(messages->context, (void **)&reply) == REDIS_OK);
        must(reply->type == REDIS_REPLY_ARRAY && reply->elements == 4);
        bool mark = strcmp(reply->element[2]->str, MARK) == 0;
        if (!mark)
            add(messages->text, ",", reply->element[2]->str, " ", reply->element[3]->str);
        freeReplyObject(reply);
        if (mark)
            return messages->text;
    }
}
