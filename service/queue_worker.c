/* SPDX-License-Identifier: Apache-2.0
 *
 * See queue_worker.h.
 */
#include "queue_worker.h"

#include "../lock/clock.h"
#include "conflict.h"
#include "log.h"
#include "queue.h"
#include "queue_head.h"
#include "service.h"
#include "shop_request.h"
#include "text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUCKETS 256
#define PAGE_PAUSE_MS 10 /* between two pages of one look */
#define TIDY_LOOKS 60

/* An item with a queue. Its request is no client's: it carries the sale of one entry after the
 * other through the threads for queues. */
struct queue_work {
    struct shop_request carrier; /* while active: the thread's that runs it */
    struct queue_worker *queue;
    struct queue_entry entry;
    struct sale names; /* of the item: its keys in Redis */
    bool in_sale;
    bool logged; /* a failure that lasts is logged once */
    int64_t pause_ms;
    atomic_long length;
    bool active;               /* these are protected by the mutex: its request is on its way */
    bool again;                /* look once more before it rests */
    char why[STOCK_ERROR_MAX]; /* its head was not sold at the latest attempt; "": there was none */
    unsigned long stuck;       /* attempts that failed by what an operator must mend */
    struct queue_work *next;
};

struct queue_worker {
    struct service *service;
    pthread_mutex_t mutex; /* protects the buckets and what is said above */
    struct queue_work *buckets[BUCKETS];
    struct request look;
    unsigned long looks; /* these are of the thread that runs the look */
    char cursor[QUEUE_CURSOR_MAX + 1];
    atomic_bool ending;
    atomic_long in_sale;
};

static struct queue_work *work_of(const struct request *request)
{
    return (struct queue_work *)((char *)request - offsetof(struct queue_work, carrier));
}

static void rest(struct queue_worker *queue, struct request *request, int64_t pause_ms)
{
    workers_resume_at(queue->service->queues, request, mono_deadline_ns(pause_ms));
}

/* Behind the other items. Nobody reads its answer if the threads end. */
static void push(struct queue_worker *queue, struct request *request)
{
    request->arrived_ns = mono_ns();
    if (!workers_push(queue->service->queues, request))
        rest(queue, request, QUEUE_PAUSE_MS);
}

/* ---- The driver of its sales ----------------------------------------------------------------- */

static void on_resume(struct sale *sale)
{
    struct shop_request *carrier = shop_request_with(sale);
    workers_resume(carrier->service->queues, &carrier->request);
}

static void on_resume_at(struct sale *sale, int64_t at_ns)
{
    struct shop_request *carrier = shop_request_with(sale);
    workers_resume_at(carrier->service->queues, &carrier->request, at_ns);
}

static void on_switch(struct sale *sale)
{
    on_resume_at(sale, mono_deadline_ns(QUEUE_PAUSE_MS));
}

static bool has_no_client(const struct sale *sale)
{
    (void)sale;
    return false;
}

static const struct sale_driver driver = {.resume = on_resume,
                                          .resume_at = on_resume_at,
                                          .resume_after_switch = on_switch,
                                          .is_client_closed = has_no_client};

/* ---- One item -------------------------------------------------------------------------------- */

static bool works(struct queue_worker *queue)
{
    return !atomic_load(&queue->ending) &&
           mode_copy(&queue->service->mode).on_conflict == CONFLICT_QUEUE;
}

/* Nothing is to be done now. False: it was woken meanwhile. */
static bool fall_asleep(struct queue_work *work)
{
    pthread_mutex_lock(&work->queue->mutex);
    const bool asleep = !work->again;
    work->active = !asleep;
    work->again = false;
    pthread_mutex_unlock(&work->queue->mutex);
    return asleep;
}

static void note_why(struct queue_work *work, const char *why)
{
    pthread_mutex_lock(&work->queue->mutex);
    snprintf(work->why, sizeof work->why, "%s", why);
    pthread_mutex_unlock(&work->queue->mutex);
}

static void note_stuck(struct queue_work *work)
{
    pthread_mutex_lock(&work->queue->mutex);
    work->stuck++;
    pthread_mutex_unlock(&work->queue->mutex);
}

static void stay_back(struct queue_work *work, const char *why, bool logs)
{
    if (logs && !work->logged)
        log_event(LOG_WARNING, "queue", "%s: %s", work->names.queue_key, why);
    work->logged = work->logged || logs;
    note_why(work, why);
    const int64_t pause_ms = work->pause_ms;
    work->pause_ms = pause_ms * 2 < QUEUE_PAUSE_MAX_MS ? pause_ms * 2 : QUEUE_PAUSE_MAX_MS;
    rest(work->queue, &work->carrier.request, pause_ms);
}

