/* SPDX-License-Identifier: Apache-2.0 */
#include "shop.h"

#include "check.h"
#include "memory.h"
#include "read.h"
#include "row.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool shop_read_spec(struct run *run, char error[JSON_ERROR_MAX])
{
    struct run_spec *spec = &run->spec;
    spec->admit = "off";
    spec->segments = "1";
    spec->quantity = 1;
    if (!json_text(spec->json, "write", JSON_REQUIRED, &spec->write, error))
        return false;
    spec->fenced = strncmp(spec->write, "fenced", 6) == 0; /* also the flawed fenced_textbook */
    return json_text(spec->json, "on_conflict", JSON_OPTIONAL, &spec->on_conflict, error) &&
           json_text(spec->json, "admit", JSON_OPTIONAL, &spec->admit, error) &&
           json_text(spec->json, "segments", JSON_OPTIONAL, &spec->segments, error) &&
           json_bool(spec->json, "restocked", JSON_OPTIONAL, &spec->restocked, error) &&
           json_bool(spec->json, "fresh_keys", JSON_OPTIONAL, &spec->fresh_keys, error) &&
           json_int(spec->json, "retries", JSON_OPTIONAL, 0, REQUESTS_MAX, &spec->retries, error) &&
           json_int(spec->json, "quantity", JSON_OPTIONAL, 1, UNITS_MAX, &spec->quantity, error);
}

/* What is expected follows from the policies, so each instance must have those of run.json. */
static void shop_check_begin(struct reader *reader, struct record *record)
{
    const struct run_spec *spec = &reader->run->spec;
    const char *const fields[] = {"on_conflict", "admit", "segments"};
    const char *const wanted[] = {spec->on_conflict, spec->admit, spec->segments};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *value = wanted[i];
        if (!cJSON_HasObjectItem(spec->json, fields[i]))
            continue;
        if (!json_text(record->json, fields[i], JSON_OPTIONAL, &value, record->error))
            wrong(reader, record);
        else if (strcmp(value, wanted[i]) != 0)
            complain(&reader->source, record->line,
                     "recorded with %s \"%.60s\"; it must be run.json's \"%.60s\"", fields[i],
                     value, wanted[i]);
    }
}

static bool shop_is_sample(const char *label)
{
    return strncmp(label, "POST ", 5) == 0;
}

/* POST /inventory/{item}/sale */
static bool shop_is_sale(const char *method, const char *uri)
{
    static const char tail[] = "/sale";
    size_t length = strcspn(uri, "?");
    return strcmp(method, "POST") == 0 && length >= sizeof tail - 1 &&
           memcmp(uri + length - (sizeof tail - 1), tail, sizeof tail - 1) == 0;
}

/* The quantity in a sale's query; 1 if it has none. NOT_KNOWN if no instance would accept it. */
static int64_t shop_quantity_of(const char *query)
{
    char digits[16];
    int64_t quantity = 0;
    const char *text = strstr(query, "quantity=");
    if (text == NULL)
        return 1;
    text += strlen("quantity=");
    snprintf(digits, sizeof digits, "%.*s", (int)strspn(text, "0123456789"), text);
    return text_int(digits, &quantity) && quantity >= 1 && quantity <= UNITS_MAX ? quantity
                                                                                 : NOT_KNOWN;
}

static void shop_read_redis(struct source *source, const cJSON *json, const char *when,
                            const struct item *item, struct redis_side *side)
{
    const cJSON *stocks = cJSON_GetObjectItemCaseSensitive(json, "stock");
    const cJSON *queues = cJSON_GetObjectItemCaseSensitive(json, "queues");
    char error[JSON_ERROR_MAX];
    if (!json_int(stocks, item->name, JSON_OPTIONAL, -UNITS_MAX, UNITS_MAX, &side->stock, error))
        complain(source, 0, "%s, stock: %s", when, error);
    else if (side->stock == NOT_KNOWN)
        redis_missing(source, when, "stock", item);
    side->queued = NOT_KNOWN;
    if (!json_int(queues, item->name, JSON_OPTIONAL, 0, JSON_EXACT_MAX, &side->queued, error))
        complain(source, 0, "%s, queues: %s", when, error);
}

static void shop_read_event(struct reader *reader, struct record *record)
{
    switch (record->event) {
    case EVENT_replay:
        sale_replayed(reader, record);
        break;
    case EVENT_abort:
        sale_aborted(reader, record);
        break;
    case EVENT_accepted:
    case EVENT_taken:
    case EVENT_requeued:
        about_queue(reader, record);
        break;
    default:
        about_restock(reader, record);
        break;
    }
}

/* Whether a client got a 200 that no history has. Then other records may be missing too. */
static bool shop_lacks_a_sale(const struct run *run)
{
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->sampled && request->client_code == 200 && !request->accepted)
            return true;
    }
    return false;
}

