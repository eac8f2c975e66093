/* SPDX-License-Identifier: Apache-2.0
 *
 * The scripts of lua/, which CMake puts into the program.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

struct script {
    const char *text;
    const char *sha1; /* that Redis knows it by: 40 hex digits */
};

extern const struct script lua_sell, lua_fenced, lua_fenced_textbook, lua_fenced_read,
    lua_fenced_apart, lua_fenced_off, lua_sell_once;

#endif
