#include "rewrite_client.h"

#include <event2/event.h>
#include <string.h>
#include <sys/queue.h>

#include "buf.h"
#include "check.h"
#include "clock.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "notice_request.h"
#include "service_link.h"
#include "times.h"

/* Pause after a failed connection or a bad answer. */
#define AGAIN_US US_PER_S
/* Pause between warnings about a server that can't be reached. */
#define WARNING_US  (10 * US_PER_S)
#define KEY_MAX     (16u << 10) /* bytes; answers to longer questions are not cached */
#define REQUEST_MAX (1u << 20)  /* room for two addresses, each shorter than a record */
#define HELLO       "trivial_rewrite_protocol"

struct question {
    STAILQ_ENTRY(question) next;
    struct msg_id id;
    uint32_t n;
    bool probe, completed_first;
    bool forgotten;
    char *sender, *address; /* owned */
};

/* A cached answer. */
struct kept {
    UT_hash_handle hh;
    TAILQ_ENTRY(kept) by_age;
    struct mono until;
    unsigned classes;
    char *transport, *nexthop; /* owned */
    size_t key_len;
    char key[];
};

struct rewrite_client {
    struct rewrite_plan plan;
    struct service_link *link; /* NULL = closed */
    bool greeted;              /* the server's hello was received, or it sends none */
    bool asking;               /* the first question of the line was sent */
    bool answering;            /* go_on is running; a new question only joins the line */
    struct mono opened;
    struct event *timer; /* closes an idle connection; without a connection, connects again */
    struct mono next_warning;
    STAILQ_HEAD(, question) line;
    struct buf key; /* key of the current look-up */
    struct kept *cache;
    TAILQ_HEAD(, kept) ages; /* in order of age, the oldest first */
    struct rewrite_counts counts;
};

static void go_on(struct rewrite_client *r);

/* ---- the cache ---- */

/* Can the route of this mailbox be that of all mailboxes of its domain? Not if the address has
 * parts that the server may interpret. */
static bool is_plain(struct slice local)
{
    for (size_t i = 0; i < local.len; i++) {
        if (strchr("%!@\"\\", local.ptr[i]) != NULL) {
            return false;
        }
    }
    return local.len > 0;
}

/* Builds the cache key of a question; false if its answer can't be cached. */
static bool key_of(const struct rewrite_client *r, const struct rewrite_question *q,
                   struct buf *ret_key)
{
    struct slice address = q->address;
    size_t at = slice_find_last(address, '@');
    bool by_domain = r->plan.by_domain && at < address.len && is_plain(slice_of(address.ptr, at));

    buf_clear(ret_key);
    (void)buf_add_byte(ret_key, q->probe ? 'v' : 'r');
    (void)buf_add(ret_key, r->plan.by_sender ? q->sender : SLICE(""));
    (void)buf_add_byte(ret_key, '\0');
    if (by_domain) {
        address = slice_skip(address, at);
        for (size_t i = 0; i < address.len; i++) {
            (void)buf_add_byte(ret_key, ascii_lower(address.ptr[i]));
        }
    } else {
        (void)buf_add(ret_key, address);
    }
    return !ret_key->failed && !q->completed_first;
}

static void drop(struct rewrite_client *r, struct kept *k)
{
    HASH_DEL(r->cache, k);
    TAILQ_REMOVE(&r->ages, k, by_age);
    mem_free(k->transport);
    mem_free(k->nexthop);
    mem_free(k);
}

static struct kept *find(struct rewrite_client *r, struct slice key)
{
    struct kept *k;

    while ((k = TAILQ_FIRST(&r->ages)) != NULL && mono_reached(k->until, clock_mono())) {
        drop(r, k);
    }
    HASH_FIND(hh, r->cache, key.ptr, key.len, k);
    return k;
}

