/* SPDX-License-Identifier: Apache-2.0
 *
 * See wait.h.
 */
#include "wait.h"

#include "client.h"
#include "owner.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NO_DESCRIPTOR_MS 10 /* polling interval if no descriptor is left for a wake-up */
#define UNSUBSCRIBED_MS 100 /* how soon to try again while there is no subscription */

static struct loop *loop_of(const struct dlock *lock)
{
    return &lock->client->loop;
}

static bool is_room_for(const struct wait *wait)
{
    const bool each = wait->lock->ops->contend == CONTEND_EACH;
    return wait->lock->queue.contenders < (each ? wait->contenders_max : 1);
}

static bool contends_with_each(const struct wait *wait)
{
    return wait->lock->ops->contend == CONTEND_EACH;
}

static int cancel_fd(const struct wait *wait)
{
    return wait->cancel != NULL ? wait->cancel->fd : -1;
}

/* ---- Waking a waiter ------------------------------------------------------------------------- */

void wait_due(struct wait *wait)
{
    uint64_t one = 1;
    if (wait->run != NULL)
        loop_run(loop_of(wait->lock), wait);
    else if (wait->wake_fd >= 0)
        (void)!write(wait->wake_fd, &one, sizeof one);
}

static void set_trying(struct wait *wait)
{
    wait->state = WAIT_TRYING;
    wait->trying_ns = mono_ns();
}

static void try_now(struct wait *wait)
{
    set_trying(wait);
    wait_due(wait);
}

/* Sleeps until until_ns, unless it is woken before. */
static void sleep_on(struct wait *wait, enum wait_state state, int64_t until_ns)
{
    wait->state = state;
    wait->until_ns = until_ns;
    if (wait->run == NULL)
        return;
    wait->running = false;
    loop_time(loop_of(wait->lock), wait);
}

/* Sleeps until until_ns, or until wait->until_ns if that is earlier. */
static void sleep_until_earlier(struct wait *wait, int64_t until_ns)
{
    heap_take(&wait->timed);
    sleep_on(wait, WAIT_SLEEPING, min_ns(until_ns, wait->until_ns));
    if (wait->run == NULL)
        wait_due(wait); /* its thread sleeps until the old time: woken, it reads the new one */
}

static bool is_for(const struct wait *wait, enum wake whom)
{
    return whom == WAKE_ALL || (whom == WAKE_READERS) == (wait->mode == DLOCK_SHARED);
}

/* The contenders: they are at the front of the queue, and few. */
#define EACH_CONTENDING(wait, queue)                                                               \
    for ((wait) = TAILQ_FIRST(&(queue)->waits); (wait) != NULL && (wait)->state != WAIT_BEHIND;    \
         (wait) = TAILQ_NEXT(wait, in_queue))

void wait_wake(struct dlock *lock, enum wake whom)
{
    struct wait *wait;
    lock->queue.wakes++;
    EACH_CONTENDING(wait, &lock->queue) {
        if (wait->state != WAIT_SLEEPING || !is_for(wait, whom))
            continue;
        wait->woken = true;
        try_now(wait);
        if (whom == WAKE_ONE)
            return;
    }
}

void wait_look_in(struct dlock *lock, int64_t ms)
{
    struct wait *wait;
    EACH_CONTENDING(wait, &lock->queue)
        if (wait->state == WAIT_SLEEPING && is_for(wait, WAKE_ONE)) {
            if (!wait->running) /* otherwise it is about to look */
                sleep_until_earlier(wait, mono_deadline_ns(ms));
            return;
        }
}

void wait_released(struct dlock *lock)
{
    pthread_mutex_lock(&loop_of(lock)->mutex);
    if (lock->woken_by == WAIT_POLL || lock->woken_by == WAIT_LOCAL)
        wait_wake(lock, WAKE_ONE); /* otherwise the server wakes them */
    pthread_mutex_unlock(&loop_of(lock)->mutex);
}

/* ---- The wait queue -------------------------------------------------------------------------- */

