/*
 * The reader is a loop over records. It keeps one window of bytes of the file, so that a message
 * with a million recipients needs no more memory than any other.
 */
#include "queue_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "envelope.h"
#include "mem.h"
#include "printable.h"

/* Number of bytes that are read at once. */
#define WINDOW 8192
/* Limit of times: the years 1970 to 9999. */
#define SECONDS_MAX  INT64_C(253402300799)
#define NUMBER_WIDTH 15
#define SIZE_FIELDS  6

/* ---- sources -------------------------------------------------------------------------------- */

ssize_t queue_file_read_bytes(void *context, void *bytes, size_t len, uint64_t at)
{
    const struct slice *all = context;
    struct slice rest = slice_skip(*all, at < all->len ? (size_t)at : all->len);

    len = len < rest.len ? len : rest.len;
    if (len > 0) {
        memcpy(bytes, rest.ptr, len);
    }
    return (ssize_t)len;
}

ssize_t queue_file_read_fd(void *context, void *bytes, size_t len, uint64_t at)
{
    const int *fd = context;
    size_t got = 0;

    if (at > INT64_MAX) {
        return 0;
    }
    while (got < len) {
        ssize_t n = pread(*fd, (char *)bytes + got, len - got, (off_t)(at + got));

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n == 0) {
            break;
        }
        got += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)got;
}

/* ---- the end -------------------------------------------------------------------------------- */

