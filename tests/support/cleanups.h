/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks into a client's background work, whichever its engine is.
 */
#ifndef TESTS_CLEANUPS_H
#define TESTS_CLEANUPS_H

#include "client.h"

/* How many background cleanups are under way: requests that undo what calls left behind. */
static inline uint64_t kept_in_the_background(dlock_client *client)
{
    pthread_mutex_lock(&client->loop.mutex);
    uint64_t kept = client->cleanups_started - client->cleanups_finished;
    pthread_mutex_unlock(&client->loop.mutex);
    return kept;
}

#endif
