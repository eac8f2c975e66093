/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by all processes of one history: memory in which each records its calls, their answers,
 * and what it observes. Nothing is judged here; check.c does that after the history. Times are
 * nanoseconds of CLOCK_BOOTTIME, the clock of a hold's validity.
 */
#ifndef TORTURE_WORLD_H
#define TORTURE_WORLD_H

#include "dlock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESSES_MAX 6 /* the clients, and one that starts in PHASE_REST */
#define THREADS_MAX 8
#define CHILDS_THREAD (THREADS_MAX + 2) /* of a forked child, which ends without closing */
#define LOCKS_MAX 3
#define SERVERS_MOST 6
#define CALLS_MAX 131072
#define CALLS_ENOUGH (CALLS_MAX / 4 * 3) /* from then on the threads make no more calls */
#define NOTES_MAX 65536
#define VIOLATIONS_MAX 32
#define NS_A_MS 1000000LL

/* X(name, text in the transcript) */
#define WHAT_MAP(X)                                                                                \
    X(ACQUIRE, "acquire")                                                                          \
    X(START, "start")                                                                              \
    X(MANY, "acquire many")                                                                        \
    X(MANY_START, "start many")                                                                    \
    X(PART, "acquire")                                                                             \
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

/* A section's use of a stock that is not on the lock's servers: it reads it, and later lowers it by
 * one. */
enum written { WRITTEN_NOT, WRITTEN_YES, WRITTEN_REFUSED };
struct visit {
    int64_t read_sent_ns, read_ns; /* before the read was sent, after its answer; 0: not read */
    int64_t write_ns;              /* before the write was sent */
    enum written written;
    long long found, left; /* what it read, and what the stock was after its write */
};

/* A call. For a call that acquires, it also has the samples of its hold. A call for several locks
 * has a part for each of them, as if each had been acquired from its begin to its end. */
struct call {
    enum what what;
    int process, thread;
    int lock;          /* -1: several */
    uint64_t client;   /* number of the dlock_client, unique in the history */
    uint64_t owner_id; /* 0: this acquisition alone */
    enum dlock_mode mode;
    bool rest; /* an acquire of PHASE_REST that must succeed */
    int64_t wait_ms;
    int64_t call_max_ms; /* 0: none */
    int64_t ttl_ms;
    bool own_ttl;    /* the call set ttl_ms; otherwise it is the client's */
    struct call *of; /* for a release: the acquisition; for a part: the call for several locks */
    struct call *parts[LOCKS_MAX]; /* in the caller's order */
    size_t part_count, missing;    /* missing: index in parts; part_count: none */

    int64_t begin_ns, stalled_begin_ns;
    _Atomic int64_t end_ns; /* 0 if not answered */
    _Atomic int64_t stalled_ns;
    _Atomic int64_t cancelled_ns; /* when it was cancelled; 0 if it was not */
    _Atomic int answers;
    bool has_done;           /* it was started: a completion answers it */
    _Atomic int64_t told_ns; /* when its `done` returned */
    dlock_status status;
    uint64_t token;
    int64_t origin_ns; /* the earliest start of its grant, set by check.c */
    char owner[96], error[240];
    struct visit visit; /* of its section */

    /* Samples of dlock_valid(), each between two readings of the clock. */
    _Atomic int64_t first_true_ns; /* after the first true */
    _Atomic int64_t last_true_ns;  /* before the last true */
    _Atomic int64_t false_ns;      /* after the first false */
    _Atomic bool revived;          /* true after false */
    _Atomic int64_t until_ns;      /* it promised to be valid until then */
};

