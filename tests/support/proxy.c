/* SPDX-License-Identifier: Apache-2.0
 *
 * See proxy.h. One thread serves all connections. The bytes of one recv() are treated as one
 * request or one reply. Most requests are sent in one write, and the client waits for the reply.
 */
#include "proxy.h"

#include "child.h"
#include "must.h"
#include "server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define WIRES_MAX 512
#define PIECE_MAX 65536

/* Bytes that are kept until proxy_let_go(). */
struct kept {
    char *bytes; /* NULL: none */
    size_t size;
};

struct wire {
    int client;   /* -1: it has closed, and its request is kept */
    int redis;    /* -1: this place is free */
    bool planned; /* the plan waits for this wire's reply */
    bool muted;
    const char *latest; /* request; NULL: none yet */
    struct kept request;
    struct kept reply;
};

struct proxy {
    int listener;
    int wake_fd;
    int redis_port;
    char url[64];
    pthread_t thread;

    pthread_mutex_t mutex; /* protects the fields below */
    struct wire wires[WIRES_MAX];
    char **requests;
    size_t request_count;
    size_t connections;
    bool pending; /* a plan waits for its request */
    bool each;    /* and then for the next one */
    bool done;
    bool stop;
    enum proxy_act act;
    char *text;
    char *bytes;
    size_t size;
};

/* ---- Wires ----------------------------------------------------------------------------------- */

static void keep(struct kept *kept, const char *bytes, size_t size)
{
    kept->bytes = realloc(kept->bytes, kept->size + size);
    must(kept->bytes != NULL);
    memcpy(kept->bytes + kept->size, bytes, size);
    kept->size += size;
}

static void forget(struct kept *kept)
{
    free(kept->bytes);
    *kept = (struct kept){0};
}

static void client_cut(struct wire *wire)
{
    if (wire->client >= 0)
        close(wire->client);
    wire->client = -1;
}

static void wire_cut(struct wire *wire)
{
    client_cut(wire);
    close(wire->redis);
    forget(&wire->request);
    forget(&wire->reply);
    wire->redis = -1;
}

/* A kept request stays after the client has closed its side. */
static void client_gone(struct wire *wire)
{
    client_cut(wire);
    if (wire->request.bytes == NULL)
        wire_cut(wire);
}

static int redis_socket(const struct proxy *proxy)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)proxy->redis_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static void accept_wire(struct proxy *proxy)
{
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0)
        return;
    proxy->connections++;
    int redis = redis_socket(proxy);
    if (redis < 0) {
        close(client);
        return;
    }
    struct wire *wire = proxy->wires;
    while (wire->redis >= 0)
        must(++wire < proxy->wires + WIRES_MAX);
    *wire = (struct wire){.client = client, .redis = redis};
}

static void forward(int to, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(to, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* the other end has closed; the next poll shows it */
        bytes += sent;
        size -= (size_t)sent;
    }
}

/* ---- Requests and replies -------------------------------------------------------------------- */

static void keep_request(struct proxy *proxy, struct wire *wire, const char *bytes, size_t size)
{
    proxy->requests =
        realloc(proxy->requests, (proxy->request_count + 1) * sizeof *proxy->requests);
    must(proxy->requests != NULL);
    char *copy = malloc(size + 1);
    must(copy != NULL);
    memcpy(copy, bytes, size);
    copy[size] = '\0';
    proxy->requests[proxy->request_count++] = copy;
    wire->latest = copy;
}

/* Carries out the plan if it is for this request. False: the request must be forwarded. */
static bool stopped(struct proxy *proxy, struct wire *wire, const char *bytes, size_t size)
{
    if (!proxy->pending || memmem(bytes, size, proxy->text, strlen(proxy->text)) == NULL)
        return false;
    proxy->pending = proxy->each;
    if (proxy->act > PROXY_HOLD_REQUEST) {
        wire->planned = true;
        return false;
    }
    proxy->done = true;
    if (proxy->act == PROXY_CUT_REQUEST) {
        wire_cut(wire);
        return true;
    }
    if (proxy->act == PROXY_ANSWER) {
        forward(wire->client, proxy->bytes, proxy->size);
        return true;
    }
    keep(&wire->request, bytes, size);
    if (proxy->act == PROXY_DELAY_REQUEST)
        client_cut(wire);
    return true;
}

