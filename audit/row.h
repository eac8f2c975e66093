/* SPDX-License-Identifier: Apache-2.0
 *
 * A verdict as one line of a table, for a terminal of 120 columns.
 */
#ifndef ROW_H
#define ROW_H

#include "verdict.h"

void row_print_head(void);
void row_print(const struct run *run, const struct verdict *verdict);

#endif
