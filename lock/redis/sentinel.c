/* SPDX-License-Identifier: Apache-2.0
 *
 * See sentinel.h. The thread works in rounds. In a round each sentinel gets a question, and the
 * round is over once a majority has named the same master, or no longer can. While a sentinel is
 * silent, others may change their minds, so a round that stays undecided gives way to the next.
 * Until a round decides, each sentinel's latest answer counts, but not for long: the sentinel may
 * be slow, or this process may have been frozen.
 */
#include "sentinel.h"

#include "clock.h"
#include "node.h"
#include "thread.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVERY_MS 1000
#define ANEW_MS 100 /* an undecided round may give way to another one after that */
#define NEWS_MOST 8 /* rounds that one EVERY_MS begins at once on the sentinels' word */
#define LATE_MS 50  /* without a majority: how long the others are awaited, to be quoted */
#define HOST_MAX 256
#define PORT_MAX 6
#define SAID_MAX 200
#define REPLICAS_MAX 1000
#define ID_MAX 64 /* of a sentinel; it has 40 digits */

/* A master, as a sentinel names it. */
struct named {
    uint64_t epoch;
    char host[HOST_MAX];
    char port[PORT_MAX];
};

struct sentinel {
    struct server server;
    struct node asks;  /* the connection for questions */
    struct node hears; /* and the one for messages */
    bool subscribed;   /* `hears` has sent SUBSCRIBE */
    int64_t asked_ns;  /* when the question under way was sent; 0: none is */
    bool settled;      /* it has answered, or failed, in this round */
    bool names;        /* its latest answer names a master, */
    struct named named;
    size_t replicas;     /* knows that many of its replicas, those included that are down, */
    int64_t named_ns;    /* and is to a question that was sent then */
    char id[ID_MAX];     /* by which it says that it is itself; "": not known */
    char said[SAID_MAX]; /* without a master: why; "" before the first answer */
};

struct watch {
    struct server *server; /* the master's */
    struct redis_config config;
    char *master;          /* its name */
    size_t replicas_least; /* so many it has by the caller's word */
    pthread_t thread;
    bool started;
    _Atomic bool ending;
    bool wanted;       /* another round is to begin: for a connection, */
    bool news;         /* or because a sentinel has news, which it may have without end */
    int64_t news_ns;   /* CLOCK_MONOTONIC: when the first of */
    int news_count;    /* so many rounds began because of news, within EVERY_MS */
    bool over;         /* the round is */
    int64_t late_ns;   /* CLOCK_MONOTONIC: no majority is possible, and the round is over then */
    int64_t round_ns;  /* CLOCK_MONOTONIC: when it began */
    bool decided;      /* a majority has named a master in it */
    int64_t since_ns;  /* CLOCK_MONOTONIC: answers to earlier questions do not count */
    bool found;        /* a majority has named a master */
    struct named last; /* the latest such */
    struct lookup *lookup; /* of its host name */
    int64_t lookup_ns;     /* CLOCK_MONOTONIC: when that began */
    size_t count;
    struct sentinel sentinels[];
};

static bool is_same(const struct named *one, const struct named *other)
{
    return one->epoch == other->epoch && strcmp(one->host, other->host) == 0 &&
           strcmp(one->port, other->port) == 0;
}

/* How old an answer may be, from its question on. A sentinel that answers in time, is asked again
 * at the next round, and answers in time again, always has one that counts. */
static int64_t age_most_ns(const struct watch *watch)
{
    return (2 * watch->config.command_timeout_ms + EVERY_MS) * NS_PER_MS;
}

/* Whether an answer to a question that was sent then counts now. */
static bool is_recent(const struct watch *watch, int64_t asked_ns)
{
    return asked_ns >= watch->since_ns && mono_ns() - asked_ns <= age_most_ns(watch);
}

/* ---- One sentinel ---------------------------------------------------------------------------- */

/* It has named no master, for this reason. */
static void settle(struct sentinel *sentinel, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void settle(struct sentinel *sentinel, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentinel->said, sizeof sentinel->said, format, arguments);
    va_end(arguments);
    sentinel->names = false;
    sentinel->settled = true;
}

static bool read_number(const char *text, uint64_t *number)
{
    size_t digits = strspn(text, "0123456789");
    *number = strtoull(text, NULL, 10);
    return digits > 0 && digits < 20 && text[digits] == '\0';
}

