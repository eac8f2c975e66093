/* SPDX-License-Identifier: Apache-2.0
 *
 * One long history of `redlock` on five servers that are killed and restarted at random. The
 * torture's clients and its judge, without a proxy. Each section also writes a stock that compares
 * fencing tokens.
 */
#include "check.h"
#include "child.h"
#include "must.h"
#include "stage.h"
#include "stock.h"
#include "transcript.h"

#include "server.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SERVERS 5
#define MAJORITY (SERVERS / 2 + 1)
#define LOCK "lock:{phone}"
#define GAPS_MAX 4096
#define ROUND_US 2000
#define LOOK_US 5000
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
    "  --broken WHAT     with a mistake, which must be found: minority (a vote fewer is enough),\n"
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

enum state { STATE_UP, STATE_DEAD, STATE_STARTING };

struct one {
    struct server *server;
    enum state state;
    int64_t killed_ns, back_ns; /* it is started again then */
};

/* A time in which no majority ran. */
struct gap {
    int64_t from_ns, to_ns; /* to_ns 0: it goes on */
};

/* Shared with the process that looks at the keys. */
struct looks {
    _Atomic long count;
    _Atomic bool over;
};

struct run {
    struct settings settings;
    struct plan plan;
    struct world *world;
    struct looks *looks;
    struct server *stock;
    struct one each[SERVERS];
    uint64_t random;
    int64_t next_ns; /* of the next kill */
    int kills, left; /* left: servers that have the key after the end */
    struct gap gaps[GAPS_MAX];
    size_t gap_count;
};

/* ---- The servers ----------------------------------------------------------------------------- */

static bool loses_memory(const struct run *run)
{
    return run->settings.empty || run->settings.broken == BROKEN_MEMORY;
}

static const char *const *args_of(const struct run *run)
{
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    static const char *const forgets[] = {"--appendonly", "no", NULL};
    return loses_memory(run) ? forgets : durable;
}

static int away(const struct run *run, bool dead)
{
    int count = 0;
    for (int i = 0; i < SERVERS; i++)
        count += run->each[i].state == STATE_DEAD || (!dead && run->each[i].state != STATE_UP);
    return count;
}

static void kill_one(struct run *run, int index, int64_t down_ms)
{
    struct one *one = &run->each[index];
    one->killed_ns = boot_ns();
    server_kill(one->server);
    one->state = STATE_DEAD;
    one->back_ns = boot_ns() + down_ms * NS_A_MS;
    run->kills++;
    note(run->world, NOTE_FAULT, -1, NULL, "FAULT server %d is killed", index);
    if (away(run, true) == MAJORITY && run->gap_count < GAPS_MAX)
        run->gaps[run->gap_count++] = (struct gap){.from_ns = boot_ns()};
}

static void revive(struct run *run, int index)
{
    struct one *one = &run->each[index];
    if (away(run, true) == MAJORITY && run->gap_count > 0)
        run->gaps[run->gap_count - 1].to_ns = boot_ns();
    server_restart_begin(one->server, args_of(run));
    one->state = STATE_STARTING;
}

static void take_back(struct run *run, int index)
{
    struct one *one = &run->each[index];
    char text[80];
    one->state = STATE_UP;
    snprintf(text, sizeof text, "server %d is back%s", index,
             loses_memory(run) ? ", and empty" : " with its data");
    if (run->settings.empty)
        note_loss(run->world, one->killed_ns, text);
    else
        note(run->world, NOTE_FAULT, -1, NULL, "%s", text);
}

static void look_at_servers(struct run *run, bool calm)
{
    for (int i = 0; i < SERVERS; i++) {
        struct one *one = &run->each[i];
        if (one->state == STATE_DEAD && (calm || boot_ns() >= one->back_ns))
            revive(run, i);
        if (one->state == STATE_STARTING && server_restarted(one->server))
            take_back(run, i);
    }
}

/* What a kill draws. It draws all of it each time, so that the seed decides the same ones whenever
 * they come. */
struct drawn {
    int order[SERVERS], most;
    int64_t down_ms, pause_ms;
};

