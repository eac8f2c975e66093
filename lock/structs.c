/* SPDX-License-Identifier: Apache-2.0
 *
 * See structs.h.
 */
#include "structs.h"

#include "status.h"

#include <string.h>

#define SIZE_MOST 4096 /* no struct will be larger: a larger size was never set */

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

dlock_status struct_check(const void *given, const char *name)
{
    size_t size = size_of(given);
    if (size >= sizeof size && size <= SIZE_MOST)
        return DLOCK_OK;
    return fail(DLOCK_INVALID, "%s.size is %zu; set it to sizeof(struct dlock_%s)", name, size,
                name);
}

dlock_status struct_take(void *known, size_t size, const void *given, const char *name)
{
    if (given == NULL)
        return DLOCK_OK;
    dlock_status status = struct_check(given, name);
    if (status != DLOCK_OK)
        return status;
    size_t given_size = size_of(given);
    const unsigned char *bytes = given;
    for (size_t i = size; i < given_size; i++)
        if (bytes[i] != 0)
            return fail(DLOCK_INVALID,
                        "byte %zu of struct dlock_%s is set, and libdlock " DLOCK_VERSION
                        " knows only %zu bytes of it; leave the newer fields zero, or use a newer "
                        "libdlock",
                        i, name, size);
    memcpy(known, given, given_size < size ? given_size : size);
    return DLOCK_OK;
}

void struct_give(void *given, const void *known, size_t size)
{
    size_t room = size_of(given) < size ? size_of(given) : size;
    size_t first = sizeof room; /* the caller's size stays unchanged */
    if (room > first)
        memcpy((char *)given + first, (const char *)known + first, room - first);
}
