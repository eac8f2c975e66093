/* SPDX-License-Identifier: Apache-2.0
 *
 * See problem.h.
 */
#include "problem.h"

struct row {
    const char *type;
    unsigned status;
    const char *title;
    const char *meaning;
};

static const struct row rows[] = {
#define X(name, type, status, title, meaning) {type, status, title, meaning},
#include "problem.def"
#undef X
};

unsigned problem_status(enum problem problem)
{
    return rows[problem].status;
}

const char *problem_title(enum problem problem)
{
    return rows[problem].title;
}

/* Details quote what clients and servers sent: only printable ASCII is let through. */
static void escape(char *out, size_t size, const char *text)
{
    size_t used = 0;
    for (; *text != '\0' && used + 3 < size; text++) {
        if (*text == '"' || *text == '\\')
            out[used++] = '\\';
        out[used++] = *text >= 0x20 && *text < 0x7f ? *text : '?';
    }
    out[used] = '\0';
}

size_t problem_print(char *out, size_t size, enum problem problem, const char *detail,
                     const long long *left)
{
    const struct row *row = &rows[problem];
    char escaped[512], extra[40] = "";
    escape(escaped, sizeof escaped, detail);
    if (left != NULL)
        snprintf(extra, sizeof extra, ",\"left\":%lld", *left);
    int length = snprintf(out, size,
                          "{\"type\":\"urn:lockladder:problem:%s\",\"title\":\"%s\",\"status\":%u,"
                          "\"detail\":\"%s\"%s}",
                          row->type, row->title, row->status, escaped, extra);
    return length < 0 ? 0 : (size_t)length < size ? (size_t)length : size - 1;
}

void problem_help_markdown(FILE *out)
{
    fprintf(out, "| status | type `urn:lockladder:problem:` | title | what it means |\n"
                 "|---|---|---|---|\n");
    for (int i = 0; i < PROBLEM_COUNT; i++)
        fprintf(out, "| %u | `%s` | %s | %s |\n", rows[i].status, rows[i].type, rows[i].title,
                rows[i].meaning);
}
