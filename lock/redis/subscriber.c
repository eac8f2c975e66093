/* SPDX-License-Identifier: Apache-2.0
 *
 * See subscriber.h. The first waiter that needs the connection makes it, because connecting may
 * block. Then the connection belongs to the loop until it breaks. After a break all its waiters try
 * to acquire at once, and the first that must wait connects it again. If the server refuses to
 * subscribe, waiters poll, and the client asks again after growing pauses.
 */
#include "redis_engine.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIVED_MS 1000 /* a connection that breaks sooner is made again after a pause */
#define BROKE_MS 50
#define REFUSED_MS 1000
#define DOUBLINGS 6
#define UNTOLD (1U << WAIT_POLL) /* the bit for PUBLISH in a server's wakeups_refused */

static int64_t doubled_ns(int64_t ms, unsigned times)
{
    return (ms << (times < DOUBLINGS ? times : DOUBLINGS)) * NS_PER_MS;
}

static void hear_all(struct watched *watched);

void subscriber_init(struct subscriber *subscriber, enum wait_kind kind)
{
    *subscriber = (struct subscriber){.kind = kind, .watched = {.fd = -1, .ready = hear_all}};
    for (size_t i = 0; i < SOURCE_STATES; i++)
        TAILQ_INIT(&subscriber->sources[i]);
}

void subscriber_free(struct subscriber *subscriber)
{
    redis_free(subscriber->redis);
}

static struct subscriber *subscriber_for(const struct dlock *lock, enum wait_kind kind)
{
    struct redis_engine *engine = redis_of(lock->client);
    return kind == WAIT_LIST      ? &engine->lists
           : kind == WAIT_SIGNALS ? &engine->signals
                                  : &engine->channels;
}

/* ---- Its locks ------------------------------------------------------------------------------- */

/* The hash bucket of that name, by FNV-1a. */
static struct namesakes *with_name(struct subscriber *subscriber, const char *name)
{
    uint32_t hash = 2166136261U;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    return &subscriber->by_name[hash >> (32 - SUBSCRIBER_NAME_BITS)];
}

/* The name in a reply: the channel's, or of a list element the lock's. */
static const char *subscriber_name_of(const struct subscriber *subscriber,
                                      const struct source *source)
{
    return subscriber->kind == WAIT_CHANNEL ? source->name : source->lock->name;
}

static bool listens_to(struct subscriber *subscriber, const char *channel)
{
    const struct source *source;
    LIST_FOREACH(source, with_name(subscriber, channel), by_name)
        if (strcmp(source->name, channel) == 0)
            return true;
    return false;
}

static struct source *first_in(struct subscriber *subscriber, enum source_state state)
{
    return TAILQ_FIRST(&subscriber->sources[state]);
}

static void set_state(struct subscriber *subscriber, struct source *source, enum source_state state)
{
    TAILQ_REMOVE(&subscriber->sources[source->state], source, in_state);
    TAILQ_INSERT_TAIL(&subscriber->sources[state], source, in_state);
    source->state = state;
    source->lock->subscribed = state == SOURCE_SUBSCRIBED;
}

static void no_longer_refused(struct subscriber *subscriber, struct source *source)
{
    struct server *server = &redis_of(source->lock->client)->config.servers[0];
    if (source->refusals > 0)
        subscriber->refused--;
    source->refusals = 0;
    if (subscriber->refused == 0) /* else other locks' requests are still refused */
        reach_wakeups_accepted(server, 1U << subscriber->kind);
}

/* Returns the command's number on this connection. */
static uint64_t subscriber_send(struct subscriber *subscriber, const char *command,
                                const struct source *source)
{
    redis_append(subscriber->redis, 0, 2, (const char *const[]){command, source->name}, NULL);
    return subscriber->commands++;
}

/* The connection broke soon after it was made, or was not made. The next attempt waits for a pause,
 * longer each time. */
static void connect_later(struct subscriber *subscriber)
{
    subscriber->again_ns = mono_ns() + doubled_ns(BROKE_MS, ++subscriber->breaks);
}

/* ---- Listening ------------------------------------------------------------------------------- */

static void connect_now(struct loop *loop, struct subscriber *subscriber, int64_t limit_ns,
                        int cancel_fd)
{
    subscriber->state = SUBSCRIBER_CONNECTING;
    pthread_mutex_unlock(&loop->mutex);
    loop_may_block(loop);
    if (subscriber->redis == NULL)
        subscriber->redis = redis_new(&redis_of(loop->client)->config);
    dlock_status status = subscriber->redis == NULL
                              ? DLOCK_NO_MEMORY
                              : redis_ready(subscriber->redis, limit_ns, cancel_fd);
    bool up = status == DLOCK_OK && redis_fd(subscriber->redis, 0) >= 0;
    pthread_mutex_lock(&loop->mutex);
    subscriber->state = up ? SUBSCRIBER_UP : SUBSCRIBER_DOWN;
    subscriber->commands = subscriber->replies = 0;
    subscriber->up_ns = mono_ns();
    if (!up && status != DLOCK_CANCELLED && subscriber->up_ns < limit_ns)
        connect_later(subscriber);
}

