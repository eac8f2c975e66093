/* SPDX-License-Identifier: Apache-2.0
 *
 * See client.h.
 */
#include "client.h"

#include "contract.h"
#include "many.h"
#include "must.h"
#include "noise.h"

#include "child.h"

#include <dirent.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CAN_FORK false /* their runtimes cannot fork with several threads */
#else
#define CAN_FORK true
#endif

static bool in_phase(const struct self *self, enum phase phase)
{
    return atomic_load(&self->world->phase) == (int)phase;
}

static void pause_us(int us)
{
    usleep((unsigned)us);
}

/* ---- What a thread does ---------------------------------------------------------------------- */

static int64_t draw_wait(struct thread *thread)
{
    uint64_t *random = &thread->random;
    if (thread->self->plan->ordered)
        return ORDERED_WAIT_MS;
    if (thread->depth == 0 && chance(random, thread->self->plan->patient))
        return DLOCK_WAIT_FOREVER;
    int64_t most_ms = thread->self->plan->wait_ms[random_below(random, 3)];
    return (int64_t)random_below(random, (uint64_t)most_ms + 1);
}

static struct how draw_how(struct thread *thread)
{
    const struct plan *plan = thread->self->plan;
    uint64_t *random = &thread->random;
    struct how how = {.lock = (int)random_below(random, (uint64_t)plan->locks),
                      .wait_ms = draw_wait(thread)};
    if (chance(random, plan->named))
        how.owner_id =
            chance(random, 20) ? DLOCK_THIS_THREAD : 1 + random_below(random, plan->owners);
    if (chance(random, plan->shared))
        how.mode = DLOCK_SHARED;
    if (chance(random, plan->brief))
        how.ttl_ms = TTL_MS_LEAST + (int64_t)random_below(random, 50);
    how.rides = chance(random, plan->riding);
    if (chance(random, plan->limited))
        how.call_max_ms = 1 + (int64_t)random_below(random, 200);
    how.cancels = plan->weights[OP_CANCEL] > 0 && chance(random, 70);
    return how;
}

static void inside(struct thread *thread, dlock_hold *hold, struct call *call);

static void release(struct thread *thread, dlock_hold *hold, struct call *call, bool rides)
{
    if (chance(&thread->random, thread->self->plan->releases_started))
        hold_release_start(thread, hold, call, rides);
    else
        hold_release(thread, hold, call, rides);
}

/* Keeps it for another thread, or releases it. */
static void leave(struct thread *thread, dlock_hold *hold, struct call *call, bool rides)
{
    struct self *self = thread->self;
    if (!chance(&thread->random, self->plan->kept) || !hold_keep(self, hold, call))
        release(thread, hold, call, rides);
}

static void hold_once(struct thread *thread, const struct member *member, const struct how *how)
{
    struct self *self = thread->self;
    const struct visitor *visitor = thread->place != NULL ? self->plan->visitor : NULL;
    struct call *call;
    if (visitor != NULL)
        visitor->before(thread->place);
    dlock_hold *hold = hold_acquire(thread, member, member->locks[how->lock], how, &call);
    if (hold == NULL)
        return;
    if (visitor != NULL)
        visitor->enter(thread->place, hold, &call->visit);
    inside(thread, hold, call);
    if (visitor != NULL) {
        visitor->leave(thread->place, &call->visit);
        atomic_fetch_add(&self->world->refused, call->visit.written == WRITTEN_REFUSED);
    }
    if (member != &self->main)
        hold_release(thread, hold, call, how->rides);
    else
        leave(thread, hold, call, how->rides);
}

/* other: a client whose locks are among them, and which is closed afterwards; or NULL. */
static void many_once(struct thread *thread, const struct member *other, const struct how *how)
{
    struct many many;
    if (!many_acquire(thread, other, how, &many))
        return;
    size_t one = random_below(&thread->random, many.count);
    inside(thread, many.holds[one], many.call->parts[one]);
    for (size_t i = 0; i < many.count; i++) {
        size_t at = (one + i) % many.count;
        (other != NULL ? hold_release : leave)(thread, many.holds[at], many.call->parts[at],
                                               how->rides);
    }
}

static void stay(const struct thread *thread, dlock_hold *hold, struct call *call, int64_t ms)
{
    int64_t end_ns = boot_ns() + ms * NS_A_MS;
    sample(call, hold);
    while (boot_ns() < end_ns && !in_phase(thread->self, PHASE_CALM)) {
        pause_us(300);
        sample(call, hold);
    }
}

