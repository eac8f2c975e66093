/* SPDX-License-Identifier: Apache-2.0
 *
 * See outage.h.
 */
#include "outage.h"

#include "../lock/clock.h"
#include "lock_servers.h"
#include "log.h"
#include "metrics.h"
#include "text.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Pauses between two checks of a server. */
#define CHECK_MS 100       /* while it is away and its waits have not ended; and after a hint */
#define CHECK_LATER_MS 250 /* while it is away and its waits have ended */
#define CHECK_SUSPECTED_MS 1000 /* while it answers, but a connection to it failed or was refused */

#define OUTAGE_WHY_MAX 240

struct server {
    struct outage *outage;
    enum server_role role;
    size_t number;              /* among those of its role */
    struct stock *stock;        /* the thread's connection; NULL: an ensemble */
    struct lock_servers *locks; /* of an ensemble */
    char said[STOCK_ERROR_MAX]; /* the thread's: what an ensemble's latest check found */
    char why[OUTAGE_WHY_MAX];   /* while it is away: what its latest check found */
    bool unconfirmed;           /* and whether that is only about its replicas */
    const char *key;
    pthread_t thread;
    bool started;
    bool suspected; /* OUTAGE_LOST came after OUTAGE_RESTORED */
    bool away;
    int64_t ends_ns;       /* when its waits will end; INT64_MAX: they will not */
    int64_t next_check_ns; /* when to check it next */
    int64_t last_check_ns; /* when the last check began */
    int64_t away_ns;       /* when it was found to be away */
    int64_t lasts_ns;      /* `lasts`: since when, */
    int64_t refused_ns;    /* and for how long before, since it is away */
    int64_t last_ok_ns;    /* when it last accepted a write, or at first a connection */
    atomic_bool lasts;     /* its waits have ended: see outage_lasts */
};

struct outage {
    int64_t fail_fast_ns;
    int64_t redis_timeout_ns;
    bool apart; /* lock and stock are on two servers */
    int end_fd; /* an eventfd that ends a check; and of an ensemble: */
    dlock_cancel *end_cancel;
    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t changed;
    bool ending;
    bool waits_ended;
    struct server servers[ROLE_COUNT][LOCK_SERVERS_MAX]; /* by role */
    size_t counts[ROLE_COUNT];
    /* for waits that begin now, by the servers that they need */
    struct patience *patience[ROLE_COUNT];
};

/* The servers of that role. If the lock's server is also the stock's, it has the role of the
 * lock's. */
static struct server *servers_of(struct outage *outage, enum server_role role, size_t *count)
{
    if (role == ROLE_STOCK && !outage->apart)
        role = ROLE_LOCK;
    *count = outage->counts[role];
    return outage->servers[role];
}

/* The n-th of all servers that are checked; NULL: there are no more. */
static struct server *outage_server(struct outage *outage, size_t n)
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (n < outage->counts[role])
            return &outage->servers[role][n];
        n -= outage->counts[role];
    }
    return NULL;
}

static const char *outage_shown(const struct server *server)
{
    return server->stock != NULL ? stock_shown(server->stock) : server->locks->all;
}

static const char *outage_error(const struct server *server)
{
    return server->stock != NULL ? stock_error(server->stock) : server->said;
}

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
    atomic_init(&patience->role, ROLE_COUNT);
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

struct patience *outage_patience(struct outage *outage, enum server_role needs)
{
    pthread_mutex_lock(&outage->mutex);
    struct patience *patience = outage->patience[needs];
    atomic_fetch_add(&patience->users, 1);
    pthread_mutex_unlock(&outage->mutex);
    return patience;
}

void outage_end_waits(struct outage *outage)
{
    pthread_mutex_lock(&outage->mutex);
    outage->waits_ended = true;
    for (int needs = 0; needs < ROLE_COUNT; needs++)
        dlock_cancel_now(outage->patience[needs]->cancel);
    pthread_mutex_unlock(&outage->mutex);
}

bool outage_waits_ended(struct outage *outage)
{
    pthread_mutex_lock(&outage->mutex);
    bool ended = outage->waits_ended;
    pthread_mutex_unlock(&outage->mutex);
    return ended;
}

/* Cancels the current waits of the sales with those needs. Without memory for the next patience,
 * these waits go on. The mutex is held. */
static void end_waits(struct outage *outage, enum server_role needs, enum server_role away)
{
    struct patience **patience = &outage->patience[needs];
    struct patience *next = outage->waits_ended ? NULL : patience_new();
    if (next == NULL)
        return;
    atomic_store(&(*patience)->role, away);
    dlock_cancel_now((*patience)->cancel);
    outage_give_back(*patience);
    *patience = next;
}

