/* SPDX-License-Identifier: Apache-2.0
 *
 * Fencing, if the lock gives tokens. A later section has a greater token. No write was accepted
 * with a token older than the newest one given. A write is stamped when it is answered, so the
 * stamps alone prove nothing. A write came too late if the newer holder had read a stock from
 * before it.
 *
 * If the stock compares tokens, each accepted write must have met the stock that its section had
 * read. Then no other write came between. The tokens of those that sold grow with the writes, in
 * the order that the stocks show, or the stamps. One that was frozen before it entered has an old
 * token, and did no harm if it sold nothing. Readers that share a lock may overtake each other. A
 * section that only reads takes no harm from a later write.
 *
 * A stock that compares tokens has an epoch: which lock its tokens are of. If the lock's server
 * comes back empty, and its clock is behind, the tokens begin again further down. So the epochs are
 * compared first. Without a recorded epoch it is 0.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

/* How many newer grants are compared with each write; never more are under way at once. */
enum { NEWER_MAX = 1000 };

static int by_end(const void *a, const void *b)
{
    const struct section *one = *(const struct section *const *)a;
    const struct section *two = *(const struct section *const *)b;
    if (one->lock != two->lock)
        return one->lock < two->lock ? -1 : 1;
    if (one->ended_ns != two->ended_ns)
        return one->ended_ns < two->ended_ns ? -1 : 1;
    int64_t one_ns = one->at_ns[STAGE_ENTER];
    int64_t two_ns = two->at_ns[STAGE_ENTER];
    return (one_ns > two_ns) - (one_ns < two_ns);
}

/* Above 0: the token of `one` is newer. */
static int fencing_compare(const struct section *one, const struct section *two)
{
    if (one->epoch != two->epoch)
        return one->epoch < two->epoch ? -1 : 1;
    return (one->token > two->token) - (one->token < two->token);
}

static int by_token(const void *a, const void *b)
{
    const struct section *one = *(const struct section *const *)a;
    const struct section *two = *(const struct section *const *)b;
    if (one->lock != two->lock)
        return one->lock < two->lock ? -1 : 1;
    return fencing_compare(one, two);
}

/* From the highest stock that a write left to the lowest: a stock that only falls was written in
 * this order. */
static int by_stock(const void *a, const void *b)
{
    const struct section *one = *(const struct section *const *)a;
    const struct section *two = *(const struct section *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->stock_after != two->stock_after)
        return one->stock_after > two->stock_after ? -1 : 1;
    return fencing_compare(one, two);
}

/* The sections that have a token and times that are proof, in the order of their enter. sold_only:
 * those of them that sold, or filled the cache of a menu. */
static struct section **with_tokens(const struct run *run, bool sold_only, size_t *count)
{
    struct section **list = memory_new(run->by_lock_count, sizeof *list);
    *count = 0;
    for (size_t i = 0; i < run->by_lock_count; i++) {
        struct section *section = run->by_lock[i];
        if (section->token > 0 && run_is_timed(run, section) &&
            (section->sold || section->filled || !sold_only))
            list[(*count)++] = section;
    }
    return list;
}

/* Whether `one` ended before `two` began. Two empty sections with equal stamps have no order. */
static bool was_over(const struct section *one, const struct section *two)
{
    return one->lock == two->lock && one->ended_ns <= two->at_ns[STAGE_ENTER] &&
           one->at_ns[STAGE_ENTER] < two->at_ns[STAGE_ENTER];
}

static void take_newest(const struct section **newest, const struct section *section)
{
    if (*newest == NULL || (*newest)->lock != section->lock ||
        fencing_compare(*newest, section) < 0)
        *newest = section;
}

