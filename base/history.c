/* SPDX-License-Identifier: Apache-2.0
 *
 * See history.h.
 */
#include "history.h"

#include "../lock/clock.h"
#include "log.h"
#include "output.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048
#define PREFIX_MAX 128 /* room for the time, the number and the instance */
#define FILE_MAX_BYTES 4352
#define NAME_MAX_BYTES 64
#define CLOCK_READINGS 16
#define TICK_NS (5 * NS_PER_MS)
#define STALL_NS (50 * NS_PER_MS)

struct history {
    char instance[33];
    char first[FILE_MAX_BYTES]; /* what history_open was given: DIR/FILE */
    pthread_mutex_t mutex;      /* protects what is below */
    char file[FILE_MAX_BYTES];
    int fd;
    uint64_t seq;  /* of the newest line */
    uint64_t lost; /* lines that were not written */
    bool failing;  /* the newest line was not written */
    bool astray;   /* the last reopen failed: this file may have been renamed or removed */
    bool nameless; /* the file was removed: nobody can read what is written to it */
    bool torn;     /* only a part of the newest line was written */
    char begin[LINE_MAX_BYTES / 2]; /* the members that the caller gave */
    unsigned part; /* counts the files of this run since the process, or the switch, began */
    pthread_cond_t ended;
    bool ending;
    pthread_t ticker;
    int64_t seen_ns; /* when the ticker last read the clock; the ticker's own once it runs */
};

/* ---- Lines ----------------------------------------------------------------------------------- */

/* The number of a line that was not written stays used, so that the judge sees the gap. The mutex
 * is held. */
static void note_written(struct history *history, ssize_t written, bool whole)
{
    const char *why = history->nameless ? "the file was removed"
                      : written < 0     ? strerror(errno)
                                        : "only a part of a line was written";
    whole = whole && !history->nameless;
    bool changed = history->failing == whole;
    history->failing = !whole;
    history->torn = history->torn || (!whole && written > 0 && !history->nameless);
    history->lost += !whole;
    if (changed && !whole)
        log_event(LOG_ERROR, "history-failed",
                  "%s: %s; the history is incomplete from line %" PRIu64, history->file, why,
                  history->seq);
    else if (changed)
        log_event(LOG_WARNING, "history-restored", "%s: %" PRIu64 " lines were lost in all",
                  history->file, history->lost);
}

/* Numbers a line and writes it. `line` has PREFIX_MAX free bytes, then the body of that size. The
 * prefix is put right before the body, so that one write() takes both. The mutex is held. */
static void write_line(struct history *history, int64_t t_ns, char *line, size_t body_size)
{
    char prefix[PREFIX_MAX];
    int length = snprintf(prefix, sizeof prefix,
                          "{\"t_ns\":%" PRId64 ",\"seq\":%" PRIu64 ",\"instance\":\"%s\"", t_ns,
                          ++history->seq, history->instance);
    char *start = line + PREFIX_MAX - length;
    memcpy(start, prefix, (size_t)length);
    size_t size = (size_t)length + body_size;
    if (history->torn && write(history->fd, "\n", 1) == 1)
        history->torn = false;
    ssize_t written = history->torn ? -1 : write(history->fd, start, size);
    note_written(history, written, written == (ssize_t)size);
}

static void write_text(struct history *history, int64_t t_ns, const char *event,
                       const char *members)
{
    char line[PREFIX_MAX + LINE_MAX_BYTES];
    int size =
        snprintf(line + PREFIX_MAX, LINE_MAX_BYTES, ",\"event\":\"%s\"%s}\n", event, members);
    write_line(history, t_ns, line, (size_t)size);
}

/* The kernel's id of the current boot; "none" if it cannot be read. */
static void read_boot_id(char id[NAME_MAX_BYTES])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, id, NAME_MAX_BYTES - 1);
    if (fd >= 0)
        close(fd);
    id[size > 0 ? size : 0] = '\0';
    id[strcspn(id, "\n")] = '\0';
    if (id[0] == '\0')
        snprintf(id, NAME_MAX_BYTES, "none");
}

