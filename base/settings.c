/* SPDX-License-Identifier: Apache-2.0
 *
 * See settings.h.
 */
#include "settings.h"

#include "net.h"
#include "program.h"
#include "settings_common.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_MAX 96

static const struct settings_flag flags_before[] = {
    {"print-config", "print the settings as JSON and exit", NULL},
    {.flag = NULL},
};
static const struct settings_flag flags_behind[] = {
    {"healthcheck URL", "GET the URL; exit 0 when it answers 200 within 3 s, else 1", NULL},
    {"help", "print this and exit; --help=markdown, --help=problems: tables for the documentation",
     NULL},
    {"version", "print the version and exit", NULL},
    {.flag = NULL},
};

/* ---- The table ------------------------------------------------------------------------------- */

static struct settings_row rows[ROWS_MAX]; /* the last one that is used has no flag */
static size_t row_count;
static pthread_once_t merged = PTHREAD_ONCE_INIT;

static const struct settings_row *find_among(const struct settings_row *among, const char *flag,
                                             size_t size)
{
    for (; among != NULL && among->flag != NULL; among++)
        if (strlen(among->flag) == size && strncmp(among->flag, flag, size) == 0)
            return among;
    return NULL;
}

/* The common row that the service's one is about, with what is said there. */
static struct settings_row complete_row(const struct settings_row *own)
{
    struct settings_row row = *find_among(settings_common, own->flag, strlen(own->flag));
    if (own->fallback != NULL)
        row.fallback = own->fallback;
    if (own->help != NULL)
        row.help = own->help;
    return row;
}

/* The common rows that the service does not name, then the service's. */
static void merge_rows(void)
{
    const struct settings_row *row, *own = program.settings.rows;
    for (row = settings_common; row->flag != NULL; row++)
        if (find_among(own, row->flag, strlen(row->flag)) == NULL)
            rows[row_count++] = *row;
    for (row = own; row != NULL && row->flag != NULL && row_count < ROWS_MAX - 1; row++)
        rows[row_count++] = row->kind == SETTING_COMMON ? complete_row(row) : *row;
}

/* The n-th row; NULL: there are no more. */
static const struct settings_row *row_at(size_t n)
{
    pthread_once(&merged, merge_rows);
    return n < row_count ? &rows[n] : NULL;
}

static const struct settings_row *find_row(const char *flag, size_t size)
{
    pthread_once(&merged, merge_rows);
    return find_among(rows, flag, size);
}

/* Of a SETTING_OWN. */
static const struct settings_own *own_of(const struct settings_row *row)
{
    const struct settings_own *own = program.settings.own;
    while (strcmp(own->flag, row->flag) != 0)
        own++;
    return own;
}

/* The n-th flag that asks for another action than running, in the order of --help; NULL: there are
 * no more. */
static const struct settings_flag *flag_at(size_t n)
{
    const struct settings_flag *const lists[] = {flags_before, program.settings.flags,
                                                 flags_behind};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct settings_flag *flag = lists[i]; flag != NULL && flag->flag != NULL;
             flag++)
            if (n-- == 0)
                return flag;
    return NULL;
}

/* Whether its value is an allocated text. */
static bool is_text(const struct settings_row *row)
{
    return row->kind >= SETTING_TEXT && row->kind <= SETTING_SERVER;
}

static const void *settings_field(const void *config, const struct settings_row *row)
{
    return (const char *)config + row->offset;
}

bool settings_wrong(char error[SETTINGS_ERROR_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, SETTINGS_ERROR_MAX, format, args);
    va_end(args);
    return false;
}

/* ---- Values ---------------------------------------------------------------------------------- */

bool settings_is_name(const char *text, size_t size_max)
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

bool settings_set_text(char **field, const char *value, char error[SETTINGS_ERROR_MAX])
{
    free(*field);
    *field = strdup(value);
    return *field != NULL || settings_wrong(error, "out of memory");
}

static bool parse_number(const char *value, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(value, &end, 10);
    return isdigit((unsigned char)value[0]) && *end == '\0' && errno == 0;
}

