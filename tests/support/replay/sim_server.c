#include "sim_server.h"

#include "check.h"
#include "mem.h"

/* When a client repeats its SYN: as BSD does, 3 s apart and only after the fifth time more and more
 * rarely. */
static const int64_t syn_repeats_us[] = {3 * US_PER_S, 3 * US_PER_S, 3 * US_PER_S, 3 * US_PER_S,
                                         3 * US_PER_S, 6 * US_PER_S, 12 * US_PER_S};

/* When Linux repeats a SYN-ACK, doubling from here; it sends five more (tcp_synack_retries) and
 * forgets the connection when the wait after the last one is over. */
#define SYN_ACK_REPEAT_US (3 * US_PER_S)
#define SYN_ACK_REPEATS   5

/* Linux lets a SYN in beyond a full queue only when at most one handshake is waiting that has not
 * had its SYN-ACK repeated (a "young" one). */
#define YOUNG_MAX 1

enum link_state {
    LINK_CONNECTING, /* SYNs go unanswered */
    LINK_HALF_OPEN,  /* counts in server->young before the first repetition */
    LINK_FORGOTTEN,  /* was half open; the client does not know */
    LINK_QUEUED,     /* in server->queue */
    LINK_ACCEPTED,   /* has a process, which is about to greet it */
    LINK_REFUSED,    /* has a process, which is about to answer 421 */
    LINK_SERVED,     /* has a process; deliveries go over it */
    LINK_IDLE,       /* has a process; its client keeps it */
    LINK_CLOSING,    /* has a process, which ends with it */
};

struct sim_link {
    struct sim_server *server;
    enum link_state state;
    struct sim_call *call; /* NULL: the client is gone, or keeps it */
    struct mono began;
    unsigned repeats;       /* of SYN or SYN-ACK */
    struct sim_event event; /* what the state waits for */
    TAILQ_ENTRY(sim_link) all;
};

static void serve_next(struct sim_server *server);
static void link_event(struct sim_event *e);

/* What takes about so long takes half as much more or less. */
static int64_t about(struct sim_server *server, int64_t us)
{
    return us / 2 + (int64_t)rng_below(&server->rng, (uint64_t)us + 1);
}

static bool holds_process(enum link_state state)
{
    return state >= LINK_ACCEPTED;
}

/* The one place where a connection changes its state. */
static void set_state(struct sim_link *link, enum link_state state)
{
    struct sim_server *server = link->server;
    enum link_state old = link->state;

    if (old == LINK_QUEUED) {
        TAILQ_REMOVE(&server->queue, link, all);
        TAILQ_INSERT_TAIL(&server->others, link, all);
        server->queued--;
    }
    if (old == LINK_HALF_OPEN) {
        server->young -= link->repeats == 0 ? 1 : 0;
    }
    if (state == LINK_QUEUED) {
        TAILQ_REMOVE(&server->others, link, all);
        TAILQ_INSERT_TAIL(&server->queue, link, all);
        server->queued++;
    }
    if (state == LINK_HALF_OPEN) {
        server->young++;
        link->repeats = 0;
    }
    server->busy += holds_process(state) && !holds_process(old) ? 1 : 0;
    link->state = state;
}

static struct sim_link *link_new(struct sim_server *server)
{
    struct sim_link *link = mem_new(sizeof *link);

    link->server = server;
    link->state = LINK_CONNECTING;
    link->began = server->events->now;
    sim_event_init(&link->event, link_event);
    TAILQ_INSERT_TAIL(&server->others, link, all);
    return link;
}

/* The connection is over and its process, if it has one, free. */
static void link_free(struct sim_link *link)
{
    struct sim_server *server = link->server;

    server->busy -= holds_process(link->state) ? 1 : 0;
    sim_event_cancel(server->events, &link->event);
    TAILQ_REMOVE(link->state == LINK_QUEUED ? &server->queue : &server->others, link, all);
    mem_free(link);
    serve_next(server);
}

