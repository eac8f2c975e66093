/* SPDX-License-Identifier: Apache-2.0
 *
 * The close up of the scene: a lane for each instance, a bar for each critical section. The scene's
 * two sections carry the numbers 1 and 2, and say what they read and sold. Where a bar overlaps
 * another one, it is red and hatched.
 */
#include "memory.h"
#include "strip.h"

#include <math.h>
#include <stdlib.h>

enum {
    BARS_MAX = 300,
    ROWS_MAX = 10, /* rows of overlapping bars in one lane */
    LANES_MAX = 8,
    MARKS_MAX = 200,
    BAR_HEIGHT = 24,
    ROW_HEIGHT = 30,
    STAR_HEIGHT = 62, /* height of a row with number 1 or 2: it has words above and below the bar */
};

struct bar {
    const struct section *section;
    int star; /* 1, 2, or 0 */
    size_t row;
    double from, to; /* x */
    bool drawn;
};

struct lane {
    size_t instance;
    size_t rows;
    double y[ROWS_MAX]; /* of the bars */
    bool star[ROWS_MAX];
    double top, bottom;
};

struct zoom {
    const struct picture *picture;
    struct axis axis;
    struct bar bars[BARS_MAX];
    size_t bar_count;
    size_t left_out;
    struct lane lanes[LANES_MAX];
    size_t lane_count;
    double bottom;
};

/* ---- What is in the window, and where it goes --------------------------------------------------
 */

static int star_of(const struct scene *scene, const struct section *section)
{
    return section == scene->first ? 1 : section == scene->second ? 2 : 0;
}

static void add_bar(struct zoom *zoom, const struct section *section, int star)
{
    if (zoom->bar_count == BARS_MAX) {
        zoom->left_out++;
        return;
    }
    double from = axis_x(&zoom->axis, section->at_ns[STAGE_ENTER]);
    double to = axis_x(&zoom->axis, run_shown_end_ns(zoom->picture->run, section));
    zoom->bars[zoom->bar_count++] = (struct bar){section, star, 0, from, fmax(to, from + 2), true};
}

/* Adds the scene's two sections first, so that they surely get a place. */
static void zoom_collect(struct zoom *zoom)
{
    const struct run *run = zoom->picture->run;
    const struct scene *scene = &zoom->picture->scene;
    add_bar(zoom, scene->first, 1);
    if (scene->second != NULL)
        add_bar(zoom, scene->second, 2);
    for (size_t i = 0; i < run->by_lock_count; i++) {
        const struct section *section = run->by_lock[i];
        if (section->lock == scene->lock && star_of(scene, section) == 0 &&
            section->ended_ns >= scene->from_ns && section->at_ns[STAGE_ENTER] <= scene->to_ns)
            add_bar(zoom, section, 0);
    }
}

static struct lane *lane_of(struct zoom *zoom, size_t instance)
{
    for (size_t i = 0; i < zoom->lane_count; i++) {
        if (zoom->lanes[i].instance == instance)
            return &zoom->lanes[i];
    }
    if (zoom->lane_count == LANES_MAX)
        return NULL;
    zoom->lanes[zoom->lane_count] = (struct lane){.instance = instance};
    return &zoom->lanes[zoom->lane_count++];
}

/* A second row means that two were inside at once. So bars that only touch may share a row. */
static bool row_is_free(const struct zoom *zoom, const struct bar *bar, size_t row)
{
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    for (const struct bar *other = zoom->bars; other < bar; other++) {
        if (other->drawn && other->section->instance == bar->section->instance &&
            other->row == row &&
            ((other->star > 0 && bar->star > 0) ||
             scene_meeting(bar->section, other->section, &from_ns, &to_ns)))
            return false;
    }
    return true;
}

static int by_instance(const void *a, const void *b)
{
    const struct lane *one = a;
    const struct lane *two = b;
    return (one->instance > two->instance) - (one->instance < two->instance);
}

static void zoom_place(struct zoom *zoom)
{
    for (size_t i = 0; i < zoom->bar_count; i++) {
        struct bar *bar = &zoom->bars[i];
        struct lane *lane = lane_of(zoom, bar->section->instance);
        while (lane != NULL && bar->row < ROWS_MAX && !row_is_free(zoom, bar, bar->row))
            bar->row++;
        bar->drawn = lane != NULL && bar->row < ROWS_MAX;
        if (!bar->drawn) {
            zoom->left_out++;
            continue;
        }
        lane->rows = lane->rows > bar->row + 1 ? lane->rows : bar->row + 1;
        lane->star[bar->row] = lane->star[bar->row] || bar->star > 0;
    }
    for (size_t i = 0; i < zoom->picture->run->spec.instance_count; i++)
        lane_of(zoom, i); /* also idle instances, if there is room */
    qsort(zoom->lanes, zoom->lane_count, sizeof *zoom->lanes, by_instance);
}

