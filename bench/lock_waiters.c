/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_waiters.h.
 */
#include "lock_waiters.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#define STACK_BYTES (256 * 1024)
#define WARM_PAIRS 100

struct crowd {
    struct part *part;
    const struct blocking *blocking;
    void *client;
    sem_t arrived; /* one post for each waiter at the gate */
    sem_t done;    /* one post for each waiter after its last turn */
};

struct waiter {
    struct crowd *crowd;
    int number;
    pthread_t thread;
};

static void take_turns(struct crowd *crowd, int number, void *mine)
{
    struct part *part = crowd->part;
    while (part_next(part, number)) {
        struct sale sale = {.outcome = OUTCOME_FAILED};
        int64_t asked_ns = now_ns();
        if (part->plan->shape != SHAPE_PAIRS)
            crowd->blocking->buy(mine, &sale);
        else if (crowd->blocking->pair(mine))
            sale = (struct sale){.outcome = OUTCOME_SOLD, .granted_ns = now_ns()};
        part_tally(part, number, asked_ns, &sale);
    }
}

static void *wait_and_buy(void *arg)
{
    struct waiter *waiter = arg;
    struct crowd *crowd = waiter->crowd;
    void *mine = crowd->blocking->waiter_open(crowd->client, waiter->number);
    if (mine == NULL)
        part_give_up(crowd->part, "waiter %d of process %d could not get ready", waiter->number,
                     crowd->part->number);
    for (int i = 0; crowd->part->plan->shape == SHAPE_PAIRS && i < WARM_PAIRS; i++)
        crowd->blocking->pair(mine);
    sem_post(&crowd->arrived);
    gate_wait(crowd->part->start);
    take_turns(crowd, waiter->number, mine);
    sem_post(&crowd->done);
    gate_wait(crowd->part->end); /* the round counts its connection until then */
    crowd->blocking->waiter_close(mine);
    return NULL;
}

/* This wait ends: a waiter that cannot arrive ends the process, and the parent limits the round. */
static void await_all(sem_t *sem, int count)
{
    for (int i = 0; i < count; i++)
        while (sem_wait(sem) != 0)
            ;
}

void waiters_run(struct part *part, const struct blocking *blocking)
{
    int count = part->plan->waiters;
    struct crowd crowd = {.part = part, .blocking = blocking, .client = blocking->open(part)};
    struct waiter *waiters = calloc((size_t)count, sizeof *waiters);
    pthread_attr_t attr;
    if (waiters == NULL)
        part_give_up(part, "out of memory for %d waiters", count);
    sem_init(&crowd.arrived, 0, 0);
    sem_init(&crowd.done, 0, 0);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (int i = 0; i < count; i++) {
        waiters[i] = (struct waiter){.crowd = &crowd, .number = i};
        if (pthread_create(&waiters[i].thread, &attr, wait_and_buy, &waiters[i]) != 0)
            part_give_up(part, "no thread for waiter %d of %d: the limit of threads was reached", i,
                         count);
    }
    await_all(&crowd.arrived, count);
    part_ready(part);
    await_all(&crowd.done, count);
    if (blocking->settle != NULL)
        blocking->settle(crowd.client);
    part_done(part);
    for (int i = 0; i < count; i++)
        pthread_join(waiters[i].thread, NULL);
    blocking->close(crowd.client);
    pthread_attr_destroy(&attr);
    sem_destroy(&crowd.arrived);
    sem_destroy(&crowd.done);
    free(waiters);
}
