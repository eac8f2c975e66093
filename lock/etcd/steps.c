/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a request: each sends something to etcd, and the request goes on when that is
 * answered. If there was no answer, it begins anew: it finds its key again by the owner's name.
 *     ACQUIRE  create, and read the key before; the first holds, others watch. A call's only
 *              attempt creates its key only if the queue is empty
 *     LET_GO   delete
 *     WATCH    read the own key
 *     EXTEND   the same, once a keep-alive is proven that was sent later
 *     LOOK     read the first key
 *     BREAK    read the first key; delete it
 * The order in a queue is that of the keys' create revisions, which are also the tokens. Each
 * request is linearizable. The session's mutex is held throughout.
 */
#include "etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Keys, and requests ---------------------------------------------------------------------- */

static const char *path_of(const struct queue *queue, char path[])
{
    snprintf(path, PATH_MAX_BYTES, "%s/", queue->path);
    return path;
}

static struct etcd_place *etcd_place_of(const struct request *request)
{
    return (struct etcd_place *)place_of(request->queue, request->owner);
}

static struct etcd_queue *etcd_queue_of(const struct request *request)
{
    return (struct etcd_queue *)request->queue;
}

/* The place whose key the flight creates or deletes. The owner may have another one by now. */
static struct etcd_place *named_place(const struct flight *flight)
{
    struct etcd_place *place = etcd_place_of(flight->request);
    return place != NULL && strcmp(place->name, flight->name) == 0 ? place : NULL;
}

/* The request is under way, from here to `landed`. NULL: out of memory; it is begun again. */
static struct flight *fly(struct request *request, const char *what, struct body *body,
                          void (*landed)(struct flight *flight, const struct reply *reply))
{
    struct flight *flight = flight_begin(etcd_of_request(request), what, body, landed);
    if (flight == NULL)
        return NULL;
    flight->request = request;
    flight->was_sent = request->sent;
    request->sent_ns = flight->sent_ns;
    request->launched_ns = INT64_MAX; /* it is not on its way yet */
    request->in_flight++;
    if (request->what == LET_GO) /* others wait for that */
        flight_first(flight);
    return flight;
}

/* It was asked under a lease that has ended: the owner's place is not the one of then. */
static bool is_outdated(const struct flight *flight)
{
    return flight->lease != flight->etcd->lease;
}

static void refused(struct request *request, const struct reply *reply)
{
    struct etcd_place *place = etcd_place_of(request);
    if (request->what == WATCH && place != NULL)
        place->seen = 0; /* it is looked at again */
    request_answer(request, fail(request->repeated ? DLOCK_UNKNOWN : DLOCK_REFUSED, "%s: %s",
                                 request->queue->session->name, reply->why));
}

/* What is not there must not be taken for a key that does not exist. */
static void lacks_a_part(struct request *request)
{
    request_answer(request, fail(DLOCK_REFUSED, "%s: the answer to a transaction lacks a part",
                                 request->queue->session->name));
}

/* True: the request's answer is here. Otherwise that was the end: it is begun again, or nobody
 * waits for it. */
static bool has_answer(struct flight *flight, const struct reply *reply)
{
    struct request *request = flight->request;
    if (reply->outcome == ANSWERED)
        lease_confirmed(flight->etcd, flight, reply);
    if (!request_is_wanted(request)) {
        request_settle(request);
        return false;
    }
    if (reply->outcome == REFUSED)
        refused(request, reply);
    else if (reply->outcome != ANSWERED)
        session_look(&flight->etcd->base);
    return reply->outcome == ANSWERED;
}

/* The operations of transactions. */

static void add_own_range(struct body *body, const struct request *request,
                          const struct etcd_place *place)
{
    char path[PATH_MAX_BYTES];
    body_add(body, "{\"request_range\":{");
    body_key(body, (struct key){path_of(request->queue, path), place->name});
    body_add(body, "}}");
}

/* The latest key in the queue, created at most at that revision; 0: any. */
static void add_latest(struct body *body, const struct request *request, uint64_t revision)
{
    char path[PATH_MAX_BYTES];
    body_add(body, "{\"request_range\":{");
    body_prefix(body, (struct key){path_of(request->queue, path), ""});
    body_add(body, ",\"sort_order\":\"DESCEND\",\"sort_target\":\"CREATE\",\"limit\":\"1\","
                   "\"keys_only\":true");
    if (revision != 0)
        body_add(body, ",\"max_create_revision\":\"%llu\"", (unsigned long long)revision);
    body_add(body, "}}");
}