/* ---- Servers --------------------------------------------------------------------------------- */

bool outage_lasts(struct outage *outage, enum server_role role)
{
    size_t count, lasting = 0;
    struct server *servers = servers_of(outage, role, &count);
    for (size_t i = 0; i < count; i++)
        lasting += atomic_load(&servers[i].lasts);
    return count - lasting < lock_servers_needed(count);
}

bool outage_say_away(struct outage *outage, enum server_role role, char *text, size_t size)
{
    size_t count;
    bool unconfirmed = true;
    text[0] = '\0';
    pthread_mutex_lock(&outage->mutex);
    struct server *servers = servers_of(outage, role, &count);
    for (size_t i = 0; i < count; i++)
        if (servers[i].away) {
            text_join(text, size, "; ", servers[i].why);
            unconfirmed &= servers[i].unconfirmed;
        }
    pthread_mutex_unlock(&outage->mutex);
    return unconfirmed && text[0] != '\0';
}

static int64_t ms_since(int64_t ns)
{
    return (mono_ns() - ns) / NS_PER_MS;
}

/* Logs that the server is away, or is back. */
static void outage_log(const struct server *server, bool there)
{
    const bool several = server->role != ROLE_LOCK && server->role != ROLE_STOCK;
    const bool both = !several && !server->outage->apart;
    char back[160], name[STOCK_SERVERS_MAX + 3];
    snprintf(name, sizeof name, several ? "%s: " : "", outage_shown(server));
    snprintf(back, sizeof back,
             server->role == ROLE_LOCK_SERVERS ? "it accepts writes; it was away for %" PRId64 " ms"
                                               : "it accepts writes; it was away for %" PRId64
                                                 " ms, and sales were refused for %" PRId64
                                                 " ms of them",
             ms_since(server->away_ns), server->refused_ns / NS_PER_MS);
    static const char *const of_lock[2] = {"lock-server-lost", "lock-server-restored"};
    static const char *const of_stock[2] = {"stock-server-lost", "stock-server-restored"};
    static const char *const of_both[2] = {"redis-server-lost", "redis-server-restored"};
    const char *const *words = both ? of_both : server->role == ROLE_STOCK ? of_stock : of_lock;
    log_event(LOG_WARNING, words[there], "%s%s", there ? name : "",
              there ? back : outage_error(server));
    metrics_server(server->role, server->number, there);
    if (both)
        metrics_server(ROLE_STOCK, 0, there);
}

/* SHUT: the server answers, but refuses this new connection. Connections that sales already have
 * may still work, and other sales are refused at once. So no wait is ended. */
enum check_result { THERE, SHUT, AWAY };

/* Takes the result of a check that began at begun_ns. The mutex is held. */
static void outage_set_result(struct server *server, enum check_result result, int64_t begun_ns)
{
    const bool there = result == THERE;
    if (!there) {
        snprintf(server->why, sizeof server->why, "%.*s", OUTAGE_WHY_MAX - 1, outage_error(server));
        server->unconfirmed = server->stock != NULL && stock_is_unconfirmed(server->stock);
    }
    int64_t next_ns = INT64_MAX;
    if (result != AWAY && atomic_exchange(&server->lasts, false))
        server->refused_ns += mono_ns() - server->lasts_ns;
    if (server->away == there) {
        outage_log(server, there);
        server->away = !there;
        server->away_ns = begun_ns;
        server->refused_ns = 0;
    }
    if (result != AWAY) {
        server->ends_ns = INT64_MAX;
    } else if (server->ends_ns == INT64_MAX) {
        server->ends_ns = begun_ns + server->outage->fail_fast_ns;
    }
    if (atomic_load(&server->lasts)) {
        next_ns = mono_ns() + CHECK_LATER_MS * NS_PER_MS;
    } else if (result == AWAY) {
        next_ns = mono_ns() + CHECK_MS * NS_PER_MS;
        if (next_ns > server->ends_ns - CHECK_MS / 2 * NS_PER_MS) /* no time for another check */
            next_ns = server->ends_ns;
    } else if (result == SHUT || server->suspected) {
        next_ns = mono_ns() + CHECK_SUSPECTED_MS * NS_PER_MS;
    }
    /* a hint may have asked for an earlier check */
    server->next_check_ns = min_ns(server->next_check_ns, next_ns);
}

