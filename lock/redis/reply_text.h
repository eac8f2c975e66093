/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands and replies as text for people: in the form that redis-cli takes and prints.
 */
#ifndef DLOCK_REPLY_TEXT_H
#define DLOCK_REPLY_TEXT_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

/* The caller frees the text; NULL: out of memory. sizes NULL: the arguments are NUL-terminated.
 * An argument of more than 80 bytes is cut. */
char *command_text(int argc, const char *const *argv, const size_t *sizes);

/* The caller frees the text; NULL: out of memory. reply NULL gives "(lost)". */
char *reply_text(const redisReply *reply);

/* Where the error itself begins. Redis up to 6.2 wraps an error of a command in a script:
 * "ERR Error running script (call to f_...): @user_script:7: WRONGTYPE ...". */
const char *error_cause(const char *error);
/* The server has no room for another client (maxclients). It says so instead of the first reply. */
bool error_is_full(const char *error);
/* An error that ends by itself: nothing was carried out, and a later attempt may succeed. */
bool error_is_transient(const char *error);

#endif
