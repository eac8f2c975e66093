/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for a program that reads, judges and ends. If memory runs out, it says so and exits with
 * code 2.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>

void memory_init(void);          /* call it before all others */
_Noreturn void memory_out(void); /* reports it and exits with code 2 */

void *memory_new(size_t count, size_t size); /* zeroed; never NULL */

/* Makes room for one more item after `count` items. Returns the array, which may have moved. */
void *memory_grow(void *array, size_t count, size_t *capacity, size_t size);

#endif
