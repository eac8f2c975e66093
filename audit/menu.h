/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of menus: they lie in a cache, in front of a slow database. The database is asked only
 * if the cache has nothing. Nobody gets an older menu than one whose update was answered before.
 */
#ifndef MENU_H
#define MENU_H

#include "rules.h"

extern const struct rules menu_rules;

/* A query of the database, and what became of it. It covers its item from t_ns until ends_ns:
 * meanwhile the cache has its answer, or will have it, so nobody else needs to ask. */
struct query {
    uint32_t request;
    uint32_t item;
    uint32_t section; /* in which it was asked; NONE */
    uint8_t history;
    bool extra; /* it was not needed; set by check_queries */
    int64_t t_ns;
    int64_t queried_ns; /* when the answer came; NOT_STAMPED */
    int64_t version;    /* of the menu that it told; NOT_KNOWN */
    int64_t sent_ns;    /* just before the command was sent that filled the cache; NOT_STAMPED */
    int64_t filled_ns;  /* it was answered; NOT_STAMPED */
    int64_t lives_ns;   /* how long the cache keeps it */
    int64_t refused_ns; /* the fence refused the token; NOT_STAMPED */
    int64_t ends_ns;    /* set by menu_settle */
};

/* An update deleted the menu from the cache, at some time from sent_ns to t_ns. */
struct deletion {
    uint32_t request;
    uint32_t item;
    uint32_t section; /* NONE */
    uint8_t history;
    bool used;       /* it explains a query; for check_queries */
    int64_t sent_ns; /* just before the command was sent */
    int64_t t_ns;    /* it was answered. INT64_MAX: its process died first, and may have sent it */
};

/* Which menu a request found in the cache. */
struct look {
    uint32_t request;
    uint32_t item;
    int64_t t_ns;
    int64_t version;
};

/* The database got a new menu. */
struct update {
    uint32_t request;
    uint32_t item;
    int64_t t_ns;
    int64_t version;
};

enum { NO_HIT = -1 };

/* A request, as its instance recorded it. */
struct visit {
    bool updates;
    bool from_cache;
    int64_t version; /* that it answered; NOT_KNOWN */
    int64_t found;   /* in the cache, by its last look that found one; NO_HIT; NOT_KNOWN */
    uint32_t query;  /* its last; NONE */
    uint32_t update; /* NONE */
    bool deleted;    /* that update has its deletion */
    bool denied;     /* its own lines contradict its answer */
    bool stale;      /* it answered with an old menu; set by menu_check */
};

struct menu {
    int64_t cache_ms, db_ms, refresh_ms;
    bool second_look, guard_update;
    const char *fill; /* plain, fenced */

    struct visit *visits; /* by request */
    size_t visit_count, visit_capacity;
    struct query *queries;
    size_t query_count, query_capacity;
    struct deletion *deletions;
    size_t deletion_count, deletion_capacity;
    struct look *looks; /* those that found a menu */
    size_t look_count, look_capacity;
    struct update *updates;
    size_t update_count, update_capacity;

    int64_t needed, extra, stale, updated, refills;
    struct spread readers_ms, rebuild_ms; /* all readers; those that met a rebuild */
};

void menu_free(struct menu *menu);
/* What its instance recorded of the request. */
struct visit menu_visit(const struct run *run, size_t request);

/* read_menu.c */
bool menu_invoked(struct reader *reader, struct record *record, uint32_t item);
void menu_read_event(struct reader *reader, struct record *record);

/* check_menu.c */
void menu_check(struct run *run);

struct expected menu_expected(const struct run *run); /* by the table expected_menu.def */

#endif
