/* SPDX-License-Identifier: Apache-2.0
 *
 * See ear.h. Whoever needs an ear connects it, since connecting may block; from then on it is the
 * loop's, until it breaks. Then all who listen try again at once, and the first that must wait
 * connects it anew. Where the server refuses to tell, waiters poll, and it is asked again seldom.
 */
#include "ear.h"

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIVED_MS 1000 /* what breaks sooner is connected again after a pause */
#define BROKE_MS 50
#define REFUSED_MS 1000
#define DOUBLINGS 6
#define UNTOLD (1U << WAIT_POLL) /* beside the ears' own: a bit of what the server refuses */

static int64_t doubled_ns(int64_t ms, unsigned times)
{
    return (ms << (times < DOUBLINGS ? times : DOUBLINGS)) * NS_PER_MS;
}

void ear_init(struct ear *ear, enum wait_kind kind)
{
    *ear = (struct ear){.kind = kind, .watched_fd = -1};
    for (size_t i = 0; i < SOURCE_STATES; i++)
        TAILQ_INIT(&ear->locks[i]);
}

void ear_free(struct ear *ear)
{
    redis_free(ear->redis);
}

static struct ear *ear_for(struct loop *loop, enum wait_kind kind)
{
    return kind == WAIT_LIST ? &loop->lists : &loop->channels;
}

/* ---- Its locks ------------------------------------------------------------------------------- */

/* Where the locks with that name are, and few others. By FNV-1a. */
static struct namesakes *with_name(struct ear *ear, const char *name)
{
    uint32_t hash = 2166136261U;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    return &ear->by_name[hash >> (32 - EAR_NAME_BITS)];
}

/* What a reply names it by. */
static const char *name_of(const struct ear *ear, const struct dlock *lock)
{
    return ear->kind == WAIT_LIST ? lock->name : lock->source.name;
}

static bool listens_to(struct ear *ear, const char *channel)
{
    const struct dlock *lock;
    LIST_FOREACH(lock, with_name(ear, channel), source.by_name)
        if (strcmp(lock->source.name, channel) == 0)
            return true;
    return false;
}

static struct dlock *first_in(struct ear *ear, enum source_state state)
{
    return TAILQ_FIRST(&ear->locks[state]);
}

static void set_state(struct ear *ear, struct dlock *lock, enum source_state state)
{
    TAILQ_REMOVE(&ear->locks[lock->source.state], lock, source.in_state);
    TAILQ_INSERT_TAIL(&ear->locks[state], lock, source.in_state);
    lock->source.state = state;
}

static void no_longer_refused(struct ear *ear, struct source *source)
{
    if (source->refusals > 0)
        ear->refused--;
    source->refusals = 0;
}

/* It broke soon after it was up, or did not come up: it is connected after a pause, longer each
 * time. */
static void connect_later(struct ear *ear)
{
    ear->again_ns = mono_ns() + doubled_ns(BROKE_MS, ++ear->breaks);
}

/* ---- Whoever wants to hear ------------------------------------------------------------------- */

static void connect_ear(struct loop *loop, struct ear *ear, int64_t limit_ns, int cancel_fd)
{
    ear->state = EAR_CONNECTING;
    pthread_mutex_unlock(&loop->mutex);
    loop_may_block(loop);
    if (ear->redis == NULL)
        ear->redis = redis_new(&loop->client->config);
    dlock_status status =
        ear->redis == NULL ? DLOCK_NO_MEMORY : redis_ready(ear->redis, limit_ns, cancel_fd);
    bool up = status == DLOCK_OK && redis_fd(ear->redis, 0) >= 0;
    pthread_mutex_lock(&loop->mutex);
    ear->state = up ? EAR_UP : EAR_DOWN;
    ear->up_ns = mono_ns();
    if (!up && status != DLOCK_CANCELLED && ear->up_ns < limit_ns)
        connect_later(ear);
}

/* The server may refuse PUBLISH to this client's user. The holder is the same user, most likely, so
 * no message will come. */
