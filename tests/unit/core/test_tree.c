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

static uint32_t weight(const struct tree_node *n)
{
    return THING(n)->weight;
}

static const struct tree_type sums = {.less = less, .weight = weight};

/* The other kind of summary: the greatest weight. */
static uint32_t greatest(const struct tree_node *n)
{
    return n != NULL ? n->summary : 0;
}

static bool greatest_update(struct tree_node *n)
{
    uint32_t before = n->summary, left = greatest(n->left), right = greatest(n->right);

    n->summary = left > right ? left : right;
    n->summary = n->summary > THING(n)->weight ? n->summary : THING(n)->weight;
    return n->summary != before;
}

static const struct tree_type maxima = {.less = less, .update = greatest_update};

/* Against the array the things are in, whose order is theirs. */
static void compare(const struct tree_type *type, struct tree_node *root,
                    const struct thing *things, size_t ask_mask)
{
    struct tree_node *at = tree_first(root), *last = NULL;
    uint64_t before = 0, count = 0;
    uint32_t most = 0;

    for (size_t i = 0; i < NODES; i++) {
        if (things[i].in) {
            assert_ptr_equal(at, &things[i].node);
            if (type == &sums && (i & ask_mask) == 0) { /* all or few of them are asked */
                assert_int_equal(tree_sum_before(&sums, at), before);
            }
            before += things[i].weight;
            most = things[i].weight > most ? things[i].weight : most;
            count++;
            last = at;
            at = tree_next(at);
        }
    }
    assert_null(at);
    assert_ptr_equal(tree_last(root), last);
    assert_true(type == &sums || root == NULL || root->summary == most);
    assert_int_equal(tree_audit(type, root), count);
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

static void add(const struct tree_type *type, struct tree_node **root, struct thing *things,
                size_t i, struct rng *rng)
{
    struct thing *thing = &things[i];

    thing->weight = (uint32_t)rng_below(rng, 5);
    thing->in = true;
    if (rng_below(rng, 2) == 0) {
        tree_add(type, root, &thing->node, (uint32_t)rng_next(rng));
    } else {
        tree_add_after(type, root, in_before(things, i), &thing->node, (uint32_t)rng_next(rng));
    }
}

static void random_life(const struct tree_type *type)
{
    struct thing things[NODES] = {0};
    struct tree_node *root = NULL;
    struct rng rng;

    rng_init(&rng, 5);
    for (uint32_t i = 0; i < NODES; i++) {
        things[i].key = i;
    }
    for (int step = 0; step < 20000; step++) {
        size_t i = rng_below(&rng, NODES);

        if (!things[i].in) {
            add(type, &root, things, i, &rng);
        } else if (rng_below(&rng, 3) == 0) {
            things[i].weight = (uint32_t)rng_below(&rng, 1000);
            tree_changed(type, &things[i].node);
        } else {
            tree_remove(type, &root, &things[i].node);
            things[i].in = false;
        }
        if (step % 64 == 0) {
            compare(type, root, things, (size_t)step / 64 % 4 * 21);
        }
    }
    compare(type, root, things, 0);
}

static void links_and_sums_hold_whatever_comes_and_goes(void **state)
{
    (void)state;
    random_life(&sums);
}

static void other_summaries_are_told_of_every_change(void **state)
{
    (void)state;
    random_life(&maxima);
}

UNIT_MAIN(cmocka_unit_test(links_and_sums_hold_whatever_comes_and_goes),
          cmocka_unit_test(other_summaries_are_told_of_every_change))
