/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <stdarg.h>
#include <stdio.h>

void complain(struct source *source, int64_t line, const char *format, ...)
{
    char sentence[SENTENCE_MAX];
    if (source->complaints++ >= COMPLAINTS_TOLD)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    struct findings *findings = &source->run->findings;
    if (line > 0)
        findings_add(findings, source->rank, "%s line %lld: %s", source->file, (long long)line,
                     sentence);
    else
        findings_add(findings, source->rank, "%s: %s", source->file, sentence);
}

void source_close(struct source *source)
{
    if (source->complaints > COMPLAINTS_TOLD)
        findings_add(&source->run->findings, source->rank, "%s: %u more like these", source->file,
                     source->complaints - COMPLAINTS_TOLD);
}

bool source_path(const struct run *run, const char *file, char path[PATH_MAX_BYTES])
{
    int length = snprintf(path, PATH_MAX_BYTES, "%s/%s", run->folder, file);
    return length > 0 && length < PATH_MAX_BYTES;
}
