/* SPDX-License-Identifier: Apache-2.0
 *
 * See settings_common.h. To add a setting: a field there, a row here.
 */
#include "settings_common.h"

#include "first_line.h"
#include "log.h"

#include <stddef.h>
#include <string.h>

#ifndef DEFAULT_LOCK
#define DEFAULT_LOCK "watchdog"
#endif

#define AT(field) offsetof(struct settings_common, field)

const struct settings_row settings_common[] = {
    {"listen", SETTING_ADDRESS, "host:port", "", "127.0.0.1:8000", 0, 0, AT(listen),
     "where clients are served; port 0 takes a free one"},
    {"admin-listen", SETTING_ADDRESS_OR_OFF, "host:port or off", "", "127.0.0.1:8001", 0, 0,
     AT(admin_listen),
     "where the admin listener listens, for operators: /readyz, /metrics and others"},
    {"instance", SETTING_NAME, "a name of letters, digits, . _ -", "", "a", 0, 32, AT(instance),
     "this instance's name in answers, histories and logs"},
    {"redis", SETTING_SERVER, SERVER_FORM, "", "redis://127.0.0.1:6379/0", 0, 0, AT(redis),
     "the Redis server of the locks and the data"},
    {"lock", SETTING_RUNG, "a rung", "", DEFAULT_LOCK, 0, 0, AT(lock),
     "the rung that guards the data"},
    {"workers", SETTING_NUMBER, "", "threads", "16", 1, 1024, AT(workers),
     "threads that serve requests"},
    {"queue", SETTING_NUMBER, "", "requests", "4096", 1, 1000000, AT(queue),
     "requests that may wait for a worker. More are answered 503"},
    {"wait-ms", SETTING_NUMBER, "", "ms", "20000", 1, 600000, AT(wait_ms),
     "how long a request may take from its arrival to acquire the lock"},
    {"ttl-ms", SETTING_NUMBER, "", "ms", "30000", 100, 86400000, AT(ttl_ms),
     "a lock's time to live"},
    {"retry-ms", SETTING_NUMBER, "", "ms", "20", 1, 60000, AT(retry_ms),
     "pause between two attempts, on rungs that poll"},
    {"redis-timeout-ms", SETTING_NUMBER, "", "ms", "1000", 1, 60000, AT(redis_timeout_ms),
     "to connect to Redis, and from a command to its reply"},
    {"connections", SETTING_NUMBER, "", "connections", "4096", 2, 100000, AT(connections),
     "HTTP connections at once. More wait until one ends, or until an idle one is closed"},
    {"request-ms", SETTING_NUMBER, "", "ms", "10000", 100, 600000, AT(request_ms),
     "how long a request may take to arrive, from its first byte. Its connection is closed after "
     "one to two times that. The same limit holds for the first byte of a new connection, and for "
     "a client that takes an answer"},
    {"history", SETTING_TEXT, "a file", "", "", 0, 4000, AT(history),
     "record what every request did, a JSON object a line. An existing file is continued, unless "
     "another instance writes it"},
    {"history-commands", SETTING_SWITCH, "off|on", "", "off", 0, 0, AT(history_commands),
     "record every command to Redis and its reply in the history, too"},
    {"history-required", SETTING_SWITCH, "off|on", "", "off", 0, 0, AT(history_required),
     "/readyz answers 503 while the history cannot be written, for instance on a full disk"},
    {"log-file", SETTING_TEXT, "a file", "", "", 0, 4000, AT(log_file),
     "write the log there, not to standard error. SIGHUP reopens the log and the history if they "
     "were moved"},
    {"run", SETTING_NAME, "a name of letters, digits, . _ -", "", "", 0, RUN_MAX, AT(run),
     "the run that is recorded"},
    {"admin-token-file", SETTING_TEXT, "a file", "", "", 0, 4000, AT(admin_token_file),
     "its first line, 16 to 128 visible characters, is the operators' token. Each PUT and POST on "
     "the admin listener must send it: Authorization: Bearer TOKEN. An admin listener beyond "
     "loopback needs it"},
    {"enable-failpoints", SETTING_SWITCH, "off|on", "", "off", 0, 0, AT(enable_failpoints),
     "for demonstrations: named points of the code may pause, delay, break or kill this process. "
     "See GET and PUT /failpoints"},
    {"failpoints", SETTING_TEXT, "POINT=ACTION;...", "", "", 0, 4000, AT(failpoints),
     "points that are set from the start, as in setnx.acquired=1*pause"},
    {"failpoint-files", SETTING_TEXT, "a folder", "", "", 0, 4000, AT(failpoint_files),
     "a file <folder>/<point> ends the pause at that point"},
    {"drain-ms", SETTING_NUMBER, "", "ms", "30000", 100, 600000, AT(drain_ms),
     "how long the requests in flight may take after SIGTERM"},
    {"log-level", SETTING_CHOICE, LOG_LEVELS, "", "info", 0, 0, AT(log_level),
     "the least important lines that are logged"},
    {"log-requests", SETTING_SWITCH, "off|on", "", "off", 0, 0, AT(log_requests),
     "log a line for every request"},
    {.flag = NULL},
};

bool settings_common_read_token(struct settings_common *common, char error[SETTINGS_ERROR_MAX])
{
    char token[TOKEN_MAX + 2]; /* one byte more, so that a line that is too long is noticed */
    const char *file = common->admin_token_file;
    if (file[0] == '\0')
        return true;
    if (!first_line_read("--admin-token-file", file, token, sizeof token, error))
        return false;
    if (!token_is_valid(token))
        return settings_wrong(
            error,
            "--admin-token-file: the first line of %s must be a token of %d to %d visible ASCII "
            "characters without spaces; openssl rand -hex 24 prints one",
            file, TOKEN_MIN, TOKEN_MAX);
    memcpy(common->admin_token, token, strlen(token) + 1);
    return true;
}

bool settings_common_fit(const struct settings_common *common, char error[SETTINGS_ERROR_MAX])
{
    if (common->history_required && common->history[0] == '\0')
        return settings_wrong(error, "--history-required needs a history: give --history FILE too");
    if (common->history_commands && common->history[0] == '\0')
        return settings_wrong(error, "--history-commands needs a history: give --history FILE too");
    if (!common->enable_failpoints &&
        (common->failpoints[0] != '\0' || common->failpoint_files[0] != '\0'))
        return settings_wrong(
            error, "--failpoints and --failpoint-files need --enable-failpoints: it lets "
                   "the points of this process pause, break or kill it");
    return true;
}
