/* SPDX-License-Identifier: Apache-2.0
 *
 * See config.h. To add a setting: a field there, a row here.
 */
#include "config.h"

#include "conflict.h"
#include "log.h"
#include "mode.h"
#include "net.h"
#include "stock.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef DEFAULT_LOCK
#define DEFAULT_LOCK "watchdog"
#endif

enum kind {
    TEXT,
    NAME,
    ADDRESS,
    ADDRESS_OR_OFF,
    SERVER,
    SERVERS,
    NUMBER,
    SWITCH,
    CHOICE,
    LOCK,
    WRITE,
    ADMIT,
    SEGMENTS
};

struct row {
    const char *flag;
    enum kind kind;
    const char *values; /* what may be given; for a CHOICE its words, divided by | */
    const char *unit;   /* or "" */
    const char *fallback;
    int64_t min, max;
    size_t offset;
    const char *help;
};

#define AT(field) offsetof(struct config, field)
#define PASSWORD_MAX 512
#define SERVER_FORM                                                                                \
    "redis://[[user]:password@]host[:port][/db], unix:path or "                                    \
    "sentinel://[[user]:password@]host[:port],.../master[/db]"

static const struct row rows[] = {
    {"listen", ADDRESS, "host:port", "", "127.0.0.1:8000", 0, 0, AT(listen),
     "where the shop listens; port 0 takes a free one"},
    {"admin-listen", ADDRESS_OR_OFF, "host:port or off", "", "127.0.0.1:8001", 0, 0,
     AT(admin_listen),
     "where the admin listener listens, for operators: /readyz, /metrics, PUT /inventory/{item} "
     "and others"},
    {"instance", NAME, "a name of letters, digits, . _ -", "", "a", 0, 32, AT(instance),
     "this instance's name in answers, histories and logs"},
    {"redis", SERVER, SERVER_FORM, "", "redis://127.0.0.1:6379/0", 0, 0, AT(redis),
     "the Redis server of lock and stock"},
    {"lock-redis", SERVER, SERVER_FORM, "", "", 0, 0, AT(lock_redis),
     "another server for the lock"},
    {"lock-servers", SERVERS, "URL,URL,URL...: an odd number, 3 to 15, each as for --redis"
#define X(NAME, name, scheme, tls_scheme, example, package) ", or " example
#include "engines.def"
#undef X
     ,
     "", "", 0, 0, AT(lock_servers),
     "the servers of locks that are not kept on one Redis. --lock redlock needs independent Redis "
     "servers; a rung of another engine needs its ensemble. etcds:// is etcd over TLS, with "
     "?ca=FILE&cert=FILE&key=FILE. For switches between them the list may have several kinds. A "
     "comma begins a new URL only before a scheme"},
    {"stock-redis", SERVER, SERVER_FORM, "", "", 0, 0, AT(stock_redis),
     "another server for the stock"},
    {"lock-service", NAME, "a name of letters, digits, . _ -", "", "", 0, 64, AT(lock_service),
     "with --write fenced: what all instances call the lock's servers, if they reach them by "
     "different addresses. An instance with another name sells nothing. Give all of them "
     "sentinel://, or none. Not given: the address"},
    {"redis-password-file", TEXT, "a file", "", "", 0, 4000, AT(redis_password_file),
     "its first line is the password for each server whose URL has none, as in redis://user:@host. "
     "A password in a URL can be seen in ps"},
    {"replicas-ack", CHOICE, "none|one|majority|all", "", "none", 0, 0, AT(replicas_ack),
     "how many replicas must confirm each acquire, each renewal and a sale's write. With none they "
     "are not asked. With majority it is more than half of all servers, the master included"},
    {"replicas", NUMBER, "", "replicas", "0", 0, 1000, AT(replicas),
     "how many replicas each Redis server has, those included that are down. --replicas-ack needs "
     "it, except with sentinel://. There it is a least number, and the sentinels know more"},
    {"sentinel-user", TEXT, "a user", "", "", 0, PASSWORD_MAX, AT(sentinel_user),
     "the user of the sentinels themselves, with sentinel:// and --sentinel-password-file. The "
     "login in a URL is for Redis"},
    {"sentinel-password-file", TEXT, "a file", "", "", 0, 4000, AT(sentinel_password_file),
     "its first line is the password of the sentinels themselves"},
    {"lock", LOCK, "a rung", "", DEFAULT_LOCK, 0, 0, AT(named.rung),
     "the rung that guards a sale, or a name that means a rung and a write mode together"},
    {"write", WRITE, "a write mode", "", "", 0, 0, AT(named.by_write),
     "how a sale writes the stock. With decr: GET, then DECR. With set: GET, then SET. With "
     "atomic: one script. With cas: GET with a version, then one script that writes if the version "
     "is unchanged. With fenced or fenced_textbook: a DECR that is refused if its token is "
     "too old"},
    {"on-conflict", CHOICE, CONFLICT_WORDS, "", "wait", 0, 0, AT(on_conflict),
     "what a sale does if another one has the lock. With wait: it waits for the lock, for "
     "--wait-ms at most. With fail: it makes one attempt, and is answered 503 lock-busy at once. "
     "With queue: each sale is answered 202 and put into its item's queue, which the instances "
     "process; needs --write atomic or fenced"},
    {"queue-max", NUMBER, "", "sales", "100000", 1, 10000000, AT(queue_max),
     "with --on-conflict queue: sales that an item's queue may have. More are answered 503"},
    {"queue-life-ms", NUMBER, "", "ms", "300000", 100, 86400000, AT(queue_life_ms),
     "with --on-conflict queue: how long an accepted sale may wait in the queue. After that its "
     "outcome is 503 deadline"},
    {"local-first", SWITCH, "off|on", "", "off", 0, 0, AT(local_first),
     "the sales of this instance first wait for each other, and one of them contends for the lock: "
     "as --contenders 1, and PUT /lock can switch it"},
    {"check-hold", SWITCH, "off|on", "", "off", 0, 0, AT(check_hold),
     "check before the write that the hold is still valid"},
    {"guard-reads", SWITCH, "off|on", "", "off", 0, 0, AT(guard_reads),
     "GET /inventory/{item} reads under the lock: the rung's read lock if it has one, otherwise "
     "the lock of a sale"},
    {"admit", ADMIT, ADMISSION_FORM, "", "off", 0, 0, AT(admission),
     "how many sales of an item all instances together admit, by the clock of the stock's Redis. "
     "More are answered 429. RATE sales a second; BURST may come at once, by default as many as "
     "the stock was set to last. With window, FLAWED: a counter for each second, which admits "
     "twice the rate where two seconds meet"},
    {"segments", SEGMENTS, SEGMENTS_FORM, "", "1", 0, 0, AT(segments),
     "over how many keys an item's stock lies, each with a lock of its own. A sale that finds too "
     "few in its segment tries the others. With naive, FLAWED: it is told that nothing is left. "
     "PUT /inventory/{item} lays the stock so"},
    {"keys", CHOICE, "item|article", "", "item", 0, 0, AT(keys),
     "inventory:{item} and lock:{item}, or the article's inventory and redisLock (item: phone)"},
    {"owner", CHOICE, "thread|object", "", "thread", 0, 0, AT(owner),
     "the owner of a lock. With thread: one number for all that a sale acquires. With object, a "
     "mistake: a new number for each lock object"},
    {"work-ms", NUMBER, "", "ms", "0", 0, 600000, AT(work_ms),
     "business between the read and the write of a sale"},
    {"workers", NUMBER, "", "threads", "16", 1, 1024, AT(workers),
     "threads that run sales, each with a Redis connection of its own"},
    {"queue", NUMBER, "", "requests", "4096", 1, 1000000, AT(queue),
     "requests that may wait for a worker, and sales that may wait for their lock. More are "
     "answered 503"},
    {"wait-ms", NUMBER, "", "ms", "20000", 1, 600000, AT(wait_ms),
     "how long a sale may take from its arrival to acquire the lock"},
    {"ttl-ms", NUMBER, "", "ms", "30000", 100, 86400000, AT(ttl_ms), "a lock's time to live"},
    {"retry-ms", NUMBER, "", "ms", "20", 1, 60000, AT(retry_ms),
     "pause between two attempts, on rungs that poll"},
    {"contenders", NUMBER, "", "sales", "16", 1, 10000, AT(contenders),
     "sales of this instance that contend for one lock at a time, on rungs that poll and on "
     "ensembles. The others wait in the client's queue"},
    {"handoff-max", NUMBER, "", "sales", "64", 1, 1000, AT(handoff_max),
     "with --lock fair: sales of this instance in a row before the next instance's turn"},
    {"handoff-ms", NUMBER, "", "ms", "10", 1, 60000, AT(handoff_ms),
     "with --lock fair: the same limit as a time; at most a 20th of --ttl-ms"},
    {"grant-ms", NUMBER, "", "ms", "200", 10, 60000, AT(grant_ms),
     "with --lock fair or read_write: how long an instance may take to claim the lock after the "
     "grant"},
    {"idempotency-ms", NUMBER, "", "ms", "86400000", 100, 2592000000, AT(idempotency_ms),
     "how long the answer to a sale with an Idempotency-Key is stored beside the stock. It "
     "must be longer than --wait-ms, and than any buyer repeats a request"},
    {"redis-timeout-ms", NUMBER, "", "ms", "1000", 1, 60000, AT(redis_timeout_ms),
     "to connect to Redis, and from a command to its reply"},
    {"fail-fast-ms", NUMBER, "", "ms", "500", 1, 600000, AT(fail_fast_ms),
     "after a Redis has been away for this time, waiting sales are answered 503. Until it is back, "
     "new sales are answered 503 at once"},
    {"connections", NUMBER, "", "connections", "4096", 2, 100000, AT(connections),
     "HTTP connections at once. More wait until one ends, or until an idle one is closed"},
    {"request-ms", NUMBER, "", "ms", "10000", 100, 600000, AT(request_ms),
     "how long a request may take to arrive, from its first byte. Its connection is closed after "
     "one to two times that. The same limit holds for the first byte of a new connection, and for "
     "a client that takes an answer"},
    {"history", TEXT, "a file", "", "", 0, 4000, AT(history),
     "record what every sale did, a JSON object a line. An existing file is continued, unless "
     "another instance writes it"},
    {"history-commands", SWITCH, "off|on", "", "off", 0, 0, AT(history_commands),
     "record every command to Redis and its reply in the history, too"},
    {"history-required", SWITCH, "off|on", "", "off", 0, 0, AT(history_required),
     "/readyz answers 503 while the history cannot be written, for instance on a full disk"},
    {"log-file", TEXT, "a file", "", "", 0, 4000, AT(log_file),
     "write the log there, not to standard error. SIGHUP reopens the log and the history if they "
     "were moved"},
    {"run", NAME, "a name of letters, digits, . _ -", "", "", 0, RUN_MAX, AT(run),
     "the run that is recorded, until PUT /lock names another"},
    {"admin-writes", SWITCH, "off|on", "", "off", 0, 0, AT(admin_writes),
     "allow PUT /lock on the admin listener"},
    {"admin-token-file", TEXT, "a file", "", "", 0, 4000, AT(admin_token_file),
     "its first line, 16 to 128 visible characters, is the operators' token. Each PUT and POST on "
     "the admin listener must send it: Authorization: Bearer TOKEN. An admin listener beyond "
     "loopback needs it"},
    {"enable-failpoints", SWITCH, "off|on", "", "off", 0, 0, AT(enable_failpoints),
     "for demonstrations: named points of the code may pause, delay, break or kill this process. "
     "See GET and PUT /failpoints"},
    {"failpoints", TEXT, "POINT=ACTION;...", "", "", 0, 4000, AT(failpoints),
     "points that are set from the start, as in setnx.acquired=1*pause"},
    {"failpoint-files", TEXT, "a folder", "", "", 0, 4000, AT(failpoint_files),
     "a file <folder>/<point> ends the pause at that point"},
    {"drain-ms", NUMBER, "", "ms", "30000", 100, 600000, AT(drain_ms),
     "how long the requests in flight may take after SIGTERM"},
    {"log-level", CHOICE, LOG_LEVELS, "", "info", 0, 0, AT(log_level),
     "the least important lines that are logged"},
    {"log-requests", SWITCH, "off|on", "", "off", 0, 0, AT(log_requests),
     "log a line for every request"},
};
#define ROWS (sizeof rows / sizeof rows[0])

