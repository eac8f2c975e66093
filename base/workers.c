/* SPDX-License-Identifier: Apache-2.0
 *
 * See workers.h. Waking a thread costs more than a sale without a lock, so as few threads as
 * possible are woken. At most one woken thread has not taken work yet. It is the one that slept
 * last, whose caches are warm. It wakes the next one if it finds more to do. A thread that has
 * finished a request takes the next one without sleeping.
 */
#include "workers.h"

#include "../lock/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define EXPIRE_TICK_NS (100 * NS_PER_MS)

struct worker {
    struct workers *workers;
    pthread_t thread;
    pthread_cond_t wake;
    enum { OPENING, OPENED, NOT_OPENED } state;
    bool woken;
    struct worker *next_idle;
};

struct workers {
    struct workers_options options;
    pthread_mutex_t mutex; /* protects what is below */
    struct line {
        struct request *first;
        struct request *last;
    } fresh, resumed, put_off, resting; /* resting: until their resume_ns, the earliest first */
    size_t depth;                       /* requests that were not run yet */
    struct worker *idle;                /* a stack: the top one fell asleep last */
    bool waking;                        /* a woken thread has not taken work yet */
    bool stopping;
    pthread_cond_t clock; /* wakes the timekeeper: a request rests, or the end */
    pthread_cond_t opened;
    pthread_t timekeeper;
    bool timekeeper_runs;
    size_t started;
    struct worker worker[];
};

static void workers_append(struct line *line, struct request *request)
{
    request->next = NULL;
    if (line->first != NULL)
        line->last->next = request;
    else
        line->first = request;
    line->last = request;
}

static bool is_empty(const struct workers *workers)
{
    return workers->fresh.first == NULL && workers->resumed.first == NULL;
}

/* The mutex is held. */
static void wake_one(struct workers *workers)
{
    struct worker *worker = workers->idle;
    if (worker == NULL || workers->waking || is_empty(workers))
        return;
    workers->idle = worker->next_idle;
    workers->waking = true;
    worker->woken = true;
    pthread_cond_signal(&worker->wake);
}

/* Takes the first request of the line, which is not empty. The mutex is held. */
static struct request *take_first(struct workers *workers, struct line *line)
{
    struct request *request = line->first;
    line->first = request->next;
    request->next = NULL;
    workers->depth -= line != &workers->resumed;
    return request;
}

/* Waits for the next request; NULL: the workers are stopping. */
static struct request *workers_take(struct worker *worker)
{
    struct workers *workers = worker->workers;
    struct request *request = NULL;
    pthread_mutex_lock(&workers->mutex);
    while (is_empty(workers) && !workers->stopping) {
        worker->woken = false;
        worker->next_idle = workers->idle;
        workers->idle = worker;
        while (!worker->woken)
            pthread_cond_wait(&worker->wake, &workers->mutex);
        workers->waking = false;
    }
    if (!is_empty(workers)) {
        request = take_first(workers,
                             workers->resumed.first != NULL ? &workers->resumed : &workers->fresh);
        wake_one(workers);
    }
    pthread_mutex_unlock(&workers->mutex);
    return request;
}

static void workers_tell_open(struct worker *worker, bool opened)
{
    struct workers *workers = worker->workers;
    pthread_mutex_lock(&workers->mutex);
    worker->state = opened ? OPENED : NOT_OPENED;
    pthread_cond_signal(&workers->opened);
    pthread_mutex_unlock(&workers->mutex);
}

static bool workers_await_open(struct worker *worker)
{
    struct workers *workers = worker->workers;
    pthread_mutex_lock(&workers->mutex);
    while (worker->state == OPENING)
        pthread_cond_wait(&workers->opened, &workers->mutex);
    const bool opened = worker->state == OPENED;
    pthread_mutex_unlock(&workers->mutex);
    return opened;
}

static void *workers_work(void *arg)
{
    struct worker *worker = arg;
    const struct workers_options *options = &worker->workers->options;
    void *state = options->open(options->arg);
    struct request *request;
    workers_tell_open(worker, state != NULL);
    /* A reply that arrives must not preempt another thread: on a busy machine the switches cost
     * more than the sale. A failure is ignored, because a sandbox may forbid it. */
    sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    while (state != NULL && (request = workers_take(worker)) != NULL)
        options->run(state, request);
    if (state != NULL)
        options->close(state);
    return NULL;
}

bool workers_push(struct workers *workers, struct request *request)
{
    pthread_mutex_lock(&workers->mutex);
    bool fits = !workers->stopping && workers->depth < workers->options.queue_max;
    if (fits) {
        workers_append(&workers->fresh, request);
        workers->depth++;
        wake_one(workers);
    }
    pthread_mutex_unlock(&workers->mutex);
    return fits;
}

void workers_resume(struct workers *workers, struct request *request)
{
    pthread_mutex_lock(&workers->mutex);
    workers_append(&workers->resumed, request);
    wake_one(workers);
    pthread_mutex_unlock(&workers->mutex);
}

void workers_put_off(struct workers *workers, struct request *request)
{
    pthread_mutex_lock(&workers->mutex);
    workers_append(&workers->put_off, request);
    workers->depth++;
    pthread_mutex_unlock(&workers->mutex);
}

void workers_go_on(struct workers *workers)
{
    struct line *put_off = &workers->put_off;
    pthread_mutex_lock(&workers->mutex);
    if (put_off->first != NULL) {
        put_off->last->next = workers->fresh.first;
        if (workers->fresh.first == NULL)
            workers->fresh.last = put_off->last;
        workers->fresh.first = put_off->first;
        put_off->first = NULL;
        wake_one(workers);
    }
    pthread_mutex_unlock(&workers->mutex);
}

