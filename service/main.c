/* SPDX-License-Identifier: Apache-2.0
 *
 * inventoryd: the shop in the frame of a process.
 */
#include "log.h"
#include "process.h"
#include "service.h"

static struct config config; /* until the service has taken it over */
static struct service service;

/* Settings that have no effect beside the others. They are no errors: a switch to `fenced` gives
 * the first one its effect, and configurations are edited one line at a time. */
static void log_unused(const struct config *settings)
{
    if (settings->lock_service[0] != '\0' && settings->write != WRITE_FENCED)
        log_event(LOG_INFO, "no-effect",
                  "--lock-service has no effect until the write mode is fenced (--write, or PUT "
                  "/lock)");
    if (settings->replicas > 0 && settings->replicas_ack == DLOCK_REPLICAS_NONE)
        log_event(LOG_WARNING, "no-effect",
                  "--replicas %lld has no effect without --replicas-ack: no replica is asked",
                  (long long)settings->replicas);
}

static void log_started(void)
{
    const struct dlock_rung *rung = service.config.lock;
    log_event(LOG_INFO, "started",
              "inventoryd " DLOCK_VERSION ", --lock %s, --write %s, --replicas-ack %s%s%s",
              rung->name, write_ways[service.config.write].name,
              settings_word(&service.config, "replicas-ack"), rung->distributed ? ", lock on " : "",
              rung->distributed ? service.locks[lock_servers_role(rung)].all : "");
}

static bool main_read(void *to, struct settings_request *request, int argc, char **argv,
                      char error[SETTINGS_ERROR_MAX])
{
    return config_read(to, request, argc, argv, error);
}

static bool main_start(char error[PROCESS_ERROR_MAX])
{
    if (!service_start(&service, &config, error))
        return false;
    log_unused(&service.config);
    log_started();
    return true;
}

static void main_reopen(void)
{
    process_reopen(service.config.log_file, service.env.history);
}

static bool main_drain(void)
{
    return service_drain(&service);
}

static void main_stop(void)
{
    service_stop(&service);
}

static void main_free(void)
{
    config_free(&config);
    config_free(&service.config);
}

int main(int argc, char **argv)
{
    const struct process process = {.config = &config,
                                    .read = main_read,
                                    .start = main_start,
                                    .reopen = main_reopen,
                                    .drain = main_drain,
                                    .stop = main_stop,
                                    .free = main_free};
    return process_main(&process, argc, argv);
}
