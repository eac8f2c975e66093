/* SPDX-License-Identifier: Apache-2.0
 *
 * The master is the one that a majority of the sentinels names: which answers decide, what a
 * fail-over does to connections and requests, and what is said when there is no master.
 */
#include "background.h"
#include "calls.h"
#include "child.h"
#include "far.h"
#include "must.h"
#include "proxy.h"
#include "record.h"
#include "redis.h"
#include "sentinels.h"
#include "started.h"
#include "waiter.h"

#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOCK "lock:{sentinel}"
#define BRIEF ((struct dlock_options){.connect_timeout_ms = 500, .command_timeout_ms = 500})

/* ---- A name ---------------------------------------------------------------------------------- */

/* To sentinels this is 127.0.0.1. To the library it is a name, whose look-up may hang. */
#define NAME "127.1"
static _Atomic bool name_hangs;
static _Atomic int looks;                  /* how many look-ups of it began */
static _Atomic int answers_from = INT_MAX; /* while it hangs: those from this one on do not */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    if (host != NULL && strcmp(host, NAME) == 0) {
        if ((hints->ai_flags & AI_NUMERICHOST) != 0)
            return EAI_NONAME;
        int look = looks++;
        eventually(!name_hangs || look >= answers_from);
    }
    return __real_getaddrinfo(host, port, hints, found);
}

/* ---------------------------------------------------------------------------------------------- */

/* All tests share these servers, and leave them ready. */
static struct sentinels all;
static int master;

static int start_all(void **state)
{
    (void)state;
    sentinels_start(&all);
    return 0;
}

static int stop_all(void **state)
{
    (void)state;
    sentinels_free(&all);
    return 0;
}

static struct server *master_node(void)
{
    return all.nodes[master];
}

static void works(dlock_client *client)
{
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold = acquired(lock);
    assert_int_equal(server_integer(master_node(), "EXISTS " LOCK), 1);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
}

/* The former master takes writes until the sentinels make it a replica. */
static bool has_moved(dlock_client *client)
{
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold = acquired(lock);
    bool moved = server_integer(master_node(), "EXISTS " LOCK) == 1;
    dlock_release(hold, NULL);
    dlock_close(lock);
    return moved;
}

/* One attempt of a new client; what it says is kept in `said`. */
static char said[512];
static dlock_status tried_at(const char *url, struct dlock_options options)
{
    dlock_client *client = client_of(url, options);
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold;
    dlock_status status = tried(lock, &hold);
    snprintf(said, sizeof said, "%s", status == DLOCK_OK ? "" : dlock_error());
    if (status == DLOCK_OK)
        assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
    return status;
}

static void is_said_of(int watcher, const char *what)
{
    char part[128];
    snprintf(part, sizeof part, "sentinel://127.0.0.1:%d%s", server_port(all.watchers[watcher]),
             what);
    assert_says(said, part);
}

/* ---- Which server ---------------------------------------------------------------------------- */

static void the_master_is_found(void **state)
{
    (void)state;
    dlock_client *client = client_of(all.url, (struct dlock_options){0});
    works(client);
    dlock_client_close(client);
    assert_status(tried_at(server_url(all.watchers[0]), (struct dlock_options){0}), OK);
}

