/* SPDX-License-Identifier: Apache-2.0
 *
 * See node.h.
 */
#include "node.h"

#include "clock.h"
#include "reply_text.h"
#include "trace.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORMER "its sentinels have named another master"
#define KEPT_PAUSE_MS 500
#define REPLY_ELEMENTS_MAX (REPLY_BYTES_MAX / 3) /* each has at least 3 bytes */
#define LOOKUP_PART 4 /* after 1/4 of connect_timeout_ms, try the addresses known so far */

static void free_replies(struct node *node)
{
    for (size_t i = 0; i < node->reply_count; i++)
        freeReplyObject(node->replies[i]);
    node->reply_count = 0;
}

/* Forgets the first commands that were noted for the trace. */
static void drop_sent(struct node *node, size_t count)
{
    size_t unnoted = count > node->sent_count ? count - node->sent_count : 0;
    node->sent_unnoted -= unnoted < node->sent_unnoted ? unnoted : node->sent_unnoted;
    count = count < node->sent_count ? count : node->sent_count;
    for (size_t i = 0; i < count; i++)
        free(node->sent[i].text);
    node->sent_count -= count;
    if (count > 0)
        memmove(node->sent, node->sent + count, node->sent_count * sizeof *node->sent);
}

/* Forgets the bytes that were sent. */
static void drop_out(struct node *node)
{
    node->out_size -= node->out_sent;
    if (node->out_sent > 0 && node->out_size > 0)
        memmove(node->out, node->out + node->out_sent, node->out_size);
    node->out_behind -= node->out_sent < node->out_behind ? node->out_sent : node->out_behind;
    node->out_sent = 0;
}

static void node_clear(struct node *node)
{
    free_replies(node);
    drop_sent(node, SIZE_MAX);
    node->reply_wanted = 0;
    node->confirms = false;
    node->out_size = node->out_sent = node->out_behind = 0;
}

void node_init(struct node *node, struct redis_config *config, struct server *server)
{
    *node = (struct node){.config = config, .server = server, .fd = -1};
    kept_init(&node->kept);
    STAILQ_INIT(&node->awaited);
}

void node_free(struct node *node)
{
    node_forget(node);
    node_close(node, DLOCK_UNREACHABLE, "closed");
    kept_free(&node->kept);
    free(node->sent);
    free(node->replies);
    free(node->out);
}

/* Its answers do not count, as the master may know nothing of what this server did. */
static bool node_is_former(const struct node *node)
{
    return node->fd >= 0 && reach_is_former(node->server, &node->socket);
}

