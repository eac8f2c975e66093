/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings that sales run under, such as the rung and the write mode. A change waits for the
 * sales in flight, which finish under the old setting. Sales that arrive meanwhile wait for the new
 * one.
 */
#ifndef MODE_H
#define MODE_H

#include "admission.h"
#include "segments.h"
#include "settings_common.h"

#include <dlock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct setting {
    const struct dlock_rung *rung;
    int write;       /* enum write_mode */
    int on_conflict; /* enum on_conflict */
    bool local_first;
    bool check_hold;
    bool guard_reads;
    struct admission admission;
    struct segments segments;
    char run[RUN_MAX + 1]; /* "": none was named */
};

struct mode {
    /* Written only while no sale is in flight, and under the mutex; sales in flight read it. */
    struct setting now;
    atomic_long in_flight;
    atomic_bool closed; /* a switch is under way */
    atomic_bool drains; /* meanwhile sales of the queue go on, see mode_enter_working */
    pthread_mutex_t mutex;
    pthread_cond_t emptied;
};

void mode_init(struct mode *mode, const struct setting *setting);
void mode_destroy(struct mode *mode);

/* Counts a sale in: until it leaves, mode->now does not change. False: a switch is under way. */
bool mode_enter(struct mode *mode);
void mode_leave(struct mode *mode);
/* The same for a sale that processes an entry of a queue: with `drains` it may enter during a
 * switch. */
bool mode_enter_working(struct mode *mode);

enum mode_close { MODE_CLOSED, MODE_BUSY, MODE_NOT_EMPTY };
/* Lets no sale in, and waits until none is in flight. MODE_BUSY: another switch is under way.
 * MODE_NOT_EMPTY: the deadline came first, and sales may enter again. */
enum mode_close mode_close(struct mode *mode, int64_t deadline_ns);
/* Lets sales of the queue in again, or no longer. In the second case it waits until none is in
 * flight; false: the deadline came first. Only between mode_close and mode_open. */
void mode_drain(struct mode *mode);
bool mode_end_drain(struct mode *mode, int64_t deadline_ns);
/* Ends the switch. */
void mode_open(struct mode *mode);
/* From mode_hold to mode_let_go, mode->now does not change, for callers that are not in flight. The
 * switch changes it between the two. Nothing there waits for the network. */
void mode_hold(struct mode *mode);
void mode_let_go(struct mode *mode);
/* A copy of the settings, for callers that are not in flight. */
struct setting mode_copy(struct mode *mode);

#endif
