#include "nearest.h"

#include <string.h>

#define EDITS_MAX      3  /* maximum distance of a suggested name */
#define NAME_MAX_BYTES 64 /* longer names get no suggestion */

/* Returns Levenshtein's distance of two names of at most NAME_MAX_BYTES. */
static size_t distance(struct slice a, struct slice b)
{
    size_t row[NAME_MAX_BYTES + 1];

    for (size_t j = 0; j <= b.len; j++) {
        row[j] = j;
    }
    for (size_t i = 0; i < a.len; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < b.len; j++) {
            size_t best = diagonal + (ascii_lower(a.ptr[i]) != ascii_lower(b.ptr[j]));

            diagonal = row[j + 1];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j + 1] = diagonal + 1 < best ? diagonal + 1 : best;
        }
    }
    return row[b.len];
}

void nearest_init(struct nearest *n, struct slice typed)
{
    /* If more than about a third of a name is wrong, another word was meant. */
    size_t edits = (typed.len + 1) / 3;

    *n = (struct nearest){.typed = typed, .distance = (edits > EDITS_MAX ? EDITS_MAX : edits) + 1};
}

void nearest_try(struct nearest *n, const char *name)
{
    size_t d;

    if (n->typed.len > NAME_MAX_BYTES || strlen(name) > NAME_MAX_BYTES) {
        return;
    }
    d = distance(n->typed, slice_string(name));
    if (d < n->distance) {
        n->name = name;
        n->distance = d;
    }
}
