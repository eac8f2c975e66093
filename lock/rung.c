/* SPDX-License-Identifier: Apache-2.0
 *
 * See rung.h.
 */
#include "rung.h"

#include "client.h"

const char *rung_client_id(const struct dlock_hold *hold)
{
    return hold->lock->client->id;
}

int64_t rung_grant_ms(const struct dlock_hold *hold)
{
    return hold->lock->client->options.grant_ms;
}

void rung_count_expired_grant(const struct dlock_hold *hold)
{
    add_one(&hold->lock->client->grants_expired);
}

void rung_count_renewal(struct dlock *lock)
{
    add_one(&lock->client->renewals);
}
