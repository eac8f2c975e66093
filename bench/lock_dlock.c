/* SPDX-License-Identifier: Apache-2.0
 *
 * libdlock in the lock bench, through its public interface: with a thread for each waiter, and
 * asynchronously without one. The sale is strict in both: GET is sent with the acquire and DECR
 * with the release. Both are sent for every sale, and each reply is checked.
 */
#include "dlock.h"
#include "lock_waiters.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

struct library {
    struct part *part;
    dlock_client *client;
    dlock *lock;
};

struct buyer {
    struct library *library;
    int number;
    dlock_batch *read;  /* GET */
    dlock_batch *write; /* DECR */
    struct dlock_want want;
    int64_t asked_ns;
    struct party *party; /* only for the asynchronous bench */
};

static void must(struct part *part, dlock_status status)
{
    if (status != DLOCK_OK)
        part_give_up(part, "dlock: %s: %s", dlock_status_name(status), dlock_error());
}

/* Loads the scripts and opens a connection, as the peers do. */
static void warm_up(struct library *library)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = library->part->plan->wait_ms};
    dlock_hold *hold = NULL;
    must(library->part, dlock_acquire(library->lock, &want, &hold));
    must(library->part, dlock_release(hold, NULL));
}

static void *library_open(struct part *part)
{
    const struct plan *plan = part->plan;
    struct dlock_options options = {.size = sizeof options,
                                    .servers = &plan->url,
                                    .server_count = 1,
                                    .command_timeout_ms = 10000,
                                    .ttl_ms = plan->ttl_ms,
                                    .allow_flawed = true,
                                    .handoff_max = (size_t)plan->handoff_max};
    struct library *library = calloc(1, sizeof *library);
    if (library == NULL)
        part_give_up(part, "dlock: out of memory");
    library->part = part;
    must(part, dlock_client_open(&options, &library->client));
    must(part, dlock_open(library->client, plan->rung, LOCK_NAME, &library->lock));
    warm_up(library);
    return library;
}

static void library_close(void *client)
{
    struct library *library = client;
    dlock_close(library->lock);
    dlock_client_close(library->client);
    free(library);
}

static bool buyer_init(struct buyer *buyer, struct library *library, int number)
{
    buyer->library = library;
    buyer->number = number;
    buyer->read = dlock_batch_new();
    buyer->write = dlock_batch_new();
    buyer->want =
        (struct dlock_want){.size = sizeof buyer->want, .wait_ms = library->part->plan->wait_ms};
    if (library->part->plan->shape != SHAPE_PAIRS)
        buyer->want.reads = buyer->read;
    return buyer->read != NULL && buyer->write != NULL &&
           dlock_batch_add(buyer->read, 2, (const char *const[]){"GET", STOCK_KEY}, NULL) ==
               DLOCK_OK &&
           dlock_batch_add(buyer->write, 2, (const char *const[]){"DECR", STOCK_KEY}, NULL) ==
               DLOCK_OK;
}

static void buyer_free(struct buyer *buyer)
{
    dlock_batch_free(buyer->read);
    dlock_batch_free(buyer->write);
}

static bool complain(struct buyer *buyer, const char *what, dlock_status status)
{
    part_complain(buyer->library->part, "dlock: %s: %s: %s", what, dlock_status_name(status),
                  dlock_error());
    return false;
}

static bool look(struct buyer *buyer, int64_t *stock)
{
    struct dlock_reply reply = {.size = sizeof reply};
    dlock_status status = dlock_batch_reply(buyer->read, 0, &reply);
    if (status != DLOCK_OK || reply.kind != DLOCK_REPLY_TEXT)
        return complain(buyer, "the stock was not read", status);
    *stock = strtoll(reply.text, NULL, 10);
    return true;
}

static bool release(struct buyer *buyer, dlock_hold *hold, dlock_batch *last)
{
    dlock_status status = dlock_release(hold, last);
    return status == DLOCK_OK || complain(buyer, "release", status);
}

