/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches: one for each lock that needs it, of the deletes in its queue. A waiter needs it, and a
 * hold that lasts longer than a moment. It begins at the revision that its places are known
 * from, so that nothing is missed. If that revision was compacted, the places are looked at anew.
 */
#include "etcd.h"

#include <stdlib.h>
#include <string.h>

#define HELD_NS (100 * NS_PER_MS)         /* a hold that is released sooner needs no watch */
#define LOOKS_PER_LEASE 2                 /* at each hold */
#define UNUSED_NS (5 * (int64_t)NS_PER_S) /* a watch that nobody needed for so long is ended */

static struct etcd_queue *queue_of(struct queue *queue)
{
    return (struct etcd_queue *)queue;
}

static struct key prefix_of(const struct queue *queue, char path[PATH_MAX_BYTES])
{
    snprintf(path, PATH_MAX_BYTES, "%s/", queue->path);
    return (struct key){path, ""};
}

/* ---- What it tells --------------------------------------------------------------------------- */

static struct etcd_place *place_at(const struct queue *queue, const char *node)
{
    struct place *place;
    LIST_FOREACH(place, &queue->places, of_queue)
        if (strcmp(place->node, node) == 0)
            break;
    return (struct etcd_place *)place;
}

void etcd_first_is_gone(struct queue *queue, const char *node, uint64_t number)
{
    const struct etcd_place *first = place_at(queue, node);
    struct place *place;
    if (first == NULL || !first->is_first || first->base.number >= number)
        return;
    LIST_FOREACH(place, &queue->places, of_queue)
        if (strcmp(place->before, node) == 0 && place->number > first->base.number &&
            !place->leaving && !((struct etcd_place *)place)->is_unsure)
            ((struct etcd_place *)place)->is_first = true;
}

static void own_is_gone(struct queue *queue, const char *node, uint64_t revision)
{
    struct etcd_place *place = place_at(queue, node);
    if (place == NULL || place->base.holds || place->base.number >= revision)
        return;
    place->is_first = false; /* it asks again, and gets another place */
    place->base.node[0] = place->base.before[0] = '\0';
    place->base.number = 0;
    if (queue->lock == NULL)
        return;
    pthread_mutex_lock(&queue->lock->client->loop.mutex);
    wait_wake_owner(queue->lock, place->base.owner);
    pthread_mutex_unlock(&queue->lock->client->loop.mutex);
}

static void take_event(struct etcd *etcd, struct etcd_queue *queue, const cJSON *event)
{
    char path[PATH_MAX_BYTES], node[NODE_MAX];
    const cJSON *kv = cJSON_GetObjectItemCaseSensitive(event, "kv");
    uint64_t revision = json_number(kv, "mod_revision");
    if (strcmp(json_text(event, "type"), "DELETE") != 0)
        return;
    json_node(kv, prefix_of(&queue->base, path).path, node, sizeof node);
    if (revision > queue->heard)
        queue->heard = revision;
    if (revision > etcd->revision)
        etcd->revision = revision;
    etcd_first_is_gone(&queue->base, node, revision);
    own_is_gone(&queue->base, node, revision);
    session_node_is_gone(&queue->base, node, revision);
}

/* One request at a time is enough: a member may tell of many watches before it answers a read. */
static struct request *look_of(const struct etcd_queue *queue, const struct place *place)
{
    struct request *request;
    TAILQ_FOREACH(request, &queue->base.session->requests, of_session)
        if (request->what == WATCH && request->queue == &queue->base &&
            strcmp(request->owner, place->owner) == 0)
            break;
    return request;
}

static void look_at_holds(struct etcd_queue *queue)
{
    const struct place *place;
    LIST_FOREACH(place, &queue->base.places, of_queue) {
        struct request *request = look_of(queue, place);
        if (request != NULL) {
            request->repeated |= request->in_flight > 0;
        } else if (place->holds && !place->leaving &&
                   (request = request_new(&queue->base, WATCH, place->owner)) != NULL) {
            request->unasked = true;
            etcd_go(request);
        }
    }
}