/* The kernel's name for this process's time namespace; "none" if it has none. */
static void read_time_namespace(char name[NAME_MAX_BYTES])
{
    ssize_t size = readlink("/proc/self/ns/time", name, NAME_MAX_BYTES - 1);
    name[size > 0 ? size : 0] = '\0';
    if (size <= 0)
        snprintf(name, NAME_MAX_BYTES, "none");
}

/* Reads both clocks at nearly the same time: of several pairs, the one with the least time
 * between. */
static int64_t read_clocks(int64_t *realtime_ns)
{
    int64_t t_ns = 0, least_ns = INT64_MAX;
    for (int i = 0; i < CLOCK_READINGS; i++) {
        int64_t before_ns = mono_ns();
        int64_t real_ns = clock_ns(CLOCK_REALTIME);
        int64_t apart_ns = mono_ns() - before_ns;
        if (apart_ns >= least_ns)
            continue;
        least_ns = apart_ns;
        t_ns = before_ns;
        *realtime_ns = real_ns;
    }
    return t_ns;
}

/* Says from which clock the times of this file are. So a reader can tell whether it may compare
 * them with another file's. */
static void write_begin(struct history *history, const char *begin)
{
    char members[LINE_MAX_BYTES], boot_id[NAME_MAX_BYTES], namespace[NAME_MAX_BYTES];
    int64_t realtime_ns = 0;
    if (begin != history->begin)
        snprintf(history->begin, sizeof history->begin, "%s", begin);
    read_boot_id(boot_id);
    read_time_namespace(namespace);
    int64_t t_ns = read_clocks(&realtime_ns);
    snprintf(members, sizeof members,
             "%s,\"format\":%d,\"part\":%u,"
             "\"boot_id\":\"%s\",\"clock\":\"CLOCK_MONOTONIC\",\"time_namespace\":\"%s\","
             "\"clock_ns_realtime\":%" PRId64,
             begin, HISTORY_FORMAT, history->part, boot_id, namespace, realtime_ns);
    write_text(history, t_ns, "begin", members);
}

void history_event(struct history *history, const struct history_request *request,
                   const char *event, const char *format, ...)
{
    char line[PREFIX_MAX + LINE_MAX_BYTES], *body = line + PREFIX_MAX;
    if (history == NULL)
        return;
    int size = snprintf(body, LINE_MAX_BYTES, ",\"event\":\"%s\"", event);
    if (request != NULL)
        size += snprintf(body + size, LINE_MAX_BYTES - (size_t)size,
                         ",\"thread\":%u,\"request\":\"%s\",\"item\":\"%s\"", request->thread,
                         request->request, request->item);
    if (request != NULL && request->rung != NULL)
        size += snprintf(body + size, LINE_MAX_BYTES - (size_t)size,
                         ",\"rung\":\"%s\",\"lock\":\"%s\"", request->rung, request->lock);
    va_list args;
    va_start(args, format);
    size += vsnprintf(body + size, LINE_MAX_BYTES - (size_t)size, format, args);
    va_end(args);
    if (size > LINE_MAX_BYTES - 3)
        size = LINE_MAX_BYTES - 3;
    memcpy(body + size, "}\n", 2);
    pthread_mutex_lock(&history->mutex);
    write_line(history, mono_ns(), line, (size_t)size + 2);
    pthread_mutex_unlock(&history->mutex);
}

/* ---- Detecting stalls of the machine --------------------------------------------------------- */

