/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that one server must carry out, on the present connection or on a later one: releases,
 * mostly. They are kept until their replies come. A server may be silent for long while many holds
 * are released, so they are found by a tree, and are at most KEPT_MAX.
 */
#ifndef DLOCK_KEPT_H
#define DLOCK_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define KEPT_MAX 4096

struct kept_command {
    STAILQ_ENTRY(kept_command) of_list;
    uint64_t at; /* the number of its reply, as node.owed counts; 0: it must be sent */
    char *text;  /* for the trace; freed with it */
    size_t size;
    const char *bytes;
};

struct kept {
    STAILQ_HEAD(, kept_command) list; /* in the order in which they came */
    void *by_bytes;                   /* a tree of tsearch() */
    size_t count;
};

void kept_init(struct kept *kept);
void kept_free(struct kept *kept);

/* Returns the command that has these bytes, which it copies unless it is kept already. NULL: there
 * is no memory, or KEPT_MAX are kept. */
struct kept_command *kept_add(struct kept *kept, const char *bytes, size_t size);
/* The command whose reply has that number, or NULL. */
struct kept_command *kept_at(const struct kept *kept, uint64_t at);
/* No reply is due: all must be sent. */
void kept_unsent(struct kept *kept);
void kept_drop(struct kept *kept, struct kept_command *command);

#endif
