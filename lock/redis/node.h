/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection to one server, private to redis.c and sentinel.c. Its states: DOWN -> WAITING ->
 * RESOLVING -> CONNECTING -> LOGIN -> UP. Any failure makes it DOWN. No function here waits: those
 * two poll. A connection to a former master is closed at its next step.
 */
#ifndef DLOCK_NODE_H
#define DLOCK_NODE_H

#include "kept.h"
#include "redis.h"

#include <poll.h>

#define ORPHANS_MAX 8

/* A command whose reply is due, for the trace. */
struct sent_command {
    char *text;
    int64_t sent_ns; /* CLOCK_MONOTONIC, before it was sent */
    void *user;      /* dlock_trace.user; NULL once its call may have ended */
};

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
    struct reach_socket socket; /* known to the server while fd is open */
    redisReader *reader;
#if HIREDIS_MAJOR < 1
    redisReplyObjectFunctions makes; /* what the reader makes replies with: as by default, */
    void *(*makes_array)(const redisReadTask *task, int elements); /* but no longer arrays */
#endif
    size_t reply_bytes; /* so much of the next reply has come */

    struct lookup *lookup;      /* RESOLVING */
    struct addresses addresses; /* to try, in this order */
    size_t address_next;
    int64_t until_ns; /* CLOCK_MONOTONIC: connecting fails then */
    int64_t next_ns;  /* and goes on then without what it waits for now */

    char *out; /* not sent yet: [out_sent, out_size) */
    size_t out_size;
    size_t out_sent;
    size_t out_behind; /* so many bytes belong to earlier exchanges */
    size_t out_capacity;

    /* How many replies the server still owes to earlier exchanges. They come before those of this
     * one, and are not needed. */
    size_t behind;
    int64_t owes_ns; /* CLOCK_MONOTONIC: since when it owes one, and has sent nothing */

    redisReply **replies; /* of this exchange; in LOGIN: of the login */
    size_t reply_count;
    size_t reply_capacity;
    size_t reply_wanted;
    bool confirms; /* the exchange's last command is WAIT: all others were carried out before it */
    struct kept kept;
    STAILQ_HEAD(, late_reply) awaited; /* in the order of their replies */
    uint64_t owed;     /* how many replies it has owed so far, of which `behind` are due */
    int64_t kept_ns;   /* CLOCK_MONOTONIC: when the commands are sent that were refused; 0: none */
    bool kept_refused; /* the latest answer to one: the next is sent alone */

    struct sent_command *sent; /* those that it owes a reply, then this exchange's; trace only */
    size_t sent_count;
    size_t sent_unnoted; /* and so many behind them, for which no memory was left */
    int64_t made_ns;     /* CLOCK_MONOTONIC: when the login was sent */
    int64_t sent_ns;     /* and when this exchange was sent */
    int64_t connect_ns;  /* how long the login took */
    bool listens;        /* a subscriber connection: messages come between replies */

    size_t login_size;             /* how many replies decide the login; the rest may be errors */
    struct connection_id identity; /* of this connection */
    struct connection_id lost;     /* of the connection that broke with a reply missing */
    bool lost_may_arrive;          /* `lost` is set: what was sent on it may be carried out */
    /* With several servers: the latest connections that broke so, in any exchange. The next one has
     * the server end them, before any other command. Each stays here until it has answered that,
     * other than that it is too busy. */
    struct connection_id orphans[ORPHANS_MAX];
    size_t orphan_count;
    size_t orphans_busy;  /* of so many, the first ones, it has answered so on this connection */
    uint64_t orphans_end; /* the number behind that of the last answer, among all that were owed */

    dlock_status status; /* of this exchange */
    dlock_status down_status;
    char down_reason[REASON_MAX]; /* why it is DOWN */
};

void node_init(struct node *node, struct redis_config *config, struct server *server);
void node_free(struct node *node);