static void lay_out(struct zoom *zoom, double y)
{
    for (size_t i = 0; i < zoom->lane_count; i++) {
        struct lane *lane = &zoom->lanes[i];
        lane->top = y;
        y += 6;
        for (size_t row = 0; row < lane->rows; row++) {
            lane->y[row] = y + (lane->star[row] ? 19 : 3);
            y += lane->star[row] ? STAR_HEIGHT : ROW_HEIGHT;
        }
        y += lane->rows > 0 ? 6 : ROW_HEIGHT;
        lane->bottom = y;
        y += 6;
    }
    zoom->bottom = y;
}

/* ---- Bars --------------------------------------------------------------------------------------
 */

struct span {
    double from, to; /* x */
};

static int by_from(const void *a, const void *b)
{
    const struct span *one = a;
    const struct span *two = b;
    return (one->from > two->from) - (one->from < two->from);
}

/* Hatches the parts where the bar overlaps others. Adjacent parts become one. */
static void draw_hatch(const struct zoom *zoom, const struct bar *bar, double y)
{
    struct span spans[BARS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < zoom->bar_count && bar->section->overlapped; i++) {
        int64_t from_ns = 0;
        int64_t to_ns = 0;
        const struct section *other = zoom->bars[i].section;
        if (other == bar->section || !scene_clash(bar->section, other, &from_ns, &to_ns))
            continue;
        double from = axis_x(&zoom->axis, from_ns);
        spans[count++] = (struct span){from, fmax(axis_x(&zoom->axis, to_ns), from + 2)};
    }
    qsort(spans, count, sizeof *spans, by_from);
    for (size_t i = 0; i < count;) {
        struct span span = spans[i];
        for (; i < count && spans[i].from <= span.to; i++)
            span.to = fmax(span.to, spans[i].to);
        struct box box = {span.from, y, span.to - span.from, BAR_HEIGHT};
        svg_rect(&zoom->picture->svg, &box, "clash");
    }
}

/* Draws the text inside a bar, if there is room. */
static void draw_label(const struct zoom *zoom, const struct bar *bar, double y)
{
    const struct section *section = bar->section;
    const bool named = strip_fits(zoom->picture->run);
    char name[SVG_LABEL_MAX];
    char text[SVG_LABEL_MAX];
    if (named)
        snprintf(text, sizeof text, "%.100s",
                 scene_name(zoom->picture->run, &zoom->picture->scene, section, name));
    else if (section->sold)
        units_sold(zoom->picture->run, section, text);
    else if (section->stock_before != NOT_KNOWN)
        snprintf(text, sizeof text, "%lld left", (long long)section->stock_before);
    else
        return;
    double from = bar->from + (bar->star > 0 && !named ? 16 : 5);
    if (bar->to - from >= svg_width(text, 13))
        svg_text(&zoom->picture->svg, from, y + 17,
                 section->overlapped ? "inside strong"
                 : section->sold     ? "inside"
                                     : "small",
                 "%s", text);
}

static void draw_bar(const struct zoom *zoom, const struct bar *bar, double y)
{
    const struct run *run = zoom->picture->run;
    const struct section *section = bar->section;
    FILE *file = zoom->picture->svg.file;
    fprintf(file, "<g class=\"bar\" data-enter-ns=\"%lld\" data-end-ns=\"%lld\">\n<title>",
            (long long)section->at_ns[STAGE_ENTER], (long long)run_shown_end_ns(run, section));
    svg_escape(&zoom->picture->svg, run_request_id(run, section->request));
    fprintf(file, ": %.3f to %.3f ms</title>\n", run_ms(run, section->at_ns[STAGE_ENTER]),
            run_ms(run, run_shown_end_ns(run, section)));
    struct box box = {bar->from, y, bar->to - bar->from, BAR_HEIGHT};
    svg_rect(&zoom->picture->svg, &box, section_class(run, section));
    draw_hatch(zoom, bar, y);
    if (bar->star > 0)
        svg_rect(&zoom->picture->svg, &box, "star");
    if (run_was_killed(run, section))
        draw_cross(&zoom->picture->svg, bar->to, y + BAR_HEIGHT / 2.0); /* killed */
    else if (section->at_ns[STAGE_EXIT] == NOT_STAMPED)                 /* its end is not known */
        svg_line(&zoom->picture->svg, bar->to, y + BAR_HEIGHT / 2.0, PICTURE_RIGHT,
                 y + BAR_HEIGHT / 2.0, "open");
    draw_label(zoom, bar, y);
    fputs("</g>\n", file);
}

