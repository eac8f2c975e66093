/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sale does if another one has its lock: --on-conflict. Nothing else decides that.
 */
#ifndef CONFLICT_H
#define CONFLICT_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of the words. */
enum on_conflict { CONFLICT_WAIT, CONFLICT_FAIL, CONFLICT_QUEUE };
#define CONFLICT_WORDS "wait|fail|queue"
const char *conflict_word(int on_conflict);
bool conflict_find(const char *word, int *on_conflict);

/* Whether sales may be written so. flaws: a flawed combination is allowed, for demonstrations.
 * False: error[] says why not. */
#define CONFLICT_ERROR_MAX 512
bool conflict_fits(int on_conflict, int write, bool flaws, char error[CONFLICT_ERROR_MAX]);

struct sale;
struct sale_env;

/* Whether the sale takes its lock. With queue it is accepted into its item's queue instead, unless
 * it processes an entry. To end an entry whose life is over needs no lock, either. */
bool conflict_needs_lock(const struct sale_env *env, const struct sale *sale);

/* For how long this acquire of the sale may wait; 0: it makes one attempt. An operator's restock, a
 * guarded read and a sale that acquires its own lock again always wait. */
int64_t conflict_wait_ms(const struct sale_env *env, const struct sale *sale);
/* Ends a sale that did not get its lock, because it was not free. */
void conflict_end(const struct sale_env *env, struct sale *sale, const char *error);

#endif