/* The mutex is held. */
static void hint_server(struct server *server, enum outage_hint hint)
{
    if (hint == OUTAGE_LOST || hint == OUTAGE_RESTORED)
        server->suspected = hint == OUTAGE_LOST;
    if (hint == OUTAGE_THERE)
        server->last_ok_ns = mono_ns();
    if (hint == OUTAGE_THERE && server->away) {
        outage_set_result(server, THERE, server->last_ok_ns);
    } else if (hint == OUTAGE_LOST || hint == OUTAGE_LOOK || server->away) {
        const int64_t at_ns = server->last_check_ns + CHECK_MS * NS_PER_MS;
        if (at_ns >= server->next_check_ns)
            return;
        server->next_check_ns = at_ns;
        pthread_cond_broadcast(&server->outage->changed);
    }
}

void outage_hint(struct outage *outage, enum server_role role, enum outage_hint hint)
{
    outage_hint_about(outage, role, "", hint);
}

static bool is_about(const struct server *server, const char *text)
{
    const char *url = outage_shown(server);
    const size_t size = strlen(url);
    return strncmp(text, url, size) == 0 && (text[size] == ':' || text[size] == '\0');
}

void outage_hint_about(struct outage *outage, enum server_role role, const char *text,
                       enum outage_hint hint)
{
    size_t count, named = 0;
    struct server *servers = servers_of(outage, role, &count);
    pthread_mutex_lock(&outage->mutex);
    for (size_t i = 0; i < count; i++)
        named += is_about(&servers[i], text);
    for (size_t i = 0; i < count; i++)
        if (named == 0 || is_about(&servers[i], text))
            hint_server(&servers[i], hint);
    pthread_mutex_unlock(&outage->mutex);
}

static enum check_result outage_probe_ensemble(struct server *server, int64_t timeout_ms)
{
    switch (lock_servers_try(server->locks, "outage", timeout_ms, server->outage->end_cancel,
                             server->said)) {
    case DLOCK_OK:
        return THERE;
    case DLOCK_REFUSED:
    case DLOCK_INVALID: /* the ensemble's limits do not fit */
    case DLOCK_LIMIT:
        return SHUT;
    default:
        return AWAY;
    }
}

/* first: the first check; nothing has failed yet, so a connection proves enough. */
static enum check_result outage_probe(struct server *server, bool first, int64_t timeout_ms)
{
    if (server->stock == NULL)
        return outage_probe_ensemble(server, timeout_ms);
    stock_limit(server->stock, timeout_ms);
    if ((first ? stock_connect(server->stock) : stock_takes_writes(server->stock, server->key)) ==
        STOCK_OK)
        return THERE;
    return stock_refused(server->stock) ? SHUT : AWAY;
}

/* The server has been away for --fail-fast-ms. The mutex is held. */
static void outage_end_waits_for(struct server *server)
{
    struct outage *outage = server->outage;
    const bool of_stock =
        server->role == ROLE_STOCK || (server->role == ROLE_LOCK && !outage->apart);
    if (!outage_lasts(outage, server->role)) /* a majority is left */
        return;
    end_waits(outage, server->role, server->role);
    for (int needs = 0; needs < ROLE_COUNT && of_stock; needs++)
        if (needs != (int)server->role)
            end_waits(outage, (enum server_role)needs, ROLE_STOCK);
}

/* Checks the server. The mutex is held, but not while the server is probed. */
static void outage_check(struct server *server)
{
    struct outage *outage = server->outage;
    const int64_t begun_ns = mono_ns();
    int64_t timeout_ns = outage->redis_timeout_ns;
    if (!atomic_load(&server->lasts) && begun_ns >= server->ends_ns) {
        atomic_store(&server->lasts, true);
        server->lasts_ns = begun_ns;
        outage_end_waits_for(server);
    }
    if (!atomic_load(&server->lasts)) /* the check ends at the latest when the waits do */
        timeout_ns = min_ns(timeout_ns, min_ns(outage->fail_fast_ns, server->ends_ns - begun_ns));
    const bool first = server->last_check_ns == 0;
    server->last_check_ns = begun_ns;
    server->next_check_ns = INT64_MAX;
    pthread_mutex_unlock(&outage->mutex);
    enum check_result result = outage_probe(server, first, timeout_ns / NS_PER_MS + 1);
    pthread_mutex_lock(&outage->mutex);
    if (outage->ending)
        return;
    const int64_t pause_ns = (result == SHUT ? CHECK_SUSPECTED_MS : CHECK_MS) * NS_PER_MS;
    /* A write accepted after this outweighs a failed check. */
    const int64_t since_ns = result == SHUT ? begun_ns - pause_ns : begun_ns;
    if (result == THERE)
        server->last_ok_ns = mono_ns();
    else /* a hint that came during the check adds nothing to its result */
        server->next_check_ns = INT64_MAX;
    if (result == THERE || server->last_ok_ns <= since_ns)
        outage_set_result(server, result, begun_ns);
    else /* a write on another connection succeeded during the check */
        server->next_check_ns = min_ns(server->next_check_ns, mono_ns() + pause_ns);
}

