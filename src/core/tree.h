/*
 * A search tree of embedded nodes, balanced by random priorities (a treap; Seidel and Aragon,
 * "Randomized search trees", 1996): expected depth O(log n) whatever the order of insertion.
 *
 * Nodes know their parents, so once the place is known an insertion or a removal is a few
 * rotations, O(1) expected, and compares nothing. Behind the last node, where most come, the place
 * is found without comparing along the way, too.
 *
 * A node may keep a summary of its subtree, of one of two kinds. Sums (of the weights of the nodes)
 * are kept here: a node below which something has come or gone is marked until it is asked for, so
 * a queue that is filled at one end and emptied at the other pays nothing for them, and an answer
 * costs O(log n) and what was marked elsewhere since the last. Anything else is its owner's:
 * `update` is called upwards from whatever has changed, until it says that nothing changed here.
 *
 * A tree is its root pointer, NULL when empty; the nodes are the owner's.
 */
#ifndef CORE_TREE_H
#define CORE_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct tree_node {
    struct tree_node *left, *right, *parent;
    uint32_t priority;
    uint32_t summary; /* of the subtree; TREE_STALE: a sum that has to be added up again */
};

#define TREE_STALE UINT32_MAX

struct tree_type {
    bool (*less)(const struct tree_node *a, const struct tree_node *b); /* a total order */
    bool (*update)(struct tree_node *node); /* true when the summary is another; or NULL: */
    uint32_t (*weight)(const struct tree_node *node); /* summaries are sums, below TREE_STALE */
};

/* Insert a node whose key is not in the tree; `priority` is a random number. */
void tree_add(const struct tree_type *type, struct tree_node **root, struct tree_node *node,
              uint32_t priority);

/* Insert behind `where`, before all when that is NULL. The order function must agree. */
void tree_add_after(const struct tree_type *type, struct tree_node **root, struct tree_node *where,
                    struct tree_node *node, uint32_t priority);

/* Take out a node that is in this tree. */
void tree_remove(const struct tree_type *type, struct tree_node **root, struct tree_node *node);

/* What the node's summary is made of has changed: its weight, for one. */
void tree_changed(const struct tree_type *type, struct tree_node *node);

/* The least or greatest node, or NULL. */
struct tree_node *tree_first(struct tree_node *root);
struct tree_node *tree_last(struct tree_node *root);

/* The node behind, or NULL. */
struct tree_node *tree_next(const struct tree_node *node);

/* The sum of the weights of all nodes before this one. */
uint64_t tree_sum_before(const struct tree_type *type, const struct tree_node *node);

/* Abort unless order, priorities, links and sums hold; the number of nodes. Linear. */
uint64_t tree_audit(const struct tree_type *type, const struct tree_node *root);

#endif
