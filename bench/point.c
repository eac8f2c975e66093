/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures a named point that is not armed, in three forms. The library's without a hook; the
 * library's with the service's engine and nothing armed; the service's own. The printed time
 * includes the loop, which is measured too. It is the median of alternating rounds.
 *
 *     bench-point
 */
#include "../base/program.h"
#include "../lock/redis/redis_rung.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

const struct program program = {.name = "bench-point"};

#define ROUNDS 7
#define PASSES 100000000

/* Hides the value from the compiler, so that it cannot remove the loop. */
#define HIDE(value) __asm__ volatile("" : "+r"(value) : : "memory")

static double now_ns_of_cpu(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void pass_nothing(void *what)
{
    for (int i = 0; i < PASSES; i++)
        HIDE(what);
}

static void pass_library(void *what)
{
    struct rung_env *env = what;
    for (int i = 0; i < PASSES; i++) {
        HIDE(env);
        point(env, "between_get_and_del");
    }
}

static void pass_service(void *what)
{
    struct failpoints *failpoints = what;
    struct failpoint_stay stay = {0};
    for (int i = 0; i < PASSES; i++) {
        HIDE(failpoints);
        if (failpoints != NULL &&
            failpoints_reach(failpoints, "sale", "after_read", &stay) != FAILPOINT_PASSES)
            abort();
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    struct failpoints *engine = failpoints_new("");
    struct rung_env bare = {.rung = "owner_check"};
    struct rung_env hooked = {
        .rung = "owner_check", .on_point = failpoints_on_point, .on_point_arg = engine};
    struct {
        const char *name;
        void (*pass)(void *what);
        void *what;
        double ns[ROUNDS];
    } rows[] = {
        {"the loop alone", pass_nothing, engine, {0}},
        {"point(), no hook", pass_library, &bare, {0}},
        {"point(), the engine, nothing armed", pass_library, &hooked, {0}},
        {"a sale's, no engine", pass_service, NULL, {0}},
        {"a sale's, nothing armed", pass_service, engine, {0}},
    };
    size_t count = sizeof rows / sizeof rows[0];
    if (engine == NULL)
        return 1;
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < count; i++) {
            double start = now_ns_of_cpu();
            rows[i].pass(rows[i].what);
            rows[i].ns[round] = (now_ns_of_cpu() - start) / PASSES;
        }
    for (size_t i = 0; i < count; i++) {
        qsort(rows[i].ns, ROUNDS, sizeof rows[i].ns[0], ascending);
        printf("%-36s %6.2f ns  [%.2f-%.2f]\n", rows[i].name, rows[i].ns[ROUNDS / 2], rows[i].ns[0],
               rows[i].ns[ROUNDS - 1]);
    }
    failpoints_free(engine);
    return 0;
}
