/* SPDX-License-Identifier: Apache-2.0
 *
 * See text.h.
 */
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void text_quote(char *out, size_t size, const char *text)
{
    size_t used = 0;
    for (; *text != '\0' && used + 3 <= size; text++) {
        if (*text == '"' || *text == '\\')
            out[used++] = '\\';
        out[used++] = *text >= 0x20 && *text < 0x7f ? *text : '?';
    }
    out[used] = '\0';
}

/* How many bytes the character at `at` has; 0: it is none. The shortest form counts, up to U+10FFFF
 * and without surrogates: so says the second byte. */
static size_t utf8_size(const unsigned char *at, size_t left)
{
    const size_t size = *at < 0x80   ? 1
                        : *at < 0xc2 ? 0
                        : *at < 0xe0 ? 2
                        : *at < 0xf0 ? 3
                        : *at < 0xf5 ? 4
                                     : 0;
    if (size > left)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    const bool wrong = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
                       (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f);
    return wrong ? 0 : size;
}

bool text_is_utf8(const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t step = 1;
    for (; size > 0 && step > 0; size -= step, at += step)
        step = utf8_size(at, size);
    return step > 0;
}

const char *text_of(char text[24], int64_t number)
{
    snprintf(text, 24, "%" PRId64, number);
    return text;
}

bool text_join(char *text, size_t size, const char *separator, const char *item)
{
    const size_t used = strlen(text), room = size - used;
    return (size_t)snprintf(text + used, room, "%s%s", used > 0 ? separator : "", item) < room;
}

uint32_t text_hash(uint32_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    while (*text++ != '\0');
    return hash;
}

const char *text_or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

size_t text_trimmed_size(const char *text)
{
    size_t size = strlen(text);
    while (size > 0 && strchr(" \t", text[size - 1]) != NULL)
        size--;
    return size;
}

/* The length of the address. A socket's path may hold any character, and ends with its database.
 * is_list: its hosts are separated by commas. */
static size_t address_size(const char *at, bool is_list)
{
    static const char db[] = "?db=";
    const char *path_end = at[0] == 'u' ? strstr(at, db) : NULL;
    if (path_end != NULL)
        return (size_t)(path_end - at) + strlen(db) + strspn(path_end + strlen(db), "0123456789");
    size_t size = strcspn(at, is_list ? " ;'" : " ,;'");
    return size > 0 && at[size - 1] == ':' ? size - 1 : size;
}

/* sentinel:// with a master's name is the master's address, and without one a sentinel's. */
static bool is_sentinel(const char *at, size_t size)
{
    const size_t scheme = strlen("sentinel://");
    return at[0] == 's' && size > scheme && memchr(at + scheme, '/', size - scheme) == NULL;
}

/* Why an ensemble does not answer is said in the words of its client's library, which may name
 * hosts, ports and files. */
static void cut_reason(char *text)
{
    static const char *const phrases[] = {
        " could not be connected to: ", " had to be asked first: ", " did not answer in time: ",
        " lives: "};
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++) {
        char *at = strstr(text, phrases[i]);
        if (at == NULL)
            continue;
        at += strlen(phrases[i]) - strlen(": ");
        const char *end = strstr(at, "); the instance keeps");
        if (end == NULL)
            end = at + strlen(at);
        memmove(at, end, strlen(end) + 1);
    }
}

void text_hide_servers(char *text)
{
    cut_reason(text);
    static const struct {
        const char *scheme, *name;
        bool is_list;
    } kinds[] = {
        {"redis://", "Redis", false},
        {"unix:", "Redis", false},
        {"sentinel://", "Redis", true},
#define X(NAME, name, scheme, tls_scheme, example, package)                                        \
    {scheme, #name, true}, {tls_scheme, #name, true},
#include "engines.def"
#undef X
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (char *at = text;
             kinds[i].scheme[0] != '\0' && (at = strstr(at, kinds[i].scheme)) != NULL; at++) {
            size_t size = address_size(at, kinds[i].is_list);
            const char *name = is_sentinel(at, size) ? "sentinel" : kinds[i].name;
            if (size < strlen(name)) /* not an address */
                name = "lock";
            const size_t length = strlen(name);
            if (size < length)
                size = length;
            memcpy(at, name, length);
            memmove(at + length, at + size, strlen(at + size) + 1);
        }
}

/* Where the first login of the text may begin: behind a scheme, or else behind "--flag=". */
static size_t login_start(const char *text)
{
    const char *from = text, *colon = strchr(text, ':'), *equals = strchr(text, '=');
    if (strncmp(text, "--", 2) == 0 && equals != NULL && equals < colon)
        from = equals + 1;
    if (strncmp(colon, "://", 3) == 0)
        from = colon + 3;
    else if (strncmp(from, "unix:", 5) == 0)
        from += 5;
    return (size_t)(from - text);
}

const char *text_without_logins(const char *text)
{
    static _Thread_local char shown[4096];
    const char *at = strrchr(text, '@');
    if (at == NULL || memchr(text, ':', (size_t)(at - text)) == NULL)
        snprintf(shown, sizeof shown, "%s", text);
    else
        snprintf(shown, sizeof shown, "%.*s***%s", (int)login_start(text), text, at);
    return shown;
}
