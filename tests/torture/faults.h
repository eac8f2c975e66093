/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out the faults of a history. Each begins at the request that it is bound to, and ends at
 * another one.
 */
#ifndef TORTURE_FAULTS_H
#define TORTURE_FAULTS_H

#include "servers.h"

struct faults;
struct faults *faults_new(const struct plan *plan, struct world *world, struct servers *servers);
void faults_free(struct faults *faults);
/* The proxy's on_request callback. */
enum onward faults_on_request(void *faults, struct wire *wire, const struct request_seen *seen);
/* Runs between the proxy's rounds: faults at named points, and faults that end without a request.
 */
void faults_round(struct faults *faults, struct proxy *proxy);
/* Ends all faults, and begins no more. */
void faults_calm(struct faults *faults, struct proxy *proxy);
/* How often each kind was carried out. */
const int *faults_done(const struct faults *faults);

#endif
