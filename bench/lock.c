/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one round of one contestant under one load, with real processes and a real Redis. It starts
 * the processes, lets all waiters begin at once, and reads the server's counters before and after.
 * It prints one line of JSON. `bench/bench locks` runs many rounds.
 *
 *     bench-lock redisson --redis redis://127.0.0.1:6379 --shape burst --processes 2 --waiters 750
 *
 * Exit code 0: the verdict is "ok". 1: it is "INVALID", and the line says why. 2: there was no
 * round.
 */
#include "lock_verdict.h"

#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLE_MS 20   /* how often connections and threads are counted */
#define READY_MS 60000 /* limit until all processes are ready */
#define SLACK_MS 30000 /* after wait_ms and the loop, limit until all are done */
#define CLOSE_MS 30000 /* limit until a process ends after it is done */

static const struct contestant contestants[] = {
    {"redisson", "Redisson's RLock, replayed; a thread for each waiter", true, run_redisson},
    {"python_redis_lock", "python-redis-lock, replayed; a thread for each waiter", true,
     run_python_redis_lock},
    {"dlock", "libdlock, the rung of --rung; a thread for each waiter", true, run_dlock},
    {"dlock_async", "libdlock, the rung of --rung; asynchronous acquire, no thread for each waiter",
     true, run_dlock_async},
    {"floor", "as many empty scripts as the rung of --rung sends commands; pairs only", false,
     run_floor},
};
enum { CONTESTANTS = sizeof contestants / sizeof contestants[0] };

/* ---- The command line ---- */

static const struct {
    const char *name;
    const char *about;
    int64_t min, max, normal;
} numbers[] = {
    {"processes", "each a client of the lock", 1, 256, 2},
    {"waiters", "of each process", 1, 20000, 50},
    {"stock", "units on sale", 1, 1000000000, 1000000000},
    {"loop-ms", "how long a loop goes on", 100, 60000, 5000},
    {"pairs", "of the shape pairs", 1, 1000000, 2000},
    {"ttl-ms", "of a hold", 1000, 600000, 30000},
    {"wait-ms", "after which a waiter gives up", 100, 600000, 60000},
    {"handoff-max", "hand-offs inside a client before it grants the lock; 0: the default", 0, 1000,
     0},
};
enum { PROCESSES, WAITERS, STOCK, LOOP_MS, PAIRS, TTL_MS, WAIT_MS, HANDOFF_MAX, NUMBERS };

static void usage(FILE *out)
{
    fprintf(out, "usage: bench-lock CONTESTANT --redis redis://HOST:PORT [options]\n\n");
    fprintf(out, "One round of one contestant; prints a line of JSON. The server must be empty, "
                 "and is emptied.\n\n");
    for (int i = 0; i < CONTESTANTS; i++)
        fprintf(out, "  %-18s %s\n", contestants[i].name, contestants[i].about);
    fprintf(out, "\n  --shape SHAPE        burst: each waiter buys once, all start together;\n"
                 "                       loop: each buys again and again; pairs: one waiter,\n"
                 "                       acquire and release alone (burst)\n"
                 "  --rung NAME          of libdlock (its default)\n");
    for (int i = 0; i < NUMBERS; i++)
        fprintf(out, "  --%-18s %s (%lld; %lld to %lld)\n", numbers[i].name, numbers[i].about,
                (long long)numbers[i].normal, (long long)numbers[i].min, (long long)numbers[i].max);
    fprintf(out, "  --help\n");
}

static int64_t number_of(int which, const char *text)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < numbers[which].min ||
        value > numbers[which].max)
        errx(2, "--%s %s: must be a number from %lld to %lld", numbers[which].name, text,
             (long long)numbers[which].min, (long long)numbers[which].max);
    return value;
}

static enum shape shape_of(const char *text)
{
    static const char *const names[] = {"burst", "loop", "pairs"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], text) == 0)
            return (enum shape)i;
    errx(2, "--shape %s: must be burst, loop or pairs", text);
}

static const struct contestant *contestant_of(const char *name)
{
    for (int i = 0; i < CONTESTANTS; i++)
        if (strcmp(contestants[i].name, name) == 0)
            return &contestants[i];
    errx(2, "%s is not a contestant; bench-lock --help lists them", name);
}

