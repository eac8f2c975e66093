/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of the keys in queues: "<lease>:<slot>". They are used again and again: etcd walks over
 * each key that was ever deleted, until its history is compacted, whenever it looks for the first
 * or the last of a queue. A delete that was not answered may be carried out at any later time, so
 * its slot is never used again. (A create can not: the client's own key fences it, see lease.c.)
 */
#include "etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool name_take(struct etcd *etcd, struct etcd_place *place)
{
    const unsigned char *free_one =
        etcd->slot_count > 0 ? memchr(etcd->slots, 0, etcd->slot_count) : NULL;
    size_t slot = free_one != NULL ? (size_t)(free_one - etcd->slots) : etcd->slot_count;
    if (slot == etcd->slot_count) {
        size_t count = 2 * etcd->slot_count + 16;
        unsigned char *more = realloc(etcd->slots, count);
        if (more == NULL)
            return false;
        memset(more + etcd->slot_count, 0, count - etcd->slot_count);
        etcd->slots = more;
        etcd->slot_count = count;
    }
    etcd->slots[slot] = 1;
    place->slot = slot;
    snprintf(place->name, sizeof place->name, "%llx:%zu", (unsigned long long)etcd->lease, slot);
    return true;
}

void name_give_back(struct session *session, struct place *base)
{
    const struct etcd_place *place = (const struct etcd_place *)base;
    if (place->name[0] != '\0' && place->deletes == 0)
        etcd_of(session)->slots[place->slot] = 0;
}
