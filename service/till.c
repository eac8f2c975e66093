/* SPDX-License-Identifier: Apache-2.0
 *
 * See till.h.
 */
#include "till.h"

#include <stdlib.h>
#include <string.h>

void tills_init(struct tills *tills)
{
    *tills = (struct tills){0};
    pthread_mutex_init(&tills->mutex, NULL);
}

static void till_free(struct till *till)
{
    while (till->bearer != NULL) {
        struct bearer *bearer = till->bearer;
        till->bearer = bearer->next;
        if (bearer->forgotten != NULL)
            dlock_release(bearer->forgotten, NULL);
        dlock_close(bearer->lock);
        free(bearer);
    }
    dlock_close(till->lock);
    free(till);
}

void tills_free(struct tills *tills)
{
    while (tills->free != NULL) {
        struct till *till = tills->free;
        tills->free = till->next;
        till_free(till);
    }
    pthread_mutex_destroy(&tills->mutex);
}

struct till *till_take(struct tills *tills)
{
    pthread_mutex_lock(&tills->mutex);
    struct till *till = tills->free;
    if (till != NULL)
        tills->free = till->next;
    unsigned number = till == NULL ? ++tills->count : 0;
    pthread_mutex_unlock(&tills->mutex);
    if (till != NULL || (till = calloc(1, sizeof *till)) == NULL)
        return till;
    till->number = number;
    till->bearer = calloc(1, sizeof *till->bearer);
    if (till->bearer != NULL)
        return till;
    free(till);
    return NULL;
}

void till_give(struct tills *tills, struct till *till)
{
    pthread_mutex_lock(&tills->mutex);
    till->next = tills->free;
    tills->free = till;
    pthread_mutex_unlock(&tills->mutex);
}

bool till_forget(struct till *till, dlock_hold *hold)
{
    struct bearer *next = calloc(1, sizeof *next);
    if (next == NULL)
        return false;
    till->bearer->forgotten = hold;
    till->bearer->lock = till->lock;
    till->lock = NULL;
    next->next = till->bearer;
    till->bearer = next;
    return true;
}