static void begin_sale(struct queue_work *work)
{
    struct service *service = work->queue->service;
    struct sale *sale = &work->carrier.sale;
    *sale = (struct sale){.purpose = SALE_SELL,
                          .request = work->entry.request,
                          .quantity = work->entry.quantity,
                          .arrived_ns = mono_ns(),
                          .driver = &driver,
                          .processes = true,
                          .expires = work->entry.left_ms <= 0,
                          .entry = &work->entry};
    memcpy(sale->item, work->names.item, sizeof sale->item);
    memcpy(sale->key, work->entry.key, sizeof sale->key);
    memcpy(sale->random, work->entry.random, sizeof sale->random);
    sale_name_keys(&service->config, sale);
    queue_name_keys(&service->config, sale);
    work->in_sale = true;
    sale_arrive(&service->env, sale);
}

/* The oldest entry. STOCK_MISSING: there is none, or this instance does not work now. */
static enum stock_status look_at(struct queue_work *work, struct sale_worker *worker)
{
    if (!works(work->queue)) {
        atomic_store(&work->length, 0); /* what others leave there is not seen any more */
        return STOCK_MISSING;
    }
    enum stock_status status = queue_oldest(worker->stock, work->names.queue_key, &work->entry);
    atomic_store(&work->length, status == STOCK_OK ? work->entry.length : 0);
    return status;
}

/* Begins the sale of the oldest entry. It is counted before the last look at `ending`, so a
 * shutdown waits for it, or it does not begin. False: there is none now, and its request is another
 * thread's. */
static bool begin_next(struct queue_work *work, struct sale_worker *worker)
{
    struct queue_worker *queue = work->queue;
    enum stock_status status;
    atomic_fetch_add(&queue->in_sale, 1);
    do
        status = look_at(work, worker);
    while (status == STOCK_MISSING && !fall_asleep(work));
    if (status == STOCK_OK) {
        begin_sale(work);
        return true;
    }
    if (status == STOCK_INVALID)
        note_stuck(work);
    if (status != STOCK_MISSING)
        stay_back(work, stock_error(worker->stock), status == STOCK_INVALID);
    atomic_fetch_sub(&queue->in_sale, 1);
    return false;
}

static void end_sale(struct queue_work *work)
{
    const struct sale *sale = &work->carrier.sale;
    const bool ended = sale->settled || sale->passed;
    work->in_sale = false;
    if (sale->settled)
        queue_heads_passed(work->queue->service->heads, sale->item, work->entry.number);
    if (ended) {
        work->pause_ms = QUEUE_PAUSE_MS;
        work->logged = false;
        note_why(work, "");
        if (sale->settled)
            push(work->queue, &work->carrier.request);
        else /* another instance processes the item: two would compete for each entry's lock */
            rest(work->queue, &work->carrier.request, QUEUE_PAUSE_MS);
    } else {
        if (sale->result == SALE_STOCK_INVALID || sale->result == SALE_OTHER_LAYOUT)
            note_stuck(work);
        stay_back(work, sale->detail, true);
    }
}

/* Never answers. */
static bool run_work(struct service *service, void *state, struct request *request)
{
    struct sale_worker *worker = state;
    struct queue_work *work = work_of(request);
    struct queue_worker *queue = work->queue;
    (void)service;
    if (!work->in_sale && !begin_next(work, worker))
        return false;
    if (sale_go_on(worker, &work->carrier.sale) == SALE_WAITING)
        return false;
    end_sale(work);
    atomic_fetch_sub(&queue->in_sale, 1);
    return false;
}

static const struct route work_route = {.where = RUN_WORKERS, .work = run_work};

/* ---- All items ------------------------------------------------------------------------------- */

static struct queue_work **bucket_of(struct queue_worker *queue, const char *item)
{
    return &queue->buckets[text_hash(TEXT_HASH, item) % BUCKETS];
}

/* The mutex is held. NULL: out of memory; the next look tries again. */
static struct queue_work *find_or_add(struct queue_worker *queue, const char *item)
{
    struct queue_work **bucket = bucket_of(queue, item);
    for (struct queue_work *work = *bucket; work != NULL; work = work->next)
        if (strcmp(work->names.item, item) == 0)
            return work;
    struct queue_work *work = calloc(1, sizeof *work);
    if (work == NULL)
        return NULL;
    work->queue = queue;
    work->carrier.request.route = &work_route;
    work->carrier.service = queue->service;
    work->pause_ms = QUEUE_PAUSE_MS;
    snprintf(work->names.item, sizeof work->names.item, "%s", item);
    sale_name_keys(&queue->service->config, &work->names);
    queue_name_keys(&queue->service->config, &work->names);
    work->next = *bucket;
    *bucket = work;
    return work;
}