static void nothing_is_asked_before_it_is_needed(void **state)
{
    (void)state;
    struct monitor *monitor = monitor_start(master_node());
    dlock_client *client = client_of(all.url, (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, LOCK);
    assert_int_equal(stats_of(client).connects, 0);
    dlock_close(lock);
    dlock_client_close(client);
    monitor_free(monitor);
}

static void a_database(void **state)
{
    (void)state;
    char url[160];
    sentinels_url(&all, 0, SENTINELS, "", "/shop/3", url, sizeof url);
    dlock_client *client = client_of(url, (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold = acquired(lock);
    assert_int_equal(server_integer(master_node(), "EXISTS " LOCK), 0);
    server_text(master_node(), "SELECT 3");
    assert_int_equal(server_integer(master_node(), "EXISTS " LOCK), 1);
    server_text(master_node(), "SELECT 0");
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

static void the_login_in_the_url_is_redis(void **state)
{
    (void)state;
    char url[160];
    server_text(master_node(), "ACL SETUSER alice on >geheim ~* &* +@all");
    sentinels_url(&all, 0, SENTINELS, "alice:geheim@", "/shop", url, sizeof url);
    assert_status(tried_at(url, (struct dlock_options){0}), OK);
    sentinels_url(&all, 0, SENTINELS, "alice:geheim1@", "/shop", url, sizeof url);
    assert_status(tried_at(url, (struct dlock_options){0}), REFUSED);
    assert_says(said, "the login was refused: WRONGPASS");
    assert_says(said, "(by the master that the sentinels name; its login is the URL's)");
    assert_null(strstr(said, "geheim"));
    server_text(master_node(), "ACL SETUSER alice -role");
    sentinels_url(&all, 0, SENTINELS, "alice:geheim@", "/shop", url, sizeof url);
    assert_status(tried_at(url, (struct dlock_options){0}), REFUSED);
    assert_says(said, "the login was refused: NOPERM");
    server_integer(master_node(), "ACL DELUSER alice");
}

/* Connections that a sentinel has already are not affected. */
static void the_sentinels_have_a_login_of_their_own(void **state)
{
    (void)state;
    struct dlock_options right = {.sentinel_user = "default", .sentinel_password = "geheim"};
    for (int i = 0; i < SENTINELS; i++)
        server_text(all.watchers[i], "ACL SETUSER default >geheim");
    assert_status(tried_at(all.url, (struct dlock_options){0}), UNREACHABLE);
    is_said_of(1, ": the login was refused: NOAUTH");
    assert_status(tried_at(server_url(all.watchers[0]), (struct dlock_options){0}), UNREACHABLE);
    assert_says(said, "(the sentinels' password is sentinel_password, not the URL's)");
    assert_status(tried_at(all.url, (struct dlock_options){.sentinel_password = "geheim1"}),
                  UNREACHABLE);
    is_said_of(2, ": the login was refused: WRONGPASS");
    assert_null(strstr(said, "geheim"));
    assert_status(tried_at(all.url, right), OK);
    right.sentinel_user = NULL;
    assert_status(tried_at(all.url, right), OK);
    for (int i = 0; i < SENTINELS; i++)
        server_text(all.watchers[i], "ACL SETUSER default nopass");
    dlock_client *client;
    right = (struct dlock_options){.sentinel_user = "default"};
    assert_status(client_open(all.url, right, &client), INVALID);
    assert_says(dlock_error(), "sentinel_user is given without sentinel_password");
}

static void a_sentinel_is_no_redis(void **state)
{
    (void)state;
    char url[64];
    for (int with_db = 0; with_db < 2; with_db++) {
        snprintf(url, sizeof url, "redis://127.0.0.1:%d%s", server_port(all.watchers[0]),
                 with_db ? "/2" : "");
        assert_status(tried_at(url, (struct dlock_options){0}), REFUSED);
        assert_says(said, ": it is a sentinel and keeps no data; give the URL sentinel://host:port/"
                          "master, with the name of its 'sentinel monitor'");
    }
}

static void nobody_knows_the_name(void **state)
{
    (void)state;
    char url[160];
    sentinels_url(&all, 0, SENTINELS, "", "/bank", url, sizeof url);
    assert_status(tried_at(url, (struct dlock_options){0}), UNREACHABLE);
    assert_says(said, "/bank: no master: 2 of 3 sentinels must name the same one; ");
    for (int i = 0; i < SENTINELS; i++)
        is_said_of(i, ": it knows no master 'bank'");
}

/* A Redis, a port without a process, and one that accepts and never answers. */
static void what_is_no_sentinel_names_none(void **state)
{
    (void)state;
    char url[160];
    int mute = server_port(all.watchers[2]);
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/shop",
             server_port(master_node()), NOBODYS_PORT, mute);
    server_pause(all.watchers[2]);
    assert_status(tried_at(url, BRIEF), UNREACHABLE);
    server_resume(all.watchers[2]);
    assert_says(said, ": it is no sentinel; give the URL of a Redis server as redis://; ");
    assert_says(said, ":1: Connection refused (no sentinel listens there); ");
    assert_status(tried_at(url, (struct dlock_options){0}), UNREACHABLE);
    assert_says(said, "no master: 2 of 3 sentinels must name the same one; ");
}

static void a_minority_may_fail(void **state)
{
    (void)state;
    char url[160];
    server_pause(all.watchers[1]);
    assert_status(tried_at(all.url, BRIEF), OK);
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/shop",
             server_port(all.watchers[0]), NOBODYS_PORT, server_port(all.watchers[2]));
    assert_status(tried_at(url, (struct dlock_options){0}), OK);
    server_resume(all.watchers[1]);
}

/* Two spellings of one address: no majority of 2, but with another sentinel one of 3. */
static void one_sentinel_has_one_vote(void **state)
{
    (void)state;
    char url[160];
    int twice = server_port(all.watchers[0]), other = server_port(all.watchers[1]);
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d," NAME ":%d/shop", twice, twice);
    assert_status(tried_at(url, (struct dlock_options){0}), UNREACHABLE);
    assert_says(said, "no master: 2 of 2 sentinels must name the same one; ");
    is_said_of(0, " names redis://127.0.0.1:");
    snprintf(url, sizeof url,
             "sentinel://" NAME ":%d is the same sentinel as sentinel://127.0.0.1:%d; give it once",
             twice, twice);
    assert_says(said, url);
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d," NAME ":%d,127.0.0.1:%d/shop", twice, twice,
             other);
    assert_status(tried_at(url, (struct dlock_options){0}), OK);
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d," NAME ":%d,127.0.0.1:%d/shop", NOBODYS_PORT,
             twice, other);
    assert_status(tried_at(url, (struct dlock_options){0}), OK);
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d," NAME ":%d,127.0.1:%d/shop", NOBODYS_PORT,
             twice, twice);
    assert_status(tried_at(url, (struct dlock_options){0}), UNREACHABLE);
    /* Of four addresses, three sentinels: two are a majority. */
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d," NAME ":%d,127.0.0.1:%d,127.0.0.1:%d/shop",
             twice, twice, other, NOBODYS_PORT);
    assert_status(tried_at(url, (struct dlock_options){0}), OK);
    /* Not known without its id. */
    server_text(all.watchers[0], "ACL SETUSER default -sentinel|myid");
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d," NAME ":%d/shop", twice, twice);
    assert_status(tried_at(url, (struct dlock_options){0}), OK);
    server_text(all.watchers[0], "ACL SETUSER default +sentinel");
}

/* What a sentinel answers first, instead of what it knows: to SENTINEL MASTER, to
 * GET-MASTER-ADDR-BY-NAME, and to SENTINEL MASTER once more. */
struct first_answer {
    int epoch;
    int master_port;
    int port;
    int epoch_again;
};

#define ANSWER_MAX 512

