/* SPDX-License-Identifier: Apache-2.0
 *
 * See check.h.
 */
#include "check.h"

#include "check_many.h"
#include "contract.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool acquires(const struct call *call)
{
    return call->what == WHAT_ACQUIRE || call->what == WHAT_START || is_many(call);
}

/* Whether it is about one lock that was to be acquired. */
static bool acquires_one(const struct call *call)
{
    return call->what == WHAT_PART || (acquires(call) && !is_many(call));
}

static bool was_held(const struct call *call)
{
    return acquires_one(call) && call->end_ns != 0 && call->status == DLOCK_OK;
}

size_t check_call_count(const struct world *world)
{
    size_t count = atomic_load(&world->call_count);
    return count < CALLS_MAX ? count : CALLS_MAX;
}

static size_t note_count(const struct world *world)
{
    size_t count = atomic_load(&world->note_count);
    return count < NOTES_MAX ? count : NOTES_MAX;
}

bool check_data_lost(const struct world *world)
{
    bool lost = false;
    for (size_t i = 0; i < note_count(world); i++)
        lost |= world->notes[i].written && world->notes[i].kind == NOTE_DATA_LOST;
    return lost;
}

/* Its number in the transcript. */
static int number(const struct world *world, const struct call *call)
{
    return (int)(call - world->calls);
}

static bool same_owner(const struct plan *plan, const struct call *a, const struct call *b)
{
    if (!plan->rung->reentrant || a->client != b->client || a->owner_id != b->owner_id)
        return false;
    bool by_thread = a->owner_id == DLOCK_THIS_THREAD ||
                     (a->owner_id == 0 && plan->rung->flawed); /* flawed rungs count by thread */
    return by_thread ? a->thread == b->thread : a->owner_id != 0;
}

/* ---- Excuses --------------------------------------------------------------------------------- *
 * After a break, or after the server lost its data, an older hold may stay valid for a while. It
 * ends with its next answer from the server, or with its time.
 */

/* Whether the acquire's request told the client about the hold. */
static bool asked_about(const struct plan *plan, const struct call *acquire,
                        const struct call *hold)
{
    return was_held(acquire) && !is_handed_on(plan) && plan->rung->reentrant &&
           acquire->client == hold->client && acquire->lock == hold->lock && hold->owner_id != 0 &&
           same_owner(plan, acquire, hold);
}

/* When the library surely knows what happened to the hold after `since_ns`. That is at the end of
 * the hold's time. Or at its second confirmed renewal, because the first one may have been sent
 * before. Or when another acquire of its owner was answered. */
static int64_t heard_ns(const struct world *world, const struct plan *plan, const struct call *hold,
                        int64_t since_ns)
{
    int64_t ttl_ms = is_handed_on(plan) ? plan->ttl_ms[hold->process] : hold->ttl_ms;
    int64_t end_ns = since_ns + ttl_ms * NS_A_MS;
    int renewals = 0;
    for (size_t i = 0; i < note_count(world); i++) {
        const struct note *here = &world->notes[i];
        if (!here->written || here->call != hold || here->kind != NOTE_RENEWED ||
            here->ns < since_ns)
            continue;
        if (++renewals == 2)
            end_ns = least(end_ns, here->ns);
    }
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *other = &world->calls[i];
        if (other->begin_ns > since_ns && asked_about(plan, other, hold))
            end_ns = least(end_ns, other->end_ns);
    }
    return end_ns;
}

/* CLOCK_REALTIME minus CLOCK_BOOTTIME. */
static int64_t since_boot_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec - boot_ns();
}

/* When the server gave the token, by the clock of the calls. */
static int64_t given_ns(uint64_t token)
{
    return (int64_t)token * 1000 - since_boot_ns();
}

#define GRANT_NUMBERS 1000 /* the most tokens of one grant by the server */

/* The first known hold that came from the same grant of the server to the client. */
static const struct call *first_of_grant(const struct world *world, const struct call *hold)
{
    const struct call *first = hold;
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *other = &world->calls[i];
        if (was_held(other) && other->client == hold->client && other->lock == hold->lock &&
            other->token < first->token && other->token > hold->token - GRANT_NUMBERS)
            first = other;
    }
    return first;
}