/* The client is told. What becomes of the connection is the caller's business. */
static void call_end(struct sim_link *link, enum sim_server_end end)
{
    struct sim_call *call = link->call;

    link->call = NULL;
    call->link = NULL;
    sim_event_cancel(link->server->events, &call->patience);
    call->done(call, end, end == SIM_SERVER_DELIVERED ? link : NULL);
}

/* ---- the server's side ---------------------------------------------------------------------- */

static bool queue_has_room(const struct sim_server *server)
{
    return server->queued <= server->model->backlog;
}

/* Processes that are free take what is queued. */
static void serve_next(struct sim_server *server)
{
    while (server->busy < server->model->processes && server->queued > 0) {
        struct sim_link *link = TAILQ_FIRST(&server->queue);
        uint32_t limit = server->model->client_limit;
        bool refused = limit > 0 && server->counted >= limit;

        server->counted += refused ? 0 : 1;
        set_state(link, refused ? LINK_REFUSED : LINK_ACCEPTED);
        sim_event_set(server->events, &link->event, about(server, server->model->accept_us));
    }
}

/* The client's end of the handshake is complete: from now on it waits for the greeting. */
static void established(struct sim_link *link)
{
    sim_event_set(link->server->events, &link->call->patience, link->call->greeting_timeout_us);
}

static void syn_arrives(struct sim_link *link)
{
    struct sim_server *server = link->server;

    if (queue_has_room(server)) {
        set_state(link, LINK_QUEUED);
        established(link);
        serve_next(server);
    } else if (server->model->half_open && server->young <= YOUNG_MAX) {
        set_state(link, LINK_HALF_OPEN);
        established(link);
        sim_event_set(server->events, &link->event, SYN_ACK_REPEAT_US);
    } else if (link->repeats < sizeof syn_repeats_us / sizeof syn_repeats_us[0]) {
        sim_event_set(server->events, &link->event, syn_repeats_us[link->repeats]);
    }
}

/* The server repeats its SYN-ACK, and the client's answer completes the handshake if there is room
 * now. */
static void syn_ack_repeats(struct sim_link *link)
{
    struct sim_server *server = link->server;

    if (link->repeats == SYN_ACK_REPEATS) {
        set_state(link, LINK_FORGOTTEN);
        return;
    }
    server->young -= link->repeats == 0 ? 1 : 0;
    link->repeats++;
    if (queue_has_room(server)) {
        set_state(link, LINK_QUEUED);
        serve_next(server);
    } else {
        sim_event_set(server->events, &link->event, SYN_ACK_REPEAT_US << link->repeats);
    }
}

static void close_link(struct sim_link *link)
{
    set_state(link, LINK_CLOSING);
    sim_event_set(link->server->events, &link->event,
                  about(link->server, link->server->model->close_us));
}

static void deliver(struct sim_link *link)
{
    struct sim_server *server = link->server;
    const struct sim_server_model *model = server->model;

    set_state(link, LINK_SERVED);
    sim_event_set(server->events, &link->event,
                  link->call->rcpt_count * model->rcpt_us + about(server, model->message_us));
}

static void greet(struct sim_link *link)
{
    if (link->call == NULL) {
        close_link(link); /* no client is there */
        return;
    }
    sim_event_cancel(link->server->events, &link->call->patience);
    deliver(link);
}

/* What the connection waited for has come. */
static void link_event(struct sim_event *e)
{
    struct sim_link *link = CONTAINER_OF(e, struct sim_link, event);

    switch (link->state) {
    case LINK_CONNECTING:
        link->repeats++;
        syn_arrives(link);
        break;
    case LINK_HALF_OPEN:
        syn_ack_repeats(link);
        break;
    case LINK_ACCEPTED:
        greet(link);
        break;
    case LINK_REFUSED:
        if (link->call != NULL) {
            call_end(link, SIM_SERVER_TURNED_AWAY);
        }
        link_free(link);
        break;
    case LINK_SERVED:
        set_state(link, LINK_IDLE);
        call_end(link, SIM_SERVER_DELIVERED);
        break;
    case LINK_CLOSING:
        link->server->counted--;
        link_free(link);
        break;
    case LINK_FORGOTTEN:
    case LINK_QUEUED:
    case LINK_IDLE:
        UNREACHABLE("these wait for others");
    }
}

