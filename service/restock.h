/* SPDX-License-Identifier: Apache-2.0
 *
 * An operator sets the stock or adds to it, under the lock, or under those of all segments. All of
 * it is one step, STEP_SECTION.
 */
#ifndef RESTOCK_H
#define RESTOCK_H

#include "section.h"

enum sale_step restock(struct sale_worker *worker, struct sale *sale);

#endif
