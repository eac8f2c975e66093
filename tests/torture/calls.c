/* SPDX-License-Identifier: Apache-2.0
 *
 * See self.h.
 */
#include "self.h"

#include "contract.h"
#include "keys.h"
#include "must.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Clients --------------------------------------------------------------------------------- */

/* The acquisition of an event: of a call for several locks the part that the event names. */
static struct call *call_of(const struct self *self, const struct dlock_event *event)
{
    struct call *call = event->user;
    for (size_t i = 0; call != NULL && i < call->part_count; i++)
        if (strcmp(self->plan->names[call->parts[i]->lock], event->name) == 0)
            return call->parts[i];
    return call;
}

static void on_event(void *arg, const struct dlock_event *event)
{
    struct self *self = arg;
    static const enum note_kind kinds[] = {[DLOCK_EVENT_RENEWED] = NOTE_RENEWED,
                                           [DLOCK_EVENT_RENEWAL_FAILED] = NOTE_RENEWAL_FAILED,
                                           [DLOCK_EVENT_LOST] = NOTE_LOST};
    if ((size_t)event->kind < sizeof kinds / sizeof kinds[0])
        note(self->world, kinds[event->kind], self->process, call_of(self, event), "%s",
             event->reason);
}

static void on_point(void *arg, const char *rung, const char *point)
{
    struct self *self = arg;
    if (atomic_load(&self->world->phase) != PHASE_RUN || getpid() != self->shared->pid)
        return;
    int passed = atomic_fetch_add(&self->shared->points, 1) + 1;
    for (size_t i = 0; i < self->plan->fault_count; i++) {
        const struct fault *fault = &self->plan->faults[i];
        if (fault->at.process != self->process || fault->at.count != passed ||
            (fault->kind != FAULT_STOP_AT_POINT && fault->kind != FAULT_KILL_AT_POINT))
            continue;
        bool stop = fault->kind == FAULT_STOP_AT_POINT;
        note(self->world, NOTE_FAULT, self->process, NULL, "FAULT %s at %s.%s",
             fault_name(fault->kind), rung, point);
        if (!stop)
            atomic_store(&self->shared->killed, true);
        kill(getpid(), stop ? SIGSTOP : SIGKILL);
    }
}

static dlock *lock_open(const struct self *self, dlock_client *client, int number)
{
    const struct plan *plan = self->plan;
    const char *name = plan->names[number];
    dlock *lock = NULL;
    must(dlock_open(client, plan->rung->name, name, &lock) == DLOCK_OK);
    return lock;
}

bool member_open(struct self *self, struct member *member, bool own_loop)
{
    const struct plan *plan = self->plan;
    char user[16];
    snprintf(user, sizeof user, KEYS_USER "%d", self->process);
    struct dlock_options options = {.size = sizeof options,
                                    .engine = plan->engine,
                                    .servers = self->urls,
                                    .server_count = plan->sentinel ? 1 : (size_t)plan->servers,
                                    .sentinel_user = plan->sentinel ? user : NULL,
                                    .sentinel_password = plan->sentinel ? KEYS_PASSWORD : NULL,
                                    .connect_timeout_ms = plan->connect_ms,
                                    .command_timeout_ms = plan->command_ms,
                                    .ttl_ms = plan->ttl_ms[self->process],
                                    .retry_ms = plan->retry_ms,
                                    .connections_max = plan->connections_max,
                                    .allow_flawed = plan->rung->flawed,
                                    .on_event = on_event,
                                    .on_event_arg = self,
                                    .on_point = on_point,
                                    .on_point_arg = self,
                                    .contenders = plan->contenders,
                                    .own_loop = own_loop,
                                    .handoff_max = plan->handoff_max,
                                    .grant_ms = plan->grant_ms};
    *member = (struct member){.number = atomic_fetch_add(&self->world->clients, 1) + 1};
    struct call *call = call_begin(self->world, WHAT_OPEN, self->process, 0, 0);
    dlock_status status = dlock_client_open(&options, &member->client);
    call_end(self->world, call, status);
    for (int i = 0; i < plan->locks && status == DLOCK_OK; i++)
        member->locks[i] = lock_open(self, member->client, i);
    return status == DLOCK_OK;
}

void member_close(struct self *self, struct member *member)
{
    struct call *call = call_begin(self->world, WHAT_CLOSE, self->process, 0, 0);
    call->client = member->number;
    for (int i = 0; i < self->plan->locks; i++)
        dlock_close(member->locks[i]);
    dlock_client_close(member->client);
    call_end(self->world, call, DLOCK_OK);
}