/* own_id: to SENTINEL MYID; NULL: an error. Returns the size. */
static size_t write_answer(char answer[ANSWER_MAX], const struct first_answer *first,
                           const char *own_id)
{
    char master_port[16], port[16], id[64] = "-ERR no id";
    if (own_id != NULL)
        snprintf(id, sizeof id, "$%zu\r\n%s", strlen(own_id), own_id);
    snprintf(master_port, sizeof master_port, "%d", first->master_port);
    snprintf(port, sizeof port, "%d", first->port);
    int size = snprintf(answer, ANSWER_MAX,
                        "*10\r\n$4\r\nname\r\n$4\r\nshop\r\n"
                        "$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n$%zu\r\n%s\r\n"
                        "$12\r\nconfig-epoch\r\n$3\r\n%d\r\n$10\r\nnum-slaves\r\n$1\r\n2\r\n"
                        "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n"
                        "*2\r\n$12\r\nconfig-epoch\r\n$3\r\n%d\r\n%s\r\n",
                        strlen(master_port), master_port, first->epoch, strlen(port), port,
                        first->epoch_again, id);
    must(size > 0 && size < ANSWER_MAX);
    return (size_t)size;
}

static void plan_first_answer(struct proxy *proxy, const struct first_answer *first,
                              const char *own_id)
{
    char answer[ANSWER_MAX];
    const size_t size = write_answer(answer, first, own_id);
    proxy_plan(proxy, PROXY_REPLACE_REPLY, "GET-MASTER-ADDR", answer, size);
}

/* The client uses the master, and nothing else. */
static void works_after(const struct first_answer first[SENTINELS])
{
    char url[160] = "sentinel://";
    struct proxy *proxies[SENTINELS];
    for (int i = 0; i < SENTINELS; i++) {
        proxies[i] = proxy_start(all.watchers[i]);
        plan_first_answer(proxies[i], &first[i], NULL);
        snprintf(url + strlen(url), sizeof url - strlen(url), "%s%s", i > 0 ? "," : "",
                 strstr(proxy_url(proxies[i]), "127"));
    }
    snprintf(url + strlen(url), sizeof url - strlen(url), "/shop");
    dlock_client *client = client_of(url, (struct dlock_options){0});
    works(client);
    for (int i = 0; i < SENTINELS; i++)
        eventually(proxy_done(proxies[i]));
    dlock_client_close(client);
    for (int i = 0; i < SENTINELS; i++)
        proxy_free(proxies[i]);
}

/* The questions of one round arrive apart. The answers to the first ones are older than a switch.
 * They belong to no master that ever was: here to a server that no sentinel watches. */
static void answers_of_two_epochs_name_none(void **state)
{
    (void)state;
    struct server *lone = server_start(NULL);
    const int port = server_port(lone);
    const struct first_answer torn = {998, port, port, 999};
    works_after((const struct first_answer[]){torn, torn, torn});
    server_free(lone);
}

static void sentinels_agree_on_epoch_and_address(void **state)
{
    (void)state;
    struct server *lone = server_start(NULL);
    const int port = server_port(lone);
    works_after((const struct first_answer[]){
        {997, port, port, 997}, {998, port, port, 998}, {999, port, port, 999}});
    works_after(
        (const struct first_answer[]){{999, port, port, 999}, {999, 1, 1, 999}, {999, 2, 2, 999}});
    server_free(lone);
}

/* During a failover the first one has the new epoch already, and still says the old address there.
 */
static void the_address_is_asked_for(void **state)
{
    (void)state;
    struct server *lone = server_start(NULL);
    const int port = server_port(master_node());
    const struct first_answer early = {999, server_port(lone), port, 999};
    works_after((const struct first_answer[]){early, early, early});
    server_free(lone);
}

/* Two of five: a majority of those that answer is none of all. */
static void a_minority_names_none(void **state)
{
    (void)state;
    char url[160];
    snprintf(url, sizeof url,
             "sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/shop",
             server_port(all.watchers[0]), server_port(all.watchers[1]));
    assert_status(tried_at(url, (struct dlock_options){0}), UNREACHABLE);
    assert_says(said, "no master: 3 of 5 sentinels must name the same one; ");
}

/* Two of four, and one of them has the id of a third: that makes two no majority. */
/* A server that says in each answer that it has just switched: it has news without end. */
struct restless {
    int listener, stop_fd;
    _Atomic int answered;
};

