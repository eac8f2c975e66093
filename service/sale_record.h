/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a sale's lines of the history: its own events, and the lock library's events and commands.
 */
#ifndef SALE_RECORD_H
#define SALE_RECORD_H

#include "sale.h"

struct history_request sale_record_of(const struct sale_env *env, const struct sale *sale);

/* Records an event of the sale. Without a history it does nothing. */
#define RECORD(env, sale, event, ...)                                                              \
    do {                                                                                           \
        if ((env)->history != NULL) {                                                              \
            struct history_request record = sale_record_of(env, sale);                             \
            history_event((env)->history, &record, event, __VA_ARGS__);                            \
        }                                                                                          \
    } while (0)

void sale_record_invoke(const struct sale_env *env, const struct sale *sale);
/* Records `granted` and `enter`: the sale has its hold, and the section begins. */
void sale_record_enter(const struct sale_env *env, struct sale *sale);
/* Records the stock that the sale read. */
void sale_record_read(const struct sale_env *env, const struct sale *sale, int64_t stock);
/* The same for each segment whose lock it has. */
void sale_record_segments(const struct sale_env *env, struct sale *sale,
                          const int64_t stocks[SEGMENTS_MAX]);
/* Counts how the sale ended, and records it unless a `read`, `write` or `unknown` already says it.
 * Does nothing for a restock, which records its own end. */
void sale_record_end(const struct sale_env *env, const struct sale *sale);

#endif
