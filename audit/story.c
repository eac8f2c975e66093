/* SPDX-License-Identifier: Apache-2.0 */
#include "story.h"

#include "check.h"
#include "rules.h"
#include "strip.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *duration(int64_t ns, char buffer[TIME_TEXT_MAX])
{
    if (ns < 1000)
        snprintf(buffer, TIME_TEXT_MAX, "%lld ns", (long long)ns);
    else
        snprintf(buffer, TIME_TEXT_MAX, "%.3f ms", (double)ns / 1e6);
    return buffer;
}

const char *moment(const struct run *run, const struct scene *scene, int64_t t_ns,
                   char buffer[TIME_TEXT_MAX])
{
    bool fine = scene->to_ns - scene->from_ns < 100000;
    snprintf(buffer, TIME_TEXT_MAX, "%.*f", fine ? 6 : 3, run_ms(run, t_ns));
    return buffer;
}

const char *units_sold(const struct run *run, const struct section *section,
                       char buffer[UNITS_TEXT_MAX])
{
    const struct share share = run_share(run, section);
    const long long last = section->unit + (section->quantity - 1) * share.segments;
    char steps[24] = "";
    char part[24] = "";
    if (share.segments > 1)
        snprintf(steps, sizeof steps, " in steps of %d", share.segments);
    if (share.parts > 1)
        snprintf(part, sizeof part, " (part %d of %d)", share.part, share.parts);
    if (section->quantity == 1)
        snprintf(buffer, UNITS_TEXT_MAX, "unit %lld%s", (long long)section->unit, part);
    else
        snprintf(buffer, UNITS_TEXT_MAX, "units %lld to %lld%s%s", (long long)section->unit, last,
                 steps, part);
    return buffer;
}

