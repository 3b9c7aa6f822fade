/*
 * A search tree of embedded nodes, balanced by random priorities (a treap; Seidel and Aragon,
 * "Randomized search trees", 1996): expected depth O(log n) whatever the order of insertion.
 *
 * A node may keep a summary of its subtree; `update` computes it from the node and its children.
 * A tree is its root pointer, NULL when empty; the nodes are the owner's.
 */
#ifndef CORE_TREE_H
#define CORE_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct tree_node {
    struct tree_node *left, *right;
    uint32_t priority;
};

struct tree_type {
    bool (*less)(const struct tree_node *a, const struct tree_node *b); /* a total order */
    void (*update)(struct tree_node *node);                             /* or NULL */
};

/* Insert a node whose key is not in the tree; `priority` is a random number. */
void tree_add(const struct tree_type *type, struct tree_node **root, struct tree_node *node,
              uint32_t priority);

/* Take out a node that is in this tree. */
void tree_remove(const struct tree_type *type, struct tree_node **root, struct tree_node *node);

/* The least node, or NULL. */
struct tree_node *tree_first(struct tree_node *root);

/* Abort unless order and priorities hold; the number of nodes. Linear. */
uint64_t tree_audit(const struct tree_type *type, const struct tree_node *root);

#endif
