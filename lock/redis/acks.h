/* SPDX-License-Identifier: Apache-2.0
 *
 * Confirmation by replicas: a WAIT after a write, on the same connection and in the same send. See
 * dlock_options.replicas_ack and docs/design/replicas.md.
 */
#ifndef DLOCK_ACKS_H
#define DLOCK_ACKS_H

#include "redis.h"
#include "status.h"

/* What the replicas say about a write. All zero: they were not asked, which counts as confirmed. */
struct acks {
    bool asked;
    size_t index;        /* of WAIT's reply */
    dlock_status status; /* OK; REFUSED: too few confirmed the write, or it is not known how many */
    bool transient;      /* a later write may be confirmed */
    char why[SENTENCE_MAX];
};

/* How many replicas must confirm a write to the first server; 0: none, and WAIT is not sent. */
size_t acks_needed(const struct redis *redis);

/* Appends WAIT after the commands of this write, if replicas must confirm them. It ends after half
 * of the shortest of these times: command_timeout_ms, so that its answer comes before it counts as
 * missing; the time until ends_ns (CLOCK_MONOTONIC); and valid_ms, as long as what it confirms is
 * valid at most. */
void acks_append(struct acks *acks, struct redis *redis, size_t index, int64_t ends_ns,
                 int64_t valid_ms);
#define ACKS_ALWAYS INT64_MAX /* valid_ms of what does not expire */
/* Reads WAIT's answer. The thread's sentence is kept. */
void acks_take(struct acks *acks, const struct redis *redis);

/* The status of a step that answered `status`. An OK that too few replicas confirmed: REFUSED, with
 * the sentence. */
static inline dlock_status acks_judge(const struct acks *acks, dlock_status status)
{
    return status == DLOCK_OK && acks->status != DLOCK_OK ? fail(acks->status, "%s", acks->why)
                                                          : status;
}

#endif
