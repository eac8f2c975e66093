/* SPDX-License-Identifier: Apache-2.0
 *
 * One run as the judge sees it: what was asked for, and the three views of what happened, joined by
 * request id. The readers fill it in, the checks only look.
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
    REQUESTS_MAX = 2000000, /* less than 1 GB of memory */
    PATH_MAX_BYTES = 4096,
};

_Static_assert(INSTANCES_MAX <= UINT8_MAX && HISTORIES_MAX <= UINT8_MAX + 1,
               "their numbers are bytes");

#define UNITS_MAX INT64_C(1000000000000) /* of any number of units: sums stay within 64 bits */
#define NOT_STAMPED INT64_MIN            /* of a time: that event was not recorded */
#define NOT_KNOWN INT64_MIN              /* of a number: nobody said */
#define NONE UINT32_MAX                  /* of an index */

#define SEEN_MAX 16

/* What somebody who stood by saw: for the picture, not for the verdict. */
struct seen {
    int64_t t_ns;
    const char *text;
};

/* The clock of those who wrote sale.jtl. */
struct clients {
    const char *boot_id; /* NULL: not told */
    int64_t slack_ms;    /* by so much their times may be off */
};

/* run.json */
struct run_spec {
    cJSON *json; /* holds the texts */
    const char *run;
    const char *rung;
    const char *write;
    const char *fault;
    const char *instances[INSTANCES_MAX];
    size_t instance_count;
    int64_t ttl_ms;
    int64_t requests;
    int64_t quantity;
    double min_share;
    struct clients clients;
    bool restocked;
    bool direct; /* the clients asked the instances themselves: there is no nginx.log */
    struct seen seen[SEEN_MAX];
    size_t seen_count;
    bool expect_given;
    unsigned expect; /* a bit per result */
};

enum moment { BEFORE, AFTER };

/* What an item's stock and lock were in Redis before the run, or after it. */
struct redis_side {
    int64_t stock; /* NOT_KNOWN: redis.json does not say */
    bool lock_there;
    int64_t lock_pttl_ms; /* -1: it never expires */
};

/* Restocks of an item of which only the intent is told, see restocks.c. */
struct possible {
    size_t count;
    int64_t units;    /* so many they have added at most */
    int64_t first_ns; /* the first intent: before it they have added nothing */
    bool sets;        /* one of them sets the stock */
    bool done;        /* all were carried out: supply counts them */
};

struct item {
    const char *name;
    int64_t stock;              /* run.json's, at the start */
    struct redis_side redis[2]; /* by moment */
    uint32_t lock;              /* of those who buy it; NO_NAME: none was granted */
    int64_t began;              /* the stock when the first request came; NOT_KNOWN */

    /* Found by check_conservation, for the checks behind it. */
    int64_t shelf;       /* units at the start; if records differ, the greatest */
    int64_t supply;      /* units on the shelf: those, and what restocks added */
    int64_t supply_most; /* likewise, and what possible restocks added */
    struct possible possible;
    int64_t restocked_ns; /* before it no restock had begun; INT64_MIN: not known, INT64_MAX: there
                             was none */
    bool supply_exact;    /* false: a restock did not say what it found, supply is an upper bound */
    int64_t wanted;       /* units that requests asked for */
    int64_t sold;         /* units */
    int64_t disputed;     /* so many of them were told to their clients otherwise */
    int64_t unknown;      /* units of sales whose outcome nobody knows */
};

enum outcome {
    OUTCOME_NONE, /* no instance said how it ended */
    OUTCOME_SOLD,
    OUTCOME_READ,     /* of who only reads */
    OUTCOME_REPLAYED, /* it got what was answered to its idempotency key before */
    OUTCOME_REFUSED,
    OUTCOME_FAILED,
    OUTCOME_UNKNOWN,
    OUTCOME_CLIENT_ONLY, /* no instance said, and the client holds a 200 */
    OUTCOME_REJECTED,    /* no instance accepted it, and the client holds a 4xx or 5xx */
};