static struct drawn draw_kill(struct run *run)
{
    struct drawn drawn = {.order = {0, 1, 2, 3, 4}};
    uint64_t *random = &run->random;
    bool majority = chance(random, run->settings.empty ? 70 : 15);
    for (int i = SERVERS - 1; i > 0; i--) {
        int other = (int)random_below(random, (uint64_t)i + 1), kept = drawn.order[i];
        drawn.order[i] = drawn.order[other];
        drawn.order[other] = kept;
    }
    drawn.most = (int)random_below(random, SERVERS - MAJORITY) + (majority ? MAJORITY : 1);
    bool at_once = chance(random, 50) || run->settings.empty;
    int64_t down_ms = (int64_t)random_below(random, majority ? 1500 : 500);
    drawn.down_ms = at_once ? 0 : down_ms;
    drawn.pause_ms = 50 + (int64_t)random_below(random, 400);
    return drawn;
}

/* Kills until so many are away. Servers that lose their memory are all there before. */
static void kill_some(struct run *run)
{
    if (run->settings.empty && away(run, false) > 0)
        return;
    const struct drawn drawn = draw_kill(run);
    for (int i = 0; i < SERVERS && away(run, false) < drawn.most; i++)
        if (run->each[drawn.order[i]].state == STATE_UP)
            kill_one(run, drawn.order[i], drawn.down_ms);
    run->next_ns = boot_ns() + drawn.pause_ms * NS_A_MS;
}

/* ---- The keys -------------------------------------------------------------------------------- */

static redisContext *connect_to(const struct server *server)
{
    redisContext *context =
        redisConnectUnixWithTimeout(server_socket(server), (struct timeval){.tv_sec = 1});
    if (context != NULL && context->err == 0) {
        redisSetTimeout(context, (struct timeval){.tv_sec = 1});
        return context;
    }
    if (context != NULL)
        redisFree(context);
    return NULL;
}

static void look_at_key(struct run *run, int index, redisContext **context)
{
    int64_t most_ms = plan_ttl_ms_max(&run->plan);
    if (*context == NULL && (*context = connect_to(run->each[index].server)) == NULL)
        return; /* it is dead */
    redisReply *left = redisCommand(*context, "PTTL " LOCK);
    if (left == NULL) {
        redisFree(*context);
        *context = NULL;
        return;
    }
    if (left->type == REDIS_REPLY_INTEGER) {
        atomic_fetch_add(&run->looks->count, left->integer != -2);
        if (left->integer == -1 || left->integer > most_ms)
            violation(run->world, VIOLATION_KEY,
                      "server %d: the lock's key has %lld ms left, and %lld were asked for", index,
                      left->integer, (long long)most_ms);
    }
    freeReplyObject(left);
}

/* A process of its own: it looks at the key's time to live all the time. */
static int look(void *arg)
{
    struct run *run = arg;
    redisContext *contexts[SERVERS] = {NULL};
    while (!atomic_load(&run->looks->over)) {
        for (int i = 0; i < SERVERS; i++)
            look_at_key(run, i, &contexts[i]);
        usleep(LOOK_US);
    }
    for (int i = 0; i < SERVERS; i++)
        if (contexts[i] != NULL)
            redisFree(contexts[i]);
    return 0;
}

/* All clients are closed. Once the longest time to live has passed, no server has the key. */
static int keys_left(const struct run *run)
{
    int left = 0;
    long_pause(plan_ttl_ms_max(&run->plan));
    for (int i = 0; i < SERVERS; i++)
        left += server_integer(run->each[i].server, "EXISTS " LOCK) != 0;
    if (left > 0)
        violation(run->world, VIOLATION_KEY, "%d servers still have the lock's key", left);
    return left;
}

/* ---- What the stage asks for ----------------------------------------------------------------- */

static void url(void *arg, int process, int server, char url[URL_SIZE])
{
    const struct run *run = arg;
    (void)process;
    snprintf(url, URL_SIZE, "%s", server_url(run->each[server].server));
}

static void play_round(void *arg, int ms)
{
    struct run *run = arg;
    (void)ms;
    usleep(ROUND_US);
    look_at_servers(run, false);
    if (run->world->phase == PHASE_RUN && boot_ns() >= run->next_ns)
        kill_some(run);
}

static void calm(void *arg)
{
    struct run *run = arg;
    int64_t end_ns = boot_ns() + PATIENCE_MS * NS_A_MS;
    while (away(run, false) > 0) {
        must(boot_ns() < end_ns);
        witness_beat(&run->world->proxy);
        look_at_servers(run, true);
        usleep(ROUND_US);
    }
}

/* ---- The history ----------------------------------------------------------------------------- */