/* ---- Cancels --------------------------------------------------------------------------------- */

/* Three of four calls share the cancel of another call, unless it was used already. */
dlock_cancel *cancel_offer(struct self *self, struct call *call)
{
    static const struct cancelling nobody;
    struct cancelling *place = NULL;
    const struct cancelling *other = &nobody;
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < CANCELS_MAX; i++)
        if (self->cancels[i].cancel == NULL)
            place = &self->cancels[i];
        else if (self->cancels[i].call->cancelled_ns == 0)
            other = &self->cancels[i];
    dlock_cancel *cancel = NULL;
    if (place != NULL && (call - self->world->calls) % 4 != 0)
        cancel = other->cancel;
    if (place != NULL && cancel == NULL)
        cancel = dlock_cancel_new();
    if (cancel != NULL)
        *place = (struct cancelling){cancel, call};
    pthread_mutex_unlock(&self->mutex);
    return cancel;
}

void cancel_withdraw(struct self *self, dlock_cancel *cancel, const struct call *call)
{
    bool shared = false;
    if (cancel == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < CANCELS_MAX; i++)
        if (self->cancels[i].cancel == cancel && self->cancels[i].call == call)
            self->cancels[i].cancel = NULL;
        else
            shared |= self->cancels[i].cancel == cancel;
    pthread_mutex_unlock(&self->mutex);
    if (!shared)
        dlock_cancel_free(cancel);
}

void cancel_one(struct self *self, uint64_t *random)
{
    size_t first = random_below(random, CANCELS_MAX);
    int64_t none = 0;
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < CANCELS_MAX; i++) {
        const struct cancelling *one = &self->cancels[(first + i) % CANCELS_MAX];
        if (one->cancel == NULL)
            continue;
        for (size_t j = 0; j < CANCELS_MAX; j++, none = 0)
            if (self->cancels[j].cancel == one->cancel)
                atomic_compare_exchange_strong(&self->cancels[j].call->cancelled_ns, &none,
                                               boot_ns());
        dlock_cancel_now(one->cancel);
        break;
    }
    pthread_mutex_unlock(&self->mutex);
}

/* ---- Acquire and release --------------------------------------------------------------------- */

dlock_batch *reads_new(bool rides)
{
    static const char *const read[] = {"GET", "app:sold"};
    dlock_batch *reads = rides ? dlock_batch_new() : NULL;
    if (reads != NULL)
        dlock_batch_add(reads, 2, read, NULL);
    return reads;
}

struct call *acquire_begin(struct thread *thread, const struct member *member, enum what what,
                           const struct how *how)
{
    struct self *self = thread->self;
    struct call *call = call_begin(self->world, what, self->process, thread->number, how->lock);
    call->client = member->number;
    call->owner_id = how->owner_id;
    call->mode = how->mode;
    call->wait_ms = how->wait_ms;
    call->call_max_ms = how->call_max_ms;
    call->rest = how->rest;
    call->ttl_ms = how->ttl_ms != 0 ? how->ttl_ms : self->plan->ttl_ms[self->process];
    call->own_ttl = how->ttl_ms != 0;
    return call;
}

struct dlock_want acquire_want(const struct self *self, struct call *call, dlock_batch *reads,
                               dlock_cancel *cancel)
{
    return (struct dlock_want){.size = sizeof(struct dlock_want),
                               .token = self->plan->asks_tokens,
                               .wait_ms = call->wait_ms,
                               .call_max_ms = call->call_max_ms,
                               .owner_id = call->owner_id,
                               .cancel = cancel,
                               .reads = reads,
                               .user = call,
                               .mode = call->mode,
                               .ttl_ms = call->own_ttl ? call->ttl_ms : 0};
}

void acquire_answered(struct self *self, struct call *call, dlock_status status, dlock_hold *hold)
{
    if (status == DLOCK_OK) {
        call->token = dlock_token(hold);
        snprintf(call->owner, sizeof call->owner, "%s", dlock_owner(hold));
        atomic_fetch_add(&self->world->acquired, 1);
        sample(call, hold);
    }
    call_end(self->world, call, status);
    if (status == DLOCK_OK && self->plan->asks_tokens && call->token == 0)
        violation(self->world, VIOLATION_TOKEN, "%s answered OK without a token",
                  what_text(call->what));
    if ((status == DLOCK_OK) != (hold != NULL))
        violation(self->world, VIOLATION_ANSWER, "%s answered %s with%s hold",
                  what_text(call->what), dlock_status_name(status), hold != NULL ? " a" : "out");
}