/* There is a connection, on which the login may be under way. */
static inline bool node_is_open(const struct node *node)
{
    return node->state == NODE_LOGIN || node->state == NODE_UP;
}

static inline bool node_connecting(const struct node *node)
{
    return node->state != NODE_DOWN && node->state != NODE_UP;
}
/* UP, and all replies of the exchange have come. */
static inline bool node_answered(const struct node *node)
{
    return node->state == NODE_UP && node->reply_count >= node->reply_wanted;
}
/* UP, and no reply of the exchange is missing but WAIT's. */
static inline bool node_lacks_wait_only(const struct node *node)
{
    return node->state == NODE_UP && node->confirms && node->reply_count + 1 == node->reply_wanted;
}
/* A kept command must be sent: on the next connection, or on this one after its pause. */
static inline bool node_keeps_unsent(const struct node *node)
{
    return node->kept.count > 0 && (node->state != NODE_UP || node->kept_ns != 0);
}
/* The server has closed the connection, or has sent data that was not asked for, or is no longer
 * the master. */
bool node_stale(const struct node *node);
/* Goes on with earlier exchanges: sends what is left of them, and takes the replies that have come.
 * If nothing comes for command_timeout_ms, the connection is given up. */
void node_catch_up(struct node *node);
/* The same, but only for a connection that would be given up. */
void node_catch_up_overdue(struct node *node);
/* The exchange ends without the replies that are missing: they stay due, and are not needed. */
void node_leave_behind(struct node *node);

/* Starts to connect. If the server may not be tried now, the node is DOWN or WAITING instead. */
void node_connect(struct node *node);
/* Goes on connecting after a pause between two calls. What arrived meanwhile counts as in time. */
void node_resume(struct node *node);
/* The address that it is connected to, or the last that it tried. */
const struct address *node_address(const struct node *node);
void node_close(struct node *node, dlock_status status, const char *reason);
/* As node_close, for a connection in use that broke: the break is reported to reach.h. */
void node_break(struct node *node, const char *reason);
/* As node_break, if replies do not fit their commands: no reply of this exchange counts. */
void node_distrust(struct node *node, const char *reason);

/* Forgets the last exchange. Replies that are missing stay due. */
void node_forget(struct node *node);
/* Forgets the first `taken` replies that came, and the bytes that were sent. The replies that did
 * not come stay due. */
void node_shift(struct node *node, size_t taken);
/* Adds a command; node_write sends it. */
void node_append(struct node *node, int argc, const char *const *argv, const size_t *sizes);
void node_write(struct node *node);
void node_read(struct node *node);
/* Keeps a command until its reply comes. It is sent again on the next connection; if it was
 * refused, also on this one, after a pause. A command that is kept already is kept once. Beyond
 * KEPT_MAX, and without memory, it is dropped. */
void node_keep(struct node *node, int argc, const char *const *argv, enum keep why);
/* See redis_await_late. */
void node_await_late(struct node *node, struct late_reply *late, size_t after);
/* If their pause is over, sends one of the kept commands that were refused; the others follow when
 * it was not refused again. */
void node_send_kept(struct node *node);
/* Notes a command for the trace, after node_append. */
void node_note_sent(struct node *node, int argc, const char *const *argv, const size_t *sizes);
/* index: the command that it answers. reply NULL: it was lost. */
void node_trace(struct node *node, size_t index, const redisReply *reply);

/* Whether it is connected to the server process that has, or had, the other connection. In another
 * process that id may belong to an unrelated connection. */
bool node_is_of_same_process(const struct node *node, const struct connection_id *other);
/* The same, and CLIENT KILL was not refused lately. */
bool node_may_kill(const struct node *node, const struct connection_id *other);
/* What the answer to it says. A refusal is noted, unless it ends by itself. */
enum kill_result node_kill_says(const struct node *node, const redisReply *reply);

/* What to poll for; then its result. events 0: no event, but a time limit may have passed. */
struct pollfd node_poll(const struct node *node);
void node_step(struct node *node, short events);

#endif
