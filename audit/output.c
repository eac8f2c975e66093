/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool output_open(struct output *output, const char *folder, const char *name)
{
    snprintf(output->path, sizeof output->path, "%.4096s/%.64s", folder, name);
    snprintf(output->partial, sizeof output->partial, "%s.part", output->path);
    remove(output->partial); /* left by an interrupted judge, or a FIFO, whose open would block */
    output->file = fopen(output->partial, "wbx");
    return output->file != NULL;
}

bool output_close(struct output *output)
{
    bool fine = output->file != NULL;
    if (fine) {
        fine = ferror(output->file) == 0;
        fine = fclose(output->file) == 0 && fine;
        fine = fine && rename(output->partial, output->path) == 0;
    }
    if (!fine) {
        fprintf(stderr, "ladder-audit: %s cannot be written: %s; the folder must be writable\n",
                output->path, strerror(errno));
        if (output->file != NULL)
            remove(output->partial);
    }
    return fine;
}

void output_withdraw(const char *folder, const char *name)
{
    struct output output;
    snprintf(output.path, sizeof output.path, "%.4096s/%.64s", folder, name);
    if (unlink(output.path) == 0)
        fprintf(stderr, "ladder-audit: removed %s: it was of an earlier judgement\n", output.path);
    else if (errno != ENOENT && errno != ENOTDIR)
        fprintf(stderr, "ladder-audit: %s is of an earlier judgement, and cannot be removed: %s\n",
                output.path, strerror(errno));
}
