/* SPDX-License-Identifier: Apache-2.0
 *
 * The two listeners of a service: one for its clients, one for operators. Beyond loopback the
 * operators' one needs a token.
 */
#ifndef LISTENERS_H
#define LISTENERS_H

#include "http.h"
#include "net.h"
#include "process.h"

#define ADMIN_CONNECTIONS 64

struct listeners {
    struct listening public_at;
    struct listening admin_at; /* fd -1: off */
    struct http *public;
    struct http *admin; /* NULL: off */
};

/* Opens both sockets, so that a busy port is noticed before anything is written. False: error[]
 * says why. */
bool listeners_open(struct listeners *listeners, const struct settings_common *common,
                    char error[PROCESS_ERROR_MAX]);
/* From now on requests are served. options: what the service gives: its routes, the size of its
 * requests, take_key, serve and itself. */
bool listeners_start(struct listeners *listeners, const struct settings_common *common,
                     const struct http_options *options, char error[PROCESS_ERROR_MAX]);

/* Accepts no more clients; operators can still look. */
void listeners_quiesce(struct listeners *listeners);
/* As http_wait_idle. Waits for operators' requests, too: they may have written. */
bool listeners_wait_idle(const struct listeners *listeners, int64_t deadline_ns);
/* As http_stop. */
void listeners_stop(struct listeners *listeners);

#endif
