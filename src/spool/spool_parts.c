#include "spool_parts.h"

#include "check.h"
#include "mem.h"
#include "spool_engine.h"

/* Sorts the recipients by partition, those of one in their order: two passes, and six bytes for
 * each. The number of shares is returned. */
static size_t divide(struct spool *sp, const struct spool_new *n, uint8_t *partitions,
                     uint32_t *order, struct spool_share shares[SPOOL_PARTITIONS_MAX])
{
    uint32_t at[SPOOL_PARTITIONS_MAX] = {0}, next = 0;
    size_t count = 0;

    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        unsigned p = sp->engine->parts->partition(sp, &n->rcpts[i]);

        CHECK(p < SPOOL_PARTITIONS_MAX);
        partitions[i] = (uint8_t)p;
        at[p]++;
    }
    for (unsigned p = 0; p < SPOOL_PARTITIONS_MAX; p++) {
        uint32_t here = at[p];

        if (here > 0) {
            shares[count++] =
                (struct spool_share){.partition = p, .rcpts = order + next, .count = here};
        }
        at[p] = next;
        next += here;
    }
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        order[at[partitions[i]]++] = i;
    }
    return count;
}

int parts_submit(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    struct spool_share shares[SPOOL_PARTITIONS_MAX];
    uint8_t *partitions = mem_array(n->rcpt_count, sizeof *partitions);
    uint32_t *order = mem_array(n->rcpt_count, sizeof *order);
    size_t count = divide(sp, n, partitions, order, shares);
    int err;

    mem_free(partitions);
    for (size_t i = 0; count > 1 && i < count; i++) {
        shares[i].id = sp->engine->next_id(sp);
    }
    err = count > 1 ? sp->engine->parts->submit(sp, id, n, shares, count)
                    : sp->engine->submit(sp, id, n);
    mem_free(order);
    return err;
}
