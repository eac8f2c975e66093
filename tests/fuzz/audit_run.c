/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge on a whole run folder. The input is its files, each behind a line "=== NAME". Whatever
 * they hold, it ends with 0, 1 or 2.
 */
#include "target.h"

#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

int audit_main(int argc, char **argv); /* audit/main.c's */

#define MARK "=== "
static const char *const names[] = {"run.json",  "redis.json",      "sale.jtl",
                                    "nginx.log", "history-a.jsonl", "history-b.jsonl"};
enum { NAMES = sizeof names / sizeof *names, PATH_BYTES = 256 };
static char folder[] = "/dev/shm/ladder-fuzz-XXXXXX";

static void path_of(const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

static void clean_up(void)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < NAMES; i++) {
        path_of(names[i], path);
        unlink(path);
    }
    path_of("verdict.json", path);
    unlink(path);
    path_of("timeline.svg", path);
    unlink(path);
    rmdir(folder);
}

/* Once: the folder, and nobody to read what the judge prints. */
static void begin(void)
{
    static int begun;
    if (begun++ > 0)
        return;
    REQUIRE(mkdtemp(folder) != NULL && atexit(clean_up) == 0);
    REQUIRE(freopen("/dev/null", "w", stdout) != NULL);
}

/* Where the next mark stands, at the beginning of a line, or the text's end. */
static const char *next_mark(const char *at)
{
    for (; (at = strstr(at, "\n" MARK)) != NULL; at++)
        return at + 1;
    return NULL;
}

static void write_file(const char *name, const char *text, size_t size)
{
    char path[PATH_BYTES];
    path_of(name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    REQUIRE(fd >= 0 && write(fd, text, size) == (ssize_t)size && close(fd) == 0);
}

static void write_files(const char *text, const char *end)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < NAMES; i++) {
        path_of(names[i], path);
        unlink(path);
    }
    for (const char *at = text, *next; at != NULL; at = next) {
        if (strncmp(at, MARK, strlen(MARK)) != 0)
            return;
        next = next_mark(at);
        const char *name = at + strlen(MARK);
        const char *body = strchr(name, '\n');
        for (size_t i = 0; i < NAMES && body != NULL; i++)
            if (strncmp(name, names[i], strlen(names[i])) == 0)
                write_file(names[i], body + 1, (size_t)((next != NULL ? next : end) - body - 1));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = copy_text(data, size);
    char program[] = "ladder-audit";
    char *arguments[] = {program, folder, NULL};
    begin();
    write_files(text, text + size);
    free(text);
    optind = 0; /* getopt begins anew */
    int code = audit_main(2, arguments);
    REQUIRE(code >= 0 && code <= 2);
    return 0;
}