/* The critical section: sometimes longer than the TTL, sometimes with a nested one. */
static void inside(struct thread *thread, dlock_hold *hold, struct call *call)
{
    const struct plan *plan = thread->self->plan;
    uint64_t *random = &thread->random;
    int64_t ms = (int64_t)random_below(random, (uint64_t)plan->section_ms + 1);
    if (!plan->long_ttl && chance(random, plan->overdue))
        ms = plan->overdue_ms != 0 ? plan->overdue_ms : call->ttl_ms * 5 / 4;
    if (chance(random, 20))
        judge_lost_fd(thread->self, call, hold);
    bool nests = thread->depth < 3 && chance(random, plan->nesting);
    int64_t first_ms = nests ? (int64_t)random_below(random, (uint64_t)ms + 1) : ms;
    stay(thread, hold, call, first_ms);
    if (nests) {
        thread->depth++;
        struct how how = draw_how(thread);
        if (chance(random, 75)) {
            how.lock = call->lock;
            how.owner_id = call->owner_id;
        }
        if (plan->weights[OP_MANY] > 0 && chance(random, 25))
            many_once(thread, NULL, &how);
        else
            hold_once(thread, &thread->self->main, &how);
        thread->depth--;
    }
    stay(thread, hold, call, ms - first_ms);
}

static void use_another_client(struct thread *thread)
{
    struct member member;
    struct how how = draw_how(thread);
    if (how.wait_ms < 0)
        how.wait_ms = 20;
    if (!member_open(thread->self, &member, false))
        return;
    thread->depth = 3; /* only the process's main client nests */
    if (thread->self->plan->weights[OP_MANY] > 0 && chance(&thread->random, 50))
        many_once(thread, &member, &how);
    else
        hold_once(thread, &member, &how);
    thread->depth = 0;
    member_close(thread->self, &member);
}

/* The child has only this thread. Another thread of the parent may have locked self->mutex. */
static void be_a_child(struct thread *thread, dlock_hold *inherited)
{
    struct self *self = thread->self;
    struct member member;
    struct call *call;
    struct how how = draw_how(thread);
    how.cancels = false;
    how.wait_ms = how.wait_ms < 0 ? 20 : how.wait_ms;
    thread->number = CHILDS_THREAD;
    judge_inherited(self, inherited);
    if (!member_open(self, &member, false))
        _exit(1);
    dlock_hold *hold = hold_acquire(thread, &member, member.locks[how.lock], &how, &call);
    if (hold != NULL && (self->plan->long_ttl || chance(&thread->random, 50)))
        hold_release(thread, hold, call, false);
    _exit(0);
}

static void fork_once(struct thread *thread)
{
    struct call *call;
    struct how how = draw_how(thread);
    if (!CAN_FORK)
        return;
    how.wait_ms = 0;
    how.cancels = false;
    dlock_hold *hold =
        hold_acquire(thread, &thread->self->main, thread->self->main.locks[how.lock], &how, &call);
    pid_t child = child_fork();
    if (child == 0)
        be_a_child(thread, hold);
    if (hold != NULL)
        hold_release(thread, hold, call, false);
    int status = child_wait(child);
    if (status != 0)
        violation(thread->self->world, VIOLATION_DIED, "a forked child ended with %d", status);
}

static enum op draw_op(struct thread *thread)
{
    const int *weights = thread->self->plan->weights;
    int sum = 0;
    for (int i = 0; i < OP_COUNT; i++)
        sum += weights[i];
    int drawn = (int)random_below(&thread->random, (uint64_t)sum);
    enum op op = 0;
    while (drawn >= weights[op])
        drawn -= weights[op++];
    return op;
}

static void do_one(struct thread *thread)
{
    struct self *self = thread->self;
    enum op op = draw_op(thread);
    struct how how = draw_how(thread);
    struct kept kept;
    switch (op) {
    case OP_HOLD:
        hold_once(thread, &self->main, &how);
        break;
    case OP_START:
        hold_start(thread, &how, chance(&thread->random, self->plan->kept * 2));
        break;
    case OP_MANY:
        many_once(thread, NULL, &how);
        break;
    case OP_MANY_START:
        many_start(thread, &how, chance(&thread->random, self->plan->kept * 2));
        break;
    case OP_PASS:
        kept = hold_take(self);
        if (kept.hold != NULL)
            release(thread, kept.hold, kept.call, how.rides);
        break;
    case OP_CANCEL:
        cancel_one(self, &thread->random);
        break;
    case OP_BREAK:
        lock_break(thread, how.lock);
        break;
    case OP_INSPECT:
        lock_inspect(thread, how.lock);
        break;
    case OP_REOPEN:
        lock_reopen(thread, &how);
        break;
    case OP_CLIENT:
        use_another_client(thread);
        break;
    case OP_FORK:
        fork_once(thread);
        break;
    default:
        pause_us((int)random_below(&thread->random, 20000));
    }
}

