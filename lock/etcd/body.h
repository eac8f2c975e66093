/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of a request to etcd's JSON gateway, as text.
 */
#ifndef DLOCK_ETCD_BODY_H
#define DLOCK_ETCD_BODY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct body {
    char *text; /* NULL: out of memory */
    size_t size;
    FILE *file;
    bool lacks; /* there was no memory for a part of it */
};

/* A key in two parts. */
struct key {
    const char *path, *node;
};

/* body->file is NULL: out of memory; then all that follows does nothing. */
void body_begin(struct body *body);
void body_add(struct body *body, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A quoted JSON text. */
void body_quote(struct body *body, const char *text);
/* "key":"..." in base64. */
void body_key(struct body *body, struct key key);
/* "value":"..." in base64. */
void body_value(struct body *body, const char *value);
/* "key":"...","range_end":"...": all keys that begin with it. */
void body_prefix(struct body *body, struct key key);
/* A comparison: target "CREATE" or "MOD", with that number. */
void body_compare(struct body *body, struct key key, const char *target, uint64_t number);
/* Ends it. body->text is the caller's to free. */
void body_end(struct body *body);

#endif
