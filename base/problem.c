/* SPDX-License-Identifier: Apache-2.0
 *
 * See problem.h.
 */
#include "problem.h"

#include "program.h"
#include "text.h"

static const struct problem_row of_base[] = {
#define X(name, type, status, title, meaning) {PROBLEM_##name, type, status, title, meaning},
#include "problem.def"
#undef X
};

/* The service's row of that problem; NULL: there is none. */
static const struct problem_row *find_row(int problem)
{
    for (size_t i = 0; i < program.problem_count; i++)
        if (program.problems[i].number == problem)
            return &program.problems[i];
    return NULL;
}

/* What is true of the problem, wherever it stands. */
static struct problem_row problem_of(int problem)
{
    const struct problem_row *own = find_row(problem);
    if (problem >= PROBLEM_BASE_COUNT)
        return *own;
    struct problem_row row = of_base[problem];
    if (own != NULL && own->meaning != NULL)
        row.meaning = own->meaning;
    return row;
}

unsigned problem_status(int problem)
{
    return problem_of(problem).status;
}

const char *problem_type(int problem)
{
    return problem_of(problem).type;
}

const char *problem_title(int problem)
{
    return problem_of(problem).title;
}

size_t problem_print(char *out, size_t size, int problem, const char *detail, const char *members)
{
    const struct problem_row row = problem_of(problem);
    char quoted[512];
    text_quote(quoted, sizeof quoted, detail);
    int length = snprintf(out, size,
                          "{\"type\":\"urn:lockladder:problem:%s\",\"title\":\"%s\",\"status\":%u,"
                          "\"detail\":\"%s\"%s}",
                          row.type, row.title, row.status, quoted, members);
    return length < 0 ? 0 : (size_t)length < size ? (size_t)length : size - 1;
}

static void print_row(FILE *out, int problem, unsigned status)
{
    const struct problem_row row = problem_of(problem);
    if (row.status == status)
        fprintf(out, "| %u | `%s` | %s | %s |\n", row.status, row.type, row.title, row.meaning);
}

void problem_help_markdown(FILE *out)
{
    fprintf(out, "| status | type `urn:lockladder:problem:` | title | what it means |\n"
                 "|---|---|---|---|\n");
    for (unsigned status = 400; status < 600; status++) {
        for (int i = 0; i < PROBLEM_BASE_COUNT; i++)
            if (find_row(i) == NULL)
                print_row(out, i, status);
        for (size_t i = 0; i < program.problem_count; i++)
            print_row(out, program.problems[i].number, status);
    }
}
