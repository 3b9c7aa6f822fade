#include "whole.h"

#include <errno.h>
#include <stdlib.h>

#include "mem.h"
#include "spool_others.h"

size_t whole_want(struct spool *sp, struct msg_id id, bool *ret_is_at_hand)
{
    struct spool_message m;
    int rc = spool_has_others(sp) ? spool_want(sp, id, SPOOL_WANT_ROWS) : -ENOENT;

    *ret_is_at_hand = rc != -EAGAIN;
    if (rc != 0 || spool_read(sp, id, &m) != 0 || !m.gathers) {
        return 1;
    }
    *ret_is_at_hand = spool_parts_want(sp, id) != -EAGAIN;
    return 1 + (m.rcpt_total < SPOOL_PARTITIONS_MAX ? m.rcpt_total : SPOOL_PARTITIONS_MAX);
}

/* Combined facts of the parts. */
struct sum {
    bool has[SPOOL_CORRUPT + 1]; /* states of the parts */
    struct wall due;
    uint64_t pending;
    bool force_expire;
};

static void add_up(struct spool *sp, struct whole *w, struct sum *ret_sum)
{
    *ret_sum = (struct sum){.due = WALL_NEVER};
    for (size_t i = 1; i < w->count; i++) {
        struct spool_message part;

        if (spool_read(sp, w->rows[i], &part) != 0) {
            continue;
        }
        ret_sum->has[part.state] = true;
        ret_sum->due = wall_min(ret_sum->due, part.due);
        ret_sum->pending += part.rcpt_pending;
        ret_sum->force_expire = ret_sum->force_expire || part.force_expire;
        w->is_active = w->is_active || spool_is_claimed(sp, w->rows[i]);
    }
}

static enum spool_state worst_state(const struct sum *sum)
{
    return sum->has[SPOOL_CORRUPT]    ? SPOOL_CORRUPT
           : sum->has[SPOOL_HOLD]     ? SPOOL_HOLD
           : sum->has[SPOOL_DEFERRED] ? SPOOL_DEFERRED
                                      : SPOOL_INCOMING;
}

int whole_read(struct spool *sp, struct msg_id id, bool parts, struct spool_message *ret_message,
               struct whole *ret_whole)
{
    size_t count = 0;
    struct sum sum;
    int rc = spool_read(sp, id, ret_message);

    ret_whole->rows[0] = id;
    ret_whole->count = 1;
    ret_whole->is_active = spool_is_claimed(sp, id);
    if (rc != 0 || !parts || !ret_message->gathers) {
        return rc;
    }
    rc = spool_parts_want(sp, id);
    if (rc == 0) {
        rc = spool_parts_of(sp, id, (struct msg_id){0}, SPOOL_PARTITIONS_MAX, ret_whole->rows + 1,
                            &count);
    }
    if (rc != 0) {
        return rc;
    }
    ret_whole->count += count;
    add_up(sp, ret_whole, &sum);
    rc = spool_read(sp, id, ret_message); /* read again: the other reads have replaced its texts */
    if (rc == 0 && count > 0) {
        ret_message->state = worst_state(&sum);
        ret_message->due = sum.due;
        ret_message->rcpt_pending = (uint32_t)sum.pending;
        ret_message->force_expire = ret_message->force_expire || sum.force_expire;
    }
    return rc;
}

/* A recipient, and its size on the page. */
struct taken {
    uint32_t n;
    size_t bytes;
};

static int by_number(const void *a, const void *b)
{
    const struct taken *x = a, *y = b;

    return (x->n > y->n) - (x->n < y->n);
}

int whole_page(struct spool *sp, const struct whole *w, uint32_t after, size_t max, size_t bytes,
               size_t (*size_of)(const struct spool_rcpt *r), uint32_t *ret_last)
{
    struct spool_rcpt page[100];
    size_t taken_count = 0, size = 0, sum = 0;
    struct taken *taken = NULL;
    int rc = 0;

    *ret_last = UINT32_MAX;
    for (size_t i = 0; i < w->count && w->count > 1 && rc == 0; i++) {
        uint32_t from = after;
        size_t count = 1;

        for (size_t left = max; left > 0 && count > 0 && rc == 0; left -= count) {
            rc = spool_read_rcpts(sp, w->rows[i], from, false, left < 100 ? left : 100, page,
                                  &count);
            for (size_t k = 0; k < count && rc == 0; k++) {
                if (taken_count == size) {
                    size = size == 0 ? 64 : 2 * size;
                    taken = mem_resize(taken, size, sizeof taken[0]);
                }
                taken[taken_count++] = (struct taken){page[k].n, size_of(&page[k])};
                from = page[k].n;
            }
        }
        rc = rc == -ENOENT ? 0 : rc; /* the part has ended */
    }
    if (rc == 0 && taken_count > 0) {
        qsort(taken, taken_count, sizeof taken[0], by_number);
        for (size_t i = 0; i < taken_count && i < max && (i == 0 || sum < bytes); i++) {
            sum += taken[i].bytes;
            *ret_last = taken[i].n;
        }
    }
    mem_free(taken);
    return rc;
}
