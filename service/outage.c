/* SPDX-License-Identifier: Apache-2.0
 *
 * See outage.h.
 */
#include "outage.h"

#include "clock.h"
#include "metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define LOOK_MS 250 /* between two looks for a server that is away */

struct server {
    struct stock *stock; /* the thread's */
    const char *key;
    bool away;
    int64_t since_ns;
    atomic_bool lasts;
};

struct outage {
    int64_t fail_fast_ns;
    pthread_t thread;
    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t changed;
    bool ending;
    bool waits_ended;
    struct server servers[REDIS_ROLES];
    struct patience *patience; /* of now */
};

/* ---- Patience -------------------------------------------------------------------------------- */

static struct patience *patience_new(void)
{
    struct patience *patience = calloc(1, sizeof *patience);
    dlock_cancel *cancel = patience != NULL ? dlock_cancel_new() : NULL;
    if (cancel == NULL) {
        free(patience);
        return NULL;
    }
    patience->cancel = cancel;
    atomic_init(&patience->role, REDIS_ROLES);
    atomic_init(&patience->users, 1); /* the outage's own */
    return patience;
}

void outage_give_back(struct patience *patience)
{
    if (atomic_fetch_sub(&patience->users, 1) > 1)
        return;
    dlock_cancel_free(patience->cancel);
    free(patience);
}

struct patience *outage_patience(struct outage *outage)
{
    pthread_mutex_lock(&outage->mutex);
    struct patience *patience = outage->patience;
    atomic_fetch_add(&patience->users, 1);
    pthread_mutex_unlock(&outage->mutex);
    return patience;
}

void outage_end_waits(struct outage *outage)
{
    pthread_mutex_lock(&outage->mutex);
    outage->waits_ended = true;
    dlock_cancel_now(outage->patience->cancel);
    pthread_mutex_unlock(&outage->mutex);
}

/* The mutex is held. Those who wait now wait no longer; where no memory or descriptor is left for the next ones'
 * patience, they do. */
static void end_waits(struct outage *outage, enum redis_role role)
{
    struct patience *next = outage->waits_ended ? NULL : patience_new();
    if (next == NULL)
        return;
    atomic_store(&outage->patience->role, role);
    dlock_cancel_now(outage->patience->cancel);
    outage_give_back(outage->patience);
    outage->patience = next;
}

/* ---- Servers --------------------------------------------------------------------------------- */

void outage_note(struct outage *outage, enum redis_role role, bool away)
{
    struct server *server = &outage->servers[role];
    metrics_redis(role, !away);
    pthread_mutex_lock(&outage->mutex);
    if (away && !server->away)
        server->since_ns = now_ns();
    server->away = away;
    if (!away)
        atomic_store(&server->lasts, false);
    pthread_cond_signal(&outage->changed);
    pthread_mutex_unlock(&outage->mutex);
}

bool outage_lasts(struct outage *outage, enum redis_role role)
{
    return atomic_load(&outage->servers[role].lasts);
}

/* The mutex is held, but not while it asks. */
static void look(struct outage *outage, enum redis_role role)
{
    struct server *server = &outage->servers[role];
    pthread_mutex_unlock(&outage->mutex);
    bool there = stock_check(server->stock, server->key) == STOCK_OK;
    if (there)
        outage_note(outage, role, false);
    pthread_mutex_lock(&outage->mutex);
}

/* The mutex is held. When to look after the server again. */
static int64_t look_after(struct outage *outage, enum redis_role role)
{
    struct server *server = &outage->servers[role];
    if (!server->away)
        return INT64_MAX;
    if (now_ns() < server->since_ns + outage->fail_fast_ns)
        return server->since_ns + outage->fail_fast_ns;
    if (!atomic_exchange(&server->lasts, true))
        end_waits(outage, role);
    look(outage, role);
    return now_ns() + LOOK_MS * NS_PER_MS;
}

static void *run(void *arg)
{
    struct outage *outage = arg;
    pthread_mutex_lock(&outage->mutex);
    while (!outage->ending) {
        int64_t next_ns = INT64_MAX;
        for (int role = 0; role < REDIS_ROLES; role++) {
            int64_t then_ns = look_after(outage, (enum redis_role)role);
            next_ns = then_ns < next_ns ? then_ns : next_ns;
        }
        if (outage->ending)
            break;
        if (next_ns == INT64_MAX) {
            pthread_cond_wait(&outage->changed, &outage->mutex);
        } else {
            struct timespec until = timespec_of(next_ns);
            pthread_cond_timedwait(&outage->changed, &outage->mutex, &until);
        }
    }
    pthread_mutex_unlock(&outage->mutex);
    return NULL;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static void free_parts(struct outage *outage)
{
    for (int role = 0; role < REDIS_ROLES; role++)
        stock_free(outage->servers[role].stock);
    if (outage->patience != NULL)
        outage_give_back(outage->patience);
    pthread_cond_destroy(&outage->changed);
    pthread_mutex_destroy(&outage->mutex);
    free(outage);
}

struct outage *outage_new(const struct outage_options *options)
{
    struct outage *outage = calloc(1, sizeof *outage);
    if (outage == NULL)
        return NULL;
    pthread_mutex_init(&outage->mutex, NULL);
    cond_init(&outage->changed);
    outage->fail_fast_ns = options->fail_fast_ms * NS_PER_MS;
    outage->patience = patience_new();
    bool whole = outage->patience != NULL;
    for (int role = 0; role < REDIS_ROLES; role++) {
        outage->servers[role].stock = stock_new(options->servers[role]);
        outage->servers[role].key = options->keys[role];
        whole = whole && outage->servers[role].stock != NULL;
    }
    if (whole && pthread_create(&outage->thread, NULL, run, outage) == 0)
        return outage;
    free_parts(outage);
    return NULL;
}

void outage_free(struct outage *outage)
{
    if (outage == NULL)
        return;
    pthread_mutex_lock(&outage->mutex);
    outage->ending = true;
    pthread_cond_signal(&outage->changed);
    pthread_mutex_unlock(&outage->mutex);
    pthread_join(outage->thread, NULL);
    free_parts(outage);
}
