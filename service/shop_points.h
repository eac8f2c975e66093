/* SPDX-License-Identifier: Apache-2.0
 *
 * The shop's failpoints.
 */
#ifndef SHOP_POINTS_H
#define SHOP_POINTS_H

/* X(group, name, where it is, what `fail` does; "": it cannot fail) */
#define SHOP_POINTS(X)                                                                             \
    X(sale, before_upgrade,                                                                        \
      "with upgrade=1: the stock was read under the read lock, which the sale still holds", "")    \
    X(sale, entered, "the lock was acquired", "")                                                  \
    X(sale, between_segments,                                                                      \
      "with --segments: too few units were in its segments, and it asks for other locks now", "")  \
    X(sale, after_read, "the stock was read", "")                                                  \
    X(sale, before_write, "after the business time and the last check of the hold", "")            \
    X(sale, after_write, "the stock was written",                                                  \
      "the lock is not released, as by an early return")                                           \
    X(queue, accepted, "with --on-conflict queue: the sale is in the queue, and not answered yet", \
      "")                                                                                          \
    X(queue, taken, "the lock was acquired, and the oldest entry is this instance's", "")          \
    X(queue, before_ack,                                                                           \
      "the entry was sold; a flawed write has not acknowledged it yet, any other has", "")         \
    X(read, entered, "with --guard-reads: a reader acquired its lock, and has not read yet", "")

#endif
