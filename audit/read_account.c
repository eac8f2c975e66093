/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about an account: what a request read, was about to write, and
 * wrote; which lock it waited for while it held another; and what it answered.
 */
#include "account.h"
#include "memory.h"

#include <string.h>

static const struct errand no_errand = {
    .sights = {{NONE, NONE, NOT_STAMPED, NOT_KNOWN, NOT_KNOWN},
               {NONE, NONE, NOT_STAMPED, NOT_KNOWN, NOT_KNOWN}},
    .refused_ns = NOT_STAMPED,
    .wait = NONE,
};

struct errand account_errand(const struct run *run, size_t request)
{
    return request < run->account->errand_count ? run->account->errands[request] : no_errand;
}

static struct errand *errand_of(struct run *run, uint32_t request)
{
    struct account *account = run->account;
    while (account->errand_count <= request) {
        account->errands = memory_grow(account->errands, account->errand_count,
                                       &account->errand_capacity, sizeof *account->errands);
        account->errands[account->errand_count++] = no_errand;
    }
    return &account->errands[request];
}

int64_t account_change(const struct errand *errand, bool to)
{
    return errand->does == DOES_TRANSFER && !to ? -errand->amount : errand->amount;
}

/* ---- The request ----------------------------------------------------------------------------- */

static bool read_does(struct record *record, enum does *does)
{
    static const char *const words[] = {"look", "add", "transfer"};
    const char *text = NULL;
    if (!json_text(record->json, "does", JSON_REQUIRED, &text, record->error))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        *does = (enum does)i;
        if (strcmp(text, words[i]) == 0)
            return true;
    }
    snprintf(record->error, sizeof record->error,
             "\"does\" is \"%.40s\"; it must be look, add or transfer", text);
    return false;
}

/* A look without a sample is an operator's, and no request of the run's clients. */
bool account_invoked(struct reader *reader, struct record *record, uint32_t item)
{
    struct request *request = &reader->run->requests[record->request];
    struct errand errand = no_errand;
    const char *to = NULL;
    enum does does = DOES_LOOK;
    if (!read_does(record, &does))
        return false;
    errand.does = does;
    const bool moves = errand.does == DOES_TRANSFER;
    if (errand.does != DOES_LOOK &&
        !json_int(record->json, "amount", JSON_REQUIRED, moves ? 1 : -JSON_EXACT_MAX,
                  JSON_EXACT_MAX, &errand.amount, record->error))
        return false;
    if (moves && !json_text(record->json, "to", JSON_REQUIRED, &to, record->error))
        return false;
    request->item = item;
    request->reads = errand.does == DOES_LOOK && !request->sampled;
    if (errand.does == DOES_ADD)
        request->quantity = errand.amount;
    errand.sights[FROM].item = item;
    errand.sights[TO].item = moves ? run_item(reader->run, to) : NONE;
    if (!request->accepted_twice) /* otherwise its first lines count */
        *errand_of(reader->run, record->request) = errand;
    return true;
}

/* ---- Fields ---------------------------------------------------------------------------------- */

static bool read_number(struct record *record, const char *field, int64_t *number)
{
    return json_int(record->json, field, JSON_REQUIRED, 0, JSON_EXACT_MAX, number, record->error);
}

/* Which of its accounts the line names. NULL: none of them. */
static struct sight *read_account(struct reader *reader, struct record *record)
{
    struct errand *errand = errand_of(reader->run, record->request);
    const char *name = NULL;
    if (!json_text(record->json, "account", JSON_REQUIRED, &name, record->error))
        return NULL;
    const uint32_t item = run_item(reader->run, name);
    for (size_t i = 0; i < SIGHTS; i++) {
        if (item != NONE && errand->sights[i].item == item)
            return &errand->sights[i];
    }
    snprintf(record->error, sizeof record->error,
             "%s of %.60s by request %.60s, which is not about that account; it must be",
             events[record->event].name, name, run_request_id(reader->run, record->request));
    return NULL;
}

/* Finds the section of the request under the account's lock, inside of which it must be. The line
 * may name its hold. NONE: it has none. False: its hold is another one. */
static bool find_section(struct reader *reader, struct record *record, uint32_t item,
                         uint32_t *found)
{
    const struct run *run = reader->run;
    const char *hold = NULL;
    if (!json_text(record->json, "hold", JSON_OPTIONAL, &hold, record->error))
        return false;
    *found = NONE;
    for (uint32_t i = run->requests[record->request].section; i != NONE; i = run->sections[i].next)
        if (run->sections[i].item == item && run->sections[i].stage == STAGE_ENTER)
            *found = i;
    if (hold == NULL || (*found != NONE && find_hold(run, hold) == *found))
        return true;
    snprintf(record->error, sizeof record->error,
             "%s under hold %.80s, which is not that of its account's lock, or in which its "
             "request is not inside; it must be",
             events[record->event].name, hold);
    return false;
}

/* The line must be of the instance that accepted the request, and come before its end. */
static bool is_open(struct reader *reader, struct record *record)
{
    const struct request *request = &reader->run->requests[record->request];
    if (request->history == reader->index && request->outcome == OUTCOME_NONE)
        return true;
    snprintf(record->error, sizeof record->error,
             "%s of request %.60s, which has ended, or is another instance's; it must not",
             events[record->event].name, run_request_id(reader->run, record->request));
    return false;
}

