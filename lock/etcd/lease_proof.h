/* SPDX-License-Identifier: Apache-2.0
 *
 * Since when a lease's time to live counts: arithmetic over times of CLOCK_BOOTTIME.
 *
 * Only the leader lets a lease expire, and it answers keep-alives without asking another member. A
 * leader that was deposed does not know that yet, and goes on answering them. The new leader gives
 * each lease its whole time to live when it begins to lead, and knows nothing of these answers. So
 * a keep-alive proves nothing by itself. It counts, from its send, once a later linearizable
 * request was answered by the same member in the same term: a quorum had no later leader then. A
 * grant is such a request itself. See docs/design/etcd.md.
 */
#ifndef DLOCK_ETCD_LEASE_PROOF_H
#define DLOCK_ETCD_LEASE_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#define RENEWALS_MAX 8

/* Who answered, as the header of a reply says. */
struct answerer {
    uint64_t member, term;
};

struct lease_proof {
    int64_t counts_ns; /* 0: not known */
    /* Keep-alives that were answered, and are not proven: from old to new. */
    struct lease_renewal {
        int64_t sent_ns, answered_ns;
        struct answerer by;
    } renewals[RENEWALS_MAX];
    int renewal_count;
};

/* A lease was granted. The request was sent at sent_ns. */
void lease_proof_begin(struct lease_proof *proof, int64_t sent_ns);
/* A keep-alive that was sent at sent_ns was answered now, with a time to live. If the answer does
 * not say by whom, it counts for nothing. */
void lease_proof_renewed(struct lease_proof *proof, int64_t sent_ns, int64_t now_ns,
                         struct answerer by);
/* A linearizable request that was sent at sent_ns was answered. True: counts_ns is later than
 * before. */
bool lease_proof_confirmed(struct lease_proof *proof, int64_t sent_ns, struct answerer by);

#endif
