/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of a service. One table of rows drives the flags, the environment variables, --help,
 * --print-config and GET /config. The table in the documentation is made from it, too. A setting
 * NAME is also read from the variable PROGRAM_NAME; the flag wins.
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "engines.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SETTINGS_ERROR_MAX 1024
#define SETTINGS_VALUES_MAX 1024 /* of a text that says which values may be given */

enum settings_kind {
    SETTING_COMMON, /* as settings_common.h says; a fallback and a help that are given here count */
    SETTING_TEXT,   /* of at most `max` bytes: a char *, as are the next four */
    SETTING_NAME,   /* see settings_is_name */
    SETTING_ADDRESS,
    SETTING_ADDRESS_OR_OFF,
    SETTING_SERVER, /* the URL of a Redis server; "": as --redis */
    SETTING_NUMBER, /* of `min` to `max`: an int64_t */
    SETTING_SWITCH, /* a bool */
    SETTING_CHOICE, /* the number of a word: an int */
    SETTING_RUNG,   /* a const struct dlock_rung * */
    SETTING_OWN,    /* see settings_own */
};

/* How a setting is read and printed that is of no other kind. config: the service's. */
struct settings_own {
    const char *flag;
    /* from: "--lock" or "INVENTORYD_LOCK", for messages. False: error[] says what was wrong and
     * what would be right. */
    bool (*parse)(void *config, const char *from, const char *value,
                  char error[SETTINGS_ERROR_MAX]);
    void (*print)(const void *config, char *text, size_t size);
    /* Says which values may be given. NULL: the row does. */
    void (*values)(char text[SETTINGS_VALUES_MAX]);
    const char *shown_fallback; /* for --help, if the fallback is "". NULL: "none" */
};

struct settings_row {
    const char *flag;
    enum settings_kind kind;
    const char *values; /* what may be given; for a SETTING_CHOICE its words, divided by | */
    const char *unit;   /* or "" */
    const char *fallback;
    int64_t min, max;
    size_t offset; /* in the service's config */
    const char *help;
};

/* A flag of the service's own that asks for another action than running. */
struct settings_flag {
    const char *flag;
    const char *help;
    int (*act)(void); /* returns the exit code */
};

/* What a service gives, in program.h. */
struct settings {
    const char *about;   /* the first sentence of --help */
    const char *example; /* a flag whose variable --help names */
    /* Its rows. Common ones that are not among them come before them. Each list ends with an entry
     * without a flag; NULL: an empty one. */
    const struct settings_row *rows;
    const struct settings_own *own; /* of each SETTING_OWN */
    const struct settings_flag *flags;
};

/* What the command line asks for. */
enum settings_action {
    SETTINGS_RUN,
    SETTINGS_PRINT,
    SETTINGS_HELP,
    SETTINGS_HELP_MARKDOWN,
    SETTINGS_HELP_PROBLEMS,
    SETTINGS_VERSION,
    SETTINGS_HEALTHCHECK,
    SETTINGS_OWN_FLAG,
};
struct settings_request {
    enum settings_action action;
    const char *url;                  /* of SETTINGS_HEALTHCHECK */
    const struct settings_flag *flag; /* of SETTINGS_OWN_FLAG */
};

/* Defaults, then the environment, then the flags. config: the service's, zeroed; it begins with the
 * common settings. False: error[] says what was wrong and what would be right. Free its texts in
 * either case. */
bool settings_read(void *config, struct settings_request *request, int argc, char **argv,
                   char error[SETTINGS_ERROR_MAX]);
void settings_free(void *config);

/* An environment variable PROGRAM_... that is no setting, perhaps a typo; NULL: there is none. */
const char *settings_unknown_variable(void);

/* The settings by name, without passwords. NULL when out of memory. */
cJSON *settings_json(const void *config);
/* A SETTING_CHOICE as its word, in a buffer of the calling thread. flag: without its "--". */
const char *settings_word(const void *config, const char *flag);
void settings_help(FILE *out);
void settings_help_markdown(FILE *out);

/* ---- For checks of a service's own ---- */

/* Sets error[], and returns false. */
bool settings_wrong(char error[SETTINGS_ERROR_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Replaces an allocated text. False: out of memory, and error[] says so. */
bool settings_set_text(char **field, const char *value, char error[SETTINGS_ERROR_MAX]);
/* Whether a text, such as "a" or "web-1", may be used as it is in headers, file names and JSON. */
bool settings_is_name(const char *text, size_t size_max);
/* Whether the lock library accepts the URL; engine NULL: as Redis'. *why: what is wrong, of the
 * calling thread. */
bool settings_is_server(const struct engine *engine, const char *url, const char **why);

#endif
