/* SPDX-License-Identifier: Apache-2.0
 *
 * What sales run under -- the rung, the way to write -- and how that is changed while requests come
 * in: the sales in flight finish under the old, those that arrive meanwhile wait for the new.
 */
#ifndef MODE_H
#define MODE_H

#include <dlock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RUN_MAX 64

struct setting {
    const struct dlock_rung *rung;
    int write; /* enum write_mode */
    bool check_hold;
    bool guard_reads;
    char run[RUN_MAX + 1]; /* "": none was named */
};

struct mode {
    struct setting now; /* written while nobody is in flight; read by those who are */
    atomic_long in_flight;
    atomic_bool closed; /* a switch is under way */
    pthread_mutex_t mutex;
    pthread_cond_t emptied;
};

void mode_init(struct mode *mode, const struct setting *setting);
void mode_destroy(struct mode *mode);

/* Counts a sale in: until it leaves, mode->now does not change. False: a switch is under way. */
bool mode_enter(struct mode *mode);
void mode_leave(struct mode *mode);

enum mode_close { MODE_CLOSED, MODE_BUSY, MODE_NOT_EMPTY };
/* Lets nobody in and waits until nobody is in flight. BUSY: somebody else is switching; NOT_EMPTY:
 * the deadline came first, and it is open again. */
enum mode_close mode_close(struct mode *mode, int64_t deadline_ns);
/* Ends the switch. setting NULL: nothing changes. */
void mode_open(struct mode *mode, const struct setting *setting);
/* A copy, for those who are not in flight. */
struct setting mode_copy(struct mode *mode);

#endif
