/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks of an account. Each version of it is written once, from that in Redis before the run
 * to that after it. So the versions tell which writes were carried out: those that were answered,
 * and some of the others, see fates.c. Then the sums must fit: of each account, and of all.
 */
#include "account.h"
#include "check.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What was written ------------------------------------------------------------------------ */

/* When it was carried out, at the latest that is known. */
static int64_t done_ns(const struct deposit *deposit)
{
    return deposit->wrote_ns != NOT_STAMPED ? deposit->wrote_ns : deposit->t_ns;
}

static int by_version_time(const void *a, const void *b)
{
    const struct deposit *one = *(const struct deposit *const *)a;
    const struct deposit *two = *(const struct deposit *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->version != two->version)
        return one->version < two->version ? -1 : 1;
    if (done_ns(one) != done_ns(two))
        return done_ns(one) < done_ns(two) ? -1 : 1;
    return (one > two) - (one < two);
}

/* The writes that were carried out, by item, version and time. */
static struct deposit **account_written(const struct run *run, size_t *count)
{
    struct account *account = run->account;
    struct deposit **list = memory_new(account->deposit_count, sizeof(struct deposit *));
    *count = 0;
    for (size_t i = 0; i < account->deposit_count; i++) {
        struct deposit *deposit = &account->deposits[i];
        if (account_is_in(deposit) && !deposit->denied)
            list[(*count)++] = deposit;
    }
    qsort(list, *count, sizeof(struct deposit *), by_version_time);
    return list;
}

static bool is_redis_told(const struct item *item)
{
    return item->redis[BEFORE].stock != NOT_KNOWN && item->redis[AFTER].stock != NOT_KNOWN;
}

/* Whether a client was told of a success that no history has. */
static bool lacks_an_answer(const struct run *run)
{
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->sampled && request->client_code == 200 && request->outcome == OUTCOME_NONE)
            return true;
    }
    return false;
}

/* Whether redis.json fits run.json and what was read. Otherwise it proves nothing. */
static bool account_is_sound(const struct run *run)
{
    for (size_t i = 0; i < run->item_count; i++) {
        const int64_t began = run->items[i].redis[BEFORE].stock;
        if (began != NOT_KNOWN && began != run->items[i].stock)
            return false;
    }
    return run->account->explained;
}

static bool is_whole(const struct run *run)
{
    for (size_t i = 0; i < run->item_count; i++) {
        if (!is_redis_told(&run->items[i]))
            return false;
    }
    return account_is_sound(run) && !run->truncated && run_all_told(run, false) &&
           !lacks_an_answer(run);
}

static void show(struct run *run, uint32_t first, uint32_t second)
{
    if (first == NONE || run->shown.first != NULL)
        return;
    run->shown.first = &run->sections[first];
    run->shown.second = second == NONE ? NULL : &run->sections[second];
}

/* ---- Lost updates ---------------------------------------------------------------------------- */

static void tell_lost(struct run *run, const struct deposit *lost, const struct deposit *over)
{
    const struct account *account = run->account;
    const struct deposit *both[] = {lost, over};
    char text[2][160];
    for (size_t i = 0; i < 2; i++)
        snprintf(text[i], sizeof text[i], "request %.60s on %.40s wrote %lld (%+lld)",
                 run_request_id(run, both[i]->request),
                 run->spec.instances[run->requests[both[i]->request].instance],
                 (long long)both[i]->balance, (long long)(both[i]->balance - both[i]->before));
    findings_add(
        &run->findings, RESULT_UNBALANCED,
        "updates that were lost: %lld; first: as version %lld of %.60s %s, and then %s. The "
        "second one overwrote the first one's %+lld",
        (long long)account->lost, (long long)lost->version, run->items[lost->item].name, text[0],
        text[1], (long long)(lost->balance - lost->before));
    show(run, lost->section, over->section);
}

/* Which balance an account had with the version of list[last], after all writes of it: the next
 * writer read it, or Redis has it in the end. NOT_KNOWN if no record tells. */
