/* SPDX-License-Identifier: Apache-2.0
 *
 * See loop.h. Who listens never blocks but in epoll_wait; whatever asks a server is done when
 * another listens. A waiter whose time is over, or that was given the lock, has nothing to ask any
 * more: where all that ask are kept the listener goes on with it, so that servers that hang, and
 * threads with them, delay no answer; and another thread tells of it.
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
#define NO_THREAD_MS 100   /* after one could not be made, no other is tried for so long */
#define LONGEST_MS 3600000 /* somebody looks then, whatever is waited for */

/* ---- Moments --------------------------------------------------------------------------------- */

static void time_at(struct loop *loop, struct wait *wait, int64_t at_ns)
{
    heap_put(&loop->timed, &wait->timed, at_ns);
    if (at_ns >= loop->sleeps_until_ns)
        return;
    loop->sleeps_until_ns = at_ns; /* it is woken once */
    loop_wake(loop);
}

void loop_time(struct loop *loop, struct wait *wait)
{
    time_at(loop, wait, wait->until_ns);
}

/* ---- Waiters --------------------------------------------------------------------------------- */

/* Where those with that cancel are, and few others: one that is thrown must not be looked for among
 * all that wait. By Knuth's multiplication. */
static struct waits *with_cancel(struct loop *loop, const dlock_cancel *cancel)
{
    uint32_t hash = (uint32_t)((uintptr_t)cancel / sizeof(max_align_t)) * 2654435761U;
    return &loop->by_cancel[hash >> (32 - CANCEL_BITS)];
}

/* Its cancel is seen once; whoever joins later has it seen anew. */
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
        LIST_INSERT_HEAD(with_cancel(loop, wait->cancel), wait, by_cancel);
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

/* There is something to do that may wait for a server; that may be kept by the application. */
static bool is_to_ask(const struct loop *loop)
{
    return loop->due_count + loop->asking_count > 0 && loop->asker_count < LOOP_ASKERS_MAX;
}

static bool is_to_tell(const struct loop *loop)
{
    return loop->over_count > 0 && loop->deliverer_count < LOOP_DELIVERERS_MAX;
}

/* Besides those that may be kept one listens. */
static bool has_spare(const struct loop *loop)
{
    return loop->asker_count + loop->deliverer_count + 1 < loop->thread_count;
}

static bool loop_has_spare_thread(const struct loop *loop)
{
    return is_to_ask(loop) && has_spare(loop);
}

/* Where no more threads can be made, who listens tells. */
static bool may_tell(const struct loop *loop)
{
    return is_to_tell(loop) && (has_spare(loop) || loop->short_of_threads);
}

/* As few threads as needed: one that is through takes the next without sleeping, and what a thread
 * brings about itself it does itself. */
static _Thread_local const struct loop *serves;

/* The calling thread listens. */
static _Thread_local bool listens;

/* For the answers that the calling thread has. */
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

/* ---- Time of those that wait for a thread ---------------------------------------------------- */

/* All that ask are kept: nobody takes what is queued before one of them is through. */
static bool all_are_kept(const struct loop *loop)
{
    return loop->asker_count == LOOP_ASKERS_MAX || (loop->short_of_threads && !has_spare(loop));
}

/* When it must go on, though all that ask are kept; 0: at once, since it has nothing to ask. */
static int64_t loop_end_ns(const struct wait *wait)
{
    if (wait->state == WAIT_GIVEN)
        return wait->reads ? wait->ends_ns : 0;
    if (wait->cancelled)
        return 0;
    return wait->deadline_ns != 0 ? wait->deadline_ns : wait->ends_ns;
}

/* Not at once: most often one of those that ask is through by then. */
static void loop_keep_time(struct loop *loop, struct wait *wait)
{
    int64_t at_ns = loop_end_ns(wait);
    int64_t soon_ns = mono_deadline_ns(SOON_MS);
    int64_t latest_ns = mono_deadline_ns(LONGEST_MS);
    time_at(loop, wait, at_ns < soon_ns ? soon_ns : min_ns(at_ns, latest_ns));
}

/* The newest are the last, so that each is looked at once. */
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

/* exchange.answered: what asked goes on with that soon. */
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

/* Without the mutex. Goes on with what it is due for: an answer, or another look. */
static void loop_run_wait(struct wait *wait)
{
    if (!wait->has_answer) {
        wait->run(wait);
        return;
    }
    struct busy *busy = wait->exchange->busy;
    wait->has_answer = false;
    wait->answered(wait); /* it may be gone by now */
    free(busy);
}

/* The mutex is held at call and return, not in between. */
static void run_here(struct loop *loop, struct wait *wait)
{
    if (wait->running)
        return;
    wait->running = true;
    pthread_mutex_unlock(&loop->mutex);
    loop_run_wait(wait);
    pthread_mutex_lock(&loop->mutex);
}

/* Its moment has come, or its cancel. Who is queued is left there until it must go on; who has
 * something to ask is queued. */
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
    if (queued || wait->state == WAIT_BEHIND || (over && all_are_kept(loop)))
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

/* The address alone says whose it is: the cancel may be gone by now, and another be at its place.
 * One whose cancel was seen is not looked for again. */
static struct wait *take_cancelled(struct loop *loop, const dlock_cancel *cancel)
{
    struct wait *wait;
    LIST_FOREACH(wait, with_cancel(loop, cancel), by_cancel) {
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
            continue; /* it looks itself */
        heap_take(&wait->timed);
        loop_go_on(loop, wait);
    }
}

/* Closing a descriptor does not end its being watched where a forked child has it open, too: that
 * goes by one that is still there. */
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

/* Where somebody waits for a thread that could not be made, another try is due, too. */
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

/* Listens once, and sees to what has come; what asks a server is due then. */
static void loop_lead(struct loop *loop)
{
    struct epoll_event events[EVENTS_MAX];
    loop->client->engine->tend(loop->client);
    if (!has_spare(loop) && (is_to_ask(loop) || is_to_tell(loop)))
        find_other(loop); /* who became one that asks left it to this one */
    keep_times(loop);
    bool sleeps =
        !loop_has_spare_thread(loop) && !may_tell(loop); /* what `tend` begins may wake waiters */
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

/* ---- Doing ----------------------------------------------------------------------------------- */

/* Of all that follows: the mutex is held at call and return, not in between. */
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

/* The first that asks, and those near it that may share its write. */
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

/* First to those who have what they wanted: their time runs. */
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

/* They go on when they are answered. */
static void begin_exchanges(struct loop *loop, struct wait *const *waits,
                            struct exchange *const *exchanges, size_t count)
{
    struct exchange *begun[EXCHANGES_MAX];
    size_t begun_count = 0;
    for (size_t i = 0; i < count; i++) {
        exchanges[i]->wait = waits[i];
        exchanges[i]->answered = go_on_with_answer;
        exchanges[i]->busy = calloc(1, sizeof *exchanges[i]->busy);
        if (exchanges[i]->busy != NULL) {
            begun[begun_count++] = exchanges[i];
            continue;
        }
        exchange_set(exchanges[i], fail(DLOCK_NO_MEMORY, "out of memory"));
        exchange_answered(exchanges[i]);
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

/* In rounds: all that is due, then a write of what asks. What was due may ask by then, and so more
 * of it goes together; and neither keeps the other from its turn. */
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

/* Leader and followers: one thread listens. What comes it does itself, and another listens
 * meanwhile: so what has come is done without a switch of threads, and somebody listens always. */
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
    *loop = (struct loop){.client = client, .chance = (uint32_t)mono_ns()};
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
