/* SPDX-License-Identifier: Apache-2.0
 *
 * Renewals of many holds in one write, and the answer of each. The timekeeper's alone.
 */
#ifndef DLOCK_RENEWALS_H
#define DLOCK_RENEWALS_H

#include "rung.h"

#define RENEWALS_PER_WRITE 256 /* in one write */
#define RENEWAL_SCRIPTS_MAX 8

struct renewal {
    struct dlock_hold *hold; /* NULL: nobody asks for its answer any more */
    int64_t ttl_ms;          /* that was asked for */
};

struct renewals {
    struct dlock_client *client;
    struct redis *redis;
    struct renewal all[RENEWALS_PER_WRITE];
    size_t count;
    size_t next;     /* the first whose answer was not taken */
    bool sent;
    int64_t sent_ns; /* CLOCK_BOOTTIME, from before they were sent */
    bool in_full;    /* they carry the scripts that they need, once each: */
    const struct script *scripts[RENEWAL_SCRIPTS_MAX];
    size_t script_count;
    dlock_status status; /* of those without an answer */
    char why[SENTENCE_MAX];
    int64_t limit_ns; /* CLOCK_MONOTONIC: command_timeout_ms is over */
};

/* in_full: the server did not know a script of the renewals before. The connection is ready. */
void renewals_begin(struct renewals *renewals, int64_t sent_ns, bool in_full);
/* Adds one; false: there is no room for another. */
bool renewals_add(struct renewals *renewals, struct dlock_hold *hold, int64_t ttl_ms);
/* Sends them, once, and waits for the answers. True: no more will come. False: wake_fd is readable,
 * and it must be called again. at_once: answers that are not here are given up. */
bool renewals_wait(struct renewals *renewals, int wake_fd, bool at_once);
/* Nobody asks for the hold's answer any more, if one is under way. */
void renewals_drop(struct dlock_hold *hold);

struct renewed {
    struct dlock_hold *hold; /* NULL: it was dropped */
    int64_t ttl_ms;
    dlock_status status;
    bool script_missing; /* nothing was done: it must be sent again, with its script */
    const char *why;     /* unless OK */
};
/* The next answer; false: that was all. */
bool renewals_take(struct renewals *renewals, struct renewed *renewed);

#endif
