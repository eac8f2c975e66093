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
#include "meter.h"
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
     "tokens it writes nothing if one of the accounts has seen a newer token"},
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
};
static const struct problem_row problems[] = {
    FRAME_PROBLEMS,
    {PROBLEM_UNKNOWN_ACCOUNT, "unknown-account", 404, "There is no such account",
     "operators PUT accounts; nothing was changed"},
    {PROBLEM_INSUFFICIENT_FUNDS, "insufficient-funds", 409, "The account has less than that",
     "a balance is never below 0; nothing was changed"},
    {PROBLEM_BALANCE_TOO_LARGE, "balance-too-large", 409, "The balance would be too large",
     "a balance is at most 9007199254740991; nothing was changed"},
};

static const struct failpoint_row points[] = {
    {"account.one_lock", ""}, /* a transfer has its first lock, and not its second one */
    {"account.read", ""},     /* the accounts were read, and nothing is written */
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

/* ---- The data -------------------------------------------------------------------------------- */

#define NUMBER_MAX INT64_C(9007199254740991) /* 2^53 - 1: Lua and JavaScript have it, too */

/* What a request asks for. request.part is its account, of a transfer `from`. */
struct asked {
    struct request request;
    int64_t amount;
    char to[ITEM_MAX + 1]; /* "": it is no transfer */
};

struct account {
    struct guard guard; /* its lock */
    char key[ITEM_MAX + 16];
    int64_t balance, version; /* as they were read */
    int64_t change;           /* what the request adds to the balance */
    bool written;
};

struct serving {
    struct store *store;
    struct request *request;
    struct account accounts[2]; /* of a transfer: from, to */
    size_t count;
};

static bool take_number(const redisReply *reply, int64_t *number)
{
    const size_t digits = reply->type == REDIS_REPLY_STRING ? strspn(reply->str, "0123456789") : 0;
    if (digits == 0 || digits > 16 || digits != reply->len)
        return false;
    *number = strtoll(reply->str, NULL, 10);
    return *number <= NUMBER_MAX;
}

static bool is_account(const redisReply *reply, struct account *account)
{
    int64_t token;
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           take_number(reply->element[0], &account->balance) &&
           take_number(reply->element[1], &account->version) &&
           (reply->element[2]->type == REDIS_REPLY_NIL || take_number(reply->element[2], &token));
}

/* False: the request is answered. */
static bool read_account(struct serving *serving, struct account *account)
{
    const redisReply *reply;
    const enum store_status status = store_command(
        serving->store, 5,
        (const char *const[]){"HMGET", account->key, "balance", "version", "token"}, &reply);
    if (status == STORE_UNAVAILABLE || status == STORE_LOST)
        return guard_read_failed(&account->guard, serving->store, status);
    if (status == STORE_OK && is_account(reply, account)) {
        GUARD_RECORD(&account->guard, "read",
                     ",\"account\":\"%s\",\"balance\":%" PRId64 ",\"version\":%" PRId64,
                     account->guard.item, account->balance, account->version);
        return true;
    }
    if (status == STORE_OK && reply->element[0]->type == REDIS_REPLY_NIL &&
        reply->element[1]->type == REDIS_REPLY_NIL)
        answer_problem(serving->request, PROBLEM_UNKNOWN_ACCOUNT, "there is no account %s",
                       account->guard.item);
    else
        answer_problem(serving->request, PROBLEM_STORE_INVALID,
                       "%s is no hash with a balance and a version: an operator must PUT "
                       "/accounts/%s",
                       account->key, account->guard.item);
    return false;
}

/* Whether the account can be changed so. False: the request is answered. */
static bool is_possible(struct serving *serving, const struct account *account)
{
    if (account->balance + account->change < 0)
        answer_problem(serving->request, PROBLEM_INSUFFICIENT_FUNDS,
                       "%s has %" PRId64 ", and %" PRId64 " should be taken", account->guard.item,
                       account->balance, -account->change);
    else if (account->balance + account->change > NUMBER_MAX || account->version == NUMBER_MAX)
        answer_problem(serving->request, PROBLEM_BALANCE_TOO_LARGE,
                       "%s has %" PRId64 " in its version %" PRId64
                       ", and neither goes beyond %" PRId64,
                       account->guard.item, account->balance, account->version, NUMBER_MAX);
    return serving->request->answer.status == 0;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void record_writing(const struct account *account)
{
    const struct guard *guard = &account->guard;
    GUARD_RECORD(guard, "writing",
                 ",\"account\":\"%s\",\"before\":%" PRId64 ",\"balance\":%" PRId64
                 ",\"version\":%" PRId64 ",\"hold\":\"%s\",\"token\":%" PRIu64,
                 guard->item, account->balance, account->balance + account->change,
                 account->version + 1, guard->hold_id, dlock_token(guard->hold));
}

/* Sends the command that writes them: with WRITE_TWO it is one account. */
static enum store_status send_write(struct serving *serving, const struct account *accounts,
                                    size_t count, const redisReply **reply)
{
    struct {
        char balance[24], version[24], token[24];
    } words[2];
    const char *argv[16] = {[0] = count == 1 ? "1" : "2"};
    size_t argc = 1;
    for (size_t i = 0; i < count; i++)
        argv[argc++] = accounts[i].key;
    for (size_t i = 0; i < count; i++) {
        const struct account *account = &accounts[i];
        snprintf(words[i].balance, 24, "%" PRId64, account->balance + account->change);
        snprintf(words[i].version, 24, "%" PRId64, account->version + 1);
        snprintf(words[i].token, 24, "%" PRIu64, dlock_token(account->guard.hold));
        argv[argc++] = words[i].balance;
        argv[argc++] = words[i].version;
        argv[argc++] = words[i].token;
    }
    if (config.write == WRITE_SCRIPT)
        return store_run(serving->store, &lua_write, argv, reply);
    return store_command(serving->store, 6,
                         (const char *const[]){"HSET", accounts->key, "balance", words->balance,
                                               "version", words->version},
                         reply);
}

/* The accounts have seen a newer token than the request's: it has lost its lock. */
static bool refuse_write(struct serving *serving, const struct account *account, const char *newest)
{
    const uint64_t token = dlock_token(account->guard.hold);
    meter_add(&meters[WRITES_REFUSED].count, 1);
    GUARD_RECORD(&account->guard, "write_refused",
                 ",\"account\":\"%s\",\"token\":%" PRIu64 ",\"newest\":%s", account->guard.item,
                 token, newest);
    answer_problem(serving->request, PROBLEM_LOCK_LOST,
                   "%s has seen token %s, so this request's token %" PRIu64
                   " writes no more; nothing was changed",
                   account->guard.item, newest, token);
    return false;
}

static bool write_failed(struct serving *serving, enum store_status status)
{
    const struct account *from = &serving->accounts[0], *to = &serving->accounts[1];
    if (!from->written || status == STORE_LOST)
        return guard_write_failed(&serving->accounts[0].guard, serving->store, status);
    answer_problem(serving->request, PROBLEM_OUTCOME_UNKNOWN,
                   "half of the transfer is written: %s has its new balance, %s has not: %s",
                   from->guard.item, to->guard.item, store_error(serving->store));
    return false;
}

/* Writes them in one command. False: the request is answered. */
static bool write_accounts(struct serving *serving, struct account *accounts, size_t count)
{
    const redisReply *reply;
    for (size_t i = 0; i < count; i++)
        record_writing(&accounts[i]);
    const int64_t sent_ns = mono_ns();
    const enum store_status status = send_write(serving, accounts, count, &reply);
    if (status != STORE_OK)
        return write_failed(serving, status);
    if (reply->type == REDIS_REPLY_ARRAY)
        return refuse_write(serving, &accounts[reply->element[0]->integer - 1],
                            reply->element[1]->str);
    for (size_t i = 0; i < count; i++) {
        accounts[i].written = true;
        GUARD_RECORD(&accounts[i].guard, "wrote",
                     ",\"account\":\"%s\",\"version\":%" PRId64 ",\"sent_ns\":%" PRId64,
                     accounts[i].guard.item, accounts[i].version + 1, sent_ns);
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
    struct account *from = &serving->accounts[0], *to = &serving->accounts[1];
    if (serving->count == 1)
        return guard_enter(&from->guard);
    if (config.locks == LOCKS_MANY)
        return guard_enter_all(&from->guard);
    if (!guard_enter(&from->guard))
        return false;
    frame_point(from->guard.frame, "account", "one_lock");
    return guard_enter(&to->guard);
}

static void take_time(int64_t ms)
{
    const struct timespec until = timespec_of(mono_deadline_ns(ms));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

/* False: the request is answered. */
static bool change(struct serving *serving)
{
    struct account *accounts = serving->accounts;
    if (!take_locks(serving))
        return false;
    for (size_t i = 0; i < serving->count; i++)
        if (!read_account(serving, &accounts[i]))
            return false;
    frame_point(accounts->guard.frame, "account", "read");
    for (size_t i = 0; i < serving->count; i++)
        if (!is_possible(serving, &accounts[i]))
            return false;
    take_time(config.work_ms);
    if (!write_all(serving))
        return false;
    meter_add(&meters[serving->count == 1 ? ADDS : TRANSFERS].count, 1);
    frame_point(accounts->guard.frame, "account", "before_answer");
    return true;
}

/* Answers what the accounts have now. */
static void answer_accounts(const struct serving *serving)
{
    const struct account *from = &serving->accounts[0], *to = &serving->accounts[1];
    char told[160], of_to[160] = "", name[96] = "";
    snprintf(told, sizeof told, ",\"balance\":%" PRId64 ",\"version\":%" PRId64,
             from->balance + from->change, from->version + from->written);
    if (serving->count == 2) {
        snprintf(name, sizeof name, ",\"to\":\"%s\"", to->guard.item);
        snprintf(of_to, sizeof of_to, ",\"to_balance\":%" PRId64 ",\"to_version\":%" PRId64,
                 to->balance + to->change, to->version + to->written);
    }
    GUARD_RECORD(&from->guard, "answered", ",\"code\":200%s%s", told, of_to);
    answer_json(serving->request, 200, "{\"account\":\"%s\"%s%s%s,\"instance\":\"%s\"}",
                from->guard.item, told, name, of_to, config.common.instance);
}

static void begin_account(struct account *account, const char *name, int64_t amount)
{
    account->change = amount;
    snprintf(account->key, sizeof account->key, "account:{bank}:%.*s", ITEM_MAX, name);
}

static bool work_change(struct service *of, void *store, struct request *request)
{
    const struct asked *asked = (const struct asked *)(const void *)request;
    const bool transfers = asked->to[0] != '\0';
    struct serving serving = {.store = store, .request = request, .count = transfers ? 2 : 1};
    struct account *from = &serving.accounts[0], *to = &serving.accounts[1];
    if (!guard_begin(&from->guard, &of->frame, request, request->part))
        return true;
    begin_account(from, request->part, transfers ? -asked->amount : asked->amount);
    if (transfers) {
        guard_join(&to->guard, &from->guard, asked->to);
        begin_account(to, asked->to, asked->amount);
    }
    if (change(&serving))
        answer_accounts(&serving);
    guard_end(&from->guard);
    store_rest(store);
    return true;
}

static bool work_look(struct service *of, void *store, struct request *request)
{
    struct serving serving = {.store = store, .request = request, .count = 1};
    struct account *account = &serving.accounts[0];
    if (!guard_begin(&account->guard, &of->frame, request, request->part))
        return true;
    begin_account(account, request->part, 0);
    if (read_account(&serving, account))
        answer_accounts(&serving);
    guard_end(&account->guard);
    store_rest(store);
    return true;
}

/* An operator's. It is not recorded: it is meant for the time before a load. */
static bool work_lay(struct service *of, void *store, struct request *request)
{
    struct account account = {.guard = {.frame = &of->frame, .request = request}};
    const redisReply *reply;
    char balance[24];
    if (!json_take_number(request, "balance", 0, NUMBER_MAX, &account.balance))
        return true;
    begin_account(&account, request->part, 0);
    snprintf(balance, sizeof balance, "%" PRId64, account.balance);
    const enum store_status status =
        store_run(store, &lua_lay, (const char *const[]){"1", account.key, balance, NULL}, &reply);
    if (status != STORE_OK)
        guard_write_failed(&account.guard, store, status);
    else
        answer_json(request, 200, "{\"account\":\"%s\",\"balance\":%s,\"version\":1}",
                    request->part, balance);
    return true;
}

/* ---- Routes ---------------------------------------------------------------------------------- */

/* Answers a request that can change nothing. */
static void refuse_nothing(struct service *of, struct request *request)
{
    const struct asked *asked = (const struct asked *)(const void *)request;
    (void)of;
    if (asked->amount == 0)
        answer_problem(request, PROBLEM_INVALID_QUERY,
                       "amount is 0; it must be another whole number, as in ?amount=-100");
    else if (strcmp(request->part, asked->to) == 0)
        answer_problem(request, PROBLEM_INVALID_QUERY,
                       "from and to are both %s; they must be two accounts, as in "
                       "?from=a&to=b&amount=5",
                       asked->to);
}

#define AT(field) offsetof(struct asked, field)
static const struct parameter of_add[] = {
    {.name = "amount",
     .min = -NUMBER_MAX,
     .max = NUMBER_MAX,
     .example = "200",
     .offset = AT(amount)},
    {.name = NULL},
};
static const struct parameter of_transfer[] = {
    {.name = "from", .is_item = true, .example = "a", .offset = AT(request.part)},
    {.name = "to", .is_item = true, .example = "b", .offset = AT(to)},
    {.name = "amount", .min = 1, .max = NUMBER_MAX, .example = "5", .offset = AT(amount)},
    {.name = NULL},
};
static const struct route route_rows[] = {
    {LISTENER_PUBLIC, METHOD_GET, "/accounts/{name}", NULL, false, RUN_WORKERS, frame_take_name,
     NULL, work_look, NULL},
    {LISTENER_PUBLIC, METHOD_POST, "/accounts/{name}/add", of_add, false, RUN_WORKERS,
     frame_take_name, refuse_nothing, work_change, NULL},
    {LISTENER_PUBLIC, METHOD_POST, "/transfers", of_transfer, false, RUN_WORKERS, NULL,
     refuse_nothing, work_change, NULL},
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

static void *open_worker(struct service *of, struct store *store)
{
    (void)of;
    return store;
}

static void close_worker(void *store)
{
    store_free(store);
}

static bool is_ready(void *store, char why[FRAME_WHY_MAX])
{
    const bool ready = store_check(store, "account:{bank}:readyz") == STORE_OK;
    snprintf(why, FRAME_WHY_MAX, "%s", store_error(store));
    store_rest(store);
    return ready;
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
    snprintf(text, size, ",\"work_ms\":%" PRId64 ",\"write\":\"%s\"", config.work_ms,
             settings_word(&config, "write"));
    const size_t used = strlen(text);
    snprintf(text + used, size - used, ",\"locks\":\"%s\"", settings_word(&config, "locks"));
}

int main(int argc, char **argv)
{
    return frame_main(&service.frame,
                      &(struct frame_options){.name = "account",
                                              .service = &service,
                                              .settings = &config.common,
                                              .routes = &routes,
                                              .request_size = sizeof(struct asked),
                                              .begin = print_begin,
                                              .invoke = print_invoke,
                                              .open = open_worker,
                                              .close = close_worker,
                                              .ready = is_ready,
                                              .meters = meters},
                      &config, argc, argv);
}
