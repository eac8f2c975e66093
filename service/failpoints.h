/* SPDX-License-Identifier: Apache-2.0
 *
 * Named points of the code at which a demonstration stops, slows, breaks or kills this process. A
 * point is set to an action, written as in FreeBSD's fail(9): [N*]ACTION, N how often at most.
 *
 *   off        nothing; a thread that is paused there goes on
 *   pause      the thread stays until the point is set anew, or until the file FILES/<point> is
 *              there: a process that is stopped hears no HTTP. At most FAILPOINT_PAUSE_MS
 *   delay(MS)  the thread stays for so long
 *   crash      SIGKILL, to itself
 *   fail       what the point says that it does
 *
 * The points are those of SHOP_POINTS, as in sale.entered, and the lock library's, <rung>.<point>.
 */
#ifndef FAILPOINTS_H
#define FAILPOINTS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* X(group, name, where it is, what `fail` does; "" where it cannot) */
#define SHOP_POINTS(X)                                                                             \
    X(sale, looked, "with look=1: the stock was read under the read lock, which it keeps", "")     \
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

/* files: the folder for `pause`, "": none. NULL when out of memory. */
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

/* An array: {"point", "action", "hits": how often it acted, "parked": who is there now}. */
cJSON *failpoints_json(struct failpoints *failpoints);

/* The thread is at a point. True: it is to fail there. Any thread. */
bool failpoints_pass(struct failpoints *failpoints, const char *group, const char *name);
/* The same for a service that may have none. */
static inline bool failpoint(struct failpoints *failpoints, const char *group, const char *name)
{
    return failpoints != NULL && failpoints_pass(failpoints, group, name);
}

/* For dlock_options.on_point. */
void failpoints_on_point(void *failpoints, const char *rung, const char *point);

#endif
