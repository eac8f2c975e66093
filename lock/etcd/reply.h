/* SPDX-License-Identifier: Apache-2.0
 *
 * A reply of etcd's JSON gateway, and what it means.
 */
#ifndef DLOCK_ETCD_REPLY_H
#define DLOCK_ETCD_REPLY_H

#include "lease_proof.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#define WHY_MAX 200
#define FOUND_MAX 96

enum outcome {
    ANSWERED,
    LEASE_GONE,  /* the request names a lease that does not exist: not carried out */
    TOKEN_BAD,   /* the login's token is not valid, or no longer: not carried out */
    REFUSED,     /* not carried out, and not at another member either */
    UNANSWERED,  /* it may have been carried out, or may be later */
    UNDELIVERED, /* it was not sent */
    ENDED,       /* a watch that had begun: nobody is to blame */
};

struct reply {
    enum outcome outcome;
    cJSON *json;        /* ANSWERED: the answer itself; else NULL */
    uint64_t revision;  /* ANSWERED: the store's */
    struct answerer by; /* likewise */
    uint64_t cluster;   /* likewise */
    bool succeeded;     /* of a transaction: its comparisons held */
    bool may_be_done;   /* REFUSED, and perhaps carried out: etcd was full just then */
    bool busy;          /* UNANSWERED, because there were too many requests */
    char why[WHY_MAX];  /* unless ANSWERED */
    cJSON *whole;       /* to be freed */
};

/* One key, as a range answers it. */
struct found {
    bool exists;
    char node[FOUND_MAX]; /* its name without the prefix; "": too long */
    uint64_t created, changed, lease;
};

/* http: the status of the response. */
void reply_read(struct reply *reply, long http, const char *text, size_t size);
/* For a request that got no reply. */
void reply_none(struct reply *reply, enum outcome outcome, const char *why);
void reply_free(struct reply *reply);

/* Whether etcd's words blame the login's token. */
bool reply_blames_token(const char *message);
/* Whether a transaction's answer has that range, perhaps an empty one. */
bool reply_has_range(const struct reply *reply, int of_txn);
/* The first key of a range. of_txn: the range is the transaction's index-th operation; -1: the
 * reply's own. prefix: a path that the key begins with. */
const cJSON *reply_kv(const struct reply *reply, int of_txn);
struct found reply_found(const struct reply *reply, int of_txn, const char *prefix);

/* 64-bit numbers are texts, and zeroes are left out. */
uint64_t json_number(const cJSON *json, const char *name);
/* "": there is none, or it is no text. */
const char *json_text(const cJSON *json, const char *name);
/* Decodes base64. False: it is none, or does not fit into text[size] with its NUL. */
bool json_bytes(const cJSON *json, const char *name, char *text, size_t size);
/* A key's name without the prefix; "": it has another one, or does not fit. */
void json_node(const cJSON *json, const char *prefix, char *node, size_t size);

#endif
