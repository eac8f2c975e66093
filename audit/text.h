/* SPDX-License-Identifier: Apache-2.0
 *
 * Records are written by others: whatever bytes they hold, what is made of them must be valid
 * JSON and XML.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* In place: bytes that are not UTF-8, and characters that XML forbids, become '?'. */
void text_clean(char *text);

/* A whole number, all of the text: "-12". False when it is something else or out of range. */
bool text_int(const char *text, int64_t *value);

#endif
