/* SPDX-License-Identifier: Apache-2.0
 *
 * See loop.h. The listening thread blocks only in epoll_wait. A thread asks a server only while
 * another thread listens. A waiter whose time has passed, or that was handed the lock, needs no
 * server. If all threads that ask are busy, the listening thread goes on with such a waiter, and
 * another thread delivers its completion. So servers that hang delay no answer, although threads
 * hang with them.
 */
#include "loop.h"

#include "client.h"
#include "thread.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define SOON_MS 1
#define NO_THREAD_MS 100   /* after a thread could not be started, none is tried for this long */
#define LONGEST_MS 3600000 /* the longest time without a look at the waiters */

/* ---- Times ----------------------------------------------------------------------------------- */

static void time_at(struct loop *loop, struct wait *wait, int64_t at_ns)
{
    heap_put(&loop->timed, &wait->timed, at_ns);
    if (at_ns >= loop->sleeps_until_ns)
        return;
    loop->sleeps_until_ns = at_ns; /* one wake-up is enough */
    loop_wake(loop);
}

void loop_time(struct loop *loop, struct wait *wait)
{
    time_at(loop, wait, wait->until_ns);
}

/* ---- Waiters --------------------------------------------------------------------------------- */

/* The hash bucket of the waiters that have that cancel: when it is set, they must be found without
 * a search through all waiters. The hash is Knuth's multiplicative one. */
static struct waits *cancel_bucket(struct loop *loop, const dlock_cancel *cancel)
{
    uint32_t hash = (uint32_t)((uintptr_t)cancel / sizeof(max_align_t)) * 2654435761U;
    return &loop->by_cancel[hash >> (32 - CANCEL_BITS)];
}

/* Watches a cancel until it is seen once. Each waiter that joins later watches it anew. */
static bool watch_cancel(struct loop *loop, const dlock_cancel *cancel)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT,
                                .data.ptr = (void *)(uintptr_t)cancel};
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, cancel->fd, &event) == 0 ||
           (errno == EEXIST && epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, cancel->fd, &event) == 0);
}

dlock_status loop_join(struct loop *loop, struct wait *wait)
{
    dlock_status status = loop_start(loop);
    if (status != DLOCK_OK)
        return status;
    if (wait->counted != NULL && *wait->counted >= loop->client->options.waiters_max)
        return fail(DLOCK_LIMIT, "%zu acquires wait already (waiters_max)", *wait->counted);
    if (wait->cancel != NULL && !watch_cancel(loop, wait->cancel))
        return fail(DLOCK_NO_MEMORY, "no memory is left for one more waiter");
    if (wait->counted != NULL)
        ++*wait->counted;
    if (wait->cancel != NULL)
        LIST_INSERT_HEAD(cancel_bucket(loop, wait->cancel), wait, by_cancel);
    return DLOCK_OK;
}

static bool is_queued(const struct wait *wait)
{
    return wait->due || wait->asking;
}

static void take_out(struct loop *loop, struct wait *wait)
{
    TAILQ_REMOVE(wait->due ? &loop->due : &loop->asking, wait, of_due);
    if (wait->due)
        loop->due_count--;
    else
        loop->asking_count--;
    heap_take(&wait->timed);
    wait->due = wait->asking = false;
}

void loop_leave(struct loop *loop, struct wait *wait)
{
    if (is_queued(wait))
        take_out(loop, wait);
    heap_take(&wait->timed);
    if (wait->cancel != NULL && !wait->cancelled)
        LIST_REMOVE(wait, by_cancel);
    if (wait->counted != NULL)
        --*wait->counted;
}

/* ---- Finding a thread ------------------------------------------------------------------------ */

/* Whether a thread may start work that asks a server. */
static bool is_to_ask(const struct loop *loop)
{
    return loop->due_count + loop->asking_count > 0 && loop->asker_count < LOOP_ASKERS_MAX;
}

