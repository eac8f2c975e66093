/* SPDX-License-Identifier: Apache-2.0
 *
 * The session's own node, "<root>/clients/<client id>", and the writes to it: while a lock is open,
 * their answers prove that the session lives (proof.h).
 */
#include "session.h"

#include <stdio.h>

#define BEATS_PER_TIMEOUT 6

static void beat_path(const struct session *session, char path[])
{
    snprintf(path, PATH_MAX_BYTES, "%s" CLIENTS "/%s", session->url.root, session->client->id);
}

/* On a thread of ZooKeeper's client. */
static void beat_answered(struct session *session, int rc)
{
    struct beat *beat = &session->beat;
    pthread_mutex_lock(&session->mutex);
    beat->under_way = false;
    if (rc == ZNONODE && beat->made) /* an operator deleted it */
        beat->sent_ns = 0;
    if (!session_is_no_answer(rc))
        beat->made = rc == ZOK || rc == ZNODEEXISTS;
    if (!session_is_no_answer(rc))
        session_heard(session, beat->sent_ns, rc == ZOK);
    session_look(session);
    session_unlock(session);
}

static void is_set(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    beat_answered((struct session *)(uintptr_t)data, rc);
}

static void is_created(int rc, const char *path, const void *data)
{
    (void)path;
    beat_answered((struct session *)(uintptr_t)data, rc);
}

static void beat_send(struct session *session, int64_t now_ns)
{
    struct beat *beat = &session->beat;
    char path[PATH_MAX_BYTES];
    int rc;
    beat_path(session, path);
    beat->sent_ns = now_ns;
    if (beat->made) {
        rc = zoo_aset(session->handle, path, "", 0, -1, is_set, session);
    } else {
        session_make_above(session, path);
        rc = zoo_acreate(session->handle, path, "", 0, session_access(session), ZOO_EPHEMERAL,
                         is_created, session);
    }
    beat->under_way = rc == ZOK;
    session->commands += rc == ZOK;
}

int64_t beat_go(struct session *session, int64_t now_ns)
{
    const struct beat *beat = &session->beat;
    int64_t pause_ns = session->granted_ms * NS_PER_MS / BEATS_PER_TIMEOUT;
    if (!session->connected || session->open_locks == 0 || beat->under_way)
        return INT64_MAX;
    if (beat->sent_ns == 0 || now_ns - beat->sent_ns >= pause_ns)
        beat_send(session, now_ns);
    return beat->under_way ? INT64_MAX : beat->sent_ns + pause_ns;
}
