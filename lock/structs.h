/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule STRUCTS of dlock.h, in one place: how a struct crosses the interface when the caller
 * and the library know different versions of it. A public struct never ends in padding: a newer
 * library would take a caller's padding for fields.
 */
#ifndef DLOCK_STRUCTS_H
#define DLOCK_STRUCTS_H

#include "dlock.h"

/* `name` below is the struct's name without "dlock_", `size` is what this library knows of it. */

/* Whether given->size was set. INVALID with a sentence if not. */
dlock_status struct_check(const void *given, const char *name);

/* Copies what the caller gives into *known, which is all zero; given may be NULL. INVALID with a
 * sentence when given->size was not set, or a byte beyond `size` is not zero. */
dlock_status struct_take(void *known, size_t size, const void *given, const char *name);

/* Copies *known to the caller, as far as given->size goes. */
void struct_give(void *given, const void *known, size_t size);

#endif
