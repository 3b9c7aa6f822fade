#include "destination_list.h"

#include "mem.h"

void destination_list_init(struct destination_list *list, struct text_pool *pool,
                           struct spool_destination *top, size_t max)
{
    *list = (struct destination_list){.pool = pool, .top = top, .max = max};
}

static bool goes_before(const struct spool_destination *a, const struct spool_destination *b)
{
    int order = slice_compare(a->nexthop, b->nexthop);

    if (a->rcpts != b->rcpts) {
        return a->rcpts > b->rcpts;
    }
    return order != 0 ? order < 0 : slice_compare(a->transport, b->transport) < 0;
}

static void insert(struct destination_list *list, struct spool_destination d)
{
    size_t at;

    if (list->count < list->max) {
        list->count++;
    } else if (list->max == 0 || !goes_before(&d, &list->top[list->max - 1])) {
        return;
    }
    d.nexthop = text_pool_add(list->pool, d.nexthop);
    d.transport = text_pool_add(list->pool, d.transport);
    for (at = list->count - 1; at > 0 && goes_before(&d, &list->top[at - 1]); at--) {
        list->top[at] = list->top[at - 1];
    }
    list->top[at] = d;
}

static void end_nexthop(struct destination_list *list)
{
    for (size_t i = 0; i < list->part_count; i++) {
        insert(list, (struct spool_destination){.transport = list->parts[i].transport,
                                                .nexthop = list->nexthop,
                                                .rcpts = list->parts[i].rcpts});
    }
    list->part_count = 0;
    text_pool_clear(&list->current);
}

void destination_list_add(struct destination_list *list, struct slice nexthop,
                          struct slice transport)
{
    if (list->part_count > 0 && !slice_equal(list->nexthop, nexthop)) {
        end_nexthop(list);
    }
    if (list->part_count == 0) {
        list->nexthop = text_pool_add(&list->current, nexthop);
    }
    for (size_t i = 0; i < list->part_count; i++) {
        if (slice_equal(list->parts[i].transport, transport)) {
            list->parts[i].rcpts++;
            return;
        }
    }
    if (list->part_count == list->part_size) {
        list->part_size = list->part_size == 0 ? 4 : 2 * list->part_size;
        list->parts = mem_resize(list->parts, list->part_size, sizeof list->parts[0]);
    }
    list->parts[list->part_count++] = (struct destination_part){
        .transport = text_pool_add(&list->current, transport), .rcpts = 1};
}

size_t destination_list_end(struct destination_list *list)
{
    end_nexthop(list);
    text_pool_fini(&list->current);
    mem_free(list->parts);
    return list->count;
}