static void on_request(struct proxy *proxy, struct wire *wire)
{
    char bytes[PIECE_MAX];
    ssize_t size = recv(wire->client, bytes, sizeof bytes, 0);
    if (size <= 0) {
        client_gone(wire);
        return;
    }
    keep_request(proxy, wire, bytes, (size_t)size);
    if (wire->request.bytes != NULL)
        keep(&wire->request, bytes, (size_t)size);
    else if (!stopped(proxy, wire, bytes, (size_t)size))
        forward(wire->redis, bytes, (size_t)size);
}

static void on_reply(struct proxy *proxy, struct wire *wire)
{
    char bytes[PIECE_MAX];
    ssize_t size = recv(wire->redis, bytes, sizeof bytes, 0);
    if (size <= 0) {
        wire_cut(wire);
        return;
    }
    if (wire->muted || wire->client < 0)
        return;
    if (wire->reply.bytes != NULL) {
        keep(&wire->reply, bytes, (size_t)size);
        return;
    }
    if (!wire->planned) {
        forward(wire->client, bytes, (size_t)size);
        return;
    }
    wire->planned = false;
    proxy->done = true;
    switch (proxy->act) {
    case PROXY_HOLD_REPLY:
        keep(&wire->reply, bytes, (size_t)size);
        break;
    case PROXY_REPLACE_REPLY:
        forward(wire->client, proxy->bytes, proxy->size);
        break;
    case PROXY_MUTE:
        wire->muted = true;
        break;
    default:
        wire_cut(wire);
    }
}

/* ---- What was kept --------------------------------------------------------------------------- */

static bool has_closed(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};
    return poll(&end, 1, 0) > 0;
}

/* Passes the end of the client's bytes on; the server closes once it has carried them out. */
static void drain(int redis)
{
    char bytes[PIECE_MAX];
    struct pollfd end = {.fd = redis, .events = POLLIN};
    shutdown(redis, SHUT_WR);
    do
        must(poll(&end, 1, PATIENCE_MS) > 0);
    while (recv(redis, bytes, sizeof bytes, 0) > 0);
}

/* hears: a server that notices that its client has left, and then does nothing more, has to answer
 * before. */
static void deliver(struct wire *wire, bool hears)
{
    struct pollfd reply = {.fd = wire->redis, .events = POLLIN};
    if (wire->client >= 0 && has_closed(wire->client))
        client_cut(wire);
    forward(wire->redis, wire->request.bytes, wire->request.size);
    forget(&wire->request);
    if (wire->client >= 0)
        return;
    if (hears)
        must(poll(&reply, 1, PATIENCE_MS) == 1);
    drain(wire->redis);
    wire_cut(wire);
}

/* ---- The pump -------------------------------------------------------------------------------- */

static void *run(void *arg)
{
    struct proxy *proxy = arg;
    struct pollfd polls[2 + 2 * WIRES_MAX];
    for (;;) {
        pthread_mutex_lock(&proxy->mutex);
        bool stop = proxy->stop;
        polls[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
        polls[1] = (struct pollfd){.fd = proxy->wake_fd, .events = POLLIN};
        for (size_t i = 0; i < WIRES_MAX; i++) {
            const struct wire *wire = &proxy->wires[i];
            polls[2 + 2 * i] = (struct pollfd){.fd = wire->client, .events = POLLIN};
            polls[3 + 2 * i] = (struct pollfd){.fd = wire->redis, .events = POLLIN};
        }
        pthread_mutex_unlock(&proxy->mutex);
        if (stop)
            return NULL;
        poll(polls, 2 + 2 * WIRES_MAX, -1);
        pthread_mutex_lock(&proxy->mutex);
        for (size_t i = 0; i < WIRES_MAX; i++) {
            struct wire *wire = &proxy->wires[i];
            if (wire->client >= 0 && polls[2 + 2 * i].revents != 0)
                on_request(proxy, wire);
            if (wire->redis >= 0 && polls[3 + 2 * i].revents != 0)
                on_reply(proxy, wire);
        }
        if (polls[0].revents != 0)
            accept_wire(proxy);
        uint64_t woken;
        if (polls[1].revents != 0)
            must(read(proxy->wake_fd, &woken, sizeof woken) == sizeof woken);
        pthread_mutex_unlock(&proxy->mutex);
    }
}

/* ---- What tests call ------------------------------------------------------------------------- */

static void wake(struct proxy *proxy)
{
    uint64_t one = 1;
    must(write(proxy->wake_fd, &one, sizeof one) == sizeof one);
}

struct proxy *proxy_start(const struct server *server)
{
    return proxy_start_to(server_port(server));
}

struct proxy *proxy_start_to(int port)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    must(proxy != NULL);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    proxy->redis_port = port;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(proxy->listener, (struct sockaddr *)&address, size) == 0);
    must(listen(proxy->listener, 128) == 0);
    must(getsockname(proxy->listener, (struct sockaddr *)&address, &size) == 0);
    snprintf(proxy->url, sizeof proxy->url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    proxy->wake_fd = eventfd(0, EFD_CLOEXEC);
    must(proxy->wake_fd >= 0);
    pthread_mutex_init(&proxy->mutex, NULL);
    for (size_t i = 0; i < WIRES_MAX; i++)
        proxy->wires[i] = (struct wire){.client = -1, .redis = -1};
    proxy->thread = thread_start(run, proxy);
    return proxy;
}

