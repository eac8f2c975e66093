/* SPDX-License-Identifier: Apache-2.0
 *
 * Pauses where a thread may be preempted: between a mutex that it has left and its next step, where
 * what it has just seen may become untrue.
 */
#ifndef TORTURE_NOISE_H
#define TORTURE_NOISE_H

/* After so many of 10,000 unlocks the thread pauses; not for more than half of the time, so that
 * the pauses of many small steps in a row do not add up to a bound. */
void noise_set(int of_10000, int pause_us_max);

#endif
