/* SPDX-License-Identifier: Apache-2.0
 *
 * See redis.h.
 */
#include "clock.h"
#include "node.h"
#include "reply_text.h"
#include "sentinel.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME_SERVER "it is the same server as %s; each server may be named only once"
#define LATE_MS 50                /* how long late servers are awaited once enough are connected */
#define BEHIND_MAX (2 * KEPT_MAX) /* a server that owes more replies is given up */

struct redis {
    struct redis_config *config;
    size_t node_count;
    struct node nodes[];
};

/* ---- Servers --------------------------------------------------------------------------------- */

dlock_status redis_add_server(struct redis_config *config, const char *url, const char *user,
                              const char *password)
{
    struct server *server = &config->servers[config->server_count];
    dlock_status status = url_parse(url, &server->url);
    if (status != DLOCK_OK)
        return status;
    bool of_sentinel = server->url.master != NULL;
    if (config->replicas_ack != DLOCK_REPLICAS_NONE && !of_sentinel &&
        server_replicas(server) == 0) {
        url_free(&server->url);
        return fail(DLOCK_INVALID, "replicas_ack needs replicas, which is 0; set replicas to how "
                                   "many the server has, those included that are down");
    }
    if (!reach_init(server, of_sentinel ? SERVER_OF_SENTINEL : SERVER_AT_URL, &config->outages)) {
        url_free(&server->url);
        return fail(DLOCK_NO_MEMORY, "no descriptor is left");
    }
    config->server_count++;
    if (!of_sentinel)
        return DLOCK_OK;
    server->watch = watch_start(server, config, user, password);
    return server->watch != NULL ? DLOCK_OK : fail(DLOCK_NO_MEMORY, "no memory or thread is left");
}

void redis_stop_servers(struct redis_config *config)
{
    for (size_t i = 0; i < config->server_count; i++)
        if (config->servers[i].watch != NULL)
            watch_stop(config->servers[i].watch);
}

void redis_free_servers(struct redis_config *config)
{
    redis_stop_servers(config);
    for (size_t i = 0; i < config->server_count; i++) {
        watch_free(config->servers[i].watch);
        url_free(&config->servers[i].url);
        reach_free(&config->servers[i]);
    }
    config->server_count = 0;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static bool all_connected(const struct redis *redis, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < redis->node_count; i++)
        if (node_connecting(&redis->nodes[i]))
            return false;
    return true;
}

bool redis_connecting(const struct redis *redis)
{
    return !all_connected(redis, NULL);
}

static size_t count_up_of(const struct redis *redis, uint32_t servers)
{
    size_t up = 0;
    for (size_t i = 0; i < redis->node_count; i++)
        up += redis->nodes[i].state == NODE_UP && (servers >> i & 1) != 0;
    return up;
}

size_t redis_count_up(const struct redis *redis)
{
    return count_up_of(redis, SERVERS_ALL);
}

bool redis_up_to(const struct redis *redis, uint32_t servers)
{
    return count_up_of(redis, servers) >= redis->node_count / 2 + 1;
}

bool redis_up(const struct redis *redis)
{
    return redis_up_to(redis, SERVERS_ALL);
}

bool redis_keeps_unsent(const struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++)
        if (node_keeps_unsent(&redis->nodes[i]))
            return true;
    return false;
}

bool redis_keeps(const struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++)
        if (redis->nodes[i].kept.count > 0)
            return true;
    return false;
}

/* *arg: among these servers. */
static bool enough_connected(const struct redis *redis, void *arg)
{
    const uint32_t *servers = arg;
    return redis_up_to(redis, *servers) || all_connected(redis, NULL);
}

static bool all_answered(const struct redis *redis, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < redis->node_count; i++)
        if (redis->nodes[i].state == NODE_UP && !node_answered(&redis->nodes[i]))
            return false;
    return true;
}

/* *arg: how many replies are needed. */
static bool least_answered(const struct redis *redis, void *arg)
{
    const size_t *least = arg;
    const struct node *node = &redis->nodes[0];
    return (!node_connecting(node) && node->reply_count >= *least) || all_answered(redis, NULL);
}

/* Drives all nodes until done() is true. OK, TIMED_OUT or CANCELLED. Data that has arrived by the
 * deadline still counts. */
