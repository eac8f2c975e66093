/* SPDX-License-Identifier: Apache-2.0
 *
 * A stock on a Redis server of its own. A section reads it when it enters, and lowers it when it
 * leaves, whether its hold is valid or not: as a holder that is late. With the shop's own scripts
 * of --write fenced (service/lua), and its rules of the epoch.
 */
#ifndef TORTURE_STOCK_H
#define TORTURE_STOCK_H

#include "history.h"

/* The stock compares the tokens of its writers. */
extern const struct visitor stock_fenced;
/* It compares nothing. A control: stale writes are accepted. */
extern const struct visitor stock_plain;

#endif
