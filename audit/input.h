/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of the run folder that is read. It is a regular one: a FIFO never ends, nor does a device.
 */
#ifndef INPUT_H
#define INPUT_H

#include <stdio.h>

enum { INPUT_ERROR_MAX = 200 };

/* NULL: a sentence is in error. */
FILE *input_open(const char *path, char error[INPUT_ERROR_MAX]);

#endif