struct action_row {
    const char *flag;
    const char *help;
};
static const struct action_row actions[] = {
    {"print-config", "print the settings as JSON and exit"},
    {"print-rungs", "print the locks and the ways to write as JSON and exit"},
    {"healthcheck URL", "GET the URL; exit 0 when it answers 200 within 3 s, else 1"},
    {"help", "print this and exit; --help=markdown, --help=problems: tables for the documentation"},
    {"version", "print the version and exit"},
};

static bool config_wrong(char error[CONFIG_ERROR_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool config_wrong(char error[CONFIG_ERROR_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, CONFIG_ERROR_MAX, format, args);
    va_end(args);
    return false;
}

/* ---- Values ---------------------------------------------------------------------------------- */

bool config_is_name(const char *text, size_t size_max)
{
    size_t size = strlen(text);
    if (size == 0 || size > size_max || !isalnum((unsigned char)text[0]))
        return false;
    for (const char *c = text; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            return false;
    return true;
}

static bool word_find(const char *words, const char *word, int *index)
{
    size_t size = strlen(word);
    *index = 0;
    for (const char *w = words; *w != '\0'; (*index)++) {
        size_t length = strcspn(w, "|");
        if (length == size && strncmp(w, word, size) == 0)
            return true;
        w += length + (w[length] == '|');
    }
    return false;
}

/* Word number `index` of words that are divided by |, in a buffer of the calling thread. */
static const char *word_at(const char *words, int index)
{
    static _Thread_local char word[32];
    for (; index > 0; index--)
        words += strcspn(words, "|") + 1;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(words, "|"), words);
    return word;
}

static bool set_text(char **field, const char *value)
{
    free(*field);
    *field = strdup(value);
    return *field != NULL;
}

static bool parse_number(const char *value, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(value, &end, 10);
    return isdigit((unsigned char)value[0]) && *end == '\0' && errno == 0;
}

/* The library knows which URLs are valid. Opening a client checks them, and connects to no server.
 * engine NULL: Redis'. */
static bool is_server_of(const struct engine *engine, const char *value, const char **why)
{
    struct dlock_options options = {.size = sizeof options,
                                    .servers = &value,
                                    .server_count = 1,
                                    .engine = engine != NULL ? engine->get() : NULL};
    dlock_client *client = NULL;
    bool valid = dlock_client_open(&options, &client) == DLOCK_OK;
    *why = valid ? "" : dlock_error();
    dlock_client_close(client);
    return valid;
}

static bool is_server(const char *value, const char **why)
{
    return is_server_of(NULL, value, why);
}

static bool is_of_sentinels(const char *url)
{
    return strncmp(url, "sentinel://", 11) == 0;
}

/* It begins with a scheme of Redis', also with one that the library refuses. */
static bool is_of_redis(const char *url)
{
    static const char *const schemes[] = {"redis://", "rediss://", "unix:", "sentinel://"};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
        if (strncmp(url, schemes[i], strlen(schemes[i])) == 0)
            return true;
    return false;
}

/* The length of the list's first URL. A comma begins the next one only before a scheme: a list of
 * sentinels and a password have commas of their own. */
static size_t first_url_size(const char *list)
{
    for (const char *comma = list; (comma = strchr(comma, ',')) != NULL; comma++)
        if (is_of_redis(comma + 1) || engine_of_url(comma + 1) != NULL)
            return (size_t)(comma - list);
    return strlen(list);
}

/* The next URL of the list, which the caller frees; moves *list behind it. NULL: there is no more,
 * or out of memory, which leaves *list at text. */
static char *next_url(const char **list)
{
    if (**list == '\0')
        return NULL;
    const size_t size = first_url_size(*list);
    char *url = strndup(*list, size);
    if (url != NULL)
        *list += size + ((*list)[size] == ',');
    return url;
}

static void free_urls(struct config *config)
{
    while (config->lock_url_count > 0)
        free(config->lock_urls[--config->lock_url_count]);
    for (size_t i = 0; i < ENGINE_COUNT; i++) {
        free(config->engine_urls[i]);
        config->engine_urls[i] = NULL;
    }
}

/* The URL of a server that is named twice, which would count as two; NULL: there is none. */
static const char *find_twin(const struct config *config)
{
    for (size_t i = 0; i < config->lock_url_count; i++)
        for (size_t j = 0; j < i; j++)
            if (stock_server_is_same(config->lock_urls[i], config->lock_urls[j]))
                return config->lock_urls[i];
    return NULL;
}

/* What was meant as another server's address would be taken for a part of the host. */
static bool has_comma_in_host(const char *url)
{
    const char *at = strrchr(url, '@');
    return strncmp(url, "redis://", 8) == 0 && strchr(at != NULL ? at : url, ',') != NULL;
}

static void say_not_built(const struct engine *engine, char text[CONFIG_LACK_MAX])
{
    snprintf(text, CONFIG_LACK_MAX,
             "needs an engine that this build does not have; build it with cmake -D %s=ON, which "
             "needs Debian's package %s",
             engine->option, engine->package);
}

/* Takes the URL of an ensemble. */
static bool set_engine_url(struct config *config, const struct engine *engine, const char *from,
                           char *url, char error[CONFIG_ERROR_MAX])
{
    char **field = &config->engine_urls[engine - engines];
    char lack[CONFIG_LACK_MAX];
    const char *why = "";
    bool valid = false;
    say_not_built(engine, lack);
    if (engine->get == NULL)
        config_wrong(error, "%s: %s %s", from, engine->scheme, lack);
    else if (*field != NULL)
        config_wrong(error, "%s: %s is given twice; give one URL with all servers, as in %s", from,
                     engine->scheme, engine->example);
    else if (!(valid = is_server_of(engine, url, &why)))
        config_wrong(error, "%s: %s", from, why);
    if (valid)
        *field = url;
    else
        free(url);
    return valid;
}

static const char or_ensembles[] = ""
#define X(NAME, name, scheme, tls_scheme, example, package) ", or " example
#include "engines.def"
#undef X
    ;

/* Reads the list into lock_urls and engine_urls. */
static bool set_urls(struct config *config, const char *from, const char *list,
                     char error[CONFIG_ERROR_MAX])
{
    const char *why, *rest = list;
    size_t count = 0, ensembles = 0;
    char *url;
    free_urls(config);
    while ((url = next_url(&rest)) != NULL) {
        const struct engine *engine = engine_of_url(url);
        if (engine != NULL) {
            if (!set_engine_url(config, engine, from, url, error))
                return false;
            ensembles++;
            continue;
        }
        const bool has_comma = has_comma_in_host(url);
        if (has_comma || !is_server(url, &why)) {
            const bool of_redis = is_of_redis(url);
            free(url);
            return config_wrong(error, "%s: %s%s", from,
                                has_comma ? "a comma is followed by no URL; give each server with "
                                            "its scheme and without blanks, as in "
                                            "redis://a,redis://b,redis://c"
                                          : why,
                                of_redis ? "" : or_ensembles);
        }
        if (config->lock_url_count < LOCK_SERVERS_MAX)
            config->lock_urls[config->lock_url_count++] = url;
        else
            free(url);
        count++;
    }
    if (*rest != '\0')
        return config_wrong(error, "out of memory");
    if ((count > 0 || (list[0] != '\0' && ensembles == 0)) &&
        (count < 3 || count % 2 == 0 || count > LOCK_SERVERS_MAX))
        return config_wrong(error,
                            "%s: a majority needs an odd number of servers, 3 to %d, and %zu %s "
                            "given, as in redis://a,redis://b,redis://c",
                            from, LOCK_SERVERS_MAX, count, count == 1 ? "is" : "are");
    const char *twin = find_twin(config);
    if (twin == NULL)
        return true;
    char name[STOCK_SERVERS_MAX + 1];
    stock_server_name(twin, name);
    return config_wrong(
        error,
        "%s: %s is given twice, and would count as two servers; give each one once, "
        "with one database",
        from, name);
}

static size_t scheme_size(const char *url)
{
    const struct engine *engine = engine_of_url(url);
    return engine != NULL                     ? engine_scheme_size(engine, url)
           : strncmp(url, "redis://", 8) == 0 ? 8
           : is_of_sentinels(url)             ? 11
           : strncmp(url, "unix://", 7) == 0  ? 7
                                              : 5;
}

/* from: "--lock" or "INVENTORYD_LOCK", for messages. */
static bool set_value(struct config *config, const struct row *row, const char *from,
                      const char *value, char error[CONFIG_ERROR_MAX])
{
    void *field = (char *)config + row->offset;
    char names[WRITE_NAMES_MAX], why_not[SEGMENTS_ERROR_MAX];
    const char *why, *shown = text_without_logins(value);
    int64_t number;
    int index;
    switch (row->kind) {
    case NUMBER:
        if (!parse_number(value, &number) || number < row->min || number > row->max)
            return config_wrong(error, "%s: \"%s\" is not a number from %lld to %lld (%s)", from,
                                shown, (long long)row->min, (long long)row->max, row->unit);
        *(int64_t *)field = number;
        return true;
    case SWITCH:
        if (!word_find("off|on", value, &index))
            return config_wrong(error, "%s: \"%s\" is neither \"on\" nor \"off\"", from, shown);
        *(bool *)field = index == 1;
        return true;
    case CHOICE:
        if (!word_find(row->values, value, &index))
            return config_wrong(error, "%s: \"%s\" is not one of %s", from, shown, row->values);
        *(int *)field = index;
        return true;
    case LOCK:
        write_lock_names(names);
        return write_find_lock(value, &config->named) ||
               config_wrong(error, "%s: \"%s\" is no rung; the rungs are %s", from, shown, names);
    case WRITE:
        config->named.by_write = -1;
        write_names("|", names);
        return value[0] == '\0' || write_find(value, &config->named.by_write) ||
               config_wrong(error, "%s: \"%s\" is not one of %s", from, shown, names);
    case ADMIT:
        return admission_parse(value, field, why_not) ||
               config_wrong(error, "%s: %s", from, why_not);
    case SEGMENTS:
        return segments_parse(value, field, why_not) ||
               config_wrong(error, "%s: %s", from, why_not);
    case NAME:
        if ((value[0] != '\0' || row->fallback[0] != '\0') &&
            !config_is_name(value, (size_t)row->max))
            return config_wrong(error, "%s: \"%s\" is not %s (at most %lld)", from, shown,
                                row->values, (long long)row->max);
        break;
    case ADDRESS:
    case ADDRESS_OR_OFF:
        if (!net_is_address(value) && (row->kind == ADDRESS || strcmp(value, "off") != 0))
            return config_wrong(error, "%s: \"%s\" is not %s, as in %s", from, shown, row->values,
                                row->fallback);
        break;
    case SERVER:
        if (engine_of_url(value) != NULL)
            return config_wrong(error,
                                "%s: %.*s begins the URL of an ensemble, which keeps only locks; "
                                "give it to --lock-servers",
                                from, (int)scheme_size(value), value);
        if (value[0] != '\0' && !is_server(value, &why))
            return config_wrong(error, "%s: %s", from, why);
        break;
    case SERVERS:
        if (!set_urls(config, from, value, error))
            return false;
        break;
    case TEXT:
        if (strlen(value) > (size_t)row->max)
            return config_wrong(error, "%s: longer than %lld bytes", from, (long long)row->max);
        break;
    }
    return set_text(field, value) || config_wrong(error, "out of memory");
}

/* ---- Where values come from ------------------------------------------------------------------ */

static void environment_name(const struct row *row, char name[64])
{
    int length = snprintf(name, 64, "INVENTORYD_%s", row->flag);
    for (int i = 0; i < length; i++)
        name[i] = name[i] == '-' ? '_' : (char)toupper((unsigned char)name[i]);
}

static bool read_defaults_and_environment(struct config *config, char error[CONFIG_ERROR_MAX])
{
    char name[64];
    for (size_t i = 0; i < ROWS; i++) {
        if (!set_value(config, &rows[i], rows[i].flag, rows[i].fallback, error))
            return false;
        environment_name(&rows[i], name);
        const char *value = getenv(name);
        if (value != NULL && !set_value(config, &rows[i], name, value, error))
            return false;
    }
    return true;
}

const char *config_unknown_variable(void)
{
    static char found[64];
    char name[64];
    for (char **variable = environ; *variable != NULL; variable++) {
        size_t size = strcspn(*variable, "=");
        bool known = strncmp(*variable, "INVENTORYD_", 11) != 0;
        for (size_t i = 0; i < ROWS && !known; i++) {
            environment_name(&rows[i], name);
            known = strlen(name) == size && strncmp(*variable, name, size) == 0;
        }
        if (!known) {
            snprintf(found, sizeof found, "%.*s", (int)size, *variable);
            return found;
        }
    }
    return NULL;
}

static const struct row *find_row(const char *flag, size_t size)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strlen(rows[i].flag) == size && strncmp(rows[i].flag, flag, size) == 0)
            return &rows[i];
    return NULL;
}