enum note_kind {
    NOTE_TEXT,    /* only for the transcript */
    NOTE_FAULT,   /* a fault was carried out, or ended */
    NOTE_RENEWED, /* an event of the library */
    NOTE_RENEWAL_FAILED,
    NOTE_LOST,
    NOTE_DATA_LOST, /* the server, or the new master, is without acknowledged data */
};
struct note {
    int64_t ns, stalled_ns;
    int64_t from_ns; /* for a loss of data that took its time: when it began; otherwise 0 */
    enum note_kind kind;
    int process;       /* -1 for the proxy */
    struct call *call; /* for an event: the hold */
    char text[120];
    _Atomic bool written;
};

#define VIOLATION_MAP(X)                                                                           \
    X(OVERLAP, "two holds were valid at once")                                                     \
    X(REVIVED, "a hold was valid again after it was not")                                          \
    X(CUT, "a hold was lost before its time, without a break or lost data")                        \
    X(TOKEN, "tokens out of order")                                                                \
    X(RENEWAL, "a hold was lost without a renewal attempt in time")                                \
    X(ANSWER, "a call had no answer, two answers or a wrong one")                                  \
    X(BOUND, "a call took longer than it may")                                                     \
    X(STUCK, "a lock without holder was not acquired")                                             \
    X(MANY, "a lock was missing that nobody had, or several locks were not answered as one")       \
    X(CYCLE, "a call waited out its time, though nobody waited for a lock before one it held")     \
    X(LEFT, "a lock was left behind, though every release returned OK")                            \
    X(KEY, "a foreign key was used, or a key of the library never expires")                        \
    X(RIDE, "a command that rode with a release was carried out twice, or not at all")             \
    X(RESOURCE, "descriptors, threads or memory were leaked")                                      \
    X(STALE, "the stock accepted a stale write")                                                   \
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
    PHASE_CALM, /* faults are over; every process releases its holds */
    PHASE_REST, /* no process holds: each one acquires each lock again, then ends */
};

struct witness {
    _Atomic int64_t beat_ns;    /* when it last ran; 0 before its start and after its end */
    _Atomic int64_t stalled_ns; /* total time in which it could not run */
};

struct process {
    _Atomic int pid;     /* 0 if not started */
    _Atomic bool killed; /* by a fault */
    _Atomic bool let_go; /* it has released all holds (PHASE_CALM) */
    _Atomic bool asked;  /* it has tried to acquire each lock (PHASE_REST) */
    _Atomic bool over;   /* it ended and was waited for */
    struct witness witness;
    _Atomic int points; /* named points passed */
    _Atomic int busy;   /* running threads, except those that wait without limit */
};

struct world {
    _Atomic int phase;
    _Atomic int64_t calm_ns; /* when PHASE_CALM began */
    _Atomic uint64_t clients;
    _Atomic int rides_sent, rides_answered; /* INCRs sent with a release */
    _Atomic int acquired;                   /* holds so far */
    _Atomic int refused;                    /* writes of visits that the stock refused so far */
    int overlaps, excused;                  /* pairs that overlapped; the judge counts them */
    int stale;                              /* writes that came too late */
    _Atomic int by_kind[VIOLATION_COUNT];   /* violations */
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

/* Begins a call now. The caller fills in the fields that describe it. */
struct call *call_begin(struct world *world, enum what what, int process, int thread, int lock);
void call_end(struct world *world, struct call *call, dlock_status status);

void note(struct world *world, enum note_kind kind, int process, struct call *call,
          const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Acknowledged data were lost between then and now. */
void note_loss(struct world *world, int64_t from_ns, const char *what);
void violation(struct world *world, enum violation_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A witness of stalls should run each millisecond; this records that it has run. */
void witness_beat(struct witness *witness);
/* The total time in which witnesses could not run, including stalls that still last. A stalled
 * process delays the others, because it holds or should hand off what they need. */
int64_t stalled_ns(const struct world *world);

/* Samples a hold, and records the result. Returns whether it was valid. */
bool sample(struct call *call, const dlock_hold *hold);

/* Numbers from a seed (splitmix64). */
uint64_t random_next(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t limit); /* 0 to limit - 1 */
bool chance(uint64_t *state, int percent);

#endif
