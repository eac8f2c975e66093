/* SPDX-License-Identifier: Apache-2.0
 *
 * The write modes: how a sale writes the stock, and which locks a mode works with. Some names mean
 * a lock and a write mode together.
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
    /* "": the mode works with any lock. Otherwise the mode needs a lock with tokens. Its
     * name, given as a lock's name, means this lock with this mode. */
    const char *lock;
    const char *adds;
    const char *flaw;
};
extern const struct write_way write_ways[WRITE_COUNT];

bool write_is_fenced(int write);
/* Whether the mode can store the answer under the sale's Idempotency-Key, in the same step as the
 * sale. A flawed mode cannot. */
bool write_keeps_keys(int write);

#define WRITE_NAMES_MAX 512
/* The names of the modes that keep keys: "atomic, fenced" */
void write_keeper_names(char text[WRITE_NAMES_MAX]);
/* The names of all modes: "decr|set|atomic ..." */
void write_names(const char *between, char text[WRITE_NAMES_MAX]);
/* The names of the locks: "none, local ..., fenced (fair with --write fenced)" */
void write_lock_names(char text[WRITE_NAMES_MAX]);

/* What the user named. A mode is -1 if the user named none. */
struct write_choice {
    const struct dlock_rung *rung;
    int by_lock;  /* by a name given as a lock, such as "fenced" */
    int by_write; /* by a name given as a write mode */
};
bool write_find(const char *name, int *write);
/* Finds a rung by its name, or by a name that means a rung and a write mode. */
bool write_find_lock(const char *name, struct write_choice *choice);

#define WRITE_ERROR_MAX 640
/* *write: the write mode that was chosen, or `fallback`. False: error[] says why the lock and the
 * mode do not fit. */
bool write_settle(const struct write_choice *choice, int fallback, int *write,
                  char error[WRITE_ERROR_MAX]);

#endif
