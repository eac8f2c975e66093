/* SPDX-License-Identifier: Apache-2.0
 *
 * See cli.h.
 */
#include "cli.h"

#include "net.h"
#include "problem.h"

#include <stdlib.h>

#define HEALTHCHECK_MS 3000

static int print_config(const struct config *config)
{
    cJSON *json = config_json(config);
    char *text = json != NULL ? cJSON_Print(json) : NULL;
    if (text != NULL)
        puts(text);
    cJSON_Delete(json);
    free(text);
    return text != NULL ? 0 : 1;
}

static int healthcheck(const char *url)
{
    char error[NET_ERROR_MAX] = "";
    int status = net_get(url, HEALTHCHECK_MS, error);
    if (status == 0)
        fprintf(stderr, "inventoryd: %s\n", error);
    else if (status != 200)
        fprintf(stderr, "inventoryd: %s answers %d, not 200\n", url, status);
    return status == 200 ? 0 : 1;
}

int cli_act(const struct config *config, const struct config_request *request)
{
    switch (request->action) {
    case CONFIG_PRINT:
        return print_config(config);
    case CONFIG_HELP:
        config_help(stdout);
        return 0;
    case CONFIG_HELP_MARKDOWN:
        config_help_markdown(stdout);
        return 0;
    case CONFIG_HELP_PROBLEMS:
        problem_help_markdown(stdout);
        return 0;
    case CONFIG_VERSION:
        puts("inventoryd " DLOCK_VERSION);
        return 0;
    default:
        return healthcheck(request->url);
    }
}
