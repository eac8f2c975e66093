/* SPDX-License-Identifier: Apache-2.0
 *
 * A proxy between the library and a real Redis. It can cut a connection at a chosen request, before
 * the request arrives or after it was carried out and before its reply.
 */
#ifndef TESTS_PROXY_H
#define TESTS_PROXY_H

#include <stdbool.h>
#include <stddef.h>

struct server;
struct proxy;

/* A kept request is delivered on the same connection to the server, as TCP would deliver it. If the
 * server has closed that connection since, by CLIENT KILL or because it ended, the request is lost.
 */
enum proxy_act {
    PROXY_CUT_REQUEST,   /* not forwarded; the connection is cut */
    PROXY_ANSWER,        /* not forwarded; the bytes are its reply */
    PROXY_DELAY_REQUEST, /* kept until proxy_let_go; the client's side is cut */
    PROXY_HOLD_REQUEST,  /* kept until proxy_let_go, with later bytes; the client may time out */
    PROXY_CUT_REPLY,     /* forwarded and carried out; cut instead of the reply */
    PROXY_HOLD_REPLY,    /* carried out; its reply and all later ones are kept until proxy_let_go */
    PROXY_REPLACE_REPLY, /* other bytes replace the reply */
    PROXY_MUTE,          /* this and all later requests are carried out; no reply; stays open */
};

struct proxy *proxy_start(const struct server *server);
/* The same for another kind of server on this machine: a plan only knows bytes. */
struct proxy *proxy_start_to(int port);
void proxy_free(struct proxy *proxy);
const char *proxy_url(const struct proxy *proxy);

/* Plans an act, once, for the next request that contains `text`. A new plan replaces the old one.
 * bytes: for PROXY_ANSWER and PROXY_REPLACE_REPLY; copied. */
void proxy_plan(struct proxy *proxy, enum proxy_act act, const char *text, const void *bytes,
                size_t size);
/* The same for each such request, until the next plan. */
void proxy_plan_each(struct proxy *proxy, enum proxy_act act, const char *text, const void *bytes,
                     size_t size);
/* Whether the plan was carried out. What it keeps is kept from then on. */
bool proxy_done(struct proxy *proxy);
/* Lets kept requests and replies go on. If the client has closed its side, the request was carried
 * out when this returns, unless the server had closed its own. */
void proxy_let_go(struct proxy *proxy);
/* The same for servers that do nothing for a client that has left: its side stays open until they
 * have answered. */
void proxy_let_go_and_hear(struct proxy *proxy);

/* Cuts the connections whose latest request contains the text. */
void proxy_cut(struct proxy *proxy, const char *text);

/* How many connections clients have made so far. */
size_t proxy_connections(struct proxy *proxy);
/* How many requests so far contain the text. It assumes that each arrived in one piece. */
size_t proxy_requests(struct proxy *proxy, const char *text);

#endif
