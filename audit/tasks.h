/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of tasks: a request is one step of a worker. It picks a task from a list under a lock,
 * works without the lock, and writes the task's result. Each task has one result, and none is lost
 * if its worker dies: a pick is a lease, and after its end another worker takes the task over.
 */
#ifndef TASKS_H
#define TASKS_H

#include "rules.h"

extern const struct rules tasks_rules;

enum { TASKS_MAX = 1000000, MISSING_MAX = 1000 };

/* A task that a request picked, and what became of it. It was picked at some time from sent_ns to
 * t_ns. */
struct pick {
    uint32_t request;
    uint32_t item;
    uint32_t section; /* in which it was picked; NONE */
    uint8_t history;
    bool denied;   /* another line or its client contradicts it: it proves nothing */
    bool possible; /* its take has no recorded answer: it may have picked the task */
    int64_t task;
    int64_t token;          /* 0 if there is none */
    int64_t sent_ns;        /* just before the command was sent */
    int64_t t_ns;           /* it was answered. INT64_MAX: never, it may have come at any time */
    int64_t worked_ns;      /* NOT_STAMPED, as all that follow */
    int64_t sending_ns;     /* before the result was sent */
    int64_t result_sent_ns; /* just before the command was sent of a result that was accepted */
    int64_t result_ns;      /* that command was answered */
    int64_t refused_ns;     /* the result was refused */
};

/* A look that found nothing to pick, at some time from from_ns to to_ns. */
struct idle {
    uint32_t request;
    uint32_t item;
    int64_t from_ns;
    int64_t to_ns;
};

/* A request, as its instance recorded it. */
struct worker {
    int64_t looked;    /* the task that its last look found; 0: none; NOT_KNOWN */
    int64_t looked_ns; /* of that look */
    uint32_t pick;     /* NONE */
    int64_t answered;  /* the task of its answer; NOT_KNOWN */
    bool refused;      /* the fence refused its pick */
    bool denied;       /* its lines contradict each other */
};

/* A list in Redis. missing: tasks without a result, whether they may be picked or not. */
struct list_side {
    bool known;
    int64_t open, leased, done, missing_count;
    int64_t missing[MISSING_MAX]; /* sorted */
    size_t named;                 /* of them */
};

struct list {
    struct list_side side[2]; /* by enum moment */
};

struct tasks {
    int64_t task_ms, lease_ms; /* lease_ms 0: a pick takes the task out of its list */
    const char *result;        /* plain, fenced */

    struct list *lists;     /* by item */
    struct worker *workers; /* by request */
    size_t worker_count, worker_capacity;
    struct pick *picks;
    size_t pick_count, pick_capacity;
    struct idle *idles;
    size_t idle_count, idle_capacity;

    /* in verdict.json */
    int64_t tasks, picked, results, repeated, picked_twice, taken_over, late, refused;
    int64_t picked_wrongly; /* those of picked_twice that are a fault; of tasks, as the others */
    int64_t lost, vanished, open, leased, unknown, unknown_done, sent_away;
    struct spread step_ms;      /* of the workers that wrote a result */
    struct spread take_over_ms; /* from a pick without a result to the next pick of the task */
};

void tasks_free(struct tasks *tasks);
/* What its instance recorded of the request. */
struct worker tasks_worker(const struct run *run, size_t request);

/* read_tasks.c */
bool tasks_invoked(struct reader *reader, struct record *record, uint32_t item);
void tasks_read_event(struct reader *reader, struct record *record);

/* check_tasks.c */
void tasks_check(struct run *run);
/* Whether the answer of its client contradicts the request's records. */
bool tasks_is_denied(const struct run *run, size_t request);

struct expected tasks_expected(const struct run *run); /* by the table expected_tasks.def */

#endif
