#include "assignment.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"

struct assignment_text {
    struct assignment_text *next;
    size_t len;
    char bytes[];
};

/* ---- taking it ------------------------------------------------------------------------------ */

/* Finds the place of the content. Returns false if frame and descriptor do not match. */
static bool find_content(struct assignment *e)
{
    struct stat st;

    switch (e->ask.place) {
    case CONTENT_INSIDE:
        e->content = e->ask.content;
        e->content_size = e->content.len;
        e->have_content = true;
        return e->fd < 0;
    case CONTENT_FD:
        if (e->fd < 0 || fstat(e->fd, &st) != 0 || st.st_size < 0) {
            return false;
        }
        e->content = e->ask.content;
        e->content_size = e->content.len + (uint64_t)st.st_size;
        e->have_content = true;
        return true;
    case CONTENT_ON_DEMAND:
    case CONTENT_NONE:
        return e->fd < 0;
    }
    return false;
}

struct assignment *assignment_new(const struct frame *frame)
{
    struct assignment *e = mem_new(sizeof *e);

    e->fd = frame->fd;
    e->taken = clock_mono();
    e->body = mem_copy(frame->body.ptr, frame->body.len);
    if (!wire_get_deliver(slice_of(e->body, frame->body.len), &e->ask, &e->rcpts) ||
        e->ask.rcpt_count == 0 || !find_content(e)) {
        assignment_free(e);
        return NULL;
    }
    e->verdicts = mem_array(e->ask.rcpt_count, sizeof e->verdicts[0]);
    e->open = e->ask.rcpt_count;
    return e;
}

struct assignment *assignment_make(const struct wire_deliver *ask, int fd)
{
    struct assignment *e = mem_new(sizeof *e);

    CHECK(ask->rcpt_count > 0 && ask->place == CONTENT_FD);
    e->fd = fd;
    e->taken = clock_mono();
    e->ask = *ask;
    e->verdicts = mem_array(ask->rcpt_count, sizeof e->verdicts[0]);
    e->open = ask->rcpt_count;
    if (!find_content(e)) {
        assignment_free(e);
        return NULL;
    }
    return e;
}

static void leave_table(struct assignment *e)
{
    if (e->all != NULL && !e->orphan) {
        HASH_DEL(e->all->table, e);
    }
}

void assignment_free(struct assignment *e)
{
    struct assignment_text *text;

    if (e == NULL) {
        return;
    }
    leave_table(e);
    while ((text = e->texts) != NULL) {
        e->texts = text->next;
        mem_free(text);
    }
    if (e->fd >= 0) {
        (void)close(e->fd); /* only read */
    }
    mem_free(e->fetched);
    mem_free(e->verdicts);
    mem_free(e->rcpts);
    mem_free(e->body);
    mem_free(e);
}

bool assignment_take_content(struct assignment *e, const struct wire_content *m, int fd)
{
    struct stat st;

    if (!m->ok || e->have_content || (fd >= 0 && (fstat(fd, &st) != 0 || st.st_size < 0))) {
        if (fd >= 0) {
            (void)close(fd); /* refused */
        }
        return false;
    }
    e->fd = fd;
    e->fetched = mem_copy(m->content.ptr, m->content.len);
    e->content = slice_of(e->fetched, m->content.len);
    e->content_size = m->content.len + (fd >= 0 ? (uint64_t)st.st_size : 0);
    e->have_content = true;
    return true;
}

/* ---- content -------------------------------------------------------------------------------- */

enum assignment_piece assignment_piece(struct assignment *e, struct slice *ret_piece,
                                       bool *ret_last)
{
    static char piece[ASSIGNMENT_PIECE_MAX]; /* for the assignment that was read last */
    uint64_t left = e->content_size - e->content_at;
    ssize_t n;

    if (!e->have_content) {
        return ASSIGNMENT_PIECE_WAIT;
    }
    if (e->fd < 0 || e->content_at < e->content.len) {
        *ret_piece = slice_skip(e->content, (size_t)e->content_at);
        *ret_last = ret_piece->len == left;
        return ASSIGNMENT_PIECE;
    }
    if (left > sizeof piece) {
        left = sizeof piece;
    }
    do {
        n = pread(e->fd, piece, (size_t)left, (off_t)(e->content_at - e->content.len));
    } while (n < 0 && errno == EINTR);
    if (n < 0 || (n == 0 && left > 0)) {
        return ASSIGNMENT_PIECE_BROKEN;
    }
    *ret_piece = slice_of(piece, (size_t)n);
    *ret_last = e->content_at + (uint64_t)n == e->content_size;
    return ASSIGNMENT_PIECE;
}

void assignment_piece_used(struct assignment *e, size_t len)
{
    CHECK(len <= e->content_size - e->content_at);
    e->content_at += len;
}

