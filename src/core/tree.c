#include "tree.h"

#include <stddef.h>

#include "check.h"

static void update(const struct tree_type *type, struct tree_node *node)
{
    if (type->update != NULL) {
        type->update(node);
    }
}

/* Divide into the nodes before `key` and the others. */
static void split(const struct tree_type *type, struct tree_node *root, const struct tree_node *key,
                  struct tree_node **ret_before, struct tree_node **ret_rest)
{
    if (root == NULL) {
        *ret_before = *ret_rest = NULL;
        return;
    }
    if (type->less(root, key)) {
        *ret_before = root;
        split(type, root->right, key, &root->right, ret_rest);
    } else {
        *ret_rest = root;
        split(type, root->left, key, ret_before, &root->left);
    }
    update(type, root);
}

static struct tree_node *merge(const struct tree_type *type, struct tree_node *a,
                               struct tree_node *b)
{
    if (a == NULL || b == NULL) {
        return a == NULL ? b : a;
    }
    if (a->priority >= b->priority) {
        a->right = merge(type, a->right, b);
        update(type, a);
        return a;
    }
    b->left = merge(type, a, b->left);
    update(type, b);
    return b;
}

static struct tree_node *add(const struct tree_type *type, struct tree_node *root,
                             struct tree_node *node)
{
    if (root == NULL || node->priority > root->priority) {
        split(type, root, node, &node->left, &node->right);
        update(type, node);
        return node;
    }
    if (type->less(node, root)) {
        root->left = add(type, root->left, node);
    } else {
        root->right = add(type, root->right, node);
    }
    update(type, root);
    return root;
}

void tree_add(const struct tree_type *type, struct tree_node **root, struct tree_node *node,
              uint32_t priority)
{
    node->priority = priority;
    *root = add(type, *root, node);
}

static struct tree_node *take(const struct tree_type *type, struct tree_node *root,
                              struct tree_node *node)
{
    CHECK(root != NULL);
    if (root == node) {
        return merge(type, node->left, node->right);
    }
    if (type->less(node, root)) {
        root->left = take(type, root->left, node);
    } else {
        root->right = take(type, root->right, node);
    }
    update(type, root);
    return root;
}

void tree_remove(const struct tree_type *type, struct tree_node **root, struct tree_node *node)
{
    *root = take(type, *root, node);
    node->left = node->right = NULL;
}

struct tree_node *tree_first(struct tree_node *root)
{
    while (root != NULL && root->left != NULL) {
        root = root->left;
    }
    return root;
}

uint64_t tree_audit(const struct tree_type *type, const struct tree_node *root)
{
    if (root == NULL) {
        return 0;
    }
    for (int side = 0; side < 2; side++) {
        const struct tree_node *child = side == 0 ? root->left : root->right;
        if (child != NULL) {
            CHECK(child->priority <= root->priority);
            CHECK(side == 0 ? type->less(child, root) : type->less(root, child));
        }
    }
    return tree_audit(type, root->left) + 1 + tree_audit(type, root->right);
}