/* The hash bucket of the waiters of the owner with that number. As cancel_bucket in loop.c. */
static struct waits *number_bucket(const struct dlock *lock, uint64_t number)
{
    uint32_t address = (uint32_t)((uintptr_t)lock / sizeof(max_align_t));
    uint32_t hash = (address ^ (uint32_t)number) * 2654435761U;
    return &loop_of(lock)->by_owner[hash >> (32 - OWNER_BITS)];
}

static struct waits *owner_bucket(const struct dlock_hold *hold)
{
    return number_bucket(hold->lock, hold->number);
}

/* True: it is a contender at once; false: it stands behind the contenders. */
static bool enqueue(struct wait *wait)
{
    struct wait_queue *queue = &wait->lock->queue;
    if (owner_may_nest(wait->hold) && wait->by_owner.le_prev == NULL)
        LIST_INSERT_HEAD(owner_bucket(wait->hold), wait, by_owner);
    TAILQ_INSERT_TAIL(&queue->waits, wait, in_queue);
    const struct wait *before = TAILQ_PREV(wait, waits_in_queue, in_queue);
    if (!is_room_for(wait) || (before != NULL && before->state == WAIT_BEHIND))
        return false;
    queue->contenders++;
    set_trying(wait);
    wait->wakes_seen = queue->wakes;
    return true;
}

struct wait *wait_first(const struct dlock *lock)
{
    struct wait *wait;
    TAILQ_FOREACH(wait, &lock->queue.waits, in_queue)
        if (wait->state == WAIT_BEHIND)
            return wait;
    return NULL;
}

/* Makes the next waiters contenders while there is room. held_ms: how long the present holder's
 * hold is valid; a waiter may sleep so long, unless it is woken. 0: it tries at once. trying_ns:
 * since when the contenders before it have tried. */
static void move_up(struct dlock *lock, int64_t held_ms, int64_t trying_ns)
{
    struct wait_queue *queue = &lock->queue;
    struct wait *next;
    while ((next = wait_first(lock)) != NULL && is_room_for(next)) {
        queue->contenders++;
        if (held_ms == 0 || next->running) { /* running: its time or its cancel has come */
            try_now(next);
            next->trying_ns = min_ns(next->trying_ns, trying_ns);
            continue;
        }
        next->wakes_seen = queue->wakes;
        sleep_until_earlier(next, mono_deadline_ns(min_ns(queue->again_ms, held_ms + 2)));
    }
}

/* A waiter that stands behind the contenders leaves the queue. Perhaps only that one lacked room to
 * contend, and those behind it have room. */
static void leave_from_behind(struct wait *wait, enum wait_state state)
{
    TAILQ_REMOVE(&wait->lock->queue.waits, wait, in_queue);
    wait->state = state;
    move_up(wait->lock, 0, INT64_MAX);
}

/* Whether the release of the winner will wake this client's waiters, by a message or in this
 * process. */
static bool release_will_wake(const struct wait *winner)
{
    const struct dlock *lock = winner->lock;
    return lock->ops->contend == CONTEND_ONE_PER_CLIENT &&
           winner->wakes_seen == lock->queue.wakes && lock->queue.again_ms > 0 &&
           (lock->woken_by == WAIT_LOCAL || lock->subscribed);
}

static void dequeue(struct wait *wait, bool acquired)
{
    struct dlock *lock = wait->lock;
    enum wait_state state = wait->state;
    wait->state = WAIT_OUTSIDE;
    if (state == WAIT_OUTSIDE || state == WAIT_GIVEN || state == WAIT_LEFT)
        return;
    TAILQ_REMOVE(&lock->queue.waits, wait, in_queue);
    if (acquired && lock->holding->keeps_place)
        return;
    lock->queue.contenders--;
    if (wait->woken && !acquired && wait->mode == DLOCK_EXCLUSIVE && contends_with_each(wait))
        wait_wake(lock, WAKE_ONE); /* passes its wake-up on; readers are woken all together */
    move_up(lock, acquired && release_will_wake(wait) ? wait->holds_ms : 0,
            state == WAIT_TRYING && !acquired ? wait->trying_ns : INT64_MAX);
}

/* ---- Nesting --------------------------------------------------------------------------------- */

bool wait_nests(const struct wait *wait)
{
    return owner_may_nest(wait->hold) && wait->lock->holding->nests(wait->hold);
}

