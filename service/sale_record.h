/* SPDX-License-Identifier: Apache-2.0
 *
 * What the history is told of a sale: by the sale itself, and by the lock library of its holds and
 * commands.
 */
#ifndef SALE_RECORD_H
#define SALE_RECORD_H

#include "sale.h"

struct history_request sale_record_of(const struct sale_env *env, const struct sale *sale);

/* A line of the sale's; nothing without a history. */
#define RECORD(env, sale, event, ...)                                                              \
    do {                                                                                           \
        if ((env)->history != NULL) {                                                              \
            struct history_request record = sale_record_of(env, sale);                             \
            history_event((env)->history, &record, event, __VA_ARGS__);                            \
        }                                                                                          \
    } while (0)

void sale_record_invoke(const struct sale_env *env, const struct sale *sale);
/* With its hold: it is granted, and the section begins. */
void sale_record_enter(const struct sale_env *env, struct sale *sale);
/* What was read. */
void sale_record_read(const struct sale_env *env, const struct sale *sale, int64_t stock);
/* How it ended, unless a `read`, `write` or `unknown` in the section said so already; and counts
 * it. A restock records its own end. */
void sale_record_end(const struct sale_env *env, const struct sale *sale);

/* Whom the calling thread serves from here on; NULL: nobody. */
void sale_record_serve(const struct holder *holder);

#endif
