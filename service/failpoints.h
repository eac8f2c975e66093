/* SPDX-License-Identifier: Apache-2.0
 *
 * Named points of the code at which a demonstration stops, slows, breaks or kills this process. A
 * point is set to an action, written as in FreeBSD's fail(9): [N*]ACTION, N how often at most.
 *
 *   off        nothing; who is paused there goes on
 *   pause      stays until the point is set anew, or until the file FILES/<point> is there: a
 *              process that is stopped hears no HTTP. At most FAILPOINT_PAUSE_MS
 *   delay(MS)  stays for so long
 *   crash      SIGKILL, to itself
 *   fail       what the point says that it does
 *
 * Sales stay without a thread, and one thread of the failpoints watches over them; who is at a
 * point of the lock library's stays with its thread.
 *
 * The points are those of SHOP_POINTS, as in sale.entered, and the lock library's, <rung>.<point>.
 */
#ifndef FAILPOINTS_H
#define FAILPOINTS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* X(group, name, where it is, what `fail` does; "" where it cannot) */
#define SHOP_POINTS(X)                                                                             \
    X(sale, before_upgrade,                                                                        \
      "with upgrade=1: the stock was read under the read lock, which it keeps", "")                \
    X(sale, entered, "the lock was had", "")                                                       \
    X(sale, after_read, "the stock was read", "")                                                  \
    X(sale, before_write, "behind the business and the last look at the hold", "")                 \
    X(sale, after_write, "the stock was written",                                                  \
      "the lock is forgotten, as by an early return without a release")                            \
    X(read, entered, "with --guard-reads: a reader had its lock, and has not read yet", "")

#define FAILPOINT_PAUSE_MS INT64_C(60000)
#define FAILPOINT_NAME_MAX 96
#define FAILPOINTS_MAX 32 /* set at once */
#define FAILPOINT_ERROR_MAX 512

struct failpoints;

/* files: the folder for `pause`, "": none. NULL when out of memory or threads. */
struct failpoints *failpoints_new(const char *files);
/* Nobody may be at a point any more. */
void failpoints_free(struct failpoints *failpoints);

/* False: error[] says what was wrong and what would be right. */
bool failpoints_set(struct failpoints *failpoints, const char *point, const char *action,
                    char error[FAILPOINT_ERROR_MAX]);
/* "POINT=ACTION;POINT=ACTION"; "" sets none. */
bool failpoints_set_list(struct failpoints *failpoints, const char *list,
                         char error[FAILPOINT_ERROR_MAX]);
/* All of them are off from here on, whatever is set. */
void failpoints_end(struct failpoints *failpoints);

/* An array: {"point", "action", "hits": how often it acted, "paused": who is there now}. */
cJSON *failpoints_json(struct failpoints *failpoints);

/* What somebody does at a point who needs no thread there. */
enum failpoint_way { FAILPOINT_PASSES, FAILPOINT_FAILS, FAILPOINT_STAYS };
/* A stay. Its owner sets `over` alone; the rest belongs to failpoints.c until that is called. */
struct failpoint_stay {
    /* The stay has ended: called once, on a thread that must not be kept, perhaps before
     * failpoints_reach returns. NULL: the thread stays. */
    void (*over)(struct failpoint_stay *stay);
    struct armed *at; /* NULL: a delay */
    unsigned long set;
    int64_t end_ns;
    STAILQ_ENTRY(failpoint_stay) of_stays;
};
STAILQ_HEAD(failpoint_stays, failpoint_stay);
/* Somebody is at a point. STAYS: only where stay->over is not NULL; it will be called, and the stay
 * must live until then. Nothing is allocated: there are as many stays as their owners. Any thread.
 */
enum failpoint_way failpoints_reach(struct failpoints *failpoints, const char *group,
                                    const char *name, struct failpoint_stay *stay);

/* For dlock_options.on_point: the thread stays. */
void failpoints_on_point(void *failpoints, const char *rung, const char *point);

#endif