static int64_t final_balance(const struct run *run, struct deposit *const *list, size_t count,
                             size_t last)
{
    const struct deposit *deposit = list[last];
    const struct redis_side *after = &run->items[deposit->item].redis[AFTER];
    if (last + 1 < count && list[last + 1]->item == deposit->item &&
        list[last + 1]->version == deposit->version + 1)
        return list[last + 1]->before;
    return after->version == deposit->version ? after->stock : NOT_KNOWN;
}

/* Of writes of one version, the one that stayed comes last. The stamps of their answers need not
 * show it. */
static void put_last(const struct run *run, struct deposit **list, size_t count, size_t from,
                     size_t last)
{
    const int64_t balance = final_balance(run, list, count, last);
    if (balance == NOT_KNOWN || list[last]->balance == balance)
        return;
    for (size_t i = last; i-- > from;) {
        if (list[i]->balance != balance)
            continue;
        struct deposit *stayed = list[i];
        memmove(&list[i], &list[i + 1], (last - i) * sizeof(struct deposit *));
        list[last] = stayed;
        return;
    }
}

/* Each version was written once. If it was written again, the write before it is lost. */
static void check_twice(struct run *run, struct deposit **list, size_t count)
{
    struct account *account = run->account;
    const struct deposit *first[2] = {NULL, NULL};
    for (size_t from = 0, last = 0; from < count; from = last + 1) {
        for (last = from; last + 1 < count && list[last + 1]->item == list[from]->item &&
                          list[last + 1]->version == list[from]->version;)
            last++;
        put_last(run, list, count, from, last);
        account->versions++;
        for (size_t i = from; i < last; i++) {
            list[i]->lost = true;
            account->lost++;
            if (first[0] != NULL && done_ns(list[i + 1]) >= done_ns(first[1]))
                continue;
            first[0] = list[i];
            first[1] = list[i + 1];
        }
    }
    if (first[0] != NULL)
        tell_lost(run, first[0], first[1]);
}

/* ---- Torn transfers -------------------------------------------------------------------------- */

/* The part of the transfer that was carried out, if the other was not; NULL. */
static const struct deposit *torn_part(const struct run *run, const struct errand *errand)
{
    const struct deposit *parts[SIGHTS] = {NULL, NULL};
    bool in[SIGHTS];
    for (size_t i = 0; i < SIGHTS; i++) {
        const uint32_t number = errand->sights[i].deposit;
        if (number != NONE)
            parts[i] = &run->account->deposits[number];
        if (parts[i] != NULL && (parts[i]->denied || parts[i]->guessed))
            return NULL;
        in[i] = parts[i] != NULL && account_is_in(parts[i]);
    }
    return in[FROM] == in[TO] ? NULL : parts[in[TO] ? TO : FROM];
}

static void check_torn(struct run *run)
{
    struct account *account = run->account;
    const struct deposit *first = NULL;
    for (size_t i = 0; account->whole && i < account->errand_count; i++) {
        struct errand *errand = &account->errands[i];
        const struct deposit *part = errand->does == DOES_TRANSFER ? torn_part(run, errand) : NULL;
        if (part == NULL)
            continue;
        errand->torn = true;
        account->torn++;
        if (first == NULL || part->t_ns < first->t_ns)
            first = part;
    }
    if (first == NULL)
        return;
    const struct errand *errand = &account->errands[first->request];
    const uint32_t from = errand->sights[FROM].item, to = errand->sights[TO].item;
    findings_add(&run->findings, RESULT_UNBALANCED,
                 "transfers of which one account has its part, and the other has not: %lld; first: "
                 "request %.60s on %.40s moved %lld from %.60s to %.60s. It is %s the first one "
                 "(version %lld), and %s the second one",
                 (long long)account->torn, run_request_id(run, first->request),
                 run->spec.instances[run->requests[first->request].instance],
                 (long long)errand->amount, from == NONE ? "?" : run->items[from].name,
                 to == NONE ? "?" : run->items[to].name, first->to ? "still in" : "taken from",
                 (long long)first->version, first->to ? "in" : "not in");
    show(run, first->section, NONE);
}

