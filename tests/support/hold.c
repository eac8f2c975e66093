/* SPDX-License-Identifier: Apache-2.0
 *
 * hold URL TTL-MS NAME [ANSWER-MS]: one client that does what its input says, a line each, and says
 * what came of it, with the time (CLOCK_BOOTTIME, in ms), which all processes of the machine share.
 *     acquire WAIT-MS   "acquire <status> <token> <remaining ms>"
 *     valid             "valid <0 or 1> <remaining ms>"
 *     extend, release   "<word> <status>"
 * and, at any time, "event <kind> <reason>".
 */
#include HEADER /* of the engine; ENGINE() is the engine */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const kinds[] = {
    [DLOCK_EVENT_RENEWED] = "RENEWED",
    [DLOCK_EVENT_RENEWAL_FAILED] = "RENEWAL_FAILED",
    [DLOCK_EVENT_LOST] = "LOST",
    [DLOCK_EVENT_CONNECTION_LOST] = "CONNECTION_LOST",
    [DLOCK_EVENT_CONNECTION_REFUSED] = "CONNECTION_REFUSED",
    [DLOCK_EVENT_CONNECTION_RESTORED] = "CONNECTION_RESTORED",
};

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void tell_event(void *arg, const struct dlock_event *event)
{
    (void)arg;
    printf("%lld event %s %s\n", now_ms(), kinds[event->kind], event->reason);
}

static void tell(const char *word, dlock_status status)
{
    printf("%lld %s %s %s\n", now_ms(), word, dlock_status_name(status),
           status != DLOCK_OK ? dlock_error() : "");
}

static dlock_hold *acquire(dlock *lock, long long wait_ms)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = wait_ms};
    dlock_hold *hold = NULL;
    dlock_status status = dlock_acquire(lock, &want, &hold);
    if (status == DLOCK_OK)
        printf("%lld acquire OK %llu %lld\n", now_ms(), (unsigned long long)dlock_token(hold),
               (long long)dlock_remaining_ms(hold));
    else
        tell("acquire", status);
    return hold;
}

int main(int argc, char **argv)
{
    char line[64];
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold = NULL;
    if (argc != 4 && argc != 5)
        return fputs("usage: hold URL TTL-MS NAME [ANSWER-MS]\n", stderr), 2;
    const int64_t answer_ms = argc == 5 ? atoll(argv[4]) : 10000;
    struct dlock_options options = {.size = sizeof options,
                                    .engine = ENGINE(),
                                    .servers = (const char *const *)&argv[1],
                                    .server_count = 1,
                                    .ttl_ms = atoll(argv[2]),
                                    .connect_timeout_ms = answer_ms,
                                    .command_timeout_ms = answer_ms,
                                    .on_event = tell_event};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (dlock_client_open(&options, &client) != DLOCK_OK ||
        dlock_open(client, NULL, argv[3], &lock) != DLOCK_OK)
        return fprintf(stderr, "%s\n", dlock_error()), 1;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "acquire", 7) == 0)
            hold = acquire(lock, atoll(line + 7));
        else if (strncmp(line, "valid", 5) == 0)
            printf("%lld valid %d %lld\n", now_ms(), dlock_valid(hold),
                   (long long)dlock_remaining_ms(hold));
        else if (strncmp(line, "extend", 6) == 0)
            tell("extend", dlock_extend(hold));
        else if (strncmp(line, "release", 7) == 0)
            tell("release", dlock_release(hold, NULL)), hold = NULL;
    }
    if (hold != NULL)
        dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_client_close(client);
    return 0;
}
