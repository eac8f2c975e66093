/* SPDX-License-Identifier: Apache-2.0 */
#include "names.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 64 };

/* FNV-1a. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash ^ hash >> 32;
}

/* The slot that holds the text's number; if there is none, the free slot where it belongs. */
static uint32_t *slot_of(const struct names *names, const char *text)
{
    size_t mask = names->slot_count - 1;
    size_t at = (size_t)hash_of(text) & mask;
    while (names->slots[at] != NO_NAME &&
           strcmp(names->texts + names->starts[names->slots[at]], text) != 0)
        at = (at + 1) & mask;
    return &names->slots[at];
}

uint32_t names_find(const struct names *names, const char *text)
{
    return names->count == 0 ? NO_NAME : *slot_of(names, text);
}

/* At least half of the slots stay free, so that a search ends soon. */
static void make_slots(struct names *names)
{
    if (2 * names->count < names->slot_count)
        return;
    free(names->slots);
    names->slot_count = names->slot_count == 0 ? SLOTS_FIRST : 2 * names->slot_count;
    names->slots = memory_new(names->slot_count, sizeof *names->slots);
    memset(names->slots, 0xff, names->slot_count * sizeof *names->slots);
    for (size_t i = 0; i < names->count; i++)
        *slot_of(names, names->texts + names->starts[i]) = (uint32_t)i;
}

uint32_t names_add(struct names *names, const char *text)
{
    make_slots(names);
    uint32_t *slot = slot_of(names, text);
    if (*slot != NO_NAME)
        return *slot;
    size_t size = strlen(text) + 1;
    if (size > UINT32_MAX - names->size)
        memory_out();
    while (names->texts_capacity < names->size + size)
        names->texts = memory_grow(names->texts, names->texts_capacity, &names->texts_capacity, 1);
    memcpy(names->texts + names->size, text, size);
    names->starts =
        memory_grow(names->starts, names->count, &names->capacity, sizeof *names->starts);
    names->starts[names->count] = (uint32_t)names->size;
    names->size += size;
    *slot = (uint32_t)names->count++;
    return *slot;
}

const char *names_text(const struct names *names, uint32_t number)
{
    return number < names->count ? names->texts + names->starts[number] : "?";
}

void names_close(struct names *names)
{
    free(names->slots);
    names->slots = NULL;
}

void names_free(struct names *names)
{
    free(names->texts);
    free(names->starts);
    free(names->slots);
    memset(names, 0, sizeof *names);
}
