/* SPDX-License-Identifier: Apache-2.0
 *
 * See run.h.
 */
#include "run.h"

#include "check.h"
#include "contract.h"
#include "faults.h"
#include "keys.h"
#include "must.h"
#include "stage.h"
#include "transcript.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEFT_MS 1000 /* limit of a cleanup in the background */
#define LOOK_MS 5
#define SETTLE_MS 60000 /* limit for servers to be well again */

struct run {
    const struct plan *plan;
    struct world *world;
    struct servers *servers;
    struct proxy *proxy;
    struct faults *faults;
    struct stage stage;
};

/* ---- What the stage asks for ----------------------------------------------------------------- */

static void url(void *arg, int process, int server, char url[URL_SIZE])
{
    const struct run *run = arg;
    const struct proxy *proxy = run->proxy;
    if (run->plan->sentinel)
        snprintf(url, URL_SIZE,
                 "sentinel://" KEYS_USER "%d:" KEYS_PASSWORD "@127.0.0.1:%d,127.0.0.1:%d,"
                 "127.0.0.1:%d/shop",
                 process, proxy_port(proxy, NODES), proxy_port(proxy, NODES + 1),
                 proxy_port(proxy, NODES + 2));
    else
        snprintf(url, URL_SIZE, "redis://" KEYS_USER "%d:" KEYS_PASSWORD "@127.0.0.1:%d", process,
                 proxy_port(proxy, server));
}

static void play_round(void *arg, int ms)
{
    struct run *run = arg;
    proxy_round(run->proxy, ms);
    faults_round(run->faults, run->proxy);
    servers_round(run->servers);
}

static void calm(void *arg)
{
    struct run *run = arg;
    faults_calm(run->faults, run->proxy);
    int64_t end_ns = boot_ns() + SETTLE_MS * NS_A_MS;
    while (!servers_settled(run->servers)) {
        must(boot_ns() < end_ns);
        witness_beat(&run->world->proxy);
        play_round(run, LOOK_MS);
    }
}

/* Of several servers a majority must have the same hold's key: other keys expire unnoticed. */
static bool is_left(const struct run *run, const char *name)
{
    struct server *first = servers_at(run->servers, servers_master(run->servers));
    int needed = run->plan->servers / 2 + 1;
    if (run->plan->servers == 1 || run->plan->sentinel)
        return server_integer(first, "EXISTS %s", name) != 0;
    for (int i = 0; i < needed; i++) {
        char hold[128];
        int count = 0;
        snprintf(hold, sizeof hold, "%s", server_text(servers_at(run->servers, i), "GET %s", name));
        for (int j = i; j < run->plan->servers && hold[0] != '\0'; j++)
            count += strcmp(hold, server_text(servers_at(run->servers, j), "GET %s", name)) == 0;
        if (count >= needed)
            return true;
    }
    return false;
}

/* No process died and no hold expired, so a lock that is left on the server was forgotten. */
static void judge_left(void *arg)
{
    struct run *run = arg;
    for (int i = 0; i < run->plan->locks; i++) {
        if (!check_all_definite(run->world, run->plan, i) ||
            (run->plan->sentinel && check_data_lost(run->world)))
            continue;
        for (int ms = 0; is_left(run, run->plan->names[i]); ms += LOOK_MS) {
            stage_wait(&run->stage, LOOK_MS);
            if (ms < LEFT_MS)
                continue;
            violation(run->world, VIOLATION_LEFT, "%s", run->plan->names[i]);
            break;
        }
    }
}

/* Each INCR was sent once, so it was carried out at most once. */
static void judge_rides(struct run *run)
{
    const struct world *world = run->world;
    struct server *first = servers_at(run->servers, servers_master(run->servers));
    long long sold = atoll(server_text(first, "GET app:sold"));
    int least = check_data_lost(world) ? 0 : world->rides_answered;
    if (sold < least || sold > world->rides_sent)
        violation(run->world, VIOLATION_RIDE, "%lld were carried out, %d of %d were answered", sold,
                  world->rides_answered, world->rides_sent);
}

static void set_up(struct run *run)
{
    planted_set(run->plan->planted);
    run->world = world_new();
    run->servers = servers_new(run->plan, run->world);
    run->faults = faults_new(run->plan, run->world, run->servers);
    run->proxy = proxy_new(run->world, run->plan, faults_on_request, run->faults);
    servers_start(run->servers, run->proxy);
    run->stage = (struct stage){.plan = run->plan,
                                .world = run->world,
                                .arg = run,
                                .url = url,
                                .round = play_round,
                                .calm = calm};
    if (run->plan->long_ttl || run->plan->calm)
        run->stage.at_rest = judge_left;
    stage_start(&run->stage);
}

static void go_through(struct run *run)
{
    faults_round(run->faults, run->proxy);
    if (!stage_play(&run->stage))
        return;
    for (int i = 0; i < plan_nodes(run->plan); i++) {
        keys_judge_refused(servers_at(run->servers, i), run->world);
        if (!run->plan->sentinel || i == servers_master(run->servers))
            keys_judge(run->plan, servers_at(run->servers, i), run->world);
    }
    judge_rides(run);
}

static void sum_up(const struct run *run, struct result *result)
{
    const struct world *world = run->world;
    size_t count = atomic_load(&world->violation_count);
    result->violations = (int)count;
    for (size_t i = 0; i < VIOLATION_COUNT; i++)
        result->by_kind[i] = world->by_kind[i];
    if (count > 0)
        memcpy(result->first, world->violations[0].text, sizeof result->first);
    memcpy(result->faults, faults_done(run->faults), sizeof result->faults);
    result->calls = check_call_count(world);
    result->many = check_count_many(world);
    result->fail_overs = servers_fail_overs(run->servers);
}

/* Appends what the processes wrote to stderr: a sanitizer's report, an assertion. */
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
    planted_set(PLANTED_NONE); /* the transcript sorts, too */
    FILE *to = result->violations > 0 ? fopen(transcript, "w") : NULL;
    if (to != NULL) {
        transcript_write(to, run.world, plan);
        add_errors(to, errors);
        fclose(to);
    }
    proxy_free(run.proxy);
    faults_free(run.faults);
    servers_free(run.servers);
    fclose(errors);
    unlink(said);
}
