/* SPDX-License-Identifier: Apache-2.0
 *
 * See lease_proof.h.
 */
#include "lease_proof.h"

#include <string.h>

static void forget(struct lease_proof *proof, int count)
{
    proof->renewal_count -= count;
    memmove(proof->renewals, proof->renewals + count,
            (size_t)proof->renewal_count * sizeof proof->renewals[0]);
}

void lease_proof_begin(struct lease_proof *proof, int64_t sent_ns)
{
    *proof = (struct lease_proof){.counts_ns = sent_ns};
}

void lease_proof_renewed(struct lease_proof *proof, int64_t sent_ns, int64_t now_ns,
                         struct answerer by)
{
    if (by.member == 0 || by.term == 0)
        return;
    if (proof->renewal_count == RENEWALS_MAX)
        forget(proof, 1);
    proof->renewals[proof->renewal_count++] = (struct lease_renewal){sent_ns, now_ns, by};
}

bool lease_proof_confirmed(struct lease_proof *proof, int64_t sent_ns, struct answerer by)
{
    int64_t before_ns = proof->counts_ns;
    for (int i = proof->renewal_count - 1; i >= 0; i--) {
        const struct lease_renewal *renewal = &proof->renewals[i];
        if (renewal->answered_ns > sent_ns || renewal->by.member != by.member ||
            renewal->by.term != by.term)
            continue;
        if (renewal->sent_ns > before_ns)
            proof->counts_ns = renewal->sent_ns;
        forget(proof, i + 1); /* the older ones would add nothing */
        break;
    }
    return proof->counts_ns > before_ns;
}
