/* SPDX-License-Identifier: Apache-2.0
 *
 * A Lua script, and the command that runs it. Sent by its SHA1 first; in full when the server
 * answers NOSCRIPT.
 */
#ifndef DLOCK_SCRIPT_H
#define DLOCK_SCRIPT_H

#include <stdbool.h>

/* lua/<name>.lua is lua_<name>, in scripts.h that the build makes. */
struct script {
    const char *text;
    const char *sha1; /* 40 hex digits */
};

#define COMMAND_WORDS_MAX 32
/* The command that runs a script, and how many words it has. argv: the number of its keys, they,
 * its arguments, and NULL; COMMAND_WORDS_MAX - 2 words at most. */
int script_command(const char *command[COMMAND_WORDS_MAX], const struct script *script,
                   const char *const *argv, bool in_full);

#endif
