/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the writes without an answer were carried out. The versions tell: each one up to that in
 * Redis was written by somebody. If only one write without an answer can have made a version, it
 * was carried out. What others read shows the balance of a version. So of several such writes those
 * remain that wrote this balance: a group, of which one was carried out. It is chosen so that no
 * transfer is torn, if possible. First follows what is certain. If that leaves a choice, all are
 * tried. If there are too many, one is taken, and what depends on it is marked as guessed.
 */
#include "account.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* A balance that an account had with that version. */
struct seen_balance {
    uint32_t item;
    int64_t version;
    int64_t balance;
};

/* Writes of which one was carried out. */
struct group {
    size_t first; /* index in the list of open ones */
    size_t count;
    size_t fits;            /* how many of them leave their transfer whole, as far as is decided */
    struct deposit *forced; /* the other part of its transfer was carried out; NULL */
    bool clash;             /* so was that of another one of them */
    bool decided;
    bool waits;  /* it is on the list of work */
    bool unsure; /* it depends on a guess, or is one */
};

struct fates {
    struct run *run;
    struct seen_balance *seen;
    size_t seen_count;
    struct deposit **list; /* all that may have been carried out, by item, version and balance */
    size_t count;
    struct deposit **open; /* by group */
    size_t open_count;
    struct group *groups;
    size_t group_count;
    size_t *work; /* numbers of groups */
    size_t work_count;
    size_t *trail; /* numbers of the groups that are decided, in their order */
    size_t trail_count;
    int64_t left; /* how many writes and groups the searches may still visit */
};

bool account_is_in(const struct deposit *deposit)
{
    return deposit->fate == FATE_CONFIRMED || deposit->fate == FATE_IN;
}

struct deposit *account_other(const struct run *run, const struct deposit *deposit)
{
    const struct errand *errand = &run->account->errands[deposit->request];
    const uint32_t other = errand->sights[deposit->to ? FROM : TO].deposit;
    return other == NONE ? NULL : &run->account->deposits[other];
}

/* ---- What was seen --------------------------------------------------------------------------- */

static int by_seen(const void *a, const void *b)
{
    const struct seen_balance *one = a;
    const struct seen_balance *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->version != two->version)
        return one->version < two->version ? -1 : 1;
    return (one->balance > two->balance) - (one->balance < two->balance);
}

static void find_seen(struct fates *fates)
{
    const struct run *run = fates->run;
    const struct account *account = run->account;
    fates->seen = memory_new(account->errand_count * SIGHTS + run->item_count, sizeof *fates->seen);
    for (size_t i = 0; i < account->errand_count * SIGHTS; i++) {
        const struct sight *sight = &account->errands[i / SIGHTS].sights[i % SIGHTS];
        if (sight->item != NONE && sight->read_ns != NOT_STAMPED)
            fates->seen[fates->seen_count++] =
                (struct seen_balance){sight->item, sight->version, sight->balance};
    }
    for (size_t i = 0; i < run->item_count; i++) {
        const struct redis_side *after = &run->items[i].redis[AFTER];
        if (after->stock != NOT_KNOWN)
            fates->seen[fates->seen_count++] =
                (struct seen_balance){(uint32_t)i, after->version, after->stock};
    }
    qsort(fates->seen, fates->seen_count, sizeof *fates->seen, by_seen);
}

