/* SPDX-License-Identifier: Apache-2.0
 *
 * See cli.h.
 */
#include "cli.h"

#include "net.h"
#include "program.h"

#include <dlock.h>
#include <stdlib.h>

#define HEALTHCHECK_MS 3000

int cli_print(cJSON *json)
{
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
        fprintf(stderr, "%s: %s\n", program.name, error);
    else if (status != 200)
        fprintf(stderr, "%s: %s answers %d, not 200\n", program.name, url, status);
    return status == 200 ? 0 : 1;
}

int cli_act(const void *config, const struct settings_request *request)
{
    switch (request->action) {
    case SETTINGS_PRINT:
        return cli_print(settings_json(config));
    case SETTINGS_HELP:
        settings_help(stdout);
        return 0;
    case SETTINGS_HELP_MARKDOWN:
        settings_help_markdown(stdout);
        return 0;
    case SETTINGS_HELP_PROBLEMS:
        problem_help_markdown(stdout);
        return 0;
    case SETTINGS_VERSION:
        printf("%s " DLOCK_VERSION "\n", program.name);
        return 0;
    case SETTINGS_OWN_FLAG:
        return request->flag->act();
    default:
        return healthcheck(request->url);
    }
}
