/* SPDX-License-Identifier: Apache-2.0
 *
 * One run as the judge sees it: what was asked for, and the three views of what happened, joined by
 * request id. The readers fill it in; the checks do not change what was read.
 */
#ifndef RUN_H
#define RUN_H

#include "findings.h"
#include "names.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    INSTANCES_MAX = 64,
    ITEMS_MAX = 10000,
    HISTORIES_MAX = 256,
    REQUESTS_MAX = 2000000, /* they need less than 1 GB of memory */
    SEGMENTS_MAX = 64,      /* a stock lies over at most as many keys */
    PATH_MAX_BYTES = 4096,
};

_Static_assert(INSTANCES_MAX <= UINT8_MAX && HISTORIES_MAX <= UINT8_MAX + 1,
               "their indexes are stored in bytes");

#define UNITS_MAX INT64_C(1000000000000) /* limit of any number of units: sums fit into 64 bits */
#define NOT_STAMPED INT64_MIN            /* a time: the event was not recorded */
#define NOT_KNOWN INT64_MIN              /* a number: no record states it */
#define NONE UINT32_MAX                  /* an index: there is none */

#define SEEN_MAX 16

/* What an observer saw; used for the picture, not for the verdict. */
struct seen {
    int64_t t_ns;
    const char *text;
    uint32_t killed; /* the instance that was killed then; NONE */
};

#define LOCK_CHANGES_MAX 64

/* What an observer saw of the lock's key; also used only for the picture. */
struct lock_change {
    int64_t t_ns;
    const char *holder; /* NULL: from then on the key does not exist */
    int64_t expires_ns; /* NOT_STAMPED: never */
    bool session;       /* it lives as long as its client's session or lease */
};

/* The clock of the clients, which wrote sale.jtl. */
struct clients {
    const char *boot_id; /* NULL if it is not stated */
    int64_t slack_ms;    /* how far their times may be off */
};

/* run.json */
struct run_spec {
    cJSON *json; /* owns the texts */
    const char *run;
    const char *rung;
    const char *fault;
    const char *instances[INSTANCES_MAX];
    size_t instance_count;
    const char *on_conflict; /* what a request does if the lock is taken */
    int64_t ttl_ms;
    int64_t requests;
    double min_share;
    struct clients clients;
    bool direct; /* the clients called the instances directly: there is no nginx.log */
    bool fenced; /* what is written compares tokens: an old one is refused */
    struct seen seen[SEEN_MAX];
    size_t seen_count;
    struct lock_change lock_changes[LOCK_CHANGES_MAX];
    size_t lock_change_count;
    bool expect_given;
    unsigned expect; /* a bit per result */

    /* of the shop */
    const char *write;
    const char *admit;    /* how many sales it admits, as of --admit */
    const char *segments; /* over how many keys a stock lies, as of --segments */
    int64_t retries;      /* how often a buyer asks again after that, at most */
    int64_t quantity;
    bool restocked;
    bool fresh_keys; /* no Idempotency-Key of this run was ever used before */
};

enum moment { BEFORE, AFTER };

/* A lock's key in Redis. */
struct redis_lock {
    bool there;
    int64_t pttl_ms; /* -1: it never expires */
};

/* An item's stock and locks in Redis before the run, or after it. */
struct redis_side {
    int64_t stock; /* NOT_KNOWN if redis.json does not state it. Of the menu: the version in the
                      cache; 0: none. Of an account: the balance */
    bool lock_there;
    int64_t lock_pttl_ms;     /* -1: it never expires */
    struct redis_lock *locks; /* by segment; NULL: there is one, as above */
    size_t lock_count;        /* 0: NULL */
    int64_t queued;           /* entries in its queue; NOT_KNOWN if redis.json does not state it */
    int64_t version;          /* of an account's balance */
};

/* How the units of a stock lay over its segments. */
struct layout {
    uint32_t parts;   /* index in run->parts: what each segment had; NONE: not known */
    uint8_t segments; /* 1: the stock was one number; 0: there was none, or it is not known */
};

/* Restocks of an item with a recorded intent and no recorded outcome, see restocks.c. */
struct possible {
    size_t count;
    int64_t units;    /* the most units that they may have added */
    int64_t first_ns; /* time of the first intent; none added units before it */
    bool sets;        /* one of them sets the stock */
    bool done;        /* all were carried out; supply includes them */
};