/* The earliest start of the hold's grant: its own call, or the grant from which it was handed off.
 * The token of that grant is the server's time in microseconds or more: a break, for example, skips
 * a thousand tokens. */
static int64_t origin_ns(const struct world *world, const struct plan *plan,
                         const struct call *hold)
{
    if (!is_handed_on(plan))
        return hold->begin_ns;
    const struct call *first = first_of_grant(world, hold);
    return least(first->begin_ns, given_ns(first->token));
}

struct loss {
    int64_t from_ns, to_ns; /* INT64_MAX: it may still happen */
};

/* Whether the note is of a loss of data. A fail-over loses what the former master acknowledged, as
 * long as it takes writes. */
static bool is_loss(const struct note *note, struct loss *loss)
{
    *loss = (struct loss){note->from_ns != 0 ? note->from_ns : note->ns, note->ns};
    return note->written && note->kind == NOTE_DATA_LOST;
}

/* The older hold began before the loss, and the newer one was acquired after it. */
static bool excused_by(const struct world *world, const struct plan *plan, const struct call *older,
                       const struct call *newer, struct loss loss, int64_t until_ns)
{
    return newer->end_ns >= loss.from_ns && older->origin_ns <= loss.to_ns &&
           (loss.to_ns == INT64_MAX || until_ns <= heard_ns(world, plan, older, loss.to_ns));
}

/* Whether a break or lost data explains that the older hold was valid until `until_ns`. After the
 * loss another client could acquire the lock, and the older holder learns of it only later. */
static bool is_excused(const struct world *world, const struct plan *plan, const struct call *older,
                       const struct call *newer, int64_t until_ns)
{
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *call = &world->calls[i];
        if (call->what != WHAT_BREAK || call->lock != older->lock)
            continue;
        bool known = call->end_ns != 0 && call->status == DLOCK_OK;
        struct loss loss = {call->begin_ns, known ? call->end_ns : INT64_MAX};
        if (excused_by(world, plan, older, newer, loss, until_ns))
            return true;
    }
    for (size_t i = 0; i < note_count(world); i++) {
        struct loss loss;
        if (is_loss(&world->notes[i], &loss) &&
            excused_by(world, plan, older, newer, loss, until_ns))
            return true;
    }
    return false;
}

/* ---- Losses ---------------------------------------------------------------------------------- */

static bool was_broken(const struct world *world, const struct call *hold, int64_t over_ns)
{
    for (size_t i = 0; i < check_call_count(world); i++)
        if (world->calls[i].what == WHAT_BREAK && world->calls[i].lock == hold->lock)
            return true;
    for (size_t i = 0; i < note_count(world); i++) {
        struct loss loss;
        if (is_loss(&world->notes[i], &loss) && loss.from_ns <= over_ns &&
            hold->origin_ns <= loss.to_ns)
            return true;
    }
    return false;
}

/* Checks an answer, or a sample, that says that the hold has ended. */
static void check_cut(struct world *world, const struct plan *plan, const struct call *call)
{
    const struct call *hold = call->what == WHAT_RELEASE ? call->of : call;
    int64_t over_ns = call != hold && call->status == DLOCK_LOST ? call->end_ns : hold->false_ns;
    if (over_ns != 0 && over_ns < hold->until_ns && !plan->rung->flawed &&
        !was_broken(world, hold, over_ns))
        violation(world, VIOLATION_CUT, "#%d of process %d was over %.1f ms before its time",
                  number(world, hold), hold->process, (double)(hold->until_ns - over_ns) / 1e6);
}

/* A call for several locks may say that one was lost only after a break, after a loss of data, or
 * when that one's time may be over. It had it at its begin at the earliest. Not judged: owners that
 * nest in older holds, and rungs and engines whose holds share an older time. */