static void *outage_run(void *arg)
{
    struct server *server = arg;
    struct outage *outage = server->outage;
    pthread_mutex_lock(&outage->mutex);
    while (!outage->ending) {
        if (server->next_check_ns <= mono_ns()) {
            outage_check(server);
        } else if (server->next_check_ns == INT64_MAX) {
            pthread_cond_wait(&outage->changed, &outage->mutex);
        } else {
            struct timespec until = timespec_of(server->next_check_ns);
            pthread_cond_timedwait(&outage->changed, &outage->mutex, &until);
        }
    }
    pthread_mutex_unlock(&outage->mutex);
    return NULL;
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* stock_server NULL: an ensemble. */
static bool outage_prepare(struct outage *outage, enum server_role role, struct lock_servers *locks,
                           struct store_server *stock_server, const char *key)
{
    const size_t number = outage->counts[role]++;
    struct server *server = &outage->servers[role][number];
    server->outage = outage;
    server->role = role;
    server->number = number;
    server->locks = locks;
    server->key = key;
    server->ends_ns = INT64_MAX;
    /* At once: a later check then has a connection, and the metric is correct from the start. */
    server->next_check_ns = 0;
    if (stock_server == NULL)
        return true;
    server->stock = stock_new(stock_server);
    if (server->stock != NULL)
        stock_end_by(server->stock, outage->end_fd);
    return server->stock != NULL;
}

static bool outage_prepare_all(struct outage *outage, const struct outage_options *options)
{
    bool complete = true;
    for (int role = 0; role < LOCK_ROLES; role++) {
        struct lock_servers *locks = &options->locks[role];
        for (size_t i = 0; i < locks->count; i++)
            complete = outage_prepare(outage, (enum server_role)role, locks, locks->servers[i],
                                      options->lock_key) &&
                       complete;
    }
    return complete &&
           (!outage->apart ||
            outage_prepare(outage, ROLE_STOCK, NULL, options->stock_server, options->stock_key));
}

struct outage *outage_new(const struct outage_options *options)
{
    struct outage *outage = calloc(1, sizeof *outage);
    if (outage == NULL)
        return NULL;
    pthread_mutex_init(&outage->mutex, NULL);
    cond_init(&outage->changed);
    outage->fail_fast_ns = options->fail_fast_ms * NS_PER_MS;
    outage->redis_timeout_ns = options->redis_timeout_ms * NS_PER_MS;
    outage->apart = options->locks[ROLE_LOCK].servers[0] != options->stock_server;
    outage->end_fd = eventfd(0, EFD_CLOEXEC);
    outage->end_cancel = dlock_cancel_new();
    bool complete = outage->end_fd >= 0 && outage->end_cancel != NULL;
    for (int needs = 0; needs < ROLE_COUNT; needs++)
        complete = (outage->patience[needs] = patience_new()) != NULL && complete;
    if (outage_prepare_all(outage, options) && complete)
        return outage;
    outage_free(outage);
    return NULL;
}

bool outage_start(struct outage *outage)
{
    struct server *server;
    for (size_t i = 0; (server = outage_server(outage, i)) != NULL; i++) {
        server->started = pthread_create(&server->thread, NULL, outage_run, server) == 0;
        if (!server->started)
            return false;
    }
    return true;
}

void outage_stop(struct outage *outage)
{
    if (outage == NULL)
        return;
    pthread_mutex_lock(&outage->mutex);
    outage->ending = true;
    pthread_cond_broadcast(&outage->changed);
    pthread_mutex_unlock(&outage->mutex);
    if (outage->end_fd >= 0)
        eventfd_write(outage->end_fd, 1);
    if (outage->end_cancel != NULL)
        dlock_cancel_now(outage->end_cancel);
    struct server *server;
    for (size_t i = 0; (server = outage_server(outage, i)) != NULL; i++) {
        if (server->started)
            pthread_join(server->thread, NULL);
        server->started = false;
    }
}

void outage_free(struct outage *outage)
{
    if (outage == NULL)
        return;
    outage_stop(outage);
    struct server *server;
    for (size_t i = 0; (server = outage_server(outage, i)) != NULL; i++)
        stock_free(server->stock);
    for (int needs = 0; needs < ROLE_COUNT; needs++)
        if (outage->patience[needs] != NULL)
            outage_give_back(outage->patience[needs]);
    if (outage->end_fd >= 0)
        close(outage->end_fd);
    dlock_cancel_free(outage->end_cancel);
    pthread_cond_destroy(&outage->changed);
    pthread_mutex_destroy(&outage->mutex);
    free(outage);
}
