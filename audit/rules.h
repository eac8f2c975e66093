/* SPDX-License-Identifier: Apache-2.0
 *
 * What is peculiar to one service: the settings of its runs, its events, its checks, and what its
 * verdict and its picture tell beside the common part. All else the judge does for every service.
 */
#ifndef RULES_H
#define RULES_H

#include "history.h"
#include "story.h"
#include "verdict.h"

/* What the picture's chart counts: a sum that grows, and its limit. */
struct chart {
    const char *name, *limit_name;
    int64_t limit;
    struct point {
        int64_t t_ns;
        int64_t amount;
    } * points; /* in any order; the caller frees them */
    size_t count;
};

struct rules {
    const char *service; /* as run.json's "service" names it */
    enum service kind;
    const char *items; /* what run.json's "items" states of each item, with an example */

    /* What its clients saw. */
    const char *samples; /* the file with the samples */
    const char *sampled; /* those that count: "buying" */
    const char *labels;  /* how their labels begin */
    bool (*is_sample)(const char *label);
    bool (*is_request)(const char *method, const char *uri); /* in nginx.log */
    const char *path_head, *path_tail; /* an item's name is between them; tail "": its last part */
    int64_t (*quantity_of)(const char *query); /* NULL: a request has no quantity */

    /* Reads its own settings of run.json. On failure: false, and error holds a sentence. */
    bool (*read_spec)(struct run *run, char error[JSON_ERROR_MAX]);
    /* Compares what a history's `begin` states about them. */
    void (*check_begin)(struct reader *reader, struct record *record);
    /* Reads what an `invoke` states beside that item, and gives the request the item. On failure:
     * false, and record->error holds a sentence. */
    bool (*read_invoke)(struct reader *reader, struct record *record, uint32_t item);
    /* Reads a line of one of its events. */
    void (*read_event)(struct reader *reader, struct record *record);
    /* Reads a line of a stage of its own; NULL: it has none. On failure: false, and record->error
     * holds a sentence. */
    bool (*read_stage)(struct reader *reader, struct record *record, struct section *section);
    /* Which item that lock guards, NONE if none; NULL: that of the request that has it. */
    uint32_t (*item_of_lock)(const struct run *run, const char *lock);
    /* The items for whose locks a request waited that timed out; NULL: that of the request. */
    void (*waited_for)(const struct run *run, size_t request, uint32_t items[2]);
    /* Reads what redis.json states of the item, beside its lock; `redis` is an example of it. */
    void (*read_redis)(struct source *source, const cJSON *json, const char *when,
                       const struct item *item, struct redis_side *side);
    const char *redis;
    void (*settle)(struct run *run); /* a part of run_settle */
    void (*check)(struct run *run);  /* its own checks */
    /* How the client's answer contradicts the instance's record, which has the same code; NULL. */
    const char *(*answer_differs)(const struct run *run, const struct request *request);
    const char *unsampled; /* the difference if the client has no sample of a request */
    const char *ends;      /* the events with which a request may end */
    const char *mended;    /* how a request without an answer may be mended: ", or ..."; "" */
    struct expected (*expected)(const struct run *run);

    /* The number behind the result in the judge's last line, with its sign; 0: none. */
    int64_t (*amount)(const struct run *run, enum result result);
    void (*tell)(struct run *run, enum result result); /* what is no fault and worth a sentence */
    /* The run's rung, fault and other settings on which its result depends; returns `text`. */
    const char *(*settings)(const struct run *run, char *text, size_t size);
    void (*add_settings)(cJSON *json, const struct run *run);
    void (*add_counts)(cJSON *json, const struct run *run);
    void (*add_instance)(cJSON *json, const struct run *run, size_t instance);
    void (*add_measures)(cJSON *json, const struct run *run);
    /* The picture: its title, what happened in numbers, and the chart of the whole run. What a
     * section did or did not do, in the legend. Its steps between its enter and its exit. */
    void (*title)(const struct run *run, char text[SVG_LABEL_MAX]);
    void (*facts)(const struct run *run, char text[SVG_LABEL_MAX]);
    void (*chart)(const struct run *run, struct chart *chart);
    const char *did, *did_nothing;
    void (*add_steps)(const struct run *run, const struct section *section, int who,
                      const char *actor, struct story *story);
    /* What two sections did that were inside at the same time, as a sentence; NULL: the shop's. */
    const char *(*together)(const struct run *run, const struct section *first,
                            const struct section *second, char text[SVG_LABEL_MAX]);
    const char
        *unknown; /* what a request does not know whose outcome is unknown; NULL: the shop's */
    /* Adds an answered request of a small run that never had a lock; NULL: all need one. */
    void (*add_answer)(const struct run *run, size_t request, const char *id, struct story *story);
    void (*print_head)(void);
    void (*print_row)(const struct run *run, const struct verdict *verdict);
};

/* The rules of that service; NULL if there is none of that name. */
const struct rules *rules_find(const char *service);
/* The names of all services: "shop, menu". */
void rules_names(char *text, size_t size);

#endif
