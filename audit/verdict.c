/* SPDX-License-Identifier: Apache-2.0 */
#include "verdict.h"

#include "memory.h"
#include "output.h"
#include "rules.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers --------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double one = *(const double *)a;
    double two = *(const double *)b;
    return (one > two) - (one < two);
}

/* Nearest rank: the least value that at least so many per cent of all values do not exceed. */
static double percentile(const double *sorted, size_t count, size_t percent)
{
    size_t rank = (count * percent + 99) / 100;
    return sorted[rank > 0 ? rank - 1 : 0];
}

struct spread verdict_spread(double *values, size_t count)
{
    struct spread spread = {.known = count > 0};
    if (count == 0)
        return spread;
    qsort(values, count, sizeof *values, by_value);
    spread.p50 = percentile(values, count, 50);
    spread.p99 = percentile(values, count, 99);
    spread.max = values[count - 1];
    return spread;
}

static double rounded_ms(int64_t from_ns, int64_t to_ns)
{
    return round((double)(to_ns - from_ns) / 1e3) / 1e3;
}

/* The outcome of the sale in a queue, if its buyer has asked for it; NULL. */
static const struct entry *fetched_by(const struct run *run, const struct request *request)
{
    if (!request->client_queued || request->entry == NONE ||
        run->entries[request->entry].told_code == 0)
        return NULL;
    return &run->entries[request->entry];
}

/* How long the buyer waited, up to the outcome. */
static int64_t waited_ms(const struct run *run, const struct request *request)
{
    const struct entry *entry = fetched_by(run, request);
    return entry != NULL && entry->told_ms >= request->start_ms ? entry->told_ms - request->start_ms
                                                                : request->elapsed_ms;
}

static void measure_client(const struct run *run, struct verdict *verdict, double *values)
{
    size_t count = 0;
    int64_t first_ms = 0;
    int64_t last_ms = 0;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (!request->sampled)
            continue;
        if (count == 0 || request->start_ms < first_ms)
            first_ms = request->start_ms;
        if (count == 0 || request->start_ms > last_ms)
            last_ms = request->start_ms;
        values[count++] = (double)waited_ms(run, request);
    }
    verdict->start_spread_ms = last_ms - first_ms;
    verdict->latency_ms = verdict_spread(values, count);
}

static void measure_sections(const struct run *run, struct verdict *verdict, double *values)
{
    size_t count = 0;
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        int64_t invoke_ns = run->requests[section->request].invoke_ns;
        if (invoke_ns != NOT_STAMPED && section->at_ns[STAGE_GRANTED] != NOT_STAMPED)
            values[count++] = rounded_ms(invoke_ns, section->at_ns[STAGE_GRANTED]);
    }
    verdict->wait_ms = verdict_spread(values, count);
    count = 0;
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (section->at_ns[STAGE_EXIT] != NOT_STAMPED)
            values[count++] = rounded_ms(section->at_ns[STAGE_ENTER], section->at_ns[STAGE_EXIT]);
    }
    verdict->hold_ms = verdict_spread(values, count);
}

/* ---- Result ---------------------------------------------------------------------------------- */

void verdict_reach(struct run *run, struct verdict *verdict)
{
    size_t most = run->request_count > run->section_count ? run->request_count : run->section_count;
    double *values = memory_new(most, sizeof *values);
    char settings[200];
    memset(verdict, 0, sizeof *verdict);
    measure_client(run, verdict, values);
    measure_sections(run, verdict, values);
    free(values);
    verdict->expected = run->spec.expect_given
                            ? (struct expected){run->spec.expect, "run.json says so"}
                            : run->rules->expected(run);
    verdict->result = result_of(run->findings.worst);
    run->rules->tell(run, verdict->result);
    if (verdict->expected.results == 0)
        findings_add(&run->findings, verdict->result,
                     "%s: %s; \"expect\" in run.json must name the results",
                     run->rules->settings(run, settings, sizeof settings), verdict->expected.why);
    verdict->agrees = (verdict->expected.results & (1U << verdict->result)) != 0;
    findings_sort(&run->findings);
}

int verdict_exit_code(const struct verdict *verdict)
{
    if (verdict->result == RESULT_INCONCLUSIVE || verdict->expected.results == 0)
        return 2;
    return verdict->agrees ? 0 : 1;
}

static void verdict_upper_case(char *text)
{
    for (; *text != '\0'; text++)
        *text = (char)toupper((unsigned char)*text);
}

void verdict_got(const struct run *run, const struct verdict *verdict, char *text, size_t size)
{
    const char *name = result_name(verdict->result);
    const long long amount = run->rules->amount(run, verdict->result);
    if (amount != 0)
        snprintf(text, size, "%s (%+lld)", name, amount);
    else
        snprintf(text, size, "%s", name);
    verdict_upper_case(text);
}

void verdict_expected(const struct verdict *verdict, const char *separator, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "?");
    for (size_t result = 0; result < RESULT_COUNT && used < size; result++) {
        if ((verdict->expected.results & (1U << result)) == 0)
            continue;
        char *word = text + used + (used > 0 ? strlen(separator) : 0);
        used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? separator : "",
                                 result_name((enum result)result));
        if (used < size)
            verdict_upper_case(word);
    }
}

