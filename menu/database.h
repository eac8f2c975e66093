/* SPDX-License-Identifier: Apache-2.0
 *
 * The menus in their database, a file of SQLite. Each write raises the menu's version. All
 * instances on one machine may use the same file.
 */
#ifndef DATABASE_H
#define DATABASE_H

#include <stdbool.h>
#include <stdint.h>

#define MENU_MAX 640 /* bytes of a menu's JSON */
struct menu {
    int64_t version; /* from 1 */
    char dishes[MENU_MAX + 1];
};

/* A connection, used by one thread at a time. */
struct database;
#define DATABASE_DESCRIPTORS 2 /* that it has open: the file, and the log of its changes */
/* Opens the file, and makes it if it is not there. NULL: error[] says why. */
#define DATABASE_ERROR_MAX 512
struct database *database_open(const char *file, char error[DATABASE_ERROR_MAX]);
void database_close(struct database *database);

/* With DATABASE_FAILED nothing was written; database_error() says why. */
enum database_status { DATABASE_OK, DATABASE_MISSING, DATABASE_FAILED };
/* Waits for another instance's write for wait_ms at most. */
enum database_status database_read(struct database *database, const char *name, struct menu *menu,
                                   int64_t wait_ms);
/* Writes menu->dishes, and sets menu->version to the new one. */
enum database_status database_write(struct database *database, const char *name, struct menu *menu,
                                    int64_t wait_ms);
const char *database_error(const struct database *database);

#endif
