/* SPDX-License-Identifier: Apache-2.0
 *
 * A request as its bytes tell: how long it is, and what it is for.
 */
#ifndef TORTURE_REQUEST_H
#define TORTURE_REQUEST_H

#include "proxy.h"

/* Of the first request in the bytes; 0: it has not come in full. */
size_t request_size(const char *bytes, size_t size);
/* Of a whole request. script: the label of the last script on its connection, for an EVAL, whose
 * text says less; kept up to date. */
void request_read(const char *bytes, char script[32], struct request_seen *seen);

#endif
