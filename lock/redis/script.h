/* SPDX-License-Identifier: Apache-2.0
 *
 * A Lua script, and the command that runs it. It is sent by its SHA1 first, and in full when the
 * server answers NOSCRIPT.
 */
#ifndef DLOCK_SCRIPT_H
#define DLOCK_SCRIPT_H

#include <stdbool.h>

/* lua/<name>.lua is lua_<name>, declared in scripts.h, which the build makes. */
struct script {
    const char *text;
    const char *sha1; /* 40 hex digits */
};

#define COMMAND_WORDS_MAX 40
/* Fills in the command that runs a script, and returns how many words it has. argv: the number of
 * keys, the keys, the other arguments, and NULL; at most COMMAND_WORDS_MAX - 2 words. */
int script_command(const char *command[COMMAND_WORDS_MAX], const struct script *script,
                   const char *const *argv, bool in_full);

#endif
