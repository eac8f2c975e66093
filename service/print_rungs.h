/* SPDX-License-Identifier: Apache-2.0
 *
 * --print-rungs: the locks and the ways to write as JSON.
 */
#ifndef PRINT_RUNGS_H
#define PRINT_RUNGS_H

/* Returns the exit code. */
int print_rungs(void);

#endif
