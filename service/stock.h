/* SPDX-License-Identifier: Apache-2.0
 *
 * The stock in Redis. Each status says whether the command was carried out: STOCK_UNAVAILABLE means
 * no, STOCK_LOST means unknown.
 */
#ifndef STOCK_H
#define STOCK_H

#include "store.h"

#include <dlock.h>
#include <stdbool.h>
#include <stdint.h>

/* What a server is used for; one Redis server may have several roles. ROLE_LOCK is the server of a
 * lock that is kept on one; ROLE_LOCK_SERVERS are those of a lock that a majority grants; then
 * comes the ensemble of each engine. Locks have the roles before ROLE_STOCK. */
enum server_role {
    ROLE_LOCK,
    ROLE_LOCK_SERVERS,
#define X(NAME, name, scheme, tls_scheme, example, package) ROLE_##NAME,
#include "engines.def"
#undef X
    ROLE_STOCK,
    ROLE_COUNT
};
#define ROLE_ENGINES (ROLE_LOCK_SERVERS + 1) /* the first of them, in the order of engines[] */
#define LOCK_ROLES ROLE_STOCK

enum stock_status {
    STOCK_OK,
    STOCK_MISSING,      /* there is no such key */
    STOCK_INSUFFICIENT, /* fewer than asked for; nothing was written */
    STOCK_CHANGED,      /* it was written since it was read; nothing was written now */
    STOCK_INVALID,      /* a key holds what it must not; nothing was written */
    STOCK_STALE,        /* the fence refused the token; nothing was written */
    STOCK_EPOCH,        /* the fence refused the epoch; nothing was written */
    STOCK_SEGMENTED,    /* it lies over other segments: see stock_segments; nothing was written */
    STOCK_UNAVAILABLE,  /* the server was not reached, or refused; nothing was written */
    /* the reply was lost or cannot be read: the command was carried out, or not, or still may be */
    STOCK_LOST,
};

#define STOCK_SERVERS_MAX STORE_SERVERS_MAX
#define STOCK_ERROR_MAX STORE_ERROR_MAX

/* A connection, used by one thread. It connects when it is used, and again after a failure. */
struct stock;
struct stock *stock_new(struct store_server *server); /* NULL when out of memory */
/* The same, for one of many workers: they share connections. It borrows one when it is used. */
struct stock *stock_new_shared(struct store_server *server);
/* Returns what it has borrowed. Nothing if it is not shared. */
void stock_rest(struct stock *stock);
/* From now on this connection has another time-out than its server. */
void stock_limit(struct stock *stock, int64_t timeout_ms);
/* From now on its waits for a connection or a reply end when fd is readable. */
void stock_end_by(struct stock *stock, int fd);
void stock_free(struct stock *stock);

/* A fence. The script that writes first compares the writer's epoch with the stock's, and then its
 * token with a token in Redis. It refuses a write of another epoch, and one that breaks the rule
 * below. FENCE_LAST_WRITE compares no epoch. See docs/design/fence.md. */
enum fence_kind {
    /* key: the newest token given out, which the lock keeps on this server. An older one may not
     * write. */
    FENCE_NEWEST,
    /* key: the epoch and the token that read last. An older token may not read, and no other one
     * may write. If the lock is on this server, FENCE_NEWEST's key is lock_key, and is compared
     * too. */
    FENCE_LAST_READ,
    /* key: the token that wrote last. An older one may not write. Flawed. */
    FENCE_LAST_WRITE,
};
struct stock_fence {
    enum fence_kind kind;
    const char *key;
    const char *lock_key;
    uint64_t token; /* of the reader or writer */
    uint64_t epoch; /* of the reader or writer */
};

/* ---- The epoch ----
 * What the tokens of the stock's writers belong to. It is kept beside the stock, and only grows. */
#define STOCK_EPOCH_KEY "inventory:epoch"
#define STOCK_IDENTITY_KEY "dlock:identity" /* see dlock_identity */
#define STOCK_QUEUES_KEY "inventory:queues" /* see queue.h; not in the slot of an item */
struct stock_epoch {
    uint64_t number; /* 0: there is none */
    char rung[32];
    char engine[32];
    char servers[STOCK_SERVERS_MAX + 1];
    char identity[96]; /* of the server that gives the tokens; "": not known yet */
};

