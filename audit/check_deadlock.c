/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlock, of two kinds.
 *
 * The first: a lock is held for ever. Waiters timed out, and no client acquired the lock after its
 * last grant. Its key in Redis never expires, and its holder cannot release it. The holder's
 * process died, its release was forgotten or did not arrive, or the acquire's reply was lost. A key
 * that expires counts too, if it is renewed though its holder is gone. A renewal after the
 * holder's end shows it, or a key that outlived its TTL.
 *
 * The second: a request waits for itself. It held the lock, asked for it again and was rejected,
 * though no other request held it meanwhile. If it held the read lock and asked for the write lock,
 * other readers may have held the read lock too.
 */
#include "check.h"
#include "memory.h"
#include "rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t max_ns(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What is known of an item's lock, or of that of a segment. It is not known at which segment's lock
 * a waiter timed out, so it counts for each of them. */
struct last {
    const struct section *grant;
    int64_t lost_ns;         /* a later acquire failed; it may have set the key */
    int64_t timeouts_behind; /* waiters that timed out after the grant */
    int64_t timeout_ns;      /* the last of them */
};

static bool is_back(const struct section *section)
{
    return section->stage == STAGE_RELEASE && !section->kept;
}

/* Whether `one` is the later grant. Of two readers, the one that did not release. */
static bool is_later(const struct section *one, const struct section *two)
{
    if (one->shared && two->shared && is_back(one) != is_back(two))
        return is_back(two);
    return one->at_ns[STAGE_GRANTED] > two->at_ns[STAGE_GRANTED];
}

/* How many locks an item may have. */
static size_t locks_of(const struct run *run)
{
    return run->segments == 0 ? SEGMENTS_MAX : run->segments;
}

static void add_request(const struct request *request, struct last *last)
{
    if (last->grant != NULL && request->outcome_ns <= last->grant->at_ns[STAGE_GRANTED])
        return;
    if (request->reason == REASON_LOCK_ERROR) {
        last->lost_ns = max_ns(last->lost_ns, request->outcome_ns);
        return;
    }
    last->timeouts_behind++;
    last->timeout_ns = max_ns(last->timeout_ns, request->outcome_ns);
}

static void find_last(const struct run *run, struct last *last)
{
    const size_t locks = locks_of(run);
    for (size_t i = 0; i < run->item_count * locks; i++)
        last[i] = (struct last){.lost_ns = NOT_STAMPED, .timeout_ns = NOT_STAMPED};
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        const size_t segment = run_share(run, section).segment;
        if (section->item == NONE || segment < 1 || segment > locks)
            continue;
        const struct section **grant = &last[section->item * locks + segment - 1].grant;
        if (*grant == NULL || is_later(section, *grant))
            *grant = section;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->item == NONE ||
            (request->reason != REASON_LOCK_TIMEOUT && request->reason != REASON_LOCK_BUSY &&
             request->reason != REASON_LOCK_ERROR))
            continue;
        uint32_t items[2] = {request->item, NONE};
        if (run->rules->waited_for != NULL)
            run->rules->waited_for(run, i, items);
        for (size_t lock = 0; lock < locks; lock++) {
            for (size_t j = 0; j < 2; j++) {
                if (items[j] != NONE)
                    add_request(request, &last[items[j] * locks + lock]);
            }
        }
    }
}

/* It left its section and did not release the lock. */
static bool left_with_it(const struct section *grant)
{
    return grant->stage == STAGE_EXIT || (grant->stage == STAGE_RELEASE && grant->kept);
}

/* Whether the lock was renewed after the exit. Then it is renewed as long as the process lives. */
static bool deadlock_is_renewed(const struct run *run, const struct section *grant)
{
    for (size_t i = 0; i < run->mark_count; i++) {
        const struct mark *mark = &run->marks[i];
        if (mark->kind == MARK_RENEW && mark->section != NONE &&
            &run->sections[mark->section] == grant && mark->t_ns > grant->at_ns[STAGE_EXIT])
            return true;
    }
    return false;
}

/* The latest time at which a client that is gone can have set the key. NOT_STAMPED: the holder may
 * still hold it. */
static int64_t gone_ns(const struct run *run, const struct last *last)
{
    const struct section *grant = last->grant;
    int64_t gone = last->lost_ns;
    if (grant != NULL && left_with_it(grant))
        gone = max_ns(gone, grant->at_ns[STAGE_EXIT]);
    else if (grant != NULL && grant->stage != STAGE_RELEASE && run->histories[grant->history].ended)
        return NOT_STAMPED;
    for (size_t i = 0; i < run->history_count; i++)
        if (!run->histories[i].ended)
            gone = max_ns(gone, run->histories[i].last_ns);
    return gone;
}

/* The key has a TTL, and exists after that TTL has passed: something renews it. */
static bool outlives_its_time(const struct run *run, const struct last *last)
{
    int64_t gone = gone_ns(run, last);
    return (last->grant != NULL && last->grant->stage == STAGE_EXIT &&
            deadlock_is_renewed(run, last->grant)) ||
           (gone != NOT_STAMPED && last->timeout_ns - gone > run->spec.ttl_ms * 1000000);
}

static bool owner_is_gone(const struct run *run, const struct last *last)
{
    if (last->lost_ns != NOT_STAMPED ||
        (last->grant != NULL && (last->grant->stage != STAGE_RELEASE || last->grant->kept)))
        return true;
    /* A process that died may have acquired it without a record. */
    for (size_t i = 0; i < run->history_count; i++) {
        if (!run->histories[i].ended)
            return true;
    }
    return false;
}

