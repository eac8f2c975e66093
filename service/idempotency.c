/* SPDX-License-Identifier: Apache-2.0
 *
 * See idempotency.h.
 */
#include "idempotency.h"

#include "text.h"

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

void idempotency_init(struct idempotency *table)
{
    *table = (struct idempotency){0};
    pthread_mutex_init(&table->mutex, NULL);
}

void idempotency_destroy(struct idempotency *table)
{
    pthread_mutex_destroy(&table->mutex);
}

static struct sale **idempotency_bucket(struct idempotency *table, const struct sale *sale)
{
    const uint32_t hash = text_hash(text_hash(TEXT_HASH, sale->item), sale->key);
    return &table->buckets[hash % IDEMPOTENCY_BUCKETS];
}

bool idempotency_claim(struct idempotency *table, struct sale *sale)
{
    if (sale->key[0] == '\0' || sale->claimed)
        return true;
    struct sale **bucket = idempotency_bucket(table, sale);
    pthread_mutex_lock(&table->mutex);
    const struct sale *other = *bucket;
    while (other != NULL &&
           (strcmp(other->key, sale->key) != 0 || strcmp(other->item, sale->item) != 0))
        other = other->next_claim;
    if (other == NULL) {
        sale->claimed = true;
        sale->next_claim = *bucket;
        *bucket = sale;
    }
    pthread_mutex_unlock(&table->mutex);
    return other == NULL;
}

void idempotency_release(struct idempotency *table, struct sale *sale)
{
    if (!sale->claimed)
        return;
    struct sale **link = idempotency_bucket(table, sale);
    pthread_mutex_lock(&table->mutex);
    while (*link != sale)
        link = &(*link)->next_claim;
    *link = sale->next_claim;
    sale->claimed = false;
    pthread_mutex_unlock(&table->mutex);
}