/* Whether a thread may deliver a completion. */
static bool is_to_tell(const struct loop *loop)
{
    return loop->over_count > 0 && loop->deliverer_count < LOOP_DELIVERERS_MAX;
}

/* Whether one more thread may block, and another still listens. */
static bool has_spare(const struct loop *loop)
{
    return loop->asker_count + loop->deliverer_count + 1 < loop->thread_count;
}

static bool loop_has_spare_thread(const struct loop *loop)
{
    return is_to_ask(loop) && has_spare(loop);
}

/* If no more threads can be started, the listening thread delivers. */
static bool may_tell(const struct loop *loop)
{
    return is_to_tell(loop) && (has_spare(loop) || loop->short_of_threads);
}

/* The loop that this thread serves. As few threads run as possible: a thread that has finished
 * takes the next work without sleeping. It also does the work that it has queued itself. */
static _Thread_local const struct loop *serves;

/* Whether this thread listens. */
static _Thread_local bool listens;

/* Whether other waiters need this thread for their answers. */
static _Thread_local bool others_wait;

static void *loop_serve(void *arg);

static void find_other(struct loop *loop)
{
    size_t needed =
        loop->asker_count + loop->deliverer_count + 1 + (is_to_ask(loop) || is_to_tell(loop));
    if (loop->idle_count > 0) {
        pthread_cond_signal(&loop->work);
    } else if (loop->thread_count < needed && loop->thread_count < LOOP_THREADS_MAX &&
               mono_ns() >= loop->thread_ns) {
        loop->short_of_threads =
            !thread_begin(&loop->threads[loop->thread_count], loop_serve, loop);
        loop->thread_count += !loop->short_of_threads;
        loop->thread_ns = loop->short_of_threads ? mono_deadline_ns(NO_THREAD_MS) : 0;
    }
}

static void find_thread(struct loop *loop)
{
    if (serves != loop || loop->due_count + loop->asking_count + loop->over_count > 1 ||
        (listens && !has_spare(loop)))
        find_other(loop);
}

/* ---- Waiters that no thread is free for ------------------------------------------------------ */

/* Whether all threads that ask are busy: queued waiters must wait for one of them. */
static bool all_are_kept(const struct loop *loop)
{
    return loop->asker_count == LOOP_ASKERS_MAX || (loop->short_of_threads && !has_spare(loop));
}

/* When the waiter must go on, even if all threads that ask are busy. 0: at once, since it needs no
 * server. */
static int64_t loop_end_ns(const struct wait *wait)
{
    if (wait->state == WAIT_GIVEN)
        return wait->reads ? wait->ends_ns : 0;
    if (wait->cancelled)
        return 0;
    return wait->deadline_ns != 0 ? wait->deadline_ns : wait->ends_ns;
}

/* In SOON_MS at the earliest: in most cases a thread is free by then. */
static void loop_keep_time(struct loop *loop, struct wait *wait)
{
    int64_t at_ns = loop_end_ns(wait);
    int64_t soon_ns = mono_deadline_ns(SOON_MS);
    int64_t latest_ns = mono_deadline_ns(LONGEST_MS);
    time_at(loop, wait, at_ns < soon_ns ? soon_ns : min_ns(at_ns, latest_ns));
}

/* New waiters are at the tail, and are not in `timed` yet. The walk ends at the first that is. */
static void keep_times_of(struct loop *loop, struct waits_in_order *queue)
{
    struct wait *wait;
    if (!all_are_kept(loop))
        return;
    TAILQ_FOREACH_REVERSE(wait, queue, waits_in_order, of_due) {
        if (wait->timed.in != NULL)
            return;
        loop_keep_time(loop, wait);
    }
}

static void keep_times(struct loop *loop)
{
    keep_times_of(loop, &loop->due);
    keep_times_of(loop, &loop->asking);
}

void loop_may_block(struct loop *loop)
{
    if (serves != loop)
        return;
    pthread_mutex_lock(&loop->mutex);
    if (is_to_ask(loop) || is_to_tell(loop))
        find_other(loop);
    keep_times(loop);
    pthread_mutex_unlock(&loop->mutex);
}

