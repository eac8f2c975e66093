/* SPDX-License-Identifier: Apache-2.0
 *
 * See started.h.
 */
#include "started.h"

#include "must.h"
#include "record.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

void started_done(void *arg, dlock_status status, dlock_hold *hold)
{
    struct started *started = arg;
    snprintf(started->error, sizeof started->error, "%s", dlock_error());
    started->status = status;
    started->hold = hold;
    started->thread = pthread_self();
    must(hold == NULL || status == DLOCK_OK);
    if (started->gate != NULL)
        gate_pass(started->gate);
    if (hold != NULL && started->release)
        must(dlock_release(hold, NULL) == DLOCK_OK);
    _Atomic int *over = started->over;
    atomic_fetch_add(&started->answers, 1); /* `started` may be freed from here on */
    if (over != NULL)
        atomic_fetch_add(over, 1);
}

void started_answered(struct started *started)
{
    eventually(atomic_load(&started->answers) == 1);
}

struct started *crowd_new(size_t count, bool release, _Atomic int *over)
{
    struct started *crowd = calloc(count, sizeof *crowd);
    must(crowd != NULL);
    for (size_t i = 0; i < count; i++) {
        crowd[i].release = release;
        crowd[i].over = over;
    }
    return crowd;
}

void crowd_answered(struct started *crowd, size_t count, dlock_status status)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(atomic_load(&crowd[i].answers), 1);
        if (crowd[i].status != status)
            failed("number %zu was answered %s, not %s; %s", i, dlock_status_name(crowd[i].status),
                   dlock_status_name(status), crowd[i].error);
    }
}
