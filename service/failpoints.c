/* SPDX-License-Identifier: Apache-2.0
 *
 * See failpoints.h.
 */
#include "failpoints.h"

#include "clock.h"
#include "log.h"

#include <dlock.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS (2 * NS_PER_MS) /* how often a paused thread looks for its file */
#define FILES_MAX 4000
#define DELAY_MS_MAX 60000
#define TIMES_MAX 1000000

enum action { OFF, PAUSE, DELAY, CRASH, FAIL };
static const char *const action_names[] = {"off", "pause", "delay", "crash", "fail"};
#define ACTIONS "off, pause, delay(MS), crash, fail, each with N* ahead or not, as in 1*pause"

struct armed {
    char point[FAILPOINT_NAME_MAX + 1]; /* "": free */
    enum action action;
    long times; /* 0: without limit */
    long delay_ms;
    long hits;
    long parked;
    unsigned long set; /* counts how often it was set: who is paused waits for that to change */
};

struct failpoints {
    atomic_int armed; /* how many points are set to something: 0 costs a load */
    char files[FILES_MAX + 1];
    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t changed;
    bool ended;
    struct armed points[FAILPOINTS_MAX];
};

struct failpoints *failpoints_new(const char *files)
{
    struct failpoints *failpoints = calloc(1, sizeof *failpoints);
    if (failpoints == NULL)
        return NULL;
    snprintf(failpoints->files, sizeof failpoints->files, "%s", files);
    pthread_mutex_init(&failpoints->mutex, NULL);
    cond_init(&failpoints->changed);
    return failpoints;
}

void failpoints_free(struct failpoints *failpoints)
{
    if (failpoints == NULL)
        return;
    pthread_cond_destroy(&failpoints->changed);
    pthread_mutex_destroy(&failpoints->mutex);
    free(failpoints);
}

/* ---- Setting --------------------------------------------------------------------------------- */

static bool wrong(char error[FAILPOINT_ERROR_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool wrong(char error[FAILPOINT_ERROR_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, FAILPOINT_ERROR_MAX, format, args);
    va_end(args);
    return false;
}

/* The row of SHOP_POINTS, or NULL. */
struct shop_point {
    const char *name, *fails;
};
static const struct shop_point *find_shop_point(const char *point)
{
    static const struct shop_point rows[] = {
#define X(group, name, where, fails) {#group "." #name, fails},
        SHOP_POINTS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, point) == 0)
            return &rows[i];
    return NULL;
}

/* Which points a rung has is known to its file alone: there a name is taken as it is. */
static bool check_point(const char *point, bool fails, char error[FAILPOINT_ERROR_MAX])
{
    char group[FAILPOINT_NAME_MAX + 1];
    size_t size = strcspn(point, ".");
    const char *name = point + size + (point[size] == '.');
    snprintf(group, sizeof group, "%.*s", (int)size, point);
    if (strlen(point) > FAILPOINT_NAME_MAX || *name == '\0' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") != strlen(name))
        return wrong(error,
                     "\"%.100s\" is no point: as in owner_check.between_get_and_del, at "
                     "most %d characters",
                     point, FAILPOINT_NAME_MAX);
    const struct shop_point *of_shop = find_shop_point(point);
    if (of_shop == NULL && dlock_rung_find(group) == NULL) {
#define X(group, name, where, fails) " " #group "." #name
        return wrong(error,
                     "\"%.100s\" is no point; there are" SHOP_POINTS(
                         X) " and those of the rungs, as in owner_check.between_get_and_del",
                     point);
#undef X
    }
    if (fails && (of_shop == NULL || of_shop->fails[0] == '\0'))
        return wrong(error, "%s cannot fail; sale.after_write can", point);
    return true;
}

/* [N*]ACTION. */
static bool read_action(const char *text, struct armed *armed, char error[FAILPOINT_ERROR_MAX])
{
    char name[16] = "";
    const char *action = text;
    long times = 0, delay_ms = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits > 0 && text[digits] == '*') {
        times = strtol(text, NULL, 10);
        action = text + digits + 1;
        if (times < 1 || times > TIMES_MAX)
            return wrong(error, "\"%.60s\": N* is 1 to %d", text, TIMES_MAX);
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
            return wrong(error, "\"%.60s\": a delay has 1 to %d ms", text, DELAY_MS_MAX);
        armed->action = (enum action)i;
        armed->times = times;
        armed->delay_ms = delay_ms;
        return true;
    }
    return wrong(error, "\"%.60s\" is no action; there are " ACTIONS, text);
}

/* The mutex is held. */
static struct armed *find(struct failpoints *failpoints, const char *point)
{
    for (struct armed *at = failpoints->points; at < failpoints->points + FAILPOINTS_MAX; at++)
        if (strcmp(at->point, point) == 0)
            return at;
    return NULL;
}

/* A place for one more: a free one, or one that is off and empty. The mutex is held. */
static struct armed *take_place(struct failpoints *failpoints)
{
    struct armed *place = find(failpoints, "");
    for (struct armed *at = failpoints->points;
         place == NULL && at < failpoints->points + FAILPOINTS_MAX; at++)
        if (at->action == OFF && at->parked == 0)
            place = at;
    return place;
}

bool failpoints_set(struct failpoints *failpoints, const char *point, const char *action,
                    char error[FAILPOINT_ERROR_MAX])
{
    struct armed asked = {.action = OFF};
    if (!read_action(action, &asked, error) || !check_point(point, asked.action == FAIL, error))
        return false;
    pthread_mutex_lock(&failpoints->mutex);
    struct armed *place = find(failpoints, point);
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
           wrong(error, "%d points are set already: set one to off first", FAILPOINTS_MAX);
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
            return wrong(error, "\"%.100s\" is not POINT=ACTION, as in sale.after_read=1*pause",
                         one);
        *equals = '\0';
        if (!failpoints_set(failpoints, one, equals + 1, error))
            return false;
        list += size + (list[size] == ';');
    }
    return true;
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
        cJSON_AddNumberToObject(one, "parked", (double)at->parked);
        cJSON_AddItemToArray(all, one);
    }
    pthread_mutex_unlock(&failpoints->mutex);
    return all;
}

