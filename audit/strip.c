/* SPDX-License-Identifier: Apache-2.0 */
#include "strip.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    REQUESTS_FEW = 6,
    SECTIONS_FEW = 12,
    INSTANCES_FEW = 4,
    MARKS_FEW = 60,
    NOTES_MAX = 16, /* notes in one lane */
    BAR_TOP = 4,
    BAR_HEIGHT = 20,
    WAIT_TOP = 28,
    WAIT_HEIGHT = 10,
    NOTE_LINE = 53,
    LANE_HEIGHT = 58,
    LANE_STEP = LANE_HEIGHT + 4,
    SEEN = 4,                  /* a narrower span gets no note */
    WAIT_NS_MIN = 5 * 1000000, /* a shorter wait is only the round trip to Redis */
};

struct note {
    double x;
    bool bad;
    char text[256];
};

struct strip {
    const struct picture *picture;
    const struct run *run;
    const struct axis *axis;
    size_t instance;
    double top;
    struct note notes[NOTES_MAX];
    size_t note_count;
};

bool strip_fits(const struct run *run)
{
    return run->request_count <= REQUESTS_FEW && run->section_count <= SECTIONS_FEW &&
           run->spec.instance_count <= INSTANCES_FEW && run->mark_count <= MARKS_FEW;
}

bool strip_tells_all(const struct picture *picture)
{
    return strip_fits(picture->run) && picture->scene.kind == SCENE_ALONE;
}

/* ---- Words -------------------------------------------------------------------------------------
 */

