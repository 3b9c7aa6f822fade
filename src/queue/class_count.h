/*
 * Counts of results of mail since the start, by class. Names of classes come from outside
 * (class_header), so only CLASS_COUNTS_MAX classes have counts of their own. All other classes
 * share the counts named CLASS_COUNT_OTHERS.
 */
#ifndef QUEUE_CLASS_COUNT_H
#define QUEUE_CLASS_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "class_name.h"
#include "measures.h"

#define CLASS_COUNTS_MAX   32
#define CLASS_COUNT_OTHERS "(others)" /* not a valid name of a class */

struct class_count {
    char name[CLASS_NAME_MAX + 1]; /* empty: mail without a class */
    uint64_t submitted;            /* messages */
    uint64_t delivered, deferred;  /* recipients */
    struct measure delays[MEASURE_PHASES];
};

/* Empty when zeroed. */
struct class_counts {
    struct class_count at[CLASS_COUNTS_MAX + 1]; /* in the order of their first mail */
    size_t count;
};

/* Returns the counts of a class, which are added if they are missing. */
struct class_count *class_count(struct class_counts *all, struct slice class_name);

#endif
