/* SPDX-License-Identifier: Apache-2.0
 *
 * Five servers of `redlock` that are killed (SIGKILL) and restarted at random. Clients connect to
 * them without a proxy.
 */
#ifndef TORTURE_KILLED_H
#define TORTURE_KILLED_H

#include "world.h"

#include "server.h"

#define KILLED_SERVERS 5

struct killing {
    uint64_t seed; /* decides which ones are killed, for how long, and the pauses */
    bool forgets;  /* they come back empty; otherwise each wrote every command before it answered */
    bool at_once;  /* they come back at once, and most often a majority was killed */
    bool told;     /* the judge is told that data were lost */
};

struct killed;
struct killed *killed_start(struct world *world, const struct killing *killing);
void killed_free(struct killed *killed);
struct server *killed_at(struct killed *killed, int index);
/* To be called every few milliseconds. kills: whether others may be killed. */
void killed_round(struct killed *killed, bool kills);
/* Returns when all are back. */
void killed_revive(struct killed *killed);

int killed_kills(const struct killed *killed);
/* How often no majority was left. */
size_t killed_gaps(const struct killed *killed);
/* Whether no majority ran in all of this time. */
bool killed_most(const struct killed *killed, int64_t from_ns, int64_t to_ns);

#endif
