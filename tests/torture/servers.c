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

enum state { STATE_UP, STATE_DEAD, STATE_STARTING };

struct servers {
    const struct plan *plan;
    struct world *world;
    struct proxy *proxy;
    struct server *each[SERVERS_MOST];
    pid_t pids[SERVERS_MOST];
    enum state states[SERVERS_MOST];
};

/* A single server saves when it is told to end. */
static const char *const *args_of(const struct plan *plan)
{
    static const char *const one[] = {"--shutdown-on-sigterm", "save", NULL};
    static const char *const several[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    return plan->servers == 1 ? one : several;
}

static pid_t process_of(struct server *server)
{
    const char *info = server_text(server, "INFO server");
    return (pid_t)strtol(strstr(info, "process_id:") + 11, NULL, 10);
}

struct servers *servers_start(const struct plan *plan, struct world *world)
{
    struct servers *servers = calloc(1, sizeof *servers);
    must(servers != NULL);
    servers->plan = plan;
    servers->world = world;
    for (int i = 0; i < plan->servers; i++) {
        servers->each[i] = server_start(args_of(plan));
        servers->pids[i] = process_of(servers->each[i]);
        keys_prepare(plan, servers->each[i]);
    }
    return servers;
}

void servers_free(struct servers *servers)
{
    for (int i = 0; i < servers->plan->servers; i++)
        server_free(servers->each[i]);
    free(servers);
}

void servers_join(struct servers *servers, struct proxy *proxy)
{
    servers->proxy = proxy;
    for (int i = 0; i < servers->plan->servers; i++)
        proxy_lead(proxy, i, server_port(servers->each[i]));
}

struct server *servers_at(struct servers *servers, int index)
{
    return servers->each[index];
}

void servers_signal(const struct servers *servers, int index, int signal)
{
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
    server_restart(server, args_of(servers->plan));
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
}

void servers_revive(struct servers *servers, int index)
{
    must(servers->states[index] == STATE_DEAD);
    server_restart_begin(servers->each[index], args_of(servers->plan));
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
    keys_prepare(servers->plan, servers->each[index]);
    proxy_refuse(servers->proxy, index, false);
    servers->states[index] = STATE_UP;
    note(servers->world, NOTE_FAULT, -1, NULL, "%s is back with its data",
         plan_server_name(servers->plan, index, name, sizeof name));
}

void servers_round(struct servers *servers)
{
    for (int i = 0; i < servers->plan->servers; i++)
        if (servers->states[i] == STATE_STARTING && server_restarted(servers->each[i]))
            take_back(servers, i);
}

bool servers_all_up(const struct servers *servers)
{
    for (int i = 0; i < servers->plan->servers; i++)
        if (servers->states[i] != STATE_UP)
            return false;
    return true;
}
