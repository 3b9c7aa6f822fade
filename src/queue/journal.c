#include "journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "active.h"
#include "check.h"
#include "clock.h"
#include "hash.h"
#include "hooks.h"
#include "listing.h"
#include "log.h"
#include "measures.h"
#include "mem.h"
#include "queue.h"
#include "queue_report.h"
#include "queue_result.h"
#include "settlement.h"
#include "spool_events.h"
#include "spool_notes.h"

/* Time until events without another reason to commit get a commit of their own. */
#define JOURNAL_ALONE_US (100 * US_PER_MS)
/* Bytes written to the file at once. */
#define FILE_PIECE 262144
#define NOTE_FILED "journal/filed"
/* Blocks deleted in one commit, so that no commit takes long. */
#define FORGOTTEN_MAX 4
#define BLOCK_MAX     (2ul * JOURNAL_WAIT_MAX)

/* Effect of a failed commit on a waiting event. An event of a repeated step is dropped, because the
 * step makes it again. */
enum { KEEP = 'k', DROP = 'd' };

struct journal_window {
    UT_hash_handle hh;
    char *key; /* owned; "transport/destination" */
    uint32_t before, after, least, most;
    uint64_t changes;
};

/* ---- lines ---------------------------------------------------------------------------------- */

static bool is_plain(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];

        if (c < ' ' || c >= 127 || c == '"' || c == '\\') {
            return false;
        }
    }
    return true;
}

/* Events are many, so no format strings are parsed for them. An error of `waiting` is sticky, and
 * checked in end(). */

static void put_digits(struct buf *b, uint64_t value, unsigned at_least)
{
    char digits[20];
    unsigned at = sizeof digits;

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0 || sizeof digits - at < at_least);
    (void)buf_add(b, slice_of(digits + at, sizeof digits - at));
}

/* Appends ,"name": */
static void put_name(struct buf *b, const char *name)
{
    size_t len = strlen(name);
    char *room = buf_room(b, len + 4);

    if (room != NULL) {
        memcpy(room, ",\"", 2);
        memcpy(room + 2, name, len);
        memcpy(room + 2 + len, "\":", 2);
        buf_grew(b, len + 4);
    }
}

static void put_number(struct buf *b, const char *name, uint64_t value)
{
    put_name(b, name);
    put_digits(b, value, 1);
}

static void put(struct buf *b, const char *name, struct slice text)
{
    put_name(b, name);
    if (is_plain(text)) {
        (void)buf_add_byte(b, '"');
        (void)buf_add(b, text);
        (void)buf_add_byte(b, '"');
    } else {
        json_t *json = listing_text(text);
        char *dumped = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);

        CHECK(dumped != NULL);
        (void)buf_add_string(b, dumped);
        free(dumped);
        json_decref(json);
    }
}

static void put_if(struct buf *b, const char *name, struct slice text)
{
    if (text.len > 0) {
        put(b, name, text);
    }
}

static void put_seconds(struct buf *b, const char *name, int64_t us)
{
    uint64_t value = us > 0 ? (uint64_t)us : 0;

    put_name(b, name);
    put_digits(b, value / US_PER_S, 1);
    (void)buf_add_byte(b, '.');
    put_digits(b, value % US_PER_S, 6);
}

/* Appends "transport/destination". */
static void put_destination(struct buf *b, struct slice transport, struct slice dest)
{
    struct buf name;

    if (is_plain(transport) && is_plain(dest)) { /* almost always; needs no copy */
        put_name(b, "destination");
        (void)buf_add_byte(b, '"');
        (void)buf_add(b, transport);
        (void)buf_add_byte(b, '/');
        (void)buf_add(b, dest);
        (void)buf_add_byte(b, '"');
        return;
    }
    buf_init(&name, transport.len + dest.len + 1);
    CHECK(buf_add(&name, transport) && buf_add_byte(&name, '/') && buf_add(&name, dest));
    put(b, "destination", buf_slice(&name));
    buf_fini(&name);
}

