/* SPDX-License-Identifier: Apache-2.0
 *
 * Witness: whether the run could have shown a fault at all. It demands
 * enough samples, a share for every instance, attempts that overlap, answered requests, and a
 * machine that does not stand still.
 */
#include "check.h"
#include "memory.h"
#include "rules.h"

#include <stdlib.h>
#include <string.h>

static void check_samples(struct run *run)
{
    for (size_t i = 0; i < run->request_count; i++)
        run->counts.requests += run->requests[i].sampled && !run->requests[i].repeats;
    if (run->counts.requests < run->spec.requests)
        findings_add(&run->findings, RESULT_INCONCLUSIVE,
                     "%s holds %lld %s samples; run.json asks for %lld", run->rules->samples,
                     (long long)run->counts.requests, run->rules->sampled,
                     (long long)run->spec.requests);
    if (run->counts.requests == 0)
        findings_add(&run->findings, RESULT_INCONCLUSIVE,
                     "%s holds no %s sample; their labels must begin with %s", run->rules->samples,
                     run->rules->sampled, run->rules->labels);
}

/* Whether the request sold something under its key, or may have. */
static bool may_have_bought(const struct run *run, const struct request *request)
{
    return request->outcome == OUTCOME_SOLD || request->outcome == OUTCOME_CLIENT_ONLY ||
           (request->outcome == OUTCOME_REPLAYED && request->code == 200) ||
           is_unknown(run, request);
}

/* Whether its answer tells the buyer how the purchase ended. A 503 and request-in-flight only say
 * that the request may be sent again. A refusal does not tell the end if its key has a sale, or may
 * have one. */
static bool tells_the_end(const struct request *request, bool bought)
{
    if (!request->sampled || request->transport_error)
        return false;
    if (request->client_queued) /* it knows where to ask */
        return true;
    bool refused = request->client_code >= 400 && request->client_code < 500 &&
                   !is_about_key(request) &&
                   (request->outcome == OUTCOME_REFUSED || request->outcome == OUTCOME_REPLAYED);
    return request->client_code == 200 || (refused && !bought);
}

/* For each key: when the last request with a conclusive answer was sent. NOT_STAMPED: none was. */
static int64_t *find_ends(const struct run *run)
{
    bool *bought = memory_new(run->keys.count, sizeof *bought);
    int64_t *ends = memory_new(run->keys.count, sizeof *ends);
    for (size_t i = 0; i < run->keys.count; i++)
        ends[i] = NOT_STAMPED;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && !request->repeats)
            bought[request->key] = may_have_bought(run, request);
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && tells_the_end(request, bought[request->key]) &&
            request->start_ms > ends[request->key])
            ends[request->key] = request->start_ms;
    }
    free(bought);
    return ends;
}

/* A request without an answer does no harm if it was sent again under its key. That answer must
 * tell how the purchase ended. */
static void check_transport(struct run *run)
{
    const struct request *example = NULL;
    long long errors = 0, mended = 0;
    int64_t *ends = find_ends(run);
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (!request->transport_error)
            continue;
        if (request->key != NONE && ends[request->key] >= request->start_ms)
            mended++;
        else if (errors++ == 0)
            example = request;
    }
    free(ends);
    if (mended > 0)
        findings_add(
            &run->findings, RESULT_OK,
            "requests without an answer (transport errors) that were sent again under their "
            "idempotency keys, and answered: %lld",
            mended);
    if (errors > 0 && strcmp(run->spec.fault, "none") == 0)
        findings_add(&run->findings, RESULT_INCONCLUSIVE,
                     "requests without an answer of the %s "
                     "(transport errors): %lld, first %.60s with code %d; there must be none%s",
                     run->rules->service, errors,
                     run_request_id(run, (size_t)(example - run->requests)), example->client_code,
                     run->rules->mended);
}

static void check_shares(struct run *run)
{
    struct counts *counts = &run->counts;
    int64_t served = 0;
    for (size_t i = 0; i < run->request_count; i++) {
        if (!run->requests[i].accepted || run->requests[i].reads)
            continue;
        counts->served_by[run->requests[i].instance]++;
        served++;
    }
    double fair = (double)served / (double)run->spec.instance_count;
    for (size_t i = 0; i < run->spec.instance_count; i++) {
        if ((double)counts->served_by[i] < run->spec.min_share * fair)
            findings_add(&run->findings, RESULT_INCONCLUSIVE,
                         "instance %.40s served %lld of %lld "
                         "requests; it must serve at least %g of its fair share of %g",
                         run->spec.instances[i], (long long)counts->served_by[i], (long long)served,
                         run->spec.min_share, fair);
    }
}

enum view { CLIENT, SERVER };

/* Start and end of an attempt to buy, in one view's time. */
static int64_t from_of(const struct request *request, enum view view)
{
    return view == CLIENT ? request->start_ms : request->invoke_ns;
}

static int64_t to_of(const struct request *request, enum view view)
{
    return view == CLIENT ? request->start_ms + request->elapsed_ms : request->last_ns;
}