static void note_untold(struct loop *loop, struct dlock *lock, bool untold)
{
    struct server *server = &loop->client->config.servers[0];
    struct ear *ear = &loop->channels;
    if (lock->source.untold == untold)
        return;
    lock->source.untold = untold;
    ear->untold_count = untold ? ear->untold_count + 1 : ear->untold_count - 1;
    if (untold)
        reach_deaf(server, UNTOLD, "PUBLISH is refused, so that waiters poll");
    else if (ear->untold_count == 0)
        reach_heard(server, UNTOLD);
}

bool ear_listen(struct loop *loop, struct dlock *lock, const struct busy *busy, int64_t limit_ns,
                int cancel_fd)
{
    struct source *source = &lock->source;
    struct ear *ear = ear_for(loop, busy->kind);
    if (source->name[0] == '\0') {
        source->kind = busy->kind;
        strcpy(source->name, busy->source);
        LIST_INSERT_HEAD(with_name(ear, name_of(ear, lock)), lock, source.by_name);
        TAILQ_INSERT_TAIL(&ear->locks[source->state], lock, source.in_state);
    }
    note_untold(loop, lock, busy->untold);
    if (source->state == SOURCE_HEARD)
        return !busy->untold;
    if (source->state == SOURCE_REFUSED && mono_ns() < source->again_ns)
        return false;
    if (loop_start(loop) != DLOCK_OK)
        return false;
    if (source->state == SOURCE_SILENT || source->state == SOURCE_REFUSED)
        set_state(ear, lock, SOURCE_WANTED);
    if (ear->state == EAR_DOWN && mono_ns() >= ear->again_ns)
        connect_ear(loop, ear, limit_ns, cancel_fd);
    if (ear->state == EAR_UP || ear->state == EAR_WATCHED)
        loop_wake(loop);
    return false;
}

void ear_forget(struct loop *loop, struct dlock *lock)
{
    struct source *source = &lock->source;
    if (source->name[0] == '\0')
        return;
    struct ear *ear = ear_for(loop, source->kind);
    note_untold(loop, lock, false);
    LIST_REMOVE(lock, source.by_name);
    TAILQ_REMOVE(&ear->locks[source->state], lock, source.in_state);
    no_longer_refused(ear, source);
    bool told = source->state == SOURCE_ASKED || source->state == SOURCE_HEARD;
    if (source->kind != WAIT_CHANNEL || !told || listens_to(ear, source->name))
        return;
    redis_append(ear->redis, 0, 2, (const char *const[]){"UNSUBSCRIBE", source->name}, NULL);
    loop_wake(loop);
}

/* ---- The loop's thread ----------------------------------------------------------------------- */

/* It is heard from here on. What was tried before must be tried again: a release in between was
 * not heard. */
static void is_heard(struct ear *ear, struct dlock *lock)
{
    set_state(ear, lock, SOURCE_HEARD);
    wait_wake(lock, WAKE_ALL);
}

static void are_silent(struct ear *ear, enum source_state before)
{
    struct dlock *lock;
    while ((lock = first_in(ear, before)) != NULL) {
        set_state(ear, lock, SOURCE_SILENT);
        wait_wake(lock, WAKE_ALL);
    }
}

static void broke(struct ear *ear)
{
    ear->state = EAR_DOWN;
    ear->taking = false;
    if (mono_ns() - ear->up_ns < LIVED_MS * (int64_t)NS_PER_MS)
        connect_later(ear);
    else
        ear->breaks = 0;
    are_silent(ear, SOURCE_WANTED);
    are_silent(ear, SOURCE_ASKED);
    are_silent(ear, SOURCE_HEARD);
}