enum reason { /* of a refusal; the ones that a check asks for */
              REASON_OTHER,
              REASON_SOLD_OUT, /* sold-out, insufficient-stock */
              REASON_UNKNOWN_ITEM,
              REASON_LOCK_TIMEOUT,
              REASON_LOCK_ERROR,
              REASON_LOCK_LOST,
              REASON_STALE_TOKEN,
              REASON_CLIENT_CLOSED,
              REASON_IN_FLIGHT, /* another request has the key */
              REASON_KEY_REUSED,
};

/* There are up to REQUESTS_MAX: what few of them have stands elsewhere. */
struct request {
    /* the client's view: sale.jtl */
    int64_t start_ms;
    int64_t client_unit; /* NOT_KNOWN: none was told */
    int64_t client_left;
    int64_t asked_quantity;   /* as the URL names it; NOT_KNOWN: it names none */
    uint32_t asked_item;      /* likewise; NONE */
    uint32_t client_item;     /* of the answer; NONE: none, or one that is not on sale */
    uint32_t client_instance; /* NONE likewise */
    uint32_t elapsed_ms;
    int16_t client_code; /* 0: none */

    /* nginx's view */
    int16_t nginx_status;
    uint32_t sent; /* to so many upstreams; 0: nginx answered by itself */

    /* the instance's view: history-*.jsonl */
    int64_t quantity;
    int64_t invoke_ns;
    int64_t first_ns; /* its first event */
    int64_t last_ns;  /* its last one */
    int64_t outcome_ns;
    uint32_t item;    /* NONE: not one of run.json's */
    uint32_t section; /* its first one, NONE */
    uint32_t key;     /* its idempotency key, which is an item's; NONE */
    uint32_t replay;  /* its place in run->replays; NONE */
    int16_t code;
    uint8_t history;
    uint8_t instance;
    enum outcome outcome : 8;
    enum reason reason : 8;

    bool sampled : 1;         /* it is in sale.jtl */
    bool transport_error : 1; /* no answer of the shop came back */
    bool called_failed : 1;   /* JMeter says success=false */
    bool client_replayed : 1; /* the answer was marked as one that was given before */
    bool proxied : 1;         /* it is in nginx.log */
    bool accepted : 1;        /* by an instance */
    bool accepted_twice : 1;
    bool reads : 1;     /* it only reads, and never sells */
    bool kept : 1;      /* its sold-out is kept under its key */
    bool confirmed : 1; /* its client was told of a sale that it has; found by sales_find */
    bool repeats : 1;   /* another request stands for its key; found by keys_settle */
    bool elsewhere : 1; /* its URL names an item that is not on sale in this run */
    bool before : 1;   /* what it was told again was answered before the run; found by sales_find */
    bool mistimed : 1; /* its times contradict what its client saw; found by check_clocks */
};

/* What a request with OUTCOME_REPLAYED was told again. */
struct replay {
    int64_t unit; /* NOT_KNOWN: none */
    int64_t left;
    uint32_t answered_by; /* the instance that answered first; NONE */
};

/* What happened to one hold, in this order. */
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

/* One hold of one lock: a critical section. There are about as many as requests. */
struct section {
    uint32_t request;
    uint32_t next;  /* of the same request, NONE */
    uint32_t item;  /* NONE: not one of run.json's */
    uint32_t lock;  /* NO_NAME: not known, then it proves nothing about others */
    uint32_t again; /* its place in run->again_ns, NONE */
    uint8_t history;
    uint8_t instance;
    enum stage stage : 8; /* the last one recorded */
    bool shared : 1;      /* under the read lock: others of that kind may be inside, too */
    bool sold : 1;
    bool quantity_denied : 1;   /* its request asked for another one */
    bool left_denied : 1;       /* its client was told that another number was left */
    bool kept : 1;              /* its release did not arrive, or nobody knows */
    bool overlapped : 1;        /* found by check_exclusion */
    int64_t at_ns[STAGE_COUNT]; /* NOT_STAMPED where not recorded */
    int64_t ended_ns;           /* exit, or as long as it is known to have lasted */
    int64_t token;              /* 0: none */
    int64_t stock_before;       /* what `read` found; NOT_KNOWN */
    int64_t stock_after;
    int64_t unit; /* the lowest that was sold */
    int64_t quantity;
};

