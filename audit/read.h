/* SPDX-License-Identifier: Apache-2.0
 *
 * The readers, one for each kind of file in a run folder; docs/reference/run.md has the formats. A
 * run needs a run.json. If anything else is missing or wrong, the reader adds a finding.
 */
#ifndef READ_H
#define READ_H

#include "json.h"
#include "run.h"
#include "source.h"

bool read_spec(struct run *run, char error[JSON_ERROR_MAX]); /* run.json */
void read_redis(struct run *run);                            /* redis.json */
/* Complains that redis.json does not state that of the item. */
void redis_missing(struct source *source, const char *when, const char *what,
                   const struct item *item);
/* What each segment of a stock had: an optional list of whole numbers, which must add up to `sum`
 * unless that is NOT_KNOWN. On failure: false, and error holds a sentence. */
bool read_layout(struct run *run, const cJSON *object, const char *field, int64_t sum,
                 struct layout *layout, char error[JSON_ERROR_MAX]);
void read_client(struct run *run);    /* sale.jtl */
void read_nginx(struct run *run);     /* nginx.log */
void read_histories(struct run *run); /* history-*.jsonl */

#endif
