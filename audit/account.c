/* SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include "check.h"
#include "memory.h"
#include "read.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is read ---------------------------------------------------------------------------- */

static bool is_one_of(const char *field, const char *text, const char *one, const char *two,
                      char error[JSON_ERROR_MAX])
{
    if (strcmp(text, one) == 0 || strcmp(text, two) == 0)
        return true;
    snprintf(error, JSON_ERROR_MAX, "\"%s\" is \"%.40s\"; it must be %s or %s", field, text, one,
             two);
    return false;
}

/* The settings, as run.json and each `begin` state them; the write mode is compared elsewhere. */
static bool account_read_settings(const cJSON *json, struct account *account,
                                  char error[JSON_ERROR_MAX])
{
    enum { DAY_MS = 86400000 };
    return json_text(json, "locks", JSON_REQUIRED, &account->locks, error) &&
           is_one_of("locks", account->locks, "unordered", "many", error) &&
           json_int(json, "work_ms", JSON_REQUIRED, 0, DAY_MS, &account->work_ms, error);
}

static bool account_read_spec(struct run *run, char error[JSON_ERROR_MAX])
{
    run->account = memory_new(1, sizeof *run->account);
    run->spec.quantity = 1;
    return json_text(run->spec.json, "write", JSON_REQUIRED, &run->spec.write, error) &&
           is_one_of("write", run->spec.write, "two", "script", error) &&
           account_read_settings(run->spec.json, run->account, error);
}

static void account_check_begin(struct reader *reader, struct record *record)
{
    const struct account *account = reader->run->account;
    struct account begun = {.locks = NULL};
    if (!account_read_settings(record->json, &begun, record->error))
        wrong(reader, record);
    else if (strcmp(begun.locks, account->locks) != 0 || begun.work_ms != account->work_ms)
        complain(&reader->source, record->line,
                 "recorded with another locks or work_ms; they must be run.json's");
}

static bool account_is_sample(const char *label)
{
    static const char *const labels[] = {"POST add", "POST transfer", "GET account"};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        if (strncmp(label, labels[i], strlen(labels[i])) == 0)
            return true;
    }
    return false;
}

/* POST /accounts/{name}/add, POST /transfers, GET /accounts/{name} */
static bool account_is_request(const char *method, const char *uri)
{
    static const char accounts[] = "/accounts/", transfers[] = "/transfers";
    const size_t length = strcspn(uri, "?");
    if (strncmp(uri, accounts, sizeof accounts - 1) == 0)
        return strcmp(method, "GET") == 0 || strcmp(method, "POST") == 0;
    return strcmp(method, "POST") == 0 && length == sizeof transfers - 1 &&
           strncmp(uri, transfers, length) == 0;
}

/* The amount of an add, from its query. */
static int64_t account_amount_of(const char *query)
{
    char digits[24];
    int64_t amount = 0;
    const char *text = strstr(query, "amount=");
    if (text == NULL)
        return NOT_KNOWN;
    text += strlen("amount=");
    snprintf(digits, sizeof digits, "%.*s", (int)strspn(text, "-0123456789"), text);
    return text_int(digits, &amount) && amount >= -JSON_EXACT_MAX && amount <= JSON_EXACT_MAX
               ? amount
               : NOT_KNOWN;
}

/* "lock:{acc-01}" */
static uint32_t account_of_lock(const struct run *run, const char *lock)
{
    char name[256];
    const char *from = strchr(lock, '{');
    const char *to = strrchr(lock, '}');
    if (from == NULL || to == NULL || to < from || (size_t)(to - from) > sizeof name)
        return NONE;
    snprintf(name, sizeof name, "%.*s", (int)(to - from - 1), from + 1);
    return run_item(run, name);
}

/* Of a transfer that waited for its second lock, that one; otherwise it is not known for which. */
static void account_waited_for(const struct run *run, size_t request, uint32_t items[2])
{
    const struct errand errand = account_errand(run, request);
    items[0] = errand.sights[FROM].item;
    items[1] = NONE;
    if (errand.wait != NONE)
        items[0] =
            account_of_lock(run, names_text(&run->locks, run->account->waits[errand.wait].lock));
    else if (strcmp(run->account->locks, "many") == 0)
        items[1] = errand.sights[TO].item;
}

