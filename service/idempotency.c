/* SPDX-License-Identifier: Apache-2.0
 *
 * See idempotency.h.
 */
#include "idempotency.h"

#include <string.h>

/* ---- The header ------------------------------------------------------------------------------ */

static bool is_visible(char c)
{
    return c > ' ' && c < 0x7f;
}

bool idempotency_parse(const char *value, char key[SALE_KEY_MAX + 1])
{
    const bool quoted = *value == '"';
    size_t size = 0;
    for (value += quoted; is_visible(*value) && !(quoted && *value == '"'); value++) {
        if (quoted && *value == '\\' && *++value != '"' && *value != '\\')
            return false;
        if (size == SALE_KEY_MAX)
            return false;
        key[size++] = *value;
    }
    key[size] = '\0';
    if (quoted && *value++ != '"')
        return false;
    return size > 0 && value[strspn(value, " \t")] == '\0';
}

/* ---- In flight ------------------------------------------------------------------------------- */

void idempotency_init(struct idempotency *flight)
{
    *flight = (struct idempotency){0};
    pthread_mutex_init(&flight->mutex, NULL);
}

void idempotency_destroy(struct idempotency *flight)
{
    pthread_mutex_destroy(&flight->mutex);
}

/* FNV-1a over both, each with its NUL. */
static struct sale **idempotency_row_of(struct idempotency *flight, const struct sale *sale)
{
    uint32_t hash = 2166136261u;
    const char *const texts[] = {sale->item, sale->key};
    for (size_t i = 0; i < 2; i++) {
        const char *c = texts[i];
        do
            hash = (hash ^ (unsigned char)*c) * 16777619u;
        while (*c++ != '\0');
    }
    return &flight->rows[hash % IDEMPOTENCY_ROWS];
}

bool idempotency_claim(struct idempotency *flight, struct sale *sale)
{
    if (sale->key[0] == '\0' || sale->claimed)
        return true;
    struct sale **row = idempotency_row_of(flight, sale);
    pthread_mutex_lock(&flight->mutex);
    const struct sale *other = *row;
    while (other != NULL &&
           (strcmp(other->key, sale->key) != 0 || strcmp(other->item, sale->item) != 0))
        other = other->next_claim;
    if (other == NULL) {
        sale->claimed = true;
        sale->next_claim = *row;
        *row = sale;
    }
    pthread_mutex_unlock(&flight->mutex);
    return other == NULL;
}

void idempotency_release(struct idempotency *flight, struct sale *sale)
{
    if (!sale->claimed)
        return;
    struct sale **place = idempotency_row_of(flight, sale);
    pthread_mutex_lock(&flight->mutex);
    while (*place != sale)
        place = &(*place)->next_claim;
    *place = sale->next_claim;
    sale->claimed = false;
    pthread_mutex_unlock(&flight->mutex);
}
