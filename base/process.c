/* SPDX-License-Identifier: Apache-2.0
 *
 * See process.h.
 */
#include "process.h"

#include "../lock/clock.h"
#include "cli.h"
#include "log.h"
#include "program.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ARENAS 4

/* The second signal ends the process at once, with the exit code that a shell gives for a
 * signal. */
static void end_now(int number)
{
    _exit(128 + number);
}

/* Ends the process when --drain-ms has passed. A server that hangs may keep service_stop for
 * longer. */
static void *end_late(void *arg)
{
    const struct timespec until = timespec_of(*(const int64_t *)arg);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    log_event(LOG_ERROR, "stopped",
              "all requests were answered, but the locks that were left could not be released "
              "within --drain-ms");
    _exit(1);
}

/* ends_ns: when --drain-ms has passed. */
static void stop_in_time(const struct process *process, int64_t ends_ns)
{
    pthread_t late;
    bool watched = pthread_create(&late, NULL, end_late, &ends_ns) == 0;
    process->stop();
    if (watched) {
        pthread_cancel(late);
        pthread_join(late, NULL);
    }
    log_event(LOG_INFO, "stopped", "all requests were answered");
}

/* Before any thread starts. False: it cannot be, and standard error says why. */
static bool prepare(const struct settings_common *common)
{
    char problem[OUTPUT_ERROR_MAX];
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);     /* a file at its size limit is like a full disk: write() fails */
    mallopt(M_ARENA_MAX, ARENAS); /* one arena a thread costs more memory than it saves time */
    log_setup((enum log_level)common->log_level, common->instance);
    if (common->log_file[0] != '\0' && !log_open(common->log_file, problem)) {
        fprintf(stderr, "%s: --log-file: %s\n", program.name, problem);
        return false;
    }
    const char *unknown = settings_unknown_variable();
    if (unknown != NULL)
        log_event(LOG_WARNING, "unknown-variable", "%s is no setting, see --help", unknown);
    return true;
}

static int run(const struct process *process)
{
    const struct settings_common *common = process->config;
    const int64_t drain_ms = common->drain_ms;
    char error[PROCESS_ERROR_MAX];
    sigset_t signals;
    int number = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    /* in all threads: only sigwait below receives them */
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    int terminal = dup(STDERR_FILENO); /* for the reason if it does not start */
    if (!prepare(common))
        return 1;
    if (!process->start(error)) {
        dprintf(terminal, "%s: %s\n", program.name, error);
        _exit(1);
    }
    close(terminal);
    while (sigwait(&signals, &number) == 0 && number == SIGHUP)
        process->reopen();
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, end_now);
    signal(SIGINT, end_now);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    log_event(LOG_INFO, "draining", "signal %d; a second one ends at once", number);
    const int64_t ends_ns = mono_deadline_ns(drain_ms);
    if (!process->drain()) {
        log_event(LOG_ERROR, "stopped", "requests were still in flight after --drain-ms");
        _exit(1);
    }
    stop_in_time(process, ends_ns);
    return 0;
}

static bool read_common(void *config, struct settings_request *request, int argc, char **argv,
                        char error[SETTINGS_ERROR_MAX])
{
    return settings_read(config, request, argc, argv, error) &&
           settings_common_read_token(config, error) && settings_common_fit(config, error);
}

int process_main(const struct process *process, int argc, char **argv)
{
    struct settings_request request;
    char error[SETTINGS_ERROR_MAX];
    int code = 2;
    if (!(process->read != NULL ? process->read : read_common)(process->config, &request, argc,
                                                               argv, error))
        fprintf(stderr, "%s: %s\n", program.name, error);
    else
        code = request.action == SETTINGS_RUN ? run(process) : cli_act(process->config, &request);
    if (process->free != NULL)
        process->free();
    else
        settings_free(process->config);
    return code;
}

void process_reopen(const char *log_file, struct history *history)
{
    char error[HISTORY_ERROR_MAX], problem[OUTPUT_ERROR_MAX];
    bool has_log = log_file[0] != '\0', has_history = history != NULL;
    bool failed_log = has_log && !log_open(log_file, problem);
    bool failed_history = has_history && !history_reopen(history, error);
    if (failed_log)
        log_event(LOG_ERROR, "reopen", "%s; the old file continues", problem);
    if (failed_history)
        log_event(LOG_ERROR, "reopen", "%s; the old file continues; repair this, then send SIGHUP",
                  error);
    if (!has_log && !has_history)
        log_event(LOG_INFO, "reopen",
                  "SIGHUP: there is no file to reopen, neither --log-file nor --history");
    else if (!failed_log && !failed_history)
        log_event(LOG_INFO, "reopened", "SIGHUP");
}

bool process_raise_descriptors(int64_t descriptors, int64_t connections, const char *with,
                               char error[PROCESS_ERROR_MAX])
{
    struct rlimit limit;
    const rlim_t needed = (rlim_t)descriptors;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        snprintf(error, PROCESS_ERROR_MAX, "%s", strerror(errno));
        return false;
    }
    if (limit.rlim_cur >= needed)
        return true;
    limit.rlim_cur = needed;
    rlim_t hard = limit.rlim_max;
    if (limit.rlim_max < needed)
        limit.rlim_max = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return true;
    snprintf(error, PROCESS_ERROR_MAX,
             "--connections %" PRId64 "%s needs %ju file descriptors, the limit is %ju: raise it "
             "(ulimit -Hn %ju) or ask for fewer connections",
             connections, with, (uintmax_t)needed, (uintmax_t)hard, (uintmax_t)needed);
    return false;
}
