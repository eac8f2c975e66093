/* SPDX-License-Identifier: Apache-2.0
 *
 * See killed.h.
 */
#include "killed.h"

#include "must.h"

#include <stdio.h>
#include <stdlib.h>

#define MAJORITY (KILLED_SERVERS / 2 + 1)
#define GAPS_MAX 8192

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

struct killed {
    struct killing killing;
    struct world *world;
    struct one each[KILLED_SERVERS];
    uint64_t random;
    int64_t pause_ms, from_ns; /* the pause before the next kill, and when it begins */
    int kills;
    struct gap gaps[GAPS_MAX];
    size_t gap_count;
};

static const char *const *args_of(const struct killed *killed)
{
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    static const char *const forgets[] = {"--appendonly", "no", NULL};
    return killed->killing.forgets ? forgets : durable;
}

struct killed *killed_start(struct world *world, const struct killing *killing)
{
    struct killed *killed = calloc(1, sizeof *killed);
    must(killed != NULL);
    killed->world = world;
    killed->killing = *killing;
    killed->random = killing->seed;
    for (int i = 0; i < KILLED_SERVERS; i++)
        killed->each[i].server = server_start(args_of(killed));
    return killed;
}

void killed_free(struct killed *killed)
{
    for (int i = 0; i < KILLED_SERVERS; i++)
        server_free(killed->each[i].server);
    free(killed);
}

struct server *killed_at(struct killed *killed, int index)
{
    return killed->each[index].server;
}

/* ---- One server ------------------------------------------------------------------------------ */

/* Those that do not run, and those that start and do not answer yet. */
static int away(const struct killed *killed)
{
    int count = 0;
    for (int i = 0; i < KILLED_SERVERS; i++)
        count += killed->each[i].state != STATE_UP;
    return count;
}

static int dead(const struct killed *killed)
{
    int count = 0;
    for (int i = 0; i < KILLED_SERVERS; i++)
        count += killed->each[i].state == STATE_DEAD;
    return count;
}

static void kill_one(struct killed *killed, int index, int64_t down_ms)
{
    struct one *one = &killed->each[index];
    one->killed_ns = boot_ns();
    server_kill(one->server);
    one->state = STATE_DEAD;
    one->back_ns = boot_ns() + down_ms * NS_A_MS;
    killed->kills++;
    note(killed->world, NOTE_FAULT, -1, NULL, "FAULT server %d is killed", index);
    if (dead(killed) != MAJORITY)
        return;
    must(killed->gap_count < GAPS_MAX);
    killed->gaps[killed->gap_count++] = (struct gap){.from_ns = boot_ns()};
}

static void start_again(struct killed *killed, int index)
{
    struct one *one = &killed->each[index];
    if (dead(killed) == MAJORITY)
        killed->gaps[killed->gap_count - 1].to_ns = boot_ns();
    server_restart_begin(one->server, args_of(killed));
    one->state = STATE_STARTING;
}

static void take_back(struct killed *killed, int index)
{
    struct one *one = &killed->each[index];
    char text[80];
    one->state = STATE_UP;
    snprintf(text, sizeof text, "server %d is back%s", index,
             killed->killing.forgets ? ", and empty" : " with its data");
    if (killed->killing.told)
        note_loss(killed->world, one->killed_ns, text);
    else
        note(killed->world, NOTE_FAULT, -1, NULL, "%s", text);
}

static void look_at_each(struct killed *killed, bool now)
{
    for (int i = 0; i < KILLED_SERVERS; i++) {
        struct one *one = &killed->each[i];
        if (one->state == STATE_DEAD && (now || boot_ns() >= one->back_ns))
            start_again(killed, i);
        if (one->state == STATE_STARTING && server_restarted(one->server))
            take_back(killed, i);
    }
}

/* ---- At random ------------------------------------------------------------------------------- */

/* All of it is drawn each time, so that the seed decides the same, whenever it comes. */
struct drawn {
    int order[KILLED_SERVERS], most; /* most: so many may be away */
    int64_t down_ms, pause_ms;
};

static struct drawn draw(struct killed *killed)
{
    struct drawn drawn = {.order = {0, 1, 2, 3, 4}};
    uint64_t *random = &killed->random;
    bool majority = chance(random, killed->killing.at_once ? 70 : 15);
    for (int i = KILLED_SERVERS - 1; i > 0; i--) {
        int other = (int)random_below(random, (uint64_t)i + 1), kept = drawn.order[i];
        drawn.order[i] = drawn.order[other];
        drawn.order[other] = kept;
    }
    drawn.most = (int)random_below(random, KILLED_SERVERS - MAJORITY) + (majority ? MAJORITY : 1);
    bool at_once = chance(random, 50) || killed->killing.at_once;
    int64_t down_ms = (int64_t)random_below(random, majority ? 1500 : 500);
    drawn.down_ms = at_once ? 0 : down_ms;
    drawn.pause_ms = 50 + (int64_t)random_below(random, 400);
    return drawn;
}

static void kill_some(struct killed *killed)
{
    const struct drawn drawn = draw(killed);
    for (int i = 0; i < KILLED_SERVERS && away(killed) < drawn.most; i++)
        if (killed->each[drawn.order[i]].state == STATE_UP)
            kill_one(killed, drawn.order[i], drawn.down_ms);
    killed->from_ns = boot_ns();
    killed->pause_ms = drawn.pause_ms;
}

void killed_round(struct killed *killed, bool kills)
{
    look_at_each(killed, false);
    /* Those that come back at once are all there in the pause, however slow the machine is. */
    if (killed->killing.at_once && away(killed) > 0)
        killed->from_ns = boot_ns();
    else if (kills && boot_ns() >= killed->from_ns + killed->pause_ms * NS_A_MS)
        kill_some(killed);
}

void killed_revive(struct killed *killed)
{
    int64_t end_ns = boot_ns() + PATIENCE_MS * NS_A_MS;
    while (away(killed) > 0) {
        must(boot_ns() < end_ns);
        witness_beat(&killed->world->proxy);
        look_at_each(killed, true);
        short_pause();
    }
}

/* ---- What it was ----------------------------------------------------------------------------- */

int killed_kills(const struct killed *killed)
{
    return killed->kills;
}

size_t killed_gaps(const struct killed *killed)
{
    return killed->gap_count;
}

bool killed_most(const struct killed *killed, int64_t from_ns, int64_t to_ns)
{
    for (size_t i = 0; i < killed->gap_count; i++)
        if (from_ns > killed->gaps[i].from_ns && to_ns < killed->gaps[i].to_ns)
            return true;
    return false;
}
