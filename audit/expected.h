/* SPDX-License-Identifier: Apache-2.0
 *
 * Which results a run is expected to have: run.json's word, else the cell of expected.def.
 */
#ifndef EXPECTED_H
#define EXPECTED_H

#include "run.h"

struct expected {
    unsigned results; /* a bit per result; 0: nobody says */
    const char *why;
};

struct expected expected_of(const struct run *run);

#endif