void queue_worker_wake(struct queue_worker *queue, const char *item)
{
    if (queue == NULL)
        return;
    pthread_mutex_lock(&queue->mutex);
    struct queue_work *work = find_or_add(queue, item);
    const bool begins = work != NULL && !work->active;
    if (work != NULL) {
        work->again = !begins;
        work->active = true;
    }
    pthread_mutex_unlock(&queue->mutex);
    if (begins)
        push(queue, &work->carrier.request);
}

/* Takes an idle item without entries out of its bucket. */
static struct queue_work *take_idle(struct queue_worker *queue, size_t bucket)
{
    pthread_mutex_lock(&queue->mutex);
    struct queue_work **link = &queue->buckets[bucket], *work;
    while ((work = *link) != NULL && (work->active || atomic_load(&work->length) > 0))
        link = &work->next;
    if (work != NULL)
        *link = work->next;
    pthread_mutex_unlock(&queue->mutex);
    return work;
}

static void forget_idle(struct queue_worker *queue)
{
    struct queue_work *work;
    for (size_t i = 0; i < BUCKETS; i++)
        while ((work = take_idle(queue, i)) != NULL)
            free(work);
}

static struct queue_worker *worker_of(const struct request *look)
{
    return (struct queue_worker *)((char *)look - offsetof(struct queue_worker, look));
}

/* Of one page of the list. */
struct glance {
    struct queue_worker *queue;
    struct stock *stock;
    bool tidies;
};

/* Wakes the item if it has entries. Now and then what nobody uses is removed. A server
 * that hangs is asked once. */
static void look_at_listed(void *arg, const struct queue_listed *listed)
{
    struct glance *glance = arg;
    if (listed->has_entries)
        queue_worker_wake(glance->queue, listed->item);
    if (!glance->tidies || !works(glance->queue))
        return;
    enum stock_status tidied = queue_tidy(glance->stock, listed->item, listed->queue_key);
    glance->tidies = tidied != STOCK_UNAVAILABLE && tidied != STOCK_LOST;
}

/* Reads one page. Never answers. */
static bool run_look(struct service *service, void *state, struct request *look)
{
    const struct sale_worker *worker = state;
    struct queue_worker *queue = worker_of(look);
    struct glance glance = {queue, worker->stock, queue->looks % TIDY_LOOKS == TIDY_LOOKS - 1};
    const bool asks = works(queue) && !outage_lasts(service->env.outage, ROLE_STOCK);
    if (!asks || queue_walk(worker->stock, &service->config, queue->cursor, look_at_listed,
                            &glance) != STOCK_OK)
        snprintf(queue->cursor, sizeof queue->cursor, "0");
    const bool over = strcmp(queue->cursor, "0") == 0;
    if (over && queue->looks++ % TIDY_LOOKS == 0)
        forget_idle(queue);
    rest(queue, look, over ? QUEUE_LOOK_MS : PAGE_PAUSE_MS);
    return false;
}

static const struct route look_route = {.where = RUN_WORKERS, .work = run_look};

long queue_worker_length(struct queue_worker *queue)
{
    long length = 0;
    pthread_mutex_lock(&queue->mutex);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct queue_work *work = queue->buckets[i]; work != NULL; work = work->next)
            length += atomic_load(&work->length);
    pthread_mutex_unlock(&queue->mutex);
    return length;
}

/* ---- A switch -------------------------------------------------------------------------------- */

/* The newest entry of an item, when the switch began. */
struct goal {
    struct queue_listed listed;
    char number[STOCK_ENTRY_MAX + 1];
    struct goal *next;
};

struct goals {
    struct queue_worker *queue;
    struct goal *first;
    bool whole;
};

static void add_goal(void *arg, const struct queue_listed *listed)
{
    struct goals *goals = arg;
    struct goal *goal = listed->has_entries ? calloc(1, sizeof *goal) : NULL;
    if (goal == NULL) {
        goals->whole = goals->whole && !listed->has_entries;
        return;
    }
    goal->listed = *listed;
    goal->next = goals->first;
    goals->first = goal;
}