struct item {
    const char *name;
    int64_t stock;              /* at the start, from run.json; of the menu: the version; of an
                                   account: the balance */
    struct redis_side redis[2]; /* by enum moment */
    uint32_t lock;              /* the lock that its holds name; NO_NAME if it has no hold. If the
                                   stock lies over segments: the lock of the first one */
    int64_t began;              /* the stock when the first request to buy came; NOT_KNOWN */

    /* Set by check_conservation, for the checks that run after it. */
    int64_t shelf;       /* units at the start; the greatest value if records differ */
    struct layout laid;  /* of the shelf */
    int64_t supply;      /* shelf plus what restocks added */
    int64_t supply_most; /* supply plus what possible restocks may have added */
    struct possible possible;
    int64_t restocked_ns; /* when the first restock began; INT64_MIN: unknown, INT64_MAX: none */
    bool supply_exact;    /* false: a restock lacks its stock_before, so supply is an upper bound */
    int64_t wanted;       /* units that requests asked for */
    int64_t sold;         /* units */
    int64_t disputed;     /* units of them that the client's record contradicts */
    int64_t unknown;      /* units of sales with an unknown outcome */
    int64_t *unknowns;    /* the quantities of those sales, see unknown.c */
    size_t unknown_count, unknown_capacity;
    int64_t taken; /* units missing in the end that those sales explain */
};

enum outcome {
    OUTCOME_NONE, /* no instance recorded its end */
    OUTCOME_SOLD,
    OUTCOME_ANSWERED, /* of the menu and the account */
    OUTCOME_READ,     /* a request that only reads */
    OUTCOME_REPLAYED, /* it got the stored answer of its idempotency key */
    OUTCOME_REFUSED,
    OUTCOME_FAILED,
    OUTCOME_UNKNOWN,
    OUTCOME_CLIENT_ONLY, /* no instance recorded its end; the client got a 200 */
    OUTCOME_REJECTED,    /* no instance accepted it; the client got a 4xx or 5xx */
};

enum reason { /* of a refusal: those that a check needs */
              REASON_OTHER,
              REASON_SOLD_OUT, /* sold-out, insufficient-stock */
              REASON_UNKNOWN_ITEM,
              REASON_LOCK_TIMEOUT,
              REASON_LOCK_ERROR,
              REASON_LOCK_LOST,
              REASON_STALE_TOKEN,
              REASON_CLIENT_CLOSED,
              REASON_IN_FLIGHT, /* another request uses the key */
              REASON_KEY_REUSED,
              REASON_LOCK_BUSY, /* an attempt, see buyers.c */
              REASON_TRY_AGAIN, /* contended, not-admitted: an attempt, too */
};

/* There are up to REQUESTS_MAX requests, so rare fields are stored elsewhere. */
struct request {
    /* the client's view, from sale.jtl */
    int64_t start_ms;
    union {
        int64_t client_unit;    /* NOT_KNOWN if the answer has none */
        int64_t client_version; /* of the menu and the account */
        int64_t client_task;    /* of tasks */
    };
    int64_t client_left;
    int64_t asked_quantity;   /* from the URL; NOT_KNOWN */
    uint32_t asked_item;      /* from the URL; NONE */
    uint32_t client_item;     /* from the answer; NONE: absent, or not on sale */
    uint32_t client_instance; /* from the answer; NONE: absent, or not of this run */
    uint32_t elapsed_ms;
    int16_t client_code; /* 0 if there is none */

    /* nginx's view, from nginx.log */
    int16_t nginx_status;
    uint32_t sent; /* number of upstreams; 0: nginx answered itself */

    /* the instance's view, from history-*.jsonl */
    int64_t quantity;
    int64_t invoke_ns;
    int64_t first_ns; /* of its earliest event */
    int64_t last_ns;  /* of its latest event */
    int64_t outcome_ns;
    uint32_t item;    /* NONE if run.json does not name it */
    uint32_t section; /* head of the list of its sections, latest first; NONE */
    uint32_t key;     /* number of its idempotency key, which belongs to an item; NONE */
    uint32_t replay;  /* its index in run->replays; NONE */
    uint32_t buyer;   /* number of the buyer that its client names; NONE */
    uint32_t entry;   /* of the accepted sale that it belongs to, in run->entries; NONE */
    int16_t code;
    uint8_t history;
    uint8_t instance;
    enum outcome outcome : 8;
    enum reason reason : 8;