static void check_growth(struct run *run)
{
    size_t count = 0;
    struct section **entered = with_tokens(run, is_fenced(run), &count);
    struct section **ended = with_tokens(run, is_fenced(run), &count);
    /* The newest tokens of the sections that are over: of all, and of the exclusive ones. */
    const struct section *newest[2] = {NULL, NULL};
    const struct section *example[2] = {NULL, NULL};
    long long times = 0;
    size_t over = 0;
    qsort(ended, count, sizeof *ended, by_end);
    for (size_t i = 0; i < count; i++) {
        while (over < count &&
               (ended[over]->lock < entered[i]->lock || was_over(ended[over], entered[i]))) {
            take_newest(&newest[0], ended[over]);
            if (!ended[over]->shared)
                take_newest(&newest[1], ended[over]);
            over++;
        }
        const struct section *before = newest[entered[i]->shared];
        if (before == NULL || before->lock != entered[i]->lock ||
            fencing_compare(before, entered[i]) < 0 || times++ > 0)
            continue;
        example[0] = before;
        example[1] = entered[i];
    }
    free(ended);
    free(entered);
    if (times > 0)
        findings_add(&run->findings, RESULT_OVERLAP,
                     "tokens that did not grow: %lld; first: "
                     "request %.60s entered at %.3f ms with token %lld, after request %.60s got "
                     "token %lld",
                     times, run_request_id(run, example[1]->request),
                     run_ms(run, example[1]->at_ns[STAGE_ENTER]), (long long)example[1]->token,
                     run_request_id(run, example[0]->request), (long long)example[0]->token);
}

/* Whether no restock can have raised the stock before the section's write. A stock that only falls
 * shows by its values which of two steps came first. */
static bool only_fell(const struct run *run, const struct section *section)
{
    return section->item != NONE && !run->restocks_lost &&
           section->at_ns[STAGE_WRITE] < run->items[section->item].restocked_ns;
}

/* The sales of a stock that compares tokens. Of sections that were inside together the stamps do
 * not tell who wrote first; the stocks do. */
static void check_sales(struct run *run)
{
    const struct section *newest = NULL;
    const struct section *example[2] = {NULL, NULL};
    long long times = 0;
    size_t count = 0;
    struct section **sold = with_tokens(run, true, &count);
    qsort(sold, count, sizeof *sold, by_stock);
    for (size_t i = 0; i < count; i++) {
        if (!only_fell(run, sold[i]) || sold[i]->left_denied)
            continue;
        if (newest == NULL || newest->item != sold[i]->item ||
            fencing_compare(newest, sold[i]) < 0) {
            newest = sold[i];
        } else if (newest->stock_after > sold[i]->stock_after && times++ == 0) {
            example[0] = newest;
            example[1] = sold[i];
        }
    }
    free(sold);
    if (times > 0)
        findings_add(&run->findings, RESULT_OVERLAP,
                     "writes accepted with a token older than that of an earlier write: %lld; "
                     "first: request %.60s left %lld with token %lld, after request %.60s had left "
                     "%lld with token %lld",
                     times, run_request_id(run, example[1]->request),
                     (long long)example[1]->stock_after, (long long)example[1]->token,
                     run_request_id(run, example[0]->request), (long long)example[0]->stock_after,
                     (long long)example[0]->token);
}

/* Whether the newer holder was granted the lock before the write of `old`, and read the stock from
 * before that write. */
static bool is_stale(const struct run *run, const struct section *old, const struct section *newer)
{
    return only_fell(run, old) && !run_only_reads(run, newer) && !old->left_denied &&
           newer->lock == old->lock && newer->item == old->item &&
           fencing_compare(newer, old) > 0 &&
           newer->at_ns[STAGE_GRANTED] < old->at_ns[STAGE_WRITE] &&
           newer->stock_before != NOT_KNOWN && newer->stock_before > old->stock_after;
}

/* earliest[i]: the earliest grant of this token and all newer ones of its lock. */
static int64_t *find_earliest(struct section *const *tokens, size_t count)
{
    int64_t *earliest = memory_new(count, sizeof *earliest);
    for (size_t i = count; i-- > 0;) {
        earliest[i] = tokens[i]->at_ns[STAGE_GRANTED];
        if (i + 1 < count && tokens[i]->lock == tokens[i + 1]->lock &&
            earliest[i + 1] < earliest[i])
            earliest[i] = earliest[i + 1];
    }
    return earliest;
}

