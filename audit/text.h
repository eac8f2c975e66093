/* SPDX-License-Identifier: Apache-2.0
 *
 * Cleans and parses texts of the records. Records may hold any bytes; what the judge writes must be
 * valid JSON and XML.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* In place: replaces bytes that are not UTF-8, and characters that XML forbids, by '?'. */
void text_clean(char *text);

/* Parses the whole text as a whole number, as "-12". False if it is something else or out of range.
 */
bool text_int(const char *text, int64_t *value);

#endif
