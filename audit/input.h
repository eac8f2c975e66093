/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a file of the run folder for reading. It must be a regular file, because reading a FIFO or
 * a device might never end.
 */
#ifndef INPUT_H
#define INPUT_H

#include <stdio.h>

enum { INPUT_ERROR_MAX = 200 };

/* On failure: NULL, and error holds a sentence. */
FILE *input_open(const char *path, char error[INPUT_ERROR_MAX]);

#endif