    bool sampled : 1;         /* it is in sale.jtl */
    bool transport_error : 1; /* the client got no answer of the shop */
    bool called_failed : 1;   /* JMeter says success=false */
    bool client_replayed : 1; /* the answer was marked as a stored one */
    bool proxied : 1;         /* it is in nginx.log */
    bool accepted : 1;        /* by an instance */
    bool accepted_twice : 1;
    bool reads : 1;     /* it only reads */
    bool kept : 1;      /* its refusal is stored under its key */
    bool confirmed : 1; /* a sale of it agrees with its client's answer; set by sales_find */
    bool repeats : 1;   /* another request represents its key, or its buyer asked again; set by
                           keys_settle and buyers_settle */
    bool elsewhere : 1; /* its URL names an item that is not on sale in this run */
    bool before : 1;    /* its stored answer was first given before the run; set by sales_find */
    bool mistimed : 1;  /* its times are no proof; set by check_clocks and the readers */

    /* with --on-conflict queue */
    bool queued : 1;        /* its instance answered 202 */
    bool client_queued : 1; /* its client was told so */
    bool doubted : 1;       /* whether it was accepted, its instance did not know */
    bool denied : 1;        /* its instance answered that nothing was sold */
    bool taken : 1;         /* an instance worked at it */
};

/* The stored answer that a request with OUTCOME_REPLAYED got. */
struct replay {
    int64_t unit; /* NOT_KNOWN if there is none */
    int64_t left;
    uint32_t answered_by; /* the instance that gave it first; NONE */
};

/* An entry's number in its item's queue, as 1767268800123-0. 0-0: not known. */
struct place {
    int64_t ms;
    int64_t number;
};

/* A sale that was accepted into a queue. */
struct entry {
    struct place place;
    uint32_t request;     /* whose acceptance made it; NONE */
    uint32_t accepted_by; /* an instance that told its id; NONE */
    uint32_t taken_by;    /* the history with the `taken` that was read last; NONE */
    uint32_t decided_by;  /* the instance of its first outcome; NONE */
    uint32_t decided_in;  /* the history of that outcome; NONE */
    uint32_t item;        /* NONE if run.json does not name it */
    unsigned decisions;   /* how many outcomes are recorded */
    int64_t latest_ns;    /* of that `taken` */
    int64_t taken_ns;     /* it was not decided before; NOT_STAMPED */
    int64_t decided_ns;   /* it was decided by then; NOT_STAMPED */
    int64_t told_unit;    /* by the client; NOT_KNOWN */
    int64_t told_left;
    int64_t told_ms;   /* when that answer came */
    int16_t code;      /* of its first outcome */
    int16_t told_code; /* by the client: the latest answer to a GET of its id; 0 */
    bool accepted;     /* a 202 was recorded; set by entries_settle */
    bool taken;        /* an instance worked at it */
    bool ended;        /* that `taken` has its end */
    bool may_be_lost;  /* by one that was killed; set by entries_settle */
    bool told_twice;   /* the client was told outcomes that differ */
};

/* An instance began to work at an entry. */
struct take {
    int64_t t_ns;
    uint32_t entry;
    uint8_t history;
};

/* The stages of a hold, in their order. */
enum stage {
    STAGE_GRANTED,
    STAGE_ENTER,
    STAGE_READ,
    STAGE_WRITE,
    STAGE_EXIT,
    STAGE_RELEASE,
    STAGE_COUNT,
    STAGE_NONE = STAGE_COUNT,
};

/* One hold of one lock: a critical section. A run has about as many as requests. */
struct section {
    uint32_t request;
    uint32_t next;  /* next section of the same request; NONE */
    uint32_t item;  /* NONE if run.json does not name it */
    uint32_t lock;  /* NO_NAME: unknown, and it proves nothing about others */
    uint32_t again; /* its index in run->again_ns; NONE */
    uint8_t history;
    uint8_t instance;
    enum stage stage : 8; /* the last one recorded */
    bool shared : 1;      /* under the read lock: other readers may be inside */
    bool sold : 1;
    bool filled : 1;            /* of the menu: it filled the cache; of tasks: it picked one; of an
                                   account: it wrote */
    bool quantity_denied : 1;   /* its request asked for another quantity */
    bool left_denied : 1;       /* its client's answer states another `left` */
    bool kept : 1;              /* its release failed, or its outcome is unknown */
    bool overlapped : 1;        /* set by check_exclusion */
    int64_t at_ns[STAGE_COUNT]; /* NOT_STAMPED if not recorded */
    int64_t ended_ns;           /* its exit, otherwise the last time at which it surely lasted */
    int64_t token;              /* 0 if there is none */
    int64_t epoch;              /* of the stock, when it was read; 0 if there is none */
    int64_t stock_before;       /* what `read` stated; NOT_KNOWN */
    int64_t stock_after;
    int64_t unit; /* the lowest unit that was sold */
    int64_t quantity;
};

