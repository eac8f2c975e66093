/* SPDX-License-Identifier: Apache-2.0 */
#include "names.h"

#include "memory.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

struct name {
    uint32_t number;
    const char *text; /* its own, behind the struct, or that of the caller who looks it up */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

uint32_t names_find(const struct names *names, const char *text)
{
    struct name key = {.text = text};
    void *found = tfind(&key, &names->tree, by_text);
    return found == NULL ? NO_NAME : (*(struct name **)found)->number;
}

uint32_t names_add(struct names *names, const char *text)
{
    uint32_t number = names_find(names, text);
    if (number != NO_NAME)
        return number;
    size_t size = strlen(text) + 1;
    struct name *name = memory_new(1, sizeof *name + size);
    name->number = (uint32_t)names->count;
    name->text = memcpy(name + 1, text, size);
    names->all = memory_grow(names->all, names->count, &names->capacity, sizeof *names->all);
    names->all[names->count++] = name;
    if (tsearch(name, &names->tree, by_text) == NULL)
        memory_out();
    return name->number;
}

const char *names_text(const struct names *names, uint32_t number)
{
    return number < names->count ? names->all[number]->text : "?";
}

static void keep(void *name)
{
    (void)name;
}

void names_free(struct names *names)
{
    tdestroy(names->tree, keep);
    for (size_t i = 0; i < names->count; i++)
        free(names->all[i]);
    free(names->all);
    memset(names, 0, sizeof *names);
}