void loop_run(struct loop *loop, struct wait *wait)
{
    if (wait->running)
        return;
    heap_take(&wait->timed);
    wait->running = wait->due = true;
    TAILQ_INSERT_TAIL(&loop->due, wait, of_due);
    loop->due_count++;
    find_thread(loop);
    keep_times_of(loop, &loop->due);
}

void loop_ask(struct loop *loop, struct wait *wait)
{
    wait->running = wait->asking = true;
    TAILQ_INSERT_TAIL(&loop->asking, wait, of_due);
    loop->asking_count++;
    find_thread(loop);
    keep_times_of(loop, &loop->asking);
}

/* exchange.answered: the waiter soon goes on with the answer. */
static void go_on_with_answer(struct exchange *exchange)
{
    struct wait *wait = exchange->wait;
    struct loop *loop = &wait->lock->client->loop;
    pthread_mutex_lock(&loop->mutex);
    wait->has_answer = wait->due = true;
    TAILQ_INSERT_TAIL(&loop->due, wait, of_due);
    loop->due_count++;
    find_thread(loop);
    keep_times_of(loop, &loop->due);
    pthread_mutex_unlock(&loop->mutex);
}

void loop_put_off(struct loop *loop, struct wait *wait, int64_t ms)
{
    wait->running = false;
    wait->until_ns = mono_deadline_ns(ms);
    loop_time(loop, wait);
}

void loop_hasten(struct loop *loop, struct wait *wait)
{
    if (wait->running)
        return; /* it will look itself */
    heap_take(&wait->timed);
    wait->until_ns = 0;
    if (wait->only_looks)
        loop_time(loop, wait);
    else
        loop_run(loop, wait);
}

void loop_deliver(struct loop *loop, struct completion *completion)
{
    completion_put(&loop->client->completions, completion);
    if (loop->client->options.own_loop)
        return;
    pthread_mutex_lock(&loop->mutex);
    loop->over_count++;
    find_thread(loop);
    pthread_mutex_unlock(&loop->mutex);
}

bool loop_listens(void)
{
    return listens;
}

bool loop_may_ask(const struct loop *loop)
{
    return !listens && !others_wait && loop->due_count + loop->asking_count == 0;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Without the mutex. Goes on with what is due: an answer, or another look. */
static void loop_run_wait(struct wait *wait)
{
    if (!wait->has_answer) {
        wait->run(wait);
        return;
    }
    struct busy *busy = wait->exchange->busy;
    wait->has_answer = false;
    wait->answered(wait); /* it may have been freed by now */
    free(busy);
}

/* The mutex is held at call and return, and released between them. */
static void run_here(struct loop *loop, struct wait *wait)
{
    if (wait->running)
        return;
    wait->running = true;
    pthread_mutex_unlock(&loop->mutex);
    loop_run_wait(wait);
    pthread_mutex_lock(&loop->mutex);
}

/* The waiter's time or its cancel has come. If it is queued already, it stays there until
 * loop_end_ns. Otherwise it is queued, unless it needs no server. */
static void loop_go_on(struct loop *loop, struct wait *wait)
{
    bool queued = is_queued(wait);
    bool over = loop_end_ns(wait) <= mono_ns();
    if (queued && !over) {
        loop_keep_time(loop, wait);
        return;
    }
    if (queued) {
        take_out(loop, wait);
        wait->running = false;
    }
    if (queued || wait->state == WAIT_BEHIND || wait->only_looks || (over && all_are_kept(loop)))
        run_here(loop, wait);
    else
        loop_run(loop, wait);
}

static void run_timed(struct loop *loop)
{
    while (heap_soonest_ns(&loop->timed) <= mono_ns()) {
        struct wait *wait = HEAP_THING(loop->timed.first, struct wait, timed);
        heap_take(&wait->timed);
        loop_go_on(loop, wait);
    }
}

/* Finds waiters by the cancel's address. The cancel may have been freed, and another one may have
 * the same address. A waiter that has seen its cancel is no longer in the list. */
static struct wait *take_cancelled(struct loop *loop, const dlock_cancel *cancel)
{
    struct wait *wait;
    LIST_FOREACH(wait, cancel_bucket(loop, cancel), by_cancel) {
        if (wait->cancel != cancel || !cancel_requested(cancel))
            continue;
        LIST_REMOVE(wait, by_cancel);
        wait->cancelled = true;
        return wait;
    }
    return NULL;
}

static void run_cancelled(struct loop *loop, const dlock_cancel *cancel)
{
    struct wait *wait;
    while ((wait = take_cancelled(loop, cancel)) != NULL) {
        bool soon = wait->running && !wait->asking && wait->timed.in == NULL;
        if (soon || wait->state == WAIT_CHOSEN || wait->state == WAIT_GIVEN)
            continue; /* it will look itself */
        heap_take(&wait->timed);
        loop_go_on(loop, wait);
    }
}

/* If a forked child has the descriptor open as well, close() does not end the watch. EPOLL_CTL_DEL
 * does, on a descriptor that is still open. */
void loop_unwatch(struct loop *loop, struct watched *watched)
{
    if (watched->fd < 0)
        return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watched->fd, NULL);
    LIST_REMOVE(watched, of_loop);
    close(watched->fd);
    watched->fd = -1;
}