/* Reads how far each queue reaches now. False: not all of that was read, and why[] says so. */
static bool set_goals(struct goals *goals, struct stock *stock, int64_t deadline_ns,
                      char why[STOCK_ERROR_MAX])
{
    char cursor[QUEUE_CURSOR_MAX + 1] = "0";
    const char *unread = "the list of queues";
    enum stock_status status;
    goals->whole = true;
    do
        status = queue_walk(stock, &goals->queue->service->config, cursor, add_goal, goals);
    while (status == STOCK_OK && strcmp(cursor, "0") != 0 && mono_ns() < deadline_ns);
    goals->whole = goals->whole && strcmp(cursor, "0") == 0;
    for (struct goal *goal = goals->first; status == STOCK_OK && goal != NULL; goal = goal->next) {
        status = queue_newest(stock, goal->listed.queue_key, goal->number);
        status = status == STOCK_MISSING ? STOCK_OK : status;
        unread = status != STOCK_OK ? goal->listed.queue_key : "the list of queues";
    }
    if (status != STOCK_OK)
        snprintf(why, STOCK_ERROR_MAX, "%.110s could not be read: %.360s", unread,
                 stock_error(stock));
    else if (!goals->whole)
        snprintf(why, STOCK_ERROR_MAX, "there was too little time or memory to find all queues");
    return status == STOCK_OK && goals->whole;
}

static unsigned long count_stuck(struct queue_worker *queue, const char *item)
{
    pthread_mutex_lock(&queue->mutex);
    const struct queue_work *work = find_or_add(queue, item);
    const unsigned long stuck = work != NULL ? work->stuck : 0;
    pthread_mutex_unlock(&queue->mutex);
    return stuck;
}

/* Waits until the queue is processed up to the goal. False: it took too long, or an operator must
 * mend something. An attempt may have begun before the switch, so two must say that. */
static bool await_goal(const struct goal *goal, struct queue_worker *queue, struct stock *stock,
                       int64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};
    const unsigned long stuck = count_stuck(queue, goal->listed.item);
    bool has = goal->number[0] != '\0';
    while (has) {
        if (mono_ns() >= deadline_ns || atomic_load(&queue->ending) ||
            count_stuck(queue, goal->listed.item) > stuck + 1)
            return false;
        queue_worker_wake(queue, goal->listed.item);
        nanosleep(&pause, NULL);
        /* while the server does not tell, it is not known to be processed */
        if (queue_has_until(stock, goal->listed.queue_key, goal->number, &has) != STOCK_OK)
            has = true;
    }
    return true;
}

/* Says what became of the head of the item's queue. */
static void say_why(struct queue_worker *queue, const char *item, char why[STOCK_ERROR_MAX])
{
    pthread_mutex_lock(&queue->mutex);
    const struct queue_work *work = find_or_add(queue, item);
    const bool failed = work != NULL && work->why[0] != '\0';
    if (failed)
        snprintf(why, STOCK_ERROR_MAX, "the first sale in the queue of %s fails: %.380s", item,
                 work->why);
    else
        snprintf(why, STOCK_ERROR_MAX, "there was too little time for the queue of %s", item);
    pthread_mutex_unlock(&queue->mutex);
}

bool queue_worker_drain(struct queue_worker *queue, struct stock *stock, long long deadline_ns,
                        char why[STOCK_ERROR_MAX])
{
    struct goals goals = {.queue = queue};
    bool done = set_goals(&goals, stock, deadline_ns, why);
    for (struct goal *goal = goals.first, *next; goal != NULL; goal = next) {
        next = goal->next;
        if (done && !await_goal(goal, queue, stock, deadline_ns)) {
            done = false;
            say_why(queue, goal->listed.item, why);
        }
        free(goal);
    }
    return done;
}

/* ---- Start and end --------------------------------------------------------------------------- */

struct queue_worker *queue_worker_new(struct service *service)
{
    struct queue_worker *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return NULL;
    queue->service = service;
    queue->look.route = &look_route;
    snprintf(queue->cursor, sizeof queue->cursor, "0");
    pthread_mutex_init(&queue->mutex, NULL);
    atomic_init(&queue->ending, false);
    atomic_init(&queue->in_sale, 0);
    return queue;
}

void queue_worker_start(struct queue_worker *queue)
{
    push(queue, &queue->look);
}

void queue_worker_end(struct queue_worker *queue)
{
    atomic_store(&queue->ending, true);
}

bool queue_worker_is_idle(const struct queue_worker *queue)
{
    return atomic_load(&queue->in_sale) == 0;
}

void queue_worker_free(struct queue_worker *queue)
{
    if (queue == NULL)
        return;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (queue->buckets[i] != NULL) {
            struct queue_work *work = queue->buckets[i];
            queue->buckets[i] = work->next;
            free(work);
        }
    }
    pthread_mutex_destroy(&queue->mutex);
    free(queue);
}