/* Begins an event. Returns NULL if there is no journal. */
static struct buf *begin(struct queue *q, int on_failure, const char *event)
{
    struct journal *j = &q->journal;

    if (!j->on) {
        return NULL;
    }
    (void)buf_add_byte(&j->waiting, (char)on_failure);
    put_seconds(&j->waiting, "time", clock_wall().us);
    put(&j->waiting, "event", slice_string(event));
    return &j->waiting;
}

static size_t waiting_len(const struct queue *q)
{
    return buf_len(&q->journal.waiting);
}

static void end(struct queue *q, size_t before)
{
    struct journal *j = &q->journal;

    (void)buf_add_string(&j->waiting, "}\n");
    if (!j->waiting.failed && (!j->halted || buf_len(&j->waiting) <= JOURNAL_HALTED_MAX)) {
        j->count++;
        return;
    }
    j->waiting.failed = false; /* earlier lines are complete */
    buf_truncate(&j->waiting, before);
    if (j->lost++ == 0) {
        log_error("events: too many wait for a commit: some are lost");
    }
}

/* Adds an event with the number of lost events. */
static void tell_lost(struct queue *q)
{
    struct journal *j = &q->journal;
    size_t before = waiting_len(q);
    uint64_t lost = j->lost;
    struct buf *b;

    if (lost == 0 || buf_len(&j->waiting) > JOURNAL_HALTED_MAX) {
        return; /* or there is no room yet */
    }
    b = begin(q, KEEP, "lost");
    if (b != NULL) {
        put_number(b, "count", lost);
        end(q, before);
    }
    j->lost = 0;
}

/* ---- commits -------------------------------------------------------------------------------- */

/* Returns the sum of the commits in flight. */
static struct journal_piece adding(const struct journal *j)
{
    struct journal_piece sum = {.count = 0};

    for (unsigned i = 0; i < j->adding_count; i++) {
        sum.count += j->adding[i].count;
        sum.bytes += j->adding[i].bytes;
        sum.waiting += j->adding[i].waiting;
    }
    return sum;
}

/* Drops all waiting events but those marked `kept`, and counts these. */
static void keep_only(struct journal *j, int kept)
{
    struct slice rest = buf_slice(&j->waiting);
    struct buf left;

    buf_init(&left, JOURNAL_WAIT_MAX);
    j->count = 0;
    while (rest.len > 0) {
        struct slice line = slice_of(rest.ptr, slice_find(rest, '\n') + 1);

        if (line.ptr[0] == (char)kept) {
            CHECK(buf_add(&left, line));
            j->count++;
        }
        rest = slice_skip(rest, line.len);
    }
    buf_fini(&j->waiting);
    j->waiting = left;
}

/* Marks the events in the first `len` bytes, whose facts are stored, so that no failure drops them.
 * While the journal is halted, commits continue without events. */
static void keep_all(struct journal *j, size_t len)
{
    struct slice rest = slice_of(buf_slice(&j->waiting).ptr, len);

    while (rest.len > 0) {
        *(char *)rest.ptr = KEEP; /* in place: it is our buffer */
        rest = slice_skip(rest, slice_find(rest, '\n') + 1);
    }
}

static void forget_old(struct queue *q, uint64_t adding_bytes)
{
    struct journal *j = &q->journal;
    struct wall limit = {clock_wall().us - q->conf->events_keep_time_us};

    for (int i = 0; i < FORGOTTEN_MAX; i++) {
        struct spool_events_range range;
        uint64_t bytes;

        if (j->last <= j->first ||
            (j->bytes + adding_bytes <= (uint64_t)q->conf->events_keep_size &&
             j->oldest.us >= limit.us)) {
            return;
        }
        j->forgot_by = j->oldest.us < limit.us ? "events_keep_time" : "events_keep_size";
        if (spool_events_forget(q->spool, &bytes) != 0 || bytes == 0 ||
            spool_events_range(q->spool, false, &range) != 0) {
            return; /* the batch has failed, or only one block is left */
        }
        j->bytes -= bytes < j->bytes ? bytes : j->bytes;
        j->first = range.first;
        j->oldest = range.oldest;
    }
}