bool loop_watch(struct loop *loop, struct watched *watched, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watched};
    watched->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (watched->fd < 0)
        return false;
    LIST_INSERT_HEAD(&loop->watched, watched, of_loop);
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watched->fd, &event) == 0;
}

static struct watched *find_watched(const struct loop *loop, const void *what)
{
    struct watched *watched = LIST_FIRST(&loop->watched);
    while (watched != NULL && watched != what)
        watched = LIST_NEXT(watched, of_loop);
    return watched;
}

/* When the listening thread must wake. If work waits for a thread that could not be started,
 * another start is due then. */
static int64_t next_ns(const struct loop *loop)
{
    int64_t soonest_ns = heap_soonest_ns(&loop->timed);
    bool needs_thread = !has_spare(loop) && (is_to_ask(loop) || is_to_tell(loop));
    return needs_thread && loop->short_of_threads ? min_ns(soonest_ns, loop->thread_ns)
                                                  : soonest_ns;
}

static int sleep_ms(int64_t soonest_ns)
{
    if (soonest_ns == INT64_MAX)
        return -1;
    int64_t left_ns = soonest_ns - mono_ns();
    if (left_ns <= 0)
        return 0;
    return left_ns > 3600 * (int64_t)1000 * NS_PER_MS ? 3600 * 1000
                                                      : (int)((left_ns - 1) / NS_PER_MS + 1);
}

/* Listens once, and handles what has come. What must ask a server becomes due. */
static void loop_lead(struct loop *loop)
{
    struct epoll_event events[EVENTS_MAX];
    loop->client->engine->tend(loop->client);
    if (!has_spare(loop) && (is_to_ask(loop) || is_to_tell(loop)))
        find_other(loop); /* a listening thread that began to ask left this to the next one */
    keep_times(loop);
    bool sleeps =
        !loop_has_spare_thread(loop) && !may_tell(loop); /* `tend` may have woken waiters */
    int64_t soonest_ns = next_ns(loop);
    int timeout_ms = sleeps ? sleep_ms(soonest_ns) : 0;
    loop->sleeps_until_ns = sleeps ? soonest_ns : 0;
    pthread_mutex_unlock(&loop->mutex);
    int count = epoll_wait(loop->epoll_fd, events, EVENTS_MAX, timeout_ms);
    pthread_mutex_lock(&loop->mutex);
    loop->sleeps_until_ns = 0;
    for (int i = 0; i < count; i++) {
        void *what = events[i].data.ptr;
        struct watched *watched;
        uint64_t woken;
        if (what == loop)
            (void)!read(loop->wake_fd, &woken, sizeof woken);
        else if ((watched = find_watched(loop, what)) != NULL)
            watched->ready(watched);
        else
            run_cancelled(loop, what);
    }
    run_timed(loop);
}

