/* SPDX-License-Identifier: Apache-2.0
 *
 * The wires between the clients and the server: one for each connection, each with its own
 * connection to the server. Bytes can be kept on a wire and go on later, also when the client has
 * closed its end: they then reach the server on the connection that they were sent on, as TCP may
 * do. No thread: proxy_round does what there is to do. Which request meets which fault is decided
 * in faults.c.
 */
#ifndef TORTURE_PROXY_H
#define TORTURE_PROXY_H

#include "history.h"

#include "server.h"

struct proxy;
struct wire;

struct request_seen {
    int process;
    enum request kind;
    bool answered;  /* the server's reply to it has come */
    char label[32]; /* "SET", "fair acquire" */
    char text[96];  /* with its arguments, cut */
};

/* Asked for each request, before it goes on; and told of each reply, likewise. */
enum onward {
    ONWARD_SEND,
    ONWARD_DROP, /* it, and what was sent behind it, never goes on */
};
typedef enum onward on_request(void *arg, struct wire *wire, const struct request_seen *seen);

struct proxy *proxy_new(struct world *world, const struct server *server, on_request *asked,
                        void *arg);
void proxy_free(struct proxy *proxy);
/* A port for each process, so that its requests are known. */
int proxy_port(const struct proxy *proxy, int process);
/* Waits for so long at most, and does what there is to do. */
void proxy_round(struct proxy *proxy, int wait_ms);
/* When the last request came. */
int64_t proxy_last_request_ns(const struct proxy *proxy);
void proxy_refuse(struct proxy *proxy, bool refuse);
/* Cuts all wires, as a server that ends does. */
void proxy_cut_all(struct proxy *proxy);

/* A wire is known by its number: it may be gone. */
uint64_t wire_number(const struct wire *wire);
struct wire *wire_find(struct proxy *proxy, uint64_t number);
bool wire_has_client(const struct wire *wire);
/* Keeps what goes up to the server, what comes down, or both. */
void wire_keep(struct wire *wire, bool up, bool down);
/* What is kept goes on; returns when the server has answered it, if it answers soon. */
void wire_let_go(struct wire *wire);
void wire_slow(struct wire *wire, int round_trip_ms);
/* The client's end is reset, now or instead of the next reply; the server's end lives on as long
 * as there is something for it. */
void wire_reset(struct wire *wire);
void wire_reset_at_reply(struct wire *wire);

#endif
