/* SPDX-License-Identifier: Apache-2.0
 *
 * See queue_head.h.
 */
#include "queue_head.h"

#include "../lock/clock.h"
#include "queue.h"
#include "service.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 256

/* An item that is waited for. Its request is no client's: it carries the looks through the threads
 * for waits. */
struct queue_head {
    struct shop_request look;
    struct queue_heads *heads;
    struct request *first; /* those that wait, in any order. The mutex protects it, and next */
    struct queue_head *next;
};

struct queue_heads {
    struct service *service;
    pthread_mutex_t mutex; /* protects what is below */
    struct queue_head *buckets[BUCKETS];
    size_t items;
};

/* ---- Numbers --------------------------------------------------------------------------------- */

static struct queue_number queue_head_number(const char *text)
{
    char *rest;
    struct queue_number number = {.ms = strtoull(text, &rest, 10)};
    if (*rest == '-')
        number.sequence = strtoull(rest + 1, NULL, 10);
    return number;
}

static bool queue_head_is_before(struct queue_number a, struct queue_number b)
{
    return a.ms < b.ms || (a.ms == b.ms && a.sequence < b.sequence);
}

/* ---- The requests that wait ------------------------------------------------------------------ */

/* Takes out those who wait for entries before that one, and those whose time has come. The mutex is
 * held. */
static struct request *queue_head_take(struct queue_head *head, struct queue_number before,
                                       int64_t now_ns)
{
    struct request *taken = NULL, **last = &taken, **link = &head->first;
    while (*link != NULL) {
        struct request *request = *link;
        const struct shop_request *waiting = shop_request_of(request);
        if (!queue_head_is_before(waiting->entry, before) && waiting->until_ns > now_ns) {
            link = &request->next;
            continue;
        }
        *link = request->next;
        request->next = NULL;
        *last = request;
        last = &request->next;
    }
    return taken;
}

static void queue_head_resume(struct queue_heads *heads, struct request *taken)
{
    for (struct request *next; taken != NULL; taken = next) {
        next = taken->next;
        workers_resume(heads->service->waits, taken);
    }
}

/* ---- The look -------------------------------------------------------------------------------- */

static struct queue_head **queue_head_bucket(struct queue_heads *heads, const char *item)
{
    return &heads->buckets[text_hash(TEXT_HASH, item) % BUCKETS];
}

/* Where the item's head is linked, or would be: then it is NULL there. The mutex is held. */
static struct queue_head **queue_head_find(struct queue_heads *heads, const char *item)
{
    struct queue_head **link = queue_head_bucket(heads, item);
    while (*link != NULL && strcmp((*link)->look.sale.item, item) != 0)
        link = &(*link)->next;
    return link;
}

/* The oldest unfinished entry; if there is none, or nobody shall wait now, one after all others. If
 * that is not told, one before all others. */
static struct queue_number queue_head_read(const struct service *service, struct stock *stock,
                                           const char *queue_key)
{
    const struct queue_number all = {UINT64_MAX, UINT64_MAX}, none = {0, 0};
    char number[STOCK_ENTRY_MAX + 1];
    if (atomic_load(&service->draining) || outage_lasts(service->env.outage, ROLE_STOCK))
        return all;
    enum stock_status status = queue_first(stock, queue_key, number);
    if (status == STOCK_MISSING)
        return all;
    return status == STOCK_OK ? queue_head_number(number) : none;
}

/* Never answers. */
static bool queue_head_look(struct service *service, void *state, struct request *look)
{
    const struct sale_worker *worker = state;
    struct queue_head *head =
        (struct queue_head *)((char *)look - offsetof(struct queue_head, look));
    struct queue_heads *heads = head->heads;
    const struct queue_number oldest =
        queue_head_read(service, worker->stock, head->look.sale.queue_key);
    pthread_mutex_lock(&heads->mutex);
    struct request *taken = queue_head_take(head, oldest, mono_ns());
    const bool is_used = head->first != NULL;
    if (!is_used) {
        *queue_head_find(heads, head->look.sale.item) = head->next;
        heads->items--;
    }
    pthread_mutex_unlock(&heads->mutex);
    queue_head_resume(heads, taken);
    if (is_used)
        workers_resume_at(service->waits, look, mono_deadline_ns(QUEUE_HEAD_LOOK_MS));
    else
        free(head);
    return false;
}

static const struct route queue_head_route = {.where = RUN_WORKERS, .work = queue_head_look};

/* NULL: out of memory, or there are too many items. The mutex is held. */
static struct queue_head *queue_head_new(struct queue_heads *heads, const char *item)
{
    struct queue_head *head = heads->items < QUEUE_HEAD_ITEMS_MAX ? calloc(1, sizeof *head) : NULL;
    if (head == NULL)
        return NULL;
    head->heads = heads;
    head->look.request.route = &queue_head_route;
    head->look.service = heads->service;
    snprintf(head->look.sale.item, sizeof head->look.sale.item, "%s", item);
    sale_name_keys(&heads->service->config, &head->look.sale);
    queue_name_keys(&heads->service->config, &head->look.sale);
    heads->items++;
    return head;
}

/* ---- What others call ------------------------------------------------------------------------ */

bool queue_heads_wait(struct queue_heads *heads, struct shop_request *waiting, const char *number,
                      int64_t until_ns)
{
    waiting->entry = queue_head_number(number);
    waiting->until_ns = until_ns;
    pthread_mutex_lock(&heads->mutex);
    struct queue_head **link = queue_head_find(heads, waiting->sale.item);
    const bool begins = *link == NULL;
    if (begins)
        *link = queue_head_new(heads, waiting->sale.item);
    struct queue_head *head = *link;
    if (head != NULL) {
        waiting->request.next = head->first;
        head->first = &waiting->request;
    }
    pthread_mutex_unlock(&heads->mutex);
    if (head != NULL && begins) /* nothing else ends it */
        workers_resume_at(heads->service->waits, &head->look.request,
                          mono_deadline_ns(QUEUE_HEAD_LOOK_MS));
    return head != NULL;
}

void queue_heads_passed(struct queue_heads *heads, const char *item, const char *number)
{
    struct queue_number next = queue_head_number(number);
    struct request *taken = NULL;
    next.sequence++; /* XADD makes none that would overflow before its time does */
    pthread_mutex_lock(&heads->mutex);
    struct queue_head *head = *queue_head_find(heads, item);
    if (head != NULL)
        taken = queue_head_take(head, next, INT64_MIN);
    pthread_mutex_unlock(&heads->mutex);
    queue_head_resume(heads, taken);
}

struct queue_heads *queue_heads_new(struct service *service)
{
    struct queue_heads *heads = calloc(1, sizeof *heads);
    if (heads == NULL)
        return NULL;
    heads->service = service;
    pthread_mutex_init(&heads->mutex, NULL);
    return heads;
}

void queue_heads_free(struct queue_heads *heads)
{
    if (heads == NULL)
        return;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (heads->buckets[i] != NULL) {
            struct queue_head *head = heads->buckets[i];
            heads->buckets[i] = head->next;
            free(head);
        }
    }
    pthread_mutex_destroy(&heads->mutex);
    free(heads);
}