/* ---- Work ------------------------------------------------------------------------------------ */

/* In the following functions, the mutex is held at call and return, and released between them. */
static void let_others(struct loop *loop)
{
    if (!loop->led || is_to_ask(loop) || is_to_tell(loop))
        find_other(loop);
    keep_times(loop);
    pthread_mutex_unlock(&loop->mutex);
}

static void run_first(struct loop *loop)
{
    struct wait *wait = TAILQ_FIRST(&loop->due);
    take_out(loop, wait);
    let_others(loop);
    loop_run_wait(wait);
    pthread_mutex_lock(&loop->mutex);
}

/* Takes the first waiter that asks, and waiters near it that may share its write. */
static size_t take_asking(struct loop *loop, struct wait *taken[EXCHANGES_MAX])
{
    struct wait *wait, *next;
    size_t count = 0, looked_at = 0;
    for (wait = TAILQ_FIRST(&loop->asking); wait != NULL && count < EXCHANGES_MAX; wait = next) {
        next = TAILQ_NEXT(wait, of_due);
        if (looked_at++ == 2 * (size_t)EXCHANGES_MAX)
            break;
        if (count > 0 && !exchange_shares(taken[0]->exchange, wait->exchange))
            continue;
        take_out(loop, wait);
        taken[count++] = wait;
    }
    return count;
}

/* Gives answers first to the waiters that acquired the lock: their validity is running. */
static void give_answers(struct wait *const *waits, struct exchange *const *exchanges, size_t count)
{
    bool given[EXCHANGES_MAX];
    size_t left = count;
    for (size_t i = 0; i < count; i++) {
        given[i] = exchanges[i]->status == DLOCK_OK;
        if (given[i])
            waits[i]->answered(waits[i]);
        left -= given[i];
    }
    for (size_t i = 0; i < count; i++)
        if (!given[i]) {
            others_wait = --left > 0;
            waits[i]->answered(waits[i]);
        }
}

/* For an engine that answers later: the waiters go on when they are answered. */
static void begin_exchanges(struct loop *loop, struct wait *const *waits,
                            struct exchange *const *exchanges, size_t count)
{
    struct exchange *begun[EXCHANGES_MAX];
    size_t begun_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct busy none = {0};
        exchanges[i]->wait = waits[i];
        exchanges[i]->answered = go_on_with_answer;
        exchanges[i]->busy = calloc(1, sizeof *exchanges[i]->busy);
        if (exchanges[i]->busy != NULL) {
            begun[begun_count++] = exchanges[i];
            continue;
        }
        exchanges[i]->busy = &none;
        exchange_set(exchanges[i], fail(DLOCK_NO_MEMORY, "out of memory"));
        waits[i]->answered(waits[i]);
    }
    if (begun_count > 0)
        exchange_begin(loop->client, begun, begun_count);
}

static void ask_together(struct loop *loop)
{
    struct wait *waits[EXCHANGES_MAX];
    struct exchange *exchanges[EXCHANGES_MAX];
    struct busy busy[EXCHANGES_MAX];
    size_t taken = take_asking(loop, waits);
    size_t count = 0;
    let_others(loop);
    for (size_t i = 0; i < taken; i++) {
        if (waits[i]->ask != NULL && !waits[i]->ask(waits[i]))
            continue;
        waits[count] = waits[i];
        exchanges[count] = waits[i]->exchange;
        exchanges[count]->busy = &busy[count];
        count++;
    }
    if (count > 0 && loop->client->engine->answers_later) {
        begin_exchanges(loop, waits, exchanges, count);
    } else if (count > 0) {
        trace_for(count == 1 ? exchanges[0]->hold->user : NULL);
        exchange_begin(loop->client, exchanges, count);
        trace_for(NULL);
        give_answers(waits, exchanges, count);
    }
    pthread_mutex_lock(&loop->mutex);
}

