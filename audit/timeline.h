/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes timeline.svg: the run as a picture.
 */
#ifndef TIMELINE_H
#define TIMELINE_H

#include "verdict.h"

bool timeline_write(const struct run *run, const struct verdict *verdict);

#endif
