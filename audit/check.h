/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks, each a row of what counts as proof. Each looks at a settled run, adds what it found
 * to run->findings and run->counts, and knows nothing of the others, but for two: check_clocks
 * comes before run_settle and tells which times are proof; check_conservation sums up each item.
 */
#ifndef CHECK_H
#define CHECK_H

#include "run.h"

void check_clocks(struct run *run);       /* all times are of one clock */
void check_conservation(struct run *run); /* sold + left == initial, left >= 0 */
void check_distinct(struct run *run);     /* each unit is sold once */
void check_keys(struct run *run);         /* each idempotency key is sold under once */
void check_exclusion(struct run *run);    /* no two sections of a lock at the same time */
void check_fencing(struct run *run);      /* tokens grow, no write with an older one */
void check_order(struct run *run);        /* first come, first served; counted only */
void check_deadlock(struct run *run);     /* nobody waits for the lock of a dead owner */
void check_liveness(struct run *run);     /* what can be sold is sold, nobody is sent away early */
void check_complete(struct run *run);     /* the histories tell how everything ended */
void check_views(struct run *run);        /* client, nginx and instances say the same */
void check_witness(struct run *run);      /* the run could have shown a fault */

void check_all(struct run *run); /* all but check_clocks */

/* Whether nobody knows how that request ended: it may have taken units. */
bool is_unknown(const struct run *run, const struct request *request);
/* Whether it was refused because another request has its key. */
bool is_about_key(const struct request *request);
/* Whether the stock looks at tokens: --write fenced, and the flawed fenced_textbook. */
bool is_fenced(const struct run *run);
/* Not the last word on a request: a restock before the first request to buy only sets the run up.
 */
bool is_setup(const struct run *run, const struct restock *restock);
/* Finds out which restocks were carried out of those that no history tells the outcome of. Behind
 * the sums of sales. */
void restocks_settle(struct run *run);

#endif
