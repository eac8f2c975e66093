/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads sale.jtl, or load.jtl: what the client saw. The rules of the service say which samples are
 * of requests that count.
 */
#include "csv.h"
#include "read.h"
#include "rules.h"
#include "source.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

#define TIME_MS_MAX INT64_C(4000000000000) /* the year 2096 */

/* X(name, whose samples must have it). URL names the item if the answer names none, as a refusal
 * does. key and replayed are about idempotency keys. buyer: what a buyer asks for once, in however
 * many attempts. sale: the id of a sale that was accepted into a queue. */
#define COLUMNS(X)                                                                                 \
    X(timeStamp, EVERY)                                                                            \
    X(elapsed, EVERY)                                                                              \
    X(label, EVERY)                                                                                \
    X(responseCode, EVERY)                                                                         \
    X(success, EVERY)                                                                              \
    X(request, EVERY)                                                                              \
    X(item, EVERY)                                                                                 \
    X(instance, EVERY)                                                                             \
    X(unit, SHOP)                                                                                  \
    X(left, SHOP)                                                                                  \
    X(version, MENU | SERVICE_ACCOUNT)                                                             \
    X(task, TASKS)                                                                                 \
    X(URL, NONE)                                                                                   \
    X(key, NONE)                                                                                   \
    X(replayed, NONE)                                                                              \
    X(buyer, NONE)                                                                                 \
    X(sale, NONE)

enum column {
#define X(name, whose) COLUMN_##name,
    COLUMNS(X)
#undef X
        COLUMN_COUNT
};

static const struct {
    const char *name;
    enum service whose;
} columns[] = {
#define X(name, whose) {#name, SERVICE_##whose},
    COLUMNS(X)
#undef X
};

struct table {
    struct csv csv;
    size_t width;               /* fields in the head line */
    size_t place[COLUMN_COUNT]; /* index of each column */
};

static const char *client_field(const struct table *table, enum column column)
{
    if (table->place[column] == NONE)
        return "";
    return table->csv.fields[table->place[column]];
}

static bool is_needed(const struct run *run, enum column column)
{
    return (columns[column].whose & run->rules->kind) != 0;
}

static bool read_head(struct source *source, struct table *table)
{
    if (!csv_next(&table->csv)) {
        complain(source, 0, "empty; its first line must name the columns");
        return false;
    }
    if (table->csv.flaw != NULL) {
        complain(source, table->csv.line, "%s", table->csv.flaw);
        return false;
    }
    table->width = table->csv.count;
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        size_t place = 0;
        while (place < table->width && strcmp(table->csv.fields[place], columns[column].name) != 0)
            place++;
        if (place == table->width && !is_needed(source->run, (enum column)column))
            place = NONE;
        if (place == table->width) {
            complain(source, table->csv.line, "no column \"%s\"; the head line must name it",
                     columns[column].name);
            return false;
        }
        table->place[column] = place;
    }
    source->run->replays_told = table->place[COLUMN_replayed] != NONE;
    return true;
}

/* No HTTP status ("Non HTTP response code: ..."), or a gateway that got no answer. */
static bool is_transport_error(int64_t code)
{
    return code < 100 || code > 599 || code == 502 || code == 504;
}

/* If there is no URL, the label may name the item. */
static void read_wish(struct run *run, const struct table *table, struct request *request)
{
    const char *url = client_field(table, COLUMN_URL);
    struct wish wish = run_wish(run, url[0] != '\0' ? url : client_field(table, COLUMN_label));
    request->asked_item = wish.item;
    request->elsewhere = wish.elsewhere;
    if (url[0] != '\0' && wish.quantity != NOT_KNOWN)
        request->quantity = request->asked_quantity = wish.quantity;
}

enum { UNQUOTED_MAX = 128 };

/* A key may be sent as a quoted string, in which \" and \\ stand for " and \. Then the key is what
 * is inside the quotes. False: the text is no such string, and is itself the key. */
static bool client_unquote(const char *text, char unquoted[UNQUOTED_MAX])
{
    size_t size = 0;
    if (*text++ != '"')
        return false;
    while (*text != '"' && size < UNQUOTED_MAX - 1) {
        if (*text == '\\' && *++text != '"' && *text != '\\')
            return false;
        if (*text == '\0')
            return false;
        unquoted[size++] = *text++;
    }
    unquoted[size] = '\0';
    return size > 0 && *text == '"' && text[1 + strspn(text + 1, " \t")] == '\0';
}

