/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts as numbers: each different text gets the next number, 0, 1, 2 ... Joins the views.
 */
#ifndef NAMES_H
#define NAMES_H

#include <stddef.h>
#include <stdint.h>

#define NO_NAME UINT32_MAX

struct names {
    char *texts; /* one after the other, each with its NUL */
    size_t size;
    size_t texts_capacity;
    uint32_t *starts; /* by number: where its text begins */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* a hash table of numbers, NO_NAME where free */
    size_t slot_count;
};

uint32_t names_find(const struct names *names, const char *text); /* NO_NAME: not there */
uint32_t names_add(struct names *names, const char *text);        /* the old number if there */
/* NO_NAME gives "?". Good until the next names_add. */
const char *names_text(const struct names *names, uint32_t number);
/* No text will be looked for any more, nor added: only names_text is asked for. */
void names_close(struct names *names);
void names_free(struct names *names);

#endif
