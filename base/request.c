/* SPDX-License-Identifier: Apache-2.0
 *
 * See request.h.
 */
#include "request.h"

#include <stdarg.h>
#include <string.h>

static void use_text(struct request *request, unsigned status, const char *type, size_t size)
{
    struct answer *answer = &request->answer;
    answer->status = status;
    answer->content_type = type;
    answer->body = answer->text;
    answer->body_size = size < sizeof answer->text ? size : sizeof answer->text - 1;
}

void answer_json(struct request *request, unsigned status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(request->answer.text, sizeof request->answer.text, format, args);
    va_end(args);
    use_text(request, status, "application/json", length < 0 ? 0 : (size_t)length);
}

void answer_long(struct request *request, unsigned status, const char *content_type, char *body)
{
    struct answer *answer = &request->answer;
    if (body == NULL) {
        answer_problem(request, PROBLEM_INTERNAL, "out of memory");
        return;
    }
    answer->status = status;
    answer->content_type = content_type;
    answer->long_body = body;
    answer->body = body;
    answer->body_size = strlen(body);
}

static void request_problem(struct request *request, int problem, const char *members,
                            const char *format, va_list args)
{
    char detail[512];
    unsigned status = problem_status(problem);
    request->answer.problem = problem;
    vsnprintf(detail, sizeof detail, format, args);
    use_text(
        request, status, "application/problem+json",
        problem_print(request->answer.text, sizeof request->answer.text, problem, detail, members));
    request->answer.retry_s = status == 503 || problem == PROBLEM_LOCK_INVALID ? 1 : 0;
}

void answer_problem(struct request *request, int problem, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    request_problem(request, problem, "", format, args);
    va_end(args);
}

void answer_problem_with(struct request *request, int problem, const char *members,
                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    request_problem(request, problem, members, format, args);
    va_end(args);
}

const char *method_name(enum method method)
{
    static const char *const names[] = {
#define X(name) #name,
        METHODS(X)
#undef X
    };
    return names[method];
}

bool request_is_name(const char *text, size_t size)
{
    return size > 0 && size <= ITEM_MAX &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") >= size;
}
