/* SPDX-License-Identifier: Apache-2.0
 *
 * See listeners.h.
 */
#include "listeners.h"

#include "log.h"

#include <string.h>

#define PUBLIC_THREADS 2

/* Beyond loopback, users of other machines may reach the admin listener. */
static bool may_listen(const struct settings_common *common, const struct listening *admin,
                       char error[PROCESS_ERROR_MAX])
{
    if (admin->loopback || common->admin_token[0] != '\0')
        return true;
    snprintf(error, PROCESS_ERROR_MAX,
             "--admin-listen %.200s is beyond loopback and needs a token: give --admin-token-file "
             "FILE, or listen on 127.0.0.1 or [::1]",
             common->admin_listen);
    return false;
}

bool listeners_open(struct listeners *listeners, const struct settings_common *common,
                    char error[PROCESS_ERROR_MAX])
{
    listeners->admin_at.fd = -1;
    return net_listen(common->listen, &listeners->public_at, error) &&
           (strcmp(common->admin_listen, "off") == 0 ||
            (net_listen(common->admin_listen, &listeners->admin_at, error) &&
             may_listen(common, &listeners->admin_at, error)));
}

static struct http *start_one(enum listener listener, const struct listening *listening,
                              const struct settings_common *common,
                              const struct http_options *options)
{
    const bool is_admin = listener == LISTENER_ADMIN;
    struct http_options all = *options;
    all.listener = listener;
    all.fd = listening->fd;
    all.threads = is_admin ? 1 : PUBLIC_THREADS;
    all.connections_max = is_admin ? ADMIN_CONNECTIONS : (unsigned)common->connections;
    all.token = is_admin ? common->admin_token : "";
    all.address = common->admin_listen;
    all.instance = common->instance;
    all.log_requests = common->log_requests;
    all.request_ms = common->request_ms;
    return http_start(&all);
}

bool listeners_start(struct listeners *listeners, const struct settings_common *common,
                     const struct http_options *options, char error[PROCESS_ERROR_MAX])
{
    const struct listening *admin_at = &listeners->admin_at;
    const bool has_admin = admin_at->fd >= 0;
    if (has_admin)
        listeners->admin = start_one(LISTENER_ADMIN, admin_at, common, options);
    listeners->public = start_one(LISTENER_PUBLIC, &listeners->public_at, common, options);
    if (listeners->public == NULL || (has_admin && listeners->admin == NULL)) {
        snprintf(error, PROCESS_ERROR_MAX, "libmicrohttpd could not start");
        return false;
    }
    if (has_admin)
        log_event(LOG_INFO, "admin-listening", "%s", admin_at->address);
    if (has_admin && !admin_at->loopback)
        log_event(LOG_WARNING, "admin-exposed",
                  "the admin listener is on %s: every client that reaches it can read the "
                  "settings; with the token it can change them",
                  admin_at->address);
    log_event(LOG_INFO, "listening", "%s", listeners->public_at.address);
    return true;
}

void listeners_quiesce(struct listeners *listeners)
{
    http_quiesce(listeners->public);
}

bool listeners_wait_idle(const struct listeners *listeners, int64_t deadline_ns)
{
    return http_wait_idle(listeners->public, deadline_ns) &&
           (listeners->admin == NULL || http_wait_idle(listeners->admin, deadline_ns));
}

void listeners_stop(struct listeners *listeners)
{
    http_stop(listeners->public);
    http_stop(listeners->admin);
}