static void set_url(struct plan *plan, const char *url)
{
    int end = 0;
    plan->url = url;
    if (sscanf(url, "redis://%255[^:/@]:%d%n", plan->host, &plan->port, &end) != 2 ||
        url[end] != '\0' || plan->port < 1 || plan->port > 65535)
        errx(2, "--redis %s: must be redis://HOST:PORT", url);
}

static const struct contestant *parse(int argc, char **argv, struct plan *plan)
{
    enum { REDIS = NUMBERS, SHAPE, RUNG, HELP, OPTIONS };
    struct option options[OPTIONS + 1] = {{0}};
    int64_t value[NUMBERS];
    int option;
    for (int i = 0; i < NUMBERS; i++) {
        value[i] = numbers[i].normal;
        options[i] = (struct option){numbers[i].name, required_argument, NULL, i};
    }
    options[REDIS] = (struct option){"redis", required_argument, NULL, REDIS};
    options[SHAPE] = (struct option){"shape", required_argument, NULL, SHAPE};
    options[RUNG] = (struct option){"rung", required_argument, NULL, RUNG};
    options[HELP] = (struct option){"help", no_argument, NULL, HELP};
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == '?')
            exit(2);
        if (option == HELP) {
            usage(stdout);
            exit(0);
        }
        if (option == REDIS)
            set_url(plan, optarg);
        else if (option == SHAPE)
            plan->shape = shape_of(optarg);
        else if (option == RUNG)
            plan->rung = optarg;
        else
            value[option] = number_of(option, optarg);
    }
    if (optind != argc - 1)
        errx(2, "name one contestant; bench-lock --help lists them");
    if (plan->url == NULL)
        errx(2, "--redis redis://HOST:PORT is missing: an empty server for the bench alone");
    bool one = plan->shape == SHAPE_PAIRS;
    plan->processes = one ? 1 : (int)value[PROCESSES];
    plan->waiters = one ? 1 : (int)value[WAITERS];
    plan->stock = value[STOCK];
    plan->loop_ms = value[LOOP_MS];
    plan->pairs = value[PAIRS];
    plan->ttl_ms = value[TTL_MS];
    plan->wait_ms = value[WAIT_MS];
    plan->handoff_max = value[HANDOFF_MAX];
    const struct contestant *contestant = contestant_of(argv[optind]);
    if (!contestant->sells && !one)
        errx(2, "%s has no section: --shape pairs", contestant->name);
    return contestant;
}

/* ---- The processes ---- */

struct crew {
    const struct plan *plan;
    struct part *parts; /* parts, gates, tallies and samples are in shared memory */
    struct gate *gates; /* start, end */
    pid_t *pids;
    struct pollfd *reports; /* fd -1: not open */
};

static void *shared(size_t size)
{
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        err(2, "%zu bytes of shared memory", size);
    return memory;
}

static void crew_init(struct crew *crew, const struct plan *plan)
{
    size_t processes = (size_t)plan->processes;
    size_t waiters = (size_t)plan->waiters;
    crew->plan = plan;
    crew->parts = shared(processes * sizeof *crew->parts);
    crew->gates = shared(2 * sizeof *crew->gates);
    crew->pids = calloc(processes, sizeof *crew->pids);
    crew->reports = calloc(processes, sizeof *crew->reports);
    struct tally *tallies = shared(processes * waiters * sizeof *tallies);
    struct samples *samples = shared(processes * sizeof *samples);
    if (crew->pids == NULL || crew->reports == NULL)
        err(2, "memory for %zu processes", processes);
    for (size_t i = 0; i < processes; i++) {
        crew->reports[i].fd = -1;
        crew->parts[i] = (struct part){.plan = plan,
                                       .number = (int)i,
                                       .start = &crew->gates[0],
                                       .end = &crew->gates[1],
                                       .tallies = &tallies[i * waiters],
                                       .samples = &samples[i],
                                       .complained = ATOMIC_FLAG_INIT};
    }
}

static void fork_all(struct crew *crew, const struct contestant *contestant)
{
    pid_t parent = getpid();
    for (int i = 0; i < crew->plan->processes; i++) {
        int ends[2];
        if (pipe(ends) != 0)
            err(2, "a pipe for process %d", i);
        pid_t pid = fork();
        if (pid < 0)
            err(2, "process %d", i); /* the processes already started die with this one */
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            close(ends[0]);
            crew->parts[i].report_fd = ends[1];
            contestant->run(&crew->parts[i]);
            exit(0);
        }
        close(ends[1]);
        crew->pids[i] = pid;
        crew->reports[i] = (struct pollfd){.fd = ends[0], .events = POLLIN};
    }
}

