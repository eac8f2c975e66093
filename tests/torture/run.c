/* SPDX-License-Identifier: Apache-2.0
 *
 * See run.h. One thread does it all, so that it can fork: the proxy's rounds, the faults and the
 * phases.
 */
#include "run.h"

#include "check.h"
#include "client.h"
#include "contract.h"
#include "faults.h"
#include "keys.h"
#include "must.h"
#include "transcript.h"

#include "child.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_MS 1200    /* the calls end then, if not before */
#define GIVE_UP_MS 10000 /* a process that has not let go by then never will */
#define ROUND_MS 5
#define LEFT_MS 1000 /* what is released in the background is released by then */

struct run {
    const struct plan *plan;
    struct world *world;
    struct server *server;
    struct proxy *proxy;
    struct faults *faults;
    struct client_start starts[PROCESSES_MAX];
};

static void start_process(struct run *run, int process, bool fresh)
{
    run->starts[process] = (struct client_start){.world = run->world,
                                                 .plan = run->plan,
                                                 .process = process,
                                                 .port = proxy_port(run->proxy, process),
                                                 .fresh = fresh};
    atomic_store(&run->world->processes[process].pid,
                 child_start(client_main, &run->starts[process]));
}

static void reap(struct run *run)
{
    for (int i = 0; i < PROCESSES_MAX; i++) {
        struct process *process = &run->world->processes[i];
        int status;
        if (process->pid == 0 || process->over ||
            waitpid(process->pid, &status, WNOHANG) != process->pid)
            continue;
        process->over = true;
        if (!process->killed && status != 0)
            violation(run->world, VIOLATION_DIED, "process %d: %s %d", i,
                      WIFSIGNALED(status) ? "signal" : "exit status",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

static bool all_done(const struct run *run)
{
    for (int i = 0; i < run->plan->processes; i++) {
        const struct process *process = &run->world->processes[i];
        if (!process->over && process->busy > 0)
            return false;
    }
    return true;
}

static bool all_let_go(const struct run *run)
{
    for (int i = 0; i < run->plan->processes; i++) {
        const struct process *process = &run->world->processes[i];
        if (!process->over && !process->let_go)
            return false;
    }
    return true;
}

static bool all_over(const struct run *run)
{
    for (int i = 0; i < PROCESSES_MAX; i++)
        if (run->world->processes[i].pid != 0 && !run->world->processes[i].over)
            return false;
    return true;
}

/* Rounds until the condition holds; false: it does not within the limit. */
static bool rounds(struct run *run, bool (*condition)(const struct run *), int64_t limit_ms)
{
    int64_t end_ns = boot_ns() + limit_ms * NS_A_MS;
    while (!condition(run) && boot_ns() < end_ns) {
        witness_beat(&run->world->proxy);
        proxy_round(run->proxy, ROUND_MS);
        faults_round(run->faults, run->proxy);
        reap(run);
        for (int i = 0; i < run->plan->processes && run->world->phase == PHASE_CALM; i++)
            if (!run->world->processes[i].over) /* it may have stopped itself just now */
                kill(run->world->processes[i].pid, SIGCONT);
    }
    return condition(run);
}

static bool never(const struct run *run)
{
    (void)run;
    return false;
}

static void end_all(struct run *run, const char *when)
{
    for (int i = 0; i < PROCESSES_MAX; i++) {
        struct process *process = &run->world->processes[i];
        if (process->pid == 0 || process->over)
            continue;
        violation(run->world, VIOLATION_ANSWER, "process %d did not come to its end %s", i, when);
        kill(process->pid, SIGKILL);
        waitpid(process->pid, NULL, 0);
        process->over = true;
    }
}

/* Nothing died and nothing expired: what is left on the server was forgotten there. */
static void judge_left(struct run *run)
{
    for (int i = 0; i < run->plan->locks; i++) {
        if (!check_all_definite(run->world, i))
            continue;
        for (int ms = 0; server_integer(run->server, "EXISTS %s", run->plan->names[i]) != 0;
             ms += ROUND_MS) {
            rounds(run, never, ROUND_MS);
            if (ms < LEFT_MS)
                continue;
            violation(run->world, VIOLATION_LEFT, "%s", run->plan->names[i]);
            break;
        }
    }
}

/* Each was sent once, so it was carried out once at most. */
static void judge_rides(struct run *run)
{
    const struct world *world = run->world;
    long long sold = atoll(server_text(run->server, "GET app:sold"));
    int least = check_data_lost(world) ? 0 : world->rides_answered;
    if (sold < least || sold > world->rides_sent)
        violation(run->world, VIOLATION_RIDE, "%lld were carried out, %d of %d were answered", sold,
                  world->rides_answered, world->rides_sent);
}

static void set_up(struct run *run)
{
    static const char *const args[] = {"--shutdown-on-sigterm", "save", NULL};
    run->world = world_new();
    run->server = server_start(args);
    keys_prepare(run->plan, run->server);
    run->faults = faults_new(run->plan, run->world, run->server);
    run->proxy = proxy_new(run->world, run->server, faults_on_request, run->faults);
    for (int i = 0; i < run->plan->processes; i++) {
        atomic_store(&run->world->processes[i].busy, 1); /* until it has started */
        start_process(run, i, false);
    }
}

static void go_through(struct run *run)
{
    struct world *world = run->world;
    faults_round(run->faults, run->proxy);
    rounds(run, all_done, RUN_MS);
    atomic_store(&world->calm_ns, boot_ns());
    note(world, NOTE_FAULT, -1, NULL, "all faults are over");
    faults_calm(run->faults, run->proxy);
    atomic_store(&world->phase, PHASE_CALM);
    if (!rounds(run, all_let_go, GIVE_UP_MS)) {
        end_all(run, "when the faults were over");
        return;
    }
    if (run->plan->long_ttl || run->plan->calm)
        judge_left(run);
    note(world, NOTE_FAULT, -1, NULL, "nobody holds: each process acquires each lock");
    start_process(run, run->plan->processes, true);
    atomic_store(&world->phase, PHASE_REST);
    if (!rounds(run, all_over, 2 * GIVE_UP_MS))
        end_all(run, "at rest");
    keys_judge(run->plan, run->server, world);
    judge_rides(run);
}

static void sum_up(const struct run *run, struct result *result)
{
    const struct world *world = run->world;
    size_t count = atomic_load(&world->violation_count);
    result->violations = (int)count;
    for (size_t i = 0; i < count && i < VIOLATIONS_MAX; i++)
        result->by_kind[world->violations[i].kind]++;
    if (count > 0)
        memcpy(result->first, world->violations[0].text, sizeof result->first);
    memcpy(result->faults, faults_done(run->faults), sizeof result->faults);
    result->calls = check_call_count(world);
}

/* What the processes said of themselves: a sanitizer's report, an assertion. */
static void add_errors(FILE *to, FILE *errors)
{
    char line[512];
    rewind(errors);
    while (fgets(line, sizeof line, errors) != NULL)
        fputs(line, to);
}

void run_history(const struct plan *plan, const char *transcript, struct result *result)
{
    struct run run = {.plan = plan};
    char said[300];
    snprintf(said, sizeof said, "%s.err", transcript);
    FILE *errors = fopen(said, "w+");
    must(errors != NULL && dup2(fileno(errors), STDERR_FILENO) >= 0);
    signal(SIGPIPE, SIG_IGN);
    set_up(&run);
    go_through(&run);
    check_history(run.world, plan);
    sum_up(&run, result);
    FILE *to = result->violations > 0 ? fopen(transcript, "w") : NULL;
    if (to != NULL) {
        transcript_write(to, run.world, plan);
        add_errors(to, errors);
        fclose(to);
    }
    proxy_free(run.proxy);
    faults_free(run.faults);
    server_free(run.server);
    fclose(errors);
    unlink(said);
}
