/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts answers by route, method and status. The process has one set.
 */
#ifndef HTTP_METER_H
#define HTTP_METER_H

#include "routes.h"

#include <stdio.h>

/* route: its number in the table. */
void http_meter_count(size_t route, enum method method, unsigned status);
/* A request whose client was gone before the answer was sent. */
void http_meter_aborted(void);
void http_meter_print(FILE *out, const struct routes *routes);

#endif