static bool is_enough(const struct self *self)
{
    const struct world *world = self->world;
    int acquisitions = self->plan->acquisitions;
    return atomic_load(&world->call_count) >= CALLS_ENOUGH ||
           (acquisitions != 0 && atomic_load(&world->acquired) >= acquisitions &&
            atomic_load(&world->refused) >= self->plan->refused);
}

static void *run_thread(void *arg)
{
    struct thread *thread = arg;
    const struct self *self = thread->self;
    const struct visitor *visitor = self->plan->visitor;
    thread->place = visitor != NULL ? visitor->open(self->plan) : NULL;
    for (int i = 0; i < self->plan->calls && in_phase(self, PHASE_RUN) && !is_enough(self); i++)
        do_one(thread);
    if (thread->place != NULL)
        visitor->close(thread->place);
    atomic_fetch_sub(&thread->self->shared->busy, 1);
    atomic_fetch_sub(&thread->self->running, 1);
    return NULL;
}

/* ---- Threads that look on -------------------------------------------------------------------- */

/* The witness of stalls. It also samples the holds that no thread is using. */
static void *run_keeper(void *arg)
{
    struct self *self = arg;
    while (!atomic_load(&self->stop_keeper)) {
        witness_beat(&self->shared->witness);
        pause_us(1000);
        look_at_kept(self);
    }
    atomic_store(&self->shared->witness.beat_ns, 0);
    return NULL;
}

static void *run_loop(void *arg)
{
    struct self *self = arg;
    struct pollfd ready = {.fd = dlock_fd(self->main.client), .events = POLLIN};
    while (!atomic_load(&self->stop_loop)) {
        poll(&ready, 1, 10);
        dlock_process(self->main.client);
    }
    return NULL;
}

/* ---- What the process keeps for itself ------------------------------------------------------- */

struct resources {
    int descriptors, threads;
    size_t memory;
};

static int entries(const char *folder)
{
    int count = 0;
    DIR *open = opendir(folder);
    must(open != NULL);
    while (readdir(open) != NULL)
        count++;
    closedir(open);
    return count;
}

static struct resources measure(void)
{
    return (struct resources){.descriptors = entries("/proc/self/fd"),
                              .threads = entries("/proc/self/task"),
                              .memory = mallinfo2().uordblks};
}

static bool as_before(const struct resources *before, const struct resources *now)
{
    return now->descriptors <= before->descriptors && now->threads <= before->threads &&
           now->memory <= before->memory + 65536;
}

/* The kernel removes a thread shortly after it was joined. */
static void judge_resources(struct self *self, const struct resources *before)
{
    struct resources now = measure();
    for (int i = 0; i < 1000 && !as_before(before, &now); i++) {
        pause_us(1000);
        now = measure();
    }
    if (!as_before(before, &now))
        violation(self->world, VIOLATION_RESOURCE,
                  "process %d: %d descriptors (%d before), %d threads (%d), %zu bytes (%zu)",
                  self->process, now.descriptors, before->descriptors, now.threads, before->threads,
                  now.memory, before->memory);
}

/* ---- Its life -------------------------------------------------------------------------------- */

/* Waits until all calls are answered, and releases all holds. */
static void let_go(struct self *self, struct thread *threads, size_t count)
{
    struct thread here = {.self = self, .number = THREADS_MAX + 1};
    for (;;) {
        bool calm = !in_phase(self, PHASE_RUN);
        bool idle = atomic_load(&self->running) == 0 && atomic_load(&self->started) == 0;
        struct kept kept = calm ? hold_take(self) : (struct kept){NULL, NULL};
        if (kept.hold != NULL)
            hold_release(&here, kept.hold, kept.call, false);
        else if (calm && idle)
            break;
        else
            pause_us(1000);
    }
    for (size_t i = 0; i < count; i++)
        thread_wait(threads[i].id);
    atomic_store(&self->shared->let_go, true);
}

