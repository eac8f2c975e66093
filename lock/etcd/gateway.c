/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's thread, its HTTP requests, and the member that it asks. Each request has a time
 * limit of its own, because a member without a quorum answers only after seven seconds. If it
 * fails, the next member is asked. What was sent may still be carried out: the steps see to that.
 */
#include "etcd.h"

#include "thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FLIGHTS_MAX 32         /* under way at a member, without watches and the lease's own */
#define FLIGHTS_MOST 64        /* with those at members that were left */
#define LOOKS_MAX 8            /* of FLIGHTS_MAX, reads of the keys of holds */
#define CONNECTIONS_KEPT 64    /* besides those of watches */
#define PATIENCE_LEAST_MS 2000 /* for one request at one member */
#define PATIENCE_MOST_MS 5000
#define PATIENCES_PER_LEASE 3
#define CLOSE_MS 1000      /* for the lease's end, when the client is closed */
#define CLOSE_LEAST_MS 200 /* of these, if the close has taken long already */
#define HASTE 2            /* a member has this part of the time, if another one may answer */
#define POLL_MS_MOST 1000  /* some times are on a clock that goes on while the machine sleeps */
#define LEASE_ASKS 4       /* so many members may be asked for a keep-alive in a time to live */
#define LEASE_ASK_LEAST_MS 500
#define KV "/v3/kv/" /* begins the paths of linearizable requests */

/* ---- Flights --------------------------------------------------------------------------------- */

struct flight *flight_begin(struct etcd *etcd, const char *what, struct body *body,
                            void (*landed)(struct flight *flight, const struct reply *reply))
{
    struct flight *flight = calloc(1, sizeof *flight);
    body_end(body);
    if (flight == NULL || body->text == NULL) {
        free(flight);
        free(body->text);
        return NULL;
    }
    flight->etcd = etcd;
    flight->what = what;
    flight->body = body->text;
    flight->landed = landed;
    flight->lease = etcd->lease;
    flight->guard = etcd->guard;
    flight->least = etcd->revision;
    flight->sent_ns = boot_ns();
    TAILQ_INSERT_TAIL(&etcd->waiting, flight, of_etcd);
    session_look(&etcd->base);
    return flight;
}

void flight_first(struct flight *flight)
{
    TAILQ_REMOVE(&flight->etcd->waiting, flight, of_etcd);
    TAILQ_INSERT_HEAD(&flight->etcd->waiting, flight, of_etcd);
}

/* A handle that is used again is faster than a new one. */
static void handle_leave(struct etcd *etcd, CURL *easy)
{
    if (etcd->idle_count < HANDLES_KEPT)
        etcd->idle[etcd->idle_count++] = easy;
    else
        curl_easy_cleanup(easy);
}

/* libcurl counts those of watches, too. */
static void keep_connections(struct etcd *etcd)
{
    curl_multi_setopt(etcd->multi, CURLMOPT_MAXCONNECTS,
                      (long)(CONNECTIONS_KEPT + etcd->watching_count));
}

static void flight_free(struct flight *flight)
{
    struct etcd *etcd = flight->etcd;
    if (flight->easy != NULL) {
        TAILQ_REMOVE(&etcd->flying, flight, of_etcd);
        etcd->flying_count -= flight->request != NULL;
        etcd->here_count -= flight->is_here;
        etcd->look_count -= flight->is_look;
        etcd->watching_count -= flight->line != NULL;
        curl_multi_remove_handle(etcd->multi, flight->easy);
        handle_leave(etcd, flight->easy);
        keep_connections(etcd);
    } else {
        TAILQ_REMOVE(&etcd->waiting, flight, of_etcd);
    }
    if (flight->queue != NULL)
        flight->queue->watch = NULL;
    curl_slist_free_all(flight->headers);
    explicit_bzero(flight->body, strlen(flight->body)); /* it may be a login */
    free(flight->body);
    free(flight->got);
    free(flight);
}

/* A watch's lines are taken as they come. */
static void take_lines(struct flight *flight)
{
    char *from = flight->got, *end;
    size_t left = flight->got_size;
    pthread_mutex_lock(&flight->etcd->base.mutex);
    while ((end = memchr(from, '\n', left)) != NULL) {
        if (flight->queue != NULL && !flight->over)
            flight->line(flight, from, (size_t)(end - from));
        left -= (size_t)(end + 1 - from);
        from = end + 1;
    }
    session_unlock(&flight->etcd->base);
    memmove(flight->got, from, left);
    flight->got_size = left;
}

