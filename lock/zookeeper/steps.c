/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a request: each sends something to ZooKeeper, and the request goes on when that is
 * answered. If the connection was lost, it begins anew: it finds its node again by the owner's
 * name.
 *     ACQUIRE  create and list; the first holds, others watch the one before. A call's only
 *              attempt lists before that: it creates its node only if nobody is there. It deletes
 *              the node at once if that is not the first
 *     LET_GO   delete
 *     WATCH    watch the node that holds
 *     EXTEND   write to it
 *     LOOK     list
 *     BREAK    list; delete the first
 * The session's mutex is held throughout. No function of ZooKeeper's that is called here waits.
 */
#include "zk_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define TICKS_LEAST 3
#define NO_CONNECTION UINT64_MAX
#define NUMBER_MAX (INT32_MAX - (1 << 24)) /* of a node that may hold */
#define REST_MS_LEAST 200
#define REST_MS_MOST 1000
#define VANISHED_MAX 3 /* identities, in one acquire */

static struct zk_session *owner_of(const struct request *request)
{
    return zk_of(request->queue->session);
}

static struct zk_request *zk_request_of(struct request *request)
{
    return (struct zk_request *)request;
}

static struct zk_queue *queue_of(const struct request *request)
{
    return (struct zk_queue *)request->queue;
}

static int *create_rc_of(struct request *request)
{
    return &zk_request_of(request)->create_rc;
}

