/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a running instance, their start and their stop.
 *
 * The threads:
 *
 *   HTTP        two threads for the shop, one for the admin listener; they never block
 *   sales       --workers threads run sales
 *   reads       two threads read the stock without a lock, for buyers
 *   waits       one thread looks again for the outcomes of queued sales, for those who wait for
 *               them (queue_head.h): so other reads are never behind them
 *   queues      four threads process the items' queues (--on-conflict queue): so entries take no
 *               place of a buyer's request
 *   aside       two threads run operators' requests that wait for Redis, so that neither a
 *               slow Redis nor many buyers delay operators
 *   timekeepers one for each of these five pools: it resumes sales after --work-ms, and
 *               expires requests that waited too long
 *   failpoints  one, if there are failpoints: it ends stays
 *   outages     one for each Redis server and each ensemble: it checks whether that is away
 *   looks       while GET /readyz asks a lock's servers, one for each of them
 *   history     one, if there is a history: it detects stalls of the machine
 *   library     those of one lock client, see docs/design/threads.md; one more for the Redis
 *               servers of --lock-servers, and one for each ensemble
 *   main        waits for signals
 *
 * A request belongs to one of them at a time. workers_push() gives it to a worker, http_answer()
 * gives it back. If its sale is suspended, it belongs to no thread, see sale.h.
 *
 * A mutex of the service is held neither while another one is taken nor while a call blocks. There
 * are five exceptions. The history's mutex is held for the write() of a line. The mutexes of the
 * history, the failpoints and the outages may be held for a line of the log. The mode's mutex is
 * held while the history records a switch, or a sale that was refused during it. A host's mutex is
 * held while its lookup's is taken. The mutex of the shared connections is held while one that the
 * server has closed is closed here, too.
 */
#ifndef SERVICE_H
#define SERVICE_H

#include "idempotency.h"
#include "listeners.h"
#include "queue_head.h"
#include "queue_worker.h"
#include "sale.h"
#include "workers.h"

struct service {
    struct config config;
    struct mode mode;
    struct sale_env env;
    struct lock_owner_pool lock_owner_pool;
    struct epochs epochs;
    struct lock_servers locks[LOCK_ROLES]; /* by lock_servers_role; count 0: not given */
    struct idempotency keys;               /* keys of sales in flight */
    atomic_long waiting;                   /* acquires not answered yet; see env.waiting */
    atomic_long changes;                   /* changes of the stock that are not answered yet */
    struct store_server *stock_server;
    struct queue_worker *queue;
    struct queue_heads *heads;
    struct workers *sales;
    struct workers *reads;
    struct workers *waits;
    struct workers *queues;
    struct workers *aside;
    struct readiness {
        pthread_mutex_t mutex; /* protects what is below */
        bool looking;
        struct request *waiting; /* for the result of the current check */
    } readiness;
    struct listeners listeners;
    atomic_bool draining;
};

#define SERVICE_ERROR_MAX PROCESS_ERROR_MAX

/* Takes over the config, also on failure. False: error[] says why. */
bool service_start(struct service *service, struct config *config, char error[SERVICE_ERROR_MAX]);
/* How long a sale's critical section may take: its business time, and its commands to slow
 * servers. */
int64_t service_section_ms(const struct config *config);
/* Turns readiness off, accepts no more sales, and waits until those in flight are answered. It
 * cancels waits for locks early enough. False: --drain-ms was not enough. */
bool service_drain(struct service *service);
/* Releases what is held, and frees all but the config. May block as long as servers hang. */
void service_stop(struct service *service);

/* The key for the write that changes nothing, which checks whether that server accepts writes. It
 * is the key of an item named readyz; with --keys article, of the only item. */
const char *service_probe_key(const struct service *service, enum server_role role);

/* Prints the further members of a history's `begin` line, for that setting. */
void service_begin_members(const struct service *service, const struct setting *setting, char *text,
                           size_t size);

#endif