/* Stores the number of the last event in events_file, in a commit that is made anyway. After a
 * crash, later lines are written again. */
static void note_filed(struct queue *q)
{
    struct journal *j = &q->journal;
    char text[24];

    if (j->filed != j->filed_noted && log_sink_is_open(&q->log_sinks[LOG_SINK_EVENTS])) {
        (void)snprintf(text, sizeof text, "%" PRIu64, j->filed); /* fits */
        /* An error fails the batch. */
        (void)spool_note_put(q->spool, SLICE(NOTE_FILED), slice_string(text));
        j->filed_noted = j->filed;
    }
}

struct filed {
    bool is_known;
    unsigned long long number;
};

static void read_filed_note(void *context, struct slice name, struct slice text, bool is_damaged)
{
    struct filed *f = context;

    if (!is_damaged && slice_equal(name, SLICE(NOTE_FILED))) {
        f->is_known = true;
        (void)slice_number(text, INT64_MAX, &f->number); /* else from the beginning */
    }
}

/* Reads the number that note_filed has stored. Without one, the file was configured just now, and
 * begins with the next event. */
static void read_filed(struct queue *q)
{
    struct filed f = {false, 0};

    (void)spool_notes_read(q->spool, read_filed_note, &f); /* a spool without notes has none */
    if (!f.is_known) {
        f.number = q->journal.last;
    }
    q->journal.filed = f.number < q->journal.last ? f.number : q->journal.last;
    q->journal.filed_noted = UINT64_MAX; /* unknown: the next commit with events stores it */
}

/* Writes missing lines to the file, once it has accepted all earlier ones, so that none is
 * dropped. */
static void fill_file(struct queue *q)
{
    struct log_sink *file = &q->log_sinks[LOG_SINK_EVENTS];
    struct journal *j = &q->journal;
    struct buf lines;
    uint64_t last;

    if (!j->on || j->filed >= j->last || !log_sink_is_open(file) || buf_len(&file->out) > 0) {
        return;
    }
    buf_init(&lines, LOG_SINK_MAX / 2);
    if (journal_read(q, j->filed, FILE_PIECE, &lines, &last) == 0 && buf_len(&lines) > 0) {
        log_sink_add(file, buf_slice(&lines));
        log_sink_flush(file);
        j->filed = last;
    }
    buf_fini(&lines);
}

void journal_write(struct queue *q, bool now)
{
    struct journal *j = &q->journal;
    struct journal_piece *piece = &j->adding[j->adding_count], before = adding(j);
    uint64_t number = j->last + before.count;
    struct slice rest;
    struct buf block;
    bool was_lost;
    int rc;

    CHECK(j->adding_count < BATCH_COMMITS_MAX);
    j->adding_count++;
    *piece = (struct journal_piece){.facts_end = j->passed + buf_len(&j->waiting)};
    if (j->halted || !now) {
        return;
    }
    tell_lost(q);
    if (j->count == 0) {
        return;
    }
    note_filed(q);
    rest = slice_skip(buf_slice(&j->waiting), before.waiting);
    piece->waiting = rest.len;
    buf_init(&block, BLOCK_MAX + 64 * j->count);
    while (rest.len > 0) {
        struct slice line = slice_of(rest.ptr + 1, slice_find(rest, '\n'));

        CHECK(buf_add_string(&block, "{\"number\":"));
        put_digits(&block, ++number, 1);
        CHECK(buf_add(&block, line));
        rest = slice_skip(rest, line.len + 1);
    }
    CHECK(number - j->last - before.count == j->count);
    piece->count = j->count;
    piece->bytes = buf_len(&block);
    was_lost = spool_batch_is_lost(q->spool);
    forget_old(q, before.bytes + piece->bytes);
    /* An error fails the batch, and so its commit. But an error of a side store does not: mail
     * continues, and its events wait. */
    rc = spool_events_add(q->spool, number - piece->count + 1, number, clock_wall(),
                          buf_slice(&block));
    j->add_rc = was_lost ? 0 : rc;
    if (rc == 0 || spool_batch_is_lost(q->spool)) {
        j->count = 0;
    } else {
        *piece = (struct journal_piece){.facts_end = piece->facts_end};
        j->halted = true;
    }
    buf_fini(&block);
}

