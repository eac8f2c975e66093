/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole run: a lane for each instance, and below them how many units were sold. It is drawn by
 * pixel columns, so its size does not grow with the run.
 */
#include "lock_lane.h"
#include "memory.h"
#include "rules.h"
#include "strip.h"

#include <math.h>
#include <stdlib.h>

enum { COLUMNS = PICTURE_RIGHT - PLOT_LEFT, LANES_MAX = 16, CHART_HEIGHT = 64, LABEL_HEIGHT = 14 };

enum cell { CELL_FREE, CELL_BUSY, CELL_OVERLAP };
static const char *const cell_classes[] = {"", "sold", "clash"};

struct axis overview_axis(const struct picture *picture)
{
    int64_t from_ns = picture->run->start_ns;
    int64_t to_ns = picture->run->end_ns;
    int64_t margin = (to_ns - from_ns) / 100 + 1;
    return (struct axis){from_ns - margin, to_ns + margin};
}

struct box overview_window(const struct picture *picture, double y, double height)
{
    struct axis axis = overview_axis(picture);
    double from = axis_x(&axis, picture->scene.from_ns);
    double to = axis_x(&axis, picture->scene.to_ns);
    double width = fmax(to - from, 6); /* wide enough to be visible */
    from = fmin(fmax((from + to - width) / 2, PLOT_LEFT), PICTURE_RIGHT - width);
    return (struct box){from, y, width, height};
}

bool overview_frames(const struct picture *picture)
{
    enum { WHOLE = (PICTURE_RIGHT - PLOT_LEFT) * 9 / 10 };
    return picture->scene.kind != SCENE_EMPTY && !strip_tells_all(picture) &&
           (!strip_fits(picture->run) || overview_window(picture, 0, 0).width < WHOLE);
}

static size_t column_of(const struct axis *axis, int64_t t_ns)
{
    double column = floor(axis_x(axis, t_ns) - PLOT_LEFT);
    return column < COLUMNS - 1 ? (size_t)column : COLUMNS - 1;
}

static void fill_lane(const struct picture *picture, const struct axis *axis, size_t instance,
                      enum cell lane[COLUMNS])
{
    const struct run *run = picture->run;
    for (size_t i = 0; i < run->by_lock_count; i++) {
        const struct section *section = run->by_lock[i];
        if (section->instance != instance)
            continue;
        enum cell cell = section->overlapped ? CELL_OVERLAP : CELL_BUSY;
        size_t last = column_of(axis, section->ended_ns);
        for (size_t column = column_of(axis, section->at_ns[STAGE_ENTER]); column <= last;
             column++) {
            if (lane[column] < cell)
                lane[column] = cell;
        }
    }
}

/* Adjacent columns with the same look become one rectangle. */
static void draw_lane(const struct picture *picture, const enum cell lane[COLUMNS], double y,
                      double height)
{
    for (size_t from = 0; from < COLUMNS;) {
        size_t to = from + 1;
        while (to < COLUMNS && lane[to] == lane[from])
            to++;
        struct box box = {PLOT_LEFT + (double)from, y, (double)(to - from), height};
        if (lane[from] != CELL_FREE)
            svg_rect(&picture->svg, &box, cell_classes[lane[from]]);
        from = to;
    }
}

static double overview_draw_lanes(const struct picture *picture, const struct axis *axis, double y)
{
    const struct run *run = picture->run;
    char name[SVG_LABEL_MAX];
    size_t count = run->spec.instance_count;
    double height = count <= 4 ? 24 : 12;
    enum cell *lane = memory_new(COLUMNS, sizeof *lane);
    for (size_t i = 0; i < count && i < LANES_MAX; i++) {
        struct box back = {PLOT_LEFT, y, COLUMNS, height};
        svg_rect(&picture->svg, &back, "lane");
        for (size_t column = 0; column < COLUMNS; column++)
            lane[column] = CELL_FREE;
        fill_lane(picture, axis, i, lane);
        draw_lane(picture, lane, y, height);
        svg_text(&picture->svg, PLOT_LEFT - 10, y + height / 2 + 5, "name", "%s",
                 shortened(run->spec.instances[i], NAME_WIDTH, 13, name));
        y += height + 4;
    }
    free(lane);
    if (count > LANES_MAX) {
        svg_text(&picture->svg, PLOT_LEFT, y + 12, "note", "and %zu more instances",
                 count - LANES_MAX);
        y += 18;
    }
    return y;
}