/* ---- Versions -------------------------------------------------------------------------------- */

/* An answered write is there in the end. */
static void check_gone(struct run *run, struct deposit *const *list, size_t count)
{
    const struct deposit *gone = NULL, *old = NULL;
    long long gone_count = 0, old_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct redis_side *redis = run->items[list[i]->item].redis;
        if (!is_redis_told(&run->items[list[i]->item]))
            continue;
        if (list[i]->version > redis[AFTER].version && gone_count++ == 0)
            gone = list[i];
        if (list[i]->version <= redis[BEFORE].version && old_count++ == 0)
            old = list[i];
    }
    if (gone != NULL)
        findings_add(&run->findings, account_is_sound(run) ? RESULT_UNBALANCED : RESULT_INCOMPLETE,
                     "writes that were answered, and are gone: %lld; first: request %.60s on %.40s "
                     "wrote version %lld of %.60s, which has version %lld in the end",
                     gone_count, run_request_id(run, gone->request),
                     run->spec.instances[run->requests[gone->request].instance],
                     (long long)gone->version, run->items[gone->item].name,
                     (long long)run->items[gone->item].redis[AFTER].version);
    if (old != NULL)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "writes of versions from before the run: %lld; first: request %.60s wrote "
                     "version %lld of %.60s, which began with version %lld",
                     old_count, run_request_id(run, old->request), (long long)old->version,
                     run->items[old->item].name,
                     (long long)run->items[old->item].redis[BEFORE].version);
}

/* Somebody read a version that the account has no more. */
static void check_read_gone(struct run *run)
{
    const struct account *account = run->account;
    const struct sight *gone = NULL;
    size_t reader = 0;
    long long times = 0;
    for (size_t i = 0; i < account->errand_count * SIGHTS; i++) {
        const struct sight *sight = &account->errands[i / SIGHTS].sights[i % SIGHTS];
        if (sight->item == NONE || !is_redis_told(&run->items[sight->item]) ||
            sight->version <= run->items[sight->item].redis[AFTER].version || times++ > 0)
            continue;
        gone = sight;
        reader = i / SIGHTS;
    }
    if (gone != NULL)
        findings_add(&run->findings, account_is_sound(run) ? RESULT_UNBALANCED : RESULT_INCOMPLETE,
                     "versions that were read, and are gone: %lld; first: request %.60s read "
                     "version %lld of %.60s, which has version %lld in the end",
                     times, run_request_id(run, (uint32_t)reader), (long long)gone->version,
                     run->items[gone->item].name,
                     (long long)run->items[gone->item].redis[AFTER].version);
}

/* The lowest version of the account that nobody wrote. */
static int64_t first_missing(const struct run *run, struct deposit *const *list, size_t count,
                             uint32_t item)
{
    int64_t version = run->items[item].redis[BEFORE].version;
    for (size_t i = 0; i < count; i++) {
        if (list[i]->item == item && list[i]->version == version + 1)
            version++;
    }
    return version + 1;
}

/* The records state numbers of at most JSON_EXACT_MAX. False: the sum would go beyond that, and
 * stays. */
static bool account_add(int64_t *sum, int64_t number)
{
    const int64_t grown = *sum + number;
    if (grown < -JSON_EXACT_MAX || grown > JSON_EXACT_MAX)
        return false;
    *sum = grown;
    return true;
}