static void shop_settle(struct run *run)
{
    run->restocks_lost =
        run->spec.restocked && (!run_all_told(run, false) || shop_lacks_a_sale(run));
    entries_settle(run);
    run_find_rejected(run);
    sales_find(run);
    keys_settle(run);
    buyers_settle(run);
}

static const char *shop_answer_differs(const struct run *run, const struct request *request)
{
    if (run->replays_told && request->client_replayed != (request->outcome == OUTCOME_REPLAYED))
        return "client and instance differ on whether the answer is a stored one";
    if (request->outcome != OUTCOME_SOLD)
        return NULL;
    if (request->client_instance != request->instance)
        return "another instance's history has the sale";
    if (request->client_item != request->item)
        return "the instance's history has a sale of another item";
    return NULL;
}

static void shop_check(struct run *run)
{
    check_conservation(run);
    check_distinct(run);
    check_keys(run);
    check_queue(run);
    check_fencing(run);
    check_liveness(run);
}

static int64_t shop_amount(const struct run *run, enum result result)
{
    const struct counts *counts = &run->counts;
    switch (result) {
    case RESULT_OVERSOLD:
        return counts->oversold > 0          ? counts->oversold
               : counts->surplus > 0         ? counts->surplus
               : counts->duplicate_units > 0 ? counts->duplicate_units
                                             : counts->duplicate_key_units;
    case RESULT_UNDERSOLD:
        return -(counts->unsold > counts->shortfall ? counts->unsold : counts->shortfall);
    case RESULT_UNFINISHED:
        return -counts->unfinished;
    default:
        return 0;
    }
}

static void shop_tell(struct run *run, enum result result)
{
    const struct counts *counts = &run->counts;
    int64_t missing = counts->initial - counts->left - counts->sold;
    char taken[80] = "";
    char together[120] = "no two of one lock at the same time";
    if (missing > 0 && missing <= counts->unknown) /* OK all the same: so many may be sold */
        snprintf(taken, sizeof taken, "%lld taken by sales of unknown outcome, ",
                 (long long)missing);
    if (counts->overlaps == 0 && counts->max_parallel > 1)
        snprintf(together, sizeof together, "only readers of one lock at the same time");
    if (counts->overlaps > 0) /* the result is OK all the same: the stock compared their tokens */
        snprintf(together, sizeof together,
                 "%lld of them while another was inside; the stock refused %lld",
                 (long long)counts->overlaps, (long long)counts->token_refusals);
    if (result == RESULT_OK)
        findings_add(&run->findings, RESULT_OK,
                     "%lld request%s, %lld of %lld sold, %lld left, %s%s; %zu section%s, %s",
                     (long long)counts->requests, counts->requests == 1 ? "" : "s",
                     (long long)counts->sold, (long long)counts->initial, (long long)counts->left,
                     taken,
                     counts->distinct < counts->sold ? "no unit more often than it was in stock"
                                                     : "no unit twice",
                     run->by_lock_count, run->by_lock_count == 1 ? "" : "s", together);
    if (counts->attempts > 0)
        findings_add(&run->findings, RESULT_OK,
                     "attempts after which the buyer asked again: %lld (the lock was taken, the "
                     "stock had changed, or the shop admitted no more)",
                     (long long)counts->attempts);
    if (counts->accepted > 0)
        findings_add(&run->findings, RESULT_OK,
                     "sales that were accepted into a queue: %lld; processed by another instance "
                     "than the one that accepted it: %lld",
                     (long long)counts->accepted, (long long)counts->handed_over);
}

static const char *shop_settings(const struct run *run, char *text, size_t size)
{
    snprintf(text, size, "rung %.40s, write %.40s, fault %.40s", run->spec.rung, run->spec.write,
             run->spec.fault);
    return text;
}

static void shop_add_settings(cJSON *json, const struct run *run)
{
    cJSON_AddStringToObject(json, "write", run->spec.write);
}

static void shop_add_counts(cJSON *json, const struct run *run)
{
    const struct counts *counts = &run->counts;
    const struct number numbers[] = {
        {"initial", counts->initial},
        {"requests", counts->requests},
        {"sold", counts->sold},
        {"left", counts->left},
        {"oversold", counts->oversold},
        {"surplus", counts->surplus},
        {"shortfall", counts->shortfall},
        {"unsold", counts->unsold},
        {"unknown", counts->unknown},
        {"distinct", counts->distinct},
        {"duplicate_units", counts->duplicate_units},
        {"duplicate_key_units", counts->duplicate_key_units},
        {"replayed", counts->replayed},
        {"attempts", counts->attempts},
        {"rejected_early", counts->rejected_early},
        {"accepted", counts->accepted},
        {"unfinished", counts->unfinished},
        {"overtaken", counts->overtaken},
    };
    verdict_add_numbers(json, numbers, sizeof numbers / sizeof *numbers);
}

static void shop_add_instance(cJSON *json, const struct run *run, size_t instance)
{
    cJSON_AddNumberToObject(json, "sold", (double)run->counts.sold_by[instance]);
}

