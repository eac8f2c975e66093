/* SPDX-License-Identifier: Apache-2.0
 *
 * The torture on etcd.
 */
#include "dlock_etcd.h"
#include "etcd_server.h"
#include "other_engine.h"

#include <stdio.h>

static struct etcd_server *etcd;

static void start(void)
{
    etcd = etcd_server_start(NULL);
}

static int port(void)
{
    return etcd_server_port(etcd);
}

static void end(void)
{
    etcd_server_free(etcd);
}

static void url(char text[URL_SIZE], const char *hosts, bool ensemble)
{
    (void)ensemble;
    snprintf(text, URL_SIZE, "etcd://%s", hosts);
}

int main(int argc, char **argv)
{
    static const struct other_engine engine = {.engine = dlock_etcd,
                                               .start = start,
                                               .port = port,
                                               .end = end,
                                               .url = url,
                                               .ttl_unit_ms = 1000,
                                               .ensemble_ttl_unit_ms = 1000,
                                               .request_text = "/v3/kv/txn"};
    return torture_engine(&engine, argc, argv);
}