/* ---- What it read and wrote ------------------------------------------------------------------ */

static bool read_sight(struct reader *reader, struct record *record)
{
    struct sight *sight = read_account(reader, record);
    int64_t balance = 0, version = 0;
    if (sight == NULL || !read_number(record, "balance", &balance) ||
        !read_number(record, "version", &version))
        return false;
    if (sight->read_ns != NOT_STAMPED) {
        snprintf(record->error, sizeof record->error,
                 "request %.60s reads an account a second time; it must read it once",
                 run_request_id(reader->run, record->request));
        return false;
    }
    sight->read_ns = record->t_ns;
    sight->balance = balance;
    sight->version = version;
    return true;
}

/* It must write what it computed from what it read. */
static bool check_deposit(struct reader *reader, struct record *record, const struct errand *errand,
                          const struct deposit *deposit)
{
    const struct sight *sight = &errand->sights[deposit->to ? TO : FROM];
    if (deposit->before == sight->balance && deposit->version == sight->version + 1 &&
        deposit->balance == deposit->before + account_change(errand, deposit->to))
        return true;
    snprintf(record->error, sizeof record->error,
             "request %.60s read %lld (version %lld), and writes %lld as version %lld; it must be "
             "that balance and its amount, %+lld, as the next version",
             run_request_id(reader->run, record->request), (long long)sight->balance,
             (long long)sight->version, (long long)deposit->balance, (long long)deposit->version,
             (long long)account_change(errand, deposit->to));
    return false;
}

/* The line must name the token of its hold: 0 if it has none. */
static bool follow_token(struct reader *reader, struct record *record, uint32_t section)
{
    const int64_t granted = section == NONE ? 0 : reader->run->sections[section].token;
    int64_t token = 0;
    if (!read_number(record, "token", &token))
        return false;
    if (token == granted)
        return true;
    reader->run->requests[record->request].mistimed = true; /* nor does its section prove a thing */
    snprintf(record->error, sizeof record->error,
             "writing with token %lld, and its lock was granted with %lld; they must be the same",
             (long long)token, (long long)granted);
    return false;
}

static bool read_writing(struct reader *reader, struct record *record)
{
    struct account *account = reader->run->account;
    struct deposit deposit = {.request = record->request,
                              .section = NONE,
                              .group = NONE,
                              .t_ns = record->t_ns,
                              .sent_ns = NOT_STAMPED,
                              .wrote_ns = NOT_STAMPED,
                              .fate = FATE_OPEN};
    struct sight *sight = read_account(reader, record);
    if (sight == NULL || !is_open(reader, record))
        return false;
    const struct errand *errand = errand_of(reader->run, record->request);
    if (sight->read_ns == NOT_STAMPED || sight->deposit != NONE || errand->does == DOES_LOOK) {
        snprintf(record->error, sizeof record->error,
                 "writing right behind no read; the order must be read, writing, wrote, and once "
                 "for each account");
        return false;
    }
    deposit.item = sight->item;
    deposit.to = sight == &errand->sights[TO];
    const bool told = read_number(record, "before", &deposit.before) &&
                      read_number(record, "balance", &deposit.balance) &&
                      read_number(record, "version", &deposit.version) &&
                      find_section(reader, record, sight->item, &deposit.section) &&
                      check_deposit(reader, record, errand, &deposit);
    deposit.denied = !told;
    sight->deposit = (uint32_t)account->deposit_count;
    account->deposits = memory_grow(account->deposits, account->deposit_count,
                                    &account->deposit_capacity, sizeof *account->deposits);
    account->deposits[account->deposit_count++] = deposit;
    return told && follow_token(reader, record, deposit.section);
}

static bool read_wrote(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    const struct sight *sight = read_account(reader, record);
    int64_t version = 0, sent_ns = 0;
    uint32_t section = NONE;
    if (sight == NULL || !is_open(reader, record))
        return false;
    struct deposit *deposit =
        sight->deposit == NONE ? NULL : &run->account->deposits[sight->deposit];
    if (deposit == NULL || deposit->wrote_ns != NOT_STAMPED) {
        snprintf(record->error, sizeof record->error,
                 "wrote right behind no writing; the order must be read, writing, wrote");
        return false;
    }
    bool told = read_number(record, "version", &version) &&
                json_line_time(reader->lines, record->json, "sent_ns", &sent_ns, record->error) &&
                find_section(reader, record, sight->item, &section);
    deposit->wrote_ns = record->t_ns;
    deposit->sent_ns = told ? sent_ns : record->t_ns;
    deposit->fate = FATE_CONFIRMED;
    deposit->denied |= !told || version != deposit->version || section != deposit->section;
    if (section != NONE)
        run->sections[section].filled = true;
    if (told && (sent_ns < sight->read_ns || sent_ns > record->t_ns)) {
        run->requests[record->request].mistimed = true;
        snprintf(record->error, sizeof record->error,
                 "\"sent_ns\" is %lld; it must lie between its read and its wrote",
                 (long long)sent_ns);
        return false;
    }
    if (told && deposit->denied)
        snprintf(record->error, sizeof record->error,
                 "it wrote version %lld; that must be the version and the hold of its writing",
                 (long long)version);
    return !deposit->denied;
}

