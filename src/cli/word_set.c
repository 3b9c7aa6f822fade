#include "word_set.h"

#include <stdint.h>
#include <stdlib.h>

#include "mem.h"

void word_set_add(struct word_set *set, struct slice word)
{
    set->words = mem_grow(set->words, set->count, &set->size, sizeof *set->words);
    set->words[set->count++] = word;
    set->sorted = false;
}

static int compare_nocase(struct slice a, struct slice b)
{
    size_t len = a.len < b.len ? a.len : b.len;

    for (size_t i = 0; i < len; i++) {
        int difference =
            (unsigned char)ascii_lower(a.ptr[i]) - (unsigned char)ascii_lower(b.ptr[i]);

        if (difference != 0) {
            return difference;
        }
    }
    return a.len < b.len ? -1 : a.len > b.len;
}

static int compare(const void *first, const void *second)
{
    const struct slice *a = first, *b = second;
    int difference = compare_nocase(*a, *b);

    return difference != 0
               ? difference
               : ((uintptr_t)a->ptr > (uintptr_t)b->ptr) - ((uintptr_t)a->ptr < (uintptr_t)b->ptr);
}

const struct slice *word_set_find(struct word_set *set, struct slice word)
{
    size_t low = 0, high = set->count;

    if (!set->sorted && set->count > 0) {
        qsort(set->words, set->count, sizeof *set->words, compare);
        set->sorted = true;
    }
    while (low < high) { /* all before `low` are less, all from `high` are not */
        size_t middle = low + (high - low) / 2;

        if (compare_nocase(set->words[middle], word) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < set->count && compare_nocase(set->words[low], word) == 0 ? &set->words[low] : NULL;
}

void word_set_fini(struct word_set *set)
{
    mem_free(set->words);
    *set = (struct word_set){.count = 0};
}
