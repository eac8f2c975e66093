/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes texts from outside fit for our JSON and our answers.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies a text so that it may stand between quotes, cut to fit. A character that is not printable
 * ASCII becomes '?'. So the result is valid JSON and valid UTF-8, whatever a client or a server
 * sent. */
void text_quote(char *out, size_t size, const char *text);

/* The number in digits, for as long as the block. */
#define TEXT_OF(number) text_of((char[24]){""}, number)
const char *text_of(char text[24], int64_t number);

/* Whether the bytes are UTF-8 (RFC 3629). */
bool text_is_utf8(const char *text, size_t size);

/* Appends the item to a list in `text`, after the separator unless it is the first. False: the text
 * was cut to fit. */
bool text_join(char *text, size_t size, const char *separator, const char *item);

/* The hash (FNV-1a) of what `hash` is of, and then of the text with its NUL. Begin with
 * TEXT_HASH. */
#define TEXT_HASH 2166136261u
uint32_t text_hash(uint32_t hash, const char *text);

/* NULL for "". */
const char *text_or_null(const char *text);

/* The length without blanks and tabs at the end, which do not belong to a header's value (RFC
 * 9110). */
size_t text_trimmed_size(const char *text);

/* Replaces the addresses of servers in a sentence, as the lock library shows them. Buyers need not
 * know where our servers are. */
void text_hide_servers(char *text);

/* A text that a person gave, in a buffer of the calling thread: cut to fit, and without logins. It
 * may be a URL, a list of them, or a mistyped one. All between its first scheme and its last @ is
 * left out. */
const char *text_without_logins(const char *text);

#endif