static bool read_refused(struct reader *reader, struct record *record)
{
    struct errand *errand = errand_of(reader->run, record->request);
    if (read_account(reader, record) == NULL || !is_open(reader, record))
        return false;
    for (size_t i = 0; i < SIGHTS; i++) {
        const uint32_t number = errand->sights[i].deposit;
        if (number == NONE || reader->run->account->deposits[number].wrote_ns == NOT_STAMPED)
            continue;
        snprintf(record->error, sizeof record->error,
                 "write_refused by request %.60s, which wrote; it must have written nothing",
                 run_request_id(reader->run, record->request));
        return false;
    }
    if (errand->refused_ns == NOT_STAMPED)
        reader->run->counts.token_refusals++;
    errand->refused_ns = record->t_ns;
    return true;
}

/* ---- Its second lock ------------------------------------------------------------------------- */

static bool read_wants(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct account *account = run->account;
    struct errand *errand = errand_of(run, record->request);
    const char *lock = NULL, *hold = NULL;
    if (!json_text(record->json, "wants", JSON_REQUIRED, &lock, record->error) ||
        !json_text(record->json, "hold", JSON_REQUIRED, &hold, record->error) ||
        !is_open(reader, record))
        return false;
    const uint32_t section = find_hold(run, hold);
    if (section == NONE || run->sections[section].request != record->request ||
        run->sections[section].stage >= STAGE_EXIT || errand->wait != NONE) {
        snprintf(record->error, sizeof record->error,
                 "wants under hold %.80s, which its request does not hold, or for a second time; "
                 "it must hold it, and want one lock",
                 hold);
        return false;
    }
    errand->wait = (uint32_t)account->wait_count;
    account->waits = memory_grow(account->waits, account->wait_count, &account->wait_capacity,
                                 sizeof *account->waits);
    account->waits[account->wait_count++] = (struct wait){.request = record->request,
                                                          .section = section,
                                                          .lock = names_add(&run->locks, lock),
                                                          .t_ns = record->t_ns,
                                                          .ended_ns = record->t_ns};
    return true;
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* What the answer tells of an account must be what the request wrote, or what a look read. */
static bool is_as_recorded(const struct run *run, const struct errand *errand, bool to,
                           int64_t balance, int64_t version)
{
    const struct sight *sight = &errand->sights[to];
    if (errand->does == DOES_LOOK)
        return sight->read_ns != NOT_STAMPED && sight->balance == balance &&
               sight->version == version;
    if (sight->deposit == NONE)
        return false;
    const struct deposit *deposit = &run->account->deposits[sight->deposit];
    return deposit->wrote_ns != NOT_STAMPED && deposit->balance == balance &&
           deposit->version == version;
}

static bool read_answer(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    const struct errand errand = account_errand(run, record->request);
    const bool moves = errand.does == DOES_TRANSFER;
    int64_t code = 0, balance[SIGHTS] = {0, 0}, version[SIGHTS] = {0, 0};
    if (!json_int(record->json, "code", JSON_REQUIRED, 200, 299, &code, record->error) ||
        !read_number(record, "balance", &balance[FROM]) ||
        !read_number(record, "version", &version[FROM]) ||
        (moves && (!read_number(record, "to_balance", &balance[TO]) ||
                   !read_number(record, "to_version", &version[TO]))))
        return false;
    set_outcome(reader, record, OUTCOME_ANSWERED);
    run->requests[record->request].code = (int16_t)code;
    if (is_as_recorded(run, &errand, false, balance[FROM], version[FROM]) &&
        (!moves || is_as_recorded(run, &errand, true, balance[TO], version[TO])))
        return true;
    snprintf(record->error, sizeof record->error,
             "request %.60s is told done, and its own lines do not tell that balance and that "
             "version; each account must have its %s first",
             run_request_id(run, record->request), errand.does == DOES_LOOK ? "read" : "wrote");
    return false;
}

void account_read_event(struct reader *reader, struct record *record)
{
    bool fine = true;
    switch (record->event) {
    case EVENT_ACCOUNT_wants:
        fine = read_wants(reader, record);
        break;
    case EVENT_ACCOUNT_read:
        fine = read_sight(reader, record);
        break;
    case EVENT_ACCOUNT_writing:
        fine = read_writing(reader, record);
        break;
    case EVENT_ACCOUNT_wrote:
        fine = read_wrote(reader, record);
        break;
    case EVENT_ACCOUNT_write_refused:
        fine = read_refused(reader, record);
        break;
    case EVENT_answered:
        fine = read_answer(reader, record);
        break;
    default: /* of another service */
        fine = false;
        snprintf(record->error, sizeof record->error,
                 "there is no event \"%.40s\" of an account; it must be one of "
                 "docs/reference/run.md",
                 events[record->event].name);
        break;
    }
    if (!fine)
        wrong(reader, record);
}
