/* SPDX-License-Identifier: Apache-2.0
 *
 * The torture on ZooKeeper.
 */
#include "dlock_zookeeper.h"
#include "other_engine.h"
#include "zookeeper_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENSEMBLE_TICK_MS 200 /* of flaws/zookeepers.py */

static struct zookeeper *zookeeper;

static void start(void)
{
    zookeeper = zookeeper_start();
}

static int port(void)
{
    return atoi(strrchr(zookeeper_hosts(zookeeper), ':') + 1);
}

static void end(void)
{
    zookeeper_free(zookeeper);
}

static void url(char text[URL_SIZE], const char *hosts, bool ensemble)
{
    snprintf(text, URL_SIZE, "zk://%s?tick_ms=%d", hosts,
             ensemble ? ENSEMBLE_TICK_MS : ZOOKEEPER_TICK_MS);
}

int main(int argc, char **argv)
{
    static const struct other_engine engine = {.engine = dlock_zookeeper,
                                               .start = start,
                                               .port = port,
                                               .end = end,
                                               .url = url,
                                               .ttl_unit_ms = 1,
                                               .ensemble_ttl_unit_ms = 3 * ENSEMBLE_TICK_MS,
                                               .request_text = "/dlock/",
                                               .close_ms = 5000};
    return torture_engine(&engine, argc, argv);
}