static void *ask_for_each(void *arg)
{
    struct thread *thread = arg;
    struct self *self = thread->self;
    for (int i = 0; i < self->plan->locks; i++)
        for (int shared = 0; shared <= (self->plan->rung->shared ? 1 : 0); shared++) {
            struct call *call;
            struct how how = {.lock = i,
                              .wait_ms = 2 * rest_bound_ms(self->plan) + 3000,
                              .mode = shared ? DLOCK_SHARED : DLOCK_EXCLUSIVE,
                              .rest = true};
            dlock_hold *hold = hold_acquire(thread, &self->main, self->main.locks[i], &how, &call);
            if (hold != NULL)
                hold_release(thread, hold, call, false);
        }
    atomic_store(&self->shared->asked, true);
    return NULL;
}

static bool all_have_asked(const struct self *self)
{
    for (int i = 0; i < PROCESSES_MAX; i++) {
        const struct process *process = &self->world->processes[i];
        if (process->pid != 0 && !process->over && !process->asked)
            return false;
    }
    return true;
}

/* Acquires free locks as long as others acquire, with owner names that it has used before. */
static void *come_and_go(void *arg)
{
    struct thread *thread = arg;
    struct self *self = thread->self;
    for (int i = 0; !all_have_asked(self); i++) {
        struct call *call;
        struct how how = {.lock = i % self->plan->locks, .owner_id = 1 + (uint64_t)i % 3};
        dlock_hold *hold =
            hold_acquire(thread, &self->main, self->main.locks[how.lock], &how, &call);
        if (hold != NULL)
            hold_release(thread, hold, call, false);
        pause_us(10000);
    }
    return NULL;
}

/* Each lock is free now. It must be acquired soon, even while others acquire and release it. */
static void rest(struct self *self)
{
    struct thread asks = {.self = self, .number = 0}, comes = {.self = self, .number = 1};
    asks.id = thread_start(ask_for_each, &asks);
    comes.id = thread_start(come_and_go, &comes);
    thread_wait(asks.id);
    thread_wait(comes.id);
}

static void live(struct self *self, bool fresh)
{
    const struct plan *plan = self->plan;
    bool own_loop = plan->own_loop[self->process];
    struct thread threads[THREADS_MAX];
    size_t count = fresh ? 0 : (size_t)plan->threads;
    pthread_t loop = 0;
    must(member_open(self, &self->main, own_loop));
    if (own_loop)
        loop = thread_start(run_loop, self);
    atomic_store(&self->running, (int)count);
    atomic_store(&self->shared->busy, (int)count);
    for (size_t i = 0; i < count; i++) {
        threads[i] = (struct thread){.self = self, .number = (int)i};
        threads[i].random = plan->seed * 64 + (uint64_t)self->process * THREADS_MAX + i;
        threads[i].id = thread_start(run_thread, &threads[i]);
    }
    let_go(self, threads, count);
    while (!in_phase(self, PHASE_REST))
        pause_us(1000);
    rest(self);
    atomic_store(&self->stop_loop, true);
    if (own_loop)
        thread_wait(loop);
    member_close(self, &self->main);
}

int client_main(void *arg)
{
    const struct client_start *start = arg;
    struct self *self = calloc(1, sizeof *self);
    close_range(3, UINT_MAX, 0); /* else what the proxy closes would stay open here */
    must(self != NULL);
    self->world = start->world;
    self->plan = start->plan;
    self->process = start->process;
    for (int i = 0; i < SERVERS_MOST; i++)
        self->urls[i] = start->urls[i];
    self->shared = &start->world->processes[start->process];
    pthread_mutex_init(&self->mutex, NULL);
    witness_beat(&self->shared->witness); /* the process may be stopped before that thread runs */
    pthread_t keeper = thread_start(run_keeper, self);
    struct member warm;
    if (member_open(self, &warm, false)) /* memory that the library and libc keep for ever */
        member_close(self, &warm);
    struct resources before = measure();
    noise_set(self->plan->noise, self->plan->noise_us);
    live(self, start->fresh);
    noise_set(0, 1);
    judge_resources(self, &before);
    atomic_store(&self->stop_keeper, true);
    thread_wait(keeper);
    pthread_mutex_destroy(&self->mutex);
    free(self);
    return 0;
}