/* libcurl calls it with what has come. Fewer bytes than that end the transfer. */
static size_t take(char *bytes, size_t one, size_t count, void *arg)
{
    struct flight *flight = arg;
    const size_t size = one * count;
    if (flight->got_size + size > RESPONSE_MAX)
        return 0;
    if (flight->got_size + size > flight->got_room) {
        size_t room = 2 * (flight->got_size + size);
        char *grown = realloc(flight->got, room);
        if (grown == NULL)
            return 0;
        flight->got = grown;
        flight->got_room = room;
    }
    memcpy(flight->got + flight->got_size, bytes, size);
    flight->got_size += size;
    if (flight->line != NULL)
        take_lines(flight);
    return size;
}

/* libcurl calls it before it sends the request: once. It would send it again if the connection is
 * closed without a reply; the steps must know of that. */
static int send_once(void *arg, char *address, char *own, int port, int own_port)
{
    struct flight *flight = arg;
    (void)address, (void)own, (void)port, (void)own_port;
    if (flight->was_begun)
        return CURL_PREREQFUNC_ABORT;
    flight->was_begun = true;
    return CURL_PREREQFUNC_OK;
}

/* One silent member must not use up the time in which the client is to be connected, or closed. If
 * all of them were too slow for that, each has its whole time. */
static bool is_hasty(const struct etcd *etcd)
{
    return etcd->url.endpoint_count > 1 &&
           (etcd->base.stop || (!etcd->base.connected && !etcd->patient));
}

static long hasty_ms(const struct etcd *etcd, int64_t ms, int64_t most_ms)
{
    return (long)max_ns(1, min_ns(ms, is_hasty(etcd) ? most_ms / HASTE : most_ms));
}

static long patience_ms(const struct etcd *etcd)
{
    int64_t ms = etcd->base.granted_ms / PATIENCES_PER_LEASE;
    if (etcd->base.granted_ms == 0 || ms > PATIENCE_MOST_MS)
        ms = PATIENCE_MOST_MS;
    ms = max_ns(ms, PATIENCE_LEAST_MS);
    if (etcd->base.stop)
        return hasty_ms(etcd, ms, CLOSE_MS);
    return is_hasty(etcd) ? hasty_ms(etcd, ms, etcd->base.client->options.connect_timeout_ms)
                          : (long)ms;
}

/* If a member is silent, the lease's requests must reach another one in time. */
static long lease_patience_ms(const struct etcd *etcd)
{
    int64_t ms = patience_ms(etcd);
    if (etcd->lease != 0 && etcd->url.endpoint_count > 1)
        ms = min_ns(ms, max_ns(etcd->base.granted_ms / LEASE_ASKS, LEASE_ASK_LEAST_MS));
    return (long)ms;
}

static long time_limit_ms(const struct flight *flight)
{
    if (flight->line != NULL)
        return 0;
    const bool is_slow = flight->request != NULL || strcmp(flight->what, LOGIN) == 0;
    return is_slow ? patience_ms(flight->etcd) : lease_patience_ms(flight->etcd);
}

static long connect_ms(const struct etcd *etcd)
{
    return hasty_ms(etcd, patience_ms(etcd), etcd->base.client->options.connect_timeout_ms);
}

static struct curl_slist *header(struct curl_slist *list, const char *text)
{
    struct curl_slist *longer = curl_slist_append(list, text);
    return longer != NULL ? longer : list;
}

static void set_headers(struct flight *flight)
{
    char login[TOKEN_MAX + 32];
    flight->headers = header(NULL, "Content-Type: application/json");
    flight->headers = header(flight->headers, "Expect:");
    if (flight->line != NULL) /* a member without a leader ends it, and is not silent */
        flight->headers = header(flight->headers, "Grpc-Metadata-hasleader: true");
    if (flight->etcd->token[0] == '\0')
        return;
    snprintf(login, sizeof login, "Authorization: %s", flight->etcd->token);
    flight->headers = header(flight->headers, login);
    explicit_bzero(login, sizeof login);
}

