/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of others inside our JSON.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>

/* A copy that may stand between quotes, cut to fit: what is not printable ASCII becomes '?', so
 * that the result is valid JSON and valid UTF-8 whatever a client or a server sent. */
void text_quote(char *out, size_t size, const char *text);

/* The length without the blanks and tabs at the end, which are no part of a header's value
 * (RFC 9110). */
size_t text_trimmed_size(const char *text);

/* Takes the addresses of Redis servers, as the lock library shows them, out of a sentence: buyers
 * need not know where our servers are. */
void text_hide_servers(char *text);

#endif
