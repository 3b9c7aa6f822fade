#include "filter_hub.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "entropy.h"
#include "hash.h"
#include "mem.h"
#include "wire.h"

#define ID_MASK UINT64_C(0xffffffffffff)

struct filter_question {
    UT_hash_handle hh;
    uint64_t token;
    filter_socket *answer;
    void *arg;
};

void filter_hub_init(struct filter_hub *hub, struct role *role, struct streams *streams)
{
    *hub = (struct filter_hub){.role = role, .streams = streams, .last_id = entropy_u64()};
}

static void forget(struct filter_hub *hub, struct filter_question *q)
{
    HASH_DEL(hub->questions, q);
    mem_free(q);
}

static struct filter_question *find(struct filter_hub *hub, uint64_t token)
{
    struct filter_question *q;

    HASH_FIND(hh, hub->questions, &token, sizeof token, q);
    return q;
}

void filter_hub_fini(struct filter_hub *hub)
{
    struct filter_question *q, *next;

    HASH_ITER(hh, hub->questions, q, next)
    {
        forget(hub, q);
    }
}

uint64_t filter_hub_ask(struct filter_hub *hub, const char *address, uint32_t attempt,
                        filter_socket *answer, void *arg)
{
    struct filter_question *q = mem_new(sizeof *q);

    q->token = ++hub->last_token;
    q->answer = answer;
    q->arg = arg;
    HASH_ADD(hh, hub->questions, token, sizeof q->token, q);
    wire_put_connect(hub->role->parent, &(struct wire_connect){.token = q->token,
                                                               .address = slice_string(address),
                                                               .attempt = attempt});
    return q->token;
}

void filter_hub_forget(struct filter_hub *hub, uint64_t token)
{
    struct filter_question *q = find(hub, token);

    if (q != NULL) {
        forget(hub, q);
    }
}

bool filter_hub_frame(struct filter_hub *hub, const struct frame *frame)
{
    struct filter_question asked, *q;
    struct wire_connected m;

    if (frame->type != WIRE_CONNECTED || !wire_get_connected(frame->body, &m) ||
        (frame->fd >= 0) != (m.error.len == 0)) {
        return false;
    }
    q = find(hub, m.token);
    if (q == NULL) {
        if (frame->fd >= 0) {
            (void)close(frame->fd); /* the session has ended, and no byte was sent */
        }
        return true;
    }
    asked = *q;
    forget(hub, q);
    asked.answer(asked.arg, frame->fd, m.addresses, m.error);
    return true;
}

void filter_hub_name(struct filter_hub *hub, char ret_id[FILTER_ID_SIZE])
{
    (void)snprintf(ret_id, FILTER_ID_SIZE, "F%012" PRIX64, ++hub->last_id & ID_MASK); /* fits */
}
