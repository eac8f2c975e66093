/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command line can ask for instead of running: to print something, or to check another
 * instance.
 */
#ifndef CLI_H
#define CLI_H

#include "config.h"

/* The exit code. */
int cli_act(const struct config *config, const struct config_request *request);

#endif
