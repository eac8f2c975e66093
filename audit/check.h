/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks; the table in docs/reference/run.md says what each one demands. A check reads a
 * settled run, and adds its results to run->findings and run->counts. Checks do not depend on each
 * other, with two exceptions:
 * - check_clocks runs before run_settle, and decides which times are proof.
 * - check_conservation computes the sums of each item, which later checks read.
 */
#ifndef CHECK_H
#define CHECK_H

#include "run.h"

void check_clocks(struct run *run);         /* all times come from one clock */
void check_conservation(struct run *run);   /* sold + left == initial, left >= 0 */
void check_distinct(struct run *run);       /* each unit is sold once */
void check_keys(struct run *run);           /* one sale under each idempotency key */
void check_queue(struct run *run);          /* one outcome of each accepted sale, in order */
void check_exclusion(struct run *run);      /* no two sections of a lock overlap */
void check_tokens(struct run *run);         /* tokens grow, and none is missing */
void check_missing_tokens(struct run *run); /* each grant has one; for locks that give them */
void check_fencing(struct run *run);        /* the same, and no write with an older one */
void check_order(struct run *run);          /* first come, first served; only counted */
void check_deadlock(struct run *run);       /* no lock is held for ever */
void check_liveness(struct run *run);       /* no buyer is rejected too early */
void check_complete(struct run *run);       /* every section and request has its end */
void check_views(struct run *run);          /* client, nginx and instances agree */
void check_witness(struct run *run);        /* the run could have shown a fault */

void check_all(struct run *run); /* all checks except check_clocks */

/* Whether the outcome of the request is unknown: it may have taken units. */
bool is_unknown(const struct run *run, const struct request *request);
/* Whether it was refused because of its key: another request uses it, or used it before. */
bool is_about_key(const struct request *request);
/* The buyer may ask again: the refusal says nothing about the stock. See buyers.c. */
bool may_ask_again(const struct request *request);
/* Whether what is written compares tokens. */
bool is_fenced(const struct run *run);
/* Whether the restock came before the first request to buy, and so only prepared the run. */
bool is_setup(const struct run *run, const struct restock *restock);
/* Some restocks have no recorded outcome. If the sums allow it, this decides which of them were
 * carried out. Runs after the sums of the sales. */
void restocks_settle(struct run *run);

#endif
