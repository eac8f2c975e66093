/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease's own requests: a login, the grant, keep-alives and what proves them, and the client's
 * own key.
 *
 * The own key, "<root>/clients/<client id>", fences lost requests. A create whose reply was lost
 * may still be carried out, at any later time: by a member that was frozen, for instance. So each
 * create compares the number of the own key's latest change. After a lost reply the own key is
 * written anew, and from then on the lost create can do nothing.
 */
#include "etcd.h"

#include <stdlib.h>
#include <string.h>

#define BEATS_PER_LEASE 6
#define LOGIN_AGAIN_NS NS_PER_S /* a password is checked at some cost */

struct key lease_own_key(const struct etcd *etcd, char path[PATH_MAX_BYTES])
{
    snprintf(path, PATH_MAX_BYTES, "%s" CLIENTS "/", etcd->base.root);
    return (struct key){path, etcd->base.client->id};
}

void lease_confirmed(struct etcd *etcd, const struct flight *flight, const struct reply *reply)
{
    etcd_is_back(etcd);
    if (flight->lease == etcd->lease && etcd->lease != 0 &&
        lease_proof_confirmed(&etcd->proof, flight->sent_ns, reply->by))
        session_counts(&etcd->base, etcd->proof.counts_ns);
}

/* ---- What is asked for ----------------------------------------------------------------------- */

/* Whether the request needs the own key. A nested one has its owner's key. A LET_GO does without
 * the own key, if need be: see let_go(). */
static bool needs_own_key(const struct request *request)
{
    return request->what == ACQUIRE && !request->first && request->exchange->hold->depth == 1;
}

/* The servers refuse the lease, or only the own key. Requests that need it are answered with the
 * reason, until the client asks again. A look at a hold goes on: nobody would repeat it. */
static void refuse(struct etcd *etcd, const char *why, bool own_key)
{
    struct session *session = &etcd->base;
    struct request *request, *next;
    etcd->again_ns = mono_ns() + REFUSED_AGAIN_NS;
    snprintf(session->trouble, sizeof session->trouble, "%s", why);
    session->refused = true;
    for (request = TAILQ_FIRST(&session->requests); request != NULL; request = next) {
        next = TAILQ_NEXT(request, of_session);
        if (request_is_wanted(request) && request->in_flight == 0 && request->what != WATCH &&
            (!own_key || needs_own_key(request)))
            request_answer(request, fail(request->sent ? DLOCK_UNKNOWN : DLOCK_REFUSED, "%s: %s",
                                         session->name, why));
    }
}

static bool is_awaited(const struct etcd *etcd)
{
    const struct request *request;
    TAILQ_FOREACH(request, &etcd->base.requests, of_session)
        if (request->first && request_is_wanted(request))
            return true;
    return false;
}

/* A keep-alive has proven nothing. Those who wait for a proof would wait for the regular one. */
static void beat_again(struct etcd *etcd)
{
    if (etcd->beat_now || !is_awaited(etcd))
        return;
    etcd->beat_now = true;
    etcd->again_ns = max_ns(etcd->again_ns, mono_ns() + AGAIN_NS);
}

/* Each of the lease's own requests ends with it. False: it was not answered. */
static bool has_landed(const struct flight *flight, const struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    etcd->asking = false;
    session_look(&etcd->base);
    if (reply->outcome == REFUSED) {
        refuse(etcd, reply->why, false);
        etcd_pass(etcd, flight->moves); /* others may not */
    } else if (reply->outcome != ANSWERED) {
        beat_again(etcd);
    }
    return reply->outcome == ANSWERED;
}

/* It becomes a part of a header. */
static bool is_token(const char *text)
{
    size_t size = 0;
    while (text[size] > ' ' && text[size] <= '~')
        size++;
    return size > 0 && size < TOKEN_MAX && text[size] == '\0';
}

static void has_token(struct flight *flight, const struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    if (!has_landed(flight, reply))
        return;
    const char *token = json_text(reply->json, "token");
    if (!is_token(token)) {
        etcd_move(etcd, flight->moves, "the answer to the login has no token");
        return;
    }
    strcpy(etcd->token, token);
    etcd->logins++;
}

/* A later flight may have shown that already, and another token may be there. */
void lease_token_is_bad(struct etcd *etcd, const struct flight *flight, const char *why)
{
    snprintf(etcd->base.trouble, sizeof etcd->base.trouble, "%s", why);
    if (flight->logins == etcd->logins)
        etcd->token[0] = '\0';
}