/* It may have missed something: waiters ask again, and holds are looked at. */
static void look_anew(struct etcd_queue *queue)
{
    struct dlock *lock = queue->base.lock;
    struct place *place;
    queue->heard = 0;
    look_at_holds(queue);
    if (lock != NULL)
        pthread_mutex_lock(&lock->client->loop.mutex);
    LIST_FOREACH(place, &queue->base.places, of_queue) {
        ((struct etcd_place *)place)->seen = 0;
        ((struct etcd_place *)place)->is_first &= place->holds;
        place->before[0] = '\0';
        if (lock != NULL && !place->holds)
            wait_wake_owner(lock, place->owner);
    }
    if (lock != NULL)
        pthread_mutex_unlock(&lock->client->loop.mutex);
}

/* The servers may have been restored from a copy. So waiters ask again when it is their turn. */
static void doubt_waiters(struct etcd_queue *queue)
{
    struct place *place;
    LIST_FOREACH(place, &queue->base.places, of_queue) {
        ((struct etcd_place *)place)->is_first &= place->holds;
        ((struct etcd_place *)place)->is_unsure = !place->holds;
    }
}

/* What was deleted before it began is not told if the servers were restored from a copy of their
 * data, and count on from there. */
static void has_begun(struct flight *flight)
{
    flight->answered = true;
    if (flight->queue->broke) {
        look_at_holds(flight->queue);
        doubt_waiters(flight->queue); /* those that came since */
    }
    flight->queue->broke = false;
}

/* pause_ns: until the next one begins. */
static void is_over(struct flight *flight, int64_t pause_ns)
{
    struct etcd_queue *queue = flight->queue;
    flight->over = queue->broke = true;
    doubt_waiters(queue);
    flight->queue = NULL;
    queue->watch = NULL;
    queue->again_ns = mono_ns() + pause_ns;
    session_look(&flight->etcd->base);
}

/* The servers have ended it. If they do not take its token, they say so, or that it is not
 * permitted. Then a proof of the lease tests the token. */
static void is_canceled(struct flight *flight, const cJSON *json)
{
    struct etcd *etcd = flight->etcd;
    const char *why = json_text(json, "cancel_reason");
    const bool compacted = json_number(json, "compact_revision") != 0;
    if (compacted)
        look_anew(flight->queue);
    else if (etcd->url.user != NULL && reply_blames_token(why))
        lease_token_is_bad(etcd, flight, why);
    else if (etcd->url.user != NULL)
        etcd->beat_now = true;
    is_over(flight, compacted ? AGAIN_NS : REFUSED_AGAIN_NS);
}

static void take_answer(struct flight *flight, const cJSON *json)
{
    const cJSON *event;
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "canceled"))) {
        is_canceled(flight, json);
        return;
    }
    if (!flight->answered)
        has_begun(flight);
    cJSON_ArrayForEach(event, cJSON_GetObjectItemCaseSensitive(json, "events"))
        take_event(flight->etcd, flight->queue, event);
}

static void take_line(struct flight *flight, const char *text, size_t size)
{
    struct reply reply;
    reply_read(&reply, 200, text, size);
    flight_check_cluster(flight, &reply);
    if (reply.outcome == TOKEN_BAD)
        lease_token_is_bad(flight->etcd, flight, reply.why);
    else if (reply.outcome == UNANSWERED)
        etcd_move(flight->etcd, flight->moves, reply.why);
    if (reply.outcome == ANSWERED)
        take_answer(flight, reply.json);
    else
        is_over(flight, reply.outcome == REFUSED ? REFUSED_AGAIN_NS : AGAIN_NS);
    reply_free(&reply);
}

static void has_ended(struct flight *flight, const struct reply *reply)
{
    struct etcd_queue *queue = flight->queue;
    if (queue == NULL)
        return;
    const bool is_refused = reply->outcome == REFUSED || flight->is_local ||
                            (reply->outcome == UNANSWERED && !flight->answered);
    is_over(flight, is_refused ? REFUSED_AGAIN_NS : AGAIN_NS);
    if (flight->got_size > RESPONSE_MAX / 2) /* a line that was too long */
        look_anew(queue);
}

/* ---- When ------------------------------------------------------------------------------------ */

static void watch_end(struct etcd_queue *queue)
{
    is_over(queue->watch, 0); /* the client's thread ends it */
}

void watch_forget(struct queue *queue)
{
    if (queue_of(queue)->watch != NULL)
        watch_end(queue_of(queue));
    queue_of(queue)->heard = 0;
    queue_of(queue)->broke = false;
}

/* It begins with what is known already. A later revision would be right, too; but if just that one
 * was compacted, older versions of etcd leave its deletes out without a word. */