static dlock_status redis_pump(struct redis *redis,
                               bool (*done)(const struct redis *redis, void *arg), void *arg,
                               int64_t deadline_ns, int wake_fd)
{
    for (bool over = false;;) {
        struct pollfd polls[SERVERS_MAX + 1];
        struct node *polled[SERVERS_MAX + 1];
        int64_t until_ns = deadline_ns;
        nfds_t count = 0;
        if (done(redis, arg))
            return DLOCK_OK;
        if (over)
            return DLOCK_TIMED_OUT;
        for (size_t i = 0; i < redis->node_count; i++) {
            struct node *node = &redis->nodes[i];
            if (node->state == NODE_DOWN || (node_answered(node) && node->behind == 0))
                continue;
            polled[count] = node;
            polls[count++] = node_poll(node);
            if (node_connecting(node))
                until_ns = min_ns(until_ns, node->next_ns);
        }
        polls[count] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
        int64_t now_ns = mono_ns();
        int64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        struct timespec left = timespec_of(left_ns);
        over = deadline_ns <= now_ns;
        if (ppoll(polls, count + 1, &left, NULL) < 0)
            continue;
        for (nfds_t i = 0; i < count; i++)
            if (polls[i].revents != 0 || node_connecting(polled[i]))
                node_step(polled[i], polls[i].revents);
        if (polls[count].revents != 0)
            return DLOCK_CANCELLED;
    }
}

/* ---- Connecting ------------------------------------------------------------------------------ */

struct redis *redis_new(struct redis_config *config)
{
    struct redis *redis = calloc(1, sizeof *redis + config->server_count * sizeof redis->nodes[0]);
    if (redis == NULL)
        return NULL;
    redis->config = config;
    redis->node_count = config->server_count;
    for (size_t i = 0; i < redis->node_count; i++)
        node_init(&redis->nodes[i], config, &config->servers[i]);
    return redis;
}

void redis_free(struct redis *redis)
{
    if (redis == NULL)
        return;
    for (size_t i = 0; i < redis->node_count; i++)
        node_free(&redis->nodes[i]);
    free(redis);
}

size_t redis_nodes(const struct redis *redis)
{
    return redis->node_count;
}

const struct redis_config *redis_config_of(const struct redis *redis)
{
    return redis->config;
}

void redis_disconnect(struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++)
        node_close(&redis->nodes[i], DLOCK_UNREACHABLE, "closed");
}

/* It refuses for good: waiting does not help. */
static bool refuses(const struct node *node)
{
    return node->state == NODE_DOWN && node->down_status == DLOCK_REFUSED &&
           !redis_is_demotion(node->down_reason);
}

uint32_t redis_refusing(const struct redis *redis)
{
    uint32_t refusing = 0;
    for (size_t i = 0; i < redis->node_count; i++)
        refusing |= (uint32_t)refuses(&redis->nodes[i]) << i;
    return refusing;
}

bool redis_leaves_majority(const struct redis *redis, uint32_t without)
{
    size_t others = redis->node_count - (size_t)__builtin_popcount(without);
    return others >= redis->node_count / 2 + 1;
}

bool redis_refused_for_now(const struct redis *redis)
{
    return redis_leaves_majority(redis, redis_refusing(redis));
}

/* No server is connected: the one that decides what becomes of a waiter. It is the last of those
 * that refuse for good if they leave no majority, and else of the others. */
static const struct node *who_decides(const struct redis *redis)
{
    bool for_now = redis_refused_for_now(redis);
    const struct node *one = NULL;
    for (const struct node *node = redis->nodes; node < redis->nodes + redis->node_count; node++)
        if (refuses(node) != for_now && (one == NULL || node->state == NODE_DOWN))
            one = node;
    return one;
}

/* No server is connected, or no majority is by the cancel: the status, with a sentence that says
 * why. */