/* ---- Acquire: the first ---------------------------------------------------------------------- */

static void ask_for_identity(struct request *request, bool creates);

static void is_identity_read(struct flight *flight, const struct reply *reply)
{
    struct request *request = flight->request;
    struct session *session = request->queue->session;
    struct place *place = place_of(request->queue, request->owner);
    char text[sizeof session->identity.text];
    if (!has_answer(flight, reply))
        return;
    if (is_outdated(flight)) { /* of data that may be lost since */
        etcd_go(request);
        return;
    }
    const bool was_only_read = flight->ranges == 1;
    const cJSON *kv = reply_kv(reply, was_only_read ? 0 : reply->succeeded);
    if (was_only_read && kv == NULL) {
        ask_for_identity(request, true);
        return;
    }
    if (!json_bytes(kv, "value", text, sizeof text) || text[0] == '\0') {
        request_answer(request, fail(DLOCK_REFUSED,
                                     "%s: the value of '%s" IDENTITY "' is not one of this library",
                                     session->name, session->root));
        return;
    }
    strcpy(session->identity.text, text);
    if (place != NULL && place->holds)
        place->identity = session->identity;
    etcd_go(request);
}

/* The first client that asks creates the key. All later ones only read the same value: etcd refuses
 * whatever might write when its store is full. */
static void ask_for_identity(struct request *request, bool creates)
{
    const struct session *session = request->queue->session;
    const struct key key = {session->root, IDENTITY};
    char value[IDENTITY_TEXT_MAX];
    struct body body;
    if (creates && !claim_draws_identity(value)) {
        request_answer(request, fail(DLOCK_NO_MEMORY, "the system gives no random bytes"));
        return;
    }
    body_begin(&body);
    body_add(&body, "{");
    if (creates) {
        body_add(&body, "\"compare\":[");
        body_compare(&body, key, "CREATE", 0);
        body_add(&body, "],\"success\":[{\"request_put\":{");
        body_key(&body, key);
        body_add(&body, ",");
        body_value(&body, value);
        body_add(&body, "}},{\"request_range\":{");
        body_key(&body, key);
        body_add(&body, "}}],\"failure\":[{\"request_range\":{");
    } else {
        body_add(&body, "\"success\":[{\"request_range\":{");
    }
    body_key(&body, key);
    body_add(&body, "}}]}");
    struct flight *flight = fly(request, "/v3/kv/txn", &body, is_identity_read);
    if (flight != NULL)
        flight->ranges = creates ? 2 : 1;
}

static void read_identity(struct request *request)
{
    ask_for_identity(request, false);
}

/* It needs the identity of the servers' data, and a proof that its lease lives. */
static void is_first(struct request *request, struct etcd_place *place)
{
    const struct session *session = request->queue->session;
    place->is_first = true;
    place->base.before[0] = '\0';
    if (claim_lacks_identity(request, &place->base)) {
        read_identity(request);
    } else if (session_valid_until(session) <= boot_ns()) {
        request->first = true; /* session_counts goes on with it */
        etcd_of_request(request)->beat_now = true;
        session_look(request->queue->session);
    } else if (claim_is_granted(request, &place->base)) {
        place->held_ns = mono_ns();
        session_look(request->queue->session);
    }
}

/* ---- Acquire: its key ------------------------------------------------------------------------ */

/* It exists at that revision, and `before` is before it. */
static void is_placed(struct request *request, struct etcd_place *place, const struct found *before,
                      uint64_t revision)
{
    place->seen = revision;
    place->is_unsure = false;
    /* A place that is left: the request waits until it is gone. Or the end of its key, or of the
     * one before, may have been told already. */
    if (place->base.leaving || place->base.lost || place->deletes > 0 ||
        etcd_queue_of(request)->heard > revision) {
        etcd_go(request);
    } else if (!before->exists) {
        is_first(request, place);
    } else {
        snprintf(place->base.before, sizeof place->base.before, "%s", before->node);
        claim_is_busy(request);
        session_look(request->queue->session);
    }
}

