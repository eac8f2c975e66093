/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_server.h.
 */
#include "lock_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool server_open(struct server *server, const struct plan *plan, char *text, size_t size)
{
    char stock[24];
    *server = (struct server){.plan = plan};
    if (!wire_open(&server->wire, plan, text, size))
        return false;
    struct said keys = ASK(&server->wire, "DBSIZE");
    if (keys.kind != SAID_NUMBER) {
        snprintf(text, size, "DBSIZE: %s", keys.text);
    } else if (keys.number != 0) {
        snprintf(text, size,
                 "%s holds %lld keys; the bench empties its server when it is done: give it one "
                 "of its own, or empty this one with FLUSHDB",
                 plan->url, keys.number);
    } else {
        snprintf(stock, sizeof stock, "%lld", (long long)plan->stock);
        struct said said = ASK(&server->wire, "SET", STOCK_KEY, stock);
        if (said.kind == SAID_TEXT)
            return true;
        snprintf(text, size, "SET: %s", said.text);
    }
    wire_close(&server->wire);
    return false;
}

/* The value after "name:" at the start of a line; 0 if there is none. */
static double field(const char *info, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = info; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            return strtod(line + length + 1, NULL);
    }
    return 0;
}

static bool is_bookkeeping(const char *name, size_t length)
{
    static const char *const words[] = {"info", "ping", "config", "client", "hello"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i]) == length && strncmp(words[i], name, length) == 0)
            return true;
    return false;
}

static int64_t count_commands(const char *info)
{
    static const char head[] = "cmdstat_";
    int64_t commands = 0;
    for (const char *at = strstr(info, head); at != NULL; at = strstr(at, head)) {
        at += sizeof head - 1;
        const char *calls = strstr(at, ":calls=");
        if (calls != NULL && !is_bookkeeping(at, strcspn(at, "|:")))
            commands += strtoll(calls + strlen(":calls="), NULL, 10);
    }
    return commands;
}

static redisReply *info(struct server *server, const char *section)
{
    redisReply *reply = redisCommand(server->wire.redis, "INFO %s", section);
    server->asked++;
    if (reply == NULL || reply->type == REDIS_REPLY_STRING)
        return reply;
    freeReplyObject(reply);
    return NULL;
}

bool server_counters(struct server *server, struct counters *counters)
{
    redisReply *all = info(server, "all");
    if (all == NULL)
        return false;
    double cpu_s = field(all->str, "used_cpu_user") + field(all->str, "used_cpu_sys");
    *counters = (struct counters){.commands = count_commands(all->str),
                                  .reads = (int64_t)field(all->str, "total_reads_processed") -
                                           server->asked,
                                  .cpu_us = (int64_t)(cpu_s * 1e6)};
    freeReplyObject(all);
    return true;
}

int server_clients(struct server *server)
{
    redisReply *clients = info(server, "clients");
    if (clients == NULL)
        return -1;
    int count = (int)field(clients->str, "connected_clients") - 1;
    freeReplyObject(clients);
    return count;
}

bool server_remains(struct server *server, struct remains *remains)
{
    struct said stock = ASK(&server->wire, "GET", STOCK_KEY);
    struct said locked = ASK(&server->wire, "EXISTS", LOCK_NAME);
    *remains = (struct remains){.stock = stock.number, .locked = locked.number != 0};
    return stock.kind == SAID_TEXT && locked.kind == SAID_NUMBER;
}

void server_close(struct server *server)
{
    ASK(&server->wire, "FLUSHDB");
    wire_close(&server->wire);
}