/* Of a section whose instance has the stock in segments. A sale that spans several segments has a
 * section for each, and each sells a part. */
struct share {
    int64_t all;      /* the units of all segments, as it read them; NOT_KNOWN */
    int64_t left;     /* that the buyer was told; NOT_KNOWN */
    uint8_t segments; /* over which the stock lies; 1: it lies in one key; 0: records differ */
    uint8_t segment;  /* whose lock it holds, from 1 */
    uint8_t part;     /* of the sale, from 1; 0: it sold nothing */
    uint8_t parts;
};

/* Where to find a sale's data; run_sale() puts them together. */
struct sold {
    uint32_t section; /* NONE if only the client's record tells of it */
    uint32_t request;
    bool disputed;
};

/* What was sold to one request, as its instance or its client recorded it. */
struct sale {
    const struct section *section; /* NULL if only the client's record tells of it */
    uint32_t request;
    uint32_t instance; /* NONE if unknown */
    uint32_t item;
    bool disputed; /* contradicted or uncertain: it proves nothing */
    int64_t unit;  /* the lowest one; NOT_KNOWN */
    int64_t quantity;
    int64_t t_ns;     /* of the write; INT64_MAX if unknown */
    uint8_t segments; /* of the stock: its next unit is unit + segments. 0: not known */
};

_Static_assert(sizeof(struct request) <= 136 && sizeof(struct section) <= 128,
               "a run has millions of them");

enum mark_kind { MARK_RENEW, MARK_LOST, MARK_STALL };

struct mark {
    enum mark_kind kind;
    size_t instance;
    size_t section; /* NONE for MARK_STALL, or if the hold is not found */
    int64_t t_ns;
    int64_t late_ns; /* MARK_STALL */
};

struct restock {
    int64_t t_ns;
    int64_t began_ns; /* of its intent; NOT_STAMPED */
    uint32_t history;
    size_t item;
    int64_t before; /* NOT_KNOWN */
    int64_t after;
    struct layout laid[2]; /* by enum moment */
};

enum intent_state { INTENT_OPEN, INTENT_LOST, INTENT_SETTLED };

/* A restock that an operator asked for, recorded before the write. Unless its state is
 * INTENT_SETTLED, it may have been carried out. */
struct intent {
    int64_t t_ns;
    uint32_t history;
    uint32_t item; /* NONE if it is not on sale in this run */
    bool sets;     /* it sets the stock to `units`; otherwise it adds them */
    enum intent_state state : 8;
    int64_t units;
};

enum { CLOCK_NAME_MAX = 64 };

/* What a `begin` states about the clock of its file. */
struct clock {
    bool known;
    char boot_id[CLOCK_NAME_MAX];
    char time_namespace[CLOCK_NAME_MAX];
    int64_t realtime_offset_ns; /* CLOCK_REALTIME minus this clock */
};
/* The most by which two realtime_offset_ns of one boot may differ. */
enum { APART_NS_MAX = 100000 };

/* One life of an instance, from its `begin` to its `end`. If an instance restarts, its file holds
 * several lives. If its file is moved away while it runs, one life has several files. */
struct history {
    char *file; /* name of its first file in the folder */
    uint32_t instance;
    uint8_t segments;   /* over which its instance has a stock, from its `begin` */
    bool naive;         /* a sale whose segment is empty is told that all is sold */
    bool told_segments; /* that `begin` could be read */
    int64_t pid;
    int64_t part;        /* number of its latest file */
    bool continued;      /* that file's last line says that another file follows */
    bool ended;          /* it has its `end`: no record can be missing there */
    struct clock clock;  /* from its first part */
    bool stepped;        /* the clock of another part differs */
    bool timed;          /* its clock agrees with that of the others; set by check_clocks */
    bool clock_disputed; /* a client's times contradict its own; set by check_clocks */
    bool damaged;        /* records of it are missing or unreadable */
    int64_t first_ns;    /* of its `begin` */
    int64_t last_ns;     /* of its latest record; the instance lived until then at least */
};

