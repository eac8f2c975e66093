/* SPDX-License-Identifier: Apache-2.0
 *
 * See sentinels.h.
 */
#include "sentinels.h"

#include "must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value behind a name in the answer to SENTINEL MASTER; "" if it is none. */
static const char *field_of(struct server *watcher, const char *name)
{
    const redisReply *reply = server_ask(watcher, "SENTINEL MASTER shop");
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2)
        if (strcmp(reply->element[i]->str, name) == 0)
            return reply->element[i + 1]->str;
    return "";
}

/* It sees no failure, and has finished the fail-over that it led. */
static bool is_content(struct server *watcher)
{
    return strcmp(field_of(watcher, "flags"), "master") == 0;
}

static bool knows_all(struct server *watcher)
{
    return is_content(watcher) && strcmp(field_of(watcher, "num-other-sentinels"), "2") == 0 &&
           strcmp(field_of(watcher, "num-slaves"), "2") == 0;
}

/* Whether what the master writes reaches both replicas. They are "online" a little later than they
 * say themselves that the link is up. */
static bool feeds_both(struct server *master)
{
    const char *info = server_text(master, "INFO replication");
    const char *first = strstr(info, "state=online");
    return first != NULL && strstr(first + 1, "state=online") != NULL;
}

static bool is_ready(const struct sentinels *sentinels, int master)
{
    for (int i = 0; i < SENTINELS; i++)
        if (!knows_all(sentinels->watchers[i]))
            return false;
    return feeds_both(sentinels->nodes[master]);
}

static struct server *start_replica(int master_port)
{
    char port[16];
    snprintf(port, sizeof port, "%d", master_port);
    return server_start((const char *const[]){"--replicaof", "127.0.0.1", port,
                                              "--repl-diskless-sync-delay", "0", NULL});
}

void sentinels_start(struct sentinels *sentinels)
{
    sentinels->nodes[0] =
        server_start((const char *const[]){"--repl-diskless-sync-delay", "0", NULL});
    int port = server_port(sentinels->nodes[0]);
    for (int i = 1; i < NODES; i++)
        sentinels->nodes[i] = start_replica(port);
    for (int i = 0; i < SENTINELS; i++)
        sentinels->watchers[i] = server_start_sentinel(port);
    sentinels_url(sentinels, 0, SENTINELS, "", "/shop", sentinels->url, sizeof sentinels->url);
    eventually(is_ready(sentinels, 0));
}

void sentinels_free(struct sentinels *sentinels)
{
    for (int i = 0; i < SENTINELS; i++)
        server_free(sentinels->watchers[i]);
    for (int i = 0; i < NODES; i++)
        server_free(sentinels->nodes[i]);
}

void sentinels_url(const struct sentinels *sentinels, int first, int end, const char *login,
                   const char *rest, char *url, size_t size)
{
    int used = snprintf(url, size, "sentinel://%s", login);
    for (int i = first; i < end; i++)
        used += snprintf(url + used, size - (size_t)used, "%s127.0.0.1:%d", i > first ? "," : "",
                         server_port(sentinels->watchers[i]));
    snprintf(url + used, size - (size_t)used, "%s", rest);
}

int sentinels_named(const struct sentinels *sentinels, int watcher)
{
    const redisReply *reply =
        server_ask(sentinels->watchers[watcher], "SENTINEL GET-MASTER-ADDR-BY-NAME shop");
    must(reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
    int port = atoi(reply->element[1]->str);
    for (int i = 0; i < NODES; i++)
        if (server_port(sentinels->nodes[i]) == port)
            return i;
    return -1;
}

static bool is_master(struct server *node)
{
    const redisReply *role = server_ask(node, "ROLE");
    return role->type == REDIS_REPLY_ARRAY && strcmp(role->element[0]->str, "master") == 0;
}

static int named_by_all(const struct sentinels *sentinels, unsigned watchers)
{
    int named = -1;
    for (int i = 0; i < SENTINELS; i++) {
        if ((watchers & 1U << i) == 0)
            continue;
        int one = sentinels_named(sentinels, i);
        if (named >= 0 && one != named)
            return -1;
        named = one;
    }
    return named;
}

static bool names_other(const struct sentinels *sentinels, int former, unsigned watchers, int *now)
{
    *now = named_by_all(sentinels, watchers);
    return *now >= 0 && *now != former && is_master(sentinels->nodes[*now]);
}

/* Orders it, again if need be: a sentinel gives up if the replicas are silent for a moment. */
static bool failed_over(const struct sentinels *sentinels, int former, unsigned watchers, int *now)
{
    struct server *first = sentinels->watchers[0];
    bool is_idle = strstr(field_of(first, "flags"), "failover_in_progress") == NULL;
    if (is_idle && sentinels_named(sentinels, 0) == former)
        server_ask(first, "SENTINEL FAILOVER shop");
    return names_other(sentinels, former, watchers, now);
}

int sentinels_fail_over(const struct sentinels *sentinels, int former, unsigned watchers)
{
    int now = -1;
    eventually(failed_over(sentinels, former, watchers, &now));
    return now;
}

void sentinels_rejoin(struct sentinels *sentinels, int node, int master)
{
    char port[16];
    snprintf(port, sizeof port, "%d", server_port(sentinels->nodes[master]));
    server_restart(sentinels->nodes[node],
                   (const char *const[]){"--replicaof", "127.0.0.1", port,
                                         "--repl-diskless-sync-delay", "0", NULL});
    eventually(is_ready(sentinels, master));
}