static void end_piece(struct queue *q, struct journal_piece piece)
{
    struct journal *j = &q->journal;

    if (j->last == 0) {
        j->first = 1;
        j->oldest = clock_wall();
    }
    j->last += piece.count;
    j->bytes += piece.bytes;
    j->passed += piece.waiting;
    if (piece.waiting == buf_len(&j->waiting)) {
        buf_clear(&j->waiting);
    } else {
        buf_consume(&j->waiting, piece.waiting);
    }
    hooks_more(q);
    if (j->wanted && q->control != NULL) {
        j->wanted = false;
        wire_put_number(q->control, WIRE_EVENTS_MORE, j->last);
    }
}

void journal_done(struct queue *q, bool committed)
{
    struct journal *j = &q->journal;
    struct journal_piece piece;

    if (!committed) {
        j->is_damaged = j->is_damaged || j->add_rc == -EUCLEAN;
        j->adding_count = 0;
        keep_only(j, KEEP);
        j->halted = j->on;
        return;
    }
    CHECK(j->adding_count > 0);
    piece = j->adding[0];
    j->adding_count--;
    memmove(j->adding, j->adding + 1, j->adding_count * sizeof j->adding[0]);
    if (piece.count > 0) {
        end_piece(q, piece);
    } else {
        keep_all(j, (size_t)(piece.facts_end - j->passed));
    }
}

void journal_tell_more(struct queue *q)
{
    q->journal.wanted = true;
}

int journal_read(struct queue *q, uint64_t after, size_t max, struct buf *out, uint64_t *ret_last)
{
    size_t before = buf_len(out);
    uint64_t first, last;
    struct slice lines;
    int rc;

    *ret_last = after;
    while (buf_len(out) - before < max && *ret_last < q->journal.last) {
        rc = spool_events_read(q->spool, *ret_last + 1, &first, &last, &lines);
        if (rc != 0) {
            return rc == -ENOENT ? 0 : rc;
        }
        for (uint64_t n = first; n <= last && lines.len > 0; n++) {
            struct slice line = slice_of(lines.ptr, slice_find(lines, '\n') + 1);

            if (n > *ret_last && n <= q->journal.last) {
                if (buf_len(out) - before >= max || !buf_add(out, line)) {
                    return 0;
                }
                *ret_last = n;
            }
            lines = slice_skip(lines, line.len);
        }
    }
    return 0;
}

/* Returns the time of the event `number`, or of the first later one that is kept. */
static int time_of(struct queue *q, uint64_t number, struct wall *ret_at)
{
    uint64_t first, last;
    struct slice lines;
    int rc = spool_events_read(q->spool, number, &first, &last, &lines);
    static const char member[] = "\"time\":";
    const char *at;

    if (rc != 0) {
        return rc;
    }
    for (; first < number && lines.len > 0; first++) {
        lines = slice_skip(lines, slice_find(lines, '\n') + 1);
    }
    lines.len = slice_find(lines, '\n');
    at = memmem(lines.ptr, lines.len, member, sizeof member - 1);
    if (at == NULL) {
        return -EBADMSG;
    }
    char text[32] = "";
    size_t len = (size_t)(lines.ptr + lines.len - at) - (sizeof member - 1);

    memcpy(text, at + sizeof member - 1, len < sizeof text ? len : sizeof text - 1);
    ret_at->us = (int64_t)(strtod(text, NULL) * (double)US_PER_S);
    return 0;
}

int journal_find(struct queue *q, struct wall since, uint64_t *ret_after)
{
    /* All events up to `low` are before `since`, those from `high` on are not. */
    uint64_t low = q->journal.first > 0 ? q->journal.first - 1 : 0, high = q->journal.last + 1;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        struct wall at;
        int rc = time_of(q, middle, &at);

        if (rc != 0) {
            return rc;
        }
        if (at.us < since.us) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *ret_after = low;
    return 0;
}