static void set_tls(CURL *easy, const struct etcd_url *url)
{
    if (url->ca != NULL) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, url->ca);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    if (url->cert != NULL) {
        curl_easy_setopt(easy, CURLOPT_SSLCERT, url->cert);
        curl_easy_setopt(easy, CURLOPT_SSLKEY, url->key);
    }
}

/* No program that this process starts inherits it. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct flight *flight = arg;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    flight->no_socket = fd < 0 && (errno == EMFILE || errno == ENFILE);
    return fd >= 0 ? fd : CURL_SOCKET_BAD;
}

static CURL *handle_take(struct etcd *etcd)
{
    if (etcd->idle_count > 0)
        return etcd->idle[--etcd->idle_count];
    CURL *easy = curl_easy_init();
    if (easy == NULL)
        return NULL;
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* it waits for no look-up of a host */
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, send_once);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    if (etcd->url.tls)
        set_tls(easy, &etcd->url);
    return easy;
}

/* Nobody waits for it. */
static bool looks_at_hold(const struct flight *flight)
{
    return flight->request != NULL && flight->request->what == WATCH;
}

/* With the mutex. False: out of memory. */
static bool launch(struct flight *flight)
{
    struct etcd *etcd = flight->etcd;
    CURL *easy = handle_take(etcd);
    char url[512];
    if (easy == NULL)
        return false;
    snprintf(url, sizeof url, "%s%s", etcd->url.endpoints[etcd->endpoint], flight->what);
    set_headers(flight);
    flight->member = etcd->endpoint;
    flight->no_token = lease_lacks_login(etcd) && strcmp(flight->what, LOGIN) != 0;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, flight->body);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, flight->headers);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, flight);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, flight);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, flight);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, flight);
    /* A watch keeps its connection: it must not take the lease's. */
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, flight->line != NULL ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, connect_ms(etcd));
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, time_limit_ms(flight));
    if (curl_multi_add_handle(etcd->multi, easy) != CURLM_OK) {
        handle_leave(etcd, easy);
        curl_slist_free_all(flight->headers);
        flight->headers = NULL;
        return false;
    }
    TAILQ_REMOVE(&etcd->waiting, flight, of_etcd);
    TAILQ_INSERT_TAIL(&etcd->flying, flight, of_etcd);
    flight->easy = easy;
    if (flight->request != NULL) {
        flight->request->sent = true;
        flight->request->launched_ns = boot_ns();
    }
    flight->moves = etcd->moves;
    flight->logins = etcd->logins;
    etcd->flying_count += flight->request != NULL;
    flight->is_here = flight->request != NULL;
    etcd->here_count += flight->is_here;
    flight->is_look = looks_at_hold(flight);
    etcd->look_count += flight->is_look;
    etcd->watching_count += flight->line != NULL;
    keep_connections(etcd);
    etcd->base.commands++;
    return true;
}

/* Nobody waits for it any more, and it was not sent: it must not be in the way of others. */
static void drop(struct flight *flight)
{
    struct request *request = flight->request;
    struct reply reply;
    reply_none(&reply, UNDELIVERED, "nobody waits for it");
    request->in_flight--;
    request->sent = flight->was_sent;
    flight->landed(flight, &reply);
    flight_free(flight);
}

/* Acquires must not wait for the reads of many holds. */
static bool is_full(const struct etcd *etcd, const struct flight *flight)
{
    return etcd->here_count >= FLIGHTS_MAX || etcd->flying_count >= FLIGHTS_MOST ||
           (looks_at_hold(flight) && etcd->look_count >= LOOKS_MAX);
}

/* With the mutex. False: out of memory. */
static bool launch_all(struct etcd *etcd, int64_t now_ns)
{
    struct flight *flight, *next;
    for (flight = TAILQ_FIRST(&etcd->waiting); flight != NULL; flight = next) {
        next = TAILQ_NEXT(flight, of_etcd);
        if (flight->request != NULL && !request_is_wanted(flight->request))
            drop(flight);
        else if (flight->request != NULL && (is_full(etcd, flight) || now_ns < etcd->busy_ns))
            continue; /* those of the lease must not wait for them */
        else if (!launch(flight))
            return false;
    }
    return true;
}

/* ---- Their ends ------------------------------------------------------------------------------ */

