/*
 * A list that keeps labels of its order: one comparison shows which of two elements comes first.
 *
 * Every element has a 64-bit label, ascending along the list. An element inserted between two
 * others gets a label between theirs. If there is no room, the labels of a small neighbourhood are
 * spread out. Source: Bender, Cole, Demaine, Farach-Colton and Zito, "Two simplified algorithms for
 * maintaining order in a list" (2002): O(log n) amortised per insertion.
 *
 * Labels change, but their order never does, so trees and heaps may use order_before as their
 * order. Elements are embedded and belong to the owner; a list is valid when zeroed.
 */
#ifndef CORE_ORDER_H
#define CORE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order_node {
    struct order_node *prev, *next;
    uint64_t label;
};

struct order {
    struct order_node *first, *last;
};

/* Inserts `node` after `where`, or at the front if `where` is NULL. */
void order_add_after(struct order *o, struct order_node *where, struct order_node *node);

void order_remove(struct order *o, struct order_node *node);

/* Is `a` before `b` (both in the same list)? */
static inline bool order_before(const struct order_node *a, const struct order_node *b)
{
    return a->label < b->label;
}

/* Aborts unless links and labels agree. Linear. */
void order_audit(const struct order *o);

#endif