static int deadlock_by_grant(const void *a, const void *b)
{
    const struct section *one = *(const struct section *const *)a;
    const struct section *two = *(const struct section *const *)b;
    if (one->lock != two->lock)
        return one->lock < two->lock ? -1 : 1;
    int64_t one_ns = one->at_ns[STAGE_GRANTED];
    int64_t two_ns = two->at_ns[STAGE_GRANTED];
    return (one_ns > two_ns) - (one_ns < two_ns);
}

/* All grants, sorted by lock and time. other[i]: index of the next grant of another request. */
struct grants {
    const struct section **list;
    size_t *other;
    size_t count;
};

static struct grants sort_grants(const struct run *run)
{
    struct grants grants = {.list = memory_new(run->section_count, sizeof *grants.list),
                            .other = memory_new(run->section_count, sizeof *grants.other),
                            .count = run->section_count};
    for (size_t i = 0; i < grants.count; i++)
        grants.list[i] = &run->sections[i];
    qsort(grants.list, grants.count, sizeof *grants.list, deadlock_by_grant);
    for (size_t i = grants.count; i-- > 0;) {
        bool same = i + 1 < grants.count && grants.list[i]->request == grants.list[i + 1]->request;
        grants.other[i] = same ? grants.other[i + 1] : i + 1;
    }
    return grants;
}

/* Index of the lock's first grant at the time of the section's own grant, or later. */
static size_t find_grant(const struct grants *grants, const struct section *section)
{
    size_t from = 0;
    size_t to = grants->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (deadlock_by_grant(&grants->list[middle], &section) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Whether another request acquired the lock between the hold's grant and the rejection of its
 * second request for it. */
static bool was_elsewhere(const struct run *run, const struct grants *grants,
                          const struct section *section)
{
    size_t at = find_grant(grants, section);
    if (grants->list[at]->request == section->request)
        at = grants->other[at];
    return at < grants->count && grants->list[at]->lock == section->lock &&
           grants->list[at]->at_ns[STAGE_GRANTED] < run_again_ns(run, section);
}

static const struct section *find_self_wait(const struct run *run)
{
    const struct section *found = NULL;
    struct grants grants = sort_grants(run);
    for (size_t i = 0; i < run->section_count && found == NULL; i++) { /* one example is enough */
        const struct section *section = &run->sections[i];
        if (section->again != NONE && (section->shared || !was_elsewhere(run, &grants, section)))
            found = section;
    }
    free(grants.list);
    free(grants.other);
    return found;
}

static void check_self_wait(struct run *run)
{
    if (run->again_count == 0)
        return;
    const struct section *section = find_self_wait(run);
    if (section == NULL)
        return;
    run->self_wait = section;
    findings_add(&run->findings, RESULT_DEADLOCK,
                 "request %.60s waited for itself: it held the %slock of %.80s, asked for %s",
                 run_request_id(run, section->request), section->shared ? "read " : "",
                 section->item == NONE ? "an item" : run->items[section->item].name,
                 section->shared ? "the write lock while it kept that, and was refused in the end"
                                 : "it again, and was refused though nobody else held it");
}

/* What redis.json states about the lock of a segment, counted from 0. */
static struct redis_lock lock_after(const struct item *item, size_t segment)
{
    const struct redis_side *after = &item->redis[AFTER];
    if (after->lock_count > 0)
        return segment < after->lock_count ? after->locks[segment]
                                           : (struct redis_lock){.there = false};
    return (struct redis_lock){after->lock_there && segment == 0, after->lock_pttl_ms};
}

/* Whether the item's lock is held for ever. */
static bool is_stuck(const struct run *run, struct redis_lock after, const struct last *last)
{
    if (last->timeouts_behind == 0 || !after.there) /* NOLINT: each item is there */
        return false;
    if (after.pttl_ms == -1)
        return true; /* the run is over and the key was not deleted */
    return owner_is_gone(run, last) && outlives_its_time(run, last);
}

static void tell_stuck(struct run *run, const struct item *item, size_t segment,
                       const struct last *last)
{
    char which[32] = "";
    char who[96] = "no history names its holder";
    if (locks_of(run) > 1)
        snprintf(which, sizeof which, "segment %zu of ", segment + 1);
    if (last->grant != NULL)
        snprintf(who, sizeof who, "nobody acquired it after request %.60s",
                 run_request_id(run, last->grant->request));
    findings_add(&run->findings, RESULT_DEADLOCK,
                 "the lock of %s%.80s is held for ever: %s, requests that %s: %lld, and %s", which,
                 item->name, who,
                 strcmp(run->spec.on_conflict, "wait") == 0 ? "timed out waiting for it"
                                                            : "did not get it",
                 (long long)last->timeouts_behind,
                 lock_after(item, segment).pttl_ms != -1
                     ? "its key is renewed though its holder is gone, and would have expired"
                     : "its key never expires");
}

void check_deadlock(struct run *run)
{
    check_self_wait(run);
    const size_t locks = locks_of(run);
    struct last *last = memory_new(run->item_count * locks, sizeof *last);
    find_last(run, last);
    for (size_t i = 0; i < run->item_count * locks && run->stuck == NULL; i++) {
        const struct item *item = &run->items[i / locks]; /* one example is enough */
        if (!is_stuck(run, lock_after(item, i % locks), &last[i]))
            continue;
        tell_stuck(run, item, i % locks, &last[i]);
        run->stuck = item;
        run->stuck_grant = last[i].grant;
    }
    free(last);
}
