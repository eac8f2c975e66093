/* SPDX-License-Identifier: Apache-2.0
 *
 * inventoryd: config, start, wait for a signal, drain, stop.
 */
#include "cli.h"
#include "log.h"
#include "service.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARENAS 4

/* The second signal: at once, with what a shell says of a process that a signal ended. */
static void end_now(int number)
{
    _exit(128 + number);
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
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* in all threads: only sigwait below sees them */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);     /* a file at its limit is as a full disk: write() says so */
    mallopt(M_ARENA_MAX, ARENAS); /* an arena a thread would cost more memory than it saves time */
    log_setup((enum log_level)config->log_level, config->instance);
    int terminal = dup(STDERR_FILENO); /* for why it did not start */
    if (config->log_file[0] != '\0' && !log_open(config->log_file, problem)) {
        fprintf(stderr, "inventoryd: --log-file: %s\n", problem);
        return 1;
    }
    const char *unknown = config_unknown_variable();
    if (unknown != NULL)
        log_event(LOG_WARNING, "unknown-variable", "%s is no setting, see --help", unknown);
    if (!service_start(&service, config, error)) {
        dprintf(terminal, "inventoryd: %s\n", error);
        _exit(1);
    }
    close(terminal);
    log_event(LOG_INFO, "started", "inventoryd " DLOCK_VERSION ", --lock %s, --write %s",
              service.config.lock->name, write_ways[service.config.write].name);
    while (sigwait(&signals, &number) == 0 && number == SIGHUP)
        service_reopen(&service);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, end_now);
    signal(SIGINT, end_now);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    log_event(LOG_INFO, "draining", "signal %d; a second one ends at once", number);
    if (!service_drain(&service)) {
        log_event(LOG_ERROR, "stopped", "requests were still in flight after --drain-ms");
        _exit(1);
    }
    log_event(LOG_INFO, "stopped", "all requests were answered");
    service_stop(&service);
    return 0;
}

int main(int argc, char **argv)
{
    struct config config;
    struct config_request request;
    char error[CONFIG_ERROR_MAX];
    int code = 2;
    if (!config_read(&config, &request, argc, argv, error))
        fprintf(stderr, "inventoryd: %s\n", error);
    else
        code = request.action == CONFIG_RUN ? run_service(&config) : cli_act(&config, &request);
    config_free(&config);
    return code;
}
