/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command line can ask for instead of running: to print something, or to check another
 * instance.
 */
#ifndef CLI_H
#define CLI_H

#include "settings.h"

/* config: the service's. Returns the exit code. */
int cli_act(const void *config, const struct settings_request *request);

/* Prints the JSON, and deletes it. Returns the exit code. */
int cli_print(cJSON *json);

#endif
