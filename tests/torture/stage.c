/* SPDX-License-Identifier: Apache-2.0
 *
 * See stage.h.
 */
#include "stage.h"

#include "child.h"

#include <signal.h>
#include <sys/wait.h>

#define RUN_MS 1200        /* limit of PHASE_RUN */
#define RUN_GROUP_MS 5000  /* the same of a group, whose fail-overs take seconds */
#ifdef __SANITIZE_THREAD__ /* its processes are slow */
#define GIVE_UP_MS 30000
#else
#define GIVE_UP_MS 10000 /* limit for a process to release its holds */
#endif
#define ROUND_MS 5

static void start_process(struct stage *stage, int process, bool fresh)
{
    struct client_start *start = &stage->starts[process];
    *start = (struct client_start){
        .world = stage->world, .plan = stage->plan, .process = process, .fresh = fresh};
    for (int i = 0; i < stage->plan->servers; i++)
        stage->url(stage->arg, process, i, start->urls[i]);
    atomic_store(&stage->world->processes[process].pid, child_start(client_main, start));
}

static void reap(struct stage *stage)
{
    for (int i = 0; i < PROCESSES_MAX; i++) {
        struct process *process = &stage->world->processes[i];
        int status;
        if (process->pid == 0 || process->over ||
            waitpid(process->pid, &status, WNOHANG) != process->pid)
            continue;
        process->over = true;
        if (!process->killed && status != 0)
            violation(stage->world, VIOLATION_DIED, "process %d: %s %d", i,
                      WIFSIGNALED(status) ? "signal" : "exit status",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

static bool all_done(const struct stage *stage)
{
    for (int i = 0; i < stage->plan->processes; i++) {
        const struct process *process = &stage->world->processes[i];
        if (!process->over && process->busy > 0)
            return false;
    }
    return true;
}

static bool all_let_go(const struct stage *stage)
{
    for (int i = 0; i < stage->plan->processes; i++) {
        const struct process *process = &stage->world->processes[i];
        if (!process->over && !process->let_go)
            return false;
    }
    return true;
}

static bool all_over(const struct stage *stage)
{
    for (int i = 0; i < PROCESSES_MAX; i++)
        if (stage->world->processes[i].pid != 0 && !stage->world->processes[i].over)
            return false;
    return true;
}

/* Runs rounds until the condition holds. False if it does not hold within the limit. Time in which
 * this process could not run does not count: the clients had no server. */
static bool rounds(struct stage *stage, bool (*condition)(const struct stage *),
                   int64_t call_max_ms)
{
    const _Atomic int64_t *stalled_ns = &stage->world->proxy.stalled_ns;
    int64_t end_ns = boot_ns() + call_max_ms * NS_A_MS - atomic_load(stalled_ns);
    while (!condition(stage) && boot_ns() < end_ns + atomic_load(stalled_ns)) {
        witness_beat(&stage->world->proxy);
        stage->round(stage->arg, ROUND_MS);
        reap(stage);
        for (int i = 0; i < stage->plan->processes && stage->world->phase == PHASE_CALM; i++)
            if (!stage->world->processes[i].over) /* it may have just stopped itself */
                kill(stage->world->processes[i].pid, SIGCONT);
    }
    return condition(stage);
}

static bool never(const struct stage *stage)
{
    (void)stage;
    return false;
}

static void end_all(struct stage *stage, const char *when)
{
    for (int i = 0; i < PROCESSES_MAX; i++) {
        struct process *process = &stage->world->processes[i];
        if (process->pid == 0 || process->over)
            continue;
        violation(stage->world, VIOLATION_ANSWER, "process %d did not end %s", i, when);
        kill(process->pid, SIGKILL);
        waitpid(process->pid, NULL, 0);
        process->over = true;
    }
}

void stage_wait(struct stage *stage, int64_t ms)
{
    rounds(stage, never, ms);
}

void stage_start(struct stage *stage)
{
    for (int i = 0; i < stage->plan->processes; i++) {
        atomic_store(&stage->world->processes[i].busy, 1); /* until the process has started */
        start_process(stage, i, false);
    }
}

bool stage_play(struct stage *stage)
{
    struct world *world = stage->world;
    int64_t run_ms = stage->plan->sentinel ? RUN_GROUP_MS : RUN_MS;
    rounds(stage, all_done, stage->run_ms != 0 ? stage->run_ms : run_ms);
    stage->calm(stage->arg);
    atomic_store(&world->calm_ns, boot_ns());
    note(world, NOTE_FAULT, -1, NULL, "all faults are over");
    atomic_store(&world->phase, PHASE_CALM);
    if (!rounds(stage, all_let_go, GIVE_UP_MS)) {
        end_all(stage, "when the faults were over");
        return false;
    }
    if (stage->at_rest != NULL)
        stage->at_rest(stage->arg);
    note(world, NOTE_FAULT, -1, NULL, "nobody holds: each process acquires each lock");
    start_process(stage, stage->plan->processes, true);
    atomic_store(&world->phase, PHASE_REST);
    if (!rounds(stage, all_over, 2 * GIVE_UP_MS))
        end_all(stage, "at rest");
    return true;
}
