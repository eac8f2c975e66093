/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this instance could sell now: what GET /readyz answers.
 */
#ifndef READINESS_H
#define READINESS_H

#include "service.h"

/* NULL: it could. Otherwise the reason why not; it is in `text`, in `stock`, or constant. Blocks
 * while it asks the servers. */
const char *readiness_fault(struct service *service, struct stock *stock,
                            char text[STOCK_ERROR_MAX]);

#endif