static void story_add(struct story *story, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void story_add(struct story *story, const char *format, ...)
{
    size_t used = strlen(story->text);
    va_list args;
    va_start(args, format);
    vsnprintf(story->text + used, sizeof story->text - used, format, args);
    va_end(args);
}

/* ---- Sentences ------------------------------------------------------------------------------- */

/* The name of a section's request: "b1" in a small run; otherwise "Request 1" at the beginning of a
 * sentence, "request 2" inside it. */
static const char *called(const struct run *run, const struct scene *scene,
                          const struct section *section, bool begins, char buffer[SVG_LABEL_MAX])
{
    char name[SVG_LABEL_MAX];
    snprintf(buffer, SVG_LABEL_MAX, "%s%.100s",
             strip_fits(run) ? ""
             : begins        ? "Request "
                             : "request ",
             scene_name(run, scene, section, name));
    return buffer;
}

static void tell_who(const struct run *run, const struct scene *scene,
                     const struct section *section, bool begins, struct story *story)
{
    char who[SVG_LABEL_MAX];
    char id[SVG_LABEL_MAX];
    char instance[SVG_LABEL_MAX];
    story_add(story, "%s", called(run, scene, section, begins, who));
    if (strip_fits(run))
        return;
    story_add(story, " (%s) on instance %s",
              shortened(run_request_id(run, section->request), 220, 15, id),
              shortened(run->spec.instances[section->instance], 160, 15, instance));
}

static void tell_meeting(const struct run *run, const struct scene *scene, struct story *story)
{
    char times[3][TIME_TEXT_MAX];
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    scene_meeting(scene->first, scene->second, &from_ns, &to_ns);
    tell_who(run, scene, scene->first, true, story);
    story_add(story, " and ");
    tell_who(run, scene, scene->second, false, story);
    story_add(story, " were inside the section at the same time, for %s, from %s to %s ms. ",
              duration(to_ns - from_ns, times[0]), moment(run, scene, from_ns, times[1]),
              moment(run, scene, to_ns, times[2]));
}

static void tell_same_unit(const struct scene *scene, struct story *story)
{
    const struct section *first = scene->first;
    const struct section *second = scene->second;
    long long unit = first->unit > second->unit ? first->unit : second->unit;
    if (first->stock_before == second->stock_before)
        story_add(story, "Both read: %lld left. Both sold unit %lld.",
                  (long long)first->stock_before, unit);
    else
        story_add(story, "They read: %lld left and %lld left. Both sold unit %lld.",
                  (long long)first->stock_before, (long long)second->stock_before, unit);
}

/* Whether it sold the last unit before the other section wrote. */
static bool took_last(const struct run *run, const struct section *section,
                      const struct section *other)
{
    return section->sold && section->unit >= 1 &&
           section->unit <= run_share(run, section).segments &&
           section->at_ns[STAGE_WRITE] <= other->at_ns[STAGE_WRITE];
}

static void tell_no_unit(const struct run *run, const struct scene *scene, struct story *story)
{
    const bool is_first = scene->first->unit <= 0 && scene->first->sold;
    const struct section *wrong = is_first ? scene->first : scene->second;
    const struct section *other = is_first ? scene->second : scene->first;
    char names[2][SVG_LABEL_MAX];
    story_add(story, "%s read: %lld left. Before it wrote, ",
              called(run, scene, wrong, true, names[0]), (long long)wrong->stock_before);
    if (wrong->stock_before != 1)
        story_add(story, "other sales took those units");
    else if (took_last(run, other, wrong))
        story_add(story, "%s took that unit", called(run, scene, other, false, names[1]));
    else
        story_add(story, "another sale took that unit");
    story_add(story, ". So it sold unit %lld, which does not exist.", (long long)wrong->unit);
}

static bool was_refused(const struct run *run, const struct section *section)
{
    return run->requests[section->request].reason == REASON_STALE_TOKEN;
}

static void tell_overlap(const struct run *run, const struct scene *scene, struct story *story)
{
    char name[SVG_LABEL_MAX];
    if (was_refused(run, scene->first) || was_refused(run, scene->second))
        story_add(story, "The stock refused what %s wanted to write: its token or epoch was old.",
                  called(run, scene, was_refused(run, scene->first) ? scene->first : scene->second,
                         false, name));
    else if (run->rules->kind == SERVICE_MENU || run->rules->kind == SERVICE_ACCOUNT)
        story_add(story, "Nothing kept them apart.");
    else if (run->rules->together != NULL)
        story_add(story, "%s", run->rules->together(run, scene->first, scene->second, name));
    else if (scene->first->sold && scene->second->sold)
        story_add(story, "Units %lld and %lld are different ones%s.", (long long)scene->first->unit,
                  (long long)scene->second->unit,
                  is_fenced(run) ? ": the stock compares tokens"
                                 : ", this time: nothing kept the two apart");
    else
        story_add(story, "No unit was sold twice by these two, but nothing kept them apart.");
}

/* The pair of a hand-over is an example: this says what holds for all sections. */
static void tell_all(const struct run *run, struct story *story)
{
    size_t untimed = run_untimed(run);
    bool together = run->counts.max_parallel > 1;
    if (untimed > 0)
        story_add(story, "The times of %zu of %zu sections prove nothing; of the others, %s.",
                  untimed, run->by_lock_count,
                  together ? "only readers of one lock were inside together"
                           : "no two of one lock overlapped");
    else
        story_add(story, together ? "Only readers of one lock were ever inside together."
                                  : "No two sections of one lock ever overlapped.");
}

static void tell_hand_over(const struct run *run, const struct scene *scene, struct story *story)
{
    char buffer[TIME_TEXT_MAX];
    tell_who(run, scene, scene->first, true, story);
    story_add(story, " %s at %s ms; ",
              run_was_killed(run, scene->first) ? "was killed inside the section"
                                                : "left the section",
              moment(run, scene, run_shown_end_ns(run, scene->first), buffer));
    tell_who(run, scene, scene->second, false, story);
    story_add(
        story, " entered %s later. ",
        duration(scene->second->at_ns[STAGE_ENTER] - run_shown_end_ns(run, scene->first), buffer));
    tell_all(run, story);
}

static void tell_apart(const struct run *run, const struct scene *scene, struct story *story)
{
    tell_who(run, scene, scene->first, true, story);
    story_add(story, " and ");
    tell_who(run, scene, scene->second, false, story);
    story_add(story, " sold the same unit, %lld, though they were never inside together.",
              (long long)(scene->first->unit > scene->second->unit ? scene->first->unit
                                                                   : scene->second->unit));
}

/* Whether the first finding comes first in the text, because the scene does not show why the result
 * is what it is. */
static bool reason_leads(const struct verdict *verdict, const struct scene *scene)
{
    switch (verdict->result) {
    case RESULT_OVERSOLD:
        return scene->kind != SCENE_SAME_UNIT && scene->kind != SCENE_NO_UNIT &&
               scene->kind != SCENE_APART;
    case RESULT_OVERLAP:
        return scene->kind != SCENE_OVERLAP;
    case RESULT_OK:
        return false;
    default:
        return true;
    }
}

static const char *const titles[RESULT_COUNT] = {
    [RESULT_INCONCLUSIVE] = "Why nothing can be concluded",
    [RESULT_OVERSOLD] = "What went wrong",
    [RESULT_STALE] = "What went wrong",
    [RESULT_REPEATED] = "What went wrong",
    [RESULT_LOST_TASK] = "What went wrong",
    [RESULT_UNBALANCED] = "What went wrong",
    [RESULT_STAMPEDE] = "What went wrong",
    [RESULT_OVERLAP] = "What went wrong",
    [RESULT_OVERTAKEN] = "What went wrong",
    [RESULT_DEADLOCK] = "What went wrong",
    [RESULT_UNFINISHED] = "What went wrong",
    [RESULT_UNDERSOLD] = "What went wrong",
    [RESULT_OK] = "How it went",
};

static void tell_scene(const struct run *run, const struct scene *scene, struct story *story)
{
    switch (scene->kind) {
    case SCENE_SAME_UNIT:
        tell_meeting(run, scene, story);
        tell_same_unit(scene, story);
        break;
    case SCENE_NO_UNIT:
        tell_meeting(run, scene, story);
        tell_no_unit(run, scene, story);
        break;
    case SCENE_OVERLAP:
        tell_meeting(run, scene, story);
        tell_overlap(run, scene, story);
        break;
    case SCENE_APART:
        tell_apart(run, scene, story);
        break;
    case SCENE_HAND_OVER:
        tell_hand_over(run, scene, story);
        break;
    case SCENE_ALONE:
        tell_who(run, scene, scene->first, true, story);
        story_add(
            story, " was inside from %.3f ms%s.", run_ms(run, scene->first->at_ns[STAGE_ENTER]),
            scene->first->stage == STAGE_RELEASE ? " on" : " on, and never released its lock");
        break;
    case SCENE_EMPTY:
        story_add(story, "No critical section was recorded.");
        break;
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

void story_step(struct story *story, int64_t t_ns, int who, enum stage stage, const char *format,
                ...)
{
    if (t_ns == NOT_STAMPED || story->count == STEPS_MAX)
        return;
    struct step *step = &story->steps[story->count++];
    *step = (struct step){.t_ns = t_ns, .who = who, .stage = stage, .order = story->count};
    va_list args;
    va_start(args, format);
    vsnprintf(step->what, sizeof step->what, format, args);
    va_end(args);
}

static void story_mark(struct step *step, const char *why)
{
    size_t used = strlen(step->what);
    step->worst = true;
    snprintf(step->what + used, sizeof step->what - used, "%s", why);
}

/* Marks the step that was added last, if there was room for it. */
static void mark_last(struct story *story, size_t count_before)
{
    if (story->count > count_before)
        story_mark(&story->steps[story->count - 1], "");
}

/* When the timekeeper reported the hold as lost; NOT_STAMPED. */
static int64_t lost_ns(const struct run *run, const struct section *section)
{
    for (size_t i = run->mark_count; i-- > 0;) {
        const struct mark *mark = &run->marks[i];
        if (mark->kind == MARK_LOST && mark->section == (size_t)(section - run->sections))
            return mark->t_ns;
    }
    return NOT_STAMPED;
}

static void add_steps(const struct run *run, const struct section *section, int who,
                      struct story *story)
{
    const struct request *request = &run->requests[section->request];
    const int64_t *at_ns = section->at_ns;
    char name[SVG_LABEL_MAX];
    char process[SVG_LABEL_MAX];
    const char *instance = shortened(run->spec.instances[section->instance], 110, 13, process);
    const char *actor = shortened(strip_fits(run) ? run_request_id(run, section->request)
                                                  : run->spec.instances[section->instance],
                                  110, 13, name);
    story_step(story, at_ns[STAGE_ENTER], who, STAGE_ENTER, "%s enters", actor);
    run->rules->add_steps(run, section, who, actor, story);
    story_step(story, lost_ns(run, section), who, STAGE_NONE, "%s learns that its lock is lost",
               actor);
    story_step(story, at_ns[STAGE_EXIT], who, STAGE_EXIT, "%s leaves", actor);
    size_t before = story->count;
    if (at_ns[STAGE_EXIT] == NOT_STAMPED)
        story_step(story, run_shown_end_ns(run, section), who, STAGE_NONE,
                   run_was_killed(run, section) ? "%s is killed" : "%s has no recorded exit",
                   run_was_killed(run, section) ? instance : actor);
    mark_last(story, before);
    before = story->count;
    story_step(story, run_again_ns(run, section), who, STAGE_NONE,
               "%s asked for the lock again, inside, and was refused", actor);
    mark_last(story, before);
    if (was_refused(run, section))
        story_step(story, request->outcome_ns, who, STAGE_NONE,
                   "%s answers %d: its token or epoch was refused", actor, request->code);
    else if (request->outcome == OUTCOME_REPLAYED)
        story_step(story, request->outcome_ns, who, STAGE_NONE,
                   "%s sends the stored answer of the key", actor);
    else if (request->outcome == OUTCOME_REFUSED)
        story_step(story, request->outcome_ns, who, STAGE_NONE, "%s answers %d", actor,
                   request->code);
    else if (request->outcome == OUTCOME_UNKNOWN)
        story_step(story, request->outcome_ns, who, STAGE_NONE, "%s cannot know whether it %s",
                   actor, run->rules->unknown != NULL ? run->rules->unknown : "sold");
}

/* Whether the process was killed inside a section; then the section's steps say so. */
static bool dies_inside(const struct run *run, size_t history)
{
    for (size_t i = 0; i < run->by_lock_count; i++) {
        if (run->by_lock[i]->history == history && run_was_killed(run, run->by_lock[i]))
            return true;
    }
    return false;
}

/* Adds a request that never acquired the lock. */
static void add_request(const struct run *run, size_t index, struct story *story)
{
    const struct request *request = &run->requests[index];
    char name[SVG_LABEL_MAX];
    char instance[SVG_LABEL_MAX];
    if (!request->accepted || request->section != NONE)
        return;
    const char *id = shortened(run_request_id(run, index), 110, 13, name);
    if (request->outcome == OUTCOME_ANSWERED && run->rules->add_answer != NULL) {
        run->rules->add_answer(run, index, id, story);
        return;
    }
    story_step(story, request->invoke_ns, 0, STAGE_NONE, "%s asks %s for the lock", id,
               shortened(run->spec.instances[request->instance], 110, 13, instance));
    size_t before = story->count;
    if (request->outcome_ns != NOT_STAMPED)
        story_step(story, request->outcome_ns, 0, STAGE_NONE,
                   "%s has waited %.0f ms, and gets a %d", id,
                   (double)(request->outcome_ns - request->invoke_ns) / 1e6, request->code);
    if (request->reason == REASON_LOCK_TIMEOUT || request->reason == REASON_LOCK_ERROR)
        mark_last(story, before);
}

/* Adds a section that is neither 1 nor 2, and its release, which may come late. */
static void add_section(const struct run *run, const struct section *section, struct story *story)
{
    char name[SVG_LABEL_MAX];
    const char *id = shortened(run_request_id(run, section->request), 110, 13, name);
    story_step(story, section->at_ns[STAGE_ENTER], 0, STAGE_NONE, "%s enters", id);
    story_step(story, section->at_ns[STAGE_EXIT], 0, STAGE_NONE, "%s leaves", id);
    story_step(story, section->at_ns[STAGE_RELEASE], 0, STAGE_NONE, "%s has released its lock", id);
}

/* Adds what happened to whole processes. */
static void add_processes(const struct run *run, struct story *story)
{
    char name[SVG_LABEL_MAX];
    for (size_t i = 0; i < run->history_count; i++) {
        const struct history *history = &run->histories[i];
        size_t before = story->count;
        if (history->ended || history->instance == NONE || dies_inside(run, i))
            continue;
        story_step(story, run_death_ns(run, history), 0, STAGE_NONE, "%s is killed",
                   shortened(run->spec.instances[history->instance], 110, 13, name));
        mark_last(story, before);
    }
    for (size_t i = 0; i < run->spec.seen_count; i++) {
        if (run->spec.seen[i].killed == NONE)
            story_step(story, run->spec.seen[i].t_ns, 0, STAGE_NONE, "%s",
                       shortened(run->spec.seen[i].text, SEEN_WIDTH, 13, name));
    }
    for (size_t i = 0; i < run->mark_count; i++) {
        if (run->marks[i].kind == MARK_STALL)
            story_step(story, run->marks[i].t_ns, 0, STAGE_NONE,
                       "%s wakes: it stood still for %.0f ms",
                       shortened(run->spec.instances[run->marks[i].instance], 110, 13, name),
                       (double)run->marks[i].late_ns / 1e6);
    }
}

/* Small runs only: adds all steps that the scene's two sections do not contain. */
static void add_others(const struct run *run, const struct scene *scene, struct story *story)
{
    for (size_t i = 0; i < run->request_count; i++)
        add_request(run, i, story);
    for (size_t i = 0; i < run->section_count; i++) {
        if (&run->sections[i] != scene->first && &run->sections[i] != scene->second)
            add_section(run, &run->sections[i], story);
    }
    add_processes(run, story);
}

static int by_time(const void *a, const void *b)
{
    const struct step *one = a;
    const struct step *two = b;
    if (one->t_ns != two->t_ns)
        return one->t_ns < two->t_ns ? -1 : 1;
    return (one->order > two->order) - (one->order < two->order);
}

/* Marks the second enter while the first is inside, and the later of two wrong sales. */
static void mark_worst(const struct run *run, const struct scene *scene, struct story *story)
{
    char name[SVG_LABEL_MAX];
    char why[SVG_LABEL_MAX];
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    if (scene->second == NULL)
        return;
    bool together = scene_meeting(scene->first, scene->second, &from_ns, &to_ns);
    bool bad_sale = scene->kind == SCENE_SAME_UNIT || scene->kind == SCENE_NO_UNIT ||
                    scene->kind == SCENE_APART;
    struct step *sale = NULL;
    snprintf(why, sizeof why, ", while %.100s is inside",
             scene_name(run, scene, scene->first, name));
    for (size_t i = 0; i < story->count; i++) {
        struct step *step = &story->steps[i];
        if (together && step->who == 2 && step->stage == STAGE_ENTER)
            story_mark(step, why);
        const struct section *section = step->who == 1 ? scene->first : scene->second;
        if (bad_sale && step->stage == STAGE_WRITE &&
            (scene->kind != SCENE_NO_UNIT || section->unit <= 0))
            sale = step;
    }
    if (sale != NULL)
        story_mark(sale, scene->kind == SCENE_NO_UNIT ? ": there was no such unit"
                                                      : ": that unit was sold already");
}

void story_tell(const struct run *run, const struct verdict *verdict, const struct scene *scene,
                struct story *story)
{
    *story = (struct story){.title = titles[verdict->result]};
    if (reason_leads(verdict, scene) && run->findings.count > 0)
        story_add(story, "%s. ", run->findings.list[0].sentence);
    tell_scene(run, scene, story);
    if (scene->first != NULL)
        add_steps(run, scene->first, 1, story);
    if (scene->second != NULL)
        add_steps(run, scene->second, 2, story);
    if (strip_fits(run))
        add_others(run, scene, story);
    qsort(story->steps, story->count, sizeof *story->steps, by_time);
    mark_worst(run, scene, story);
}