static void keep(struct rewrite_client *r, const struct rewrite_question *q,
                 const struct rewrite_answer *answer)
{
    struct slice key;
    struct kept *k;

    if (key_of(r, q, &r->key) && slice_equal(answer->recipient, q->address) &&
        find(r, buf_slice(&r->key)) == NULL) {
        if (HASH_COUNT(r->cache) >= REWRITE_CACHE_MAX) {
            drop(r, TAILQ_FIRST(&r->ages));
        }
        key = buf_slice(&r->key);
        k = mem_new(sizeof *k + key.len);
        memcpy(k->key, key.ptr, key.len);
        k->key_len = key.len;
        k->until = mono_after(clock_mono(), REWRITE_CACHE_US);
        k->classes = answer->classes;
        k->transport = mem_copy(answer->transport.ptr, answer->transport.len);
        k->nexthop = mem_copy(answer->nexthop.ptr, answer->nexthop.len);
        HASH_ADD_KEYPTR(hh, r->cache, k->key, k->key_len, k);
        TAILQ_INSERT_TAIL(&r->ages, k, by_age);
    }
}

static bool answer_from_cache(struct rewrite_client *r, const struct rewrite_question *q)
{
    struct rewrite_answer answer;
    struct kept *k = NULL;

    if (key_of(r, q, &r->key)) {
        k = find(r, buf_slice(&r->key));
    }
    if (k == NULL) {
        return false;
    }
    answer = (struct rewrite_answer){.transport = slice_string(k->transport),
                                     .nexthop = slice_string(k->nexthop),
                                     .recipient = q->address,
                                     .classes = k->classes};
    r->counts.cached++;
    r->plan.answered(r->plan.arg, q->id, q->n, &answer);
    return true;
}

/* ---- the line ---- */

static struct rewrite_question view_of(const struct question *q)
{
    return (struct rewrite_question){.id = q->id,
                                     .n = q->n,
                                     .probe = q->probe,
                                     .completed_first = q->completed_first,
                                     .sender = slice_string(q->sender),
                                     .address = slice_string(q->address)};
}

/* Answers the first question of the line from the cache, if possible. */
static bool first_is_answered(struct rewrite_client *r)
{
    struct rewrite_question first = view_of(STAILQ_FIRST(&r->line));

    return answer_from_cache(r, &first);
}

static void question_free(struct question *q)
{
    mem_free(q->sender);
    mem_free(q->address);
    mem_free(q);
}

static void remove_first(struct rewrite_client *r)
{
    struct question *q = STAILQ_FIRST(&r->line);

    STAILQ_REMOVE_HEAD(&r->line, next);
    r->counts.waiting--;
    question_free(q);
}

void rewrite_client_ask(struct rewrite_client *r, const struct rewrite_question *from)
{
    struct question *q;

    if (STAILQ_EMPTY(&r->line) && answer_from_cache(r, from)) {
        return;
    }
    q = mem_new(sizeof *q);
    q->id = from->id;
    q->n = from->n;
    q->probe = from->probe;
    q->completed_first = from->completed_first;
    q->sender = mem_copy(from->sender.ptr, from->sender.len);
    q->address = mem_copy(from->address.ptr, from->address.len);
    STAILQ_INSERT_TAIL(&r->line, q, next);
    r->counts.waiting++;
    if (!r->asking && !r->answering) {
        go_on(r);
    }
}

void rewrite_client_forget(struct rewrite_client *r, struct msg_id id)
{
    struct question *q;

    STAILQ_FOREACH(q, &r->line, next)
    {
        q->forgotten = q->forgotten || q->id.n == id.n;
    }
}

struct rewrite_counts rewrite_counts(const struct rewrite_client *r)
{
    return r->counts;
}

/* ---- the connection ---- */

static void arm(struct rewrite_client *r, int64_t us)
{
    struct timeval tv = {.tv_sec = (time_t)(us / US_PER_S),
                         .tv_usec = (suseconds_t)(us % US_PER_S)};

    CHECK(event_add(r->timer, &tv) == 0);
}

static void disconnect(struct rewrite_client *r)
{
    service_link_free(r->link);
    r->link = NULL;
    r->asking = false;
}

static void try_again(struct rewrite_client *r, const char *why)
{
    disconnect(r);
    if (mono_reached(r->next_warning, clock_mono())) {
        log_warning("%s: %s: trying again", r->plan.path, why);
        r->next_warning = mono_after(clock_mono(), WARNING_US);
    }
    arm(r, AGAIN_US);
}

