/*
 * A set of words that are equal in any case. Add all words, then look words up.
 */
#ifndef CLI_WORD_SET_H
#define CLI_WORD_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

/* A set; all zero is an empty one. Its fields are private to word_set.c. */
struct word_set {
    struct slice *words; /* owned; their bytes are borrowed */
    size_t count, size;
    bool sorted;
};

/* Adds a word, whose bytes must last as long as the set. */
void word_set_add(struct word_set *set, struct slice word);

/* Returns the equal word of the lowest address, which is the first one in a text; NULL: none. */
const struct slice *word_set_find(struct word_set *set, struct slice word);

void word_set_fini(struct word_set *set);

#endif
