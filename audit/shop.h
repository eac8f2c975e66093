/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of the shop: each unit is sold once, and every buyer who can have one gets it.
 */
#ifndef SHOP_H
#define SHOP_H

#include "rules.h"

extern const struct rules shop_rules;

/* What the lines of a sale state. */
void about_queue(struct reader *reader, struct record *record);
void about_restock(struct reader *reader, struct record *record);
void sale_replayed(struct reader *reader, struct record *record);
void sale_aborted(struct reader *reader, struct record *record);
bool sale_invoked(struct reader *reader, struct record *record, uint32_t item);
bool sale_stage(struct reader *reader, struct record *record, struct section *section);

struct expected shop_expected(const struct run *run); /* by the table expected.def */

#endif