/* Somebody wrote each version. If no line can be missing, it was none of the instances. */
static void check_missing(struct run *run, struct deposit *const *list, size_t count)
{
    uint32_t first = NONE;
    int64_t times = 0;
    for (uint32_t i = 0; i < run->item_count; i++) {
        const struct redis_side *redis = run->items[i].redis;
        const int64_t missing =
            redis[AFTER].version - redis[BEFORE].version - run->account->ledgers[i].versions;
        if (!is_redis_told(&run->items[i]) || missing <= 0)
            continue;
        account_add(&times, missing);
        first = first == NONE ? i : first;
    }
    if (first != NONE)
        findings_add(&run->findings, run->account->whole ? RESULT_UNBALANCED : RESULT_INCOMPLETE,
                     "versions that no request wrote: %lld; first: version %lld of %.60s",
                     (long long)times, (long long)first_missing(run, list, count, first),
                     run->items[first].name);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

static void add_up(struct run *run, struct deposit *const *list, size_t count)
{
    struct account *account = run->account;
    bool counted = true;
    account->ledgers = memory_new(run->item_count, sizeof *account->ledgers);
    for (size_t i = 0; i < run->item_count; i++) {
        const struct item *item = &run->items[i];
        if (!is_redis_told(item))
            continue;
        account->ledgers[i].must = item->redis[BEFORE].stock;
        counted &= account_add(&account->before, item->redis[BEFORE].stock);
        counted &= account_add(&account->after, item->redis[AFTER].stock);
    }
    for (size_t i = 0; i < count; i++) {
        const struct deposit *deposit = list[i];
        const struct redis_side *redis = run->items[deposit->item].redis;
        struct ledger *ledger = &account->ledgers[deposit->item];
        const int64_t change = deposit->balance - deposit->before;
        counted &= account_add(&ledger->must, change);
        ledger->versions += deposit->version > redis[BEFORE].version &&
                            deposit->version <= redis[AFTER].version && !deposit->lost;
        if (account->errands[deposit->request].does == DOES_ADD)
            counted &= account_add(&account->added, change);
    }
    if (counted)
        return;
    account->whole = false;
    findings_add(&run->findings, RESULT_INCOMPLETE,
                 "the balances add up to more than %lld, which cannot be counted",
                 (long long)JSON_EXACT_MAX);
}

/* The sums prove a fault only if no line can be missing. */
static void check_sums(struct run *run)
{
    const struct account *account = run->account;
    const int64_t off = account->after - account->before - account->added;
    uint32_t first = NONE;
    long long times = 0;
    for (uint32_t i = 0; i < run->item_count; i++) {
        if (run->items[i].redis[AFTER].stock != account->ledgers[i].must && times++ == 0)
            first = i;
    }
    if (first != NONE)
        findings_add(
            &run->findings, RESULT_UNBALANCED,
            "accounts that hold something else than was written to them: %lld; first: "
            "%.60s holds %lld, and must hold %lld: %lld at the start, and %+lld since",
            times, run->items[first].name, (long long)run->items[first].redis[AFTER].stock,
            (long long)account->ledgers[first].must,
            (long long)run->items[first].redis[BEFORE].stock,
            (long long)(account->ledgers[first].must - run->items[first].redis[BEFORE].stock));
    if (off == 0)
        return;
    const bool certain = !account->guessed || run->findings.worst <= RESULT_UNBALANCED;
    findings_add(&run->findings, certain ? RESULT_UNBALANCED : RESULT_INCOMPLETE,
                 "all accounts together: %lld at the start, %+lld by adds, %lld in the end: "
                 "%lld %s%s",
                 (long long)account->before, (long long)account->added, (long long)account->after,
                 (long long)(off < 0 ? -off : off), off < 0 ? "are missing" : "too much",
                 certain ? "" : ", but it is not certain which adds took effect");
}

/* ---- Writes with an old token ---------------------------------------------------------------- */

/* newest: of all writes of the lock up to this one, the one with the newest token. */
struct marked {
    const struct deposit *deposit;
    const struct section *section;
    size_t newest;
};

static int by_lock_answer(const void *a, const void *b)
{
    const struct marked *one = a;
    const struct marked *two = b;
    if (one->section->lock != two->section->lock)
        return one->section->lock < two->section->lock ? -1 : 1;
    const int64_t one_ns = one->deposit->wrote_ns;
    const int64_t two_ns = two->deposit->wrote_ns;
    return (one_ns > two_ns) - (one_ns < two_ns);
}

static struct marked *find_marked(const struct run *run, size_t *count)
{
    const struct account *account = run->account;
    struct marked *list = memory_new(account->deposit_count, sizeof *list);
    *count = 0;
    for (size_t i = 0; i < account->deposit_count; i++) {
        const struct deposit *deposit = &account->deposits[i];
        const struct section *section =
            deposit->section == NONE ? NULL : &run->sections[deposit->section];
        if (section != NULL && section->token > 0 && section->lock != NO_NAME &&
            deposit->fate == FATE_CONFIRMED && run_is_timed(run, section))
            list[(*count)++] = (struct marked){deposit, section, 0};
    }
    qsort(list, *count, sizeof *list, by_lock_answer);
    for (size_t i = 0; i < *count; i++) {
        const bool same = i > 0 && list[i].section->lock == list[i - 1].section->lock;
        list[i].newest = same ? list[i - 1].newest : i;
        if (list[i].section->token > list[list[i].newest].section->token)
            list[i].newest = i;
    }
    return list;
}

/* Of the writes of that lock that were answered before the time, the one with the newest token. */
static const struct marked *marked_before(const struct marked *list, size_t count, uint32_t lock,
                                          int64_t t_ns)
{
    size_t from = 0;
    size_t to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (list[middle].section->lock < lock ||
            (list[middle].section->lock == lock && list[middle].deposit->wrote_ns < t_ns))
            from = middle + 1;
        else
            to = middle;
    }
    return from > 0 && list[from - 1].section->lock == lock ? &list[list[from - 1].newest] : NULL;
}

