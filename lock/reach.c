/* SPDX-License-Identifier: Apache-2.0
 *
 * See reach.h.
 */
#include "reach.h"

#include "clock.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#define PAUSE_MS_LEAST 10
#define PAUSE_MS_MOST 300
#define FAILURES_MOST 10 /* beyond it the pause grows no more */
#define REFUSED_MS INT64_C(60000)

void reach_init(struct server *server, struct outages *outages)
{
    server->outages = outages;
    server->chance = (uint32_t)mono_ns() ^ (uint32_t)(uintptr_t)server;
    pthread_mutex_init(&server->mutex, NULL);
    if (server->url.path == NULL) {
        server->fixed =
            lookup_numeric(server->url.host, server->url.port, &server->known) == 0;
        return;
    }
    struct sockaddr_un *address = (struct sockaddr_un *)&server->known.list[0].at;
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "%s", server->url.path);
    server->known.list[0].size = sizeof *address;
    server->known.count = 1;
    server->fixed = true;
}

void reach_free(struct server *server)
{
    lookup_leave(server->lookup);
    pthread_mutex_destroy(&server->mutex);
}

/* ---- What is told ---------------------------------------------------------------------------- */

void reach_tell(struct server *server, enum outage outage, const char *reason)
{
    struct outages *outages = server->outages;
    char text[REASON_MAX + 128];
    atomic_fetch_add(outage == OUTAGE_LOST      ? &outages->lost
                     : outage == OUTAGE_REFUSED ? &outages->refused
                                                : &outages->back,
                     1);
    if (outages->tell == NULL)
        return;
    snprintf(text, sizeof text, "%s: %s", server->url.shown, reason);
    outages->tell(outages->arg, outage, text);
}

/* The mutex is held, so that changes are told in order. */
static void ails(struct server *server, bool refuses, const char *reason)
{
    int health = refuses ? SERVER_REFUSES : SERVER_LOST;
    if ((int)server->health == health)
        return;
    server->health = refuses ? SERVER_REFUSES : SERVER_LOST;
    reach_tell(server, refuses ? OUTAGE_REFUSED : OUTAGE_LOST, reason);
}