static struct flight *authenticate(struct etcd *etcd)
{
    struct body body;
    body_begin(&body);
    body_add(&body, "{\"name\":");
    body_quote(&body, etcd->url.user);
    body_add(&body, ",\"password\":");
    body_quote(&body, etcd->url.password);
    body_add(&body, "}");
    etcd->login_ns = mono_ns() + LOGIN_AGAIN_NS;
    return flight_begin(etcd, LOGIN, &body, has_token);
}

static void is_granted(struct flight *flight, const struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    struct session *session = &etcd->base;
    struct queue *queue;
    if (!has_landed(flight, reply))
        return;
    const uint64_t lease = json_number(reply->json, "ID"), ttl_s = json_number(reply->json, "TTL");
    if (lease == 0 || ttl_s == 0) {
        etcd_move(etcd, flight->moves, "the answer to the grant has no lease");
        return;
    }
    etcd->lease = lease;
    etcd->cluster = reply->cluster;
    session->refused = false;
    session->granted_ms = ttl_s < TTL_MS_MOST / 1000 ? (int64_t)ttl_s * 1000 : TTL_MS_MOST;
    session->identity.text[0] = '\0';
    etcd->guard = etcd->revision = 0;
    LIST_FOREACH(queue, &session->queues, of_session) /* its servers may have lost their data */
        watch_forget(queue);
    etcd->beat_ns = flight->sent_ns;
    lease_proof_begin(&etcd->proof, flight->sent_ns);
    session->counts_ns = flight->sent_ns;
    etcd_is_back(etcd);
}

static struct flight *grant(struct etcd *etcd)
{
    struct body body;
    body_begin(&body);
    body_add(&body, "{\"TTL\":\"%lld\"}", (long long)(etcd->base.asked_ms + 999) / 1000);
    return flight_begin(etcd, "/v3/lease/grant", &body, is_granted);
}

static void is_proven(struct flight *flight, const struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    const int64_t counts_ns = etcd->base.counts_ns;
    if (!has_landed(flight, reply))
        return;
    lease_confirmed(etcd, flight, reply);
    if (etcd->base.counts_ns == counts_ns) /* another leader than the keep-alive's, perhaps */
        beat_again(etcd);
}

/* A linearizable read, of a key that a user of the library may read. */
static struct flight *prove(struct etcd *etcd)
{
    char path[PATH_MAX_BYTES];
    struct body body;
    body_begin(&body);
    body_add(&body, "{");
    body_key(&body, lease_own_key(etcd, path));
    body_add(&body, ",\"keys_only\":true}");
    return flight_begin(etcd, "/v3/kv/range", &body, is_proven);
}

static void is_kept_alive(struct flight *flight, const struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    if (!has_landed(flight, reply) || flight->lease != etcd->lease)
        return;
    if (json_number(reply->json, "TTL") == 0) {
        /* A leader that has just begun may not know the lease yet: then its keys are in the way. */
        lease_end(etcd, "the lease has ended");
        return;
    }
    lease_proof_renewed(&etcd->proof, flight->sent_ns, boot_ns(), reply->by);
    etcd->asking = prove(etcd) != NULL;
}

static struct flight *keep_alive(struct etcd *etcd)
{
    struct body body;
    body_begin(&body);
    body_add(&body, "{\"ID\":\"%llu\"}", (unsigned long long)etcd->lease);
    etcd->beat_now = false;
    etcd->beat_ns = boot_ns();
    return flight_begin(etcd, "/v3/lease/keepalive", &body, is_kept_alive);
}

static void forget_first_ended(struct etcd *etcd)
{
    memmove(etcd->ended, etcd->ended + 1, sizeof etcd->ended - sizeof etcd->ended[0]);
    etcd->ended[ENDED_MAX - 1] = 0;
}

static void is_revoked(struct flight *flight, const struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    etcd->revoking = false;
    if (reply->outcome == ANSWERED && flight->lease == etcd->lease)
        etcd->lease = 0;
    if (reply->outcome != UNANSWERED && reply->outcome != UNDELIVERED &&
        reply->outcome != TOKEN_BAD && flight->lease == etcd->ended[0])
        forget_first_ended(etcd);
    session_look(&etcd->base);
}

