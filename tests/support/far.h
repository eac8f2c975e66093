/* SPDX-License-Identifier: Apache-2.0
 *
 * A proxy between the library and a real Redis that makes it look far away. Every byte arrives half
 * a round trip after it was sent, in order. Any number may be under way.
 */
#ifndef TESTS_FAR_H
#define TESTS_FAR_H

#include <stdint.h>

struct server;
struct far;

struct far *far_start(const struct server *server, int64_t round_trip_ms);
void far_free(struct far *far);
const char *far_url(const struct far *far);

#endif
