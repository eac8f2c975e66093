/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts as numbers: each different text gets the next number, 0, 1, 2 ... Joins the views.
 */
#ifndef NAMES_H
#define NAMES_H

#include <stddef.h>
#include <stdint.h>

#define NO_NAME UINT32_MAX

struct name;

struct names {
    void *tree;        /* by text */
    struct name **all; /* by number */
    size_t count;
    size_t capacity;
};

uint32_t names_find(const struct names *names, const char *text);   /* NO_NAME: not there */
uint32_t names_add(struct names *names, const char *text);          /* the old number if there */
const char *names_text(const struct names *names, uint32_t number); /* NO_NAME gives "?" */
void names_free(struct names *names);

#endif