/* ---- verdict.json ---------------------------------------------------------------------------- */

void verdict_add_spread(cJSON *json, const char *name, const struct spread *spread)
{
    if (!spread->known) {
        cJSON_AddNullToObject(json, name);
        return;
    }
    cJSON *object = cJSON_AddObjectToObject(json, name);
    cJSON_AddNumberToObject(object, "p50", spread->p50);
    cJSON_AddNumberToObject(object, "p99", spread->p99);
    cJSON_AddNumberToObject(object, "max", spread->max);
}

static void add_result(cJSON *json, const struct run *run, const struct verdict *verdict)
{
    cJSON_AddStringToObject(json, "run", run->spec.run);
    cJSON_AddStringToObject(json, "rung", run->spec.rung);
    run->rules->add_settings(json, run);
    cJSON_AddStringToObject(json, "fault", run->spec.fault);
    cJSON *expected = cJSON_AddArrayToObject(json, "expected");
    for (size_t result = 0; result < RESULT_COUNT; result++) {
        if ((verdict->expected.results & (1U << result)) != 0)
            cJSON_AddItemToArray(expected, cJSON_CreateString(result_name((enum result)result)));
    }
    cJSON_AddStringToObject(json, "expected_why", verdict->expected.why);
    cJSON_AddStringToObject(json, "result", result_name(verdict->result));
    cJSON_AddBoolToObject(json, "agrees", verdict->agrees);
}

void verdict_add_numbers(cJSON *json, const struct number *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cJSON_AddNumberToObject(json, numbers[i].name, (double)numbers[i].value);
}

static void add_counts(cJSON *json, const struct counts *counts)
{
    const struct number numbers[] = {
        {"overlaps", counts->overlaps},
        {"max_parallel", counts->max_parallel},
        {"order_inversions", counts->order_inversions},
        {"token_refusals", counts->token_refusals},
        {"stalls", counts->stalls},
    };
    verdict_add_numbers(json, numbers, sizeof numbers / sizeof *numbers);
}

/* The last answer: of a sale in a queue the outcome, if its buyer has asked for it. */
static int16_t verdict_code_of(const struct run *run, const struct request *request)
{
    const struct entry *entry = fetched_by(run, request);
    return entry != NULL ? entry->told_code : request->client_code;
}

static void add_groups(cJSON *json, const struct run *run)
{
    int64_t by_code[1000] = {0};
    cJSON *instances = cJSON_AddObjectToObject(json, "by_instance");
    for (size_t i = 0; i < run->spec.instance_count; i++) {
        cJSON *instance = cJSON_AddObjectToObject(instances, run->spec.instances[i]);
        cJSON_AddNumberToObject(instance, "served", (double)run->counts.served_by[i]);
        run->rules->add_instance(instance, run, i);
    }
    for (size_t i = 0; i < run->request_count; i++) {
        if (run->requests[i].sampled)
            by_code[verdict_code_of(run, &run->requests[i])]++;
    }
    cJSON *statuses = cJSON_AddObjectToObject(json, "by_status");
    for (size_t code = 0; code < 1000; code++) {
        char name[24] = "none";
        if (code > 0)
            snprintf(name, sizeof name, "%zu", code);
        if (by_code[code] > 0)
            cJSON_AddNumberToObject(statuses, name, (double)by_code[code]);
    }
}

static void add_rest(cJSON *json, const struct run *run, const struct verdict *verdict)
{
    cJSON_AddNumberToObject(json, "start_spread_ms", (double)verdict->start_spread_ms);
    verdict_add_spread(json, "latency_ms", &verdict->latency_ms);
    verdict_add_spread(json, "wait_ms", &verdict->wait_ms);
    verdict_add_spread(json, "hold_ms", &verdict->hold_ms);
    run->rules->add_measures(json, run);
    cJSON_AddBoolToObject(json, "truncated", run->truncated);
    cJSON *reasons = cJSON_AddArrayToObject(json, "reasons");
    for (size_t i = 0; i < run->findings.count; i++)
        cJSON_AddItemToArray(reasons, cJSON_CreateString(run->findings.list[i].sentence));
    if (run->findings.left_out > 0) {
        char text[80];
        snprintf(text, sizeof text, "and %zu more", run->findings.left_out);
        cJSON_AddItemToArray(reasons, cJSON_CreateString(text));
    }
}

bool verdict_write(const struct run *run, const struct verdict *verdict)
{
    struct output output;
    cJSON *json = cJSON_CreateObject();
    add_result(json, run, verdict);
    run->rules->add_counts(json, run);
    add_counts(json, &run->counts);
    add_groups(json, run);
    add_rest(json, run, verdict);
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    if (text == NULL) {
        fputs("ladder-audit: out of memory: verdict.json is not written\n", stderr);
        return false;
    }
    if (output_open(&output, run->folder, "verdict.json"))
        fprintf(output.file, "%s\n", text);
    cJSON_free(text);
    return output_close(&output);
}
