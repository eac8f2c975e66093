/* SPDX-License-Identifier: Apache-2.0
 *
 * Idempotency keys. Requests with one key are one wish of one buyer, so one request represents each
 * key. It is the first of these that exists: the one that bought; the one whose refusal was stored;
 * one that got a stored answer; one with an unknown outcome; the last one that was rejected.
 */
#include "check.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_NAME_MAX = 256 };

static void name_key(const struct run *run, uint32_t item, const char *key, char name[KEY_NAME_MAX])
{
    snprintf(name, KEY_NAME_MAX, "%.80s %.160s", /* an item that is not on sale has no number */
             item == NONE ? "?" : names_text(&run->item_names, item), key);
}

uint32_t keys_add(struct run *run, uint32_t item, const char *key)
{
    char name[KEY_NAME_MAX];
    name_key(run, item, key, name);
    return names_add(&run->keys, name);
}

uint32_t keys_find(const struct run *run, uint32_t item, const char *key)
{
    char name[KEY_NAME_MAX];
    name_key(run, item, key, name);
    return names_find(&run->keys, name); /* NO_NAME is NONE */
}

const char *keys_text(const struct run *run, uint32_t key)
{
    const char *text = names_text(&run->keys, key);
    return text + strcspn(text, " ") + 1;
}

/* The request with the greatest rank represents its key. A stored refusal ranks above stored
 * answers: nothing was sold under its key before it, and nothing is sold after it. */
static int rank_of(const struct run *run, const struct request *request)
{
    if (request->outcome == OUTCOME_REFUSED && request->kept)
        return 5;
    switch (request->outcome) {
    case OUTCOME_SOLD:
    case OUTCOME_CLIENT_ONLY:
        return 6;
    case OUTCOME_REPLAYED:
        return 4;
    case OUTCOME_REFUSED:
    case OUTCOME_FAILED:
    case OUTCOME_REJECTED:
        return is_about_key(request) ? 1 : 2;
    default:
        return is_unknown(run, request) ? 3 : 0;
    }
}

void keys_settle(struct run *run)
{
    uint32_t *stands = memory_new(run->keys.count, sizeof *stands);
    for (size_t i = 0; i < run->keys.count; i++)
        stands[i] = NONE;
    for (size_t i = 0; i < run->request_count; i++) {
        struct request *request = &run->requests[i];
        if (request->key == NONE)
            continue;
        uint32_t *place = &stands[request->key];
        struct request *other = *place == NONE ? NULL : &run->requests[*place];
        if (other != NULL && rank_of(run, request) < rank_of(run, other)) {
            request->repeats = true;
            continue;
        }
        if (other != NULL)
            other->repeats = true;
        *place = (uint32_t)i;
    }
    free(stands);
}
