/* SPDX-License-Identifier: Apache-2.0
 *
 * See reach.h.
 */
#include "reach.h"

#include "clock.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAUSE_MS_LEAST 10
#define PAUSE_MS_MOST 300
#define BREAKS_FEW 3     /* in a row: so many may be coincidence */
#define FAILURES_MOST 10 /* the counter stops here; the pause is at its maximum */
#define REFUSED_MS INT64_C(60000)

size_t server_replicas(const struct server *server)
{
    return atomic_load_explicit(&server->replicas, memory_order_relaxed);
}

bool reach_init(struct server *server, enum server_kind kind, struct outages *outages)
{
    server->kind = kind;
    server->outages = outages;
    server->chance = (uint32_t)mono_ns() ^ (uint32_t)(uintptr_t)server;
    server->ask_fd = kind == SERVER_OF_SENTINEL ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (kind == SERVER_OF_SENTINEL && server->ask_fd < 0)
        return false;
    LIST_INIT(&server->sockets);
    pthread_mutex_init(&server->mutex, NULL);
    pthread_mutex_init(&server->sockets_mutex, NULL);
    if (kind == SERVER_OF_SENTINEL)
        return true;
    if (server->url.path == NULL) {
        server->fixed = lookup_numeric(server->url.host, server->url.port, &server->known) == 0;
        return true;
    }
    struct sockaddr_un *address = (struct sockaddr_un *)&server->known.list[0].at;
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "%s", server->url.path);
    server->known.list[0].size = sizeof *address;
    server->known.count = 1;
    server->fixed = true;
    return true;
}

void reach_free(struct server *server)
{
    lookup_leave(server->lookup);
    if (server->ask_fd >= 0)
        close(server->ask_fd);
    pthread_mutex_destroy(&server->mutex);
    pthread_mutex_destroy(&server->sockets_mutex);
}

/* ---- Reports --------------------------------------------------------------------------------- */

static void reach_notify(struct server *server, enum outage outage, const char *reason)
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

/* The mutex is held, so that each change is reported once, and in order. A server with sound
 * connections still counts as refusing while it refuses wake-ups. */
static void reach_show(struct server *server, enum health health, const char *reason)
{
    static const enum outage outages[] = {
        [SERVER_FINE] = OUTAGE_RESTORED,
        [SERVER_LOST] = OUTAGE_LOST,
        [SERVER_REFUSES] = OUTAGE_REFUSED,
    };
    server->health = health;
    if (health == SERVER_FINE && server->wakeups_refused != 0) {
        health = SERVER_REFUSES;
        reason = server->wakeups_refused_reason;
    }
    if (server->told == health)
        return;
    server->told = health;
    reach_notify(server, outages[health], reason);
}

void reach_wakeups_refused(struct server *server, unsigned kind, const char *reason)
{
    pthread_mutex_lock(&server->mutex);
    server->wakeups_refused |= kind;
    snprintf(server->wakeups_refused_reason, sizeof server->wakeups_refused_reason, "%s", reason);
    reach_show(server, server->health, reason);
    pthread_mutex_unlock(&server->mutex);
}

void reach_wakeups_accepted(struct server *server, unsigned kind)
{
    pthread_mutex_lock(&server->mutex);
    server->wakeups_refused &= ~kind;
    reach_show(server, server->health, "no lock is refused wake-ups any more");
    pthread_mutex_unlock(&server->mutex);
}

/* ---- When ------------------------------------------------------------------------------------ */

/* Twice as long each time, at random up to a quarter more or less. */
static void begin_pause(struct server *server)
{
    if (server->failures < FAILURES_MOST)
        server->failures++;
    int64_t pause_ms = (int64_t)PAUSE_MS_LEAST << (server->failures - 1);
    if (pause_ms > PAUSE_MS_MOST)
        pause_ms = PAUSE_MS_MOST;
    server->chance = server->chance * 1664525U + 1013904223U; /* Numerical Recipes' ranqd1 */
    int64_t pause_ns = pause_ms * NS_PER_MS;
    pause_ns = pause_ns * 3 / 4 + pause_ns / 2 * (server->chance >> 16) / 65536;
    server->pause_until_ns = mono_ns() + pause_ns;
}

enum reach_turn reach_turn(struct server *server, dlock_status *status, char reason[REASON_MAX])
{
    enum reach_turn turn = REACH_CONNECT;
    pthread_mutex_lock(&server->mutex);
    bool proven = atomic_load(&server->proven);
    if (!proven && mono_ns() < server->pause_until_ns)
        turn = server->down_reason[0] != '\0' ? REACH_FAIL : REACH_WAIT;
    else if (!proven)
        begin_pause(server);
    *status = server->down_status;
    strcpy(reason, server->down_reason);
    pthread_mutex_unlock(&server->mutex);
    return turn;
}

