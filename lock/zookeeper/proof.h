/* SPDX-License-Identifier: Apache-2.0
 *
 * Since when a session's time to live counts: arithmetic over times of CLOCK_BOOTTIME.
 *
 * Only the leader lets a session expire: when it has not heard of it for the session's time-out. A
 * follower tells it of the sessions that it has heard from with each answer to the leader's pings,
 * and the leader pings twice a tick. So if both stay connected, the leader has heard of a request
 * a tick after its answer. A write that was sent then, and answered, proves that they did: it went
 * to the leader behind the follower's answers to the pings, and a quorum confirmed it. A follower
 * that is cut off answers pings and reads for a while longer; these prove nothing. When a session
 * connects, the follower asks the leader, which thereby hears of it. See docs/design/zookeeper.md.
 */
#ifndef DLOCK_ZOOKEEPER_PROOF_H
#define DLOCK_ZOOKEEPER_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#define TOUCHES_MAX 16

struct proof {
    int64_t tick_ns;
    int64_t counts_ns; /* the leader has heard of the session since; 0: not known yet */
    /* Of the latest request that was answered, or of the session's begin. */
    int64_t latest_ns;
    /* The leader has heard of the session since, if the next write is answered; 0: not known. */
    int64_t connected_ns;
    /* Requests of this connection that were answered, and are not proven: from old to new. */
    struct touch {
        int64_t sent_ns, answered_ns;
    } touches[TOUCHES_MAX];
    int touch_count;
};

/* A session is asked for now. */
void proof_begin(struct proof *proof, int64_t now_ns);
/* It is connected, anew or again. */
void proof_connected(struct proof *proof);
/* A request that was sent at sent_ns was answered now. */
void proof_answered(struct proof *proof, int64_t sent_ns, int64_t now_ns);
/* The same for a write. True: counts_ns is later than before. */
bool proof_written(struct proof *proof, int64_t sent_ns, int64_t now_ns);
/* When to write again, after the latest write was sent then. pause_ns: while the session is known
 * to live. If it is not (`proven`), as soon as a write can prove it. */
int64_t proof_due(const struct proof *proof, int64_t sent_ns, int64_t pause_ns, bool proven);

#endif