/* Whether the running BLPOP lacks this source. A list cannot be added to a running BLPOP. */
static bool takes_others(const struct subscriber *subscriber, const struct source *source)
{
    return subscriber->kind == WAIT_SIGNALS && subscriber->state == SUBSCRIBER_WATCHED &&
           subscriber->taking && source->state == SOURCE_WANTED;
}

/* Makes the server end the BLPOP, by a command on an idle connection of the pool. The next BLPOP
 * includes all lists. If that fails, the waiter polls, and tries this again. */
static void end_taking(struct loop *loop, struct subscriber *subscriber, int64_t limit_ns,
                       int cancel_fd)
{
    struct pool *pool = &redis_of(loop->client)->pool;
    struct connection_id blocked = redis_connection(subscriber->redis, 0);
    pthread_mutex_unlock(&loop->mutex);
    loop_may_block(loop);
    struct redis *redis;
    if (pool_take_up(pool, SERVERS_ALL, 0, -1, &redis) == DLOCK_OK) {
        redis_unblock(redis, &blocked, limit_ns, cancel_fd);
        pool_give(pool, redis);
    }
    pthread_mutex_lock(&loop->mutex);
}

/* Notes whether the server refuses PUBLISH to this client's user. Most likely the holder has the
 * same user. Then no message will come, and the waiters poll. */
static void note_no_publish(struct source *source, bool no_publish)
{
    struct redis_engine *engine = redis_of(source->lock->client);
    struct subscriber *subscriber = &engine->channels;
    if (source->no_publish == no_publish)
        return;
    source->no_publish = no_publish;
    subscriber->no_publish_count =
        no_publish ? subscriber->no_publish_count + 1 : subscriber->no_publish_count - 1;
    if (no_publish)
        reach_wakeups_refused(&engine->config.servers[0], UNTOLD,
                              "PUBLISH is refused, so that waiters poll");
    else if (subscriber->no_publish_count == 0)
        reach_wakeups_accepted(&engine->config.servers[0], UNTOLD);
}

/* The first BUSY answer names the lock's channel or list. */
static void set_source(struct subscriber *subscriber, struct source *source,
                       const struct busy *busy)
{
    source->lock->woken_by = source->kind = busy->kind;
    strcpy(source->name, busy->source);
    LIST_INSERT_HEAD(with_name(subscriber, subscriber_name_of(subscriber, source)), source,
                     by_name);
    TAILQ_INSERT_TAIL(&subscriber->sources[source->state], source, in_state);
}

bool subscriber_listen(struct dlock *lock, const struct busy *busy, int64_t limit_ns, int cancel_fd)
{
    struct loop *loop = &lock->client->loop;
    struct source *source = &redis_lock_of(lock)->source;
    struct subscriber *subscriber = subscriber_for(lock, busy->kind);
    if (source->name[0] == '\0')
        set_source(subscriber, source, busy);
    note_no_publish(source, busy->no_publish);
    if (source->state == SOURCE_SUBSCRIBED)
        return !busy->no_publish;
    if (source->state == SOURCE_REFUSED && mono_ns() < source->again_ns)
        return false;
    if (loop_start(loop) != DLOCK_OK)
        return false;
    if (source->state == SOURCE_UNUSED || source->state == SOURCE_REFUSED)
        set_state(subscriber, source, SOURCE_WANTED);
    if (subscriber->state == SUBSCRIBER_DOWN && mono_ns() >= subscriber->again_ns)
        connect_now(loop, subscriber, limit_ns, cancel_fd);
    if (takes_others(subscriber, source))
        end_taking(loop, subscriber, limit_ns, cancel_fd);
    if (subscriber->state == SUBSCRIBER_UP || subscriber->state == SUBSCRIBER_WATCHED)
        loop_wake(loop);
    return false;
}

void subscriber_forget(struct dlock *lock)
{
    struct source *source = &redis_lock_of(lock)->source;
    if (source->name[0] == '\0')
        return;
    struct subscriber *subscriber = subscriber_for(lock, source->kind);
    note_no_publish(source, false);
    LIST_REMOVE(source, by_name);
    TAILQ_REMOVE(&subscriber->sources[source->state], source, in_state);
    no_longer_refused(subscriber, source);
    bool told = source->state == SOURCE_SUBSCRIBING || source->state == SOURCE_SUBSCRIBED;
    if (source->kind != WAIT_CHANNEL || !told || listens_to(subscriber, source->name))
        return;
    subscriber_send(subscriber, "UNSUBSCRIBE", source);
    loop_wake(&lock->client->loop);
}