static void is_own(struct etcd_place *place, uint64_t number)
{
    strcpy(place->base.node, place->name);
    place->base.number = number;
    place->base.doubtful = false;
}

/* What is known of the key now, whether or not somebody still waits for it. It may exist although
 * this create did nothing: an earlier one was carried out. */
static void note_created(const struct flight *flight, const struct reply *reply,
                         struct etcd_place *place)
{
    struct etcd *etcd = flight->etcd;
    if (reply->outcome == UNANSWERED && flight->guard == etcd->guard)
        etcd->guard = 0; /* it can do nothing once the own key is written anew */
    if (reply->outcome == UNANSWERED || place == NULL)
        return;
    if (reply->outcome == ANSWERED && reply->succeeded) {
        if (place->base.number == 0 && (place->guard == flight->guard || place->again)) {
            is_own(place, reply->revision); /* else: of an earlier place of that name */
            place->base.doubtful = place->guard != flight->guard; /* a later one is under way */
        }
    } else if (place->guard == flight->guard && !place->again && !reply->may_be_done) {
        place->base.doubtful = false;
    }
}

static void read_own(struct request *request, const struct etcd_place *place);

/* A try's create did nothing. Somebody is in the queue; or the client's own key was another one; or
 * an earlier create was carried out, and that is who is there. */
static void is_not_entered(struct request *request, const struct reply *reply,
                           struct etcd_place *place)
{
    char path[PATH_MAX_BYTES];
    const struct found somebody = reply_found(reply, 0, path_of(request->queue, path));
    etcd_queue_of(request)->is_empty = !somebody.exists;
    if (!reply_has_range(reply, 0))
        lacks_a_part(request);
    else if (place->base.leaving || place->deletes > 0)
        etcd_go(request); /* it waits until what it left is gone */
    else if (somebody.exists && place->base.number == 0 && !place->base.doubtful)
        claim_is_busy(request);
    else
        read_own(request, place);
}

static void is_created(struct flight *flight, const struct reply *reply)
{
    struct request *request = flight->request;
    struct etcd_place *place = named_place(flight);
    char path[PATH_MAX_BYTES];
    note_created(flight, reply, place);
    if (!has_answer(flight, reply))
        return;
    if (place == NULL) { /* its lease has ended meanwhile */
        etcd_go(request);
    } else if (reply->succeeded && !place->alone && !reply_has_range(reply, 0)) {
        lacks_a_part(request);
    } else if (reply->succeeded && place->base.number == reply->revision) {
        struct found before = reply_found(reply, 0, path_of(request->queue, path));
        etcd_queue_of(request)->is_empty = !before.exists;
        is_placed(request, place, &before, reply->revision);
    } else if (!reply->succeeded && claim_is_try(request)) {
        is_not_entered(request, reply, place);
    } else if (!reply->succeeded && place->alone) {
        etcd_queue_of(request)->is_empty = false;
        etcd_go(request); /* it asks who is before it */
    } else {              /* an earlier create was carried out; its key may be gone */
        read_own(request, place);
    }
}

/* What must be so: there is no such key, or none at all in the queue. */
static void add_compare(struct body *body, struct key key, bool alone)
{
    if (!alone) {
        body_compare(body, key, "CREATE", 0);
        return;
    }
    body_add(body, "{");
    body_prefix(body, (struct key){key.path, ""});
    body_add(body, ",\"target\":\"CREATE\",\"create_revision\":\"0\"}");
}

/* The only key of this client in a queue that was empty: it is faster to create it only if it still
 * is. */
static bool is_probably_alone(const struct request *request, const struct etcd_place *place)
{
    return etcd_queue_of(request)->is_empty &&
           LIST_FIRST(&request->queue->places) == &place->base &&
           LIST_NEXT(&place->base, of_queue) == NULL;
}