/* SENTINEL MASTER answers a list of names and values. */
static bool read_field(const redisReply *reply, const char *field, uint64_t *number)
{
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2) {
        const char *name = reply->element[i]->str;
        const char *value = reply->element[i + 1]->str;
        if (name != NULL && value != NULL && strcmp(name, field) == 0)
            return read_number(value, number);
    }
    return false;
}

static bool read_text(const redisReply *reply, char *text, size_t room)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len == 0 || reply->len >= room ||
        strlen(reply->str) != reply->len)
        return false;
    strcpy(text, reply->str);
    return true;
}

static bool read_address(const redisReply *reply, struct named *named)
{
    uint64_t port;
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           read_text(reply->element[0], named->host, sizeof named->host) &&
           read_text(reply->element[1], named->port, sizeof named->port) &&
           read_number(named->port, &port) && port >= 1 && port <= 65535;
}

static void know_none(const struct watch *watch, struct sentinel *sentinel)
{
    settle(sentinel, "it knows no master '%s'; give the name of its 'sentinel monitor'",
           watch->master);
}

static void take_error(const struct watch *watch, struct sentinel *sentinel, const char *error)
{
    if (strncmp(error, "ERR No such master", 18) == 0)
        know_none(watch, sentinel);
    else if (strncmp(error, "ERR unknown command", 19) == 0)
        settle(sentinel, "it is no sentinel; give the URL of a Redis server as redis://");
    else
        settle(sentinel, "%s", error);
}

/* All answers are there. The questions may have arrived apart, with a switch in between. A sentinel
 * before 6.2 does not know its id, and one may not be asked. */
static void take_answers(struct watch *watch, struct sentinel *sentinel)
{
    const redisReply *master = sentinel->asks.replies[0];
    const redisReply *address = sentinel->asks.replies[1];
    const redisReply *again = sentinel->asks.replies[2];
    struct named named;
    uint64_t replicas, epoch;
    const char *error = master->type == REDIS_REPLY_ERROR    ? master->str
                        : address->type == REDIS_REPLY_ERROR ? address->str
                                                             : NULL;
    if (!read_text(sentinel->asks.replies[3], sentinel->id, sizeof sentinel->id))
        sentinel->id[0] = '\0';
    if (error != NULL) {
        take_error(watch, sentinel, error);
    } else if (address->type == REDIS_REPLY_NIL) {
        know_none(watch, sentinel);
    } else if (!read_field(master, "config-epoch", &named.epoch) ||
               !read_field(master, "num-slaves", &replicas) || !read_address(address, &named) ||
               !read_field(again, "config-epoch", &epoch)) {
        settle(sentinel, "its answer was not understood");
    } else if (epoch != named.epoch) {
        settle(sentinel, "it switched while it was asked; it is asked again");
        watch->news = true;
    } else {
        settle(sentinel, "%s", "");
        sentinel->named = named;
        sentinel->replicas = replicas < REPLICAS_MAX ? (size_t)replicas : REPLICAS_MAX;
        sentinel->named_ns = sentinel->asked_ns;
        sentinel->names = true;
    }
}

/* What would be right, if the reason leaves that open. */
static const char *advice_on(const char *reason)
{
    if (strstr(reason, "NOAUTH") != NULL || strstr(reason, "WRONGPASS") != NULL)
        return " (the sentinels' password is sentinel_password, not the URL's)";
    return strcmp(reason, strerror(ECONNREFUSED)) == 0 ? " (no sentinel listens there)" : "";
}

static void ask(const struct watch *watch, struct sentinel *sentinel)
{
    struct node *node = &sentinel->asks;
    static const char *const words[] = {"MASTER", "GET-MASTER-ADDR-BY-NAME", "MASTER", "MYID"};
    node_forget(node);
    sentinel->asked_ns = node->sent_ns = mono_ns();
    for (size_t i = 0; i < sizeof words / sizeof *words && node->state == NODE_UP; i++)
        node_append(node, i < 3 ? 3 : 2, (const char *const[]){"SENTINEL", words[i], watch->master},
                    NULL);
    if (node->state == NODE_UP)
        node_write(node);
}

