/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h.
 */
#include "stock.h"

#include "must.h"
#include "shop_scripts.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STOCK "inventory:{phone}"
#define EPOCH "inventory:epoch"
#define MARK STOCK ":fence"
#define UNITS "1000000000"

struct place {
    redisContext *context;
    char epoch[32], identity[96]; /* as they were before the lock was asked for; then its own */
    char token[32];
};

/* The server is never killed, so it answers. */
static redisReply *ask(const struct place *place, int argc, const char **argv)
{
    redisReply *reply = redisCommandArgv(place->context, argc, argv, NULL);
    must(reply != NULL);
    return reply;
}
#define ASK(place, ...)                                                                            \
    ask(place, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)),                \
        (const char *[]){__VA_ARGS__})

static void *stock_open(const struct plan *plan)
{
    struct place *place = calloc(1, sizeof *place);
    must(place != NULL);
    place->context = redisConnect("127.0.0.1", plan->stock_port);
    must(place->context != NULL && place->context->err == 0);
    redisSetTimeout(place->context, (struct timeval){.tv_sec = PATIENCE_MS / 1000});
    freeReplyObject(ASK(place, "SET", STOCK, UNITS, "NX"));
    return place;
}

static void stock_close(void *arg)
{
    struct place *place = arg;
    redisFree(place->context);
    free(place);
}

static void take(struct place *place, const redisReply *epoch, const redisReply *identity)
{
    snprintf(place->epoch, sizeof place->epoch, "%s", epoch->str != NULL ? epoch->str : "");
    snprintf(place->identity, sizeof place->identity, "%s",
             identity->str != NULL ? identity->str : "");
}

/* ---- Fenced ---------------------------------------------------------------------------------- */

static void fenced_before(void *arg)
{
    struct place *place = arg;
    redisReply *epoch = ASK(place, "HMGET", EPOCH, "epoch", "identity");
    must(epoch->type == REDIS_REPLY_ARRAY && epoch->elements == 2);
    take(place, epoch->element[0], epoch->element[1]);
    freeReplyObject(epoch);
}

/* The lock's servers are others than those for which the epoch stands: raises it, but only from the
 * epoch that was known before the lock was asked for. */
static void enter_epoch(struct place *place, const char *identity)
{
    if (place->epoch[0] != '\0' && strcmp(place->identity, identity) == 0)
        return;
    redisReply *now =
        ASK(place, "EVAL", lua_epoch.text, "1", EPOCH, place->epoch,
            place->epoch[0] != '\0' ? place->epoch : "0", REDLOCK, "redis", "torture", identity);
    must(now->type == REDIS_REPLY_ARRAY && now->elements == 6);
    take(place, now->element[0], now->element[4]);
    freeReplyObject(now);
    if (strcmp(place->identity, identity) != 0)
        place->epoch[0] = '\0'; /* no epoch of the stock is this one's */
}

#define FENCED(script, ...)                                                                        \
    "EVAL", (script).text, "5", STOCK, MARK, "dlock:token:lock:{phone}", EPOCH, "dlock:identity",  \
        __VA_ARGS__

static void fenced_enter(void *arg, const dlock_hold *hold, struct visit *visit)
{
    struct place *place = arg;
    enter_epoch(place, dlock_identity(hold));
    snprintf(place->token, sizeof place->token, "%llu", (unsigned long long)dlock_token(hold));
    visit->read_sent_ns = boot_ns();
    redisReply *read = ASK(place, FENCED(lua_fenced_read, place->token, place->epoch));
    must(read->type == REDIS_REPLY_STRING || read->type == REDIS_REPLY_ERROR);
    if (read->type == REDIS_REPLY_STRING) {
        visit->found = strtoll(read->str, NULL, 10);
        visit->read_ns = boot_ns();
    }
    freeReplyObject(read);
}

static void note_write(struct visit *visit, redisReply *wrote)
{
    must(wrote->type == REDIS_REPLY_INTEGER ||
         (wrote->type == REDIS_REPLY_ERROR &&
          (strncmp(wrote->str, "STALE ", 6) == 0 || strncmp(wrote->str, "EPOCH ", 6) == 0)));
    visit->written = wrote->type == REDIS_REPLY_INTEGER ? WRITTEN_YES : WRITTEN_REFUSED;
    visit->left = wrote->integer;
    freeReplyObject(wrote);
}

static void fenced_leave(void *arg, struct visit *visit)
{
    struct place *place = arg;
    if (visit->read_ns == 0)
        return;
    visit->write_ns = boot_ns();
    note_write(visit, ASK(place, FENCED(lua_fenced_apart, place->token, place->epoch, "DECR")));
}

const struct visitor stock_fenced = {
    stock_open, stock_close, fenced_before, fenced_enter, fenced_leave,
};

/* ---- Plain ----------------------------------------------------------------------------------- */

static void plain_before(void *arg)
{
    (void)arg;
}

static void plain_enter(void *arg, const dlock_hold *hold, struct visit *visit)
{
    const struct place *place = arg;
    (void)hold;
    visit->read_sent_ns = boot_ns();
    redisReply *read = ASK(place, "GET", STOCK);
    must(read->type == REDIS_REPLY_STRING);
    visit->found = strtoll(read->str, NULL, 10);
    visit->read_ns = boot_ns();
    freeReplyObject(read);
}

static void plain_leave(void *arg, struct visit *visit)
{
    visit->write_ns = boot_ns();
    note_write(visit, ASK(arg, "DECR", STOCK));
}

const struct visitor stock_plain = {
    stock_open, stock_close, plain_before, plain_enter, plain_leave,
};