/* ---- The loop's thread ----------------------------------------------------------------------- */

/* The subscription is active from here on. The waiters must try again: the message of a release
 * before it may have been missed. */
static void is_heard(struct subscriber *subscriber, struct source *source)
{
    set_state(subscriber, source, SOURCE_SUBSCRIBED);
    wait_wake(source->lock, WAKE_ALL);
}

static void are_silent(struct subscriber *subscriber, enum source_state before)
{
    struct source *source;
    while ((source = first_in(subscriber, before)) != NULL) {
        set_state(subscriber, source, SOURCE_UNUSED);
        wait_wake(source->lock, WAKE_ALL);
    }
}

static void subscriber_broke(struct subscriber *subscriber)
{
    subscriber->state = SUBSCRIBER_DOWN;
    subscriber->taking = false;
    if (mono_ns() - subscriber->up_ns < LIVED_MS * (int64_t)NS_PER_MS)
        connect_later(subscriber);
    else
        subscriber->breaks = 0;
    are_silent(subscriber, SOURCE_WANTED);
    are_silent(subscriber, SOURCE_SUBSCRIBING);
    are_silent(subscriber, SOURCE_SUBSCRIBED);
}

static void subscriber_give_up(struct subscriber *subscriber)
{
    redis_disconnect(subscriber->redis);
    subscriber_broke(subscriber);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void subscriber_refuse(struct subscriber *subscriber, struct source *source,
                              const char *error)
{
    char reason[REASON_MAX];
    set_state(subscriber, source, SOURCE_REFUSED);
    if (source->refusals == 0)
        subscriber->refused++;
    source->again_ns = mono_ns() + doubled_ns(REFUSED_MS, source->refusals++);
    wait_wake(source->lock, WAKE_ALL); /* its waiters must poll from here on */
    snprintf(reason, sizeof reason, "%s is refused, so that waiters poll: %s",
             subscriber->kind == WAIT_CHANNEL ? "SUBSCRIBE" : "BLPOP", error);
    redis_wakeups_refused(subscriber->redis, 0, 1U << subscriber->kind, reason);
}

/* Finds the locks that an error is for. Lists: all of them, as one BLPOP serves them. Channels: the
 * one whose SUBSCRIBE it answers; that lock may have been closed since. */
static void subscriber_refused(struct subscriber *subscriber, const char *error)
{
    struct source *source;
    uint64_t answered = subscriber->replies++;
    subscriber->taking = false;
    if (subscriber->kind != WAIT_CHANNEL)
        while ((source = first_in(subscriber, SOURCE_SUBSCRIBED)) != NULL)
            subscriber_refuse(subscriber, source, error);
    else if ((source = first_in(subscriber, SOURCE_SUBSCRIBING)) != NULL &&
             source->asked == answered)
        subscriber_refuse(subscriber, source, error);
}

/* ---- Sending and receiving ------------------------------------------------------------------- */

/* Sends a BLPOP for the lists of all locks that listen, and of those that want to. */
static void take_signals(struct subscriber *subscriber)
{
    struct source *source;
    size_t count = 0;
    int argc = 0;
    while ((source = first_in(subscriber, SOURCE_WANTED)) != NULL)
        is_heard(subscriber, source);
    TAILQ_FOREACH(source, &subscriber->sources[SOURCE_SUBSCRIBED], in_state)
        count++;
    const char **argv = calloc(count + 2, sizeof *argv);
    subscriber->taking = count > 0 && argv != NULL;
    if (subscriber->taking) {
        argv[argc++] = "BLPOP";
        TAILQ_FOREACH(source, &subscriber->sources[SOURCE_SUBSCRIBED], in_state)
            argv[argc++] = source->name;
        argv[argc++] = "0";
        redis_append(subscriber->redis, 0, argc, argv, NULL);
    }
    free(argv);
    if (argv == NULL)
        subscriber_refused(subscriber, "out of memory");
}

/* Sends the next BLPOP, as long as a lock listens. */
static void take_next(struct subscriber *subscriber)
{
    const struct source *source = first_in(subscriber, SOURCE_SUBSCRIBED);
    if (subscriber->kind == WAIT_SIGNALS) {
        take_signals(subscriber);
        return;
    }
    subscriber->taking = source != NULL;
    if (source != NULL)
        redis_append(subscriber->redis, 0, 3, (const char *const[]){"BLPOP", source->name, "0"},
                     NULL);
}

static void subscriber_ask(struct subscriber *subscriber, struct source *source)
{
    if (subscriber->kind != WAIT_CHANNEL) {
        is_heard(subscriber, source); /* a list keeps its elements: no wake-up is missed */
        if (!subscriber->taking)
            take_next(subscriber);
        return;
    }
    set_state(subscriber, source, SOURCE_SUBSCRIBING);
    source->asked = subscriber_send(subscriber, "SUBSCRIBE", source);
}

static void send_all(struct subscriber *subscriber)
{
    struct source *source;
    subscriber->state = SUBSCRIBER_WATCHED;
    while ((source = first_in(subscriber, SOURCE_WANTED)) != NULL &&
           !takes_others(subscriber, source))
        subscriber_ask(subscriber, source);
    if (redis_flush(subscriber->redis, 0) != DLOCK_OK)
        subscriber_broke(subscriber);
}

static const char *text_of(const redisReply *reply, size_t index)
{
    if (reply->type != REDIS_REPLY_ARRAY || index >= reply->elements ||
        reply->element[index]->str == NULL)
        return "";
    return reply->element[index]->str;
}

/* "0" wakes one waiter that wants the lock exclusively. "r" wakes all that want it shared. "r300"
 * does too, and makes one exclusive waiter ask again in 300 ms. Other messages wake all. */
static void subscriber_grant_another(struct dlock *lock, const char *payload)
{
    bool readers = payload[0] == 'r' && payload[1 + strspn(payload + 1, "0123456789")] == '\0';
    wait_wake(lock, readers ? WAKE_READERS : strcmp(payload, "0") == 0 ? WAKE_ONE : WAKE_ALL);
    if (readers && payload[1] != '\0')
        wait_look_in(lock, strtoll(payload + 1, NULL, 10));
}

/* Replies: ["subscribe", channel, count], ["message", channel, payload]. To a BLPOP: [list,
 * element], or nil after a CLIENT UNBLOCK by an operator or by this client. */
static void subscriber_receive(struct subscriber *subscriber, const redisReply *reply)
{
    bool list = subscriber->kind != WAIT_CHANNEL;
    const char *what = text_of(reply, 1);
    bool confirms = strcmp(text_of(reply, 0), "subscribe") == 0;
    bool says = strcmp(text_of(reply, 0), "message") == 0;
    struct source *source;
    subscriber->replies += !says;
    LIST_FOREACH(source, with_name(subscriber, what), by_name) {
        if (strcmp(subscriber_name_of(subscriber, source), what) != 0)
            continue;
        if (list || confirms)
            no_longer_refused(subscriber, source);
        if (list) {
            set_state(subscriber, source,
                      source->state); /* to the tail: no list starves the others */
            wait_wake(source->lock, WAKE_ONE);
        } else if (confirms && source->state == SOURCE_SUBSCRIBING)
            is_heard(subscriber, source);
        else if (says)
            subscriber_grant_another(source->lock, text_of(reply, 2));
    }
    if (list)
        take_next(subscriber);
}

/* watched.ready: reads and handles what has arrived. */
static void hear_all(struct watched *watched)
{
    struct subscriber *subscriber =
        (struct subscriber *)((char *)watched - offsetof(struct subscriber, watched));
    const redisReply *reply;
    const char *demotion = NULL;
    if (subscriber->state != SUBSCRIBER_WATCHED)
        return;
    if (redis_pull(subscriber->redis, 0) != DLOCK_OK) {
        subscriber_broke(subscriber);
        return;
    }
    for (size_t i = 0; (reply = redis_reply(subscriber->redis, 0, i)) != NULL; i++) {
        if (reply->type != REDIS_REPLY_ERROR)
            subscriber_receive(subscriber, reply);
        else if (!redis_is_demotion(reply->str))
            subscriber_refused(subscriber, reply->str);
        else
            demotion = reply->str;
    }
    if (demotion != NULL)
        redis_demoted(subscriber->redis, 0, demotion);
    if (redis_flush(subscriber->redis, 0) != DLOCK_OK)
        subscriber_broke(subscriber);
}

/* ---- The loop's thread, before it sleeps ----------------------------------------------------- */

/* Sends what is due, and has the loop watch a new connection. */
static void subscriber_tend_one(struct loop *loop, struct subscriber *subscriber)
{
    if (subscriber->state != SUBSCRIBER_WATCHED)
        loop_unwatch(loop, &subscriber->watched);
    if (subscriber->state == SUBSCRIBER_UP &&
        !loop_watch(loop, &subscriber->watched, redis_fd(subscriber->redis, 0)))
        subscriber_give_up(subscriber);
    if (subscriber->state == SUBSCRIBER_UP || subscriber->state == SUBSCRIBER_WATCHED)
        send_all(subscriber);
}

void subscriber_tend(struct dlock_client *client)
{
    struct redis_engine *engine = redis_of(client);
    subscriber_tend_one(&client->loop, &engine->channels);
    subscriber_tend_one(&client->loop, &engine->lists);
    subscriber_tend_one(&client->loop, &engine->signals);
}
