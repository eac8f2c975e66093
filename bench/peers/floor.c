/* SPDX-License-Identifier: Apache-2.0
 *
 * The least that an acquire and a release can cost: as many round trips as the rung makes. Each is
 * an EVALSHA of an empty script, with the arguments that the rung sends, over one blocking hiredis
 * connection. The arguments are taken from the rung's trace.
 */
#include "../lock_redis.h"
#include "../lock_waiters.h"
#include "dlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMANDS_MAX 8
#define WORDS_MAX 30

struct command {
    char text[2048];
    const char *words[WORDS_MAX + 3];
};

struct floor {
    struct part *part;
    struct wire wire;
    char sha[41];
    pthread_mutex_t mutex; /* protects the fields below during the trace */
    int count;
    struct command commands[COMMANDS_MAX];
};

/* Called on the thread that sent the command. */
static void on_trace(void *arg, const struct dlock_trace *trace)
{
    struct floor *floor = arg;
    pthread_mutex_lock(&floor->mutex);
    if (floor->count < COMMANDS_MAX)
        snprintf(floor->commands[floor->count].text, sizeof floor->commands[0].text, "%s",
                 trace->sent);
    floor->count++;
    pthread_mutex_unlock(&floor->mutex);
}

/* Turns a command into an EVALSHA of the empty script. An EVALSHA keeps its keys and arguments. Of
 * another command, every word except its name becomes an argument. The bench uses no name or number
 * that needs quotes. */
static void make_trivial(struct command *command, const char *sha)
{
    char *save = NULL;
    char *word = strtok_r(command->text, " ", &save);
    bool script = word != NULL && strcmp(word, "EVALSHA") == 0;
    int count = 0;
    command->words[count++] = "EVALSHA";
    command->words[count++] = sha;
    if (script)
        strtok_r(NULL, " ", &save);
    else
        command->words[count++] = "0";
    while ((word = strtok_r(NULL, " ", &save)) != NULL && count < WORDS_MAX)
        command->words[count++] = word;
    command->words[count] = NULL;
}

/* Acquires and releases twice, and keeps the commands of the second time: the first one loads the
 * scripts into the server. */
static void trace_rung(struct floor *floor)
{
    const struct plan *plan = floor->part->plan;
    struct dlock_options options = {.size = sizeof options,
                                    .servers = &plan->url,
                                    .server_count = 1,
                                    .ttl_ms = plan->ttl_ms,
                                    .allow_flawed = true,
                                    .on_trace = on_trace,
                                    .on_trace_arg = floor};
    dlock_client *client = NULL;
    dlock *lock = NULL;
    dlock_hold *hold = NULL;
    dlock_status status = dlock_client_open(&options, &client);
    if (status == DLOCK_OK)
        status = dlock_open(client, plan->rung, LOCK_NAME, &lock);
    for (int i = 0; i < 2 && status == DLOCK_OK; i++) {
        pthread_mutex_lock(&floor->mutex);
        floor->count = 0;
        pthread_mutex_unlock(&floor->mutex);
        status = dlock_acquire(lock, NULL, &hold);
        if (status == DLOCK_OK)
            status = dlock_release(hold, NULL);
    }
    if (status != DLOCK_OK)
        part_give_up(floor->part, "floor: %s: %s", dlock_status_name(status), dlock_error());
    dlock_close(lock);
    dlock_client_close(client);
}

static void *floor_open(struct part *part)
{
    struct floor *floor = calloc(1, sizeof *floor);
    char error[256] = "out of memory";
    if (floor == NULL || !wire_open(&floor->wire, part->plan, error, sizeof error))
        part_give_up(part, "floor: %s", error);
    floor->part = part;
    pthread_mutex_init(&floor->mutex, NULL);
    trace_rung(floor);
    if (floor->count < 1 || floor->count > COMMANDS_MAX)
        part_give_up(part, "floor: the rung sends %d commands; 1 to %d can be replayed",
                     floor->count, COMMANDS_MAX);
    struct said said = ASK(&floor->wire, "SCRIPT", "LOAD", "return 1");
    if (said.kind != SAID_TEXT)
        part_give_up(part, "floor: SCRIPT LOAD: %s", said.text);
    snprintf(floor->sha, sizeof floor->sha, "%.40s", said.text);
    for (int i = 0; i < floor->count; i++)
        make_trivial(&floor->commands[i], floor->sha);
    return floor;
}

static void *waiter_open(void *client, int waiter)
{
    (void)waiter;
    return client;
}

static bool pair(void *waiter)
{
    struct floor *floor = waiter;
    for (int i = 0; i < floor->count; i++) {
        struct said said = wire_ask(&floor->wire, floor->commands[i].words);
        if (said.kind != SAID_NUMBER) {
            part_complain(floor->part, "floor: %s", said.text);
            return false;
        }
    }
    return true;
}

static void waiter_close(void *waiter)
{
    (void)waiter;
}

static void floor_close(void *client)
{
    struct floor *floor = client;
    wire_close(&floor->wire);
    pthread_mutex_destroy(&floor->mutex);
    free(floor);
}

void run_floor(struct part *part)
{
    static const struct blocking trivial = {.open = floor_open,
                                            .waiter_open = waiter_open,
                                            .pair = pair,
                                            .waiter_close = waiter_close,
                                            .close = floor_close};
    waiters_run(part, &trivial);
}
