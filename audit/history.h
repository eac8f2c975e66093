/* SPDX-License-Identifier: Apache-2.0
 *
 * What the readers of a history share: the events, the file that is read, and one line of it.
 */
#ifndef HISTORY_H
#define HISTORY_H

#include "json.h"
#include "run.h"
#include "source.h"

#define HISTORY_FORMAT 2 /* that is read; rises when a name in it changes */

/* X(name, what it is about). The stages of a hold stand in their order, see enum stage. */
#define EVENTS(X)                                                                                  \
    X(begin, FILE)                                                                                 \
    X(end, FILE)                                                                                   \
    X(stall, FILE)                                                                                 \
    X(restock_intent, FILE)                                                                        \
    X(restock, FILE)                                                                               \
    X(restock_failed, FILE)                                                                        \
    X(restock_unknown, FILE)                                                                       \
    X(command, FILE)                                                                               \
    X(invoke, REQUEST)                                                                             \
    X(refused, REQUEST)                                                                            \
    X(fail, REQUEST)                                                                               \
    X(unknown, REQUEST)                                                                            \
    X(replay, REQUEST)                                                                             \
    X(reacquire, REQUEST)                                                                          \
    X(granted, HOLD)                                                                               \
    X(enter, HOLD)                                                                                 \
    X(read, HOLD)                                                                                  \
    X(write, HOLD)                                                                                 \
    X(exit, HOLD)                                                                                  \
    X(release, HOLD)                                                                               \
    X(lost, KEEPER)                                                                                \
    X(renew, KEEPER)

enum about { ABOUT_FILE, ABOUT_REQUEST, ABOUT_HOLD, ABOUT_KEEPER };

enum event {
#define X(name, about) EVENT_##name,
    EVENTS(X)
#undef X
        EVENT_COUNT
};

struct event_kind {
    const char *name;
    enum about about;
};
extern const struct event_kind events[EVENT_COUNT];

/* A history while it is read. */
struct reader {
    struct source source;
    struct run *run;
    const struct json_lines *lines;
    struct history *history;
    uint8_t index;    /* of the history */
    uint8_t first;    /* of the first one that the file tells of */
    int64_t seq;      /* the latest */
    int64_t t_ns;     /* of the line above */
    uint32_t request; /* of the line above; NONE */
    bool begun;       /* an event was read */
    bool foreign;     /* it is another run's */
};

/* One line. */
struct record {
    int64_t line;
    const cJSON *json;
    enum event event;
    int64_t t_ns;
    uint32_t request; /* NONE with ABOUT_FILE and ABOUT_KEEPER */
    char error[JSON_ERROR_MAX];
};

/* Complains about the line with its own error. */
void wrong(struct reader *reader, const struct record *record);
struct mark *add_mark(struct run *run, enum mark_kind kind, const struct record *record,
                      size_t instance);
void set_outcome(struct reader *reader, struct record *record, enum outcome outcome);

/* The line's "status", the name of a dlock_status. False: a sentence is in its error. */
bool read_status(struct record *record, const char **status);

/* The number of that hold's section; NONE: it was not granted. */
uint32_t find_hold(const struct run *run, const char *hold);

/* Of an outcome: its intent; NULL: it has none. */
const struct intent *about_restock(struct reader *reader, struct record *record);
void about_hold(struct reader *reader, struct record *record);
void about_keeper(struct reader *reader, struct record *record);

#endif
