/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out a history's faults: each begins at the request that it is bound to, and ends at
 * another.
 */
#ifndef TORTURE_FAULTS_H
#define TORTURE_FAULTS_H

#include "proxy.h"

struct faults;
struct faults *faults_new(const struct plan *plan, struct world *world, struct server *server);
void faults_free(struct faults *faults);
/* An on_request of the proxy. */
enum onward faults_on_request(void *faults, struct wire *wire, const struct request_seen *seen);
/* Between the proxy's rounds: faults at named points, and ends that no request brings. */
void faults_round(struct faults *faults, struct proxy *proxy);
/* Ends all, and begins no more. */
void faults_calm(struct faults *faults, struct proxy *proxy);
/* How often each kind was carried out. */
const int *faults_done(const struct faults *faults);

#endif