void assignment_rewind(struct assignment *e)
{
    e->content_at = 0;
}

/* ---- verdicts ------------------------------------------------------------------------------- */

/* Returns a copy of `text` that lasts as long as the assignment. Compares `text` with the last four
 * copies first, because the next recipient often has the same verdict. */
static struct slice keep(struct assignment *e, struct slice text)
{
    struct assignment_text *kept = e->texts;

    for (int i = 0; i < 4 && kept != NULL; i++, kept = kept->next) {
        if (slice_equal(slice_of(kept->bytes, kept->len), text)) {
            return slice_of(kept->bytes, kept->len);
        }
    }
    kept = mem_new(sizeof *kept + text.len + 1);
    kept->len = text.len;
    memcpy(kept->bytes, text.len > 0 ? text.ptr : "", text.len);
    kept->next = e->texts;
    e->texts = kept;
    return slice_of(kept->bytes, kept->len);
}

static struct slice cut(struct slice s, size_t max)
{
    return slice_of(s.ptr, s.len < max ? s.len : max);
}

bool assignment_decided(const struct assignment *e, size_t i)
{
    CHECK(i < e->ask.rcpt_count);
    return e->verdicts[i].text.ptr != NULL;
}

/* The queue process finds out which setting has named the next hop, if there are several. */
static enum route_namer namer_of(const struct assignment *e, size_t i)
{
    return e->last_resort                                                 ? ROUTE_BY_FALLBACK_RELAY
           : route_is_recipients(e->ask.nexthop, e->ask.rcpts[i].address) ? ROUTE_BY_RECIPIENT
                                                                          : ROUTE_BY_OTHER;
}

static void note_fault(struct assignment *e, size_t i, enum failure_cause cause)
{
    if (e->fault == WIRE_FAULT_NONE) {
        e->fault_rcpt = e->ask.rcpts[i].n;
        e->fault = cause == FAILURE_BIND    ? WIRE_FAULT_BIND_ADDRESS
                   : cause == FAILURE_BIND6 ? WIRE_FAULT_BIND_ADDRESS6
                   : e->last_resort         ? WIRE_FAULT_FALLBACK_RELAY
                                            : WIRE_FAULT_ROUTE;
    }
}

void assignment_decide(struct assignment *e, size_t i, enum wire_verdict_kind kind,
                       enum failure_cause cause, struct status status, struct slice text,
                       struct slice relay)
{
    static const struct status to_be_mended = FAILURE_STATUS;
    char printed[STATUS_SIZE];

    CHECK(!assignment_decided(e, i));
    if (kind == VERDICT_BOUNCED && !failure_may_be_permanent(cause, namer_of(e, i))) {
        kind = VERDICT_DEFERRED;
        status = to_be_mended;
        note_fault(e, i, cause);
    } else if (kind == VERDICT_DEFERRED && failure_waits_for_setting(cause, namer_of(e, i))) {
        note_fault(e, i, cause);
    }
    e->verdicts[i] = (struct wire_verdict){
        .n = e->ask.rcpts[i].n,
        .kind = kind,
        .relay = keep(e, cut(relay, WIRE_HOST_MAX)),
        .status = keep(e, slice_string(status_print(status, printed))),
        .text = keep(e, cut(text, WIRE_TEXT_MAX)),
    };
    e->open--;
}

void assignment_reply(struct assignment *e, size_t i, struct slice reply)
{
    struct wire_verdict *v = &e->verdicts[i];

    CHECK(assignment_decided(e, i));
    v->reply = keep(e, cut(reply, WIRE_TEXT_MAX));
    if (slice_equal(v->text, v->reply)) {
        v->text.len = 0;
    }
}

void assignment_quote(struct assignment *e, size_t i, enum wire_report report, bool stops_thread,
                      struct slice details)
{
    CHECK(assignment_decided(e, i));
    e->verdicts[i].report = report;
    e->verdicts[i].stops_thread = stops_thread;
    e->verdicts[i].details = keep(e, cut(details, WIRE_DETAILS_MAX));
}

const struct wire_verdict *assignment_verdict(const struct assignment *e, size_t i)
{
    CHECK(assignment_decided(e, i));
    return &e->verdicts[i];
}

void assignment_decide_rest(struct assignment *e, enum failure_cause cause, struct status status,
                            struct slice text, struct slice relay)
{
    for (size_t i = 0; i < e->ask.rcpt_count; i++) {
        if (!assignment_decided(e, i)) {
            assignment_decide(e, i,
                              status.class == STATUS_SUCCESS     ? VERDICT_SENT
                              : status.class == STATUS_PERMANENT ? VERDICT_BOUNCED
                                                                 : VERDICT_DEFERRED,
                              cause, status, text, relay);
        }
    }
}

/* ---- the table of a process ----------------------------------------------------------------- */

