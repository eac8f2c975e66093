/* SPDX-License-Identifier: Apache-2.0
 *
 * Named points of the code at which a demonstration stops, slows, breaks or kills this process. A
 * point is set to an action, written as in FreeBSD's fail(9): [N*]ACTION. It acts N times at most.
 *
 *   off        does nothing; a request or thread that is paused there continues
 *   pause      stays until the point is set again, or until the file FILES/<point> exists, because
 *              a stopped process answers no HTTP. At most FAILPOINT_PAUSE_MS
 *   delay(MS)  stays for that time
 *   crash      sends SIGKILL to this process
 *   fail       fails as the point defines
 *
 * A caller may stay without a thread; one thread of the failpoints ends its stay. At a point of the
 * lock library the calling thread stays.
 *
 * The points are the service's, such as sale.entered, and the lock library's <rung>.<point>.
 */
#ifndef FAILPOINTS_H
#define FAILPOINTS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* A service's points, in program.h. */
struct failpoint_row {
    const char *name;  /* "sale.entered": GROUP.NAME; NULL: the end of the list */
    const char *fails; /* what `fail` does; "": it cannot fail */
};

#define FAILPOINT_PAUSE_MS INT64_C(60000)
#define FAILPOINT_NAME_MAX 96
#define FAILPOINTS_MAX 32 /* how many can be set at once */
#define FAILPOINT_ERROR_MAX 512

struct failpoints;

/* files: the folder for `pause`; "": none. NULL when out of memory or threads. */
struct failpoints *failpoints_new(const char *files);
/* The same, and sets the points of the list. NULL: error[] says which setting is wrong. */
struct failpoints *failpoints_start(const char *files, const char *list,
                                    char error[FAILPOINT_ERROR_MAX]);
/* Nobody may be at a point any more. */
void failpoints_free(struct failpoints *failpoints);

/* False: error[] says what was wrong and what would be right. */
bool failpoints_set(struct failpoints *failpoints, const char *point, const char *action,
                    char error[FAILPOINT_ERROR_MAX]);
/* "POINT=ACTION;POINT=ACTION"; "" sets none. */
bool failpoints_set_list(struct failpoints *failpoints, const char *list,
                         char error[FAILPOINT_ERROR_MAX]);
/* From now on no point acts, whatever is set. */
void failpoints_end(struct failpoints *failpoints);

/* An array: {"point", "action", "hits": how often it acted, "paused": how many are paused there}.
 */
cJSON *failpoints_json(struct failpoints *failpoints);

/* What a caller does at a point that it has reached. */
enum failpoint_way { FAILPOINT_PASSES, FAILPOINT_FAILS, FAILPOINT_STAYS };
/* A stay at a point. The caller sets only `over`. The rest belongs to failpoints.c until `over` is
 * called. */
struct failpoint_stay {
    /* Called once when the stay has ended, on a thread that must not be blocked, and perhaps before
     * failpoints_reach returns. NULL: the calling thread stays. */
    void (*over)(struct failpoint_stay *stay);
    struct armed *at; /* NULL: a delay */
    unsigned long set;
    int64_t end_ns;
    STAILQ_ENTRY(failpoint_stay) of_stays;
};
STAILQ_HEAD(failpoint_stays, failpoint_stay);
/* Acts as the point is set. FAILPOINT_STAYS, only if stay->over is not NULL: stay->over will be
 * called, and *stay must live until then. Allocates nothing: each caller owns its stay. Any
 * thread. */
enum failpoint_way failpoints_reach(struct failpoints *failpoints, const char *group,
                                    const char *name, struct failpoint_stay *stay);

/* For dlock_options.on_point: the calling thread stays. */
void failpoints_on_point(void *failpoints, const char *rung, const char *point);

#endif