static void shop_add_measures(cJSON *json, const struct run *run)
{
    if (run->redis_commands == NOT_KNOWN || run->counts.sold <= 0)
        cJSON_AddNullToObject(json, "redis_commands_per_sale");
    else
        cJSON_AddNumberToObject(
            json, "redis_commands_per_sale",
            round((double)run->redis_commands * 100 / (double)run->counts.sold) / 100);
}

/* ---- The picture ----------------------------------------------------------------------------- */

static void shop_title(const struct run *run, char text[SVG_LABEL_MAX])
{
    const struct run_spec *spec = &run->spec;
    char rung[SVG_LABEL_MAX];
    char write[SVG_LABEL_MAX];
    bool one = strcmp(spec->segments, "1") == 0;
    snprintf(text, SVG_LABEL_MAX, "rung %s, write %s%s%.12s", shortened(spec->rung, 260, 22, rung),
             shortened(spec->write, 240, 22, write), one ? "" : ", segments ",
             one ? "" : spec->segments);
}

static void shop_facts(const struct run *run, char text[SVG_LABEL_MAX])
{
    const struct counts *counts = &run->counts;
    snprintf(text, SVG_LABEL_MAX, "%lld in stock, %lld sold, %lld left.",
             (long long)counts->initial, (long long)counts->sold, (long long)counts->left);
}

/* The units sold, up to the stock. */
static void shop_chart(const struct run *run, struct chart *chart)
{
    chart->name = "sold";
    chart->limit_name = "stock";
    chart->limit = run->counts.initial;
    chart->points = memory_new(run->section_count, sizeof *chart->points);
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (section->sold)
            chart->points[chart->count++] =
                (struct point){section->at_ns[STAGE_WRITE], section->quantity};
    }
}

/* " in segment 5", if there are several. */
static const char *shop_where_left(const struct run *run, const struct section *section,
                                   char text[TIME_TEXT_MAX])
{
    const struct share share = run_share(run, section);
    text[0] = '\0';
    if (share.segments > 1)
        snprintf(text, TIME_TEXT_MAX, " in segment %d", share.segment);
    return text;
}

/* What the section read and sold, and the other parts of the same sale. */
static void shop_add_steps(const struct run *run, const struct section *section, int who,
                           const char *actor, struct story *story)
{
    char units[UNITS_TEXT_MAX];
    char where[TIME_TEXT_MAX];
    story_step(story, section->at_ns[STAGE_READ], who, STAGE_READ, "%s reads: %lld left%s", actor,
               (long long)section->stock_before, shop_where_left(run, section, where));
    if (!section->sold)
        return;
    story_step(story, section->at_ns[STAGE_WRITE], who, STAGE_WRITE, "%s sells %s, %lld left%s",
               actor, units_sold(run, section, units), (long long)section->stock_after,
               shop_where_left(run, section, where));
    for (size_t i = run->requests[section->request].section; i != NONE; i = run->sections[i].next) {
        const struct section *other = &run->sections[i];
        if (other != section && other->sold && run_share(run, other).parts > 1)
            story_step(story, other->at_ns[STAGE_WRITE], who, STAGE_NONE, "%s also sells %s%s",
                       actor, units_sold(run, other, units), shop_where_left(run, other, where));
    }
}

const struct rules shop_rules = {
    .service = "shop",
    .kind = SERVICE_SHOP,
    .items = "stock at the start, as {\"phone\":1000}",
    .samples = "sale.jtl",
    .sampled = "buying",
    .labels = "\"POST \"",
    .is_sample = shop_is_sample,
    .is_request = shop_is_sale,
    .path_head = "/inventory/",
    .path_tail = "/sale",
    .quantity_of = shop_quantity_of,
    .read_spec = shop_read_spec,
    .check_begin = shop_check_begin,
    .read_invoke = sale_invoked,
    .read_event = shop_read_event,
    .read_stage = sale_stage,
    .read_redis = shop_read_redis,
    .redis = "\"stock\":{\"phone\":1000},\"locks\":{\"phone\":{\"type\":\"none\",",
    .settle = shop_settle,
    .check = shop_check,
    .answer_differs = shop_answer_differs,
    .unsampled = "it is not in sale.jtl, though nginx or an instance saw it",
    .ends = "write, refused, fail or unknown, or, where it only reads, its read",
    .mended = ", or each must be sent again under its idempotency key and be told how it ended",
    .expected = shop_expected,
    .amount = shop_amount,
    .tell = shop_tell,
    .settings = shop_settings,
    .add_settings = shop_add_settings,
    .add_counts = shop_add_counts,
    .add_instance = shop_add_instance,
    .add_measures = shop_add_measures,
    .title = shop_title,
    .facts = shop_facts,
    .chart = shop_chart,
    .did = "inside, sold",
    .did_nothing = "inside, sold nothing",
    .add_steps = shop_add_steps,
    .print_head = row_print_head,
    .print_row = row_print,
};