/* The latest key, just before the own one is created, is the one before it. */
static void create(struct request *request, struct etcd_place *place)
{
    struct etcd *etcd = etcd_of_request(request);
    char path[PATH_MAX_BYTES], own[PATH_MAX_BYTES];
    const struct key guard = lease_own_key(etcd, own);
    struct body body;
    if (place->base.doubtful && place->guard == etcd->guard)
        etcd->guard = 0; /* the earlier create could still be carried out after this one's end */
    if (!lease_guards(etcd))
        return;
    if (place->name[0] == '\0' && !name_take(etcd, place))
        return; /* once there is memory */
    const struct key key = {path_of(request->queue, path), place->name};
    place->alone = claim_is_try(request) || is_probably_alone(request, place);
    body_begin(&body);
    body_add(&body, "{\"compare\":[");
    add_compare(&body, key, place->alone);
    body_add(&body, ",");
    body_compare(&body, guard, "MOD", etcd->guard);
    body_add(&body, "],\"success\":[");
    if (!place->alone) {
        add_latest(&body, request, 0);
        body_add(&body, ",");
    }
    body_add(&body, "{\"request_put\":{");
    body_key(&body, key);
    body_add(&body, ",");
    body_value(&body, request->owner);
    body_add(&body, ",\"lease\":\"%llu\"}}]", (unsigned long long)etcd->lease);
    if (claim_is_try(request)) { /* which of its comparisons failed */
        body_add(&body, ",\"failure\":[");
        add_latest(&body, request, 0);
        body_add(&body, "]");
    }
    body_add(&body, "}");
    place->again = place->base.doubtful;
    place->base.doubtful = true;
    place->guard = etcd->guard;
    struct flight *flight = fly(request, "/v3/kv/txn", &body, is_created);
    if (flight != NULL)
        strcpy(flight->name, place->name);
}

/* ---- Reading the own key --------------------------------------------------------------------- */

static void own_is_read(struct request *request, bool exists)
{
    struct place *place = place_of(request->queue, request->owner);
    switch (request->what) {
    case WATCH:
        if (!exists && place != NULL) {
            char node[NODE_MAX]; /* the place may be gone before the others are looked at */
            strcpy(node, place->node);
            session_node_is_gone(request->queue, node, UINT64_MAX);
        }
        if (exists && request->repeated) {
            request->repeated = false;
            etcd_go(request);
        } else {
            request_answer(request, DLOCK_OK);
        }
        break;
    case EXTEND:
        if (exists)
            claim_is_extended(request, place);
        else
            claim_is_lost(request, place);
        break;
    default: /* a nested acquire */
        if (exists && claim_still_holds(request, place) && claim_lacks_identity(request, place))
            read_identity(request);
        else if (exists && claim_still_holds(request, place))
            claim_is_granted(request, place);
        else
            request_answer(request, fail(DLOCK_BUSY, "its owner no longer has the lock"));
    }
}

/* A create did nothing, or the key was deleted. */
static void is_created_or_not(struct flight *flight, struct etcd_place *place,
                              const struct found *own)
{
    struct request *request = flight->request;
    struct etcd *etcd = flight->etcd;
    if (own->exists && own->lease != etcd->lease) {
        request_answer(request, fail(DLOCK_REFUSED, "%s: somebody else wrote the key '%s/%s'",
                                     etcd->base.name, request->queue->path, own->node));
        return;
    }
    if (place != NULL && own->exists) {
        is_own(place, own->created); /* an earlier create was carried out */
    } else if (place != NULL) {
        if (place->base.number == 0 && place->guard == etcd->guard)
            etcd->guard = 0; /* it is another one by now */
        place->base.node[0] = place->base.before[0] = '\0';
        place->base.number = 0;
        place->is_first = place->base.doubtful = false;
    }
    etcd_go(request);
}

static void is_read(struct flight *flight, const struct reply *reply)
{
    struct request *request = flight->request;
    struct etcd_place *place = etcd_place_of(request);
    char path[PATH_MAX_BYTES];
    if (!has_answer(flight, reply))
        return;
    if (is_outdated(flight)) {
        etcd_go(request);
        return;
    }
    if (!reply_has_range(reply, 0) || !reply_has_range(reply, flight->ranges - 1)) {
        lacks_a_part(request);
        return;
    }
    struct found own = reply_found(reply, 0, path_of(request->queue, path));
    struct found before = reply_found(reply, 1, path);
    bool exists = own.exists && own.lease == flight->etcd->lease && place != NULL &&
                  (place->base.number == 0 || place->base.number == own.created);
    if (exists)
        place->seen = reply->revision;
    if (request->what != ACQUIRE || request->exchange->hold->depth > 1)
        own_is_read(request, exists);
    else if (exists && flight->number == own.created && place->base.number == own.created)
        is_placed(request, place, &before, reply->revision);
    else
        is_created_or_not(flight, place, &own);
}