static void account_check_tokens(struct run *run)
{
    size_t count = 0;
    struct marked *list = find_marked(run, &count);
    const struct marked *old = NULL, *newer = NULL;
    long long times = 0;
    for (size_t i = 0; i < count; i++) {
        const struct marked *before =
            marked_before(list, count, list[i].section->lock, list[i].deposit->sent_ns);
        if (before == NULL || before->section->token <= list[i].section->token || times++ > 0)
            continue;
        old = &list[i];
        newer = before;
    }
    if (old != NULL)
        findings_add(&run->findings, RESULT_OVERLAP,
                     "writes with an old token: %lld; first: request %.60s wrote version %lld of "
                     "%.60s at %.3f ms with token %lld, but request %.60s had written by %.3f ms "
                     "with token %lld",
                     times, run_request_id(run, old->deposit->request),
                     (long long)old->deposit->version, run->items[old->deposit->item].name,
                     run_ms(run, old->deposit->sent_ns), (long long)old->section->token,
                     run_request_id(run, newer->deposit->request),
                     run_ms(run, newer->deposit->wrote_ns), (long long)newer->section->token);
    free(list);
}

/* ---- What was read --------------------------------------------------------------------------- */

static int by_balance(const void *a, const void *b)
{
    const struct deposit *one = *(const struct deposit *const *)a;
    const struct deposit *two = *(const struct deposit *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->version != two->version)
        return one->version < two->version ? -1 : 1;
    return (one->balance > two->balance) - (one->balance < two->balance);
}

/* Whether the account may have had that balance with that version. */
static bool has_writer(const struct run *run, struct deposit *const *list, size_t count,
                       const struct sight *sight)
{
    const struct redis_side *before = &run->items[sight->item].redis[BEFORE];
    const struct deposit wanted = {
        .item = sight->item, .version = sight->version, .balance = sight->balance};
    const struct deposit *key = &wanted;
    return before->stock == NOT_KNOWN ||
           (sight->version == before->version && sight->balance == before->stock) ||
           (count > 0 && bsearch(&key, list, count, sizeof(struct deposit *), by_balance) != NULL);
}

