#include "queue_client.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "queue.h"
#include "queue_submit.h"
#include "spool_keys.h"
#include "send_limit.h"

/* Longest text about a limit that is reached, in bytes; a user's name is at most SEND_NAME_MAX
 * long. */
#define SEND_TEXT_MAX 512

_Static_assert(BATCH_WAITING_MAX == 1000 && BATCH_WAITING_SIZE == 16 << 20,
               "as the text above has it");

void clients_answer(struct queue *q, struct channel *client, uint64_t token, struct msg_id id,
                    int rc, bool repeated)
{
    char id_text[SPOOL_ID_TEXT_MAX], text[64];
    struct wire_submit_done done = {.token = token};

    if (rc == 0) {
        spool_id_print(id, id_text);
        (void)snprintf(text, sizeof text, "Ok: queued as %s",
                       id_text); /* fits by the sizes above */
        done.code = 250;
        done.status = SLICE("2.0.0");
        done.text = slice_string(text);
        done.id = slice_string(id_text);
        done.repeated = repeated;
        q->counts.submitted += !repeated;
    } else if (rc == -ENOSPC) {
        done.code = 452;
        done.status = SLICE("4.3.1");
        done.text = SLICE("Insufficient system storage");
    } else if (rc == -EDQUOT) {
        done.code = 452;
        done.status = SLICE("4.3.1");
        done.text = SLICE("Too many keys of calls are known (inject_key_limit)");
    } else if (rc == -EEXIST) {
        done.code = 554;
        done.status = WIRE_KEY_REFUSED;
        done.text = SLICE("Idempotency-Key: it was the key of another call");
    } else if (rc == -ENOTSUP) {
        done.code = 554;
        done.status = SLICE("5.3.3");
        done.text = SLICE("Idempotency-Key: this spool keeps no keys of calls");
    } else if (rc == -EMSGSIZE || rc == -EINVAL) {
        done.code = 554;
        done.status = SLICE("5.6.0");
        done.text = SLICE("Message can't be stored as it is");
    } else if (rc == -ESTALE) {
        done.code = WIRE_SUBMIT_GIVE_BACK;
        done.status = SLICE("4.3.2");
        done.text = SLICE("Something else happens to the message");
    } else if (rc == -EBUSY) {
        done.code = 451;
        done.status = SLICE("4.3.2");
        done.text = SLICE("Mail storage is slow: 1000 messages or 16 MiB wait, try again later");
    } else {
        done.code = 451;
        done.status = SLICE("4.3.0");
        done.text = SLICE("Mail storage failed, try again later");
    }
    wire_put_submit_done(client, &done);
}

/* Puts the reply to a client that has reached a limit; a text that is too long is cut. */
static void put_limit(const struct queue *q, const struct send_origin *origin,
                      enum send_limit limit, struct buf *out)
{
    bool of_login = limit >= SEND_LOGIN_MESSAGES_MINUTE, of_minute = limit % 4 < 2;
    struct slice name = of_login ? origin->login : origin->client;

    (void)buf_addf(out, "Error: too %s from %s%.*s: %" PRIu64 " in %s is the limit (%s)",
                   limit % 2 == 0 ? "much mail" : "many recipients", of_login ? "user " : "",
                   SLICE_ARGS(name), send_limit_value(q->conf, limit),
                   of_minute ? "a minute" : "an hour", send_limit_name(limit));
    out->failed = false;
}

static void count_refusal(struct queue *q, const struct send_origin *origin, enum send_limit limit)
{
    bool of_login = limit >= SEND_LOGIN_MESSAGES_MINUTE;
    struct slice name = of_login ? origin->login : origin->client;

    if (send_counts_refused(q->send_counts, origin, limit)) {
        log_warning("%s: %s%.*s has sent %" PRIu64 ", the rest is put off", send_limit_name(limit),
                    of_login ? "user " : "", SLICE_ARGS(name), send_limit_value(q->conf, limit));
    }
}

static bool tell_room(struct queue *q, struct channel *ch, struct slice body)
{
    struct wire_send_room_done done;
    struct wire_send_room m;
    struct send_origin origin;
    enum send_limit limit;
    struct buf text;

    if (!wire_get_send_room(body, &m)) {
        return false;
    }
    origin = (struct send_origin){m.client, m.login};
    done = (struct wire_send_room_done){.token = m.token, .text = SLICE("")};
    done.rcpts = send_counts_room(q->send_counts, q->conf, &origin, clock_mono(), &limit);
    done.limit = limit;
    buf_init(&text, SEND_TEXT_MAX);
    if (limit != SEND_LIMITS) {
        put_limit(q, &origin, limit, &text);
        done.text = buf_slice(&text);
    }
    if (done.rcpts == 0) {
        count_refusal(q, &origin, limit);
    }
    wire_put_send_room_done(ch, &done);
    buf_fini(&text);
    return true;
}