static void heard(void *arg, struct slice list)
{
    struct rewrite_client *r = arg;
    struct question *q = STAILQ_FIRST(&r->line);
    struct rewrite_question asked;
    struct rewrite_answer answer;
    struct slice address;
    bool gone;

    if (!r->greeted) {
        r->greeted = service_hello_is_right(list, HELLO);
        if (!r->greeted) {
            try_again(r, "another protocol than " HELLO);
            return;
        }
        go_on(r);
        return;
    }
    if (!r->asking) {
        try_again(r, "an answer without a question");
        return;
    }
    if (q->completed_first) {
        if (!rewrite_rewrite_parse(list, &address, &gone)) {
            try_again(r, "malformed response");
            return;
        }
        mem_free(q->address);
        q->address = mem_copy(address.ptr, address.len);
        q->completed_first = false;
    } else {
        if (!rewrite_resolve_parse(list, &answer)) {
            try_again(r, "malformed response");
            return;
        }
        gone = answer.disconnect;
        r->counts.asked++;
        asked = view_of(q);
        keep(r, &asked, &answer);
        if (!q->forgotten) {
            r->plan.answered(r->plan.arg, q->id, q->n, &answer);
        }
        remove_first(r);
    }
    r->asking = false;
    if (gone || mono_reached(mono_after(r->opened, r->plan.life_us), clock_mono())) {
        disconnect(r);
    }
    go_on(r);
}

static void closed(void *arg, int error)
{
    struct rewrite_client *r = arg;
    bool was_quiet = r->greeted && !r->asking;

    if (was_quiet || (error == 0 && r->asking)) { /* the server may end at any time: connect to
                                                   * another one */
        disconnect(r);
        if (!was_quiet) {
            arm(r, 0);
        }
        return;
    }
    try_again(r, error == 0 ? "premature disconnect" : strerror(error));
}

static const struct service_link_owner owner = {.heard = heard, .closed = closed};

/* Sends the first question of the line that the cache can't answer. */
static void go_on(struct rewrite_client *r)
{
    struct question *q;
    struct buf request;
    int error;

    CHECK(!r->asking);
    r->answering = true;
    while ((q = STAILQ_FIRST(&r->line)) != NULL && (q->forgotten || first_is_answered(r))) {
        remove_first(r);
    }
    r->answering = false;
    if (q == NULL) {
        if (r->link != NULL) {
            arm(r, r->plan.idle_us);
        }
        return;
    }
    if (r->link == NULL) {
        r->link = service_link_open(r->plan.base, r->plan.path, &owner, r, &error);
        if (r->link == NULL) {
            try_again(r, strerror(error));
            return;
        }
        r->opened = clock_mono();
        r->greeted = !r->plan.greets;
        service_link_patience(r->link, r->plan.patience_us);
    }
    if (!r->greeted) {
        return; /* `heard` continues */
    }
    CHECK(event_del(r->timer) == 0);
    buf_init(&request, REQUEST_MAX);
    if (q->completed_first) {
        rewrite_put_rewrite(&request, slice_string(q->address));
    } else {
        rewrite_put_resolve(&request, q->probe, slice_string(q->sender), slice_string(q->address));
    }
    CHECK(!request.failed); /* addresses are limited by the size of their records */
    r->asking = true;
    service_link_patience(r->link, r->plan.patience_us);
    service_link_send(r->link, buf_slice(&request));
    buf_fini(&request);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct rewrite_client *r = arg;

    (void)fd;
    (void)what;
    if (r->asking) {
        return;
    }
    if (STAILQ_EMPTY(&r->line)) {
        disconnect(r); /* the connection was idle for too long */
    } else if (r->link == NULL || r->greeted) {
        go_on(r);
    }
}

struct rewrite_client *rewrite_client_new(const struct rewrite_plan *plan)
{
    struct rewrite_client *r = mem_new(sizeof *r);

    r->plan = *plan;
    buf_init(&r->key, KEY_MAX);
    STAILQ_INIT(&r->line);
    TAILQ_INIT(&r->ages);
    r->timer = evtimer_new(plan->base, on_timer, r);
    CHECK(r->timer != NULL);
    return r;
}

void rewrite_client_free(struct rewrite_client *r)
{
    struct kept *k;

    if (r == NULL) {
        return;
    }
    while ((k = TAILQ_FIRST(&r->ages)) != NULL) {
        drop(r, k);
    }
    while (!STAILQ_EMPTY(&r->line)) {
        remove_first(r);
    }
    service_link_free(r->link);
    event_free(r->timer);
    buf_fini(&r->key);
    mem_free(r);
}