int64_t reach_pause_ms(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    int64_t left_ns = atomic_load(&server->proven) ? 0 : server->pause_until_ns - mono_ns();
    pthread_mutex_unlock(&server->mutex);
    return left_ns > 0 ? left_ns / NS_PER_MS + 1 : 0;
}

/* The mutex is held. Sets whether the server is proven. Either way, failures count from 0 again. */
static void reach_prove(struct server *server, bool proven)
{
    atomic_store(&server->proven, proven);
    server->failures = 0;
    server->pause_until_ns = 0;
    server->down_reason[0] = '\0';
}

/* The mutex is held. If this attempt has started a pause, that pause goes on. */
static void reach_note_failure(struct server *server, dlock_status status, const char *reason)
{
    if (atomic_load(&server->proven))
        reach_prove(server, false);
    if (server->failures == 0)
        begin_pause(server);
    server->down_status = status;
    snprintf(server->down_reason, sizeof server->down_reason, "%s", reason);
}

void reach_failed(struct server *server, dlock_status status, const char *reason)
{
    atomic_fetch_add(&server->outages->connects_failed, 1);
    pthread_mutex_lock(&server->mutex);
    reach_note_failure(server, status, reason);
    reach_show(server, status == DLOCK_REFUSED ? SERVER_REFUSES : SERVER_LOST, reason);
    pthread_mutex_unlock(&server->mutex);
}

void reach_named_twice(struct server *server, const char *reason)
{
    pthread_mutex_lock(&server->mutex);
    if (!server->named_twice)
        reach_notify(server, OUTAGE_REFUSED, reason);
    server->named_twice = true;
    pthread_mutex_unlock(&server->mutex);
}

void reach_lost(struct server *server, int64_t made_ns, int64_t sent_ns, const char *reason)
{
    pthread_mutex_lock(&server->mutex);
    bool proven = atomic_load(&server->proven);
    if ((proven ? sent_ns : made_ns) >= server->trouble_ns) {
        server->trouble_ns = mono_ns();
        if (proven)
            reach_prove(server, false);
        else if (server->failures > BREAKS_FEW)
            reach_note_failure(server, DLOCK_UNREACHABLE, reason);
        reach_show(server, SERVER_LOST, reason);
    }
    pthread_mutex_unlock(&server->mutex);
    reach_ask(server);
}

void reach_demoted(struct server *server, const char *reason)
{
    pthread_mutex_lock(&server->mutex);
    server->demoted = true;
    reach_note_failure(server, DLOCK_REFUSED, reason);
    reach_show(server, SERVER_REFUSES, reason);
    pthread_mutex_unlock(&server->mutex);
    reach_ask(server);
}

void reach_answered(struct server *server, bool took)
{
    if (atomic_load_explicit(&server->proven, memory_order_relaxed))
        return;
    pthread_mutex_lock(&server->mutex);
    if (took || !server->demoted) {
        server->demoted = false;
        reach_prove(server, true);
        reach_show(server, SERVER_FINE, "it answers again");
    }
    pthread_mutex_unlock(&server->mutex);
}

/* ---- Where ----------------------------------------------------------------------------------- */

/* The mutex is held. If the look-up is over, stores its result; no later caller needs to wait for
 * it. */
static int reach_take(struct server *server, struct lookup *lookup)
{
    struct addresses named; /* by the sentinels; `known` may be newer by now */
    if (lookup == NULL || !lookup_over(lookup))
        return 0;
    bool of_sentinel = server->kind == SERVER_OF_SENTINEL;
    int error = lookup_found(lookup, of_sentinel ? &named : &server->known);
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
    reach_take(server, server->lookup); /* if it is over, its result is old: look up again */
    if (server->lookup == NULL)
        server->in_round = false;
    if (server->lookup == NULL && !server->unwatched)
        server->lookup = server->kind == SERVER_OF_SENTINEL
                             ? lookup_promise()
                             : lookup_begin(server->url.host, server->url.port);
    struct lookup *lookup = server->lookup;
    if (lookup != NULL)
        lookup_join(lookup);
    pthread_mutex_unlock(&server->mutex);
    reach_ask(server);
    return lookup;
}

static bool reach_same(const struct address *a, const struct address *b)
{
    return a->size == b->size && memcmp(&a->at, &b->at, a->size) == 0;
}

