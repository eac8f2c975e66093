/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a request: each sends one thing to ZooKeeper, and is gone on with when that is
 * answered. What has lost its connection begins anew: it finds its node again by the owner's name.
 *     ACQUIRE  create; list; the first writes to its node, and holds; others watch the one before
 *     LET_GO   delete
 *     RENEW    write
 *     LOOK     list
 *     BREAK    list; delete the first
 * With the session's mutex throughout; no function of ZooKeeper's that is called here waits.
 */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#define PLACE_SESSIONS 2 /* a waiter that has not asked for so many sessions' time is dropped */

static struct session *owner_of(const struct request *request)
{
    return request->queue->session;
}

/* It was sent, or it waits for a connection. */
static void note_sent(struct request *request, int rc)
{
    if (rc != ZOK)
        return;
    request->in_flight = request->sent = true;
    owner_of(request)->commands++;
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

static const char *path_of(const struct request *request, const char *node, char path[])
{
    snprintf(path, PATH_MAX_BYTES, "%s/%s", request->queue->path, node);
    return path;
}

/* The order in the queue: ZooKeeper's counter, behind the last '-'. */
static long number_of(const char *node)
{
    const char *dash = strrchr(node, '-');
    return dash != NULL ? strtol(dash + 1, NULL, 10) : -1;
}

static bool is_of(const char *node, const char *owner)
{
    size_t size = strlen(owner);
    return strncmp(node, owner, size) == 0 && strrchr(node, '-') == node + size;
}

/* The last one before that number; NULL: there is none. */
static const char *last_before(const struct String_vector *nodes, long number)
{
    const char *found = NULL;
    for (int i = 0; i < nodes->count; i++)
        if (number_of(nodes->data[i]) < number &&
            (found == NULL || number_of(nodes->data[i]) > number_of(found)))
            found = nodes->data[i];
    return found;
}

static const char *first_of(const struct String_vector *nodes)
{
    const char *first = NULL;
    for (int i = 0; i < nodes->count; i++)
        if (first == NULL || number_of(nodes->data[i]) < number_of(first))
            first = nodes->data[i];
    return first;
}

static const char *own_of(const struct String_vector *nodes, const char *owner)
{
    for (int i = 0; i < nodes->count; i++)
        if (is_of(nodes->data[i], owner))
            return nodes->data[i];
    return NULL;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Nothing is known of what was asked: it is asked again on the next connection. */
static bool is_no_answer(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZCLOSING ||
           rc == ZSESSIONEXPIRED || rc == ZSESSIONMOVED || rc == ZINVALIDSTATE;
}

static void refused(struct request *request, int rc)
{
    request_answer(request, fail(DLOCK_REFUSED, "zookeeper://%.200s: %s", owner_of(request)->hosts,
                                 zerror(rc)));
}

/* The library of ZooKeeper calls back: the request, with the mutex. NULL: nobody waits for it. */
static struct request *landed(const void *data)
{
    struct request *request = (struct request *)(uintptr_t)data;
    pthread_mutex_lock(&owner_of(request)->mutex);
    request->in_flight = false;
    return request;
}

/* The end of a call-back. again: the request goes on, if anybody waits for it. */
static void go_on(struct request *request, struct session *session, bool again)
{
    if (again && request_is_wanted(request))
        request_go(request);
    else if (again)
        request_settle(request);
    session_unlock(session);
}

/* ---- Acquire --------------------------------------------------------------------------------- */

static void is_made(int rc, const char *path, const void *data)
{
    (void)path;
    struct request *request = landed(data);
    struct session *session = owner_of(request);
    bool made = rc == ZOK || rc == ZNODEEXISTS;
    if (!made && !is_no_answer(rc) && request_is_wanted(request)) {
        refused(request, rc);
        session_unlock(session);
    } else {
        go_on(request, session, made);
    }
}

static void ignore_name(int rc, const char *path, const void *data)
{
    (void)rc, (void)path, (void)data;
}

static void ignore(int rc, const void *data)
{
    (void)rc, (void)data;
}

/* The queue's own node, which ZooKeeper deletes some time after it has become empty. */
static void make_queue(struct request *request)
{
    zhandle_t *handle = owner_of(request)->handle;
    zoo_acreate(handle, ROOT, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, ignore_name, NULL);
    note_sent(request, zoo_acreate(handle, request->queue->path, "", 0, &ZOO_OPEN_ACL_UNSAFE,
                                   ZOO_CONTAINER, is_made, request));
}

static void is_created(int rc, const char *path, const void *data)
{
    struct request *request = landed(data);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    if (rc == ZOK && place == NULL) { /* it has left meanwhile */
        zoo_adelete(session->handle, path, -1, ignore, NULL);
    } else if (rc == ZOK) {
        snprintf(place->node, sizeof place->node, "%s", strrchr(path, '/') + 1);
        place->doubtful = false;
    } else if (!is_no_answer(rc) && place != NULL) {
        place->doubtful = false;
    }
    if (rc == ZNONODE && request_is_wanted(request)) {
        make_queue(request);
        session_unlock(session);
    } else if (rc != ZOK && !is_no_answer(rc) && request_is_wanted(request)) {
        refused(request, rc);
        session_unlock(session);
    } else {
        go_on(request, session, true);
    }
}

static void create(struct request *request, struct place *place)
{
    char path[PATH_MAX_BYTES], prefix[OWNER_MAX + 1];
    snprintf(prefix, sizeof prefix, "%s-", request->owner);
    place->doubtful = true;
    note_sent(request,
              zoo_acreate(owner_of(request)->handle, path_of(request, prefix, path), "", 0,
                          &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, is_created, request));
}

/* The node before is still there, and its end will be told: the attempt keeps its place. */
static void is_watched(int rc, const struct String_vector *children, const void *data)
{
    (void)children;
    struct request *request = landed(data);
    struct session *session = owner_of(request);
    if (request_is_wanted(request) && rc == ZOK) {
        request->exchange->busy->kind = WAIT_CHANNEL;
        request->exchange->busy->again_ms = session->granted_ms / 2;
        request->exchange->unresolved = false;
        request_answer(request, fail(DLOCK_BUSY, "another holder has the lock"));
        session_unlock(session);
    } else if (request_is_wanted(request) && rc != ZNONODE && !is_no_answer(rc)) {
        refused(request, rc);
        session_unlock(session);
    } else {
        go_on(request, session, true);
    }
}

/* By its children, of which it has none: this watch is told of its end, but not of each write to
 * it, as that of zoo_aexists would be. */
static void watch_before(struct request *request, const char *node)
{
    char path[PATH_MAX_BYTES];
    note_sent(request, zoo_aget_children(owner_of(request)->handle, path_of(request, node, path), 1,
                                         is_watched, request));
}

/* ---- Writing to an own node: it exists, and the session lives -------------------------------- */

static void has_acquired(struct request *request, struct place *place, const struct Stat *stat)
{
    struct exchange *exchange = request->exchange;
    place_holds(place, request->sent_ns);
    exchange->hold->token = (uint64_t)stat->czxid;
    exchange->sent_ns = request->sent_ns;
    exchange->unresolved = false;
    request_answer(request, DLOCK_OK);
}

/* What nobody holds any more is not kept: its time runs out. */
static void has_renewed(struct request *request, struct place *place)
{
    int64_t until_ns = place->until_ns;
    place_holds(place, request->sent_ns);
    if (request->queue->lock == NULL ||
        !timekeeper_extend_owner(request->queue->lock, request->owner, request->sent_ns,
                                 place->ttl_ms))
        place->until_ns = until_ns;
    request_answer(request, DLOCK_OK);
}

static void is_lost(struct request *request, struct place *place)
{
    if (place != NULL)
        place_free(place);
    if (request->queue->lock != NULL)
        timekeeper_lose_owner(request->queue->lock, request->owner);
    request_answer(request, fail(DLOCK_LOST, "its node is gone"));
}

static void is_written(int rc, const struct Stat *stat, const void *data)
{
    struct request *request = landed(data);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    bool acquires = request->what == ACQUIRE;
    bool over = request_is_wanted(request);
    if (place != NULL && !acquires)
        place->renewing = false;
    if (over && rc == ZOK && place != NULL && acquires) {
        has_acquired(request, place, stat);
    } else if (over && rc == ZOK && place != NULL) {
        has_renewed(request, place);
    } else if (over && !acquires && rc == ZNONODE) {
        is_lost(request, place);
    } else if (over && !is_no_answer(rc) && rc != ZNONODE && rc != ZOK) {
        refused(request, rc);
    } else if (over && request->unasked) { /* the thread asks again */
        request_answer(request, DLOCK_UNKNOWN);
    } else {
        if (rc == ZNONODE && place != NULL)
            place->node[0] = '\0';
        go_on(request, session, !is_no_answer(rc) || !over);
        return;
    }
    session_unlock(session);
}

static void write_to(struct request *request, const struct place *place)
{
    char path[PATH_MAX_BYTES];
    request->sent_ns = boot_ns();
    note_sent(request, zoo_aset(owner_of(request)->handle, path_of(request, place->node, path), "",
                                0, -1, is_written, request));
}

/* ---- Letting go ------------------------------------------------------------------------------ */

static void is_gone(struct request *request, struct place *place, bool deleted)
{
    const struct exchange *exchange = request->exchange;
    if (place != NULL)
        place_free(place);
    if (deleted || exchange == NULL || exchange->step == STEP_GIVE_UP)
        request_answer(request, DLOCK_OK);
    else if (request->repeated)
        request_answer(request, fail(DLOCK_UNKNOWN,
                                     "'%s' is free, but whether it was released "
                                     "before its session ended is not known",
                                     exchange->hold->key));
    else
        request_answer(request, fail(DLOCK_LOST, "its node is gone"));
}

static void is_deleted(int rc, const void *data)
{
    struct request *request = landed(data);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    request->repeated |= is_no_answer(rc);
    if ((rc == ZOK || rc == ZNONODE) && !request_is_wanted(request)) {
        if (place != NULL)
            place_free(place);
        go_on(request, session, true);
    } else if (!request_is_wanted(request) || is_no_answer(rc)) {
        go_on(request, session, !request_is_wanted(request));
    } else {
        if (rc == ZOK || rc == ZNONODE)
            is_gone(request, place, rc == ZOK || request->repeated);
        else
            refused(request, rc);
        session_unlock(session);
    }
}

static void delete (struct request *request, const char *node)
{
    char path[PATH_MAX_BYTES];
    if (request->exchange != NULL)
        request->exchange->sent_ns = boot_ns();
    note_sent(request, zoo_adelete(owner_of(request)->handle, path_of(request, node, path), -1,
                                   is_deleted, request));
}

/* ---- Looking --------------------------------------------------------------------------------- */

static void look_at(struct request *request, const char *first)
{
    struct look *look = request->call->look;
    if (first == NULL)
        return;
    look->holder.held = true;
    look->holder.ttl_ms = -1; /* as long as its session */
    snprintf(look->holder.owner, sizeof look->holder.owner, "%.*s",
             (int)(strrchr(first, '-') - first), first);
}

/* It is deleted once: who is the first after a lost answer is another. */
static void is_broken(int rc, const void *data)
{
    struct request *request = landed(data);
    struct session *session = owner_of(request);
    if (!request_is_wanted(request))
        request_settle(request);
    else if (rc == ZOK || rc == ZNONODE)
        request_answer(request, DLOCK_OK);
    else if (is_no_answer(rc))
        request_answer(request,
                       fail(DLOCK_UNKNOWN, "zookeeper://%.200s: %s", session->hosts, zerror(rc)));
    else
        refused(request, rc);
    session_unlock(session);
}

static void break_first(struct request *request, const char *first)
{
    char path[PATH_MAX_BYTES];
    note_sent(request, zoo_adelete(owner_of(request)->handle, path_of(request, first, path), -1,
                                   is_broken, request));
}

/* ---- The list -------------------------------------------------------------------------------- */

/* An attempt that knows the queue. Its node may be gone, by a break: then it is created anew. */
static void find_place(struct request *request, const struct String_vector *nodes)
{
    struct place *place = place_of(request->queue, request->owner);
    const char *own = own_of(nodes, request->owner);
    if (place != NULL)
        snprintf(place->node, sizeof place->node, "%s", own != NULL ? own : "");
    if (place != NULL)
        place->doubtful = false;
    const char *before = own != NULL ? last_before(nodes, number_of(own)) : NULL;
    if (place == NULL || own == NULL)
        request_go(request);
    else if (before != NULL)
        watch_before(request, before);
    else
        write_to(request, place);
}

static void is_listed(int rc, const struct String_vector *nodes, const void *data)
{
    static const struct String_vector nobody;
    struct request *request = landed(data);
    struct session *session = owner_of(request);
    if (rc == ZNONODE)
        nodes = &nobody;
    if (!request_is_wanted(request) || is_no_answer(rc)) {
        go_on(request, session, !request_is_wanted(request));
        return;
    }
    const char *first = rc == ZOK || rc == ZNONODE ? first_of(nodes) : NULL;
    struct place *place = place_of(request->queue, request->owner);
    if (rc != ZOK && rc != ZNONODE) {
        refused(request, rc);
    } else if (request->what == ACQUIRE) {
        find_place(request, nodes);
    } else if (request->what == LET_GO) {
        const char *own = own_of(nodes, request->owner);
        if (own != NULL)
            delete (request, own);
        else
            is_gone(request, place, request->repeated);
    } else {
        look_at(request, first);
        if (request->what == BREAK && first != NULL)
            break_first(request, first);
        else
            request_answer(request, DLOCK_OK);
    }
    session_unlock(session);
}

static void list(struct request *request)
{
    note_sent(request, zoo_aget_children(owner_of(request)->handle, request->queue->path, 0,
                                         is_listed, request));
}

/* ---- The first step -------------------------------------------------------------------------- */

static struct place *take_place(struct request *request)
{
    struct place *place = place_of(request->queue, request->owner);
    if (place == NULL)
        place = calloc(1, sizeof *place);
    else
        LIST_REMOVE(place, of_queue);
    if (place == NULL)
        return NULL;
    strcpy(place->owner, request->owner);
    place->ttl_ms = request->exchange->hold->ttl_ms;
    place->until_ns = boot_ns() + PLACE_SESSIONS * owner_of(request)->granted_ms * NS_PER_MS;
    place->renew_ns = INT64_MAX;
    LIST_INSERT_HEAD(&request->queue->places, place, of_queue);
    return place;
}

static void acquire(struct request *request)
{
    const struct session *session = owner_of(request);
    const struct place *old = place_of(request->queue, request->owner);
    if (old != NULL && old->dropped)
        return; /* until it is gone, or the delete that is under way would take this one */
    int64_t ttl_ms = request->exchange->hold->ttl_ms;
    if (ttl_ms > session->granted_ms) {
        request_answer(request,
                       fail(DLOCK_INVALID,
                            "ttl_ms is %lld, and a session with "
                            "zookeeper://%.200s lives %lld ms without a "
                            "word; up to that is right",
                            (long long)ttl_ms, session->hosts, (long long)session->granted_ms));
        return;
    }
    struct place *place = take_place(request);
    if (place == NULL)
        request_answer(request, fail(DLOCK_NO_MEMORY, "out of memory"));
    else if (place->node[0] != '\0' || place->doubtful)
        list(request);
    else
        create(request, place);
}

/* The session's own request has outlived the session: its place is gone, and its owner may have
 * another one by now. */
static bool is_outlived(const struct request *request, const struct place *place)
{
    if (!request->unasked)
        return false;
    return place == NULL ||
           (request->what == LET_GO ? !place->dropped : place->renew_ns == INT64_MAX);
}

void request_go(struct request *request)
{
    struct place *place = place_of(request->queue, request->owner);
    if (!owner_of(request)->connected)
        return;
    if (is_outlived(request, place)) {
        request_answer(request, DLOCK_OK);
        return;
    }
    if (request->what == LET_GO && place != NULL)
        place->renew_ns = INT64_MAX;
    switch (request->what) {
    case ACQUIRE:
        acquire(request);
        break;
    case LET_GO:
        if (place == NULL)
            is_gone(request, NULL, false);
        else if (place->node[0] != '\0')
            delete (request, place->node);
        else
            list(request);
        break;
    case RENEW:
        if (place != NULL)
            write_to(request, place);
        else
            is_lost(request, NULL);
        break;
    default:
        list(request);
    }
}
