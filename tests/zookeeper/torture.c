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

static void url(char text[URL_SIZE], int at)
{
    snprintf(text, URL_SIZE, "zk://127.0.0.1:%d?tick_ms=%d", at, ZOOKEEPER_TICK_MS);
}

int main(int argc, char **argv)
{
    static const struct other_engine engine = {.engine = dlock_zookeeper,
                                               .start = start,
                                               .port = port,
                                               .end = end,
                                               .url = url,
                                               .ttl_unit_ms = 1,
                                               .request_text = "/dlock/"};
    return torture_engine(&engine, argc, argv);
}
