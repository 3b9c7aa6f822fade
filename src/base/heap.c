#include "heap.h"

#include "check.h"
#include "mem.h"

void heap_init(struct heap *h, heap_less *less)
{
    *h = (struct heap){.less = less};
}

void heap_fini(struct heap *h)
{
    mem_free(h->nodes);
    heap_init(h, h->less);
}

void heap_node_init(struct heap_node *node)
{
    node->index = HEAP_NONE;
}

static void place(struct heap *h, struct heap_node *node, size_t index)
{
    h->nodes[index] = node;
    node->index = (uint32_t)index;
}

static void sift_up(struct heap *h, struct heap_node *node)
{
    size_t i = node->index;

    while (i > 0 && h->less(node, h->nodes[(i - 1) / 2])) {
        place(h, h->nodes[(i - 1) / 2], i);
        i = (i - 1) / 2;
    }
    place(h, node, i);
}

static void sift_down(struct heap *h, struct heap_node *node)
{
    size_t i = node->index;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= h->count) {
            break;
        }
        if (child + 1 < h->count && h->less(h->nodes[child + 1], h->nodes[child])) {
            child++;
        }
        if (!h->less(h->nodes[child], node)) {
            break;
        }
        place(h, h->nodes[child], i);
        i = child;
    }
    place(h, node, i);
}

void heap_add(struct heap *h, struct heap_node *node)
{
    CHECK(!heap_has(node));
    CHECK(h->count < HEAP_NONE);
    h->nodes = mem_grow(h->nodes, h->count, &h->size, sizeof(struct heap_node *));
    place(h, node, h->count++);
    sift_up(h, node);
}

void heap_remove(struct heap *h, struct heap_node *node)
{
    struct heap_node *last;
    size_t index = node->index;

    CHECK(index < h->count);
    CHECK(h->nodes[index] == node);
    last = h->nodes[--h->count];
    if (last != node) {
        place(h, last, index);
        heap_moved(h, last);
    }
    node->index = HEAP_NONE;
}

void heap_moved(struct heap *h, struct heap_node *node)
{
    CHECK(node->index < h->count);
    CHECK(h->nodes[node->index] == node);
    sift_up(h, node);
    sift_down(h, node);
}

void heap_audit(const struct heap *h)
{
    CHECK(h->count <= h->size);
    for (size_t i = 0; i < h->count; i++) {
        CHECK(h->nodes[i]->index == i);
        CHECK(i == 0 || !h->less(h->nodes[i], h->nodes[(i - 1) / 2]));
    }
}