static bool is_for_owner(const struct wait *wait, const struct dlock_hold *hold)
{
    return wait->hold != hold && wait->lock == hold->lock && owner_is_same(wait->hold, hold);
}

/* Its turn has come, whatever it does now. */
static void turn_has_come(struct wait *wait)
{
    if (wait->state == WAIT_SLEEPING) {
        try_now(wait);
    } else if (wait->state == WAIT_TRYING) {
        wait->wakes_seen--;                  /* its answer may be older */
    } else if (wait->state == WAIT_BEHIND) { /* it leaves the queue, and tries at once */
        leave_from_behind(wait, WAIT_OUTSIDE);
        wait->until_ns = 0;
        wait_due(wait);
    }
}

/* A waiter that tried while its owner had the lock, and did not get it after that, may be behind
 * the contenders, and before them at the servers. */
static struct wait *find_behind(const struct dlock *lock, const char *owner)
{
    uint64_t number = owner_number(owner);
    struct wait *wait;
    if (number == 0)
        return NULL;
    LIST_FOREACH(wait, number_bucket(lock, number), by_owner)
        if (wait->lock == lock && wait->state == WAIT_BEHIND &&
            strcmp(wait->hold->owner, owner) == 0)
            return wait;
    return NULL;
}

void wait_wake_owner(struct dlock *lock, const char *owner)
{
    struct wait *wait;
    pthread_mutex_lock(&lock->mutex); /* one that begins an attempt writes its name */
    EACH_CONTENDING(wait, &lock->queue)
        if (strcmp(wait->hold->owner, owner) == 0)
            break;
    if (wait != NULL && wait->state == WAIT_BEHIND)
        wait = find_behind(lock, owner);
    pthread_mutex_unlock(&lock->mutex);
    if (wait == NULL) {
        lock->queue.wakes++; /* it may try outside the queue: it tries again */
        return;
    }
    wait->woken = true;
    turn_has_come(wait);
}

void wait_nest(const struct dlock_hold *hold)
{
    struct wait *wait;
    LIST_FOREACH(wait, owner_bucket(hold), by_owner)
        if (is_for_owner(wait, hold))
            turn_has_come(wait);
}

/* ---- Handing the lock off -------------------------------------------------------------------- */

static struct wait *wait_mark_chosen(struct wait *next)
{
    if (next == NULL)
        return NULL;
    next->state = WAIT_CHOSEN;
    heap_take(&next->timed);
    TAILQ_REMOVE(&next->lock->queue.waits, next, in_queue);
    return next;
}

struct wait *wait_choose(struct dlock *lock)
{
    return wait_mark_chosen(wait_first(lock));
}

struct wait *wait_choose_same(const struct dlock_hold *hold)
{
    struct wait *wait;
    LIST_FOREACH(wait, owner_bucket(hold), by_owner)
        if (wait->state == WAIT_BEHIND && is_for_owner(wait, hold))
            return wait_mark_chosen(wait);
    return NULL;
}

void wait_give(struct wait *chosen, bool has_it)
{
    struct wait_queue *queue = &chosen->lock->queue;
    if (has_it) {
        chosen->state = WAIT_GIVEN;
        wait_due(chosen);
        return;
    }
    TAILQ_INSERT_HEAD(&queue->waits, chosen, in_queue);
    try_now(chosen);
}

void wait_open(struct dlock *lock, bool queued, uint64_t wakes_seen)
{
    struct wait_queue *queue = &lock->queue;
    queue->contenders--;
    bool sleeps = queued && wakes_seen == queue->wakes && queue->again_ms > 0 && lock->subscribed;
    move_up(lock, sleeps ? lock->ttl_ms : 0, INT64_MAX);
}

/* ---- One waiter ------------------------------------------------------------------------------ */

static enum wait_next begin_queued(struct wait *wait)
{
    struct wait_queue *queue = &wait->lock->queue;
    if (wait->deadline_ns == 0 && (queue->contenders > 0 || queue->closed_until_ns > mono_ns()))
        return NEXT_BUSY; /* hand-off is in order: no request may overtake the waiters */
    if (!enqueue(wait))
        sleep_on(wait, WAIT_BEHIND, wait->deadline_ns);
    else if (queue->closed_until_ns <= mono_ns())
        return NEXT_TRY;
    else
        sleep_on(wait, WAIT_SLEEPING, min_ns(queue->closed_until_ns, wait->deadline_ns));
    return NEXT_SLEEP;
}

