/* SPDX-License-Identifier: Apache-2.0
 *
 * A history told in order of time: calls and their answers, requests, replies, events and faults.
 */
#ifndef TORTURE_TRANSCRIPT_H
#define TORTURE_TRANSCRIPT_H

#include "history.h"

#include <stdio.h>

void transcript_write(FILE *to, const struct world *world, const struct plan *plan);

#endif
