/* SPDX-License-Identifier: Apache-2.0
 *
 * See transcript.h.
 */
#include "transcript.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

enum moment { MOMENT_BEGIN, MOMENT_END, MOMENT_LAST_VALID, MOMENT_NOTE };

struct step {
    int64_t ns;
    enum moment moment;
    const struct call *call;
    const struct note *note;
};

static int by_time(const void *a, const void *b)
{
    int64_t one = ((const struct step *)a)->ns, other = ((const struct step *)b)->ns;
    return one < other ? -1 : one > other;
}

static void tell_call(FILE *to, const struct world *world, const struct plan *plan,
                      const struct step *step)
{
    const struct call *call = step->call;
    bool acquires = call->what == WHAT_ACQUIRE || call->what == WHAT_START ||
                    call->what == WHAT_MANY || call->what == WHAT_MANY_START;
    fprintf(to, "P%d.%d #%-4d ", call->process, call->thread, (int)(call - world->calls));
    if (step->moment == MOMENT_LAST_VALID) {
        fprintf(to, "was valid at least until now\n");
        return;
    }
    fprintf(to, "%s%s", what_text(call->what), step->moment == MOMENT_END ? " = " : "");
    if (step->moment == MOMENT_END) {
        fprintf(to, "%s", dlock_status_name(call->status));
        if (call->token != 0)
            fprintf(to, " token %llu", (unsigned long long)call->token);
        fprintf(to, " %s%s\n", call->owner, call->status == DLOCK_OK ? "" : call->error);
        return;
    }
    if (call->of != NULL)
        fprintf(to, " of #%d", (int)(call->of - world->calls));
    if (call->lock >= 0)
        fprintf(to, " %s", plan->names[call->lock]);
    if (acquires)
        fprintf(to, " %s, client %llu, owner %llu, wait %lld ms, limit %lld ms, ttl %lld ms",
                call->mode == DLOCK_SHARED ? "shared" : "exclusive",
                (unsigned long long)call->client, (unsigned long long)call->owner_id,
                (long long)call->wait_ms, (long long)call->call_max_ms, (long long)call->ttl_ms);
    fputc('\n', to);
}

static void tell_note(FILE *to, const struct world *world, const struct note *note)
{
    static const char *const kinds[] = {[NOTE_TEXT] = "",
                                        [NOTE_FAULT] = "*** ",
                                        [NOTE_RENEWED] = "renewed ",
                                        [NOTE_RENEWAL_FAILED] = "renewal failed ",
                                        [NOTE_LOST] = "LOST ",
                                        [NOTE_DATA_LOST] = "*** "};
    if (note->process >= 0)
        fprintf(to, "P%d   ", note->process);
    fputs(kinds[note->kind], to);
    if (note->call != NULL)
        fprintf(to, "#%d ", (int)(note->call - world->calls));
    fprintf(to, "%s\n", note->text);
}

static size_t gather(const struct world *world, struct step *steps)
{
    size_t count = 0, notes = atomic_load(&world->note_count);
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *call = &world->calls[i];
        if (call->begin_ns != 0)
            steps[count++] = (struct step){call->begin_ns, MOMENT_BEGIN, call, NULL};
        if (call->end_ns != 0)
            steps[count++] = (struct step){call->end_ns, MOMENT_END, call, NULL};
        if (call->last_true_ns != 0)
            steps[count++] = (struct step){call->last_true_ns, MOMENT_LAST_VALID, call, NULL};
    }
    for (size_t i = 0; i < notes && i < NOTES_MAX; i++)
        if (world->notes[i].written)
            steps[count++] = (struct step){world->notes[i].ns, MOMENT_NOTE, NULL, &world->notes[i]};
    qsort(steps, count, sizeof *steps, by_time);
    return count;
}

static void tell_plan(FILE *to, const struct plan *plan)
{
    fprintf(to, "rung %s, seed %llu: %d processes of %d threads, %d locks%s%s%s%s\n",
            plan->rung->name, (unsigned long long)plan->seed, plan->processes, plan->threads,
            plan->locks, plan->calm ? ", calm" : "", plan->ordered ? ", ordered" : "",
            plan->long_ttl ? ", nothing expires" : "", plan->asks_tokens ? ", with tokens" : "");
    fprintf(to, "connect %lld ms, command %lld ms, retry %lld ms, grant %lld ms\n",
            (long long)plan->connect_ms, (long long)plan->command_ms, (long long)plan->retry_ms,
            (long long)plan->grant_ms);
    if (plan->sentinel)
        fprintf(to, "on %d servers with %d sentinels\n", NODES, SENTINELS);
    else if (plan->servers > 1)
        fprintf(to, "on %d servers\n", plan->servers);
    for (size_t i = 0; i < plan->fault_count; i++)
        fprintf(to,
                "fault: %s, %d times from event %d (process %d, server %d, kind %d) on, until %d "
                "more\n",
                fault_text(plan->faults[i].kind), plan->faults[i].times, plan->faults[i].at.count,
                plan->faults[i].at.process, plan->faults[i].at.server, plan->faults[i].at.request,
                plan->faults[i].until.count);
}

void transcript_write(FILE *to, const struct world *world, const struct plan *plan)
{
    size_t violations = atomic_load(&world->violation_count);
    struct step *steps = calloc(3 * CALLS_MAX + NOTES_MAX, sizeof *steps);
    tell_plan(to, plan);
    for (size_t i = 0; i < violations && i < VIOLATIONS_MAX; i++)
        fprintf(to, "VIOLATION %s: %s\n", violation_name(world->violations[i].kind),
                world->violations[i].text);
    size_t count = steps == NULL ? 0 : gather(world, steps);
    for (size_t i = 0; i < count; i++) {
        fprintf(to, "%9.3f ", (double)(steps[i].ns - steps[0].ns) / 1e6);
        if (steps[i].moment == MOMENT_NOTE)
            tell_note(to, world, steps[i].note);
        else
            tell_call(to, world, plan, &steps[i]);
    }
    free(steps);
}