/* Takes the answer, or asks, as far as that is possible now. */
static void ask_on(struct watch *watch, struct sentinel *sentinel)
{
    struct node *node = &sentinel->asks;
    if (node->state == NODE_UP && sentinel->asked_ns != 0 && node_answered(node)) {
        reach_answered(node->server, true);
        if (is_recent(watch, sentinel->asked_ns))
            take_answers(watch, sentinel);
        sentinel->asked_ns = 0;
        node_forget(node);
    }
    if (node->state == NODE_UP && sentinel->asked_ns != 0 &&
        mono_ns() >= sentinel->asked_ns + node->config->command_timeout_ms * NS_PER_MS)
        node_break(node, "no answer in time");
    if (node->state == NODE_UP && sentinel->asked_ns == 0 && !sentinel->settled)
        ask(watch, sentinel);
    if (node->state == NODE_DOWN) {
        sentinel->asked_ns = 0;
        if (!sentinel->settled)
            settle(sentinel, "%s%s", node->down_reason, advice_on(node->down_reason));
    }
}

/* ---- Its messages ---------------------------------------------------------------------------- */

/* A message, whatever its master; or the answer to SUBSCRIBE, before which one was missed. */
static bool is_news(const redisReply *reply)
{
    const char *kind =
        reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 ? reply->element[0]->str : NULL;
    return kind != NULL && (strcmp(kind, "message") == 0 || strcmp(kind, "subscribe") == 0);
}

/* If a sentinel refuses SUBSCRIBE, it is only asked every second. */
static void hear(struct watch *watch, struct sentinel *sentinel)
{
    struct node *node = &sentinel->hears;
    if (node->state != NODE_UP) {
        sentinel->subscribed = false;
        return;
    }
    if (!sentinel->subscribed) {
        sentinel->subscribed = node->listens = true;
        /* The sentinel that promotes a replica sends +switch-master up to 2 s after the promotion,
         * when the others have theirs. */
        node_append(node, 3,
                    (const char *const[]){"SUBSCRIBE", "+switch-master", "+promoted-slave"}, NULL);
        if (node->state == NODE_UP)
            node_write(node);
    }
    for (size_t i = 0; node->state == NODE_UP && i < node->reply_count; i++)
        watch->news |= is_news(node->replies[i]);
    if (node->state == NODE_UP && node->reply_count > 0)
        node_forget(node);
}

/* ---- What they say together ------------------------------------------------------------------ */

static bool counts(const struct watch *watch, const struct sentinel *sentinel)
{
    return sentinel->names && is_recent(watch, sentinel->named_ns);
}

static bool supports(const struct watch *watch, const struct sentinel *one,
                     const struct sentinel *other)
{
    return counts(watch, other) && is_same(&one->named, &other->named);
}

/* A sentinel before this one in the URL that it is, by another address; NULL: there is none. one:
 * that names the same master as this one; NULL: whatever it names. */
static const struct sentinel *twin_of(const struct watch *watch, const struct sentinel *sentinel,
                                      const struct sentinel *one)
{
    for (const struct sentinel *other = watch->sentinels; other < sentinel; other++)
        if (sentinel->id[0] != '\0' && strcmp(sentinel->id, other->id) == 0 &&
            (one == NULL || supports(watch, one, other)))
            return other;
    return NULL;
}

/* Whether it is the same sentinel as another before it. The same one does not name two masters:
 * then one of the two has a copied id, and would make fewer a majority. */
static bool is_twin(const struct watch *watch, const struct sentinel *sentinel)
{
    const struct sentinel *other = twin_of(watch, sentinel, NULL);
    bool differ = other != NULL && counts(watch, sentinel) && counts(watch, other) &&
                  !is_same(&sentinel->named, &other->named);
    return other != NULL && !differ;
}

/* How many sentinels the URL has. Of several addresses, two at least: one sentinel alone may be cut
 * off, and name a former master. */
static size_t sentinel_count(const struct watch *watch)
{
    size_t count = 0;
    for (size_t i = 0; i < watch->count; i++)
        count += !is_twin(watch, &watch->sentinels[i]);
    return count < 2 && watch->count > 1 ? 2 : count;
}

static size_t majority(const struct watch *watch)
{
    return sentinel_count(watch) / 2 + 1;
}

