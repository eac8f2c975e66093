/* SPDX-License-Identifier: Apache-2.0
 *
 * How a call reports a failure: a status, and a sentence that is kept for the calling thread.
 */
#ifndef DLOCK_STATUS_H
#define DLOCK_STATUS_H

#include "dlock.h"
#include "exported.h"

#define SENTENCE_MAX 512 /* bytes of dlock_error(), with its NUL */

/* Keeps the sentence for dlock_error() and returns `status`. */
dlock_status fail(dlock_status status, const char *format, ...) EXPORTED_AS(fail)
    __attribute__((format(printf, 2, 3)));

/* Whether an argument of a public function is given. If not, dlock_error() names it, and the
 * function returns INVALID. */
#define GIVEN(argument) ((argument) != NULL || is_missing(__func__, #argument))
bool is_missing(const char *function, const char *argument); /* always false */

#endif
