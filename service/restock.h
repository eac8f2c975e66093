/* SPDX-License-Identifier: Apache-2.0
 *
 * An operator sets the stock or adds to it, under the lock. All of it is one step, STEP_SECTION.
 */
#ifndef RESTOCK_H
#define RESTOCK_H

#include "section.h"

void restock(struct sale_worker *worker, struct sale *sale);

#endif