static dlock_status say_why(const struct redis *redis, dlock_status pumped)
{
    const struct node *node = who_decides(redis);
    const char *url = node->server->url.shown;
    if (pumped == DLOCK_CANCELLED)
        return fail(DLOCK_CANCELLED, "cancelled while connecting to %s", url);
    if (node->state == NODE_RESOLVING) {
        char reason[REASON_MAX];
        reach_explain(node->server, 0, reason);
        return fail(DLOCK_UNREACHABLE, "%s: %s", url, reason);
    }
    if (node->state != NODE_DOWN)
        return fail(DLOCK_UNREACHABLE, "%s: connecting took too long", url);
    return fail(node->down_status, "%s: %s", url, node->down_reason);
}

/* begun: at least one node starts to connect now. Nodes that started earlier were awaited then. */
static dlock_status connect_enough(struct redis *redis, int64_t deadline_ns, int wake_fd,
                                   bool begun)
{
    if (redis_up(redis)) /* the others go on connecting, and are not awaited */
        return redis_pump(redis, all_connected, NULL, 0, wake_fd);
    uint32_t any = SERVERS_ALL;
    dlock_status pumped = redis_pump(redis, enough_connected, &any, deadline_ns, wake_fd);
    if (pumped == DLOCK_OK)
        redis_pump(redis, all_connected, NULL,
                   begun ? min_ns(deadline_ns, mono_deadline_ns(LATE_MS)) : 0, wake_fd);
    return pumped;
}

void redis_go_on(struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++)
        node_forget(&redis->nodes[i]);
}

static bool owes_nothing(const struct redis *redis, void *arg)
{
    (void)arg;
    return redis->nodes[0].state != NODE_UP || redis->nodes[0].behind == 0;
}

/* A single server may not be over with an earlier WAIT. What is sent now would be late, too. */
static void await_late_wait(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    int64_t limit_ns = mono_deadline_ns(redis->config->command_timeout_ms);
    if (redis->node_count > 1 || owes_nothing(redis, NULL))
        return;
    redis_pump(redis, owes_nothing, NULL, min_ns(limit_ns, deadline_ns), wake_fd);
    if (!owes_nothing(redis, NULL) && mono_ns() >= limit_ns)
        node_break(&redis->nodes[0], "no answer in time");
}

static void drop_if_stale(struct node *node)
{
    if (node->state == NODE_UP && node_stale(node))
        node_close(node, DLOCK_UNREACHABLE, "the server closed the connection");
}

/* Takes what has arrived since the last exchange. Whether all servers are connected. */
static bool redis_refresh(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    redis_go_on(redis);
    await_late_wait(redis, deadline_ns, wake_fd);
    for (size_t i = 0; i < redis->node_count; i++) {
        node_catch_up(&redis->nodes[i]);
        node_send_kept(&redis->nodes[i]);
        drop_if_stale(&redis->nodes[i]);
    }
    return redis_count_up(redis) == redis->node_count;
}

bool redis_still_up(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    redis_refresh(redis, deadline_ns, wake_fd);
    return redis_up(redis);
}

void redis_catch_up(struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++)
        node_catch_up(&redis->nodes[i]);
}

dlock_status redis_ready(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    bool begun = false;
    if (redis_refresh(redis, deadline_ns, wake_fd))
        return DLOCK_OK;
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        if (node->state == NODE_DOWN) {
            node_connect(node);
            begun = true;
        } else if (node->state != NODE_UP) {
            node_resume(node);
        }
    }
    dlock_status pumped = connect_enough(redis, deadline_ns, wake_fd, begun);
    const bool cut_off = pumped == DLOCK_CANCELLED && !redis_up(redis);
    return redis_count_up(redis) > 0 && !cut_off ? DLOCK_OK : say_why(redis, pumped);
}

void redis_ready_to(struct redis *redis, uint32_t servers, int64_t deadline_ns, int wake_fd)
{
    redis_pump(redis, enough_connected, &servers, deadline_ns, wake_fd);
}

void redis_ready_each(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    redis_pump(redis, all_connected, NULL, deadline_ns, wake_fd);
}

/* Another node before it that is connected to the same server process; NULL: there is none. */
static const struct node *find_twin(const struct redis *redis, const struct node *node)
{
    for (const struct node *other = redis->nodes; node->state == NODE_UP && other < node; other++)
        if (other->state == NODE_UP && other->identity.process == node->identity.process)
            return other;
    return NULL;
}

