#include "tree.h"

#include <stddef.h>

#include "check.h"

/* ---- summaries ------------------------------------------------------------------------------ */

void tree_changed(const struct tree_type *type, struct tree_node *node)
{
    if (type->update != NULL) {
        while (node != NULL && type->update(node)) {
            node = node->parent;
        }
    } else {
        for (; node != NULL && node->summary != TREE_STALE; node = node->parent) {
            node->summary = TREE_STALE;
        }
    }
}

static uint32_t sum_below(const struct tree_node *node)
{
    return node != NULL ? node->summary : 0;
}

/* Summarizes a node again after its children changed, from the children's summaries. */
static void children_changed(const struct tree_type *type, struct tree_node *node)
{
    uint32_t left = sum_below(node->left), right = sum_below(node->right);

    if (type->update != NULL) {
        (void)type->update(node); /* the caller updates the nodes above */
    } else if (left == TREE_STALE || right == TREE_STALE) {
        node->summary = TREE_STALE;
    } else {
        node->summary = left + type->weight(node) + right;
    }
}

static uint32_t sum(const struct tree_type *type, struct tree_node *node)
{
    if (node == NULL) {
        return 0;
    }
    if (node->summary == TREE_STALE) {
        node->summary = sum(type, node->left) + type->weight(node) + sum(type, node->right);
    }
    return node->summary;
}

uint64_t tree_sum_before(const struct tree_type *type, const struct tree_node *node)
{
    uint64_t before = sum(type, node->left);

    for (; node->parent != NULL; node = node->parent) {
        if (node->parent->right == node) {
            before += sum(type, node->parent->left) + type->weight(node->parent);
        }
    }
    return before;
}

/* ---- structure ------------------------------------------------------------------------------ */

static void adopt(struct tree_node *parent, struct tree_node **child, struct tree_node *node)
{
    *child = node;
    if (node != NULL) {
        node->parent = parent;
    }
}

/* Returns the pointer in the tree that points to the node. */
static struct tree_node **holder(struct tree_node **root, struct tree_node *node)
{
    struct tree_node *parent = node->parent;

    return parent == NULL ? root : parent->left == node ? &parent->left : &parent->right;
}

/* Exchanges the node with its parent. */
static void rotate_up(struct tree_node **root, struct tree_node *node)
{
    struct tree_node *parent = node->parent;

    adopt(parent->parent, holder(root, parent), node);
    if (parent->left == node) {
        adopt(parent, &parent->left, node->right);
        adopt(node, &node->right, parent);
    } else {
        adopt(parent, &parent->right, node->left);
        adopt(node, &node->left, parent);
    }
}

/* Rotates a new leaf up to the place that its priority requires. */
static void settle(const struct tree_type *type, struct tree_node **root, struct tree_node *node)
{
    while (node->parent != NULL && node->priority > node->parent->priority) {
        struct tree_node *parent = node->parent;

        rotate_up(root, node);
        children_changed(type, parent);
    }
    children_changed(type, node);
    tree_changed(type, node->parent);
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
        rotate_up(root, node->left->priority >= node->right->priority ? node->left : node->right);
    }
    adopt(node->parent, holder(root, node), node->left != NULL ? node->left : node->right);
    for (struct tree_node *n = node->parent; n != above; n = n->parent) {
        children_changed(type, n); /* nodes that were rotated above it */
    }
    tree_changed(type, above);
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
    if (type->weight != NULL && node->summary != TREE_STALE) {
        CHECK(sum_below(node->left) != TREE_STALE);
        CHECK(sum_below(node->right) != TREE_STALE);
        CHECK(node->summary == sum_below(node->left) + type->weight(node) + sum_below(node->right));
    }
    return audit(type, node->left, node) + 1 + audit(type, node->right, node);
}

uint64_t tree_audit(const struct tree_type *type, const struct tree_node *root)
{
    return audit(type, root, NULL);
}
