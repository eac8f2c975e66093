/* SPDX-License-Identifier: Apache-2.0 */
#include "scene.h"

#include "strip.h"

/* If the longer section is more than WHOLE_MAX times as long as the shorter one, it is shown in
 * part. */
enum { WHOLE_MAX = 50 };

static int64_t scene_min(int64_t one, int64_t two)
{
    return one < two ? one : two;
}

static int64_t scene_max(int64_t one, int64_t two)
{
    return one > two ? one : two;
}

bool scene_meeting(const struct section *one, const struct section *two, int64_t *from_ns,
                   int64_t *to_ns)
{
    *from_ns = scene_max(one->at_ns[STAGE_ENTER], two->at_ns[STAGE_ENTER]);
    *to_ns = scene_min(one->ended_ns, two->ended_ns);
    return one->lock == two->lock && one->at_ns[STAGE_ENTER] < two->ended_ns &&
           two->at_ns[STAGE_ENTER] < one->ended_ns;
}

bool scene_clash(const struct section *one, const struct section *two, int64_t *from_ns,
                 int64_t *to_ns)
{
    return scene_meeting(one, two, from_ns, to_ns) && !(one->shared && two->shared);
}

static bool scene_meet(const struct section *one, const struct section *two)
{
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    return one != NULL && two != NULL && scene_meeting(one, two, &from_ns, &to_ns);
}

static void set_pair(struct scene *scene, enum scene_kind kind, const struct section *one,
                     const struct section *two)
{
    bool in_order = two == NULL || one->at_ns[STAGE_ENTER] <= two->at_ns[STAGE_ENTER];
    scene->kind = kind;
    scene->first = in_order ? one : two;
    scene->second = in_order ? two : one;
    scene->lock = one->lock;
}

/* Whether the two sections of one lock follow each other without an overlap. */
static bool scene_follow(const struct section *one, const struct section *two)
{
    return one->lock == two->lock && !scene_meet(one, two);
}

/* The section that overlapped the sale of a unit that never existed. The one that sold the unit
 * before it is preferred. */
static const struct section *partner_of(const struct run *run, const struct section *beyond)
{
    const struct section *partner = NULL;
    for (size_t i = 0; i < run->by_lock_count; i++) {
        const struct section *section = run->by_lock[i];
        if (section == beyond || !scene_meet(section, beyond))
            continue;
        if (partner == NULL ||
            (section->sold && section->unit == beyond->unit + run_share(run, beyond).segments))
            partner = section;
    }
    return partner;
}

/* Chooses the neighbours between which a request was rejected too early. */
static bool choose_refusal(const struct run *run, struct scene *scene)
{
    const struct request *refused = run->first_rejected;
    for (size_t i = 0; refused != NULL && i + 1 < run->by_lock_count; i++) {
        const struct section *one = run->by_lock[i];
        const struct section *two = run->by_lock[i + 1];
        if (scene_follow(one, two) && one->item == refused->item &&
            two->at_ns[STAGE_ENTER] > refused->outcome_ns) {
            set_pair(scene, SCENE_HAND_OVER, one, two);
            return true;
        }
    }
    return false;
}

/* Chooses the middle pair of all neighbours in one lock. Pairs on different instances are
 * preferred. */
static void choose_hand_over(const struct run *run, struct scene *scene)
{
    size_t count[2] = {0, 0};
    for (size_t i = 0; i + 1 < run->by_lock_count; i++) {
        if (scene_follow(run->by_lock[i], run->by_lock[i + 1]))
            count[run->by_lock[i]->instance != run->by_lock[i + 1]->instance]++;
    }
    bool across = count[1] > 0;
    size_t wanted = count[across] / 2;
    set_pair(scene, SCENE_ALONE, run->by_lock[0], NULL);
    for (size_t i = 0; i + 1 < run->by_lock_count && count[across] > 0; i++) {
        const struct section *one = run->by_lock[i];
        const struct section *two = run->by_lock[i + 1];
        if (!scene_follow(one, two) || (one->instance != two->instance) != across)
            continue;
        if (wanted-- > 0)
            continue;
        set_pair(scene, SCENE_HAND_OVER, one, two);
        return;
    }
}

static bool was_entered(const struct section *section)
{
    return section != NULL && section->at_ns[STAGE_ENTER] != NOT_STAMPED;
}