static void draw_number(const struct picture *picture, double x, double y, int number)
{
    fprintf(picture->svg.file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"10\" class=\"number\"/>", x, y);
    svg_text(&picture->svg, x, y + 5, "digit", "%d", number);
}

/* A tick at the bar, with words above it (side -1) or below it (1). */
static void draw_event(const struct zoom *zoom, int64_t t_ns, double y, int side, const char *text)
{
    if (t_ns == NOT_STAMPED || t_ns < zoom->axis.from_ns || t_ns > zoom->axis.to_ns)
        return;
    double x = axis_x(&zoom->axis, t_ns);
    double edge = side < 0 ? y : y + BAR_HEIGHT;
    bool at_right = x > PICTURE_RIGHT - 180;
    svg_line(&zoom->picture->svg, x, edge - 4 * side, x, edge + 8 * side, "event");
    svg_text(&zoom->picture->svg, x + (at_right ? -5 : 5), edge + (side < 0 ? -5 : 14),
             at_right ? "event-text end" : "event-text", "%s", text);
}

static void draw_star(const struct zoom *zoom, const struct bar *bar, double y)
{
    const struct section *section = bar->section;
    char text[UNITS_TEXT_MAX + 8];
    char units[UNITS_TEXT_MAX];
    snprintf(text, sizeof text, "reads: %lld left", (long long)section->stock_before);
    if (section->stock_before != NOT_KNOWN)
        draw_event(zoom, section->at_ns[STAGE_READ], y, -1, text);
    if (section->sold) {
        snprintf(text, sizeof text, "sells %s", units_sold(zoom->picture->run, section, units));
        draw_event(zoom, section->at_ns[STAGE_WRITE], y, 1, text);
    }
    if (!strip_fits(zoom->picture->run)) /* in a small run the bars have names instead */
        draw_number(zoom->picture, fmax(bar->from, PLOT_LEFT + 4), y + BAR_HEIGHT / 2.0, bar->star);
}

/* ---- Marks -------------------------------------------------------------------------------------
 */

static bool in_window(const struct zoom *zoom, int64_t t_ns)
{
    return t_ns != NOT_STAMPED && t_ns >= zoom->axis.from_ns && t_ns <= zoom->axis.to_ns;
}

static const struct lane *find_lane(const struct zoom *zoom, size_t instance)
{
    for (size_t i = 0; i < zoom->lane_count; i++) {
        if (zoom->lanes[i].instance == instance)
            return &zoom->lanes[i];
    }
    return NULL;
}

static void zoom_draw_marks(const struct zoom *zoom)
{
    static const char *const classes[] = {
        [MARK_RENEW] = "renew", [MARK_LOST] = "lost", [MARK_STALL] = "stall"};
    const struct run *run = zoom->picture->run;
    size_t drawn = 0;
    for (size_t i = 0; i < run->mark_count && drawn < MARKS_MAX; i++) {
        const struct mark *mark = &run->marks[i];
        const struct lane *lane = find_lane(zoom, mark->instance);
        if (lane == NULL || !in_window(zoom, mark->t_ns))
            continue;
        double x = axis_x(&zoom->axis, mark->t_ns);
        svg_line(&zoom->picture->svg, x, lane->top, x, lane->bottom, classes[mark->kind]);
        drawn++;
    }
    drawn = 0;
    for (size_t i = 0; i < run->request_count && drawn < MARKS_MAX; i++) {
        const struct request *request = &run->requests[i];
        if (request->outcome != OUTCOME_REFUSED || !in_window(zoom, request->outcome_ns))
            continue;
        const struct lane *lane = find_lane(zoom, request->instance);
        if (lane == NULL)
            continue;
        double x = axis_x(&zoom->axis, request->outcome_ns);
        svg_line(&zoom->picture->svg, x, lane->bottom - 6, x, lane->bottom, "refused");
        drawn++;
    }
}