static void check_lost_meanwhile(struct world *world, const struct plan *plan,
                                 const struct call *call)
{
    if (!is_many(call) || call->end_ns == 0 || call->status != DLOCK_LOST || call->owner_id != 0 ||
        call->missing >= call->part_count || is_handed_on(plan) || plan->engine != NULL)
        return;
    int64_t until_ns = call->begin_ns + (call->ttl_ms * 99 / 100 - 3) * NS_A_MS;
    if (call->end_ns < until_ns && !was_broken(world, call->parts[call->missing], call->end_ns))
        violation(world, VIOLATION_CUT, "#%d of process %d lost a lock after %.1f ms: %s",
                  number(world, call), call->process, (double)(call->end_ns - call->begin_ns) / 1e6,
                  call->error);
}

/* The last event of the hold before its loss, or of another hold of its owner. Of the holds that
 * share a key, only one gets events. NULL if there is none. */
static const struct note *told_before(const struct world *world, const struct plan *plan,
                                      const struct note *lost)
{
    const struct call *hold = lost->call;
    const struct note *last = NULL;
    for (const struct note *here = world->notes; here < world->notes + note_count(world); here++)
        if (here->written && here->call != NULL && here->ns < lost->ns && here->ns > hold->end_ns &&
            (here->call == hold ||
             (here->call->lock == hold->lock && same_owner(plan, here->call, hold))) &&
            (last == NULL || here->ns > last->ns))
            last = here;
    return last;
}

/* How much later a renewal may be after a failed one. After a silence the library expects answers
 * to take as long. A short hold then has no time for another attempt, and waits for its answer. */
static int64_t patience_ms(const struct world *world, const struct plan *plan,
                           const struct note *lost)
{
    for (const struct note *here = world->notes; here < world->notes + note_count(world); here++)
        if (here->written && here->kind == NOTE_RENEWAL_FAILED && here->ns < lost->ns &&
            here->process == lost->process)
            return plan->command_ms;
    return 0;
}

static void check_renewals(struct world *world, const struct plan *plan)
{
    /* another engine renews its session, not each hold */
    const bool checked =
        plan->rung->renewed && !plan->rung->flawed && strcmp(plan->rung->engine, "redis") == 0;
    for (size_t i = 0; i < note_count(world) && checked; i++) {
        const struct note *lost = &world->notes[i];
        const struct call *hold = lost->call;
        if (!lost->written || lost->kind != NOTE_LOST || lost->ns < hold->until_ns)
            continue; /* before its time, an answer of the server reports the loss */
        const struct note *told = told_before(world, plan, lost);
        bool failed = told != NULL && told->kind == NOTE_RENEWAL_FAILED;
        int64_t from_ns = told != NULL ? told->ns : hold->end_ns;
        int64_t stalled =
            lost->stalled_ns - (told != NULL ? told->stalled_ns : hold->stalled_begin_ns);
        int64_t over_ns = lost->ns - from_ns - 2 * stalled -
                          (renewal_ms(plan, hold->ttl_ms, failed) + SLACK_MS / 4) * NS_A_MS;
        if (over_ns > 0 && over_ns > patience_ms(world, plan, lost) * NS_A_MS)
            violation(world, VIOLATION_RENEWAL, "#%d of process %d: %.1f ms too late",
                      number(world, hold), hold->process, (double)over_ns / 1e6);
    }
}

/* ---- Exclusion and order --------------------------------------------------------------------- */

static bool exclude(const struct plan *plan, const struct call *a, const struct call *b)
{
    return (a->mode == DLOCK_EXCLUSIVE || b->mode == DLOCK_EXCLUSIVE) && !same_owner(plan, a, b);
}

static void check_overlap(struct world *world, const struct plan *plan, const struct call *a,
                          const struct call *b)
{
    int64_t from_ns = most(a->first_true_ns, b->first_true_ns);
    int64_t until_ns = least(a->last_true_ns, b->last_true_ns);
    if (a->first_true_ns == 0 || b->first_true_ns == 0 || from_ns >= until_ns ||
        !exclude(plan, a, b))
        return;
    /* The older one may be valid again later: a backup may hold what was broken since. */
    world->overlaps++;
    if (is_excused(world, plan, a, b, until_ns) || is_excused(world, plan, b, a, until_ns))
        world->excused++;
    else
        violation(world, VIOLATION_OVERLAP,
                  "%s: #%d of process %d and #%d of process %d were both valid for %.1f ms",
                  plan->names[a->lock], number(world, a), a->process, number(world, b), b->process,
                  (double)(until_ns - from_ns) / 1e6);
}