bool redis_is_twin(const struct redis *redis, size_t index)
{
    const struct node *node = &redis->nodes[index], *twin = find_twin(redis, node);
    char reason[REASON_MAX];
    if (twin == NULL)
        return false;
    snprintf(reason, sizeof reason, SAME_SERVER, twin->server->url.shown);
    reach_named_twice(node->server, reason);
    return true;
}

dlock_status redis_check_independent(const struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++)
        if (redis_is_twin(redis, i))
            return fail(
                DLOCK_REFUSED, "%s and %s are the same server; each server may be named only once",
                find_twin(redis, &redis->nodes[i])->server->url.shown, redis_server(redis, i));
    return DLOCK_OK;
}

int64_t redis_pause_ms(struct redis_config *config)
{
    int64_t longest_ms = 0;
    for (size_t i = 0; i < config->server_count; i++) {
        int64_t pause_ms = reach_pause_ms(&config->servers[i]);
        longest_ms = pause_ms > longest_ms ? pause_ms : longest_ms;
    }
    return longest_ms;
}

/* ---- Exchanging ------------------------------------------------------------------------------ */

void redis_begin(struct redis *redis)
{
    redis_go_on(redis);
    for (size_t i = 0; i < redis->node_count; i++)
        redis->nodes[i].lost_may_arrive = false;
}

void redis_append(struct redis *redis, size_t index, int argc, const char *const *argv,
                  const size_t *sizes)
{
    struct node *node = &redis->nodes[index];
    if (node->state == NODE_UP && node->behind > BEHIND_MAX)
        node_break(node, "it owes too many replies");
    if (node->state != NODE_UP) {
        node->status = node->state == NODE_DOWN ? node->down_status : DLOCK_UNREACHABLE;
        return; /* it is not sent */
    }
    node_append(node, argc, argv, sizes);
    atomic_fetch_add_explicit(&redis->config->commands, 1, memory_order_relaxed);
    node_note_sent(node, argc, argv, sizes);
}

void redis_append_wait(struct redis *redis, size_t index, const char *replicas, const char *ms)
{
    redis_append(redis, index, 3, (const char *const[]){"WAIT", replicas, ms}, NULL);
    redis->nodes[index].confirms = redis->nodes[index].state == NODE_UP;
}

void redis_keep(struct redis *redis, size_t index, int argc, const char *const *argv, enum keep why)
{
    node_keep(&redis->nodes[index], argc, argv, why);
}

void redis_await_late(struct redis *redis, size_t index, struct late_reply *late, size_t after)
{
    node_await_late(&redis->nodes[index], late, after);
}

bool redis_is_demotion(const char *error)
{
    error = error_cause(error);
    return strncmp(error, "READONLY", 8) == 0 || strncmp(error, "MASTERDOWN", 10) == 0 ||
           strncmp(error, "UNBLOCKED", 9) == 0 ||
           strncmp(error, "ERR WAIT cannot be used with replica", 36) == 0 ||
           strncmp(error, NOT_MASTER, strlen(NOT_MASTER)) == 0;
}

static void redis_drop_demoted(struct node *node, const char *error)
{
    reach_tried(node->server, node_address(node), true);
    reach_demoted(node->server, error);
    node_close(node, DLOCK_UNREACHABLE, error);
}

void redis_demoted(struct redis *redis, size_t index, const char *error)
{
    if (redis->nodes[index].state == NODE_UP)
        redis_drop_demoted(&redis->nodes[index], error);
}

void redis_distrust(struct redis *redis, size_t index)
{
    if (redis->nodes[index].state == NODE_UP)
        node_distrust(&redis->nodes[index], "its answer was not understood");
}

void redis_wakeups_refused(struct redis *redis, size_t index, unsigned kind, const char *reason)
{
    reach_wakeups_refused(redis->nodes[index].server, kind, reason);
}

/* Reports to reach.h what this exchange says about the server. */
static void redis_judge(struct node *node)
{
    if (node->state != NODE_UP || node->reply_count == 0)
        return;
    bool took = true; /* any error clears it: a replica answers NOSCRIPT, too */
    for (size_t i = 0; i < node->reply_count; i++) {
        const redisReply *reply = node->replies[i];
        took &= reply->type != REDIS_REPLY_ERROR;
        if (reply->type == REDIS_REPLY_ERROR && redis_is_demotion(reply->str)) {
            redis_drop_demoted(node, reply->str);
            return;
        }
    }
    reach_answered(node->server, took);
}