static void account_read_redis(struct source *source, const cJSON *json, const char *when,
                               const struct item *item, struct redis_side *side)
{
    const cJSON *accounts = cJSON_GetObjectItemCaseSensitive(json, "accounts");
    const cJSON *account = cJSON_GetObjectItemCaseSensitive(accounts, item->name);
    char error[JSON_ERROR_MAX];
    int64_t balance = 0;
    if (account == NULL)
        redis_missing(source, when, "balance", item);
    else if (!json_int(account, "balance", JSON_REQUIRED, -JSON_EXACT_MAX, JSON_EXACT_MAX, &balance,
                       error) ||
             !json_int(account, "version", JSON_REQUIRED, 0, JSON_EXACT_MAX, &side->version, error))
        complain(source, 0, "%s, accounts, %.60s: %s", when, item->name, error);
    else
        side->stock = balance;
}

/* ---- What is settled before the checks ------------------------------------------------------- */

/* When the request stopped waiting: the lock was granted to it, or it left the one that it holds,
 * or ended, or its process was killed. */
static void settle_wait(const struct run *run, struct wait *wait)
{
    const struct request *request = &run->requests[wait->request];
    const struct history *history = &run->histories[request->history];
    const int64_t *at_ns = run->sections[wait->section].at_ns;
    int64_t ended_ns = request->outcome_ns;
    for (uint32_t i = request->section; i != NONE; i = run->sections[i].next) {
        const struct section *section = &run->sections[i];
        if (section->lock == wait->lock && section->at_ns[STAGE_GRANTED] >= wait->t_ns) {
            wait->ended_ns = section->at_ns[STAGE_GRANTED];
            return;
        }
    }
    if (ended_ns == NOT_STAMPED)
        ended_ns = history->ended ? wait->t_ns : history->last_ns; /* the first: no proof */
    const enum stage end = at_ns[STAGE_EXIT] != NOT_STAMPED ? STAGE_EXIT : STAGE_RELEASE;
    if (at_ns[end] != NOT_STAMPED && at_ns[end] < ended_ns)
        ended_ns = at_ns[end];
    wait->ended_ns = ended_ns;
    wait->timed_out = request->outcome == OUTCOME_REFUSED && request->reason == REASON_LOCK_TIMEOUT;
}

static void account_settle(struct run *run)
{
    struct account *account = run->account;
    run_find_rejected(run);
    for (size_t i = 0; i < run->item_count; i++)
        run->items[i].began = run->items[i].redis[BEFORE].stock;
    for (size_t i = 0; i < account->wait_count; i++)
        settle_wait(run, &account->waits[i]);
    for (size_t i = 0; i < run->section_count && strcmp(run->spec.write, "script") == 0; i++)
        run->spec.fenced |= run->sections[i].token > 0;
}

void account_free(struct account *account)
{
    free(account->errands);
    free(account->deposits);
    free(account->waits);
    free(account->ledgers);
    free(account);
}

/* ---- What is compared and counted ------------------------------------------------------------ */

static const char *account_answer_differs(const struct run *run, const struct request *request)
{
    if (request->outcome != OUTCOME_ANSWERED)
        return NULL;
    if (request->client_instance != request->instance)
        return "another instance's history has the answer";
    if (request->client_item != request->item)
        return "the instance's history has an answer about another account";
    const struct errand errand = account_errand(run, (size_t)(request - run->requests));
    const struct sight *sight = &errand.sights[FROM];
    const int64_t version = errand.does == DOES_LOOK ? sight->version : sight->version + 1;
    return sight->read_ns != NOT_STAMPED && request->client_version != version
               ? "the instance's history says that it told another version"
               : NULL;
}

/* How long clients waited that were told done. */
static struct spread account_measure(const struct run *run, enum does does)
{
    size_t count = 0;
    double *values = memory_new(run->request_count, sizeof *values);
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->sampled && request->outcome == OUTCOME_ANSWERED &&
            account_errand(run, i).does == does)
            values[count++] = request->elapsed_ms;
    }
    const struct spread spread = verdict_spread(values, count);
    free(values);
    return spread;
}

static void account_check_all(struct run *run)
{
    check_tokens(run);
    account_check(run);
    run->account->adds_ms = account_measure(run, DOES_ADD);
    run->account->transfers_ms = account_measure(run, DOES_TRANSFER);
}

/* How much money is missing (below 0) or too much. */
static int64_t account_off(const struct account *account)
{
    return account->whole ? account->after - account->before - account->added : 0;
}