/* ---- facts ---------------------------------------------------------------------------------- */

void journal_received(struct queue *q, struct msg_id id, const struct spool_message *m,
                      struct slice rcpt, uint32_t rcpts, uint64_t size, struct slice login,
                      const char *from)
{
    size_t before = waiting_len(q);
    struct buf *b = begin(q, m->is_new ? KEEP : DROP, "received");
    struct spool_message named = {.id = id, .path = m->path, .spoolid = m->spoolid};
    char name[QUEUE_NAME_MAX];

    if (b == NULL) {
        return;
    }
    put(b, "queue_id", slice_string(queue_message_name(&named, name)));
    put(b, "sender", m->sender);
    if (rcpts == 1) {
        put(b, "recipient", rcpt);
    }
    put_if(b, "class", m->class_name);
    put(b, "source", m->client);
    put_if(b, "login", login);
    put_number(b, "recipients", rcpts);
    put_number(b, "size", size);
    put_if(b, "requeued_from", slice_string(from));
    end(q, before);
}

/* Makes an object of the members after `before`: a brace replaces their first comma. */
static void begin_object(struct buf *b, size_t before)
{
    if (buf_len(b) > before) {                      /* else `waiting` has failed */
        *(char *)(buf_slice(b).ptr + before) = '{'; /* in place: it is our buffer */
    }
}

/* Appends "dane-ee/TLSv1.3/TLS_AES_256_GCM_SHA384", or "clear", as an object. */
static void put_tls(struct buf *b, struct slice shown)
{
    struct slice rest = shown, proof = slice_cut(&rest, '/'), version = slice_cut(&rest, '/');
    size_t before;

    if (shown.len == 0) {
        return;
    }
    put_name(b, "tls");
    before = buf_len(b);
    put(b, "proof", proof);
    put_if(b, "version", version.ptr == NULL ? SLICE("") : version);
    put_if(b, "cipher", rest.ptr == NULL ? SLICE("") : rest);
    begin_object(b, before);
    (void)buf_add_byte(b, '}');
}

static void put_delays(struct buf *b, const struct settlement *s)
{
    const struct active_msg *m = s->msg;
    size_t before;

    put_seconds(b, "delay", clock_wall().us - m->arrived.us);
    if (s->delivery == NULL || s->result == NULL || s->cause == SETTLE_STOPPED) {
        return;
    }
    put_name(b, "delays");
    before = buf_len(b);
    put_seconds(b, "queued", m->activated_wall.us - m->arrived.us);
    put_seconds(b, "active", s->delivery->handed.us - m->activated.us);
    put_seconds(b, "setup", s->result->setup_us);
    put_seconds(b, "transmit", s->result->transmit_us);
    begin_object(b, before);
    (void)buf_add_byte(b, '}');
}

void journal_settled(struct queue *q, const struct settlement *s, const struct settled *r)
{
    static const char *const events[] = {
        [DISPOSITION_SENT] = "delivered",        [DISPOSITION_DEFERRED] = "deferred",
        [DISPOSITION_SOFT_BOUNCED] = "deferred", [DISPOSITION_BOUNCED] = "bounced",
        [DISPOSITION_EXPIRED] = "expired",
    };
    const struct active_msg *m = s->msg;
    size_t before = waiting_len(q);
    struct buf *b;

    if (r->quiet && r->disposition != DISPOSITION_EXPIRED) {
        return; /* nothing has happened, or another settlement has the event */
    }
    b = begin(q, KEEP, events[r->disposition]);
    if (b == NULL) {
        return;
    }
    put(b, "queue_id", slice_string(m->id_text));
    put(b, "sender", slice_string(m->sender));
    put(b, "recipient", slice_string(r->rcpt->address));
    if (s->delivery != NULL || s->destination != NULL) {
        uint32_t transport =
            s->delivery != NULL ? s->delivery->transport : s->destination->transport;

        put_destination(
            b, slice_string(transport_name(&q->transports, transport)),
            slice_string(s->delivery != NULL ? s->delivery->dest : s->destination->name));
    }
    put_if(b, "class", slice_string(m->its_class->name));
    put_if(b, "relay", r->said.relay);
    put_if(b, "reply", slice_trim(r->said.reply.len > 0 ? r->said.reply : r->said.text));
    put_if(b, "status", r->verdict.status);
    put(b, "category", slice_string(measure_category_name(measure_category(r->verdict.status))));
    put_delays(b, s);
    put_tls(b, slice_string(s->tls));
    end(q, before);
}

