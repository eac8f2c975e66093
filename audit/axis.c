/* SPDX-License-Identifier: Apache-2.0
 *
 * The time axis: from left to right, in ms since the start of the run.
 */
#include "picture.h"

#include <math.h>

double axis_x(const struct axis *axis, int64_t t_ns)
{
    double part = (double)(t_ns - axis->from_ns) / (double)(axis->to_ns - axis->from_ns);
    return PLOT_LEFT + fmin(fmax(part, 0), 1) * (PICTURE_RIGHT - PLOT_LEFT);
}

/* 1, 2, 5 or 10 times a power of ten: the least step that gives at most steps_max steps. */
static double nice_step(double range, double steps_max)
{
    static const double factors[] = {1, 2, 5};
    double power = pow(10, floor(log10(range / steps_max)));
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        if (range <= steps_max * factors[i] * power)
            return factors[i] * power;
    }
    return 10 * power;
}

void axis_draw(const struct picture *picture, const struct axis *axis, double top, double bottom)
{
    double from_ms = run_ms(picture->run, axis->from_ns);
    double to_ms = run_ms(picture->run, axis->to_ns);
    double step = nice_step(to_ms - from_ms, 9);
    int decimals = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    double first = ceil(from_ms / step);
    for (double i = first; i * step <= to_ms && i < first + 20; i++) {
        double ms = fabs(i * step) < step / 2 ? 0 : i * step;
        double x = PLOT_LEFT + (ms - from_ms) / (to_ms - from_ms) * (PICTURE_RIGHT - PLOT_LEFT);
        svg_line(&picture->svg, x, top, x, bottom, "grid");
        if (x < PICTURE_RIGHT - 60) /* room for the unit */
            svg_text(&picture->svg, x, bottom + 16, "tick", "%.*f", decimals, ms);
    }
    svg_text(&picture->svg, PICTURE_RIGHT, bottom + 16, "tick end", "ms");
}