static enum queue_file_read corrupt(struct queue_file_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum queue_file_read corrupt(struct queue_file_reader *r, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(r->problem, sizeof r->problem, format, args); /* may be cut */
    va_end(args);
    r->ended = QUEUE_FILE_READ_CORRUPT;
    return r->ended;
}

/* Records the first value that is ignored. */
static void odd(struct queue_file_reader *r, const char *what, struct slice value)
{
    char *text = r->odd;

    if (text[0] == '\0') {
        (void)snprintf(text, sizeof r->odd, "ignoring %s: %.*s", what,
                       SLICE_ARGS(value)); /* may be cut */
        printable_line(text, strlen(text));
    }
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Returns `len` bytes at offset `at`, fewer at the end of the file; NULL if they can't be read. */
static const char *look(struct queue_file_reader *r, uint64_t at, size_t len, size_t *ret_len)
{
    bool to_end = r->window_len > 0 && r->window_at + r->window_len >= r->source.size;
    ssize_t got;

    CHECK(len <= QUEUE_FILE_RECORD_MAX);
    if (at < r->window_at || at - r->window_at > r->window_len ||
        (r->window_len - (size_t)(at - r->window_at) < len && !to_end)) {
        size_t want = len < WINDOW ? WINDOW : len;

        if (at < r->source.size && r->source.size - at < want) {
            want = (size_t)(r->source.size - at); /* avoids a second read that only finds the end */
        }

        if (r->window_size < want) {
            r->window = mem_resize(r->window, want, 1);
            r->window_size = want;
        }
        got = r->source.read(r->source.context, r->window, want, at);
        if (got < 0) {
            r->window_len = 0;
            r->error = (int)got;
            r->ended = QUEUE_FILE_READ_FAILED;
            return NULL;
        }
        r->window_at = at;
        r->window_len = (size_t)got;
    }
    *ret_len = r->window_len - (size_t)(at - r->window_at);
    *ret_len = *ret_len < len ? *ret_len : len;
    return r->window + (at - r->window_at);
}

/* The head of a record, with the offsets of record and data. */
struct record {
    char type;
    uint64_t at, data_at;
    uint64_t len;
};

/* Reads the head of the record at r->at.position, which moves to the next record. */
static bool next_record(struct queue_file_reader *r, struct record *ret_record)
{
    struct record rec = {.at = r->at.position};
    size_t got, head = 1;
    const char *p = look(r, rec.at, 6, &got);
    unsigned shift = 0;
    uint64_t used;

    if (p == NULL) {
        return false;
    }
    if (got == 0) {
        (void)corrupt(r, "missing end record");
        return false;
    }
    rec.type = p[0];
    for (;;) {
        if (head >= got || shift > 28) {
            (void)corrupt(r, "bad length of the record at offset %" PRIu64, rec.at);
            return false;
        }
        rec.len |= (uint64_t)(p[head] & 0x7f) << shift;
        shift += 7;
        if ((p[head++] & 0x80) == 0) {
            break;
        }
    }
    rec.data_at = rec.at + head;
    if (rec.len > r->source.size || rec.data_at > r->source.size - rec.len) {
        (void)corrupt(r, "the record at offset %" PRIu64 " is cut short", rec.at);
        return false;
    }
    used = head + rec.len;
    if (used > r->source.size - r->at.consumed) {
        (void)corrupt(r, "pointers to offset %" PRIu64 " make a circle", rec.at);
        return false;
    }
    r->at.consumed += used;
    r->at.position = rec.data_at + rec.len;
    *ret_record = rec;
    return true;
}

/* Returns the data of a record; they last until the window moves. */
static bool record_data(struct queue_file_reader *r, const struct record *rec,
                        struct slice *ret_data)
{
    size_t got;
    const char *p;

    if (rec->len > QUEUE_FILE_RECORD_MAX) {
        (void)corrupt(r, "the record at offset %" PRIu64 " is longer than %zu bytes", rec->at,
                      QUEUE_FILE_RECORD_MAX);
        return false;
    }
    p = look(r, rec->data_at, (size_t)rec->len, &got);
    if (p == NULL) {
        return false;
    }
    if (got < rec->len) {
        (void)corrupt(r, "the record at offset %" PRIu64 " is cut short", rec->at);
        return false;
    }
    *ret_data = slice_of(p, got);
    return true;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Removes the next number, with or without a sign, and the blanks before it from *rest. */
static bool cut_number(struct slice *rest, int64_t *ret_number)
{
    struct slice s = *rest, digits;
    unsigned long long n;
    bool negative;

    while (s.len > 0 && s.ptr[0] == ' ') {
        s = slice_skip(s, 1);
    }
    negative = s.len > 0 && s.ptr[0] == '-';
    s = slice_skip(s, negative ? 1 : 0);
    digits = slice_of(s.ptr, slice_find(s, ' '));
    if (!slice_number(digits, INT64_MAX, &n)) {
        return false;
    }
    *ret_number = negative ? -(int64_t)n : (int64_t)n;
    *rest = slice_skip(s, digits.len);
    return true;
}

static bool whole_number(struct slice s, int64_t *ret_number)
{
    return cut_number(&s, ret_number) && slice_trim(s).len == 0;
}

static bool time_number(struct slice s, int64_t *ret_s)
{
    int64_t n;

    if (!whole_number(s, &n) || n <= 0 || n > SECONDS_MAX) {
        return false;
    }
    *ret_s = n;
    return true;
}

/* ---- texts ---------------------------------------------------------------------------------- */

static void replace(struct slice *text, struct slice value)
{
    if (text->len > 0) {
        mem_free((char *)(uintptr_t)text->ptr);
    }
    *text = value.len > 0 ? slice_of(mem_copy(value.ptr, value.len), value.len) : SLICE("");
}

/* Rule for several records with the same name; FIRST_TOLD is logged. */
enum several { FIRST, FIRST_TOLD, LAST };

struct text_attribute {
    struct slice name;
    enum queue_file_text text;
    enum several several;
};

static const struct text_attribute text_attributes[] = {
    {SLICE_INIT("envelope_id"), QUEUE_FILE_ENVELOPE_ID, LAST},
    {SLICE_INIT("encoding"), QUEUE_FILE_ENCODING, LAST},
    {SLICE_INIT("log_client_name"), QUEUE_FILE_CLIENT_NAME, LAST},
    {SLICE_INIT("log_client_address"), QUEUE_FILE_CLIENT_ADDRESS, LAST},
    {SLICE_INIT("log_client_port"), QUEUE_FILE_CLIENT_PORT, LAST},
    {SLICE_INIT("log_protocol_name"), QUEUE_FILE_PROTOCOL_NAME, LAST},
    {SLICE_INIT("log_helo_name"), QUEUE_FILE_HELO_NAME, LAST},
    {SLICE_INIT("sasl_method"), QUEUE_FILE_SASL_METHOD, FIRST_TOLD},
    {SLICE_INIT("sasl_username"), QUEUE_FILE_SASL_USERNAME, FIRST_TOLD},
    {SLICE_INIT("sasl_sender"), QUEUE_FILE_SASL_SENDER, FIRST_TOLD},
    {SLICE_INIT("log_ident"), QUEUE_FILE_LOG_IDENT, FIRST},
    {SLICE_INIT("rewrite_context"), QUEUE_FILE_REWRITE_CONTEXT, FIRST},
};

/* Names without "log_", in the order of QUEUE_FILE_CLIENT_NAME to QUEUE_FILE_HELO_NAME. */
static const struct slice fallback_names[] = {
    SLICE_INIT("client_name"), SLICE_INIT("client_address"), SLICE_INIT("client_port"),
    SLICE_INIT("protocol_name"), SLICE_INIT("helo_name")};
_Static_assert(sizeof fallback_names / sizeof fallback_names[0] ==
                   QUEUE_FILE_HELO_NAME - QUEUE_FILE_CLIENT_NAME + 1,
               "one for each text of a client");

static void put_text(struct queue_file_reader *r, const struct text_attribute *a,
                     struct slice value)
{
    struct slice *text = &r->text[a->text];

    if (a->text >= QUEUE_FILE_CLIENT_NAME && a->text <= QUEUE_FILE_HELO_NAME) {
        r->has_log_client = true;
    }
    if (a->several == LAST || text->len == 0) {
        replace(text, value);
    } else if (a->several == FIRST_TOLD) {
        char what[64];

        (void)snprintf(what, sizeof what, "multiple %.*s attribute", SLICE_ARGS(a->name));
        odd(r, what, value);
    }
}

/* ---- records that are no recipients --------------------------------------------------------- */

static bool put_size(struct queue_file_reader *r, struct slice data)
{
    struct queue_file_envelope *e = &r->envelope;
    int64_t field[SIZE_FIELDS] = {0};
    struct slice rest = data;
    unsigned count = 0;

    while (count < SIZE_FIELDS && slice_trim(rest).len > 0) {
        if (!cut_number(&rest, &field[count])) {
            break;
        }
        count++;
    }
    if (count < 3 || (count < SIZE_FIELDS && slice_trim(rest).len > 0)) {
        (void)corrupt(r, "weird size record");
        return false;
    }
    if (field[0] <= 0 || field[1] <= 0 || field[2] < 0 || field[4] < 0 || field[5] < 0 ||
        (uint64_t)field[1] > r->source.size ||
        (uint64_t)field[0] > r->source.size - (uint64_t)field[1]) {
        (void)corrupt(r,
                      "invalid size record: %" PRId64 " bytes at offset %" PRId64 ", %" PRId64
                      " recipients, length %" PRId64,
                      field[0], field[1], field[2], field[4]);
        return false;
    }
    if (field[3] < 0 || (field[3] & ~(int64_t)QUEUE_FILE_SIZE_FLAGS) != 0) {
        (void)corrupt(r, "invalid flags in size record: %" PRId64, field[3]);
        return false;
    }
    e->data_size = (uint64_t)field[0];
    e->data_offset = (uint64_t)field[1];
    e->rcpt_count = (uint64_t)field[2];
    e->size_flags = (unsigned)field[3];
    e->content_length = field[4] > 0 ? (uint64_t)field[4] : e->data_size;
    e->sendopts = (unsigned)((uint64_t)field[5] & QUEUE_FILE_SENDOPTS_KNOWN);
    r->has_size = true;
    return true;
}

static bool put_arrival(struct queue_file_reader *r, struct slice data)
{
    int64_t seconds, micros = 0;

    if (!cut_number(&data, &seconds) || seconds <= 0 || seconds > SECONDS_MAX ||
        (slice_trim(data).len > 0 && !whole_number(data, &micros)) || micros < 0 ||
        micros >= US_PER_S) {
        (void)corrupt(r, "invalid arrival time record");
        return false;
    }
    if (!r->has_arrival) {
        r->envelope.arrived.us = seconds * US_PER_S + micros;
        r->has_arrival = true;
    }
    return true;
}

static void put_created(struct queue_file_reader *r, struct slice value)
{
    int64_t s;

    if (!time_number(value, &s)) {
        odd(r, "create_time", value);
    } else if (r->envelope.created.us == 0) {
        r->envelope.created.us = s * US_PER_S;
    }
}

static void put_ret(struct queue_file_reader *r, struct slice value)
{
    int64_t n;

    if (whole_number(value, &n) && n >= 0 && n <= 2) {
        r->envelope.ret_flags = (unsigned)n;
    } else {
        odd(r, "ret_flags", value);
    }
}

static void put_notify(struct queue_file_reader *r, struct slice value)
{
    const int64_t all = NOTIFY_NEVER | NOTIFY_SUCCESS | NOTIFY_FAILURE | NOTIFY_DELAY;
    int64_t n;

    if (whole_number(value, &n) && n > 0 && n <= all &&
        ((n & NOTIFY_NEVER) == 0 || n == NOTIFY_NEVER)) {
        r->notify = (unsigned)n;
    } else {
        odd(r, "notify_flags", value);
    }
}

static void put_trace(struct queue_file_reader *r, uint64_t at, struct slice value)
{
    int64_t n;

    if (!whole_number(value, &n) || n < 0) {
        odd(r, "trace_flags", value);
    } else if (r->envelope.trace_flags == 0) {
        r->envelope.trace_flags = (unsigned)(n & QUEUE_FILE_TRACE_KNOWN);
        r->envelope.trace_offset = at;
    }
}

static void put_warn(struct queue_file_reader *r, const struct record *rec, struct slice data)
{
    int64_t n;

    if (!whole_number(data, &n) || n > SECONDS_MAX) {
        odd(r, "delay warning time", data);
        return;
    }
    r->envelope.warn_s = n;
    r->envelope.warn_offset = rec->len == NUMBER_WIDTH ? rec->at : 0;
}

static void put_dsn_original(struct queue_file_reader *r, struct slice value)
{
    buf_clear(&r->dsn_original);
    (void)buf_add(&r->dsn_original, value); /* a record is never longer than its limit */
}

static bool put_attribute(struct queue_file_reader *r, const struct record *rec, struct slice data)
{
    size_t at = slice_find(data, '=');
    struct slice name = slice_trim(slice_of(data.ptr, at));
    struct slice value = slice_trim(slice_skip(data, at + 1));

    if (at == data.len || name.len == 0) {
        (void)corrupt(r, "bad attribute record: %s",
                      at == data.len ? "missing '=' after attribute name"
                                     : "missing attribute name");
        return false;
    }
    if (slice_equal(name, SLICE("dsn_orig_rcpt"))) {
        put_dsn_original(r, value);
        return true;
    }
    if (slice_equal(name, SLICE("notify_flags"))) {
        put_notify(r, value);
        return true;
    }
    if (r->only_rcpts) {
        return true;
    }
    if (slice_equal(name, SLICE("create_time"))) {
        put_created(r, value);
    } else if (slice_equal(name, SLICE("ret_flags"))) {
        put_ret(r, value);
    } else if (slice_equal(name, SLICE("trace_flags"))) {
        put_trace(r, rec->at, value);
    } else {
        for (size_t i = 0; i < sizeof text_attributes / sizeof text_attributes[0]; i++) {
            if (slice_equal(name, text_attributes[i].name)) {
                put_text(r, &text_attributes[i], value);
                return true;
            }
        }
        for (size_t i = 0; i < sizeof fallback_names / sizeof fallback_names[0]; i++) {
            if (slice_equal(name, fallback_names[i])) {
                replace(&r->fallback[i], value);
                return true;
            }
        }
    }
    return true;
}

/* Stores a property of the next recipient. */
static bool put_rcpt_word(struct queue_file_reader *r, char type, struct slice data)
{
    switch (type) {
    case 'O':
        buf_clear(&r->original);
        (void)buf_add(&r->original, data); /* a record is never longer than its limit */
        return true;
    case 'o':
        put_dsn_original(r, data);
        return true;
    case 'n':
        put_notify(r, data);
        return true;
    default:
        return false;
    }
}

static bool put_envelope(struct queue_file_reader *r, const struct record *rec, struct slice data)
{
    struct slice *text = r->text;

    switch (rec->type) {
    case 'C':
        if (r->has_size) {
            (void)corrupt(r, "a second size record at offset %" PRIu64, rec->at);
            return false;
        }
        return put_size(r, data);
    case 'T':
        return put_arrival(r, data);
    case 'S':
        if (!r->has_sender) {
            replace(&text[QUEUE_FILE_SENDER], data);
            r->has_sender = true;
        }
        return true;
    case 'c':
        put_created(r, data);
        return true;
    case 'L':
        replace(&text[QUEUE_FILE_FILTER], data);
        return true;
    case 'I':
        replace(&text[QUEUE_FILE_INSPECTOR], data);
        return true;
    case 'V':
        replace(&text[QUEUE_FILE_VERP], data);
        return true;
    case '>':
        replace(&text[QUEUE_FILE_REDIRECT], data);
        return true;
    case 'i':
        replace(&text[QUEUE_FILE_ENVELOPE_ID], data);
        return true;
    case '<':
        put_ret(r, data);
        return true;
    case 'W':
        put_warn(r, rec, data);
        return true;
    default:
        UNREACHABLE("next returns the types");
    }
}

/* ---- pointers ------------------------------------------------------------------------------- */

static bool follow(struct queue_file_reader *r, const struct record *rec)
{
    struct slice data;
    int64_t to;

    if (!record_data(r, rec, &data)) {
        return false;
    }
    if (!whole_number(data, &to) || to < 0 || (uint64_t)to > r->source.size) {
        (void)corrupt(r, "invalid pointer at offset %" PRIu64, rec->at);
        return false;
    }
    if (to == 0) {
        return true;
    }
    if ((uint64_t)to <= rec->at && ++r->at.jumps > QUEUE_FILE_JUMPS_MAX) {
        (void)corrupt(r, "more than %d pointers lead backwards", QUEUE_FILE_JUMPS_MAX);
        return false;
    }
    r->at.position = (uint64_t)to;
    return true;
}

/* Has the text no NUL? Its receivers use C strings. */
static bool is_text(struct queue_file_reader *r, const struct record *rec, struct slice data)
{
    if (slice_find(data, '\0') == data.len) {
        return true;
    }
    (void)corrupt(r, "a NUL byte in the record at offset %" PRIu64, rec->at);
    return false;
}

/* ---- reading -------------------------------------------------------------------------------- */

static void forget_dsn(struct queue_file_reader *r)
{
    buf_clear(&r->original);
    buf_clear(&r->dsn_original);
    r->notify = 0;
    r->forget_dsn = false;
}

static void reader_init(struct queue_file_reader *r, struct queue_file_source source)
{
    memset(r, 0, sizeof *r);
    r->source = source;
    r->ended = QUEUE_FILE_READ_ITEM;
    buf_init(&r->original, QUEUE_FILE_RECORD_MAX);
    buf_init(&r->dsn_original, QUEUE_FILE_RECORD_MAX);
    for (size_t i = 0; i < QUEUE_FILE_TEXTS; i++) {
        r->text[i] = SLICE("");
    }
    for (size_t i = 0; i < sizeof r->fallback / sizeof r->fallback[0]; i++) {
        r->fallback[i] = SLICE("");
    }
}

void queue_file_init(struct queue_file_reader *r, struct queue_file_source source)
{
    reader_init(r, source);
}

void queue_file_envelope_fini(struct queue_file_envelope *e)
{
    mem_free(e->texts);
    e->texts = NULL;
}

struct slice queue_file_text(const struct queue_file_envelope *e, enum queue_file_text which)
{
    const char *at = e->texts;

    if (at == NULL) {
        return SLICE("");
    }
    for (unsigned i = 0; i < which; i++) {
        at += strlen(at) + 1;
    }
    return slice_string(at);
}

void queue_file_set_texts(struct queue_file_envelope *e, const struct slice text[QUEUE_FILE_TEXTS])
{
    size_t size = 0; /* does not overflow: each is at most a record */
    char *texts, *at;

    for (size_t i = 0; i < QUEUE_FILE_TEXTS; i++) {
        CHECK(slice_find(text[i], '\0') == text[i].len);
        size += text[i].len + 1;
    }
    at = texts = mem_new(size);
    for (size_t i = 0; i < QUEUE_FILE_TEXTS; i++) {
        if (text[i].len > 0) {
            memcpy(at, text[i].ptr, text[i].len);
        }
        at += text[i].len + 1;
    }
    mem_free(e->texts); /* the texts may have been part of it */
    e->texts = texts;
}

void queue_file_take_envelope(struct queue_file_reader *r, struct queue_file_envelope *ret)
{
    CHECK(r->ended == QUEUE_FILE_READ_END);
    *ret = r->envelope;
    queue_file_set_texts(ret, r->text);
}

void queue_file_fini(struct queue_file_reader *r)
{
    for (size_t i = 0; i < QUEUE_FILE_TEXTS; i++) {
        replace(&r->text[i], SLICE(""));
    }
    for (size_t i = 0; i < sizeof r->fallback / sizeof r->fallback[0]; i++) {
        replace(&r->fallback[i], SLICE(""));
    }
    buf_fini(&r->original);
    buf_fini(&r->dsn_original);
    mem_free(r->window);
    r->window = NULL;
}

static enum queue_file_read at_end(struct queue_file_reader *r)
{
    struct queue_file_envelope *e = &r->envelope;

    if (!r->has_size) {
        return corrupt(r, "missing size record");
    }
    if (!r->at.extracted) {
        return corrupt(r, "the content is not reached");
    }
    if (!r->only_rcpts && !r->has_arrival) {
        return corrupt(r, "missing arrival time record");
    }
    if (!r->only_rcpts && !r->has_sender) {
        return corrupt(r, "missing sender record");
    }
    if (e->created.us == 0) {
        e->created.us = us_seconds(e->arrived.us) * US_PER_S;
    }
    if (!r->has_log_client) {
        for (size_t i = 0; i < sizeof r->fallback / sizeof r->fallback[0]; i++) {
            replace(&r->text[QUEUE_FILE_CLIENT_NAME + i], r->fallback[i]);
        }
    }
    if (r->text[QUEUE_FILE_REWRITE_CONTEXT].len == 0) {
        replace(&r->text[QUEUE_FILE_REWRITE_CONTEXT], SLICE("local"));
    }
    r->ended = QUEUE_FILE_READ_END;
    return r->ended;
}

/* Moves past the content, even if a pointer leads there. */
static bool skip_content(struct queue_file_reader *r)
{
    struct record rec;

    r->at.position = r->envelope.data_offset + r->envelope.data_size;
    if (!next_record(r, &rec)) {
        return false;
    }
    if (rec.type != 'X') {
        (void)corrupt(r, "no record of type 'X' after the content, at offset %" PRIu64, rec.at);
        return false;
    }
    r->at.extracted = true;
    return true;
}

static enum queue_file_read put_rcpt(struct queue_file_reader *r, const struct record *rec,
                                     struct slice data, struct queue_file_rcpt *ret_rcpt)
{
    struct queue_file_envelope *e = &r->envelope;

    if (r->at.n == UINT32_MAX) {
        return corrupt(r, "more than %" PRIu32 " recipients", UINT32_MAX);
    }
    *(rec->type == 'R' ? &e->undelivered : rec->type == 'D' ? &e->done : &e->cancelled) += 1;
    *ret_rcpt = (struct queue_file_rcpt){.n = ++r->at.n,
                                         .type = rec->type,
                                         .offset = rec->at,
                                         .address = data,
                                         .original = buf_slice(&r->original),
                                         .dsn_original = buf_slice(&r->dsn_original),
                                         .notify = r->notify};
    r->forget_dsn = true;
    return QUEUE_FILE_READ_ITEM;
}

enum queue_file_read queue_file_next(struct queue_file_reader *r, struct queue_file_rcpt *ret_rcpt)
{
    struct slice data;
    struct record rec;

    CHECK(!r->in_content);
    if (r->forget_dsn) {
        forget_dsn(r);
    }
    while (r->ended == QUEUE_FILE_READ_ITEM) {
        if (r->has_size && r->at.position == r->envelope.data_offset) {
            if (!skip_content(r)) {
                break;
            }
            continue;
        }
        if (!next_record(r, &rec)) {
            break;
        }
        if (!r->has_size && rec.type != 'C') {
            return corrupt(r, "missing size record");
        }
        switch (rec.type) {
        case 'R':
        case 'D':
        case '/':
            if (record_data(r, &rec, &data) && is_text(r, &rec, data)) {
                return put_rcpt(r, &rec, data, ret_rcpt);
            }
            break;
        case 'A':
            if (record_data(r, &rec, &data) && is_text(r, &rec, data)) {
                (void)put_attribute(r, &rec, data); /* an error has ended the reader */
            }
            break;
        case 'O':
        case 'o':
        case 'n':
            if (record_data(r, &rec, &data) && is_text(r, &rec, data)) {
                (void)put_rcpt_word(r, rec.type, data);
            }
            break;
        case 'C':
        case 'T':
        case 'S':
        case 'c':
        case 'L':
        case 'I':
        case 'V':
        case '>':
        case 'i':
        case '<':
        case 'W':
            if (!r->only_rcpts && record_data(r, &rec, &data) && is_text(r, &rec, data)) {
                (void)put_envelope(r, &rec, data); /* an error has ended the reader */
            }
            break;
        case 'M':
        case 'F':
        case 'K':
        case 'P':
        case 'r':
        case 'e':
            break;
        case 'p':
            (void)follow(r, &rec); /* an error has ended the reader */
            break;
        case 'E':
            return at_end(r);
        default:
            return corrupt(r, "Unexpected record type '%c' at offset %" PRIu64,
                           ascii_is_alnum(rec.type) ? rec.type : '?', rec.at);
        }
    }
    return r->ended;
}

struct queue_file_cursor queue_file_cursor(const struct queue_file_reader *r)
{
    CHECK(r->forget_dsn); /* a recipient was just returned, so there are no properties of the next
                           * one */
    return r->at;
}

void queue_file_resume(struct queue_file_reader *r, struct queue_file_source source,
                       const struct queue_file_envelope *layout, struct queue_file_cursor cursor)
{
    reader_init(r, source);
    r->envelope.data_offset = layout->data_offset;
    r->envelope.data_size = layout->data_size;
    r->has_size = true;
    r->only_rcpts = true;
    r->at = cursor;
}

/* ---- content -------------------------------------------------------------------------------- */

void queue_file_content_init(struct queue_file_reader *r, struct queue_file_source source,
                             const struct queue_file_envelope *layout)
{
    reader_init(r, source);
    r->at.position = layout->data_offset;
    r->in_content = true;
}

enum queue_file_read queue_file_content_next(struct queue_file_reader *r, struct slice *ret_piece,
                                             bool *ret_ends)
{
    struct record rec;

    CHECK(r->in_content);
    while (r->ended == QUEUE_FILE_READ_ITEM && next_record(r, &rec)) {
        switch (rec.type) {
        case 'N':
        case 'L':
            if (record_data(r, &rec, ret_piece)) {
                *ret_ends = rec.type == 'N';
                return QUEUE_FILE_READ_ITEM;
            }
            break;
        case 'w':
            break;
        case 'p':
            (void)follow(r, &rec); /* an error has ended the reader */
            break;
        case 'X':
            r->ended = QUEUE_FILE_READ_END;
            break;
        default:
            return corrupt(r, "Unexpected record type '%c' at offset %" PRIu64,
                           ascii_is_alnum(rec.type) ? rec.type : '?', rec.at);
        }
    }
    return r->ended;
}

/* ---- writing -------------------------------------------------------------------------------- */

void queue_file_put(struct buf *out, char type, struct slice data)
{
    size_t rest = data.len;

    (void)buf_add_byte(out, type); /* errors are sticky */
    do {
        unsigned low = (unsigned)(rest & 0x7f);

        rest >>= 7;
        (void)buf_add_byte(out, (char)(low | (rest > 0 ? 0x80u : 0u)));
    } while (rest > 0);
    (void)buf_add(out, data);
}

static struct queue_file_mark mark_type(uint64_t offset, char before, char after)
{
    return (struct queue_file_mark){.offset = offset, .before = before, .len = 1, .bytes = {after}};
}

struct queue_file_mark queue_file_mark_done(uint64_t offset)
{
    return mark_type(offset, 'R', 'D');
}

struct queue_file_mark queue_file_mark_killed(uint64_t offset)
{
    return mark_type(offset, 'A', 'K');
}

struct queue_file_mark queue_file_mark_warned(uint64_t offset)
{
    struct queue_file_mark mark = {.offset = offset, .before = 'W', .len = QUEUE_FILE_MARK_MAX};
    char number[NUMBER_WIDTH + 1];

    (void)snprintf(number, sizeof number, "%*d", NUMBER_WIDTH, -1); /* it fits */
    mark.bytes[0] = 'W';
    mark.bytes[1] = NUMBER_WIDTH;
    memcpy(mark.bytes + 2, number, NUMBER_WIDTH);
    return mark;
}
