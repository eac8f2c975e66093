/* SPDX-License-Identifier: Apache-2.0
 *
 * Which results a run is expected to have: as run.json says, otherwise by its service's table.
 */
#ifndef EXPECTED_H
#define EXPECTED_H

#include "run.h"

struct expected {
    unsigned results; /* a bit per result; 0: no expectation is stated */
    const char *why;
};

#endif