static void *history_tick(void *arg)
{
    struct history *history = arg;
    pthread_mutex_lock(&history->mutex);
    /* The clock is read once a turn, and for the first time before this thread starts. So every
     * stall falls between two readings. */
    while (!history->ending) {
        int64_t due_ns = history->seen_ns + TICK_NS;
        struct timespec due = timespec_of(due_ns);
        pthread_cond_timedwait(&history->ended, &history->mutex, &due);
        history->seen_ns = mono_ns();
        int64_t late_ns = history->seen_ns - due_ns;
        char members[64];
        snprintf(members, sizeof members, ",\"late_ns\":%" PRId64, late_ns);
        if (late_ns > STALL_NS)
            write_text(history, mono_ns(), "stall", members);
    }
    pthread_mutex_unlock(&history->mutex);
    return NULL;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* The number of the last whole line: a restarted instance continues from it. A full disk may have
 * cut the last line. It is closed with a line break, so that the judge finds it. */
static uint64_t last_seq(int fd)
{
    char tail[2 * LINE_MAX_BYTES + 1];
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > 2 * LINE_MAX_BYTES ? end - 2 * LINE_MAX_BYTES : 0;
    ssize_t size = end > 0 ? pread(fd, tail, (size_t)(end - from), from) : 0;
    if (size <= 0)
        return 0;
    if (tail[size - 1] != '\n' && write(fd, "\n", 1) != 1)
        return 0;
    tail[size] = '\0';
    uint64_t seq = 0;
    for (char *line = tail; line != NULL && *line != '\0';
         line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
        cJSON *json = cJSON_ParseWithOpts(line, NULL, false);
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(json, "seq");
        if (cJSON_IsNumber(number))
            seq = (uint64_t)number->valuedouble;
        cJSON_Delete(json);
    }
    return seq;
}

static bool is_same_file(int a, int b)
{
    struct stat of_a, of_b;
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* What else writes to the file, under whatever name; NULL: nothing. A device may have many
 * writers. */
static const char *writer_of(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return NULL;
    if (is_same_file(fd, STDERR_FILENO))
        return "it is the log";
    return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK ? "another instance writes it"
                                                                     : NULL;
}

/* Opens the file for this history alone, and finds the number of its last line. Returns history->fd
 * if it is the same file. -1: error[] says why. */
static int open_file(const struct history *history, const char *file, uint64_t *seq,
                     char error[HISTORY_ERROR_MAX])
{
    char problem[OUTPUT_ERROR_MAX];
    int fd = output_open(file, O_RDWR, problem);
    if (fd < 0) {
        snprintf(error, HISTORY_ERROR_MAX, "cannot write the history: %s", problem);
        return -1;
    }
    bool same = is_same_file(fd, history->fd);
    const char *why = same ? NULL : writer_of(fd);
    if (why != NULL)
        snprintf(error, HISTORY_ERROR_MAX,
                 "cannot write the history %.300s: %s; give it a file of its own", file, why);
    if (same || why != NULL) {
        close(fd);
        return same ? history->fd : -1;
    }
    *seq = last_seq(fd);
    return fd;
}

struct history *history_open(const char *file, const char *instance, const char *begin,
                             char error[HISTORY_ERROR_MAX])
{
    struct history *history = calloc(1, sizeof *history);
    snprintf(error, HISTORY_ERROR_MAX, "out of memory");
    if (history == NULL)
        return NULL;
    snprintf(history->instance, sizeof history->instance, "%s", instance);
    snprintf(history->first, sizeof history->first, "%s", file);
    snprintf(history->file, sizeof history->file, "%s", file);
    pthread_mutex_init(&history->mutex, NULL);
    cond_init(&history->ended);
    history->fd = -1;
    history->fd = open_file(history, file, &history->seq, error);
    if (history->fd < 0)
        goto failed;
    history->part = 1;
    write_begin(history, begin);
    history->seen_ns = mono_ns();
    if (pthread_create(&history->ticker, NULL, history_tick, history) == 0)
        return history;
    snprintf(error, HISTORY_ERROR_MAX, "cannot start a thread: %s", strerror(errno));
    close(history->fd);
failed:
    pthread_cond_destroy(&history->ended);
    pthread_mutex_destroy(&history->mutex);
    free(history);
    return NULL;
}

void history_close(struct history *history)
{
    if (history == NULL)
        return;
    pthread_mutex_lock(&history->mutex);
    history->ending = true;
    pthread_cond_signal(&history->ended);
    pthread_mutex_unlock(&history->mutex);
    pthread_join(history->ticker, NULL);
    write_text(history, mono_ns(), "end", "");
    close(history->fd);
    pthread_cond_destroy(&history->ended);
    pthread_mutex_destroy(&history->mutex);
    free(history);
}

/* Names the file DIR/<run>/FILE and makes the folder DIR/<run>. */
static bool place_run(const char *first, const char *run, char file[FILE_MAX_BYTES],
                      char error[HISTORY_ERROR_MAX])
{
    char directory[FILE_MAX_BYTES], name[FILE_MAX_BYTES], folder[FILE_MAX_BYTES];
    snprintf(directory, sizeof directory, "%s", first);
    snprintf(name, sizeof name, "%s", first);
    int length = snprintf(folder, sizeof folder, "%s/%s", dirname(directory), run);
    if (length < (int)sizeof folder)
        length = snprintf(file, FILE_MAX_BYTES, "%s/%s", folder, basename(name));
    if (length >= FILE_MAX_BYTES) {
        snprintf(error, HISTORY_ERROR_MAX, "the history's path is longer than %d bytes",
                 FILE_MAX_BYTES - 1);
        return false;
    }
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        return true;
    snprintf(error, HISTORY_ERROR_MAX, "cannot make the folder %.300s: %s", folder,
             strerror(errno));
    return false;
}

/* Ends the current file and continues with fd. continued: fd is the next part of the same run. The
 * mutex is held. */
static void move_to(struct history *history, int fd, uint64_t seq, bool continued)
{
    write_text(history, mono_ns(), "end", continued ? ",\"continued\":true" : "");
    close(history->fd);
    history->fd = fd;
    history->seq = seq;
    history->torn = history->astray = history->nameless = false;
}

bool history_switch(struct history *history, const char *run, const char *begin,
                    char error[HISTORY_ERROR_MAX])
{
    char file[FILE_MAX_BYTES];
    uint64_t seq = 0;
    if (!place_run(history->first, run, file, error))
        return false;
    pthread_mutex_lock(&history->mutex);
    int fd = open_file(history, file, &seq, error);
    bool same = fd == history->fd; /* the run is the current one: its file continues */
    if (same)
        write_text(history, mono_ns(), "end", "");
    if (fd >= 0 && !same) {
        move_to(history, fd, seq, false);
        memcpy(history->file, file, sizeof file);
    }
    if (fd >= 0) {
        history->part = 1;
        write_begin(history, begin);
    }
    pthread_mutex_unlock(&history->mutex);
    return fd >= 0;
}

void history_begin(struct history *history, const char *begin)
{
    pthread_mutex_lock(&history->mutex);
    write_text(history, mono_ns(), "end", "");
    history->part = 1;
    write_begin(history, begin);
    pthread_mutex_unlock(&history->mutex);
}

static bool history_has_name(int fd)
{
    struct stat status;
    return fstat(fd, &status) != 0 || status.st_nlink > 0;
}

bool history_reopen(struct history *history, char error[HISTORY_ERROR_MAX])
{
    uint64_t seq = 0;
    pthread_mutex_lock(&history->mutex);
    int fd = open_file(history, history->file, &seq, error);
    history->astray = fd < 0;
    history->nameless = fd < 0 && !history_has_name(history->fd);
    if (fd >= 0 && fd != history->fd) {
        move_to(history, fd, seq, true);
        history->part++;
        write_begin(history, history->begin);
    }
    pthread_mutex_unlock(&history->mutex);
    return fd >= 0;
}

uint64_t history_lost(struct history *history, bool *failing)
{
    *failing = false;
    if (history == NULL)
        return 0;
    pthread_mutex_lock(&history->mutex);
    uint64_t lost = history->lost;
    *failing = history->failing || history->astray;
    pthread_mutex_unlock(&history->mutex);
    return lost;
}

void history_file(struct history *history, char *file, size_t size)
{
    pthread_mutex_lock(&history->mutex);
    snprintf(file, size, "%s", history->file);
    pthread_mutex_unlock(&history->mutex);
}
