/* SPDX-License-Identifier: Apache-2.0
 *
 * Handlers for operators that all services have: what the instance is, its settings, its
 * failpoints. program.h says where the service has these.
 */
#ifndef OPERATORS_H
#define OPERATORS_H

#include "routes.h"

/* GET /livez, /version, /config and /failpoints. */
void operators_live(struct service *service, struct request *request);
void operators_version(struct service *service, struct request *request);
void operators_config(struct service *service, struct request *request);
void operators_get_failpoints(struct service *service, struct request *request);
/* PUT /failpoints: {"point":"sale.after_read","action":"1*pause"} and nothing else. */
void operators_put_failpoint(struct service *service, struct request *request);

/* Rows of a table of routes. */
#define OPERATORS_ROUTE(method, path, takes_body, accept)                                          \
    {                                                                                              \
        LISTENER_ADMIN, method, path, NULL, takes_body, RUN_HERE, NULL, accept, NULL, NULL         \
    }
#define OPERATORS_LIVEZ OPERATORS_ROUTE(METHOD_GET, "/livez", false, operators_live)
#define OPERATORS_VERSION OPERATORS_ROUTE(METHOD_GET, "/version", false, operators_version)
#define OPERATORS_CONFIG OPERATORS_ROUTE(METHOD_GET, "/config", false, operators_config)
#define OPERATORS_FAILPOINTS                                                                       \
    OPERATORS_ROUTE(METHOD_GET, "/failpoints", false, operators_get_failpoints),                   \
        OPERATORS_ROUTE(METHOD_PUT, "/failpoints", true, operators_put_failpoint)

#endif