struct flight *lease_revoke(struct etcd *etcd, uint64_t lease)
{
    struct body body;
    body_begin(&body);
    body_add(&body, "{\"ID\":\"%llu\"}", (unsigned long long)lease);
    struct flight *flight = flight_begin(etcd, "/v3/lease/revoke", &body, is_revoked);
    if (flight != NULL)
        flight->lease = lease;
    return flight;
}

void lease_end(struct etcd *etcd, const char *why)
{
    size_t count = 0;
    if (etcd->lease == 0)
        return;
    while (count < ENDED_MAX - 1 && etcd->ended[count] != 0)
        count++;
    etcd->ended[count] = etcd->lease;
    etcd->lease = etcd->guard = 0;
    etcd->base.connected = false;
    session_tell(&etcd->base, true, why);
    session_expired(&etcd->base);
    session_look(&etcd->base);
}

/* A hold that was granted just now may not be known to the core yet: it must not be valid when its
 * key is deleted. */
static bool has_lost_places(const struct etcd *etcd)
{
    const struct queue *queue;
    const struct place *place;
    LIST_FOREACH(queue, &etcd->base.queues, of_session)
        LIST_FOREACH(place, &queue->places, of_queue)
            if (place->lost)
                return true;
    return false;
}

/* It is tried once if a member is slow, and again if none answered. */
static void revoke_ended(struct etcd *etcd)
{
    if (etcd->ended[0] != 0 && !etcd->revoking && mono_ns() >= etcd->again_ns &&
        !lease_lacks_login(etcd) && !has_lost_places(etcd))
        etcd->revoking = lease_revoke(etcd, etcd->ended[0]) != NULL;
}

/* ---- The own key ----------------------------------------------------------------------------- */

static void is_guarded(struct flight *flight, const struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    etcd->guarding = false;
    session_look(&etcd->base); /* what waits for it goes on, or it is written again */
    etcd->own_refused = reply->outcome == REFUSED;
    if (etcd->own_refused)
        refuse(etcd, reply->why, true);
    if (reply->outcome == LEASE_GONE) /* a keep-alive tells whether it is so */
        etcd->again_ns = max_ns(etcd->again_ns, mono_ns() + AGAIN_NS);
    if (reply->outcome != ANSWERED || flight->lease != etcd->lease)
        return;
    etcd->guard = reply->revision;
    lease_confirmed(etcd, flight, reply);
}

bool lease_guards(struct etcd *etcd)
{
    char path[PATH_MAX_BYTES];
    struct body body;
    if (etcd->guard != 0 || etcd->guarding || mono_ns() < etcd->again_ns)
        return etcd->guard != 0;
    body_begin(&body);
    body_add(&body, "{");
    body_key(&body, lease_own_key(etcd, path));
    body_add(&body, ",\"lease\":\"%llu\"}", (unsigned long long)etcd->lease);
    etcd->guarding = flight_begin(etcd, "/v3/kv/put", &body, is_guarded) != NULL;
    return false;
}

/* ---- When ------------------------------------------------------------------------------------ */

static bool is_needed(const struct etcd *etcd)
{
    const struct queue *queue;
    if (etcd->base.open_locks > 0 || !TAILQ_EMPTY(&etcd->base.requests))
        return true;
    LIST_FOREACH(queue, &etcd->base.queues, of_session)
        if (!LIST_EMPTY(&queue->places))
            return true;
    return false;
}

int64_t lease_go(struct etcd *etcd)
{
    struct flight *flight = NULL;
    int64_t now_ns = boot_ns(), pause_ns = etcd->base.granted_ms * NS_PER_MS / BEATS_PER_LEASE;
    int64_t beats_ns = etcd->base.connected && !etcd->beat_now ? etcd->beat_ns + pause_ns : now_ns;
    revoke_ended(etcd);
    if (etcd->asking || !is_needed(etcd))
        return INT64_MAX;
    if (mono_ns() < etcd->again_ns)
        return etcd->again_ns;
    const bool needs_login = lease_lacks_login(etcd);
    if (needs_login && mono_ns() < etcd->login_ns)
        return etcd->login_ns;
    if (needs_login)
        flight = authenticate(etcd);
    else if (etcd->lease == 0)
        flight = grant(etcd);
    else if (now_ns < beats_ns)
        return mono_ns() + beats_ns - now_ns;
    else
        flight = keep_alive(etcd);
    etcd->asking = flight != NULL;
    return flight != NULL ? INT64_MAX : mono_ns() + AGAIN_NS; /* without memory */
}
