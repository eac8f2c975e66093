/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a request: each sends something to ZooKeeper, and the request goes on when that is
 * answered. If the connection was lost, it begins anew: it finds its node again by the owner's
 * name.
 *     ACQUIRE  create and list; the first holds, others watch the one before
 *     LET_GO   delete
 *     WATCH    watch the node that holds
 *     EXTEND   write to it
 *     LOOK     list
 *     BREAK    list; delete the first
 * The session's mutex is held throughout. No function of ZooKeeper's that is called here waits.
 */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define PLACE_SESSIONS 2 /* a waiter that has not asked for so many sessions' time is dropped */
/* In a shorter session the proof of one write would hardly reach to the next (proof.h). */
#define TICKS_LEAST 3
#define IDENTITY_BYTES 16
#define LOOKS_PER_SESSION 2 /* a waiter asks so often, in case no watch reports */

static struct session *owner_of(const struct request *request)
{
    return request->queue->session;
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

static const char *path_of(const struct request *request, const char *node, char path[])
{
    snprintf(path, PATH_MAX_BYTES, "%s/%s", request->queue->path, node);
    return path;
}

/* Where the number begins that ZooKeeper's counter gave the node: behind "<owner>-". The counter
 * may have become negative. NULL: it is none of the library's nodes. */
static const char *digits_of(const char *node)
{
    const char *dash = strrchr(node, '-');
    if (dash == NULL || strlen(dash + 1) != strspn(dash + 1, "0123456789") || dash[1] == '\0')
        return NULL;
    return dash > node && dash[-1] == '-' ? dash : dash + 1;
}

/* The counter has 32 bits and wraps: so this is an order among nodes of one time. */
static bool is_before(const char *node, const char *other)
{
    uint32_t a = (uint32_t)strtol(digits_of(node), NULL, 10);
    uint32_t b = (uint32_t)strtol(digits_of(other), NULL, 10);
    return (int32_t)(a - b) < 0;
}

static bool is_of(const char *node, const char *owner)
{
    size_t size = strlen(owner);
    return strncmp(node, owner, size) == 0 && node[size] == '-' &&
           digits_of(node) == node + size + 1;
}

/* The last node before that one; NULL: there is none. */
static const char *last_before(const struct String_vector *nodes, const char *node)
{
    const char *found = NULL;
    for (int i = 0; i < nodes->count; i++)
        if (digits_of(nodes->data[i]) != NULL && is_before(nodes->data[i], node) &&
            (found == NULL || is_before(found, nodes->data[i])))
            found = nodes->data[i];
    return found;
}

static const char *first_of(const struct String_vector *nodes)
{
    const char *first = NULL;
    for (int i = 0; i < nodes->count; i++)
        if (digits_of(nodes->data[i]) != NULL &&
            (first == NULL || is_before(nodes->data[i], first)))
            first = nodes->data[i];
    return first;
}

/* The owner's node; the first, if there should be two. */
static const char *own_of(const struct String_vector *nodes, const char *owner)
{
    const char *own = NULL;
    for (int i = 0; i < nodes->count; i++)
        if (is_of(nodes->data[i], owner) && (own == NULL || is_before(nodes->data[i], own)))
            own = nodes->data[i];
    return own;
}

/* ---- Sending, and answers -------------------------------------------------------------------- */

static void note_sent(struct request *request, int rc)
{
    if (rc != ZOK)
        return;
    request->in_flight++;
    request->sent = true;
    owner_of(request)->commands++;
}

static int64_t now_sent(struct request *request)
{
    return request->sent_ns = boot_ns();
}

static void refused(struct request *request, int rc)
{
    request_answer(
        request, fail(DLOCK_REFUSED, "zk://%.200s: %s", owner_of(request)->url.hosts, zerror(rc)));
}

/* ZooKeeper's client calls back: the request, with the mutex. */
static struct request *landed(const void *data, int rc, bool write)
{
    struct request *request = (struct request *)(uintptr_t)data;
    struct session *session = owner_of(request);
    pthread_mutex_lock(&session->mutex);
    request->in_flight--;
    if (!session_is_no_answer(rc))
        session_heard(session, request->sent_ns, write && rc == ZOK);
    return request;
}

/* The end of a call-back. The request goes on, if somebody waits for it. Without an answer it goes
 * on when there is a connection. */
static void go_on(struct request *request, struct session *session, int rc)
{
    if (!request_is_wanted(request))
        request_settle(request);
    else if (!session_is_no_answer(rc) && request->in_flight == 0)
        request_go(request);
    session_unlock(session);
}

/* True: nobody waits for it, or nothing was answered. That was the end of the call-back. */
static bool has_no_result(struct request *request, struct session *session, int rc)
{
    if (request_is_wanted(request) && !session_is_no_answer(rc))
        return false;
    go_on(request, session, rc);
    return true;
}

static void place_is_gone(struct request *request, struct place *place)
{
    if (place != NULL)
        place_free(place);
    session_look(owner_of(request)); /* a new place of that owner may wait for it */
}

static void ignore(int rc, const void *data)
{
    (void)rc, (void)data;
}

/* ---- Acquire: its node ----------------------------------------------------------------------- */

static void is_made(int rc, const char *path, const void *data)
{
    (void)path;
    struct request *request = landed(data, rc, true);
    struct session *session = owner_of(request);
    bool made = rc == ZOK || rc == ZNODEEXISTS || session_is_no_answer(rc);
    if (made || !request_is_wanted(request)) {
        go_on(request, session, rc);
    } else {
        refused(request, rc);
        session_unlock(session);
    }
}

/* The queue's own node, which ZooKeeper deletes some time after it has become empty. */
static void make_queue(struct request *request)
{
    struct session *session = owner_of(request);
    session_make_above(session, request->queue->path);
    now_sent(request);
    note_sent(request, zoo_acreate(session->handle, request->queue->path, "", 0,
                                   session_access(session), ZOO_CONTAINER, is_made, request));
}

static void is_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
    struct request *request = landed(data, rc, true);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    request->create_rc = rc;
    if (rc == ZOK && place == NULL) { /* it has left meanwhile */
        zoo_adelete(session->handle, path, -1, ignore, NULL);
    } else if (rc == ZOK) {
        snprintf(place->node, sizeof place->node, "%s", strrchr(path, '/') + 1);
        place->czxid = (uint64_t)stat->czxid;
        place->doubtful = false;
    } else if (!session_is_no_answer(rc) && place != NULL) {
        place->doubtful = false;
    }
    go_on(request, session, rc); /* the list's answer comes next */
}

