/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that appears in the run folder whole or not at all.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct output {
    FILE *file; /* NULL: it could not be opened */
    char path[4200];
    char partial[4208];
};

bool output_open(struct output *output, const char *folder, const char *name);
bool output_close(struct output *output); /* false: a sentence is on standard error */

/* Removes what an earlier judgement has left there, and says so on standard error. */
void output_withdraw(const char *folder, const char *name);

#endif
