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

enum proxy_act {
    PROXY_CUT_REQUEST,   /* never forwarded; the connection is cut */
    PROXY_DELAY_REQUEST, /* the connection is cut; the request arrives with proxy_let_go */
    PROXY_CUT_REPLY,     /* forwarded and carried out; the connection is cut instead of the reply */
    PROXY_HOLD_REPLY,    /* forwarded and carried out; the reply waits for proxy_let_go */
    PROXY_REPLACE_REPLY, /* other bytes come instead of the reply */
};

struct proxy *proxy_start(const struct server *server);
void proxy_free(struct proxy *proxy);
const char *proxy_url(const struct proxy *proxy);

/* What to do with the next request that contains `text`, once; a plan takes the place of the one
 * before. bytes: for PROXY_REPLACE_REPLY, copied. */
void proxy_plan(struct proxy *proxy, enum proxy_act act, const char *text, const void *bytes,
                size_t size);
/* Whether the plan was carried out; what is held is held from then on. */
bool proxy_done(struct proxy *proxy);
/* What is held comes; a delayed request was carried out by the return. */
void proxy_let_go(struct proxy *proxy);

/* How many of the requests so far contain the text; each arrived in one piece. */
size_t proxy_requests(struct proxy *proxy, const char *text);

#endif