bool node_stale(const struct node *node)
{
    char byte;
    if (node_is_former(node))
        return true;
    ssize_t size = recv(node->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (size > 0)
        return node->behind == 0;
    return size == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* Frees what belongs to this connection only. */
static void node_drop(struct node *node)
{
    lookup_leave(node->lookup);
    if (node->fd >= 0) {
        reach_close(node->server, &node->socket);
        close(node->fd);
    }
    if (node->reader != NULL)
        redisReaderFree(node->reader);
    node->lookup = NULL;
    node->fd = -1;
    node->reader = NULL;
    node->listens = false;
    node->out_size = node->out_sent = node->out_behind = 0;
}

static void end_awaited(struct node *node, const redisReply *reply)
{
    struct late_reply *late = STAILQ_FIRST(&node->awaited);
    STAILQ_REMOVE_HEAD(&node->awaited, of_node);
    late->came(late, reply);
}

/* The reply has come that is the number `at` of all that were owed. */
static void answer_awaited(struct node *node, uint64_t at, const redisReply *reply)
{
    while (!STAILQ_EMPTY(&node->awaited) && STAILQ_FIRST(&node->awaited)->at == at)
        end_awaited(node, reply);
}

/* The replies that it owed to earlier exchanges are lost. */
static void lose_behind(struct node *node)
{
    while (!STAILQ_EMPTY(&node->awaited))
        end_awaited(node, NULL);
    for (size_t i = 0; i < node->behind; i++)
        node_trace(node, i, NULL);
    drop_sent(node, node->behind);
    node->behind = 0;
    kept_unsent(&node->kept);
    node->kept_ns = 0;
    node->kept_refused = false;
}

static bool is_one_of_several(const struct node *node)
{
    return node->config->server_count > 1 && node->server->kind != SERVER_SENTINEL;
}

static bool is_voter(const struct node *node)
{
    return is_one_of_several(node) ||
           (node->config->checks_votes && node->server->kind != SERVER_SENTINEL);
}

/* Beyond ORPHANS_MAX the oldest one is forgotten. */
static void add_orphan(struct node *node)
{
    if (node->orphan_count == ORPHANS_MAX)
        memmove(node->orphans, node->orphans + 1, --node->orphan_count * sizeof *node->orphans);
    node->orphans[node->orphan_count++] = node->identity;
}

void node_close(struct node *node, dlock_status status, const char *reason)
{
    bool missing = node->state == NODE_UP && node->reply_count < node->reply_wanted &&
                   !node_lacks_wait_only(node);
    bool sent = node->out_sent > node->out_behind;
    bool may_arrive = ((missing && sent) || node->behind > 0) && !node->listens;
    if (may_arrive && !node->lost_may_arrive) {
        node->lost_may_arrive = true;
        node->lost = node->identity;
    }
    if (may_arrive && is_one_of_several(node))
        add_orphan(node);
    lose_behind(node);
    /* The requests' status is final now. Sent and not answered: UNKNOWN. Not sent: `status`. */
    if (missing && node->status == DLOCK_OK)
        node->status = sent ? DLOCK_UNKNOWN : status;
    node_drop(node);
    if (node_connecting(node))
        node_clear(node);
    node->state = NODE_DOWN;
    node->down_status = status;
    snprintf(node->down_reason, sizeof node->down_reason, "%s", reason);
}

void node_break(struct node *node, const char *reason)
{
    int64_t sent_ns = node->listens ? mono_ns() : node->behind > 0 ? node->owes_ns : node->sent_ns;
    if (node_is_former(node))
        reason = FORMER;
    else if (node->state == NODE_UP)
        reach_lost(node->server, node->made_ns, sent_ns, reason);
    node_close(node, DLOCK_UNREACHABLE, reason);
}

void node_distrust(struct node *node, const char *reason)
{
    free_replies(node);
    node_break(node, reason);
}

void node_leave_behind(struct node *node)
{
    if (node->state != NODE_UP || node->listens || node_answered(node))
        return;
    if (node->behind == 0)
        node->owes_ns = node->sent_ns;
    drop_sent(node, node->reply_count); /* the replies that came were traced */
    node->behind += node->reply_wanted - node->reply_count;
    for (size_t i = 0; i < node->sent_count; i++)
        node->sent[i].user = NULL; /* its call may end before the reply comes */
    node->owed += node->reply_wanted - node->reply_count;
    node->reply_wanted = node->reply_count;
    node->out_behind = node->out_size;
    node->status = DLOCK_UNKNOWN;
}

/* While the node connects, its commands and replies are the login's, and stay. */
void node_forget(struct node *node)
{
    if (!node_connecting(node)) {
        node_leave_behind(node);
        if (node->behind == 0)
            node_clear(node);
        free_replies(node);
        node->reply_wanted = 0;
        node->confirms = false;
        drop_out(node);
    }
    node->status = DLOCK_OK;
}

void node_shift(struct node *node, size_t taken)
{
    size_t gone = taken < node->reply_count ? taken : node->reply_count;
    if (node_connecting(node))
        return;
    drop_sent(node, gone);
    for (size_t i = 0; i < gone; i++)
        freeReplyObject(node->replies[i]);
    node->reply_count -= gone;
    if (gone > 0)
        memmove(node->replies, node->replies + gone, node->reply_count * sizeof *node->replies);
    node->reply_wanted -= gone < node->reply_wanted ? gone : node->reply_wanted;
    drop_out(node);
}

/* ---- Writing and reading --------------------------------------------------------------------- */

static void try_next(struct node *node, const char *reason);
static void leave_former(struct node *node);

/* The connection broke. As long as only the login was sent, another address may be tried. */
static void node_broke(struct node *node, const char *reason)
{
    const redisReply *said = node->reply_count > 0 ? node->replies[node->reply_count - 1] : NULL;
    char text[REASON_MAX];
    if (node->state == NODE_UP) {
        node_break(node, reason);
        return;
    }
    /* such as: too many clients */
    bool says = said != NULL && said->type == REDIS_REPLY_ERROR;
    snprintf(text, sizeof text, "%s%s%s", reason, says ? ": " : "", says ? said->str : "");
    try_next(node, text);
}

/* There were more replies than commands. */
static void node_protocol_error(struct node *node)
{
    static const char reason[] = "it sent more replies than it got requests";
    if (node->state == NODE_UP)
        node_distrust(node, reason);
    else
        node_broke(node, reason);
}

static bool keep_reply(struct node *node, redisReply *reply)
{
    if (node->reply_count == node->reply_capacity) {
        size_t capacity = node->reply_capacity * 2 + 8;
        redisReply **more = realloc(node->replies, capacity * sizeof *more);
        if (more == NULL) {
            freeReplyObject(reply);
            return false;
        }
        node->replies = more;
        node->reply_capacity = capacity;
    }
    node->replies[node->reply_count++] = reply;
    return true;
}

static bool node_put(struct node *node, const char *bytes, size_t size)
{
    if (node->out_size + size > node->out_capacity) {
        size_t capacity = (node->out_size + size) * 2;
        char *more = realloc(node->out, capacity);
        if (more == NULL)
            return false;
        node->out = more;
        node->out_capacity = capacity;
    }
    memcpy(node->out + node->out_size, bytes, size);
    node->out_size += size;
    return true;
}

void node_append(struct node *node, int argc, const char *const *argv, const size_t *sizes)
{
    char *command = NULL;
    long long length =
        redisFormatCommandArgv(&command, argc, (const char **)(uintptr_t)argv, sizes);
    bool added = length > 0 && node_put(node, command, (size_t)length);
    if (length > 0)
        redisFreeCommand(command);
    node->reply_wanted++;
    node->confirms = false;
    if (!added)
        node_close(node, DLOCK_NO_MEMORY, "out of memory");
}

void node_keep(struct node *node, int argc, const char *const *argv, enum keep why)
{
    char *command = NULL;
    long long size = redisFormatCommandArgv(&command, argc, (const char **)(uintptr_t)argv, NULL);
    if (size <= 0)
        return;
    struct kept_command *kept = kept_add(&node->kept, command, (size_t)size);
    redisFreeCommand(command);
    if (kept == NULL)
        return;
    kept->at = node->state == NODE_UP && why == KEEP_UNANSWERED ? node->owed : 0;
    if (why == KEEP_REFUSED) {
        node->kept_refused = true;
        node->kept_ns = mono_deadline_ns(KEPT_PAUSE_MS);
    }
    if (kept->text == NULL && node->config->on_trace != NULL)
        kept->text = command_text(argc, argv, NULL);
}

void node_await_late(struct node *node, struct late_reply *late, size_t after)
{
    late->at = node->owed - after;
    if (node->state == NODE_UP && node->behind > after)
        STAILQ_INSERT_TAIL(&node->awaited, late, of_node);
    else
        late->came(late, NULL);
}

static bool is_refused_for_now(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && error_is_transient(reply->str);
}

/* The reply has come that is the number `at` of all that were owed. */
static void answer_kept(struct node *node, uint64_t at, const redisReply *reply)
{
    struct kept_command *kept = kept_at(&node->kept, at);
    if (kept == NULL)
        return;
    const bool was_refused = node->kept_refused;
    node->kept_refused = is_refused_for_now(reply);
    if (node->kept_refused) {
        kept->at = 0;
        node->kept_ns = mono_deadline_ns(KEPT_PAUSE_MS);
    } else {
        kept_drop(&node->kept, kept);
        node->kept_ns = was_refused ? mono_ns() : node->kept_ns;
    }
}

enum kill_result node_kill_says(const struct node *node, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        return KILL_DONE;
    if (is_refused_for_now(reply))
        return KILL_UNANSWERED;
    reach_note_refusal(node->server, &node->server->kill_refused_ns);
    return KILL_IMPOSSIBLE;
}

/* The reply has come that is the number `at` of all that were owed. If the server could not end the
 * connection for now, the next connection asks it again. */
static void answer_orphans(struct node *node, uint64_t at, const redisReply *reply)
{
    const size_t due = node->orphan_count - node->orphans_busy;
    struct connection_id *orphan = &node->orphans[node->orphans_busy];
    if (due == 0 || at + due != node->orphans_end)
        return;
    if (node_kill_says(node, reply) == KILL_UNANSWERED) {
        node->orphans_busy++;
    } else {
        node->orphan_count--;
        memmove(orphan, orphan + 1, (due - 1) * sizeof *orphan);
    }
}

void node_write(struct node *node)
{
    while (node->out_sent < node->out_size) {
        ssize_t sent = send(node->fd, node->out + node->out_sent, node->out_size - node->out_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (sent < 0) {
            node_broke(node, strerror(errno));
            return;
        }
        node->out_sent += (size_t)sent;
    }
}

/* Takes the text. Without memory the command is only counted, and so are those behind it, until
 * their replies have come: each reply must meet its own command. */
static void note_sent(struct node *node, char *text, void *user)
{
    struct sent_command *more = NULL;
    if (node->sent_unnoted == 0)
        more = realloc(node->sent, (node->sent_count + 1) * sizeof *more);
    if (more == NULL) {
        node->sent_unnoted++;
        free(text);
        return;
    }
    node->sent = more;
    more[node->sent_count++] =
        (struct sent_command){.text = text, .sent_ns = mono_ns(), .user = user};
}

void node_note_sent(struct node *node, int argc, const char *const *argv, const size_t *sizes)
{
    if (node->config->on_trace != NULL)
        note_sent(node, command_text(argc, argv, sizes), trace_user());
}

void node_trace(struct node *node, size_t index, const redisReply *reply)
{
    const struct sent_command unnoted = {.sent_ns = node->sent_ns};
    if (index >= node->sent_count + node->sent_unnoted)
        return;
    const struct sent_command *sent = index < node->sent_count ? &node->sent[index] : &unnoted;
    char *text = reply_text(reply);
    struct dlock_trace event = {
        .size = sizeof event,
        .server = node->server->url.shown,
        .sent = sent->text != NULL ? sent->text : "?",
        .reply = text != NULL ? text : "?",
        .took_us = (mono_ns() - sent->sent_ns) / 1000,
        .user = node->listens ? NULL : sent->user,
    };
    node->config->on_trace(node->config->on_trace_arg, &event);
    free(text);
}

/* On a subscriber connection replies come one by one, with messages between them. */
static void trace_heard(struct node *node, const redisReply *reply)
{
    if (node->sent_count + node->sent_unnoted == 0 ||
        (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
         reply->element[0]->str != NULL && strcmp(reply->element[0]->str, "message") == 0))
        return;
    node_trace(node, 0, reply);
    drop_sent(node, 1);
}

/* A reply to an earlier exchange. */
static void take_late(struct node *node, redisReply *reply)
{
    node_trace(node, 0, reply);
    drop_sent(node, 1);
    node->behind--;
    node->owes_ns = mono_ns();
    answer_orphans(node, node->owed - node->behind, reply);
    answer_kept(node, node->owed - node->behind, reply);
    answer_awaited(node, node->owed - node->behind, reply);
    if (reply->type != REDIS_REPLY_ERROR)
        reach_answered(node->server, true);
    freeReplyObject(reply);
}

void node_read(struct node *node)
{
    char bytes[8192]; /* not larger: it is on the stack of the library's caller */
    ssize_t size = recv(node->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (size <= 0) {
        node_broke(node, size == 0 ? "the server closed the connection" : strerror(errno));
        return;
    }
    if (node_is_former(node)) {
        leave_former(node);
        return;
    }
    redisReaderFeed(node->reader, bytes, (size_t)size);
    node->reply_bytes += (size_t)size;
    for (;;) {
        void *reply = NULL;
        if (redisReaderGetReply(node->reader, &reply) != REDIS_OK) {
            node_broke(node, "the reply is not Redis's protocol");
            return;
        }
        if (reply == NULL)
            break;
        node->reply_bytes = node->reader->len - node->reader->pos;
        if (node->behind > 0) {
            take_late(node, reply);
            continue;
        }
        if (!keep_reply(node, reply)) {
            node_close(node, DLOCK_NO_MEMORY, "out of memory");
            return;
        }
        if (node->listens)
            trace_heard(node, reply);
        else
            node_trace(node, node->reply_count - 1, reply);
    }
    if (!node->listens && node->reply_count > node->reply_wanted) {
        node_protocol_error(node);
        return;
    }
    if (node->reply_bytes > REPLY_BYTES_MAX)
        node_broke(node, "a reply is larger than 1 MiB");
}

static bool is_overdue(const struct node *node)
{
    int64_t silent_ns = mono_ns() - node->owes_ns;
    return node->state == NODE_UP && node->behind > 0 &&
           silent_ns >= node->config->command_timeout_ms * NS_PER_MS;
}

void node_catch_up(struct node *node)
{
    if (node->state == NODE_UP)
        node_write(node);
    for (size_t owed = 0; node->state == NODE_UP && node->behind > 0 && node->behind != owed;) {
        owed = node->behind;
        node_read(node);
    }
    if (is_overdue(node))
        node_break(node, "no answer in time");
}

void node_catch_up_overdue(struct node *node)
{
    if (is_overdue(node))
        node_catch_up(node);
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void fail_to_connect(struct node *node, dlock_status status, const char *reason)
{
    reach_failed(node->server, status, reason);
    node_close(node, status, reason);
}

const struct address *node_address(const struct node *node)
{
    return &node->addresses.list[node->address_next - 1];
}

/* An array's length is said before its elements come, and room is made for all of them. Going
 * through room for a thousand million takes a minute, so a length above the limit is an error. */
#if HIREDIS_MAJOR >= 1
static void bound_arrays(struct node *node)
{
    node->reader->maxelements = REPLY_ELEMENTS_MAX;
}
#else
static void *create_array(const redisReadTask *task, int elements)
{
    const struct node *node = task->privdata;
    return elements <= REPLY_ELEMENTS_MAX ? node->makes_array(task, elements) : NULL;
}

static void bound_arrays(struct node *node)
{
    node->makes = *node->reader->fn;
    node->makes_array = node->makes.createArray;
    node->makes.createArray = create_array;
    node->reader->fn = &node->makes;
    node->reader->privdata = node;
}
#endif

/* Opens a connection to the next address. Each address gets an equal part of the remaining time, so
 * one that never answers does not use up all of it. */
static bool open_next(struct node *node)
{
    size_t left = node->addresses.count - node->address_next++;
    const struct address *address = node_address(node);
    const struct sockaddr *to = (const struct sockaddr *)&address->at;
    int64_t now_ns = mono_ns();
    node_clear(node);
    node->sent_ns = now_ns;
    node->next_ns = now_ns + (node->until_ns - now_ns) / (int64_t)left;
    node->reader = redisReaderCreate();
    node->reply_bytes = 0;
    if (node->reader != NULL)
        bound_arrays(node);
    node->fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    node->socket.fd = node->fd;
    if (node->fd >= 0)
        reach_open(node->server, &node->socket);
    if (node->reader == NULL || node->fd < 0 ||
        (connect(node->fd, to, address->size) != 0 && errno != EINPROGRESS))
        return false;
    node->state = NODE_CONNECTING;
    return true;
}

static void try_next(struct node *node, const char *reason)
{
    char last[REASON_MAX];
    snprintf(last, sizeof last, "%s", reason);
    for (;;) {
        if (node->address_next > 0)
            reach_tried(node->server, node_address(node), true);
        node_drop(node);
        if (node->address_next == node->addresses.count)
            break;
        if (open_next(node))
            return;
        snprintf(last, sizeof last, "%s", strerror(errno));
    }
    fail_to_connect(node, DLOCK_UNREACHABLE, last);
}

/* The look-up is over, or has taken so long that the addresses known before are tried. */
static void node_resolved(struct node *node)
{
    char reason[REASON_MAX];
    bool over = node->lookup == NULL || lookup_over(node->lookup);
    int error = reach_addresses(node->server, node->lookup, &node->addresses, &node->socket);
    if (error != 0 && !over) {
        node->next_ns = node->until_ns;
        return;
    }
    lookup_leave(node->lookup);
    node->lookup = NULL;
    node->address_next = 0;
    reach_explain(node->server, error, reason);
    if (error != 0)
        fail_to_connect(node, DLOCK_UNREACHABLE, reason);
    else
        try_next(node, "");
}

static void node_begin(struct node *node)
{
    int64_t timeout_ms = node->config->connect_timeout_ms;
    node->until_ns = mono_deadline_ns(timeout_ms);
    node->lookup = reach_look(node->server);
    node->state = NODE_RESOLVING;
    node->next_ns = mono_ns() + timeout_ms * NS_PER_MS / LOOKUP_PART;
    if (node->lookup == NULL)
        node_resolved(node);
}

/* The master has changed: ends the connection, or begins anew to make one. */
static void leave_former(struct node *node)
{
    if (node->state == NODE_UP) {
        node_close(node, DLOCK_UNREACHABLE, FORMER);
        return;
    }
    node_drop(node);
    node_clear(node);
    node_begin(node);
}

/* Asks whether to connect now: another connection may have proven the server meanwhile. */
static void look_again(struct node *node)
{
    char reason[REASON_MAX];
    dlock_status status;
    switch (reach_turn(node->server, &status, reason)) {
    case REACH_CONNECT:
        node_begin(node);
        break;
    case REACH_WAIT:
        node->state = NODE_WAITING;
        node->next_ns = mono_deadline_ns(reach_pause_ms(node->server));
        if (node->next_ns > node->until_ns)
            node->next_ns = node->until_ns;
        break;
    case REACH_FAIL:
        node_close(node, status, reason);
    }
}

void node_connect(struct node *node)
{
    node->until_ns = mono_deadline_ns(node->config->connect_timeout_ms);
    look_again(node);
}

/* Keep-alive: a subscriber connection rarely sends, so it would not notice a server that is
 * gone. */
static void set_tcp_options(int fd)
{
    static const int on = 1, idle_s = 15, between_s = 5, probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static void node_login(struct node *node)
{
    const struct url *url = &node->server->url;
    if (url->path == NULL)
        set_tcp_options(node->fd);
    atomic_fetch_add_explicit(&node->config->connects, 1, memory_order_relaxed);
    node->state = NODE_LOGIN;
    if (url->password != NULL && url->user != NULL)
        node_append(node, 3, (const char *const[]){"AUTH", url->user, url->password}, NULL);
    else if (url->password != NULL)
        node_append(node, 2, (const char *const[]){"AUTH", url->password}, NULL);
    if (url->db != NULL)
        node_append(node, 2, (const char *const[]){"SELECT", url->db}, NULL);
    if (node->server->kind == SERVER_OF_SENTINEL)
        node_append(node, 1, (const char *const[]){"ROLE"}, NULL);
    node->login_size = node->reply_wanted;
    node->identity = (struct connection_id){0};
    node->made_ns = node->sent_ns = mono_ns();
    bool may_ask = reach_may_ask(node->server, &node->server->identity_refused_ns);
    if (node->server->kind == SERVER_SENTINEL || (!is_voter(node) && !may_ask)) {
        node_append(node, 1, (const char *const[]){"PING"},
                    NULL); /* shows whether the server has room */
        return;
    }
    node_append(node, 2, (const char *const[]){"CLIENT", "ID"}, NULL);
    node_append(node, 2, (const char *const[]){"INFO", "server"}, NULL);
    if (!is_voter(node))
        return;
    node_append(node, 2, (const char *const[]){"INFO", "replication"}, NULL);
    node_append(node, 2, (const char *const[]){"INFO", "cluster"}, NULL);
}

static void node_connected(struct node *node)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(node->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error != 0)
        try_next(node, strerror(error));
    else
        node_login(node);
}

/* Reads the line "run_id:" with 40 hex digits. */
static bool read_process(const redisReply *info, uint64_t *process)
{
    static const char key[] = "\nrun_id:";
    const char *at = info->type == REDIS_REPLY_STRING ? strstr(info->str, key) : NULL;
    char first[17] = "";
    if (at == NULL || strspn(at + strlen(key), "0123456789abcdef") != 40)
        return false;
    memcpy(first, at + strlen(key), sizeof first - 1);
    *process = strtoull(first, NULL, 16);
    return true;
}

/* Reads the replies to CLIENT ID and INFO. Without them this connection can't be killed later, so
 * its lost requests stay uncertain. */
static void node_identify(struct node *node)
{
    const redisReply *const *replies = (const redisReply *const *)node->replies + node->login_size;
    if (node->reply_count < node->login_size + 2)
        return;
    if (replies[0]->type == REDIS_REPLY_INTEGER &&
        read_process(replies[1], &node->identity.process))
        node->identity.id = replies[0]->integer;
    else if (strncmp(replies[0]->str != NULL ? replies[0]->str : "", "BUSY ", 5) != 0)
        reach_note_refusal(node->server, &node->server->identity_refused_ns);
}

static bool info_says(const redisReply *info, const char *line)
{
    return info->type == REDIS_REPLY_STRING && strstr(info->str, line) != NULL;
}

/* A sentinel where a Redis server should be. It answers a login and INFO like one. */
static bool is_sentinel(const struct node *node)
{
    return node->server->kind != SERVER_SENTINEL && node->reply_count >= node->login_size + 2 &&
           info_says(node->replies[node->login_size + 1], "\nredis_mode:sentinel");
}

/* A server whose script runs too long answers nothing else. It is only away for a time. */
static dlock_status status_of_error(const redisReply *reply)
{
    bool for_now = reply->type == REDIS_REPLY_ERROR && error_is_transient(reply->str);
    return for_now ? DLOCK_UNREACHABLE : DLOCK_REFUSED;
}

/* Whether the server may be one of several: a master that does not depend on the others. False: it
 * is refused. */
static bool node_may_vote(struct node *node)
{
    const redisReply *const *info = (const redisReply *const *)node->replies + node->login_size + 1;
    char reason[REASON_MAX];
    if (!is_voter(node))
        return true;
    if (!read_process(info[0], &node->identity.process)) {
        snprintf(reason, sizeof reason, "INFO does not say which server it is: %s",
                 info[0]->type == REDIS_REPLY_ERROR ? info[0]->str : "it has no run_id");
        fail_to_connect(node, status_of_error(info[0]), reason);
    } else if (info_says(info[2], "cluster_enabled:1")) {
        fail_to_connect(node, DLOCK_REFUSED,
                        "it is a node of a cluster; each of several servers must be a master "
                        "of its own");
    } else if (!info_says(info[1], "role:master")) {
        fail_to_connect(node, DLOCK_REFUSED,
                        "it is a replica; each of several servers must be a master of its own");
    }
    return node->state == NODE_LOGIN;
}

bool node_is_of_same_process(const struct node *node, const struct connection_id *other)
{
    return other->id != 0 && node->identity.id != 0 && other->process == node->identity.process;
}

bool node_may_kill(const struct node *node, const struct connection_id *other)
{
    return node_is_of_same_process(node, other) &&
           reach_may_ask(node->server, &node->server->kill_refused_ns);
}

/* Those that the server can end. */
static void choose_orphans(struct node *node)
{
    size_t left = 0;
    for (size_t i = 0; i < node->orphan_count; i++)
        if (node_may_kill(node, &node->orphans[i]))
            node->orphans[left++] = node->orphans[i];
    node->orphan_count = left;
}

/* Requests on connections that broke may still be carried out. Before this connection's first
 * command, the server ends those. If this one breaks before it says so, the next one asks again. */
static void append_kills(struct node *node)
{
    choose_orphans(node);
    for (size_t i = 0; i < node->orphan_count && node->state == NODE_UP; i++) {
        char id[24];
        const char *const kill[] = {"CLIENT", "KILL", "ID", id};
        snprintf(id, sizeof id, "%lld", node->orphans[i].id);
        node_append(node, 4, kill, NULL);
        node_note_sent(node, 4, kill, NULL);
        atomic_fetch_add_explicit(&node->config->commands, 1, memory_order_relaxed);
    }
    node->orphans_busy = 0;
    node->orphans_end = node->owed + node->reply_wanted + 1;
}

/* Sends so many of those that are not sent. They stay kept until they are answered. */
static void append_kept(struct node *node, size_t most)
{
    struct kept_command *kept;
    STAILQ_FOREACH(kept, &node->kept.list, of_list) {
        if (kept->at != 0)
            continue;
        if (most-- == 0)
            return;
        if (!node_put(node, kept->bytes, kept->size)) {
            node->kept_ns = mono_deadline_ns(KEPT_PAUSE_MS);
            return;
        }
        kept->at = node->owed + ++node->reply_wanted;
        atomic_fetch_add_explicit(&node->config->commands, 1, memory_order_relaxed);
        if (node->config->on_trace != NULL)
            note_sent(node, kept->text != NULL ? strdup(kept->text) : NULL, NULL);
    }
}

/* No reply is awaited. */
static void send_beside(struct node *node)
{
    node_leave_behind(node);
    node->status = DLOCK_OK; /* of the exchange, which has not asked this server anything */
    if (node->state == NODE_UP)
        node_write(node);
}

/* What earlier exchanges left to do. */
static void send_left(struct node *node)
{
    node->sent_ns = mono_ns();
    append_kills(node);
    if (node->state == NODE_UP) /* there was memory */
        append_kept(node, KEPT_MAX);
    send_beside(node);
}

void node_send_kept(struct node *node)
{
    if (node->state != NODE_UP || node->kept_ns == 0 || mono_ns() < node->kept_ns)
        return;
    node->kept_ns = 0;
    node->sent_ns = mono_ns();
    append_kept(node, node->kept_refused ? 1 : KEPT_MAX);
    send_beside(node);
}

/* A full server sends this error instead of the first reply, and closes the connection. */
static bool has_no_room(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && error_is_full(reply->str);
}

/* The server needs a password, and the URL has none. This error is the first reply, too. */
static bool has_no_login(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOAUTH ", 7) == 0;
}

/* Whether this reply is an error that ends the login. A server whose script runs too long does not
 * say its role, and answers no other command either. */
static bool ends_login(const struct node *node, size_t index)
{
    const redisReply *reply = node->replies[index];
    bool is_role = node->server->kind == SERVER_OF_SENTINEL && index + 1 == node->login_size;
    if (index >= node->login_size)
        return has_no_login(reply);
    return reply->type == REDIS_REPLY_ERROR && !(is_role && strncmp(reply->str, "BUSY ", 5) == 0);
}

/* What it says that it is, if that is not a master; NULL: it is one. The sentinels name a former
 * master as long as they do not know better. */
static const char *other_role(const struct node *node)
{
    if (node->server->kind != SERVER_OF_SENTINEL)
        return NULL;
    const redisReply *role = node->replies[node->login_size - 1];
    if (role->type == REDIS_REPLY_ERROR)
        return NULL;
    const char *says = role->type == REDIS_REPLY_ARRAY && role->elements > 0 &&
                               role->element[0]->type == REDIS_REPLY_STRING
                           ? role->element[0]->str
                           : "?";
    return strcmp(says, "master") != 0 ? says : NULL;
}

static void logged_in(struct node *node)
{
    char reason[REASON_MAX];
    if (has_no_room(node->replies[0])) {
        snprintf(reason, sizeof reason, "%s", node->replies[0]->str);
        try_next(node, reason);
        return;
    }
    if (is_sentinel(node)) {
        fail_to_connect(node, DLOCK_REFUSED,
                        "it is a sentinel and keeps no data; give the URL sentinel://host:port/"
                        "master, with the name of its 'sentinel monitor'");
        return;
    }
    for (size_t i = 0; i <= node->login_size; i++) {
        if (!ends_login(node, i))
            continue;
        snprintf(reason, sizeof reason, "the login was refused: %.200s%s", node->replies[i]->str,
                 node->server->kind == SERVER_OF_SENTINEL
                     ? " (by the master that the sentinels name; its login is the URL's)"
                     : "");
        fail_to_connect(node, status_of_error(node->replies[i]), reason);
        return;
    }
    if (other_role(node) != NULL) {
        snprintf(reason, sizeof reason,
                 NOT_MASTER " '%.20s': the sentinels name it as the master, and it is none",
                 other_role(node));
        reach_demoted(node->server, reason);
        fail_to_connect(node, DLOCK_REFUSED, reason);
        return;
    }
    if (!node_may_vote(node))
        return;
    node_identify(node);
    node->state = NODE_UP;
    node->connect_ns = mono_ns() - node->sent_ns;
    node_clear(node);
    reach_tried(node->server, node_address(node), false);
    send_left(node);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

struct pollfd node_poll(const struct node *node)
{
    if (node->state == NODE_WAITING)
        return (struct pollfd){.fd = -1};
    if (node->state == NODE_RESOLVING)
        return (struct pollfd){.fd = lookup_fd(node->lookup), .events = POLLIN};
    if (node->state == NODE_CONNECTING)
        return (struct pollfd){.fd = node->fd, .events = POLLOUT};
    bool writes = node->out_sent < node->out_size;
    return (struct pollfd){.fd = node->fd, .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
}

void node_resume(struct node *node)
{
    struct pollfd came = node_poll(node);
    if (node->state == NODE_WAITING)
        node_connect(node);
    else if (mono_ns() >= node->next_ns && poll(&came, 1, 0) > 0)
        node->next_ns = node->until_ns = mono_deadline_ns(node->config->connect_timeout_ms);
}

/* A time limit has passed: next_ns, of the present state, or until_ns, of connecting as a whole. */
static void node_overdue(struct node *node)
{
    static const char reason[] = "connecting took too long";
    bool over = mono_ns() >= node->until_ns;
    if (node->state == NODE_WAITING && !over) {
        look_again(node);
    } else if (node->state == NODE_WAITING) {
        node_close(node, DLOCK_UNREACHABLE, reason);
    } else if (node->state == NODE_RESOLVING && !over) {
        node_resolved(node);
    } else if (node->state == NODE_RESOLVING) {
        char why[REASON_MAX];
        reach_explain(node->server, 0, why);
        fail_to_connect(node, DLOCK_UNREACHABLE, why);
    } else if (!over) {
        try_next(node, reason);
    } else {
        reach_tried(node->server, node_address(node), true);
        fail_to_connect(node, DLOCK_UNREACHABLE, reason);
    }
}

void node_step(struct node *node, short events)
{
    if (node_is_former(node)) {
        leave_former(node);
        return;
    }
    if (node->state == NODE_RESOLVING && events != 0)
        node_resolved(node);
    else if (node->state == NODE_CONNECTING && events != 0)
        node_connected(node);
    if (node_is_open(node))
        node_write(node);
    if (node_is_open(node) && (events & (POLLIN | POLLHUP | POLLERR)) != 0)
        node_read(node);
    if (node->state == NODE_LOGIN && node->reply_count >= node->reply_wanted)
        logged_in(node);
    if (node_connecting(node) && mono_ns() >= node->next_ns)
        node_overdue(node);
}
