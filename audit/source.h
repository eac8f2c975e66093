/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of the run folder, and complaints about it: the first few in full, the rest counted. A
 * record that cannot be read is evidence that is missing: RESULT_INCOMPLETE where it is a record of
 * the instances or of Redis, otherwise RESULT_INCONCLUSIVE.
 */
#ifndef SOURCE_H
#define SOURCE_H

#include "run.h"

enum { COMPLAINTS_TOLD = 3 };

struct source {
    struct run *run;
    const char *file;
    enum result rank; /* what a complaint makes of the run */
    unsigned complaints;
};

/* line: 0 means the whole file. */
void complain(struct source *source, int64_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says how many complaints were left out. */
void source_close(struct source *source);

/* folder/file; false when that is too long for a path. */
bool source_path(const struct run *run, const char *file, char path[PATH_MAX_BYTES]);

#endif