void redis_send(struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        node->sent_ns = mono_ns();
        if (node->state == NODE_UP)
            node_write(node);
    }
}

dlock_status redis_wait(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    return redis_pump(redis, all_answered, NULL, deadline_ns, wake_fd);
}

dlock_status redis_next(struct redis *redis, size_t taken, size_t least, int64_t deadline_ns,
                        int wake_fd)
{
    node_shift(&redis->nodes[0], taken);
    dlock_status pumped = redis_pump(redis, least_answered, &least, deadline_ns, wake_fd);
    redis_judge(&redis->nodes[0]);
    return least_answered(redis, &least) ? DLOCK_OK : pumped;
}

static dlock_status redis_settle(struct redis *redis, dlock_status pumped)
{
    dlock_status worst = DLOCK_OK;
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        bool unanswered = node->state == NODE_UP && !node_answered(node);
        if (node_lacks_wait_only(node)) { /* its answer may come later, and tells nothing then */
            redis_judge(node);
            node_leave_behind(node);
            node->status = DLOCK_OK;
            continue;
        }
        if (unanswered && pumped == DLOCK_CANCELLED)
            node_close(node, DLOCK_UNREACHABLE, "cut off");
        else if (unanswered)
            node_break(node, "no answer in time");
        redis_judge(node);
        if (node->status == DLOCK_OK && !(node->state == NODE_DOWN && node->confirms))
            continue;
        for (size_t lost = node->reply_count; lost < node->reply_wanted; lost++)
            node_trace(node, lost, NULL);
        if (node->status != DLOCK_OK && worst != DLOCK_UNKNOWN)
            worst = fail(node->status, "%s: %s", node->server->url.shown,
                         node->state == NODE_DOWN ? node->down_reason : "not connected yet");
    }
    return worst;
}

dlock_status redis_finish(struct redis *redis)
{
    return redis_settle(redis, DLOCK_TIMED_OUT);
}

dlock_status redis_gather(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    int64_t limit_ns = mono_deadline_ns(redis->config->command_timeout_ms);
    redis_send(redis);
    return redis_settle(redis, redis_wait(redis, min_ns(limit_ns, deadline_ns), wake_fd));
}

struct decision {
    bool (*is_made)(void *arg);
    void *arg;
};

static bool is_over(const struct redis *redis, void *arg)
{
    const struct decision *decision = arg;
    return decision->is_made(decision->arg) || all_answered(redis, NULL);
}

void redis_gather_until(struct redis *redis, bool (*decided)(void *arg), void *arg,
                        int64_t deadline_ns, int wake_fd)
{
    struct decision decision = {decided, arg};
    int64_t limit_ns = min_ns(mono_deadline_ns(redis->config->command_timeout_ms), deadline_ns);
    redis_send(redis);
    for (size_t i = 0; i < redis->node_count; i++)
        node_catch_up_overdue(&redis->nodes[i]);
    if (redis_pump(redis, is_over, &decision, limit_ns, wake_fd) == DLOCK_OK)
        redis_pump(redis, all_answered, NULL, 0, wake_fd); /* what has come meanwhile */
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        for (size_t lost = node->reply_count; node->state == NODE_DOWN && lost < node->reply_wanted;
             lost++)
            node_trace(node, lost, NULL);
        redis_judge(node);
        node_leave_behind(node);
    }
}

bool redis_append_late(struct redis *redis, size_t index, int argc, const char *const *argv,
                       struct late_reply *late)
{
    struct node *node = &redis->nodes[index];
    node_forget(node);
    redis_append(redis, index, argc, argv, NULL);
    if (!redis_awaits(redis, index))
        return false;
    node->sent_ns = mono_ns(); /* since when it owes a reply, if it owes no other */
    node_leave_behind(node);
    node_await_late(node, late, 0);
    return true;
}

static bool is_heard(const struct redis *redis, void *arg)
{
    (void)redis;
    const struct decision *decision = arg;
    return decision->is_made(decision->arg);
}

