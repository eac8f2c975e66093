/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap of nodes, ordered by time. Each node is a member of the caller's struct, so no operation
 * allocates memory. The heap has no lock: the caller must protect it.
 */
#ifndef DLOCK_HEAP_H
#define DLOCK_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: it is empty. */
struct heap {
    struct heap_node *first; /* the earliest, or NULL */
};

/* All zero: it is in no heap. */
struct heap_node {
    struct heap *in; /* the heap it is in, or NULL */
    int64_t at_ns;
    struct heap_node *below;  /* its first child; no child is earlier than its parent */
    struct heap_node *next;   /* the next child of the same parent */
    struct heap_node *before; /* the previous one; of a first child, the parent */
};

/* Moves the node to this heap and this time. INT64_MAX: takes it out of its heap. */
void heap_put(struct heap *heap, struct heap_node *node, int64_t at_ns);
/* Takes the node out of its heap, if it is in one. */
void heap_take(struct heap_node *node);

/* The time of the first node. INT64_MAX: the heap is empty. */
static inline int64_t heap_soonest_ns(const struct heap *heap)
{
    return heap->first != NULL ? heap->first->at_ns : INT64_MAX;
}

/* The time of the first node that is not before from_ns. INT64_MAX: there is none. Costs as many
 * steps as nodes are before from_ns. */
int64_t heap_soonest_from_ns(const struct heap *heap, int64_t from_ns);

/* The struct of which the node is a member; NULL for NULL. */
#define HEAP_THING(node, type, member) ((type *)heap_thing(node, offsetof(type, member)))
static inline void *heap_thing(struct heap_node *node, size_t offset)
{
    return node != NULL ? (char *)node - offset : NULL;
}

#endif