static bool unknown_flag(const char *argument, char error[CONFIG_ERROR_MAX])
{
    const size_t name = strcspn(argument, "="); /* what follows may be a password */
    int used = snprintf(error, CONFIG_ERROR_MAX, "%.*s is no flag of inventoryd; the flags are",
                        (int)(name < 300 ? name : 300), text_without_logins(argument));
    for (size_t i = 0; i < ROWS && used < CONFIG_ERROR_MAX; i++)
        used += snprintf(error + used, CONFIG_ERROR_MAX - (size_t)used, " --%s", rows[i].flag);
    if (used < CONFIG_ERROR_MAX)
        snprintf(error + used, CONFIG_ERROR_MAX - (size_t)used,
                 " --print-config --print-rungs --healthcheck --help --version");
    return false;
}

/* Reads a flag that asks for another action than running. False with an empty error[]: it is
 * none. */
static bool config_read_action(struct config_request *request, const char *name, const char *value,
                               const char *next, bool *took_next, char error[CONFIG_ERROR_MAX])
{
    error[0] = '\0';
    if (strcmp(name, "healthcheck") == 0) {
        *took_next = value == NULL;
        request->action = CONFIG_HEALTHCHECK;
        request->url = value != NULL ? value : next;
        return request->url != NULL ||
               config_wrong(error, "--healthcheck needs a URL, as in http://127.0.0.1:8001/livez");
    }
    if (strcmp(name, "help") == 0 && value != NULL) {
        request->action = CONFIG_HELP_MARKDOWN;
        if (strcmp(value, "problems") == 0)
            request->action = CONFIG_HELP_PROBLEMS;
        else if (strcmp(value, "markdown") != 0)
            return config_wrong(error, "--help: \"%s\" is not one of markdown, problems",
                                text_without_logins(value));
        return true;
    }
    if (value != NULL)
        return false;
    if (strcmp(name, "help") == 0)
        request->action = CONFIG_HELP;
    else if (strcmp(name, "version") == 0)
        request->action = CONFIG_VERSION;
    else if (strcmp(name, "print-config") == 0)
        request->action = CONFIG_PRINT;
    else if (strcmp(name, "print-rungs") == 0)
        request->action = CONFIG_PRINT_RUNGS;
    else
        return false;
    return true;
}

