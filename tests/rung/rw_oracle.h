/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle for locks with readers: threads in several processes read and write two cells in
 * shared memory under the lock. Readers may meet readers, a writer nobody; who is inside is counted
 * by means that no lock has a part in. First all read at once and wait to be met, then all mix.
 */
#ifndef TESTS_RW_ORACLE_H
#define TESTS_RW_ORACLE_H

#include "redis_rung.h"

struct rw_oracle {
    const struct rung_ops *ops;
    const char *url;
    int processes;
    int threads; /* of each process */
    int rounds;  /* of each thread, a third of them writes; and one read before */
    int64_t wait_ms;
    /* For how long the first writer waits to be met, and the first readers: as long as it takes
     * where it is to happen, a while where it is not. */
    int64_t writer_stays_ms;
    int64_t reader_stays_ms;
};

struct rw_verdict {
    uint64_t reads;
    uint64_t writes;
    uint64_t overlaps; /* a writer came to somebody, or somebody to a writer */
    uint64_t torn;     /* the cells differed, or changed while they were read */
    uint64_t lost;     /* writes that another one undid */
    uint64_t met;      /* readers that met a reader */
    uint64_t kept_out; /* calls that timed out */
    uint64_t errors;   /* other answers than OK and TIMED_OUT, each told on stderr */
};

#define RW_LOCK "lock:{rw_oracle}"

/* Forks before any client is opened: call it while this process has no other thread. */
struct rw_verdict rw_oracle_run(const struct rw_oracle *oracle);

/* All sections done, readers met readers, no writer met anybody; else it says so on stderr. */
bool rw_oracle_holds(const struct rw_oracle *oracle, const struct rw_verdict *verdict);

#endif
