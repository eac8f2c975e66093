/* SPDX-License-Identifier: Apache-2.0 */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)                    ? "a directory"
           : S_ISFIFO(mode)                 ? "a FIFO"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "of another kind";
}

FILE *input_open(const char *path, char error[INPUT_ERROR_MAX])
{
    struct stat status;
    /* Without O_NONBLOCK, opening a FIFO blocks until it has a writer. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *file = fd >= 0 && fstat(fd, &status) == 0 ? fdopen(fd, "rb") : NULL;
    if (file != NULL && S_ISREG(status.st_mode))
        return file;
    if (file == NULL)
        snprintf(error, INPUT_ERROR_MAX,
                 "cannot be opened: %s; it must be a regular file that can be read",
                 strerror(errno));
    else
        snprintf(error, INPUT_ERROR_MAX, "cannot be read: it is %s; it must be a regular file",
                 kind_of(status.st_mode));
    if (file != NULL)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    return NULL;
}
