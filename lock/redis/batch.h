/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that ride with a lock's own, and their replies.
 */
#ifndef DLOCK_BATCH_H
#define DLOCK_BATCH_H

#include "dlock.h"

#include <hiredis/hiredis.h>

struct batch_command {
    int argc;
    char **argv; /* NUL-terminated, beyond their sizes */
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

/* Forgets the replies, keeps the commands. */
void batch_forget(struct dlock_batch *batch);
/* Keeps a copy of the reply; NULL: none came. */
void batch_keep(struct batch_command *command, const redisReply *reply);

#endif