/* ---- Acquire: it is the first ---------------------------------------------------------------- */

static void begin_watch(struct request *acquire)
{
    struct request *request = request_new(acquire->queue, WATCH, acquire->owner);
    if (request == NULL)
        return; /* a break is noticed at the release */
    request->unasked = true;
    request_go(request);
}

static void has_acquired(struct request *request, struct place *place)
{
    const struct session *session = owner_of(request);
    struct exchange *exchange = request->exchange;
    struct dlock_hold *hold = exchange->hold;
    int64_t ends_ns =
        hold->hold_max_ms != 0 ? request->sent_ns + hold->hold_max_ms * NS_PER_MS : INT64_MAX;
    place->ends_ns = place->holds ? max_ns(place->ends_ns, ends_ns) : ends_ns;
    place->until_ns =
        min_ns(session->proof.counts_ns + session->granted_ms * NS_PER_MS, place->ends_ns);
    place->before[0] = '\0';
    hold->ttl_ms = session->granted_ms;
    hold->token = place->czxid;
    if (hold->wants_identity)
        hold->identity = session->identity;
    exchange->sent_ns = request->sent_ns;
    exchange->counts_ns = session->proof.counts_ns;
    exchange->unresolved = false;
    if (!place->holds) {
        place->holds = true;
        begin_watch(request);
    }
    request_answer(request, DLOCK_OK);
}

static void is_identity_read(int rc, const char *value, int size, const struct Stat *stat,
                             const void *data)
{
    (void)stat;
    struct request *request = landed(data, rc, false);
    struct session *session = owner_of(request);
    struct identity *identity = &session->identity;
    if (rc == ZOK && size > 0 && (size_t)size < sizeof identity->text) {
        memcpy(identity->text, value, (size_t)size);
        identity->text[size] = '\0';
    } else if (!session_is_no_answer(rc) && request_is_wanted(request)) {
        request_answer(request,
                       fail(DLOCK_REFUSED, "zk://%.200s: '%s" IDENTITY "': %s", session->url.hosts,
                            session->url.root,
                            rc == ZOK ? "its value is not one of this library" : zerror(rc)));
        session_unlock(session);
        return;
    }
    go_on(request, session, rc);
}