/* "; " and what each has said, each as long as the room allows. */
static void say_each(const struct watch *watch, char *text, size_t room)
{
    size_t share = room / (watch->count > 0 ? watch->count : 1);
    for (size_t i = 0; i < watch->count; i++, text += strlen(text)) {
        const struct sentinel *sentinel = &watch->sentinels[i];
        const struct named *named = &sentinel->named;
        const char *shown = sentinel->server.url.shown;
        const struct sentinel *twin = twin_of(watch, sentinel, NULL);
        bool ipv6 = strchr(named->host, ':') != NULL;
        int length;
        if (twin != NULL)
            length = snprintf(text, share, "; %s is the same sentinel as %s; give it once", shown,
                              twin->server.url.shown);
        else if (sentinel->names) /* perhaps in the round before */
            length = snprintf(text, share, "; %s names redis://%s%s%s:%s (epoch %llu)", shown,
                              ipv6 ? "[" : "", named->host, ipv6 ? "]" : "", named->port,
                              (unsigned long long)named->epoch);
        else if (sentinel->said[0] != '\0')
            length = snprintf(text, share, "; %s: %s", shown, sentinel->said);
        else
            length = snprintf(text, share, "; %s has not answered yet", shown);
        if ((size_t)length >= share && share > 4)
            strcpy(text + share - 4, "...");
    }
}

static void say_none(struct watch *watch, const char *why, bool over)
{
    char said[REASON_MAX];
    int used = snprintf(said, sizeof said, "no master: %s", why);
    say_each(watch, said + used, sizeof said - (size_t)used);
    reach_unnamed(watch->server, said, over);
}

/* addresses NULL: they are not known yet. The former master is left all the same. */
static void publish(struct watch *watch, const struct named *named,
                    const struct addresses *addresses)
{
    char reason[REASON_MAX];
    bool ipv6 = strchr(named->host, ':') != NULL;
    bool anew = !watch->found || !is_same(named, &watch->last);
    snprintf(reason, sizeof reason,
             "its sentinels name redis://%s%s%s:%s as the master (epoch %llu)", ipv6 ? "[" : "",
             named->host, ipv6 ? "]" : "", named->port, (unsigned long long)named->epoch);
    watch->found = true;
    watch->last = *named;
    if (anew) { /* it looks the former master's name up */
        lookup_leave(watch->lookup);
        watch->lookup = NULL;
    }
    reach_named(watch->server, addresses, named->epoch, anew, reason);
}

/* The resolver may hang for this look-up, and not for the next one. */
static bool is_overdue(const struct watch *watch)
{
    return mono_ns() - watch->lookup_ns >= watch->config.connect_timeout_ms * NS_PER_MS;
}

/* A majority names this master. Its host name is looked up when it is another one than before, and
 * for each connection, as an address in a URL. */
static void agree(struct watch *watch, const struct named *named, size_t replicas)
{
    struct addresses addresses;
    if (watch->found && named->epoch < watch->last.epoch) {
        char why[160];
        snprintf(why, sizeof why,
                 "a majority names one of an older epoch than %llu, the latest (if the sentinels "
                 "were set up anew, restart this process)",
                 (unsigned long long)watch->last.epoch);
        say_none(watch, why, true);
        return;
    }
    atomic_store(&watch->server->replicas, replicas); /* before a connection is made */
    if (lookup_numeric(named->host, named->port, &addresses) == 0) {
        publish(watch, named, &addresses);
        return;
    }
    bool anew = !watch->found || !is_same(named, &watch->last);
    if (!anew && watch->lookup == NULL && !reach_is_awaited(watch->server))
        return;
    publish(watch, named, NULL);
    if (watch->lookup != NULL && is_overdue(watch)) {
        lookup_leave(watch->lookup);
        watch->lookup = NULL;
    }
    if (watch->lookup != NULL || !(anew || reach_is_awaited(watch->server)))
        return;
    watch->lookup = lookup_begin(named->host, named->port);
    watch->lookup_ns = mono_ns();
    if (watch->lookup == NULL)
        say_none(watch, "its host name could not be looked up", true);
}

static void take_lookup(struct watch *watch)
{
    struct addresses addresses;
    if (watch->lookup == NULL || !lookup_over(watch->lookup))
        return;
    int error = lookup_found(watch->lookup, &addresses);
    lookup_leave(watch->lookup);
    watch->lookup = NULL;
    if (error == 0)
        publish(watch, &watch->last, &addresses);
    else
        say_none(watch, "its host name was not found", true);
}

/* How many name the same master as this one, and how many may in this round. One that the URL has
 * by two addresses counts once, by any that answers. */
static size_t count_of(const struct watch *watch, const struct sentinel *one, size_t *most)
{
    size_t count = 0;
    *most = 0;
    for (size_t i = 0; i < watch->count; i++) {
        const struct sentinel *other = &watch->sentinels[i];
        bool same = supports(watch, one, other);
        if (same && twin_of(watch, other, one) != NULL)
            continue;
        count += same;
        *most += same || !other->settled;
    }
    return count;
}