static void strip_note(struct strip *strip, double x, bool bad, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void strip_note(struct strip *strip, double x, bool bad, const char *format, ...)
{
    if (strip->note_count == NOTES_MAX)
        return;
    struct note *note = &strip->notes[strip->note_count++];
    va_list args;
    va_start(args, format);
    vsnprintf(note->text, sizeof note->text, format, args);
    va_end(args);
    note->x = x;
    note->bad = bad;
}

static int by_x(const void *a, const void *b)
{
    const struct note *one = a;
    const struct note *two = b;
    return (one->x > two->x) - (one->x < two->x);
}

/* Draws the notes from left to right, each where it happened or after the previous one. A note
 * without room is left out. */
static void draw_notes(struct strip *strip)
{
    double free_x = PLOT_LEFT;
    qsort(strip->notes, strip->note_count, sizeof *strip->notes, by_x);
    for (size_t i = 0; i < strip->note_count; i++) {
        const struct note *note = &strip->notes[i];
        double width = svg_width(note->text, 12);
        double x = fmax(fmin(note->x, PICTURE_RIGHT - width), free_x);
        if (x + width > PICTURE_RIGHT)
            continue;
        svg_text(&strip->picture->svg, x, strip->top + NOTE_LINE,
                 note->bad ? "small worst" : "small", "%s", note->text);
        free_x = x + width + 8;
    }
}

static const char *strip_name_of(const struct strip *strip, size_t request,
                                 char buffer[SVG_LABEL_MAX])
{
    return shortened(run_request_id(strip->run, request), 120, 12, buffer);
}

/* ---- The contents of a lane ---------------------------------------------------------------------
 */

/* Vertical position inside a lane. */
struct row {
    double top, height;
};
static const struct row inside = {BAR_TOP, BAR_HEIGHT};
static const struct row halves[] = {{BAR_TOP, BAR_HEIGHT / 2.0 - 1},
                                    {BAR_TOP + BAR_HEIGHT / 2.0 + 1, BAR_HEIGHT / 2.0 - 1}};
static const struct row below = {WAIT_TOP, WAIT_HEIGHT};

static void draw_span(const struct strip *strip, int64_t from_ns, int64_t to_ns, struct row row,
                      const char *class)
{
    double from = axis_x(strip->axis, from_ns);
    struct box box = {from, strip->top + row.top, fmax(axis_x(strip->axis, to_ns) - from, 2),
                      row.height};
    svg_rect(&strip->picture->svg, &box, class);
}

static double middle_of(const struct strip *strip)
{
    return strip->top + BAR_TOP + BAR_HEIGHT / 2.0;
}

/* Sections of different segments may overlap. Each gets the first free row of those that share the
 * height. */
static struct row strip_row_among(const struct strip *strip, const struct section *section)
{
    const struct run *run = strip->run;
    size_t rows[SECTIONS_FEW] = {0};
    size_t row = 0, count = 1;
    for (size_t i = 0; i < run->section_count && i < SECTIONS_FEW; i++) {
        const struct section *one = &run->sections[i];
        bool again = one->at_ns[STAGE_ENTER] != NOT_STAMPED && one->instance == strip->instance;
        while (again) {
            again = false;
            for (size_t j = 0; j < i && !again; j++) {
                const struct section *other = &run->sections[j];
                again = other->at_ns[STAGE_ENTER] != NOT_STAMPED &&
                        other->instance == strip->instance && rows[j] == rows[i] &&
                        one->at_ns[STAGE_ENTER] < other->ended_ns &&
                        other->at_ns[STAGE_ENTER] < one->ended_ns;
            }
            rows[i] += again;
        }
        row = one == section ? rows[i] : row;
        count = rows[i] + 1 > count ? rows[i] + 1 : count;
    }
    const double height = (double)BAR_HEIGHT / (double)count;
    return (struct row){BAR_TOP + height * (double)row, count == 1 ? height : height - 1};
}

/* If sections of one instance overlap, they share the height: every second one is in the lower
 * half. */
static struct row strip_row_of(const struct strip *strip, const struct section *section)
{
    const struct run *run = strip->run;
    if (run->segments != 1)
        return strip_row_among(strip, section);
    bool shared = false;
    size_t turn = 0;
    for (size_t i = 0; i < run->by_lock_count; i++) {
        const struct section *other = run->by_lock[i];
        int64_t from_ns = 0;
        int64_t to_ns = 0;
        if (other->instance != strip->instance)
            continue;
        for (size_t j = 0; j < i; j++)
            shared = shared || (run->by_lock[j]->instance == strip->instance &&
                                scene_meeting(run->by_lock[j], other, &from_ns, &to_ns));
        if (other->at_ns[STAGE_ENTER] < section->at_ns[STAGE_ENTER] ||
            (other->at_ns[STAGE_ENTER] == section->at_ns[STAGE_ENTER] && other < section))
            turn++;
    }
    return shared ? halves[turn % 2] : inside;
}

/* Draws a section; red only while another one is inside. */
static void draw_section(const struct strip *strip, const struct section *section)
{
    const struct run *run = strip->run;
    struct row row = strip_row_of(strip, section);
    char name[SVG_LABEL_MAX];
    int64_t end_ns = run_shown_end_ns(run, section);
    draw_span(strip, section->at_ns[STAGE_ENTER], end_ns, row, section_class(run, section));
    for (size_t i = 0; i < run->by_lock_count; i++) {
        int64_t from_ns = 0;
        int64_t to_ns = 0;
        if (run->by_lock[i] != section && scene_clash(section, run->by_lock[i], &from_ns, &to_ns))
            draw_span(strip, from_ns, to_ns, row, "clash");
    }
    double from = axis_x(strip->axis, section->at_ns[STAGE_ENTER]);
    const char *text = strip_name_of(strip, section->request, name);
    if (row.height >= BAR_HEIGHT && axis_x(strip->axis, end_ns) - from > svg_width(text, 12) + 12)
        svg_text(&strip->picture->svg, from + 6, middle_of(strip) + 4,
                 section->sold ? "inside" : "small", "%s", text);
}

/* Draws a wait, from the request's `invoke` until it acquired the lock or timed out. */
static void draw_wait(struct strip *strip, size_t index)
{
    const struct request *request = &strip->run->requests[index];
    bool in_vain = request->section == NONE && request->reason == REASON_LOCK_TIMEOUT;
    int64_t to_ns = in_vain ? request->outcome_ns : NOT_STAMPED;
    char name[SVG_LABEL_MAX];
    for (size_t i = request->section; i != NONE; i = strip->run->sections[i].next)
        to_ns = strip->run->sections[i].at_ns[STAGE_GRANTED]; /* the list ends with the first one */
    double x = axis_x(strip->axis, request->invoke_ns);
    if (request->section == NONE && request->reason == REASON_LOCK_ERROR)
        strip_note(strip, x, true, "%s: %d lock-error", strip_name_of(strip, index, name),
                   request->code);
    if (to_ns == NOT_STAMPED || (!in_vain && (to_ns - request->invoke_ns < WAIT_NS_MIN ||
                                              axis_x(strip->axis, to_ns) - x < SEEN)))
        return;
    draw_span(strip, request->invoke_ns, to_ns, below, in_vain ? "vain" : "wait");
    if (in_vain)
        strip_note(strip, x, true, "%s times out: %d lock-timeout",
                   strip_name_of(strip, index, name), request->code);
    else
        strip_note(strip, x, false, "%s waits", strip_name_of(strip, index, name));
}

/* Draws the time from the exit to the answer of the release. Another client may have the lock by
 * then. */
static void draw_release(struct strip *strip, const struct section *section)
{
    char name[SVG_LABEL_MAX];
    int64_t from_ns = section->at_ns[STAGE_EXIT];
    int64_t to_ns = section->at_ns[STAGE_RELEASE];
    if (from_ns == NOT_STAMPED || to_ns == NOT_STAMPED)
        return;
    double x = axis_x(strip->axis, from_ns);
    if (axis_x(strip->axis, to_ns) - x < 3 * SEEN)
        return;
    draw_span(strip, from_ns, to_ns, below, "giving");
    strip_note(strip, x, false, "%s is slow to release its lock",
               strip_name_of(strip, section->request, name));
}

/* Draws a holder's second request for its own lock. It began after the holder's last step before
 * it. */
static void draw_second_ask(struct strip *strip, const struct section *section)
{
    char name[SVG_LABEL_MAX];
    int64_t from_ns = section->at_ns[STAGE_ENTER];
    int64_t again_ns = run_again_ns(strip->run, section);
    if (again_ns == NOT_STAMPED || from_ns == NOT_STAMPED)
        return;
    for (size_t stage = STAGE_READ; stage <= STAGE_WRITE; stage++) {
        if (section->at_ns[stage] > from_ns && section->at_ns[stage] < again_ns)
            from_ns = section->at_ns[stage];
    }
    draw_span(strip, from_ns, again_ns, below, "vain");
    strip_note(strip, axis_x(strip->axis, from_ns), true,
               section->shared ? "%s reads, asks to write, and waits for itself"
               : section == strip->run->self_wait
                   ? "%s asks for its own lock again, and waits for itself"
                   : "%s asks for the lock again, and is refused",
               strip_name_of(strip, section->request, name));
}

static void strip_draw_marks(struct strip *strip)
{
    static const char *const classes[] = {
        [MARK_RENEW] = "renew", [MARK_LOST] = "lost", [MARK_STALL] = "stall"};
    for (size_t i = 0; i < strip->run->mark_count; i++) {
        const struct mark *mark = &strip->run->marks[i];
        double x = axis_x(strip->axis, mark->t_ns);
        if (mark->instance != strip->instance || mark->t_ns < strip->axis->from_ns ||
            mark->t_ns > strip->axis->to_ns)
            continue;
        svg_line(&strip->picture->svg, x, strip->top, x, strip->top + LANE_HEIGHT,
                 classes[mark->kind]);
        if (mark->kind == MARK_LOST)
            strip_note(strip, x, true, "the lock is lost");
        int64_t from_ns = mark->t_ns - mark->late_ns;
        double from = axis_x(strip->axis, from_ns);
        if (mark->kind != MARK_STALL || x - from < SEEN)
            continue;
        draw_span(strip, from_ns, mark->t_ns, inside, "still");
        strip_note(strip, from, true, "stood still for %.0f ms", (double)mark->late_ns / 1e6);
    }
}

/* Draws what an observer saw: a line through every lane, with its text in the first one. */
static void draw_seen(struct strip *strip)
{
    const struct run_spec *spec = &strip->run->spec;
    char text[SVG_LABEL_MAX];
    for (size_t i = 0; i < spec->seen_count; i++) {
        const struct seen *seen = &spec->seen[i];
        if (seen->killed != NONE || seen->t_ns < strip->axis->from_ns ||
            seen->t_ns > strip->axis->to_ns)
            continue;
        double x = axis_x(strip->axis, seen->t_ns);
        svg_line(&strip->picture->svg, x, strip->top, x, strip->top + LANE_STEP, "seen");
        if (strip->instance == 0)
            strip_note(strip, x + 4, false, "%s", shortened(seen->text, SEEN_WIDTH, 12, text));
    }
}

/* Draws a lock that stays as a dashed line, from the last record of its holder. */
static void draw_stuck(struct strip *strip, int64_t from_ns, const char *why)
{
    double x = axis_x(strip->axis, from_ns);
    svg_line(&strip->picture->svg, x, middle_of(strip), PICTURE_RIGHT, middle_of(strip), "stuck");
    strip_note(strip, x + 6, true, "%s; nobody releases the lock", why);
}

/* Draws a process that was killed, and its lock if that stays. */
static void draw_kill(struct strip *strip, const struct history *history)
{
    const struct run *run = strip->run;
    int64_t death_ns = run_death_ns(run, history);
    double x = axis_x(strip->axis, death_ns);
    const struct section *grant = run->stuck_grant;
    bool keeps = run->stuck != NULL && (grant == NULL || grant->instance == strip->instance);
    if (keeps)
        draw_stuck(strip, death_ns, "killed");
    else
        strip_note(strip, x + 6, true, "killed");
    draw_cross(&strip->picture->svg, x, middle_of(strip));
}

/* Draws a lock that stays though its process lives: its release was forgotten, or a reply was lost.
 */
static void draw_kept(struct strip *strip)
{
    const struct run *run = strip->run;
    const struct section *grant = run->stuck_grant;
    if (run->stuck == NULL)
        return;
    if (grant != NULL && grant->instance == strip->instance &&
        run->histories[grant->history].ended) {
        if (grant->stage == STAGE_EXIT)
            draw_stuck(strip, grant->ended_ns, "the release is forgotten");
        else if (grant->stage == STAGE_RELEASE)
            draw_stuck(strip, grant->ended_ns,
                       grant->kept ? "the release does not arrive" : "the release frees nothing");
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->reason == REASON_LOCK_ERROR && request->instance == strip->instance &&
            (grant == NULL || grant->at_ns[STAGE_GRANTED] < request->outcome_ns))
            draw_stuck(strip, request->outcome_ns, "the key is set");
    }
}