/* The library knows which URLs are valid: opening a client checks them, and connects nowhere. */
bool settings_is_server(const struct engine *engine, const char *url, const char **why)
{
    struct dlock_options options = {.size = sizeof options,
                                    .servers = &url,
                                    .server_count = 1,
                                    .engine = engine != NULL ? engine->get() : NULL};
    dlock_client *client = NULL;
    bool valid = dlock_client_open(&options, &client) == DLOCK_OK;
    *why = valid ? "" : dlock_error();
    dlock_client_close(client);
    return valid;
}

static void name_rungs(char text[SETTINGS_VALUES_MAX])
{
    size_t count;
    const struct dlock_rung *all = dlock_rungs(&count);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        text_join(text, SETTINGS_VALUES_MAX, ", ", all[i].name);
}

/* An ensemble keeps no data. */
static bool check_server(const char *from, const char *value, char error[SETTINGS_ERROR_MAX])
{
    static const char servers[] = "lock-servers";
    const struct engine *engine = engine_of_url(value);
    const char *why;
    if (engine != NULL)
        return settings_wrong(error,
                              "%s: %.*s begins the URL of an ensemble, which keeps only "
                              "locks; %s",
                              from, (int)engine_scheme_size(engine, value), value,
                              find_row(servers, strlen(servers)) != NULL
                                  ? "give it to --lock-servers"
                                  : "give the URL of a Redis server");
    return value[0] == '\0' || settings_is_server(NULL, value, &why) ||
           settings_wrong(error, "%s: %s", from, why);
}

/* Whether the text may be the row's value. */
static bool check_text(const struct settings_row *row, const char *from, const char *value,
                       char error[SETTINGS_ERROR_MAX])
{
    const char *shown = text_without_logins(value);
    const bool may_be_empty = row->fallback[0] == '\0';
    switch (row->kind) {
    case SETTING_NAME:
        return (value[0] == '\0' && may_be_empty) || settings_is_name(value, (size_t)row->max) ||
               settings_wrong(error, "%s: \"%s\" is not %s (at most %lld)", from, shown,
                              row->values, (long long)row->max);
    case SETTING_ADDRESS:
    case SETTING_ADDRESS_OR_OFF:
        return net_is_address(value) ||
               (row->kind == SETTING_ADDRESS_OR_OFF && strcmp(value, "off") == 0) ||
               settings_wrong(error, "%s: \"%s\" is not %s, as in %s", from, shown, row->values,
                              row->fallback);
    case SETTING_SERVER:
        return check_server(from, value, error);
    default:
        return strlen(value) <= (size_t)row->max ||
               settings_wrong(error, "%s: longer than %lld bytes", from, (long long)row->max);
    }
}

/* from: "--lock" or "INVENTORYD_LOCK", for messages. */
static bool set_value(void *config, const struct settings_row *row, const char *from,
                      const char *value, char error[SETTINGS_ERROR_MAX])
{
    void *field = (char *)config + row->offset;
    const char *shown = text_without_logins(value);
    char names[SETTINGS_VALUES_MAX];
    int64_t number;
    int index;
    switch (row->kind) {
    case SETTING_NUMBER:
        if (!parse_number(value, &number) || number < row->min || number > row->max)
            return settings_wrong(error, "%s: \"%s\" is not a number from %lld to %lld (%s)", from,
                                  shown, (long long)row->min, (long long)row->max, row->unit);
        *(int64_t *)field = number;
        return true;
    case SETTING_SWITCH:
        if (!word_find("off|on", value, &index))
            return settings_wrong(error, "%s: \"%s\" is neither \"on\" nor \"off\"", from, shown);
        *(bool *)field = index == 1;
        return true;
    case SETTING_CHOICE:
        if (!word_find(row->values, value, &index))
            return settings_wrong(error, "%s: \"%s\" is not one of %s", from, shown, row->values);
        *(int *)field = index;
        return true;
    case SETTING_RUNG:
        name_rungs(names);
        *(const struct dlock_rung **)field = dlock_rung_find(value);
        return *(const struct dlock_rung **)field != NULL ||
               settings_wrong(error, "%s: \"%s\" is no rung; the rungs are %s", from, shown, names);
    case SETTING_OWN:
        return own_of(row)->parse(config, from, value, error);
    default:
        return check_text(row, from, value, error) && settings_set_text(field, value, error);
    }
}

