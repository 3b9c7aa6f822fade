#include "entry.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "mem.h"

struct entry_text {
    struct entry_text *next;
    size_t len;
    char bytes[];
};

/* ---- taking it ------------------------------------------------------------------------------ */

/* Where the content is. False when frame and descriptor do not fit together. */
static bool find_content(struct entry *e)
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

struct entry *entry_new(const struct frame *frame)
{
    struct entry *e = mem_new(sizeof *e);

    e->fd = frame->fd;
    e->taken = clock_mono();
    e->body = mem_copy(frame->body.ptr, frame->body.len);
    if (!wire_get_deliver(slice_of(e->body, frame->body.len), &e->ask, &e->rcpts) ||
        e->ask.rcpt_count == 0 || !find_content(e)) {
        entry_free(e);
        return NULL;
    }
    e->verdicts = mem_array(e->ask.rcpt_count, sizeof e->verdicts[0]);
    e->open = e->ask.rcpt_count;
    return e;
}

struct entry *entry_make(const struct wire_deliver *ask, int fd)
{
    struct entry *e = mem_new(sizeof *e);

    CHECK(ask->rcpt_count > 0 && ask->place == CONTENT_FD);
    e->fd = fd;
    e->taken = clock_mono();
    e->ask = *ask;
    e->verdicts = mem_array(ask->rcpt_count, sizeof e->verdicts[0]);
    e->open = ask->rcpt_count;
    if (!find_content(e)) {
        entry_free(e);
        return NULL;
    }
    return e;
}

void entry_free(struct entry *e)
{
    struct entry_text *text;

    if (e == NULL) {
        return;
    }
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

bool entry_take_content(struct entry *e, const struct wire_content *m, int fd)
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

enum entry_piece entry_piece(struct entry *e, struct slice *ret_piece, bool *ret_last)
{
    static char piece[ENTRY_PIECE_MAX]; /* of whoever reads at the moment */
    uint64_t left = e->content_size - e->content_at;
    ssize_t n;

    if (!e->have_content) {
        return ENTRY_PIECE_WAIT;
    }
    if (e->fd < 0 || e->content_at < e->content.len) {
        *ret_piece = slice_skip(e->content, (size_t)e->content_at);
        *ret_last = ret_piece->len == left;
        return ENTRY_PIECE;
    }
    if (left > sizeof piece) {
        left = sizeof piece;
    }
    do {
        n = pread(e->fd, piece, (size_t)left, (off_t)(e->content_at - e->content.len));
    } while (n < 0 && errno == EINTR);
    if (n < 0 || (n == 0 && left > 0)) {
        return ENTRY_PIECE_BROKEN;
    }
    *ret_piece = slice_of(piece, (size_t)n);
    *ret_last = e->content_at + (uint64_t)n == e->content_size;
    return ENTRY_PIECE;
}

void entry_piece_used(struct entry *e, size_t len)
{
    CHECK(len <= e->content_size - e->content_at);
    e->content_at += len;
}

void entry_rewind(struct entry *e)
{
    e->content_at = 0;
}

/* ---- verdicts ------------------------------------------------------------------------------- */

/* A copy of `text` that lasts as long as the entry; the last ones are looked at first. */
static struct slice keep(struct entry *e, struct slice text)
{
    struct entry_text *kept = e->texts;

    for (int i = 0; i < 3 && kept != NULL; i++, kept = kept->next) {
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

bool entry_decided(const struct entry *e, size_t i)
{
    CHECK(i < e->ask.rcpt_count);
    return e->verdicts[i].text.ptr != NULL;
}

void entry_decide(struct entry *e, size_t i, enum wire_verdict_kind kind, struct status status,
                  struct slice text, struct slice relay)
{
    char printed[STATUS_SIZE];

    CHECK(!entry_decided(e, i));
    e->verdicts[i] = (struct wire_verdict){
        .n = e->ask.rcpts[i].n,
        .kind = kind,
        .relay = keep(e, cut(relay, WIRE_HOST_MAX)),
        .status = keep(e, slice_string(status_print(status, printed))),
        .text = keep(e, cut(text, WIRE_TEXT_MAX)),
    };
    e->open--;
}

void entry_quote(struct entry *e, size_t i, uint32_t word, struct slice notary)
{
    CHECK(entry_decided(e, i));
    e->verdicts[i].word = word;
    e->verdicts[i].notary = keep(e, cut(notary, WIRE_NOTARY_MAX));
}

const struct wire_verdict *entry_verdict(const struct entry *e, size_t i)
{
    CHECK(entry_decided(e, i));
    return &e->verdicts[i];
}

void entry_decide_rest(struct entry *e, struct status status, struct slice text, struct slice relay)
{
    for (size_t i = 0; i < e->ask.rcpt_count; i++) {
        if (!entry_decided(e, i)) {
            entry_decide(e, i,
                         status.class == STATUS_SUCCESS     ? VERDICT_SENT
                         : status.class == STATUS_PERMANENT ? VERDICT_BOUNCED
                                                            : VERDICT_DEFERRED,
                         status, text, relay);
        }
    }
}

/* ---- the end -------------------------------------------------------------------------------- */

void entry_finish(struct entry *e, struct channel *ch, const struct entry_end *end)
{
    CHECK(e->open == 0);
    CHECK(end->outcome != OUTCOME_GIVEN_BACK);
    if (ch != NULL) {
        wire_put_result(ch, &(struct wire_result){
                                .entry = e->ask.entry,
                                .outcome = end->outcome,
                                .reason = cut(end->reason, WIRE_TEXT_MAX),
                                .setup_us = end->setup_us,
                                .transmit_us = end->transmit_us,
                                .conn_use = end->conn_use,
                                .tls = cut(end->tls, WIRE_TEXT_MAX),
                                .maybe_duplicate = end->maybe_duplicate,
                                .resync = end->resync,
                                .thread_stops = end->thread_stops,
                                .thread_until = end->thread_until,
                                .pid = end->pid,
                                .verdicts = e->verdicts,
                                .verdict_count = e->ask.rcpt_count,
                            });
    }
    entry_free(e);
}

void entry_give_back(struct entry *e, struct channel *ch, bool stopped)
{
    if (ch != NULL) {
        wire_put_result(ch, &(struct wire_result){.entry = e->ask.entry,
                                                  .outcome = OUTCOME_GIVEN_BACK,
                                                  .thread_stops = stopped});
    }
    entry_free(e);
}