/* ---- the client's side ---------------------------------------------------------------------- */

static void patience_ended(struct sim_event *e)
{
    struct sim_call *call = CONTAINER_OF(e, struct sim_call, patience);
    struct sim_link *link = call->link;

    switch (link->state) {
    case LINK_CONNECTING:
        call_end(link, SIM_SERVER_CONNECT_TIMEOUT);
        link_free(link);
        break;
    case LINK_HALF_OPEN:
        set_state(link, LINK_FORGOTTEN); /* its FIN finds no room either */
        call_end(link, SIM_SERVER_GREETING_TIMEOUT);
        link_free(link);
        break;
    case LINK_FORGOTTEN:
        call_end(link, SIM_SERVER_GREETING_TIMEOUT);
        link_free(link);
        break;
    case LINK_QUEUED:
    case LINK_ACCEPTED:
    case LINK_REFUSED:
        call_end(link, SIM_SERVER_GREETING_TIMEOUT); /* a dead connection stays */
        break;
    case LINK_SERVED:
    case LINK_IDLE:
    case LINK_CLOSING:
        UNREACHABLE("patience ends with the greeting");
    }
}

static void call_begin(struct sim_link *link, struct sim_call *call)
{
    link->call = call;
    call->link = link;
    sim_event_init(&call->patience, patience_ended);
}

void sim_server_call(struct sim_server *server, struct sim_call *call)
{
    struct sim_link *link = link_new(server);

    call_begin(link, call);
    sim_event_set(server->events, &call->patience, call->connect_timeout_us);
    syn_arrives(link);
}

void sim_link_call(struct sim_link *link, struct sim_call *call)
{
    CHECK(link->state == LINK_IDLE);
    call_begin(link, call);
    deliver(link);
}

void sim_link_hang_up(struct sim_link *link)
{
    CHECK(link->state == LINK_IDLE);
    close_link(link);
}

struct mono sim_link_began(const struct sim_link *link)
{
    return link->began;
}

/* ---- the whole ------------------------------------------------------------------------------ */

void sim_server_init(struct sim_server *server, const struct sim_server_model *model,
                     struct sim_events *events, uint64_t seed)
{
    CHECK(model->processes >= 1);
    *server = (struct sim_server){.model = model, .events = events};
    rng_init(&server->rng, seed);
    TAILQ_INIT(&server->queue);
    TAILQ_INIT(&server->others);
}

static void free_all(struct sim_server *server, struct sim_links *links)
{
    struct sim_link *link;

    while ((link = TAILQ_FIRST(links)) != NULL) {
        TAILQ_REMOVE(links, link, all);
        sim_event_cancel(server->events, &link->event);
        if (link->call != NULL) {
            sim_event_cancel(server->events, &link->call->patience);
        }
        mem_free(link);
    }
}

void sim_server_fini(struct sim_server *server)
{
    free_all(server, &server->queue);
    free_all(server, &server->others);
}

void sim_server_audit(const struct sim_server *server)
{
    uint32_t queued = 0, young = 0, busy = 0, counted = 0;
    const struct sim_link *link;

    TAILQ_FOREACH(link, &server->queue, all)
    {
        CHECK(link->state == LINK_QUEUED);
        queued++;
    }
    TAILQ_FOREACH(link, &server->others, all)
    {
        CHECK(link->state != LINK_QUEUED);
        CHECK(link->call == NULL || link->call->link == link);
        young += link->state == LINK_HALF_OPEN && link->repeats == 0 ? 1 : 0;
        busy += holds_process(link->state) ? 1 : 0;
        counted += holds_process(link->state) && link->state != LINK_REFUSED ? 1 : 0;
    }
    CHECK(queued == server->queued);
    CHECK(young == server->young);
    CHECK(busy == server->busy);
    CHECK(counted == server->counted);
    CHECK(busy <= server->model->processes);
    CHECK(queued <= server->model->backlog + 1);
    CHECK(queued == 0 || busy == server->model->processes);
}
