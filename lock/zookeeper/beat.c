/* SPDX-License-Identifier: Apache-2.0
 *
 * The session's own node, "<root>/clients/<client id>", and the writes to it: while a lock is open,
 * their answers prove that the session lives (proof.h).
 */
#include "zk_session.h"

#include <stdio.h>

#define BEATS_PER_TIMEOUT 6

static void beat_path(const struct zk_session *zk, char path[])
{
    snprintf(path, PATH_MAX_BYTES, "%s" CLIENTS "/%s", zk->url.root, zk->base.client->id);
}

/* On a thread of ZooKeeper's client. */
static void beat_answered(struct zk_session *zk, int rc)
{
    struct beat *beat = &zk->beat;
    pthread_mutex_lock(&zk->base.mutex);
    beat->under_way = false;
    if (rc == ZNONODE && beat->made) /* an operator deleted it */
        beat->sent_ns = 0;
    if (!zk_is_no_answer(rc))
        beat->made = rc == ZOK || rc == ZNODEEXISTS;
    if (!zk_is_no_answer(rc))
        zk_heard(zk, beat->sent_ns, rc == ZOK);
    if (!zk_is_no_answer(rc)) /* a refusal may last */
        snprintf(zk->base.trouble, sizeof zk->base.trouble, "%s",
                 rc == ZOK || rc == ZNODEEXISTS || rc == ZNONODE ? "" : zerror(rc));
    session_look(&zk->base);
    session_unlock(&zk->base);
}

static void is_set(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    beat_answered((struct zk_session *)(uintptr_t)data, rc);
}

static void is_created(int rc, const char *path, const void *data)
{
    (void)path;
    beat_answered((struct zk_session *)(uintptr_t)data, rc);
}

static void beat_send(struct zk_session *zk, int64_t now_ns)
{
    struct beat *beat = &zk->beat;
    char path[PATH_MAX_BYTES];
    int rc;
    beat_path(zk, path);
    beat->sent_ns = now_ns;
    if (beat->made) {
        rc = zoo_aset(zk->handle, path, "", 0, -1, is_set, zk);
    } else {
        zk_make_above(zk, path);
        rc = zoo_acreate(zk->handle, path, "", 0, zk_access(zk), ZOO_EPHEMERAL, is_created, zk);
    }
    beat->under_way = rc == ZOK;
    zk->base.commands += rc == ZOK;
}

/* A server that hangs is told long before ZooKeeper's client gives the connection up. */
static int64_t await_answer(struct zk_session *zk, int64_t now_ns)
{
    const int64_t limit_ms = zk->base.client->options.command_timeout_ms;
    const int64_t due_ns = zk->beat.sent_ns + limit_ms * NS_PER_MS;
    if (zk->beat.sent_ns == 0) /* of the connection before this one */
        return INT64_MAX;
    if (now_ns < due_ns)
        return due_ns;
    session_tell(&zk->base, true, "a request was not answered in time");
    return INT64_MAX;
}

int64_t beat_go(struct zk_session *zk, int64_t now_ns)
{
    const struct beat *beat = &zk->beat;
    const int64_t pause_ns = zk->base.granted_ms * NS_PER_MS / BEATS_PER_TIMEOUT;
    const bool proven = session_valid_until(&zk->base) > now_ns;
    if (!zk->base.connected || zk->base.open_locks == 0)
        return INT64_MAX;
    if (beat->under_way)
        return await_answer(zk, now_ns);
    if (beat->sent_ns == 0 || now_ns >= proof_due(&zk->proof, beat->sent_ns, pause_ns, proven))
        beat_send(zk, now_ns);
    return beat->under_way ? await_answer(zk, now_ns)
                           : proof_due(&zk->proof, beat->sent_ns, pause_ns, proven);
}