static uint64_t *connection_of(struct request *request)
{
    return &zk_request_of(request)->connection;
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

static int32_t number_of(const char *node)
{
    return (int32_t)strtol(digits_of(node), NULL, 10);
}

/* The counter of a queue has 32 bits. Servers up to 3.5 let it wrap. Later ones give its greatest
 * number again and again: DataTree.createNode() does not set it to a smaller one. */
static bool is_used_up(const char *node)
{
    return number_of(node) < 0 || number_of(node) > NUMBER_MAX;
}

/* Those that are used up come last. None of them holds. */
static bool is_before(const char *node, const char *other)
{
    return (uint32_t)number_of(node) < (uint32_t)number_of(other);
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

/* The owner's node: that one, or the first, if that one is not known or gone. It may be one of an
 * earlier session, which the servers still keep after the client has given it up. */
static const char *own_of(const struct String_vector *nodes, const char *owner, const char *known)
{
    const char *own = NULL;
    for (int i = 0; i < nodes->count; i++)
        if (strcmp(nodes->data[i], known) == 0)
            return nodes->data[i];
        else if (is_of(nodes->data[i], owner) && (own == NULL || is_before(nodes->data[i], own)))
            own = nodes->data[i];
    return own;
}

/* ---- Sending, and answers -------------------------------------------------------------------- */

/* ZooKeeper's client sends nothing then, and may call back all the same. */
static void has_no_memory(struct request *request)
{
    request->in_flight++;
    request->launched_ns = INT64_MAX; /* nobody waits for the server */
    if (request_is_wanted(request))
        request_answer(request, fail(request->what == ACQUIRE ? DLOCK_NO_MEMORY
                                     : request->repeated      ? DLOCK_UNKNOWN
                                                              : DLOCK_UNREACHABLE,
                                     "out of memory"));
}

/* The place that the request leaves; NULL: none. */
static struct zk_place *left_by(const struct request *request)
{
    return request->what == LET_GO ? (struct zk_place *)place_of(request->queue, request->owner)
                                   : NULL;
}

static void note_sent(struct request *request, int rc)
{
    struct zk_place *left = left_by(request);
    if (rc == ZMARSHALLINGERROR && left != NULL)
        left->leave = NULL; /* nobody may ever be told of its end */
    if (rc == ZMARSHALLINGERROR)
        has_no_memory(request);
    if (rc != ZOK)
        return;
    if (left != NULL && request_is_wanted(request))
        left->leave = request;
    request->in_flight++;
    request->sent = true;
    owner_of(request)->base.commands++;
}

static int64_t now_sent(struct request *request)
{
    *connection_of(request) = owner_of(request)->base.connects;
    return request->sent_ns = request->launched_ns = boot_ns();
}

/* Of several that were sent together, the first ones may be lost, and the last one be carried by
 * the next connection: its answer says nothing of them. */
static bool was_torn(struct request *request)
{
    return *connection_of(request) != owner_of(request)->base.connects;
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
    struct zk_session *zk = owner_of(request);
    pthread_mutex_lock(&zk->base.mutex);
    request->in_flight--;
    struct zk_place *left = left_by(request);
    if (left != NULL && left->leave == request && request->in_flight == 0) {
        left->leave = NULL;
        session_look(&zk->base); /* another one may wait for that */
    }
    if (request_is_late(request)) /* acquires may wait for that */
        session_look(&zk->base);
    if (!zk_is_no_answer(rc))
        zk_heard(zk, request->sent_ns, write && rc == ZOK);
    return request;
}

/* The end of a call-back. The request goes on, if somebody waits for it. Without an answer it goes
 * on when there is a connection. */
static void go_on(struct request *request, struct zk_session *zk, int rc)
{
    if (!request_is_wanted(request))
        request_settle(request);
    else if (!zk_is_no_answer(rc) && request->in_flight == 0)
        zk_go(request);
    session_unlock(&zk->base);
}

/* True: nobody waits for it, or nothing was answered. That was the end of the call-back. */
static bool has_no_result(struct request *request, struct zk_session *zk, int rc)
{
    if (request_is_wanted(request) && !zk_is_no_answer(rc))
        return false;
    go_on(request, zk, rc);
    return true;
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
    struct zk_session *zk = owner_of(request);
    bool goes_on = rc == ZOK || rc == ZNODEEXISTS || zk_is_no_answer(rc) || was_torn(request);
    if (goes_on || !request_is_wanted(request)) {
        go_on(request, zk, rc);
    } else {
        refused(request, rc);
        session_unlock(&zk->base);
    }
}

/* The queue's own node, which ZooKeeper deletes some time after it has become empty. */
static void make_queue(struct request *request)
{
    struct zk_session *zk = owner_of(request);
    zk_make_above(zk, request->queue->path);
    now_sent(request);
    note_sent(request, zoo_acreate(zk->handle, request->queue->path, "", 0, zk_access(zk),
                                   ZOO_CONTAINER, is_made, request));
}

static void is_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
    struct request *request = landed(data, rc, true);
    struct zk_session *zk = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    *create_rc_of(request) = rc;
    if (rc == ZOK && place == NULL) { /* it has left meanwhile */
        zoo_adelete(zk->handle, path, -1, ignore, NULL);
    } else if (rc == ZOK) {
        snprintf(place->node, sizeof place->node, "%s", strrchr(path, '/') + 1);
        place->number = (uint64_t)stat->czxid;
        place->doubtful = false;
    } else if (!zk_is_no_answer(rc) && place != NULL) {
        place->doubtful = false;
    }
    go_on(request, zk, rc); /* the list's answer comes next */
}

/* ---- Acquire: it is the first ---------------------------------------------------------------- */

static void begin_watch(struct request *acquire)
{
    struct request *request = request_new(acquire->queue, WATCH, acquire->owner);
    if (request == NULL)
        return; /* a break is noticed at the release */
    request->unasked = true;
    zk_go(request);
}

static void has_acquired(struct request *request, struct place *place)
{
    if (claim_is_granted(request, place))
        begin_watch(request);
}

static void is_identity_read(int rc, const char *value, int size, const struct Stat *stat,
                             const void *data)
{
    (void)stat;
    struct request *request = landed(data, rc, false);
    struct zk_session *zk = owner_of(request);
    struct identity *identity = &zk->base.identity;
    if (rc == ZOK && size > 0 && (size_t)size < sizeof identity->text) {
        memcpy(identity->text, value, (size_t)size);
        identity->text[size] = '\0';
    } else if (rc == ZNONODE && ++zk_request_of(request)->vanished < VANISHED_MAX) {
        ; /* it was deleted after it was made, or found: it is made again */
    } else if (!zk_is_no_answer(rc) && request_is_wanted(request) && !was_torn(request)) {
        request_answer(request,
                       fail(DLOCK_REFUSED, "zk://%.200s: '%s" IDENTITY "': %s", zk->url.hosts,
                            zk->url.root,
                            rc == ZOK ? "its value is not one of this library" : zerror(rc)));
        session_unlock(&zk->base);
        return;
    }
    go_on(request, zk, rc);
}

/* The first client that asks creates the node. All later ones read the same value, and watch it. */
static void read_identity(struct request *request)
{
    struct zk_session *zk = owner_of(request);
    char path[PATH_MAX_BYTES], value[IDENTITY_TEXT_MAX];
    if (!claim_draws_identity(value)) {
        request_answer(request, fail(DLOCK_NO_MEMORY, "the system gives no random bytes"));
        return;
    }
    snprintf(path, sizeof path, "%s" IDENTITY, zk->url.root);
    now_sent(request);
    zoo_acreate(zk->handle, path, value, (int)strlen(value), zk_access(zk), ZOO_PERSISTENT,
                zk_ignore, NULL);
    note_sent(request, zoo_aget(zk->handle, path, 1, is_identity_read, request));
}

/* A node of an earlier session is deleted, since it ends when that one does. The owner then looks
 * for another: the create whose answer was lost may have made it. */
static void is_own_read(int rc, const char *value, int size, const struct Stat *stat,
                        const void *data)
{
    (void)value, (void)size;
    struct request *request = landed(data, rc, false);
    struct zk_session *zk = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    char path[PATH_MAX_BYTES];
    if (place != NULL && rc == ZOK && zk->handle != NULL) {
        if (stat->ephemeralOwner == zoo_client_id(zk->handle)->client_id) {
            place->number = (uint64_t)stat->czxid;
        } else {
            zoo_adelete(zk->handle, path_of(request, place->node, path), -1, ignore, NULL);
            place->node[0] = '\0';
            place->doubtful = true;
        }
    }
    if (place != NULL && rc == ZNONODE) { /* perhaps a node of an earlier session */
        place->node[0] = '\0';
        place->doubtful = true;
    }
    if (rc != ZOK && rc != ZNONODE && !zk_is_no_answer(rc) && request_is_wanted(request)) {
        refused(request, rc);
        session_unlock(&zk->base);
        return;
    }
    go_on(request, zk, rc);
}

/* It needs the node's number, the ensemble's identity, and a proof that its session lives. */
static void is_first(struct request *request, struct place *place)
{
    struct zk_session *zk = owner_of(request);
    char path[PATH_MAX_BYTES];
    if (place->number == 0) {
        now_sent(request);
        note_sent(request, zoo_aget(zk->handle, path_of(request, place->node, path), 0, is_own_read,
                                    request));
    } else if (claim_lacks_identity(request, place)) {
        read_identity(request);
    } else if (session_valid_until(&zk->base) <= boot_ns()) {
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
    struct zk_session *zk = owner_of(request);
    if (request_is_wanted(request) && rc == ZOK) {
        claim_is_busy(request);
        session_unlock(&zk->base);
    } else if (request_is_wanted(request) && rc != ZNONODE && !zk_is_no_answer(rc)) {
        refused(request, rc);
        session_unlock(&zk->base);
    } else {
        go_on(request, zk, rc);
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

static void is_other_deleted(int rc, const void *data)
{
    struct request *request = landed(data, rc, true);
    struct zk_session *zk = owner_of(request);
    if (rc == ZOK || rc == ZNONODE || zk_is_no_answer(rc) || !request_is_wanted(request)) {
        go_on(request, zk, rc);
        return;
    }
    refused(request, rc);
    session_unlock(&zk->base);
}

/* The owner needs one node. It has another one if a server that lagged behind did not have the
 * first one yet. False: there are others, and the request goes on when they are deleted. */
static bool is_only_one(struct request *request, const struct String_vector *nodes, const char *own)
{
    char path[PATH_MAX_BYTES];
    bool is_only = true;
    for (int i = 0; i < nodes->count; i++)
        if (is_of(nodes->data[i], request->owner) && strcmp(nodes->data[i], own) != 0) {
            if (is_only) /* a time behind the first of these would prove too much */
                now_sent(request);
            note_sent(request,
                      zoo_adelete(owner_of(request)->handle, path_of(request, nodes->data[i], path),
                                  -1, is_other_deleted, request));
            is_only = false;
        }
    return is_only;
}

/* Who would enter the queue is told BUSY, and nothing is sent. */
static void rest(struct request *request)
{
    struct busy *busy = request->exchange->busy;
    int64_t left_ns = queue_of(request)->rests_until_ns - boot_ns();
    busy->kind = WAIT_CHANNEL;
    busy->again_ms = left_ns / NS_PER_MS + 1;
    busy->says = true;
    request->exchange->unresolved = false;
    request_answer(request, fail(DLOCK_BUSY,
                                 "zk://%.200s: the queue '%.200s' has no number left; it begins "
                                 "anew once nobody is in it",
                                 owner_of(request)->url.hosts, request->queue->path));
}

/* Of all clients that do so, each rests for another time: the queue is empty in between. */
static void begin_rest(struct zk_queue *queue)
{
    unsigned short random = 0;
    if (getrandom(&random, sizeof random, 0) < 0)
        random = 0;
    int64_t rest_ms = REST_MS_LEAST + random % (REST_MS_MOST - REST_MS_LEAST + 1);
    queue->rests_until_ns = boot_ns() + rest_ms * NS_PER_MS;
}

/* The queue has no number left. Each waiter that notices this deletes its node, and its client
 * rests. The last one deletes the queue, too. The next waiter creates it again, with numbers from
 * 0. */
static void leave_used_up(struct request *request, struct place *place)
{
    struct zk_session *zk = owner_of(request);
    place_leave(request->queue, place);
    zoo_adelete(zk->handle, request->queue->path, -1, ignore, NULL); /* unless there are others */
    if (queue_of(request)->rests_until_ns <= boot_ns())
        begin_rest(queue_of(request));
    rest(request);
}

/* Of another owner. (A session that was given up may have left a node of the same.) */
static bool is_anybody_there(const struct request *request, const struct String_vector *nodes)
{
    for (int i = 0; i < nodes->count; i++)
        if (digits_of(nodes->data[i]) != NULL && !is_of(nodes->data[i], request->owner))
            return true;
    return false;
}

/* A try that knows the queue, and has no node in it. */
static void enter_if_empty(struct request *request, const struct String_vector *nodes)
{
    if (is_anybody_there(request, nodes)) {
        claim_is_busy(request);
        return;
    }
    zk_request_of(request)->has_looked = true;
    zk_go(request);
}

/* An attempt that knows the queue. Its node may be gone, by a break: then it is created anew. */
static void find_place(struct request *request, const struct String_vector *nodes)
{
    struct place *place = place_of(request->queue, request->owner);
    const char *own = own_of(nodes, request->owner, place != NULL ? place->node : "");
    if (place != NULL && (place->leaving || place->lost)) {
        zk_go(request); /* it waits until it is gone */
        return;
    }
    if (place == NULL || own == NULL) {
        if (place != NULL)
            *place->node = '\0';
        if (place != NULL)
            place->doubtful = false;
        zk_go(request);
        return;
    }
    if (strcmp(place->node, own) != 0)
        place->number = 0;
    snprintf(place->node, sizeof place->node, "%s", own);
    place->doubtful = false;
    if (place->number != 0 && !is_only_one(request, nodes, own))
        return;
    const char *before = last_before(nodes, own);
    if (is_used_up(own))
        leave_used_up(request, place);
    else if (before != NULL && claim_is_try(request))
        claim_is_busy(request);
    else if (before != NULL)
        watch_before(request, place, before);
    else
        is_first(request, place);
}

/* ---- Writing, and watching ------------------------------------------------------------------- */

static void is_written(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    struct request *request = landed(data, rc, true);
    struct zk_session *zk = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    if (has_no_result(request, zk, rc))
        return;
    if (rc == ZOK && session_valid_until(&zk->base) > boot_ns()) {
        claim_is_extended(request, place);
    } else if (rc == ZOK) {
        request_answer(request, fail(DLOCK_UNKNOWN,
                                     "zk://%.200s has not proven yet that the "
                                     "session lives",
                                     zk->url.hosts));
    } else if (rc == ZNONODE) {
        claim_is_lost(request, place);
    } else {
        refused(request, rc);
    }
    session_unlock(&zk->base);
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
    struct zk_session *zk = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    if (zk_is_no_answer(rc)) {
        go_on(request, zk, rc);
        return;
    }
    if (rc == ZNONODE && place != NULL && place->holds && !place->leaving)
        place->lost = true;
    session_look(&zk->base);
    request_answer(request, DLOCK_OK);
    session_unlock(&zk->base);
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

static void is_deleted(int rc, const void *data)
{
    struct request *request = landed(data, rc, true);
    struct zk_session *zk = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    bool gone = rc == ZOK || rc == ZNONODE;
    request->repeated |= zk_is_no_answer(rc);
    if (!request_is_wanted(request) || zk_is_no_answer(rc)) {
        if (gone && place != NULL && place->node[0] != '\0') /* else: see below */
            claim_forget(request, place);
        go_on(request, zk, rc);
        return;
    }
    if (gone && place != NULL && place->node[0] == '\0') { /* is there another of its name? */
        request->repeated = true;
        go_on(request, zk, rc);
        return;
    }
    if (gone)
        claim_is_gone(request, place, rc == ZOK || request->repeated);
    else
        refused(request, rc);
    session_unlock(&zk->base);
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
    look->holder.held = false; /* a break may have found one before */
    look->holder.owner[0] = '\0';
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
    struct zk_session *zk = owner_of(request);
    if (!request_is_wanted(request))
        request_settle(request);
    else if (rc == ZOK || rc == ZNONODE)
        request_answer(request, DLOCK_OK);
    else if (zk_is_no_answer(rc))
        request_answer(request, fail(DLOCK_UNKNOWN, "zk://%.200s: %s", zk->url.hosts, zerror(rc)));
    else
        refused(request, rc);
    session_unlock(&zk->base);
}

static void break_first(struct request *request, const char *first)
{
    char path[PATH_MAX_BYTES];
    now_sent(request);
    zk_request_of(request)->breaks = true;
    note_sent(request, zoo_adelete(owner_of(request)->handle, path_of(request, first, path), -1,
                                   is_broken, request));
}

/* ---- The list -------------------------------------------------------------------------------- */

static void listed_to_acquire(struct request *request, int rc, const struct String_vector *nodes)
{
    if (*create_rc_of(request) != ZOK && *create_rc_of(request) != ZNONODE)
        refused(request, *create_rc_of(request));
    else if (zk_request_of(request)->looks)
        enter_if_empty(request, nodes);
    else if (rc == ZNONODE || *create_rc_of(request) == ZNONODE)
        make_queue(request);
    else
        find_place(request, nodes);
}

static void listed_to_let_go(struct request *request, const struct String_vector *nodes)
{
    const char *own = own_of(nodes, request->owner, "");
    if (own != NULL)
        delete (request, own);
    else
        claim_is_gone(request, place_of(request->queue, request->owner), request->repeated);
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
    struct zk_session *zk = owner_of(request);
    if (rc == ZNONODE)
        nodes = &nobody;
    if (has_no_result(request, zk, rc))
        return;
    if (was_torn(request) || zk_is_no_answer(*create_rc_of(request)))
        zk_go(request);
    else if (rc != ZOK && rc != ZNONODE)
        refused(request, rc);
    else if (request->what == ACQUIRE)
        listed_to_acquire(request, rc, nodes);
    else if (request->what == LET_GO)
        listed_to_let_go(request, nodes);
    else
        listed_to_look(request, nodes);
    session_unlock(&zk->base);
}

static void list(struct request *request)
{
    note_sent(request, zoo_aget_children(owner_of(request)->handle, request->queue->path, 0,
                                         is_listed, request));
}

/* rc: of sending what comes before the list. Without that the list would say nothing. */
static void list_behind(struct request *request, int rc)
{
    if (rc != ZOK)
        *connection_of(request) = NO_CONNECTION;
    note_sent(request, rc);
    list(request);
}

/* Without it the list would say nothing. */
static void is_synced(int rc, const char *path, const void *data)
{
    (void)path;
    struct request *request = landed(data, rc, false);
    if (rc != ZOK)
        *connection_of(request) = NO_CONNECTION;
    go_on(request, owner_of(request), rc);
}

/* For what an earlier connection carried, or another client did: the server may lag behind. What an
 * earlier connection carried comes before, or never: the leader refuses it from a server that the
 * session has left. */
static void sync_and_list(struct request *request)
{
    now_sent(request);
    list_behind(request,
                zoo_async(owner_of(request)->handle, request->queue->path, is_synced, request));
}

static void is_past(int rc, const void *data)
{
    struct request *request = landed(data, rc, false);
    struct zk_session *zk = owner_of(request);
    if (zk_is_no_answer(rc))
        *connection_of(request) = NO_CONNECTION;
    if (rc == ZOK || rc == ZNONODE || zk_is_no_answer(rc) || !request_is_wanted(request)) {
        go_on(request, zk, rc);
        return;
    }
    refused(request, rc);
    session_unlock(&zk->base);
}

/* The same, for who leaves and is not asked again, and for a break, which another holder must not
 * survive. A leader that has not noticed yet that it was deposed answers a sync (ZOOKEEPER-1675),
 * but carries out no write, as this one: to delete a node that never was. */
static void write_and_list(struct request *request)
{
    char path[PATH_MAX_BYTES];
    now_sent(request);
    list_behind(request, zoo_adelete(owner_of(request)->handle, path_of(request, "-", path), -1,
                                     is_past, request));
}

/* Both in one write: ZooKeeper answers a session's requests in order. */
static void create_and_list(struct request *request, struct place *place)
{
    const struct zk_session *zk = owner_of(request);
    char path[PATH_MAX_BYTES], prefix[OWNER_MAX + 1];
    snprintf(prefix, sizeof prefix, "%s-", request->owner);
    place->doubtful = true;
    request->only_read = false;
    now_sent(request);
    note_sent(request, zoo_acreate2(zk->handle, path_of(request, prefix, path), "", 0,
                                    zk_access(zk), ZOO_EPHEMERAL_SEQUENTIAL, is_created, request));
    list(request);
}

/* ---- The first step -------------------------------------------------------------------------- */

/* What is in flight has not been answered in time. What is sent behind it would be of no use to its
 * caller, and would be work for a server that goes on. */
static bool hangs(struct zk_session *zk)
{
    const int64_t limit_ms = zk->base.client->options.command_timeout_ms;
    const struct request *request;
    int64_t oldest_ns = boot_ns();
    if (oldest_ns < zk->clear_ns)
        return false;
    TAILQ_FOREACH(request, &zk->base.requests, of_session) { /* the oldest are the first */
        if (request->in_flight == 0)
            continue;
        if (request_is_late(request))
            return true;
        oldest_ns = min_ns(oldest_ns, request->launched_ns);
    }
    zk->clear_ns = oldest_ns + limit_ms * NS_PER_MS;
    return false;
}

/* In a shorter session the proof of one write would hardly reach to the next. */
static bool has_ticks(struct request *request)
{
    const struct zk_session *zk = owner_of(request);
    if (zk->base.granted_ms >= TICKS_LEAST * zk->url.tick_ms ||
        zk->base.granted_ms < zk->base.asked_ms)
        return true;
    request_answer(request,
                   fail(DLOCK_INVALID,
                        "ttl_ms is %lld, and tick_ms %lld; a session of at least %d ticks is "
                        "right, or '?tick_ms=N' in the URL, as the servers' tickTime is",
                        (long long)zk->base.granted_ms, (long long)zk->url.tick_ms, TICKS_LEAST));
    return false;
}

/* The token remains the node's: the number of this write is above those of waiters, which have
 * their nodes already. */
static void has_nested(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    struct request *request = landed(data, rc, true);
    struct zk_session *zk = owner_of(request);
    struct place *place = place_of(request->queue, request->owner);
    if (has_no_result(request, zk, rc))
        return;
    if (rc == ZOK && claim_still_holds(request, place) && claim_lacks_identity(request, place))
        read_identity(request);
    else if (rc == ZOK && claim_still_holds(request, place))
        has_acquired(request, place);
    else if (rc == ZOK || rc == ZNONODE)
        request_answer(request, fail(DLOCK_BUSY, "its owner no longer has the lock"));
    else
        refused(request, rc);
    session_unlock(&zk->base);
}

/* Before it creates its node. The list of a server that lags behind would name nodes that are gone:
 * the try would be refused although nobody has the lock. */
static void look_before(struct request *request)
{
    zk_request_of(request)->looks = request->only_read = true;
    sync_and_list(request);
}

/* Its node would be created in a queue that is used up. (A nested one needs no node.) */
static bool must_rest(const struct request *request)
{
    const struct place *place = place_of(request->queue, request->owner);
    return request->exchange->hold->depth <= 1 && boot_ns() < queue_of(request)->rests_until_ns &&
           (place == NULL || (place->node[0] == '\0' && !place->doubtful));
}

static void acquire(struct request *request)
{
    if (!request->sent && hangs(owner_of(request)))
        return; /* it is looked at again */
    if (must_rest(request)) {
        rest(request);
        return;
    }
    struct place *place = has_ticks(request) ? claim_begins(request) : NULL;
    if (place == NULL)
        return;
    *create_rc_of(request) = ZOK;
    zk_request_of(request)->looks = false;
    if (request->exchange->hold->depth > 1)
        write_to(request, place, has_nested);
    else if (place->node[0] == '\0' && !place->doubtful && claim_is_try(request) &&
             !zk_request_of(request)->has_looked)
        look_before(request);
    else if (place->node[0] == '\0' && !place->doubtful)
        create_and_list(request, place);
    else if (place->node[0] == '\0')
        sync_and_list(request);
    else
        now_sent(request), list(request);
}

/* One request to leave is enough: after a server has hung, each would list the whole queue. Without
 * an answer the next one goes when there is a connection. */
static bool is_left_already(const struct request *request)
{
    const struct zk_place *left = left_by(request);
    return left != NULL && left->leave != NULL;
}

static void let_go(struct request *request, struct place *place)
{
    if (!claim_lets_go(request, place) || is_left_already(request))
        return;
    if (place->node[0] != '\0' && place->number == 0) { /* found by its name; there may be others */
        place->node[0] = '\0';
        place->doubtful = true;
    }
    if (place->node[0] != '\0')
        delete (request, place->node);
    else if (place->doubtful)
        write_and_list(request);
    else
        claim_is_gone(request, place, true); /* it was never created */
}

void zk_go(struct request *request)
{
    struct place *place = place_of(request->queue, request->owner);
    if (!request->queue->session->connected && !request_nests(request))
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
            claim_is_lost(request, place);
        break;
    case BREAK:
        write_and_list(request);
        break;
    default:
        sync_and_list(request);
    }
}