/* STOCK_OK: connected and logged in. A shared one does not wait for a new connection while others
 * have one: it takes the first that is returned. See pool_take. */
enum stock_status stock_connect(struct stock *stock);
/* True: the server answered the latest attempt to connect, but refused the login or one more
 * client. Connections that exist may still work. */
bool stock_refused(const struct stock *stock);
/* STOCK_OK: the server accepts writes, or refuses only this key; and if replicas_ack says so,
 * enough replicas confirmed one. Sends a write that changes nothing, and for the replicas one of a
 * key that lives for a second. If an idle connection breaks, a new one is tried; each attempt has
 * half the time-out. The replicas have as long as after a sale's write. */
enum stock_status stock_takes_writes(struct stock *stock, const char *key);
/* The same, but this key must be writable, and each attempt has the whole time-out.
 * STOCK_UNAVAILABLE also if the server may evict keys, and with them a lock or a stock. */
enum stock_status stock_check(struct stock *stock, const char *key);
/* After either: whether it failed only because too few replicas confirmed a write. */
bool stock_is_unconfirmed(const struct stock *stock);
/* From here on each command asks the replicas (WAIT, in the same write), if replicas_ack says so;
 * or no longer does. stock_is_confirmed: after a command with STOCK_OK, whether enough confirmed
 * it. If not, stock_error() says how many did. True if none was asked. */
void stock_ask_replicas(struct stock *stock, bool ask);
bool stock_is_confirmed(struct stock *stock);
/* Which master the connection is made to, over Sentinel: it differs after a fail-over. 0: the URL
 * names the server. From stock_pin on no command goes to another one: STOCK_UNAVAILABLE. 0: any. */
uint64_t stock_master(const struct stock *stock);
void stock_pin(struct stock *stock, uint64_t master);
/* fence, here and below: NULL for none. */
enum stock_status stock_read(struct stock *stock, const char *key, const struct stock_fence *fence,
                             int64_t *value);
/* *after: the stock after the write, as the server reports it. */
enum stock_status stock_decrement(struct stock *stock, const char *key, int64_t quantity,
                                  const struct stock_fence *fence, int64_t *after);
enum stock_status stock_write(struct stock *stock, const char *key, int64_t value);
/* What is kept beside the stock for admissions, in its cluster slot. */
struct stock_beside {
    const char *set_key; /* the stock as an operator set it last */
    const char *bucket_key;
};
/* Sets the key, whatever it holds. *before: the value that it held, read in the same step;
 * STOCK_NONE: it held no number. The same step keeps the value under set_key, and fills the
 * bucket. */
#define STOCK_NONE INT64_MIN
enum stock_status stock_replace(struct stock *stock, const char *key, int64_t value,
                                const struct stock_beside *beside, const struct stock_fence *fence,
                                int64_t *before);
/* Adds to the key's number in one step; a missing key counts as 0. *after: the new number. */
enum stock_status stock_add(struct stock *stock, const char *key, int64_t quantity,
                            const struct stock_fence *fence, int64_t *after);
/* STOCK_OK: *epoch is the stock's; its number is 0 if there is none. STOCK_INVALID, here and below:
 * the key holds something else; stock_error() says what to do. */
enum stock_status stock_read_epoch(struct stock *stock, struct stock_epoch *epoch);
/* Raises the epoch if its number is still `from` (0: if there is none), to what `to` says. The new
 * number exceeds `above` and all earlier ones; to->number is not used. *now: the epoch after that.
 * *raised: this call raised it. */
enum stock_status stock_raise_epoch(struct stock *stock, uint64_t from, uint64_t above,
                                    const struct stock_epoch *to, struct stock_epoch *now,
                                    bool *raised);
/* After a write with STOCK_LOST: the connection on which it was sent. */
struct stock_broken_connection {
    long long id;     /* CLIENT ID at its server; 0: not known */
    uint64_t process; /* a random number of its server's process */
};
struct stock_broken_connection stock_broken_connection(const struct stock *stock);
/* How many replies were lost so far: it tells whether one was since then. */
uint64_t stock_lost_count(const struct stock *stock);
/* Makes the server end that connection. STOCK_OK: the write was carried out, or never will be.
 * STOCK_UNAVAILABLE: try again. STOCK_LOST: this server cannot do it, or refuses to. */
