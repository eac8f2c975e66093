/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of the account: balances in Redis, each with a version. A request adds to one account,
 * or transfers from one to another. No money is lost and none is made. Each version of an account
 * is written once.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include "rules.h"

extern const struct rules account_rules;

enum does { DOES_LOOK, DOES_ADD, DOES_TRANSFER };

/* Whether a write was carried out. CONFIRMED: its answer was recorded. The others have no answer.
 * OPEN: not decided yet, see fates.c. */
enum fate { FATE_CONFIRMED, FATE_OPEN, FATE_IN, FATE_OUT };

/* What a request wrote to one account, or was about to write. */
struct deposit {
    uint32_t request;
    uint32_t item;
    uint32_t section; /* of that account's lock; NONE */
    uint32_t group;   /* for fates.c */
    int64_t before;   /* the balance that it had read */
    int64_t balance;
    int64_t version;
    int64_t t_ns;     /* just before the command was sent */
    int64_t sent_ns;  /* the same, as its answer tells it; NOT_STAMPED */
    int64_t wrote_ns; /* when it was answered; NOT_STAMPED */
    enum fate fate : 8;
    bool to : 1;      /* the money of a transfer came here */
    bool denied : 1;  /* its lines contradict each other: it proves nothing */
    bool guessed : 1; /* several fates fit, and one of them was chosen */
    bool lost : 1;    /* another write of the same version came over it; set by check_twice */
};

/* What a request saw of an account: an add has one, a transfer two. */
struct sight {
    uint32_t item;    /* NONE if run.json does not name it */
    uint32_t deposit; /* NONE */
    int64_t read_ns;  /* NOT_STAMPED: it was not read */
    int64_t balance;
    int64_t version;
};

enum { FROM, TO, SIGHTS };

/* A request, as its instance recorded it. */
struct errand {
    struct sight sights[SIGHTS];
    int64_t amount;
    int64_t refused_ns; /* the fence refused its token; NOT_STAMPED */
    uint32_t wait;      /* for its second lock; NONE */
    enum does does : 8;
    bool torn : 1; /* of a transfer: one account has it, and the other does not */
};

/* A request that holds a lock waits for another one. */
struct wait {
    uint32_t request;
    uint32_t section; /* of the lock that it holds */
    uint32_t lock;    /* for which it waits */
    int64_t t_ns;
    int64_t ended_ns;
    bool timed_out;
    bool told; /* in the sentence about the first cycle */
};

/* What an account had in the end, and what it must have. */
struct ledger {
    int64_t must;     /* the balance at the start, and all that was written to it */
    int64_t versions; /* how many different versions were written, of those that Redis counted */
};

struct account {
    const char *locks; /* unordered, many */
    int64_t work_ms;

    struct errand *errands; /* by request */
    size_t errand_count, errand_capacity;
    struct deposit *deposits;
    size_t deposit_count, deposit_capacity;
    struct wait *waits;
    size_t wait_count, wait_capacity;
    struct ledger *ledgers; /* by item; set by account_check */

    /* The numbers of the verdict. */
    bool guessed;   /* it is not certain which adds without an answer were carried out */
    bool explained; /* all that was read, by the start or a write */
    bool whole;     /* no line of an instance or of Redis can be missing: the sums are proof */
    int64_t adds;   /* that were told done */
    int64_t transfers;
    int64_t looks;
    int64_t versions;    /* that were written */
    int64_t unknown;     /* requests that may have written, or in part, and were not told */
    int64_t took_effect; /* those of them that did */
    int64_t lost;        /* writes over which another one of the same version came */
    int64_t torn;        /* transfers */
    int64_t cycles;      /* of requests that wait for each other */
    int64_t before, added, after; /* all money: at the start; what adds added; in the end */
    struct spread adds_ms, transfers_ms;
};

void account_free(struct account *account);
/* What its instance recorded of the request. */
struct errand account_errand(const struct run *run, size_t request);
/* By how much a transfer, or an add, changes that account. */
int64_t account_change(const struct errand *errand, bool to);
/* Whether it was carried out, as far as is known. */
bool account_is_in(const struct deposit *deposit);
/* The other account of a transfer; NULL: it was not about to write it, or there is none. */
struct deposit *account_other(const struct run *run, const struct deposit *deposit);

/* read_account.c */
bool account_invoked(struct reader *reader, struct record *record, uint32_t item);
void account_read_event(struct reader *reader, struct record *record);

/* fates.c: decides which of the writes without an answer were carried out. */
void account_decide(struct run *run);

/* check_account.c */
void account_check(struct run *run);
/* check_cycles.c: requests that wait for each other. */
void account_check_cycles(struct run *run);

struct expected account_expected(const struct run *run); /* by the table expected_account.def */

#endif
