#include "destination_list.h"

void destination_list_init(struct destination_list *list, struct text_pool *pool,
                           struct spool_destination *top, size_t max)
{
    *list = (struct destination_list){.pool = pool, .top = top, .max = max};
}

void destination_list_init_by_name(struct destination_list *list, struct text_pool *pool,
                                   struct spool_destination *top, size_t max)
{
    destination_list_init(list, pool, top, max);
    list->by_name = true;
}

bool destination_list_is_full(const struct destination_list *list)
{
    return list->by_name && list->count == list->max;
}

int destination_order(const struct spool_destination *a, const struct spool_destination *b)
{
    int order = slice_compare(a->nexthop, b->nexthop);

    return order != 0 ? order : slice_compare(a->transport, b->transport);
}

static bool goes_before(const struct destination_list *list, const struct spool_destination *a,
                        const struct spool_destination *b)
{
    return !list->by_name && a->rcpts != b->rcpts ? a->rcpts > b->rcpts
                                                  : destination_order(a, b) < 0;
}

static void insert(struct destination_list *list, struct spool_destination d)
{
    size_t at;

    if (list->count < list->max) {
        list->count++;
    } else if (list->max == 0 || !goes_before(list, &d, &list->top[list->max - 1])) {
        return;
    }
    d.nexthop = text_pool_add(list->pool, d.nexthop);
    d.transport = text_pool_add(list->pool, d.transport);
    for (at = list->count - 1; at > 0 && goes_before(list, &d, &list->top[at - 1]); at--) {
        list->top[at] = list->top[at - 1];
    }
    list->top[at] = d;
}

static void end_current(struct destination_list *list)
{
    if (list->current.rcpts > 0) {
        insert(list, list->current);
    }
    list->current.rcpts = list->current.messages = 0;
    text_pool_clear(&list->texts);
}

void destination_list_add(struct destination_list *list, const struct spool_destination *d)
{
    struct spool_destination *current = &list->current;

    if (current->rcpts == 0 || destination_order(current, d) != 0) {
        end_current(list);
        current->nexthop = text_pool_add(&list->texts, d->nexthop);
        current->transport = text_pool_add(&list->texts, d->transport);
    }
    current->rcpts += d->rcpts;
    current->messages += d->messages;
}

size_t destination_list_end(struct destination_list *list)
{
    end_current(list);
    text_pool_fini(&list->texts);
    return list->count;
}