/* Whether somebody saw that version; with `exactly` also with that balance. */
static bool was_seen(const struct fates *fates, const struct deposit *deposit, bool exactly)
{
    const struct seen_balance wanted = {deposit->item, deposit->version,
                                        exactly ? deposit->balance : INT64_MIN};
    size_t from = 0;
    size_t to = fates->seen_count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (by_seen(&fates->seen[middle], &wanted) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    const struct seen_balance *found = &fates->seen[from];
    return from < fates->seen_count && found->item == wanted.item &&
           found->version == wanted.version && (!exactly || found->balance == wanted.balance);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static int by_deposit(const void *a, const void *b)
{
    const struct deposit *one = *(const struct deposit *const *)a;
    const struct deposit *two = *(const struct deposit *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->version != two->version)
        return one->version < two->version ? -1 : 1;
    if (one->balance != two->balance)
        return one->balance < two->balance ? -1 : 1;
    return (one > two) - (one < two);
}

/* Whether its request says that nothing more was written: by the fence, or by a definite end. */
static bool is_definite(const struct run *run, const struct deposit *deposit)
{
    const enum outcome outcome = run->requests[deposit->request].outcome;
    return run->account->errands[deposit->request].refused_ns != NOT_STAMPED ||
           outcome == OUTCOME_REFUSED || outcome == OUTCOME_FAILED;
}

/* Whether Redis can have counted that version. */
static bool is_counted(const struct run *run, const struct deposit *deposit)
{
    const struct redis_side *redis = run->items[deposit->item].redis;
    return redis[BEFORE].stock == NOT_KNOWN || redis[AFTER].stock == NOT_KNOWN ||
           (deposit->version > redis[BEFORE].version && deposit->version <= redis[AFTER].version);
}

/* What is certain at once. One script writes both accounts, so if one write was answered, both were
 * carried out. */
static void find_first(struct fates *fates)
{
    struct run *run = fates->run;
    struct account *account = run->account;
    const bool together = strcmp(run->spec.write, "script") == 0;
    fates->list = memory_new(account->deposit_count, sizeof(struct deposit *));
    for (size_t i = 0; i < account->deposit_count; i++) {
        struct deposit *deposit = &account->deposits[i];
        const struct deposit *other = account_other(run, deposit);
        if (deposit->fate == FATE_OPEN && !deposit->denied && together && other != NULL &&
            other->fate == FATE_CONFIRMED)
            deposit->fate = FATE_IN;
        else if (deposit->fate == FATE_OPEN &&
                 (deposit->denied || is_definite(run, deposit) || !is_counted(run, deposit)))
            deposit->fate = FATE_OUT;
        if (deposit->fate != FATE_OUT && !deposit->denied)
            fates->list[fates->count++] = deposit;
    }
    qsort(fates->list, fates->count, sizeof(struct deposit *), by_deposit);
}

static void add_group(struct fates *fates, size_t first)
{
    const uint32_t number = (uint32_t)fates->group_count;
    if (first == fates->open_count)
        return;
    for (size_t i = first; i < fates->open_count; i++)
        fates->open[i]->group = number;
    fates->groups[fates->group_count++] =
        (struct group){.first = first, .count = fates->open_count - first};
}

/* Of writes of one version and one balance: the list from `from` up to `to`. */
static void divide_same(struct fates *fates, size_t from, size_t to, bool confirmed, bool seen)
{
    bool also = false; /* one of them is certain, so the others are not needed */
    for (size_t i = from; i < to; i++)
        also |= account_is_in(fates->list[i]);
    const bool out = also || (seen ? !was_seen(fates, fates->list[from], true) : confirmed);
    for (size_t i = from; i < to; i++) {
        if (fates->list[i]->fate != FATE_OPEN)
            continue;
        if (out)
            fates->list[i]->fate = FATE_OUT;
        else
            fates->open[fates->open_count++] = fates->list[i];
    }
}

/* Of writes of one version. A write whose balance nobody saw was not carried out, or another one
 * came over it at once. If nobody saw any, all of them are one group. */
static void divide(struct fates *fates, size_t from, size_t to)
{
    const bool seen = was_seen(fates, fates->list[from], false);
    bool confirmed = false;
    size_t first = fates->open_count;
    for (size_t i = from; i < to; i++)
        confirmed |= account_is_in(fates->list[i]);
    for (size_t i = from, end = from; i < to; i = end) {
        while (end < to && fates->list[end]->balance == fates->list[i]->balance)
            end++;
        divide_same(fates, i, end, confirmed, seen);
        if (seen || end == to) {
            add_group(fates, first);
            first = fates->open_count;
        }
    }
}

static void find_groups(struct fates *fates)
{
    fates->open = memory_new(fates->count, sizeof(struct deposit *));
    fates->groups = memory_new(fates->count, sizeof *fates->groups);
    for (size_t from = 0, to = 0; from < fates->count; from = to) {
        const struct deposit *first = fates->list[from];
        for (to = from; to < fates->count && fates->list[to]->item == first->item &&
                        fates->list[to]->version == first->version;)
            to++;
        divide(fates, from, to);
    }
}

/* ---- The choice ------------------------------------------------------------------------------ */

static void add_work(struct fates *fates, uint32_t group)
{
    if (fates->groups[group].decided || fates->groups[group].waits)
        return;
    fates->groups[group].waits = true;
    fates->work[fates->work_count++] = group;
}

static bool is_add(const struct run *run, const struct deposit *deposit)
{
    return run->account->errands[deposit->request].does == DOES_ADD;
}

static void force(struct group *group, struct deposit *deposit)
{
    group->clash |= group->forced != NULL && group->forced != deposit;
    if (group->forced == NULL)
        group->forced = deposit;
}

/* The fate of a write is decided: what that means for the other part of its transfer. */
static void follow(struct fates *fates, const struct deposit *deposit, bool unsure)
{
    struct deposit *other = account_other(fates->run, deposit);
    if (other == NULL || other->group == NONE)
        return;
    struct group *group = &fates->groups[other->group];
    group->unsure |= unsure;
    if (deposit->fate == FATE_OUT)
        group->fits--;
    else if (!group->decided)
        force(group, other);
    add_work(fates, other->group);
}

/* One of the group was carried out, so the others were not. That may decide other groups. */
static void choose(struct fates *fates, struct group *group, const struct deposit *chosen)
{
    group->decided = true;
    fates->trail[fates->trail_count++] = (size_t)(group - fates->groups);
    group->forced = NULL;
    for (size_t i = group->first; i < group->first + group->count; i++) {
        struct deposit *deposit = fates->open[i];
        deposit->fate = deposit == chosen ? FATE_IN : FATE_OUT;
        deposit->guessed = group->unsure;
        fates->run->account->guessed |= group->unsure && is_add(fates->run, deposit);
        follow(fates, deposit, group->unsure);
    }
    fates->left -= (int64_t)group->count;
}

/* Takes back all choices that came after the first `count`. */
static void undo(struct fates *fates, size_t count)
{
    while (fates->work_count > 0) {
        struct group *group = &fates->groups[fates->work[--fates->work_count]];
        group->waits = false;
        group->forced = NULL;
        group->clash = false;
    }
    while (fates->trail_count > count) {
        struct group *group = &fates->groups[fates->trail[--fates->trail_count]];
        group->decided = false;
        for (size_t i = group->first; i < group->first + group->count; i++) {
            const struct deposit *other = account_other(fates->run, fates->open[i]);
            if (fates->open[i]->fate == FATE_OUT && other != NULL && other->group != NONE)
                fates->groups[other->group].fits++;
            fates->open[i]->fate = FATE_OPEN;
        }
        fates->left -= (int64_t)group->count;
    }
}

/* Whether the rest of its request fits, if it was carried out. */
static bool may_be(const struct fates *fates, const struct deposit *deposit)
{
    const struct deposit *other = account_other(fates->run, deposit);
    return fates->run->account->errands[deposit->request].does != DOES_TRANSFER ||
           (other != NULL && other->fate != FATE_OUT);
}

/* What is known of the group before any choice. */
static void begin_group(struct fates *fates, struct group *group)
{
    for (size_t i = group->first; i < group->first + group->count; i++) {
        const struct deposit *other = account_other(fates->run, fates->open[i]);
        group->fits += may_be(fates, fates->open[i]);
        if (other != NULL && account_is_in(other))
            force(group, fates->open[i]);
    }
}

/* The one of the group that leaves its transfer whole; if there is none, the first one. */
static struct deposit *last_that_fits(const struct fates *fates, const struct group *group)
{
    for (size_t i = group->first; i < group->first + group->count; i++) {
        if (may_be(fates, fates->open[i]))
            return fates->open[i];
    }
    return fates->open[group->first];
}

/* Decides the group, if it is certain. False: whatever is chosen, a transfer is torn. */
static bool decide(struct fates *fates, struct group *group)
{
    const bool fine = !group->clash && group->fits > 0;
    group->clash = false;
    if (group->forced != NULL)
        choose(fates, group, group->forced);
    else if (group->fits <= 1)
        choose(fates, group, last_that_fits(fates, group));
    return fine;
}

/* Decides all that is certain. With `strict` it stops, and returns false, if a transfer is torn. */
static bool fates_work(struct fates *fates, bool strict)
{
    while (fates->work_count > 0) {
        struct group *group = &fates->groups[fates->work[--fates->work_count]];
        group->waits = false;
        if (!group->decided && !decide(fates, group) && strict)
            return false;
    }
    return true;
}

/* ---- The search ------------------------------------------------------------------------------ */

/* A larger search is given up: no transfer of it is called torn. */
enum { SEARCH_GROUPS = 64, SEARCH_STEPS = 20000 };
/* So is the rest, when the searches of a run have visited so many writes and groups. */
enum { SEARCH_VISITS = 50000000 };

/* Groups that depend on each other, and which of their writes is tried. */
struct search {
    struct group *groups[SEARCH_GROUPS];
    size_t count;
    struct level {
        struct group *group;
        size_t next;  /* which of its writes is tried next */
        size_t trail; /* how many choices came before */
    } levels[SEARCH_GROUPS];
    size_t depth;
};

static bool is_member(const struct search *search, const struct group *group)
{
    for (size_t i = 0; i < search->count; i++) {
        if (search->groups[i] == group)
            return true;
    }
    return false;
}

/* Finds all groups that depend on the first one. If one of them depends on a guess, all do. False:
 * there are too many. */
static bool search_gather(struct fates *fates, struct search *search, struct group *first)
{
    search->groups[0] = first;
    search->count = 1;
    search->depth = 0;
    for (size_t at = 0; at < search->count; at++) {
        const struct group *group = search->groups[at];
        fates->left -= (int64_t)group->count;
        for (size_t i = group->first; i < group->first + group->count; i++) {
            const struct deposit *other = account_other(fates->run, fates->open[i]);
            struct group *next =
                other == NULL || other->group == NONE ? NULL : &fates->groups[other->group];
            if (next == NULL || next->decided)
                continue;
            fates->left -= (int64_t)search->count;
            if (is_member(search, next))
                continue;
            if (search->count == SEARCH_GROUPS || fates->left <= 0)
                return false;
            search->groups[search->count++] = next;
        }
    }
    for (size_t i = 1; i < search->count; i++)
        first->unsure |= search->groups[i]->unsure;
    for (size_t i = 1; i < search->count; i++)
        search->groups[i]->unsure |= first->unsure;
    return true;
}

/* Goes a level down, to the first group that is not decided. False: all are. */
static bool search_descend(struct fates *fates, struct search *search)
{
    fates->left -= (int64_t)search->count;
    for (size_t i = 0; i < search->count; i++) {
        if (search->groups[i]->decided)
            continue;
        search->levels[search->depth++] = (struct level){search->groups[i], 0, fates->trail_count};
        return true;
    }
    return false;
}

enum found { FOUND_ALL, FOUND_NONE, FOUND_UNKNOWN };

/* Tries all choices until no transfer is torn. */
static enum found search_all(struct fates *fates, struct search *search)
{
    if (!search_descend(fates, search))
        return FOUND_ALL;
    for (size_t steps = 0; search->depth > 0; steps++) {
        struct level *level = &search->levels[search->depth - 1];
        undo(fates, level->trail);
        if (steps == SEARCH_STEPS || fates->left <= 0) {
            undo(fates, search->levels[0].trail);
            return FOUND_UNKNOWN;
        }
        if (level->next == level->group->count) {
            search->depth--;
            continue;
        }
        struct deposit *deposit = fates->open[level->group->first + level->next++];
        if (!may_be(fates, deposit))
            continue;
        choose(fates, level->group, deposit);
        if (fates_work(fates, true) && !search_descend(fates, search))
            return FOUND_ALL;
    }
    return FOUND_NONE;
}

/* Decides the groups that depend on this one. If every choice tears a transfer, one of them is
 * taken. */
static void decide_rest(struct fates *fates, struct search *search, struct group *group)
{
    enum found found = FOUND_UNKNOWN;
    if (fates->left > 0 && search_gather(fates, search, group))
        found = search_all(fates, search);
    if (found == FOUND_ALL)
        return;
    group->unsure |= found == FOUND_UNKNOWN;
    choose(fates, group, fates->open[group->first]);
    fates_work(fates, false);
}

/* One script wrote both accounts. So if one part of a transfer was carried out, the other was, too,
 * and another write came over it. That is certain only if no line can be missing. */
static void write_both(struct run *run)
{
    struct account *account = run->account;
    if (strcmp(run->spec.write, "script") != 0 || !account->whole)
        return;
    for (size_t i = 0; i < account->deposit_count; i++) {
        const struct deposit *deposit = &account->deposits[i];
        struct deposit *other = account_other(run, deposit);
        if (account_is_in(deposit) && other != NULL && other->fate == FATE_OUT &&
            !deposit->denied && !deposit->guessed && !other->denied && !other->guessed &&
            is_counted(run, other))
            other->fate = FATE_IN;
    }
}

void account_decide(struct run *run)
{
    struct fates fates = {.run = run};
    struct search *search = memory_new(1, sizeof *search);
    fates.left = SEARCH_VISITS;
    find_seen(&fates);
    find_first(&fates);
    find_groups(&fates);
    fates.work = memory_new(fates.group_count, sizeof *fates.work);
    fates.trail = memory_new(fates.group_count, sizeof *fates.trail);
    for (size_t i = 0; i < fates.group_count; i++)
        begin_group(&fates, &fates.groups[i]);
    for (size_t i = 0; i < fates.group_count; i++)
        add_work(&fates, (uint32_t)i);
    fates_work(&fates, false);
    for (size_t i = 0; i < fates.group_count; i++) {
        if (!fates.groups[i].decided)
            decide_rest(&fates, search, &fates.groups[i]);
    }
    write_both(run);
    free(search);
    free(fates.seen);
    free(fates.list);
    free(fates.open);
    free(fates.groups);
    free(fates.work);
    free(fates.trail);
}
