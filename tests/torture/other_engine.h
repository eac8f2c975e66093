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
    /* hosts: of that server; or of an ensemble as flaws/ starts them. */
    void (*url)(char url[URL_SIZE], const char *hosts, bool ensemble);
    int64_t ttl_unit_ms; /* times to live are its multiples */
    int64_t ensemble_ttl_unit_ms;
    const char *request_text; /* a request about a lock contains it; brief */
    int64_t close_ms;         /* that a client's end may take besides the bound */
};

/* main(): PROGRAM [FIRST-SEED [HISTORIES]], or PROGRAM --members PORT,PORT,PORT SEED for a history
 * on an ensemble that somebody else has started and takes servers from: see other_engine.c.
 * TORTURE_TELL=1 prints the histories that fail. */
int torture_engine(const struct other_engine *engine, int argc, char **argv);

#endif
