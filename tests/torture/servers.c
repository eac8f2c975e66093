/* SPDX-License-Identifier: Apache-2.0
 *
 * See servers.h.
 */
#include "servers.h"

#include "keys.h"
#include "must.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 5 /* between two looks at a group */

enum state { STATE_UP, STATE_DEAD, STATE_STARTING };

struct servers {
    const struct plan *plan;
    struct world *world;
    struct proxy *proxy;
    struct server *each[SERVERS_MOST];
    pid_t pids[SERVERS_MOST];
    enum state states[SERVERS_MOST];
    bool stopped[SERVERS_MOST]; /* by SIGSTOP */

    /* Of a group. */
    int master; /* the node that took over last, or the first one */
    int fail_overs;
    int64_t looked_ns;
    int64_t idle_ns[NODES];   /* when it was last seen to be no master */
    int64_t losing_ns[NODES]; /* it was the master, and what it took since then may be lost */
    bool as_master[NODES];    /* it was killed as the master: its file names no other */
};

#define DURABLE "--appendonly", "yes", "--appendfsync", "always"

/* As deploy/sentinel/redis.conf, with the addresses of the proxy. And a server that restarts has
 * lost nothing: with `everysec` it may have lost two seconds. */
static const char *const *args_of_node(const struct servers *servers, int node)
{
    static char port[16], of_host[16], of_port[16];
    static const char *const args[] = {DURABLE,     "--min-replicas-to-write",
                                       "1",         "--min-replicas-max-lag",
                                       "2",         "--repl-diskless-sync-delay",
                                       "0",         "--replica-announce-ip",
                                       "127.0.0.1", "--replica-announce-port",
                                       port,        "--replicaof",
                                       of_host,     of_port,
                                       NULL};
    bool master = node == servers->master || servers->as_master[node];
    snprintf(port, sizeof port, "%d", proxy_port(servers->proxy, node));
    snprintf(of_host, sizeof of_host, "%s", master ? "no" : "127.0.0.1");
    snprintf(of_port, sizeof of_port, "%d", proxy_port(servers->proxy, servers->master));
    if (master)
        strcpy(of_port, "one");
    return args;
}

/* A single server saves when it is told to end. */
static const char *const *args_of(const struct servers *servers, int index)
{
    static const char *const one[] = {"--shutdown-on-sigterm", "save", NULL};
    static const char *const several[] = {DURABLE, NULL};
    if (servers->plan->sentinel)
        return args_of_node(servers, index);
    return servers->plan->servers == 1 ? one : several;
}

static pid_t process_of(struct server *server)
{
    const char *info = server_text(server, "INFO server");
    return (pid_t)strtol(strstr(info, "process_id:") + 11, NULL, 10);
}

struct servers *servers_new(const struct plan *plan, struct world *world)
{
    struct servers *servers = calloc(1, sizeof *servers);
    must(servers != NULL);
    servers->plan = plan;
    servers->world = world;
    return servers;
}

/* A sentinel as in deploy/sentinel/sentinel.conf. It looks at its servers ten times as often, and
 * tells the other sentinels more often, too. So it makes a former master a replica sooner. */
static struct server *start_sentinel(const struct servers *servers)
{
    static const int publish_ms[] = {100, 300, 1000};
    struct server *sentinel = server_start_sentinel(proxy_port(servers->proxy, 0));
    server_text(sentinel, "SENTINEL SET shop down-after-milliseconds 1000");
    server_text(sentinel,
                "SENTINEL DEBUG INFO-PERIOD 100 PING-PERIOD 100 ASK-PERIOD 100 TILT-PERIOD 1000 "
                "MIN-LINK-RECONNECT-PERIOD 1000 PUBLISH-PERIOD %d",
                publish_ms[servers->plan->seed % 3]);
    keys_allow(sentinel, "on >" KEYS_PASSWORD " +@all allchannels");
    return sentinel;
}

static bool have_same_keys(struct servers *servers)
{
    long long keys = server_integer(servers->each[servers->master], "DBSIZE");
    for (int i = 0; i < NODES; i++)
        if (server_integer(servers->each[i], "DBSIZE") != keys)
            return false;
    return true;
}

