/* SPDX-License-Identifier: Apache-2.0
 *
 * See request.h. Requests are RESP arrays of strings; hiredis sends no other form.
 */
#include "request.h"

#include "scripts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 12

struct word {
    const char *bytes;
    int size;
};

static bool is_text(struct word word, const char *text)
{
    return strlen(text) == (size_t)word.size && memcmp(word.bytes, text, strlen(text)) == 0;
}

/* The name of a script of the library, which is sent by its SHA1 or in full. CMake generates the
 * list from lock/lua. */
static const char *script_name(struct word script)
{
    static const struct {
        const struct script *script;
        const char *name;
    } scripts[] = {
#define X(name) {&lua_##name, #name},
#include "scripts.def"
#undef X
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        if (is_text(script, scripts[i].script->sha1) || is_text(script, scripts[i].script->text))
            return scripts[i].name;
    return NULL;
}

size_t request_size(const char *bytes, size_t size)
{
    const char *at = bytes, *end = bytes + size;
    long words = 1;
    for (long i = -1; i < words; i++) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        if (line == NULL)
            return 0;
        long number = strtol(at + 1, NULL, 10);
        at = line + 1;
        if (i < 0)
            words = number;
        else if (end - at < number + 2)
            return 0;
        else
            at += number + 2;
    }
    return (size_t)(at - bytes);
}

static int read_words(const char *at, struct word *words)
{
    int count = (int)strtol(at + 1, NULL, 10);
    for (int i = 0; i < count && i < WORDS_MAX; i++) {
        at = strchr(at, '\n') + 1;
        words[i].size = (int)strtol(at + 1, NULL, 10);
        words[i].bytes = strchr(at, '\n') + 1;
        at = words[i].bytes + words[i].size;
    }
    return count < WORDS_MAX ? count : WORDS_MAX;
}

static bool is_word(struct word word)
{
    for (int i = 0; i < word.size; i++)
        if (!islower((unsigned char)word.bytes[i]) && word.bytes[i] != '_')
            return false;
    return word.size > 2 && word.size < 12;
}

static enum request kind_of(const char *label)
{
    static const struct {
        const char *part;
        enum request kind;
    } parts[] = {
        {"SUBSCRIBE", REQUEST_LISTEN}, {"BLPOP", REQUEST_LISTEN},    {"renew", REQUEST_RENEW},
        {"EXPIRE", REQUEST_RENEW},     {"acquire", REQUEST_ACQUIRE}, {"SET", REQUEST_ACQUIRE},
        {"release", REQUEST_RELEASE},  {"delete", REQUEST_RELEASE},  {"DEL", REQUEST_RELEASE},
        {"leave", REQUEST_RELEASE},    {"give_up", REQUEST_RELEASE},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(label, parts[i].part) != NULL)
            return parts[i].kind;
    return REQUEST_OTHER;
}

void request_read(const char *bytes, struct request_seen *seen)
{
    struct word words[WORDS_MAX] = {{"", 0}};
    int count = read_words(bytes, words);
    int first = 1; /* first word that the text shows */
    if (strncmp(words[0].bytes, "EVAL", 4) == 0 && count > 3) {
        const char *name = script_name(words[1]);
        int what = 3 + (int)strtol(words[2].bytes, NULL, 10);
        bool says = name != NULL && what < count && is_word(words[what]);
        snprintf(seen->label, sizeof seen->label, "%s%s%.*s", name != NULL ? name : "script",
                 says ? " " : "", says ? words[what].size : 0, says ? words[what].bytes : "");
        first = 3;
    } else {
        snprintf(seen->label, sizeof seen->label, "%.*s", words[0].size, words[0].bytes);
    }
    seen->kind = kind_of(seen->label);
    size_t used = (size_t)snprintf(seen->text, sizeof seen->text, "%s", seen->label);
    for (int i = first; i < count && used < sizeof seen->text; i++)
        used += (size_t)snprintf(seen->text + used, sizeof seen->text - used, " %.*s",
                                 words[i].size < 50 ? words[i].size : 50, words[i].bytes);
}
