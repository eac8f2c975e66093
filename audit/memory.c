/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Large arrays get mappings of their own. They grow without a copy, and freed memory returns to the
 * system. By default malloc raises this threshold whenever a mapped block is freed. */
void memory_init(void)
{
    mallopt(M_MMAP_THRESHOLD, 1024 * 1024);
}

_Noreturn void memory_out(void)
{
    fputs("ladder-audit: out of memory: judge a shorter run, or on a larger machine\n", stderr);
    exit(2);
}

void *memory_new(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL)
        memory_out();
    return memory;
}

void *memory_grow(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    size_t wanted = *capacity < 16 ? 16 : *capacity * 2;
    if (wanted > SIZE_MAX / 2 / size)
        memory_out();
    void *grown = realloc(array, wanted * size);
    if (grown == NULL)
        memory_out();
    *capacity = wanted;
    return grown;
}
