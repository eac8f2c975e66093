/* SPDX-License-Identifier: Apache-2.0
 *
 * See history.h. A history uses only some kinds of faults and calls. So some histories do one thing
 * often, instead of all histories doing everything once.
 */
#include "history.h"

#include "must.h"

#include <stdio.h>
#include <string.h>

const char *fault_name(enum fault_kind kind)
{
    static const char *const names[] = {
#define X(name, text) #name,
        FAULT_MAP(X)
#undef X
    };
    return names[kind];
}

const char *fault_text(enum fault_kind kind)
{
    static const char *const texts[] = {
#define X(name, text) text,
        FAULT_MAP(X)
#undef X
    };
    return texts[kind];
}

int64_t plan_ttl_ms_max(const struct plan *plan)
{
    int64_t most = 0;
    for (int i = 0; i < PROCESSES_MAX; i++)
        most = plan->ttl_ms[i] > most ? plan->ttl_ms[i] : most;
    return most;
}

/* ---- Rungs ----------------------------------------------------------------------------------- */

/* One for one server. */
static const struct dlock_rung *draw_rung(uint64_t *random)
{
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    const struct dlock_rung *rung;
    while (strcmp(rungs[count - 1].engine, "redis") != 0) /* those of other engines come last */
        count--;
    do
        rung = &rungs[random_below(random, count)];
    while (rung->flawed || strcmp(rung->name, REDLOCK) == 0 || strcmp(rung->engine, "redis") != 0);
    return rung;
}

const char *plan_server_name(const struct plan *plan, int server, char *name, size_t size)
{
    name[0] = '\0';
    if (plan->sentinel && server >= NODES)
        snprintf(name, size, "sentinel %d", server - NODES);
    else if (plan->servers > 1)
        snprintf(name, size, "server %d", server);
    return name;
}

int plan_nodes(const struct plan *plan)
{
    return plan->sentinel ? NODES : plan->servers;
}

#define TTL_MS_LONG 3000

/* ---- Numbers --------------------------------------------------------------------------------- */

static int between(uint64_t *random, int least, int most)
{
    return least + (int)random_below(random, (uint64_t)(most - least + 1));
}