static void read_own(struct request *request, const struct etcd_place *place)
{
    struct body body;
    body_begin(&body);
    body_add(&body, "{\"success\":[");
    add_own_range(&body, request, place);
    if (place->base.number != 0) {
        body_add(&body, ",");
        add_latest(&body, request, place->base.number - 1);
    }
    body_add(&body, "]}");
    struct flight *flight = fly(request, "/v3/kv/txn", &body, is_read);
    if (flight == NULL)
        return;
    flight->number = place->base.number;
    flight->ranges = flight->number != 0 ? 2 : 1;
}

/* ---- Letting go ------------------------------------------------------------------------------ */

static void is_deleted(struct flight *flight, const struct reply *reply)
{
    struct request *request = flight->request;
    struct etcd_place *place = named_place(flight);
    bool deleted = reply->outcome == ANSWERED && json_number(reply->json, "deleted") != 0;
    const bool may_come = place != NULL && flight->unfenced && (!deleted || place->again);
    request->repeated |= reply->outcome == UNANSWERED;
    if (place != NULL && reply->outcome != UNANSWERED)
        place->deletes--;
    if (deleted) {
        etcd_first_is_gone(request->queue, flight->name, UINT64_MAX);
        session_node_is_gone(request->queue, flight->name, 0);
    }
    if (reply->outcome == ANSWERED && place != NULL && !may_come && !request_is_wanted(request))
        claim_forget(request, &place->base);
    if (!has_answer(flight, reply))
        return;
    if (may_come) /* it is deleted again, until its create can do nothing any more */
        request_answer(request,
                       fail(DLOCK_UNKNOWN, "%s: the key of an acquire may still be created",
                            request->queue->session->name));
    else
        claim_is_gone(request, (struct place *)place, deleted || request->repeated);
}

/* It names a key that no other place has, as long as this is under way: see names.c. */
static void delete_own(struct request *request, struct etcd_place *place)
{
    char path[PATH_MAX_BYTES];
    struct body body;
    body_begin(&body);
    body_add(&body, "{");
    body_key(&body, (struct key){path_of(request->queue, path), place->name});
    body_add(&body, "}");
    struct flight *flight = fly(request, "/v3/kv/deleterange", &body, is_deleted);
    if (flight == NULL)
        return;
    strcpy(flight->name, place->name);
    flight->unfenced = place->base.doubtful && etcd_of_request(request)->guard == 0;
    place->deletes++;
    if (request->exchange != NULL)
        request->exchange->sent_ns = request->sent_ns;
}

static void let_go(struct request *request, struct etcd_place *place)
{
    struct etcd *etcd = etcd_of_request(request);
    if (!claim_lets_go(request, (struct place *)place))
        return;
    if (place->base.number == 0 && !place->base.doubtful) {
        claim_is_gone(request, &place->base, true); /* it was never created */
        return;
    }
    if (place->base.doubtful && etcd->guard == place->guard)
        etcd->guard = 0; /* or it could still be created, perhaps once more */
    /* Servers whose store is full refuse the own key, and carry out deletes. A key that exists must
     * not be in front of others. */
    if (!place->base.doubtful || lease_guards(etcd) || etcd->own_refused)
        delete_own(request, place);
}

/* ---- Looking --------------------------------------------------------------------------------- */

/* It is deleted once: which is the first after a lost answer is another. */
static void is_broken(struct flight *flight, const struct reply *reply)
{
    struct request *request = flight->request;
    if ((reply->outcome == UNANSWERED || reply->may_be_done) && request_is_wanted(request))
        request_answer(request,
                       fail(DLOCK_UNKNOWN, "%s: %s", request->queue->session->name, reply->why));
    else if (has_answer(flight, reply))
        request_answer(request, DLOCK_OK);
}