/* The critical section: from the acquired hold to its release. */
static void sell(struct buyer *buyer, dlock_hold *hold, struct sale *sale)
{
    struct dlock_reply left = {.size = sizeof left};
    int64_t stock = 0;
    sale->granted_ns = now_ns();
    if (!look(buyer, &stock) || stock <= 0) {
        if (release(buyer, hold, NULL) && stock == 0)
            sale->outcome = OUTCOME_SOLD_OUT;
        return;
    }
    if (!release(buyer, hold, buyer->write))
        return;
    if (dlock_batch_reply(buyer->write, 0, &left) != DLOCK_OK || left.kind != DLOCK_REPLY_INTEGER) {
        complain(buyer, "the stock was not written", DLOCK_OK);
        return;
    }
    sale->outcome = OUTCOME_SOLD;
    sale->overlapped = left.integer != stock - 1;
}

/* ---- A thread for each waiter ---- */

static void *waiter_open(void *client, int waiter)
{
    struct buyer *buyer = calloc(1, sizeof *buyer);
    if (buyer == NULL || buyer_init(buyer, client, waiter))
        return buyer;
    buyer_free(buyer);
    free(buyer);
    return NULL;
}

static void waiter_close(void *waiter)
{
    buyer_free(waiter);
    free(waiter);
}

static void buy(void *waiter, struct sale *sale)
{
    struct buyer *buyer = waiter;
    dlock_hold *hold = NULL;
    dlock_status status = dlock_acquire(buyer->library->lock, &buyer->want, &hold);
    if (status == DLOCK_OK)
        sell(buyer, hold, sale);
    else
        complain(buyer, "acquire", status);
}

static bool pair(void *waiter)
{
    struct buyer *buyer = waiter;
    dlock_hold *hold = NULL;
    dlock_status status = dlock_acquire(buyer->library->lock, NULL, &hold);
    if (status != DLOCK_OK)
        return complain(buyer, "acquire", status);
    return release(buyer, hold, NULL);
}

void run_dlock(struct part *part)
{
    static const struct blocking threads = {.open = library_open,
                                            .waiter_open = waiter_open,
                                            .buy = buy,
                                            .pair = pair,
                                            .waiter_close = waiter_close,
                                            .close = library_close};
    waiters_run(part, &threads);
}

/* ---- Asynchronously ---- */

/* All waiters of the process. */
struct party {
    atomic_int left; /* waiters that are not done yet */
    sem_t over;
};

static void had(void *arg, dlock_status status, dlock_hold *hold);

/* Starts the buyer's next turn, or ends the buyer. */
static void ask(struct buyer *buyer)
{
    struct part *part = buyer->library->part;
    while (part_next(part, buyer->number)) {
        buyer->asked_ns = now_ns();
        dlock_status status = dlock_acquire_start(buyer->library->lock, &buyer->want, had, buyer);
        if (status == DLOCK_OK)
            return;
        complain(buyer, "acquire", status);
        part_tally(part, buyer->number, buyer->asked_ns, &(struct sale){.outcome = OUTCOME_FAILED});
    }
    if (atomic_fetch_sub(&buyer->party->left, 1) == 1)
        sem_post(&buyer->party->over);
}

/* The completion, on one of the client's own threads. */
static void had(void *arg, dlock_status status, dlock_hold *hold)
{
    struct buyer *buyer = arg;
    struct sale sale = {.outcome = OUTCOME_FAILED};
    if (status != DLOCK_OK)
        complain(buyer, "acquire", status);
    else if (buyer->library->part->plan->shape != SHAPE_PAIRS)
        sell(buyer, hold, &sale);
    else if (release(buyer, hold, NULL))
        sale = (struct sale){.outcome = OUTCOME_SOLD, .granted_ns = now_ns()};
    part_tally(buyer->library->part, buyer->number, buyer->asked_ns, &sale);
    ask(buyer);
}

void run_dlock_async(struct part *part)
{
    struct library *library = library_open(part);
    struct party party;
    int count = part->plan->waiters;
    struct buyer *buyers = calloc((size_t)count, sizeof *buyers);
    sem_init(&party.over, 0, 0);
    atomic_init(&party.left, count);
    for (int i = 0; i < count; i++) {
        if (buyers == NULL || !buyer_init(&buyers[i], library, i))
            part_give_up(part, "dlock: out of memory for %d waiters", count);
        buyers[i].party = &party;
    }
    part_ready(part);
    gate_wait(part->start);
    for (int i = 0; i < count; i++)
        ask(&buyers[i]);
    while (sem_wait(&party.over) != 0)
        ;
    part_done(part);
    library_close(library);
    for (int i = 0; i < count; i++)
        buyer_free(&buyers[i]);
    free(buyers);
    sem_destroy(&party.over);
}