/* ---- Where values come from ------------------------------------------------------------------ */

static int name_prefix(char name[64])
{
    int length = snprintf(name, 64, "%s_", program.name);
    for (int i = 0; i < length; i++)
        name[i] = name[i] == '-' ? '_' : (char)toupper((unsigned char)name[i]);
    return length;
}

static void environment_name(const struct settings_row *row, char name[64])
{
    int length = name_prefix(name);
    length += snprintf(name + length, 64 - (size_t)length, "%s", row->flag);
    for (int i = 0; i < length; i++)
        name[i] = name[i] == '-' ? '_' : (char)toupper((unsigned char)name[i]);
}

static bool read_defaults_and_environment(void *config, char error[SETTINGS_ERROR_MAX])
{
    char name[64];
    const struct settings_row *row;
    for (size_t i = 0; (row = row_at(i)) != NULL; i++) {
        if (!set_value(config, row, row->flag, row->fallback, error))
            return false;
        environment_name(row, name);
        const char *value = getenv(name);
        if (value != NULL && !set_value(config, row, name, value, error))
            return false;
    }
    return true;
}

const char *settings_unknown_variable(void)
{
    static char found[64];
    char prefix[64], name[64];
    const size_t prefix_size = (size_t)name_prefix(prefix);
    const struct settings_row *row;
    for (char **variable = environ; *variable != NULL; variable++) {
        size_t size = strcspn(*variable, "=");
        bool known = strncmp(*variable, prefix, prefix_size) != 0;
        for (size_t i = 0; !known && (row = row_at(i)) != NULL; i++) {
            environment_name(row, name);
            known = strlen(name) == size && strncmp(*variable, name, size) == 0;
        }
        if (!known) {
            snprintf(found, sizeof found, "%.*s", (int)size, *variable);
            return found;
        }
    }
    return NULL;
}

static bool unknown_flag(const char *argument, char error[SETTINGS_ERROR_MAX])
{
    const size_t name = strcspn(argument, "="); /* what follows may be a password */
    const struct settings_row *row;
    const struct settings_flag *flag;
    int used =
        snprintf(error, SETTINGS_ERROR_MAX, "%.*s is no flag of %s; the flags are",
                 (int)(name < 300 ? name : 300), text_without_logins(argument), program.name);
    for (size_t i = 0; used < SETTINGS_ERROR_MAX && (row = row_at(i)) != NULL; i++)
        used += snprintf(error + used, SETTINGS_ERROR_MAX - (size_t)used, " --%s", row->flag);
    for (size_t i = 0; used < SETTINGS_ERROR_MAX && (flag = flag_at(i)) != NULL; i++)
        used += snprintf(error + used, SETTINGS_ERROR_MAX - (size_t)used, " --%.*s",
                         (int)strcspn(flag->flag, " "), flag->flag);
    return false;
}

/* Finds the service's flag. */
static bool find_own_flag(struct settings_request *request, const char *name)
{
    const struct settings_flag *flag = program.settings.flags;
    while (flag != NULL && flag->flag != NULL && strcmp(flag->flag, name) != 0)
        flag++;
    request->flag = flag;
    request->action = SETTINGS_OWN_FLAG;
    return flag != NULL && flag->flag != NULL;
}

/* Reads a flag that asks for another action than running. False with an empty error[]: it is
 * none. */
