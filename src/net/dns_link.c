#include "dns_link.h"

#include <stdint.h>
#include <unistd.h>

#include "channel.h"
#include "check.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "wire.h"

struct dns_link_query {
    struct dns_link *link;
    uint64_t token; /* key in `asked` */
    char *name;     /* owned */
    size_t name_len;
    unsigned type;
    bool prove;
    dns_link_done *done;
    void *arg;
    UT_hash_handle hh;
};

struct dns_link {
    struct event_base *base;
    struct channel *channel; /* NULL: the resolve process is gone */
    struct dns_link_query *asked;
    uint64_t last_token;
};

struct dns_link *dns_link_new(struct event_base *base)
{
    struct dns_link *link = mem_new(sizeof *link);

    link->base = base;
    return link;
}

void dns_link_free(struct dns_link *link)
{
    if (link != NULL) {
        CHECK(link->asked == NULL);
        channel_free(link->channel);
        mem_free(link);
    }
}

static void query_free(struct dns_link_query *q)
{
    HASH_DEL(q->link->asked, q);
    mem_free(q->name);
    mem_free(q);
}

static void send_query(const struct dns_link_query *q)
{
    const struct wire_dns_query m = {.token = q->token,
                                     .name = slice_of(q->name, q->name_len),
                                     .type = q->type,
                                     .prove = q->prove};

    wire_put_dns_query(q->link->channel, &m);
}

/* Handles an answer. Returns false if it does not decode. */
static bool answered(struct dns_link *link, struct slice body)
{
    struct wire_dns_answer m;
    struct dns_link_query *q;
    dns_link_done *done;
    void *arg;

    if (!wire_get_dns_answer(body, &m)) {
        return false;
    }
    HASH_FIND(hh, link->asked, &m.token, sizeof m.token, q);
    if (q != NULL) { /* otherwise it was cancelled */
        done = q->done;
        arg = q->arg;
        query_free(q);
        done(arg, &m);
    }
    return true;
}

static void on_frame(void *arg, struct channel *ch)
{
    struct dns_link *link = arg;
    struct frame frame;

    for (;;) {
        switch (channel_next(ch, &frame)) {
        case CHANNEL_EMPTY:
            return;
        case CHANNEL_FRAME:
            if (frame.fd >= 0) {
                (void)close(frame.fd); /* answers have none */
            }
            if (frame.type != WIRE_DNS_ANSWER || !answered(link, frame.body)) {
                /* The query ends with its owner's patience. */
                log_error("resolve: a frame of type %u does not decode", frame.type);
            }
            break;
        case CHANNEL_CLOSED:
            channel_free(ch);
            link->channel = NULL;
            return;
        }
    }
}

void dns_link_peer(struct dns_link *link, int fd)
{
    const struct dns_link_query *q;

    channel_free(link->channel);
    link->channel = channel_new(link->base, fd, on_frame, link);
    for (q = link->asked; q != NULL; q = q->hh.next) {
        send_query(q);
    }
}

struct dns_link_query *dns_link_ask(struct dns_link *link, struct slice name, unsigned type,
                                    bool prove, dns_link_done *done, void *arg)
{
    struct dns_link_query *q = mem_new(sizeof *q);

    q->link = link;
    q->token = ++link->last_token;
    q->name = mem_copy(name.ptr, name.len);
    q->name_len = name.len;
    q->type = type;
    q->prove = prove;
    q->done = done;
    q->arg = arg;
    HASH_ADD(hh, link->asked, token, sizeof q->token, q);
    if (link->channel != NULL) {
        send_query(q);
    }
    return q;
}

void dns_link_cancel(struct dns_link_query *q)
{
    if (q != NULL) {
        query_free(q);
    }
}