static int64_t account_amount(const struct run *run, enum result result)
{
    return result == RESULT_UNBALANCED ? account_off(run->account) : 0;
}

static void account_tell(struct run *run, enum result result)
{
    const struct account *account = run->account;
    if (result != RESULT_OK)
        return;
    findings_add(&run->findings, RESULT_OK,
                 "requests: %lld; adds that were told done: %lld, transfers: %lld. All accounts "
                 "together: %lld at the start, %+lld by adds, %lld in the end. Versions, each of "
                 "them written once: %lld",
                 (long long)run->counts.requests, (long long)account->adds,
                 (long long)account->transfers, (long long)account->before,
                 (long long)account->added, (long long)account->after,
                 (long long)account->versions);
    if (account->unknown > 0)
        findings_add(&run->findings, RESULT_OK,
                     "requests whose writes have no known outcome: %lld; %lld of them took effect, "
                     "as the versions show",
                     (long long)account->unknown, (long long)account->took_effect);
    if (run->counts.overlaps > 0) /* OK all the same: the accounts compare their tokens */
        findings_add(&run->findings, RESULT_OK,
                     "sections that began while another was inside: %lld; the accounts refused "
                     "%lld requests for their old token",
                     (long long)run->counts.overlaps, (long long)run->counts.token_refusals);
}

static const char *account_settings(const struct run *run, char *text, size_t size)
{
    snprintf(text, size, "rung %.40s, write %.10s, locks %.10s, fault %.40s", run->spec.rung,
             run->spec.write, run->account->locks, run->spec.fault);
    return text;
}

static void account_add_settings(cJSON *json, const struct run *run)
{
    cJSON_AddStringToObject(json, "service", "account");
    cJSON_AddStringToObject(json, "write", run->spec.write);
    cJSON_AddStringToObject(json, "locks", run->account->locks);
    cJSON_AddNumberToObject(json, "work_ms", (double)run->account->work_ms);
}

static void account_add_counts(cJSON *json, const struct run *run)
{
    const struct account *account = run->account;
    const struct number numbers[] = {
        {"requests", run->counts.requests},
        {"adds", account->adds},
        {"transfers", account->transfers},
        {"looks", account->looks},
        {"versions", account->versions},
        {"unknown", account->unknown},
        {"took_effect", account->took_effect},
        {"lost", account->lost},
        {"torn", account->torn},
        {"cycles", account->cycles},
        {"before", account->before},
        {"added", account->added},
        {"after", account->after},
        {"off", account_off(account)},
    };
    verdict_add_numbers(json, numbers, sizeof numbers / sizeof *numbers);
}

static void account_add_instance(cJSON *json, const struct run *run, size_t instance)
{
    int64_t count = 0;
    for (size_t i = 0; i < run->account->deposit_count; i++)
        count += account_is_in(&run->account->deposits[i]) &&
                 run->requests[run->account->deposits[i].request].instance == instance;
    cJSON_AddNumberToObject(json, "writes", (double)count);
}

static void account_add_measures(cJSON *json, const struct run *run)
{
    verdict_add_spread(json, "adds_ms", &run->account->adds_ms);
    verdict_add_spread(json, "transfers_ms", &run->account->transfers_ms);
}

/* ---- A row of the table ---------------------------------------------------------------------- */

#define ACCOUNT_ROW                                                                                \
    "%-13s %-6s %-9s %8s %6s %9s %8s %7s %6s %5s %5s %7s %8s %11s %12s  %-20s %s%s%s\n"

static void account_print_head(void)
{
    printf(ACCOUNT_ROW, "", "", "", "", "", "", "", "", "took", "", "", "", "", "overlapping",
           "transfers", "", "", "", "");
    printf(ACCOUNT_ROW, "rung", "write", "locks", "requests", "adds", "transfers", "versions",
           "unknown", "effect", "lost", "torn", "cycles", "off", "sections", "p50/p99 ms",
           "expected", "got", "", "");
}

static const char *account_number(int64_t value, char text[24])
{
    snprintf(text, 24, "%lld", (long long)value);
    return text;
}

