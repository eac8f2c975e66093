/* SPDX-License-Identifier: Apache-2.0
 *
 * See other_engine.h. The faults are those that need no Redis: processes are stopped beyond their
 * time to live and killed, connections are cut before and after a request arrives, and are silent.
 * They come by chance, so a seed does not repeat them.
 */
#include "other_engine.h"

#include "../support/proxy.h" /* the torture has another one, for Redis */
#include "check.h"
#include "child.h"
#include "must.h"
#include "noise.h"
#include "stage.h"
#include "transcript.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS 4
#define PAUSE_MS_MAX 120 /* between two faults */
#define ANSWER_MS 500    /* what a connection and a command may take: the bounds follow from it */

struct totals {
    _Atomic int histories, failed, stops, kills, cuts;
    _Atomic size_t calls;
};

struct run {
    struct plan plan;
    struct world *world;
    struct totals *totals;
    char url[URL_SIZE];
    struct wire *wire;
    uint64_t random;
    int64_t next_ns;                   /* of the next fault */
    int64_t goes_on_ns[PROCESSES_MAX]; /* of one that is stopped; 0: it is not */
};

/* What to do with the next request that contains the text. */
struct cut {
    enum proxy_act act;
    char text[24];
};

/* The proxy's process: it has a thread, beside which the history could not fork its clients. */
struct wire {
    pid_t pid;
    int plans[2];     /* a pipe of struct cut */
    _Atomic int port; /* of the proxy; 0: not yet */
};

static const struct other_engine *other;
static struct dlock_rung rung;

static int port_of(const char *url)
{
    return atoi(strrchr(url, ':') + 1);
}

/* ---- The proxy ------------------------------------------------------------------------------- */

static int run_proxy(void *arg)
{
    struct wire *wire = arg;
    struct cut cut;
    close(wire->plans[1]);
    struct proxy *proxy = proxy_start_to(other->port());
    atomic_store(&wire->port, port_of(proxy_url(proxy)));
    while (read(wire->plans[0], &cut, sizeof cut) == sizeof cut)
        proxy_plan(proxy, cut.act, cut.text, NULL, 0);
    proxy_free(proxy);
    return 0;
}

