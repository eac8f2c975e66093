/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a file of the run folder: it appears complete or not at all.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct output {
    FILE *file; /* NULL if it could not be opened */
    char path[4200];
    char partial[4208];
};

bool output_open(struct output *output, const char *folder, const char *name);
bool output_close(struct output *output); /* on failure: false, and a sentence on standard error */

/* Removes the file that an earlier judgement left there, and says so on standard error. */
void output_withdraw(const char *folder, const char *name);

#endif