static void break_first(struct request *request, const struct found *first)
{
    char path[PATH_MAX_BYTES];
    const struct key key = {path_of(request->queue, path), first->node};
    struct body body;
    body_begin(&body);
    body_add(&body, "{\"compare\":[");
    body_compare(&body, key, "CREATE", first->created);
    body_add(&body, "],\"success\":[{\"request_delete_range\":{");
    body_key(&body, key);
    body_add(&body, "}}]}");
    fly(request, "/v3/kv/txn", &body, is_broken);
}

static void is_looked_at(struct flight *flight, const struct reply *reply)
{
    struct request *request = flight->request;
    char path[PATH_MAX_BYTES];
    if (!has_answer(flight, reply))
        return;
    struct found first = reply_found(reply, -1, path_of(request->queue, path));
    struct look *look = request->call->look;
    look->holder.held = false;
    look->holder.owner[0] = '\0'; /* a break may have found one before */
    if (request->what == BREAK && first.exists && first.node[0] == '\0') {
        request_answer(request, fail(DLOCK_REFUSED, "%s: the first key is none of this library",
                                     request->queue->session->name));
        return;
    }
    if (first.exists) {
        look->holder.held = true;
        look->holder.ttl_ms = -1; /* as long as its lease */
        json_bytes(reply_kv(reply, -1), "value", look->holder.owner, sizeof look->holder.owner);
    }
    if (request->what == BREAK && first.exists)
        break_first(request, &first);
    else
        request_answer(request, DLOCK_OK);
}

static void look(struct request *request)
{
    char path[PATH_MAX_BYTES];
    struct body body;
    body_begin(&body);
    body_add(&body, "{");
    body_prefix(&body, (struct key){path_of(request->queue, path), ""});
    body_add(&body, ",\"sort_order\":\"ASCEND\",\"sort_target\":\"CREATE\",\"limit\":\"1\"}");
    fly(request, "/v3/kv/range", &body, is_looked_at);
}

/* ---- The first step -------------------------------------------------------------------------- */

/* False: a create of its key may still be carried out; the own key is written first. Nobody would
 * know of a key that comes after the hold was lost. */
static bool is_settled(struct etcd *etcd, struct etcd_place *place)
{
    if (!place->base.doubtful)
        return true;
    if (place->guard == etcd->guard)
        etcd->guard = 0;
    if (!lease_guards(etcd))
        return false;
    place->base.doubtful = place->is_first = false; /* its key is read anew */
    return true;
}

static void acquire(struct request *request)
{
    const bool nests = request->exchange->hold->depth > 1;
    struct etcd_place *place = etcd_place_of(request);
    if (!nests && place != NULL && place->deletes > 0)
        return; /* until it is gone: a delete that was not answered may still be carried out */
    struct place *base = claim_begins(request);
    if (base == NULL)
        return;
    place = (struct etcd_place *)base;
    if (!nests && base->number == 0) {
        create(request, place);
    } else if (!nests && !is_settled(etcd_of_request(request), place)) {
        return;
    } else if (!nests && place->is_first) {
        request->sent_ns = boot_ns();
        is_first(request, place);
    } else {
        read_own(request, place);
    }
}

/* From a keep-alive that was sent after the request. */
static void extend(struct request *request, struct etcd_place *place)
{
    struct etcd *etcd = etcd_of_request(request);
    if (place == NULL || !place->base.holds || place->base.lost) {
        claim_is_lost(request, (struct place *)place);
        return;
    }
    if (request->sent_ns == 0)
        request->sent_ns = boot_ns();
    request->first = etcd->base.counts_ns < request->sent_ns;
    if (!request->first) {
        read_own(request, place);
        return;
    }
    etcd->beat_now = true;
    session_look(&etcd->base);
}

void etcd_go(struct request *request)
{
    struct etcd_place *place = etcd_place_of(request);
    if (!lease_lets_in(etcd_of_request(request)) && !request_nests(request))
        return;
    switch (request->what) {
    case ACQUIRE:
        acquire(request);
        break;
    case LET_GO:
        let_go(request, place);
        break;
    case WATCH:
        if (place != NULL && place->base.holds && !place->base.leaving && !place->base.lost)
            read_own(request, place);
        else
            request_answer(request, DLOCK_OK);
        break;
    case EXTEND:
        extend(request, place);
        break;
    default:
        look(request);
    }
}
