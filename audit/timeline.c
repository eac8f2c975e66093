/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture. From top to bottom: the verdict, what happened in words, the whole run, the close
 * up, the steps, and the legend.
 */
#include "timeline.h"

#include "memory.h"
#include "output.h"
#include "rules.h"
#include "strip.h"

#include <stdlib.h>
#include <string.h>

static const char style[] =
    "text{font-family:'DejaVu Sans',Verdana,system-ui,sans-serif;font-size:13px;fill:#1f2933}"
    ".badge{font-size:22px;font-weight:bold;fill:#fff}"
    ".title{font-size:22px;font-weight:bold}"
    ".heading{font-size:16px;font-weight:bold}"
    ".fact{font-size:15px}.note,.tick{fill:#52606d}.tick,.small{font-size:12px}"
    ".tick,.digit,.meeting-text{text-anchor:middle}.name,.tick.end,.event-text.end{text-anchor:end}"
    ".name.big{font-size:15px;font-weight:bold}.inside{font-size:12px;fill:#fff}"
    ".strong{font-weight:bold;stroke:#7f1d1d;stroke-width:3px;paint-order:stroke}"
    ".digit{font-size:13px;font-weight:bold}.number{fill:#fff;stroke:#1f2933;stroke-width:2}"
    ".event{stroke:#1f2933;stroke-width:1.5}.event-text{font-size:12px;font-weight:bold}"
    ".meeting-text{font-weight:bold;fill:#b91c1c}.worst{font-weight:bold;fill:#b91c1c}"
    ".lane{fill:#f1f4f8}.grid{stroke:#cbd2d9;stroke-width:1}"
    ".sold{fill:#2f6fb0}.area{fill:#9cc3e6}.looked{fill:#b8c2cc}.clash{fill:url(#hatch)}"
    ".bar .sold,.bar .looked{stroke:#fff;stroke-width:.7}"
    ".star{fill:none;stroke:#1f2933;stroke-width:2}.meeting{fill:#dc2626;fill-opacity:.12}"
    ".window{fill:#f59e0b;fill-opacity:.18;stroke:#b45309;stroke-width:2}"
    ".beam{fill:#f59e0b;fill-opacity:.10}.stock{stroke:#1f2933;stroke-dasharray:6 4}"
    ".open{stroke:#2f6fb0;stroke-width:2;stroke-dasharray:5 5}"
    ".renew{stroke:#15803d;stroke-width:2;stroke-dasharray:3 2}"
    ".lost{stroke:#b91c1c;stroke-width:2.5;stroke-dasharray:2 3}"
    ".stall{stroke:#a16207;stroke-width:2;stroke-dasharray:8 3}"
    ".wait{fill:url(#waiting);stroke:#52606d;stroke-width:.7}"
    ".vain{fill:url(#in-vain);stroke:#b91c1c;stroke-width:1}.still{fill:url(#standing)}"
    ".giving{fill:#dbeafe;stroke:#2f6fb0;stroke-width:1}"
    ".cross{stroke:#b91c1c;stroke-width:3.5}"
    ".seen{stroke:#1f2937;stroke-width:1.5;stroke-dasharray:2 4}"
    ".stuck{stroke:#b91c1c;stroke-width:2.5;stroke-dasharray:7 5}"
    ".refused{stroke:#52606d;stroke-width:2}"
    ".held{fill:#dcfce7}.ttl{fill:#86d9a5}.endless,.granted{fill:#86d9a5}.owner{font-weight:bold}"
    ".good{fill:#15803d}.bad{fill:#b91c1c}.warn{fill:#b45309}.dim{fill:#52606d}"
    ".panel-good{fill:#ecfdf3}.panel-bad{fill:#fef2f2}.panel-warn{fill:#fff7ed}"
    ".panel-dim{fill:#f3f4f6}";

static const char readers_style[] = ".read{fill:#a7e3d4;stroke:#0f766e;stroke-width:1}";

