/* SPDX-License-Identifier: Apache-2.0
 *
 * accountd: accounts in Redis. An add changes one, a transfer two. Each reads what the accounts
 * have, computes what they will have, and writes it. Its locks keep others away meanwhile.
 */
#include "../lock/clock.h"
#include "account_scripts.h"
#include "frame.h"
#include "guard.h"
#include "json.h"
#include "program.h"

#include <inttypes.h>
#include <string.h>

static struct config {
    struct settings_common common;
    int64_t work_ms;
    int write; /* enum write */
    int locks; /* enum locks */
} config;
enum write { WRITE_TWO, WRITE_SCRIPT };
enum locks { LOCKS_UNORDERED, LOCKS_MANY };

static const struct settings_row rows[] = {
    {.flag = "listen", .fallback = "127.0.0.1:8300", .help = "where accounts are read and changed"},
    {.flag = "admin-listen",
     .fallback = "127.0.0.1:8301",
     .help = "where the admin listener listens, for operators: PUT /accounts/{name}, /readyz, "
             "/metrics and others"},
    {"work-ms", SETTING_NUMBER, "", "ms", "0", 0, 60000, offsetof(struct config, work_ms),
     "business between the read and the write"},
    {"write", SETTING_CHOICE, "two|script", "", "script", 0, 0, offsetof(struct config, write),
     "how a transfer writes its two accounts. With two: a command for each, so a process that dies "
     "between them leaves half a transfer. With script: one script writes both. On a rung with "
     "tokens, an account refuses a token older than one that has read or written it"},
    {"locks", SETTING_CHOICE, "unordered|many", "", "many", 0, 0, offsetof(struct config, locks),
     "how a transfer acquires its two locks. With unordered: that of `from`, then that of `to`, so "
     "two transfers may wait for each other. With many: both or none, in one order for all"},
    {.flag = NULL},
};

struct service {
    struct frame frame;
};
static struct service service;

enum {
    PROBLEM_UNKNOWN_ACCOUNT = PROBLEM_FRAME_COUNT,
    PROBLEM_INSUFFICIENT_FUNDS,
    PROBLEM_BALANCE_TOO_LARGE,
    PROBLEM_STALE_TOKEN,
};
static const struct problem_row problems[] = {
    FRAME_PROBLEMS,
    {PROBLEM_UNKNOWN_ACCOUNT, "unknown-account", 404, "There is no such account",
     "operators PUT accounts; nothing was changed"},
    {PROBLEM_INSUFFICIENT_FUNDS, "insufficient-funds", 409, "The account has less than that",
     "a balance is never below 0; nothing was changed"},
    {PROBLEM_BALANCE_TOO_LARGE, "balance-too-large", 409, "The balance would be too large",
     "a balance is at most 9007199254740991; nothing was changed"},
    {PROBLEM_STALE_TOKEN, "stale-token", 409, "The request has lost its lock",
     "an account has seen a newer token, or was laid anew; nothing was changed"},
};

static const struct failpoint_row points[] = {
    {"account.one_lock", ""}, /* a transfer has its first lock, and not its second one */
    {"account.read", ""},     /* accounts are read, locks are valid, and nothing is written */
    {"account.between", ""},  /* the first of two commands is carried out, the second not sent */
    {"account.before_answer", ""}, /* all is written, and nobody was told */
    {.name = NULL},
};

static struct frame_meter meters[] = {
    {"account_adds_total", "Adds that were written.", 0},
    {"account_transfers_total", "Transfers that were written.", 0},
    {"account_writes_refused_total", "Writes that an account refused: it saw a newer token.", 0},
    {.name = NULL},
};
enum { ADDS, TRANSFERS, WRITES_REFUSED };

/* ---- The accounts ---------------------------------------------------------------------------- */

#define LIMIT INT64_C(9007199254740991) /* 2^53 - 1: Lua and JavaScript have it, too */

