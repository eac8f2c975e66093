/* SPDX-License-Identifier: Apache-2.0
 *
 * See subscriber.h. The first waiter that needs the connection makes it, since connecting may
 * block. After that it belongs to the loop, until it breaks. Then all its waiters try at once, and
 * the first that must wait connects it anew. If the server refuses to listen, waiters poll, and the
 * client asks again seldom.
 */
#include "redis_engine.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIVED_MS 1000 /* what breaks sooner is connected again after a pause */
#define BROKE_MS 50
#define REFUSED_MS 1000
#define DOUBLINGS 6
#define UNTOLD (1U << WAIT_POLL) /* beside the subscribers' own: a bit of what the server refuses */

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
    return kind == WAIT_LIST ? &engine->lists : &engine->channels;
}

/* ---- Its locks ------------------------------------------------------------------------------- */

/* Where the locks with that name are, and few others. By FNV-1a. */
static struct namesakes *with_name(struct subscriber *subscriber, const char *name)
{
    uint32_t hash = 2166136261U;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    return &subscriber->by_name[hash >> (32 - SUBSCRIBER_NAME_BITS)];
}

/* What a reply names it by. */
static const char *subscriber_name_of(const struct subscriber *subscriber,
                                      const struct source *source)
{
    return subscriber->kind == WAIT_LIST ? source->lock->name : source->name;
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
    if (source->refusals > 0)
        subscriber->refused--;
    source->refusals = 0;
}

/* It broke soon after it was up, or did not come up: it is connected after a pause, longer each
 * time. */
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
    subscriber->up_ns = mono_ns();
    if (!up && status != DLOCK_CANCELLED && subscriber->up_ns < limit_ns)
        connect_later(subscriber);
}

/* The server may refuse PUBLISH to this client's user. The holder is the same user, most likely, so
 * no message will come. */
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

/* What the lock listens to is known from its first waiter on. */
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
    redis_append(subscriber->redis, 0, 2, (const char *const[]){"UNSUBSCRIBE", source->name}, NULL);
    loop_wake(&lock->client->loop);
}

/* ---- The loop's thread ----------------------------------------------------------------------- */

/* It is heard from here on. What was tried before must be tried again: a release in between was
 * not heard. */
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
    wait_wake(source->lock, WAKE_ALL); /* they believed that they would be woken */
    snprintf(reason, sizeof reason, "%s is refused, so that waiters poll: %s",
             subscriber->kind == WAIT_LIST ? "BLPOP" : "SUBSCRIBE", error);
    redis_wakeups_refused(subscriber->redis, 0, 1U << subscriber->kind, reason);
}

/* Whom an error is for: all of a wake list; of channels the one that was asked for first, since
 * replies come in order. */
static void subscriber_refused(struct subscriber *subscriber, const char *error)
{
    struct source *source;
    subscriber->taking = false;
    if (subscriber->kind == WAIT_LIST)
        while ((source = first_in(subscriber, SOURCE_SUBSCRIBED)) != NULL)
            subscriber_refuse(subscriber, source, error);
    else if ((source = first_in(subscriber, SOURCE_SUBSCRIBING)) != NULL)
        subscriber_refuse(subscriber, source, error);
}

static void subscriber_granted(struct subscriber *subscriber, struct source *source)
{
    no_longer_refused(subscriber, source);
    if (subscriber->refused == 0) /* else one is asked for again, perhaps, and not answered yet */
        redis_wakeups_accepted(subscriber->redis, 0, 1U << subscriber->kind);
}

/* ---- Sending and hearing --------------------------------------------------------------------- */

/* From the one list of the client, as long as a lock listens. */
static void take_next(struct subscriber *subscriber)
{
    const struct source *source = first_in(subscriber, SOURCE_SUBSCRIBED);
    subscriber->taking = source != NULL;
    if (source != NULL)
        redis_append(subscriber->redis, 0, 3, (const char *const[]){"BLPOP", source->name, "0"},
                     NULL);
}

static void subscriber_ask(struct subscriber *subscriber, struct source *source)
{
    if (subscriber->kind == WAIT_LIST) {
        is_heard(subscriber, source); /* what is on the list stays there until it is taken */
        if (!subscriber->taking)
            take_next(subscriber);
        return;
    }
    set_state(subscriber, source, SOURCE_SUBSCRIBING);
    redis_append(subscriber->redis, 0, 2, (const char *const[]){"SUBSCRIBE", source->name}, NULL);
}

static void send_all(struct subscriber *subscriber)
{
    struct source *source;
    subscriber->state = SUBSCRIBER_WATCHED;
    while ((source = first_in(subscriber, SOURCE_WANTED)) != NULL)
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

/* "0": one that wants it alone. "r": all that want it shared; "r300": besides, one that wants it
 * alone looks in 300 ms. */
static void subscriber_grant_another(struct dlock *lock, const char *payload)
{
    bool readers = payload[0] == 'r' && payload[1 + strspn(payload + 1, "0123456789")] == '\0';
    wait_wake(lock, readers ? WAKE_READERS : strcmp(payload, "0") == 0 ? WAKE_ONE : WAKE_ALL);
    if (readers && payload[1] != '\0')
        wait_look_in(lock, strtoll(payload + 1, NULL, 10));
}

/* ["subscribe", channel, count], ["message", channel, payload]; of a list [list, element], or nil
 * where an operator ended the wait (CLIENT UNBLOCK). */
static void subscriber_receive(struct subscriber *subscriber, const redisReply *reply)
{
    bool list = subscriber->kind == WAIT_LIST;
    const char *what = text_of(reply, 1);
    bool confirms = strcmp(text_of(reply, 0), "subscribe") == 0;
    bool says = strcmp(text_of(reply, 0), "message") == 0;
    struct source *source;
    LIST_FOREACH(source, with_name(subscriber, what), by_name) {
        if (strcmp(subscriber_name_of(subscriber, source), what) != 0)
            continue;
        if (list || confirms)
            subscriber_granted(subscriber, source);
        if (list)
            wait_wake(source->lock, WAKE_ONE);
        else if (confirms && source->state == SOURCE_SUBSCRIBING)
            is_heard(subscriber, source);
        else if (says)
            subscriber_grant_another(source->lock, text_of(reply, 2));
    }
    if (list)
        take_next(subscriber);
}

/* watched.ready */
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

/* Sends what it has to send, and has it watched when it is new. */
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
}