/* The first client that asks creates the node. All later ones read the same value. It is random: a
 * client that creates the node again, after the servers have lost it, must not give it the value
 * that it had. */
static void read_identity(struct request *request)
{
    struct session *session = owner_of(request);
    char path[PATH_MAX_BYTES], value[2 * IDENTITY_BYTES + 1];
    unsigned char bytes[IDENTITY_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
        request_answer(request, fail(DLOCK_NO_MEMORY, "the system gives no random bytes"));
        return;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        sprintf(value + 2 * i, "%02x", bytes[i]);
    snprintf(path, sizeof path, "%s" IDENTITY, session->url.root);
    now_sent(request);
    zoo_acreate(session->handle, path, value, (int)strlen(value), session_access(session),
                ZOO_PERSISTENT, session_ignore, NULL);
    note_sent(request, zoo_aget(session->handle, path, 0, is_identity_read, request));
}

static void is_own_read(int rc, const char *value, int size, const struct Stat *stat,
                        const void *data)
{
    (void)value, (void)size;
    struct request *request = landed(data, rc, false);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    if (place != NULL && rc == ZOK)
        place->czxid = (uint64_t)stat->czxid;
    if (place != NULL && rc == ZNONODE)
        place->node[0] = '\0';
    go_on(request, session, rc);
}

/* It needs the node's number, the ensemble's identity, and a proof that its session lives. */
static void is_first(struct request *request, struct place *place)
{
    struct session *session = owner_of(request);
    char path[PATH_MAX_BYTES];
    if (place->czxid == 0) {
        now_sent(request);
        note_sent(request, zoo_aget(session->handle, path_of(request, place->node, path), 0,
                                    is_own_read, request));
    } else if (request->exchange->hold->wants_identity && session->identity.text[0] == '\0') {
        read_identity(request);
    } else if (session_valid_until(session) <= boot_ns()) {
        request->first = true; /* session_has_time calls it */
    } else {
        has_acquired(request, place);
    }
}

/* ---- Acquire: it is not the first ------------------------------------------------------------ */

/* The node before is still there, and its end will be told: the attempt keeps its place. */
static void is_watched(int rc, const struct String_vector *children, const void *data)
{
    (void)children;
    struct request *request = landed(data, rc, false);
    struct session *session = owner_of(request);
    if (request_is_wanted(request) && rc == ZOK) {
        request->exchange->busy->kind = WAIT_CHANNEL;
        request->exchange->busy->again_ms = session->granted_ms / LOOKS_PER_SESSION;
        request->exchange->unresolved = false;
        request_answer(request, fail(DLOCK_BUSY, "another holder has the lock"));
        session_unlock(session);
    } else if (request_is_wanted(request) && rc != ZNONODE && !session_is_no_answer(rc)) {
        refused(request, rc);
        session_unlock(session);
    } else {
        go_on(request, session, rc);
    }
}

/* By its children, of which it has none: this watch reports its end, but no write to it. And it
 * does not remain if the node is gone, as one by zoo_aexists would. */
static void watch_before(struct request *request, struct place *place, const char *node)
{
    char path[PATH_MAX_BYTES];
    snprintf(place->before, sizeof place->before, "%s", node);
    now_sent(request);
    note_sent(request, zoo_aget_children(owner_of(request)->handle, path_of(request, node, path), 1,
                                         is_watched, request));
}

/* An attempt that knows the queue. Its node may be gone, by a break: then it is created anew. */
static void find_place(struct request *request, const struct String_vector *nodes)
{
    struct place *place = place_of(request->queue, request->owner);
    const char *own = own_of(nodes, request->owner);
    if (place == NULL || own == NULL) {
        if (place != NULL)
            *place->node = '\0';
        if (place != NULL)
            place->doubtful = false;
        request_go(request);
        return;
    }
    if (strcmp(place->node, own) != 0)
        place->czxid = 0;
    snprintf(place->node, sizeof place->node, "%s", own);
    place->doubtful = false;
    const char *before = last_before(nodes, own);
    if (before != NULL)
        watch_before(request, place, before);
    else
        is_first(request, place);
}

/* ---- Writing, and watching ------------------------------------------------------------------- */

static void is_lost(struct request *request, struct place *place)
{
    struct queue *queue = request->queue;
    if (queue->lock != NULL)
        timekeeper_lose_owner(queue->lock, request->owner);
    place_is_gone(request, place);
    request_answer(request, fail(DLOCK_LOST, "its node is gone"));
}

static void is_written(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    struct request *request = landed(data, rc, true);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    if (has_no_result(request, session, rc))
        return;
    if (rc == ZOK && session_valid_until(session) > boot_ns()) {
        request->call->counts_ns = session->proof.counts_ns;
        request_answer(request, DLOCK_OK);
    } else if (rc == ZOK) {
        request_answer(request, fail(DLOCK_UNKNOWN,
                                     "zk://%.200s has not proven yet that the "
                                     "session lives",
                                     session->url.hosts));
    } else if (rc == ZNONODE) {
        is_lost(request, place);
    } else {
        refused(request, rc);
    }
    session_unlock(session);
}

static void write_to(struct request *request, const struct place *place, stat_completion_t answered)
{
    char path[PATH_MAX_BYTES];
    now_sent(request);
    note_sent(request, zoo_aset(owner_of(request)->handle, path_of(request, place->node, path), "",
                                0, -1, answered, request));
}

static void is_own_watched(int rc, const struct String_vector *children, const void *data)
{
    (void)children;
    struct request *request = landed(data, rc, false);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    if (session_is_no_answer(rc)) {
        go_on(request, session, rc);
        return;
    }
    if (rc == ZNONODE && place != NULL && place->holds && !place->leaving)
        place->lost = true;
    session_look(session);
    request_answer(request, DLOCK_OK);
    session_unlock(session);
}

static void watch_own(struct request *request, const struct place *place)
{
    char path[PATH_MAX_BYTES];
    now_sent(request);
    note_sent(request,
              zoo_aget_children(owner_of(request)->handle, path_of(request, place->node, path), 1,
                                is_own_watched, request));
}

/* ---- Letting go ------------------------------------------------------------------------------ */

static void is_gone(struct request *request, struct place *place, bool deleted)
{
    const struct exchange *exchange = request->exchange;
    place_is_gone(request, place);
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
    struct request *request = landed(data, rc, true);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    bool gone = rc == ZOK || rc == ZNONODE;
    request->repeated |= session_is_no_answer(rc);
    if (!request_is_wanted(request) || session_is_no_answer(rc)) {
        if (gone)
            place_is_gone(request, place);
        go_on(request, session, rc);
        return;
    }
    if (gone)
        is_gone(request, place, rc == ZOK || request->repeated);
    else
        refused(request, rc);
    session_unlock(session);
}

static void delete (struct request *request, const char *node)
{
    char path[PATH_MAX_BYTES];
    now_sent(request);
    if (request->exchange != NULL)
        request->exchange->sent_ns = request->sent_ns;
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
             (int)(digits_of(first) - 1 - first), first);
}