static bool take_refusal(struct queue *q, struct slice body)
{
    struct wire_send_refused m;

    if (!wire_get_send_refused(body, &m) || m.limit >= SEND_LIMITS) {
        return false;
    }
    count_refusal(q, &(struct send_origin){m.client, m.login}, (enum send_limit)m.limit);
    return true;
}

/* Returns true if this message may be sent. Other sessions of the same client or user may have used
 * up the limit since the receiving process asked; then the submission is refused here. */
static bool may_send(struct queue *q, struct channel *ch, const struct wire_submit *m)
{
    const struct send_origin origin = {m->send_client, m->send_login};
    enum send_limit limit;
    struct buf text;
    uint32_t room = send_counts_room(q->send_counts, q->conf, &origin, clock_mono(), &limit);

    if (room > 0 && room >= m->send_rcpts) {
        return true;
    }
    count_refusal(q, &origin, limit);
    buf_init(&text, SEND_TEXT_MAX);
    put_limit(q, &origin, limit, &text);
    wire_put_submit_done(ch, &(struct wire_submit_done){
                                 .token = m->token,
                                 .code = 450,
                                 .status = SLICE("4.7.1"),
                                 .text = buf_slice(&text),
                                 .retry_s = send_counts_wait_s(q->send_counts, q->conf, &origin,
                                                               m->send_rcpts, clock_mono())});
    buf_fini(&text);
    return false;
}

static void count_sent(struct queue *q, const struct wire_submit *m)
{
    const struct send_origin origin = {m->send_client, m->send_login};

    if (!send_counts_add(q->send_counts, &origin, m->send_rcpts, clock_mono())) {
        log_warning("more than %u clients or users send within an hour (SEND_COUNTS_MAX): the "
                    "limits of the quietest begin again",
                    SEND_COUNTS_MAX);
    }
}

/* Keys of a call by HTTP. A call of several messages has a key of its own, stored before any of its
 * messages, and one key for each message. */
struct call_keys {
    struct slice call;
    struct slice message; /* the call's own key if there is only one message */
    bool call_known;
    char room[WIRE_KEY_MAX + 16];
};

_Static_assert(WIRE_KEY_MAX + 16 <= SPOOL_KEY_MAX, "the spool takes all names");

static void name_keys(struct call_keys *k, const struct wire_submit *m)
{
    k->call = k->message = m->key;
    k->call_known = false;
    if (m->key.len > 0 && m->key_part > 0) {
        (void)snprintf(k->room, sizeof k->room, "%.*s %" PRIu32, SLICE_ARGS(m->key),
                       m->key_part); /* fits by its size */
        k->message = slice_string(k->room);
    }
}

/* Finds a key and its message. Returns 0, -ENOENT, or another negative errno as find_keys does. */
static int find_key(struct queue *q, struct slice name, struct slice sum, struct msg_id *ret_id)
{
    struct spool_key key = {.key = name};
    int rc = spool_key_find(q->spool, &key, clock_wall(), (uint64_t)q->conf->inject_key_limit);

    if (rc == 0 && memcmp(key.sum, sum.ptr, sizeof key.sum) != 0) {
        return -EEXIST;
    }
    *ret_id = key.id;
    return rc == -ENOSPC ? -EDQUOT : rc;
}

/* Finds the message that was submitted with these keys before. Returns 0 and *ret_id, -ENOENT if
 * there is none, or the negative errno of why the message can't be submitted. */
static int find_keys(struct queue *q, const struct wire_submit *m, struct call_keys *k,
                     struct msg_id *ret_id)
{
    int rc;

    if (m->key.len == 0) {
        return -ENOENT;
    }
    rc = find_key(q, k->call, m->key_sum, ret_id);
    k->call_known = rc == 0;
    if (m->key_part == 0 || (rc != 0 && rc != -ENOENT)) {
        return rc;
    }
    return find_key(q, k->message, m->key_sum, ret_id);
}

static int add_key(struct queue *q, struct slice name, struct slice sum, struct msg_id id)
{
    struct spool_key key = {
        .key = name,
        .id = id,
        .until = wall_after(clock_wall(), q->conf->inject_key_time_us),
    };

    memcpy(key.sum, sum.ptr, sizeof key.sum);
    return spool_key_add(q->spool, &key);
}

/* Submits the message and stores its keys. */
static int submit_once(struct queue *q, const struct wire_submit *m, const struct call_keys *k,
                       int fd, struct delivery *replaced, struct msg_id *ret_id,
                       struct active_msg **ret_msg)
{
    int rc = submit_message(q, m, fd, replaced, ret_id, ret_msg);

