/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a service's process: settings, log, signals; start, drain, stop. SIGTERM and SIGINT
 * drain it, a second one ends it at once, SIGHUP reopens its files.
 */
#ifndef PROCESS_H
#define PROCESS_H

#include "history.h"
#include "settings_common.h"

#define PROCESS_ERROR_MAX 512

/* What the service does at each stage. */
struct process {
    void *config; /* zeroed; it begins with the common settings */
    /* Reads the config. NULL: settings_read, and what is checked of common settings. */
    bool (*read)(void *config, struct settings_request *request, int argc, char **argv,
                 char error[SETTINGS_ERROR_MAX]);
    /* Starts all. False: error[] says why, and the process ends at once. */
    bool (*start)(char error[PROCESS_ERROR_MAX]);
    /* Continues files that were moved: see process_reopen. */
    void (*reopen)(void);
    /* Takes no more requests, and waits until those in flight are answered. False: --drain-ms was
     * not enough. */
    bool (*drain)(void);
    /* Frees all but the config. If it takes longer than --drain-ms, the process ends. */
    void (*stop)(void);
    /* Frees the config, whatever was called before. NULL: settings_free. */
    void (*free)(void);
};

/* Returns the exit code. */
int process_main(const struct process *process, int argc, char **argv);

/* Continues the log and the history in new files, if the old ones were moved or removed. log_file:
 * ""; history: NULL: there is none. */
void process_reopen(const char *log_file, struct history *history);

/* Raises the limit of descriptors. connections: --connections, and `with` what else needs some, for
 * the error. False: error[] says what would be right. */
bool process_raise_descriptors(int64_t needed, int64_t connections, const char *with,
                               char error[PROCESS_ERROR_MAX]);

#endif
