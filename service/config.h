/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of inventoryd: those of every service, and the shop's.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include "admission.h"
#include "segments.h"
#include "settings_common.h"
#include "write.h"

/* In the order in which the table lists the values. */
enum key_style { KEYS_ITEM, KEYS_ARTICLE };
enum owner_style { OWNER_THREAD, OWNER_OBJECT };

#define LOCK_SERVERS_MAX 15

struct config {
    union {
        struct settings_common common;
        struct {
            SETTINGS_COMMON_FIELDS
        };
    };
    char *lock_redis;                  /* if not given: the value of redis */
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
    int write;                 /* enum write_mode */
    int replicas_ack;          /* enum dlock_replicas_ack */
    int64_t replicas;
    int on_conflict; /* enum on_conflict */
    bool local_first;
    struct segments segments;
    bool check_hold;
    bool guard_reads;
    struct admission admission;
    int keys; /* enum key_style */
    int64_t work_ms;
    int64_t queue_max;
    int64_t queue_life_ms;
    int64_t contenders;
    int64_t handoff_max;
    int64_t handoff_ms;
    int64_t grant_ms;
    int64_t idempotency_ms;
    int64_t fail_fast_ms;
    int owner; /* enum owner_style */
    bool admin_writes;
};

extern const struct settings_row config_rows[];
extern const struct settings_own config_own[];

/* As settings_read, and whether the settings fit each other. Free the config in either case. */
bool config_read(struct config *config, struct settings_request *request, int argc, char **argv,
                 char error[SETTINGS_ERROR_MAX]);
void config_free(struct config *config);

/* Whether the config or the build lacks what the rung's locks need: servers, or an engine. The lack
 * is the end of a sentence that begins with the rung, and says what would be right. */
#define CONFIG_LACK_MAX 256
bool config_lacks(const struct config *config, const struct dlock_rung *rung,
                  char lack[CONFIG_LACK_MAX]);

#endif
