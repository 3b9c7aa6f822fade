#include "order.h"

#include "heap.h"
#include "mem.h"
#include "rng.h"
#include "tree.h"
#include "unit.h"

#define NODES 5000

struct item {
    struct order_node order;
    struct tree_node tree;
};

static void appending_keeps_the_order(void **state)
{
    struct order_node *nodes = mem_array(NODES, sizeof *nodes);
    struct order o = {0};

    (void)state;
    for (size_t i = 0; i < NODES; i++) {
        order_add_after(&o, o.last, &nodes[i]);
    }
    order_audit(&o);
    assert_true(order_before(&nodes[0], &nodes[NODES - 1]));
    mem_free(nodes);
}

/* The worst case for labels: the gap is halved each time. */
static void inserting_at_one_place_finds_room_again_and_again(void **state)
{
    static const char *const places[] = {"front", "behind the first", "before the last"};
    struct order_node *nodes = mem_array(NODES, sizeof *nodes);

    (void)state;
    for (size_t place = 0; place < COUNT(places); place++) {
        struct order o = {0};

        order_add_after(&o, NULL, &nodes[0]);
        order_add_after(&o, o.last, &nodes[1]);
        for (size_t i = 2; i < NODES; i++) {
            struct order_node *where[] = {NULL, o.first, o.last->prev};
            order_add_after(&o, where[place], &nodes[i]);
            assert_true(nodes[i].prev == where[place]);
        }
        order_audit(&o);
    }
    mem_free(nodes);
}

static bool less(const struct tree_node *a, const struct tree_node *b)
{
    return order_before(&CONTAINER_OF(a, struct item, tree)->order,
                        &CONTAINER_OF(b, struct item, tree)->order);
}

static uint32_t one(const struct tree_node *n)
{
    (void)n;
    return 1;
}

/* Labels move while a tree is ordered by them; their order does not. */
static void a_tree_by_labels_stays_a_tree_while_labels_move(void **state)
{
    static const struct tree_type type = {.less = less, .weight = one};
    struct item *items = mem_array(NODES, sizeof *items);
    struct tree_node *root = NULL;
    struct order o = {0};
    struct rng rng;
    size_t count = 0;
    bool in[NODES] = {false};

    (void)state;
    rng_init(&rng, 1);
    for (size_t step = 0; step < (size_t)4 * NODES; step++) {
        size_t i = (size_t)rng_below(&rng, NODES);

        if (in[i]) {
            tree_remove(&type, &root, &items[i].tree);
            order_remove(&o, &items[i].order);
            count--;
        } else {
            order_add_after(&o, o.first != NULL ? o.first->next : NULL, &items[i].order);
            tree_add(&type, &root, &items[i].tree, (uint32_t)rng_next(&rng));
            count++;
        }
        in[i] = !in[i];
        assert_true(o.first == NULL
                        ? root == NULL
                        : tree_first(root) == &CONTAINER_OF(o.first, struct item, order)->tree);
        if (step % 500 == 0) {
            order_audit(&o);
            assert_int_equal(tree_audit(&type, root), count);
        }
    }
    mem_free(items);
}

UNIT_MAIN(cmocka_unit_test(appending_keeps_the_order),
          cmocka_unit_test(inserting_at_one_place_finds_room_again_and_again),
          cmocka_unit_test(a_tree_by_labels_stays_a_tree_while_labels_move))
