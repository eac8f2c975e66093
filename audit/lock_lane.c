/* SPDX-License-Identifier: Apache-2.0 */
#include "lock_lane.h"

#include <math.h>
#include <string.h>

enum {
    HEIGHT = 40,
    NAME_LINE = 26,
};

double draw_lock_lane(const struct picture *picture, double y)
{
    struct box back = {PLOT_LEFT, y, PICTURE_RIGHT - PLOT_LEFT, HEIGHT};
    if (picture->run->spec.lock_change_count == 0)
        return y;
    svg_rect(&picture->svg, &back, "lane");
    svg_text(&picture->svg, PLOT_LEFT - 10, y + NAME_LINE, "name big", "lock");
    return y + HEIGHT + 4;
}

/* Whether a hold begins: not if the same holder only got a new time to live. */
static bool begins_hold(const struct run_spec *spec, size_t i)
{
    return i == 0 || spec->lock_changes[i - 1].holder == NULL ||
           strcmp(spec->lock_changes[i - 1].holder, spec->lock_changes[i].holder) != 0;
}

/* The longest time to live of the key in this hold; it fills the height of the lane. */
static int64_t longest_ns(const struct run_spec *spec, size_t i)
{
    int64_t longest = 1;
    while (!begins_hold(spec, i))
        i--;
    for (size_t first = i; i < spec->lock_change_count && spec->lock_changes[i].holder != NULL &&
                           (i == first || !begins_hold(spec, i));
         i++) {
        const struct lock_change *change = &spec->lock_changes[i];
        if (change->expires_ns != NOT_STAMPED && change->expires_ns - change->t_ns > longest)
            longest = change->expires_ns - change->t_ns;
    }
    return longest;
}

/* Draws the rest of the time to live, from the change to to_ns, as a height. */
static void draw_time_left(const struct picture *picture, const struct axis *axis, double y,
                           size_t i, int64_t to_ns)
{
    const struct lock_change *change = &picture->run->spec.lock_changes[i];
    double whole = (double)longest_ns(&picture->run->spec, i);
    double bottom = y + HEIGHT;
    double from_x = axis_x(axis, change->t_ns);
    double to_x = fmax(axis_x(axis, to_ns), from_x + 2);
    double from_left = (double)(change->expires_ns - change->t_ns) / whole;
    double to_left = fmax((double)(change->expires_ns - to_ns) / whole, 0);
    fprintf(picture->svg.file, "<path class=\"ttl\" d=\"M%.2f,%.1f V%.1f L%.2f,%.1f V%.1f Z\"/>\n",
            from_x, bottom, bottom - fmax(fmin(from_left, 1), 0) * HEIGHT, to_x,
            bottom - to_left * HEIGHT, bottom);
}

/* Last, so that no bar hides them. A name without room is left out. */
static void draw_holders(const struct picture *picture, const struct axis *axis, double y)
{
    const struct run_spec *spec = &picture->run->spec;
    char name[SVG_LABEL_MAX];
    double free_x = PLOT_LEFT;
    for (size_t i = 0; i < spec->lock_change_count; i++) {
        const struct lock_change *change = &spec->lock_changes[i];
        if (change->holder == NULL || !begins_hold(spec, i) || change->t_ns > axis->to_ns)
            continue;
        const char *text = shortened(change->holder, 90, 12, name);
        double x = fmin(axis_x(axis, change->t_ns) + 6, PICTURE_RIGHT - svg_width(text, 12));
        if (x < free_x)
            continue;
        svg_text(&picture->svg, x, y + NAME_LINE, "small owner", "%s", text);
        free_x = x + svg_width(text, 12) + 4;
    }
}

void draw_lock(const struct picture *picture, const struct axis *axis, double y)
{
    const struct run_spec *spec = &picture->run->spec;
    for (size_t i = 0; i < spec->lock_change_count; i++) {
        const struct lock_change *change = &spec->lock_changes[i];
        bool is_last = i + 1 == spec->lock_change_count;
        int64_t to_ns = is_last ? axis->to_ns : spec->lock_changes[i + 1].t_ns;
        double x = axis_x(axis, change->t_ns);
        if (change->holder == NULL || change->t_ns > axis->to_ns || to_ns < axis->from_ns)
            continue;
        struct box box = {x, y, fmax(axis_x(axis, to_ns) - x, 2), HEIGHT};
        svg_rect(&picture->svg, &box,
                 change->session                     ? "granted"
                 : change->expires_ns == NOT_STAMPED ? "endless"
                                                     : "held");
        if (change->expires_ns != NOT_STAMPED)
            draw_time_left(picture, axis, y, i, to_ns);
    }
    draw_holders(picture, axis, y);
}
