/* SPDX-License-Identifier: Apache-2.0
 *
 * See failpoints.h.
 */
#include "failpoints.h"

#include "../lock/clock.h"
#include "log.h"
#include "program.h"
#include "text.h"

#include <dlock.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS (2 * NS_PER_MS) /* how often the file of a paused point is looked for */
#define FILES_MAX 4000
#define DELAY_MS_MAX 60000
#define TIMES_MAX 1000000

enum action { OFF, PAUSE, DELAY, CRASH, FAIL };
static const char *const action_names[] = {"off", "pause", "delay", "crash", "fail"};
#define ACTIONS                                                                                    \
    "off, pause, delay(MS), crash, fail, each with or without N* before it, as in 1*pause"

struct armed {
    char point[FAILPOINT_NAME_MAX + 1]; /* "": free */
    enum action action;
    long times; /* 0: without limit */
    long delay_ms;
    long hits;
    long paused;
    unsigned long set; /* counts how often the point was set; a change of it ends the stays */
};

struct failpoints {
    atomic_int armed; /* points with an action; while it is 0, reaching a point costs one load */
    char files[FILES_MAX + 1];
    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t changed;
    bool ended;
    bool freed;
    struct failpoint_stays stays; /* stays that keep no thread */
    int64_t look_ns;              /* when the watcher checks them again, unless it is woken */
    struct armed points[FAILPOINTS_MAX];
    pthread_t watcher;
};

static void *failpoints_watch(void *arg);

struct failpoints *failpoints_new(const char *files)
{
    struct failpoints *failpoints = calloc(1, sizeof *failpoints);
    if (failpoints == NULL)
        return NULL;
    snprintf(failpoints->files, sizeof failpoints->files, "%s", files);
    STAILQ_INIT(&failpoints->stays);
    pthread_mutex_init(&failpoints->mutex, NULL);
    cond_init(&failpoints->changed);
    if (pthread_create(&failpoints->watcher, NULL, failpoints_watch, failpoints) == 0)
        return failpoints;
    pthread_cond_destroy(&failpoints->changed);
    pthread_mutex_destroy(&failpoints->mutex);
    free(failpoints);
    return NULL;
}

void failpoints_free(struct failpoints *failpoints)
{
    if (failpoints == NULL)
        return;
    pthread_mutex_lock(&failpoints->mutex);
    failpoints->freed = true;
    pthread_cond_broadcast(&failpoints->changed);
    pthread_mutex_unlock(&failpoints->mutex);
    pthread_join(failpoints->watcher, NULL);
    pthread_cond_destroy(&failpoints->changed);
    pthread_mutex_destroy(&failpoints->mutex);
    free(failpoints);
}

/* ---- Setting --------------------------------------------------------------------------------- */