static bool owe_nothing(const struct redis *redis, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < redis->node_count; i++)
        if (redis->nodes[i].state == NODE_UP && redis->nodes[i].behind > 0)
            return false;
    return true;
}

dlock_status redis_hear(struct redis *redis, bool (*heard)(void *arg), void *arg,
                        int64_t deadline_ns, int wake_fd)
{
    struct decision decision = {heard, arg};
    redis_send(redis);
    for (size_t i = 0; i < redis->node_count; i++)
        node_catch_up_overdue(&redis->nodes[i]);
    dlock_status pumped = redis_pump(redis, is_heard, &decision, deadline_ns, wake_fd);
    if (pumped == DLOCK_OK)
        redis_pump(redis, owe_nothing, NULL, 0, -1); /* what has come meanwhile */
    return pumped;
}

bool redis_is_open(const struct redis *redis, size_t index)
{
    return node_is_open(&redis->nodes[index]);
}

bool redis_awaits(const struct redis *redis, size_t index)
{
    const struct node *node = &redis->nodes[index];
    return node->state == NODE_UP && !node_answered(node);
}

bool redis_owes(const struct redis *redis, size_t index)
{
    return redis->nodes[index].behind > 0;
}

bool redis_awaits_prompt(const struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++)
        if (redis_awaits(redis, i) && !redis_owes(redis, i))
            return true;
    return false;
}

const char *redis_silence(const struct redis *redis, size_t index, const char *connected)
{
    const struct node *node = &redis->nodes[index];
    return node->state == NODE_DOWN         ? node->down_reason
           : find_twin(redis, node) != NULL ? "it is the same server as one before it"
           : node->state == NODE_UP         ? connected
                                            : "not connected yet";
}

/* ---- Uncertain requests ---------------------------------------------------------------------- */

bool redis_broken_connection(const struct redis *redis, size_t node, struct connection_id *broken)
{
    for (size_t i = node; i < redis->node_count; i++) {
        if (!redis->nodes[i].lost_may_arrive)
            continue;
        *broken = redis->nodes[i].lost;
        broken->node = i;
        return true;
    }
    return false;
}

/* The connection's id is not known, and CLIENT ID may be tried again: the server was busy. */
static bool is_nameless(const struct node *node)
{
    return node->state == NODE_UP && node->identity.id == 0 &&
           reach_may_ask(node->server, &node->server->identity_refused_ns);
}

/* 1: it has been ended; 0: it had ended before. Its commands were carried out, or never will be. */
enum kill_result redis_kill_says(const struct redis *redis, size_t index, const redisReply *reply)
{
    return reply != NULL ? node_kill_says(&redis->nodes[index], reply) : KILL_UNANSWERED;
}

/* Sends one command about another connection. The caller forgets the reply. */
static void redis_ask_beside(struct redis *redis, struct node *node, int argc,
                             const char *const *argv, int64_t deadline_ns, int wake_fd)
{
    int64_t limit_ns = mono_deadline_ns(redis->config->command_timeout_ms);
    node_forget(node);
    node_append(node, argc, argv, NULL);
    node->sent_ns = mono_ns();
    node_write(node);
    redis_pump(redis, all_answered, NULL, min_ns(limit_ns, deadline_ns), wake_fd);
    if (node->state == NODE_UP && !node_answered(node))
        node_break(node, "no answer in time");
}

static enum kill_result kill_connection(struct redis *redis, struct node *node, long long id,
                                        int64_t deadline_ns, int wake_fd)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", id);
    redis_ask_beside(redis, node, 4, (const char *const[]){"CLIENT", "KILL", "ID", text},
                     deadline_ns, wake_fd);
    const redisReply *reply =
        node->state == NODE_UP && node->reply_count == 1 ? node->replies[0] : NULL;
    enum kill_result end = redis_kill_says(redis, (size_t)(node - redis->nodes), reply);
    node_forget(node);
    return end;
}

bool redis_append_kill(struct redis *redis, const struct connection_id *other)
{
    char text[24];
    const struct node *node = &redis->nodes[other->node];
    if (node->state != NODE_UP || !node_may_kill(node, other))
        return false;
    snprintf(text, sizeof text, "%lld", other->id);
    redis_append(redis, other->node, 4, (const char *const[]){"CLIENT", "KILL", "ID", text}, NULL);
    return true;
}

