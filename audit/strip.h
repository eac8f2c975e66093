/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws a whole small run, request by request. Its lanes are tall enough to show which requests
 * were inside or waited. They also show which process was killed or stood still, and which lock
 * stays.
 */
#ifndef STRIP_H
#define STRIP_H

#include "picture.h"

/* Whether the run is small enough to be drawn this way. */
bool strip_fits(const struct run *run);
/* Draws the empty lanes and their names. draw_strips() fills them later, on top of the axis.
 * Returns the y below. */
double draw_strip_lanes(const struct picture *picture, double y);
void draw_strips(const struct picture *picture, const struct axis *axis, double y);
/* Whether the strips show everything, so that a close up would only repeat it. */
bool strip_tells_all(const struct picture *picture);

#endif
