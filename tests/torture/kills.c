/* SPDX-License-Identifier: Apache-2.0
 *
 * One long history of `redlock` on five servers that are killed and restarted at random. The
 * torture's clients and its judge, without a proxy. Each section also writes a stock that compares
 * fencing tokens.
 */
#include "check.h"
#include "key_watch.h"
#include "killed.h"
#include "must.h"
#include "options.h"
#include "stage.h"
#include "stock.h"
#include "transcript.h"

#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCK "lock:{phone}"
#define ROUND_US 2000
#define REFUSED 2    /* with --empty it goes on until so many writes were refused */
#define SHOWN_MAX 10 /* violations that are printed */

static const char usage[] =
    "usage: torture_kills [options]\n"
    "\n"
    "Several processes acquire a redlock on five Redis servers, which are killed (SIGKILL) and\n"
    "restarted at random. They write every command to disk before they answer (appendfsync\n"
    "always). No two holders at once, no key that outlives its time to live, and no stale write.\n"
    "\n"
    "  --acquisitions N  end after so many (default 300, at most 15000)\n"
    "  --seed S          of the kills, and of what the processes do (default: by chance)\n"
    "  --empty           instead: servers come back at once, and empty. Two holders must be\n"
    "                    found, and the stock must refuse every stale write\n"
    "  --broken WHAT     with a mistake, to see it found: minority (a vote fewer is enough),\n"
    "                    memory (servers lose their data, and nothing excuses it), or plain (the\n"
    "                    stock compares no token)\n"
    "  --help\n"
    "\n"
    "Exit code 0: all held, and with --empty two holders and a stale write were found; 1: not\n"
    "so; 2: it could not be tried.\n";

enum broken { BROKEN_NOTHING, BROKEN_MINORITY, BROKEN_MEMORY, BROKEN_PLAIN };

struct settings {
    uint64_t seed;
    int acquisitions;
    bool empty;
    enum broken broken;
};

struct run {
    struct settings settings;
    struct plan plan;
    struct world *world;
    struct killed *killed;
    struct server *stock;
    long seen; /* how often the lock's key was found on a server */
    int left;  /* servers that have it after the end */
};

/* ---- What the stage asks for ----------------------------------------------------------------- */

static void url(void *arg, int process, int server, char url[URL_SIZE])
{
    const struct run *run = arg;
    (void)process;
    snprintf(url, URL_SIZE, "%s", server_url(killed_at(run->killed, server)));
}

static void play_round(void *arg, int ms)
{
    struct run *run = arg;
    (void)ms;
    usleep(ROUND_US);
    killed_round(run->killed, run->world->phase == PHASE_RUN);
}

static void calm(void *arg)
{
    struct run *run = arg;
    killed_revive(run->killed);
}

/* ---- The history ----------------------------------------------------------------------------- */

/* Most sections are short. Some are so long that they need renewals, or that servers come back
 * meanwhile. Then a hold is renewed seldom, so that it does not hear of the loss at once. */
static void make_plan(struct run *run)
{
    const struct settings *settings = &run->settings;
    struct plan *plan = &run->plan;
    bool brief = settings->acquisitions < 1000; /* long sections are more frequent */
    *plan = (struct plan){
        .seed = settings->seed,
        .rung = dlock_rung_find(REDLOCK),
        .visitor = settings->broken == BROKEN_PLAIN ? &stock_plain : &stock_fenced,
        .stock_port = server_port(run->stock),
        .servers = KILLED_SERVERS,
        .planted = settings->broken == BROKEN_MINORITY ? PLANTED_MINORITY : PLANTED_NONE,
        .asks_tokens = true,
        .processes = 3,
        .threads = 3,
        .locks = 1,
        .calls = INT_MAX,
        .acquisitions = settings->acquisitions,
        .refused = settings->empty && settings->broken != BROKEN_PLAIN ? REFUSED : 0,
        .names = {LOCK},
        .command_ms = 500,
        .connect_ms = 500,
        .retry_ms = 20,
        .grant_ms = 200,
        .contenders = 1,
        .handoff_max = 1,
        .connections_max = 64,
        .weights = {[OP_HOLD] = 1},
        .owners = 1,
        .section_ms = 4,
        .overdue = brief ? 5 : 1,
        .overdue_ms = settings->empty ? 1000
                      : brief         ? 400
                                      : 0,
        .wait_ms = {300, 1500, 1500}};
    for (int i = 0; i < PROCESSES_MAX; i++)
        plan->ttl_ms[i] = settings->empty ? 3000 : 800;
    must(plan->rung != NULL);
}

