/* SPDX-License-Identifier: Apache-2.0
 *
 * The torture's clients and its judge on an engine in a package of its own.
 */
#ifndef TORTURE_OTHER_ENGINE_H
#define TORTURE_OTHER_ENGINE_H

#include "client.h"

struct other_engine {
    const struct dlock_engine *(*engine)(void);
    /* The server of all histories. */
    void (*start)(void);
    int (*port)(void);
    void (*end)(void);
    void (*url)(char url[URL_SIZE], int port);
    int64_t ttl_unit_ms; /* times to live are its multiples */
    const char *request_text; /* a request about a lock contains it; brief */
};

/* main(): PROGRAM [FIRST-SEED [HISTORIES]]; TORTURE_TELL=1 prints the histories that fail. */
int torture_engine(const struct other_engine *engine, int argc, char **argv);

#endif
