/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses a request: its length and its purpose.
 */
#ifndef TORTURE_REQUEST_H
#define TORTURE_REQUEST_H

#include "proxy.h"

/* The length of the first request in the bytes; 0 if it is incomplete. */
size_t request_size(const char *bytes, size_t size);
/* Reads a complete request. script: label of the latest script on its connection. An EVAL takes its
 * label from there, because its text has no name. This call keeps it up to date. */
void request_read(const char *bytes, char script[32], struct request_seen *seen);

#endif
