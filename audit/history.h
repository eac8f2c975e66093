/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the readers of a history: the events, the file that is read, and one line of it.
 */
#ifndef HISTORY_H
#define HISTORY_H

#include "json.h"
#include "run.h"
#include "source.h"

#define HISTORY_FORMAT 2 /* the format that is read; it increases when a name in it changes */

/* Whose histories may have an event, or whose samples must have a column. */
enum service {
    SERVICE_NONE = 0,
    SERVICE_SHOP = 1,
    SERVICE_MENU = 2,
    SERVICE_TASKS = 4,
    SERVICE_ACCOUNT = 8,
    SERVICE_EVERY = SERVICE_SHOP | SERVICE_MENU | SERVICE_TASKS | SERVICE_ACCOUNT,
    SERVICE_OTHERS = SERVICE_EVERY & ~SERVICE_SHOP, /* all but the shop */
};

/* X(name, what it is about, whose). The stages of a hold are listed in the order of enum stage. */
#define EVENTS(X)                                                                                  \
    X(begin, FILE, EVERY)                                                                          \
    X(end, FILE, EVERY)                                                                            \
    X(stall, FILE, EVERY)                                                                          \
    X(restock_intent, OWN_FILE, SHOP)                                                              \
    X(restock, OWN_FILE, SHOP)                                                                     \
    X(restock_failed, OWN_FILE, SHOP)                                                              \
    X(restock_unknown, OWN_FILE, SHOP)                                                             \
    X(command, FILE, EVERY)                                                                        \
    X(invoke, REQUEST, EVERY)                                                                      \
    X(refused, REQUEST, EVERY)                                                                     \
    X(fail, REQUEST, EVERY)                                                                        \
    X(unknown, REQUEST, EVERY)                                                                     \
    X(replay, OWN, SHOP)                                                                           \
    X(reacquire, REQUEST, EVERY)                                                                   \
    X(abort, OWN, SHOP)                                                                            \
    X(accepted, OWN, SHOP)                                                                         \
    X(taken, OWN, SHOP)                                                                            \
    X(requeued, OWN, SHOP)                                                                         \
    X(granted, HOLD, EVERY)                                                                        \
    X(enter, HOLD, EVERY)                                                                          \
    X(read, HOLD, SHOP)                                                                            \
    X(write, HOLD, SHOP)                                                                           \
    X(exit, HOLD, EVERY)                                                                           \
    X(release, HOLD, EVERY)                                                                        \
    X(looked, OWN, OTHERS)                                                                         \
    X(query, OWN, MENU)                                                                            \
    X(queried, OWN, MENU)                                                                          \
    X(filled, OWN, MENU)                                                                           \
    X(fill_refused, OWN, MENU)                                                                     \
    X(updated, OWN, MENU)                                                                          \
    X(deleted, OWN, MENU)                                                                          \
    X(answered, OWN, OTHERS)                                                                       \
    X(picked, OWN, TASKS)                                                                          \
    X(pick_refused, OWN, TASKS)                                                                    \
    X(worked, OWN, TASKS)                                                                          \
    X(sending, OWN, TASKS)                                                                         \
    X(result, OWN, TASKS)                                                                          \
    X(result_refused, OWN, TASKS)                                                                  \
    X(lost, KEEPER, EVERY)                                                                         \
    X(renew, KEEPER, EVERY)

/* X(name): further ones of an account, each about a request. The shop has a `read` of its own. */
#define ACCOUNT_EVENTS(X) X(wants) X(read) X(writing) X(wrote) X(write_refused)

enum about {
    ABOUT_FILE,
    ABOUT_REQUEST,
    ABOUT_HOLD,
    ABOUT_KEEPER,
    ABOUT_OWN,      /* a request; the rules of its service read it */
    ABOUT_OWN_FILE, /* no request; the rules read it, too */
};

enum event {
#define X(name, about, service) EVENT_##name,
    EVENTS(X)
#undef X
#define X(name) EVENT_ACCOUNT_##name,
        ACCOUNT_EVENTS(X)
#undef X
            EVENT_COUNT
};

struct event_kind {
    const char *name;
    enum about about;
    enum service service;
};
extern const struct event_kind events[EVENT_COUNT];

/* State of reading one history file. */
struct reader {
    struct source source;
    struct run *run;
    const struct json_lines *lines;
    struct history *history;
    uint8_t index;    /* index of the current life in run->histories */
    uint8_t first;    /* index of the first life in this file */
    int64_t seq;      /* of the previous line */
    int64_t t_ns;     /* of the previous line */
    uint32_t request; /* of the previous line; NONE */
    bool begun;       /* at least one event was read */
    bool foreign;     /* the file belongs to another run */
};

/* One line of the file. */
struct record {
    int64_t line;
    const cJSON *json;
    enum event event;
    int64_t t_ns;
    uint32_t request; /* NONE for ABOUT_FILE and ABOUT_KEEPER */
    char error[JSON_ERROR_MAX];
};

/* Reports record->error as a complaint about the line. */
void wrong(struct reader *reader, const struct record *record);
struct mark *add_mark(struct run *run, enum mark_kind kind, const struct record *record,
                      size_t instance);
void set_outcome(struct reader *reader, struct record *record, enum outcome outcome);

/* Reads the line's "status", the name of a dlock_status. On failure: false, and record->error holds
 * a sentence. */
bool read_status(struct record *record, const char **status);

/* The number of the hold's section; NONE if no `granted` line was read for it. */
uint32_t find_hold(const struct run *run, const char *hold);
/* In which section a line happened: that of its "hold", which its request must be inside of. NONE:
 * the line names none. On failure: false, and record->error holds a sentence; so does the next. */
bool read_section(struct reader *reader, struct record *record, uint32_t *section);
/* When the command was sent whose answer the line records: not before from_ns. */
bool read_sent(struct reader *reader, struct record *record, int64_t from_ns, int64_t *sent_ns);

void about_hold(struct reader *reader, struct record *record);
void about_keeper(struct reader *reader, struct record *record);

/* Keeps a share for each section, from the first one on whose stock is in segments. */
void keep_shares(struct run *run);

/* Sales in a queue, see read_queue.c. */
/* Whether the line is of the instance that works the request off. */
bool is_worker_line(const struct reader *reader, const struct record *record,
                    const struct request *request);
/* The line has an outcome of a queued sale. False: it was not taken, which is reported. */
bool queue_decide(struct reader *reader, const struct record *record, enum outcome outcome,
                  int64_t code);

#endif
