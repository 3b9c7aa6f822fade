#include "tree.h"

#include <stddef.h>

#include "check.h"

void tree_changed(const struct tree_type *type, struct tree_node *node)
{
    while (node != NULL && type->update(node)) {
        node = node->parent;
    }
}

void tree_weight_changed(struct tree_node *node, int64_t change)
{
    for (; node != NULL; node = node->parent) {
        node->summary = (uint32_t)(node->summary + change);
    }
}

static void adopt(struct tree_node *parent, struct tree_node **child, struct tree_node *node)
{
    *child = node;
    if (node != NULL) {
        node->parent = parent;
    }
}

/* Where the tree points to the node from. */
static struct tree_node **holder(struct tree_node **root, struct tree_node *node)
{
    struct tree_node *parent = node->parent;

    return parent == NULL ? root : parent->left == node ? &parent->left : &parent->right;
}

static uint32_t sum(const struct tree_node *node)
{
    return node != NULL ? node->summary : 0;
}

/* The node changes places with its parent. */
static void rotate_up(const struct tree_type *type, struct tree_node **root, struct tree_node *node)
{
    struct tree_node *parent = node->parent;
    struct tree_node *moved = parent->left == node ? node->right : node->left;

    if (type->update == NULL) {
        uint32_t all = parent->summary;

        parent->summary = all - node->summary + sum(moved);
        node->summary = all;
    }
    adopt(parent->parent, holder(root, parent), node);
    if (parent->left == node) {
        adopt(parent, &parent->left, moved);
        adopt(node, &node->right, parent);
    } else {
        adopt(parent, &parent->right, moved);
        adopt(node, &node->left, parent);
    }
}

/* The node was hung in as a leaf. */
static void settle(const struct tree_type *type, struct tree_node **root, struct tree_node *node)
{
    if (type->update == NULL) {
        tree_weight_changed(node->parent, node->summary);
    }
    while (node->parent != NULL && node->priority > node->parent->priority) {
        struct tree_node *parent = node->parent;

        rotate_up(type, root, node);
        if (type->update != NULL) {
            (void)type->update(parent); /* all above are told below */
        }
    }
    if (type->update != NULL) {
        (void)type->update(node); /* new here, so those above have changed whatever it says */
        tree_changed(type, node->parent);
    }
}

void tree_add_after(const struct tree_type *type, struct tree_node **root, struct tree_node *where,
                    struct tree_node *node, uint32_t priority)
{
    node->left = node->right = NULL;
    node->priority = priority;
    if (where != NULL && where->right == NULL) {
        adopt(where, &where->right, node);
    } else {
        struct tree_node *next = tree_first(where != NULL ? where->right : *root);

        adopt(next, next != NULL ? &next->left : root, node);
    }
    settle(type, root, node);
}

void tree_add(const struct tree_type *type, struct tree_node **root, struct tree_node *node,
              uint32_t priority)
{
    struct tree_node *where = tree_last(*root);

    if (where != NULL && !type->less(where, node)) {
        struct tree_node *at = *root;

        where = NULL;
        while (at != NULL) {
            if (type->less(at, node)) {
                where = at;
                at = at->right;
            } else {
                at = at->left;
            }
        }
    }
    tree_add_after(type, root, where, node, priority);
}

void tree_remove(const struct tree_type *type, struct tree_node **root, struct tree_node *node)
{
    struct tree_node *above = node->parent;

    CHECK(*holder(root, node) == node);
    while (node->left != NULL && node->right != NULL) {
        rotate_up(type, root,
                  node->left->priority >= node->right->priority ? node->left : node->right);
    }
    if (type->update == NULL) {
        tree_weight_changed(node->parent,
                            (int64_t)sum(node->left) + sum(node->right) - node->summary);
    }
    adopt(node->parent, holder(root, node), node->left != NULL ? node->left : node->right);
    if (type->update != NULL) {
        /* What was rotated above it has other children, whatever is said further down. */
        for (struct tree_node *n = node->parent; n != above; n = n->parent) {
            (void)type->update(n);
        }
        tree_changed(type, above);
    }
    node->left = node->right = node->parent = NULL;
}

struct tree_node *tree_first(struct tree_node *root)
{
    while (root != NULL && root->left != NULL) {
        root = root->left;
    }
    return root;
}

struct tree_node *tree_last(struct tree_node *root)
{
    while (root != NULL && root->right != NULL) {
        root = root->right;
    }
    return root;
}

struct tree_node *tree_next(const struct tree_node *node)
{
    if (node->right != NULL) {
        return tree_first(node->right);
    }
    while (node->parent != NULL && node->parent->right == node) {
        node = node->parent;
    }
    return node->parent;
}

uint64_t tree_sum_before(const struct tree_node *node)
{
    uint64_t sum = node->left != NULL ? node->left->summary : 0;

    for (; node->parent != NULL; node = node->parent) {
        if (node->parent->right == node) {
            sum += node->parent->summary - node->summary;
        }
    }
    return sum;
}

static uint64_t audit(const struct tree_type *type, const struct tree_node *node,
                      const struct tree_node *parent)
{
    if (node == NULL) {
        return 0;
    }
    CHECK(node->parent == parent);
    CHECK(parent == NULL || node->priority <= parent->priority);
    CHECK(node->left == NULL || type->less(node->left, node));
    CHECK(node->right == NULL || type->less(node, node->right));
    return audit(type, node->left, node) + 1 + audit(type, node->right, node);
}

uint64_t tree_audit(const struct tree_type *type, const struct tree_node *root)
{
    return audit(type, root, NULL);
}