/* Draws the time in which both were inside, through all lanes. */
static void draw_meeting(const struct zoom *zoom, double top)
{
    const struct scene *scene = &zoom->picture->scene;
    char names[2][SVG_LABEL_MAX];
    char buffer[TIME_TEXT_MAX];
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    if (scene->second == NULL || !scene_meeting(scene->first, scene->second, &from_ns, &to_ns))
        return;
    double from = axis_x(&zoom->axis, from_ns);
    double width = fmax(axis_x(&zoom->axis, to_ns) - from, 2);
    struct box box = {from, top, width, zoom->bottom - top - 6};
    char text[3 * SVG_LABEL_MAX];
    snprintf(text, sizeof text, "%s and %s inside together: %s",
             scene_name(zoom->picture->run, scene, scene->first, names[0]),
             scene_name(zoom->picture->run, scene, scene->second, names[1]),
             duration(to_ns - from_ns, buffer));
    double half = svg_width(text, 13) / 2;
    double middle = fmin(fmax(from + width / 2, PLOT_LEFT + half), PICTURE_RIGHT - half);
    svg_rect(&zoom->picture->svg, &box, "meeting");
    svg_text(&zoom->picture->svg, middle, top - 6, "meeting-text", "%s", text);
}

/* ---- All of it ---------------------------------------------------------------------------------
 */

static void zoom_draw_lanes(const struct zoom *zoom)
{
    const struct picture *picture = zoom->picture;
    char name[SVG_LABEL_MAX];
    for (size_t i = 0; i < zoom->lane_count; i++) {
        const struct lane *lane = &zoom->lanes[i];
        struct box box = {PLOT_LEFT, lane->top, PICTURE_RIGHT - PLOT_LEFT,
                          lane->bottom - lane->top};
        svg_rect(&picture->svg, &box, "lane");
        svg_text(&picture->svg, PLOT_LEFT - 10, (lane->top + lane->bottom) / 2 + 6, "name big",
                 "%s",
                 shortened(picture->run->spec.instances[lane->instance], NAME_WIDTH, 17, name));
    }
}

static void draw_bars(struct zoom *zoom)
{
    for (int star = 0; star < 2; star++) { /* the scene's two sections are drawn last, on top */
        for (size_t i = 0; i < zoom->bar_count; i++) {
            const struct bar *bar = &zoom->bars[i];
            if (!bar->drawn || (bar->star > 0) != (star > 0))
                continue;
            double y = find_lane(zoom, bar->section->instance)->y[bar->row];
            draw_bar(zoom, bar, y);
            if (bar->star > 0)
                draw_star(zoom, bar, y);
        }
    }
}

static void draw_heading(const struct zoom *zoom, double y)
{
    const struct picture *picture = zoom->picture;
    char name[SVG_LABEL_MAX];
    char buffer[TIME_TEXT_MAX];
    char more[64] = "";
    if (zoom->left_out > 0)
        snprintf(more, sizeof more, "; %zu more sections are not drawn", zoom->left_out);
    svg_text(&picture->svg, PICTURE_LEFT, y, "heading", "Close up");
    svg_text(&picture->svg, PICTURE_LEFT + 150, y, "note", "%s out of the run, sections of %s%s",
             duration(picture->scene.to_ns - picture->scene.from_ns, buffer),
             shortened(names_text(&picture->run->locks, picture->scene.lock), 500, 13, name), more);
}

double draw_zoom(const struct picture *picture, double y)
{
    if (picture->scene.kind == SCENE_EMPTY || strip_tells_all(picture))
        return y;
    struct zoom *zoom = memory_new(1, sizeof *zoom);
    zoom->picture = picture;
    zoom->axis = (struct axis){picture->scene.from_ns, picture->scene.to_ns};
    double top = y + 50;
    zoom_collect(zoom);
    zoom_place(zoom);
    lay_out(zoom, top);
    fprintf(picture->svg.file, "<g id=\"zoom\" data-from-ns=\"%lld\" data-to-ns=\"%lld\">\n",
            (long long)zoom->axis.from_ns, (long long)zoom->axis.to_ns);
    draw_heading(zoom, y + 16);
    zoom_draw_lanes(zoom);
    axis_draw(picture, &zoom->axis, top, zoom->bottom);
    draw_meeting(zoom, top);
    zoom_draw_marks(zoom);
    draw_bars(zoom);
    fputs("</g>\n", picture->svg.file);
    double bottom = zoom->bottom + 24;
    free(zoom);
    return bottom;
}
