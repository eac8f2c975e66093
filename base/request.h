/* SPDX-License-Identifier: Apache-2.0
 *
 * A request and its answer, independent of libmicrohttpd. http.c fills the request in, routes and
 * handlers read it, and handlers answer it. It belongs to one thread at a time. A service may keep
 * more of its own with each request: a struct that begins with this one.
 */
#ifndef REQUEST_H
#define REQUEST_H

#include "problem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_ID_MAX 64
#define REQUEST_URL_MAX 1024
#define REQUEST_BODY_MAX 4096
#define REQUEST_PART_MAX 127
#define ITEM_MAX 64 /* bytes of an item's name */

#define METHODS(X) X(GET) X(HEAD) X(PUT) X(POST) X(OPTIONS) X(OTHER)
enum method {
#define X(name) METHOD_##name,
    METHODS(X)
#undef X
        METHOD_COUNT
};

struct route;

struct answer {
    unsigned status; /* 0: not answered yet */
    int problem;     /* which one, if the answer is a problem: from status 400 on */
    const char *content_type;
    const char *body; /* points to `text` or `long_body` */
    size_t body_size;
    char *long_body;    /* freed with the request; NULL: the answer is in `text` */
    int64_t retry_s;    /* Retry-After; 0: none */
    bool replayed;      /* Idempotency-Replayed */
    char location[112]; /* Location; "": none */
    char allow[64];     /* "" or the methods for Allow */
    char text[1024];
};

struct request {
    enum method method;
    char id[REQUEST_ID_MAX + 1];
    int64_t arrived_ns;
    const struct route *route;       /* NULL: none was found, and the answer says so */
    char part[REQUEST_PART_MAX + 1]; /* what stands in the path for the route's {...}, cut to fit */
    char *body;                      /* NUL-terminated; NULL when there was none */
    size_t body_size;
    struct answer answer;

    struct request *next;      /* the next in the same queue */
    int64_t resume_ns;         /* private to workers.c */
    struct exchange *exchange; /* private to http.c */
};

/* Answers with JSON that must fit in answer.text. */
void answer_json(struct request *request, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* body: allocated; it is freed with the request. NULL: answers internal-error. */
void answer_long(struct request *request, unsigned status, const char *content_type, char *body);
void answer_problem(struct request *request, int problem, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with further members of the JSON: they begin with a comma. */
void answer_problem_with(struct request *request, int problem, const char *members,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));

const char *method_name(enum method method);

/* Whether it is an item's name: 1 to ITEM_MAX of a-z 0-9 _ - */
bool request_is_name(const char *text, size_t size);

#endif