static void check_writes(struct run *run)
{
    size_t count = 0;
    struct section **tokens = with_tokens(run, false, &count);
    const struct section *example[2] = {NULL, NULL};
    long long times = 0;
    qsort(tokens, count, sizeof *tokens, by_token);
    int64_t *earliest = find_earliest(tokens, count);
    for (size_t i = 0; i < count; i++) {
        size_t end = count - i < NEWER_MAX ? count : i + NEWER_MAX;
        for (size_t j = i + 1; tokens[i]->sold && j < end; j++) {
            if (tokens[j]->lock != tokens[i]->lock || earliest[j] >= tokens[i]->at_ns[STAGE_WRITE])
                break;
            if (!is_stale(run, tokens[i], tokens[j]))
                continue;
            if (times++ == 0) {
                example[0] = tokens[i];
                example[1] = tokens[j];
            }
            break;
        }
    }
    free(earliest);
    free(tokens);
    if (times > 0)
        findings_add(
            &run->findings, RESULT_OVERLAP,
            "writes accepted with an old token: %lld; "
            "first: request %.60s wrote with token %lld at %.3f ms, but token %lld had been "
            "given to request %.60s, which had read the stock",
            times, run_request_id(run, example[0]->request), (long long)example[0]->token,
            run_ms(run, example[0]->at_ns[STAGE_WRITE]), (long long)example[1]->token,
            run_request_id(run, example[1]->request));
}

/* The write subtracts from the stock as it is, whatever was read. So what it left shows what it
 * met. */
static void check_reads(struct run *run)
{
    const struct section *example = NULL;
    long long times = 0;
    for (size_t i = 0; i < run->by_lock_count; i++) {
        const struct section *section = run->by_lock[i];
        if (section->token == 0 || !section->sold || section->left_denied ||
            section->quantity_denied || section->stock_before == NOT_KNOWN ||
            section->stock_after == section->stock_before - section->quantity)
            continue;
        if (times++ == 0)
            example = section;
    }
    if (times > 0)
        findings_add(&run->findings, RESULT_OVERLAP,
                     "writes accepted though another one came after their read: %lld; first: "
                     "request %.60s read %lld, took %lld at %.3f ms and left %lld",
                     times, run_request_id(run, example->request), (long long)example->stock_before,
                     (long long)example->quantity, run_ms(run, example->at_ns[STAGE_WRITE]),
                     (long long)example->stock_after);
}

/* Whether every grant must have a token. A rung gives a token to all of its grants or to none. A
 * stock that compares tokens refuses a write without one. */
static bool needs_tokens(const struct run *run)
{
    bool needs = is_fenced(run);
    for (size_t i = 0; i < run->section_count && !needs; i++)
        needs = run->sections[i].token > 0 && !run_only_reads(run, &run->sections[i]);
    return needs;
}

/* A grant without its token is an incomplete record. A reader needs no token. */
void check_missing_tokens(struct run *run)
{
    const struct section *example = NULL;
    long long times = 0;
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        bool granted = section->at_ns[STAGE_GRANTED] != NOT_STAMPED;
        if (granted && section->token == 0 && !run_only_reads(run, section) && times++ == 0)
            example = section;
    }
    if (times > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: grants without a token: %lld, first that of request %.60s; where the "
                     "lock gives tokens, every granted must have one",
                     run->histories[example->history].file, times,
                     run_request_id(run, example->request));
}

void check_tokens(struct run *run)
{
    check_growth(run);
    if (needs_tokens(run))
        check_missing_tokens(run);
}

void check_fencing(struct run *run)
{
    for (size_t i = 0; i < run->request_count; i++) {
        if (run->requests[i].reason == REASON_STALE_TOKEN)
            run->counts.token_refusals++;
    }
    check_tokens(run);
    check_writes(run);
    if (is_fenced(run)) {
        check_reads(run);
        check_sales(run);
    }
}
