/* SPDX-License-Identifier: Apache-2.0
 *
 * See proxy.h.
 */
#include "proxy.h"

#include "keys.h"
#include "must.h"
#include "request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#define WIRES_MAX 512
#define PIECE_MAX 16384
#define SOON_MS 30

/* Bytes that are under way. */
struct packet {
    STAILQ_ENTRY(packet) next;
    int64_t due_ns;
    size_t size;
    char bytes[];
};
STAILQ_HEAD(packets, packet);

struct wire {
    uint64_t number; /* 0 if this place is free */
    struct proxy *proxy;
    int server;
    int process;       /* -1: no process has logged in */
    bool of_server;    /* made by another server: its bytes are not looked at */
    bool of_replica;   /* and that is a replica */
    int client, redis; /* client is -1 after it has closed its end */
    struct packets up, down;
    bool keep_up, keep_down, reset_at_reply, dropping;
    int round_trip_ms;
    bool half_closed; /* no more bytes go up */
    size_t unread_size;
    char unread[PIECE_MAX * 2]; /* of an incomplete request */
    struct request_seen last;
};

/* A server, as the proxy sees it. */
struct beyond {
    char name[16]; /* for the transcript */
    int server_port;
    int listener, port;
    bool refuse;
    enum keep keep;
    int round_trip_ms;
};

struct proxy {
    struct world *world;
    on_request *asked;
    void *arg;
    int64_t last_request_ns;
    uint64_t numbers;
    int server_count;
    struct beyond servers[SERVERS_MOST];
    struct wire wires[WIRES_MAX];
};

/* ---- Bytes on their way ---------------------------------------------------------------------- */

static void put(struct wire *wire, struct packets *to, const char *bytes, size_t size)
{
    struct packet *packet = malloc(sizeof *packet + size);
    must(packet != NULL);
    int slower_ms = wire->proxy->servers[wire->server].round_trip_ms;
    packet->due_ns = boot_ns() + (wire->round_trip_ms + slower_ms) * NS_A_MS / 2;
    packet->size = size;
    memcpy(packet->bytes, bytes, size);
    STAILQ_INSERT_TAIL(to, packet, next);
}

static void clear(struct packets *packets)
{
    struct packet *packet;
    while ((packet = STAILQ_FIRST(packets)) != NULL) {
        STAILQ_REMOVE_HEAD(packets, next);
        free(packet);
    }
}

/* Sends what is due. True if nothing is left. */
static bool flush(struct packets *packets, int to)
{
    struct packet *packet;
    while ((packet = STAILQ_FIRST(packets)) != NULL) {
        if (packet->due_ns > boot_ns())
            return false;
        for (size_t sent = 0; sent < packet->size && to >= 0;) {
            ssize_t some = send(to, packet->bytes + sent, packet->size - sent, MSG_NOSIGNAL);
            if (some <= 0)
                break; /* the other end has closed; the next poll shows it */
            sent += (size_t)some;
        }
        STAILQ_REMOVE_HEAD(packets, next);
        free(packet);
    }
    return true;
}