/* The call had the part's lock at its end. So it got it after the latest other hold that ended
 * before. */
static int64_t acquired_after_ns(const struct world *world, const struct plan *plan,
                                 const struct call *part)
{
    int64_t latest = part->begin_ns;
    for (size_t i = 0; i < check_call_count(world) && part->first_true_ns != 0; i++) {
        const struct call *other = &world->calls[i];
        if (other != part && other->lock == part->lock && was_held(other) &&
            exclude(plan, other, part) && other->last_true_ns < part->end_ns)
            latest = most(latest, other->last_true_ns);
    }
    return latest;
}

/* A call that got all had all at one instant. That was after it got the last. A lock that another
 * hold had from then to the call's end was lost before. */
static void check_instant(struct world *world, const struct plan *plan, const struct call *call)
{
    int64_t from_ns = call->begin_ns;
    if (!is_many(call) || call->end_ns == 0 || call->status != DLOCK_OK)
        return;
    for (size_t i = 0; i < call->part_count; i++) {
        if (was_broken(world, call->parts[i], call->end_ns))
            return;
        from_ns = most(from_ns, acquired_after_ns(world, plan, call->parts[i]));
    }
    for (size_t i = 0; i < call->part_count; i++) {
        const struct call *part = call->parts[i];
        for (size_t j = 0; j < check_call_count(world) && part->first_true_ns == 0; j++) {
            const struct call *other = &world->calls[j];
            if (other->lock == part->lock && was_held(other) && exclude(plan, other, part) &&
                other->first_true_ns != 0 && other->first_true_ns <= from_ns &&
                other->last_true_ns >= call->end_ns)
                violation(world, VIOLATION_MANY, "#%d of process %d never had %s with the others",
                          number(world, call), call->process, plan->names[part->lock]);
        }
    }
}

/* Whether a's grant came before b's. Holds that exclude each other were granted in the order in
 * which they were valid. Otherwise a's call must have ended before b's began. Not if a loss came
 * between. */
static bool came_before(const struct world *world, const struct plan *plan, const struct call *a,
                        const struct call *b)
{
    bool before = a->end_ns < b->begin_ns || (a->last_true_ns != 0 && exclude(plan, a, b) &&
                                              a->last_true_ns < b->first_true_ns);
    return before && !is_excused(world, plan, b, a, 0);
}

/* A server that restarts with a backup may have an unclaimed grant in it. It then gives that grant,
 * and its token, again. */
static bool is_of_backup(const struct world *world, const struct plan *plan,
                         const struct call *hold)
{
    int64_t granted_ns = given_ns(hold->token);
    for (size_t i = 0; i < note_count(world) && is_handed_on(plan); i++) {
        struct loss loss;
        if (is_loss(&world->notes[i], &loss) && granted_ns <= loss.to_ns &&
            loss.from_ns <= hold->end_ns)
            return true;
    }
    return false;
}

/* On an engine beside Redis a nested hold has the token of its owner's first hold. */
static bool shares_token(const struct plan *plan, const struct call *a, const struct call *b)
{
    return plan->engine != NULL && a->token == b->token && same_owner(plan, a, b);
}

static void check_tokens(struct world *world, const struct plan *plan, const struct call *a,
                         const struct call *b)
{
    if (!plan->rung->tokens || a->token == 0 || shares_token(plan, a, b))
        return;
    bool wrong = a->token == b->token || (a->token > b->token && came_before(world, plan, a, b)) ||
                 (a->token < b->token && came_before(world, plan, b, a));
    if (wrong && !is_of_backup(world, plan, a) && !is_of_backup(world, plan, b))
        violation(world, VIOLATION_TOKEN, "%s: #%d has token %llu, #%d has %llu",
                  plan->names[a->lock], number(world, a), (unsigned long long)a->token,
                  number(world, b), (unsigned long long)b->token);
}