static int by_point(const void *a, const void *b)
{
    const struct point *one = a;
    const struct point *two = b;
    return (one->t_ns > two->t_ns) - (one->t_ns < two->t_ns);
}

/* Fills in what the chart counts up to the end of each column. Returns how much that is in all. */
static int64_t count_up(struct chart *chart, const struct axis *axis, int64_t sold[COLUMNS])
{
    int64_t all = 0;
    size_t next = 0;
    qsort(chart->points, chart->count, sizeof *chart->points, by_point);
    for (size_t column = 0; column < COLUMNS; column++) {
        for (; next < chart->count && column_of(axis, chart->points[next].t_ns) <= column; next++)
            all += chart->points[next].amount;
        sold[column] = all;
    }
    return all;
}

/* To the left of the chart, small if it would not fit. */
static void draw_amount(const struct picture *picture, double y, const char *name, double amount)
{
    char text[SVG_LABEL_MAX];
    snprintf(text, sizeof text, "%s %.0f", name, amount);
    svg_text(&picture->svg, PLOT_LEFT - 10, y,
             svg_width(text, 13) > PLOT_LEFT - 10 ? "name small" : "name", "%s", text);
}

/* A filled step line, as of the units sold; the part above the limit, the stock, is red. */
static void draw_chart(const struct picture *picture, const struct axis *axis, double top)
{
    const struct run *run = picture->run;
    FILE *file = picture->svg.file;
    int64_t *sold = memory_new(COLUMNS, sizeof *sold);
    struct chart chart = {.points = NULL};
    run->rules->chart(run, &chart);
    double all = (double)count_up(&chart, axis, sold);
    double stock = (double)chart.limit;
    double scale = CHART_HEIGHT / fmax(fmax(all, stock) * 1.08, 1);
    double bottom = top + CHART_HEIGHT;
    struct box back = {PLOT_LEFT, top, COLUMNS, CHART_HEIGHT};
    svg_rect(&picture->svg, &back, "lane");
    for (int above = 0; above < 2; above++) {
        double base = above ? stock : 0;
        if (above && all <= stock)
            break;
        fprintf(file, "<path class=\"%s\" d=\"M%d,%.1f", above ? "clash" : "area", PLOT_LEFT,
                bottom - base * scale);
        for (size_t column = 0; column < COLUMNS; column++) {
            double units = (double)sold[column];
            units = above ? fmax(units, stock) : fmin(units, stock);
            if (column == 0 || column == COLUMNS - 1 || sold[column] != sold[column - 1])
                fprintf(file, "H%zuV%.1f", PLOT_LEFT + column, bottom - units * scale);
        }
        fprintf(file, "H%d V%.1f Z\"/>\n", PICTURE_RIGHT, bottom - base * scale);
    }
    free(sold);
    free(chart.points);
    double y = bottom - stock * scale;
    svg_line(&picture->svg, PLOT_LEFT, y, PICTURE_RIGHT, y, "stock");
    draw_amount(picture, y + 5, chart.limit_name, stock);
    double sold_y = bottom - all * scale;
    if (fabs(sold_y - y) < LABEL_HEIGHT)
        sold_y = all > stock || y + LABEL_HEIGHT > bottom ? y - LABEL_HEIGHT : y + LABEL_HEIGHT;
    draw_amount(picture, fmin(sold_y + 5, bottom), chart.name, all);
}

double draw_overview(const struct picture *picture, double y)
{
    const struct run *run = picture->run;
    struct axis axis = overview_axis(picture);
    svg_text(&picture->svg, PICTURE_LEFT, y + 16, "heading", "The whole run");
    svg_text(&picture->svg, PICTURE_LEFT + 150, y + 16, "note",
             "%zu critical section%s in %.0f ms. A lane shows when a request was inside on that "
             "instance.",
             run->by_lock_count, run->by_lock_count == 1 ? "" : "s", run_ms(run, run->end_ns));
    double top = y + 28;
    bool small = strip_fits(run);
    double lock =
        (small ? draw_strip_lanes(picture, top) : overview_draw_lanes(picture, &axis, top)) + 4;
    double chart = small ? draw_lock_lane(picture, lock) : lock;
    draw_chart(picture, &axis, chart);
    double bottom = chart + CHART_HEIGHT;
    axis_draw(picture, &axis, top, bottom);
    if (small) {
        draw_lock(picture, &axis, lock);
        draw_strips(picture, &axis, top);
    }
    if (overview_frames(picture)) {
        struct box window = overview_window(picture, top - 4, bottom - top + 8);
        svg_rect(&picture->svg, &window, "window");
    }
    return bottom + 24;
}