static void close_client(struct wire *wire, bool reset)
{
    struct linger linger = {.l_onoff = 1};
    if (wire->client < 0)
        return;
    if (reset)
        setsockopt(wire->client, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(wire->client);
    wire->client = -1;
}

static void wire_end(struct wire *wire)
{
    close_client(wire, true);
    close(wire->redis);
    clear(&wire->up);
    clear(&wire->down);
    wire->number = 0;
}

static bool keeps_up(const struct wire *wire)
{
    enum keep keep = wire->proxy->servers[wire->server].keep;
    return wire->keep_up || keep == KEEP_ALL || (keep == KEEP_SERVERS && wire->of_server);
}

static bool keeps_down(const struct wire *wire)
{
    enum keep keep = wire->proxy->servers[wire->server].keep;
    return wire->keep_down || keep == KEEP_ALL || (keep == KEEP_SERVERS && wire->of_server) ||
           (keep == KEEP_REPLICATION && wire->of_replica);
}

/* Forwards what is due and not kept. When everything went up, the server learns of the client's
 * end. */
static void move(struct wire *wire)
{
    bool all_up = !keeps_up(wire) && flush(&wire->up, wire->redis);
    if (!keeps_down(wire))
        flush(&wire->down, wire->client);
    if (all_up && wire->client < 0 && !wire->half_closed) {
        shutdown(wire->redis, SHUT_WR);
        wire->half_closed = true;
    }
}

/* ---- What faults do to a wire ---------------------------------------------------------------- */

uint64_t wire_number(const struct wire *wire)
{
    return wire->number;
}

int wire_server(const struct wire *wire)
{
    return wire->server;
}

struct wire *wire_find(struct proxy *proxy, uint64_t number)
{
    for (size_t i = 0; i < WIRES_MAX; i++)
        if (number != 0 && proxy->wires[i].number == number)
            return &proxy->wires[i];
    return NULL;
}

bool wire_has_client(const struct wire *wire)
{
    return wire->client >= 0;
}

void wire_keep(struct wire *wire, bool up, bool down)
{
    wire->keep_up |= up;
    wire->keep_down |= down;
}

void wire_let_go(struct wire *wire)
{
    wire->keep_up = wire->keep_down = false;
    bool waits = !STAILQ_EMPTY(&wire->up) && !keeps_up(wire);
    move(wire);
    if (waits)
        poll(&(struct pollfd){.fd = wire->redis, .events = POLLIN}, 1, SOON_MS);
}

void wire_slow(struct wire *wire, int round_trip_ms)
{
    wire->round_trip_ms = round_trip_ms;
}

void wire_reset(struct wire *wire)
{
    close_client(wire, true);
}

void wire_reset_at_reply(struct wire *wire)
{
    wire->reset_at_reply = true;
}

void proxy_refuse(struct proxy *proxy, int server, bool refuse)
{
    proxy->servers[server].refuse = refuse;
}

void proxy_keep(struct proxy *proxy, int server, enum keep keep)
{
    proxy->servers[server].keep = keep;
    for (size_t i = 0; i < WIRES_MAX; i++)
        if (proxy->wires[i].number != 0 && proxy->wires[i].server == server)
            move(&proxy->wires[i]);
}

void proxy_slow(struct proxy *proxy, int server, int round_trip_ms)
{
    proxy->servers[server].round_trip_ms = round_trip_ms;
}

void proxy_cut_all(struct proxy *proxy, int server)
{
    for (size_t i = 0; i < WIRES_MAX; i++)
        if (proxy->wires[i].number != 0 && proxy->wires[i].server == server)
            wire_end(&proxy->wires[i]);
}

/* ---- Requests and replies -------------------------------------------------------------------- */

/* The first request of a process is its login. That of a replica is PING. */
static void read_login(struct wire *wire, const char *text)
{
    wire->of_server = sscanf(text, "AUTH " KEYS_USER "%d ", &wire->process) != 1;
    wire->of_replica = wire->of_server && strcmp(text, "PING") == 0;
}

static void note_on(const struct wire *wire, const char *way, const char *text, const char *more)
{
    const char *name = wire->proxy->servers[wire->server].name;
    note(wire->proxy->world, NOTE_TEXT, wire->process, NULL, "wire %llu%s%s %s %s%s",
         (unsigned long long)wire->number, *name != '\0' ? " of " : "", name, way, text, more);
}

/* Handles the complete requests. */
static void take_requests(struct wire *wire)
{
    struct proxy *proxy = wire->proxy;
    struct request_seen seen;
    size_t size, at = 0;
    while (!wire->dropping && !wire->of_server &&
           (size = request_size(wire->unread + at, wire->unread_size - at)) > 0) {
        request_read(wire->unread + at, &seen);
        if (wire->process < 0)
            read_login(wire, seen.text);
        if (wire->of_server)
            break;
        seen.process = wire->process;
        seen.server = wire->server;
        seen.answered = false;
        proxy->last_request_ns = boot_ns();
        note_on(wire, ">", seen.text, "");
        wire->last = seen;
        uint64_t number = wire->number;
        enum onward onward = proxy->asked(proxy->arg, wire, &seen);
        if (wire->number != number)
            return; /* cut */
        wire->dropping |= onward == ONWARD_DROP;
        if (!wire->dropping)
            put(wire, &wire->up, wire->unread + at, size);
        at += size;
    }
    if (wire->of_server) {
        put(wire, &wire->up, wire->unread, wire->unread_size);
        at = wire->unread_size;
    }
    memmove(wire->unread, wire->unread + at, wire->unread_size - at);
    wire->unread_size -= at;
}

static void from_client(struct wire *wire)
{
    ssize_t size = recv(wire->client, wire->unread + wire->unread_size,
                        sizeof wire->unread - wire->unread_size, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0) {
        close_client(wire, false);
        return;
    }
    wire->unread_size += (size_t)size;
    take_requests(wire);
    if (wire->number != 0 && wire->dropping)
        close_client(wire, true);
}

/* Notes a reply on one line. */
static void note_reply(const struct wire *wire, const char *bytes, size_t size)
{
    char line[80];
    size_t used = 0;
    bool to_nobody = wire->client < 0 || wire->reset_at_reply;
    for (size_t i = 0; i < size && used < sizeof line - 1; i++)
        if (bytes[i] != '\r')
            line[used++] = bytes[i] == '\n' ? ' ' : bytes[i];
    line[used] = '\0';
    note_on(wire, "<", line, to_nobody ? "(to no client)" : keeps_down(wire) ? "(kept)" : "");
}

static void from_server(struct wire *wire)
{
    char bytes[PIECE_MAX];
    ssize_t size = recv(wire->redis, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0) {
        wire_end(wire);
        return;
    }
    if (wire->of_server && wire->client >= 0)
        put(wire, &wire->down, bytes, (size_t)size);
    if (wire->of_server)
        return;
    note_reply(wire, bytes, (size_t)size);
    if (wire->reset_at_reply)
        close_client(wire, true);
    struct request_seen answered = wire->last;
    uint64_t number = wire->number;
    answered.answered = true;
    wire->proxy->asked(wire->proxy->arg, wire, &answered);
    if (wire->number == number && wire->client >= 0)
        put(wire, &wire->down, bytes, (size_t)size);
}

/* ---- Connections ----------------------------------------------------------------------------- */

static int server_socket_fd(const struct beyond *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)server->server_port),
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