/* It is deleted once: who is the first after a lost answer is another. */
static void is_broken(int rc, const void *data)
{
    struct request *request = landed(data, rc, true);
    struct session *session = owner_of(request);
    if (!request_is_wanted(request))
        request_settle(request);
    else if (rc == ZOK || rc == ZNONODE)
        request_answer(request, DLOCK_OK);
    else if (session_is_no_answer(rc))
        request_answer(request,
                       fail(DLOCK_UNKNOWN, "zk://%.200s: %s", session->url.hosts, zerror(rc)));
    else
        refused(request, rc);
    session_unlock(session);
}

static void break_first(struct request *request, const char *first)
{
    char path[PATH_MAX_BYTES];
    now_sent(request);
    note_sent(request, zoo_adelete(owner_of(request)->handle, path_of(request, first, path), -1,
                                   is_broken, request));
}

/* ---- The list -------------------------------------------------------------------------------- */

static void listed_to_acquire(struct request *request, int rc, const struct String_vector *nodes)
{
    if (request->create_rc != ZOK && request->create_rc != ZNONODE)
        refused(request, request->create_rc);
    else if (rc == ZNONODE || request->create_rc == ZNONODE)
        make_queue(request);
    else
        find_place(request, nodes);
}

static void listed_to_let_go(struct request *request, const struct String_vector *nodes)
{
    const char *own = own_of(nodes, request->owner);
    if (own != NULL)
        delete (request, own);
    else
        is_gone(request, place_of(request->queue, request->owner), request->repeated);
}

