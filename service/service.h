/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a running instance, and how they are started and stopped.
 *
 * Threads: two for the shop and one for the admin listener read and write HTTP and never block;
 * --workers sell, and two more stand aside for what waits for Redis but not for locks; one for
 * each of these pools keeps time: it resumes sales whose business is done, and sorts out requests
 * that waited too long; one watches over sales that stay at failpoints, where there are any; one of
 * the lock library's renews, and up to three wait for locks, for all sales; one looks a Redis' host
 * name up, when a connection is to be made; one of the history's ticks, when there is a history;
 * main waits for signals.
 *
 * A request belongs to one of them at a time: handed on by workers_push(), handed back by
 * http_answer(). One whose sale is suspended belongs to no thread, see sale.h. No mutex of ours is
 * held while another one is taken or while a call blocks, the history's excepted, which is held for
 * the write() of a line, and a host's, under which its look-up's is taken.
 */
#ifndef SERVICE_H
#define SERVICE_H

#include "http.h"
#include "idempotency.h"
#include "sale.h"
#include "workers.h"

#define ADMIN_CONNECTIONS 64

struct service {
    struct config config;
    struct mode mode;
    struct sale_env env;
    struct lock_owner_pool lock_owner_pool;
    struct idempotency keys; /* of sales in flight */
    atomic_long waiting;     /* for locks: the env's */
    atomic_long changes;     /* of the stock, that are not answered yet */
    struct stock_server *stock_server;
    struct stock_server *lock_server; /* only to see whether it is there; NULL: as stock_server */
    struct workers *sales;
    struct workers *aside;
    struct readiness {
        pthread_mutex_t mutex; /* protects what is below */
        bool looking;
        struct request *waiting; /* for what the look under way finds */
    } readiness;
    struct http *shop;
    struct http *admin; /* NULL: off */
    atomic_bool draining;
};

#define SERVICE_ERROR_MAX 512

/* The config is taken over, success or not. False: error[] says why. */
bool service_start(struct service *service, struct config *config, char error[SERVICE_ERROR_MAX]);
/* The log and the history go on in new files where somebody has moved theirs away. */
void service_reopen(struct service *service);
/* How long a sale's critical section may take: its work, and its commands to slow servers. */
int64_t service_section_ms(const struct config *config);
/* Turns readiness off, takes no more sales, and waits until those in flight are answered; waits for
 * locks are cancelled in time. False: --drain-ms was not enough. */
bool service_drain(struct service *service);
void service_stop(struct service *service);

/* A key for a write that writes nothing, to see whether that server takes writes. No item has it,
 * except with --keys article, where there is one key. */
const char *service_probe_key(const struct service *service, enum redis_role role);

/* The further members of a history's first line, for that setting. */
void service_begin_members(const struct service *service, const struct setting *setting, char *text,
                           size_t size);

#endif
