#include "busiest.h"

#include <string.h>

#include "mem.h"

static void forget(struct busiest_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        mem_free(list->destinations[i].dest);
    }
    list->count = 0;
}

void busiest_init(struct busiest *b)
{
    *b = (struct busiest){0};
}

void busiest_fini(struct busiest *b)
{
    forget(&b->found);
    forget(&b->told);
    forget(&b->troubled_found);
    forget(&b->troubled_told);
}

static void consider(struct busiest_list *list, uint64_t load, const struct sched_dest_info *info)
{
    size_t at = list->count;

    while (at > 0 && list->destinations[at - 1].load < load) {
        at--;
    }
    if (load == 0 || at == BUSIEST_MAX) {
        return;
    }
    if (list->count == BUSIEST_MAX) {
        mem_free(list->destinations[--list->count].dest);
    }
    memmove(&list->destinations[at + 1], &list->destinations[at],
            (list->count - at) * sizeof list->destinations[0]);
    list->destinations[at] =
        (struct busiest_destination){.load = load,
                                     .transport = info->transport,
                                     .dest = mem_copy(info->dest.ptr, info->dest.len)};
    list->count++;
}

void busiest_step(struct busiest *b, const struct sched *s, uint32_t budget)
{
    struct sched_dest_info info;

    for (uint32_t i = 0; i < budget; i++) {
        if (!sched_dest_each(s, &b->cursor, &info)) {
            forget(&b->told);
            b->told = b->found;
            b->found.count = 0;
            forget(&b->troubled_told);
            b->troubled_told = b->troubled_found;
            b->troubled_found.count = 0;
            b->cursor = 0;
            return;
        }
        consider(&b->found, (uint64_t)info.busy + info.waiting, &info);
        if (info.state == SCHED_DEST_DEAD_UNTIL || info.state == SCHED_DEST_PROBING) {
            consider(&b->troubled_found, UINT64_MAX - (uint64_t)info.since.us, &info);
        }
    }
}
