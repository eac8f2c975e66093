/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures a lock without contention. It compares acquire and release of every rung with two round
 * trips of PING, in alternating rounds. It also measures dlock_valid.
 *
 *     bench-acquire redis://127.0.0.1:6379/0 [more URLs]
 */
#include "dlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 7
#define PAIRS 2000
#define CHECKS 20000000

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void check(dlock_status status)
{
    if (status == DLOCK_OK)
        return;
    fprintf(stderr, "bench-acquire: %s: %s\n", dlock_status_name(status), dlock_error());
    exit(1);
}

static double pair_us(dlock *lock, int pairs)
{
    double start = now_us();
    for (int i = 0; i < pairs; i++) {
        dlock_hold *hold = NULL;
        check(dlock_acquire(lock, NULL, &hold));
        check(dlock_release(hold, NULL));
    }
    return (now_us() - start) / pairs;
}

/* Two round trips of an empty command, through the library's own connection: the least that a pair
 * can cost. `none` sends no command itself, so its batches are sent alone. */
static double floor_us(dlock *none, dlock_batch *ping)
{
    struct dlock_want want = {.size = sizeof want, .reads = ping};
    double start = now_us();
    for (int i = 0; i < PAIRS; i++) {
        dlock_hold *hold = NULL;
        check(dlock_acquire(none, &want, &hold));
        check(dlock_release(hold, ping));
    }
    return (now_us() - start) / PAIRS;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, ascending);
    return values[ROUNDS / 2];
}

static void measure_rung(dlock_client *client, const char *name, dlock *none, dlock_batch *ping)
{
    double pairs[ROUNDS];
    double floors[ROUNDS];
    dlock *lock = NULL;
    check(dlock_open(client, name, "bench:{acquire}", &lock));
    pair_us(lock, 100);
    for (int i = 0; i < ROUNDS; i++) {
        pairs[i] = pair_us(lock, PAIRS);
        floors[i] = floor_us(none, ping);
    }
    dlock_close(lock);
    double pair = median(pairs);
    double floor = median(floors);
    printf("%-14s %10.1f %12.1f %8.2f\n", name, pair, floor, pair / floor);
}

static void measure_valid(dlock_client *client)
{
    dlock *lock = NULL;
    dlock_hold *hold = NULL;
    int valid = 0;
    check(dlock_open(client, NULL, "bench:{valid}", &lock));
    check(dlock_acquire(lock, NULL, &hold));
    double start = now_us();
    for (int i = 0; i < CHECKS; i++)
        valid += dlock_valid(hold);
    double took = now_us() - start;
    check(dlock_release(hold, NULL));
    dlock_close(lock);
    printf("dlock_valid: %.1f ns (%d of %d said yes)\n", took * 1e3 / CHECKS, valid, CHECKS);
}

static bool is_measured(const struct dlock_rung *rung, size_t servers)
{
    const bool here = strcmp(rung->engine, "redis") == 0 || strcmp(rung->engine, "none") == 0;
    return here && (!rung->quorum || servers > 1);
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        fprintf(argc == 2 ? stdout : stderr,
                "usage: bench-acquire URL [URL URL ...]\n"
                "URL: redis://HOST:PORT/DB. The first is the server of most rungs; all of them,\n"
                "3 or 5, are those of a rung that a majority grants.\n");
        return argc == 2 ? 0 : 2;
    }
    const char *const *servers = (const char *const *)(argv + 1);
    struct dlock_options options = {
        .size = sizeof options, .servers = servers, .server_count = 1, .allow_flawed = true};
    dlock_client *client = NULL, *several = NULL;
    dlock *none = NULL;
    check(dlock_client_open(&options, &client));
    options.server_count = (size_t)argc - 1;
    check(dlock_client_open(&options, &several));
    check(dlock_open(client, "none", "bench:{floor}", &none));
    dlock_batch *ping = dlock_batch_new();
    check(dlock_batch_add(ping, 1, (const char *const[]){"PING"}, NULL));

    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    printf("%-14s %10s %12s %8s\n", "rung", "pair us", "2 PINGs us", "ratio");
    for (size_t i = 0; i < count; i++)
        if (is_measured(&rungs[i], options.server_count))
            measure_rung(rungs[i].quorum ? several : client, rungs[i].name, none, ping);
    measure_valid(client);
    dlock_batch_free(ping);
    dlock_close(none);
    dlock_client_close(several);
    dlock_client_close(client);
    return 0;
}
