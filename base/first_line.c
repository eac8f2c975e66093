/* SPDX-License-Identifier: Apache-2.0
 *
 * See first_line.h.
 */
#include "first_line.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool first_line_read(const char *flag, const char *file, char *line, int size,
                     char error[SETTINGS_ERROR_MAX])
{
    const char *shown = text_without_logins(file);
    struct stat status;
    /* Without O_NONBLOCK, open() would wait for the writer of a FIFO. */
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (in == NULL)
        return settings_wrong(error, "%s: %s: %s", flag, shown, strerror(errno));
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        fclose(in);
        return settings_wrong(error, "%s: %s is no regular file; name one", flag, shown);
    }
    int c, count = 0;
    while (count < size - 1 && (c = getc(in)) != EOF && c != '\r' && c != '\n')
        line[count++] = (char)c;
    line[count] = '\0';
    int reason = ferror(in) ? errno : 0;
    fclose(in);
    if (reason != 0)
        return settings_wrong(error, "%s: %s: %s", flag, shown, strerror(reason));
    return memchr(line, '\0', (size_t)count) == NULL ||
           settings_wrong(error,
                          "%s: the first line of %s has a NUL byte in it; write it anew, as text",
                          flag, shown);
}