static bool forgets(const struct settings *settings)
{
    return settings->empty || settings->broken == BROKEN_MEMORY;
}

static void set_up(struct run *run)
{
    const struct settings *settings = &run->settings;
    run->world = world_new();
    run->stock = server_start(NULL);
    run->killed = killed_start(run->world, &(struct killing){.seed = settings->seed,
                                                             .forgets = forgets(settings),
                                                             .at_once = settings->empty,
                                                             .told = settings->empty});
    make_plan(run);
    planted_set(run->plan.planted);
}

/* All clients are closed. Once the longest time to live has passed, no server has the key. */
static void look_for_keys(struct run *run)
{
    long_pause(plan_ttl_ms_max(&run->plan));
    for (int i = 0; i < KILLED_SERVERS; i++)
        run->left += server_integer(killed_at(run->killed, i), "EXISTS " LOCK) != 0;
    if (run->left > 0)
        violation(run->world, VIOLATION_KEY, "%d servers still have the lock's key", run->left);
}

static void play(struct run *run)
{
    struct server *servers[KILLED_SERVERS];
    struct stage stage = {.plan = &run->plan,
                          .world = run->world,
                          .arg = run,
                          .url = url,
                          .round = play_round,
                          .calm = calm,
                          .run_ms = 60000 + run->settings.acquisitions * 400};
    for (int i = 0; i < KILLED_SERVERS; i++)
        servers[i] = killed_at(run->killed, i);
    struct key_watch *watch =
        key_watch_start(run->world, servers, KILLED_SERVERS, LOCK, plan_ttl_ms_max(&run->plan));
    stage_start(&stage);
    stage_play(&stage);
    look_for_keys(run);
    run->seen = key_watch_end(watch);
    check_history(run->world, &run->plan);
}

/* ---- What it was ----------------------------------------------------------------------------- */

struct counts {
    int acquires[DLOCK_FORKED + 1], releases[DLOCK_FORKED + 1]; /* by status */
    int refusals, unknown;
    int refused_reads, refused_writes, writes;
    int without_majority; /* acquires that failed while no majority ran */
};

static bool is_acquire(const struct call *call)
{
    return call->what == WHAT_ACQUIRE || call->what == WHAT_START;
}

static void count_acquire(const struct run *run, const struct call *call, struct counts *counts)
{
    bool alone = killed_most(run->killed, call->begin_ns, call->end_ns);
    counts->acquires[call->status]++;
    counts->refusals += call->status != DLOCK_OK && dlock_status_definite(call->status);
    counts->without_majority += alone && call->status != DLOCK_OK;
    if (alone && call->status == DLOCK_OK)
        violation(run->world, VIOLATION_ANSWER, "#%d was granted while no majority ran",
                  (int)(call - run->world->calls));
    counts->refused_reads += call->visit.read_sent_ns != 0 && call->visit.read_ns == 0;
    counts->refused_writes += call->visit.written == WRITTEN_REFUSED;
    counts->writes += call->visit.written == WRITTEN_YES;
}

static struct counts count(const struct run *run)
{
    struct counts counts = {0};
    for (size_t i = 0; i < check_call_count(run->world); i++) {
        const struct call *call = &run->world->calls[i];
        if (call->answers == 0)
            continue;
        counts.unknown += !dlock_status_definite(call->status);
        if (is_acquire(call))
            count_acquire(run, call, &counts);
        else if (call->what == WHAT_RELEASE)
            counts.releases[call->status]++;
    }
    return counts;
}

static void tell_by_status(const char *call, const int counts[DLOCK_FORKED + 1])
{
    for (int i = DLOCK_OK + 1; i <= DLOCK_FORKED; i++)
        if (counts[i] > 0)
            printf("    %s answered %s: %d\n", call, dlock_status_name((dlock_status)i), counts[i]);
}

