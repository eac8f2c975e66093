/* SPDX-License-Identifier: Apache-2.0
 *
 * See http.h. libmicrohttpd answers some bad requests itself, with a bare status and before any
 * callback. These are requests that exceed its memory for a connection, or that are not HTTP. The
 * limits here are lower, so that our answers come first.
 */
#include "http.h"

#include "../lock/clock.h"
#include "http_loop.h"
#include "log.h"
#include "http_meter.h"
#include "origin.h"
#include "token.h"

#include <ctype.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADERS_BYTES_MAX 4096
#define HEADERS_MAX 48
/* bytes of a refused body that are read, so that the client gets its answer */
#define SWALLOW_MAX 65536
/* libmicrohttpd's memory for a connection; cleared after each request */
#define CONNECTION_BYTES 16384
#define IDLE_S 120 /* more than nginx's 50 s: nginx closes first, while there is room */
#define IDLE_POLL_NS (5 * NS_PER_MS)
#define SEND_GRACE_NS (500 * NS_PER_MS) /* at shutdown, for answers that are being sent */

struct http {
    struct http_options options;
    atomic_bool quiesced;
    atomic_long active;  /* requests that were read and are not answered yet */
    atomic_long sending; /* answers that are being sent */
    atomic_long room;    /* connections that may still be accepted */
    uint64_t id_base;
    atomic_ulong id_next;
    unsigned started; /* loops that run */
    struct http_loop loops[];
};

static const char key_name[] = "Idempotency-Key";

enum phase { PHASE_HEAD, PHASE_BODY, PHASE_WAITING };

/* A request, and its state in libmicrohttpd. */
struct exchange {
    struct request *request; /* follows the exchange, with what the service keeps with it */
    struct http *http;
    struct http_loop *loop;
    struct MHD_Connection *connection;
    struct http_timeout *timeout;
    enum phase phase;
    bool active;
    bool sending;
    size_t body_seen;
    /* counted in its headers */
    size_t header_bytes;
    unsigned header_count;
    unsigned hosts;
    unsigned lengths;
    unsigned encodings;
    unsigned authorizations;
    unsigned origins;
    unsigned keys;
    /* valid while the head is being read */
    const char *host;
    const char *authorization;
    const char *origin;
    const char *key;
    uint64_t length;
    bool bad_encoding;
    bool bad_length;
    bool has_type;
    bool bad_type;
    bool expects;
    bool too_long;
    const char *target_next; /* what follows the target and its NUL in libmicrohttpd's memory */
    char *target;            /* follows the request */
};

/* NULL when out of memory. target_size: of the longest target that it may have. */
static struct exchange *exchange_new(struct http *http, size_t target_size)
{
    const size_t align = _Alignof(max_align_t);
    const size_t begin = (sizeof(struct exchange) + align - 1) / align * align;
    const size_t end = begin + http->options.request_size;
    char *memory = calloc(1, end + target_size + 1);
    struct exchange *exchange = (struct exchange *)(void *)memory;
    if (memory == NULL)
        return NULL;
    exchange->request = (struct request *)(void *)(memory + begin);
    exchange->request->exchange = exchange;
    exchange->target = memory + end;
    exchange->http = http;
    return exchange;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static enum method method_of(const char *text)
{
    for (enum method method = 0; method < METHOD_OTHER; method++)
        if (strcmp(text, method_name(method)) == 0)
            return method;
    return METHOD_OTHER;
}

static bool is_request_id(const char *text)
{
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return size > 0 && size <= REQUEST_ID_MAX && text[size] == '\0';
}

/* Makes 16 hex digits that no other request has: a counter from a random start, mixed by
 * splitmix64. */
static void make_request_id(struct http *http, char id[REQUEST_ID_MAX + 1])
{
    uint64_t number = atomic_fetch_add_explicit(&http->id_next, 1, memory_order_relaxed);
    uint64_t x = http->id_base + number * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    snprintf(id, REQUEST_ID_MAX + 1, "%016jx", (uintmax_t)x);
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    return strncasecmp(type, json, sizeof json - 1) == 0 &&
           strchr("; \t", type[sizeof json - 1]) != NULL;
}

/* Whether a header's name is a key's, or begins like one. A proxy may send '_' for '-', and
 * libmicrohttpd takes a folded line as a part of the name. */
static bool is_like_key(const char *name)
{
    const char *key = key_name;
    while (*key != '\0' &&
           (*name == '_' ? '-' : tolower((unsigned char)*name)) == tolower((unsigned char)*key))
        name++, key++;
    return *key == '\0';
}

static void take_length(struct exchange *exchange, const char *value)
{
    char *end;
    exchange->lengths++;
    exchange->length = strtoull(value, &end, 10);
    exchange->bad_length = exchange->bad_length || *end != '\0';
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct exchange *exchange = cls;
    (void)kind;
    value = value != NULL ? value : "";
    exchange->header_bytes += strlen(name) + strlen(value) + 4;
    exchange->header_count++;
    if (strcasecmp(name, "Host") == 0) {
        exchange->hosts++;
        exchange->host = value;
    } else if (strcasecmp(name, "Origin") == 0) {
        exchange->origins++;
        exchange->origin = value;
    } else if (strcasecmp(name, "X-Request-Id") == 0 && is_request_id(value))
        snprintf(exchange->request->id, sizeof exchange->request->id, "%s", value);
    else if (strcasecmp(name, "Authorization") == 0) {
        exchange->authorizations++;
        exchange->authorization = value;
    } else if (is_like_key(name)) {
        exchange->keys++;
        exchange->key = strcasecmp(name, key_name) == 0 ? value : "";
    } else if (strcasecmp(name, "Content-Type") == 0) {
        exchange->has_type = true;
        exchange->bad_type = exchange->bad_type || !is_json(value);
    } else if (strcasecmp(name, "Content-Length") == 0)
        take_length(exchange, value);
    else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        exchange->encodings++;
        exchange->bad_encoding = exchange->bad_encoding || strcasecmp(value, "chunked") != 0;
    } else if (strcasecmp(name, "Expect") == 0)
        exchange->expects = true;
    return MHD_YES;
}