bool redis_follows(const struct redis *redis, const struct connection_id *other)
{
    const struct node *node = &redis->nodes[other->node];
    return node->state == NODE_UP && node->identity.process != 0 &&
           (node->identity.process != other->process || node->identity.id == other->id);
}

enum kill_result redis_kill_broken(struct redis *redis, const struct connection_id *broken,
                                   int64_t deadline_ns, int wake_fd)
{
    struct node *node = &redis->nodes[broken->node];
    char sentence[SENTENCE_MAX];
    enum kill_result end = KILL_UNANSWERED;
    snprintf(sentence, sizeof sentence, "%s", dlock_error());
    if (broken->id != 0 && is_nameless(node)) /* a new connection may get its id */
        node_close(node, DLOCK_UNREACHABLE, "the server was busy when it connected");
    else if (node->state == NODE_UP)
        end = node_may_kill(node, broken)
                  ? kill_connection(redis, node, broken->id, deadline_ns, wake_fd)
                  : KILL_IMPOSSIBLE;
    fail(DLOCK_OK, "%s", sentence); /* dlock_error() still describes the exchange */
    return end;
}

struct connection_id redis_connection(const struct redis *redis, size_t node)
{
    struct connection_id connection = redis->nodes[node].identity;
    connection.node = node;
    return connection;
}

void redis_unblock(struct redis *redis, const struct connection_id *blocked, int64_t deadline_ns,
                   int wake_fd)
{
    struct node *node = &redis->nodes[blocked->node];
    char sentence[SENTENCE_MAX], text[24];
    if (!node_is_of_same_process(node, blocked))
        return;
    snprintf(sentence, sizeof sentence, "%s", dlock_error());
    snprintf(text, sizeof text, "%lld", blocked->id);
    redis_ask_beside(redis, node, 3, (const char *const[]){"CLIENT", "UNBLOCK", text}, deadline_ns,
                     wake_fd);
    node_forget(node);
    fail(DLOCK_OK, "%s", sentence);
}

/* ---- Listening ------------------------------------------------------------------------------- */

int redis_fd(const struct redis *redis, size_t index)
{
    return redis->nodes[index].state == NODE_UP ? redis->nodes[index].fd : -1;
}

static dlock_status redis_received(struct node *node)
{
    if (node->state == NODE_UP)
        return DLOCK_OK;
    node_forget(node);
    return fail(DLOCK_UNREACHABLE, "%s: %s", node->server->url.shown, node->down_reason);
}

dlock_status redis_flush(struct redis *redis, size_t index)
{
    struct node *node = &redis->nodes[index];
    node->listens = true;
    node->sent_ns = mono_ns();
    if (node->state == NODE_UP)
        node_write(node);
    if (node->out_sent == node->out_size)
        node->out_sent = node->out_size = 0;
    return redis_received(node);
}

dlock_status redis_pull(struct redis *redis, size_t index)
{
    struct node *node = &redis->nodes[index];
    for (size_t i = 0; i < node->reply_count; i++)
        freeReplyObject(node->replies[i]);
    node->reply_count = 0;
    if (node->state == NODE_UP)
        node_read(node);
    return redis_received(node);
}

int64_t redis_connect_ns(const struct redis *redis, size_t node)
{
    return redis->nodes[node].connect_ns;
}

dlock_status redis_status(const struct redis *redis, size_t node)
{
    return redis->nodes[node].status;
}

const redisReply *redis_reply(const struct redis *redis, size_t node, size_t index)
{
    const struct node *from = &redis->nodes[node];
    return !node_connecting(from) && index < from->reply_count ? from->replies[index] : NULL;
}

const char *redis_server(const struct redis *redis, size_t node)
{
    return redis->nodes[node].server->url.shown;
}

uint64_t redis_generation(const struct redis *redis, size_t node)
{
    return redis->nodes[node].socket.generation;
}

bool redis_sentinel_epoch(const struct redis *redis, size_t node, uint64_t *epoch)
{
    const struct node *one = &redis->nodes[node];
    *epoch = one->socket.epoch;
    return one->server->kind == SERVER_OF_SENTINEL;
}
