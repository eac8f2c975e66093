/* SPDX-License-Identifier: Apache-2.0
 *
 * See trace.h.
 */
#include "trace.h"

#include <stddef.h>

static _Thread_local void *sends_for;

void trace_for(void *user)
{
    sends_for = user;
}

void *trace_user(void)
{
    return sends_for;
}