dlock_hold *hold_acquire(struct thread *thread, const struct member *member, dlock *lock,
                         const struct how *how, struct call **made)
{
    struct self *self = thread->self;
    struct call *call = acquire_begin(thread, member, WHAT_ACQUIRE, how);
    dlock_batch *reads = reads_new(how->rides);
    dlock_cancel *cancel = how->cancels ? cancel_offer(self, call) : NULL;
    struct dlock_want want = acquire_want(self, call, reads, cancel);
    dlock_hold *hold = NULL;
    if (how->wait_ms < 0)
        atomic_fetch_sub(&self->shared->busy, 1);
    dlock_status status = dlock_acquire(lock, &want, &hold);
    if (how->wait_ms < 0)
        atomic_fetch_add(&self->shared->busy, 1);
    acquire_answered(self, call, status, hold);
    cancel_withdraw(self, cancel, call);
    dlock_batch_free(reads);
    *made = call;
    return status == DLOCK_OK ? hold : NULL;
}

static dlock_batch *last_new(struct world *world, bool rides)
{
    static const char *const write[] = {"INCR", "app:sold"};
    dlock_batch *last = rides ? dlock_batch_new() : NULL;
    if (last != NULL) {
        dlock_batch_add(last, 2, write, NULL);
        atomic_fetch_add(&world->rides_sent, 1);
    }
    return last;
}

/* After the call's end: counts the command that rode, if it was answered. */
static void last_free(struct world *world, dlock_batch *last)
{
    struct dlock_reply reply = {.size = sizeof reply};
    if (dlock_batch_reply(last, 0, &reply) == DLOCK_OK && reply.kind == DLOCK_REPLY_INTEGER)
        atomic_fetch_add(&world->rides_answered, 1);
    dlock_batch_free(last);
}

static struct call *begin_release(struct thread *thread, dlock_hold *hold, struct call *call)
{
    struct self *self = thread->self;
    sample(call, hold);
    struct call *release =
        call_begin(self->world, WHAT_RELEASE, self->process, thread->number, call->lock);
    release->of = call;
    release->client = call->client;
    return release;
}

void hold_release(struct thread *thread, dlock_hold *hold, struct call *call, bool rides)
{
    struct world *world = thread->self->world;
    dlock_batch *last = last_new(world, rides);
    struct call *release = begin_release(thread, hold, call);
    call_end(world, release, dlock_release(hold, last));
    last_free(world, last);
}

/* A release that was started and has not completed. */
struct releasing {
    struct self *self;
    struct call *call;
    dlock_batch *last;
};

static void released(void *arg, dlock_status status, dlock_hold *hold)
{
    struct releasing *releasing = arg;
    struct self *self = releasing->self;
    struct call *call = releasing->call;
    call_end(self->world, call, status);
    if (hold != NULL)
        violation(self->world, VIOLATION_ANSWER, "a release was answered with a hold");
    last_free(self->world, releasing->last);
    free(releasing);
    atomic_store(&call->told_ns, boot_ns());
    atomic_fetch_sub(&self->started, 1);
}

void hold_release_start(struct thread *thread, dlock_hold *hold, struct call *call, bool rides)
{
    struct self *self = thread->self;
    struct releasing *releasing = calloc(1, sizeof *releasing);
    must(releasing != NULL);
    *releasing = (struct releasing){.self = self,
                                    .call = begin_release(thread, hold, call),
                                    .last = last_new(self->world, rides)};
    releasing->call->has_done = true;
    atomic_fetch_add(&self->started, 1);
    dlock_status status = dlock_release_start(hold, releasing->last, released, releasing);
    if (status == DLOCK_OK)
        return;
    must(status == DLOCK_UNSUPPORTED && self->plan->rung->flawed);
    releasing->call->has_done = false;
    call_end(self->world, releasing->call, dlock_release(hold, releasing->last));
    last_free(self->world, releasing->last);
    free(releasing);
    atomic_fetch_sub(&self->started, 1);
}

void judge_lost_fd(struct self *self, struct call *call, dlock_hold *hold)
{
    struct pollfd lost = {.fd = dlock_lost_fd(hold), .events = POLLIN};
    bool was_valid = sample(call, hold);
    bool readable = poll(&lost, 1, was_valid ? 0 : 1000) > 0;
    if (lost.fd >= 0 && readable != !dlock_valid(hold) && readable == was_valid)
        violation(self->world, VIOLATION_ANSWER, "#%d: the descriptor of its loss is %sreadable",
                  (int)(call - self->world->calls), readable ? "" : "not ");
}