static void tell_counts(struct run *run, const struct counts *counts)
{
    const struct world *world = run->world;
    const struct plan *plan = &run->plan;
    const char *redis = strstr(server_text(run->stock, "INFO server"), "redis_version:") + 14;
    int stale_accepted = world->by_kind[VIOLATION_STALE];
    printf("Redis %.*s, %d servers; %d processes of %d threads; time to live %lld ms\n",
           (int)strcspn(redis, "\r\n"), redis, plan->servers, plan->processes, plan->threads,
           (long long)plan_ttl_ms_max(plan));
    printf("acquisitions: %d\n", counts->acquires[DLOCK_OK]);
    printf("servers killed: %d; times without a majority: %zu\n", killed_kills(run->killed),
           killed_gaps(run->killed));
    printf("acquires refused: %d, of them without a majority: %d\n", counts->refusals,
           counts->without_majority);
    tell_by_status("acquire", counts->acquires);
    printf("outcomes unknown: %d\n", counts->unknown);
    printf("holds lost: %d\n", counts->releases[DLOCK_LOST]);
    tell_by_status("release", counts->releases);
    printf("pairs of two holders at once: %d, of them after a loss of data: %d\n", world->overlaps,
           world->excused);
    printf("stale writes accepted: %d, of %d accepted\n", stale_accepted, counts->writes);
    printf("stale writes refused: %d, of %d refused; reads refused: %d\n",
           world->stale - stale_accepted, counts->refused_writes, counts->refused_reads);
    printf("keys that lived too long: %d, seen %ld times; keys left: %d\n",
           world->by_kind[VIOLATION_KEY] - (run->left > 0), run->seen, run->left);
}

static void tell_violations(const struct world *world)
{
    size_t count = atomic_load(&world->violation_count);
    for (size_t i = 0; i < count && i < SHOWN_MAX; i++)
        printf("VIOLATED %s: %s: %s\n", violation_name(world->violations[i].kind),
               violation_text(world->violations[i].kind), world->violations[i].text);
    for (int i = 0; i < VIOLATION_COUNT && count > SHOWN_MAX; i++)
        if (world->by_kind[i] > 0)
            printf("VIOLATED %s: %d times\n", violation_name((enum violation_kind)i),
                   world->by_kind[i]);
}

static int judge(struct run *run)
{
    const struct counts counts = count(run);
    const struct world *world = run->world;
    tell_counts(run, &counts);
    tell_violations(world);
    if (getenv("TORTURE_TELL") != NULL)
        transcript_write(stdout, run->world, &run->plan);
    if (counts.acquires[DLOCK_OK] < run->settings.acquisitions) {
        printf("fewer acquisitions than asked for: the time was over, or too many failed\n");
        return 2;
    }
    if (world->violation_count > 0)
        return 1;
    if (run->settings.empty && (world->overlaps == 0 || world->stale == 0)) {
        printf("MISSED: no two holders at once, or no stale write\n");
        return 1;
    }
    return 0;
}

/* ---- Options --------------------------------------------------------------------------------- */

static enum broken broken_of(const char *text)
{
    static const char *const names[] = {
        [BROKEN_MINORITY] = "minority", [BROKEN_MEMORY] = "memory", [BROKEN_PLAIN] = "plain"};
    for (int i = BROKEN_MINORITY; i <= BROKEN_PLAIN; i++)
        if (strcmp(text, names[i]) == 0)
            return (enum broken)i;
    option_refuse("--broken", text);
}

static struct settings read_options(int argc, char **argv)
{
    static const struct option options[] = {{"acquisitions", required_argument, NULL, 'n'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"empty", no_argument, NULL, 'e'},
                                            {"broken", required_argument, NULL, 'b'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct settings settings = {.acquisitions = 300,
                                .seed = (uint64_t)boot_ns() / 1000 % 1000000000};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'n':
            settings.acquisitions = (int)option_number("--acquisitions", optarg, 15000);
            break;
        case 's':
            settings.seed = option_number("--seed", optarg, UINT64_MAX);
            break;
        case 'e':
            settings.empty = true;
            break;
        case 'b':
            settings.broken = broken_of(optarg);
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            exit(2);
        }
    if (optind < argc)
        option_refuse("the argument", argv[optind]);
    return settings;
}

int main(int argc, char **argv)
{
    static struct run run;
    run.settings = read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    printf("servers come back: %s\n",
           forgets(&run.settings) ? "empty" : "with their data (appendfsync always)");
    printf("seed: %llu\n", (unsigned long long)run.settings.seed);
    set_up(&run);
    play(&run);
    int code = judge(&run);
    killed_free(run.killed);
    server_free(run.stock);
    return code;
}
