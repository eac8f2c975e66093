/* SPDX-License-Identifier: Apache-2.0
 *
 * See script.h.
 */
#include "script.h"

#include <stddef.h>

int script_command(const char *command[COMMAND_WORDS_MAX], const struct script *script,
                   const char *const *argv, bool in_full)
{
    int argc = 2;
    command[0] = in_full ? "EVAL" : "EVALSHA";
    command[1] = in_full ? script->text : script->sha1;
    while (*argv != NULL)
        command[argc++] = *argv++;
    return argc;
}