/* Reads one argument, and the next one if that is its value. Moves *at past what it read. */
static bool read_argument(struct config *config, struct config_request *request, char **argv,
                          int *at, char error[CONFIG_ERROR_MAX])
{
    const char *argument = argv[(*at)++];
    const char *next = argv[*at];
    bool took_next = false;
    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
        return config_wrong(error, "\"%s\" is not a flag: flags begin with --, see --help",
                            text_without_logins(argument));
    const char *flag = argument + 2;
    const char *equals = strchr(flag, '=');
    size_t size = equals != NULL ? (size_t)(equals - flag) : strlen(flag);
    const char *value = equals != NULL ? equals + 1 : NULL;
    char name[64];
    snprintf(name, sizeof name, "--%.*s", (int)size, flag);
    const struct row *row = find_row(flag, size);
    if (row == NULL) {
        bool done = config_read_action(request, name + 2, value, next, &took_next, error);
        *at += took_next && next != NULL;
        return done || (error[0] == '\0' ? unknown_flag(argument, error) : false);
    }
    if (value == NULL && row->kind == SWITCH) {
        /* "--admin-writes" alone means on; in "--check-hold off" the next argument is the value. */
        took_next = next != NULL && strncmp(next, "--", 2) != 0;
        value = took_next ? next : "on";
    } else if (value == NULL) {
        if (next == NULL)
            return config_wrong(error, "%s needs a value: %s", name,
                                row->values[0] != '\0' ? row->values : row->unit);
        took_next = true;
        value = next;
    }
    *at += took_next;
    return set_value(config, row, name, value, error);
}

