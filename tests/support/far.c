/* SPDX-License-Identifier: Apache-2.0
 *
 * See far.h. One thread serves all connections.
 */
#include "far.h"

#include "child.h"
#include "clock.h"
#include "must.h"
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#define WIRES_MAX 128
#define PIECE_MAX 65536

struct piece {
    STAILQ_ENTRY(piece) next;
    int64_t due_ns; /* CLOCK_MONOTONIC */
    size_t size;    /* 0: the sender has closed */
    size_t sent;
    char bytes[];
};

/* One direction of a wire. */
struct way {
    int from;
    int to;
    STAILQ_HEAD(, piece) pieces;
};

struct wire {
    int client; /* -1: this place is free */
    int redis;
    struct way ways[2];
};

struct far {
    int listener;
    int stop_fd;
    int redis_port;
    int64_t way_ns;
    char url[64];
    pthread_t thread;
    struct wire wires[WIRES_MAX];
};

static void forget_first(struct way *way)
{
    struct piece *piece = STAILQ_FIRST(&way->pieces);
    STAILQ_REMOVE_HEAD(&way->pieces, next);
    free(piece);
}

static void wire_cut(struct wire *wire)
{
    close(wire->client);
    close(wire->redis);
    wire->client = -1;
    for (int i = 0; i < 2; i++)
        while (!STAILQ_EMPTY(&wire->ways[i].pieces))
            forget_first(&wire->ways[i]);
}

static void way_open(struct way *way, int from, int to)
{
    way->from = from;
    way->to = to;
    STAILQ_INIT(&way->pieces);
}

static void accept_wire(struct far *far)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)far->redis_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    int client = accept4(far->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int redis = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client < 0 || connect(redis, (struct sockaddr *)&address, sizeof address) != 0) {
        close(client);
        close(redis);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(redis, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct wire *wire = far->wires;
    while (wire->client >= 0)
        must(++wire < far->wires + WIRES_MAX);
    wire->client = client;
    wire->redis = redis;
    way_open(&wire->ways[0], client, redis);
    way_open(&wire->ways[1], redis, client);
}

static void take_in(const struct far *far, struct way *way)
{
    char bytes[PIECE_MAX];
    ssize_t size = recv(way->from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN)
        return;
    struct piece *piece = malloc(sizeof *piece + (size > 0 ? (size_t)size : 0));
    must(piece != NULL);
    piece->due_ns = mono_ns() + far->way_ns;
    piece->size = size > 0 ? (size_t)size : 0;
    piece->sent = 0;
    memcpy(piece->bytes, bytes, piece->size);
    STAILQ_INSERT_TAIL(&way->pieces, piece, next);
    if (size <= 0)
        way->from = -1;
}

/* Sends what is due. False if the wire has ended. */
static bool let_out(struct way *way)
{
    struct piece *piece;
    while ((piece = STAILQ_FIRST(&way->pieces)) != NULL && piece->due_ns <= mono_ns()) {
        if (piece->size == 0)
            return false;
        ssize_t sent = send(way->to, piece->bytes + piece->sent, piece->size - piece->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN)
            return true; /* the next round tries again */
        if (sent < 0)
            return false;
        piece->sent += (size_t)sent;
        if (piece->sent == piece->size)
            forget_first(way);
    }
    return true;
}

static int64_t soonest_ns(const struct far *far)
{
    int64_t soonest = INT64_MAX;
    for (size_t i = 0; i < WIRES_MAX; i++)
        for (int j = 0; j < 2 && far->wires[i].client >= 0; j++) {
            const struct piece *first = STAILQ_FIRST(&far->wires[i].ways[j].pieces);
            if (first != NULL && first->due_ns < soonest)
                soonest = first->due_ns;
        }
    return soonest;
}

static void *run(void *arg)
{
    struct far *far = arg;
    struct pollfd polls[2 + 2 * WIRES_MAX];
    for (;;) {
        polls[0] = (struct pollfd){.fd = far->listener, .events = POLLIN};
        polls[1] = (struct pollfd){.fd = far->stop_fd, .events = POLLIN};
        for (size_t i = 0; i < 2 * WIRES_MAX; i++) {
            const struct wire *wire = &far->wires[i / 2];
            polls[2 + i] = (struct pollfd){.fd = wire->client >= 0 ? wire->ways[i % 2].from : -1,
                                           .events = POLLIN};
        }
        int64_t until_ns = soonest_ns(far);
        int64_t left_ns = until_ns - mono_ns();
        left_ns = left_ns > 0 ? left_ns : NS_PER_MS / 10;
        struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
        ppoll(polls, 2 + 2 * WIRES_MAX, until_ns == INT64_MAX ? NULL : &left, NULL);
        if (polls[1].revents != 0)
            return NULL;
        for (size_t i = 0; i < 2 * WIRES_MAX; i++) {
            struct wire *wire = &far->wires[i / 2];
            if (wire->client >= 0 && polls[2 + i].revents != 0)
                take_in(far, &wire->ways[i % 2]);
            if (wire->client >= 0 && !let_out(&wire->ways[i % 2]))
                wire_cut(wire);
        }
        if (polls[0].revents != 0)
            accept_wire(far);
    }
}

struct far *far_start(const struct server *server, int64_t round_trip_ms)
{
    struct far *far = calloc(1, sizeof *far);
    must(far != NULL);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    far->redis_port = server_port(server);
    far->way_ns = round_trip_ms * NS_PER_MS / 2;
    far->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(far->listener, (struct sockaddr *)&address, size) == 0);
    must(listen(far->listener, 128) == 0);
    must(getsockname(far->listener, (struct sockaddr *)&address, &size) == 0);
    snprintf(far->url, sizeof far->url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    far->stop_fd = eventfd(0, EFD_CLOEXEC);
    must(far->stop_fd >= 0);
    for (size_t i = 0; i < WIRES_MAX; i++)
        far->wires[i].client = -1;
    far->thread = thread_start(run, far);
    return far;
}

void far_free(struct far *far)
{
    uint64_t one = 1;
    must(write(far->stop_fd, &one, sizeof one) == sizeof one);
    thread_wait(far->thread);
    for (size_t i = 0; i < WIRES_MAX; i++)
        if (far->wires[i].client >= 0)
            wire_cut(&far->wires[i]);
    close(far->listener);
    close(far->stop_fd);
    free(far);
}

const char *far_url(const struct far *far)
{
    return far->url;
}