/* Whether another section read the stock after this one had read it, and before this one wrote. */
static bool is_stale(struct call *const *held, size_t count, const struct call *call)
{
    for (size_t i = 0; i < count; i++) {
        const struct visit *mine = &call->visit, *its = &held[i]->visit;
        if (held[i] != call && held[i]->lock == call->lock && its->read_ns != 0 &&
            its->read_sent_ns > mine->read_ns && its->read_ns < mine->write_ns)
            return true;
    }
    return false;
}

static void check_visit(struct world *world, struct call *const *held, size_t count,
                        const struct call *call)
{
    const struct visit *visit = &call->visit;
    bool accepted = visit->written == WRITTEN_YES;
    if (visit->written == WRITTEN_NOT)
        return;
    bool stale = is_stale(held, count, call) || (accepted && visit->left != visit->found - 1);
    world->stale += stale;
    if (stale && accepted)
        violation(world, VIOLATION_STALE, "#%d of process %d read %lld, and its write left %lld",
                  number(world, call), call->process, visit->found, visit->left);
}

static void check_pairs(struct world *world, const struct plan *plan)
{
    size_t count = check_call_count(world), held_count = 0;
    struct call **held = calloc(count + 1, sizeof *held);
    for (size_t i = 0; held != NULL && i < count; i++)
        if (was_held(&world->calls[i]))
            held[held_count++] = &world->calls[i];
    for (size_t i = 0; i < held_count; i++)
        for (size_t j = i + 1; j < held_count; j++) {
            if (held[i]->lock != held[j]->lock)
                continue;
            check_overlap(world, plan, held[i], held[j]);
            check_tokens(world, plan, held[i], held[j]);
        }
    for (size_t i = 0; i < held_count; i++)
        check_visit(world, held, held_count, held[i]);
    free(held);
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* The mode that was asked for, of the lock that is missing if there were several. */
static enum dlock_mode asked_mode(const struct call *call)
{
    const bool misses = is_many(call) && call->missing < call->part_count;
    return misses ? call->parts[call->missing]->mode : call->mode;
}

static bool may_answer(const struct plan *plan, const struct call *call)
{
    switch (call->status) {
    case DLOCK_OK:
    case DLOCK_UNKNOWN:
    case DLOCK_UNREACHABLE:
    case DLOCK_REFUSED:
    case DLOCK_LIMIT:
        return true;
    case DLOCK_LOST:
        return call->what != WHAT_INSPECT && call->what != WHAT_BREAK;
    case DLOCK_BUSY:
        return acquires(call) && call->wait_ms == 0;
    case DLOCK_TIMED_OUT:
        return acquires(call) &&
               (call->wait_ms > 0 || is_many(call) || (call->wait_ms < 0 && call->call_max_ms > 0));
    case DLOCK_CANCELLED:
        return acquires(call) && call->cancelled_ns != 0;
    case DLOCK_UPGRADE:
        return acquires(call) && plan->rung->shared && asked_mode(call) == DLOCK_EXCLUSIVE;
    case DLOCK_UNSUPPORTED:
        return plan->rung->flawed;
    default:
        return false;
    }
}

static int64_t within_ns(const struct call *call, int64_t from_ns, int64_t begin_ns, int64_t end_ns)
{
    end_ns = least(end_ns != 0 ? end_ns : INT64_MAX, call->end_ns);
    return most(end_ns - most(begin_ns, from_ns), 0);
}

/* How long other holds lasted, from from_ns to the call's end. A waiter without a limit waits for
 * all of them. A call for several locks may have had this one from its begin on. */
static int64_t in_use_ns(const struct world *world, const struct call *call, int64_t from_ns)
{
    int64_t sum_ns = 0;
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *other = &world->calls[i];
        if (other == call || other->lock != call->lock)
            continue;
        if (other->what == WHAT_PART)
            sum_ns += within_ns(call, from_ns, other->begin_ns, other->end_ns);
        if (other->what == WHAT_RELEASE && other->of != call)
            sum_ns += within_ns(call, from_ns, other->of->end_ns, other->end_ns);
    }
    return sum_ns;
}