/* Reads the file's first line, cut to fit. */
static bool read_first_line(const char *flag, const char *file, char *line, int size,
                            char error[CONFIG_ERROR_MAX])
{
    const char *shown = text_without_logins(file);
    struct stat status;
    /* Without O_NONBLOCK, open() would wait for the writer of a FIFO. */
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (in == NULL)
        return config_wrong(error, "%s: %s: %s", flag, shown, strerror(errno));
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        fclose(in);
        return config_wrong(error, "%s: %s is no regular file; name one", flag, shown);
    }
    int c, count = 0;
    while (count < size - 1 && (c = getc(in)) != EOF && c != '\r' && c != '\n')
        line[count++] = (char)c;
    line[count] = '\0';
    int reason = ferror(in) ? errno : 0;
    fclose(in);
    if (reason != 0)
        return config_wrong(error, "%s: %s: %s", flag, shown, strerror(reason));
    return memchr(line, '\0', (size_t)count) == NULL ||
           config_wrong(error,
                        "%s: the first line of %s has a NUL byte in it; write it anew, as text",
                        flag, shown);
}

static bool read_password(const char *flag, const char *file, char password[PASSWORD_MAX + 2],
                          char error[CONFIG_ERROR_MAX])
{
    if (!read_first_line(flag, file, password, PASSWORD_MAX + 2, error))
        return false;
    return (password[0] != '\0' && strlen(password) <= PASSWORD_MAX) ||
           config_wrong(error, "%s: the first line of %s must be a password of 1 to %d bytes", flag,
                        file, PASSWORD_MAX);
}

