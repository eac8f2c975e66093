/* SPDX-License-Identifier: Apache-2.0
 *
 * See output.h.
 */
#include "output.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kind of a file that might block a write; NULL: the kind is accepted. */
static const char *wrong_kind(mode_t mode)
{
    return S_ISFIFO(mode)   ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISBLK(mode)  ? "a block device"
                            : NULL;
}

int output_open(const char *file, int access, char error[OUTPUT_ERROR_MAX])
{
    const char *shown = text_without_logins(file);
    struct stat status;
    /* Without O_NONBLOCK, open() would wait for the reader of a FIFO. */
    int fd = open(file, access | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    int reason = errno;
    bool known = (fd >= 0 ? fstat(fd, &status) : stat(file, &status)) == 0;
    const char *kind = known ? wrong_kind(status.st_mode) : NULL;
    if (kind != NULL)
        snprintf(error, OUTPUT_ERROR_MAX,
                 "%.300s is %s; give a regular file in a folder that can be written", shown, kind);
    else if (fd < 0)
        snprintf(error, OUTPUT_ERROR_MAX, "%.300s: %s; give a file in a folder that can be written",
                 shown, strerror(reason));
    if (kind == NULL || fd < 0)
        return fd;
    close(fd);
    return -1;
}