static void read_answer(struct run *run, const struct table *table, struct request *request)
{
    int64_t code = 0;
    if (!text_int(client_field(table, COLUMN_responseCode), &code) || code < 0 || code > 999)
        code = 0;
    request->client_code = (int16_t)code;
    request->transport_error = is_transport_error(code);
    request->called_failed = strcmp(client_field(table, COLUMN_success), "false") == 0;
    const enum column number = run->rules->kind == SERVICE_SHOP    ? COLUMN_unit
                               : run->rules->kind == SERVICE_TASKS ? COLUMN_task
                                                                   : COLUMN_version;
    if (!text_int(client_field(table, number), &request->client_unit))
        request->client_unit = NOT_KNOWN;
    if (!text_int(client_field(table, COLUMN_left), &request->client_left))
        request->client_left = NOT_KNOWN;
    read_wish(run, table, request);
    request->client_replayed = strcmp(client_field(table, COLUMN_replayed), "true") == 0;
    request->client_item = run_item(run, client_field(table, COLUMN_item));
    char unquoted[UNQUOTED_MAX];
    const char *key = client_field(table, COLUMN_key);
    key = client_unquote(key, unquoted) ? unquoted : key;
    if (key[0] != '\0') /* if the item is not known yet, nginx.log or the history adds it */
        request->key = keys_add(
            run, request->asked_item != NONE ? request->asked_item : request->client_item, key);
    const char *buyer = client_field(table, COLUMN_buyer);
    if (buyer[0] != '\0')
        request->buyer = names_add(&run->buyers, buyer);
    request->client_instance = run_instance(run, client_field(table, COLUMN_instance));
    request->client_queued = code == 202;
    const char *sale = client_field(table, COLUMN_sale);
    if (request->client_queued && sale[0] != '\0')
        request->entry = entries_add(run, sale);
}

/* The answer to a GET of an accepted sale's id. A 202 tells no outcome. */
static void read_outcome(struct run *run, const struct table *table)
{
    struct entry told = {.told_unit = NOT_KNOWN, .told_left = NOT_KNOWN};
    int64_t code = 0, start_ms = 0, elapsed_ms = 0;
    const char *sale = client_field(table, COLUMN_sale);
    if (sale[0] == '\0' || !text_int(client_field(table, COLUMN_responseCode), &code) || code < 0 ||
        code > 999 || code == 202)
        return;
    told.told_code = (int16_t)code;
    if (text_int(client_field(table, COLUMN_timeStamp), &start_ms) &&
        text_int(client_field(table, COLUMN_elapsed), &elapsed_ms) && start_ms >= 0 &&
        start_ms < TIME_MS_MAX && elapsed_ms >= 0 && elapsed_ms <= UINT32_MAX)
        told.told_ms = start_ms + elapsed_ms;
    if (!text_int(client_field(table, COLUMN_unit), &told.told_unit))
        told.told_unit = NOT_KNOWN;
    if (!text_int(client_field(table, COLUMN_left), &told.told_left))
        told.told_left = NOT_KNOWN;
    const uint32_t number = entries_add(run, sale); /* this may move the entries */
    struct entry *entry = &run->entries[number];
    if (entries_is_told(entry) && entries_is_told(&told))
        entry->told_twice |= entry->told_code != told.told_code ||
                             entry->told_unit != told.told_unit ||
                             entry->told_left != told.told_left;
    if (entries_is_told(entry))
        return;
    entry->told_code = told.told_code;
    entry->told_unit = told.told_unit;
    entry->told_left = told.told_left;
    entry->told_ms = told.told_ms;
}

static void read_sample(struct source *source, struct table *table)
{
    int64_t line = table->csv.line;
    int64_t start_ms = 0;
    int64_t elapsed_ms = 0;
    if (table->csv.flaw != NULL || table->csv.count != table->width) {
        complain(source, line, "%s",
                 table->csv.flaw != NULL ? table->csv.flaw
                                         : "it must have as many fields as the head line");
        return;
    }
    const bool asks = strcmp(client_field(table, COLUMN_label), "GET outcome") == 0;
    if (!asks && !source->run->rules->is_sample(client_field(table, COLUMN_label)))
        return;
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        if (table->place[column] != NONE)
            text_clean(table->csv.fields[table->place[column]]);
    }
    if (asks) {
        read_outcome(source->run, table);
        return;
    }
    if (!text_int(client_field(table, COLUMN_timeStamp), &start_ms) || start_ms < 0 ||
        start_ms > TIME_MS_MAX || !text_int(client_field(table, COLUMN_elapsed), &elapsed_ms) ||
        elapsed_ms < 0 || elapsed_ms > UINT32_MAX) {
        complain(source, line, "timeStamp and elapsed must be whole milliseconds");
        return;
    }
    const char *id = client_field(table, COLUMN_request);
    size_t place = id[0] == '\0' ? NONE : run_request(source->run, id);
    if (place == NONE) {
        complain(source, line, "%s",
                 id[0] == '\0' ? "no request id; the column \"request\" must hold it"
                               : "more than 2000000 requests; a run must have fewer");
        return;
    }
    struct request *request = &source->run->requests[place];
    if (request->sampled) {
        complain(source, line, "request %.60s is there twice; an id must be used once", id);
        return;
    }
    request->sampled = true;
    request->start_ms = start_ms;
    request->elapsed_ms = (uint32_t)elapsed_ms;
    read_answer(source->run, table, request);
}

void read_client(struct run *run)
{
    struct source source = {.run = run, .file = run->rules->samples, .rank = RESULT_INCONCLUSIVE};
    struct table table = {.width = 0};
    char path[PATH_MAX_BYTES];
    char error[INPUT_ERROR_MAX] = "the folder's path is too long";
    if (!source_path(run, source.file, path) || !csv_open(&table.csv, path, error)) {
        complain(&source, 0, "%s", error);
    } else if (read_head(&source, &table)) {
        while (csv_next(&table.csv))
            read_sample(&source, &table);
    }
    source_close(&source);
    csv_close(&table.csv);
}