static bool read_token(struct config *config, char error[CONFIG_ERROR_MAX])
{
    char token[TOKEN_MAX + 2]; /* one byte more, so that a line that is too long is noticed */
    const char *file = config->admin_token_file;
    if (file[0] == '\0')
        return true;
    if (!read_first_line("--admin-token-file", file, token, sizeof token, error))
        return false;
    if (!token_is_valid(token))
        return config_wrong(
            error,
            "--admin-token-file: the first line of %s must be a token of %d to %d visible ASCII "
            "characters without spaces; openssl rand -hex 24 prints one",
            file, TOKEN_MIN, TOKEN_MAX);
    memcpy(config->admin_token, token, strlen(token) + 1);
    return true;
}

/* Finds where in the URL a password belongs. *login: the URL has the : and @ around it already.
 * False: the URL needs no password. */
static bool place_of_password(const char *url, size_t *place, bool *login)
{
    size_t scheme = scheme_size(url);
    const char *at = memrchr(url + scheme, '@', strcspn(url + scheme, "/"));
    *login = at != NULL;
    *place = at != NULL ? (size_t)(at - url) : scheme;
    return at == NULL || at[-1] == ':';
}

static bool add_password(char **url, const char *password, char error[CONFIG_ERROR_MAX])
{
    char encoded[3 * PASSWORD_MAX + 1] = "";
    size_t place;
    bool login;
    char *whole;
    if (!place_of_password(*url, &place, &login))
        return true;
    for (size_t i = 0; password[i] != '\0'; i++)
        snprintf(encoded + 3 * i, 4, "%%%02X", (unsigned char)password[i]);
    if (asprintf(&whole, "%.*s%s%s%s%s", (int)place, *url, login ? "" : ":", encoded,
                 login ? "" : "@", *url + place) < 0)
        return config_wrong(error, "out of memory");
    free(*url);
    *url = whole;
    return true;
}

