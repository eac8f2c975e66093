/* SPDX-License-Identifier: Apache-2.0
 *
 * See record.h.
 */
#include "record.h"

#include "must.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct record {
    pthread_mutex_t mutex; /* protects the fields below */
    char **lines;
    size_t count;
};

struct record *record_new(void)
{
    struct record *record = calloc(1, sizeof *record);
    must(record != NULL);
    pthread_mutex_init(&record->mutex, NULL);
    return record;
}

void record_clear(struct record *record)
{
    pthread_mutex_lock(&record->mutex);
    for (size_t i = 0; i < record->count; i++)
        free(record->lines[i]);
    free(record->lines);
    record->lines = NULL;
    record->count = 0;
    pthread_mutex_unlock(&record->mutex);
}

void record_free(struct record *record)
{
    if (record == NULL)
        return;
    record_clear(record);
    pthread_mutex_destroy(&record->mutex);
    free(record);
}

void record_add(struct record *record, const char *format, ...)
{
    char *line = NULL;
    va_list arguments;
    va_start(arguments, format);
    must(vasprintf(&line, format, arguments) >= 0);
    va_end(arguments);
    pthread_mutex_lock(&record->mutex);
    record->lines = realloc(record->lines, (record->count + 1) * sizeof *record->lines);
    must(record->lines != NULL);
    record->lines[record->count++] = line;
    pthread_mutex_unlock(&record->mutex);
}

void record_event(void *arg, const struct dlock_event *event)
{
    static const char *const kinds[] = {"RENEWED",     "RENEWAL_FAILED", "LOST",
                                        "SERVER_GONE", "SERVER_REFUSES", "SERVER_BACK"};
    must(event->size == sizeof *event);
    if (event->name == NULL) {
        record_add(arg, "%s: %s", kinds[event->kind], event->reason);
        return;
    }
    record_add(arg, "%s #%llu %s %s %s %lld ms: %s", kinds[event->kind],
               (unsigned long long)event->acquisition, event->name, event->rung, event->owner,
               (long long)event->remaining_ms, event->reason);
}

void record_trace(void *arg, const struct dlock_trace *trace)
{
    must(trace->size == sizeof *trace && trace->took_us >= 0);
    record_add(arg, "%s -> %s", trace->sent, trace->reply);
}

void record_point(void *arg, const char *rung, const char *point)
{
    record_add(arg, "%s.%s", rung, point);
}

/* The index of the index-th match. Call it with the mutex locked. */
static size_t find(const struct record *record, const char *text, size_t index)
{
    for (size_t i = 0; i < record->count; i++)
        if (strstr(record->lines[i], text) != NULL && index-- == 0)
            return i;
    return SIZE_MAX;
}

size_t record_count(struct record *record, const char *text)
{
    size_t count = 0;
    pthread_mutex_lock(&record->mutex);
    for (size_t i = 0; i < record->count; i++)
        count += strstr(record->lines[i], text) != NULL;
    pthread_mutex_unlock(&record->mutex);
    return count;
}

size_t record_told(struct record *record, const char *kind, const dlock_hold *hold)
{
    char text[64];
    snprintf(text, sizeof text, "%s #%llu ", kind, (unsigned long long)dlock_acquisition(hold));
    return record_count(record, text);
}

void record_line(struct record *record, const char *text, size_t index, char *line, size_t size)
{
    pthread_mutex_lock(&record->mutex);
    size_t at = find(record, text, index);
    snprintf(line, size, "%s", at != SIZE_MAX ? record->lines[at] : "");
    pthread_mutex_unlock(&record->mutex);
}

size_t record_position(struct record *record, const char *text)
{
    pthread_mutex_lock(&record->mutex);
    size_t at = find(record, text, 0);
    pthread_mutex_unlock(&record->mutex);
    return at;
}

/* ---- A point that holds ---------------------------------------------------------------------- */

struct gate {
    char point[96];
    pthread_mutex_t mutex; /* protects the fields below */
    pthread_cond_t opened;
    size_t arrived;
    bool open;
};

struct gate *gate_new(const char *point)
{
    struct gate *gate = calloc(1, sizeof *gate);
    must(gate != NULL);
    snprintf(gate->point, sizeof gate->point, "%s", point);
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->opened, NULL);
    return gate;
}

void gate_free(struct gate *gate)
{
    pthread_mutex_destroy(&gate->mutex);
    pthread_cond_destroy(&gate->opened);
    free(gate);
}

void gate_pass(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->arrived++;
    while (!gate->open)
        pthread_cond_wait(&gate->opened, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

void gate_point(void *arg, const char *rung, const char *point)
{
    struct gate *gate = arg;
    size_t size = strlen(rung);
    if (strncmp(gate->point, rung, size) == 0 && gate->point[size] == '.' &&
        strcmp(gate->point + size + 1, point) == 0)
        gate_pass(gate);
}

size_t gate_arrived(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    size_t arrived = gate->arrived;
    pthread_mutex_unlock(&gate->mutex);
    return arrived;
}

void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->open = true;
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->mutex);
}
