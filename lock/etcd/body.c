/* SPDX-License-Identifier: Apache-2.0
 *
 * See body.h.
 */
#include "body.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void body_begin(struct body *body)
{
    *body = (struct body){.text = NULL};
    body->file = open_memstream(&body->text, &body->size);
}

void body_add(struct body *body, const char *format, ...)
{
    va_list args;
    if (body->file == NULL)
        return;
    va_start(args, format);
    vfprintf(body->file, format, args);
    va_end(args);
}

void body_quote(struct body *body, const char *text)
{
    body_add(body, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
        body_add(body, *at < ' ' || *at == '"' || *at == '\\' ? "\\u%04x" : "%c", *at);
    body_add(body, "\"");
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static void base64(struct body *body, const unsigned char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        unsigned group = (unsigned)bytes[i] << 16;
        if (left > 1)
            group |= (unsigned)bytes[i + 1] << 8;
        if (left > 2)
            group |= bytes[i + 2];
        char four[4] = {digits[group >> 18], digits[group >> 12 & 63],
                        left > 1 ? digits[group >> 6 & 63] : '=',
                        left > 2 ? digits[group & 63] : '='};
        if (body->file != NULL)
            fwrite(four, 1, sizeof four, body->file);
    }
}

static void add_key(struct body *body, const char *name, struct key key, unsigned char more)
{
    const size_t path = strlen(key.path), node = strlen(key.node);
    unsigned char *whole = malloc(path + node + 1);
    body->lacks |= whole == NULL;
    if (whole == NULL)
        return;
    memcpy(whole, key.path, path);
    memcpy(whole + path, key.node, node);
    whole[path + node - 1] += more;
    body_add(body, "\"%s\":\"", name);
    base64(body, whole, path + node);
    body_add(body, "\"");
    free(whole);
}

void body_key(struct body *body, struct key key)
{
    add_key(body, "key", key, 0);
}

void body_value(struct body *body, const char *value)
{
    add_key(body, "value", (struct key){value, ""}, 0);
}

void body_prefix(struct body *body, struct key key)
{
    body_key(body, key);
    body_add(body, ",");
    add_key(body, "range_end", key, 1); /* it ends with '/', and '0' comes next */
}

void body_compare(struct body *body, struct key key, const char *target, uint64_t number)
{
    body_add(body, "{");
    body_key(body, key);
    body_add(body, ",\"target\":\"%s\",\"%s_revision\":\"%llu\"}", target,
             target[0] == 'C' ? "create" : "mod", (unsigned long long)number);
}

void body_end(struct body *body)
{
    const bool lacks = body->lacks || body->file == NULL || ferror(body->file) != 0;
    if ((body->file != NULL && fclose(body->file) != 0) || lacks) {
        free(body->text);
        body->text = NULL;
    }
}