static void accept_one(struct proxy *proxy, int server)
{
    struct wire *wire = proxy->wires;
    const struct beyond *beyond = &proxy->servers[server];
    int on = 1;
    int client = accept4(beyond->listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0)
        return;
    while (wire < proxy->wires + WIRES_MAX && wire->number != 0)
        wire++;
    if (wire == proxy->wires + WIRES_MAX) { /* a client that reconnects all the time */
        close(client);
        return;
    }
    int redis = beyond->refuse ? -1 : server_socket_fd(beyond);
    memset(wire, 0, offsetof(struct wire, unread));
    wire->proxy = proxy;
    wire->client = client;
    wire->redis = redis;
    wire->server = server;
    wire->process = -1;
    wire->last = (struct request_seen){.kind = REQUEST_OTHER};
    if (redis < 0) {
        close_client(wire, true);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    wire->number = ++proxy->numbers;
    STAILQ_INIT(&wire->up);
    STAILQ_INIT(&wire->down);
}

/* The time to wait until the next delayed packet is due, at most wait_ms. */
static int wait_for(const struct proxy *proxy, int wait_ms)
{
    int64_t now_ns = boot_ns();
    for (size_t i = 0; i < WIRES_MAX; i++) {
        const struct wire *wire = &proxy->wires[i];
        bool used = wire->number != 0;
        const struct packet *first[] = {used && !keeps_up(wire) ? STAILQ_FIRST(&wire->up) : NULL,
                                        used && !keeps_down(wire) ? STAILQ_FIRST(&wire->down)
                                                                  : NULL};
        for (size_t j = 0; j < 2; j++) {
            int64_t left_ns = first[j] == NULL ? INT64_MAX : first[j]->due_ns - now_ns;
            if (left_ns < wait_ms * NS_A_MS)
                wait_ms = left_ns <= 0 ? 0 : (int)(left_ns / NS_A_MS) + 1;
        }
    }
    return wait_ms;
}

void proxy_round(struct proxy *proxy, int wait_ms)
{
    static struct pollfd polls[SERVERS_MOST + 2 * WIRES_MAX];
    static uint64_t numbers[WIRES_MAX];
    struct pollfd *end = polls;
    for (int i = 0; i < proxy->server_count; i++)
        *end++ = (struct pollfd){.fd = proxy->servers[i].listener, .events = POLLIN};
    const struct pollfd *of_wires = end;
    for (size_t i = 0; i < WIRES_MAX; i++) {
        const struct wire *wire = &proxy->wires[i];
        numbers[i] = wire->number;
        *end++ = (struct pollfd){.fd = wire->number == 0 ? -1 : wire->client, .events = POLLIN};
        *end++ = (struct pollfd){.fd = wire->number == 0 ? -1 : wire->redis, .events = POLLIN};
    }
    poll(polls, (nfds_t)(end - polls), wait_for(proxy, wait_ms));
    for (size_t i = 0; i < WIRES_MAX; i++) {
        struct wire *wire = &proxy->wires[i];
        const struct pollfd *here = &of_wires[2 * i];
        if (wire->number != 0 && wire->number == numbers[i] && here[1].revents != 0)
            from_server(wire);
        if (wire->number != 0 && wire->number == numbers[i] && wire->client >= 0 &&
            here[0].revents != 0)
            from_client(wire);
        if (wire->number != 0)
            move(wire);
    }
    for (int i = 0; i < proxy->server_count; i++)
        if (polls[i].revents != 0)
            accept_one(proxy, i);
}

int64_t proxy_last_request_ns(const struct proxy *proxy)
{
    return proxy->last_request_ns;
}

int proxy_port(const struct proxy *proxy, int server)
{
    return proxy->servers[server].port;
}

void proxy_lead(struct proxy *proxy, int server, int port)
{
    proxy->servers[server].server_port = port;
}

static void listen_for(struct beyond *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(server->listener, (struct sockaddr *)&address, size) == 0);
    must(listen(server->listener, 128) == 0);
    must(getsockname(server->listener, (struct sockaddr *)&address, &size) == 0);
    server->port = ntohs(address.sin_port);
}

struct proxy *proxy_new(struct world *world, const struct plan *plan, on_request *asked, void *arg)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    must(proxy != NULL);
    proxy->world = world;
    proxy->asked = asked;
    proxy->arg = arg;
    proxy->last_request_ns = boot_ns();
    proxy->server_count = plan->servers;
    for (int i = 0; i < plan->servers; i++) {
        plan_server_name(plan, i, proxy->servers[i].name, sizeof proxy->servers[i].name);
        listen_for(&proxy->servers[i]);
    }
    return proxy;
}

void proxy_free(struct proxy *proxy)
{
    for (int i = 0; i < proxy->server_count; i++) {
        proxy_cut_all(proxy, i);
        close(proxy->servers[i].listener);
    }
    free(proxy);
}