enum stock_status stock_kill_broken(struct stock *stock,
                                    const struct stock_broken_connection *broken);
/* For a lost write that may still arrive: from now on FENCE_NEWEST refuses its token. The text of
 * stock_error() is kept; it says why the outcome is unknown. */
enum stock_status stock_shut_out(struct stock *stock, const struct stock_fence *fence);
/* For a sale that was found to be carried out, but whose write was another connection's or an
 * earlier request's: WAIT asks only about its own connection's writes. So this one writes, what
 * changes nothing: it adds 0 to the key's number. STOCK_OK: see stock_is_confirmed. STOCK_LOST: the
 * number is not `after`, so another server answers, which does not have the write. */
enum stock_status stock_confirm(struct stock *stock, const char *key, int64_t after);
/* Reads, checks and decrements in one script. *before: the stock that the script read, with
 * STOCK_OK and STOCK_INSUFFICIENT. */
enum stock_status stock_take(struct stock *stock, const char *key, int64_t quantity,
                             int64_t *before);

/* ---- The layout of a stock ----
 * The key of an item holds its stock as a number; or a hash of the stock and a version that each
 * write raises; or a hash that says over how many segments the stock lies, each with a key of its
 * own. A command for another layout is refused (STOCK_INVALID or STOCK_SEGMENTED). So nobody writes
 * a stock without raising its version, or in one piece while it lies over segments. */
enum stock_layout { LAYOUT_NONE, LAYOUT_NUMBER, LAYOUT_VERSION, LAYOUT_SEGMENTS };
#define SEGMENTS_MAX 16
/* Asks in one step how the stock is laid; LAYOUT_NONE: not so. *segments: over how many. */
enum stock_status stock_find_layout(struct stock *stock, const char *key, enum stock_layout *layout,
                                    int *segments);
/* After STOCK_SEGMENTED of a write: over how many segments the stock lies; 0: over none. */
int stock_segments(const struct stock *stock);
/* After STOCK_INVALID of a command that uses this key: whether it was of another type. False if
 * another key is, or if it is the value that is wrong. */
bool stock_was_of_other_type(const struct stock *stock, const char *key);

struct stock_laying {
    const char *key;
    struct stock_beside beside;
    enum stock_layout layout;
    int segments; /* of LAYOUT_SEGMENTS */
    /* The keys of segments whose locks the caller has. At least as many as the stock lies over
     * before and after, otherwise STOCK_SEGMENTED. */
    const char *const *keys;
    size_t key_count;
    bool adds;
    int64_t units;
};
struct stock_laid {
    int64_t before; /* as of stock_replace */
    int64_t after;
    int segments_before, segments_after; /* 0: one piece */
    int64_t parts_before[SEGMENTS_MAX], parts_after[SEGMENTS_MAX];
};
/* One script that sets the stock, or adds to it, and lays it so, however it was laid before. Over
 * segments the units are shared evenly. STOCK_MISSING: there is no number to add to. */
enum stock_status stock_lay(struct stock *stock, const struct stock_laying *laying,
                            struct stock_laid *laid);

enum stock_status stock_read_version(struct stock *stock, const char *key, int64_t *value,
                                     int64_t *version);
/* One script that takes the units if the version is unchanged. STOCK_CHANGED: it is not. */
enum stock_status stock_take_version(struct stock *stock, const char *key, int64_t version,
                                     int64_t quantity, int64_t *after);

/* Reads all segments of the stock in one script. keys: those of the segments. */
enum stock_status stock_read_segments(struct stock *stock, const char *key, const char *const *keys,
                                      size_t count, int64_t stocks[SEGMENTS_MAX]);
/* DECRBY, INCRBY or SET of one segment, in a script that first looks whether the stock still has so
 * many segments. *after: what the segment has then; of SET it is the number. STOCK_MISSING: there
 * is no such stock. STOCK_SEGMENTED: it has another number of segments, or the segment is
 * missing. */
enum stock_status stock_write_segment(struct stock *stock, const char *key, int segments,
                                      const char *segment_key, const char *command, int64_t number,
                                      int64_t *after);