/* The numbers in verdict.json; those of several items are summed up. */
struct counts {
    int64_t initial, requests, sold, left, oversold, surplus, shortfall, unsold, unknown, distinct;
    int64_t duplicate_units;     /* units sold more often than they were in stock */
    int64_t duplicate_key_units; /* units sold under a key that already had its sale */
    int64_t replayed;            /* stored answers that were sent again */
    int64_t before;              /* those of them that were first given before the run */
    int64_t attempts;            /* refusals after which the buyer asked again */
    int64_t accepted;            /* sales that were accepted into a queue */
    int64_t handed_over;         /* those of them that another instance processed */
    int64_t unfinished;          /* those of them without an outcome */
    int64_t overtaken;           /* those that were decided after a younger one of their item */
    int64_t given_up;    /* those of rejected_early after which the buyer might have asked again */
    int64_t one_segment; /* those of rejected_early that found too few in their own segment */
    int64_t overlaps, max_parallel, order_inversions, token_refusals, rejected_early, stalls;
    int64_t served_by[INSTANCES_MAX], sold_by[INSTANCES_MAX];
};

/* Two sections that show a fault, in the order of their enter; NULL and NULL if there are none. */
struct collision {
    const struct section *first;
    const struct section *second;
};

struct rules;

struct run {
    const char *folder;
    const struct rules *rules; /* of its service */
    struct run_spec spec;
    struct findings findings;

    struct item *items;
    size_t item_count;
    struct names item_names;

    struct request *requests;
    size_t request_count, request_capacity;
    struct names request_ids;
    struct names keys;     /* idempotency keys, each with the item's name */
    struct names buyers;   /* as the clients name them */
    struct names sale_ids; /* of accepted sales; each has the number of its entry */
    struct entry *entries;
    size_t entry_count, entry_capacity;
    struct take *takes;
    size_t take_count, take_capacity;
    struct replay *replays;
    size_t replay_count, replay_capacity;

    struct section *sections;
    size_t section_count, section_capacity;
    struct names holds;     /* a hold has the number of its section, see find_hold */
    struct names processes; /* the first parts of the names of holds */
    struct names locks;
    struct share *shares; /* by section; NULL if no stock lies over segments */
    size_t share_capacity;
    int64_t *parts; /* the units of segments, see struct layout */
    size_t part_count, part_capacity;
    /* By section.again: when a holder's second request for its own lock was rejected. */
    int64_t *again_ns;
    size_t again_count, again_capacity;

    struct sold *sales;
    size_t sale_count, sale_capacity;
    struct mark *marks;
    size_t mark_count, mark_capacity;
    struct restock *restocks;
    size_t restock_count, restock_capacity;
    struct intent *intents;
    size_t intent_count, intent_capacity;
    struct names restock_ids; /* request ids of the intents */
    uint32_t *latest_intent;  /* by the number of that id */
    size_t latest_intent_count, latest_intent_capacity;
    struct history histories[HISTORIES_MAX];
    size_t history_count;

    uint8_t segments;       /* of each stock; 0: instances had different numbers of them */
    bool nginx_read;        /* nginx.log could be opened */
    bool replays_told;      /* sale.jtl states which answers were stored ones */
    bool truncated;         /* a history has a gap in `seq` */
    bool all_told;          /* every instance's history is complete to its `end` */
    bool restocks_lost;     /* restocks may be missing from the records: the supply is unknown */
    int64_t redis_commands; /* served during the run; NOT_KNOWN */

    struct section **by_lock; /* the entered ones, sorted by lock, enter, exit, mode */
    size_t by_lock_count;
    int64_t start_ns; /* first event of a request; times are printed relative to it */
    int64_t end_ns;
    int64_t sales_ns; /* first event of a request to buy; the run is being prepared until then */

    size_t unknown_steps; /* the work that unknown.c has done for the run */

    struct menu *menu;       /* what a menu's records tell; NULL */
    struct tasks *tasks;     /* what the records of tasks tell; NULL */
    struct account *account; /* what an account's records tell; NULL */
    struct counts counts;
    struct collision twice;               /* the sales of the first unit sold twice */
    const struct section *beyond;         /* the first sale of a unit <= 0 */
    const struct request *first_rejected; /* the first that was rejected too early */
    struct collision meeting;             /* an overlap while the most were inside */
    struct collision shown;               /* of the menu: whose question was not needed, and why; of
                                             an account: who lost money, and over whom */
    const struct section *self_wait;      /* its request waited for its own lock, or in a cycle */
    const struct item *stuck;             /* its lock is held for ever */
    const struct section *stuck_grant;    /* that lock's last recorded hold; NULL */
};