/* A browser says in Host which site it asks, and in Origin which site's page asks. */
static bool is_local(const struct exchange *exchange)
{
    const char *address = exchange->http->options.address;
    return exchange->hosts == 1 && origin_is_local_host(exchange->host, address) &&
           (exchange->origins == 0 ||
            (exchange->origins == 1 && origin_is_local(exchange->origin, address)));
}

/* If there is a token, a request that changes something must have it. If there is none, the request
 * must not come from another site's page. */
static void check_operator(struct exchange *exchange)
{
    const char *token = exchange->http->options.token;
    if (!routes_changes(exchange->request->route))
        return;
    if (token[0] == '\0' && !is_local(exchange))
        answer_problem(exchange->request, PROBLEM_FOREIGN_ORIGIN,
                       "without a token, Host and Origin (if sent) must name localhost, a loopback "
                       "address or the listener's own, %s; for other names start the instance with "
                       "--admin-token-file",
                       exchange->http->options.address);
    else if (token[0] != '\0' &&
             (exchange->authorizations != 1 || !token_is_given(token, exchange->authorization)))
        answer_problem(exchange->request, PROBLEM_UNAUTHORIZED,
                       "send the token of --admin-token-file in one header, Authorization: "
                       "Bearer TOKEN");
}

static void http_take_key(const struct exchange *exchange)
{
    struct request *request = exchange->request;
    if (exchange->keys == 0 || request->route->method == METHOD_GET)
        return;
    if (exchange->http->options.take_key != NULL)
        exchange->http->options.take_key(request, exchange->key, exchange->keys);
    else
        answer_problem(request, PROBLEM_KEY_UNSUPPORTED, "%s %s takes no Idempotency-Key",
                       method_name(request->route->method), request->route->path);
}

/* Checks the head. If something is wrong, the answer is put into the request. */
static void check_head(struct exchange *exchange, const char *version)
{
    struct request *request = exchange->request;
    bool needs_host = strcmp(version, "HTTP/1.0") != 0;
    if (version != exchange->target_next) /* the version follows a target without NUL */
        answer_problem(request, PROBLEM_MALFORMED, "there is a NUL in the request's first line");
    else if (exchange->too_long)
        answer_problem(request, PROBLEM_URL_TOO_LONG, "at most %d bytes", REQUEST_URL_MAX);
    else if (exchange->header_bytes > HEADERS_BYTES_MAX || exchange->header_count > HEADERS_MAX)
        answer_problem(request, PROBLEM_HEADERS_TOO_LARGE,
                       "%zu bytes in %u headers; at most %d bytes in %d headers",
                       exchange->header_bytes, exchange->header_count, HEADERS_BYTES_MAX,
                       HEADERS_MAX);
    else if (exchange->hosts > 1 || (needs_host && exchange->hosts == 0))
        answer_problem(request, PROBLEM_MALFORMED, "there must be one Host header, there are %u",
                       exchange->hosts);
    else if (exchange->bad_encoding || exchange->encodings > 1 || exchange->lengths > 1 ||
             exchange->bad_length || (exchange->encodings > 0 && exchange->lengths > 0))
        answer_problem(request, PROBLEM_MALFORMED,
                       "a body comes with one Content-Length, or with Transfer-Encoding: chunked");
    else
        routes_find(exchange->http->options.routes, exchange->http->options.listener,
                    exchange->target, request);
    if (request->answer.status == 0)
        check_operator(exchange);
    if (request->answer.status == 0)
        http_take_key(exchange);
    if (request->answer.status == 0 && exchange->length > REQUEST_BODY_MAX)
        answer_problem(request, PROBLEM_TOO_LARGE, "at most %d bytes", REQUEST_BODY_MAX);
}

