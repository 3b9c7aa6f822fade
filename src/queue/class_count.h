/*
 * What became of mail since the start, by class. Names of classes come from outside (class_header),
 * so only CLASS_COUNTS_MAX are counted by name; what is of others is counted under
 * CLASS_COUNT_OTHERS.
 */
#ifndef QUEUE_CLASS_COUNT_H
#define QUEUE_CLASS_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "class_name.h"
#include "measures.h"

#define CLASS_COUNTS_MAX   32
#define CLASS_COUNT_OTHERS "(others)" /* no name of a class */

struct class_count {
    char name[CLASS_NAME_MAX + 1]; /* empty: mail without a class */
    uint64_t submitted;            /* messages */
    uint64_t delivered, deferred;  /* recipients */
    struct measure delays[MEASURE_PHASES];
};

/* Zeroed there are none. */
struct class_counts {
    struct class_count at[CLASS_COUNTS_MAX + 1]; /* in the order in which they were first met */
    size_t count;
};

/* Where mail of this class is counted. */
struct class_count *class_count(struct class_counts *all, struct slice class_name);

#endif