/* What a request asks for. request.part is its account, of a transfer `from`. */
struct asked {
    struct request request;
    int64_t amount;
    char to[ITEM_MAX + 1]; /* "": it is no transfer */
};

struct account {
    struct guard guard; /* its lock */
    char key[ITEM_MAX + 16];
    char token[24];            /* of the lock; "0": it has none */
    int64_t balance, version;  /* as they were read */
    int64_t change;            /* what the request adds to the balance */
    char after[24], newer[24]; /* the balance and the version that it gets */
    bool written;
};

struct serving {
    struct store *store;
    size_t count;               /* of accounts: 2 in a transfer */
    struct account accounts[2]; /* of a transfer: from, to */
};

static bool take_number(const redisReply *reply, int64_t *number)
{
    const size_t digits = reply->type == REDIS_REPLY_STRING ? strspn(reply->str, "0123456789") : 0;
    if (digits == 0 || digits > 16 || digits != reply->len)
        return false;
    *number = strtoll(reply->str, NULL, 10);
    return *number <= LIMIT;
}

/* Takes a balance, a version and perhaps a token. */
static bool take_account(const redisReply *reply, struct account *account)
{
    int64_t token;
    return take_number(reply->element[0], &account->balance) &&
           take_number(reply->element[1], &account->version) &&
           (reply->element[2]->type == REDIS_REPLY_NIL || take_number(reply->element[2], &token));
}

/* A script has said {which, token}: that account has seen a newer token than the request's, so the
 * request has lost its lock. "0": it was laid anew. */
static bool refuse_late(const struct account *accounts, const redisReply *reply)
{
    const struct account *account = &accounts[reply->element[0]->integer - 1];
    frame_count(account->guard.frame, WRITES_REFUSED);
    GUARD_RECORD(&account->guard, "write_refused", ",\"account\":\"%s\",\"token\":%s,\"newest\":%s",
                 account->guard.item, account->token, reply->element[1]->str);
    answer_problem(account->guard.request, PROBLEM_STALE_TOKEN,
                   "%s has token %s now (0: it was laid anew), and this request has %s",
                   account->guard.item, reply->element[1]->str, account->token);
    return false;
}

/* With fencing tokens, the reader claims the account: after that it refuses a write with an older
 * token. False: the request is answered. */
static bool read_account(struct store *store, struct account *account)
{
    const bool claims =
        config.write == WRITE_SCRIPT && account->guard.hold != NULL && config.common.lock->tokens;
    const char *const look[] = {"HMGET", account->key, "balance", "version", "token"};
    const char *const claim[] = {"1", account->key, account->token, NULL};
    const redisReply *reply;
    const enum store_status status = claims ? store_run(store, &lua_claim, claim, &reply)
                                            : store_command(store, 5, look, &reply);
    if (status == STORE_UNAVAILABLE || status == STORE_LOST)
        return guard_read_failed(&account->guard, store, status);
    if (status == STORE_OK && reply->elements == 2)
        return refuse_late(account, reply);
    if (status == STORE_OK && take_account(reply, account)) {
        GUARD_RECORD(&account->guard, "read",
                     ",\"account\":\"%s\",\"balance\":%" PRId64 ",\"version\":%" PRId64,
                     account->guard.item, account->balance, account->version);
        return true;
    }
    if (status == STORE_OK && reply->element[0]->type == REDIS_REPLY_NIL &&
        reply->element[1]->type == REDIS_REPLY_NIL)
        answer_problem(account->guard.request, PROBLEM_UNKNOWN_ACCOUNT, "there is no account %s",
                       account->guard.item);
    else
        answer_problem(account->guard.request, PROBLEM_STORE_INVALID,
                       "%s is no hash with a balance and a version: an operator must PUT "
                       "/accounts/%s",
                       account->key, account->guard.item);
    return false;
}

