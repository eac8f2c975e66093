/* SPDX-License-Identifier: Apache-2.0
 *
 * See proof.h.
 */
#include "proof.h"

#include <string.h>

/* Touches that are closer together would fill the table, and prove hardly more. */
#define TOUCHES_PER_TICK 8

static void forget_touches(struct proof *proof, int count)
{
    proof->touch_count -= count;
    memmove(proof->touches, proof->touches + count,
            (size_t)proof->touch_count * sizeof proof->touches[0]);
}

void proof_begin(struct proof *proof, int64_t now_ns)
{
    *proof = (struct proof){.tick_ns = proof->tick_ns, .latest_ns = now_ns};
}

void proof_connected(struct proof *proof)
{
    proof->connected_ns = proof->latest_ns;
    proof->touch_count = 0;
}

void proof_answered(struct proof *proof, int64_t sent_ns, int64_t now_ns)
{
    int count = proof->touch_count;
    if (sent_ns > proof->latest_ns)
        proof->latest_ns = sent_ns;
    if (count > 0 &&
        now_ns - proof->touches[count - 1].answered_ns < proof->tick_ns / TOUCHES_PER_TICK)
        return;
    if (count == TOUCHES_MAX)
        forget_touches(proof, 1);
    proof->touches[proof->touch_count++] = (struct touch){sent_ns, now_ns};
}

bool proof_written(struct proof *proof, int64_t sent_ns, int64_t now_ns)
{
    int64_t before_ns = proof->counts_ns, proven_ns = proof->connected_ns;
    int count = 0;
    while (count < proof->touch_count &&
           proof->touches[count].answered_ns + proof->tick_ns <= sent_ns)
        count++;
    if (count > 0)
        proven_ns = proof->touches[count - 1].sent_ns;
    forget_touches(proof, count);
    proof->connected_ns = 0;
    if (proven_ns > before_ns)
        proof->counts_ns = proven_ns;
    proof_answered(proof, sent_ns, now_ns);
    return proof->counts_ns > before_ns;
}

int64_t proof_due(const struct proof *proof, int64_t sent_ns, int64_t pause_ns, bool proven)
{
    int64_t due_ns = sent_ns + pause_ns, soon_ns = sent_ns + proof->tick_ns;
    if (proven || proof->touch_count == 0)
        return due_ns;
    if (proof->touches[0].answered_ns + proof->tick_ns > soon_ns)
        soon_ns = proof->touches[0].answered_ns + proof->tick_ns;
    return soon_ns < due_ns ? soon_ns : due_ns;
}
