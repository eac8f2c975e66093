/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection to one server, private to redis.c: it moves DOWN -> WAITING -> RESOLVING ->
 * CONNECTING -> LOGIN -> UP, and whatever breaks puts it back DOWN. Nothing here waits: redis.c
 * polls.
 */
#ifndef DLOCK_NODE_H
#define DLOCK_NODE_H

#include "redis.h"

#include <poll.h>

struct node {
    struct redis_config *config;
    struct server *server;
    enum {
        NODE_DOWN,
        NODE_WAITING, /* another connection tries the server first */
        NODE_RESOLVING,
        NODE_CONNECTING,
        NODE_LOGIN,
        NODE_UP
    } state;
    int fd;
    redisReader *reader;

    struct lookup *lookup;      /* RESOLVING */
    struct addresses addresses; /* to try, in turn */
    size_t address_next;
    int64_t until_ns; /* CLOCK_MONOTONIC: when connecting has failed */
    int64_t next_ns;  /* and when it goes on without what it waits for now */

    char *out; /* not sent yet: [out_sent, out_size) */
    size_t out_size;
    size_t out_sent;
    size_t out_capacity;

    redisReply **replies; /* of this exchange; in LOGIN of the login */
    size_t reply_count;
    size_t reply_capacity;
    size_t reply_wanted;
    char **sent_texts; /* of this exchange, for the trace only */
    size_t sent_text_count;
    int64_t made_ns;    /* CLOCK_MONOTONIC: when it logged in */
    int64_t sent_ns;    /* and when this exchange was sent */
    int64_t connect_ns; /* how long it took to connect and log in */
    bool listens;       /* messages come between its replies */

    size_t login_size; /* replies that decide about the login; what follows may be refused */
    struct connection_id identity; /* of this connection */
    struct connection_id lost;     /* of the one that broke with a reply missing */
    bool lost_may_arrive;          /* what was sent on that one may still be carried out */

    dlock_status status; /* of this exchange */
    dlock_status down_status;
    char down_reason[REASON_MAX]; /* why it is DOWN */
};

void node_init(struct node *node, struct redis_config *config, struct server *server);
void node_free(struct node *node);

static inline bool node_connecting(const struct node *node)
{
    return node->state != NODE_DOWN && node->state != NODE_UP;
}
/* UP, and all replies of the exchange are here. */
static inline bool node_answered(const struct node *node)
{
    return node->state == NODE_UP && node->reply_count >= node->reply_wanted;
}
/* The server has closed the connection, or says something that nobody asked for. */
bool node_stale(const struct node *node);

/* Begins to connect, unless the server may not be tried: then it is DOWN, or WAITING. */
void node_connect(struct node *node);
/* Goes on connecting, begun in an earlier call: what came since came in time. */
void node_resume(struct node *node);
/* The address that it is connected to, or tried last. */
const struct address *node_address(const struct node *node);
void node_close(struct node *node, dlock_status status, const char *reason);
/* As node_close, of a connection in use: it is told of. */
void node_break(struct node *node, const char *reason);
/* As node_break: its replies are not those of its commands. None of this exchange counts. */
void node_distrust(struct node *node, const char *reason);

/* Forgets the exchange before. */
void node_forget(struct node *node);
/* Forgets the replies that came, and what was sent; the others are still awaited. */
void node_shift(struct node *node);
/* Adds a command; node_write sends it. */
void node_append(struct node *node, int argc, const char *const *argv, const size_t *sizes);
void node_write(struct node *node);
void node_read(struct node *node);
/* index: which command's reply it is; NULL: it was lost. */
void node_trace(struct node *node, size_t index, const redisReply *reply);

/* What to poll for; then what came of it, 0: its time is over, perhaps. */
struct pollfd node_poll(const struct node *node);
void node_step(struct node *node, short events);

#endif