/* Computes what the account gets. False: it cannot get that, and the request is answered. */
static bool compute(struct account *account)
{
    const int64_t after = account->balance + account->change;
    snprintf(account->after, sizeof account->after, "%" PRId64, after);
    snprintf(account->newer, sizeof account->newer, "%" PRId64, account->version + 1);
    if (after < 0)
        answer_problem(account->guard.request, PROBLEM_INSUFFICIENT_FUNDS,
                       "%s has %" PRId64 ", and %" PRId64 " should be taken", account->guard.item,
                       account->balance, -account->change);
    else if (after > LIMIT || account->version == LIMIT)
        answer_problem(account->guard.request, PROBLEM_BALANCE_TOO_LARGE,
                       "%s has %" PRId64 " in its version %" PRId64
                       ", and neither goes beyond %" PRId64,
                       account->guard.item, account->balance, account->version, LIMIT);
    return account->guard.request->answer.status == 0;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* One command: with WRITE_TWO it writes one account. */
static enum store_status send_write(struct store *store, const struct account *accounts,
                                    size_t count, const redisReply **reply)
{
    const struct account *a = &accounts[0], *b = &accounts[count - 1];
    const char *const hset[] = {"HSET", a->key, "balance", a->after, "version", a->newer};
    const char *const one[] = {"1", a->key, a->after, a->newer, a->token, NULL};
    const char *const both[] = {"2",      a->key,   b->key,   a->after, a->newer,
                                a->token, b->after, b->newer, b->token, NULL};
    if (config.write == WRITE_TWO)
        return store_command(store, 6, hset, reply);
    return store_run(store, &lua_write, count == 1 ? one : both, reply);
}

/* A lost reply: it may be written, so nothing that follows is sent. */
static bool write_failed(struct serving *serving, enum store_status status)
{
    const struct account *from = &serving->accounts[0], *to = &serving->accounts[1];
    if (!from->written || status == STORE_LOST)
        return guard_write_failed(&serving->accounts[0].guard, serving->store, status);
    answer_problem(from->guard.request, PROBLEM_OUTCOME_UNKNOWN,
                   "half of the transfer is written: %s has its new balance, and %s has not",
                   from->guard.item, to->guard.item);
    return false;
}

/* Writes them with one command. False: the request is answered. */
static bool write_accounts(struct serving *serving, struct account *accounts, size_t count)
{
    const redisReply *reply;
    for (const struct account *account = accounts; account < accounts + count; account++)
        GUARD_RECORD(
            &account->guard, "writing",
            ",\"account\":\"%s\",\"before\":%" PRId64 ",\"balance\":%s,\"version\":%s,\"token\":%s",
            account->guard.item, account->balance, account->after, account->newer, account->token);
    const int64_t sent_ns = mono_ns();
    const enum store_status status = send_write(serving->store, accounts, count, &reply);
    if (status != STORE_OK)
        return write_failed(serving, status);
    if (reply->type == REDIS_REPLY_ARRAY)
        return refuse_late(accounts, reply);
    for (struct account *account = accounts; account < accounts + count; account++) {
        account->written = true;
        GUARD_RECORD(&account->guard, "wrote",
                     ",\"account\":\"%s\",\"version\":%s,\"sent_ns\":%" PRId64, account->guard.item,
                     account->newer, sent_ns);
    }
    return true;
}

static bool write_all(struct serving *serving)
{
    struct account *accounts = serving->accounts;
    if (config.write == WRITE_SCRIPT || serving->count == 1)
        return write_accounts(serving, accounts, serving->count);
    if (!write_accounts(serving, &accounts[0], 1))
        return false;
    frame_point(accounts->guard.frame, "account", "between");
    return write_accounts(serving, &accounts[1], 1);
}

/* ---- An add, a transfer, a look -------------------------------------------------------------- */

static bool take_locks(struct serving *serving)
{
    struct guard *from = &serving->accounts[0].guard, *to = &serving->accounts[1].guard;
    if (serving->count == 1)
        return guard_enter(from);
    if (config.locks == LOCKS_MANY)
        return guard_enter_all(from);
    if (!guard_enter(from))
        return false;
    frame_point(from->frame, "account", "one_lock");
    return guard_enter(to);
}

/* False: the request is answered. */
static bool change_accounts(struct serving *serving)
{
    struct frame *frame = serving->accounts->guard.frame;
    if (!take_locks(serving))
        return false;
    for (struct account *one = serving->accounts; one < serving->accounts + serving->count; one++) {
        snprintf(one->token, sizeof one->token, "%" PRIu64, dlock_token(one->guard.hold));
        if (!read_account(serving->store, one) || !compute(one))
            return false;
    }
    frame_take_ms(config.work_ms);
    for (struct account *one = serving->accounts; one < serving->accounts + serving->count; one++)
        if (!guard_go_on(&one->guard))
            return false;
    frame_point(frame, "account", "read");
    if (!write_all(serving))
        return false;
    frame_count(frame, serving->count == 1 ? ADDS : TRANSFERS);
    frame_point(frame, "account", "before_answer");
    return true;
}

/* Answers what the accounts have now. */
static void answer_accounts(const struct serving *serving)
{
    const struct account *from = &serving->accounts[0], *to = &serving->accounts[1];
    char told[160], of_to[160] = "";
    snprintf(told, sizeof told, ",\"balance\":%" PRId64 ",\"version\":%" PRId64,
             from->balance + from->change, from->version + from->written);
    if (serving->count == 2)
        snprintf(of_to, sizeof of_to, ",\"to_balance\":%s,\"to_version\":%s", to->after, to->newer);
    GUARD_RECORD(&from->guard, "answered", ",\"code\":200%s%s", told, of_to);
    answer_json(from->guard.request, 200, "{\"account\":\"%s\"%s%s,\"instance\":\"%s\"}",
                from->guard.item, told, of_to, config.common.instance);
}

static void name_account(struct account *account, const char *name, int64_t change)
{
    snprintf(account->key, sizeof account->key, "account:{bank}:%.*s", ITEM_MAX, name);
    account->change = change;
}

static bool work(struct service *of, void *store, struct request *request)
{
    const struct asked *asked = (const struct asked *)(const void *)request;
    struct serving serving = {.store = store, .count = asked->to[0] != '\0' ? 2 : 1};
    struct account *from = &serving.accounts[0], *to = &serving.accounts[1];
    if (!guard_begin(&from->guard, &of->frame, request, request->part))
        return true;
    name_account(from, request->part, asked->amount);
    if (serving.count == 2) {
        guard_join(&to->guard, &from->guard, asked->to);
        name_account(to, asked->to, asked->amount);
        from->change = -asked->amount;
    }
    if (request->route->method == METHOD_POST ? change_accounts(&serving)
                                              : read_account(store, from))
        answer_accounts(&serving);
    guard_end(&from->guard);
    store_rest(store);
    return true;
}

/* An operator's. It is not recorded: it is meant for the time before a load. */
static bool work_lay(struct service *of, void *store, struct request *request)
{
    struct account account = {.guard = {.frame = &of->frame, .request = request}};
    const redisReply *reply;
    if (!json_take_number(request, "balance", 0, LIMIT, &account.balance))
        return true;
    name_account(&account, request->part, 0);
    compute(&account);
    const char *const argv[] = {"1", account.key, account.after, NULL};
    const enum store_status status = store_run(store, &lua_lay, argv, &reply);
    if (status != STORE_OK)
        guard_write_failed(&account.guard, store, status);
    else
        answer_json(request, 200, "{\"account\":\"%s\",\"balance\":%s,\"version\":%s}",
                    request->part, account.after, account.newer);
    return true;
}

/* ---- Routes ---------------------------------------------------------------------------------- */

static void refuse_same(struct service *of, struct request *request)
{
    const struct asked *asked = (const struct asked *)(const void *)request;
    (void)of;
    if (strcmp(request->part, asked->to) == 0)
        answer_problem(request, PROBLEM_INVALID_QUERY,
                       "from and to are both %s; they must be two accounts, as in "
                       "?from=a&to=b&amount=5",
                       asked->to);
}

#define AT(field) offsetof(struct asked, field)
static const struct parameter of_add[] = {
    {.name = "amount", .min = -LIMIT, .max = LIMIT, .example = "200", .offset = AT(amount)},
    {.name = NULL},
};
static const struct parameter of_transfer[] = {
    {.name = "from", .is_item = true, .example = "a", .offset = AT(request.part)},
    {.name = "to", .is_item = true, .example = "b", .offset = AT(to)},
    {.name = "amount", .min = 1, .max = LIMIT, .example = "5", .offset = AT(amount)},
    {.name = NULL},
};
static const struct route route_rows[] = {
    {LISTENER_PUBLIC, METHOD_GET, "/accounts/{name}", NULL, false, RUN_WORKERS, frame_take_name,
     NULL, work, NULL},
    {LISTENER_PUBLIC, METHOD_POST, "/accounts/{name}/add", of_add, false, RUN_WORKERS,
     frame_take_name, NULL, work, NULL},
    {LISTENER_PUBLIC, METHOD_POST, "/transfers", of_transfer, false, RUN_WORKERS, NULL, refuse_same,
     work, NULL},
    {LISTENER_ADMIN, METHOD_PUT, "/accounts/{name}", NULL, true, RUN_ASIDE, frame_take_name, NULL,
     work_lay, "accounts are read and changed here; operators have an address of their own"},
    FRAME_ROUTES,
};
static const struct routes routes = {route_rows, sizeof route_rows / sizeof route_rows[0]};

/* ---- The program ----------------------------------------------------------------------------- */

const struct program program = {
    .name = "accountd",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .settings = {.about = "accountd keeps accounts in Redis; locks guard each add and transfer.",
                 .example = "work-ms",
                 .rows = rows},
    .points = points,
    .example_point = "account.between",
    .common = frame_common,
    .failpoints = frame_failpoints};

static bool fits(char error[PROCESS_ERROR_MAX])
{
    const bool fit = strcmp(config.common.lock->name, "reentrant_tls") != 0;
    if (!fit)
        snprintf(error, PROCESS_ERROR_MAX,
                 "a transfer needs two locks at once, and with --lock reentrant_tls a thread has "
                 "one: take another");
    return fit;
}

static bool is_ready(void *store, char why[FRAME_WHY_MAX])
{
    return frame_store_ready(store, "account:{bank}:readyz", why);
}

static void print_invoke(const struct request *request, char *text, size_t size)
{
    const struct asked *asked = (const struct asked *)(const void *)request;
    if (request->route->parameters == NULL)
        snprintf(text, size, ",\"does\":\"look\"");
    else if (request->route->parameters == of_add)
        snprintf(text, size, ",\"does\":\"add\",\"amount\":%" PRId64, asked->amount);
    else
        snprintf(text, size, ",\"does\":\"transfer\",\"amount\":%" PRId64 ",\"to\":\"%s\"",
                 asked->amount, asked->to);
}

static void print_begin(char *text, size_t size)
{
    snprintf(text, size, ",\"work_ms\":%" PRId64 ",\"write\":\"%s\",\"locks\":\"%s\"",
             config.work_ms, config.write == WRITE_TWO ? "two" : "script",
             config.locks == LOCKS_MANY ? "many" : "unordered");
}

int main(int argc, char **argv)
{
    return frame_main(&service.frame,
                      &(struct frame_options){.name = "account",
                                              .service = &service,
                                              .settings = &config.common,
                                              .routes = &routes,
                                              .request_size = sizeof(struct asked),
                                              .fit = fits,
                                              .begin = print_begin,
                                              .invoke = print_invoke,
                                              .open = frame_open_store,
                                              .close = frame_close_store,
                                              .ready = is_ready,
                                              .meters = meters},
                      &config, argc, argv);
}
