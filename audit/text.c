/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Length of the UTF-8 character at `at`; 0 if it is none, or one that XML 1.0 forbids. */
static size_t text_character(const unsigned char *at)
{
    if (at[0] < 0x80)
        return at[0] >= 0x20 && at[0] != 0x7f ? 1 : 0;
    size_t size = at[0] >= 0xc2 && at[0] < 0xe0   ? 2
                  : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                  : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                  : 0;
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    }
    bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    bool surrogate = at[0] == 0xed && at[1] >= 0xa0;
    bool too_high = at[0] == 0xf4 && at[1] >= 0x90;
    bool no_character = at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xbe;
    return overlong || surrogate || too_high || no_character ? 0 : size;
}

void text_clean(char *text)
{
    while (*text != '\0') {
        if (*text >= 0x20 && *text < 0x7f) { /* almost all characters are */
            text++;
            continue;
        }
        size_t size = text_character((const unsigned char *)text);
        if (size == 0)
            *text = '?';
        text += size == 0 ? 1 : size;
    }
}

bool text_int(const char *text, int64_t *value)
{
    size_t digits = *text == '-' ? 1 : 0;
    if (strspn(text + digits, "0123456789") == 0 ||
        strlen(text) != digits + strspn(text + digits, "0123456789"))
        return false;
    errno = 0;
    long long parsed = strtoll(text, NULL, 10);
    *value = parsed;
    return errno == 0;
}