/* Expires the requests of the line that arrived before that time. */
static void expire_before(struct workers *workers, struct line *line, int64_t arrived_ns)
{
    for (;;) {
        struct request *request = NULL;
        pthread_mutex_lock(&workers->mutex);
        if (line->first != NULL && line->first->arrived_ns < arrived_ns)
            request = take_first(workers, line);
        pthread_mutex_unlock(&workers->mutex);
        if (request == NULL)
            return;
        workers->options.expire(workers->options.arg, request);
    }
}

static void expire_all_before(struct workers *workers, int64_t arrived_ns)
{
    expire_before(workers, &workers->fresh, arrived_ns);
    expire_before(workers, &workers->put_off, arrived_ns);
}

void workers_expire_all(struct workers *workers)
{
    expire_all_before(workers, INT64_MAX);
}

/* The mutex is held. */
static void resume_rested(struct workers *workers)
{
    struct line *resting = &workers->resting;
    const int64_t at_ns = mono_ns();
    while (resting->first != NULL && resting->first->resume_ns <= at_ns) {
        struct request *request = resting->first;
        resting->first = request->next;
        workers_append(&workers->resumed, request);
    }
    wake_one(workers);
}

void workers_resume_at(struct workers *workers, struct request *request, int64_t at_ns)
{
    struct line *resting = &workers->resting;
    pthread_mutex_lock(&workers->mutex);
    request->resume_ns = at_ns;
    if (resting->first == NULL || resting->last->resume_ns <= at_ns) { /* mostly */
        workers_append(resting, request);
    } else {
        struct request **place = &resting->first;
        while ((*place)->resume_ns <= at_ns)
            place = &(*place)->next;
        request->next = *place;
        *place = request;
    }
    if (resting->first == request)
        pthread_cond_signal(&workers->clock);
    pthread_mutex_unlock(&workers->mutex);
}

/* Resumes requests that rest. Expires requests as well, because all threads may be busy for longer
 * than a request may wait. */
static void *workers_keep_time(void *arg)
{
    struct workers *workers = arg;
    int64_t tick_ns = mono_ns() + EXPIRE_TICK_NS;
    pthread_mutex_lock(&workers->mutex);
    while (!workers->stopping) {
        const struct request *first = workers->resting.first;
        const struct timespec until =
            timespec_of(first != NULL && first->resume_ns < tick_ns ? first->resume_ns : tick_ns);
        pthread_cond_timedwait(&workers->clock, &workers->mutex, &until);
        resume_rested(workers);
        if (mono_ns() < tick_ns)
            continue;
        pthread_mutex_unlock(&workers->mutex);
        expire_all_before(workers, mono_ns() - workers->options.wait_ms * NS_PER_MS);
        tick_ns = mono_ns() + EXPIRE_TICK_NS;
        pthread_mutex_lock(&workers->mutex);
    }
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

size_t workers_depth(struct workers *workers)
{
    pthread_mutex_lock(&workers->mutex);
    size_t depth = workers->depth;
    pthread_mutex_unlock(&workers->mutex);
    return depth;
}

struct workers *workers_start(const struct workers_options *options)
{
    struct workers *workers =
        calloc(1, sizeof *workers + options->threads * sizeof workers->worker[0]);
    if (workers == NULL)
        return NULL;
    workers->options = *options;
    pthread_mutex_init(&workers->mutex, NULL);
    cond_init(&workers->clock);
    pthread_cond_init(&workers->opened, NULL);
    workers->timekeeper_runs =
        pthread_create(&workers->timekeeper, NULL, workers_keep_time, workers) == 0;
    bool running = workers->timekeeper_runs;
    for (size_t i = 0; i < options->threads && running; i++) {
        struct worker *worker = &workers->worker[i];
        *worker = (struct worker){.workers = workers};
        pthread_cond_init(&worker->wake, NULL);
        running = pthread_create(&worker->thread, NULL, workers_work, worker) == 0;
        if (running)
            workers->started++;
        else
            pthread_cond_destroy(&worker->wake);
        running = running && workers_await_open(worker);
    }
    if (running)
        return workers;
    workers_stop(workers);
    workers_free(workers);
    return NULL;
}

void workers_stop(struct workers *workers)
{
    if (workers == NULL)
        return;
    pthread_mutex_lock(&workers->mutex);
    workers->stopping = true;
    pthread_cond_signal(&workers->clock);
    for (struct worker *worker = workers->idle; worker != NULL; worker = worker->next_idle) {
        worker->woken = true;
        pthread_cond_signal(&worker->wake);
    }
    workers->idle = NULL;
    pthread_mutex_unlock(&workers->mutex);
    if (workers->timekeeper_runs)
        pthread_join(workers->timekeeper, NULL);
    for (size_t i = 0; i < workers->started; i++)
        pthread_join(workers->worker[i].thread, NULL);
    workers_expire_all(workers);
}

void workers_free(struct workers *workers)
{
    if (workers == NULL)
        return;
    for (size_t i = 0; i < workers->started; i++)
        pthread_cond_destroy(&workers->worker[i].wake);
    pthread_cond_destroy(&workers->clock);
    pthread_cond_destroy(&workers->opened);
    pthread_mutex_destroy(&workers->mutex);
    free(workers);
}
