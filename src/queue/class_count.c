#include "class_count.h"

#include <stdio.h>

struct class_count *class_count(struct class_counts *all, struct slice class_name)
{
    struct class_count *c;

    for (size_t i = 0; i < all->count && i < CLASS_COUNTS_MAX; i++) {
        if (slice_equal(slice_string(all->at[i].name), class_name)) {
            return &all->at[i];
        }
    }
    if (all->count > CLASS_COUNTS_MAX) {
        return &all->at[CLASS_COUNTS_MAX];
    }
    c = &all->at[all->count++];
    if (c == &all->at[CLASS_COUNTS_MAX]) {
        class_name = SLICE(CLASS_COUNT_OTHERS);
    }
    (void)snprintf(c->name, sizeof c->name, "%.*s", SLICE_ARGS(class_name)); /* a class name fits */
    return c;
}