/* The section that waits for itself, or that never released its lock; otherwise the last one. */
static const struct section *culprit_of(const struct run *run)
{
    if (was_entered(run->self_wait))
        return run->self_wait;
    if (was_entered(run->stuck_grant))
        return run->stuck_grant;
    const struct section *last = run->by_lock[0];
    for (size_t i = 1; i < run->by_lock_count; i++) {
        if (run->by_lock[i]->at_ns[STAGE_ENTER] > last->at_ns[STAGE_ENTER])
            last = run->by_lock[i];
    }
    return last;
}

static void choose_pair(const struct run *run, const struct verdict *verdict, struct scene *scene)
{
    const struct collision *twice = &run->twice;
    const struct section *partner = run->beyond == NULL ? NULL : partner_of(run, run->beyond);
    if (verdict->result == RESULT_UNBALANCED && was_entered(run->shown.first))
        set_pair(scene,
                 run->shown.second == NULL                         ? SCENE_ALONE
                 : scene_meet(run->shown.first, run->shown.second) ? SCENE_OVERLAP
                                                                   : SCENE_HAND_OVER,
                 run->shown.first, run->shown.second);
    else if (scene_meet(twice->first, twice->second))
        set_pair(scene, SCENE_SAME_UNIT, twice->first, twice->second);
    else if (partner != NULL)
        set_pair(scene, SCENE_NO_UNIT, partner, run->beyond);
    else if (run->meeting.first != NULL)
        set_pair(scene, SCENE_OVERLAP, run->meeting.first, run->meeting.second);
    else if (was_entered(twice->first) && was_entered(twice->second))
        set_pair(scene, SCENE_APART, twice->first, twice->second);
    else if (was_entered(run->shown.first) && was_entered(run->shown.second))
        set_pair(scene, SCENE_HAND_OVER, run->shown.first, run->shown.second);
    else if (verdict->result == RESULT_DEADLOCK)
        set_pair(scene, SCENE_ALONE, culprit_of(run), NULL);
    else if (!choose_refusal(run, scene))
        choose_hand_over(run, scene);
}

static int64_t length_of(const struct section *section)
{
    return section->ended_ns - section->at_ns[STAGE_ENTER];
}

/* Shows both sections whole, with some time before and after. If one is far longer than the other,
 * only the time around their overlap is shown. */
static void set_window(const struct run *run, struct scene *scene)
{
    const struct section *first = scene->first;
    const struct section *second = scene->second == NULL ? first : scene->second;
    int64_t from_ns = first->at_ns[STAGE_ENTER];
    int64_t to_ns = scene_max(first->ended_ns, second->ended_ns);
    int64_t meet_from_ns = 0;
    int64_t meet_to_ns = 0;
    int64_t shorter = scene_max(scene_min(length_of(first), length_of(second)), 1000);
    bool together = scene_meeting(first, second, &meet_from_ns, &meet_to_ns);
    if (together && first != second && (to_ns - from_ns) / WHOLE_MAX > shorter) {
        from_ns = meet_from_ns;
        to_ns = scene_max(meet_to_ns, meet_from_ns + shorter);
    }
    if (scene->kind == SCENE_ALONE && first->stage != STAGE_RELEASE)
        to_ns = scene_max(to_ns, run->end_ns); /* and all requests that waited for it */
    int64_t margin = scene_max((to_ns - from_ns) / 2, 1000);
    if (scene->kind == SCENE_ALONE)
        margin = scene_max((to_ns - from_ns) / 10, 1000);
    if (scene->kind == SCENE_HAND_OVER)
        margin = scene_max(2 * (to_ns - from_ns), 1000);
    int64_t beside = (run->end_ns - run->start_ns) / 50 + 1000; /* do not exceed the run by much */
    scene->from_ns = scene_max(from_ns - margin, scene_min(run->start_ns - beside, from_ns));
    scene->to_ns = scene_min(to_ns + margin, scene_max(run->end_ns + beside, to_ns));
}

void scene_choose(const struct run *run, const struct verdict *verdict, struct scene *scene)
{
    *scene = (struct scene){.kind = SCENE_EMPTY, .from_ns = run->start_ns, .to_ns = run->end_ns};
    if (run->by_lock_count == 0)
        return;
    choose_pair(run, verdict, scene);
    set_window(run, scene);
}

const char *scene_name(const struct run *run, const struct scene *scene,
                       const struct section *section, char buffer[SVG_LABEL_MAX])
{
    if (strip_fits(run))
        return shortened(run_request_id(run, section->request), 110, 13, buffer);
    snprintf(buffer, SVG_LABEL_MAX, "%d", section == scene->second ? 2 : 1);
    return buffer;
}