static void restless_answer(struct restless *restless, int fd, const char *request)
{
    static const struct first_answer switching = {101, 6379, 6379, 102};
    char answer[ANSWER_MAX] = "+PONG\r\n";
    size_t size = strlen(answer);
    if (strstr(request, "GET-MASTER-ADDR") != NULL) {
        size = write_answer(answer, &switching, NULL);
        restless->answered++;
    } else if (strstr(request, "SUBSCRIBE") != NULL) {
        return;
    }
    must(send(fd, answer, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static void *restless_run(void *arg)
{
    struct restless *restless = arg;
    struct pollfd polls[8] = {{.fd = restless->listener, .events = POLLIN},
                              {.fd = restless->stop_fd, .events = POLLIN}};
    nfds_t count = 2;
    while (poll(polls, count, -1) > 0 && polls[1].revents == 0) {
        for (nfds_t i = 2; i < count; i++) {
            char request[1024];
            if (polls[i].revents == 0)
                continue;
            ssize_t size = recv(polls[i].fd, request, sizeof request - 1, 0);
            request[size > 0 ? size : 0] = '\0';
            if (size > 0) {
                restless_answer(restless, polls[i].fd, request);
            } else {
                close(polls[i].fd);
                polls[i].fd = -1;
            }
        }
        if (polls[0].revents != 0 && count < 8)
            polls[count++] =
                (struct pollfd){.fd = accept(restless->listener, NULL, NULL), .events = POLLIN};
    }
    for (nfds_t i = 2; i < count; i++)
        if (polls[i].fd >= 0)
            close(polls[i].fd);
    return NULL;
}

/* The client asks again at once, but not without end. */
static void a_sentinel_with_news_without_end(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    struct restless restless = {.listener = socket(AF_INET, SOCK_STREAM, 0),
                                .stop_fd = eventfd(0, EFD_CLOEXEC)};
    pthread_t thread;
    char url[64];
    dlock_hold *hold;
    uint64_t one = 1;
    must(bind(restless.listener, (struct sockaddr *)&at, size) == 0);
    must(getsockname(restless.listener, (struct sockaddr *)&at, &size) == 0);
    must(listen(restless.listener, 8) == 0);
    must(pthread_create(&thread, NULL, restless_run, &restless) == 0);
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d/shop", ntohs(at.sin_port));
    dlock_client *client = client_of(url, (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, LOCK);
    const int64_t since_ns = mono_ns();
    assert_int_not_equal(tried(lock, &hold), DLOCK_OK);
    assert_says(dlock_error(), "it switched while it was asked");
    eventually(restless.answered >= 30);
    /* Eight in a second come at once, the others 100 ms apart. A slow machine only adds to that. */
    assert_true(mono_ns() - since_ns > 500 * NS_PER_MS);
    dlock_close(lock);
    dlock_client_close(client);
    must(write(restless.stop_fd, &one, sizeof one) == sizeof one);
    must(pthread_join(thread, NULL) == 0);
    close(restless.listener);
    close(restless.stop_fd);
}

static void a_copied_id_is_no_twin(void **state)
{
    (void)state;
    char url[200], id[64];
    struct server *lone = server_start(NULL);
    struct proxy *one = proxy_start(all.watchers[2]), *other = proxy_start(all.watchers[2]);
    const int port = server_port(lone);
    const struct first_answer liar = {999, port, port, 999};
    snprintf(id, sizeof id, "%s", server_text(all.watchers[0], "SENTINEL MYID"));
    plan_first_answer(one, &liar, NULL);
    plan_first_answer(other, &liar, id);
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d,%.21s,%.21s,127.0.0.1:%d/shop",
             server_port(all.watchers[0]), strstr(proxy_url(one), "127"),
             strstr(proxy_url(other), "127"), NOBODYS_PORT);
    dlock_client *client = client_of(url, (struct dlock_options){0});
    works(client);
    eventually(proxy_done(one) && proxy_done(other));
    dlock_client_close(client);
    proxy_free(one);
    proxy_free(other);
    server_free(lone);
}

static bool connects_anew(dlock *lock)
{
    dlock_hold *hold;
    server_ask(master_node(), "CLIENT KILL TYPE normal SKIPME yes");
    dlock_status status = tried(lock, &hold);
    if (status == DLOCK_OK)
        dlock_release(hold, NULL);
    return status != DLOCK_UNREACHABLE;
}

/* Two of three sentinels have named the master, and then one of them hangs. A new connection needs
 * a newer answer of it. */
static void an_answer_from_before_the_decision_is_old(void **state)
{
    (void)state;
    char url[160];
    struct dlock_options options = {.connect_timeout_ms = 500, .command_timeout_ms = PATIENCE_MS};
    int connected = 0;
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/shop",
             server_port(all.watchers[0]), server_port(all.watchers[1]), NOBODYS_PORT);
    dlock_client *client = client_of(url, options);
    dlock *lock = lock_of(client, NULL, LOCK);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    server_pause(all.watchers[0]);
    while (connected < 20 && connects_anew(lock))
        connected++;
    assert_true(connected < 20); /* its last answer may count once more */
    server_resume(all.watchers[0]);
    dlock_close(lock);
    dlock_client_close(client);
    assert_status(tried_at(all.url, (struct dlock_options){0}), OK);
}

/* Each needs longer than a round of questions, and the two need to be heard together. */
static void slow_sentinels_decide(void **state)
{
    (void)state;
    char url[160];
    struct far *one = far_start(all.watchers[0], 1300);
    struct far *other = far_start(all.watchers[1], 2100);
    snprintf(url, sizeof url, "sentinel://%s,%s,127.0.0.1:%d/shop", strstr(far_url(one), "127"),
             strstr(far_url(other), "127"), NOBODYS_PORT);
    struct dlock_options patient = {.connect_timeout_ms = 20000, .command_timeout_ms = 20000};
    assert_status(tried_at(url, patient), OK);
    far_free(one);
    far_free(other);
}

/* Connections that exist go on: the sentinels are not needed for a master that stays. */
static void a_majority_is_needed_to_connect(void **state)
{
    (void)state;
    dlock_client *client = client_of(all.url, BRIEF);
    works(client);
    server_pause(all.watchers[0]);
    server_pause(all.watchers[1]);
    assert_status(tried_at(all.url, BRIEF), UNREACHABLE);
    assert_says(said, "no master: 2 of 3 sentinels must name the same one; ");
    is_said_of(2, " names redis://127.0.0.1:");
    works(client);
    assert_int_equal(stats_of(client).connects, 1);
    server_resume(all.watchers[0]);
    server_resume(all.watchers[1]);
    dlock_client_close(client);
    assert_status(tried_at(all.url, (struct dlock_options){0}), OK);
}

/* No further connection can be made, and the only one is lent. The calls that need one wait for
 * that, and not for a new one. */
static void a_connection_that_comes_back_is_used(void **state)
{
    (void)state;
    dlock_client *client =
        client_of(all.url, (struct dlock_options){.connect_timeout_ms = PATIENCE_MS,
                                                  .command_timeout_ms = PATIENCE_MS,
                                                  .ttl_ms = 600000});
    struct waiter first = {.lock = lock_of(client, NULL, LOCK)};
    struct waiter second = {.lock = lock_of(client, NULL, "lock:{pen}")};
    dlock *held = lock_of(client, NULL, "lock:{cup}");
    struct releaser releaser = {.hold = acquired(held)};
    for (int i = 0; i < SENTINELS; i++)
        server_pause(all.watchers[i]);
    server_pause(master_node());
    uint64_t sent = stats_of(client).commands;
    waiter_start(&first);
    eventually(stats_of(client).commands > sent);
    waiter_start(&second);
    releaser_start(&releaser);
    eventually(wait_for_connection(client) == 2);
    server_resume(master_node());
    assert_status(waiter_end(&first), OK);
    assert_status(waiter_end(&second), OK);
    assert_int_equal(releaser_end(&releaser), DLOCK_OK);
    assert_int_equal(stats_of(client).connects, 1);
    for (int i = 0; i < SENTINELS; i++)
        server_resume(all.watchers[i]);
    assert_status(dlock_release(first.hold, NULL), OK);
    assert_status(dlock_release(second.hold, NULL), OK);
    dlock_close(first.lock);
    dlock_close(second.lock);
    dlock_close(held);
    dlock_client_close(client);
    assert_status(tried_at(all.url, (struct dlock_options){0}), OK);
}

/* The sentinels go on naming it for 20 s. */
static void what_is_no_master_is_not_used(void **state)
{
    (void)state;
    dlock_client *client = client_of(all.url, (struct dlock_options){0});
    struct waiter waiter = {.lock = lock_of(client, NULL, LOCK), .want = {.wait_ms = 60000}};
    server_text(master_node(), "REPLICAOF 127.0.0.1 %d", server_port(all.nodes[(master + 1) % 3]));
    assert_status(tried_at(all.url, (struct dlock_options){0}), REFUSED);
    assert_says(said, "ROLE says 'slave': the sentinels name it as the master, and it is none");
    waiter_start(&waiter);
    eventually(stats_of(client).connects_failed >= 2);
    server_text(master_node(), "REPLICAOF NO ONE");
    assert_status(waiter_end(&waiter), OK);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    dlock_close(waiter.lock);
    dlock_client_close(client);
    sentinels_rejoin(&all, (master + 1) % 3, master);
}

/* It answers BUSY also when it is asked for its role. */
static void a_busy_master_is_one(void **state)
{
    (void)state;
    server_text(master_node(), "CONFIG SET busy-reply-threshold 1");
    redisContext *other = redisConnect("127.0.0.1", server_port(master_node()));
    int done = 0;
    redisAppendCommand(other, "EVAL %s 0", "while true do end");
    while (done == 0)
        assert_int_equal(redisBufferWrite(other, &done), REDIS_OK);
    eventually(server_ask(master_node(), "PING")->type == REDIS_REPLY_ERROR);
    assert_status(tried_at(all.url, (struct dlock_options){0}), REFUSED);
    assert_null(strstr(said, "the login was refused"));
    server_text(master_node(), "SCRIPT KILL");
    eventually(server_ask(master_node(), "PING")->type == REDIS_REPLY_STATUS);
    redisFree(other);
    server_text(master_node(), "CONFIG SET busy-reply-threshold 5000");
    assert_status(tried_at(all.url, (struct dlock_options){0}), OK);
}

/* ---- Fail-overs ------------------------------------------------------------------------------ */

static void after_the_masters_death(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client = client_of(
        all.url, (struct dlock_options){.on_event = record_event, .on_event_arg = record});
    int former = master;
    works(client);
    server_kill(master_node());
    struct waiter waiter = {.lock = lock_of(client, NULL, LOCK), .want = {.wait_ms = 60000}};
    waiter_start(&waiter);
    master = sentinels_fail_over(&all, former, 7);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(server_integer(master_node(), "EXISTS " LOCK), 1);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    eventually(record_count(record, "SERVER_BACK") == 1);
    dlock_close(waiter.lock);
    dlock_client_close(client);
    record_free(record);
    sentinels_rejoin(&all, former, master);
}

struct extending {
    dlock_hold *hold;
    _Atomic bool over;
    dlock_status status;
};

static void *extend(void *arg)
{
    struct extending *extending = arg;
    extending->status = dlock_extend(extending->hold);
    extending->over = true;
    return NULL;
}

/* The former master is frozen through the fail-over, and so is one sentinel. When both wake, the
 * former master takes writes, and the sentinel still names it. */
static void a_former_master_that_wakes(void **state)
{
    (void)state;
    dlock_client *client =
        client_of(all.url, (struct dlock_options){.command_timeout_ms = 60000, .ttl_ms = 60000});
    dlock *lock = lock_of(client, "owner_lua", LOCK);
    dlock_hold *hold = acquired(lock);
    struct extending extending = {.hold = hold};
    int former = master;
    int64_t left_ms = dlock_remaining_ms(hold);
    server_pause(master_node());
    pthread_t thread = thread_start(extend, &extending);
    server_pause(all.watchers[2]);
    master = sentinels_fail_over(&all, former, 3);
    thread_wait(thread); /* it does not wait for the frozen one */
    assert_int_equal(extending.status, DLOCK_UNKNOWN);
    assert_true(dlock_remaining_ms(hold) < left_ms);
    server_resume(all.nodes[former]);
    server_resume(all.watchers[2]);
    assert_status(dlock_release(hold, NULL), OK);
    assert_string_equal(server_text(all.nodes[former], "SET probe 1"), "OK");
    for (int i = 0; i < 20; i++) {
        hold = acquired(lock);
        assert_int_equal(server_integer(master_node(), "EXISTS " LOCK), 1);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(tried_at(all.url, (struct dlock_options){0}), OK);
    }
    assert_string_equal(server_text(all.nodes[former], "GET probe"), "1");
    dlock_close(lock);
    dlock_client_close(client);
    eventually(sentinels_named(&all, 2) == master);
    sentinels_rejoin(&all, former, master);
}

/* A sentinel that announces NAME as the master's address. */
static struct server *start_announcing(const struct server *of)
{
    struct server *watcher = server_start_sentinel(server_port(of));
    assert_string_equal(server_text(watcher, "SENTINEL REMOVE shop"), "OK");
    assert_string_equal(server_text(watcher, "SENTINEL CONFIG SET resolve-hostnames yes"), "OK");
    assert_string_equal(server_text(watcher, "SENTINEL CONFIG SET announce-hostnames yes"), "OK");
    assert_string_equal(
        server_text(watcher, "SENTINEL MONITOR shop " NAME " %d 1", server_port(of)), "OK");
    return watcher;
}

/* A sentinel that announces names. The former master is left before the name of the new one is
 * found. */
static void a_master_with_a_name(void **state)
{
    (void)state;
    char port[16];
    struct server *former =
        server_start((const char *const[]){"--replica-announce-ip", NAME, NULL});
    snprintf(port, sizeof port, "%d", server_port(former));
    struct server *next =
        server_start((const char *const[]){"--replicaof", NAME, port, "--replica-announce-ip", NAME,
                                           "--repl-diskless-sync-delay", "0", NULL});
    struct server *watcher = start_announcing(former);
    eventually(server_ask(watcher, "SENTINEL REPLICAS shop")->elements == 1);
    eventually(strstr(server_text(former, "INFO replication"), "state=online") != NULL);

    dlock_client *client = client_of(
        server_url(watcher), (struct dlock_options){.command_timeout_ms = 60000, .ttl_ms = 60000});
    dlock *lock = lock_of(client, "owner_lua", LOCK);
    dlock_hold *hold = acquired(lock);
    struct extending extending = {.hold = hold};
    server_pause(former);
    pthread_t thread = thread_start(extend, &extending);
    name_hangs = true;
    assert_string_equal(server_text(watcher, "SENTINEL FAILOVER shop"), "OK");
    eventually(extending.over);
    assert_true(name_hangs);
    name_hangs = false;
    thread_wait(thread);
    assert_int_equal(extending.status, DLOCK_UNKNOWN);
    dlock_release(hold, NULL);
    hold = acquired(lock);
    assert_int_equal(server_integer(next, "EXISTS " LOCK), 1);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
    server_free(watcher);
    server_free(next);
    server_free(former);
}

static bool says_that_it_is_looked_up(dlock *lock)
{
    dlock_hold *hold;
    assert_status(tried(lock, &hold), UNREACHABLE);
    return strstr(dlock_error(), "/shop: its sentinels name redis://" NAME ":") != NULL &&
           strstr(dlock_error(), "; its host name is looked up") != NULL;
}

static bool is_acquired(dlock *lock, dlock_hold **hold)
{
    return tried(lock, hold) == DLOCK_OK;
}

/* Each call says so, not only the first. And a look-up that hangs keeps no other one from being
 * made. */
static void a_name_whose_look_up_hangs(void **state)
{
    (void)state;
    struct server *named = server_start(NULL);
    struct server *watcher = start_announcing(named);
    dlock_client *client = client_of(server_url(watcher), BRIEF);
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold;
    name_hangs = true;
    assert_status(tried(lock, &hold), UNREACHABLE);
    eventually(says_that_it_is_looked_up(lock));
    answers_from = looks;
    eventually(is_acquired(lock, &hold));
    assert_true(name_hangs);
    name_hangs = false;
    answers_from = INT_MAX;
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
    server_free(watcher);
    server_free(named);
}

/* ---- Replicas -------------------------------------------------------------------------------- */

static struct server *replica_of(const struct server *of)
{
    char port[16];
    snprintf(port, sizeof port, "%d", server_port(of));
    return server_start((const char *const[]){"--replicaof", "127.0.0.1", port,
                                              "--repl-diskless-sync-delay", "0", NULL});
}

static bool knows(struct server *watcher, size_t count)
{
    return server_ask(watcher, "SENTINEL REPLICAS shop")->elements == count;
}

static bool is_told(dlock *lock, const char *what)
{
    dlock_hold *hold;
    dlock_status status = tried(lock, &hold);
    if (status == DLOCK_OK)
        dlock_release(hold, NULL);
    return status == DLOCK_REFUSED && strstr(dlock_error(), what) != NULL;
}

/* One is down. The first sentinel knows of it, and the second one never will. */
static void the_sentinels_know_the_number_of_replicas(void **state)
{
    (void)state;
    char url[160];
    struct server *own =
        server_start((const char *const[]){"--repl-diskless-sync-delay", "0", NULL});
    struct server *first = server_start_sentinel(server_port(own));
    struct server *replicas[3] = {replica_of(own), replica_of(own)};
    eventually(knows(first, 2));
    server_kill(replicas[1]);
    eventually(strstr(server_text(own, "INFO replication"), "connected_slaves:1") != NULL);
    struct server *second = server_start_sentinel(server_port(own));
    eventually(knows(second, 1));
    snprintf(url, sizeof url, "sentinel://127.0.0.1:%d,127.0.0.1:%d/shop", server_port(second),
             server_port(first));

    struct dlock_options needs_all = {.replicas_ack = DLOCK_REPLICAS_ALL};
    dlock_client *client = client_of(url, needs_all);
    dlock *lock = lock_of(client, NULL, LOCK);
    eventually(is_told(lock, "1 of 2 replicas confirmed the write in time; 2 must"));
    replicas[2] = replica_of(own); /* the same client learns of it */
    eventually(is_told(lock, "2 of 3 replicas confirmed the write in time; 3 must"));
    dlock_close(lock);
    dlock_client_close(client);

    needs_all.replicas = 4;
    client = client_of(url, needs_all);
    lock = lock_of(client, NULL, LOCK);
    eventually(is_told(lock, "2 of 4 replicas confirmed the write in time; 4 must"));
    dlock_close(lock);
    dlock_client_close(client);
    needs_all = (struct dlock_options){.replicas_ack = DLOCK_REPLICAS_MAJORITY};
    assert_status(tried_at(url, needs_all), OK);
    for (int i = 0; i < 3; i++)
        server_free(replicas[i]);
    server_free(second);
    server_free(first);
    server_free(own);
}

/* The answer lies in the socket when the sentinels name another master. The test is the thread that
 * asks them. */
static void an_answer_that_comes_after_the_switch(void **state)
{
    (void)state;
    struct server watched = {0};
    struct redis_config config = {.servers = &watched,
                                  .server_count = 1,
                                  .connect_timeout_ms = PATIENCE_MS,
                                  .command_timeout_ms = PATIENCE_MS};
    struct addresses at;
    char port[16];
    snprintf(port, sizeof port, "%d", server_port(master_node()));
    assert_int_equal(lookup_numeric("127.0.0.1", port, &at), 0);
    assert_status(url_parse(all.url, &watched.url), OK);
    assert_true(reach_init(&watched, SERVER_OF_SENTINEL, &config.outages));
    struct redis *redis = redis_new(&config);
    assert_status(redis_ready(redis, 0, -1), UNREACHABLE);
    assert_says(dlock_error(), "its sentinels were not asked");
    reach_begin_round(&watched);
    reach_named(&watched, &at, 1, true, "");
    assert_status(redis_ready(redis, INT64_MAX, -1), OK);
    redis_begin(redis);
    redis_append(redis, 0, 1, (const char *const[]){"PING"}, NULL);
    redis_send(redis);
    struct pollfd answered = {.fd = redis_fd(redis, 0), .events = POLLIN};
    assert_int_equal(poll(&answered, 1, PATIENCE_MS), 1);
    reach_named(&watched, &at, 1, true, "");
    assert_status(redis_wait(redis, INT64_MAX, -1), OK);
    assert_null(redis_reply(redis, 0, 0));
    assert_int_equal(redis_status(redis, 0), DLOCK_UNKNOWN);
    assert_status(redis_finish(redis), UNKNOWN);
    assert_says(dlock_error(), "its sentinels have named another master");
    redis_free(redis);
    url_free(&watched.url);
    reach_free(&watched);
}

/* What dlock_identity() must tell of the master: "VALUE@EPOCH". */
static void expect_identity(char text[128])
{
    const redisReply *fields = server_ask(all.watchers[0], "SENTINEL MASTER shop");
    const char *epoch = NULL;
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (strcmp(fields->element[i]->str, "config-epoch") == 0)
            epoch = fields->element[i + 1]->str;
    assert_non_null(epoch);
    int used = snprintf(text, 64, "@%s", epoch);
    char value[64];
    snprintf(value, sizeof value, "%s", server_text(master_node(), "GET dlock:identity"));
    memmove(text + strlen(value), text, (size_t)used + 1);
    memcpy(text, value, strlen(value));
}

/* The promoted replica has the value, too; the epoch is another one. */
static void a_promoted_replica_has_another_identity(void **state)
{
    (void)state;
    char before[128], after[128];
    const struct dlock_want wants = {.identity = true};
    const char *rungs[] = {"fair", "read_write"}; /* in one write with the acquire; and before it */
    dlock_client *client = client_of(all.url, (struct dlock_options){0});
    dlock_hold *holds[2];
    dlock *locks[2] = {lock_of(client, rungs[0], "lock:{pen}"),
                       lock_of(client, rungs[1], "lock:{cup}")};
    for (int i = 0; i < 2; i++) {
        holds[i] = wanted(locks[i], wants);
        expect_identity(before);
        assert_string_equal(dlock_identity(holds[i]), before);
    }
    server_text(master_node(), "SET probe 1");
    assert_int_equal(server_integer(master_node(), "WAIT 2 %d", PATIENCE_MS), 2);
    int former = master;
    server_kill(all.nodes[former]);
    master = sentinels_fail_over(&all, former, 7);
    expect_identity(after);
    assert_string_not_equal(after, before);
    assert_int_equal(strcspn(after, "@"), strcspn(before, "@"));
    assert_memory_equal(after, before, strcspn(after, "@"));
    for (int i = 0; i < 2; i++) {
        assert_string_equal(dlock_identity(holds[i]), before); /* its token is the former's */
        dlock_release(holds[i], NULL);
        holds[i] = wanted(locks[i], wants);
        assert_string_equal(dlock_identity(holds[i]), after);
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    dlock_client_close(client);
    server_integer(master_node(), "DEL probe");
    sentinels_rejoin(&all, former, master);
}

/* The promoted replica keeps the lock for a waiter of the client. That grant is not used, because
 * its token would have the former master's identity. */
static void a_release_at_the_new_master_hands_nothing_on(void **state)
{
    (void)state;
    char before[128], after[128];
    dlock_client *client =
        client_of(all.url, (struct dlock_options){.ttl_ms = 60000, .handoff_max = 1});
    dlock *lock = lock_of(client, "fair", "lock:{cup}");
    dlock_hold *hold = wanted(lock, (struct dlock_want){.identity = true});
    expect_identity(before);
    assert_string_equal(dlock_identity(hold), before);
    assert_int_equal(server_integer(master_node(), "WAIT 2 %d", PATIENCE_MS), 2);
    struct started waiter = {.release = false};
    master = sentinels_fail_over(&all, master, 7);
    eventually(has_moved(client));
    expect_identity(after);
    start(lock, (struct dlock_want){.wait_ms = 60000, .identity = true}, &waiter);
    assert_status(dlock_release(hold, NULL), OK);
    started_answered(&waiter);
    assert_status(waiter.status, OK);
    assert_string_equal(dlock_identity(waiter.hold), after);
    assert_false(dlock_handed_off(waiter.hold));
    assert_status(dlock_release(waiter.hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
    eventually(server_ask(all.watchers[0], "SENTINEL REPLICAS shop")->elements == 2);
}

/* Both masters live: it is the message of the sentinels that ends the connections. */
static void waiters_are_woken_at_the_new_master(void **state)
{
    (void)state;
    dlock_client *client = client_of(all.url, (struct dlock_options){0});
    dlock_client *other = client_of(all.url, (struct dlock_options){0});
    dlock *lock = lock_of(client, "notify", LOCK);
    dlock_hold *hold = acquired(lock);
    struct waiter waiter = {.lock = lock_of(other, "notify", LOCK), .want = {.wait_ms = 60000}};
    int former = master;
    waiter_start(&waiter);
    eventually(server_integer(master_node(), "PUBSUB NUMPAT") == 0 &&
               server_ask(master_node(), "PUBSUB CHANNELS redisson*")->elements == 1);
    master = sentinels_fail_over(&all, former, 7);
    eventually(server_ask(master_node(), "PUBSUB CHANNELS redisson*")->elements == 1);
    assert_int_equal(server_ask(all.nodes[former], "PUBSUB CHANNELS redisson*")->elements, 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(stats_of(other).missed_wakeups, 0);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    dlock_close(waiter.lock);
    dlock_close(lock);
    dlock_client_close(other);
    dlock_client_close(client);
    eventually(server_integer(master_node(), "EXISTS probe") == 0);
}

/* ---- Older epochs ---------------------------------------------------------------------------- */

#define FILE_MAX 16384
static char files[2][FILE_MAX];

static void file_of(int watcher, char path[160])
{
    snprintf(path, 160, "%s/sentinel.conf", server_folder(all.watchers[watcher]));
}

static void keep_file(int watcher)
{
    char path[160];
    file_of(watcher, path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(files[watcher], 1, FILE_MAX - 1, file);
    files[watcher][size] = '\0';
    fclose(file);
}

static void put_back(int watcher)
{
    char path[160];
    file_of(watcher, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(files[watcher], file);
    fclose(file);
    server_restart(all.watchers[watcher], NULL);
}

/* Two of three sentinels are put back to before the fail-over, and the third is gone. The former
 * master is one again, so they stay content. */
static void an_older_epoch_does_not_win(void **state)
{
    (void)state;
    int former = master;
    keep_file(0);
    keep_file(1);
    dlock_client *client = client_of(all.url, (struct dlock_options){0});
    works(client);
    master = sentinels_fail_over(&all, former, 7);
    eventually(has_moved(client));
    for (int i = 0; i < SENTINELS; i++)
        server_kill(all.watchers[i]);
    server_restart(all.nodes[former], NULL);
    put_back(0);
    put_back(1);
    works(client); /* on the connection that it has */
    server_ask(master_node(), "CLIENT KILL TYPE normal SKIPME yes");
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold;
    dlock_status status;
    eventually((status = tried(lock, &hold)) == DLOCK_UNREACHABLE &&
               strstr(dlock_error(), "names one of an older epoch than") != NULL);
    assert_says(dlock_error(), "if the sentinels were set up anew, restart this process");
    dlock_close(lock);
    dlock_client_close(client);
    assert_status(tried_at(all.url, (struct dlock_options){0}), OK); /* it never knew better */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_master_is_found),
        cmocka_unit_test(nothing_is_asked_before_it_is_needed),
        cmocka_unit_test(a_database),
        cmocka_unit_test(the_login_in_the_url_is_redis),
        cmocka_unit_test(the_sentinels_have_a_login_of_their_own),
        cmocka_unit_test(a_sentinel_is_no_redis),
        cmocka_unit_test(nobody_knows_the_name),
        cmocka_unit_test(what_is_no_sentinel_names_none),
        cmocka_unit_test(a_minority_may_fail),
        cmocka_unit_test(one_sentinel_has_one_vote),
        cmocka_unit_test(answers_of_two_epochs_name_none),
        cmocka_unit_test(sentinels_agree_on_epoch_and_address),
        cmocka_unit_test(the_address_is_asked_for),
        cmocka_unit_test(a_minority_names_none),
        cmocka_unit_test(a_sentinel_with_news_without_end),
        cmocka_unit_test(a_copied_id_is_no_twin),
        cmocka_unit_test(an_answer_from_before_the_decision_is_old),
        cmocka_unit_test(slow_sentinels_decide),
        cmocka_unit_test(a_majority_is_needed_to_connect),
        cmocka_unit_test(a_connection_that_comes_back_is_used),
        cmocka_unit_test(what_is_no_master_is_not_used),
        cmocka_unit_test(a_busy_master_is_one),
        cmocka_unit_test(after_the_masters_death),
        cmocka_unit_test(a_former_master_that_wakes),
        cmocka_unit_test(a_master_with_a_name),
        cmocka_unit_test(a_name_whose_look_up_hangs),
        cmocka_unit_test(the_sentinels_know_the_number_of_replicas),
        cmocka_unit_test(an_answer_that_comes_after_the_switch),
        cmocka_unit_test(a_promoted_replica_has_another_identity),
        cmocka_unit_test(a_release_at_the_new_master_hands_nothing_on),
        cmocka_unit_test(waiters_are_woken_at_the_new_master),
        cmocka_unit_test(an_older_epoch_does_not_win),
    };
    return cmocka_run_group_tests_name("sentinel", tests, start_all, stop_all);
}
