/* SPDX-License-Identifier: Apache-2.0
 *
 * THE oracle: several threads in several processes acquire, read a counter, let others run, write
 * it, release. Who is inside is counted in shared memory, by means that no lock has a part in.
 * Every rung runs under it, those of the ladder and the tests' own; `none` must fail it.
 */
#ifndef TESTS_VALIDATE_H
#define TESTS_VALIDATE_H

#include "redis_rung.h"

enum expectation { HOLDS, BREAKS };

struct oracle {
    const char *rung;           /* a rung of the ladder, or */
    const struct rung_ops *ops; /* a test's own */
    const char *const *servers; /* ended by NULL */
    enum expectation expected;  /* how long the first section waits for a second one */
    int processes;
    int threads; /* of each process */
    int rounds;  /* of each thread */
    bool riding; /* the counter is in Redis too: read with the acquire, written with the release */
};

struct verdict {
    uint64_t sections;
    uint64_t overlaps;         /* sections that were entered while another was inside */
    uint64_t lost_updates;     /* of the counter in shared memory */
    uint64_t lost_rides;       /* of the counter in Redis; 0 unless `riding` */
    uint64_t token_inversions; /* tokens that did not grow; 0 unless the rung has tokens */
    uint64_t errors;           /* calls that did not answer OK; each is told on stderr. A release
                                  may say LOST of a rung that is expected to break */
    uint64_t attempts;         /* of all clients, see dlock_stats */
};

#define ORACLE_LOCK "lock:{oracle}"
#define ORACLE_COUNTER "count:{oracle}"

/* Forks before any client is opened: call it while this process has no other thread. */
struct verdict oracle_run(const struct oracle *oracle);

/* Runs it and says on stderr what differs from the expectation; true when nothing does. */
bool oracle_agrees(const struct oracle *oracle);

#endif