static struct wire *wire_start(void)
{
    struct wire *wire =
        mmap(NULL, sizeof *wire, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(wire != MAP_FAILED && pipe2(wire->plans, O_CLOEXEC) == 0);
    wire->pid = child_start(run_proxy, wire);
    close(wire->plans[0]);
    eventually(atomic_load(&wire->port) != 0);
    return wire;
}

static void wire_plan(const struct wire *wire, struct cut cut)
{
    must(write(wire->plans[1], &cut, sizeof cut) == sizeof cut);
}

/* All processes that have its other end are gone. */
static void wire_end(struct wire *wire)
{
    close(wire->plans[1]);
    must(child_wait(wire->pid) == 0);
    munmap(wire, sizeof *wire);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static bool is_alive(const struct process *process)
{
    return process->pid != 0 && !process->over && !process->killed;
}

static void stop_or_kill(struct run *run, int number, bool stops)
{
    struct process *process = &run->world->processes[number];
    int64_t ttl_ms = run->plan.ttl_ms[number];
    if (!is_alive(process) || run->goes_on_ns[number] != 0)
        return;
    if (stops) {
        run->goes_on_ns[number] =
            boot_ns() + (int64_t)random_below(&run->random, (uint64_t)(2 * ttl_ms)) * NS_A_MS;
        run->totals->stops++;
    } else {
        atomic_store(&process->killed, true);
        run->totals->kills++;
    }
    note(run->world, NOTE_FAULT, number, NULL, stops ? "FAULT stopped" : "FAULT killed");
    kill(process->pid, stops ? SIGSTOP : SIGKILL);
}

static void plan_cut(struct run *run)
{
    static const struct {
        enum proxy_act act;
        const char *text;
    } faults[] = {{PROXY_CUT_REQUEST, "connection cut before the server got it"},
                  {PROXY_CUT_REPLY, "connection cut after the server got it"},
                  {PROXY_MUTE, "no reply comes any more"}};
    size_t drawn = random_below(&run->random, 3);
    note(run->world, NOTE_FAULT, -1, NULL, "FAULT at the next request: %s", faults[drawn].text);
    struct cut cut = {.act = faults[drawn].act};
    snprintf(cut.text, sizeof cut.text, "%s", other->request_text);
    wire_plan(run->wire, cut);
    run->totals->cuts++;
}

static void draw_fault(struct run *run)
{
    int process = (int)random_below(&run->random, (uint64_t)run->plan.processes);
    bool brief = !run->plan.long_ttl; /* else what is left behind outlives the history */
    uint64_t drawn = random_below(&run->random, 10);
    if (drawn < 3 && brief)
        stop_or_kill(run, process, true);
    else if (drawn < 4 && brief)
        stop_or_kill(run, process, false);
    else
        plan_cut(run);
}

static void go_on(struct run *run, bool now)
{
    for (int i = 0; i < PROCESSES_MAX; i++) {
        if (run->goes_on_ns[i] == 0 || (!now && boot_ns() < run->goes_on_ns[i]))
            continue;
        run->goes_on_ns[i] = 0;
        note(run->world, NOTE_FAULT, i, NULL, "goes on");
        if (is_alive(&run->world->processes[i]))
            kill(run->world->processes[i].pid, SIGCONT);
    }
}

/* ---- What the stage asks for ----------------------------------------------------------------- */

static void url(void *arg, int process, int server, char url[URL_SIZE])
{
    const struct run *run = arg;
    (void)process, (void)server;
    snprintf(url, URL_SIZE, "%s", run->url);
}

static void play_round(void *arg, int ms)
{
    struct run *run = arg;
    usleep((unsigned)ms * 1000);
    go_on(run, false);
    if (run->world->phase != PHASE_RUN || run->plan.calm || boot_ns() < run->next_ns)
        return;
    run->next_ns = boot_ns() + (int64_t)random_below(&run->random, PAUSE_MS_MAX) * NS_A_MS;
    draw_fault(run);
}

/* The cut that was planned last is forgotten. */
static void calm(void *arg)
{
    const struct run *run = arg;
    go_on(arg, true);
    wire_plan(run->wire, (struct cut){PROXY_CUT_REQUEST, "no request says this"});
}

/* ---- One history ----------------------------------------------------------------------------- */

static void draw(struct run *run, uint64_t seed)
{
    struct plan *plan = &run->plan;
    char name[sizeof plan->names[0]];
    plan_draw(plan, seed, &(struct choice){0});
    plan->rung = &rung;
    plan->engine = other->engine();
    plan->fault_count = 0;
    plan->riding = plan->shared = plan->brief = 0; /* a client has one time to live */
    plan->command_ms = plan->connect_ms = ANSWER_MS;
    for (int i = 0; i < PROCESSES_MAX; i++)
        plan->ttl_ms[i] = (plan->ttl_ms[i] + other->ttl_unit_ms - 1) / other->ttl_unit_ms *
                          other->ttl_unit_ms;
    for (int i = 0; i < plan->locks; i++) { /* all histories have one server */
        snprintf(name, sizeof name, "%s", plan->names[i]);
        snprintf(plan->names[i], sizeof plan->names[i], "%.20s/%llu", name,
                 (unsigned long long)seed);
    }
    run->random = seed;
}

static bool holds(const struct run *run)
{
    size_t count = atomic_load(&run->world->violation_count);
    for (size_t i = 0; i < count && i < VIOLATIONS_MAX; i++)
        printf("VIOLATED seed %llu: %s: %s\n", (unsigned long long)run->plan.seed,
               violation_name(run->world->violations[i].kind), run->world->violations[i].text);
    if (count > 0 && getenv("TORTURE_TELL") != NULL)
        transcript_write(stdout, run->world, &run->plan);
    return count == 0;
}

static void play(struct totals *totals, uint64_t seed)
{
    struct run run = {.world = world_new(), .totals = totals};
    draw(&run, seed);
    struct stage stage = {.plan = &run.plan,
                          .world = run.world,
                          .arg = &run,
                          .url = url,
                          .round = play_round,
                          .calm = calm};
    run.wire = wire_start();
    other->url(run.url, run.wire->port);
    stage_start(&stage);
    stage_play(&stage);
    check_history(run.world, &run.plan);
    totals->histories++;
    totals->calls += check_call_count(run.world);
    totals->failed += !holds(&run);
    wire_end(run.wire);
    munmap(run.world, sizeof *run.world);
}

/* ---- Many ------------------------------------------------------------------------------------ */

struct job {
    struct totals *totals;
    uint64_t first, last;
};

static int play_all(void *arg)
{
    const struct job *job = arg;
    for (uint64_t seed = job->first; seed <= job->last; seed += JOBS)
        play(job->totals, seed);
    return 0;
}

/* Copied, since the lock keeps it. It asks no server. */
static void learn_rung(void)
{
    char url[URL_SIZE];
    other->url(url, other->port());
    const char *servers[] = {url};
    struct dlock_options options = {
        .size = sizeof options, .engine = other->engine(), .servers = servers, .server_count = 1};
    dlock_client *client;
    dlock *lock;
    must(dlock_client_open(&options, &client) == DLOCK_OK);
    must(dlock_open(client, NULL, "lock", &lock) == DLOCK_OK);
    rung = *dlock_rung_of(lock);
    dlock_close(lock);
    dlock_client_close(client);
}

int torture_engine(const struct other_engine *engine, int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 20;
    struct job jobs[JOBS];
    pid_t pids[JOBS];
    bool played = true;
    struct totals *totals =
        mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(totals != MAP_FAILED);
    signal(SIGPIPE, SIG_IGN);
    other = engine;
    other->start();
    learn_rung();
    for (uint64_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct job){totals, first + i, first + count - 1};
        pids[i] = child_start(play_all, &jobs[i]);
    }
    for (int i = 0; i < JOBS; i++)
        played &= child_wait(pids[i]) == 0;
    other->end();
    printf("%d histories, %d failed; %zu calls; %d stops, %d kills, %d cuts\n", totals->histories,
           totals->failed, totals->calls, totals->stops, totals->kills, totals->cuts);
    return played && totals->failed == 0 ? 0 : 1;
}