/* Hatches that only the picture of a small run uses. */
static const char small_patterns[] =
    "<pattern id=\"waiting\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
    "<rect width=\"2\" height=\"6\" fill=\"#9aa5b1\"/></pattern>"
    "<pattern id=\"in-vain\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
    "<rect width=\"2\" height=\"6\" fill=\"#ef4444\"/></pattern>"
    "<pattern id=\"standing\" width=\"12\" height=\"12\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(-45)\">"
    "<rect width=\"5\" height=\"12\" fill=\"#fbbf24\" fill-opacity=\".85\"/></pattern>";

static const char *const colours[RESULT_COUNT] = {
    [RESULT_UNBALANCED] = "bad",   [RESULT_STALE] = "bad",    [RESULT_STAMPEDE] = "warn",
    [RESULT_INCONCLUSIVE] = "dim", [RESULT_REPEATED] = "bad", [RESULT_LOST_TASK] = "bad",
    [RESULT_OVERSOLD] = "bad",     [RESULT_OVERLAP] = "warn", [RESULT_OVERTAKEN] = "warn",
    [RESULT_UNFINISHED] = "warn",  [RESULT_DEADLOCK] = "bad", [RESULT_UNDERSOLD] = "warn",
    [RESULT_OK] = "good",
};

static void draw_badge(const struct picture *picture, double y)
{
    char got[64];
    char title[SVG_LABEL_MAX];
    verdict_got(picture->run, picture->verdict, got, sizeof got);
    double width = svg_width(got, 24) + 32;
    fprintf(picture->svg.file,
            "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"40\" rx=\"8\" class=\"%s\"/>\n",
            PICTURE_LEFT, y, width, colours[picture->verdict->result]);
    svg_text(&picture->svg, PICTURE_LEFT + 16, y + 28, "badge", "%s", got);
    picture->run->rules->title(picture->run, title);
    svg_text(&picture->svg, PICTURE_LEFT + width + 20, y + 28, "title", "%s", title);
}

static void draw_facts(const struct picture *picture, double y)
{
    const struct run *run = picture->run;
    const struct counts *counts = &run->counts;
    size_t untimed = run_untimed(run);
    char expected[128];
    char buffer[SVG_LABEL_MAX];
    char line[SVG_LABEL_MAX];
    verdict_expected(picture->verdict, " or ", expected, sizeof expected);
    run->rules->facts(run, line);
    svg_text(&picture->svg, PICTURE_LEFT, y, "fact", "%s %lld request%s to %zu instance%s.", line,
             (long long)counts->requests, counts->requests == 1 ? "" : "s",
             run->spec.instance_count, run->spec.instance_count == 1 ? "" : "s");
    svg_text(&picture->svg, PICTURE_LEFT, y + 22, "fact",
             "%lld of %zu sections%s began while another was inside%s.",
             (long long)counts->overlaps, run->by_lock_count - untimed,
             untimed > 0 ? " with sound times" : "",
             counts->max_parallel > 1 && counts->overlaps == 0 ? ", readers aside" : "");
    snprintf(line, sizeof line, "expected %s: %s", expected, picture->verdict->expected.why);
    svg_text(&picture->svg, PICTURE_LEFT, y + 44, "note", "%s",
             shortened(line, PICTURE_RIGHT - PICTURE_LEFT, 13, buffer));
    svg_text(&picture->svg, PICTURE_LEFT, y + 64, "note", "run %s",
             shortened(run->spec.run, PICTURE_RIGHT - PICTURE_LEFT - 40, 13, buffer));
}

