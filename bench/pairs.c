/* SPDX-License-Identifier: Apache-2.0
 *
 * A rung of libdlock that a majority of servers grants: acquire and release, by one waiter or by
 * many threads of one client. The peers in bench/peers take the same words, except -rung and
 * -tokens, and addresses in the place of URLs. They print the same line of JSON.
 * `bench/bench` runs many rounds of both. When the connections are open, they say "ready" and wait
 * for a line, or the end of their input.
 *
 *     bench-pairs -rung zookeeper -waiters 100 -pairs 2000 zk://127.0.0.1:2181
 *
 * Exit code 0: there is a line. 2: there was no round.
 */
#include "dlock.h"
#ifdef WITH_ZOOKEEPER
#include "dlock_zookeeper.h"
#endif
#ifdef WITH_ETCD
#include "dlock_etcd.h"
#endif

#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME "lock:{phone}"
#define WAITERS_MAX 10000

struct bench {
    dlock *lock;
    atomic_long left; /* pairs that nobody has begun */
    atomic_long done;
    atomic_long failed;
    atomic_long inside; /* holders at this moment */
    atomic_long inside_max;
    bool tokens;
    _Atomic uint64_t token; /* of the latest hold */
    pthread_barrier_t start;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void enter_and_leave(struct bench *bench)
{
    long inside = atomic_fetch_add(&bench->inside, 1) + 1;
    long most = atomic_load(&bench->inside_max);
    while (inside > most && !atomic_compare_exchange_weak(&bench->inside_max, &most, inside))
        ;
    atomic_fetch_sub(&bench->inside, 1);
}

/* Is called while the lock is held. */
static bool token_grew(struct bench *bench, const dlock_hold *hold)
{
    uint64_t token = dlock_token(hold);
    uint64_t before = atomic_exchange(&bench->token, token);
    if (token <= before)
        warnx("token %" PRIu64 " was given out after token %" PRIu64, token, before);
    return token > before;
}

/* Acquires and releases once. Says whether both succeeded, and the token grew, if there is one. */
static bool pair(struct bench *bench)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = -1, .token = bench->tokens};
    dlock_hold *hold = NULL;
    bool grew = true;
    dlock_status status = dlock_acquire(bench->lock, &want, &hold);
    if (status == DLOCK_OK) {
        grew = !bench->tokens || token_grew(bench, hold);
        enter_and_leave(bench);
        status = dlock_release(hold, NULL);
    }
    if (status != DLOCK_OK)
        warnx("%s: %s", dlock_status_name(status), dlock_error());
    return status == DLOCK_OK && grew;
}

static void *take_turns(void *arg)
{
    struct bench *bench = arg;
    pthread_barrier_wait(&bench->start);
    while (atomic_fetch_sub(&bench->left, 1) > 0)
        atomic_fetch_add(pair(bench) ? &bench->done : &bench->failed, 1);
    return NULL;
}

static double run(struct bench *bench, long waiters)
{
    pthread_t threads[WAITERS_MAX];
    pthread_barrier_init(&bench->start, NULL, (unsigned)waiters + 1);
    for (long i = 0; i < waiters; i++)
        if ((errno = pthread_create(&threads[i], NULL, take_turns, bench)) != 0)
            err(2, "a thread for waiter %ld", i + 1);
    double start = now_s();
    pthread_barrier_wait(&bench->start);
    for (long i = 0; i < waiters; i++)
        pthread_join(threads[i], NULL);
    double took = now_s() - start;
    pthread_barrier_destroy(&bench->start);
    return took;
}

static long number_of(const char *name, const char *text, long max)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > max)
        errx(2, "-%s %s: must be a number from 1 to %ld", name, text, max);
    return value;
}

static const char usage[] =
    "usage: bench-pairs [options] URL...\n"
    "\n"
    "Acquires and releases one lock, again and again. It says \"ready\" when the connections are\n"
    "open, and begins when it reads a line.\n"
    "\n"
    "  -rung RUNG   redlock (the default), zookeeper or etcd; the URLs are its servers\n"
    "  -waiters N   threads that want the lock (default 1)\n"
    "  -pairs N     acquires, each with its release, of all threads together (default 2000)\n"
    "  -tokens      each acquire wants a fencing token, larger than the one before; with redlock\n"
    "               it costs a second round\n"
    "  -ttl-ms MS   the lock's time to live (default 30000)\n"
    "  -warm-ms MS  the least time before \"ready\" (default 1)\n"
    "\n"
    "It prints one line of JSON. pairs: how many succeeded. failed: how many did not.\n"
    "inside_max: the most holders at once. seconds: the time of all pairs.\n";

/* The engine of a rung; NULL is Redis. */
static const struct dlock_engine *engine_of(const char *rung)
{
#ifdef WITH_ZOOKEEPER
    if (strcmp(rung, "zookeeper") == 0)
        return dlock_zookeeper();
#endif
#ifdef WITH_ETCD
    if (strcmp(rung, "etcd") == 0)
        return dlock_etcd();
#endif
    if (strcmp(rung, "redlock") != 0)
        errx(2, "-rung %s: must be redlock, or zookeeper or etcd if their engine was built", rung);
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"rung", required_argument, NULL, 'r'},    {"waiters", required_argument, NULL, 'w'},
        {"pairs", required_argument, NULL, 'p'},   {"ttl-ms", required_argument, NULL, 't'},
        {"warm-ms", required_argument, NULL, 'm'}, {"tokens", no_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    long waiters = 1, pairs = 2000, ttl_ms = 30000, warm_ms = 1;
    const char *rung = "redlock";
    bool tokens = false;
    int option;
    while ((option = getopt_long_only(argc, argv, "", options, NULL)) != -1) {
        if (option == 'r')
            rung = optarg;
        else if (option == 'w')
            waiters = number_of("waiters", optarg, WAITERS_MAX);
        else if (option == 'p')
            pairs = number_of("pairs", optarg, 100000000);
        else if (option == 't')
            ttl_ms = number_of("ttl-ms", optarg, 86400000);
        else if (option == 'm')
            warm_ms = number_of("warm-ms", optarg, 60000);
        else if (option == 'k')
            tokens = true;
        else if (option == 'h')
            return fputs(usage, stdout) < 0 ? 2 : 0;
        else
            return 2; /* getopt has said why */
    }
    if (optind == argc)
        errx(2, "no server was named (see -help)");
    struct dlock_options client_options = {.size = sizeof client_options,
                                           .engine = engine_of(rung),
                                           .servers = (const char *const *)(argv + optind),
                                           .server_count = (size_t)(argc - optind),
                                           .ttl_ms = ttl_ms};
    struct bench bench = {.tokens = tokens};
    dlock_client *client = NULL;
    if (dlock_client_open(&client_options, &client) != DLOCK_OK ||
        dlock_open(client, rung, NAME, &bench.lock) != DLOCK_OK)
        errx(2, "%s", dlock_error());
    const double warm_s = now_s() + (double)warm_ms / 1e3;
    do { /* connections are opened meanwhile, also that to a late server */
        if (!pair(&bench))
            errx(2, "the first acquires failed");
    } while (now_s() < warm_s);
    puts("ready");
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin))
        ;
    atomic_store(&bench.inside_max, 0);
    atomic_store(&bench.left, pairs);
    double took = run(&bench, waiters);
    printf("{\"pairs\":%ld,\"failed\":%ld,\"inside_max\":%ld,\"seconds\":%.9f}\n",
           atomic_load(&bench.done), atomic_load(&bench.failed), atomic_load(&bench.inside_max),
           took);
    dlock_close(bench.lock);
    dlock_client_close(client);
    return 0;
}
