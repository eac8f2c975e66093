/* SPDX-License-Identifier: Apache-2.0
 *
 * See other_engine.h. The faults are those that need no Redis: processes are stopped beyond their
 * time to live and killed, connections are cut before and after a request arrives, and are silent.
 * They come by chance, so a seed does not repeat them.
 *
 * On an ensemble that somebody else has started, that one loses servers, too, and says so on the
 * standard input: a line for each fault. The end of the input says that all servers are well again;
 * then the history goes on to its end.
 */
#include "other_engine.h"

#include "../support/proxy.h" /* the torture has another one, for Redis */
#include "check.h"
#include "check_many.h"
#include "child.h"
#include "must.h"
#include "noise.h"
#include "options.h"
#include "stage.h"
#include "transcript.h"

#include <fcntl.h>
#include <poll.h>
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
#define LOSSES_MS 420000 /* limit for the servers to be well again: ensembles.py waits for that */
#define ROUND_MS 5
#define MEMBERS 3 /* of an ensemble */

struct totals {
    _Atomic int histories, failed, stops, kills, cuts;
    _Atomic size_t calls, many, acquired_many;
};

struct run {
    struct plan plan;
    struct world *world;
    struct totals *totals;
    char url[URL_SIZE];
    struct wire *wire;
    char told[120]; /* of the standard input: the line that has not ended */
    size_t told_size;
    bool well; /* the standard input has ended */
    uint64_t random;
    int64_t next_ns;                   /* of the next fault */
    int64_t goes_on_ns[PROCESSES_MAX]; /* of one that is stopped; 0: it is not */
};

/* What to do with the next request to the server that contains the text. */
struct cut {
    int server;
    enum proxy_act act;
    char text[24];
};

/* The process of the proxies, one to each server: they have threads, beside which the history could
 * not fork its clients. */
struct wire {
    pid_t pid;
    int plans[2];               /* a pipe of struct cut */
    _Atomic int ports[MEMBERS]; /* of the proxies; 0: not yet */
};

static const struct other_engine *other;
static struct dlock_rung rung;
/* Of the one server of our own, or of an ensemble's. */
static _Atomic int ports[MEMBERS];
static int servers;

static bool on_ensemble(void)
{
    return servers > 1;
}

static int port_of(const char *url)
{
    return atoi(strrchr(url, ':') + 1);
}

static void write_url(char url[URL_SIZE], const _Atomic int *at)
{
    char hosts[URL_SIZE / 2] = "";
    for (int i = 0; i < servers; i++)
        snprintf(hosts + strlen(hosts), sizeof hosts - strlen(hosts), "%s127.0.0.1:%d",
                 i == 0 ? "" : ",", at[i]);
    other->url(url, hosts, on_ensemble());
}

/* ---- The proxy ------------------------------------------------------------------------------- */

static int run_proxy(void *arg)
{
    struct wire *wire = arg;
    struct cut cut;
    struct proxy *proxies[MEMBERS];
    close(wire->plans[1]);
    for (int i = 0; i < servers; i++) {
        proxies[i] = proxy_start_to(ports[i]);
        atomic_store(&wire->ports[i], port_of(proxy_url(proxies[i])));
    }
    while (read(wire->plans[0], &cut, sizeof cut) == sizeof cut)
        proxy_plan(proxies[cut.server], cut.act, cut.text, NULL, 0);
    for (int i = 0; i < servers; i++)
        proxy_free(proxies[i]);
    return 0;
}

static struct wire *wire_start(void)
{
    struct wire *wire =
        mmap(NULL, sizeof *wire, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(wire != MAP_FAILED && pipe2(wire->plans, O_CLOEXEC) == 0);
    wire->pid = child_start(run_proxy, wire);
    close(wire->plans[0]);
    eventually(atomic_load(&wire->ports[servers - 1]) != 0);
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
        witness_beat(&process->witness); /* for it: it may not have run since it was stopped */
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
    struct cut cut = {.server = (int)random_below(&run->random, (uint64_t)servers),
                      .act = faults[drawn].act};
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

/* Notes the lines that have come. */
static void listen_to_losses(struct run *run)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!run->well && poll(&input, 1, 0) > 0) {
        char *next = &run->told[run->told_size];
        if (read(STDIN_FILENO, next, 1) != 1) {
            run->well = true;
        } else if (*next == '\n' || run->told_size + 2 == sizeof run->told) {
            note(run->world, NOTE_FAULT, -1, NULL, "%.*s", (int)run->told_size, run->told);
            run->told_size = 0;
        } else {
            run->told_size++;
        }
    }
}

static void play_round(void *arg, int ms)
{
    struct run *run = arg;
    usleep((unsigned)ms * 1000);
    listen_to_losses(run);
    go_on(run, false);
    if (run->world->phase != PHASE_RUN || run->plan.calm || boot_ns() < run->next_ns)
        return;
    run->next_ns = boot_ns() + (int64_t)random_below(&run->random, PAUSE_MS_MAX) * NS_A_MS;
    draw_fault(run);
}