    if (rc != 0 || m->key.len == 0) {
        return rc;
    }
    if (m->key_part > 0 && !k->call_known) {
        rc = add_key(q, k->call, m->key_sum, (struct msg_id){0});
    }
    if (rc == 0) {
        rc = add_key(q, k->message, m->key_sum, *ret_id);
    }
    if (rc != 0 && *ret_msg != NULL) { /* the batch has failed */
        active_remove(&q->active, *ret_msg);
        *ret_msg = NULL;
    }
    return rc;
}

/* Finds the delivery whose recipients the message replaces. Only an agent may replace recipients,
 * those of its own delivery; a client passes NO_AGENT. Returns false if the frame breaks the
 * protocol. */
#define NO_AGENT UINT_MAX

static bool find_replaced(struct queue *q, const struct wire_submit *m, unsigned agent,
                          struct delivery **ret)
{
    struct delivery *d = m->replaces != 0 ? delivery_find(&q->active, m->replaces) : NULL;

    *ret = d;
    if (agent == NO_AGENT) {
        return m->replaces == 0;
    }
    return d != NULL && d->sent && d->agent == agent && !d->is_replaced && m->key.len == 0;
}

static void submit(struct queue *q, struct channel *ch, const struct frame *frame, unsigned agent,
                   bool *ret_ok)
{
    struct delivery *replaced = NULL;
    struct wire_submit m;
    struct wire_rcpt *rcpts;
    struct active_msg *msg = NULL;
    struct call_keys keys;
    struct msg_id id;
    bool repeated;
    int rc;

    *ret_ok = wire_get_submit(frame->body, &m, &rcpts);
    if (*ret_ok && (m.key_sum.len != (m.key.len > 0 ? SPOOL_KEY_SUM : 0) ||
                    !find_replaced(q, &m, agent, &replaced))) {
        mem_free(rcpts);
        *ret_ok = false;
    }
    if (!*ret_ok) {
        return;
    }
    if (replaced != NULL && (q->role->stopping || active_is_out(replaced->msg))) {
        rc = -ESTALE; /* changed by an operator, for example */
    } else if (!q->clients.flow.space_ok) {
        rc = -ENOSPC; /* the client has not received the state yet */
    } else if (!q->clients.flow.storage_ok || q->role->stopping) {
        rc = -EIO;
    } else if (batch_is_full(q, m.content.len + m.fd_size)) {
        rc = -EBUSY;
    } else {
        name_keys(&keys, &m);
        rc = find_keys(q, &m, &keys, &id);
    }
    repeated = rc == 0;
    if (rc == -ENOENT) {
        if (!may_send(q, ch, &m)) {
            mem_free(rcpts);
            return;
        }
        rc = submit_once(q, &m, &keys, frame->fd, replaced, &id, &msg);
    }
    mem_free(rcpts);
    if (rc == 0 && !repeated) {
        count_sent(q, &m);
    }
    if (rc != 0) { /* the batch has no part of the message, or will fail, too */
        clients_answer(q, ch, m.token, (struct msg_id){0}, rc, false);
    } else {
        /* Replaced mail is not counted as new mail. */
        batch_add_submission(q, id, msg, ch, m.token, repeated || replaced != NULL,
                             m.content.len + m.fd_size, m.replaces);
    }
}

static bool take_dialogue(struct queue *q, struct channel *ch, struct slice body)
{
    for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
        if (q->clients.channels[i] == ch) {
            const struct wire_peer *peer = &q->clients.peers[i];

            return peer->role == ROLE_RECEIVE && watches_heard(q, peer->role, peer->index, body);
        }
    }
    UNREACHABLE("a channel that is no client's");
}

/* Handles a frame; its descriptor stays the caller's. Returns false if the frame breaks the
 * protocol. */
static bool client_frame(struct queue *q, struct channel *ch, const struct frame *frame)
{
    struct wire_etrn etrn;
    bool ok = false;

    switch (frame->type) {
    case WIRE_SUBMIT:
        submit(q, ch, frame, NO_AGENT, &ok);
        return ok;
    case WIRE_ETRN:
        if (!wire_get_etrn(frame->body, &etrn)) {
            return false;
        }
        if (domain_list_match(&q->conf->fast_flush_domains, etrn.domain)) {
            flush_domain(q, etrn.domain);
            wire_put_etrn_done(ch, &(struct wire_etrn_done){.token = etrn.token,
                                                            .code = 250,
                                                            .text = SLICE("Queuing started")});
        } else {
            wire_put_etrn_done(
                ch, &(struct wire_etrn_done){.token = etrn.token,
                                             .code = 459,
                                             .text = SLICE("ETRN is not for this domain")});
        }
        return true;
    case WIRE_SEND_ROOM:
        return tell_room(q, ch, frame->body);
    case WIRE_SEND_REFUSED:
        return take_refusal(q, frame->body);
    case WIRE_DIALOGUE:
        return take_dialogue(q, ch, frame->body);
    default:
        return false;
    }
}