/* False: the connection must be closed, because the body is longer than SWALLOW_MAX or memory has
 * run out. */
static bool take_body(struct exchange *exchange, const char *bytes, size_t size)
{
    struct request *request = exchange->request;
    exchange->body_seen += size;
    if (exchange->body_seen > SWALLOW_MAX)
        return false;
    if (request->answer.status != 0)
        return true;
    if (exchange->body_seen > REQUEST_BODY_MAX) {
        answer_problem(request, PROBLEM_TOO_LARGE, "at most %d bytes", REQUEST_BODY_MAX);
        return true;
    }
    if (request->body == NULL && (request->body = malloc(REQUEST_BODY_MAX + 1)) == NULL)
        return false;
    memcpy(request->body + request->body_size, bytes, size);
    request->body_size += size;
    request->body[request->body_size] = '\0';
    return true;
}

static void check_body(struct exchange *exchange)
{
    struct request *request = exchange->request;
    /* A page of another site can make an operator's browser send us a POST without this type. With
     * this type the browser asks us first (CORS). */
    bool needs_type = request->method == METHOD_POST;
    if (!request->route->takes_body && request->body_size > 0)
        answer_problem(request, PROBLEM_UNEXPECTED_BODY, "%s %s takes no body",
                       method_name(request->route->method), request->route->path);
    else if (request->route->takes_body && request->body_size == 0)
        answer_problem(request, PROBLEM_INVALID_JSON, "%s %s needs a body in JSON",
                       method_name(request->route->method), request->route->path);
    else if (request->route->takes_body &&
             (exchange->bad_type || (needs_type && !exchange->has_type)))
        answer_problem(request, PROBLEM_MEDIA_TYPE, "send it with Content-Type: application/json%s",
                       needs_type ? "" : ", or without the header");
}

/* ---- Answering ------------------------------------------------------------------------------- */

static bool add_headers(const struct exchange *exchange, struct MHD_Response *response)
{
    const struct answer *answer = &exchange->request->answer;
    char retry_s[24];
    bool added =
        MHD_add_response_header(response, "X-Request-Id", exchange->request->id) == MHD_YES &&
        MHD_add_response_header(response, "X-Instance", exchange->http->options.instance) ==
            MHD_YES;
    if (added && answer->body_size > 0)
        added = MHD_add_response_header(response, "Content-Type", answer->content_type) == MHD_YES;
    snprintf(retry_s, sizeof retry_s, "%lld", (long long)answer->retry_s);
    if (added && answer->retry_s > 0)
        added = MHD_add_response_header(response, "Retry-After", retry_s) == MHD_YES;
    if (added && answer->location[0] != '\0')
        added = MHD_add_response_header(response, "Location", answer->location) == MHD_YES;
    if (added && answer->replayed)
        added = MHD_add_response_header(response, "Idempotency-Replayed", "true") == MHD_YES;
    if (added && answer->status == MHD_HTTP_UNAUTHORIZED)
        added = MHD_add_response_header(response, "WWW-Authenticate", "Bearer") == MHD_YES;
    if (added && answer->allow[0] != '\0')
        added = MHD_add_response_header(response, "Allow", answer->allow) == MHD_YES;
    if (added && atomic_load_explicit(&exchange->http->quiesced, memory_order_relaxed))
        added = MHD_add_response_header(response, "Connection", "close") == MHD_YES;
    return added;
}

