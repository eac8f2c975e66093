/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for a program that reads, judges and ends: without memory it says so and exits with 2.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>

void memory_init(void);          /* before all others */
_Noreturn void memory_out(void); /* the end of a program without memory */

void *memory_new(size_t count, size_t size); /* zeroed; never NULL */

/* Room for one more after `count` items. Returns the array, moved or not. */
void *memory_grow(void *array, size_t count, size_t *capacity, size_t size);

#endif
