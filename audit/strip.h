/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole run of a demonstration, where a handful of requests are all there is: lanes tall enough
 * to tell who was inside, who waited, who was killed or stood still, and which lock stays.
 */
#ifndef STRIP_H
#define STRIP_H

#include "picture.h"

/* Whether the run is small enough to be shown so. */
bool strip_fits(const struct run *run);
/* The lanes themselves, with their names; what stands in them goes over the axis. Returns the y
 * below. */
double draw_strip_lanes(const struct picture *picture, double y);
void draw_strips(const struct picture *picture, const struct axis *axis, double y);
/* Whether the strips show all there is: a close up would show the same once more. */
bool strip_tells_all(const struct picture *picture);

#endif
