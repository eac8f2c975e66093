/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings that all services have. A service's config begins with them.
 */
#ifndef SETTINGS_COMMON_H
#define SETTINGS_COMMON_H

#include "settings.h"
#include "token.h"

#include <dlock.h>

#define RUN_MAX 64
#define SERVER_FORM                                                                                \
    "redis://[[user]:password@]host[:port][/db], unix:path or "                                    \
    "sentinel://[[user]:password@]host[:port],.../master[/db]"

/* So that a config may have them as members of its own, too. */
#define SETTINGS_COMMON_FIELDS                                                                     \
    char *listen;                                                                                  \
    char *admin_listen; /* "off": none */                                                          \
    char *instance;                                                                                \
    char *redis;                                                                                   \
    const struct dlock_rung *lock;                                                                 \
    int64_t workers;                                                                               \
    int64_t queue;                                                                                 \
    int64_t wait_ms;                                                                               \
    int64_t ttl_ms;                                                                                \
    int64_t retry_ms;                                                                              \
    int64_t redis_timeout_ms;                                                                      \
    int64_t connections;                                                                           \
    int64_t request_ms;                                                                            \
    char *history; /* "": none */                                                                  \
    bool history_commands;                                                                         \
    bool history_required;                                                                         \
    char *log_file;         /* "": standard error */                                               \
    char *run;              /* "": none was named */                                               \
    char *admin_token_file; /* "": none */                                                         \
    bool enable_failpoints;                                                                        \
    char *failpoints;      /* "": none */                                                          \
    char *failpoint_files; /* "": none */                                                          \
    int64_t drain_ms;                                                                              \
    int log_level; /* enum log_level */                                                            \
    bool log_requests;                                                                             \
    char admin_token[TOKEN_MAX + 1]; /* the file's first line; "": none. Never printed */
struct settings_common {
    SETTINGS_COMMON_FIELDS
};

extern const struct settings_row settings_common[]; /* ends with one without a flag */

/* Reads the token from its file. False: error[] says what is wrong with it. */
bool settings_common_read_token(struct settings_common *common, char error[SETTINGS_ERROR_MAX]);
/* Whether the common settings fit each other. False: error[] says what does not. */
bool settings_common_fit(const struct settings_common *common, char error[SETTINGS_ERROR_MAX]);

#endif