void ear_break(struct ear *ear)
{
    redis_disconnect(ear->redis);
    broke(ear);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void refuse(struct ear *ear, struct dlock *lock, const char *error)
{
    struct source *source = &lock->source;
    char reason[REASON_MAX];
    set_state(ear, lock, SOURCE_REFUSED);
    if (source->refusals == 0)
        ear->refused++;
    source->again_ns = mono_ns() + doubled_ns(REFUSED_MS, source->refusals++);
    wait_wake(lock, WAKE_ALL); /* they believed that they would be woken */
    snprintf(reason, sizeof reason, "%s is refused, so that waiters poll: %s",
             ear->kind == WAIT_LIST ? "BLPOP" : "SUBSCRIBE", error);
    redis_deaf(ear->redis, 0, 1U << ear->kind, reason);
}

/* Whom an error is for: all of a wake list; of channels the one that was asked for first, since
 * replies come in order. */
static void refused(struct ear *ear, const char *error)
{
    struct dlock *lock;
    ear->taking = false;
    if (ear->kind == WAIT_LIST)
        while ((lock = first_in(ear, SOURCE_HEARD)) != NULL)
            refuse(ear, lock, error);
    else if ((lock = first_in(ear, SOURCE_ASKED)) != NULL)
        refuse(ear, lock, error);
}

static void granted(struct ear *ear, struct dlock *lock)
{
    no_longer_refused(ear, &lock->source);
    if (ear->refused == 0) /* else one is asked for again, perhaps, and not answered yet */
        redis_heard(ear->redis, 0, 1U << ear->kind);
}

/* ---- Sending and hearing --------------------------------------------------------------------- */

/* From the one list of the client, as long as a lock listens. */
static void take_next(struct ear *ear)
{
    const struct dlock *lock = first_in(ear, SOURCE_HEARD);
    ear->taking = lock != NULL;
    if (lock != NULL)
        redis_append(ear->redis, 0, 3, (const char *const[]){"BLPOP", lock->source.name, "0"},
                     NULL);
}

static void ask(struct ear *ear, struct dlock *lock)
{
    if (ear->kind == WAIT_LIST) {
        is_heard(ear, lock); /* what is on the list stays there until it is taken */
        if (!ear->taking)
            take_next(ear);
        return;
    }
    set_state(ear, lock, SOURCE_ASKED);
    redis_append(ear->redis, 0, 2, (const char *const[]){"SUBSCRIBE", lock->source.name}, NULL);
}

void ear_send(struct ear *ear)
{
    struct dlock *lock;
    ear->state = EAR_WATCHED;
    while ((lock = first_in(ear, SOURCE_WANTED)) != NULL)
        ask(ear, lock);
    if (redis_flush(ear->redis, 0) != DLOCK_OK)
        broke(ear);
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
static void pass_on(struct dlock *lock, const char *payload)
{
    bool readers =
        payload[0] == 'r' && payload[1 + strspn(payload + 1, "0123456789")] == '\0';
    wait_wake(lock, readers                       ? WAKE_READERS
                    : strcmp(payload, "0") == 0 ? WAKE_ONE
                                                : WAKE_ALL);
    if (readers && payload[1] != '\0')
        wait_look_in(lock, strtoll(payload + 1, NULL, 10));
}

/* ["subscribe", channel, count], ["message", channel, payload]; of a list [list, element], or nil
 * where an operator ended the wait (CLIENT UNBLOCK). */
static void hear(struct ear *ear, const redisReply *reply)
{
    bool list = ear->kind == WAIT_LIST;
    const char *what = text_of(reply, 1);
    bool confirms = strcmp(text_of(reply, 0), "subscribe") == 0;
    bool says = strcmp(text_of(reply, 0), "message") == 0;
    struct dlock *lock;
    LIST_FOREACH(lock, with_name(ear, what), source.by_name) {
        if (strcmp(name_of(ear, lock), what) != 0)
            continue;
        if (list || confirms)
            granted(ear, lock);
        if (list)
            wait_wake(lock, WAKE_ONE);
        else if (confirms && lock->source.state == SOURCE_ASKED)
            is_heard(ear, lock);
        else if (says)
            pass_on(lock, text_of(reply, 2));
    }
    if (list)
        take_next(ear);
}

void ear_hear(struct ear *ear)
{
    const redisReply *reply;
    const char *demotion = NULL;
    if (redis_pull(ear->redis, 0) != DLOCK_OK) {
        broke(ear);
        return;
    }
    for (size_t i = 0; (reply = redis_reply(ear->redis, 0, i)) != NULL; i++) {
        if (reply->type != REDIS_REPLY_ERROR)
            hear(ear, reply);
        else if (!redis_is_demotion(reply->str))
            refused(ear, reply->str);
        else
            demotion = reply->str;
    }
    if (demotion != NULL)
        redis_demoted(ear->redis, 0, demotion);
    if (redis_flush(ear->redis, 0) != DLOCK_OK)
        broke(ear);
}
