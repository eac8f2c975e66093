/* SPDX-License-Identifier: Apache-2.0
 *
 * inventoryd: config, start, wait for a signal, drain, stop.
 */
#include "cli.h"
#include "log.h"
#include "service.h"

#include "../lock/clock.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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

static void stop_service(struct service *service, int64_t ends_ns)
{
    pthread_t late;
    bool watched = pthread_create(&late, NULL, end_late, &ends_ns) == 0;
    service_stop(service);
    if (watched) {
        pthread_cancel(late);
        pthread_join(late, NULL);
    }
    log_event(LOG_INFO, "stopped", "all requests were answered");
    config_free(&service->config);
}

/* Settings that have no effect beside the others. They are no errors: a switch to `fenced` gives
 * the first one its effect, and configurations are edited one line at a time. */
static void log_unused(const struct config *config)
{
    if (config->lock_service[0] != '\0' && config->write != WRITE_FENCED)
        log_event(LOG_INFO, "no-effect",
                  "--lock-service has no effect until the write mode is fenced (--write, or PUT "
                  "/lock)");
    if (config->replicas > 0 && config->replicas_ack == DLOCK_REPLICAS_NONE)
        log_event(LOG_WARNING, "no-effect",
                  "--replicas %lld has no effect without --replicas-ack: no replica is asked",
                  (long long)config->replicas);
}

static int run_service(struct config *config)
{
    static struct service service;
    char error[SERVICE_ERROR_MAX], problem[OUTPUT_ERROR_MAX];
    sigset_t signals;
    int number = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    /* in all threads: only sigwait below receives them */
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);     /* a file at its size limit is like a full disk: write() fails */
    mallopt(M_ARENA_MAX, ARENAS); /* one arena a thread costs more memory than it saves time */
    log_setup((enum log_level)config->log_level, config->instance);
    int terminal = dup(STDERR_FILENO); /* for the reason if it does not start */
    if (config->log_file[0] != '\0' && !log_open(config->log_file, problem)) {
        fprintf(stderr, "inventoryd: --log-file: %s\n", problem);
        return 1;
    }
    const char *unknown = settings_unknown_variable();
    if (unknown != NULL)
        log_event(LOG_WARNING, "unknown-variable", "%s is no setting, see --help", unknown);
    if (!service_start(&service, config, error)) {
        dprintf(terminal, "inventoryd: %s\n", error);
        _exit(1);
    }
    close(terminal);
    const struct dlock_rung *rung = service.config.lock;
    log_unused(&service.config);
    log_event(LOG_INFO, "started",
              "inventoryd " DLOCK_VERSION ", --lock %s, --write %s, --replicas-ack %s%s%s",
              rung->name, write_ways[service.config.write].name,
              settings_word(&service.config, "replicas-ack"), rung->distributed ? ", lock on " : "",
              rung->distributed ? service.locks[lock_servers_role(rung)].all : "");
    while (sigwait(&signals, &number) == 0 && number == SIGHUP)
        service_reopen(&service);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, end_now);
    signal(SIGINT, end_now);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    log_event(LOG_INFO, "draining", "signal %d; a second one ends at once", number);
    const int64_t ends_ns = mono_deadline_ns(service.config.drain_ms);
    if (!service_drain(&service)) {
        log_event(LOG_ERROR, "stopped", "requests were still in flight after --drain-ms");
        _exit(1);
    }
    stop_service(&service, ends_ns);
    return 0;
}

int main(int argc, char **argv)
{
    struct config config;
    struct settings_request request;
    char error[SETTINGS_ERROR_MAX];
    int code = 2;
    if (!config_read(&config, &request, argc, argv, error))
        fprintf(stderr, "inventoryd: %s\n", error);
    else
        code = request.action == SETTINGS_RUN ? run_service(&config) : cli_act(&config, &request);
    config_free(&config);
    return code;
}