/* When the call must end, apart from stalls. */
/* ZooKeeper's client gives a connection up that has been silent for two thirds of its session. The
 * one before in the queue may have such a connection. */
static int64_t silence_ns(const struct plan *plan)
{
    int64_t longest_ms = 0;
    for (int i = 0; i < plan->processes && plan->engine != NULL; i++)
        longest_ms = most(longest_ms, plan->ttl_ms[i]);
    return longest_ms * NS_A_MS * 2 / 3;
}

/* What a call without a limit may wait for its lock, or for its locks one after another. */
static int64_t awaited_ns(const struct world *world, const struct plan *plan,
                          const struct call *call, int64_t from_ns)
{
    int64_t sum_ns = 0;
    for (size_t i = 0; i < call->part_count; i++)
        sum_ns += awaited_ns(world, plan, call->parts[i], from_ns);
    if (is_many(call))
        return sum_ns;
    return in_use_ns(world, call, from_ns) + rest_bound_ms(plan) * NS_A_MS + silence_ns(plan);
}

static int64_t latest_ns(const struct world *world, const struct plan *plan,
                         const struct call *call)
{
    int64_t calm_ns = atomic_load(&world->calm_ns);
    int64_t bound_ns = bound_ms(plan) * NS_A_MS;
    int64_t releases_ns = call->status != DLOCK_OK ? many_clients(call) * bound_ns : 0;
    if (call->what == WHAT_CLOSE)
        return call->begin_ns + bound_ns + plan->close_ms * NS_A_MS;
    if (!acquires(call))
        return call->begin_ns + bound_ns;
    int64_t latest = call->begin_ns + call->wait_ms * NS_A_MS + bound_ns;
    if (call->wait_ms < 0) {
        int64_t from_ns = most(call->begin_ns, calm_ns);
        latest = from_ns + awaited_ns(world, plan, call, from_ns) + bound_ns;
    }
    if (call->rest)
        latest = call->begin_ns + rest_bound_ms(plan) * NS_A_MS + silence_ns(plan);
    if (call->call_max_ms != 0)
        latest = least(latest, call->begin_ns + call->call_max_ms * NS_A_MS);
    if (call->cancelled_ns != 0)
        latest = least(latest, most(call->cancelled_ns, call->begin_ns) + bound_ns);
    return latest + releases_ns;
}

/* Whether another call of that client, the number `i`, was in its `done` then, and from when until
 * when, between from_ns and the call's end. */
static bool tells(const struct world *world, const struct call *call, size_t i, int64_t from_ns,
                  int64_t *begin_ns, int64_t *end_ns)
{
    const struct call *other = &world->calls[i];
    if (other == call || !other->has_done || other->client != call->client || other->end_ns == 0)
        return false;
    int64_t told_ns = atomic_load(&other->told_ns);
    *begin_ns = most(other->end_ns, from_ns);
    *end_ns = least(told_ns != 0 ? told_ns : INT64_MAX, call->end_ns);
    return *begin_ns < *end_ns;
}

/* How long, from from_ns to the call's end, no thread was free to call its `done`: each was in the
 * `done` of another call. A client has two, or the one that processes an own loop. */
static int64_t all_tell_ns(const struct world *world, const struct plan *plan,
                           const struct call *call, int64_t from_ns)
{
    int64_t sum_ns = 0;
    for (size_t i = 0; i < check_call_count(world); i++) {
        int64_t begin_ns, end_ns, other_begin_ns, other_end_ns;
        if (!tells(world, call, i, from_ns, &begin_ns, &end_ns))
            continue;
        if (plan->own_loop[call->process])
            sum_ns += end_ns - begin_ns;
        for (size_t j = 0; j < i && !plan->own_loop[call->process]; j++)
            if (tells(world, call, j, begin_ns, &other_begin_ns, &other_end_ns))
                sum_ns += most(least(end_ns, other_end_ns) - other_begin_ns, 0);
    }
    return sum_ns;
}

