/* SPDX-License-Identifier: Apache-2.0
 *
 * See problem.h.
 */
#include "problem.h"

#include "text.h"

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

size_t problem_print(char *out, size_t size, enum problem problem, const char *detail,
                     const long long *left)
{
    const struct row *row = &rows[problem];
    char quoted[512], extra[40] = "";
    text_quote(quoted, sizeof quoted, detail);
    if (left != NULL)
        snprintf(extra, sizeof extra, ",\"left\":%lld", *left);
    int length = snprintf(out, size,
                          "{\"type\":\"urn:lockladder:problem:%s\",\"title\":\"%s\",\"status\":%u,"
                          "\"detail\":\"%s\"%s}",
                          row->type, row->title, row->status, quoted, extra);
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