/* Most sections are short. Some are so long that they need renewals, or that servers come back
 * meanwhile. Then a hold is renewed seldom, so that it does not hear of the loss at once. */
static void make_plan(struct run *run)
{
    const struct settings *settings = &run->settings;
    struct plan *plan = &run->plan;
    *plan = (struct plan){
        .seed = settings->seed,
        .rung = rungs_find(REDLOCK),
        .visitor = settings->broken == BROKEN_PLAIN ? &stock_plain : &stock_fenced,
        .stock_port = server_port(run->stock),
        .servers = SERVERS,
        .planted = settings->broken == BROKEN_MINORITY ? PLANTED_MINORITY : PLANTED_NONE,
        .asks_tokens = true,
        .processes = 3,
        .threads = 3,
        .locks = 1,
        .calls = INT_MAX,
        .acquisitions = settings->acquisitions,
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
        .overdue = settings->empty && settings->acquisitions < 1000 ? 3 : 1,
        .overdue_ms = settings->empty ? 700 : 0,
        .wait_ms = {300, 1500, 1500}};
    for (int i = 0; i < PROCESSES_MAX; i++)
        plan->ttl_ms[i] = settings->empty ? 2000 : 800;
    must(plan->rung != NULL);
}

static void set_up(struct run *run)
{
    run->world = world_new();
    run->looks =
        mmap(NULL, sizeof *run->looks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(run->looks != MAP_FAILED);
    run->stock = server_start(NULL);
    for (int i = 0; i < SERVERS; i++)
        run->each[i].server = server_start(args_of(run));
    run->random = run->settings.seed;
    make_plan(run);
    planted_set(run->plan.planted);
}

static void play(struct run *run)
{
    struct stage stage = {.plan = &run->plan,
                          .world = run->world,
                          .arg = run,
                          .url = url,
                          .round = play_round,
                          .calm = calm,
                          .run_ms = 60000 + run->settings.acquisitions * 200};
    pid_t looker = child_start(look, run);
    stage_start(&stage);
    stage_play(&stage);
    run->left = keys_left(run);
    atomic_store(&run->looks->over, true);
    must(child_wait(looker) == 0);
    check_history(run->world, &run->plan);
}

static void clean_up(struct run *run)
{
    for (int i = 0; i < SERVERS; i++)
        server_free(run->each[i].server);
    server_free(run->stock);
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

/* Began and ended while no majority ran. */
static bool is_without_majority(const struct run *run, const struct call *call)
{
    for (size_t i = 0; i < run->gap_count; i++)
        if (call->begin_ns > run->gaps[i].from_ns && call->end_ns < run->gaps[i].to_ns)
            return true;
    return false;
}

static void count_acquire(const struct run *run, const struct call *call, struct counts *counts)
{
    bool alone = is_without_majority(run, call);
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
    printf("servers killed: %d; times without a majority: %zu\n", run->kills, run->gap_count);
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
           world->by_kind[VIOLATION_KEY] - (run->left > 0), atomic_load(&run->looks->count),
           run->left);
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
        printf("fewer acquisitions than were asked for: the machine is too slow\n");
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

_Noreturn static void refuse(const char *option, const char *value)
{
    fprintf(stderr, "torture_kills: %s %s is not understood; see --help\n", option, value);
    exit(2);
}

static unsigned long long number(const char *option, const char *text, unsigned long long most)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value > most)
        refuse(option, text);
    return value;
}

static enum broken broken_of(const char *text)
{
    static const char *const names[] = {
        [BROKEN_MINORITY] = "minority", [BROKEN_MEMORY] = "memory", [BROKEN_PLAIN] = "plain"};
    for (int i = BROKEN_MINORITY; i <= BROKEN_PLAIN; i++)
        if (strcmp(text, names[i]) == 0)
            return (enum broken)i;
    refuse("--broken", text);
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
            settings.acquisitions = (int)number("--acquisitions", optarg, 15000);
            break;
        case 's':
            settings.seed = number("--seed", optarg, UINT64_MAX);
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
        refuse("the argument", argv[optind]);
    return settings;
}

int main(int argc, char **argv)
{
    static struct run run;
    run.settings = read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    printf("servers come back: %s\n",
           loses_memory(&run) ? "empty, at once" : "with their data (appendfsync always)");
    printf("seed: %llu\n", (unsigned long long)run.settings.seed);
    set_up(&run);
    play(&run);
    int code = judge(&run);
    clean_up(&run);
    return code;
}
