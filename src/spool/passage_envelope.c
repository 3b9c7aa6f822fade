/*
 * The bytes: a version; then numbers of 7 bits a byte, the least significant first, the last byte
 * below 128; and texts, each as its length and its bytes. Times are differences from `arrived`,
 * with the sign in the lowest bit.
 */
#include "passage_envelope.h"

#include "check.h"

#define VERSION     1
#define TIME_MAX_US (INT64_C(1) << 58) /* same limit as in rows */

static void put_number(struct buf *b, uint64_t n)
{
    for (; n >= 0x80; n >>= 7) {
        (void)buf_add_byte(b, (char)(unsigned char)(n | 0x80)); /* errors are sticky */
    }
    (void)buf_add_byte(b, (char)n);
}

static void put_time(struct buf *b, int64_t us)
{
    put_number(b, (uint64_t)us << 1 ^ (us < 0 ? UINT64_MAX : 0));
}

static void put_text(struct buf *b, struct slice text)
{
    put_number(b, text.len);
    (void)buf_add(b, text); /* errors are sticky */
}

/* Wraps around, as get_wall does. */
static int64_t difference(struct wall time, struct wall base)
{
    return (int64_t)((uint64_t)time.us - (uint64_t)base.us);
}

void passage_envelope_add(struct buf *b, const struct spool_message *m,
                          const struct spool_rcpt *rcpts, struct segment_place place,
                          uint64_t content_sum)
{
    CHECK(m->rcpt_total > 0 && m->rcpt_total <= PASSAGE_RCPTS_MAX);
    (void)buf_add_byte(b, VERSION); /* errors are sticky */
    put_time(b, m->arrived.us);
    put_time(b, difference(m->created, m->arrived));
    put_time(b, difference(m->due, m->arrived));
    put_number(b, m->size);
    put_number(b, place.segment);
    if (place.segment > 0) {
        put_number(b, place.at);
        put_number(b, content_sum);
    }
    put_number(b, m->flags);
    put_number(b, m->class_source);
    put_text(b, m->sender);
    put_text(b, m->envid);
    put_text(b, m->client);
    put_text(b, m->reason);
    put_text(b, m->class_name);
    put_number(b, m->rcpt_total);
    for (uint32_t i = 0; i < m->rcpt_total; i++) {
        const struct spool_rcpt *r = &rcpts[i];

        put_number(b, r->notify);
        put_number(b, r->route_generation);
        put_text(b, r->address);
        put_text(b, r->orcpt);
        put_text(b, r->transport);
        put_text(b, r->nexthop);
    }
}

struct reader {
    struct slice rest;
    bool bad;
};

static uint64_t get_number(struct reader *r, uint64_t max)
{
    uint64_t n = 0;
    unsigned char c = 0x80;

    for (unsigned shift = 0; shift < 64 && r->rest.len > 0 && c >= 0x80; shift += 7) {
        c = (unsigned char)r->rest.ptr[0];
        n |= (uint64_t)(c & 0x7f) << shift;
        r->rest = slice_skip(r->rest, 1);
    }
    if (c >= 0x80 || n > max) {
        r->bad = true;
        n = 0;
    }
    return n;
}

static int64_t get_time(struct reader *r)
{
    uint64_t n = get_number(r, UINT64_MAX);

    return (int64_t)(n >> 1 ^ ((n & 1) != 0 ? UINT64_MAX : 0));
}

static struct wall get_wall(struct reader *r, struct wall base)
{
    struct wall time = {(int64_t)((uint64_t)base.us + (uint64_t)get_time(r))};

    r->bad = r->bad || (time.us > TIME_MAX_US && time.us != WALL_NEVER.us);
    return time;
}

static struct slice get_text(struct reader *r, size_t min, size_t max)
{
    size_t len = (size_t)get_number(r, r->rest.len < max ? r->rest.len : max);
    struct slice text;

    if (len > r->rest.len) { /* r->rest has shrunk by the bytes of the length */
        r->bad = true;
        len = 0;
    }
    text = slice_of(r->rest.ptr, len);
    r->rest = slice_skip(r->rest, len);
    r->bad = r->bad || len < min || (len > 0 && slice_find(text, '\0') < len);
    return text;
}

static void get_rcpt(struct reader *r, uint32_t n, struct spool_rcpt *ret)
{
    *ret = (struct spool_rcpt){.n = n, .state = SPOOL_RCPT_PENDING};
    ret->notify = (unsigned)get_number(r, 2 * NOTIFY_DELAY - 1);
    ret->route_generation = get_number(r, INT64_MAX);
    ret->address = get_text(r, 1, ADDRESS_MAX);
    ret->orcpt = get_text(r, 0, DSN_ORCPT_MAX);
    ret->transport = get_text(r, 0, SPOOL_ROUTE_MAX);
    ret->nexthop = get_text(r, 0, SPOOL_ROUTE_MAX);
    r->bad = r->bad || (ret->transport.len == 0 && ret->nexthop.len > 0);
}

bool passage_envelope_read(struct slice bytes, struct passage_envelope *ret)
{
    struct reader r = {.rest = bytes};
    struct spool_message *m = &ret->m;

    *ret = (struct passage_envelope){.m = {.state = SPOOL_INCOMING}};
    if (get_number(&r, VERSION) != VERSION) {
        return false;
    }
    m->arrived = get_wall(&r, (struct wall){0});
    m->created = get_wall(&r, m->arrived);
    m->due = get_wall(&r, m->arrived);
    m->size = get_number(&r, SPOOL_CONTENT_MAX);
    ret->place.segment = (uint32_t)get_number(&r, SEGMENT_NUMBER_MAX);
    if (ret->place.segment > 0) {
        ret->place.at = get_number(&r, SPOOL_CONTENT_MAX);
        ret->content_sum = get_number(&r, UINT64_MAX);
    }
    m->flags = (unsigned)get_number(&r, 2 * ENVELOPE_TRACE - 1);
    m->class_source = (enum class_source)get_number(&r, CLASS_SOURCE_MAX);
    m->sender = get_text(&r, 0, SPOOL_SENDER_MAX);
    m->envid = get_text(&r, 0, DSN_ENVID_MAX);
    m->client = get_text(&r, 0, SPOOL_REMOTE_MAX);
    m->reason = get_text(&r, 0, SPOOL_DIAGNOSTIC_MAX);
    m->class_name = get_text(&r, 0, CLASS_NAME_MAX);
    r.bad = r.bad || (m->class_name.len > 0 && !class_name_valid(m->class_name));
    m->rcpt_total = m->rcpt_pending = (uint32_t)get_number(&r, PASSAGE_RCPTS_MAX);
    for (uint32_t i = 0; !r.bad && i < m->rcpt_total; i++) {
        get_rcpt(&r, i + 1, &ret->rcpts[i]);
    }
    return !r.bad && m->rcpt_total > 0 && r.rest.len == 0;
}
