/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine as a table. It answers later: what is asked begins in lock/queued, and goes on in
 * steps.c.
 */
#include "etcd_engine.h"

#include "dlock_etcd.h"
#include "etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_MS_LEAST 1000

/* ---- Clients --------------------------------------------------------------------------------- */

static const struct session_ops leases = {
    .kind = "lease",
    .request_size = sizeof(struct request),
    .place_size = sizeof(struct etcd_place),
    .queue_size = sizeof(struct etcd_queue),
    .start = etcd_start,
    .go = etcd_go,
    .wake = etcd_wake,
    .free_queue = watch_forget,
    .free_place = name_give_back,
};

static void curl_begin(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static dlock_status check_options(const struct dlock_options *options, size_t count)
{
    if (count != 1)
        return fail(DLOCK_INVALID,
                    "%zu servers; etcd has one URL, with all hosts of the cluster: "
                    "etcd://h1,h2,h3",
                    count);
    if (options->replicas_ack != DLOCK_REPLICAS_NONE)
        return fail(DLOCK_INVALID, "replicas_ack is of Redis; etcd confirms each write by a "
                                   "quorum, so leave it DLOCK_REPLICAS_NONE");
    if (options->sentinel_password != NULL)
        return fail(DLOCK_INVALID, "sentinel_password is of sentinel://; give etcd's login in "
                                   "the URL: etcd://user:password@host");
    if (options->ttl_ms != 0 && options->ttl_ms < LEASE_MS_LEAST)
        return fail(DLOCK_INVALID,
                    "ttl_ms is %lld; with etcd %d to %lld is right, in whole seconds: it is "
                    "rounded up",
                    (long long)options->ttl_ms, LEASE_MS_LEAST, (long long)TTL_MS_MOST);
    return DLOCK_OK;
}

static dlock_status open_lease(struct dlock_client *client, const char *const *urls, size_t count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    dlock_status status = check_options(&client->options, count);
    if (status != DLOCK_OK)
        return status;
    struct etcd *etcd = calloc(1, sizeof *etcd);
    if (etcd == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    pthread_once(&once, curl_begin);
    session_init(&etcd->base, &leases, client);
    TAILQ_INIT(&etcd->waiting);
    TAILQ_INIT(&etcd->flying);
    status = etcd_url_read(&etcd->url, urls[0]);
    if (status != DLOCK_OK) {
        session_free(&etcd->base);
        return status;
    }
    snprintf(etcd->base.name, sizeof etcd->base.name, "%s://%.200s",
             etcd->url.tls ? "etcds" : "etcd", etcd->url.hosts);
    strcpy(etcd->base.root, etcd->url.root);
    /* Not all clients ask the first member. */
    etcd->endpoint = strtoul(client->id, NULL, 16) % etcd->url.endpoint_count;
    client->engine_state = etcd;
    return DLOCK_OK;
}

static void stop(struct dlock_client *client)
{
    etcd_stop(session_of(client));
}

static void close_lease(struct dlock_client *client)
{
    struct etcd *etcd = etcd_of(session_of(client));
    unsigned char *slots = etcd->slots;
    etcd_url_free(&etcd->url);
    explicit_bzero(etcd->token, sizeof etcd->token);
    session_free(&etcd->base); /* its places give back their slots */
    free(slots);
    client->engine_state = NULL;
}

static dlock_status check_lock(const struct dlock_client *client, const struct rung_ops *ops,
                               const char *name)
{
    (void)client, (void)name;
    if (ops->engine == &engine_etcd)
        return DLOCK_OK;
    return fail(DLOCK_INVALID, "rung '%s' works with %s, and the client's servers are etcd",
                ops->name, ops->engine != NULL ? ops->engine->name : "Redis");
}

/* ---- The table ------------------------------------------------------------------------------- */

const struct dlock_engine engine_etcd = {
    .version = DLOCK_VERSION,
    .name = "etcd",
    .rung = &rung_etcd,
    .fallback_url = "etcd://127.0.0.1:2379",
    .open = open_lease,
    .stop = stop,
    .close = close_lease,
    .check_lock = check_lock,
    QUEUED_TABLE,
};

const struct rung_ops rung_etcd = {
    .name = "etcd",
    .engine = &engine_etcd,
    .traits = TRAIT_EXPIRES | TRAIT_TOKEN | TRAIT_REENTRANT,
    .contend = CONTEND_EACH,
};

const struct dlock_engine *dlock_etcd(void)
{
    return &engine_etcd;
}

uint64_t etcd_lease(struct dlock_client *client)
{
    struct etcd *etcd = etcd_of(session_of(client));
    pthread_mutex_lock(&etcd->base.mutex);
    uint64_t lease = etcd->lease;
    pthread_mutex_unlock(&etcd->base.mutex);
    return lease;
}
