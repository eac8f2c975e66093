/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule STRUCTS of dlock.h: how a struct crosses the interface if the caller and the library
 * know different versions of it. A public struct must not end in padding. Otherwise a newer library
 * would read a caller's padding as fields.
 */
#ifndef DLOCK_STRUCTS_H
#define DLOCK_STRUCTS_H

#include "dlock.h"

/* Below, `name` is the struct's name without "dlock_", and `size` is the size that this library
 * knows. */

/* Whether given->size was set; INVALID with a sentence if not. */
dlock_status struct_check(const void *given, const char *name);

/* Copies the caller's struct into *known, which must be all zero. given may be NULL. INVALID with a
 * sentence: given->size was not set, or a byte after `size` is not zero. */
dlock_status struct_take(void *known, size_t size, const void *given, const char *name);

/* Copies *known to the caller's struct, up to given->size. */
void struct_give(void *given, const void *known, size_t size);

#endif