enum wait_next wait_begin(struct wait *wait)
{
    struct loop *loop = loop_of(wait->lock);
    if (cancel_requested(wait->cancel))
        return NEXT_CANCELLED;
    if (wait->deadline_ns == 0 && !wait->lock->holding->keeps_place)
        return NEXT_TRY;
    pthread_mutex_lock(&loop->mutex);
    wait->state = WAIT_OUTSIDE; /* perhaps WAIT_GIVEN, with a lock lost since */
    wait->wakes_seen = wait->lock->queue.wakes;
    enum wait_next next = wait->cancelled    ? NEXT_CANCELLED
                          : wait_nests(wait) ? NEXT_TRY
                                             : begin_queued(wait);
    pthread_mutex_unlock(&loop->mutex);
    return next;
}

/* Leaves under the mutex under which that was decided. Otherwise a hand-off could still choose this
 * waiter, and no waiter would have the lock. */
static enum wait_next wait_leave(struct wait *wait, enum wait_next why)
{
    const struct wait *first = TAILQ_FIRST(&wait->lock->queue.waits);
    if (wait->state == WAIT_BEHIND) {
        wait->trying_ns = first->state == WAIT_TRYING ? first->trying_ns : INT64_MAX;
        leave_from_behind(wait, WAIT_LEFT);
    }
    return why;
}

enum wait_next wait_look(struct wait *wait)
{
    struct loop *loop = loop_of(wait->lock);
    enum wait_next next = NEXT_SLEEP;
    pthread_mutex_lock(&loop->mutex);
    int64_t now_ns = mono_ns();
    if (wait->state == WAIT_GIVEN) {
        next = NEXT_ACQUIRED;
    } else if (wait->state == WAIT_CHOSEN) {
        wait->running = false;
    } else if (wait->cancelled) {
        next = wait_leave(wait, NEXT_CANCELLED);
    } else if (wait->deadline_ns != 0 && now_ns >= wait->deadline_ns) {
        next = wait_leave(wait, NEXT_TIMED_OUT); /* even if due: a try may block at a hung server */
    } else if (wait->state == WAIT_BEHIND ||
               (wait->state != WAIT_TRYING && now_ns < wait->until_ns)) {
        sleep_on(wait, wait->state, wait->until_ns);
    } else if (wait->lock->queue.closed_until_ns > now_ns) {
        sleep_on(wait, WAIT_SLEEPING, min_ns(wait->lock->queue.closed_until_ns, wait->deadline_ns));
    } else {
        wait->missed_wakeup = wait->state == WAIT_SLEEPING && wait->lock->subscribed;
        if (wait->state == WAIT_SLEEPING)
            set_trying(wait);
        wait->wakes_seen = wait->lock->queue.wakes;
        next = NEXT_TRY;
    }
    pthread_mutex_unlock(&loop->mutex);
    return next;
}

/* Half of the pause, plus a random part of it: 50 % to 150 %. Otherwise waiters that poll could
 * keep step, with one always just after the other. */
static int64_t wait_jitter(struct loop *loop, int64_t pause_ns)
{
    /* A linear congruential generator (Numerical Recipes' ranqd1): good enough for jitter. */
    loop->random_state = loop->random_state * 1664525U + 1013904223U;
    return pause_ns / 2 + pause_ns * (loop->random_state >> 16) / 65536;
}

/* The mutex is held. How long to sleep after a BUSY answer; 0: try again at once. */
static int64_t sleep_ns(struct wait *wait, const struct busy *busy)
{
    struct dlock *lock = wait->lock;
    int64_t again_ms = busy->again_ms > 0 ? busy->again_ms : lock->client->options.retry_ms;
    if (busy->kind == WAIT_LOCAL)
        lock->woken_by = WAIT_LOCAL;
    if (busy->kind != WAIT_POLL && busy->kind != WAIT_LOCAL &&
        !lock->client->engine->listen(lock, busy, wait->deadline_ns, cancel_fd(wait)) &&
        again_ms > UNSUBSCRIBED_MS)
        again_ms = UNSUBSCRIBED_MS;
    lock->queue.again_ms = again_ms;
    if (busy->kind == WAIT_POLL)
        return wait_jitter(loop_of(lock), again_ms * NS_PER_MS);
    return lock->queue.wakes == wait->wakes_seen ? again_ms * NS_PER_MS : 0;
}