static bool add_passwords(struct config *config, char error[CONFIG_ERROR_MAX])
{
    char password[PASSWORD_MAX + 2] = "";
    if (config->redis_password_file[0] == '\0')
        return true;
    bool added =
        read_password("--redis-password-file", config->redis_password_file, password, error) &&
        add_password(&config->redis, password, error) &&
        add_password(&config->lock_redis, password, error) &&
        add_password(&config->stock_redis, password, error);
    for (size_t i = 0; i < config->lock_url_count && added; i++)
        added = add_password(&config->lock_urls[i], password, error);
    return added;
}

static bool read_sentinel_login(struct config *config, char error[CONFIG_ERROR_MAX])
{
    char password[PASSWORD_MAX + 2] = "";
    const char *file = config->sentinel_password_file;
    if (file[0] != '\0' && !read_password("--sentinel-password-file", file, password, error))
        return false;
    if (file[0] == '\0' && config->sentinel_user[0] != '\0')
        return config_wrong(error, "--sentinel-user needs --sentinel-password-file, too");
    return set_text(&config->sentinel_password, password) || config_wrong(error, "out of memory");
}

bool config_lacks(const struct config *config, const struct dlock_rung *rung,
                  char lack[CONFIG_LACK_MAX])
{
    const struct engine *engine = engine_of_rung(rung);
    if (engine != NULL && engine->get == NULL)
        say_not_built(engine, lack);
    else if (engine != NULL && config->engine_urls[engine - engines] == NULL)
        snprintf(lack, CONFIG_LACK_MAX,
                 "keeps its lock on an ensemble, and --lock-servers names none with %s: start it "
                 "with --lock-servers %s",
                 engine->scheme, engine->example);
    else if (rung->quorum && config->lock_url_count == 0)
        snprintf(lack, CONFIG_LACK_MAX,
                 "keeps its lock on several independent Redis servers, and --lock-servers names "
                 "none: start it with --lock-servers URL,URL,URL");
    else
        return false;
    return true;
}

bool config_read(struct config *config, struct config_request *request, int argc, char **argv,
                 char error[CONFIG_ERROR_MAX])
{
    char lack[CONFIG_LACK_MAX];
    *config = (struct config){0};
    *request = (struct config_request){.action = CONFIG_RUN};
    if (!read_defaults_and_environment(config, error))
        return false;
    for (int at = 1; at < argc;)
        if (!read_argument(config, request, argv, &at, error))
            return false;
    config->lock = config->named.rung;
    if (!write_settle(&config->named, WRITE_DECR, &config->write, error))
        return false;
    char unfit[CONFLICT_ERROR_MAX];
    if (!conflict_fits(config->on_conflict, config->write, config->enable_failpoints, unfit))
        return config_wrong(error, "--on-conflict: %s", unfit);
    char apart[SEGMENTS_ERROR_MAX];
    if (!segments_fit(&config->segments, config->lock, config->write, config->on_conflict, apart))
        return config_wrong(error, "--segments: %s", apart);
    if (config_lacks(config, config->lock, lack))
        return config_wrong(error, "--lock %s %s", config->lock->name, lack);
    if (config->redis[0] == '\0')
        return config_wrong(error, "--redis: a server's URL is missing; give %s", SERVER_FORM);
    if ((config->lock_redis[0] == '\0' && !set_text(&config->lock_redis, config->redis)) ||
        (config->stock_redis[0] == '\0' && !set_text(&config->stock_redis, config->redis)))
        return config_wrong(error, "out of memory");
    if (!add_passwords(config, error) || !read_sentinel_login(config, error) ||
        !read_token(config, error))
        return false;
    if (config->replicas_ack != DLOCK_REPLICAS_NONE && config->replicas == 0 &&
        !(is_of_sentinels(config->lock_redis) && is_of_sentinels(config->stock_redis)))
        return config_wrong(error,
                            "--replicas-ack needs --replicas: give how many replicas the Redis "
                            "server has, those included that are down; only sentinels know that "
                            "themselves");
    if (config->idempotency_ms <= config->wait_ms)
        return config_wrong(
            error,
            "--idempotency-ms %lld must be longer than --wait-ms %lld; otherwise the answer to a "
            "sale may expire while a second request with its key still waits, which would sell "
            "again",
            (long long)config->idempotency_ms, (long long)config->wait_ms);
    if (config->history_required && config->history[0] == '\0')
        return config_wrong(error, "--history-required needs a history: give --history FILE too");
    if (config->history_commands && config->history[0] == '\0')
        return config_wrong(error, "--history-commands needs a history: give --history FILE too");
    if (!config->enable_failpoints &&
        (config->failpoints[0] != '\0' || config->failpoint_files[0] != '\0'))
        return config_wrong(error,
                            "--failpoints and --failpoint-files need --enable-failpoints: it lets "
                            "the points of this process pause, break or kill it");
    return true;
}