void journal_expired(struct queue *q, const struct spool_message *m, const struct spool_rcpt *r)
{
    size_t before = waiting_len(q);
    struct buf *b = begin(q, DROP, "expired");
    char text[SPOOL_ID_TEXT_MAX];

    if (b == NULL) {
        return;
    }
    spool_id_print(spool_whole(m), text);
    put(b, "queue_id", slice_string(text));
    put(b, "sender", m->sender);
    put(b, "recipient", r->address);
    put_destination(b, r->transport, r->nexthop);
    put_if(b, "class", m->class_name);
    put_if(b, "relay", r->remote);
    put_if(b, "reply", slice_trim(r->reply.len > 0 ? r->reply : r->diagnostic));
    put_if(b, "status", r->status);
    put(b, "category", slice_string(measure_category_name(measure_category(r->status))));
    put_seconds(b, "delay", clock_wall().us - m->arrived.us);
    end(q, before);
}

void journal_changed(struct queue *q, const char *event, const char *id,
                     const struct spool_message *m, struct slice reason)
{
    size_t before = waiting_len(q);
    struct buf *b = begin(q, DROP, event);

    if (b == NULL) {
        return;
    }
    put(b, "queue_id", slice_string(id));
    if (m != NULL) {
        put(b, "sender", m->sender);
        put_if(b, "class", m->class_name);
        put_if(b, "source", m->client);
    }
    put_if(b, "reason", reason);
    end(q, before);
}

void journal_report_sent(struct queue *q, const char *id, const struct spool_message *m,
                         struct msg_id report, struct slice to, const char *kind)
{
    size_t before = waiting_len(q);
    struct buf *b = begin(q, DROP, "report");
    char text[SPOOL_ID_TEXT_MAX];

    if (b == NULL) {
        return;
    }
    put(b, "queue_id", slice_string(id));
    put(b, "sender", m->sender);
    put(b, "recipient", to);
    put(b, "kind", slice_string(kind));
    spool_id_print(report, text);
    put(b, "report_id", slice_string(text));
    end(q, before);
}

void journal_destination(struct queue *q, const char *event, const char *transport,
                         struct slice dest, struct wall until, uint32_t window, struct slice reason)
{
    size_t before = waiting_len(q);
    struct buf *b = begin(q, KEEP, event);

    if (b == NULL) {
        return;
    }
    put_destination(b, slice_string(transport), dest);
    put_if(b, "reply", reason);
    put_number(b, "window", window);
    if (until.us > 0) {
        put_seconds(b, "until", until.us);
    }
    end(q, before);
}

void journal_intervention(struct queue *q, const char *event, const char *name, const char *target,
                          const char *reason, struct wall until)
{
    size_t before = waiting_len(q);
    struct buf *b = begin(q, DROP, event);

    if (b == NULL) {
        return;
    }
    put(b, "destination", slice_string(target));
    put(b, "intervention", slice_string(name));
    put_if(b, "reason", slice_string(reason));
    if (until.us > 0 && until.us != US_FOREVER) {
        put_seconds(b, "until", until.us);
    }
    end(q, before);
}

/* ---- windows -------------------------------------------------------------------------------- */