enum wait_next wait_again(struct wait *wait, const struct busy *busy, bool nested)
{
    struct loop *loop = loop_of(wait->lock);
    if (wait->deadline_ns == 0)
        return NEXT_BUSY;
    if (cancel_requested(wait->cancel))
        return NEXT_CANCELLED;
    enum wait_next next = NEXT_SLEEP;
    pthread_mutex_lock(&loop->mutex);
    int64_t left_ns = sleep_ns(wait, busy);
    int64_t now_ns = mono_ns();
    /* Perhaps by what it waits for: behind the contenders it would not hear of that again. */
    const bool is_woken = left_ns == 0 && contends_with_each(wait);
    wait->woken = false; /* its attempt has used up the wake-up */
    if (wait->cancelled)
        next = NEXT_CANCELLED;
    else if (now_ns >= wait->deadline_ns)
        next = NEXT_TIMED_OUT;
    else if (wait->state == WAIT_OUTSIDE && !nested && !is_woken && !enqueue(wait))
        sleep_on(wait, WAIT_BEHIND, wait->deadline_ns);
    else if (left_ns == 0)
        next = NEXT_TRY;
    else if (wait->state == WAIT_OUTSIDE) /* nested: the queue waits for its owner's hold */
        sleep_on(wait, WAIT_OUTSIDE, min_ns(now_ns + left_ns, wait->deadline_ns));
    else
        sleep_on(wait, WAIT_SLEEPING, min_ns(now_ns + left_ns, wait->deadline_ns));
    pthread_mutex_unlock(&loop->mutex);
    return next;
}

/* Until when its thread may sleep; 0: not at all. Makes the descriptor that wakes it. */
static int64_t prepare_sleep(struct wait *wait)
{
    bool sleeps =
        wait->state == WAIT_BEHIND || wait->state == WAIT_SLEEPING || wait->state == WAIT_OUTSIDE;
    if (!sleeps && wait->state != WAIT_CHOSEN)
        return 0; /* it was woken before it could sleep */
    if (wait->wake_fd < 0)
        wait->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wait->wake_fd < 0)
        return mono_ns() + NO_DESCRIPTOR_MS * NS_PER_MS;
    return sleeps ? wait->until_ns : INT64_MAX;
}

void wait_sleep(struct wait *wait)
{
    struct loop *loop = loop_of(wait->lock);
    pthread_mutex_lock(&loop->mutex);
    int64_t until_ns = prepare_sleep(wait);
    pthread_mutex_unlock(&loop->mutex);
    int64_t left_ns = until_ns == INT64_MAX ? INT64_MAX : until_ns - mono_ns();
    if (left_ns <= 0)
        return;
    struct timespec left = timespec_of(left_ns);
    struct pollfd polls[] = {{.fd = wait->cancelled ? -1 : cancel_fd(wait), .events = POLLIN},
                             {.fd = wait->wake_fd, .events = POLLIN}};
    ppoll(polls, 2, until_ns == INT64_MAX ? NULL : &left, NULL);
    uint64_t count;
    if (polls[1].revents != 0)
        (void)!read(wait->wake_fd, &count, sizeof count);
    if (polls[0].revents == 0)
        return;
    pthread_mutex_lock(&loop->mutex);
    wait->cancelled = true;
    pthread_mutex_unlock(&loop->mutex);
}

void wait_end(struct wait *wait, bool acquired)
{
    struct loop *loop = loop_of(wait->lock);
    pthread_mutex_lock(&loop->mutex);
    dequeue(wait, acquired);
    if (wait->by_owner.le_prev != NULL)
        LIST_REMOVE(wait, by_owner);
    if (wait->run != NULL)
        loop_leave(loop, wait);
    pthread_mutex_unlock(&loop->mutex);
    if (wait->wake_fd >= 0)
        close(wait->wake_fd);
}