void run_init(struct run *run, const char *folder);
void run_free(struct run *run);

/* Returns the request with that id, and creates it if it is new. NONE if there are too many. */
uint32_t run_request(struct run *run, const char *id);
/* The instance's index in run.json's list, or NONE. */
uint32_t run_instance(const struct run *run, const char *name);
uint32_t run_item(const struct run *run, const char *name); /* NONE if it is not on sale */
/* What the URL asks for, as ".../inventory/{item}/sale...". */
struct wish {
    uint32_t item;    /* NONE: not on sale, or the URL has another form */
    bool elsewhere;   /* it names an item that is not on sale in this run */
    int64_t quantity; /* NOT_KNOWN: the URL has another form, or no valid quantity */
};
struct wish run_wish(const struct run *run, const char *url);
const char *run_request_id(const struct run *run, size_t request);
/* Whether the section reads without a write that depends on it. */
bool run_only_reads(const struct run *run, const struct section *section);
/* Whether its process was killed inside the section. */
bool run_was_killed(const struct run *run, const struct section *section);
/* When the killed process of that history died: as an observer saw it, otherwise its last record.
 * For the picture. */
int64_t run_death_ns(const struct run *run, const struct history *history);
/* The section's end in the picture. If its process was killed inside it, that is the process's
 * death. */
int64_t run_shown_end_ns(const struct run *run, const struct section *section);
/* Its share of a sale over segments. The stock's one segment if there are no others. */
struct share run_share(const struct run *run, const struct section *section);
/* The units of the whole stock, as the section read it; NOT_KNOWN. */
int64_t run_read_all(const struct run *run, const struct section *section);
/* What the buyer was told to be left, after the section's sale. */
int64_t run_told_left(const struct run *run, const struct section *section);
/* What a number of units levelled over segments has in that one, from 1. */
int64_t run_level(int64_t units, uint8_t segments, uint8_t segment);
/* How many units the request's sale lacks: a part of it that no record states. */
int64_t run_missing_parts(const struct run *run, const struct request *request);
/* When the holder's second request for its own lock was rejected; NOT_STAMPED. */
int64_t run_again_ns(const struct run *run, const struct section *section);
/* Whether the request's times may be compared with those of others. */
bool run_is_request_timed(const struct run *run, const struct request *request);
/* The same for a section. */
bool run_is_timed(const struct run *run, const struct section *section);
/* How many sections of run->by_lock have times that may not be compared. */
size_t run_untimed(const struct run *run);
/* Whether the instance left histories without a missing or unreadable record. With must_end, each
 * also has its `end`, so no killed process can have left a record unwritten. */
bool run_tells_all(const struct run *run, uint32_t instance, bool must_end);
bool run_all_told(const struct run *run, bool must_end); /* the same for every instance */
/* Milliseconds since the start of the run. */
double run_ms(const struct run *run, int64_t t_ns);

/* Runs after the readers and check_clocks. Sorts the sections, and finds out when each ended. */
void run_settle(struct run *run);
/* Finds the requests that were rejected before an instance accepted them: no history has them, but
 * their clients count. */
void run_find_rejected(struct run *run);

/* ---- The shop: parts of its run_settle ---- */

/* Fills run->sales, and finds the outcome of requests that no instance recorded. */
void sales_find(struct run *run);
struct sale run_sale(const struct run *run, size_t number);
/* After sales_find: decides which request represents each key. */
void keys_settle(struct run *run);
/* After keys_settle: finds the attempts of buyers who asked again. */
void buyers_settle(struct run *run);
/* Before sales_find: joins accepted sales with their requests. */
void entries_settle(struct run *run);
uint32_t entries_add(struct run *run, const char *id); /* its number, old or new */
const char *entries_id(const struct run *run, size_t entry);
/* Reads an entry's number. */
bool entries_place(const char *text, struct place *place);
bool entries_is_placed(const struct place *place);
int entries_by_place(const struct place *one, const struct place *two); /* as for qsort */
/* Whether its client was told an outcome that no other answer looks like: a 200 or a 409. */
bool entries_is_told(const struct entry *entry);
/* Whether it was accepted and has no outcome at the end. */
bool entries_is_unfinished(const struct run *run, const struct entry *entry);
/* The number of that key of the item; a new key gets one. */
uint32_t keys_add(struct run *run, uint32_t item, const char *key);
uint32_t keys_find(const struct run *run, uint32_t item, const char *key); /* NONE if it is new */
const char *keys_text(const struct run *run, uint32_t key);

#endif
