/* SPDX-License-Identifier: Apache-2.0
 *
 * See completion.h.
 */
#include "completion.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool completions_init(struct completions *completions, bool own_loop)
{
    STAILQ_INIT(&completions->queue);
    pthread_mutex_init(&completions->mutex, NULL);
    completions->fd = own_loop ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    return !own_loop || completions->fd >= 0;
}

void completions_free(struct completions *completions)
{
    if (completions->fd >= 0)
        close(completions->fd);
    pthread_mutex_destroy(&completions->mutex);
}

void completion_put(struct completions *completions, struct completion *completion)
{
    uint64_t one = 1;
    if (completion->status != DLOCK_OK)
        snprintf(completion->why, sizeof completion->why, "%s", dlock_error());
    pthread_mutex_lock(&completions->mutex);
    bool first = STAILQ_EMPTY(&completions->queue);
    STAILQ_INSERT_TAIL(&completions->queue, completion, of_queue);
    pthread_mutex_unlock(&completions->mutex);
    if (first && completions->fd >= 0)
        (void)!write(completions->fd, &one, sizeof one);
}

static void completion_deliver_one(struct completion *completion)
{
    dlock_done *done = completion->done;
    void *arg = completion->arg;
    dlock_status status = completion->status;
    dlock_hold *hold = completion->hold;
    if (status != DLOCK_OK)
        fail(status, "%s", completion->why);
    free(completion->call);
    done(arg, status, hold);
}

bool completion_deliver(struct completions *completions)
{
    pthread_mutex_lock(&completions->mutex);
    struct completion *first = STAILQ_FIRST(&completions->queue);
    if (first != NULL)
        STAILQ_REMOVE_HEAD(&completions->queue, of_queue);
    pthread_mutex_unlock(&completions->mutex);
    if (first != NULL)
        completion_deliver_one(first);
    return first != NULL;
}

size_t completion_deliver_all(struct completions *completions)
{
    STAILQ_HEAD(, completion) over = STAILQ_HEAD_INITIALIZER(over);
    struct completion *completion;
    uint64_t count;
    size_t told = 0;
    (void)!read(completions->fd, &count, sizeof count);
    pthread_mutex_lock(&completions->mutex);
    STAILQ_CONCAT(&over, &completions->queue);
    pthread_mutex_unlock(&completions->mutex);
    while ((completion = STAILQ_FIRST(&over)) != NULL) {
        STAILQ_REMOVE_HEAD(&over, of_queue);
        completion_deliver_one(completion);
        told++;
    }
    return told;
}
