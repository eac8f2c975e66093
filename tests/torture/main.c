/* SPDX-License-Identifier: Apache-2.0
 *
 * torture: plays many short histories of the library under faults, and judges each.
 */
#include "child.h"
#include "must.h"
#include "options.h"
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS_MAX 32
#define LIMIT_MS 90000 /* limit of one history, which ends itself long before */
#define PROGRESS_MS 10000

static const char usage[] =
    "usage: torture [options]\n"
    "\n"
    "Plays histories in which several processes share locks on a private Redis, or on several,\n"
    "under faults, and judges each. One seed makes one history.\n"
    "\n"
    "  --seed S         the first seed (default 1)\n"
    "  --histories N    how many (default 100)\n"
    "  --minutes N      instead: as many as N minutes allow\n"
    "  --rung R         only this rung (default: all of one server that are not flawed)\n"
    "  --sentinel       over Sentinel: a master, two replicas, three sentinels, and fail-overs\n"
    "  --servers N      redlock on 3 or 5 servers (default for --rung redlock: the seed decides)\n"
    "  --many           only histories with calls for several locks at once\n"
    "  --flawed         instead: each flawed rung until its flaw is seen, at most N histories;\n"
    "                   with --servers a redlock that needs one vote too few; with --sentinel a\n"
    "                   client that stays with its first master; with --many a library whose\n"
    "                   calls for several locks take them in the caller's order, or keep one\n"
    "  --repeat SEED    this history until it fails, at most 100 times\n"
    "  --until-failure  end at the first history that fails\n"
    "  --jobs N         how many at once (default 4)\n"
    "  --folder DIR     where transcripts are kept (default runs/torture)\n"
    "  --help\n"
    "\n"
    "Exit code 0: no violation (--flawed: each flaw was seen); 1: a violation (--flawed: a flaw\n"
    "was not seen); 2: a history could not be played.\n";

struct settings {
    uint64_t seed;
    long histories, minutes;
    struct choice choice;
    bool flawed, repeat, until_failure;
    enum violation_kind until; /* the kind at which to end; VIOLATION_COUNT: any */
    int jobs;
    const char *folder;
};

struct job {
    pid_t pid; /* 0 if this place is free */
    int64_t began_ns;
    struct plan plan;
    bool many; /* as settings.choice has it: the seed needs it */
    char transcript[256];
    struct result *result; /* shared with the process */
};

struct totals {
    long histories, calm, failed, lost, servers_lost, failed_over;
    size_t calls;
    long with_many, calm_with_many; /* histories */
    struct many_count many;
    long by_kind[VIOLATION_COUNT], faults[FAULT_COUNT];
};

static struct job jobs[JOBS_MAX];
static struct totals totals;
static int64_t began_ns, told_ns;

/* ---- One history ----------------------------------------------------------------------------- */

static void job_start(struct job *job, const struct settings *settings, uint64_t seed)
{
    plan_draw(&job->plan, seed, &settings->choice);
    job->many = settings->choice.many;
    memset(job->result, 0, sizeof *job->result);
    job->began_ns = boot_ns();
    snprintf(job->transcript, sizeof job->transcript, "%s/%s-%llu.txt", settings->folder,
             job->plan.rung->name, (unsigned long long)seed);
    fflush(NULL);
    job->pid = child_fork();
    if (job->pid > 0)
        return;
    run_history(&job->plan, job->transcript, job->result);
    _exit(0);
}

static void tell_violations(const struct job *job)
{
    const struct result *result = job->result;
    printf("VIOLATED %s, seed %llu, %d times:", job->plan.rung->name,
           (unsigned long long)job->plan.seed, result->violations);
    for (int i = 0; i < VIOLATION_COUNT; i++)
        if (result->by_kind[i] > 0)
            printf(" %s", violation_name((enum violation_kind)i));
    printf(": %s\n    transcript: %s\n    again: scripts/torture --rung %s", result->first,
           job->transcript, job->plan.rung->name);
    if (job->many)
        printf(" --many");
    if (job->plan.sentinel)
        printf(" --sentinel");
    else if (job->plan.servers > 1)
        printf(" --servers %d", job->plan.servers);
    printf(" --repeat %llu\n", (unsigned long long)job->plan.seed);
    fflush(stdout);
}

/* Whether one of several servers was away, or as good as. */
static bool lost_a_server(const struct job *job)
{
    static const enum fault_kind kinds[] = {FAULT_KILL_SERVER, FAULT_HOLE_SERVER, FAULT_SLOW_SERVER,
                                            FAULT_STOP_SERVER};
    int count = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        count += job->result->faults[kinds[i]];
    return count > 0 && job->plan.servers > 1;
}

