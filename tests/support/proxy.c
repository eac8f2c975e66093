/* SPDX-License-Identifier: Apache-2.0
 *
 * See proxy.h. One thread pumps all connections. What one recv brings is taken for one request or
 * one reply: the library sends a request in one write and waits for its reply.
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

#define WIRES_MAX 64
#define PIECE_MAX 65536

struct wire {
    int client; /* -1: this place is free */
    int redis;
    bool planned; /* the plan waits for this wire's reply */
    char *held;   /* a reply that waits to be let go */
    size_t held_size;
};

struct proxy {
    int listener;
    int wake_fd;
    int redis_port;
    char url[64];
    pthread_t thread;

    pthread_mutex_t mutex; /* protects what is below */
    struct wire wires[WIRES_MAX];
    char *late; /* a delayed request */
    size_t late_size;
    char **requests;
    size_t request_count;
    bool pending; /* a plan waits for its request */
    bool done;
    bool stop;
    enum proxy_act act;
    char *text;
    char *bytes;
    size_t size;
};

/* ---- Wires ----------------------------------------------------------------------------------- */

static void wire_cut(struct wire *wire)
{
    close(wire->client);
    close(wire->redis);
    free(wire->held);
    *wire = (struct wire){.client = -1};
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
    int redis = redis_socket(proxy);
    if (redis < 0) {
        close(client);
        return;
    }
    struct wire *wire = proxy->wires;
    while (wire->client >= 0)
        must(++wire < proxy->wires + WIRES_MAX);
    *wire = (struct wire){.client = client, .redis = redis};
}

static void forward(int to, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(to, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* the other end is gone; its hang-up is seen by the next poll */
        bytes += sent;
        size -= (size_t)sent;
    }
}

/* ---- Requests and replies -------------------------------------------------------------------- */

static void keep_request(struct proxy *proxy, const char *bytes, size_t size)
{
    proxy->requests =
        realloc(proxy->requests, (proxy->request_count + 1) * sizeof *proxy->requests);
    must(proxy->requests != NULL);
    char *copy = malloc(size + 1);
    must(copy != NULL);
    memcpy(copy, bytes, size);
    copy[size] = '\0';
    proxy->requests[proxy->request_count++] = copy;
}

static void keep_late(struct proxy *proxy, const char *bytes, size_t size)
{
    must(proxy->late == NULL);
    proxy->late = malloc(size);
    must(proxy->late != NULL);
    memcpy(proxy->late, bytes, size);
    proxy->late_size = size;
}

/* On a connection of its own: the one that it was sent on is gone. */
static void deliver_late(struct proxy *proxy)
{
    char reply[PIECE_MAX];
    int redis = redis_socket(proxy);
    must(redis >= 0);
    forward(redis, proxy->late, proxy->late_size);
    must(recv(redis, reply, sizeof reply, 0) > 0);
    close(redis);
    free(proxy->late);
    proxy->late = NULL;
}

static void on_request(struct proxy *proxy, struct wire *wire)
{
    char bytes[PIECE_MAX];
    ssize_t size = recv(wire->client, bytes, sizeof bytes, 0);
    if (size <= 0) {
        wire_cut(wire);
        return;
    }
    keep_request(proxy, bytes, (size_t)size);
    if (proxy->pending && memmem(bytes, (size_t)size, proxy->text, strlen(proxy->text)) != NULL) {
        proxy->pending = false;
        if (proxy->act == PROXY_CUT_REQUEST || proxy->act == PROXY_DELAY_REQUEST) {
            if (proxy->act == PROXY_DELAY_REQUEST)
                keep_late(proxy, bytes, (size_t)size);
            proxy->done = true;
            wire_cut(wire);
            return;
        }
        wire->planned = true;
    }
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
    if (!wire->planned) {
        forward(wire->client, bytes, (size_t)size);
        return;
    }
    wire->planned = false;
    proxy->done = true;
    switch (proxy->act) {
    case PROXY_HOLD_REPLY:
        wire->held = malloc((size_t)size);
        must(wire->held != NULL);
        memcpy(wire->held, bytes, (size_t)size);
        wire->held_size = (size_t)size;
        break;
    case PROXY_REPLACE_REPLY:
        forward(wire->client, proxy->bytes, proxy->size);
        break;
    default:
        wire_cut(wire);
    }
}

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
            bool used = wire->client >= 0;
            polls[2 + 2 * i] = (struct pollfd){.fd = wire->client, .events = POLLIN};
            polls[3 + 2 * i] = (struct pollfd){.fd = used ? wire->redis : -1, .events = POLLIN};
        }
        pthread_mutex_unlock(&proxy->mutex);
        if (stop)
            return NULL;
        poll(polls, 2 + 2 * WIRES_MAX, -1);
        pthread_mutex_lock(&proxy->mutex);
        for (size_t i = 0; i < WIRES_MAX; i++) {
            struct wire *wire = &proxy->wires[i];
            if (polls[2 + 2 * i].revents != 0)
                on_request(proxy, wire);
            if (wire->client >= 0 && polls[3 + 2 * i].revents != 0)
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
    struct proxy *proxy = calloc(1, sizeof *proxy);
    must(proxy != NULL);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    proxy->redis_port = server_port(server);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(proxy->listener, (struct sockaddr *)&address, size) == 0);
    must(listen(proxy->listener, 128) == 0);
    must(getsockname(proxy->listener, (struct sockaddr *)&address, &size) == 0);
    snprintf(proxy->url, sizeof proxy->url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    proxy->wake_fd = eventfd(0, EFD_CLOEXEC);
    must(proxy->wake_fd >= 0);
    pthread_mutex_init(&proxy->mutex, NULL);
    for (size_t i = 0; i < WIRES_MAX; i++)
        proxy->wires[i].client = -1;
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
        if (proxy->wires[i].client >= 0)
            wire_cut(&proxy->wires[i]);
    for (size_t i = 0; i < proxy->request_count; i++)
        free(proxy->requests[i]);
    free(proxy->requests);
    free(proxy->text);
    free(proxy->bytes);
    free(proxy->late);
    close(proxy->listener);
    close(proxy->wake_fd);
    pthread_mutex_destroy(&proxy->mutex);
    free(proxy);
}

const char *proxy_url(const struct proxy *proxy)
{
    return proxy->url;
}

void proxy_plan(struct proxy *proxy, enum proxy_act act, const char *text, const void *bytes,
                size_t size)
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
    proxy->done = false;
    pthread_mutex_unlock(&proxy->mutex);
}

bool proxy_done(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    bool done = proxy->done;
    pthread_mutex_unlock(&proxy->mutex);
    return done;
}

void proxy_let_go(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    for (size_t i = 0; i < WIRES_MAX; i++) {
        struct wire *wire = &proxy->wires[i];
        if (wire->client < 0 || wire->held == NULL)
            continue;
        forward(wire->client, wire->held, wire->held_size);
        free(wire->held);
        wire->held = NULL;
    }
    if (proxy->late != NULL)
        deliver_late(proxy);
    pthread_mutex_unlock(&proxy->mutex);
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
