/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle for every lock. Several threads in several processes acquire, read a counter, let
 * others run, write it, and release. Shared memory counts the threads that are inside; no lock
 * takes part in that. Every rung runs under it, also the tests' own rungs; `none` must fail it.
 */
#ifndef TESTS_VALIDATE_H
#define TESTS_VALIDATE_H

#include "redis_rung.h"

enum expectation { HOLDS, BREAKS };

struct oracle {
    const char *rung;                  /* a rung of the ladder, or NULL */
    const struct rung_ops *ops;        /* a rung of the test's own, or NULL */
    const char *const *servers;        /* ended by NULL */
    const struct dlock_engine *engine; /* NULL: Redis */
    enum expectation expected;         /* also decides how long the first section waits */
    int processes;
    int threads; /* of each process */
    int rounds;  /* of each thread */
    bool riding; /* a counter in Redis too: read with the acquire, written with the release */
    bool tokens; /* of `redlock`: each acquire asks for one */
};

struct verdict {
    uint64_t sections;
    uint64_t overlaps;         /* sections entered while another one was inside */
    uint64_t lost_updates;     /* of the counter in shared memory */
    uint64_t lost_rides;       /* of the counter in Redis; 0 unless `riding` */
    uint64_t token_inversions; /* tokens that did not grow; 0 if there are none */
    /* Calls that did not return OK; stderr has each. A release of a rung that is expected to break
     * may return LOST. */
    uint64_t errors;
    uint64_t attempts; /* of all clients, see dlock_stats */
};

#define ORACLE_LOCK "lock:{oracle}"
#define ORACLE_COUNTER "count:{oracle}"

/* Forks before it opens a client: call it while this process has no other thread. */
struct verdict oracle_run(const struct oracle *oracle);

/* Runs it. True if the verdict is the expected one; otherwise stderr has the difference. */
bool oracle_agrees(const struct oracle *oracle);

#endif
