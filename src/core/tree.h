/*
 * A search tree of embedded nodes, balanced by random priorities (a treap; Seidel and Aragon,
 * "Randomized search trees", 1996): expected depth O(log n) in any order of insertion.
 *
 * Nodes have a pointer to their parent. So once the place is found, an insertion or a removal is a
 * few rotations, O(1) expected, without comparisons. Most nodes are added after the last one; this
 * place, too, is found without comparisons along the way.
 *
 * A node may keep a summary of its subtree, of one of two kinds. Sums (of the weights of the nodes)
 * are computed here: a node is marked when something below it is added or removed, and its sum is
 * computed when it is needed. So a queue that is filled at one end and emptied at the other pays
 * nothing for sums, and a query costs O(log n) plus the nodes marked since the previous one. Any
 * other summary is computed by the owner: `update` is called for the changed node and upwards,
 * until it returns false.
 *
 * A tree is its root pointer, NULL if empty; the nodes belong to the owner.
 */
#ifndef CORE_TREE_H
#define CORE_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct tree_node {
    struct tree_node *left, *right, *parent;
    uint32_t priority;
    uint32_t summary; /* of the subtree; TREE_STALE: a sum that must be computed again */
};

#define TREE_STALE UINT32_MAX

struct tree_type {
    bool (*less)(const struct tree_node *a, const struct tree_node *b); /* a total order */
    bool (*update)(
        struct tree_node *node); /* updates the summary and returns whether it changed; NULL:
                                  * `weight` is used */
    uint32_t (*weight)(
        const struct tree_node *node); /* returns a node's part of the sums, which stay below
                                        * TREE_STALE */
};

/* Inserts a node whose key is not in the tree; `priority` is a random number. */
void tree_add(const struct tree_type *type, struct tree_node **root, struct tree_node *node,
              uint32_t priority);

/* Inserts a node after `where`, or before all others if `where` is NULL. The order of the tree must
 * agree. */
void tree_add_after(const struct tree_type *type, struct tree_node **root, struct tree_node *where,
                    struct tree_node *node, uint32_t priority);

/* Removes a node that is in this tree. */
void tree_remove(const struct tree_type *type, struct tree_node **root, struct tree_node *node);

/* Updates the summaries after the node's own contribution, as its weight, has changed. */
void tree_changed(const struct tree_type *type, struct tree_node *node);

/* Returns the least or greatest node, or NULL. */
struct tree_node *tree_first(struct tree_node *root);
struct tree_node *tree_last(struct tree_node *root);

/* Returns the next node in order, or NULL. */
struct tree_node *tree_next(const struct tree_node *node);

/* Returns the sum of the weights of all nodes before this one. */
uint64_t tree_sum_before(const struct tree_type *type, const struct tree_node *node);

/* Aborts unless order, priorities, links and sums hold. Returns the number of nodes. Linear. */
uint64_t tree_audit(const struct tree_type *type, const struct tree_node *root);

#endif
