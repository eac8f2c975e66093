/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the picture share: the canvas, its measures, and an axis of time. Each part
 * draws from y down and returns the y below itself.
 */
#ifndef PICTURE_H
#define PICTURE_H

#include "scene.h"
#include "story.h"
#include "svg.h"

enum {
    PICTURE_WIDTH = 1280,
    PICTURE_LEFT = 40,
    PICTURE_RIGHT = 1240,
    PLOT_LEFT = 130, /* left of it: the lanes' names */
    NAME_WIDTH = 80,
};

struct picture {
    struct svg svg;
    const struct run *run;
    const struct verdict *verdict;
    struct scene scene;
    struct story story;
};

struct axis {
    int64_t from_ns;
    int64_t to_ns; /* > from_ns */
};

double axis_x(const struct axis *axis, int64_t t_ns); /* within the plot, whatever t_ns */
/* Lines from top to bottom, and their times in ms below. */
void axis_draw(const struct picture *picture, const struct axis *axis, double top, double bottom);

/* The colour of a bar, see the legend. */
const char *section_class(const struct run *run, const struct section *section);

double draw_header(const struct picture *picture, double y);
double draw_overview(const struct picture *picture, double y);
double draw_zoom(const struct picture *picture, double y);
double draw_steps(const struct picture *picture, double y);

/* The window as the overview shows it, so that the zoom can hang from it. */
struct box overview_window(const struct picture *picture, double y, double height);
/* Whether it is shown there: not where the zoom shows nothing more, or all of a small run. */
bool overview_frames(const struct picture *picture);
struct axis overview_axis(const struct picture *picture);

#endif