static void tell_windows(struct queue *q)
{
    struct journal *j = &q->journal;
    struct journal_window *w, *next;

    HASH_ITER(hh, j->windows, w, next)
    {
        size_t before = waiting_len(q);
        struct buf *b = begin(q, KEEP, "window");

        if (b != NULL) {
            put(b, "destination", slice_string(w->key));
            put_number(b, "before", w->before);
            put_number(b, "window", w->after);
            put_number(b, "least", w->least);
            put_number(b, "most", w->most);
            put_number(b, "changes", w->changes);
            end(q, before);
        }
        HASH_DEL(j->windows, w);
        mem_free(w->key);
        mem_free(w);
    }
    j->windows_at = MONO_NEVER;
}

void journal_window(struct queue *q, const char *transport, const char *dest, uint32_t before,
                    uint32_t after)
{
    struct journal *j = &q->journal;
    struct journal_window *w;
    struct buf key;

    if (!j->on) {
        return;
    }
    buf_init(&key, 8192);
    (void)buf_addf(&key, "%s/%s", transport, dest); /* fits */
    HASH_FIND(hh, j->windows, buf_slice(&key).ptr, buf_len(&key), w);
    if (w == NULL) {
        if (HASH_COUNT(j->windows) >= JOURNAL_WINDOWS_MAX) {
            tell_windows(q);
        }
        if (j->windows == NULL) {
            j->windows_at = mono_after(clock_mono(), JOURNAL_WINDOWS_US);
        }
        w = mem_new(sizeof *w);
        w->key = mem_copy(buf_slice(&key).ptr, buf_len(&key));
        w->before = w->least = w->most = before;
        HASH_ADD_KEYPTR(hh, j->windows, w->key, buf_len(&key), w);
    }
    buf_fini(&key);
    w->after = after;
    w->least = after < w->least ? after : w->least;
    w->most = after > w->most ? after : w->most;
    w->changes++;
}

bool journal_waits(const struct queue *q)
{
    const struct journal *j = &q->journal;

    return (j->count > 0 || j->lost > 0) && !j->halted && !batch_is_blocked(&q->batch);
}

void journal_storage_works(struct queue *q)
{
    q->journal.halted = q->journal.is_damaged;
}

struct mono journal_wake_at(const struct queue *q)
{
    if (journal_waits(q) && !spool_dirty(q->spool)) {
        return mono_after(clock_mono(), JOURNAL_ALONE_US);
    }
    if (q->journal.on && q->journal.filed < q->journal.last &&
        log_sink_is_open(&q->log_sinks[LOG_SINK_EVENTS])) {
        return mono_after(clock_mono(), JOURNAL_ALONE_US);
    }
    return q->journal.windows == NULL ? MONO_NEVER : q->journal.windows_at;
}

void journal_turn(struct queue *q)
{
    if (q->journal.windows != NULL && mono_reached(q->journal.windows_at, clock_mono())) {
        tell_windows(q);
    }
    fill_file(q);
}

/* ---- begin and end -------------------------------------------------------------------------- */

void journal_reload(struct queue *q)
{
    struct journal *j = &q->journal;
    struct spool_events_range range;
    int rc;

    if (j->on == q->conf->events) {
        return;
    }
    j->on = false;
    if (!q->conf->events) {
        return;
    }
    rc = spool_events_range(q->spool, true, &range);
    if (rc == -ENOTSUP) {
        return; /* the store has no place for events */
    }
    if (rc != 0) {
        log_error("events: none are written: %s", spool_error(q->spool));
        return;
    }
    j->on = true;
    j->first = range.first;
    j->last = range.last - adding(j).count; /* the range includes the commits in flight */
    j->bytes = range.bytes;
    j->oldest = range.oldest;
    read_filed(q);
}

void journal_begin(struct queue *q)
{
    q->journal = (struct journal){.windows_at = MONO_NEVER, .forgot_by = "events_keep_time"};
    buf_init(&q->journal.waiting, JOURNAL_WAIT_MAX);
    journal_reload(q);
}

void journal_end(struct queue *q)
{
    struct journal_window *w, *next;

    HASH_ITER(hh, q->journal.windows, w, next)
    {
        HASH_DEL(q->journal.windows, w);
        mem_free(w->key);
        mem_free(w);
    }
    buf_fini(&q->journal.waiting);
}
