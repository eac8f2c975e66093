/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks: two times are compared only if they come from one clock. The first record of each history
 * names its boot, clock and time namespace, and CLOCK_REALTIME at its stamp. The clock of the
 * clients is in run.json. On one boot CLOCK_REALTIME is CLOCK_MONOTONIC plus a constant, so all
 * files must agree on that constant. The records of a request must also lie between its sending and
 * its answer, as its client saw them. A time that fails this does not prove that two sections
 * overlapped. If one request of a history fails it, the history's requests without a client's view
 * prove nothing either.
 */
#include "check.h"
#include "rules.h"
#include "source.h"

#include <string.h>

/* ---- One clock ------------------------------------------------------------------------------- */

/* Why the times of the two clocks cannot be compared; NULL if they can. */
static const char *clocks_differ(const struct clock *one, const struct clock *two)
{
    if (strcmp(one->boot_id, two->boot_id) != 0)
        return "it was written on another machine, or after another boot,";
    if (strcmp(one->time_namespace, two->time_namespace) != 0)
        return "its writer has another time namespace";
    return NULL;
}

static void check_history(struct run *run, struct history *history, const struct history *first)
{
    const char *differs = clocks_differ(&first->clock, &history->clock);
    long long realtime_offset_ns =
        history->clock.realtime_offset_ns - first->clock.realtime_offset_ns;
    bool off = realtime_offset_ns > APART_NS_MAX || realtime_offset_ns < -APART_NS_MAX;
    history->timed = differs == NULL && !off && !history->stepped;
    if (differs != NULL)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: %s than %s; all must have one clock, so that their times can be compared",
                     history->file, differs, first->file);
    else if (off)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: its times are %.3f ms off those of %s, as CLOCK_REALTIME in both shows; "
                     "they must agree within %.1f ms",
                     history->file, -(double)realtime_offset_ns / 1e6, first->file,
                     APART_NS_MAX / 1e6);
}

/* Compares every life with the first one whose clock is known. Returns that one, or NULL. */
static const struct history *check_histories(struct run *run)
{
    const struct history *first = NULL;
    for (size_t i = 0; i < run->history_count; i++) {
        struct history *history = &run->histories[i];
        if (!history->clock.known)
            continue; /* its reader has reported it */
        if (first == NULL)
            first = history;
        check_history(run, history, first);
    }
    return first;
}

/* A section sends commands to Redis, so it must take time. */
static void clocks_check_sections(struct run *run)
{
    const struct section *example = NULL;
    long long times = 0;
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (section->at_ns[STAGE_RELEASE] == NOT_STAMPED ||
            section->at_ns[STAGE_RELEASE] > section->at_ns[STAGE_GRANTED])
            continue;
        run->requests[section->request].mistimed = true;
        if (times++ == 0)
            example = section;
    }
    if (times > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: its clock stands still: sections that took no time: %lld, first that of "
                     "request %.60s; each must take some",
                     run->histories[example->history].file, times,
                     run_request_id(run, example->request));
}

/* ---- What the clients saw -------------------------------------------------------------------- */

static bool check_clients(struct run *run, const struct history *first)
{
    const struct clients *clients = &run->spec.clients;
    if (clients->boot_id == NULL) {
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "run.json: no \"clients\"; it must name the clients' boot and clock, as "
                     "{\"boot_id\":\"…\",\"clock\":\"CLOCK_REALTIME\",\"slack_ms\":5}");
        return false;
    }
    if (strcmp(clients->boot_id, first->clock.boot_id) == 0)
        return true;
    findings_add(&run->findings, RESULT_INCOMPLETE,
                 "%s was written on another machine, or after another boot, than %s; all "
                 "must have one clock, so that their times can be compared",
                 run->rules->samples, first->file);
    return false;
}

/* From a request's sending to its answer as its client saw them, widened by the client's slack. */
struct span {
    int64_t sent_ns;
    int64_t answered_ns;
};

static struct span span_of(const struct run *run, const struct request *request,
                           int64_t realtime_offset_ns)
{
    const int64_t ms = 1000000;
    int64_t slack_ns = run->spec.clients.slack_ms * ms;
    int64_t sent_ns = request->start_ms * ms - realtime_offset_ns;
    return (struct span){sent_ns - slack_ns, sent_ns + (request->elapsed_ms + 1) * ms + slack_ns};
}

/* By how much a record lies before the sending (negative) or after the answer; 0 if none does. */
static int64_t outside_ns(const struct run *run, const struct request *request,
                          int64_t realtime_offset_ns)
{
    struct span span = span_of(run, request, realtime_offset_ns);
    if (request->first_ns < span.sent_ns)
        return request->first_ns - span.sent_ns;
    return !request->transport_error && request->last_ns > span.answered_ns
               ? request->last_ns - span.answered_ns
               : 0;
}

/* Whether no instance was alive between its sending and its answer. */
static bool met_nobody(const struct run *run, const struct request *request,
                       int64_t realtime_offset_ns)
{
    struct span span = span_of(run, request, realtime_offset_ns);
    for (size_t i = 0; i < run->history_count; i++) {
        const struct history *history = &run->histories[i];
        if (!history->timed ||
            (history->first_ns <= span.answered_ns && span.sent_ns <= history->last_ns))
            return false;
    }
    return true;
}

static void clocks_check_requests(struct run *run, int64_t realtime_offset_ns)
{
    const struct request *example = NULL;
    long long times = 0;
    for (size_t i = 0; i < run->request_count; i++) {
        struct request *request = &run->requests[i];
        if (!request->accepted && request->sampled)
            request->mistimed |= met_nobody(run, request, realtime_offset_ns);
        if (!request->accepted || !request->sampled || request->reads ||
            !run->histories[request->history].timed)
            continue;
        if (outside_ns(run, request, realtime_offset_ns) == 0)
            continue;
        request->mistimed = true;
        run->histories[request->history].clock_disputed = true;
        if (times++ == 0)
            example = request;
    }
    if (times == 0)
        return;
    double off_ms = (double)outside_ns(run, example, realtime_offset_ns) / 1e6;
    findings_add(&run->findings, RESULT_INCOMPLETE,
                 "requests with records outside of the time that their clients saw: %lld; first: "
                 "request %.60s, of which %s has a record %.3f ms %s",
                 times, run_request_id(run, (size_t)(example - run->requests)),
                 run->histories[example->history].file, off_ms < 0 ? -off_ms : off_ms,
                 off_ms < 0 ? "before it was sent" : "after it was answered");
}

void check_clocks(struct run *run)
{
    const struct history *first = check_histories(run);
    clocks_check_sections(run);
    if (first != NULL && check_clients(run, first))
        clocks_check_requests(run, first->clock.realtime_offset_ns);
}