static void await_group(struct servers *servers, bool (*condition)(struct servers *))
{
    int64_t end_ns = boot_ns() + PATIENCE_MS * NS_A_MS;
    while (!condition(servers)) {
        must(boot_ns() < end_ns);
        proxy_round(servers->proxy, 5);
        servers_round(servers);
    }
}

void servers_start(struct servers *servers, struct proxy *proxy)
{
    const struct plan *plan = servers->plan;
    servers->proxy = proxy;
    for (int i = 0; i < plan->servers; i++) {
        bool sentinel = i >= plan_nodes(plan);
        servers->each[i] = sentinel ? start_sentinel(servers) : server_start(args_of(servers, i));
        servers->pids[i] = process_of(servers->each[i]);
        proxy_lead(proxy, i, server_port(servers->each[i]));
        if (!sentinel)
            keys_users(plan, servers->each[i]);
    }
    for (int i = 0; i < plan_nodes(plan); i++)
        if (!plan->sentinel)
            keys_prepare(plan, servers->each[i]);
    if (!plan->sentinel)
        return;
    await_group(servers, servers_settled);
    keys_prepare(plan, servers->each[servers->master]);
    await_group(servers, have_same_keys);
}

void servers_free(struct servers *servers)
{
    for (int i = 0; i < servers->plan->servers; i++)
        server_free(servers->each[i]);
    free(servers);
}

struct server *servers_at(struct servers *servers, int index)
{
    return servers->each[index];
}

void servers_signal(struct servers *servers, int index, int signal)
{
    servers->stopped[index] = signal == SIGSTOP;
    kill(servers->pids[index], signal);
}

/* ---- One server ------------------------------------------------------------------------------ */

void servers_restart(struct servers *servers, int index, enum fault_kind kind)
{
    struct server *server = servers->each[index];
    char file[128];
    snprintf(file, sizeof file, "%s/dump.rdb", server_folder(server));
    if (kind == FAULT_RESTART) { /* saves and ends in one step: no command comes between */
        kill(servers->pids[index], SIGTERM);
        waitid(P_PID, (id_t)servers->pids[index], &(siginfo_t){0}, WEXITED | WNOWAIT);
    }
    proxy_cut_all(servers->proxy, index);
    server_kill(server);
    if (kind == FAULT_RESTART_EMPTY)
        unlink(file);
    server_restart(server, args_of(servers, index));
    servers->pids[index] = process_of(server);
    keys_prepare(servers->plan, server);
    unlink(file);
    if (kind != FAULT_RESTART)
        note(servers->world, NOTE_DATA_LOST, -1, NULL, "the server is back: %s", fault_text(kind));
}

/* ---- One of several -------------------------------------------------------------------------- */

void servers_kill(struct servers *servers, int index)
{
    proxy_refuse(servers->proxy, index, true);
    proxy_cut_all(servers->proxy, index);
    server_kill(servers->each[index]);
    servers->states[index] = STATE_DEAD;
    if (servers->plan->sentinel)
        servers->as_master[index] = servers->master == index;
}

void servers_revive(struct servers *servers, int index)
{
    must(servers->states[index] == STATE_DEAD);
    server_restart_begin(servers->each[index], args_of(servers, index));
    servers->states[index] = STATE_STARTING;
}

bool servers_is_up(const struct servers *servers, int index)
{
    return servers->states[index] == STATE_UP;
}

static void take_back(struct servers *servers, int index)
{
    char name[16];
    servers->pids[index] = process_of(servers->each[index]);
    if (servers->plan->sentinel)
        keys_users(servers->plan, servers->each[index]);
    else
        keys_prepare(servers->plan, servers->each[index]);
    proxy_refuse(servers->proxy, index, false);
    servers->states[index] = STATE_UP;
    note(servers->world, NOTE_FAULT, -1, NULL, "%s is back with its data",
         plan_server_name(servers->plan, index, name, sizeof name));
}

/* ---- A group --------------------------------------------------------------------------------- */

/* What INFO replication says after the name, or "". */
static const char *field_of(const char *info, const char *name)
{
    const char *at = strstr(info, name);
    return at != NULL ? at + strlen(name) : "";
}

enum role { ROLE_UNKNOWN, ROLE_IDLE, ROLE_REFUSING, ROLE_WRITABLE };