/* Never with an address: other people than the application's may read it. */
static void not_answered(const struct flight *flight, const char *what, struct reply *reply)
{
    const size_t count = flight->etcd->url.endpoint_count;
    char why[WHY_MAX];
    if (flight->no_socket)
        what = "no descriptor is left";
    if (count > 1)
        snprintf(why, sizeof why, "server %zu of %zu: %s", flight->member + 1, count, what);
    else
        snprintf(why, sizeof why, "%s", what);
    reply_none(reply, flight->was_begun ? UNANSWERED : UNDELIVERED, why);
}

static void read_reply(struct flight *flight, CURLcode code, struct reply *reply)
{
    long http = 0, connects = 0;
    curl_easy_getinfo(flight->easy, CURLINFO_RESPONSE_CODE, &http);
    curl_easy_getinfo(flight->easy, CURLINFO_NUM_CONNECTS, &connects);
    flight->etcd->base.connects += (uint64_t)connects;
    if (flight->answered && (code != CURLE_OK || flight->got_size == 0))
        reply_none(reply, ENDED, "the watch has ended");
    else if (code == CURLE_OK)
        reply_read(reply, http, flight->got != NULL ? flight->got : "", flight->got_size);
    else
        not_answered(flight, curl_easy_strerror(code), reply);
    flight->is_local =
        flight->no_socket || code == CURLE_WRITE_ERROR || code == CURLE_OUT_OF_MEMORY;
    if (connects > 0) /* perhaps to servers that were restored from a copy of their data */
        flight->etcd->base.identity.text[0] = '\0';
}

void flight_check_cluster(struct flight *flight, struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    if (reply->outcome != ANSWERED || etcd->lease == 0 || flight->lease != etcd->lease ||
        reply->cluster == 0 || etcd->cluster == 0 || reply->cluster == etcd->cluster)
        return;
    reply_free(reply);
    not_answered(flight, "it is a member of another cluster", reply);
    etcd->strangers |= 1U << flight->member;
}

/* Most members are of another cluster: its data were restored, perhaps. That is the client's own
 * from now on. Until then its holds live as long as is proven. */
static void leave_cluster(struct etcd *etcd)
{
    const size_t count = (size_t)__builtin_popcount(etcd->strangers);
    if (etcd->lease != 0 && 2 * count > etcd->url.endpoint_count &&
        session_valid_until(&etcd->base) <= boot_ns())
        lease_end(etcd, "the servers are of another cluster");
}

/* Later answers tell of no earlier revision, unless the servers were restored from a copy of their
 * data. Keys that the client knows of may be gone then, and the lease lives on. */
static void check_revision(struct flight *flight, struct reply *reply)
{
    struct etcd *etcd = flight->etcd;
    const uint64_t lease = etcd->lease;
    if (reply->outcome != ANSWERED || strncmp(flight->what, KV, strlen(KV)) != 0)
        return;
    if (reply->revision == 0) {
        reply_free(reply);
        not_answered(flight, "an answer without a revision", reply);
    } else if (flight->lease != lease || reply->revision >= flight->least) {
        if (flight->lease == lease && reply->revision > etcd->revision)
            etcd->revision = reply->revision;
    } else {
        lease_end(etcd, "the servers have gone back to an earlier state");
    }
}

/* Another member would not help: what comes next waits a little. */
static void is_too_much(struct etcd *etcd, const char *why)
{
    snprintf(etcd->base.trouble, sizeof etcd->base.trouble, "%s", why);
    etcd->busy_ns = mono_ns() + AGAIN_NS;
    etcd->again_ns = max_ns(etcd->again_ns, etcd->busy_ns);
}

