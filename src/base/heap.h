/*
 * A binary heap of pointers to embedded nodes; the least node is on top.
 *
 * A node stores its own index, so it is removed or moved in O(log n) from anywhere, as a timer is
 * when cancelled. The heap owns only its array. Equal nodes are returned in any order, so the order
 * function must break ties itself (by a sequence number) where determinism matters.
 *
 * Invariant: nodes[i]->index == i, and no node is less than its parent.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    uint32_t index; /* HEAP_NONE if in no heap */
};

#define HEAP_NONE UINT32_MAX /* the heap must have fewer nodes */

/* Is `a` less than `b`, so that `a` is returned first? */
typedef bool heap_less(const struct heap_node *a, const struct heap_node *b);

struct heap {
    struct heap_node **nodes; /* owned array of borrowed nodes */
    size_t count;
    size_t size;
    heap_less *less;
};

/* Gives the struct that embeds `member`, from a pointer to that member. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

void heap_init(struct heap *h, heap_less *less);

/* Releases the array; the nodes belong to the caller. */
void heap_fini(struct heap *h);

void heap_node_init(struct heap_node *node);

static inline bool heap_has(const struct heap_node *node)
{
    return node->index != HEAP_NONE;
}

/* Returns the least node, or NULL. */
static inline struct heap_node *heap_top(const struct heap *h)
{
    return h->count == 0 ? NULL : h->nodes[0];
}

/* Inserts a node that is in no heap. */
void heap_add(struct heap *h, struct heap_node *node);

/* Removes a node that is in this heap. */
void heap_remove(struct heap *h, struct heap_node *node);

/* Moves a node that is in this heap, after its key changed. */
void heap_moved(struct heap *h, struct heap_node *node);

/* Aborts unless the invariants hold. */
void heap_audit(const struct heap *h);

#endif
