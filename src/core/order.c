#include "order.h"

#include <stddef.h>

#include "check.h"

/* Distance of an appended label, and label of the first element. Appending is by far the most
 * frequent insertion. It leaves room after each element for 2^32 others, and 2^31 elements fit
 * before any label must move. */
#define APPEND_GAP  (UINT64_C(1) << 32)
#define FIRST_LABEL (UINT64_C(1) << 62)

/* Spreads out the labels around `node`, in the smallest aligned range of 2^i labels that is less
 * than (2/3)^i full. A larger range is thus left sparser, and lasts longer. */
static void relabel(struct order_node *node)
{
    struct order_node *left = node, *right = node;
    uint64_t count = 1, allowed_q16 = UINT64_C(1) << 16;

    for (unsigned i = 1; i < 63; i++) {
        uint64_t size = UINT64_C(1) << i, start = node->label & ~(size - 1), step;

        allowed_q16 = allowed_q16 / 3 * 4; /* (4/3)^i = 2^i (2/3)^i */
        while (left->prev != NULL && left->prev->label >= start) {
            left = left->prev;
            count++;
        }
        while (right->next != NULL && right->next->label - start < size) {
            right = right->next;
            count++;
        }
        if (count >= allowed_q16 >> 16) {
            continue;
        }
        step = size / count;
        if (step < 4) {
            continue;
        }
        /* A label goes into the middle of its step, so that both ends of the range have room,
         * too. */
        for (struct order_node *n = left; count > 0; n = n->next, count--) {
            n->label = start + step / 2;
            start += step;
        }
        return;
    }
    UNREACHABLE("more elements than labels");
}

/* Returns a label between the neighbours, or 0 if there is none. */
static uint64_t label_between(const struct order_node *prev, const struct order_node *next)
{
    uint64_t low = prev != NULL ? prev->label : 0;

    if (next == NULL) {
        uint64_t room = UINT64_MAX - low;
        if (prev == NULL) {
            return FIRST_LABEL;
        }
        return room < 2 ? 0 : low + (room / 2 < APPEND_GAP ? room / 2 : APPEND_GAP);
    }
    return next->label - low < 2 ? 0 : low + (next->label - low) / 2;
}

void order_add_after(struct order *o, struct order_node *where, struct order_node *node)
{
    struct order_node *next = where != NULL ? where->next : o->first;

    node->label = label_between(where, next);
    if (node->label == 0) {
        relabel(where != NULL ? where : next);
        node->label = label_between(where, next);
        CHECK(node->label != 0);
    }
    node->prev = where;
    node->next = next;
    *(where != NULL ? &where->next : &o->first) = node;
    *(next != NULL ? &next->prev : &o->last) = node;
}

void order_remove(struct order *o, struct order_node *node)
{
    *(node->prev != NULL ? &node->prev->next : &o->first) = node->next;
    *(node->next != NULL ? &node->next->prev : &o->last) = node->prev;
    node->prev = node->next = NULL;
}

void order_audit(const struct order *o)
{
    const struct order_node *prev = NULL;

    for (const struct order_node *n = o->first; n != NULL; prev = n, n = n->next) {
        CHECK(n->prev == prev);
        CHECK(n->label > 0);
        CHECK(prev == NULL || prev->label < n->label);
    }
    CHECK(o->last == prev);
}