/* With the mutex. */
static void land(struct flight *flight, CURLcode code)
{
    struct etcd *etcd = flight->etcd;
    struct request *request = flight->request;
    struct reply reply;
    read_reply(flight, code, &reply);
    if (reply.outcome == TOKEN_BAD && etcd->url.user == NULL)
        reply.outcome = REFUSED;
    if (reply.outcome == REFUSED && flight->no_token) /* it expired after this was begun */
        reply.outcome = TOKEN_BAD;
    flight_check_cluster(flight, &reply);
    check_revision(flight, &reply);
    const bool is_too_many = reply.busy || flight->is_local;
    if (is_too_many && flight->line != NULL) /* only this watch waits */
        snprintf(etcd->base.trouble, sizeof etcd->base.trouble, "%s", reply.why);
    else if (is_too_many)
        is_too_much(etcd, reply.why);
    else if (reply.outcome == UNANSWERED || reply.outcome == UNDELIVERED)
        etcd_move(etcd, flight->moves, reply.why);
    leave_cluster(etcd);
    if (reply.outcome == TOKEN_BAD)
        lease_token_is_bad(etcd, flight, reply.why);
    /* A member of another cluster says so, too: a keep-alive's answer tells which one it is of. */
    if (reply.outcome == LEASE_GONE && flight->lease == etcd->lease && !etcd->asking)
        etcd->beat_now = true;
    if (request != NULL) {
        request->in_flight--;
        if (reply.outcome == UNDELIVERED || reply.outcome == TOKEN_BAD ||
            reply.outcome == LEASE_GONE)
            request->sent = flight->was_sent;
    }
    flight->landed(flight, &reply);
    reply_free(&reply);
    flight_free(flight);
}

/* What is under way there is not in the way of what is asked elsewhere. */
static void leave_member(struct etcd *etcd)
{
    struct flight *flight;
    TAILQ_FOREACH(flight, &etcd->flying, of_etcd)
        flight->is_here = flight->is_look = false;
    etcd->here_count = etcd->look_count = 0;
}

void etcd_pass(struct etcd *etcd, uint64_t moves)
{
    if (moves != etcd->moves || etcd->url.endpoint_count == 1)
        return;
    etcd->moves++;
    leave_member(etcd);
    etcd->endpoint = (etcd->endpoint + 1) % etcd->url.endpoint_count;
}

void etcd_move(struct etcd *etcd, uint64_t moves, const char *why)
{
    struct session *session = &etcd->base;
    snprintf(session->trouble, sizeof session->trouble, "%s", why);
    session->refused = false;
    if (moves != etcd->moves)
        return; /* another request has said so already */
    etcd->moves++;
    if (etcd->url.endpoint_count > 1)
        leave_member(etcd);
    etcd->endpoint = (etcd->endpoint + 1) % etcd->url.endpoint_count;
    if (++etcd->failures < etcd->url.endpoint_count)
        return;
    etcd->failures = 0;
    etcd->patient = true;
    etcd->again_ns = mono_ns() + AGAIN_NS;
    if (session->connected)
        session_tell(session, true, why);
    session->connected = false;
}

void etcd_is_back(struct etcd *etcd)
{
    struct session *session = &etcd->base;
    etcd->failures = 0;
    etcd->strangers = 0;
    etcd->patient = false;
    if (!etcd->own_refused)
        session->refused = false;
    if (!session->refused)
        session->trouble[0] = '\0';
    if (etcd->lease == 0) /* it was asked under a lease that has ended */
        return;
    session_tell(session, false, session->connected ? "it answers" : "connected");
    if (session->connected)
        return;
    session->connected = true;
    session_look(session);
}

/* ---- The thread ------------------------------------------------------------------------------ */

void etcd_wake(struct session *session)
{
    const struct etcd *etcd = etcd_of(session);
    if (etcd->runs && !pthread_equal(pthread_self(), etcd->thread))
        curl_multi_wakeup(etcd->multi);
}

/* With the mutex at call and return, not in between. True: something has ended. */
static bool perform(struct etcd *etcd)
{
    int running, left;
    bool ended = false;
    const CURLMsg *message;
    session_unlock(&etcd->base);
    curl_multi_perform(etcd->multi, &running);
    pthread_mutex_lock(&etcd->base.mutex);
    while ((message = curl_multi_info_read(etcd->multi, &left)) != NULL) {
        CURLcode code = message->data.result;
        struct flight *flight = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &flight);
        land(flight, code);
        ended = true;
    }
    return ended;
}

/* With the mutex. Ends the watches that nobody needs, or that another member is to take over; or
 * all flights. */
static void end_flights(struct etcd *etcd, bool all)
{
    struct flight *flight, *next;
    for (flight = TAILQ_FIRST(&etcd->flying); flight != NULL; flight = next) {
        next = TAILQ_NEXT(flight, of_etcd);
        if (flight->over || all)
            flight_free(flight);
    }
    for (flight = TAILQ_FIRST(&etcd->waiting); flight != NULL; flight = next) {
        next = TAILQ_NEXT(flight, of_etcd);
        if (flight->over || all)
            flight_free(flight);
    }
}

