#include "unit.h"

#include "heap.h"
#include "rng.h"

struct item {
    struct heap_node node;
    uint64_t key;
};

static bool less(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF(a, struct item, node)->key < CONTAINER_OF(b, struct item, node)->key;
}

static void the_least_comes_out_first_whatever_happened_before(void **state)
{
    struct item items[200];
    struct heap heap;
    struct rng rng;
    uint64_t last = 0;
    size_t count = 0;

    (void)state;
    rng_init(&rng, 7);
    heap_init(&heap, less);
    for (size_t i = 0; i < COUNT(items); i++) {
        heap_node_init(&items[i].node);
    }
    for (int step = 0; step < 5000; step++) {
        struct item *item = &items[rng_below(&rng, COUNT(items))];
        item->key = heap_has(&item->node) ? item->key : rng_below(&rng, 1000);
        if (!heap_has(&item->node)) {
            heap_add(&heap, &item->node);
        } else if (rng_below(&rng, 2) == 0) {
            heap_remove(&heap, &item->node);
            assert_false(heap_has(&item->node));
        } else {
            item->key = rng_below(&rng, 1000);
            heap_moved(&heap, &item->node);
        }
        heap_audit(&heap);
    }
    count = heap.count;
    while (heap_top(&heap) != NULL) {
        struct item *item = CONTAINER_OF(heap_top(&heap), struct item, node);
        assert_true(item->key >= last);
        last = item->key;
        heap_remove(&heap, &item->node);
        count--;
    }
    assert_int_equal(count, 0);
    heap_fini(&heap);
}

UNIT_MAIN(cmocka_unit_test(the_least_comes_out_first_whatever_happened_before))
