/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the parts of the picture: the canvas, its sizes, and a time axis. Each part draws
 * downwards from y, and returns the y below itself.
 */
#ifndef PICTURE_H
#define PICTURE_H

#include "scene.h"
#include "story.h"
#include "svg.h"

enum {
    PICTURE_WIDTH = 960, /* about the width of a page, so that texts keep their size */
    PICTURE_LEFT = 24,
    PICTURE_RIGHT = 936,
    PLOT_LEFT = 100, /* the names of the lanes are to the left of it */
    NAME_WIDTH = 66,
};

struct picture {
    struct svg svg;
    char *drawn; /* the SVG so far; complete after a flush of svg.file */
    const struct run *run;
    const struct verdict *verdict;
    struct scene scene;
    struct story story;
};

struct axis {
    int64_t from_ns;
    int64_t to_ns; /* > from_ns */
};

double axis_x(const struct axis *axis, int64_t t_ns); /* clamped to the plot */
/* Draws grid lines from top to bottom, and their times in ms below. */
void axis_draw(const struct picture *picture, const struct axis *axis, double top, double bottom);

/* The style class that colours the bar; the legend explains it. */
const char *section_class(const struct run *run, const struct section *section);

double draw_header(const struct picture *picture, double y);
double draw_overview(const struct picture *picture, double y);
double draw_zoom(const struct picture *picture, double y);
double draw_steps(const struct picture *picture, double y);

/* The frame in the overview that marks the scene; the close up is drawn below it. */
struct box overview_window(const struct picture *picture, double y, double height);
/* Whether the overview draws that frame. It does not if the close up would show nothing more, or
 * all of a small run. */
bool overview_frames(const struct picture *picture);
struct axis overview_axis(const struct picture *picture);

#endif
