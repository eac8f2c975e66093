/* SPDX-License-Identifier: Apache-2.0
 *
 * See kept.h.
 */
#include "kept.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

void kept_init(struct kept *kept)
{
    *kept = (struct kept){0};
    STAILQ_INIT(&kept->list);
}

void kept_free(struct kept *kept)
{
    while (!STAILQ_EMPTY(&kept->list))
        kept_drop(kept, STAILQ_FIRST(&kept->list));
}

static int kept_compare(const void *one, const void *other)
{
    const struct kept_command *a = one, *b = other;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return memcmp(a->bytes, b->bytes, a->size);
}

static struct kept_command *kept_copy(const struct kept_command *wanted)
{
    struct kept_command *command = calloc(1, sizeof *command + wanted->size);
    if (command == NULL)
        return NULL;
    command->size = wanted->size;
    command->bytes = memcpy(command + 1, wanted->bytes, wanted->size);
    return command;
}

struct kept_command *kept_add(struct kept *kept, const char *bytes, size_t size)
{
    const struct kept_command wanted = {.bytes = bytes, .size = size};
    struct kept_command *const *found = tfind(&wanted, &kept->by_bytes, kept_compare);
    if (found != NULL)
        return *found;
    struct kept_command *command = kept->count < KEPT_MAX ? kept_copy(&wanted) : NULL;
    if (command == NULL || tsearch(command, &kept->by_bytes, kept_compare) == NULL) {
        free(command);
        return NULL;
    }
    STAILQ_INSERT_TAIL(&kept->list, command, of_list);
    kept->count++;
    return command;
}

struct kept_command *kept_at(const struct kept *kept, uint64_t at)
{
    struct kept_command *command;
    STAILQ_FOREACH(command, &kept->list, of_list)
        if (command->at == at)
            break;
    return command;
}

void kept_unsent(struct kept *kept)
{
    struct kept_command *command;
    STAILQ_FOREACH(command, &kept->list, of_list)
        command->at = 0;
}

void kept_drop(struct kept *kept, struct kept_command *command)
{
    tdelete(command, &kept->by_bytes, kept_compare);
    STAILQ_REMOVE(&kept->list, command, kept_command, of_list);
    kept->count--;
    free(command->text);
    free(command);
}