static int by_item_from(const void *a, const void *b, void *data)
{
    const struct request *one = *(const struct request *const *)a;
    const struct request *two = *(const struct request *const *)b;
    enum view view = *(const enum view *)data;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    return (from_of(one, view) > from_of(two, view)) - (from_of(one, view) < from_of(two, view));
}

/* Whether two attempts at one item overlapped, by that view. */
static bool attempts_met(const struct run *run, enum view view)
{
    const struct request **attempts = memory_new(run->request_count, sizeof *attempts);
    size_t count = 0;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->accepted && request->item != NONE && request->sampled)
            attempts[count++] = request;
    }
    qsort_r(attempts, count, sizeof *attempts, by_item_from, &view);
    bool met = false;
    int64_t latest = 0; /* the latest end so far */
    for (size_t i = 0; i < count && !met; i++) {
        bool same = i > 0 && attempts[i]->item == attempts[i - 1]->item;
        met = same && from_of(attempts[i], view) < latest;
        if (!same || to_of(attempts[i], view) > latest)
            latest = to_of(attempts[i], view);
    }
    free(attempts);
    return met;
}

/* Two attempts at one item must have overlapped, by the view of the clients or of the instances.
 * With a fault this is not needed. */
static void check_contention(struct run *run)
{
    if (strcmp(run->spec.fault, "none") == 0 && !attempts_met(run, CLIENT) &&
        !attempts_met(run, SERVER))
        findings_add(&run->findings, RESULT_INCONCLUSIVE,
                     "no two attempts at one item overlapped in "
                     "time: the lock had nothing to do; more requests must come at once");
}

static bool witness_is_renewed(const char *rung)
{
    static const char *const renewed[] = {"watchdog_timer", "watchdog",   "blpop_wake", "notify",
                                          "fair",           "read_write", "redlock"};
    for (size_t i = 0; i < sizeof renewed / sizeof renewed[0]; i++)
        if (strcmp(rung, renewed[i]) == 0)
            return true;
    return false;
}

/* Whether a hold needed renewal: on a renewed rung it lasted until its first renewal was due. With
 * a frozen process as the fault, a stall is expected. */
static bool hangs_on_renewal(const struct run *run)
{
    if (!witness_is_renewed(run->spec.rung) || strncmp(run->spec.fault, "frozen", 6) == 0)
        return false;
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (section->at_ns[STAGE_ENTER] != NOT_STAMPED &&
            section->ended_ns - section->at_ns[STAGE_GRANTED] > run->spec.ttl_ms * 1000000 / 3)
            return true;
    }
    return false;
}

static void check_stalls(struct run *run)
{
    int64_t longest_ns = 0;
    for (size_t i = 0; i < run->mark_count; i++) {
        if (run->marks[i].kind != MARK_STALL)
            continue;
        run->counts.stalls++;
        if (run->marks[i].late_ns > longest_ns)
            longest_ns = run->marks[i].late_ns;
    }
    if (longest_ns > run->spec.ttl_ms * 1000000 / 3 && hangs_on_renewal(run))
        findings_add(
            &run->findings, RESULT_INCOMPLETE,
            "the machine stood still for %.0f ms; "
            "where a hold lives by renewal it must be less than a third of the TTL of %lld "
            "ms",
            (double)longest_ns / 1e6, (long long)run->spec.ttl_ms);
}

/* The run must begin as run.json says: with its stock, and with every lock free. */
static void check_start(struct run *run)
{
    for (size_t i = 0; i < run->item_count; i++) {
        const struct item *item = &run->items[i];
        if (item->began != NOT_KNOWN && item->began != item->stock)
            findings_add(&run->findings, RESULT_INCOMPLETE,
                         "the run began with %lld of %.80s; "
                         "run.json says %lld",
                         (long long)item->began, item->name, (long long)item->stock);
        if (item->redis[BEFORE].lock_there)
            findings_add(&run->findings, RESULT_INCOMPLETE,
                         "the lock of %.80s was held before the "
                         "run began; its key must not exist",
                         item->name);
    }
}

/* The lock was left without an expiry: no request has timed out at it, but the next one would. A
 * proven fault outranks this. */
static void check_after(struct run *run)
{
    for (size_t i = 0; i < run->item_count; i++) {
        const struct item *item = &run->items[i];
        const struct redis_side *after = &item->redis[AFTER];
        if (after->lock_there && after->lock_pttl_ms == -1 && run->stuck != item)
            findings_add(&run->findings, RESULT_INCONCLUSIVE,
                         "the lock of %.80s is there after the run, and its key never expires; it "
                         "must be gone",
                         item->name);
    }
}

static void check_restocks(struct run *run)
{
    for (size_t i = 0; i < run->restock_count && !run->spec.restocked; i++) {
        if (is_setup(run, &run->restocks[i]))
            continue;
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "the stock of %.80s was set at %.3f ms, "
                     "during the run; run.json must say \"restocked\":true",
                     run->items[run->restocks[i].item].name, run_ms(run, run->restocks[i].t_ns));
        return;
    }
}

void check_witness(struct run *run)
{
    check_samples(run);
    check_transport(run);
    check_shares(run);
    check_contention(run);
    check_stalls(run);
    check_start(run);
    check_after(run);
    check_restocks(run);
}
