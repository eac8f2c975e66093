/* SPDX-License-Identifier: Apache-2.0
 *
 * See readiness.h. Each of a lock's servers is asked by a thread of its own, on a new connection.
 * So servers that hang take one time-out together, and none if a majority is ready without them:
 * then the threads that still wait give up. Which of them are the same server is known from earlier
 * connections, too: each server was connected to at the start, see outage.h.
 */
#include "readiness.h"

#include "conflict.h"
#include "queue.h"
#include "text.h"

#include <sys/eventfd.h>
#include <unistd.h>

/* Whether the server accepts writes. */
static bool readiness_check(struct service *service, struct stock *stock, enum server_role role)
{
    return stock_check(stock, service_probe_key(service, role)) == STOCK_OK;
}

static void readiness_hint(struct service *service, const struct stock *stock,
                           enum server_role role, bool ready)
{
    outage_hint_about(service->env.outage, role, stock_shown(stock),
                      ready ? OUTAGE_THERE : OUTAGE_LOOK);
}

static const char *readiness_ask(struct service *service, struct stock *stock,
                                 enum server_role role)
{
    const bool ready = readiness_check(service, stock, role);
    readiness_hint(service, stock, role, ready);
    return ready ? NULL : stock_error(stock);
}

/* One look at all servers of a lock. */
struct look {
    struct service *service;
    const struct lock_servers *locks;
    int end_fd;            /* readable once it is over; -1: there is none */
    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t answered;
    size_t ready, failed;
    bool over; /* later answers do not count */
    char whys[STOCK_ERROR_MAX - 128];
};

struct asker {
    struct look *look;
    struct store_server *server;
    pthread_t thread;
    bool started;
};

/* stock NULL: there is no memory to ask. */
static void readiness_take(struct look *look, const struct stock *stock, bool ready)
{
    pthread_mutex_lock(&look->mutex);
    const bool counts = !look->over;
    look->ready += counts && ready;
    look->failed += counts && !ready;
    if (counts && !ready)
        text_join(look->whys, sizeof look->whys, "; ",
                  stock != NULL ? stock_error(stock) : "out of memory");
    pthread_cond_signal(&look->answered);
    pthread_mutex_unlock(&look->mutex);
    if (counts && stock != NULL)
        readiness_hint(look->service, stock, look->locks->role, ready);
}

static void *readiness_run(void *arg)
{
    const struct asker *asker = arg;
    struct look *look = asker->look;
    struct stock *stock = stock_new(asker->server);
    if (stock != NULL)
        stock_end_by(stock, look->end_fd);
    readiness_take(look, stock,
                   stock != NULL && readiness_check(look->service, stock, look->locks->role));
    stock_free(stock);
    return NULL;
}

/* Returns as soon as `needed` servers are ready, or all have answered. */
static void readiness_look(struct look *look, size_t needed)
{
    const size_t count = look->locks->count;
    struct asker askers[LOCK_SERVERS_MAX];
    for (size_t i = 0; i < count; i++) {
        struct asker *asker = &askers[i];
        *asker = (struct asker){.look = look, .server = look->locks->servers[i]};
        asker->started = pthread_create(&asker->thread, NULL, readiness_run, asker) == 0;
        if (!asker->started)
            readiness_run(asker);
    }
    pthread_mutex_lock(&look->mutex);
    while (look->ready < needed && look->ready + look->failed < count)
        pthread_cond_wait(&look->answered, &look->mutex);
    look->over = true;
    pthread_mutex_unlock(&look->mutex);
    if (look->end_fd >= 0)
        eventfd_write(look->end_fd, 1);
    for (size_t i = 0; i < count; i++)
        if (askers[i].started)
            pthread_join(askers[i].thread, NULL);
}

/* So many must be ready that the lock can be granted. */
static const char *readiness_ask_locks(struct service *service, const struct lock_servers *locks,
                                       char text[STOCK_ERROR_MAX])
{
    const size_t needed = lock_servers_needed(locks->count);
    struct look look = {.service = service, .locks = locks, .end_fd = eventfd(0, EFD_CLOEXEC)};
    pthread_mutex_init(&look.mutex, NULL);
    pthread_cond_init(&look.answered, NULL);
    readiness_look(&look, needed);
    if (look.end_fd >= 0)
        close(look.end_fd);
    pthread_cond_destroy(&look.answered);
    pthread_mutex_destroy(&look.mutex);
    if (locks->count == 1)
        snprintf(text, STOCK_ERROR_MAX, "%s", look.whys);
    else
        snprintf(text, STOCK_ERROR_MAX,
                 "%zu of the lock's %zu servers are not ready, and %zu are needed: %s", look.failed,
                 locks->count, needed, look.whys);
    if (look.ready < needed)
        return text;
    return lock_servers_find_twins(locks, text, STOCK_ERROR_MAX) ? text : NULL;
}

/* An ensemble is ready if it grants a lock. */
static const char *readiness_ask_ensemble(struct service *service, struct lock_servers *locks,
                                          char text[STOCK_ERROR_MAX])
{
    const int64_t timeout_ms = service->config.redis_timeout_ms;
    const bool ready = lock_servers_try(locks, "readyz", timeout_ms, NULL, text) == DLOCK_OK;
    outage_hint(service->env.outage, locks->role, ready ? OUTAGE_THERE : OUTAGE_LOOK);
    return ready ? NULL : text;
}

const char *readiness_fault(struct service *service, struct stock *stock,
                            char text[STOCK_ERROR_MAX])
{
    const struct setting setting = mode_copy(&service->mode);
    struct lock_servers *locks = &service->locks[lock_servers_role(setting.rung)];
    const bool asks_lock = setting.rung->distributed;
    bool failing;
    if (!asks_lock || locks->role != ROLE_LOCK) /* its metric stays correct */
        outage_hint(service->env.outage, ROLE_LOCK, OUTAGE_LOOK);
    if (atomic_load(&service->draining))
        return "the instance is shutting down";
    history_lost(service->env.history, &failing);
    if (service->config.history_required && failing)
        return "the history cannot be written: the log says why";
    const char *why = readiness_ask(service, stock, ROLE_STOCK);
    if (why == NULL && setting.on_conflict == CONFLICT_QUEUE &&
        queue_probe(stock, &service->config) != STOCK_OK)
        why = stock_error(stock);
    if (why != NULL || !asks_lock)
        return why;
    return locks->engine != NULL ? readiness_ask_ensemble(service, locks, text)
           : locks->apart        ? readiness_ask_locks(service, locks, text)
                                 : readiness_ask(service, stock, ROLE_LOCK);
}
