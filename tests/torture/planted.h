/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistakes that are made on purpose, to see that the judge finds them. The linker leads some of the
 * library's calls here.
 */
#ifndef TORTURE_PLANTED_H
#define TORTURE_PLANTED_H

enum planted {
    PLANTED_NONE,
    PLANTED_MINORITY, /* redlock needs one vote fewer than a majority */
    PLANTED_STAYS,    /* a client stays with its first master, whatever the sentinels name */
    PLANTED_UNSORTED, /* several locks are taken in the caller's order */
    PLANTED_KEEPS,    /* a call for several locks that fails keeps every second one that it has */
};

/* Before the processes of a history start: they all make this mistake. */
void planted_set(enum planted mistake);

#endif