int reach_addresses(struct server *server, struct lookup *lookup, struct addresses *addresses,
                    struct reach_socket *socket)
{
    bool of_sentinel = server->kind == SERVER_OF_SENTINEL;
    bool over = lookup != NULL && lookup_over(lookup);
    addresses->count = 0;
    pthread_mutex_lock(&server->mutex);
    int error = reach_take(server, lookup);
    socket->generation = server->generation;
    socket->epoch = server->epoch;
    if (of_sentinel && (!over || error != 0)) {
        pthread_mutex_unlock(&server->mutex);
        return error != 0 ? error : EAI_AGAIN;
    }
    const struct addresses *known = &server->known;
    size_t first = 0;
    for (size_t i = 0; i < known->count; i++)
        if (reach_same(&known->list[i], &server->last))
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

void reach_explain(struct server *server, int error, char reason[REASON_MAX])
{
    if (server->kind != SERVER_OF_SENTINEL) {
        if (error == 0)
            snprintf(reason, REASON_MAX, "looking its host name up took too long");
        else
            snprintf(reason, REASON_MAX, "its host name was not found: %s", gai_strerror(error));
        return;
    }
    pthread_mutex_lock(&server->mutex);
    bool said = server->sentinels[0] != '\0';
    snprintf(reason, REASON_MAX, "%s", said ? server->sentinels : "its sentinels were not asked");
    pthread_mutex_unlock(&server->mutex);
}

void reach_open(struct server *server, struct reach_socket *socket)
{
    pthread_mutex_lock(&server->sockets_mutex);
    LIST_INSERT_HEAD(&server->sockets, socket, of_server);
    pthread_mutex_unlock(&server->sockets_mutex);
}

void reach_close(struct server *server, struct reach_socket *socket)
{
    pthread_mutex_lock(&server->sockets_mutex);
    LIST_REMOVE(socket, of_server);
    pthread_mutex_unlock(&server->sockets_mutex);
}

/* ---- What the sentinels say ------------------------------------------------------------------ */

void reach_ask(struct server *server)
{
    uint64_t one = 1;
    if (server->ask_fd >= 0)
        (void)!write(server->ask_fd, &one, sizeof one);
}

void reach_begin_round(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    server->in_round = true;
    pthread_mutex_unlock(&server->mutex);
}

/* The mutex is held. */
static bool awaits_round(const struct server *server)
{
    return server->lookup != NULL && server->in_round && !lookup_over(server->lookup);
}

bool reach_is_awaited(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    bool awaited = awaits_round(server);
    pthread_mutex_unlock(&server->mutex);
    return awaited;
}

/* The mutex is held. */
static void reach_answer(struct server *server, int error)
{
    if (awaits_round(server))
        lookup_answer(server->lookup, error, &server->known);
}

/* The mutex is held. What is known of the former master says nothing about this one. */
static void reach_begin_reign(struct server *server, const char *reason)
{
    struct reach_socket *socket;
    bool first = atomic_fetch_add(&server->generation, 1) == 0;
    pthread_mutex_lock(&server->sockets_mutex);
    LIST_FOREACH(socket, &server->sockets, of_server)
        shutdown(socket->fd, SHUT_RDWR); /* ends the waits for answers on it */
    pthread_mutex_unlock(&server->sockets_mutex);
    server->known.count = 0;
    server->last.size = 0;
    server->demoted = false;
    reach_prove(server, false);
    if (!first)
        reach_show(server, SERVER_LOST, reason);
}

void reach_named(struct server *server, const struct addresses *addresses, uint64_t epoch,
                 bool anew, const char *reason)
{
    pthread_mutex_lock(&server->mutex);
    server->epoch = epoch;
    if (anew)
        reach_begin_reign(server, reason);
    if (addresses != NULL) {
        server->known = *addresses;
        server->sentinels[0] = '\0';
        reach_answer(server, 0);
    } else {
        snprintf(server->sentinels, sizeof server->sentinels, "%s; its host name is looked up",
                 reason);
    }
    pthread_mutex_unlock(&server->mutex);
}

void reach_unnamed(struct server *server, const char *said, bool over)
{
    pthread_mutex_lock(&server->mutex);
    snprintf(server->sentinels, sizeof server->sentinels, "%s", said);
    if (over)
        reach_answer(server, EAI_FAIL);
    pthread_mutex_unlock(&server->mutex);
}

void reach_unwatch(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    server->unwatched = server->in_round = true;
    reach_answer(server, EAI_FAIL);
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
