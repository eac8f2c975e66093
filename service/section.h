/* SPDX-License-Identifier: Apache-2.0
 *
 * What sales, restocks and guarded reads share inside the critical section; and the worker that
 * runs them.
 */
#ifndef SECTION_H
#define SECTION_H

#include "sale.h"

/* Sets the result of the sale. */
void section_end(struct sale *sale, enum sale_result result, const char *detail);
/* The same, from the status of a stock command that wrote nothing. */
void section_end_by_stock(struct sale_worker *worker, struct sale *sale, enum stock_status status);
/* The same, from the status of an acquire. */
void section_end_by_lock(const struct sale_env *env, struct sale *sale, dlock_status status,
                         const char *error);
/* The same, because the server of that role is away. ROLE_COUNT: none is; returns false, and the
 * sale continues. */
bool section_end_by_outage(const struct sale_env *env, struct sale *sale, enum server_role role);
/* ROLE_STOCK if the stock's server is away, otherwise ROLE_COUNT: none. */
enum server_role section_away_stock(const struct sale_env *env);

/* The fence of the current write mode, with the sale's token; NULL: the mode has none. It is kept
 * in *room. */
struct section_fence {
    char lock_key[KEY_MAX + 16];
    char mark[SEGMENT_KEY_MAX + 8]; /* FENCE_LAST_READ's or FENCE_LAST_WRITE's key */
    struct stock_fence fence;
};
const struct stock_fence *section_fence(const struct sale_env *env, const struct sale *sale,
                                        struct section_fence *room);

/* fence: NULL if nothing is written on what is read. A fenced read would exclude other readers that
 * share the lock. False: the sale has ended. */
bool section_read(struct sale_worker *worker, struct sale *sale, const struct stock_fence *fence,
                  int64_t *stock);
/* How the current write mode lays a stock. */
enum stock_layout section_layout(const struct sale_env *env);

/* Whether replicas must confirm what is written (--replicas-ack). */
bool section_asks_replicas(const struct sale_worker *worker);

/* The last check before the write; for a read, before the read. False: the sale has ended. */
bool section_may_go_on(const struct sale_env *env, struct sale *sale);

/* Sets a failpoint before that step: the sale waits there if the point is armed. */
enum sale_step section_point(struct sale *sale, const char *point, enum sale_step next);

#endif
