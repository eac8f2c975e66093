/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses a request: its length and its purpose.
 */
#ifndef TORTURE_REQUEST_H
#define TORTURE_REQUEST_H

#include "proxy.h"

/* The length of the first request in the bytes; 0 if it is incomplete. */
size_t request_size(const char *bytes, size_t size);
/* Reads a complete request. */
void request_read(const char *bytes, struct request_seen *seen);

#endif
