#include "slab.h"

#include <string.h>

#include "rng.h"
#include "unit.h"

#define OBJECTS 3000

struct object {
    uint32_t stamp;
    char rest[96];
};

static void objects_are_zeroed_and_apart_whatever_the_order(void **state)
{
    static const struct object zero;
    static struct object *objects[OBJECTS];
    struct slab slab;
    struct rng rng;

    (void)state;
    rng_init(&rng, 3);
    slab_init(&slab, sizeof(struct object));
    for (uint32_t step = 0; step < 100000; step++) {
        size_t i = rng_below(&rng, OBJECTS);

        if (objects[i] == NULL) {
            objects[i] = slab_new(&slab);
            assert_memory_equal(objects[i], &zero, sizeof zero);
            memset(objects[i], 0xff, sizeof *objects[i]);
            objects[i]->stamp = (uint32_t)i;
        } else {
            assert_int_equal(objects[i]->stamp, i);
            slab_free(&slab, objects[i]);
            objects[i] = NULL;
        }
    }
    for (size_t i = 0; i < OBJECTS; i++) {
        slab_free(&slab, objects[i]);
        objects[i] = NULL;
    }
    slab_fini(&slab);
}

static void empty_blocks_go_back(void **state)
{
    static struct object *objects[OBJECTS];
    struct slab slab;
    size_t full;

    (void)state;
    slab_init(&slab, sizeof(struct object));
    assert_int_equal(slab.bytes, 0);
    for (size_t i = 0; i < OBJECTS; i++) {
        objects[i] = slab_new(&slab);
    }
    full = slab.bytes;
    assert_true(full < OBJECTS * (sizeof(struct object) + 4) + SLAB_BLOCK);
    for (size_t i = 0; i < OBJECTS / 2; i++) {
        slab_free(&slab, objects[i]);
    }
    assert_true(slab.bytes < full / 2 + 3 * SLAB_BLOCK);
    for (size_t i = OBJECTS / 2; i < OBJECTS; i++) {
        slab_free(&slab, objects[i]);
    }
    assert_int_equal(slab.bytes, SLAB_BLOCK);
    slab_fini(&slab);
    assert_int_equal(slab.bytes, 0);
}

UNIT_MAIN(cmocka_unit_test(objects_are_zeroed_and_apart_whatever_the_order),
          cmocka_unit_test(empty_blocks_go_back))