static void listed_to_look(struct request *request, const struct String_vector *nodes)
{
    const char *first = first_of(nodes);
    look_at(request, first);
    if (request->what == BREAK && first != NULL)
        break_first(request, first);
    else
        request_answer(request, DLOCK_OK);
}

static void is_listed(int rc, const struct String_vector *nodes, const void *data)
{
    static const struct String_vector nobody;
    struct request *request = landed(data, rc, false);
    struct session *session = owner_of(request);
    if (rc == ZNONODE)
        nodes = &nobody;
    if (has_no_result(request, session, rc))
        return;
    if (rc != ZOK && rc != ZNONODE)
        refused(request, rc);
    else if (request->what == ACQUIRE)
        listed_to_acquire(request, rc, nodes);
    else if (request->what == LET_GO)
        listed_to_let_go(request, nodes);
    else
        listed_to_look(request, nodes);
    session_unlock(session);
}

static void list(struct request *request)
{
    note_sent(request, zoo_aget_children(owner_of(request)->handle, request->queue->path, 0,
                                         is_listed, request));
}

/* For what an earlier connection carried, or another client did: the server may lag behind. What an
 * earlier connection carried comes before, or never: the leader refuses it from a server that the
 * session has left. */
static void sync_and_list(struct request *request)
{
    struct session *session = owner_of(request);
    now_sent(request);
    session->commands +=
        zoo_async(session->handle, request->queue->path, session_ignore, NULL) == ZOK;
    list(request);
}

/* Both in one write: ZooKeeper answers a session's requests in order. */
static void create_and_list(struct request *request, struct place *place)
{
    const struct session *session = owner_of(request);
    char path[PATH_MAX_BYTES], prefix[OWNER_MAX + 1];
    snprintf(prefix, sizeof prefix, "%s-", request->owner);
    place->doubtful = true;
    now_sent(request);
    note_sent(request,
              zoo_acreate2(session->handle, path_of(request, prefix, path), "", 0,
                           session_access(session), ZOO_EPHEMERAL_SEQUENTIAL, is_created, request));
    list(request);
}

/* ---- The first step -------------------------------------------------------------------------- */

static struct place *take_place(struct request *request)
{
    struct place *place = place_of(request->queue, request->owner);
    if (place == NULL) {
        place = calloc(1, sizeof *place);
        if (place == NULL)
            return NULL;
        strcpy(place->owner, request->owner);
        LIST_INSERT_HEAD(&request->queue->places, place, of_queue);
    }
    place->acquisition = request->exchange->hold->acquisition;
    place->until_ns = boot_ns() + PLACE_SESSIONS * owner_of(request)->granted_ms * NS_PER_MS;
    place->ends_ns = INT64_MAX;
    return place;
}

/* All holds of a client live as long as its session: false, with the request's answer, if another
 * time to live is wanted, or the servers grant less. */
static bool has_right_time(struct request *request)
{
    const struct session *session = owner_of(request);
    const struct dlock_hold *hold = request->exchange->hold;
    bool limited = hold->hold_max_ms != 0 && hold->ttl_ms == hold->hold_max_ms;
    if (session->granted_ms < session->asked_ms) {
        request_answer(request,
                       fail(DLOCK_INVALID,
                            "ttl_ms is %d, and zk://%.200s grants sessions of at most "
                            "%lld ms",
                            session->asked_ms, session->url.hosts, (long long)session->granted_ms));
        return false;
    }
    if (session->granted_ms < TICKS_LEAST * session->url.tick_ms) {
        request_answer(request,
                       fail(DLOCK_INVALID,
                            "ttl_ms is %lld, and tick_ms %lld; a session of at least %d ticks is "
                            "right, or '?tick_ms=N' in the URL, as the servers' tickTime is",
                            (long long)session->granted_ms, (long long)session->url.tick_ms,
                            TICKS_LEAST));
        return false;
    }
    if (limited || hold->ttl_ms == session->asked_ms || hold->ttl_ms == session->granted_ms)
        return true;
    request_answer(request,
                   fail(DLOCK_INVALID,
                        "want.ttl_ms is %lld, but all holds of a client live as long as its "
                        "session, %lld ms; leave it 0, or set options.ttl_ms",
                        (long long)hold->ttl_ms, (long long)session->granted_ms));
    return false;
}