static void draw_strip(struct strip *strip)
{
    const struct run *run = strip->run;
    for (size_t i = 0; i < run->by_lock_count; i++) {
        if (run->by_lock[i]->instance == strip->instance)
            draw_section(strip, run->by_lock[i]);
    }
    for (size_t i = 0; i < run->request_count; i++) {
        if (run->requests[i].accepted && run->requests[i].instance == strip->instance)
            draw_wait(strip, i);
    }
    for (size_t i = 0; i < run->section_count; i++) {
        if (run->sections[i].instance != strip->instance)
            continue;
        draw_release(strip, &run->sections[i]);
        draw_second_ask(strip, &run->sections[i]);
    }
    strip_draw_marks(strip);
    draw_seen(strip);
    draw_kept(strip);
    for (size_t i = 0; i < run->history_count; i++) {
        if (run->histories[i].instance == strip->instance && !run->histories[i].ended)
            draw_kill(strip, &run->histories[i]);
    }
    draw_notes(strip);
}

/* ---- All lanes ---------------------------------------------------------------------------------
 */

double draw_strip_lanes(const struct picture *picture, double y)
{
    const struct run_spec *spec = &picture->run->spec;
    char name[SVG_LABEL_MAX];
    for (size_t i = 0; i < spec->instance_count; i++, y += LANE_STEP) {
        struct box back = {PLOT_LEFT, y, PICTURE_RIGHT - PLOT_LEFT, LANE_HEIGHT};
        svg_rect(&picture->svg, &back, "lane");
        svg_text(&picture->svg, PLOT_LEFT - 10, y + LANE_HEIGHT / 2.0 + 5, "name big", "%s",
                 shortened(spec->instances[i], NAME_WIDTH, 17, name));
    }
    return y;
}

void draw_strips(const struct picture *picture, const struct axis *axis, double y)
{
    const struct run *run = picture->run;
    fputs("<g id=\"strips\">\n", picture->svg.file);
    for (size_t i = 0; i < run->spec.instance_count; i++, y += LANE_STEP) {
        struct strip strip = {
            .picture = picture, .run = run, .axis = axis, .instance = i, .top = y};
        draw_strip(&strip);
    }
    fputs("</g>\n", picture->svg.file);
}