/* An acquire that was started and has not completed. */
struct started {
    struct self *self;
    struct call *call;
    dlock_batch *reads;
    dlock_cancel *cancel;
    bool keep, rides, starts;
};

static void done(void *arg, dlock_status status, dlock_hold *hold)
{
    struct started *started = arg;
    struct self *self = started->self;
    struct call *call = started->call;
    struct thread here = {.self = self, .number = THREADS_MAX};
    acquire_answered(self, call, status, hold);
    cancel_withdraw(self, started->cancel, call);
    dlock_batch_free(started->reads);
    if (status == DLOCK_OK && (!started->keep || !hold_keep(self, hold, call)))
        (started->starts ? hold_release_start : hold_release)(&here, hold, call, started->rides);
    free(started);
    atomic_store(&call->told_ns, boot_ns());
    atomic_fetch_sub(&self->started, 1);
}

void hold_start(struct thread *thread, const struct how *how, bool keep)
{
    struct self *self = thread->self;
    struct started *started = calloc(1, sizeof *started);
    must(started != NULL);
    struct call *call = acquire_begin(thread, &self->main, WHAT_START, how);
    call->has_done = true;
    *started = (struct started){.self = self,
                                .call = call,
                                .reads = reads_new(how->rides),
                                .cancel = how->cancels ? cancel_offer(self, call) : NULL,
                                .keep = keep,
                                .rides = how->rides,
                                .starts = chance(&thread->random, self->plan->releases_started)};
    struct dlock_want want = acquire_want(self, call, started->reads, started->cancel);
    atomic_fetch_add(&self->started, 1);
    dlock_status status = dlock_acquire_start(self->main.locks[how->lock], &want, done, started);
    if (status == DLOCK_OK)
        return;
    call_end(self->world, call, status);
    cancel_withdraw(self, started->cancel, call);
    dlock_batch_free(started->reads);
    free(started);
    atomic_fetch_sub(&self->started, 1);
}

/* ---- Holds that are kept --------------------------------------------------------------------- */

bool hold_keep(struct self *self, dlock_hold *hold, struct call *call)
{
    bool kept = false;
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < KEPT_MAX && !kept; i++)
        if (self->kept[i].hold == NULL) {
            self->kept[i] = (struct kept){hold, call};
            kept = true;
        }
    pthread_mutex_unlock(&self->mutex);
    return kept;
}

struct kept hold_take(struct self *self)
{
    struct kept taken = {NULL, NULL};
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < KEPT_MAX && taken.hold == NULL; i++) {
        taken = self->kept[i];
        self->kept[i].hold = NULL;
    }
    pthread_mutex_unlock(&self->mutex);
    return taken;
}

void look_at_kept(struct self *self)
{
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < KEPT_MAX; i++)
        if (self->kept[i].hold != NULL)
            sample(self->kept[i].call, self->kept[i].hold);
    pthread_mutex_unlock(&self->mutex);
}

/* ---- Other calls ----------------------------------------------------------------------------- */

void lock_break(struct thread *thread, int lock)
{
    struct self *self = thread->self;
    struct dlock_holder broken = {.size = sizeof broken};
    struct call *call = call_begin(self->world, WHAT_BREAK, self->process, thread->number, lock);
    dlock_status status = dlock_break(self->main.locks[lock], &broken);
    snprintf(call->owner, sizeof call->owner, "%.90s", broken.owner);
    call_end(self->world, call, status);
}

void lock_inspect(struct thread *thread, int lock)
{
    struct self *self = thread->self;
    struct dlock_holder holder = {.size = sizeof holder};
    struct call *call = call_begin(self->world, WHAT_INSPECT, self->process, thread->number, lock);
    call_end(self->world, call, dlock_inspect(self->main.locks[lock], &holder));
}

void lock_reopen(struct thread *thread, const struct how *how)
{
    struct self *self = thread->self;
    struct call *call;
    dlock *lock = lock_open(self, self->main.client, how->lock);
    dlock_hold *hold = hold_acquire(thread, &self->main, lock, how, &call);
    if (hold != NULL)
        hold_release(thread, hold, call, false);
    dlock_close(lock);
}

void judge_inherited(struct self *self, dlock_hold *hold)
{
    dlock_hold *none = NULL;
    struct dlock_want want = {.size = sizeof want};
    if (dlock_acquire(self->main.locks[0], &want, &none) != DLOCK_FORKED ||
        (hold != NULL && (dlock_valid(hold) || dlock_release(hold, NULL) != DLOCK_FORKED)))
        violation(self->world, VIOLATION_ANSWER, "a forked child could use its parent's objects");
}