static bool still_holds(const struct request *request, const struct place *place)
{
    return place != NULL && place->holds && !place->leaving && !place->lost &&
           session_valid_until(owner_of(request)) > boot_ns();
}

/* The token remains the node's: the number of this write is above those of waiters, which have
 * their nodes already. */
static void has_nested(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    struct request *request = landed(data, rc, true);
    struct session *session = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    if (has_no_result(request, session, rc))
        return;
    if (rc == ZOK && still_holds(request, place))
        has_acquired(request, place);
    else if (rc == ZOK || rc == ZNONODE)
        request_answer(request, fail(DLOCK_BUSY, "its owner no longer has the lock"));
    else
        refused(request, rc);
    session_unlock(session);
}

/* It waited with a node of its own before its owner got the lock. */
static void leave_own_place(const struct request *request)
{
    struct place *place, *next;
    for (place = LIST_FIRST(&request->queue->places); place != NULL; place = next) {
        next = LIST_NEXT(place, of_queue);
        if (place->acquisition == request->exchange->hold->acquisition && !place->holds &&
            !place->leaving)
            place_leave(request->queue, place);
    }
}

/* Its owner has the lock, if its node is still there. */
static void nest(struct request *request, const struct place *place)
{
    leave_own_place(request);
    if (still_holds(request, place))
        write_to(request, place, has_nested);
    else
        request_answer(request, fail(DLOCK_BUSY, "its owner no longer has the lock"));
}

static void acquire(struct request *request)
{
    struct place *place = place_of(request->queue, request->owner);
    request->first = false;
    if (place != NULL && (place->leaving || place->lost))
        return; /* until it is gone: the delete that is under way would take this one */
    if (!has_right_time(request))
        return;
    if (request->exchange->hold->depth > 1) {
        nest(request, place);
        return;
    }
    place = take_place(request);
    request->create_rc = ZOK;
    if (place == NULL)
        request_answer(request, fail(DLOCK_NO_MEMORY, "out of memory"));
    else if (place->node[0] == '\0' && !place->doubtful)
        create_and_list(request, place);
    else if (place->node[0] == '\0')
        sync_and_list(request);
    else
        now_sent(request), list(request);
}

static void let_go(struct request *request, struct place *place)
{
    const struct exchange *exchange = request->exchange;
    if (exchange != NULL && exchange->hold->depth > 1) { /* its owner keeps it */
        bool held = place != NULL && place->holds && !place->lost;
        request_answer(request,
                       held ? DLOCK_OK : fail(DLOCK_LOST, "its owner no longer has the lock"));
        return;
    }
    if (request->unasked && (place == NULL || !place->leaving)) {
        request_answer(request, DLOCK_OK); /* its place went with its session; this is another */
        return;
    }
    if (place == NULL || place->lost) {
        is_gone(request, place, false);
        return;
    }
    place->leaving = true;
    if (place->node[0] != '\0')
        delete (request, place->node);
    else
        sync_and_list(request);
}

void request_go(struct request *request)
{
    struct place *place = place_of(request->queue, request->owner);
    if (!owner_of(request)->connected)
        return;
    switch (request->what) {
    case ACQUIRE:
        acquire(request);
        break;
    case LET_GO:
        let_go(request, place);
        break;
    case WATCH:
        if (place != NULL && place->holds && !place->leaving && !place->lost)
            watch_own(request, place);
        else
            request_answer(request, DLOCK_OK);
        break;
    case EXTEND:
        if (place != NULL && place->holds && !place->lost)
            write_to(request, place, is_written);
        else
            is_lost(request, place);
        break;
    default:
        sync_and_list(request);
    }
}
