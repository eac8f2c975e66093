/* SPDX-License-Identifier: Apache-2.0
 *
 * The lane of the lock, in the picture of a small run: while its key exists, its holder and the
 * rest of its time to live.
 */
#ifndef LOCK_LANE_H
#define LOCK_LANE_H

#include "picture.h"

/* Draws the empty lane and its name, if there are records of the key. Returns the y below. */
double draw_lock_lane(const struct picture *picture, double y);
/* Fills the lane; y as above. */
void draw_lock(const struct picture *picture, const struct axis *axis, double y);

#endif
