/* SPDX-License-Identifier: Apache-2.0
 *
 * An item's queue of accepted sales (--on-conflict queue), in Redis beside its stock: a stream with
 * a consumer group. An entry is one accepted sale. An entry that has its outcome is deleted, so the
 * first one is the oldest unfinished one. The outcome is the record of the sale's Idempotency-Key;
 * a sale that came without a key was given one. See docs/reference/http.md.
 *
 * Each status is as in stock.h.
 */
#ifndef QUEUE_H
#define QUEUE_H

#include "sale.h"
#include "stock.h"

/* STOCK_QUEUES_KEY lists the items with a queue, by the time when a sale was accepted last. */
#define QUEUE_UNUSED_MS 600000 /* what is not used for so long is removed, see queue_tidy */

/* Sets the sale's queue_key, and by sale->random its pointer_key. They are in the stock's slot. */
void queue_name_keys(const struct config *config, struct sale *sale);
void queue_make_random(char random[STOCK_RANDOM_DIGITS + 1]);

/* Removes what was not used for QUEUE_UNUSED_MS: the item from the list with its queue, if that is
 * empty, and consumers that own no entry. */
enum stock_status queue_tidy(struct stock *stock, const char *item, const char *queue_key);

/* One page of the list. A walk begins with the cursor "0" and has ended when it is "0" again. It
 * meets each item that is listed all the time; perhaps twice. */
#define QUEUE_CURSOR_MAX 20
struct queue_listed {
    char item[ITEM_MAX + 1];
    char queue_key[KEY_MAX + 8];
    bool has_entries; /* also if that cannot be told: the key holds something else */
};
/* Calls `found` for the items of the page. Its argument is valid until it returns. */
enum stock_status queue_walk(struct stock *stock, const struct config *config,
                             char cursor[QUEUE_CURSOR_MAX + 1],
                             void (*found)(void *arg, const struct queue_listed *listed),
                             void *arg);

/* Whether the user of the stock's server may send what a queue needs. STOCK_UNAVAILABLE: no, and
 * stock_error() names the command. Writes nothing. */
enum stock_status queue_probe(struct stock *stock, const struct config *config);

/* As stock_recall. A record of an accepted sale whose entry is not in the queue any more is
 * emptied: STOCK_MISSING. */
enum stock_status queue_recall(struct stock *stock, const struct sale *sale,
                               struct stock_record *record);

/* Accepts the sale, and lists its item. QUEUE_ACCEPTED: *record is that of an accepted sale,
 * perhaps of an earlier request with its key. QUEUE_DECIDED: *record is the outcome of an earlier
 * one. After STOCK_LOST the same call may be sent again: the sale is accepted once. STOCK_MISSING:
 * there is no such stock. */
enum queue_accepted { QUEUE_ACCEPTED, QUEUE_DECIDED, QUEUE_IS_FULL };
enum stock_status queue_accept(struct stock *stock, const struct config *config,
                               const struct sale *sale, struct stock_record *record,
                               enum queue_accepted *accepted);

struct queue_entry {
    char number[STOCK_ENTRY_MAX + 1];
    char key[SALE_KEY_MAX + 1];
    char random[STOCK_RANDOM_DIGITS + 1];
    char request[REQUEST_ID_MAX + 1];
    int64_t quantity;
    int64_t left_ms; /* of its life; 0 or less: it is over */
    int64_t length;  /* of the queue */
};
/* The oldest unfinished entry. STOCK_MISSING: the queue is empty. STOCK_INVALID: it is no entry of
 * this shop. */
enum stock_status queue_oldest(struct stock *stock, const char *queue_key,
                               struct queue_entry *entry);
/* Makes the instance the owner of the oldest unfinished entry, in the consumer group. Call it under
 * the item's lock. *same: it is the one with that number. */
enum stock_status queue_take(struct stock *stock, const char *queue_key, const char *instance,
                             const char *number, bool *same);
/* Whether that entry is unfinished. */
enum stock_status queue_has(struct stock *stock, const char *queue_key, const char *number,
                            bool *has);
/* Whether the queue has an unfinished entry up to that number. */
enum stock_status queue_has_until(struct stock *stock, const char *queue_key, const char *number,
                                  bool *has);
/* The number of the oldest unfinished entry, also of one that the shop did not write.
 * STOCK_MISSING: the queue is empty. */
enum stock_status queue_first(struct stock *stock, const char *queue_key,
                              char number[STOCK_ENTRY_MAX + 1]);
/* The number of the newest entry. STOCK_MISSING: the queue is empty. */
enum stock_status queue_newest(struct stock *stock, const char *queue_key,
                               char number[STOCK_ENTRY_MAX + 1]);

struct queue_sell {
    const char *key; /* the stock's */
    const char *record_key;
    const char *queue_key;
    const char *pointer_key;
    const char *number; /* of the entry */
    const char *random; /* of the sale's id */
    const char *instance;
    uint64_t mark; /* of the attempt; not 0 */
    int64_t keep_ms;
    bool expires_only;               /* ends an entry whose life is over, and does nothing else */
    const struct stock_fence *fence; /* or NULL; not FENCE_LAST_WRITE */
};
/* Sells the entry: writes stock, record and acknowledgement in one script. QUEUE_MADE: this attempt
 * decided, and *record says how. QUEUE_KEPT: another attempt had decided, or the key was accepted
 * anew after someone had removed the entry. QUEUE_NOT: the entry is
 * finished, or is not the oldest one; or with expires_only its life is not over. After STOCK_LOST
 * the same call may be sent again: the entry is sold once. */
enum queue_sold { QUEUE_MADE, QUEUE_KEPT, QUEUE_NOT };
enum stock_status queue_sell(struct stock *stock, const struct queue_sell *sell,
                             struct stock_record *record, enum queue_sold *sold);
/* For a flawed demonstration: the stock was written before. Stores the outcome and acknowledges.
 * The record's code, quantity, left and answered_by are used. */
enum stock_status queue_settle(struct stock *stock, const struct queue_sell *sell,
                               const struct stock_record *record);

/* The key that a pointer leads to. STOCK_MISSING: there is none. */
enum stock_status queue_find(struct stock *stock, const char *pointer_key,
                             char key[SALE_KEY_MAX + 1]);

#endif