/* Where a sale stands. */
struct sold {
    uint32_t section; /* NONE: the client alone tells of it */
    uint32_t request;
    bool disputed;
};

/* What was sold to one request, as its instance or its client tells: run_sale puts it together. */
struct sale {
    const struct section *section; /* NULL: the client alone tells of it */
    uint32_t request;
    uint32_t instance; /* NONE: not known */
    uint32_t item;
    bool disputed; /* the client was told something else: it proves nothing */
    int64_t unit;  /* the lowest; NOT_KNOWN */
    int64_t quantity;
    int64_t t_ns; /* of the write; INT64_MAX: not known */
};

_Static_assert(sizeof(struct request) <= 120 && sizeof(struct section) <= 120,
               "a run has millions of them");

enum mark_kind { MARK_RENEW, MARK_LOST, MARK_STALL };

struct mark {
    enum mark_kind kind;
    size_t instance;
    size_t section; /* NONE with MARK_STALL */
    int64_t t_ns;
    int64_t late_ns; /* MARK_STALL */
};

struct restock {
    int64_t t_ns;
    int64_t began_ns; /* of its intent; NOT_STAMPED: it has none */
    uint32_t history;
    size_t item;
    int64_t before; /* NOT_KNOWN */
    int64_t after;
};

enum intent_state { INTENT_OPEN, INTENT_LOST, INTENT_SETTLED };

/* What an operator wanted, as recorded ahead of the write. Not settled: it may have been carried
 * out. */
struct intent {
    int64_t t_ns;
    uint32_t history;
    uint32_t item; /* NONE: not on sale in this run */
    bool sets;     /* the stock to so many units; else it adds them */
    enum intent_state state : 8;
    int64_t units;
};

enum { CLOCK_NAME_MAX = 64 };

/* What a `begin` says of its file's times. */
struct clock {
    bool known;
    char boot_id[CLOCK_NAME_MAX];
    char time_namespace[CLOCK_NAME_MAX];
    int64_t realtime_offset_ns; /* CLOCK_REALTIME is so far ahead of it */
};
enum { APART_NS_MAX = 100000 }; /* of two readings of that on one boot */

/* One life of an instance, from its `begin` to its `end`. A restarted one has several in a file;
 * one whose file was moved away meanwhile has several files. */
struct history {
    char *file; /* its name in the folder; the first one's */
    uint32_t instance;
    int64_t pid;
    int64_t part;        /* the number of its latest file */
    bool continued;      /* that one's last line says that another one follows */
    bool ended;          /* an orderly end: nothing can be missing at its tail */
    struct clock clock;  /* of its first part */
    bool stepped;        /* that of another part is another one */
    bool timed;          /* its times are those of the other histories; found by check_clocks */
    bool clock_disputed; /* a client saw another time than it tells; likewise */
    bool damaged;        /* its file lacks records, or has some that cannot be read */
    int64_t first_ns;    /* of its begin */
    int64_t last_ns;     /* the instance lived at least until then */
};

/* What verdict.json tells in numbers; several items are summed up. */
struct counts {
    int64_t initial, requests, sold, left, oversold, surplus, shortfall, unsold, unknown, distinct;
    int64_t duplicate_units;     /* units sold more often than they were there */
    int64_t duplicate_key_units; /* units sold under an idempotency key that had its sale */
    int64_t replayed;            /* answers that were given again */
    int64_t before;              /* so many of them were given first before the run */
    int64_t overlaps, max_parallel, order_inversions, token_refusals, rejected_early, stalls;
    int64_t served_by[INSTANCES_MAX], sold_by[INSTANCES_MAX];
};

/* Two sections that tell the story, the first to enter first; NULL, NULL when there are none. */
struct collision {
    const struct section *first;
    const struct section *second;
};

struct run {
    const char *folder;
    struct run_spec spec;
    struct findings findings;

    struct item *items;
    size_t item_count;
    struct names item_names;

    struct request *requests;
    size_t request_count, request_capacity;
    struct names request_ids;
    struct names keys; /* idempotency keys, each with its item */
    struct replay *replays;
    size_t replay_count, replay_capacity;