static bool read_action(struct settings_request *request, const char *name, const char *value,
                        const char *next, bool *took_next, char error[SETTINGS_ERROR_MAX])
{
    error[0] = '\0';
    if (strcmp(name, "healthcheck") == 0) {
        *took_next = value == NULL;
        request->action = SETTINGS_HEALTHCHECK;
        request->url = value != NULL ? value : next;
        static const char admin[] = "admin-listen";
        return request->url != NULL ||
               settings_wrong(error, "--healthcheck needs a URL, as in http://%s/livez",
                              find_row(admin, sizeof admin - 1)->fallback);
    }
    if (strcmp(name, "help") == 0 && value != NULL) {
        request->action = SETTINGS_HELP_MARKDOWN;
        if (strcmp(value, "problems") == 0)
            request->action = SETTINGS_HELP_PROBLEMS;
        else if (strcmp(value, "markdown") != 0)
            return settings_wrong(error, "--help: \"%s\" is not one of markdown, problems",
                                  text_without_logins(value));
        return true;
    }
    if (value != NULL)
        return false;
    if (strcmp(name, "help") == 0)
        request->action = SETTINGS_HELP;
    else if (strcmp(name, "version") == 0)
        request->action = SETTINGS_VERSION;
    else if (strcmp(name, "print-config") == 0)
        request->action = SETTINGS_PRINT;
    else
        return find_own_flag(request, name);
    return true;
}

/* Reads one argument, and the next one if that is its value. Moves *at past what it read. */
static bool read_argument(void *config, struct settings_request *request, char **argv, int *at,
                          char error[SETTINGS_ERROR_MAX])
{
    const char *argument = argv[(*at)++];
    const char *next = argv[*at];
    bool took_next = false;
    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
        return settings_wrong(error, "\"%s\" is not a flag: flags begin with --, see --help",
                              text_without_logins(argument));
    const char *flag = argument + 2;
    const char *equals = strchr(flag, '=');
    size_t size = equals != NULL ? (size_t)(equals - flag) : strlen(flag);
    const char *value = equals != NULL ? equals + 1 : NULL;
    char name[64];
    snprintf(name, sizeof name, "--%.*s", (int)size, flag);
    const struct settings_row *row = find_row(flag, size);
    if (row == NULL) {
        bool done = read_action(request, name + 2, value, next, &took_next, error);
        *at += took_next && next != NULL;
        return done || (error[0] == '\0' ? unknown_flag(argument, error) : false);
    }
    if (value == NULL && row->kind == SETTING_SWITCH) {
        /* "--admin-writes" alone means on; in "--check-hold off" the next argument is the value. */
        took_next = next != NULL && strncmp(next, "--", 2) != 0;
        value = took_next ? next : "on";
    } else if (value == NULL) {
        if (next == NULL)
            return settings_wrong(error, "%s needs a value: %s", name,
                                  row->values[0] != '\0' ? row->values : row->unit);
        took_next = true;
        value = next;
    }
    *at += took_next;
    return set_value(config, row, name, value, error);
}

bool settings_read(void *config, struct settings_request *request, int argc, char **argv,
                   char error[SETTINGS_ERROR_MAX])
{
    *request = (struct settings_request){.action = SETTINGS_RUN};
    if (!read_defaults_and_environment(config, error))
        return false;
    for (int at = 1; at < argc;)
        if (!read_argument(config, request, argv, &at, error))
            return false;
    return true;
}

void settings_free(void *config)
{
    const struct settings_row *row;
    for (size_t i = 0; (row = row_at(i)) != NULL; i++) {
        if (!is_text(row))
            continue;
        char **field = (char **)(void *)((char *)config + row->offset);
        free(*field);
        *field = NULL;
    }
}

/* ---- Printing -------------------------------------------------------------------------------- */

const char *settings_word(const void *config, const char *flag)
{
    const struct settings_row *row = find_row(flag, strlen(flag));
    return word_at(row->values, *(const int *)settings_field(config, row));
}