static int64_t one_of(uint64_t *random, const int64_t *numbers, size_t count)
{
    return numbers[random_below(random, count)];
}
#define ONE_OF(random, ...)                                                                        \
    one_of(random, (const int64_t[]){__VA_ARGS__},                                                 \
           sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void draw_clients(struct plan *plan, uint64_t *random)
{
    static const char *const names[] = {"jobs", "lock:{a}", "order:7", "{b}:lock", "user:42"};
    size_t first = random_below(random, 5);
    plan->processes = (int)ONE_OF(random, 2, 2, 3, 4);
    plan->threads = (int)ONE_OF(random, 1, 1, 2, 3, 4, 8);
    plan->locks = chance(random, 60) ? 1 : between(random, 2, LOCKS_MAX);
    plan->calls = (int)ONE_OF(random, 10, 30, 100, 300);
    for (int i = 0; i < LOCKS_MAX; i++) /* draw_many may use more of them */
        snprintf(plan->names[i], sizeof plan->names[i], "%s", names[(first + (size_t)i) % 5]);
    plan->long_ttl = chance(random, 20);
    bool alike = chance(random, 70);
    int64_t ttl_ms = ONE_OF(random, 150, 250, 400, 600, 1000);
    for (int i = 0; i < PROCESSES_MAX; i++) {
        plan->ttl_ms[i] = plan->long_ttl ? TTL_MS_LONG
                          : alike        ? ttl_ms
                                         : ONE_OF(random, 150, 250, 400, 600, 1000);
        plan->own_loop[i] = chance(random, 40);
    }
    plan->command_ms = ONE_OF(random, 50, 100, 200);
    plan->connect_ms = ONE_OF(random, 50, 100, 200);
    plan->retry_ms = ONE_OF(random, 2, 5, 20);
    plan->grant_ms = ONE_OF(random, 20, 60, 200);
    plan->contenders = (size_t)ONE_OF(random, 1, 2, 16);
    plan->handoff_max = (size_t)ONE_OF(random, 1, 3, 64);
    plan->connections_max = (size_t)ONE_OF(random, 1, 2, 64);
}

static void draw_calls(struct plan *plan, uint64_t *random)
{
    static const int weights[] = {
#define X(name, weight) weight,
        OP_MAP(X)
#undef X
    };
    for (int i = 0; i < OP_MANY; i++)
        plan->weights[i] = chance(random, 50) ? weights[i] : 0;
    plan->weights[OP_HOLD] += 3;
    plan->owners = (uint64_t)ONE_OF(random, 1, 3);
    plan->named = (int)ONE_OF(random, 0, 30, 60, 100);
    plan->shared = plan->rung->shared ? (int)ONE_OF(random, 20, 50, 80) : 0;
    plan->kept = (int)ONE_OF(random, 0, 10, 50);
    plan->riding = (int)ONE_OF(random, 0, 10, 40);
    plan->releases_started = (int)ONE_OF(random, 0, 0, 30, 100);
    plan->limited = (int)ONE_OF(random, 0, 0, 10, 50);
    plan->nesting = (int)ONE_OF(random, 0, 30, 80);
    plan->patient = (int)ONE_OF(random, 0, 0, 5, 30);
    plan->section_ms = (int)ONE_OF(random, 0, 1, 2, 10, 40);
    plan->noise = (int)ONE_OF(random, 0, 0, 100, 1000);
    plan->noise_us = (int)ONE_OF(random, 100, 1000, 5000);
    plan->overdue = (int)ONE_OF(random, 0, 4, 30);
    plan->brief = plan->long_ttl || plan->rung->flawed ? 0 : (int)ONE_OF(random, 0, 30);
    for (size_t i = 0; i < sizeof plan->wait_ms / sizeof plan->wait_ms[0]; i++)
        plan->wait_ms[i] = ONE_OF(random, 0, 2, 5, 20, 120, 500);
}

/* Whether a fault may leave a hold that outlives the history. */
static bool leaves_a_hold(enum fault_kind kind)
{
    return kind >= FAULT_STOP_CLIENT && kind != FAULT_SCRIPT_FLUSH && kind != FAULT_CLIENT_KILL;
}

static struct event draw_event(const struct plan *plan, uint64_t *random, int most)
{
    struct event event = {
        .process = ANY, .server = ANY, .request = ANY, .answered = chance(random, 50)};
    event.count = 1 + (int)random_below(random, 1 + random_below(random, (uint64_t)most));
    if (chance(random, 50))
        event.process = between(random, 0, plan->processes - 1);
    if (chance(random, 70)) { /* most requests are acquires, so the others are drawn more often */
        event.request = (int)ONE_OF(random, REQUEST_ACQUIRE, REQUEST_RELEASE, REQUEST_RELEASE,
                                    REQUEST_RENEW, REQUEST_RENEW, REQUEST_LISTEN, REQUEST_OTHER);
        event.count = 1 + event.count / 3;
    }
    return event;
}

static enum fault_kind draw_kind(const struct plan *plan, uint64_t *random)
{
    enum fault_kind kind;
    do
        kind = (enum fault_kind)random_below(random, chance(random, 40) ? FAULT_STOP_CLIENT
                                                                        : FAULT_KILL_SERVER);
    while (plan->long_ttl && leaves_a_hold(kind));
    return kind;
}

static void draw_faults(struct plan *plan, uint64_t *random)
{
    enum fault_kind kinds[4];
    size_t kind_count = 1 + random_below(random, 4);
    for (size_t i = 0; i < kind_count; i++)
        kinds[i] = draw_kind(plan, random);
    plan->fault_count = 1 + random_below(random, FAULTS_MAX);
    for (size_t i = 0; i < plan->fault_count; i++) {
        struct fault *fault = &plan->faults[i];
        *fault = (struct fault){.kind = kinds[random_below(random, kind_count)],
                                .at = draw_event(plan, random, 60),
                                .until = draw_event(plan, random, 30),
                                .every = (int)ONE_OF(random, 1, 1, 3, 7, 20),
                                .times = chance(random, 50) ? 1 : between(random, 2, 20),
                                .idle_ms = (int)ONE_OF(random, 20, 80, 200, 500),
                                .ms = (int)ONE_OF(random, 2, 10, 40)};
        if (fault->kind == FAULT_STOP_AT_POINT || fault->kind == FAULT_KILL_AT_POINT) {
            fault->at.process = between(random, 0, plan->processes - 1);
            fault->times = 1;
        }
        if (fault->kind < FAULT_STOP_CLIENT)
            fault->at.answered = false;
        else if (fault->kind != FAULT_STOP_CLIENT)
            fault->times = 1;
        if (chance(random, 50))
            fault->until.process = SAME;
    }
}

/* ---- Several servers ------------------------------------------------------------------------- */

/* No server forgets what it acknowledged, and none becomes a replica: redlock does not promise to
 * bear that. */
static enum fault_kind draw_loss(uint64_t *random)
{
    return (enum fault_kind)ONE_OF(random, FAULT_KILL_SERVER, FAULT_KILL_SERVER, FAULT_HOLE_SERVER,
                                   FAULT_HOLE_SERVER, FAULT_SLOW_SERVER, FAULT_STOP_SERVER,
                                   FAULT_REFUSE, FAULT_CLIENT_KILL, FAULT_CLIENT_PAUSE, FAULT_OOM,
                                   FAULT_DENY_COMMAND);
}

/* Faults of servers instead of those of one. Each fault begins at a request to some server, which
 * it affects. */
static void draw_several(struct plan *plan, const struct choice *choice)
{
    uint64_t random = plan->seed ^ 0x5e7e55e7e55e7e5u;
    bool loses = chance(&random, 80);
    plan->servers = choice->servers != 0 ? choice->servers : (int)ONE_OF(&random, 3, 5);
    for (size_t i = 0; i < plan->fault_count; i++) {
        struct fault *fault = &plan->faults[i];
        if (fault->kind >= FAULT_STOP_SERVER || (loses && i % 2 == 0)) {
            fault->kind = draw_loss(&random);
            fault->at.answered &= fault->kind > FAULT_STOP_CLIENT;
            fault->times = 1;
            fault->until.count *= (int)ONE_OF(&random, 1, 5, 20);
        }
        if (chance(&random, 70))
            fault->at.server = between(&random, 0, plan->servers - 1);
    }
    plan->asks_tokens = chance(&random, 50);
}

static enum fault_kind draw_loss_of_group(uint64_t *random)
{
    return (enum fault_kind)ONE_OF(random, FAULT_FAIL_OVER, FAULT_FAIL_OVER, FAULT_FAIL_OVER,
                                   FAULT_KILL_SERVER, FAULT_KILL_SERVER, FAULT_STOP_SERVER,
                                   FAULT_STOP_SERVER, FAULT_STALE, FAULT_STALE, FAULT_APART,
                                   FAULT_APART, FAULT_HOLE_SERVER, FAULT_SLOW_SERVER,
                                   FAULT_CLIENT_KILL, FAULT_DENY_COMMAND);
}

/* Faults of a group instead of those of one server. They last longer: sentinels take a second to
 * find a master down. Most requests are to the master or to a sentinel. */
static void draw_group(struct plan *plan)
{
    uint64_t random = plan->seed ^ 0x5e7e55e7e55e7e5u;
    bool loses = chance(&random, 80);
    plan->servers = NODES + SENTINELS;
    plan->sentinel = true;
    plan->long_ttl &= plan->calm;
    plan->calls = (int)ONE_OF(&random, 100, 300);
    plan->connect_ms = ONE_OF(&random, 300, 600); /* six servers more need the machine */
    plan->command_ms = ONE_OF(&random, 300, 600);
    for (size_t i = 0; i < plan->fault_count; i++) {
        struct fault *fault = &plan->faults[i];
        if (fault->kind >= FAULT_STOP_SERVER || (loses && i % 2 == 0)) {
            fault->kind = draw_loss_of_group(&random);
            fault->times = 1;
            fault->until.count *= (int)ONE_OF(&random, 1, 20, 100);
            fault->idle_ms = (int)ONE_OF(&random, 500, 2500);
        }
        if (chance(&random, 20))
            fault->at.server = between(&random, NODES, NODES + SENTINELS - 1);
    }
}

/* ---- Several locks at once ------------------------------------------------------------------- */

/* What a call leaves behind does not expire unnoticed. */
static void draw_calm(struct plan *plan)
{
    plan->calm = plan->long_ttl = true;
    plan->fault_count = 0;
    plan->brief = 0;
    for (int i = 0; i < PROCESSES_MAX; i++)
        plan->ttl_ms[i] = TTL_MS_LONG;
}

/* Nobody holds a lock while it waits for one whose name comes before. So nobody waits in a circle,
 * and nobody waits out its time. */
static void draw_ordered(struct plan *plan, uint64_t *random)
{
    static const int weights[OP_COUNT] = {
        [OP_HOLD] = 3, [OP_START] = 1, [OP_INSPECT] = 1, [OP_MANY] = 6, [OP_MANY_START] = 2};
    memcpy(plan->weights, weights, sizeof weights);
    plan->ordered = plan->calm = true;
    plan->fault_count = 0;
    plan->calls = 30;
    plan->section_ms = between(random, 0, 2);
    plan->nesting = plan->kept = plan->patient = plan->limited = plan->overdue = 0;
}

static void draw_many(struct plan *plan, const struct choice *choice)
{
    uint64_t random = plan->seed ^ 0x3a95e7e3a1105eedu;
    bool drawn = chance(&random, 40);
    if (plan->rung->flawed || (!drawn && !choice->many))
        return;
    if (chance(&random, 90))
        plan->locks = between(&random, 2, LOCKS_MAX);
    plan->weights[OP_MANY] = (int)ONE_OF(&random, 3, 10, 30);
    plan->weights[OP_MANY_START] = (int)ONE_OF(&random, 0, 3, 10);
    if (chance(&random, 15))
        draw_ordered(plan, &random);
    else if (plan->calm || chance(&random, 15))
        draw_calm(plan);
}

void plan_draw(struct plan *plan, uint64_t seed, const struct choice *choice)
{
    uint64_t random = seed;
    *plan = (struct plan){.seed = seed, .servers = 1, .planted = choice->planted};
    const struct dlock_rung *drawn = draw_rung(&random);
    plan->rung = choice->rung != NULL ? dlock_rung_find(choice->rung) : drawn;
    must(plan->rung != NULL);
    draw_clients(plan, &random);
    draw_calls(plan, &random);
    plan->calm = chance(&random, 8);
    if (!plan->calm)
        draw_faults(plan, &random);
    if (strcmp(plan->rung->name, REDLOCK) == 0)
        draw_several(plan, choice);
    else if (choice->sentinel)
        draw_group(plan);
    draw_many(plan, choice);
}
