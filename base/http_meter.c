/* SPDX-License-Identifier: Apache-2.0
 *
 * See http_meter.h.
 */
#include "http_meter.h"

#include "meter.h"

#define ROUTES_MAX 32

static const unsigned codes[] = {200, 202, 204, 400, 401, 403, 404, 405, 409,
                                 413, 414, 415, 422, 429, 431, 500, 503};
#define CODES (sizeof codes / sizeof codes[0])

static atomic_ulong requests[ROUTES_MAX][METHOD_COUNT][CODES];
static atomic_ulong aborted;

void http_meter_count(size_t route, enum method method, unsigned status)
{
    for (size_t i = 0; i < CODES && route < ROUTES_MAX; i++)
        if (codes[i] == status)
            meter_add(&requests[route][method][i], 1);
}

void http_meter_aborted(void)
{
    meter_add(&aborted, 1);
}

void http_meter_print(FILE *out, const struct routes *routes)
{
    meter_print_head(out, "http_requests_total", "counter", "Answers by route, method and status.");
    for (size_t route = 0; route <= routes->count && route < ROUTES_MAX; route++)
        for (int method = 0; method < METHOD_COUNT; method++)
            for (size_t i = 0; i < CODES; i++)
                if (meter_load(&requests[route][method][i]) > 0)
                    fprintf(out,
                            "http_requests_total{route=\"%s\",method=\"%s\",code=\"%u\"} %lu\n",
                            routes_name(routes, route), method_name((enum method)method), codes[i],
                            meter_load(&requests[route][method][i]));
    meter_print_single(out, "http_requests_aborted_total", "counter",
                       "Requests whose client was gone before the answer was sent.",
                       meter_load(&aborted));
}
