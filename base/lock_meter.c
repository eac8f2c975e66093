/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_meter.h.
 */
#include "lock_meter.h"

#include "meter.h"

#include <stddef.h>
#include <string.h>

static atomic_ulong holds, releases, checks;
static struct meter_times acquire_time, hold_time;

void lock_meter_acquired(int64_t took_ns)
{
    meter_time(&acquire_time, took_ns);
}

void lock_meter_held(int64_t took_ns)
{
    meter_time(&hold_time, took_ns);
}

void lock_meter_hold(void)
{
    meter_add(&holds, 1);
}

void lock_meter_release(void)
{
    meter_add(&releases, 1);
}

void lock_meter_check(void)
{
    meter_add(&checks, 1);
}

void lock_meter_add(struct dlock_stats *sum, const dlock_client *client)
{
    enum {
        FIRST = offsetof(struct dlock_stats, acquired),
        COUNTS = (sizeof(struct dlock_stats) - FIRST) / sizeof(uint64_t)
    };
    struct dlock_stats stats = {.size = sizeof stats};
    uint64_t counts[COUNTS], more[COUNTS];
    dlock_client_stats(client, &stats);
    memcpy(counts, (const char *)sum + FIRST, sizeof counts);
    memcpy(more, (const char *)&stats + FIRST, sizeof more);
    for (size_t i = 0; i < COUNTS; i++)
        counts[i] += more[i];
    memcpy((char *)sum + FIRST, counts, sizeof counts);
}

void lock_meter_print(FILE *out, const struct dlock_stats *sum, long long valid_ms)
{
    meter_print_times(out, "lock_acquire_time_seconds", "From asking for the lock to acquiring it.",
                      &acquire_time);
    meter_print_times(out, "lock_hold_time_seconds",
                      "From acquiring the lock to the answer to its release.", &hold_time);
    meter_print_head(out, "lock_valid_seconds", "gauge",
                     "The most that a hold of the current lock had left when it was acquired; "
                     "0: none yet, or it does not expire.");
    fprintf(out, "lock_valid_seconds %.3f\n", (double)valid_ms / 1e3);
    meter_print_single(out, "lock_acquired_total", "counter",
                       "Locks acquired, without those of checks.", meter_load(&holds));
    meter_print_single(out, "lock_released_total", "counter",
                       "Releases of these that were confirmed.", meter_load(&releases));
    meter_print_single(out, "lock_checks_total", "counter",
                       "Locks that checks acquired, to see whether an ensemble grants any.",
                       meter_load(&checks));
    meter_print_single(out, "lock_attempts_total", "counter",
                       "Attempts to acquire a lock; includes successful ones, and checks.",
                       sum->attempts);
    meter_print_single(out, "lock_contended_total", "counter", "Acquires that found the lock busy.",
                       sum->contended);
    meter_print_single(out, "lock_handoffs_total", "counter",
                       "Locks handed off inside this instance, without the server.", sum->handoffs);
    meter_print_single(
        out, "lock_missed_wakeups_total", "counter",
        "Acquisitions that the fallback poll found, not a wake-up: the holder died or the message "
        "was lost.",
        sum->missed_wakeups);
    meter_print_single(
        out, "lock_grants_expired_total", "counter",
        "Grants that expired: the instance did not claim the lock within --grant-ms.",
        sum->grants_expired);
    meter_print_single(out, "lock_scripts_loaded_total", "counter",
                       "Scripts sent in full because the server did not know them.",
                       sum->scripts_loaded);
    meter_print_single(out, "lock_renewals_total", "counter", "Renewals that were confirmed.",
                       sum->renewals);
    meter_print_single(out, "lock_renewals_failed_total", "counter",
                       "Renewals that were not confirmed.", sum->renewals_failed);
    meter_print_single(out, "lock_lost_total", "counter",
                       "Holds that were lost before their release.", sum->lost);
    meter_print_single(out, "lock_unknown_total", "counter", "Calls whose reply was lost.",
                       sum->unknown);
    meter_print_single(out, "lock_abandoned_total", "counter",
                       "Holds left to expire: a write's reply was lost, and it may still arrive.",
                       sum->abandoned);
    meter_print_single(out, "lock_redis_commands_total", "counter",
                       "Commands sent to the lock's server.", sum->commands);
    meter_print_single(out, "lock_redis_connects_total", "counter",
                       "Connections made to the lock's server.", sum->connects);
    meter_print_single(out, "lock_redis_connects_failed_total", "counter",
                       "Attempts to connect to the lock's server that failed.",
                       sum->connects_failed);
    meter_print_single(
        out, "lock_redis_lost_total", "counter",
        "Times the lock's server was lost: a connection broke, or none could be made.",
        sum->connections_lost);
    meter_print_single(out, "lock_redis_refused_total", "counter",
                       "Times the lock's server refused the login, a write, or a subscription.",
                       sum->connections_refused);
    meter_print_single(out, "lock_redis_restored_total", "counter",
                       "Times the lock's server worked again after it was lost or had refused.",
                       sum->connections_restored);
}