static void is_well(struct server *server)
{
    server->failures = 0;
    if (server->health == SERVER_FINE)
        return;
    server->health = SERVER_FINE;
    reach_tell(server, OUTAGE_BACK, "it answers again");
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Twice as long each time, a quarter more or less by chance. */
static void begin_pause(struct server *server)
{
    if (server->failures < FAILURES_MOST)
        server->failures++;
    int64_t pause_ms = (int64_t)PAUSE_MS_LEAST << (server->failures - 1);
    if (pause_ms > PAUSE_MS_MOST)
        pause_ms = PAUSE_MS_MOST;
    server->chance = server->chance * 1664525U + 1013904223U; /* Numerical Recipes' quick one */
    int64_t pause_ns = pause_ms * NS_PER_MS;
    pause_ns = pause_ns * 3 / 4 + pause_ns / 2 * (server->chance >> 16) / 65536;
    server->pause_until_ns = mono_ns() + pause_ns;
}

bool reach_may_connect(struct server *server, dlock_status *status, char reason[REASON_MAX])
{
    pthread_mutex_lock(&server->mutex);
    bool may = server->failures == 0 || mono_ns() >= server->pause_until_ns;
    *status = server->down_status;
    strcpy(reason, server->down_reason);
    if (may && server->failures > 0)
        begin_pause(server);
    pthread_mutex_unlock(&server->mutex);
    return may;
}

int64_t reach_pause_ms(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    int64_t left_ns = server->failures == 0 ? 0 : server->pause_until_ns - mono_ns();
    pthread_mutex_unlock(&server->mutex);
    return left_ns > 0 ? left_ns / NS_PER_MS + 1 : 0;
}

/* The mutex is held. A pause that has begun with the attempt goes on. */
static void failed(struct server *server, dlock_status status, const char *reason)
{
    if (server->failures == 0)
        begin_pause(server);
    server->down_status = status;
    snprintf(server->down_reason, sizeof server->down_reason, "%s", reason);
}

void reach_failed(struct server *server, dlock_status status, const char *reason)
{
    atomic_fetch_add(&server->outages->connects_failed, 1);
    pthread_mutex_lock(&server->mutex);
    failed(server, status, reason);
    ails(server, status == DLOCK_REFUSED, reason);
    pthread_mutex_unlock(&server->mutex);
}

void reach_lost(struct server *server, const char *reason)
{
    pthread_mutex_lock(&server->mutex);
    ails(server, false, reason);
    pthread_mutex_unlock(&server->mutex);
}

/* Connecting to it again is no sign that it is well. */
void reach_connected(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    if (!atomic_load(&server->demoted))
        is_well(server);
    pthread_mutex_unlock(&server->mutex);
}

void reach_demoted(struct server *server, const char *reason)
{
    pthread_mutex_lock(&server->mutex);
    atomic_store(&server->demoted, true);
    failed(server, DLOCK_UNREACHABLE, reason);
    ails(server, true, reason);
    pthread_mutex_unlock(&server->mutex);
}

void reach_took(struct server *server)
{
    if (!atomic_load_explicit(&server->demoted, memory_order_relaxed))
        return;
    pthread_mutex_lock(&server->mutex);
    atomic_store(&server->demoted, false);
    is_well(server);
    pthread_mutex_unlock(&server->mutex);
}

/* ---- Where ----------------------------------------------------------------------------------- */

/* The mutex is held. What it found, if it is over: then there is nothing more to wait for. */
static int take(struct server *server, struct lookup *lookup)
{
    if (lookup == NULL || !lookup_over(lookup))
        return 0;
    int error = lookup_found(lookup, &server->known);
    if (server->lookup == lookup) {
        lookup_leave(lookup);
        server->lookup = NULL;
    }
    return error;
}

struct lookup *reach_look(struct server *server)
{
    if (server->fixed)
        return NULL;
    pthread_mutex_lock(&server->mutex);
    take(server, server->lookup); /* nobody waited for it: what it found is of then */
    if (server->lookup == NULL)
        server->lookup = lookup_begin(server->url.host, server->url.port);
    struct lookup *lookup = server->lookup;
    if (lookup != NULL)
        lookup_join(lookup);
    pthread_mutex_unlock(&server->mutex);
    return lookup;
}

static bool same(const struct address *a, const struct address *b)
{
    return a->size == b->size && memcmp(&a->at, &b->at, a->size) == 0;
}

int reach_addresses(struct server *server, struct lookup *lookup, struct addresses *addresses)
{
    pthread_mutex_lock(&server->mutex);
    int error = take(server, lookup);
    const struct addresses *known = &server->known;
    size_t first = 0;
    for (size_t i = 0; i < known->count; i++)
        if (same(&known->list[i], &server->last))
            first = server->last_failed ? i + 1 : i;
    addresses->count = known->count;
    for (size_t i = 0; i < known->count; i++)
        addresses->list[i] = known->list[(first + i) % known->count];
    pthread_mutex_unlock(&server->mutex);
    if (addresses->count > 0)
        return 0;
    return error != 0 ? error : EAI_AGAIN;
}

void reach_tried(struct server *server, const struct address *address, bool has_failed)
{
    pthread_mutex_lock(&server->mutex);
    server->last = *address;
    server->last_failed = has_failed;
    pthread_mutex_unlock(&server->mutex);
}

/* ---- Rights ---------------------------------------------------------------------------------- */

bool reach_may_ask(struct server *server, const int64_t *refused_ns)
{
    pthread_mutex_lock(&server->mutex);
    bool may = *refused_ns == 0 || mono_ns() - *refused_ns > REFUSED_MS * NS_PER_MS;
    pthread_mutex_unlock(&server->mutex);
    return may;
}

void reach_note_refusal(struct server *server, int64_t *refused_ns)
{
    pthread_mutex_lock(&server->mutex);
    *refused_ns = mono_ns();
    pthread_mutex_unlock(&server->mutex);
}
