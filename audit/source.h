/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of the run folder, and the complaints about it: the first few in full, the rest as a
 * number. An unreadable record is missing evidence. In a file of the instances or of Redis it makes
 * the run RESULT_INCOMPLETE, otherwise RESULT_INCONCLUSIVE.
 */
#ifndef SOURCE_H
#define SOURCE_H

#include "run.h"

enum { COMPLAINTS_TOLD = 3 };

struct source {
    struct run *run;
    const char *file;
    enum result rank; /* the result that a complaint supports */
    unsigned complaints;
};

/* line 0: the complaint is about the whole file. */
void complain(struct source *source, int64_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds how many complaints were left out. */
void source_close(struct source *source);

/* Builds folder/file; false if that is too long for a path. */
bool source_path(const struct run *run, const char *file, char path[PATH_MAX_BYTES]);

#endif
