/* SPDX-License-Identifier: Apache-2.0
 *
 * Things in the order of their moments. The places are inside the things, so that nothing here can
 * fail for want of memory. Not locked: whoever has a heap protects it.
 */
#ifndef DLOCK_HEAP_H
#define DLOCK_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: it is empty. */
struct heap {
    struct heap_node *first; /* the soonest, or NULL */
};

/* All zero: it is in no heap. */
struct heap_node {
    struct heap *in; /* NULL: in none */
    int64_t at_ns;
    struct heap_node *below;  /* the first of those under it, none of which is sooner */
    struct heap_node *next;   /* beside it, under the same */
    struct heap_node *before; /* beside it; of the first the one above */
};

/* Puts it there, wherever it was. INT64_MAX: in no heap. */
void heap_put(struct heap *heap, struct heap_node *node, int64_t at_ns);
/* Takes it out of its heap, if it is in one. */
void heap_take(struct heap_node *node);

/* INT64_MAX: it is empty. */
static inline int64_t heap_soonest_ns(const struct heap *heap)
{
    return heap->first != NULL ? heap->first->at_ns : INT64_MAX;
}

/* The thing that the node is a member of; NULL gives NULL. */
#define HEAP_THING(node, type, member) ((type *)heap_thing(node, offsetof(type, member)))
static inline void *heap_thing(struct heap_node *node, size_t offset)
{
    return node != NULL ? (char *)node - offset : NULL;
}

#endif