/* With the mutex at call and return, not in between. until_ns: CLOCK_MONOTONIC. */
static void rest(struct etcd *etcd, int64_t until_ns)
{
    struct session *session = &etcd->base;
    int64_t ms = until_ns == INT64_MAX ? POLL_MS_MOST : (until_ns - mono_ns()) / NS_PER_MS + 1;
    session_unlock(session);
    if (ms > 0)
        curl_multi_poll(etcd->multi, NULL, 0, (int)min_ns(ms, POLL_MS_MOST), NULL);
    pthread_mutex_lock(&session->mutex);
}

/* CLOCK_MONOTONIC. */
static int64_t closes_until_ns(const struct etcd *etcd)
{
    const int64_t closes_ns = etcd->base.client->closes_ns;
    return max_ns(mono_deadline_ns(CLOSE_LEAST_MS), min_ns(mono_deadline_ns(CLOSE_MS), closes_ns));
}

/* Each member is asked once, until one answers. A hold that was abandoned must not end now. */
static void close_all(struct etcd *etcd)
{
    const int64_t until_ns = closes_until_ns(etcd);
    if (etcd->here_count > 0) /* it has not answered: perhaps another one does */
        etcd_pass(etcd, etcd->moves);
    if (session_is_held(&etcd->base))
        etcd->lease = 0;
    for (size_t i = 0; i < etcd->url.endpoint_count && etcd->lease != 0; i++) {
        end_flights(etcd, true);
        if (lease_revoke(etcd, etcd->lease) == NULL || !launch_all(etcd, mono_ns()))
            break;
        while (!TAILQ_EMPTY(&etcd->flying) && mono_ns() < until_ns)
            if (!perform(etcd))
                rest(etcd, until_ns);
    }
    end_flights(etcd, true);
    while (etcd->idle_count > 0)
        curl_easy_cleanup(etcd->idle[--etcd->idle_count]);
}

static void *fly(void *arg)
{
    struct etcd *etcd = arg;
    struct session *session = &etcd->base;
    pthread_mutex_lock(&session->mutex);
    while (!session->stop) {
        session->looked = true;
        int64_t until_ns = min_ns(lease_go(etcd), watches_go(etcd));
        until_ns = min_ns(until_ns, session_look_at_all(session));
        end_flights(etcd, false);
        int64_t now_ns = mono_ns();
        if (!launch_all(etcd, now_ns))
            until_ns = min_ns(until_ns, now_ns + AGAIN_NS);
        if (now_ns < etcd->busy_ns)
            until_ns = min_ns(until_ns, etcd->busy_ns);
        session->looks_ns = until_ns; /* before others may ask */
        /* What is there is looked at first: curl_multi_poll does not return for it. */
        bool ended = perform(etcd);
        if (!ended && session->looked && !session->stop)
            rest(etcd, until_ns);
    }
    close_all(etcd);
    session_unlock(session);
    return NULL;
}

bool etcd_start(struct session *session)
{
    struct etcd *etcd = etcd_of(session);
    if (etcd->runs)
        return true;
    if (etcd->multi == NULL)
        etcd->multi = curl_multi_init();
    if (etcd->multi == NULL)
        return false;
    /* If no descriptor is left, libcurl makes a handle that no thread can wake. */
    if (!etcd->runs && curl_multi_wakeup(etcd->multi) != CURLM_OK) {
        curl_multi_cleanup(etcd->multi);
        etcd->multi = NULL;
        return false;
    }
    keep_connections(etcd);
    etcd->runs = thread_begin(&etcd->thread, fly, etcd);
    return etcd->runs;
}

void etcd_stop(struct session *session)
{
    struct etcd *etcd = etcd_of(session);
    pthread_mutex_lock(&session->mutex);
    session->stop = true;
    etcd_wake(session);
    session_unlock(session);
    if (etcd->runs)
        pthread_join(etcd->thread, NULL);
    if (etcd->multi != NULL)
        curl_multi_cleanup(etcd->multi);
    etcd->multi = NULL;
}
