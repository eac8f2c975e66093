/* SPDX-License-Identifier: Apache-2.0
 *
 * See log.h. A line is formatted first and written with one write(), so that lines of several
 * threads do not mix. It is shorter than PIPE_BUF: a pipe takes all of it or nothing.
 */
#include "log.h"

#include "../lock/clock.h"
#include "text.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINES_PER_S 50
#define LINES_BURST 200
#define READER_MS 50 /* how long a line waits for a reader; the lines after it do not wait */

static enum log_level level_max = LOG_INFO;
static const char *instance_name = "";
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* protects the bucket below */
static double bucket = LINES_BURST;
static int64_t bucket_ns;
static atomic_ulong left_out;
/* Held from the look for room to the write. Protects what is below. */
static pthread_mutex_t writer = PTHREAD_MUTEX_INITIALIZER;
static bool stuck;
static bool torn; /* the last write took only a part of a line: a full disk, or a terminal */

/* A terminal may have room for only a part of a line, and make the write wait. So it is opened
 * again without blocking, which changes nothing for others that use it. */
static void open_terminal_anew(void)
{
    int fd = isatty(STDERR_FILENO)
                 ? open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                 : -1;
    if (fd < 0)
        return;
    dup2(fd, STDERR_FILENO);
    close(fd);
}

void log_setup(enum log_level level, const char *instance)
{
    open_terminal_anew();
    level_max = level;
    instance_name = instance;
}

bool log_open(const char *file, char error[OUTPUT_ERROR_MAX])
{
    int fd = output_open(file, O_WRONLY, error);
    if (fd < 0)
        return false;
    pthread_mutex_lock(&writer);
    torn = torn && lseek(fd, 0, SEEK_END) > 0; /* a new file has no partial line */
    dup2(fd, STDERR_FILENO);
    pthread_mutex_unlock(&writer);
    close(fd);
    return true;
}

/* Whether a line may be written now. If not, it is counted as left out. */
static bool may_pass(void)
{
    bool pass = false;
    pthread_mutex_lock(&mutex);
    int64_t now = mono_ns();
    bucket += (double)(now - bucket_ns) / NS_PER_S * LINES_PER_S;
    if (bucket > LINES_BURST)
        bucket = LINES_BURST;
    bucket_ns = now;
    if (bucket >= 1) {
        bucket -= 1;
        pass = true;
    } else {
        atomic_fetch_add(&left_out, 1);
    }
    pthread_mutex_unlock(&mutex);
    return pass;
}

struct line {
    char text[2048]; /* begins with a line break, which is used if the line before is partial */
    int length;
    unsigned long missed; /* lines left out before it */
};

static void start_line(struct line *line, const char *level, const char *event)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    line->length =
        snprintf(line->text, sizeof line->text,
                 "\n{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"instance\":\"%s\",\"event\":\"%s\"",
                 stamp, now.tv_nsec / NS_PER_MS, level, instance_name, event);
    line->missed = atomic_exchange(&left_out, 0);
    if (line->missed > 0)
        line->length +=
            snprintf(line->text + line->length, sizeof line->text - (size_t)line->length,
                     ",\"left_out\":%lu", line->missed);
}

/* Standard error may be a full pipe that nobody reads: a write would stop the instance. */
static bool has_room(void)
{
    struct pollfd end = {.fd = STDERR_FILENO, .events = POLLOUT};
    stuck = poll(&end, 1, stuck ? 0 : READER_MS) <= 0;
    return !stuck;
}

static void put_line(const struct line *line)
{
    pthread_mutex_lock(&writer);
    const int begin = torn ? 0 : 1;
    const ssize_t size = line->length - begin;
    ssize_t written = has_room() ? write(STDERR_FILENO, line->text + begin, (size_t)size) : 0;
    if (written > 0)
        torn = written < size;
    pthread_mutex_unlock(&writer);
    if (written != size) /* the next written line counts it */
        atomic_fetch_add(&left_out, line->missed + 1);
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char detail[768], quoted[1024];
    struct line line;
    if (level > level_max || !may_pass())
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    text_quote(quoted, sizeof quoted, detail);
    start_line(&line, names[level], event);
    line.length += snprintf(line.text + line.length, sizeof line.text - (size_t)line.length,
                            ",\"detail\":\"%s\"}\n", quoted);
    put_line(&line);
}

void log_request(const char *id, const char *method, const char *path, unsigned status,
                 double time_ms)
{
    char quoted[1280];
    struct line line;
    text_quote(quoted, sizeof quoted, path);
    start_line(&line, "info", "request");
    line.length += snprintf(line.text + line.length, sizeof line.text - (size_t)line.length,
                            ",\"request\":\"%s\",\"method\":\"%s\",\"path\":\"%s\",\"status\":%u,"
                            "\"time_ms\":%.3f}\n",
                            id, method, quoted, status, time_ms);
    put_line(&line);
}