static void account_print_row(const struct run *run, const struct verdict *verdict)
{
    const struct account *account = run->account;
    const int64_t numbers[] = {run->counts.requests, account->adds,       account->transfers,
                               account->versions,    account->unknown,    account->took_effect,
                               account->lost,        account->torn,       account->cycles,
                               account_off(account), run->counts.overlaps};
    char texts[sizeof numbers / sizeof *numbers][24];
    char spread[48] = "-";
    char expected[128];
    char got[64];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        account_number(numbers[i], texts[i]);
    if (account->transfers_ms.known)
        snprintf(spread, sizeof spread, "%.0f/%.0f", account->transfers_ms.p50,
                 account->transfers_ms.p99);
    verdict_expected(verdict, "|", expected, sizeof expected);
    verdict_got(run, verdict, got, sizeof got);
    const bool broken = strcmp(run->spec.fault, "none") != 0;
    printf(ACCOUNT_ROW, run->spec.rung, run->spec.write, account->locks, texts[0], texts[1],
           texts[2], texts[3], texts[4], texts[5], texts[6], texts[7], texts[8], texts[9],
           texts[10], spread, expected, got, broken ? ", " : "", broken ? run->spec.fault : "");
}

/* ---- The picture ----------------------------------------------------------------------------- */

static void account_title(const struct run *run, char text[SVG_LABEL_MAX])
{
    char rung[SVG_LABEL_MAX];
    snprintf(text, SVG_LABEL_MAX, "rung %.80s, write %.10s, locks %.12s",
             shortened(run->spec.rung, 260, 22, rung), run->spec.write, run->account->locks);
}

static void account_facts(const struct run *run, char text[SVG_LABEL_MAX])
{
    const struct account *account = run->account;
    snprintf(
        text, SVG_LABEL_MAX,
        "Adds: %lld, transfers: %lld. Money: %lld at the start, %+lld by adds, %lld in the end.",
        (long long)account->adds, (long long)account->transfers, (long long)account->before,
        (long long)account->added, (long long)account->after);
}