static void set_active(struct exchange *exchange)
{
    exchange->active = true;
    http_timeout_set(&exchange->loop->timeouts, exchange->timeout, HTTP_ANSWERING);
    atomic_fetch_add_explicit(&exchange->http->active, 1, memory_order_relaxed);
}

/* The request is answered. From now on a shutdown waits for the client only SEND_GRACE_NS. */
static void set_sending(struct exchange *exchange)
{
    exchange->sending = true;
    exchange->active = false;
    http_timeout_set(&exchange->loop->timeouts, exchange->timeout, HTTP_SENDING);
    atomic_fetch_add_explicit(&exchange->http->sending, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&exchange->http->active, 1, memory_order_release);
}

/* Gives the answer to libmicrohttpd. The exchange owns the answer's text, and lives until it is
 * sent. */
static enum MHD_Result send_answer(struct exchange *exchange)
{
    const struct request *request = exchange->request;
    const struct answer *answer = &request->answer;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer->body_size, (void *)(uintptr_t)answer->body, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    enum MHD_Result sent = MHD_NO;
    if (add_headers(exchange, response))
        sent = MHD_queue_response(exchange->connection, answer->status, response);
    MHD_destroy_response(response);
    set_sending(exchange);
    http_meter_count(routes_number(exchange->http->options.routes, request->route), request->method,
                     answer->status);
    if (exchange->http->options.log_requests)
        log_request(request->id, method_name(request->method), exchange->target, answer->status,
                    (double)(mono_ns() - request->arrived_ns) / NS_PER_MS);
    return sent;
}

/* The exchange may be freed after this. */
static void http_resume(const struct exchange *exchange)
{
    struct http_loop *loop = exchange->loop;
    MHD_resume_connection(exchange->connection);
    http_loop_wake(loop);
}

void http_answer(struct request *request)
{
    http_resume(request->exchange);
}

/* The request is complete. */
static enum MHD_Result http_serve(struct exchange *exchange)
{
    struct request *request = exchange->request;
    const struct http_options *options = &exchange->http->options;
    set_active(exchange);
    if (request->answer.status == 0)
        check_body(exchange);
    if (request->answer.status != 0)
        return send_answer(exchange);
    if (request->route->where == RUN_HERE) {
        options->serve(options->arg, request);
        return send_answer(exchange);
    }
    /* Suspend it before another thread sees the request: the answer may come at once. */
    exchange->phase = PHASE_WAITING;
    MHD_suspend_connection(exchange->connection);
    if (options->serve(options->arg, request))
        http_resume(exchange);
    return MHD_YES;
}

bool http_is_client_closed(const struct request *request)
{
    struct MHD_Connection *connection = request->exchange->connection;
    struct pollfd end = {.events = POLLRDHUP};
    end.fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    return poll(&end, 1, 0) > 0;
}

/* ---- libmicrohttpd's callbacks --------------------------------------------------------------- */

/* The request line has arrived: creates the exchange. */
static void *on_target(void *cls, const char *target, struct MHD_Connection *connection)
{
    struct http_loop *loop = cls;
    size_t size = strlen(target);
    const char *next = target + size + 1;
    bool too_long = size > REQUEST_URL_MAX;
    size = too_long ? REQUEST_URL_MAX : size;
    struct exchange *exchange = exchange_new(loop->http, size);
    if (exchange == NULL)
        return NULL;
    exchange->loop = loop;
    exchange->connection = connection;
    exchange->timeout =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    exchange->too_long = too_long;
    exchange->target_next = next;
    exchange->request->arrived_ns = mono_ns();
    memcpy(exchange->target, target, size);
    return exchange;
}