static void check_answer(struct world *world, const struct plan *plan, const struct call *call)
{
    const char *what = what_text(call->what);
    if (call->answers == 0) {
        if (!world->processes[call->process].killed)
            violation(world, VIOLATION_ANSWER, "%s #%d of process %d was never answered", what,
                      number(world, call), call->process);
        return;
    }
    if (call->answers > 1)
        violation(world, VIOLATION_ANSWER, "%s #%d was answered %d times", what,
                  number(world, call), call->answers);
    if (call->revived)
        violation(world, VIOLATION_REVIVED, "#%d of process %d", number(world, call),
                  call->process);
    if (call->what == WHAT_PART)
        return; /* its call is judged */
    int64_t due_ns = latest_ns(world, plan, call);
    int64_t over_ns = call->end_ns - due_ns - 2 * call->stalled_ns - SLACK_MS * NS_A_MS;
    if (over_ns > 0 && call->has_done) /* one for several locks waits for `done` after each */
        over_ns -= all_tell_ns(world, plan, call, is_many(call) ? call->begin_ns : due_ns);
    if (call->rest && acquires(call)) {
        bool could =
            call->stalled_ns < (call->end_ns - call->begin_ns) / 4; /* the machine let it */
        if ((call->status != DLOCK_OK && could) || over_ns > 0)
            violation(world, VIOLATION_STUCK, "#%d of process %d: %s after %lld ms at rest: %s",
                      number(world, call), call->process, dlock_status_name(call->status),
                      (long long)((call->end_ns - call->begin_ns) / NS_A_MS), call->error);
        return;
    }
    if (!may_answer(plan, call))
        violation(world, VIOLATION_ANSWER, "%s #%d answered %s: %s", what, number(world, call),
                  dlock_status_name(call->status), call->error);
    if (over_ns > 0 && !plan->rung->flawed)
        violation(world, VIOLATION_BOUND, "%s #%d of process %d took %lld ms, %lld too long", what,
                  number(world, call), call->process,
                  (long long)((call->end_ns - call->begin_ns) / NS_A_MS),
                  (long long)(over_ns / NS_A_MS));
}

/* Whether the call may have left the lock held. A cleanup in the background releases what a lost
 * request may have locked. A forked child ends without it. A client that closes tries it once more,
 * which may fail while faults go on. */
static bool may_be_left(const struct world *world, const struct call *call)
{
    if (!acquires_one(call) || strstr(call->error, "released in the background") == NULL)
        return false;
    if (call->thread == CHILDS_THREAD)
        return true;
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *close = &world->calls[i];
        if (close->what == WHAT_CLOSE && close->client == call->client && close->begin_ns != 0 &&
            close->begin_ns < atomic_load(&world->calm_ns))
            return true;
    }
    return false;
}

bool check_all_definite(const struct world *world, const struct plan *plan, int lock)
{
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *call = &world->calls[i];
        bool definite = call->answers == 1 && dlock_status_definite(call->status) &&
                        call->status != DLOCK_LOST &&
                        (call->what != WHAT_RELEASE || call->status == DLOCK_OK) &&
                        !may_be_left(world, call) && !many_may_leave(plan, call);
        if (call->lock == lock && !definite)
            return false;
    }
    return true;
}

void check_history(struct world *world, const struct plan *plan)
{
    for (size_t i = 0; i < check_call_count(world); i++)
        if (world->calls[i].begin_ns != 0) /* 0 if its process died just then */
            check_answer(world, plan, &world->calls[i]);
    for (size_t i = 0; i < check_call_count(world); i++)
        if (was_held(&world->calls[i]))
            world->calls[i].origin_ns = origin_ns(world, plan, &world->calls[i]);
    for (size_t i = 0; i < check_call_count(world); i++) {
        check_cut(world, plan, &world->calls[i]);
        check_lost_meanwhile(world, plan, &world->calls[i]);
    }
    check_renewals(world, plan);
    check_pairs(world, plan);
    for (size_t i = 0; i < check_call_count(world); i++)
        check_instant(world, plan, &world->calls[i]);
    check_many(world, plan);
}
