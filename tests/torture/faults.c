/* SPDX-License-Identifier: Apache-2.0
 *
 * See faults.h.
 */
#include "faults.h"

#include "keys.h"
#include "must.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LASTING_MAX 128

/* A fault that has begun and not ended. */
struct lasting {
    const struct fault *fault; /* NULL: this place is free */
    uint64_t wire;             /* 0 if it affects no wire */
    int process, server;
    int left; /* events until it ends */
    int64_t began_ns;
};

struct faults {
    const struct plan *plan;
    struct world *world;
    struct servers *servers;
    struct proxy *proxy;
    bool calm;
    int seen[FAULTS_MAX]; /* matching requests so far, for each fault */
    int done_times[FAULTS_MAX];
    int done[FAULT_COUNT];
    struct lasting lasting[LASTING_MAX];
};

struct faults *faults_new(const struct plan *plan, struct world *world, struct servers *servers)
{
    struct faults *faults = calloc(1, sizeof *faults);
    must(faults != NULL);
    faults->plan = plan;
    faults->world = world;
    faults->servers = servers;
    return faults;
}

void faults_free(struct faults *faults)
{
    free(faults);
}

const int *faults_done(const struct faults *faults)
{
    return faults->done;
}

/* ---- The servers ----------------------------------------------------------------------------- */

static bool is_the_servers(enum fault_kind kind)
{
    return kind >= FAULT_STOP_SERVER;
}

/* Sentinels have no data. */
static bool suits(const struct faults *faults, enum fault_kind kind, int server)
{
    return server < plan_nodes(faults->plan) || kind == FAULT_STOP_SERVER ||
           kind == FAULT_HOLE_SERVER || kind == FAULT_SLOW_SERVER;
}

static void end_fault(struct faults *faults, struct lasting *lasting);

/* A server that restarts ends its other faults. */
static void end_servers_faults(struct faults *faults, int server)
{
    for (size_t i = 0; i < LASTING_MAX; i++) {
        struct lasting *lasting = &faults->lasting[i];
        if (lasting->fault != NULL && lasting->server == server &&
            is_the_servers(lasting->fault->kind))
            end_fault(faults, lasting);
    }
}