static bool failpoints_wrong(char error[FAILPOINT_ERROR_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool failpoints_wrong(char error[FAILPOINT_ERROR_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, FAILPOINT_ERROR_MAX, format, args);
    va_end(args);
    return false;
}

/* NULL: the service has no such point. */
static const struct failpoint_row *find_own(const char *point)
{
    const struct failpoint_row *row = program.points;
    while (row != NULL && row->name != NULL && strcmp(row->name, point) != 0)
        row++;
    return row != NULL && row->name != NULL ? row : NULL;
}

/* The first of the service's points that can fail; NULL: none can. */
static const char *one_that_fails(void)
{
    const struct failpoint_row *row = program.points;
    while (row != NULL && row->name != NULL && row->fails[0] == '\0')
        row++;
    return row != NULL ? row->name : NULL;
}

static bool no_point(const char *point, char error[FAILPOINT_ERROR_MAX])
{
    char own[FAILPOINT_ERROR_MAX / 2] = "";
    for (const struct failpoint_row *row = program.points; row != NULL && row->name != NULL; row++)
        text_join(own, sizeof own, " ", row->name);
    return failpoints_wrong(error,
                            "\"%.100s\" is no point; there are%s%s%s those of the rungs, as in "
                            "owner_check.between_get_and_del",
                            point, own[0] != '\0' ? " " : "", own, own[0] != '\0' ? " and" : "");
}

/* Only a rung's file knows its points, so any name of a rung's point is accepted. */
static bool check_point(const char *point, bool fails, char error[FAILPOINT_ERROR_MAX])
{
    char group[FAILPOINT_NAME_MAX + 1];
    size_t size = strcspn(point, ".");
    const char *name = point + size + (point[size] == '.');
    snprintf(group, sizeof group, "%.*s", (int)size, point);
    if (strlen(point) > FAILPOINT_NAME_MAX || *name == '\0' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") != strlen(name))
        return failpoints_wrong(error,
                                "\"%.100s\" is no point: as in owner_check.between_get_and_del, at "
                                "most %d characters",
                                point, FAILPOINT_NAME_MAX);
    const struct failpoint_row *own = find_own(point);
    if (own == NULL && dlock_rung_find(group) == NULL)
        return no_point(point, error);
    if (fails && (own == NULL || own->fails[0] == '\0')) {
        const char *other = one_that_fails();
        return failpoints_wrong(error, "%s cannot fail%s%s%s", point, other != NULL ? "; " : "",
                                other != NULL ? other : "", other != NULL ? " can" : "");
    }
    return true;
}

/* Reads [N*]ACTION. */
static bool failpoints_read_action(const char *text, struct armed *armed,
                                   char error[FAILPOINT_ERROR_MAX])
{
    char name[16] = "";
    const char *action = text;
    long times = 0, delay_ms = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits > 0 && text[digits] == '*') {
        times = strtol(text, NULL, 10);
        action = text + digits + 1;
        if (times < 1 || times > TIMES_MAX)
            return failpoints_wrong(error, "\"%.60s\": N* is 1 to %d", text, TIMES_MAX);
    }
    digits = strncmp(action, "delay(", 6) == 0 ? strspn(action + 6, "0123456789") : 0;
    if (digits > 0 && strcmp(action + 6 + digits, ")") == 0) {
        snprintf(name, sizeof name, "delay");
        delay_ms = strtol(action + 6, NULL, 10);
    } else if (strcmp(action, "delay") != 0) {
        snprintf(name, sizeof name, "%s", action);
    }
    for (size_t i = 0; i < sizeof action_names / sizeof action_names[0]; i++) {
        if (strcmp(action_names[i], name) != 0)
            continue;
        if (i == DELAY && (delay_ms < 1 || delay_ms > DELAY_MS_MAX))
            return failpoints_wrong(error, "\"%.60s\": a delay has 1 to %d ms", text, DELAY_MS_MAX);
        armed->action = (enum action)i;
        armed->times = times;
        armed->delay_ms = delay_ms;
        return true;
    }
    return failpoints_wrong(error, "\"%.60s\" is no action; there are " ACTIONS, text);
}

/* The mutex is held. */
static struct armed *failpoints_find(struct failpoints *failpoints, const char *point)
{
    for (struct armed *at = failpoints->points; at < failpoints->points + FAILPOINTS_MAX; at++)
        if (strcmp(at->point, point) == 0)
            return at;
    return NULL;
}

/* A place for another point: a free one, or that of a point that is off and has no stay. The mutex
 * is held. */
static struct armed *take_place(struct failpoints *failpoints)
{
    struct armed *place = failpoints_find(failpoints, "");
    for (struct armed *at = failpoints->points;
         place == NULL && at < failpoints->points + FAILPOINTS_MAX; at++)
        if (at->action == OFF && at->paused == 0)
            place = at;
    return place;
}

bool failpoints_set(struct failpoints *failpoints, const char *point, const char *action,
                    char error[FAILPOINT_ERROR_MAX])
{
    struct armed asked = {.action = OFF};
    if (!failpoints_read_action(action, &asked, error) ||
        !check_point(point, asked.action == FAIL, error))
        return false;
    pthread_mutex_lock(&failpoints->mutex);
    struct armed *place = failpoints_find(failpoints, point);
    if (place == NULL && (place = take_place(failpoints)) != NULL)
        *place = (struct armed){.set = place->set};
    if (place != NULL) {
        atomic_fetch_add(&failpoints->armed, (asked.action != OFF) - (place->action != OFF));
        snprintf(place->point, sizeof place->point, "%s", point);
        place->action = asked.action;
        place->times = asked.times;
        place->delay_ms = asked.delay_ms;
        place->hits = asked.action != OFF ? 0 : place->hits;
        place->set++;
        pthread_cond_broadcast(&failpoints->changed);
    }
    pthread_mutex_unlock(&failpoints->mutex);
    return place != NULL ||
           failpoints_wrong(error, "%d points are set already: set one to off first",
                            FAILPOINTS_MAX);
}

bool failpoints_set_list(struct failpoints *failpoints, const char *list,
                         char error[FAILPOINT_ERROR_MAX])
{
    while (*list != '\0') {
        char one[FAILPOINT_NAME_MAX + 64];
        size_t size = strcspn(list, ";");
        snprintf(one, sizeof one, "%.*s", (int)size, list);
        char *equals = strchr(one, '=');
        if (equals == NULL || size >= sizeof one)
            return failpoints_wrong(error, "\"%.100s\" is not POINT=ACTION, as in %s=1*pause",
                                    text_without_logins(one), program.example_point);
        *equals = '\0';
        if (!failpoints_set(failpoints, one, equals + 1, error))
            return false;
        list += size + (list[size] == ';');
    }
    return true;
}

struct failpoints *failpoints_start(const char *files, const char *list,
                                    char error[FAILPOINT_ERROR_MAX])
{
    struct stat status;
    char problem[FAILPOINT_ERROR_MAX];
    if (files[0] != '\0' && (stat(files, &status) != 0 || !S_ISDIR(status.st_mode))) {
        failpoints_wrong(error,
                         "--failpoint-files: \"%.400s\" is no folder; name one that is there",
                         text_without_logins(files));
        return NULL;
    }
    struct failpoints *failpoints = failpoints_new(files);
    if (failpoints == NULL)
        failpoints_wrong(error, "out of memory");
    if (failpoints == NULL || failpoints_set_list(failpoints, list, problem))
        return failpoints;
    failpoints_wrong(error, "--failpoints: %.480s", problem);
    failpoints_free(failpoints);
    return NULL;
}

void failpoints_end(struct failpoints *failpoints)
{
    if (failpoints == NULL)
        return;
    pthread_mutex_lock(&failpoints->mutex);
    failpoints->ended = true;
    pthread_cond_broadcast(&failpoints->changed);
    pthread_mutex_unlock(&failpoints->mutex);
}

cJSON *failpoints_json(struct failpoints *failpoints)
{
    cJSON *all = cJSON_CreateArray();
    pthread_mutex_lock(&failpoints->mutex);
    for (struct armed *at = failpoints->points; at < failpoints->points + FAILPOINTS_MAX; at++) {
        char action[48] = "";
        if (at->point[0] == '\0')
            continue;
        int used = at->times > 0 ? snprintf(action, sizeof action, "%ld*", at->times) : 0;
        snprintf(action + used, sizeof action - (size_t)used,
                 at->action == DELAY ? "%s(%ld)" : "%s", action_names[at->action], at->delay_ms);
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "point", at->point);
        cJSON_AddStringToObject(one, "action", action);
        cJSON_AddNumberToObject(one, "hits", (double)at->hits);
        cJSON_AddNumberToObject(one, "paused", (double)at->paused);
        cJSON_AddItemToArray(all, one);
    }
    pthread_mutex_unlock(&failpoints->mutex);
    return all;
}

/* ---- Reaching a point ------------------------------------------------------------------------ */

/* Whether the file exists that ends the pause. */
static bool is_let_go(const struct failpoints *failpoints, const char *point)
{
    char file[FILES_MAX + FAILPOINT_NAME_MAX + 2];
    if (failpoints->files[0] == '\0')
        return false;
    snprintf(file, sizeof file, "%s/%s", failpoints->files, point);
    return access(file, F_OK) == 0;
}

/* When to check a stay again: every LOOK_NS if a file may end it, otherwise at its end. */
static int64_t next_look_ns(const struct failpoints *failpoints, const struct failpoint_stay *stay,
                            int64_t at_ns)
{
    bool by_file = stay->at != NULL && failpoints->files[0] != '\0';
    return by_file && at_ns + LOOK_NS < stay->end_ns ? at_ns + LOOK_NS : stay->end_ns;
}

/* Whether the stay has ended. let_go: the file of its point exists. The mutex is held. */
static bool failpoints_is_over(const struct failpoints *failpoints,
                               const struct failpoint_stay *stay, int64_t at_ns, bool let_go)
{
    const struct armed *at = stay->at;
    if (failpoints->ended || (at != NULL && (at->set != stay->set || let_go)))
        return true;
    if (at != NULL && at_ns >= stay->end_ns)
        log_event(LOG_WARNING, "failpoint",
                  "%s: paused for %" PRId64 " ms, the longest pause; it continues", at->point,
                  FAILPOINT_PAUSE_MS);
    return at_ns >= stay->end_ns;
}

/* The mutex is held. */
static void wait_for_change(struct failpoints *failpoints, int64_t until_ns)
{
    struct timespec until = timespec_of(until_ns);
    pthread_cond_timedwait(&failpoints->changed, &failpoints->mutex, &until);
}

/* Looks which paused points have their file: once a point, however many stays it has. The mutex is
 * held. */
static void look_for_files(const struct failpoints *failpoints, bool let_go[FAILPOINTS_MAX])
{
    for (size_t i = 0; i < FAILPOINTS_MAX; i++)
        let_go[i] =
            failpoints->points[i].paused > 0 && is_let_go(failpoints, failpoints->points[i].point);
}

/* Takes the stays that have ended off the list, in the order in which they began. The mutex is
 * held. */
static struct failpoint_stays failpoints_take_over(struct failpoints *failpoints)
{
    struct failpoint_stays over = STAILQ_HEAD_INITIALIZER(over),
                           stay_on = STAILQ_HEAD_INITIALIZER(stay_on);
    struct failpoint_stay *stay;
    bool let_go[FAILPOINTS_MAX];
    look_for_files(failpoints, let_go);
    const int64_t at_ns = mono_ns();
    failpoints->look_ns = at_ns + FAILPOINT_PAUSE_MS * NS_PER_MS;
    while ((stay = STAILQ_FIRST(&failpoints->stays)) != NULL) {
        STAILQ_REMOVE_HEAD(&failpoints->stays, of_stays);
        if (failpoints_is_over(failpoints, stay, at_ns,
                               stay->at != NULL && let_go[stay->at - failpoints->points])) {
            if (stay->at != NULL)
                stay->at->paused--;
            STAILQ_INSERT_TAIL(&over, stay, of_stays);
            continue;
        }
        int64_t next_ns = next_look_ns(failpoints, stay, at_ns);
        failpoints->look_ns = next_ns < failpoints->look_ns ? next_ns : failpoints->look_ns;
        STAILQ_INSERT_TAIL(&stay_on, stay, of_stays);
    }
    STAILQ_CONCAT(&failpoints->stays, &stay_on);
    return over;
}

static void *failpoints_watch(void *arg)
{
    struct failpoints *failpoints = arg;
    struct failpoint_stay *stay;
    pthread_mutex_lock(&failpoints->mutex);
    while (!failpoints->freed) {
        struct failpoint_stays over = failpoints_take_over(failpoints);
        if (STAILQ_EMPTY(&over)) {
            wait_for_change(failpoints, failpoints->look_ns);
            continue;
        }
        pthread_mutex_unlock(&failpoints->mutex);
        while ((stay = STAILQ_FIRST(&over)) != NULL) {
            STAILQ_REMOVE_HEAD(&over, of_stays); /* over() may free it */
            stay->over(stay);
        }
        pthread_mutex_lock(&failpoints->mutex);
    }
    pthread_mutex_unlock(&failpoints->mutex);
    return NULL;
}

/* True: the stay goes on without this thread. False: this thread stayed, and the stay has ended.
 * The mutex is held. */
static bool begin_stay(struct failpoints *failpoints, struct failpoint_stay *stay, struct armed *at,
                       enum action action)
{
    const int64_t begin_ns = mono_ns();
    stay->at = action == PAUSE ? at : NULL;
    stay->set = at->set;
    stay->end_ns = begin_ns + (action == PAUSE ? FAILPOINT_PAUSE_MS : at->delay_ms) * NS_PER_MS;
    at->paused += action == PAUSE;
    if (stay->over != NULL) {
        STAILQ_INSERT_TAIL(&failpoints->stays, stay, of_stays);
        if (next_look_ns(failpoints, stay, begin_ns) < failpoints->look_ns)
            pthread_cond_broadcast(&failpoints->changed);
        return true;
    }
    while (!failpoints_is_over(failpoints, stay, mono_ns(),
                               stay->at != NULL && is_let_go(failpoints, at->point)))
        wait_for_change(failpoints, next_look_ns(failpoints, stay, mono_ns()));
    at->paused -= action == PAUSE;
    return false;
}

enum failpoint_way failpoints_reach(struct failpoints *failpoints, const char *group,
                                    const char *name, struct failpoint_stay *stay)
{
    char point[FAILPOINT_NAME_MAX + 1];
    bool stays = false;
    if (atomic_load_explicit(&failpoints->armed, memory_order_relaxed) == 0)
        return FAILPOINT_PASSES;
    snprintf(point, sizeof point, "%s.%s", group, name);
    pthread_mutex_lock(&failpoints->mutex);
    struct armed *at = failpoints_find(failpoints, point);
    enum action action = OFF;
    if (at != NULL && !failpoints->ended && (at->times == 0 || at->hits < at->times))
        action = at->action;
    if (action != OFF) {
        at->hits++;
        log_event(LOG_INFO, "failpoint", "%s: %s", point, action_names[action]);
    }
    if (action == PAUSE || action == DELAY)
        stays = begin_stay(failpoints, stay, at, action);
    pthread_mutex_unlock(&failpoints->mutex);
    if (action == CRASH)
        for (;;)
            kill(getpid(), SIGKILL);
    return stays ? FAILPOINT_STAYS : action == FAIL ? FAILPOINT_FAILS : FAILPOINT_PASSES;
}

void failpoints_on_point(void *failpoints, const char *rung, const char *point)
{
    struct failpoint_stay stay = {0};
    failpoints_reach(failpoints, rung, point, &stay);
}
