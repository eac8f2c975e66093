/* SPDX-License-Identifier: Apache-2.0 */
#include "rules.h"

#include "account.h"
#include "menu.h"
#include "shop.h"
#include "tasks.h"

#include <stdio.h>
#include <string.h>

static const struct rules *const all[] = {&shop_rules, &menu_rules, &tasks_rules, &account_rules};

const struct rules *rules_find(const char *service)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i]->service, service) == 0)
            return all[i];
    }
    return NULL;
}

void rules_names(char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", all[i]->service);
}