/* The panel's height depends on its text, so the text is drawn first, into memory. */
static double draw_story(const struct picture *picture, double y)
{
    FILE *file = picture->svg.file;
    char *text = NULL;
    size_t size = 0;
    struct svg inner = {.file = open_memstream(&text, &size)};
    if (inner.file == NULL)
        memory_out();
    struct paragraph paragraph = {
        .x = PICTURE_LEFT + 16,
        .y = y + 52,
        .width = PICTURE_RIGHT - PICTURE_LEFT - 32,
        .line_height = 22,
        .font_size = 15,
        .lines_max = 4,
        .class = "fact",
    };
    double below = svg_paragraph(&inner, &paragraph, picture->story.text);
    if (fclose(inner.file) != 0)
        memory_out();
    fprintf(file,
            "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"8\" "
            "class=\"panel-%s\"/>\n",
            PICTURE_LEFT, y, PICTURE_RIGHT - PICTURE_LEFT, below - y - 4,
            colours[picture->verdict->result]);
    svg_text(&picture->svg, PICTURE_LEFT + 16, y + 27, "heading", "%s", picture->story.title);
    fwrite(text, 1, size, file);
    free(text);
    return below + 16;
}

double draw_header(const struct picture *picture, double y)
{
    draw_badge(picture, y);
    draw_facts(picture, y + 66);
    return draw_story(picture, y + 146);
}

/* Connects the scene's frame in the overview with the close up. */
static void draw_beam(const struct picture *picture, double top, double bottom)
{
    struct box window = overview_window(picture, 0, 0);
    fprintf(picture->svg.file, "<path class=\"beam\" d=\"M%.1f,%.1f H%.1f L%d,%.1f H%d Z\"/>\n",
            window.x, top, window.x + window.width, PICTURE_RIGHT, bottom, PLOT_LEFT);
}

enum look { LOOK_BOX, LOOK_LINE, LOOK_CROSS, LOOK_DASHES };

struct symbol {
    const char *class;
    enum look look;
    const char *text;
};

static void draw_entry(const struct svg *svg, const struct symbol *entry, double x, double y)
{
    struct box box = {x, y - 12, 26, 14};
    if (entry->look == LOOK_LINE)
        svg_line(svg, x + 13, y - 13, x + 13, y + 3, entry->class);
    else if (entry->look == LOOK_DASHES)
        svg_line(svg, x, y - 5, x + 26, y - 5, entry->class);
    else if (entry->look == LOOK_CROSS)
        draw_cross(svg, x + 13, y - 5);
    else
        svg_rect(svg, &box, entry->class);
    svg_text(svg, x + 38, y, "note", "%s", entry->text);
}

const char *section_class(const struct run *run, const struct section *section)
{
    return section->sold || section->filled ? "sold"
           : run_only_reads(run, section)   ? "read"
                                            : "looked";
}

static bool has_readers(const struct run *run)
{
    for (size_t i = 0; i < run->by_lock_count; i++) {
        if (run_only_reads(run, run->by_lock[i]))
            return true;
    }
    return false;
}

/* The flush makes `drawn` point to all that was drawn so far. */
static bool was_drawn(const struct picture *picture, const char *class)
{
    char attribute[40];
    fflush(picture->svg.file);
    snprintf(attribute, sizeof attribute, "class=\"%s\"", class);
    return strstr(picture->drawn, attribute) != NULL;
}

/* Draws the legend of the classes that the picture uses. Returns the y below. */
static double draw_legend(const struct picture *picture, double y)
{
    const struct symbol entries[] = {
        {"sold", LOOK_BOX, picture->run->rules->did},
        {"looked", LOOK_BOX, picture->run->rules->did_nothing},
        {"read", LOOK_BOX, "inside, to read"},
        {"clash", LOOK_BOX, "inside while another is: an error"},
        {"wait", LOOK_BOX, "waits for the lock"},
        {"vain", LOOK_BOX, "waits for the lock, and times out"},
        {"giving", LOOK_BOX, "outside; its release is under way"},
        {"ttl", LOOK_BOX, "the key's time to live runs down"},
        {"endless", LOOK_BOX, "the key exists, and never expires"},
        {"granted", LOOK_BOX, "the first in the ensemble's queue"},
        {"cross", LOOK_CROSS, "the process was killed"},
        {"stuck", LOOK_DASHES, "nobody releases the lock"},
        {"still", LOOK_BOX, "the process stood still"},
        {"refused", LOOK_LINE, "a request was rejected"},
        {"renew", LOOK_LINE, "the lock was renewed"},
        {"lost", LOOK_LINE, "the lock was lost"},
        {"stall", LOOK_LINE, "the process woke up"},
    };
    enum { COLUMNS = 3, COLUMN_WIDTH = (PICTURE_RIGHT - PICTURE_LEFT) / COLUMNS };
    size_t count = 0;
    svg_text(&picture->svg, PICTURE_LEFT, y + 16, "heading", "What the colours mean");
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (!was_drawn(picture, entries[i].class))
            continue;
        size_t row = count / COLUMNS;
        double x = PICTURE_LEFT + (double)(count % COLUMNS) * COLUMN_WIDTH;
        draw_entry(&picture->svg, &entries[i], x, y + 40 + 22 * (double)row);
        count++;
    }
    size_t rows = (count + COLUMNS - 1) / COLUMNS;
    return y + 40 + 22 * (double)rows;
}