static int threads_of(pid_t pid)
{
    char path[64];
    char line[128];
    int threads = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "Threads: %d", &threads) == 1)
            break;
    if (status != NULL)
        fclose(status);
    return threads;
}

static void watch(const struct crew *crew, struct server *server, struct round *round)
{
    int clients = server_clients(server);
    if (clients > round->connections_peak)
        round->connections_peak = clients;
    for (int i = 0; i < crew->plan->processes; i++) {
        int threads = threads_of(crew->pids[i]);
        if (threads > round->threads_peak)
            round->threads_peak = threads;
    }
}

/* Waits until every process has reported `what`. False if a process ended without it, or the limit
 * is over. */
static bool await_reports(const struct crew *crew, char what, int64_t limit_ms,
                          struct server *server, struct round *round)
{
    int64_t deadline_ns = now_ns() + limit_ms * 1000000;
    int64_t watch_ns = 0;
    int reported = 0;
    while (reported < crew->plan->processes) {
        if (now_ns() > deadline_ns)
            return false;
        if (now_ns() >= watch_ns) {
            watch(crew, server, round);
            watch_ns = now_ns() + SAMPLE_MS * 1000000;
        }
        poll(crew->reports, (nfds_t)crew->plan->processes, SAMPLE_MS);
        for (int i = 0; i < crew->plan->processes; i++) {
            char said = 0;
            if ((crew->reports[i].revents & (POLLIN | POLLHUP)) == 0)
                continue;
            if (read(crew->reports[i].fd, &said, 1) != 1 || said != what)
                return false;
            reported++;
        }
    }
    return true;
}

/* Waits for all processes, and kills those that exceed the limit. True if all ended by themselves,
 * with code 0. */
static bool reap(const struct crew *crew, int64_t limit_ms)
{
    int64_t deadline_ns = now_ns() + limit_ms * 1000000;
    bool well = true;
    for (int i = 0; i < crew->plan->processes; i++) {
        int status = 0;
        pid_t ended;
        while ((ended = waitpid(crew->pids[i], &status, WNOHANG)) == 0 && now_ns() < deadline_ns)
            poll(NULL, 0, 1);
        if (ended == 0) {
            kill(crew->pids[i], SIGKILL);
            waitpid(crew->pids[i], &status, 0);
        }
        well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return well;
}

static int play(struct crew *crew, struct server *server, struct round *round)
{
    const struct plan *plan = crew->plan;
    int64_t limit_ms = plan->wait_ms + SLACK_MS + (plan->shape == SHAPE_LOOP ? plan->loop_ms : 0);
    if (!await_reports(crew, 'r', READY_MS, server, round)) {
        reap(crew, 0);
        warnx("the processes did not get ready");
        return 2;
    }
    bool counted = server_counters(server, &round->before);
    gate_open(&crew->gates[0]);
    round->in_time = await_reports(crew, 'd', limit_ms, server, round);
    counted = counted && server_counters(server, &round->after);
    gate_open(&crew->gates[1]);
    bool well = reap(crew, round->in_time ? CLOSE_MS : 0);
    if (!counted || !server_remains(server, &round->remains)) {
        warnx("Redis did not answer");
        return 2;
    }
    if (!well && round->in_time) {
        warnx("a process failed at its end");
        return 2;
    }
    return round_print(round) ? 0 : 1;
}

/* Every waiter may need a connection. */
static void allow_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int argc, char **argv)
{
    struct plan plan = {.shape = SHAPE_BURST};
    struct crew crew;
    struct server server;
    char error[512];
    const struct contestant *contestant = parse(argc, argv, &plan);
    signal(SIGPIPE, SIG_IGN);
    allow_files();
    crew_init(&crew, &plan);
    if (!server_open(&server, &plan, error, sizeof error))
        errx(2, "%s", error);
    fork_all(&crew, contestant);
    struct round round = {.contestant = contestant, .plan = &plan, .parts = crew.parts};
    int code = play(&crew, &server, &round);
    server_close(&server);
    free(crew.pids);
    free(crew.reports);
    return code;
}