static void add_value(cJSON *json, const char *name, const void *config,
                      const struct settings_row *row)
{
    const void *field = settings_field(config, row);
    char text[4096];
    switch (row->kind) {
    case SETTING_NUMBER:
        cJSON_AddNumberToObject(json, name, (double)*(const int64_t *)field);
        break;
    case SETTING_SWITCH:
        cJSON_AddBoolToObject(json, name, *(const bool *)field);
        break;
    case SETTING_CHOICE:
        cJSON_AddStringToObject(json, name, word_at(row->values, *(const int *)field));
        break;
    case SETTING_RUNG:
        cJSON_AddStringToObject(json, name, (*(const struct dlock_rung *const *)field)->name);
        break;
    case SETTING_OWN:
        own_of(row)->print(config, text, sizeof text);
        cJSON_AddStringToObject(json, name, text);
        break;
    case SETTING_SERVER:
        cJSON_AddStringToObject(json, name, text_without_logins(*(char *const *)field));
        break;
    default:
        cJSON_AddStringToObject(json, name, *(char *const *)field);
    }
}

cJSON *settings_json(const void *config)
{
    cJSON *json = cJSON_CreateObject();
    const struct settings_row *row;
    for (size_t i = 0; json != NULL && (row = row_at(i)) != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", row->flag);
        for (char *c = name; *c != '\0'; c++)
            if (*c == '-')
                *c = '_';
        add_value(json, name, config, row);
    }
    return json;
}

/* Describes for a reader which values may be given. */
static void describe_values(const struct settings_row *row, char text[SETTINGS_VALUES_MAX])
{
    if (row->kind == SETTING_NUMBER)
        snprintf(text, SETTINGS_VALUES_MAX, "%lld to %lld", (long long)row->min,
                 (long long)row->max);
    else if (row->kind == SETTING_RUNG)
        name_rungs(text);
    else if (row->kind == SETTING_OWN && own_of(row)->values != NULL)
        own_of(row)->values(text);
    else
        snprintf(text, SETTINGS_VALUES_MAX, "%s", row->values);
}

static const char *shown_default(const struct settings_row *row)
{
    const char *shown = row->kind == SETTING_SERVER ? "as --redis"
                        : row->kind == SETTING_OWN  ? own_of(row)->shown_fallback
                                                    : NULL;
    return row->fallback[0] != '\0' ? row->fallback : shown != NULL ? shown : "none";
}

void settings_help(FILE *out)
{
    char example[64];
    const struct settings_row *row;
    const struct settings_flag *flag;
    environment_name(find_row(program.settings.example, strlen(program.settings.example)), example);
    fprintf(out,
            "%s\n\n"
            "usage: %s [--flag VALUE | --flag=VALUE]...\n\n"
            "A setting NAME is also read from the environment variable %.*sNAME\n"
            "(--%s: %s); the flag wins.\n\n",
            program.settings.about, program.name, (int)strlen(program.name) + 1, example,
            program.settings.example, example);
    for (size_t i = 0; (row = row_at(i)) != NULL; i++) {
        char values[SETTINGS_VALUES_MAX];
        describe_values(row, values);
        fprintf(out, "  --%s\n      %s\n      %s%s%s; default %s\n", row->flag, row->help, values,
                row->unit[0] != '\0' ? " " : "", row->unit, shown_default(row));
    }
    for (size_t i = 0; (flag = flag_at(i)) != NULL; i++)
        fprintf(out, "  --%s\n      %s\n", flag->flag, flag->help);
}

/* Prints a cell of a Markdown table. A | would end the cell, so it is escaped. */
static void print_cell(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fprintf(out, *text == '|' ? "\\|" : "%c", *text);
}

void settings_help_markdown(FILE *out)
{
    const struct settings_row *row;
    const struct settings_flag *flag;
    fprintf(out, "| flag | environment variable | values | unit | default | what it does |\n"
                 "|---|---|---|---|---|---|\n");
    for (size_t i = 0; (row = row_at(i)) != NULL; i++) {
        char name[64], values[SETTINGS_VALUES_MAX];
        environment_name(row, name);
        describe_values(row, values);
        fprintf(out, "| `--%s` | `%s` | ", row->flag, name);
        print_cell(out, values);
        fprintf(out, " | %s | `%s` | ", row->unit, shown_default(row));
        print_cell(out, row->help);
        fprintf(out, " |\n");
    }
    for (size_t i = 0; (flag = flag_at(i)) != NULL; i++)
        fprintf(out, "| `--%s` | | | | | %s |\n", flag->flag, flag->help);
}
