/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine as a table. It answers later: what is asked begins here, and goes on in steps.c.
 */
#include "zookeeper_engine.h"

#include "dlock_zookeeper.h"
#include "zk_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Clients --------------------------------------------------------------------------------- */

static void wake(struct session *session)
{
    pthread_cond_broadcast(&session->changed);
}

static const struct session_ops sessions = {
    .kind = "session",
    .request_size = sizeof(struct zk_request),
    .place_size = sizeof(struct zk_place),
    .queue_size = sizeof(struct zk_queue),
    .start = zk_start,
    .go = zk_go,
    .wake = wake,
};

static dlock_status check_options(const struct dlock_options *options, size_t count)
{
    if (count != 1)
        return fail(DLOCK_INVALID,
                    "%zu servers; ZooKeeper has one URL, with all hosts of the ensemble: "
                    "zk://h1,h2,h3",
                    count);
    if (options->replicas_ack != DLOCK_REPLICAS_NONE)
        return fail(DLOCK_INVALID, "replicas_ack is of Redis; ZooKeeper confirms each write by a "
                                   "quorum, so leave it DLOCK_REPLICAS_NONE");
    if (options->sentinel_password != NULL)
        return fail(DLOCK_INVALID, "sentinel_password is of sentinel://; give ZooKeeper's login in "
                                   "the URL: zk://user:password@host");
    return DLOCK_OK;
}

static dlock_status open_session(struct dlock_client *client, const char *const *urls, size_t count)
{
    const struct dlock_options *options = &client->options;
    dlock_status status = check_options(options, count);
    if (status != DLOCK_OK)
        return status;
    struct zk_session *zk = calloc(1, sizeof *zk);
    if (zk == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    session_init(&zk->base, &sessions, client);
    status = zk_url_read(&zk->url, urls[0]);
    if (status != DLOCK_OK) {
        session_free(&zk->base);
        return status;
    }
    snprintf(zk->base.name, sizeof zk->base.name, "zk://%.200s", zk->url.hosts);
    strcpy(zk->base.root, zk->url.root);
    zk->proof.tick_ns = zk->url.tick_ms * NS_PER_MS;
    client->engine_state = zk;
    return DLOCK_OK;
}

static void stop(struct dlock_client *client)
{
    zk_stop(session_of(client));
}

static void close_session(struct dlock_client *client)
{
    struct session *session = session_of(client);
    zk_url_free(&zk_of(session)->url);
    session_free(session);
    client->engine_state = NULL;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

static dlock_status check_lock(const struct dlock_client *client, const struct rung_ops *ops,
                               const char *name)
{
    (void)client, (void)name;
    if (ops->engine == &engine_zookeeper)
        return DLOCK_OK;
    return fail(DLOCK_INVALID, "rung '%s' works with %s, and the client's servers are ZooKeeper",
                ops->name, ops->engine != NULL ? ops->engine->name : "Redis");
}

/* ---- The table ------------------------------------------------------------------------------- */

const struct dlock_engine engine_zookeeper = {
    .version = DLOCK_VERSION,
    .name = "ZooKeeper",
    .rung = &rung_zookeeper,
    .fallback_url = "zk://127.0.0.1:2181",
    .open = open_session,
    .stop = stop,
    .close = close_session,
    .check_lock = check_lock,
    QUEUED_TABLE,
};

const struct rung_ops rung_zookeeper = {
    .name = "zookeeper",
    .engine = &engine_zookeeper,
    .traits = TRAIT_EXPIRES | TRAIT_TOKEN | TRAIT_REENTRANT,
    .contend = CONTEND_EACH,
};

const struct dlock_engine *dlock_zookeeper(void)
{
    return &engine_zookeeper;
}

clientid_t zookeeper_session(struct dlock_client *client)
{
    struct zk_session *zk = zk_of(session_of(client));
    pthread_mutex_lock(&zk->base.mutex);
    clientid_t id = {0};
    if (zk->handle != NULL)
        id = *zoo_client_id(zk->handle);
    pthread_mutex_unlock(&zk->base.mutex);
    return id;
}