    struct section *sections;
    size_t section_count, section_capacity;
    struct names holds;     /* a hold's number is its section's, see find_hold */
    struct names processes; /* of holds */
    struct names locks;
    int64_t *again_ns; /* when a hold's request had asked for the same lock again, in vain */
    size_t again_count, again_capacity;

    struct sold *sales;
    size_t sale_count, sale_capacity;
    struct mark *marks;
    size_t mark_count, mark_capacity;
    struct restock *restocks;
    size_t restock_count, restock_capacity;
    struct intent *intents;
    size_t intent_count, intent_capacity;
    struct names restock_ids; /* their request ids */
    uint32_t *latest_intent;  /* by the number of such an id */
    size_t latest_intent_count, latest_intent_capacity;
    struct history histories[HISTORIES_MAX];
    size_t history_count;

    bool nginx_read;        /* nginx.log is there */
    bool replays_told;      /* sale.jtl says which answers were given before */
    bool truncated;         /* a history lacks lines */
    bool all_told;          /* every instance's history tells of all that it accepted */
    bool restocks_lost;     /* some may not be recorded: nobody knows what was there */
    int64_t redis_commands; /* sent during the run; NOT_KNOWN */

    struct section **by_lock; /* those that were entered, by lock, enter, exit, mode */
    size_t by_lock_count;
    int64_t start_ns; /* the first event of a request: times are told from here */
    int64_t end_ns;
    int64_t sales_ns; /* the first event of a request to buy: before it the run is only set up */

    struct counts counts;
    struct collision twice;               /* the first unit that was sold twice */
    const struct section *beyond;         /* the first sale of a unit <= 0 */
    const struct request *first_rejected; /* the first that was, while enough was left */
    struct collision meeting;             /* the overlap where most were inside at once */
    const struct section *self_wait;   /* asked again for the lock that its request held, in vain */
    const struct item *stuck;          /* nobody will ever have its lock again */
    const struct section *stuck_grant; /* who held that lock last; NULL: nobody told of it */
};

void run_init(struct run *run, const char *folder);
void run_free(struct run *run);

/* The request of that id, made when it is new; NONE when there are too many. */
uint32_t run_request(struct run *run, const char *id);
/* The instance's place in run.json's list, NONE. */
uint32_t run_instance(const struct run *run, const char *name);
uint32_t run_item(const struct run *run, const char *name); /* NONE: not on sale */
/* What ".../inventory/{item}/sale..." asks for. */
struct wish {
    uint32_t item;    /* NONE: not on sale, or no such URL */
    bool elsewhere;   /* it names an item that is not on sale in this run */
    int64_t quantity; /* NOT_KNOWN: no such URL, or it says it wrongly */
};
struct wish run_wish(const struct run *run, const char *url);
const char *run_request_id(const struct run *run, size_t request);
/* Whether nothing is written on what that section reads. */
bool run_only_reads(const struct run *run, const struct section *section);
/* When its request had asked for the same lock again, in vain; NOT_STAMPED. */
int64_t run_again_ns(const struct run *run, const struct section *section);
/* Whether its times can be compared with those of any other. */
bool run_is_timed(const struct run *run, const struct section *section);
/* How many of run->by_lock have times that cannot. */
size_t run_untimed(const struct run *run);
/* Whether the instance has left a history that lacks no record. must_end: nor can it lack what the
 * instance, killed, did not come to write. */
bool run_tells_all(const struct run *run, uint32_t instance, bool must_end);
/* Milliseconds from the start of the run. */
double run_ms(const struct run *run, int64_t t_ns);

/* Once everything is read, and check_clocks knows which times are proof: puts the sections in order
 * and finds out how long each lasted. */
void run_settle(struct run *run);
/* Its part: run->sales, and the outcome of requests that no instance tells of. */
void sales_find(struct run *run);
struct sale run_sale(const struct run *run, size_t number);
/* Its part: which request stands for its key. Behind the sales. */
void keys_settle(struct run *run);
/* The number of that item's key. */
uint32_t keys_add(struct run *run, uint32_t item, const char *key);
uint32_t keys_find(const struct run *run, uint32_t item, const char *key); /* NONE: nobody had it */
const char *keys_text(const struct run *run, uint32_t key);

#endif
