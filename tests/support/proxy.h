/* SPDX-License-Identifier: Apache-2.0
 *
 * A wire between the library and a real Redis that can be cut, byte for byte, at a chosen request:
 * before it arrives, or after it was carried out and before its reply comes back.
 */
#ifndef TESTS_PROXY_H
#define TESTS_PROXY_H

#include <stdbool.h>
#include <stddef.h>

struct server;
struct proxy;

/* A kept request is delivered on the server's side of the same connection, as TCP would. Where the
 * server has closed that side meanwhile, by CLIENT KILL or its own end, the request is gone. */
enum proxy_act {
    PROXY_CUT_REQUEST,   /* never forwarded; the connection is cut */
    PROXY_DELAY_REQUEST, /* kept for proxy_let_go; the client's side of the connection is cut */
    PROXY_HOLD_REQUEST,  /* kept for proxy_let_go, with all that the client sends behind it; the
                            client may wait, or time out and close its side */
    PROXY_CUT_REPLY,     /* forwarded and carried out; the connection is cut instead of the reply */
    PROXY_HOLD_REPLY, /* forwarded and carried out; the reply waits for proxy_let_go, with all that
                            comes behind it */
    PROXY_REPLACE_REPLY, /* other bytes come instead of the reply */
    PROXY_MUTE,          /* forwarded and carried out, as all that follows on the connection, which
                            stays open; no reply comes */
};

struct proxy *proxy_start(const struct server *server);
/* The same to another kind of server on this machine: what is planned knows bytes alone. */
struct proxy *proxy_start_to(int port);
void proxy_free(struct proxy *proxy);
const char *proxy_url(const struct proxy *proxy);

/* What to do with the next request that contains `text`, once; a plan takes the place of the one
 * before. bytes: for PROXY_REPLACE_REPLY, copied. */
void proxy_plan(struct proxy *proxy, enum proxy_act act, const char *text, const void *bytes,
                size_t size);
/* Whether the plan was carried out; what is held is held from then on. */
bool proxy_done(struct proxy *proxy);
/* What is kept or held comes. A request whose client has closed its side was carried out by the
 * return, unless the server had closed its own. */
void proxy_let_go(struct proxy *proxy);

/* How many of the requests so far contain the text; each arrived in one piece. */
size_t proxy_requests(struct proxy *proxy, const char *text);

#endif
