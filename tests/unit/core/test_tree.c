#include "tree.h"

#include "check.h"
#include "heap.h"
#include "rng.h"
#include "unit.h"

#define NODES 300

struct thing {
    struct tree_node node;
    uint32_t key, weight;
    bool in;
};

#define THING(n) CONTAINER_OF(n, struct thing, node)

static bool less(const struct tree_node *a, const struct tree_node *b)
{
    return THING(a)->key < THING(b)->key;
}

static uint32_t sum(const struct tree_node *n)
{
    return n != NULL ? n->summary : 0;
}

static bool update(struct tree_node *n)
{
    uint32_t before = n->summary;

    n->summary = sum(n->left) + THING(n)->weight + sum(n->right);
    return n->summary != before;
}

static const struct tree_type type = {less, update};

/* Against the array the things are in, whose order is theirs. */
static void compare(struct tree_node *root, const struct thing *things)
{
    const struct tree_node *at = tree_first(root), *last = NULL;
    uint64_t before = 0, count = 0;

    for (size_t i = 0; i < NODES; i++) {
        if (things[i].in) {
            assert_ptr_equal(at, &things[i].node);
            assert_int_equal(tree_sum_before(at), before);
            before += things[i].weight;
            count++;
            last = at;
            at = tree_next(at);
        }
    }
    assert_null(at);
    assert_ptr_equal(tree_last(root), last);
    assert_int_equal(sum(root), before);
    assert_int_equal(tree_audit(&type, root), count);
}

static struct tree_node *in_before(struct thing *things, size_t i)
{
    while (i-- > 0) {
        if (things[i].in) {
            return &things[i].node;
        }
    }
    return NULL;
}

static void links_and_sums_hold_whatever_comes_and_goes(void **state)
{
    struct thing things[NODES] = {0};
    struct tree_node *root = NULL;
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (uint32_t i = 0; i < NODES; i++) {
        things[i].key = i;
    }
    for (int step = 0; step < 20000; step++) {
        size_t i = rng_below(&rng, NODES);
        struct thing *thing = &things[i];

        if (!thing->in) {
            thing->weight = (uint32_t)rng_below(&rng, 5);
            if (rng_below(&rng, 2) == 0) {
                tree_add(&type, &root, &thing->node, (uint32_t)rng_next(&rng));
            } else {
                tree_add_after(&type, &root, in_before(things, i), &thing->node,
                               (uint32_t)rng_next(&rng));
            }
            thing->in = true;
        } else if (rng_below(&rng, 3) == 0) {
            thing->weight += 1000;
            tree_changed(&type, &thing->node);
        } else {
            tree_remove(&type, &root, &thing->node);
            thing->in = false;
        }
        if (step % 64 == 0) {
            compare(root, things);
        }
    }
    compare(root, things);
}

UNIT_MAIN(cmocka_unit_test(links_and_sums_hold_whatever_comes_and_goes))