void config_free(struct config *config)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind <= SERVERS)
            free(*(char **)((char *)config + rows[i].offset));
    free_urls(config);
    free(config->sentinel_password);
    *config = (struct config){0};
}

/* ---- Printing -------------------------------------------------------------------------------- */

const char *config_word(const struct config *config, const char *flag)
{
    const struct row *row = find_row(flag, strlen(flag));
    return word_at(row->values, *(const int *)(const void *)((const char *)config + row->offset));
}

static void hide_logins(const struct config *config, char *shown, size_t size)
{
    shown[0] = '\0';
    for (size_t i = 0; i < config->lock_url_count; i++)
        text_join(shown, size, ",", text_without_logins(config->lock_urls[i]));
    for (size_t i = 0; i < ENGINE_COUNT; i++)
        if (config->engine_urls[i] != NULL)
            text_join(shown, size, ",", text_without_logins(config->engine_urls[i]));
}

cJSON *config_json(const struct config *config)
{
    cJSON *json = cJSON_CreateObject();
    for (size_t i = 0; i < ROWS && json != NULL; i++) {
        const void *field = (const char *)config + rows[i].offset;
        const char *flag = rows[i].flag;
        char name[64], shown[4096], admit[ADMISSION_TEXT_MAX], segments[SEGMENTS_TEXT_MAX];
        snprintf(name, sizeof name, "%s", flag);
        for (char *c = name; *c != '\0'; c++)
            if (*c == '-')
                *c = '_';
        switch (rows[i].kind) {
        case NUMBER:
            cJSON_AddNumberToObject(json, name, (double)*(const int64_t *)field);
            break;
        case SWITCH:
            cJSON_AddBoolToObject(json, name, *(const bool *)field);
            break;
        case CHOICE:
            cJSON_AddStringToObject(json, name, word_at(rows[i].values, *(const int *)field));
            break;
        case LOCK:
            cJSON_AddStringToObject(json, name, config->lock->name);
            break;
        case WRITE:
            cJSON_AddStringToObject(json, name, write_ways[config->write].name);
            break;
        case ADMIT:
            admission_print(field, admit);
            cJSON_AddStringToObject(json, name, admit);
            break;
        case SEGMENTS:
            segments_print(field, segments);
            cJSON_AddStringToObject(json, name, segments);
            break;
        case SERVER:
            cJSON_AddStringToObject(json, name, text_without_logins(*(char *const *)field));
            break;
        case SERVERS:
            hide_logins(config, shown, sizeof shown);
            cJSON_AddStringToObject(json, name, shown);
            break;
        default:
            cJSON_AddStringToObject(json, name, *(char *const *)field);
        }
    }
    return json;
}

/* Describes for a reader which values may be given. */
static void describe_values(const struct row *row, char text[WRITE_NAMES_MAX])
{
    if (row->kind == NUMBER)
        snprintf(text, WRITE_NAMES_MAX, "%lld to %lld", (long long)row->min, (long long)row->max);
    else if (row->kind == LOCK)
        write_lock_names(text);
    else if (row->kind == WRITE)
        write_names("|", text);
    else
        snprintf(text, WRITE_NAMES_MAX, "%s", row->values);
}

static const char *shown_default(const struct row *row)
{
    if (row->fallback[0] != '\0')
        return row->fallback;
    return row->kind == SERVER  ? "as --redis"
           : row->kind == WRITE ? "decr, or as --lock says"
                                : "none";
}

void config_help(FILE *out)
{
    fprintf(out, "inventoryd sells items of a stock in Redis, each sale under a lock.\n\n"
                 "usage: inventoryd [--flag VALUE | --flag=VALUE]...\n\n"
                 "A setting NAME is also read from the environment variable INVENTORYD_NAME\n"
                 "(--work-ms: INVENTORYD_WORK_MS); the flag wins.\n\n");
    for (size_t i = 0; i < ROWS; i++) {
        char values[WRITE_NAMES_MAX];
        describe_values(&rows[i], values);
        fprintf(out, "  --%s\n      %s\n      %s%s%s; default %s\n", rows[i].flag, rows[i].help,
                values, rows[i].unit[0] != '\0' ? " " : "", rows[i].unit, shown_default(&rows[i]));
    }
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        fprintf(out, "  --%s\n      %s\n", actions[i].flag, actions[i].help);
}

/* Prints a cell of a Markdown table. A | would end the cell, so it is escaped. */
static void print_cell(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fprintf(out, *text == '|' ? "\\|" : "%c", *text);
}

void config_help_markdown(FILE *out)
{
    fprintf(out, "| flag | environment variable | values | unit | default | what it does |\n"
                 "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < ROWS; i++) {
        char name[64], values[WRITE_NAMES_MAX];
        environment_name(&rows[i], name);
        describe_values(&rows[i], values);
        fprintf(out, "| `--%s` | `%s` | ", rows[i].flag, name);
        print_cell(out, values);
        fprintf(out, " | %s | `%s` | ", rows[i].unit, shown_default(&rows[i]));
        print_cell(out, rows[i].help);
        fprintf(out, " |\n");
    }
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        fprintf(out, "| `--%s` | | | | | %s |\n", actions[i].flag, actions[i].help);
}
