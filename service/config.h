/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of inventoryd. One table in config.c drives the flags, the environment variables,
 * --help, --print-config and GET /config. The table in the documentation is made from it, too.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include "admission.h"
#include "engines.h"
#include "segments.h"
#include "token.h"
#include "write.h"

#include <cjson/cJSON.h>
#include <dlock.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* In the order in which the table lists the values. */
enum key_style { KEYS_ITEM, KEYS_ARTICLE };
enum owner_style { OWNER_THREAD, OWNER_OBJECT };

#define LOCK_SERVERS_MAX 15

struct config {
    char *listen;
    char *admin_listen; /* "off": none */
    char *instance;
    char *redis;
    char *lock_redis;                  /* if not given: the value of redis */
    char *lock_servers;                /* as given, "": none; use lock_urls */
    char *lock_urls[LOCK_SERVERS_MAX]; /* those of Redis */
    size_t lock_url_count;             /* odd, 3 or more; 0: none were given */
    char *engine_urls[ENGINE_COUNT];   /* an ensemble's, by engine; NULL: not given */
    char *stock_redis;                 /* if not given: the value of redis */
    char *lock_service;                /* if not given: the addresses of the lock's servers */
    char *redis_password_file;
    char *sentinel_user; /* "": none */
    char *sentinel_password_file;
    char *sentinel_password;   /* that file's first line; "": none. Never printed */
    struct write_choice named; /* as given */
    const struct dlock_rung *lock;
    int write;        /* enum write_mode */
    int replicas_ack; /* enum dlock_replicas_ack */
    int64_t replicas;
    int on_conflict; /* enum on_conflict */
    bool local_first;
    struct segments segments;
    bool check_hold;
    bool guard_reads;
    struct admission admission;
    int keys; /* enum key_style */
    int64_t work_ms;
    int64_t workers;
    int64_t queue;
    int64_t wait_ms;
    int64_t queue_max;
    int64_t queue_life_ms;
    int64_t ttl_ms;
    int64_t retry_ms;
    int64_t contenders;
    int64_t handoff_max;
    int64_t handoff_ms;
    int64_t grant_ms;
    int64_t idempotency_ms;
    int64_t redis_timeout_ms;
    int64_t fail_fast_ms;
    int64_t connections;
    int64_t request_ms;
    int owner;     /* enum owner_style */
    char *history; /* "": none */
    bool history_commands;
    bool history_required;
    char *log_file; /* "": standard error */
    char *run;      /* "": none was named */
    bool admin_writes;
    char *admin_token_file;          /* "": none */
    char admin_token[TOKEN_MAX + 1]; /* that file's first line; "": none. Never printed */
    bool enable_failpoints;
    char *failpoints;      /* "": none */
    char *failpoint_files; /* "": none */
    int64_t drain_ms;
    bool log_requests;
    int log_level; /* enum log_level */
};

/* What the command line asks for. */
enum config_action {
    CONFIG_RUN,
    CONFIG_PRINT,
    CONFIG_PRINT_RUNGS,
    CONFIG_HELP,
    CONFIG_HELP_MARKDOWN,
    CONFIG_HELP_PROBLEMS,
    CONFIG_VERSION,
    CONFIG_HEALTHCHECK,
};

struct config_request {
    enum config_action action;
    const char *url; /* of CONFIG_HEALTHCHECK */
};

#define CONFIG_ERROR_MAX 1024

/* Defaults, then the environment, then the flags. False: error[] says what was wrong and what would
 * be right. Free the config in either case. */
bool config_read(struct config *config, struct config_request *request, int argc, char **argv,
                 char error[CONFIG_ERROR_MAX]);
void config_free(struct config *config);

/* Whether the config or the build lacks what the rung's locks need: servers, or an engine. The lack
 * is the end of a sentence that begins with the rung, and says what would be right. */
#define CONFIG_LACK_MAX 256
bool config_lacks(const struct config *config, const struct dlock_rung *rung,
                  char lack[CONFIG_LACK_MAX]);

/* An environment variable INVENTORYD_... that is no setting, perhaps a typo; NULL: there is
 * none. */
const char *config_unknown_variable(void);

/* The settings by name, without passwords. NULL when out of memory. */
cJSON *config_json(const struct config *config);
/* A setting that is one of a few words, in a buffer of the calling thread. flag: such a setting's,
 * without its "--". */
const char *config_word(const struct config *config, const char *flag);
void config_help(FILE *out);
void config_help_markdown(FILE *out);

/* Whether a text, such as "a" or "web-1", may be used as it is in headers, file names and JSON. */
bool config_is_name(const char *text, size_t size_max);

#endif
