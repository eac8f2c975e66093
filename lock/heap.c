/* SPDX-License-Identifier: Apache-2.0
 *
 * See heap.h. A pairing heap: adding a node costs one comparison, taking the first one costs a few.
 */
#include "heap.h"

/* Joins two roots: the later one becomes the first child of the other. */
static struct heap_node *meld(struct heap_node *a, struct heap_node *b)
{
    if (a == NULL || b == NULL)
        return a != NULL ? a : b;
    struct heap_node *above = b->at_ns < a->at_ns ? b : a;
    struct heap_node *under = above == a ? b : a;
    under->next = above->below;
    if (under->next != NULL)
        under->next->before = under;
    under->before = above;
    above->below = under;
    return above;
}

static struct heap_node *cut_off(struct heap_node *node)
{
    if (node != NULL)
        node->next = node->before = NULL;
    return node;
}

/* Joins a list of siblings: first in pairs, then pair by pair. */
static struct heap_node *meld_all(struct heap_node *node)
{
    struct heap_node *pairs = NULL;
    struct heap_node *all = NULL;
    while (node != NULL) {
        struct heap_node *other = node->next;
        struct heap_node *rest = other != NULL ? other->next : NULL;
        struct heap_node *pair = meld(cut_off(node), cut_off(other));
        pair->next = pairs;
        pairs = pair;
        node = rest;
    }
    while (pairs != NULL) {
        struct heap_node *rest = pairs->next;
        all = meld(all, cut_off(pairs));
        pairs = rest;
    }
    return all;
}

void heap_take(struct heap_node *node)
{
    struct heap *heap = node->in;
    if (heap == NULL)
        return;
    struct heap_node *under = meld_all(node->below);
    if (heap->first == node) {
        heap->first = under;
    } else {
        if (node->before->below == node)
            node->before->below = node->next;
        else
            node->before->next = node->next;
        if (node->next != NULL)
            node->next->before = node->before;
        heap->first = meld(heap->first, under);
    }
    *node = (struct heap_node){0};
}

void heap_put(struct heap *heap, struct heap_node *node, int64_t at_ns)
{
    heap_take(node);
    if (at_ns == INT64_MAX)
        return;
    node->in = heap;
    node->at_ns = at_ns;
    heap->first = meld(heap->first, node);
}

/* The node after this one: a parent is before its children. deeper: its own children count. */
static const struct heap_node *heap_next(const struct heap_node *node, bool deeper)
{
    if (deeper && node->below != NULL)
        return node->below;
    while (node != NULL && node->next == NULL) {
        while (node->before != NULL && node->before->below != node)
            node = node->before;
        node = node->before; /* the parent */
    }
    return node != NULL ? node->next : NULL;
}

int64_t heap_soonest_from_ns(const struct heap *heap, int64_t from_ns)
{
    int64_t soonest_ns = INT64_MAX;
    for (const struct heap_node *node = heap->first; node != NULL;
         node = heap_next(node, node->at_ns < from_ns))
        if (node->at_ns >= from_ns && node->at_ns < soonest_ns)
            soonest_ns = node->at_ns;
    return soonest_ns;
}