static int by_item_answer(const void *a, const void *b)
{
    const struct deposit *one = *(const struct deposit *const *)a;
    const struct deposit *two = *(const struct deposit *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    return (one->wrote_ns > two->wrote_ns) - (one->wrote_ns < two->wrote_ns);
}

/* left: how much the points may still move in all. What is beyond it cannot be counted. */
static void add_point(struct chart *chart, int64_t *left, int64_t t_ns, int64_t amount)
{
    const int64_t size = amount < 0 ? -amount : amount;
    if (size > *left)
        return;
    *left -= size;
    chart->points[chart->count++] = (struct point){t_ns, amount};
}

/* The money in all accounts, as the answered writes left it, and as Redis has it in the end. */
static void account_chart(const struct run *run, struct chart *chart)
{
    const struct account *account = run->account;
    const struct deposit **list = memory_new(account->deposit_count, sizeof *list);
    int64_t *balances = memory_new(run->item_count, sizeof *balances);
    size_t count = 0;
    int64_t left = INT64_MAX;
    for (size_t i = 0; i < account->deposit_count; i++) {
        if (account->deposits[i].fate == FATE_CONFIRMED)
            list[count++] = &account->deposits[i];
    }
    qsort(list, count, sizeof *list, by_item_answer);
    chart->name = "sum";
    chart->limit_name = "start";
    chart->limit = account->before + account->added;
    chart->points = memory_new(count + 2 * run->item_count, sizeof *chart->points);
    for (size_t i = 0; i < run->item_count; i++) {
        const int64_t stock = run->items[i].redis[BEFORE].stock;
        balances[i] = stock == NOT_KNOWN ? 0 : stock;
        add_point(chart, &left, run->start_ns, balances[i]);
    }
    for (size_t i = 0; i < count; i++) {
        int64_t *balance = &balances[list[i]->item];
        add_point(chart, &left, list[i]->wrote_ns, list[i]->balance - *balance);
        *balance = list[i]->balance;
    }
    for (size_t i = 0; i < run->item_count; i++) {
        const int64_t stock = run->items[i].redis[AFTER].stock;
        add_point(chart, &left, run->end_ns, stock == NOT_KNOWN ? 0 : stock - balances[i]);
    }
    free(list);
    free(balances);
}

static void tell_wait(const struct run *run, const struct wait *wait, int who, const char *actor,
                      struct story *story)
{
    story_step(story, wait->t_ns, who, STAGE_NONE, "%.60s waits for %.80s, too", actor,
               names_text(&run->locks, wait->lock));
}

static void account_add_steps(const struct run *run, const struct section *section, int who,
                              const char *actor, struct story *story)
{
    const struct account *account = run->account;
    const struct errand errand = account_errand(run, section->request);
    const uint32_t number = (uint32_t)(section - run->sections);
    for (size_t i = 0; i < SIGHTS; i++) {
        const struct sight *sight = &errand.sights[i];
        if (sight->item == NONE)
            continue;
        const char *name = run->items[sight->item].name;
        const struct deposit *deposit =
            sight->deposit == NONE ? NULL : &account->deposits[sight->deposit];
        if (sight->item == section->item || errand.torn)
            story_step(story, sight->read_ns, who, STAGE_NONE,
                       "%s reads %.60s: %lld (version %lld)", actor, name,
                       (long long)sight->balance, (long long)sight->version);
        if (deposit == NULL || (sight->item != section->item && !errand.torn))
            continue;
        story_step(story, deposit->t_ns, who, STAGE_NONE, "%s is about to write %lld to %.60s",
                   actor, (long long)deposit->balance, name);
        const size_t before = story->count;
        story_step(story, deposit->wrote_ns, who, STAGE_NONE,
                   "%s has written %lld to %.60s (version %lld)%s", actor,
                   (long long)deposit->balance, name, (long long)deposit->version,
                   deposit->lost ? ", which another write of that version overwrites" : "");
        if (story->count > before)
            story->steps[before].worst = deposit->lost;
    }
    story_step(story, errand.refused_ns, who, STAGE_NONE, "the accounts refuse the token of %s",
               actor);
    if (errand.wait == NONE || account->waits[errand.wait].section != number)
        return;
    tell_wait(run, &account->waits[errand.wait], who, actor, story);
    for (size_t i = 0; account->waits[errand.wait].told && i < account->wait_count; i++)
        if (account->waits[i].told && i != errand.wait)
            tell_wait(run, &account->waits[i], 0, run_request_id(run, account->waits[i].request),
                      story);
}

/* Of a request that needed no lock. */
static void account_add_answer(const struct run *run, size_t request, const char *id,
                               struct story *story)
{
    const struct errand errand = account_errand(run, request);
    const struct sight *sight = &errand.sights[FROM];
    story_step(story, run->requests[request].outcome_ns, 0, STAGE_NONE,
               "%s %s %.60s: %lld (version %lld)", id,
               errand.does == DOES_LOOK ? "looks at" : "changes",
               sight->item == NONE ? "an account" : run->items[sight->item].name,
               (long long)sight->balance, (long long)sight->version);
}

const struct rules account_rules = {
    .service = "account",
    .kind = SERVICE_ACCOUNT,
    .items = "balance at the start, as {\"acc-01\":1000}",
    .samples = "load.jtl",
    .sampled = "account",
    .labels = "\"POST add\", \"POST transfer\" or \"GET account\"",
    .is_sample = account_is_sample,
    .is_request = account_is_request,
    .path_head = "/accounts/",
    .path_tail = "",
    .quantity_of = account_amount_of,
    .read_spec = account_read_spec,
    .check_begin = account_check_begin,
    .read_invoke = account_invoked,
    .read_event = account_read_event,
    .item_of_lock = account_of_lock,
    .waited_for = account_waited_for,
    .read_redis = account_read_redis,
    .redis = "\"accounts\":{\"acc-01\":{\"balance\":1000,\"version\":1}},\"locks\":{\"acc-01\":{"
             "\"type\":\"none\",",
    .settle = account_settle,
    .check = account_check_all,
    .answer_differs = account_answer_differs,
    .unsampled = "it is not in load.jtl, though nginx or an instance saw it",
    .ends = "answered, refused, fail or unknown",
    .mended = "",
    .expected = account_expected,
    .amount = account_amount,
    .tell = account_tell,
    .settings = account_settings,
    .add_settings = account_add_settings,
    .add_counts = account_add_counts,
    .add_instance = account_add_instance,
    .add_measures = account_add_measures,
    .title = account_title,
    .facts = account_facts,
    .chart = account_chart,
    .did = "inside, wrote",
    .did_nothing = "inside, wrote nothing",
    .unknown = "wrote",
    .add_steps = account_add_steps,
    .add_answer = account_add_answer,
    .print_head = account_print_head,
    .print_row = account_print_row,
};