/* A master takes no write unless a replica follows it. */
static enum role role_of(struct servers *servers, int node)
{
    if (servers->states[node] != STATE_UP)
        return ROLE_IDLE;
    const redisReply *info =
        servers->stopped[node] ? NULL : server_try(servers->each[node], "INFO replication");
    if (info == NULL || info->type != REDIS_REPLY_STRING)
        return ROLE_UNKNOWN;
    if (strncmp(field_of(info->str, "role:"), "master", 6) != 0)
        return ROLE_IDLE;
    return atoi(field_of(info->str, "min_slaves_good_slaves:")) > 0 ? ROLE_WRITABLE : ROLE_REFUSING;
}

/* Since the node was last no master, it may have said that a lock is free. A script that finds a
 * lock gone writes nothing, so a master that refuses writes answers it, too. */
static void take_over(struct servers *servers, int node)
{
    note(servers->world, NOTE_FAULT, -1, NULL, "server %d takes writes after server %d", node,
         servers->master);
    servers->losing_ns[servers->master] = servers->idle_ns[node];
    servers->master = node;
    servers->fail_overs++;
}

static void look_at_nodes(struct servers *servers)
{
    char text[80];
    servers->looked_ns = boot_ns();
    for (int i = 0; i < NODES; i++) {
        int64_t before_ns = boot_ns();
        enum role role = role_of(servers, i);
        if (role == ROLE_WRITABLE && i != servers->master && servers->losing_ns[i] == 0)
            take_over(servers, i);
        if (role == ROLE_UNKNOWN || role == ROLE_WRITABLE)
            continue;
        if (servers->losing_ns[i] != 0) {
            snprintf(text, sizeof text, "server %d, the former master, takes no more writes", i);
            note_loss(servers->world, servers->losing_ns[i], text);
        }
        servers->losing_ns[i] = 0;
        if (role == ROLE_IDLE)
            servers->idle_ns[i] = before_ns;
    }
}

/* The value after a name in the answer to SENTINEL MASTER, or "". */
static const char *said_of(const redisReply *master, const char *name)
{
    for (size_t i = 0; i + 1 < master->elements; i += 2)
        if (strcmp(master->element[i]->str, name) == 0)
            return master->element[i + 1]->str;
    return "";
}

/* It names that master, sees no failure, and knows all others. */
static bool is_content(struct server *sentinel, int port)
{
    const redisReply *said = server_try(sentinel, "SENTINEL MASTER shop");
    return said != NULL && said->type == REDIS_REPLY_ARRAY && atoi(said_of(said, "port")) == port &&
           strcmp(said_of(said, "flags"), "master") == 0 &&
           atoi(said_of(said, "num-other-sentinels")) == SENTINELS - 1 &&
           atoi(said_of(said, "num-slaves")) == NODES - 1;
}

static bool is_group_settled(struct servers *servers)
{
    for (int i = 0; i < NODES; i++)
        if (role_of(servers, i) != (i == servers->master ? ROLE_WRITABLE : ROLE_IDLE) ||
            servers->losing_ns[i] != 0)
            return false;
    for (int i = NODES; i < NODES + SENTINELS; i++)
        if (!is_content(servers->each[i], proxy_port(servers->proxy, servers->master)))
            return false;
    return true;
}

void servers_fail_over(struct servers *servers)
{
    for (int i = NODES; i < NODES + SENTINELS; i++)
        if (!servers->stopped[i] && server_try(servers->each[i], "SENTINEL FAILOVER shop") != NULL)
            return;
}

/* ---- All of them ----------------------------------------------------------------------------- */

void servers_round(struct servers *servers)
{
    for (int i = 0; i < servers->plan->servers; i++)
        if (servers->states[i] == STATE_STARTING && server_restarted(servers->each[i]))
            take_back(servers, i);
    if (servers->plan->sentinel && boot_ns() - servers->looked_ns > LOOK_MS * NS_A_MS)
        look_at_nodes(servers);
}

static bool all_run(const struct servers *servers)
{
    for (int i = 0; i < servers->plan->servers; i++)
        if (servers->states[i] != STATE_UP || servers->stopped[i])
            return false;
    return true;
}

bool servers_settled(struct servers *servers)
{
    return all_run(servers) && (!servers->plan->sentinel || is_group_settled(servers));
}

int servers_master(const struct servers *servers)
{
    return servers->master;
}

int servers_fail_overs(const struct servers *servers)
{
    return servers->fail_overs;
}