/* The cuts that were planned last are forgotten. */
static void calm(void *arg)
{
    struct run *run = arg;
    int64_t end_ns = boot_ns() + LOSSES_MS * NS_A_MS;
    while (!run->well) {
        must(boot_ns() < end_ns);
        witness_beat(&run->world->proxy);
        play_round(run, ROUND_MS);
    }
    go_on(run, true);
    for (int i = 0; i < servers; i++)
        wire_plan(run->wire, (struct cut){i, PROXY_CUT_REQUEST, "no request says this"});
}

/* ---- One history ----------------------------------------------------------------------------- */

/* A history lasts as long as its faults. Many of its holds outlast an election, or are valid only
 * because their session was renewed. */
static void draw_long_holds(struct run *run)
{
    struct plan *plan = &run->plan;
    uint64_t longest_ms = (uint64_t)(3 * plan_ttl_ms_max(plan));
    plan->calls = CALLS_MAX;
    plan->kept = (int)random_below(&run->random, 60);
    plan->overdue = 5 + (int)random_below(&run->random, 40);
    plan->overdue_ms = 1 + (int)random_below(&run->random, longest_ms);
}

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
    plan->close_ms = other->close_ms;
    run->random = seed;
    int64_t unit_ms = on_ensemble() ? other->ensemble_ttl_unit_ms : other->ttl_unit_ms;
    int64_t longer = on_ensemble() && !plan->long_ttl && chance(&run->random, 50) ? 3 : 1;
    for (int i = 0; i < PROCESSES_MAX; i++)
        plan->ttl_ms[i] = (longer * plan->ttl_ms[i] + unit_ms - 1) / unit_ms * unit_ms;
    if (on_ensemble()) {
        draw_long_holds(run);
        plan->ordered = false;
    }
    for (int i = 0; i < plan->locks; i++) { /* all histories have one server */
        snprintf(name, sizeof name, "%s", plan->names[i]);
        snprintf(plan->names[i], sizeof plan->names[i], "%.20s/%llu", name,
                 (unsigned long long)seed);
    }
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
    struct run run = {.world = world_new(), .totals = totals, .well = !on_ensemble()};
    draw(&run, seed);
    struct stage stage = {.plan = &run.plan,
                          .world = run.world,
                          .arg = &run,
                          .url = url,
                          .round = play_round,
                          .calm = calm};
    run.wire = wire_start();
    write_url(run.url, run.wire->ports);
    stage_start(&stage);
    stage_play(&stage);
    check_history(run.world, &run.plan);
    totals->histories++;
    totals->calls += check_call_count(run.world);
    totals->many += check_count_many(run.world).calls;
    totals->acquired_many += check_count_many(run.world).acquired;
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
    write_url(url, ports);
    const char *urls[] = {url};
    struct dlock_options options = {
        .size = sizeof options, .engine = other->engine(), .servers = urls, .server_count = 1};
    dlock_client *client;
    dlock *lock;
    must(dlock_client_open(&options, &client) == DLOCK_OK);
    must(dlock_open(client, NULL, "lock", &lock) == DLOCK_OK);
    rung = *dlock_rung_of(lock);
    dlock_close(lock);
    dlock_client_close(client);
}

static void read_members(const char *text)
{
    const char *next = text;
    for (servers = 0; servers < MEMBERS && *next != '\0'; servers++) {
        ports[servers] = (int)strtol(next, (char **)(uintptr_t)&next, 10);
        next += *next == ',';
    }
    if (servers != MEMBERS || *next != '\0')
        option_refuse("--members", text);
}

static int play_many(struct totals *totals, uint64_t first, uint64_t count)
{
    struct job jobs[JOBS];
    pid_t pids[JOBS];
    int code = 0;
    for (uint64_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct job){totals, first + i, first + count - 1};
        pids[i] = child_start(play_all, &jobs[i]);
    }
    for (int i = 0; i < JOBS; i++)
        code |= child_wait(pids[i]);
    return code;
}

int torture_engine(const struct other_engine *engine, int argc, char **argv)
{
    struct totals *totals =
        mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int code = 0;
    must(totals != MAP_FAILED);
    signal(SIGPIPE, SIG_IGN);
    other = engine;
    if (argc == 4 && strcmp(argv[1], "--members") == 0) {
        read_members(argv[2]);
        learn_rung();
        play(totals, option_number("the seed", argv[3], UINT64_MAX));
    } else {
        other->start();
        servers = 1;
        ports[0] = other->port();
        learn_rung();
        code = play_many(totals, argc > 1 ? option_number("the seed", argv[1], UINT64_MAX) : 1,
                         argc > 2 ? option_number("the number", argv[2], 10000000) : 20);
        other->end();
    }
    printf("%d histories, %d failed; %zu calls; %zu for several locks, %zu got all; "
           "%d stops, %d kills, %d cuts\n",
           totals->histories, totals->failed, totals->calls, totals->many, totals->acquired_many,
           totals->stops, totals->kills, totals->cuts);
    return code == 0 && totals->failed == 0 ? 0 : 1;
}