void assignments_add(struct assignments *all, struct assignment *e, void *owner)
{
    CHECK(e->all == NULL);
    e->all = all;
    e->owner = owner;
    HASH_ADD(hh, all->table, ask.entry, sizeof e->ask.entry, e);
}

void *assignments_find(const struct assignments *all, uint64_t id)
{
    struct assignment *e;

    HASH_FIND(hh, all->table, &id, sizeof id, e);
    return e == NULL ? NULL : e->owner;
}

void assignments_each(struct assignments *all, void (*each)(void *arg, void *owner), void *arg)
{
    struct assignment *e, *next;

    HASH_ITER(hh, all->table, e, next)
    {
        each(arg, e->owner);
    }
}

void assignments_lost(struct assignments *all, bool (*goes_on)(void *arg, void *owner), void *arg)
{
    struct assignment *e, *next;

    HASH_ITER(hh, all->table, e, next)
    {
        if (goes_on(arg, e->owner)) {
            leave_table(e);
            e->orphan = true;
        }
    }
}

/* ---- results to the queue process ----------------------------------------------------------- */

/* Returns NULL if the queue process is gone or there is none. */
static struct channel *channel_of(const struct assignment *e)
{
    return e->orphan || e->all->queue == NULL ? NULL : *e->all->queue;
}

bool assignment_is_awaited(const struct assignment *e)
{
    return channel_of(e) != NULL;
}

void assignment_ask_content(const struct assignment *e)
{
    struct channel *ch = channel_of(e);

    if (ch != NULL) {
        wire_put_need_content(ch, e->ask.entry);
    }
}

static void send_result(const struct assignment *e, const struct assignment_end *end)
{
    struct channel *ch = channel_of(e);

    if (ch != NULL) {
        wire_put_result(ch, &(struct wire_result){
                                .entry = e->ask.entry,
                                .outcome = end->outcome,
                                .fault = e->fault,
                                .fault_rcpt = e->fault_rcpt,
                                .reason = cut(end->reason, WIRE_TEXT_MAX),
                                .setup_us = end->setup_us,
                                .transmit_us = end->transmit_us,
                                .conn_use = end->conn_use,
                                .proof = end->proof,
                                .tls_version = cut(end->tls_version, WIRE_TLS_MAX),
                                .tls_cipher = cut(end->tls_cipher, WIRE_TLS_MAX),
                                .maybe_duplicate = end->maybe_duplicate,
                                .resync = end->resync,
                                .thread_stops = end->thread_stops,
                                .thread_until = end->thread_until,
                                .pid = end->pid,
                                .verdicts = e->verdicts,
                                .verdict_count = e->ask.rcpt_count,
                            });
    }
}

void assignment_finish(struct assignment *e, const struct assignment_end *end)
{
    CHECK(e->open == 0);
    CHECK(end->outcome != OUTCOME_GIVEN_BACK);
    if (e->orphan) {
        log_warning("%.*s: the queue was restarted during this delivery%s", SLICE_ARGS(e->ask.id),
                    e->ask.place == CONTENT_NONE ? ": it reads the control file for what came of it"
                                                 : ", which will be repeated");
    }
    if (e->all->told != NULL) {
        e->all->told(e->all->told_arg, e, end);
    } else {
        send_result(e, end);
    }
    assignment_free(e);
}

void assignment_give_back(struct assignment *e, bool stopped)
{
    struct channel *ch = channel_of(e);

    CHECK(e->open == e->ask.rcpt_count);
    if (e->all->told != NULL) {
        e->all->told(e->all->told_arg, e, NULL);
    } else if (ch != NULL) {
        wire_put_result(ch, &(struct wire_result){.entry = e->ask.entry,
                                                  .outcome = OUTCOME_GIVEN_BACK,
                                                  .thread_stops = stopped});
    }
    assignment_free(e);
}

void assignment_break_off(struct assignment *e, const char *why)
{
    struct channel *ch = channel_of(e);
    bool some = e->open < e->ask.rcpt_count;

    CHECK(e->open > 0 && e->all->told == NULL);
    log_info("%.*s: not delivered for now: %s", SLICE_ARGS(e->ask.id), why);
    for (size_t i = 0; some && i < e->ask.rcpt_count; i++) {
        if (!assignment_decided(e, i)) {
            e->verdicts[i] = (struct wire_verdict){.n = e->ask.rcpts[i].n, .kind = VERDICT_NONE};
        }
    }
    if (ch != NULL) {
        wire_put_result(ch, &(struct wire_result){.entry = e->ask.entry,
                                                  .outcome = OUTCOME_BROKEN_OFF,
                                                  .verdicts = e->verdicts,
                                                  .verdict_count = some ? e->ask.rcpt_count : 0});
    }
    assignment_free(e);
}
