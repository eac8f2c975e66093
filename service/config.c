/* SPDX-License-Identifier: Apache-2.0
 *
 * See config.h. To add a setting: a field there, a row here.
 */
#include "config.h"

#include "conflict.h"
#include "first_line.h"
#include "mode.h"
#include "stock.h"
#include "text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct config, field)
#define PASSWORD_MAX 512

const struct settings_row config_rows[] = {
    {.flag = "listen", .help = "where the shop listens; port 0 takes a free one"},
    {.flag = "admin-listen",
     .help = "where the admin listener listens, for operators: /readyz, /metrics, "
             "PUT /inventory/{item} and others"},
    {.flag = "instance"},
    {.flag = "redis", .help = "the Redis server of lock and stock"},
    {"lock-redis", SETTING_SERVER, SERVER_FORM, "", "", 0, 0, AT(lock_redis),
     "another server for the lock"},
    {"lock-servers", SETTING_OWN, "URL,URL,URL...: an odd number, 3 to 15, each as for --redis"
#define X(NAME, name, scheme, tls_scheme, example, package) ", or " example
#include "engines.def"
#undef X
     ,
     "", "", 0, 0, 0,
     "the servers of locks that are not kept on one Redis. --lock redlock needs independent Redis "
     "servers; a rung of another engine needs its ensemble. etcds:// is etcd over TLS, with "
     "?ca=FILE&cert=FILE&key=FILE. For switches between them the list may have several kinds. A "
     "comma begins a new URL only before a scheme"},
    {"stock-redis", SETTING_SERVER, SERVER_FORM, "", "", 0, 0, AT(stock_redis),
     "another server for the stock"},
    {"lock-service", SETTING_NAME, "a name of letters, digits, . _ -", "", "", 0, 64,
     AT(lock_service),
     "with --write fenced: what all instances call the lock's servers, if they reach them by "
     "different addresses. An instance with another name sells nothing. Give all of them "
     "sentinel://, or none. Not given: the address"},
    {"redis-password-file", SETTING_TEXT, "a file", "", "", 0, 4000, AT(redis_password_file),
     "its first line is the password for each server whose URL has none, as in redis://user:@host. "
     "A password in a URL can be seen in ps"},
    {"replicas-ack", SETTING_CHOICE, "none|one|majority|all", "", "none", 0, 0, AT(replicas_ack),
     "how many replicas must confirm each acquire, each renewal and a sale's write. With none they "
     "are not asked. With majority it is more than half of all servers, the master included"},
    {"replicas", SETTING_NUMBER, "", "replicas", "0", 0, 1000, AT(replicas),
     "how many replicas each Redis server has, those included that are down. --replicas-ack needs "
     "it, except with sentinel://. There it is a least number, and the sentinels know more"},
    {"sentinel-user", SETTING_TEXT, "a user", "", "", 0, PASSWORD_MAX, AT(sentinel_user),
     "the user of the sentinels themselves, with sentinel:// and --sentinel-password-file. The "
     "login in a URL is for Redis"},
    {"sentinel-password-file", SETTING_TEXT, "a file", "", "", 0, 4000, AT(sentinel_password_file),
     "its first line is the password of the sentinels themselves"},
    {"lock", SETTING_OWN, "a rung", "", DEFAULT_LOCK, 0, 0, 0,
     "the rung that guards a sale, or a name that means a rung and a write mode together"},
    {"write", SETTING_OWN, "a write mode", "", "", 0, 0, 0,
     "how a sale writes the stock. With decr: GET, then DECR. With set: GET, then SET. With "
     "atomic: one script. With cas: GET with a version, then one script that writes if the version "
     "is unchanged. With fenced or fenced_textbook: a DECR that is refused if its token is "
     "too old"},
    {"on-conflict", SETTING_CHOICE, CONFLICT_WORDS, "", "wait", 0, 0, AT(on_conflict),
     "what a sale does if another one has the lock. With wait: it waits for the lock, for "
     "--wait-ms at most. With fail: it makes one attempt, and is answered 503 lock-busy at once. "
     "With queue: each sale is answered 202 and put into its item's queue, which the instances "
     "process; needs --write atomic or fenced"},
    {"queue-max", SETTING_NUMBER, "", "sales", "100000", 1, 10000000, AT(queue_max),
     "with --on-conflict queue: sales that an item's queue may have. More are answered 503"},
    {"queue-life-ms", SETTING_NUMBER, "", "ms", "300000", 100, 86400000, AT(queue_life_ms),
     "with --on-conflict queue: how long an accepted sale may wait in the queue. After that its "
     "outcome is 503 deadline"},
    {"local-first", SETTING_SWITCH, "off|on", "", "off", 0, 0, AT(local_first),
     "the sales of this instance first wait for each other, and one of them contends for the lock: "
     "as --contenders 1, and PUT /lock can switch it"},
    {"check-hold", SETTING_SWITCH, "off|on", "", "off", 0, 0, AT(check_hold),
     "check before the write that the hold is still valid"},
    {"guard-reads", SETTING_SWITCH, "off|on", "", "off", 0, 0, AT(guard_reads),
     "GET /inventory/{item} reads under the lock: the rung's read lock if it has one, otherwise "
     "the lock of a sale"},
    {"admit", SETTING_OWN, ADMISSION_FORM, "", "off", 0, 0, 0,
     "how many sales of an item all instances together admit, by the clock of the stock's Redis. "
     "More are answered 429. RATE sales a second; BURST may come at once, by default as many as "
     "the stock was set to last. With window, FLAWED: a counter for each second, which admits "
     "twice the rate where two seconds meet"},
    {"segments", SETTING_OWN, SEGMENTS_FORM, "", "1", 0, 0, 0,
     "over how many keys an item's stock lies, each with a lock of its own. A sale that finds too "
     "few in its segment tries the others. With naive, FLAWED: it is told that nothing is left. "
     "PUT /inventory/{item} lays the stock so"},
    {"keys", SETTING_CHOICE, "item|article", "", "item", 0, 0, AT(keys),
     "inventory:{item} and lock:{item}, or the article's inventory and redisLock (item: phone)"},
    {"owner", SETTING_CHOICE, "thread|object", "", "thread", 0, 0, AT(owner),
     "the owner of a lock. With thread: one number for all that a sale acquires. With object, a "
     "mistake: a new number for each lock object"},
    {"work-ms", SETTING_NUMBER, "", "ms", "0", 0, 600000, AT(work_ms),
     "business between the read and the write of a sale"},
    {.flag = "workers", .help = "threads that run sales, each with a Redis connection of its own"},
    {.flag = "queue",
     .help =
         "requests that may wait for a worker, and sales that may wait for their lock. More are "
         "answered 503"},
    {.flag = "wait-ms", .help = "how long a sale may take from its arrival to acquire the lock"},
    {.flag = "ttl-ms"},
    {.flag = "retry-ms"},
    {"contenders", SETTING_NUMBER, "", "sales", "16", 1, 10000, AT(contenders),
     "sales of this instance that contend for one lock at a time, on rungs that poll and on "
     "ensembles. The others wait in the client's queue"},
    {"handoff-max", SETTING_NUMBER, "", "sales", "64", 1, 1000, AT(handoff_max),
     "with --lock fair: sales of this instance in a row before the next instance's turn"},
    {"handoff-ms", SETTING_NUMBER, "", "ms", "10", 1, 60000, AT(handoff_ms),
     "with --lock fair: the same limit as a time; at most a 20th of --ttl-ms"},
    {"grant-ms", SETTING_NUMBER, "", "ms", "200", 10, 60000, AT(grant_ms),
     "with --lock fair or read_write: how long an instance may take to claim the lock after the "
     "grant"},
    {"idempotency-ms", SETTING_NUMBER, "", "ms", "86400000", 100, 2592000000, AT(idempotency_ms),
     "how long the answer to a sale with an Idempotency-Key is stored beside the stock. It "
     "must be longer than --wait-ms, and than any buyer repeats a request"},
    {.flag = "redis-timeout-ms"},
    {"fail-fast-ms", SETTING_NUMBER, "", "ms", "500", 1, 600000, AT(fail_fast_ms),
     "after a Redis has been away for this time, waiting sales are answered 503. Until it is back, "
     "new sales are answered 503 at once"},
    {.flag = "connections"},
    {.flag = "request-ms"},
    {.flag = "history",
     .help =
         "record what every sale did, a JSON object a line. An existing file is continued, unless "
         "another instance writes it"},
    {.flag = "history-commands"},
    {.flag = "history-required"},
    {.flag = "log-file"},
    {.flag = "run", .help = "the run that is recorded, until PUT /lock names another"},
    {"admin-writes", SETTING_SWITCH, "off|on", "", "off", 0, 0, AT(admin_writes),
     "allow PUT /lock on the admin listener"},
    {.flag = "admin-token-file"},
    {.flag = "enable-failpoints"},
    {.flag = "failpoints"},
    {.flag = "failpoint-files"},
    {.flag = "drain-ms"},
    {.flag = "log-level"},
    {.flag = "log-requests"},
    {.flag = NULL},
};

