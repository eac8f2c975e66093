/* SPDX-License-Identifier: Apache-2.0
 *
 * See text.h.
 */
#include "text.h"

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