static void job_end(struct job *job, bool quiet)
{
    const struct result *result = job->result;
    totals.histories += !job->plan.calm;
    totals.calm += job->plan.calm;
    totals.failed += result->violations > 0;
    totals.calls += result->calls;
    totals.many.calls += result->many.calls;
    totals.many.acquired += result->many.acquired;
    totals.many.both_modes += result->many.both_modes;
    totals.with_many += result->many.calls > 0 && !job->plan.calm;
    totals.calm_with_many += result->many.calls > 0 && job->plan.calm;
    totals.servers_lost += lost_a_server(job);
    totals.failed_over += result->fail_overs > 0;
    for (int i = 0; i < VIOLATION_COUNT; i++)
        totals.by_kind[i] += result->by_kind[i];
    for (int i = 0; i < FAULT_COUNT; i++)
        totals.faults[i] += result->faults[i];
    if (result->violations > 0 && !quiet)
        tell_violations(job);
    job->pid = 0;
}

/* A job that has ended, or NULL. */
static struct job *job_over(void)
{
    for (struct job *job = jobs; job < jobs + JOBS_MAX; job++) {
        int status;
        if (job->pid == 0)
            continue;
        pid_t ended = waitpid(job->pid, &status, WNOHANG);
        if (ended == 0 && boot_ns() - job->began_ns < LIMIT_MS * NS_A_MS)
            continue;
        if (ended == 0) {
            kill(job->pid, SIGKILL);
            waitpid(job->pid, &status, 0);
        }
        if (ended == 0 || status != 0) {
            totals.lost++;
            printf("torture: %s, seed %llu could not be played: status %d, see %s.err\n",
                   job->plan.rung->name, (unsigned long long)job->plan.seed, status,
                   job->transcript);
        }
        return job;
    }
    return NULL;
}

static struct job *job_free(const struct settings *settings)
{
    for (int i = 0; i < settings->jobs; i++)
        if (jobs[i].pid == 0)
            return &jobs[i];
    return NULL;
}

static bool any_job(void)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs[i].pid != 0)
            return true;
    return false;
}

static void progress(void)
{
    if (boot_ns() - told_ns < PROGRESS_MS * NS_A_MS)
        return;
    told_ns = boot_ns();
    printf("%lld s: %ld histories, %ld calm, %ld failed\n",
           (long long)((told_ns - began_ns) / 1000000000), totals.histories, totals.calm,
           totals.failed);
    fflush(stdout);
}

/* ---- Many ------------------------------------------------------------------------------------ */

static bool goes_on(const struct settings *settings, long started)
{
    bool any = settings->until == VIOLATION_COUNT;
    if (settings->until_failure && (any ? totals.failed : totals.by_kind[settings->until]) > 0)
        return false;
    if (settings->minutes > 0)
        return boot_ns() - began_ns < settings->minutes * 60000000000;
    return started < settings->histories;
}

static void play(const struct settings *settings)
{
    long started = 0;
    for (;;) {
        struct job *job = job_over();
        if (job != NULL) {
            job_end(job, settings->flawed);
            continue;
        }
        if (!settings->flawed)
            progress();
        job = job_free(settings);
        if (job != NULL && goes_on(settings, started)) {
            uint64_t seed = settings->seed + (settings->repeat ? 0 : (uint64_t)started);
            job_start(job, settings, seed);
            started++;
        } else if (!any_job()) {
            return;
        } else {
            short_pause();
        }
    }
}

/* The violation that the rung's flaw causes, so that the torture knows when it has shown. For most
 * rungs that is two holders at once. */
static enum violation_kind flaw_of(const char *rung)
{
    static const char *const stuck[] = {"setnx",          "setnx_expire", "setnx_multi",
                                        "watchdog_timer", "blpop_wake",   "rw_counter"};
    for (size_t i = 0; i < sizeof stuck / sizeof stuck[0]; i++)
        if (strcmp(rung, stuck[i]) == 0)
            return VIOLATION_STUCK;
    return VIOLATION_OVERLAP;
}

/* Plays until the mistake shows. */
static bool catch_planted(const struct settings *settings, enum planted mistake)
{
    static const struct {
        enum violation_kind until;
        const char *what;
    } mistakes[] = {
        [PLANTED_MINORITY] = {VIOLATION_OVERLAP, "One vote fewer than a majority was enough"},
        [PLANTED_STAYS] = {VIOLATION_STUCK, "A client stayed with its first master"},
        [PLANTED_UNSORTED] = {VIOLATION_CYCLE, "Several locks were taken in the caller's order"},
        [PLANTED_KEEPS] = {VIOLATION_MANY, "A call for several locks kept one when it failed"}};
    struct settings one = *settings;
    one.choice.planted = mistake;
    one.until = mistakes[mistake].until;
    one.until_failure = true;
    totals = (struct totals){0};
    play(&one);
    bool seen = totals.by_kind[one.until] > 0;
    printf("%s the mistake after %ld histories: %s. %s\n", seen ? "caught" : "MISSED",
           totals.histories + totals.calm, violation_text(one.until), mistakes[mistake].what);
    return seen;
}

/* Plays each flawed rung until its flaw shows. */
static bool catch_rungs(const struct settings *settings)
{
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        struct settings one = *settings;
        const char *name = rungs[i].name;
        const char *only = settings->choice.rung;
        if (!rungs[i].flawed || (only != NULL && strcmp(only, name) != 0))
            continue;
        totals = (struct totals){0};
        one.choice.rung = name;
        one.until = flaw_of(name);
        one.until_failure = true;
        play(&one);
        bool seen = totals.by_kind[one.until] > 0;
        printf("%s %s after %ld histories: %s. Its flaw: %s\n", seen ? "caught" : "MISSED", name,
               totals.histories + totals.calm, violation_text(one.until), rungs[i].flaw);
        all &= seen;
    }
    return all;
}

