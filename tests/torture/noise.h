/* SPDX-License-Identifier: Apache-2.0
 *
 * Pauses a thread where it may be preempted: after it unlocks a mutex, when what it has just read
 * may become outdated.
 */
#ifndef TORTURE_NOISE_H
#define TORTURE_NOISE_H

/* Pauses a thread after of_10000 of 10,000 unlocks, for at most half of its time. Otherwise the
 * pauses of many small steps in a row could exceed a limit. */
void noise_set(int of_10000, int pause_us_max);

#endif
