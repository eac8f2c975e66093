/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways to write the stock, which locks they go with, and the names that mean a lock and a way
 * to write together.
 */
#ifndef WRITE_H
#define WRITE_H

#include <dlock.h>
#include <stdbool.h>
#include <stddef.h>

enum write_mode {
#define X(NAME, name, flawed, lock, adds, flaw) WRITE_##NAME,
#include "writes.def"
#undef X
    WRITE_COUNT
};

struct write_way {
    const char *name;
    bool flawed;
    const char *lock; /* "": it goes with any; else it needs one with tokens, and its name as a
                         lock's means this one */
    const char *adds;
    const char *flaw;
};
extern const struct write_way write_ways[WRITE_COUNT];

bool write_is_fenced(int write);
/* Whether the step that sells can keep the answer under the sale's Idempotency-Key. The flawed ways
 * keep none. */
bool write_keeps_keys(int write);

#define WRITE_NAMES_MAX 512
/* Of those that keep keys: "atomic, fenced" */
void write_keeper_names(char text[WRITE_NAMES_MAX]);
/* "decr|set|atomic ..." */
void write_names(const char *between, char text[WRITE_NAMES_MAX]);
/* Of the locks: "none, local ..., fenced_textbook (fair, written so)" */
void write_lock_names(char text[WRITE_NAMES_MAX]);

/* What was named, as it came; -1: no way to write was. */
struct write_choice {
    const struct dlock_rung *rung;
    int by_lock;  /* "fenced", as a lock's name */
    int by_write; /* as a way to write */
};
bool write_find(const char *name, int *write);
/* A rung's name, or one that means a way to write, too. */
bool write_find_lock(const char *name, struct write_choice *choice);

#define WRITE_ERROR_MAX 640
/* The way to write that was chosen, or `fallback`. False: error[] says why these do not go
 * together. */
bool write_settle(const struct write_choice *choice, int fallback, int *write,
                  char error[WRITE_ERROR_MAX]);

#endif
