#include "settlement.h"

#include "check.h"
#include "mem.h"
#include "queue.h"

void settlement_begin(struct settlement *s, enum settle_cause cause, struct active_msg *m,
                      struct destination *destination, struct delivery *delivery, size_t size)
{
    CHECK(size > 0);
    *s = (struct settlement){.cause = cause,
                             .msg = m,
                             .destination = destination,
                             .delivery = delivery,
                             .size = size,
                             .limit = WALL_NEVER};
    s->rcpts = size == 1 ? &s->one : mem_array(size, sizeof *s->rcpts);
}

struct settled *settlement_add(struct settlement *s, const struct wire_verdict *said)
{
    struct settled *r = &s->rcpts[s->count];

    CHECK(s->count < s->size);
    s->count++;
    *r = (struct settled){.said = *said};
    if (r->said.relay.len == 0) {
        r->said.relay = SLICE("none");
    }
    return r;
}

void settlement_add_all(struct settlement *s, const struct wire_verdict *said)
{
    struct wire_verdict one = *said;

    for (size_t i = 0; i < s->delivery->rcpt_count; i++) {
        one.n = s->delivery->rcpts[i];
        (void)settlement_add(s, &one);
    }
}

bool settlement_has_retry_rules(const struct settlement *s)
{
    return s->destination != NULL && retry_rules_apply(&s->destination->rules);
}

static void settlement_end(struct queue *q, struct settlement *s)
{
    for (size_t i = 0; i < s->count; i++) {
        active_settle_rcpt(s->msg, s->rcpts[i].rcpt);
        mem_free(s->rcpts[i].words);
    }
    if (s->delivery != NULL) {
        delivery_remove(&q->active, s->delivery);
    }
    if (s->rcpts != &s->one) {
        mem_free(s->rcpts);
    }
    mem_free(s->park_key);
}

void queue_settle(struct queue *q, struct settlement *s)
{
    settle_decide(q, s);
    settle_apply(q, s);
    settle_account(q, s);
    settlement_end(q, s);
}
