/* SPDX-License-Identifier: Apache-2.0
 *
 * What all that is done in the critical section has in common, and who does it.
 */
#ifndef SECTION_H
#define SECTION_H

#include "sale.h"

/* What the sale has come to. */
void section_end(struct sale *sale, enum sale_result result, const char *detail);
/* The same, from what an answer of the stock means before (or without) a write. */
void section_end_by_stock(struct sale_worker *worker, struct sale *sale, enum stock_status status);
void section_end_by_lock(const struct sale_env *env, struct sale *sale, dlock_status status,
                         const char *error);
/* The same, if that server is away (REDIS_ROLES: none is). False: the sale goes on. */
bool section_end_by_outage(struct sale *sale, enum redis_role role);

/* What the way to write of now makes of the hold's token. NULL: nothing. */
struct section_fence {
    char lock_key[KEY_MAX + 16];
    char mark[KEY_MAX + 8]; /* the stock's own */
    struct stock_fence fence;
};
const struct stock_fence *section_fence(const struct sale_env *env, const struct sale *sale,
                                        struct section_fence *room);

/* fence: NULL where nothing is written on what is read. Readers that share a lock would shut each
 * other out. False: it has ended the sale. */
bool section_read(struct sale_worker *worker, struct sale *sale, const struct stock_fence *fence,
                  int64_t *stock);
/* The last look before the write, or of who only reads before that. False: it has ended the sale.
 */
bool section_may_go_on(const struct sale_env *env, struct sale *sale);

/* A failpoint lies ahead of that step: the sale waits there, if it is told to. */
enum sale_step section_point(struct sale *sale, const char *point, enum sale_step next);

#endif