/* One script that takes units of these segments: of all, or of none. segments: how many the stock
 * has. STOCK_INSUFFICIENT: one of them has too few. after: what each of them has then. */
enum stock_status stock_take_segments(struct stock *stock, const char *key, int segments,
                                      const char *const *keys, const int64_t *quantities,
                                      size_t count, int64_t *after);

/* ---- Sales with a key ----
 * The answer to a sale with an Idempotency-Key is stored in a Redis key of its own. */
#define STOCK_ANSWERED_BY_MAX 32
#define STOCK_RANDOM_DIGITS 32
#define STOCK_ENTRY_MAX 41 /* two numbers of 64 bits, with a - between them */
struct stock_record {
    /* 200; 409: too few were left. Only after a queue: 404: there was no such stock; 503: the life
     * of its entry was over. 202: it is in the queue; then there are entry and random, and no
     * left and mark. */
    int code;
    int64_t quantity;                            /* as asked for */
    int64_t left;                                /* the stock left, by the answer */
    char answered_by[STOCK_ANSWERED_BY_MAX + 1]; /* the instance that answered */
    uint64_t mark; /* identifies the sale; 0: an earlier version wrote the record without one */
    char entry[STOCK_ENTRY_MAX + 1];      /* its entry's number in the queue */
    char random[STOCK_RANDOM_DIGITS + 1]; /* the random part of its id: hexadecimal digits */
};
/* STOCK_MISSING: nothing is stored. STOCK_INVALID: the key holds something else. */
enum stock_status stock_recall(struct stock *stock, const char *record_key,
                               struct stock_record *record);
/* As stock_confirm, for the sale of a stored answer. It gives the record at least keep_ms to live
 * from now on, and never shortens its life. STOCK_MISSING: the record has expired. */
enum stock_status stock_confirm_record(struct stock *stock, const char *record_key,
                                       int64_t keep_ms);
struct stock_once {
    const char *key;
    const char *record_key; /* in the stock's slot */
    int64_t quantity;
    const char *answered_by;
    uint64_t mark; /* not 0; by its mark the sale recognises its own record */
    int64_t keep_ms;
    const struct stock_fence *fence; /* or NULL; not FENCE_LAST_WRITE */
};
/* Sells and stores the answer, in one script. The script looks for a stored answer, then at the
 * fence, then at the stock. It never takes more than there is. STOCK_OK: *record is the answer.
 * *kept: it had been stored before, and nothing was sold now. STOCK_INSUFFICIENT: record->left is
 * the stock. If nothing is left and there is no fence, this answer is stored, too. */
enum stock_status stock_sell_once(struct stock *stock, const struct stock_once *once,
                                  struct stock_record *record, bool *kept);

/* ---- Admission ---- */
struct stock_admission {
    const char *key;        /* the item's bucket, or its window's counter */
    const char *set_key;    /* of a bucket; NULL: it is a window's counter, which is flawed */
    const char *record_key; /* of the answer stored under the sale's key; NULL: it has no key */
    int64_t rate;           /* a second */
    int64_t burst; /* of a bucket; 0: what set_key holds, or if that is missing, the rate */
};
enum stock_verdict {
    STOCK_ADMITTED,      /* and one token was taken */
    STOCK_ADMITTED_KEPT, /* without a token: an answer is stored under the sale's key */
    STOCK_NOT_ADMITTED,
    STOCK_VERDICTS
};
struct stock_admitted {
    enum stock_verdict verdict;
    int64_t wait_us; /* STOCK_NOT_ADMITTED: until one more can be admitted */
};
/* Asks for the admission of one sale, in one script and by the server's clock. STOCK_OK: see the
 * verdict. STOCK_INVALID: one of the keys holds something else; stock_error() says what to do.
 * STOCK_LOST: a token may have been taken. */
enum stock_status stock_admit(struct stock *stock, const struct stock_admission *asked,
                              struct stock_admitted *answer);

/* The server's URL without its login. Any thread may ask. */
const char *stock_shown(const struct stock *stock);
/* A sentence about the latest call that was not STOCK_OK. */
const char *stock_error(const struct stock *stock);
/* After STOCK_STALE: the token that the fence compared with; 0: not known. */
uint64_t stock_newest(const struct stock *stock);

#endif
