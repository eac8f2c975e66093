/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a history in the order of time: calls, answers, requests, replies, events and faults.
 */
#ifndef TORTURE_TRANSCRIPT_H
#define TORTURE_TRANSCRIPT_H

#include "history.h"

#include <stdio.h>

void transcript_write(FILE *to, const struct world *world, const struct plan *plan);

#endif
