/* SPDX-License-Identifier: Apache-2.0
 *
 * See reply.h.
 */
#include "reply.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 2048 /* a longer one is none of the library's */

/* gRPC's codes. */
enum {
    INVALID_ARGUMENT = 3,
    NOT_FOUND = 5,
    PERMISSION_DENIED = 7,
    RESOURCE_EXHAUSTED = 8,
    FAILED_PRECONDITION = 9,
    OUT_OF_RANGE = 11,
    UNIMPLEMENTED = 12,
    UNAUTHENTICATED = 16,
};

/* ---- JSON ------------------------------------------------------------------------------------ */

uint64_t json_number(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (cJSON_IsString(item)) /* strtoull would take "-1", too */
        return item->valuestring[0] != '-' ? strtoull(item->valuestring, NULL, 10) : 0;
    return cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 0x1p63
               ? (uint64_t)item->valuedouble
               : 0;
}

const char *json_text(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool json_bytes(const cJSON *json, const char *name, char *text, size_t size)
{
    unsigned group = 0;
    size_t used = 0, count = 0;
    for (const char *from = json_text(json, name); *from != '\0' && *from != '='; from++) {
        int digit = digit_of(*from);
        if (digit < 0)
            return false;
        group = group << 6 | (unsigned)digit;
        if (count++ % 4 == 0)
            continue;
        if (used + 1 >= size)
            return false;
        text[used++] = (char)(group >> (6 - 2 * ((count - 1) % 4)));
    }
    text[used] = '\0';
    return true;
}

void json_node(const cJSON *json, const char *prefix, char *node, size_t size)
{
    char key[KEY_MAX];
    node[0] = '\0';
    if (json_bytes(json, "key", key, sizeof key) && strncmp(key, prefix, strlen(prefix)) == 0)
        snprintf(node, size, "%s", strlen(key + strlen(prefix)) < size ? key + strlen(prefix) : "");
}

/* ---- Replies --------------------------------------------------------------------------------- */

bool reply_blames_token(const char *message)
{
    return strstr(message, "auth token") != NULL || strstr(message, "auth store") != NULL;
}

/* What the library knows nothing of, like a time-out or a leader that is missing, leaves open
 * whether the request was carried out. */
static enum outcome outcome_of(int code, const char *message)
{
    bool lease = strstr(message, "lease not found") != NULL;
    switch (code) {
    case UNAUTHENTICATED:
        return TOKEN_BAD;
    case INVALID_ARGUMENT:
        return reply_blames_token(message) ? TOKEN_BAD : REFUSED;
    case NOT_FOUND:
        return lease ? LEASE_GONE : REFUSED;
    case RESOURCE_EXHAUSTED:
        return strstr(message, "space") != NULL ? REFUSED : UNANSWERED;
    case PERMISSION_DENIED:
    case FAILED_PRECONDITION:
    case OUT_OF_RANGE:
    case UNIMPLEMENTED:
        return REFUSED;
    default:
        return UNANSWERED;
    }
}

void reply_none(struct reply *reply, enum outcome outcome, const char *why)
{
    *reply = (struct reply){.outcome = outcome};
    snprintf(reply->why, sizeof reply->why, "%s", why);
    for (char *at = reply->why; *at != '\0'; at++) /* it becomes a part of lines in logs */
        if (iscntrl((unsigned char)*at))
            *at = ' ';
}

/* {"code":5,"message":".."}; in a stream {"error":{"grpc_code":14,"message":".."}}. */
static void read_error(struct reply *reply, const cJSON *json)
{
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const cJSON *from = cJSON_IsObject(error) ? error : json;
    const char *message = json_text(from, "message");
    int code = (int)json_number(from, cJSON_IsObject(error) ? "grpc_code" : "code");
    reply_none(reply, outcome_of(code, message), message);
    /* etcd carries out the change that makes its store full, and then refuses it. */
    reply->may_be_done = code == RESOURCE_EXHAUSTED;
    reply->busy = code == RESOURCE_EXHAUSTED && reply->outcome == UNANSWERED;
}

/* Without a word of etcd's: something between, perhaps, whose time or patience was over. */
enum { REQUEST_TIMEOUT = 408, TOO_EARLY = 425, TOO_MANY_REQUESTS = 429 };

static bool is_refusal(long http)
{
    return http >= 400 && http < 500 && http != REQUEST_TIMEOUT && http != TOO_EARLY &&
           http != TOO_MANY_REQUESTS;
}

void reply_read(struct reply *reply, long http, const char *text, size_t size)
{
    cJSON *whole = cJSON_ParseWithLength(text, size);
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(whole, "result");
    cJSON *json = cJSON_IsObject(result) ? (cJSON *)(uintptr_t)result : whole;
    const cJSON *header = cJSON_GetObjectItemCaseSensitive(json, "header");
    char why[64];
    if (cJSON_IsObject(header)) {
        *reply = (struct reply){
            .outcome = ANSWERED,
            .json = json,
            .revision = json_number(header, "revision"),
            .by = {json_number(header, "member_id"), json_number(header, "raft_term")},
            .cluster = json_number(header, "cluster_id"),
            .succeeded = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "succeeded")),
            .whole = whole};
        return;
    }
    if (cJSON_IsObject(whole) && (json_number(whole, "code") != 0 ||
                                  cJSON_GetObjectItemCaseSensitive(whole, "error") != NULL)) {
        read_error(reply, whole);
    } else {
        snprintf(why, sizeof why, "HTTP %ld, and no JSON of etcd's", http);
        reply_none(reply, is_refusal(http) ? REFUSED : UNANSWERED, why);
        reply->busy = http == TOO_MANY_REQUESTS;
    }
    cJSON_Delete(whole);
}

void reply_free(struct reply *reply)
{
    cJSON_Delete(reply->whole);
    reply->whole = reply->json = NULL;
}

static const cJSON *range_of(const struct reply *reply, int of_txn)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(reply->json, "responses");
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(all, of_txn), "response_range");
}

bool reply_has_range(const struct reply *reply, int of_txn)
{
    return cJSON_IsObject(range_of(reply, of_txn));
}

const cJSON *reply_kv(const struct reply *reply, int of_txn)
{
    const cJSON *range = of_txn >= 0 ? range_of(reply, of_txn) : reply->json;
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(range, "kvs"), 0);
}

struct found reply_found(const struct reply *reply, int of_txn, const char *prefix)
{
    const cJSON *kv = reply_kv(reply, of_txn);
    struct found found = {.exists = false};
    if (kv == NULL)
        return found;
    found.exists = true;
    found.created = json_number(kv, "create_revision");
    found.changed = json_number(kv, "mod_revision");
    found.lease = json_number(kv, "lease");
    json_node(kv, prefix, found.node, sizeof found.node);
    return found;
}
