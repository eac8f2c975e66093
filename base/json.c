/* SPDX-License-Identifier: Apache-2.0
 *
 * See json.h. cJSON parses; this file finds what cJSON accepts beyond RFC 8259.
 */
#include "json.h"

#include "text.h"

#include <inttypes.h>
#include <string.h>

#define DIGITS "0123456789"

static const char *skip_digits(const char *at)
{
    return at + strspn(at, DIGITS);
}

/* The end of the number at `at`; NULL: it is not written as RFC 8259 demands. */
static const char *number_end(const char *at)
{
    at += *at == '-';
    const char *end = skip_digits(at);
    if (end == at || (*at == '0' && end > at + 1))
        return NULL;
    if (*end == '.') {
        at = end + 1;
        end = skip_digits(at);
        if (end == at)
            return NULL;
    }
    if (*end == 'e' || *end == 'E') {
        at = end + 1;
        at += *at == '+' || *at == '-';
        end = skip_digits(at);
        if (end == at)
            return NULL;
    }
    return end;
}

/* The end of the string at `at`, which is known to be closed. NULL: it has a control character, or
 * \u0000, at which cJSON's texts end. */
static const char *string_end(const char *at)
{
    static const char nul[] = "\\u0000";
    for (at++; *at != '"'; at += *at == '\\' ? 2 : 1)
        if ((unsigned char)*at < ' ' || strncmp(at, nul, sizeof nul - 1) == 0)
            return NULL;
    return at + 1;
}

/* Whether a text that cJSON has parsed follows RFC 8259. */
static bool is_strict(const char *at, const char *end)
{
    while (at != NULL && at < end) {
        at += strcspn(at, "\"-" DIGITS);
        if (at < end)
            at = *at == '"' ? string_end(at) : number_end(at);
    }
    return at != NULL;
}

/* A name that an object has twice; NULL: there is none. */
static const char *name_twice(const cJSON *json)
{
    const cJSON *member, *other;
    cJSON_ArrayForEach(member, json) {
        for (other = member->next; cJSON_IsObject(json) && other != NULL; other = other->next)
            if (strcmp(member->string, other->string) == 0)
                return member->string;
        const char *name = name_twice(member);
        if (name != NULL)
            return name;
    }
    return NULL;
}

/* Whether N in a body {"NAME":N} is written in digits alone. */
static bool is_digits(const struct request *request)
{
    const char *number = strchr(request->body, ':') + 1;
    number += strspn(number, " \t\r\n");
    const char *end = skip_digits(number);
    return end > number && strchr(".eE", *end) == NULL;
}

cJSON *json_body(struct request *request, const char *example)
{
    const char *body = request->body, *end = body;
    cJSON *json = cJSON_ParseWithLengthOpts(body, request->body_size, &end, false);
    const char *behind = end + (json != NULL ? strspn(end, " \t\r\n") : 0);
    const char *twice = json != NULL ? name_twice(json) : NULL;
    if (json == NULL || !is_strict(body, end) || body[0] == '\xef')
        answer_problem(request, PROBLEM_INVALID_JSON,
                       "the body must be JSON, and no text in it may hold \\u0000, as in %s",
                       example);
    else if (!text_is_utf8(body, request->body_size))
        answer_problem(request, PROBLEM_INVALID_JSON, "the body must be UTF-8, as in %s", example);
    else if (behind != body + request->body_size)
        answer_problem(request, PROBLEM_INVALID_JSON,
                       "bytes follow the JSON; it must end there, as in %s", example);
    else if (twice != NULL)
        answer_problem(request, PROBLEM_INVALID_JSON,
                       "\"%.40s\" occurs twice; it must occur once, as in %s", twice, example);
    else
        return json;
    cJSON_Delete(json);
    return NULL;
}

bool json_take_number(struct request *request, const char *name, int64_t min, int64_t max,
                      int64_t *number)
{
    char example[40];
    snprintf(example, sizeof example, "{\"%s\":1000}", name);
    cJSON *json = json_body(request, example);
    if (json == NULL)
        return false;
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, name);
    const bool valid = cJSON_IsNumber(value) && cJSON_GetArraySize(json) == 1 &&
                       is_digits(request) && value->valuedouble >= (double)min &&
                       value->valuedouble <= (double)max;
    if (valid)
        *number = (int64_t)value->valuedouble;
    else
        answer_problem(request, PROBLEM_INVALID_VALUE,
                       "the body must be {\"%s\":N} with N a whole number in digits alone, from "
                       "%" PRId64 " to %" PRId64 "; as in %s",
                       name, min, max, example);
    cJSON_Delete(json);
    return valid;
}

void json_answer(struct request *request, cJSON *json)
{
    char *text = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    answer_long(request, 200, "application/json", text);
    cJSON_Delete(json);
}