void proxy_free(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->stop = true;
    pthread_mutex_unlock(&proxy->mutex);
    wake(proxy);
    thread_wait(proxy->thread);
    for (size_t i = 0; i < WIRES_MAX; i++)
        if (proxy->wires[i].redis >= 0)
            wire_cut(&proxy->wires[i]);
    for (size_t i = 0; i < proxy->request_count; i++)
        free(proxy->requests[i]);
    free(proxy->requests);
    free(proxy->text);
    free(proxy->bytes);
    close(proxy->listener);
    close(proxy->wake_fd);
    pthread_mutex_destroy(&proxy->mutex);
    free(proxy);
}

const char *proxy_url(const struct proxy *proxy)
{
    return proxy->url;
}

static void plan(struct proxy *proxy, enum proxy_act act, const char *text, const void *bytes,
                 size_t size, bool each)
{
    pthread_mutex_lock(&proxy->mutex);
    free(proxy->text);
    free(proxy->bytes);
    proxy->act = act;
    proxy->text = strdup(text);
    proxy->bytes = malloc(size + 1);
    must(proxy->text != NULL && proxy->bytes != NULL);
    if (size > 0)
        memcpy(proxy->bytes, bytes, size);
    proxy->size = size;
    proxy->pending = true;
    proxy->each = each;
    proxy->done = false;
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_plan(struct proxy *proxy, enum proxy_act act, const char *text, const void *bytes,
                size_t size)
{
    plan(proxy, act, text, bytes, size, false);
}

void proxy_plan_each(struct proxy *proxy, enum proxy_act act, const char *text, const void *bytes,
                     size_t size)
{
    plan(proxy, act, text, bytes, size, true);
}

bool proxy_done(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    bool done = proxy->done;
    pthread_mutex_unlock(&proxy->mutex);
    return done;
}

static void let_go(struct proxy *proxy, bool hears)
{
    pthread_mutex_lock(&proxy->mutex);
    for (size_t i = 0; i < WIRES_MAX; i++) {
        struct wire *wire = &proxy->wires[i];
        if (wire->reply.bytes != NULL)
            forward(wire->client, wire->reply.bytes, wire->reply.size);
        forget(&wire->reply);
        if (wire->request.bytes != NULL)
            deliver(wire, hears);
    }
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_let_go(struct proxy *proxy)
{
    let_go(proxy, false);
}

void proxy_let_go_and_hear(struct proxy *proxy)
{
    let_go(proxy, true);
}

void proxy_cut(struct proxy *proxy, const char *text)
{
    pthread_mutex_lock(&proxy->mutex);
    for (size_t i = 0; i < WIRES_MAX; i++) {
        struct wire *wire = &proxy->wires[i];
        if (wire->redis >= 0 && wire->latest != NULL && strstr(wire->latest, text) != NULL)
            wire_cut(wire);
    }
    pthread_mutex_unlock(&proxy->mutex);
    wake(proxy);
}

size_t proxy_connections(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    size_t count = proxy->connections;
    pthread_mutex_unlock(&proxy->mutex);
    return count;
}

size_t proxy_requests(struct proxy *proxy, const char *text)
{
    size_t count = 0;
    pthread_mutex_lock(&proxy->mutex);
    for (size_t i = 0; i < proxy->request_count; i++)
        count += strstr(proxy->requests[i], text) != NULL;
    pthread_mutex_unlock(&proxy->mutex);
    return count;
}