static void watch_begin(struct etcd *etcd, struct etcd_queue *queue)
{
    char path[PATH_MAX_BYTES];
    struct body body;
    body_begin(&body);
    body_add(&body, "{\"create_request\":{");
    body_prefix(&body, prefix_of(&queue->base, path));
    body_add(&body, ",\"start_revision\":\"%llu\",\"filters\":[\"NOPUT\"]}}",
             (unsigned long long)queue->heard);
    queue->watch = flight_begin(etcd, "/v3/watch", &body, has_ended);
    if (queue->watch == NULL)
        return;
    queue->watch->line = take_line;
    queue->watch->queue = queue;
}

/* CLOCK_MONOTONIC: when the queue needs a watch; INT64_MAX: it does not. *seen: since when. */
static int64_t needed_ns(const struct etcd_queue *queue, uint64_t *seen)
{
    const struct place *base;
    int64_t soonest_ns = INT64_MAX;
    LIST_FOREACH(base, &queue->base.places, of_queue) {
        const struct etcd_place *place = (const struct etcd_place *)base;
        if (base->lost || base->leaving || place->seen == 0)
            continue;
        *seen = place->seen < *seen ? place->seen : *seen;
        if (base->holds)
            soonest_ns = min_ns(soonest_ns, place->held_ns + HELD_NS);
        else if (base->before[0] != '\0')
            soonest_ns = 0;
    }
    return soonest_ns;
}

/* CLOCK_MONOTONIC: when the key of a hold must be read again. A watch may be silent without an end,
 * behind a load balancer for instance, or be refused. And if a read has failed, no watch would tell
 * of the key's end. */
static int64_t look_due_ns(const struct etcd_queue *queue, const struct etcd_place *place)
{
    const struct session *session = queue->base.session;
    if (!place->base.holds || place->base.leaving || place->base.lost)
        return INT64_MAX;
    if (place->seen == 0)
        return queue->looked_ns + REFUSED_AGAIN_NS;
    return max_ns(place->held_ns, queue->looked_ns) +
           session->granted_ms * NS_PER_MS / LOOKS_PER_LEASE;
}

/* Returns when to look again. */
static int64_t look_now_and_then(struct etcd_queue *queue, int64_t now_ns)
{
    const struct place *place;
    int64_t due_ns = INT64_MAX;
    LIST_FOREACH(place, &queue->base.places, of_queue)
        due_ns = min_ns(due_ns, look_due_ns(queue, (const struct etcd_place *)place));
    if (now_ns < due_ns)
        return due_ns;
    queue->looked_ns = now_ns;
    look_at_holds(queue);
    return now_ns + REFUSED_AGAIN_NS;
}

static int64_t look_at(struct etcd *etcd, struct etcd_queue *queue, int64_t now_ns)
{
    uint64_t seen = UINT64_MAX;
    int64_t needs_ns = needed_ns(queue, &seen);
    if (needs_ns <= now_ns)
        queue->wanted_ns = now_ns;
    if (queue->watch != NULL) {
        bool is_old = queue->watch->easy != NULL && queue->watch->moves != etcd->moves;
        bool is_unused = now_ns - queue->wanted_ns > UNUSED_NS;
        if (is_old)
            watch_end(queue);
        if (is_unused)
            watch_forget(&queue->base);
        return queue->watch != NULL ? queue->wanted_ns + UNUSED_NS + NS_PER_MS : now_ns;
    }
    if (needs_ns > now_ns && now_ns - queue->wanted_ns > UNUSED_NS)
        queue->heard = 0; /* the next watch need not tell all that happened until then */
    if (needs_ns > now_ns || !lease_lets_in(etcd))
        return needs_ns > now_ns ? needs_ns : INT64_MAX;
    if (now_ns < queue->again_ns)
        return queue->again_ns;
    if (queue->heard == 0)
        queue->heard = seen;
    watch_begin(etcd, queue);
    return queue->watch != NULL ? INT64_MAX : now_ns + AGAIN_NS;
}

int64_t watches_go(struct etcd *etcd)
{
    struct queue *queue;
    int64_t now_ns = mono_ns(), soonest_ns = INT64_MAX;
    LIST_FOREACH(queue, &etcd->base.queues, of_session) {
        soonest_ns = min_ns(soonest_ns, look_at(etcd, queue_of(queue), now_ns));
        soonest_ns = min_ns(soonest_ns, look_now_and_then(queue_of(queue), now_ns));
    }
    return soonest_ns;
}
