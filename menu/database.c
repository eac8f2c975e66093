/* SPDX-License-Identifier: Apache-2.0
 *
 * See database.h.
 */
#include "database.h"

#include "../lock/clock.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#define BUSY_MS 5000 /* how long a statement waits for another instance's, at most */

struct database {
    sqlite3 *sqlite;
    sqlite3_stmt *read;
    sqlite3_stmt *write;
};

static const char schema[] = "PRAGMA journal_mode = WAL;"
                             "CREATE TABLE IF NOT EXISTS menu (name TEXT PRIMARY KEY,"
                             " version INTEGER NOT NULL, dishes TEXT NOT NULL) WITHOUT ROWID;";
static const char read_menu[] = "SELECT version, dishes FROM menu WHERE name = ?1";
static const char write_menu[] =
    "INSERT INTO menu VALUES (?1, 1, ?2) ON CONFLICT (name)"
    " DO UPDATE SET version = version + 1, dishes = excluded.dishes RETURNING version";

/* Two instances may make the file at once. SQLite does not always wait for the other one then.
 * Here it never does, so one deadline counts. */
static bool set_up(sqlite3 *sqlite)
{
    const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};
    const int64_t ends_ns = mono_deadline_ns(BUSY_MS);
    int said;
    sqlite3_busy_timeout(sqlite, 0);
    while ((said = sqlite3_exec(sqlite, schema, NULL, NULL, NULL)) == SQLITE_BUSY &&
           mono_ns() < ends_ns)
        nanosleep(&pause, NULL);
    return said == SQLITE_OK && sqlite3_busy_timeout(sqlite, BUSY_MS) == SQLITE_OK;
}

static bool prepare(struct database *database, const char *file)
{
    return sqlite3_open(file, &database->sqlite) == SQLITE_OK && set_up(database->sqlite) &&
           sqlite3_prepare_v2(database->sqlite, read_menu, -1, &database->read, NULL) ==
               SQLITE_OK &&
           sqlite3_prepare_v2(database->sqlite, write_menu, -1, &database->write, NULL) ==
               SQLITE_OK;
}

struct database *database_open(const char *file, char error[DATABASE_ERROR_MAX])
{
    struct database *database = calloc(1, sizeof *database);
    if (database != NULL && prepare(database, file))
        return database;
    snprintf(error, DATABASE_ERROR_MAX, "cannot open the database %.300s: %s", file,
             database != NULL ? database_error(database) : "out of memory");
    database_close(database);
    return NULL;
}

void database_close(struct database *database)
{
    if (database == NULL)
        return;
    sqlite3_finalize(database->read);
    sqlite3_finalize(database->write);
    sqlite3_close(database->sqlite);
    free(database);
}

const char *database_error(const struct database *database)
{
    return sqlite3_errmsg(database->sqlite);
}

/* The first row's version; its dishes go into the menu if it has any. */
static enum database_status step(sqlite3_stmt *statement, struct menu *menu, int64_t wait_ms)
{
    sqlite3_busy_timeout(sqlite3_db_handle(statement),
                         (int)(wait_ms < BUSY_MS ? wait_ms : BUSY_MS));
    int said = sqlite3_step(statement);
    const bool has_row = said == SQLITE_ROW;
    if (has_row) {
        menu->version = sqlite3_column_int64(statement, 0);
        if (sqlite3_column_count(statement) > 1)
            snprintf(menu->dishes, sizeof menu->dishes, "%s",
                     sqlite3_column_text(statement, 1) != NULL
                         ? (const char *)sqlite3_column_text(statement, 1)
                         : "[]");
        said = sqlite3_step(statement); /* the end: only then a write is committed */
    }
    sqlite3_reset(statement);
    return said != SQLITE_DONE ? DATABASE_FAILED : has_row ? DATABASE_OK : DATABASE_MISSING;
}

enum database_status database_read(struct database *database, const char *name, struct menu *menu,
                                   int64_t wait_ms)
{
    sqlite3_bind_text(database->read, 1, name, -1, SQLITE_STATIC);
    return step(database->read, menu, wait_ms);
}

enum database_status database_write(struct database *database, const char *name, struct menu *menu,
                                    int64_t wait_ms)
{
    sqlite3_bind_text(database->write, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(database->write, 2, menu->dishes, -1, SQLITE_STATIC);
    return step(database->write, menu, wait_ms);
}
