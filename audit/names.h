/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives each different text a number: 0, 1, 2 and so on. The readers use the numbers to join their
 * records.
 */
#ifndef NAMES_H
#define NAMES_H

#include <stddef.h>
#include <stdint.h>

#define NO_NAME UINT32_MAX

struct names {
    char *texts; /* one after another, each with its NUL */
    size_t size;
    size_t texts_capacity;
    uint32_t *starts; /* by number: offset of its text */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* a hash table of numbers; NO_NAME: free */
    size_t slot_count;
};

uint32_t names_find(const struct names *names, const char *text); /* NO_NAME if it is not there */
uint32_t names_add(struct names *names, const char *text); /* the text's number, old or new */
/* For NO_NAME it returns "?". The result is valid until the next names_add. */
const char *names_text(const struct names *names, uint32_t number);
/* Frees the hash table. After that only names_text and names_free may be called. */
void names_close(struct names *names);
void names_free(struct names *names);

#endif