/* Called for the head, for each piece of the body, for the end, and after a resume. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **con_cls)
{
    struct exchange *exchange = *con_cls;
    (void)cls, (void)url;
    if (exchange == NULL)
        return MHD_NO;
    if (exchange->phase == PHASE_WAITING)
        return send_answer(exchange);
    if (exchange->phase == PHASE_BODY && *upload_size == 0)
        return http_serve(exchange);
    if (exchange->phase == PHASE_BODY) {
        bool taken = take_body(exchange, upload, *upload_size);
        *upload_size = 0;
        return taken ? MHD_YES : MHD_NO;
    }
    exchange->phase = PHASE_BODY;
    exchange->request->method = method_of(method);
    MHD_get_connection_values(connection, MHD_HEADER_KIND, take_header, exchange);
    if (exchange->request->id[0] == '\0')
        make_request_id(exchange->http, exchange->request->id);
    check_head(exchange, version);
    /* The request is refused, and its body was not sent yet, is too long to read, or has no certain
     * end. So it is answered now, which ends the connection. */
    bool at_once = exchange->expects || exchange->length > SWALLOW_MAX || exchange->bad_encoding ||
                   exchange->bad_length || exchange->lengths + exchange->encodings > 1;
    if (exchange->request->answer.status != 0 && at_once) {
        set_active(exchange);
        return send_answer(exchange);
    }
    return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode why)
{
    struct exchange *exchange = *con_cls;
    (void)cls, (void)connection;
    if (exchange == NULL)
        return;
    if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        http_meter_aborted();
    if (exchange->active)
        atomic_fetch_sub_explicit(&exchange->http->active, 1, memory_order_release);
    if (exchange->sending)
        atomic_fetch_sub_explicit(&exchange->http->sending, 1, memory_order_release);
    http_timeout_set(&exchange->loop->timeouts, exchange->timeout, HTTP_READING);
    free(exchange->request->answer.long_body);
    free(exchange->request->body);
    free(exchange);
    *con_cls = NULL;
}

static void http_on_connection(void *cls, struct MHD_Connection *connection, void **timeout,
                               enum MHD_ConnectionNotificationCode what)
{
    struct http_loop *loop = cls;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED)
        http_timeout_free(&loop->timeouts, *timeout);
    else
        *timeout = http_timeout_new(
            &loop->timeouts,
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
}

static void on_log(void *cls, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void on_log(void *cls, const char *format, va_list args)
{
    char text[256];
    (void)cls;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    log_event(LOG_DEBUG, "http", "%s", text);
}

/* ---- Start and stop -------------------------------------------------------------------------- */

/* An equal share of the connections; the first loops take the remainder. */
static unsigned share_of(const struct http *http, unsigned i)
{
    const struct http_options *options = &http->options;
    return options->connections_max / options->threads +
           (i < options->connections_max % options->threads);
}

static bool start_loop(struct http *http, unsigned i)
{
    struct http_loop *loop = &http->loops[i];
    loop->http = http;
    loop->listen_fd = http->options.fd;
    loop->connections_max = share_of(http, i);
    loop->room = &http->room;
    http_timeouts_init(&loop->timeouts, http->options.request_ms);
    loop->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_CONNECTION_LIMIT, loop->connections_max, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, loop, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        NULL, MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, loop,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (loop->daemon == NULL)
        return false;
    if (http_loop_start(loop))
        return true;
    MHD_stop_daemon(loop->daemon);
    return false;
}

struct http *http_start(const struct http_options *options)
{
    struct http *http = calloc(1, sizeof *http + options->threads * sizeof http->loops[0]);
    if (http == NULL)
        return NULL;
    http->options = *options;
    if (getrandom(&http->id_base, sizeof http->id_base, 0) != sizeof http->id_base)
        http->id_base = (uint64_t)clock_ns(CLOCK_REALTIME);
    while (http->started < options->threads && start_loop(http, http->started))
        http->started++;
    if (http->started == options->threads)
        return http;
    http_stop(http);
    return NULL;
}

void http_quiesce(struct http *http)
{
    if (atomic_exchange(&http->quiesced, true))
        return;
    for (unsigned i = 0; i < http->started; i++)
        http_loop_quiesce(&http->loops[i]);
    /* From now on the kernel refuses connections, so a load balancer asks the next instance. */
    shutdown(http->options.fd, SHUT_RDWR);
}

static bool wait_none(const atomic_long *count, int64_t deadline_ns)
{
    const struct timespec tick = timespec_of(IDLE_POLL_NS);
    while (atomic_load(count) > 0) {
        if (mono_ns() >= deadline_ns)
            return false;
        nanosleep(&tick, NULL);
    }
    return true;
}

bool http_wait_idle(struct http *http, int64_t deadline_ns)
{
    if (!wait_none(&http->active, deadline_ns))
        return false;
    const int64_t grace_ns = mono_ns() + SEND_GRACE_NS;
    wait_none(&http->sending, grace_ns < deadline_ns ? grace_ns : deadline_ns);
    return true;
}

void http_stop(struct http *http)
{
    if (http == NULL)
        return;
    http_quiesce(http);
    for (unsigned i = 0; i < http->started; i++) {
        http_loop_stop(&http->loops[i]);
        MHD_stop_daemon(http->loops[i].daemon);
    }
    close(http->options.fd);
    free(http);
}

const char *http_version(void)
{
    return MHD_get_version();
}