bool clients_take_replacement(struct queue *q, struct channel *ch, unsigned agent,
                              const struct frame *frame)
{
    bool ok;

    submit(q, ch, frame, agent, &ok);
    return ok;
}

static void client_lost(struct queue *q, struct channel *ch)
{
    batch_forget_client(&q->batch, ch);
    for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
        if (q->clients.channels[i] == ch) {
            q->clients.channels[i] = NULL;
        }
    }
    channel_free(ch);
}

static void on_client(void *arg, struct channel *ch)
{
    struct queue *q = arg;
    struct frame frame;
    enum channel_event event;

    queue_clock_look(q);
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        bool ok = client_frame(q, ch, &frame);

        if (frame.fd >= 0) {
            (void)close(frame.fd); /* content of a submission, already copied */
        }
        if (!ok) {
            log_error("a frame of a submission client does not decode: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        client_lost(q, ch);
    }
}

bool clients_adopt(struct queue *q, const struct wire_peer *peer, int fd)
{
    struct clients *c = &q->clients;

    for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
        if (c->channels[i] == NULL) {
            c->channels[i] = channel_new(q->role->base, fd, on_client, q);
            c->peers[i] = *peer;
            c->told = false;
            if (peer->role == ROLE_RECEIVE && q->watches.count > 0) {
                watches_tell(&q->watches, c->channels[i]);
            }
            return true;
        }
    }
    return false;
}

/* ---- state of the queue ---------------------------------------------------------------------- */

void clients_init(struct clients *c)
{
    *c = (struct clients){
        .commits_work = true, .spool_is_fit = true, .flow = {.storage_ok = true, .space_ok = true}};
}

void clients_fini(struct clients *c)
{
    for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
        channel_free(c->channels[i]);
    }
}

void clients_storage(struct clients *c, bool ok)
{
    c->commits_work = ok;
    c->flow.storage_ok = ok && c->spool_is_fit;
    c->told = false;
}

/* Counts deliveries whose end another node waits for. */
static uint64_t count_awaited(const struct queue *q)
{
    uint64_t count = 0;

    for (const struct delivery *d = q->active.deliveries; d != NULL; d = d->hh.next) {
        count += d->is_awaited;
    }
    return count;
}

/* Does this daemon receive mail itself, not only through programs of another mail system? */
static bool receives_mail(const struct conf *conf)
{
    return conf->listen.count > 0 || conf->maildrop[0] != '\0';
}

void queue_flow_update(struct queue *q)
{
    struct spool_totals totals;
    uint64_t free_bytes;
    uint64_t minimum = q->conf->queue_minfree > 0 ? (uint64_t)q->conf->queue_minfree
                                                  : (uint64_t)q->conf->message_size_limit * 3 / 2;
    struct wire_flow flow = q->clients.flow;
    int rc = spool_free_bytes(q->spool, &free_bytes);

    q->clients.spool_is_fit = rc != -EROFS;
    flow.storage_ok = q->clients.commits_work && q->clients.spool_is_fit;
    if (rc == 0) {
        flow.free_bytes = free_bytes;
        flow.space_ok = free_bytes >= minimum || !receives_mail(q->conf);
        if (!flow.space_ok && q->clients.flow.space_ok) {
            log_warning("queue_minfree: %" PRIu64 " bytes free, %" PRIu64
                        " wanted: mail is refused for now",
                        free_bytes, minimum);
        }
    }
    if (spool_totals(q->spool, &totals) == 0) {
        uint64_t claimed = HASH_COUNT(q->active.msgs);
        uint64_t behind = totals.incoming > claimed ? totals.incoming - claimed : 0;

        spool_tell_others(q->spool,
                          &(struct spool_node_words){behind, sched_totals(q->sched).entries_busy,
                                                     count_awaited(q)});
        flow.behind = behind > QUEUE_BEHIND || spool_others_behind(q->spool) > QUEUE_BEHIND;
    }
    if (flow.storage_ok != q->clients.flow.storage_ok ||
        flow.space_ok != q->clients.flow.space_ok || flow.behind != q->clients.flow.behind) {
        q->clients.told = false;
    }
    q->clients.flow = flow;
}

void clients_tell(struct clients *c)
{
    for (size_t i = 0; !c->told && i < QUEUE_CLIENTS_MAX; i++) {
        if (c->channels[i] != NULL) {
            wire_put_flow(c->channels[i], &c->flow);
        }
    }
    c->told = true;
}