/* Comes first: if somebody read what nobody wrote, redis.json or a history is wrong. */
static void check_reads(struct run *run)
{
    struct account *account = run->account;
    struct deposit **list = memory_new(account->deposit_count, sizeof(struct deposit *));
    size_t count = 0, first = 0;
    long long times = 0;
    for (size_t i = 0; i < account->deposit_count; i++) {
        if (!account->deposits[i].denied)
            list[count++] = &account->deposits[i];
    }
    qsort(list, count, sizeof(struct deposit *), by_balance);
    for (size_t i = 0; i < account->errand_count * SIGHTS; i++) {
        const struct sight *sight = &account->errands[i / SIGHTS].sights[i % SIGHTS];
        if (sight->item != NONE && sight->read_ns != NOT_STAMPED &&
            !has_writer(run, list, count, sight) && times++ == 0)
            first = i;
    }
    free(list);
    account->explained = times == 0;
    if (account->explained)
        return;
    const struct sight *sight = &account->errands[first / SIGHTS].sights[first % SIGHTS];
    findings_add(&run->findings, RESULT_INCOMPLETE,
                 "balances that nobody wrote: %lld; first: request %.60s read %lld in %.60s, as "
                 "version %lld; a writing must be recorded for each",
                 times, run_request_id(run, first / SIGHTS), (long long)sight->balance,
                 run->items[sight->item].name, (long long)sight->version);
}

/* A request that is refused has written nothing. */
static void check_refusals(struct run *run)
{
    const struct account *account = run->account;
    const struct deposit *first = NULL;
    long long times = 0;
    for (size_t i = 0; i < account->deposit_count; i++) {
        const struct deposit *deposit = &account->deposits[i];
        const struct errand *errand = &account->errands[deposit->request];
        const enum outcome outcome = run->requests[deposit->request].outcome;
        const bool half = outcome == OUTCOME_FAILED && errand->does == DOES_TRANSFER &&
                          strcmp(run->spec.write, "two") == 0;
        if (deposit->fate == FATE_CONFIRMED && !half &&
            (outcome == OUTCOME_REFUSED || outcome == OUTCOME_FAILED) && times++ == 0)
            first = deposit;
    }
    if (first != NULL)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "writes by requests that ended with refused or fail: %lld; first: request "
                     "%.60s wrote version %lld; it must end with answered or unknown",
                     times, run_request_id(run, first->request), (long long)first->version);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static void count_requests(struct run *run)
{
    struct account *account = run->account;
    for (size_t i = 0; i < account->errand_count; i++) {
        const struct errand *errand = &account->errands[i];
        const enum outcome outcome = run->requests[i].outcome;
        bool about = false, in = false;
        if (outcome == OUTCOME_ANSWERED) {
            account->adds += errand->does == DOES_ADD;
            account->transfers += errand->does == DOES_TRANSFER;
            account->looks += errand->does == DOES_LOOK && !run->requests[i].reads;
        }
        for (size_t j = 0; j < SIGHTS; j++) {
            if (errand->sights[j].deposit == NONE)
                continue;
            about = true;
            in |= account_is_in(&account->deposits[errand->sights[j].deposit]);
        }
        if (!about || (outcome != OUTCOME_NONE && outcome != OUTCOME_UNKNOWN))
            continue;
        account->unknown += errand->refused_ns == NOT_STAMPED;
        account->took_effect += in;
    }
}

void account_check(struct run *run)
{
    size_t count = 0;
    check_reads(run);
    run->account->whole = is_whole(run);
    account_decide(run);
    struct deposit **list = account_written(run, &count);
    check_twice(run, list, count);
    add_up(run, list, count);
    check_torn(run);
    check_gone(run, list, count);
    check_read_gone(run);
    check_missing(run, list, count);
    if (run->account->whole)
        check_sums(run);
    free(list);
    account_check_tokens(run);
    check_refusals(run);
    account_check_cycles(run);
    count_requests(run);
}