static void server_do(struct faults *faults, const struct fault *fault, int index)
{
    static const char *const denied[] = {"-eval -evalsha", "-@write", "-subscribe -blpop",
                                         "-client", "-info"};
    struct server *server = servers_at(faults->servers, index);
    switch (fault->kind) {
    case FAULT_KILL_SERVER:
        servers_kill(faults->servers, index);
        break;
    case FAULT_HOLE_SERVER:
        proxy_keep(faults->proxy, index, KEEP_ALL);
        break;
    case FAULT_STALE:
        proxy_keep(faults->proxy, index, KEEP_REPLICATION);
        break;
    case FAULT_APART:
        proxy_keep(faults->proxy, index, KEEP_SERVERS);
        break;
    case FAULT_FAIL_OVER:
        servers_fail_over(faults->servers);
        break;
    case FAULT_SLOW_SERVER:
        proxy_slow(faults->proxy, index, fault->ms);
        break;
    case FAULT_STOP_SERVER:
        servers_signal(faults->servers, index, SIGSTOP);
        break;
    case FAULT_RESTART:
    case FAULT_RESTART_EMPTY:
        servers_restart(faults->servers, index, fault->kind);
        break;
    case FAULT_RESTART_OLD:
        server_ask(server, "SAVE");
        break;
    case FAULT_CLIENT_KILL:
        server_ask(server, "CLIENT KILL TYPE NORMAL");
        break;
    case FAULT_CLIENT_PAUSE:
        server_ask(server, "CLIENT PAUSE 60000 WRITE");
        break;
    case FAULT_SCRIPT_FLUSH:
        server_ask(server, "SCRIPT FLUSH");
        break;
    case FAULT_OOM:
        server_ask(server, "CONFIG SET maxmemory 1");
        break;
    case FAULT_READONLY:
        server_ask(server, "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
        break;
    case FAULT_DENY_COMMAND:
        keys_allow(server, denied[(size_t)(fault->at.count + fault->until.count) % 5]);
        break;
    default:
        keys_allow(server, "resetchannels");
    }
}

static void server_undo(struct faults *faults, enum fault_kind kind, int index)
{
    struct server *server = servers_at(faults->servers, index);
    switch (kind) {
    case FAULT_KILL_SERVER:
        servers_revive(faults->servers, index);
        break;
    case FAULT_HOLE_SERVER:
    case FAULT_STALE:
    case FAULT_APART:
        proxy_keep(faults->proxy, index, KEEP_NOTHING);
        break;
    case FAULT_SLOW_SERVER:
        proxy_slow(faults->proxy, index, 0);
        break;
    case FAULT_STOP_SERVER:
        servers_signal(faults->servers, index, SIGCONT);
        break;
    case FAULT_RESTART_OLD:
        servers_restart(faults->servers, index, kind);
        break;
    case FAULT_CLIENT_PAUSE:
        server_ask(server, "CLIENT UNPAUSE");
        break;
    case FAULT_OOM:
        server_ask(server, "CONFIG SET maxmemory 0");
        break;
    case FAULT_READONLY:
        server_ask(server, "REPLICAOF NO ONE");
        break;
    case FAULT_DENY_COMMAND:
        keys_allow(server, "+@all");
        break;
    case FAULT_DENY_CHANNEL:
        keys_allow(server, "allchannels");
        break;
    default:
        break;
    }
}

/* ---- Processes ------------------------------------------------------------------------------- */

static void signal_process(struct faults *faults, int process, int signal)
{
    struct process *p = &faults->world->processes[process];
    if (atomic_load(&p->pid) == 0 || atomic_load(&p->over))
        return;
    if (signal == SIGKILL)
        atomic_store(&p->killed, true);
    kill(atomic_load(&p->pid), signal);
}

/* ---- Beginning and ending -------------------------------------------------------------------- */

static void end_fault(struct faults *faults, struct lasting *lasting)
{
    const struct fault *fault = lasting->fault;
    struct wire *wire = wire_find(faults->proxy, lasting->wire);
    lasting->fault = NULL;
    char name[16];
    note(faults->world, NOTE_FAULT, lasting->process, NULL, "fault ends: %s%s (wire %llu)%s%s",
         fault_text(fault->kind), lasting->wire != 0 && wire == NULL ? ", the wire is gone" : "",
         (unsigned long long)lasting->wire, faults->plan->servers > 1 ? ", " : "",
         plan_server_name(faults->plan, lasting->server, name, sizeof name));
    if (wire != NULL) {
        wire_slow(wire, 0);
        wire_let_go(wire);
    }
    if (fault->kind == FAULT_REFUSE)
        proxy_refuse(faults->proxy, lasting->server,
                     !servers_is_up(faults->servers, lasting->server));
    else if (fault->kind == FAULT_STOP_CLIENT || fault->kind == FAULT_STOP_AT_POINT)
        signal_process(faults, lasting->process, SIGCONT);
    else
        server_undo(faults, fault->kind, lasting->server);
}

static void lasts(struct faults *faults, const struct fault *fault, uint64_t wire,
                  const struct request_seen *seen)
{
    for (size_t i = 0; i < LASTING_MAX; i++) {
        if (faults->lasting[i].fault != NULL)
            continue;
        faults->lasting[i] = (struct lasting){.fault = fault,
                                              .wire = wire,
                                              .process = seen->process,
                                              .server = seen->server,
                                              .left = fault->until.count,
                                              .began_ns = boot_ns()};
        return;
    }
    must(!"room for a fault that lasts");
}

static enum onward do_to_wire(struct faults *faults, const struct fault *fault, struct wire *wire,
                              const struct request_seen *seen)
{
    switch (fault->kind) {
    case FAULT_RESET_BEFORE:
        return ONWARD_DROP;
    case FAULT_RESET_AFTER:
        wire_reset_at_reply(wire);
        return ONWARD_SEND;
    case FAULT_REFUSE:
        proxy_refuse(faults->proxy, seen->server, true);
        lasts(faults, fault, 0, seen);
        return ONWARD_SEND;
    case FAULT_SLOW:
        wire_slow(wire, fault->ms);
        break;
    case FAULT_MUTE:
        wire_keep(wire, false, true);
        break;
    case FAULT_BLACK_HOLE:
        wire_keep(wire, true, true);
        break;
    default:
        wire_keep(wire, true, false);
        if (fault->kind == FAULT_LATE_RESET)
            wire_reset(wire);
    }
    lasts(faults, fault, wire_number(wire), seen);
    return ONWARD_SEND;
}

static enum onward begin_fault(struct faults *faults, const struct fault *fault, struct wire *wire,
                               const struct request_seen *seen)
{
    char name[16];
    if (is_the_servers(fault->kind) && (!servers_is_up(faults->servers, seen->server) ||
                                        !suits(faults, fault->kind, seen->server)))
        return ONWARD_SEND;
    faults->done[fault->kind]++;
    note(faults->world, NOTE_FAULT, seen->process, NULL, "FAULT %s: %s, at this request%s%s",
         fault_name(fault->kind), fault_text(fault->kind), faults->plan->servers > 1 ? " to " : "",
         plan_server_name(faults->plan, seen->server, name, sizeof name));
    if (fault->kind < FAULT_STOP_CLIENT)
        return do_to_wire(faults, fault, wire, seen);
    if (fault->kind == FAULT_STOP_CLIENT || fault->kind == FAULT_KILL_CLIENT) {
        struct request_seen of = *seen;
        if (fault->at.count % 3 == 0)
            of.process = (seen->process + 1) % faults->plan->processes;
        bool stop = fault->kind == FAULT_STOP_CLIENT;
        signal_process(faults, of.process, stop ? SIGSTOP : SIGKILL);
        if (stop)
            lasts(faults, fault, 0, &of);
        return ONWARD_SEND;
    }
    uint64_t number = wire_number(wire);
    /* One at a time: a stopped server accepts no commands. */
    end_servers_faults(faults, seen->server);
    server_do(faults, fault, seen->server);
    lasts(faults, fault, 0, seen);
    return wire_number(wire) == number ? ONWARD_SEND : ONWARD_DROP;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static bool matches(const struct event *event, int same, const struct request_seen *seen)
{
    int process = event->process == SAME ? same : event->process;
    return event->answered == seen->answered && (process == ANY || process == seen->process) &&
           (event->server == ANY || event->server == seen->server) &&
           (event->request == ANY || event->request == (int)seen->kind);
}

static void count_towards_ends(struct faults *faults, const struct request_seen *seen)
{
    for (size_t i = 0; i < LASTING_MAX; i++) {
        struct lasting *lasting = &faults->lasting[i];
        const struct fault *fault = lasting->fault;
        if (fault == NULL || !matches(&fault->until, lasting->process, seen))
            continue;
        const struct wire *wire = wire_find(faults->proxy, lasting->wire);
        if (fault->kind == FAULT_LATE_CLOSED && wire != NULL && wire_has_client(wire))
            continue;
        if (--lasting->left <= 0)
            end_fault(faults, lasting);
    }
}

enum onward faults_on_request(void *arg, struct wire *wire, const struct request_seen *seen)
{
    struct faults *faults = arg;
    const struct plan *plan = faults->plan;
    uint64_t number = wire_number(wire);
    const struct fault *first = NULL;
    if (faults->calm)
        return ONWARD_SEND;
    count_towards_ends(faults, seen);
    if (wire_number(wire) != number)
        return ONWARD_DROP;
    for (size_t i = 0; i < plan->fault_count; i++) {
        const struct fault *fault = &plan->faults[i];
        if (fault->kind == FAULT_STOP_AT_POINT || fault->kind == FAULT_KILL_AT_POINT ||
            !matches(&fault->at, ANY, seen))
            continue;
        int beyond = ++faults->seen[i] - fault->at.count;
        if (beyond < 0 || beyond % fault->every != 0 || first != NULL ||
            faults->done_times[i] >= fault->times)
            continue;
        faults->done_times[i]++;
        first = fault;
    }
    return first != NULL ? begin_fault(faults, first, wire, seen) : ONWARD_SEND;
}

/* The process stops or kills itself at the point. This records that it happened. */
static void look_at_points(struct faults *faults)
{
    for (size_t i = 0; i < faults->plan->fault_count; i++) {
        const struct fault *fault = &faults->plan->faults[i];
        if ((fault->kind != FAULT_STOP_AT_POINT && fault->kind != FAULT_KILL_AT_POINT) ||
            faults->done_times[i] > 0 ||
            atomic_load(&faults->world->processes[fault->at.process].points) < fault->at.count)
            continue;
        faults->done_times[i]++;
        faults->done[fault->kind]++;
        if (fault->kind == FAULT_STOP_AT_POINT)
            lasts(faults, fault, 0, &(struct request_seen){.process = fault->at.process});
    }
}

void faults_round(struct faults *faults, struct proxy *proxy)
{
    faults->proxy = proxy;
    int64_t now_ns = boot_ns();
    look_at_points(faults);
    for (size_t i = 0; i < LASTING_MAX; i++) {
        struct lasting *lasting = &faults->lasting[i];
        int64_t since_ns = proxy_last_request_ns(proxy);
        if (lasting->fault == NULL)
            continue;
        if (since_ns < lasting->began_ns)
            since_ns = lasting->began_ns;
        if (now_ns - since_ns > lasting->fault->idle_ms * NS_A_MS)
            end_fault(faults, lasting);
    }
}

void faults_calm(struct faults *faults, struct proxy *proxy)
{
    faults->proxy = proxy;
    faults->calm = true;
    look_at_points(faults);
    for (size_t i = 0; i < LASTING_MAX; i++)
        if (faults->lasting[i].fault != NULL)
            end_fault(faults, &faults->lasting[i]);
    for (int i = 0; i < faults->plan->processes; i++)
        signal_process(faults, i, SIGCONT);
}