/* A sentinel that was set up late, or reset, knows fewer until it has found the others. */
static size_t most_replicas(const struct watch *watch, const struct sentinel *one)
{
    size_t most = watch->replicas_least;
    for (size_t i = 0; i < watch->count; i++)
        if (supports(watch, one, &watch->sentinels[i]) && watch->sentinels[i].replicas > most)
            most = watch->sentinels[i].replicas;
    return most;
}

static void decide(struct watch *watch)
{
    char why[64];
    size_t open = 0;
    bool possible = false;
    for (size_t i = 0; i < watch->count; i++) {
        const struct sentinel *one = &watch->sentinels[i];
        size_t most = 0;
        size_t count = counts(watch, one) ? count_of(watch, one, &most) : 0;
        open += !one->settled;
        possible |= most >= majority(watch);
        if (count >= majority(watch)) {
            watch->over = watch->decided = true;
            agree(watch, &one->named, most_replicas(watch, one));
            return;
        }
    }
    if (!possible && open < majority(watch))
        watch->late_ns = min_ns(watch->late_ns, mono_deadline_ns(LATE_MS));
    watch->over = open == 0 || mono_ns() >= watch->late_ns;
    snprintf(why, sizeof why, "%zu of %zu sentinels must name the same one", majority(watch),
             sentinel_count(watch));
    say_none(watch, why, watch->over);
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* A round begins because of news. */
static void count_news(struct watch *watch)
{
    if (watch->round_ns >= watch->news_ns + EVERY_MS * NS_PER_MS) {
        watch->news_ns = watch->round_ns;
        watch->news_count = 0;
    }
    watch->news_count++;
}

static void begin_round(struct watch *watch)
{
    watch->round_ns = mono_ns();
    if (watch->news && !watch->wanted)
        count_news(watch);
    watch->wanted = watch->news = watch->over = false;
    if (watch->decided)
        watch->since_ns = watch->round_ns;
    watch->decided = false;
    watch->late_ns = INT64_MAX;
    reach_begin_round(watch->server);
    for (size_t i = 0; i < watch->count; i++) {
        struct sentinel *sentinel = &watch->sentinels[i];
        struct node *asks = &sentinel->asks;
        sentinel->settled = false;
        if (asks->state == NODE_UP && sentinel->asked_ns == 0 && node_stale(asks))
            node_close(asks, DLOCK_UNREACHABLE, "it closed the connection");
        if (asks->state == NODE_DOWN)
            node_connect(asks);
        if (sentinel->hears.state == NODE_DOWN)
            node_connect(&sentinel->hears);
    }
}

static int64_t next_round_ns(const struct watch *watch)
{
    bool soon = watch->wanted || watch->news;
    bool now = watch->over && (watch->wanted || watch->news_count < NEWS_MOST);
    int64_t pause_ms = !soon ? EVERY_MS : now ? 0 : ANEW_MS;
    return watch->round_ns + pause_ms * NS_PER_MS;
}

static int64_t min_step_ns(const struct sentinel *sentinel, const struct node *node)
{
    if (node_connecting(node))
        return node->next_ns;
    if (node == &sentinel->asks && sentinel->asked_ns != 0)
        return sentinel->asked_ns + node->config->command_timeout_ms * NS_PER_MS;
    return INT64_MAX;
}

#define POLLS_MAX (2 * SENTINELS_MAX + 2)

/* Waits for something to happen, and steps the connections. */
static void watch_poll(struct watch *watch)
{
    struct pollfd polls[POLLS_MAX];
    struct node *nodes[POLLS_MAX];
    nfds_t count = 0;
    int64_t until_ns = next_round_ns(watch);
    if (!watch->over)
        until_ns = min_ns(until_ns, watch->late_ns);
    for (size_t i = 0; i < watch->count; i++) {
        struct sentinel *sentinel = &watch->sentinels[i];
        struct node *both[] = {&sentinel->asks, &sentinel->hears};
        for (size_t j = 0; j < 2; j++) {
            if (both[j]->state == NODE_DOWN)
                continue;
            nodes[count] = both[j];
            polls[count++] = node_poll(both[j]);
            until_ns = min_ns(until_ns, min_step_ns(sentinel, both[j]));
        }
    }
    nfds_t node_count = count;
    polls[count++] = (struct pollfd){.fd = watch->server->ask_fd, .events = POLLIN};
    if (watch->lookup != NULL)
        polls[count++] = (struct pollfd){.fd = lookup_fd(watch->lookup), .events = POLLIN};
    struct timespec left = timespec_of(max_ns(until_ns - mono_ns(), 0));
    if (ppoll(polls, count, &left, NULL) < 0)
        return;
    for (nfds_t i = 0; i < node_count; i++)
        if (polls[i].revents != 0 || node_connecting(nodes[i]))
            node_step(nodes[i], polls[i].revents);
    if (polls[node_count].revents != 0) {
        uint64_t asked;
        watch->wanted = read(watch->server->ask_fd, &asked, sizeof asked) > 0 || watch->wanted;
    }
}

/* Nobody has asked yet, so no sentinel is asked either. */
static void await_first(struct watch *watch)
{
    struct pollfd asked = {.fd = watch->server->ask_fd, .events = POLLIN};
    while (poll(&asked, 1, -1) < 0)
        ;
}

static void *watch_run(void *arg)
{
    struct watch *watch = arg;
    await_first(watch);
    watch->over = watch->wanted = true;
    while (!atomic_load(&watch->ending)) {
        if (mono_ns() >= next_round_ns(watch))
            begin_round(watch);
        for (size_t i = 0; i < watch->count; i++) {
            ask_on(watch, &watch->sentinels[i]);
            hear(watch, &watch->sentinels[i]);
        }
        if (!watch->over)
            decide(watch);
        take_lookup(watch);
        watch_poll(watch);
    }
    return NULL;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static char *copy_of(const char *text, bool *whole)
{
    char *copy = text != NULL ? strdup(text) : NULL;
    *whole &= text == NULL || copy != NULL;
    return copy;
}

static bool sentinel_prepare(struct watch *watch, const struct endpoint *at, const char *user,
                             const char *password)
{
    struct sentinel *sentinel = &watch->sentinels[watch->count];
    struct url *url = &sentinel->server.url;
    bool ipv6 = strchr(at->host, ':') != NULL;
    url->whole = true;
    url->host = copy_of(at->host, &url->whole);
    url->port = copy_of(at->port, &url->whole);
    url->user = copy_of(user, &url->whole);
    url->password = copy_of(password, &url->whole);
    if (asprintf(&url->shown, ipv6 ? "sentinel://[%s]:%s" : "sentinel://%s:%s", at->host,
                 at->port) < 0)
        url->shown = NULL;
    if (!url->whole || url->shown == NULL) {
        url_free(url);
        return false;
    }
    reach_init(&sentinel->server, SERVER_SENTINEL, &watch->config.outages);
    node_init(&sentinel->asks, &watch->config, &sentinel->server);
    node_init(&sentinel->hears, &watch->config, &sentinel->server);
    watch->count++;
    return true;
}

struct watch *watch_start(struct server *server, const struct redis_config *config,
                          const char *user, const char *password)
{
    const struct url *url = &server->url;
    struct watch *watch =
        calloc(1, sizeof *watch + url->sentinel_count * sizeof watch->sentinels[0]);
    if (watch == NULL)
        return NULL;
    watch->server = server;
    watch->replicas_least = server_replicas(server);
    watch->config.connect_timeout_ms = config->connect_timeout_ms;
    watch->config.command_timeout_ms = config->command_timeout_ms;
    watch->master = strdup(url->master);
    bool whole = watch->master != NULL;
    for (size_t i = 0; i < url->sentinel_count; i++)
        whole = whole && sentinel_prepare(watch, &url->sentinels[i], user, password);
    watch->started = whole && thread_begin(&watch->thread, watch_run, watch);
    if (watch->started)
        return watch;
    watch_free(watch);
    return NULL;
}

void watch_stop(struct watch *watch)
{
    if (!watch->started)
        return;
    atomic_store(&watch->ending, true);
    reach_ask(watch->server);
    pthread_join(watch->thread, NULL);
    watch->started = false;
    reach_unwatch(watch->server);
}

void watch_free(struct watch *watch)
{
    if (watch == NULL)
        return;
    for (size_t i = 0; i < watch->count; i++) {
        struct sentinel *sentinel = &watch->sentinels[i];
        node_free(&sentinel->asks);
        node_free(&sentinel->hears);
        url_free(&sentinel->server.url);
        reach_free(&sentinel->server);
    }
    lookup_leave(watch->lookup);
    free(watch->master);
    free(watch);
}
