/* SPDX-License-Identifier: Apache-2.0
 *
 * See write.h.
 */
#include "write.h"

#include <stdio.h>
#include <string.h>

#define FLAWED true
#define SOUND false
const struct write_way write_ways[WRITE_COUNT] = {
#define X(NAME, name, flawed, lock, adds, flaw) {#name, flawed, lock, adds, flaw},
#include "writes.def"
#undef X
};

static void write_add(char *text, size_t size, const char *between, const char *name)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used > 0 ? between : "", name);
}

bool write_is_fenced(int write)
{
    return write_ways[write].lock[0] != '\0';
}

bool write_keeps_keys(int write)
{
    return write == WRITE_ATOMIC || write == WRITE_FENCED;
}

void write_keeper_names(char text[WRITE_NAMES_MAX])
{
    text[0] = '\0';
    for (int i = 0; i < WRITE_COUNT; i++)
        if (write_keeps_keys(i))
            write_add(text, WRITE_NAMES_MAX, ", ", write_ways[i].name);
}

void write_names(const char *between, char text[WRITE_NAMES_MAX])
{
    text[0] = '\0';
    for (int i = 0; i < WRITE_COUNT; i++)
        write_add(text, WRITE_NAMES_MAX, between, write_ways[i].name);
}

void write_lock_names(char text[WRITE_NAMES_MAX])
{
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    const char *between = "; ";
    char both[96];
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        write_add(text, WRITE_NAMES_MAX, ", ", rungs[i].name);
    for (int i = 0; i < WRITE_COUNT; i++) {
        if (!write_is_fenced(i))
            continue;
        snprintf(both, sizeof both, "%s (%s with --write %s)", write_ways[i].name,
                 write_ways[i].lock, write_ways[i].name);
        write_add(text, WRITE_NAMES_MAX, between, both);
        between = ", ";
    }
}

bool write_find(const char *name, int *write)
{
    for (int i = 0; i < WRITE_COUNT; i++) {
        if (strcmp(write_ways[i].name, name) != 0)
            continue;
        *write = i;
        return true;
    }
    return false;
}

bool write_find_lock(const char *name, struct write_choice *choice)
{
    int write = -1;
    bool both = write_find(name, &write) && write_is_fenced(write);
    const char *lock = both ? write_ways[write].lock : name;
    choice->rung = lock[0] != '\0' ? dlock_rung_find(lock) : NULL;
    choice->by_lock = both ? write : -1;
    return choice->rung != NULL;
}

/* The names of the locks that give tokens. */
static void names_with_tokens(char *text, size_t size)
{
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        if (rungs[i].tokens)
            write_add(text, size, ", ", rungs[i].name);
}

bool write_settle(const struct write_choice *choice, int fallback, int *write,
                  char error[WRITE_ERROR_MAX])
{
    char names[256];
    *write = choice->by_lock >= 0    ? choice->by_lock
             : choice->by_write >= 0 ? choice->by_write
                                     : fallback;
    const struct write_way *way = &write_ways[*write];
    if (choice->by_lock >= 0 && choice->by_write >= 0 && choice->by_lock != choice->by_write) {
        snprintf(error, WRITE_ERROR_MAX,
                 "the lock \"%s\" means %s with the write mode \"%s\", not with \"%s\"; leave the "
                 "write mode out, or take the lock \"%s\"",
                 way->name, choice->rung->name, way->name, write_ways[choice->by_write].name,
                 choice->rung->name);
        return false;
    }
    if (write_is_fenced(*write) && !choice->rung->tokens) {
        names_with_tokens(names, sizeof names);
        snprintf(error, WRITE_ERROR_MAX,
                 "the write mode \"%s\" needs a lock that gives tokens; %s gives none, these do: "
                 "%s (the lock \"%s\" means %s with this mode)",
                 way->name, choice->rung->name, names, way->name, way->lock);
        return false;
    }
    return true;
}
