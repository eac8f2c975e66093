/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judge may conclude, and the sentences that say why.
 */
#ifndef FINDINGS_H
#define FINDINGS_H

#include <stdbool.h>
#include <stddef.h>

/* In order of precedence: if several apply, the first one is the result. What does harm comes
 * before OVERLAP, which lets it happen: first a wrong answer or result (OVERSOLD, STALE,
 * UNBALANCED, REPEATED, LOST_TASK), then needless work (STAMPEDE). INCOMPLETE and INCONCLUSIVE are
 * two ranks of "inconclusive". INCOMPLETE: records of the instances or of Redis are missing, or the
 * machine stood still. Existing records prove a wrong answer or result, OVERLAP and OVERTAKEN even
 * then. They prove STAMPEDE only if nobody deleted the list meanwhile, so its check says nothing if
 * a line about that can be missing. DEADLOCK, UNFINISHED and UNDERSOLD say that something never
 * happened, so they need all of those records. INCONCLUSIVE: other evidence is missing, and only OK
 * needs it. */
#define RESULTS(X)                                                                                 \
    X(OVERSOLD, "oversold")                                                                        \
    X(STALE, "stale")                                                                              \
    X(UNBALANCED, "unbalanced")                                                                    \
    X(REPEATED, "repeated")                                                                        \
    X(LOST_TASK, "lost_task")                                                                      \
    X(STAMPEDE, "stampede")                                                                        \
    X(OVERLAP, "overlap")                                                                          \
    X(OVERTAKEN, "overtaken")                                                                      \
    X(INCOMPLETE, "inconclusive")                                                                  \
    X(DEADLOCK, "deadlock")                                                                        \
    X(UNFINISHED, "unfinished")                                                                    \
    X(UNDERSOLD, "undersold")                                                                      \
    X(INCONCLUSIVE, "inconclusive")                                                                \
    X(OK, "ok")

enum result {
#define X(name, text) RESULT_##name,
    RESULTS(X)
#undef X
        RESULT_COUNT
};

const char *result_name(enum result result);
/* The result as a verdict shows it: RESULT_INCOMPLETE becomes RESULT_INCONCLUSIVE. */
enum result result_of(enum result rank);
bool result_parse(const char *text, enum result *result);

enum { FINDINGS_MAX = 64, SENTENCE_MAX = 480 };

struct finding {
    enum result supports;
    char sentence[SENTENCE_MAX];
};

struct findings {
    struct finding list[FINDINGS_MAX];
    size_t count;
    size_t left_out; /* found while the list was full */
    enum result worst;
};

void findings_init(struct findings *findings);
void findings_add(struct findings *findings, enum result supports, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* By precedence; findings of one result keep the order in which they were found. */
void findings_sort(struct findings *findings);

#endif
