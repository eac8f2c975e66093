/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands and replies as a person reads them: the way redis-cli takes and prints them.
 */
#ifndef DLOCK_REPLY_TEXT_H
#define DLOCK_REPLY_TEXT_H

#include <hiredis/hiredis.h>

/* For the caller to free; NULL when out of memory. sizes NULL: NUL-terminated arguments.
 * An argument of over 80 bytes is cut. */
char *command_text(int argc, const char *const *argv, const size_t *sizes);

/* For the caller to free; NULL when out of memory. No reply gives "(lost)". */
char *reply_text(const redisReply *reply);

#endif
