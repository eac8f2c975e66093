/* SPDX-License-Identifier: Apache-2.0
 *
 * The wires between the clients and the servers: one for each connection, each with its own
 * connection to the server. A wire can keep bytes and send them later, even after the client has
 * closed its end. They then reach the server on the connection on which they were sent, as with
 * TCP. The proxy has no thread: proxy_round() does all work. faults.c decides which request meets
 * which fault. Each process logs in as a user of its own, so the first request of a
 * connection tells which process made it.
 */
#ifndef TORTURE_PROXY_H
#define TORTURE_PROXY_H

#include "history.h"

struct proxy;
struct wire;

struct request_seen {
    int process, server;
    enum request kind;
    bool answered;  /* this is the server's reply to it */
    char label[32]; /* "SET", "fair acquire" */
    char text[96];  /* with its arguments, cut to fit */
};

/* Called for each request before it is forwarded, and for each reply. */
enum onward {
    ONWARD_SEND,
    ONWARD_DROP, /* it and all later bytes of the connection are not forwarded */
};
typedef enum onward on_request(void *arg, struct wire *wire, const struct request_seen *seen);

/* The servers may be started later, see proxy_lead(). */
struct proxy *proxy_new(struct world *world, const struct plan *plan, on_request *asked, void *arg);
void proxy_free(struct proxy *proxy);
/* The port at which clients reach the server. */
int proxy_port(const struct proxy *proxy, int server);
/* The port at which the proxy reaches it. */
void proxy_lead(struct proxy *proxy, int server, int port);
/* Waits for at most that time, and handles what is due. */
void proxy_round(struct proxy *proxy, int wait_ms);
/* Time of the latest request. */
int64_t proxy_last_request_ns(const struct proxy *proxy);
/* About all wires of a server, and those to come. */
void proxy_refuse(struct proxy *proxy, int server, bool refuse);
enum keep {
    KEEP_NOTHING,
    KEEP_ALL,
    KEEP_REPLICATION, /* what a master sends to its replicas */
    KEEP_SERVERS,     /* all bytes from and to other servers: replicas and sentinels */
};
void proxy_keep(struct proxy *proxy, int server, enum keep keep);
void proxy_slow(struct proxy *proxy, int server, int round_trip_ms);
/* Cuts all wires, as happens when a server ends. */
void proxy_cut_all(struct proxy *proxy, int server);

/* Identifies a wire, which may have ended meanwhile. */
uint64_t wire_number(const struct wire *wire);
int wire_server(const struct wire *wire);
struct wire *wire_find(struct proxy *proxy, uint64_t number);
bool wire_has_client(const struct wire *wire);
/* Keeps the bytes to the server (up), to the client (down), or both. */
void wire_keep(struct wire *wire, bool up, bool down);
/* Sends what was kept. Returns when the server has answered, or after a short wait. */
void wire_let_go(struct wire *wire);
void wire_slow(struct wire *wire, int round_trip_ms);
/* Resets the client's end, now or instead of the next reply. The server's end stays open as long as
 * there are bytes for it. */
void wire_reset(struct wire *wire);
void wire_reset_at_reply(struct wire *wire);

#endif
