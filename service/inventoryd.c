/* SPDX-License-Identifier: Apache-2.0
 *
 * What the base must know of the shop.
 */
#include "print_rungs.h"
#include "problems.h"
#include "program.h"
#include "service.h"
#include "shop_points.h"

static const struct problem_row problems[] = {
#define BASE(name, meaning) PROBLEM_OF_BASE(name, meaning),
#define X(name, type, status, title, meaning) {PROBLEM_##name, type, status, title, meaning},
#include "problems.def"
#undef X
#undef BASE
};

static const struct failpoint_row points[] = {
#define X(group, name, where, fails) {#group "." #name, fails},
    SHOP_POINTS(X)
#undef X
        {.name = NULL},
};

static const struct settings_flag flags[] = {
    {"print-rungs", "print the locks and the ways to write as JSON and exit", print_rungs},
    {.flag = NULL},
};

static const struct settings_common *common_of(const struct service *service)
{
    return &service->config.common;
}

static struct failpoints *failpoints_of(const struct service *service)
{
    return service->env.failpoints;
}

const struct program program = {
    .name = "inventoryd",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .settings = {.about = "inventoryd sells items of a stock in Redis, each sale under a lock.",
                 .example = "work-ms",
                 .rows = config_rows,
                 .own = config_own,
                 .flags = flags},
    .points = points,
    .example_point = "sale.after_read",
    .common = common_of,
    .failpoints = failpoints_of,
};
