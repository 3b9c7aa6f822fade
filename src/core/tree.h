/*
 * A search tree of embedded nodes, balanced by random priorities (a treap; Seidel and Aragon,
 * "Randomized search trees", 1996): expected depth O(log n) whatever the order of insertion.
 *
 * Nodes know their parents, so once the place is known an insertion or a removal is a few
 * rotations, O(1) expected, and compares nothing. Behind the last node, where most come, the place
 * is found without comparing along the way, too.
 *
 * A node may keep a summary of its subtree, of one of two kinds. Sums (of the weights of the nodes)
 * are kept here. Anything else is its owner's: `update` is called upwards from whatever has
 * changed, until it says that nothing changed here.
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
    uint32_t summary; /* of the subtree */
};

struct tree_type {
    bool (*less)(const struct tree_node *a, const struct tree_node *b); /* a total order */
    bool (*update)(struct tree_node *node); /* true when the summary is another; NULL: sums */
};

/* Insert a node whose key is not in the tree; `priority` is a random number. Where summaries are
 * sums, node->summary is its weight. */
void tree_add(const struct tree_type *type, struct tree_node **root, struct tree_node *node,
              uint32_t priority);

/* Insert behind `where`, before all when that is NULL. The order function must agree. */
void tree_add_after(const struct tree_type *type, struct tree_node **root, struct tree_node *where,
                    struct tree_node *node, uint32_t priority);

/* Take out a node that is in this tree. */
void tree_remove(const struct tree_type *type, struct tree_node **root, struct tree_node *node);

/* What the node's summary is made of has changed, or by how much its weight has. */
void tree_changed(const struct tree_type *type, struct tree_node *node);
void tree_weight_changed(struct tree_node *node, int64_t change);

/* The least or greatest node, or NULL. */
struct tree_node *tree_first(struct tree_node *root);
struct tree_node *tree_last(struct tree_node *root);

/* The node behind, or NULL. */
struct tree_node *tree_next(const struct tree_node *node);

/* Where summaries are sums: the sum over all nodes before this one. O(log n). */
uint64_t tree_sum_before(const struct tree_node *node);

/* Abort unless order, priorities and links hold; the number of nodes. Linear. */
uint64_t tree_audit(const struct tree_type *type, const struct tree_node *root);

#endif