/* ---- Lists of servers ------------------------------------------------------------------------ */

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
            if (store_server_is_same(config->lock_urls[i], config->lock_urls[j]))
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
                           char *url, char error[SETTINGS_ERROR_MAX])
{
    char **field = &config->engine_urls[engine - engines];
    char lack[CONFIG_LACK_MAX];
    const char *why = "";
    bool valid = false;
    say_not_built(engine, lack);
    if (engine->get == NULL)
        settings_wrong(error, "%s: %s %s", from, engine->scheme, lack);
    else if (*field != NULL)
        settings_wrong(error, "%s: %s is given twice; give one URL with all servers, as in %s",
                       from, engine->scheme, engine->example);
    else if (!(valid = settings_is_server(engine, url, &why)))
        settings_wrong(error, "%s: %s", from, why);
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
                     char error[SETTINGS_ERROR_MAX])
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
        if (has_comma || !settings_is_server(NULL, url, &why)) {
            const bool of_redis = is_of_redis(url);
            free(url);
            return settings_wrong(error, "%s: %s%s", from,
                                  has_comma
                                      ? "a comma is followed by no URL; give each server with "
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
        return settings_wrong(error, "out of memory");
    if ((count > 0 || (list[0] != '\0' && ensembles == 0)) &&
        (count < 3 || count % 2 == 0 || count > LOCK_SERVERS_MAX))
        return settings_wrong(error,
                              "%s: a majority needs an odd number of servers, 3 to %d, and %zu %s "
                              "given, as in redis://a,redis://b,redis://c",
                              from, LOCK_SERVERS_MAX, count, count == 1 ? "is" : "are");
    const char *twin = find_twin(config);
    if (twin == NULL)
        return true;
    char name[STOCK_SERVERS_MAX + 1];
    store_server_name(twin, name);
    return settings_wrong(
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

/* ---- Values of the shop's own ---------------------------------------------------------------- */

static bool parse_servers(void *config, const char *from, const char *value,
                          char error[SETTINGS_ERROR_MAX])
{
    return set_urls(config, from, value, error);
}

static void print_servers(const void *of, char *shown, size_t size)
{
    const struct config *config = of;
    shown[0] = '\0';
    for (size_t i = 0; i < config->lock_url_count; i++)
        text_join(shown, size, ",", text_without_logins(config->lock_urls[i]));
    for (size_t i = 0; i < ENGINE_COUNT; i++)
        if (config->engine_urls[i] != NULL)
            text_join(shown, size, ",", text_without_logins(config->engine_urls[i]));
}

static bool parse_lock(void *of, const char *from, const char *value,
                       char error[SETTINGS_ERROR_MAX])
{
    struct config *config = of;
    char names[WRITE_NAMES_MAX];
    write_lock_names(names);
    return write_find_lock(value, &config->named) ||
           settings_wrong(error, "%s: \"%s\" is no rung; the rungs are %s", from,
                          text_without_logins(value), names);
}

static void print_lock(const void *of, char *text, size_t size)
{
    const struct config *config = of;
    snprintf(text, size, "%s", config->lock->name);
}

static bool parse_write(void *of, const char *from, const char *value,
                        char error[SETTINGS_ERROR_MAX])
{
    struct config *config = of;
    char names[WRITE_NAMES_MAX];
    config->named.by_write = -1;
    write_names("|", names);
    return value[0] == '\0' || write_find(value, &config->named.by_write) ||
           settings_wrong(error, "%s: \"%s\" is not one of %s", from, text_without_logins(value),
                          names);
}

static void print_write(const void *of, char *text, size_t size)
{
    const struct config *config = of;
    snprintf(text, size, "%s", write_ways[config->write].name);
}

static void say_writes(char text[SETTINGS_VALUES_MAX])
{
    write_names("|", text);
}

static bool parse_admit(void *of, const char *from, const char *value,
                        char error[SETTINGS_ERROR_MAX])
{
    struct config *config = of;
    char why_not[ADMISSION_ERROR_MAX];
    return admission_parse(value, &config->admission, why_not) ||
           settings_wrong(error, "%s: %s", from, why_not);
}

static void print_admit(const void *of, char *text, size_t size)
{
    const struct config *config = of;
    char admit[ADMISSION_TEXT_MAX];
    admission_print(&config->admission, admit);
    snprintf(text, size, "%s", admit);
}

static bool parse_segments(void *of, const char *from, const char *value,
                           char error[SETTINGS_ERROR_MAX])
{
    struct config *config = of;
    char why_not[SEGMENTS_ERROR_MAX];
    return segments_parse(value, &config->segments, why_not) ||
           settings_wrong(error, "%s: %s", from, why_not);
}

static void print_segments(const void *of, char *text, size_t size)
{
    const struct config *config = of;
    char segments[SEGMENTS_TEXT_MAX];
    segments_print(&config->segments, segments);
    snprintf(text, size, "%s", segments);
}

const struct settings_own config_own[] = {
    {"lock-servers", parse_servers, print_servers, NULL, NULL},
    {"lock", parse_lock, print_lock, write_lock_names, NULL},
    {"write", parse_write, print_write, say_writes, "decr, or as --lock says"},
    {"admit", parse_admit, print_admit, NULL, NULL},
    {"segments", parse_segments, print_segments, NULL, NULL},
};

/* ---- Passwords ------------------------------------------------------------------------------- */

static bool read_password(const char *flag, const char *file, char password[PASSWORD_MAX + 2],
                          char error[SETTINGS_ERROR_MAX])
{
    if (!first_line_read(flag, file, password, PASSWORD_MAX + 2, error))
        return false;
    return (password[0] != '\0' && strlen(password) <= PASSWORD_MAX) ||
           settings_wrong(error, "%s: the first line of %s must be a password of 1 to %d bytes",
                          flag, file, PASSWORD_MAX);
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

static bool add_password(char **url, const char *password, char error[SETTINGS_ERROR_MAX])
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
        return settings_wrong(error, "out of memory");
    free(*url);
    *url = whole;
    return true;
}

static bool add_passwords(struct config *config, char error[SETTINGS_ERROR_MAX])
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

static bool read_sentinel_login(struct config *config, char error[SETTINGS_ERROR_MAX])
{
    char password[PASSWORD_MAX + 2] = "";
    const char *file = config->sentinel_password_file;
    if (file[0] != '\0' && !read_password("--sentinel-password-file", file, password, error))
        return false;
    if (file[0] == '\0' && config->sentinel_user[0] != '\0')
        return settings_wrong(error, "--sentinel-user needs --sentinel-password-file, too");
    return settings_set_text(&config->sentinel_password, password, error);
}

/* ---- All of it ------------------------------------------------------------------------------- */

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

bool config_read(struct config *config, struct settings_request *request, int argc, char **argv,
                 char error[SETTINGS_ERROR_MAX])
{
    char lack[CONFIG_LACK_MAX];
    *config = (struct config){0};
    if (!settings_read(config, request, argc, argv, error))
        return false;
    config->lock = config->named.rung;
    if (!write_settle(&config->named, WRITE_DECR, &config->write, error))
        return false;
    char unfit[CONFLICT_ERROR_MAX];
    if (!conflict_fits(config->on_conflict, config->write, config->enable_failpoints, unfit))
        return settings_wrong(error, "--on-conflict: %s", unfit);
    char apart[SEGMENTS_ERROR_MAX];
    if (!segments_fit(&config->segments, config->lock, config->write, config->on_conflict, apart))
        return settings_wrong(error, "--segments: %s", apart);
    if (config_lacks(config, config->lock, lack))
        return settings_wrong(error, "--lock %s %s", config->lock->name, lack);
    if (config->redis[0] == '\0')
        return settings_wrong(error, "--redis: a server's URL is missing; give %s", SERVER_FORM);
    if ((config->lock_redis[0] == '\0' &&
         !settings_set_text(&config->lock_redis, config->redis, error)) ||
        (config->stock_redis[0] == '\0' &&
         !settings_set_text(&config->stock_redis, config->redis, error)))
        return false;
    if (!add_passwords(config, error) || !read_sentinel_login(config, error) ||
        !settings_common_read_token(&config->common, error))
        return false;
    if (config->replicas_ack != DLOCK_REPLICAS_NONE && config->replicas == 0 &&
        !(is_of_sentinels(config->lock_redis) && is_of_sentinels(config->stock_redis)))
        return settings_wrong(error,
                              "--replicas-ack needs --replicas: give how many replicas the Redis "
                              "server has, those included that are down; only sentinels know that "
                              "themselves");
    if (config->idempotency_ms <= config->wait_ms)
        return settings_wrong(
            error,
            "--idempotency-ms %lld must be longer than --wait-ms %lld; otherwise the answer to a "
            "sale may expire while a second request with its key still waits, which would sell "
            "again",
            (long long)config->idempotency_ms, (long long)config->wait_ms);
    return settings_common_fit(&config->common, error);
}

void config_free(struct config *config)
{
    settings_free(config);
    free_urls(config);
    free(config->sentinel_password);
    *config = (struct config){0};
}
