/* SPDX-License-Identifier: Apache-2.0
 *
 * See log.h. A line is put together first and written with one write(), so that lines of several
 * threads do not mix.
 */
#include "log.h"

#include "clock.h"
#include "text.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINES_PER_S 50
#define LINES_BURST 200

static enum log_level level_max = LOG_INFO;
static const char *instance_name = "";
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* protects the bucket below */
static double bucket = LINES_BURST;
static int64_t bucket_ns;
static unsigned long left_out;

void log_setup(enum log_level level, const char *instance)
{
    level_max = level;
    instance_name = instance;
}

bool log_open(const char *file, char error[OUTPUT_ERROR_MAX])
{
    int fd = output_open(file, O_WRONLY, error);
    if (fd < 0)
        return false;
    dup2(fd, STDERR_FILENO);
    close(fd);
    return true;
}

/* Whether a line may pass, and how many were left out before it. */
static bool may_pass(unsigned long *missed)
{
    bool pass = false;
    pthread_mutex_lock(&mutex);
    int64_t now = now_ns();
    bucket += (double)(now - bucket_ns) / NS_PER_S * LINES_PER_S;
    if (bucket > LINES_BURST)
        bucket = LINES_BURST;
    bucket_ns = now;
    if (bucket >= 1) {
        bucket -= 1;
        pass = true;
        *missed = left_out;
        left_out = 0;
    } else {
        left_out++;
    }
    pthread_mutex_unlock(&mutex);
    return pass;
}

static int start_line(char *line, size_t size, const char *level, const char *event)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    return snprintf(line, size,
                    "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"instance\":\"%s\",\"event\":\"%s\"",
                    stamp, now.tv_nsec / NS_PER_MS, level, instance_name, event);
}

static void put_line(const char *line, int length)
{
    /* Nobody is left to tell when this fails. */
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written;
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char detail[768], quoted[1024], line[1536];
    unsigned long missed = 0;
    if (level > level_max || !may_pass(&missed))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    text_quote(quoted, sizeof quoted, detail);
    int length = start_line(line, sizeof line, names[level], event);
    if (missed > 0)
        length += snprintf(line + length, sizeof line - (size_t)length, ",\"left_out\":%lu",
                           missed);
    length += snprintf(line + length, sizeof line - (size_t)length, ",\"detail\":\"%s\"}\n",
                       quoted);
    put_line(line, length);
}

void log_request(const char *id, const char *method, const char *path, unsigned status,
                 double time_ms)
{
    char line[2048], quoted[1280];
    text_quote(quoted, sizeof quoted, path);
    int length = start_line(line, sizeof line, "info", "request");
    length += snprintf(line + length, sizeof line - (size_t)length,
                       ",\"request\":\"%s\",\"method\":\"%s\",\"path\":\"%s\",\"status\":%u,"
                       "\"time_ms\":%.3f}\n",
                       id, method, quoted, status, time_ms);
    put_line(line, length);
}