static void tell_first(struct loop *loop)
{
    loop->over_count--;
    let_others(loop);
    completion_deliver(&loop->client->completions);
    pthread_mutex_lock(&loop->mutex);
}

/* Work goes in rounds: all waiters that are due, then one write for those that ask. A due waiter
 * may ask by then, so more requests share the write. Neither kind can keep the other from its turn.
 */
static bool is_turn_of_due(struct loop *loop)
{
    if (loop->asking_count == 0 || loop->due_count == 0)
        loop->due_turns = loop->due_count;
    return loop->due_turns > 0;
}

static void do_next(struct loop *loop)
{
    if (loop_has_spare_thread(loop)) {
        loop->asker_count++;
        if (is_turn_of_due(loop)) {
            loop->due_turns--;
            run_first(loop);
        } else {
            loop->due_turns = loop->due_count;
            ask_together(loop);
        }
        loop->asker_count--;
    } else {
        loop->deliverer_count++;
        tell_first(loop);
        loop->deliverer_count--;
    }
}

/* Leader and followers: one thread listens. It handles what has come itself, and another thread
 * then listens. So work needs no switch of threads, and a thread always listens. */
static void *loop_serve(void *arg)
{
    struct loop *loop = arg;
    serves = loop;
    pthread_mutex_lock(&loop->mutex);
    while (!loop->stop) {
        if (loop_has_spare_thread(loop) || may_tell(loop)) {
            do_next(loop);
        } else if (!loop->led) {
            loop->led = listens = true;
            loop_lead(loop);
            loop->led = listens = false;
        } else {
            loop->idle_count++;
            pthread_cond_wait(&loop->work, &loop->mutex);
            loop->idle_count--;
        }
    }
    pthread_mutex_unlock(&loop->mutex);
    return NULL;
}

void loop_wake(struct loop *loop)
{
    uint64_t one = 1;
    (void)!write(loop->wake_fd, &one, sizeof one);
}

dlock_status loop_init(struct loop *loop, struct dlock_client *client)
{
    *loop = (struct loop){.client = client, .random_state = (uint32_t)mono_ns()};
    pthread_mutex_init(&loop->mutex, NULL);
    pthread_cond_init(&loop->work, NULL);
    TAILQ_INIT(&loop->due);
    TAILQ_INIT(&loop->asking);
    LIST_INIT(&loop->watched);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = loop};
    if (loop->epoll_fd >= 0 && loop->wake_fd >= 0 &&
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) == 0)
        return DLOCK_OK;
    return fail(DLOCK_NO_MEMORY, "no memory or descriptor is left for the client's loop");
}

dlock_status loop_start(struct loop *loop)
{
    while (loop->thread_count < LOOP_THREADS_LEAST)
        if (thread_begin(&loop->threads[loop->thread_count], loop_serve, loop))
            loop->thread_count++;
        else
            return fail(DLOCK_NO_MEMORY, "no thread is left for the client's loop");
    return DLOCK_OK;
}

void loop_stop(struct loop *loop)
{
    pthread_mutex_lock(&loop->mutex);
    loop->stop = true;
    pthread_cond_broadcast(&loop->work);
    pthread_mutex_unlock(&loop->mutex);
    loop_wake(loop);
    for (size_t i = 0; i < loop->thread_count; i++)
        pthread_join(loop->threads[i], NULL);
    while (!LIST_EMPTY(&loop->watched))
        loop_unwatch(loop, LIST_FIRST(&loop->watched));
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    if (loop->wake_fd >= 0)
        close(loop->wake_fd);
    pthread_cond_destroy(&loop->work);
    pthread_mutex_destroy(&loop->mutex);
}