static bool catch_flawed(const struct settings *settings)
{
    if (settings->choice.many) {
        bool unsorted = catch_planted(settings, PLANTED_UNSORTED);
        return catch_planted(settings, PLANTED_KEEPS) && unsorted;
    }
    if (settings->choice.sentinel)
        return catch_planted(settings, PLANTED_STAYS);
    if (settings->choice.servers > 1)
        return catch_planted(settings, PLANTED_MINORITY);
    return catch_rungs(settings);
}

static void tell_totals(void)
{
    printf("faults:");
    for (int i = 0; i < FAULT_COUNT; i++)
        printf(" %s %ld%s", fault_name((enum fault_kind)i), totals.faults[i],
               i + 1 < FAULT_COUNT ? "," : "\n");
    for (int i = 0; i < VIOLATION_COUNT; i++)
        if (totals.by_kind[i] > 0)
            printf("%s: %ld times, %s\n", violation_name((enum violation_kind)i), totals.by_kind[i],
                   violation_text((enum violation_kind)i));
    if (totals.failed_over > 0)
        printf("another server became the master in %ld of them\n", totals.failed_over);
    if (totals.servers_lost > 0)
        printf("a server was killed, stopped, slow or unreachable in %ld of them\n",
               totals.servers_lost);
    printf(
        "calls for several locks: %zu, of them %zu got all, in %ld histories and %ld calm ones\n",
        totals.many.calls, totals.many.acquired, totals.with_many, totals.calm_with_many);
    if (totals.many.both_modes > 0)
        printf("some locks shared and others not: %zu that got all\n", totals.many.both_modes);
    printf("%ld histories and %ld calm ones in %lld s, %zu calls, %ld failed\n", totals.histories,
           totals.calm, (long long)((boot_ns() - began_ns) / 1000000000), totals.calls,
           totals.failed);
}

/* ---- Options --------------------------------------------------------------------------------- */

static struct settings read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},    {"histories", required_argument, NULL, 'n'},
        {"minutes", required_argument, NULL, 'm'}, {"rung", required_argument, NULL, 'r'},
        {"servers", required_argument, NULL, 'v'}, {"flawed", no_argument, NULL, 'f'},
        {"repeat", required_argument, NULL, 'a'},  {"until-failure", no_argument, NULL, 'u'},
        {"jobs", required_argument, NULL, 'j'},    {"folder", required_argument, NULL, 'd'},
        {"sentinel", no_argument, NULL, 'e'},      {"many", no_argument, NULL, 'y'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    struct settings settings = {
        .seed = 1, .histories = 100, .until = VIOLATION_COUNT, .jobs = 4, .folder = "runs/torture"};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 's':
            settings.seed = option_number("--seed", optarg, UINT64_MAX);
            break;
        case 'n':
            settings.histories = (long)option_number("--histories", optarg, 10000000);
            break;
        case 'm':
            settings.minutes = (long)option_number("--minutes", optarg, 100000);
            break;
        case 'r':
            settings.choice.rung = optarg;
            if (dlock_rung_find(optarg) == NULL ||
                strcmp(dlock_rung_find(optarg)->engine, "redis") != 0)
                option_refuse("--rung", optarg);
            break;
        case 'v':
            settings.choice.servers = (int)option_number("--servers", optarg, SERVERS_MOST);
            if (settings.choice.servers != 3 && settings.choice.servers != 5)
                option_refuse("--servers", optarg);
            settings.choice.rung = REDLOCK;
            break;
        case 'e':
            settings.choice.sentinel = true;
            break;
        case 'y':
            settings.choice.many = true;
            break;
        case 'f':
            settings.flawed = true;
            break;
        case 'a':
            settings.seed = option_number("--repeat", optarg, UINT64_MAX);
            settings.repeat = settings.until_failure = true;
            settings.histories = 100;
            break;
        case 'u':
            settings.until_failure = true;
            break;
        case 'j':
            settings.jobs = (int)option_number("--jobs", optarg, JOBS_MAX);
            break;
        case 'd':
            settings.folder = optarg;
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

static void make_folder(const char *folder)
{
    char path[256];
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        option_refuse("--folder", folder);
}

int main(int argc, char **argv)
{
    struct settings settings = read_options(argc, argv);
    make_folder(settings.folder);
    struct result *results = mmap(NULL, JOBS_MAX * sizeof *results, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(results != MAP_FAILED);
    for (int i = 0; i < JOBS_MAX; i++)
        jobs[i].result = &results[i];
    began_ns = told_ns = boot_ns();
    if (settings.flawed)
        return catch_flawed(&settings) && totals.lost == 0 ? 0 : 1;
    play(&settings);
    tell_totals();
    if (totals.lost > 0)
        return 2;
    return totals.failed > 0 ? 1 : 0;
}