double draw_steps(const struct picture *picture, double y)
{
    const struct story *story = &picture->story;
    const struct svg *svg = &picture->svg;
    const bool numbered = !strip_fits(picture->run);
    char time[TIME_TEXT_MAX];
    svg_text(svg, PICTURE_LEFT, y + 16, "heading", "Step by step");
    for (size_t i = 0; i < story->count; i++) {
        const struct step *step = &story->steps[i];
        double row = y + 44 + 24 * (double)i;
        svg_text(svg, PICTURE_LEFT + 120, row, "name", "%s ms",
                 moment(picture->run, &picture->scene, step->t_ns, time));
        if (step->who > 0 && numbered) {
            int x = PICTURE_LEFT + 146 + 34 * (step->who - 1);
            fprintf(svg->file, "<circle cx=\"%d\" cy=\"%.1f\" r=\"10\" class=\"number\"/>", x,
                    row - 4);
            svg_text(svg, x, row + 1, "digit", "%d", step->who);
        }
        svg_text(svg, PICTURE_LEFT + (numbered ? 214 : 140), row, step->worst ? "worst" : "step",
                 "%s", step->what);
    }
    return y + 44 + 24 * (double)story->count;
}

static double timeline_draw(const struct picture *picture)
{
    double y = draw_header(picture, 28);
    double below = draw_overview(picture, y);
    if (overview_frames(picture))
        draw_beam(picture, below - 20, below + 50);
    y = draw_zoom(picture, below);
    y = draw_legend(picture, y + 4);
    return draw_steps(picture, y + 4) + 16;
}

bool timeline_write(const struct run *run, const struct verdict *verdict)
{
    struct output output;
    struct picture *picture = memory_new(1, sizeof *picture);
    size_t size = 0;
    picture->run = run;
    picture->verdict = verdict;
    /* Into memory, because the height is known only at the end. */
    picture->svg.file = open_memstream(&picture->drawn, &size);
    if (picture->svg.file == NULL)
        memory_out();
    scene_choose(run, verdict, &picture->scene);
    story_tell(run, verdict, &picture->scene, &picture->story);
    double height = timeline_draw(picture);
    if (fclose(picture->svg.file) != 0)
        memory_out();
    if (output_open(&output, run->folder, "timeline.svg")) {
        fprintf(output.file,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                "viewBox=\"0 0 %d %.0f\">\n<style>%s%s</style>\n"
                "<defs><pattern id=\"hatch\" width=\"7\" height=\"7\" "
                "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
                "<rect width=\"7\" height=\"7\" fill=\"#ef4444\"/>"
                "<rect width=\"3\" height=\"7\" fill=\"#991b1b\"/></pattern>%s</defs>\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                PICTURE_WIDTH, height, PICTURE_WIDTH, height, style,
                has_readers(run) ? readers_style : "", strip_fits(run) ? small_patterns : "");
        fwrite(picture->drawn, 1, size, output.file);
        fputs("</svg>\n", output.file);
    }
    free(picture->drawn);
    free(picture);
    return output_close(&output);
}
