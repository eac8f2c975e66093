/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of a torture program's options.
 */
#ifndef TORTURE_OPTIONS_H
#define TORTURE_OPTIONS_H

/* Says that it is not understood, and ends the program with 2. */
_Noreturn void option_refuse(const char *option, const char *value);
/* A whole number from 0 to `most`; anything else is refused. */
unsigned long long option_number(const char *option, const char *text, unsigned long long most);

#endif
