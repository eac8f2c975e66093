/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that are sent together with a lock's own (riding commands), and their replies.
 */
#ifndef DLOCK_BATCH_H
#define DLOCK_BATCH_H

#include "dlock.h"

#include <hiredis/hiredis.h>

struct batch_command {
    int argc;
    char **argv; /* each has a NUL after its `sizes` bytes */
    size_t *sizes;
    enum dlock_reply_kind kind;
    int64_t integer;
    char *text; /* owned */
    size_t text_size;
};

struct dlock_batch {
    size_t count;
    struct batch_command commands[DLOCK_BATCH_MAX];
};

/* Removes the replies, and keeps the commands. */
void batch_forget(struct dlock_batch *batch);
/* Stores a copy of the reply; NULL: none came. */
void batch_keep(struct batch_command *command, const redisReply *reply);

#endif
