/* SPDX-License-Identifier: Apache-2.0
 *
 * What all processes of one history share: memory in which each writes down what it calls, what it
 * is answered and what it sees. Nobody judges here; check.c does, when the history is over.
 * Times are nanoseconds of CLOCK_BOOTTIME, the clock of a hold's validity.
 */
#ifndef TORTURE_WORLD_H
#define TORTURE_WORLD_H

#include "dlock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESSES_MAX 6 /* the clients, and one that is started afresh when the others rest */
#define THREADS_MAX 8
#define CHILDS_THREAD (THREADS_MAX + 2) /* of a forked child: it ends without closing */
#define LOCKS_MAX 3
#define CALLS_MAX 32768
#define CALLS_ENOUGH (CALLS_MAX / 4 * 3) /* then the threads make no more */
#define NOTES_MAX 32768
#define VIOLATIONS_MAX 32
#define NS_A_MS 1000000LL

/* X(name, how the transcript says it) */
#define WHAT_MAP(X)                                                                                \
    X(ACQUIRE, "acquire")                                                                          \
    X(START, "start")                                                                              \
    X(RELEASE, "release")                                                                          \
    X(BREAK, "break")                                                                              \
    X(INSPECT, "inspect")                                                                          \
    X(OPEN, "open")                                                                                \
    X(CLOSE, "close")
enum what {
#define X(name, text) WHAT_##name,
    WHAT_MAP(X)
#undef X
};

/* A call. One that acquires is also the hold: its later samples are written here. */
struct call {
    enum what what;
    int process, thread, lock;
    uint64_t client;   /* the dlock_client, unique in the history */
    uint64_t owner_id; /* 0: this acquisition alone */
    enum dlock_mode mode;
    bool rest; /* made when all faults were over and nobody held */
    int64_t wait_ms;
    int64_t call_max_ms; /* 0: none */
    int64_t ttl_ms;
    bool own_ttl;    /* it asked for that; else it is its client's */
    struct call *of; /* of a release: the acquisition */

    int64_t begin_ns, stalled_begin_ns;
    _Atomic int64_t end_ns; /* 0: not answered */
    _Atomic int64_t stalled_ns;
    _Atomic int64_t cancelled_ns; /* when its cancel was thrown; 0: it was not */
    _Atomic int answers;
    dlock_status status;
    uint64_t token;
    int64_t origin_ns; /* of what was held: check.c works it out */
    char owner[96], error[240];

    /* Samples of dlock_valid(), each between two looks at the clock. */
    _Atomic int64_t first_true_ns; /* behind the first that said true */
    _Atomic int64_t last_true_ns;  /* before the last that said true */
    _Atomic int64_t false_ns;      /* behind the first that said false */
    _Atomic bool revived;          /* true came after false */
    _Atomic int64_t until_ns;      /* it said that it would be valid at least until then */
};

enum note_kind {
    NOTE_TEXT,    /* for the transcript alone */
    NOTE_FAULT,   /* a fault was carried out, or ended */
    NOTE_RENEWED, /* the library's event */
    NOTE_RENEWAL_FAILED,
    NOTE_LOST,
    NOTE_DATA_LOST, /* the server is back without what it had acknowledged */
};
struct note {
    int64_t ns, stalled_ns;
    enum note_kind kind;
    int process;       /* -1: the proxy */
    struct call *call; /* of an event: the hold */
    char text[120];
    _Atomic bool written;
};

#define VIOLATION_MAP(X)                                                                           \
    X(OVERLAP, "two holds were valid at once")                                                     \
    X(REVIVED, "a hold was valid again after it was not")                                          \
    X(CUT, "a hold was lost before its time: nobody broke the lock, no data was lost")             \
    X(TOKEN, "tokens out of order")                                                                \
    X(RENEWAL, "a hold was lost, and no renewal had been tried in time")                           \
    X(ANSWER, "a call was answered never, twice or wrongly")                                       \
    X(BOUND, "a call took longer than it may")                                                     \
    X(STUCK, "a lock without holder was not acquired")                                             \
    X(LEFT, "a lock was left behind, though every call said it was released")                      \
    X(KEY, "a key that is not the library's was used, or one of its own left for ever")            \
    X(RIDE, "what rode with a release was carried out twice, or not at all")                       \
    X(RESOURCE, "descriptors, threads or memory were kept")                                        \
    X(DIED, "a process ended by itself")
enum violation_kind {
#define X(name, text) VIOLATION_##name,
    VIOLATION_MAP(X)
#undef X
        VIOLATION_COUNT
};
struct violation {
    enum violation_kind kind;
    char text[400];
};

enum phase {
    PHASE_RUN,  /* faults and calls */
    PHASE_CALM, /* faults are over; every process lets go of what it has */
    PHASE_REST, /* nobody holds: each process acquires each lock once more, then ends */
};

struct witness {
    _Atomic int64_t beat_ns;    /* when it last ran; 0: it does not yet, or no more */
    _Atomic int64_t stalled_ns; /* how long it was kept from running, in all */
};

struct process {
    _Atomic int pid;     /* 0: not started */
    _Atomic bool killed; /* by a fault */
    _Atomic bool let_go; /* it holds nothing any more (PHASE_CALM) */
    _Atomic bool asked;  /* it has acquired each lock at rest, or not */
    _Atomic bool over;   /* waited for */
    struct witness witness;
    _Atomic int points; /* named points passed */
    _Atomic int busy;   /* threads that go on, but for those that wait without limit */
};

struct world {
    _Atomic int phase;
    _Atomic int64_t calm_ns; /* when PHASE_CALM began */
    _Atomic uint64_t clients;
    _Atomic int rides_sent, rides_answered; /* INCRs that rode with a release */
    struct witness proxy;
    struct process processes[PROCESSES_MAX];
    _Atomic size_t call_count, note_count, violation_count;
    struct violation violations[VIOLATIONS_MAX];
    struct note notes[NOTES_MAX];
    struct call calls[CALLS_MAX];
};

struct world *world_new(void);
int64_t boot_ns(void);
const char *what_text(enum what what);
const char *violation_name(enum violation_kind kind);
const char *violation_text(enum violation_kind kind);

/* The next free call, begun now; its describing fields are the caller's. */
struct call *call_begin(struct world *world, enum what what, int process, int thread, int lock);
void call_end(struct world *world, struct call *call, dlock_status status);

void note(struct world *world, enum note_kind kind, int process, struct call *call,
          const char *format, ...) __attribute__((format(printf, 5, 6)));
void violation(struct world *world, enum violation_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A witness of stalls, who should run each millisecond, has run now. */
void witness_beat(struct witness *witness);
/* How long witnesses were kept from running so far, the stalls that last included: each delays the
 * others, by what it holds or should pass on. */
int64_t stalled_ns(const struct world *world);

/* Looks at a hold, and writes down what it saw. */
bool sample(struct call *call, const dlock_hold *hold);

/* Numbers from a seed (splitmix64). */
uint64_t random_next(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t limit); /* 0 to limit - 1 */
bool chance(uint64_t *state, int percent);

#endif