/* ---- Passing --------------------------------------------------------------------------------- */

/* Whether the file that lets go is there. */
static bool is_let_go(const struct failpoints *failpoints, const char *point)
{
    char file[FILES_MAX + FAILPOINT_NAME_MAX + 2];
    if (failpoints->files[0] == '\0')
        return false;
    snprintf(file, sizeof file, "%s/%s", failpoints->files, point);
    return access(file, F_OK) == 0;
}

/* The mutex is held. */
static void park(struct failpoints *failpoints, struct armed *at)
{
    unsigned long set = at->set;
    int64_t end_ns = now_ns() + FAILPOINT_PAUSE_MS * NS_PER_MS;
    bool let_go = false;
    at->parked++;
    while (!let_go && at->set == set && !failpoints->ended && now_ns() < end_ns) {
        int64_t look_ns = failpoints->files[0] != '\0' ? now_ns() + LOOK_NS : end_ns;
        struct timespec until = timespec_of(look_ns);
        pthread_cond_timedwait(&failpoints->changed, &failpoints->mutex, &until);
        let_go = is_let_go(failpoints, at->point);
    }
    at->parked--;
    if (!let_go && at->set == set && !failpoints->ended)
        log_event(LOG_WARNING, "failpoint",
                  "%s: paused for %" PRId64 " ms, the most there is; it goes on", at->point,
                  FAILPOINT_PAUSE_MS);
}

/* The mutex is held. */
static void delay(struct failpoints *failpoints, long ms)
{
    int64_t end_ns = now_ns() + ms * NS_PER_MS;
    struct timespec until = timespec_of(end_ns);
    while (!failpoints->ended && now_ns() < end_ns)
        pthread_cond_timedwait(&failpoints->changed, &failpoints->mutex, &until);
}

bool failpoints_pass(struct failpoints *failpoints, const char *group, const char *name)
{
    char point[FAILPOINT_NAME_MAX + 1];
    if (atomic_load_explicit(&failpoints->armed, memory_order_relaxed) == 0)
        return false;
    snprintf(point, sizeof point, "%s.%s", group, name);
    pthread_mutex_lock(&failpoints->mutex);
    struct armed *at = find(failpoints, point);
    enum action action = OFF;
    if (at != NULL && !failpoints->ended && (at->times == 0 || at->hits < at->times))
        action = at->action;
    if (action != OFF) {
        at->hits++;
        log_event(LOG_INFO, "failpoint", "%s: %s", point, action_names[action]);
    }
    if (action == PAUSE)
        park(failpoints, at);
    else if (action == DELAY)
        delay(failpoints, at->delay_ms);
    pthread_mutex_unlock(&failpoints->mutex);
    while (action == CRASH)
        kill(getpid(), SIGKILL);
    return action == FAIL;
}

void failpoints_on_point(void *failpoints, const char *rung, const char *point)
{
    failpoints_pass(failpoints, rung, point);
}
