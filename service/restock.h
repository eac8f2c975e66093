/* SPDX-License-Identifier: Apache-2.0
 *
 * An operator sets the stock, or adds to it, inside the critical section: all of it, in one step of
 * the sale.
 */
#ifndef RESTOCK_H
#define RESTOCK_H

#include "section.h"

void restock(struct sale_worker *worker, struct sale *sale);

#endif
