/*
 * Queue files: those that a real Postfix wrote, record by record; those that are damaged at each
 * byte; and marks, byte for byte.
 */
#include "queue_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include "example_file.h"
#include "mem.h"
#include "rng.h"

static struct queue_file_source over(const struct slice *bytes)
{
    return (struct queue_file_source){
        .read = queue_file_read_bytes, .context = (void *)(uintptr_t)bytes, .size = bytes->len};
}

#define ASSERT_SLICE(got, want)                                                                    \
    do {                                                                                           \
        struct slice got_ = (got), want_ = (want);                                                 \
        if (!slice_equal(got_, want_)) {                                                           \
            fail_msg("%s:%d: got \"%.*s\", want \"%.*s\"", __FILE__, __LINE__, SLICE_ARGS(got_),   \
                     SLICE_ARGS(want_));                                                           \
        }                                                                                          \
    } while (0)

/* ---- the examples --------------------------------------------------------------------------- */

/* What an attribute's name is followed by, or nothing. */
static struct slice value_of(const struct example_record *rec, const char *name)
{
    size_t len = strlen(name);

    return rec->type == 'A' && rec->data.len > len && memcmp(rec->data.ptr, name, len) == 0 &&
                   rec->data.ptr[len] == '='
               ? slice_skip(rec->data, len + 1)
               : slice_of(NULL, 0);
}

/* The last value that the list of records gives an attribute. */
static struct slice listed(const struct example *e, const char *name)
{
    struct slice found = SLICE("");

    for (size_t i = 0; i < e->count; i++) {
        struct slice value = value_of(&e->records[i], name);

        found = value.ptr != NULL ? value : found;
    }
    return found;
}

static unsigned number(struct slice s)
{
    return s.len == 0 ? 0 : (unsigned)strtoul(s.ptr, NULL, 10);
}

/* The recipients of an example, and what stands before each of them in the list. */
static void check_rcpts(const struct example *e, struct queue_file_reader *r)
{
    struct slice original = SLICE(""), dsn = SLICE("");
    struct queue_file_rcpt rcpt;
    unsigned notify = 0;
    uint32_t n = 0;

    for (size_t i = 0; i < e->count; i++) {
        const struct example_record *rec = &e->records[i];

        original = rec->type == 'O' ? rec->data : original;
        if (value_of(rec, "dsn_orig_rcpt").ptr != NULL) {
            dsn = value_of(rec, "dsn_orig_rcpt");
        }
        if (value_of(rec, "notify_flags").ptr != NULL) {
            notify = number(value_of(rec, "notify_flags"));
        }
        if (strchr("RD/", rec->type) == NULL) {
            continue;
        }
        assert_int_equal(queue_file_next(r, &rcpt), QUEUE_FILE_READ_ITEM);
        assert_int_equal(rcpt.n, ++n);
        assert_int_equal(rcpt.type, rec->type);
        assert_int_equal(rcpt.offset, rec->offset);
        ASSERT_SLICE(rcpt.address, rec->data);
        ASSERT_SLICE(rcpt.original, original);
        ASSERT_SLICE(rcpt.dsn_original, dsn);
        assert_int_equal(rcpt.notify, notify);
        original = dsn = SLICE("");
        notify = 0;
    }
    assert_int_equal(queue_file_next(r, &rcpt), QUEUE_FILE_READ_END);
    assert_int_equal(queue_file_next(r, &rcpt), QUEUE_FILE_READ_END);
}

static void check_envelope(const struct example *e, const struct queue_file_envelope *v)
{
    static const struct {
        const char *name, *fallback;
        enum queue_file_text text;
    } texts[] = {
        {"envelope_id", NULL, QUEUE_FILE_ENVELOPE_ID},
        {"encoding", NULL, QUEUE_FILE_ENCODING},
        {"log_client_name", "client_name", QUEUE_FILE_CLIENT_NAME},
        {"log_client_address", "client_address", QUEUE_FILE_CLIENT_ADDRESS},
        {"log_client_port", "client_port", QUEUE_FILE_CLIENT_PORT},
        {"log_protocol_name", "protocol_name", QUEUE_FILE_PROTOCOL_NAME},
        {"log_helo_name", "helo_name", QUEUE_FILE_HELO_NAME},
        {"log_ident", NULL, QUEUE_FILE_LOG_IDENT},
        {"rewrite_context", NULL, QUEUE_FILE_REWRITE_CONTEXT},
    };
    const struct example_record *rec;
    long long size[6];
    size_t at = 0;

    rec = example_next(e, "C", &at);
    assert_int_equal(sscanf(rec->data.ptr, "%lld %lld %lld %lld %lld %lld", &size[0], &size[1],
                            &size[2], &size[3], &size[4], &size[5]),
                     6);
    assert_int_equal(v->data_size, size[0]);
    assert_int_equal(v->data_offset, size[1]);
    assert_int_equal(v->rcpt_count, size[2]);
    assert_int_equal(v->size_flags, size[3]);
    assert_int_equal(v->content_length, size[4]);
    assert_int_equal(v->sendopts, size[5]);
    rec = example_next(e, "T", &at);
    assert_int_equal(v->arrived.us / US_PER_S, strtoll(rec->data.ptr, NULL, 10));
    assert_int_equal(v->arrived.us % US_PER_S,
                     strtoll(rec->data.ptr + slice_find(rec->data, ' '), NULL, 10));
    assert_int_equal(v->created.us, number(listed(e, "create_time")) * US_PER_S);
    assert_int_equal(v->ret_flags, number(listed(e, "ret_flags")));
    assert_int_equal(v->trace_flags, number(listed(e, "trace_flags")));
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct slice want = listed(e, texts[i].name);

        if (want.len == 0 && texts[i].fallback != NULL) {
            want = listed(e, texts[i].fallback);
        }
        ASSERT_SLICE(queue_file_text(v, texts[i].text),
                     want.len == 0 && texts[i].text == QUEUE_FILE_REWRITE_CONTEXT ? SLICE("local")
                                                                                  : want);
    }
    at = 0;
    ASSERT_SLICE(queue_file_text(v, QUEUE_FILE_SENDER), example_next(e, "S", &at)->data);
    at = 0;
    rec = example_next(e, "W", &at);
    assert_int_equal(v->warn_s, rec == NULL ? 0 : strtoll(rec->data.ptr, NULL, 10));
    assert_int_equal(v->warn_offset, rec == NULL ? 0 : rec->offset);
    at = 0;
    rec = example_next(e, "L", &at);
    ASSERT_SLICE(queue_file_text(v, QUEUE_FILE_FILTER), rec == NULL ? SLICE("") : rec->data);
    at = 0;
    rec = example_next(e, "V", &at);
    ASSERT_SLICE(queue_file_text(v, QUEUE_FILE_VERP), rec == NULL ? SLICE("") : rec->data);
}

static void check_content(const struct example *e, struct slice bytes,
                          const struct queue_file_envelope *v)
{
    const struct example_record *rec;
    struct queue_file_reader r;
    struct slice piece;
    size_t at = 0;
    bool ends;

    queue_file_content_init(&r, over(&bytes), v);
    while ((rec = example_next(e, "N", &at)) != NULL) {
        assert_int_equal(queue_file_content_next(&r, &piece, &ends), QUEUE_FILE_READ_ITEM);
        ASSERT_SLICE(piece, rec->data);
        assert_true(ends);
    }
    assert_int_equal(queue_file_content_next(&r, &piece, &ends), QUEUE_FILE_READ_END);
    queue_file_fini(&r);
}

static void each_record_of_each_example_is_read(void **unused)
{
    (void)unused;
    for (size_t i = 0; example_names[i] != NULL; i++) {
        struct queue_file_envelope envelope;
        struct queue_file_reader r;
        struct slice bytes;
        struct example e;

        example_read(example_names[i], &e);
        bytes = buf_slice(&e.bytes);
        queue_file_init(&r, over(&bytes));
        check_rcpts(&e, &r);
        assert_string_equal(r.odd, "");
        queue_file_take_envelope(&r, &envelope);
        queue_file_fini(&r);
        check_envelope(&e, &envelope);
        check_content(&e, bytes, &envelope);
        queue_file_envelope_fini(&envelope);
        example_fini(&e);
    }
}

/* From behind each recipient, in a reader of its own. */
static void reading_goes_on_behind_any_recipient(void **unused)
{
    (void)unused;
    for (size_t i = 0; example_names[i] != NULL; i++) {
        struct queue_file_cursor cursors[EXAMPLE_RECORDS_MAX];
        uint64_t offsets[EXAMPLE_RECORDS_MAX];
        struct queue_file_reader r, again;
        struct queue_file_rcpt rcpt;
        struct slice bytes;
        struct example e;
        size_t count = 0;

        example_read(example_names[i], &e);
        bytes = buf_slice(&e.bytes);
        queue_file_init(&r, over(&bytes));
        while (queue_file_next(&r, &rcpt) == QUEUE_FILE_READ_ITEM) {
            offsets[count] = rcpt.offset;
            cursors[count++] = queue_file_cursor(&r);
        }
        for (size_t from = 0; from < count; from++) {
            queue_file_resume(&again, over(&bytes), &r.envelope, cursors[from]);
            for (size_t j = from + 1; j < count; j++) {
                assert_int_equal(queue_file_next(&again, &rcpt), QUEUE_FILE_READ_ITEM);
                assert_int_equal(rcpt.n, j + 1);
                assert_int_equal(rcpt.offset, offsets[j]);
            }
            assert_int_equal(queue_file_next(&again, &rcpt), QUEUE_FILE_READ_END);
            queue_file_fini(&again);
        }
        queue_file_fini(&r);
        example_fini(&e);
    }
}

/* ---- files made here ------------------------------------------------------------------------ */

struct made {
    struct buf bytes;
    uint64_t data_offset;
};

static void made_init(struct made *m)
{
    buf_init(&m->bytes, (size_t)1 << 28);
    queue_file_put(&m->bytes, 'C',
                   slice_string("                                               "
                                "                                                "));
}

static uint64_t put(struct made *m, char type, const char *data)
{
    uint64_t at = buf_len(&m->bytes);

    queue_file_put(&m->bytes, type, slice_string(data));
    return at;
}

/* M, content, X: the size record is filled in. */
static void put_content(struct made *m, const char *flags)
{
    char size[96];
    uint64_t x;

    (void)put(m, 'M', "");
    m->data_offset = buf_len(&m->bytes);
    (void)put(m, 'N', "Subject: x");
    (void)put(m, 'N', "");
    x = put(m, 'X', "");
    (void)snprintf(size, sizeof size, "%15lu %15lu %15d %15s %15d %15d",
                   (unsigned long)(x - m->data_offset), (unsigned long)m->data_offset, 1, flags, 0,
                   0);
    memcpy((char *)(uintptr_t)buf_slice(&m->bytes).ptr + 2, size, 95);
}

/* Read to the end; what ends it, and how many recipients are to do. */
static enum queue_file_read read_all(struct slice bytes, char problem[QUEUE_FILE_PROBLEM_MAX],
                                     char odd[QUEUE_FILE_PROBLEM_MAX], uint32_t *ret_undelivered)
{
    struct queue_file_reader r;
    struct queue_file_rcpt rcpt;
    enum queue_file_read got;

    queue_file_init(&r, over(&bytes));
    do {
        got = queue_file_next(&r, &rcpt);
    } while (got == QUEUE_FILE_READ_ITEM);
    memcpy(problem, r.problem, sizeof r.problem);
    memcpy(odd, r.odd, sizeof r.odd);
    *ret_undelivered = r.envelope.undelivered;
    queue_file_fini(&r);
    return got;
}

/* Records of the envelope, one a line, and what is said of the file. */
static void what_makes_no_sense_is_told(void **unused)
{
    static const struct {
        const char *records; /* type and data; "X" is where M, content and X go */
        const char *flags;
        const char *problem, *odd;
        uint32_t undelivered;
    } cases[] = {
        {"T100 5\nSa@b\nRx@y\nX\nE", "0", "", "", 1},
        {"T100\nS\nRx@y\nDz@y\n/u@y\nX\nRv@y\nE", "31", "", "", 2},
        {"T100 5\nSa@b\nRx@y\nX", "0", "missing end record", "", 1},
        {"T100 5\nSa@b\nRx@y\nE\nX\nE", "0", "the content is not reached", "", 1},
        {"Sa@b\nX\nE", "0", "missing arrival time record", "", 0},
        {"T100 5\nX\nE", "0", "missing sender record", "", 0},
        {"T100 1000000\nSa@b\nX\nE", "0", "invalid arrival time record", "", 0},
        {"Tx\nSa@b\nX\nE", "0", "invalid arrival time record", "", 0},
        {"T999999999999999 0\nSa@b\nX\nE", "0", "invalid arrival time record", "", 0},
        {"T100 5\nSa@b\nX\nE", "32", "invalid flags in size record: 32", "", 0},
        {"T100 5\nSa@b\nX\nE", "-1", "invalid flags in size record: -1", "", 0},
        {"T100 5\nSa@b\nX\nE", "x", "weird size record", "", 0},
        {"T100 5\nAcolour\nX\nE", "0", "bad attribute record: missing '=' after attribute name", "",
         0},
        {"T100 5\nA =red\nX\nE", "0", "bad attribute record: missing attribute name", "", 0},
        {"T100 5\nSa@b\nAcolour=red\nX\nE", "0", "", "", 0},
        {"T100 5\nNtext\nX\nE", "0", "Unexpected record type 'N' at offset 104", "", 0},
        {"T100 5\n!\nX\nE", "0", "Unexpected record type '?' at offset 104", "", 0},
        {"T100 5\nC1 1 1\nX\nE", "0", "a second size record at offset 104", "", 0},
        {"T100 5\np\nX\nE", "0", "invalid pointer at offset 104", "", 0},
        {"T100 5\np-1\nX\nE", "0", "invalid pointer at offset 104", "", 0},
        {"T100 5\np99999999\nX\nE", "0", "invalid pointer at offset 104", "", 0},
        {"T100 5\np97\nX\nE", "0", "pointers to offset 104 make a circle", "", 0},
        {"T100 5\nSa@b\nAnotify_flags=0\nRx@y\nX\nE", "0", "", "ignoring notify_flags: 0", 1},
        {"T100 5\nSa@b\nn3\nRx@y\nX\nE", "0", "", "ignoring notify_flags: 3", 1},
        {"T100 5\nSa@b\nAret_flags=7\nX\nE", "0", "", "ignoring ret_flags: 7", 0},
        {"T100 5\nSa@b\nAcreate_time=soon\nX\nE", "0", "", "ignoring create_time: soon", 0},
        {"T100 5\nSa@b\nWsoon\nX\nE", "0", "", "ignoring delay warning time: soon", 0},
        {"T100 5\nSa@b\nAtrace_flags=-1\nX\nE", "0", "", "ignoring trace_flags: -1", 0},
        {"T100 5\nSa@b\nAsasl_method=PLAIN\nAsasl_method=\x1bLOGIN\nX\nE", "0", "",
         "ignoring multiple sasl_method attribute: ?LOGIN", 0},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char problem[QUEUE_FILE_PROBLEM_MAX], odd[QUEUE_FILE_PROBLEM_MAX];
        struct slice rest = slice_string(cases[i].records);
        enum queue_file_read got;
        struct made m;
        uint32_t undelivered;

        made_init(&m);
        while (rest.ptr != NULL) {
            struct slice line = slice_cut(&rest, '\n');

            if (line.ptr[0] == 'X') {
                put_content(&m, cases[i].flags);
            } else {
                queue_file_put(&m.bytes, line.ptr[0], slice_skip(line, 1));
            }
        }
        got = read_all(buf_slice(&m.bytes), problem, odd, &undelivered);
        assert_string_equal(problem, cases[i].problem);
        assert_string_equal(odd, cases[i].odd);
        assert_int_equal(got, cases[i].problem[0] == '\0' ? QUEUE_FILE_READ_END
                                                          : QUEUE_FILE_READ_CORRUPT);
        assert_int_equal(undelivered, cases[i].undelivered);
        buf_fini(&m.bytes);
    }
}

static void the_first_or_the_last_of_several_counts(void **unused)
{
    static const struct {
        enum queue_file_text text;
        const char *want;
    } wants[] = {
        {QUEUE_FILE_SENDER, "first@s"},
        {QUEUE_FILE_ENVELOPE_ID, "e2"},
        {QUEUE_FILE_ENCODING, "8bit"},
        {QUEUE_FILE_FILTER, "f2:"},
        {QUEUE_FILE_REDIRECT, "r2@s"},
        {QUEUE_FILE_LOG_IDENT, "i1"},
        {QUEUE_FILE_REWRITE_CONTEXT, "remote"},
        {QUEUE_FILE_CLIENT_NAME, "l2"},
        {QUEUE_FILE_CLIENT_ADDRESS, ""}, /* there is a log_ attribute, so nothing falls back */
        {QUEUE_FILE_SASL_USERNAME, "u1"},
        {QUEUE_FILE_INSPECTOR, "x"},
        {QUEUE_FILE_VERP, "+="},
    };
    struct queue_file_reader r;
    struct queue_file_rcpt rcpt;
    struct slice bytes;
    uint64_t trace, warn;
    struct made m;

    (void)unused;
    made_init(&m);
    (void)put(&m, 'T', "100 7");
    (void)put(&m, 'T', "200 7");
    (void)put(&m, 'S', "first@s");
    (void)put(&m, 'S', "second@s");
    (void)put(&m, 'c', "90");
    (void)put(&m, 'i', "e1");
    (void)put(&m, 'A', " envelope_id = e2 ");
    (void)put(&m, 'A', "encoding=7bit");
    (void)put(&m, 'L', "f1:");
    (void)put(&m, '>', "r1@s");
    (void)put(&m, 'A', "log_ident=i1");
    (void)put(&m, 'A', "log_ident=i2");
    (void)put(&m, 'A', "rewrite_context=remote");
    (void)put(&m, 'A', "rewrite_context=local");
    (void)put(&m, 'A', "client_name=c1");
    (void)put(&m, 'A', "client_address=192.0.2.1");
    (void)put(&m, 'A', "log_client_name=l1");
    (void)put(&m, 'A', "log_client_name=l2");
    (void)put(&m, 'A', "sasl_username=u1");
    (void)put(&m, 'A', "sasl_username=u2");
    (void)put(&m, 'I', "x");
    (void)put(&m, 'V', "+=");
    (void)put(&m, '<', "1");
    (void)put(&m, 'A', "trace_flags=1");
    trace = put(&m, 'A', "trace_flags=1025");
    (void)put(&m, 'A', "trace_flags=512");
    (void)put(&m, 'W', "1");
    warn = put(&m, 'W', "             -1");
    (void)put(&m, 'F', "full name");
    (void)put(&m, 'K', "killed");
    (void)put(&m, 'n', "10");
    (void)put(&m, 'o', "rfc822;o@s");
    (void)put(&m, 'O', "old@s");
    (void)put(&m, 'R', "");
    put_content(&m, "1");
    (void)put(&m, 'A', "encoding=8bit");
    (void)put(&m, 'L', "f2:");
    (void)put(&m, '>', "r2@s");
    (void)put(&m, 'r', "x");
    (void)put(&m, 'e', "x");
    (void)put(&m, 'P', "x");
    (void)put(&m, 'E', "");
    bytes = buf_slice(&m.bytes);
    queue_file_init(&r, over(&bytes));
    assert_int_equal(queue_file_next(&r, &rcpt), QUEUE_FILE_READ_ITEM);
    ASSERT_SLICE(rcpt.address, SLICE(""));
    ASSERT_SLICE(rcpt.original, SLICE("old@s"));
    ASSERT_SLICE(rcpt.dsn_original, SLICE("rfc822;o@s"));
    assert_int_equal(rcpt.notify, 10);
    assert_int_equal(queue_file_next(&r, &rcpt), QUEUE_FILE_READ_END);
    for (size_t i = 0; i < COUNT(wants); i++) {
        ASSERT_SLICE(r.text[wants[i].text], slice_string(wants[i].want));
    }
    assert_int_equal(r.envelope.arrived.us, 100 * US_PER_S + 7);
    assert_int_equal(r.envelope.created.us, 90 * US_PER_S);
    assert_int_equal(r.envelope.ret_flags, 1);
    assert_int_equal(r.envelope.trace_flags, QUEUE_FILE_TRACE_RECORD);
    assert_int_equal(r.envelope.trace_offset, trace);
    assert_int_equal(r.envelope.warn_s, -1);
    assert_int_equal(r.envelope.warn_offset, warn);
    assert_int_equal(r.envelope.size_flags, QUEUE_FILE_SIZE_MIXED);
    assert_int_equal(r.envelope.content_length, r.envelope.data_size); /* field 5 is 0 */
    assert_string_equal(r.odd, "ignoring multiple sasl_username attribute: u2");
    queue_file_fini(&r);
    buf_fini(&m.bytes);
}

/* Two circles: one of a few bytes, and one that skips the content again and again. */
static void a_circle_of_pointers_ends(void **unused)
{
    char problem[QUEUE_FILE_PROBLEM_MAX], odd[QUEUE_FILE_PROBLEM_MAX], to[32];
    uint32_t undelivered;
    struct made m;

    (void)unused;
    made_init(&m);
    (void)put(&m, 'T', "100 5");
    (void)put(&m, 'S', "");
    (void)put(&m, 'R', "x@y");
    put_content(&m, "0");
    (void)snprintf(to, sizeof to, "%lu", (unsigned long)m.data_offset);
    (void)put(&m, 'p', to);
    (void)put(&m, 'E', "");
    assert_int_equal(read_all(buf_slice(&m.bytes), problem, odd, &undelivered),
                     QUEUE_FILE_READ_CORRUPT);
    assert_non_null(strstr(problem, "make a circle"));
    assert_int_equal(undelivered, 1);
    buf_fini(&m.bytes);
}

/* A file with more backward jumps than cleanup(8) makes, each to a record of its own. */
static void backward_pointers_are_counted(void **unused)
{
    char problem[QUEUE_FILE_PROBLEM_MAX], odd[QUEUE_FILE_PROBLEM_MAX], to[32];
    const unsigned count = 2 * QUEUE_FILE_JUMPS_MAX + 10;
    uint64_t first, end;
    uint32_t undelivered;
    struct made m;

    (void)unused;
    made_init(&m);
    (void)put(&m, 'T', "100 5");
    (void)put(&m, 'S', "");
    put_content(&m, "0");
    /* the first pointer goes to the last, that to the one before it, and so on */
    first = buf_len(&m.bytes) + 17;
    end = first + 17 * (uint64_t)count;
    (void)snprintf(to, sizeof to, "%15lu", (unsigned long)(end - 17));
    (void)put(&m, 'p', to);
    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(to, sizeof to, "%15lu",
                       (unsigned long)(i == 0 ? end : first + 17 * (uint64_t)(i - 1)));
        (void)put(&m, 'p', to);
    }
    (void)put(&m, 'E', "");
    assert_int_equal(read_all(buf_slice(&m.bytes), problem, odd, &undelivered),
                     QUEUE_FILE_READ_CORRUPT);
    assert_string_equal(problem, "more than 10000 pointers lead backwards");
    buf_fini(&m.bytes);
}

static void records_have_limits(void **unused)
{
    char problem[QUEUE_FILE_PROBLEM_MAX], odd[QUEUE_FILE_PROBLEM_MAX];
    static const char *const cut[] = {"R\x80\x80\x80\x80\x80\x01", "R\xff\xff\xff\xff\x7f", "R\x80",
                                      "R", "R\x05xyz"};
    static const char nul[] = "R\x03"
                              "a\0b";
    char *longest = mem_new(QUEUE_FILE_RECORD_MAX + 2);
    uint32_t undelivered;
    struct made m;

    (void)unused;
    memset(longest, 'a', QUEUE_FILE_RECORD_MAX + 1);
    for (size_t i = 0; i < 4 + COUNT(cut); i++) {
        made_init(&m);
        (void)put(&m, 'T', "100 5");
        (void)put(&m, 'S', "");
        put_content(&m, "0");
        if (i < 3) { /* the longest that is looked into, one more, and one more that is skipped */
            longest[QUEUE_FILE_RECORD_MAX] = i == 0 ? '\0' : 'a';
            (void)put(&m, i < 2 ? 'R' : 'F', longest);
            (void)put(&m, 'E', "");
        } else if (i == 3) {
            assert_true(buf_add(&m.bytes, slice_of(nul, sizeof nul - 1)));
        } else {
            assert_true(buf_add_string(&m.bytes, cut[i - 4]));
        }
        assert_int_equal(read_all(buf_slice(&m.bytes), problem, odd, &undelivered),
                         i == 0 || i == 2 ? QUEUE_FILE_READ_END : QUEUE_FILE_READ_CORRUPT);
        assert_int_equal(undelivered, i == 0 ? 1 : 0);
        buf_fini(&m.bytes);
    }
    mem_free(longest);
}

/* A million recipients are read in slices, with the memory of one window. */
static void a_million_recipients_are_read_in_slices(void **unused)
{
    const uint32_t count = 1000000, slice = 20000;
    struct queue_file_reader whole, r;
    struct queue_file_cursor cursor;
    struct queue_file_rcpt rcpt;
    struct slice bytes;
    uint32_t n = 0;
    struct made m;

    (void)unused;
    made_init(&m);
    (void)put(&m, 'T', "100 5");
    (void)put(&m, 'S', "list@example.org");
    for (uint32_t i = 1; i <= count; i++) {
        char address[32];

        (void)snprintf(address, sizeof address, "u%u@example.org", (unsigned)i);
        (void)put(&m, 'R', address);
    }
    put_content(&m, "0");
    (void)put(&m, 'E', "");
    bytes = buf_slice(&m.bytes);
    queue_file_init(&whole, over(&bytes));
    assert_int_equal(queue_file_next(&whole, &rcpt), QUEUE_FILE_READ_ITEM);
    cursor = queue_file_cursor(&whole);
    while (queue_file_next(&whole, &rcpt) == QUEUE_FILE_READ_ITEM) {
        n = rcpt.n;
    }
    assert_int_equal(n, count);
    assert_int_equal(whole.envelope.undelivered, count);
    assert_true(whole.window_size <= 8192);
    for (n = 1; n < count;) {
        queue_file_resume(&r, over(&bytes), &whole.envelope, cursor);
        for (uint32_t i = 0; i < slice && n < count; i++) {
            assert_int_equal(queue_file_next(&r, &rcpt), QUEUE_FILE_READ_ITEM);
            assert_int_equal(rcpt.n, ++n);
            cursor = queue_file_cursor(&r);
        }
        queue_file_fini(&r);
    }
    queue_file_fini(&whole);
    buf_fini(&m.bytes);
}

/* ---- damage --------------------------------------------------------------------------------- */

/* Cut at each length, and with each byte changed: the file is read to an end, or is corrupt; a file
 * that was cut is always the latter. */
static void damage_at_each_byte_is_no_surprise(void **unused)
{
    char problem[QUEUE_FILE_PROBLEM_MAX], odd[QUEUE_FILE_PROBLEM_MAX];
    struct rng rng;
    uint32_t undelivered;

    (void)unused;
    rng_init(&rng, 7);
    for (size_t i = 0; example_names[i] != NULL; i++) {
        struct example e;
        struct slice whole;
        uint64_t end = 0;
        char *copy;

        example_read(example_names[i], &e);
        whole = buf_slice(&e.bytes);
        for (size_t at = 0; at < e.count; at++) {
            uint64_t behind = e.records[at].offset + 2 + e.records[at].data.len;

            end = behind > end ? behind : end; /* of what a reader meets; lengths have a byte */
        }
        for (size_t len = 0; len < whole.len; len++) {
            char *part = mem_copy(whole.ptr, len); /* so that a sanitizer sees its end */

            assert_int_equal(read_all(slice_of(part, len), problem, odd, &undelivered),
                             len < end ? QUEUE_FILE_READ_CORRUPT : QUEUE_FILE_READ_END);
            mem_free(part);
        }
        copy = mem_copy(whole.ptr, whole.len);
        for (size_t at = 0; at < whole.len; at++) {
            copy[at] = (char)rng_next(&rng);
            assert_true(read_all(slice_of(copy, whole.len), problem, odd, &undelivered) !=
                        QUEUE_FILE_READ_FAILED);
            copy[at] = whole.ptr[at];
        }
        mem_free(copy);
        example_fini(&e);
    }
}

static ssize_t broken_disk(void *context, void *bytes, size_t len, uint64_t at)
{
    (void)context;
    (void)bytes;
    (void)len;
    (void)at;
    return -EIO;
}

/* The disk says nothing of the file: it is not corrupt. */
static void a_disk_that_fails_makes_no_file_corrupt(void **unused)
{
    struct queue_file_reader r;
    struct queue_file_rcpt rcpt;

    (void)unused;
    queue_file_init(&r, (struct queue_file_source){.read = broken_disk, .size = 1000});
    assert_int_equal(queue_file_next(&r, &rcpt), QUEUE_FILE_READ_FAILED);
    assert_int_equal(queue_file_next(&r, &rcpt), QUEUE_FILE_READ_FAILED);
    assert_int_equal(r.error, -EIO);
    queue_file_fini(&r);
}

/* ---- marks ---------------------------------------------------------------------------------- */

static void apply(char *bytes, const struct queue_file_mark *mark)
{
    assert_int_equal(bytes[mark->offset], mark->before);
    memcpy(bytes + mark->offset, mark->bytes, mark->len);
}

static void marks_change_these_bytes(void **unused)
{
    struct queue_file_mark mark = queue_file_mark_done(5);

    (void)unused;
    assert_int_equal(mark.offset, 5);
    assert_int_equal(mark.before, 'R');
    assert_int_equal(mark.len, 1);
    assert_memory_equal(mark.bytes, "D", 1);
    mark = queue_file_mark_killed(6);
    assert_int_equal(mark.before, 'A');
    assert_int_equal(mark.len, 1);
    assert_memory_equal(mark.bytes, "K", 1);
    mark = queue_file_mark_warned(7);
    assert_int_equal(mark.before, 'W');
    assert_int_equal(mark.len, 17);
    assert_memory_equal(mark.bytes, "W\x0f             -1", 17);
}

/* What is read of a file after a mark is what was read before but for that record. */
static void a_mark_changes_nothing_else(void **unused)
{
    (void)unused;
    for (size_t i = 0; example_names[i] != NULL; i++) {
        struct queue_file_reader before, after;
        struct queue_file_rcpt was, is;
        struct queue_file_mark mark;
        struct slice whole, marked;
        struct example e;
        char *copy;

        example_read(example_names[i], &e);
        whole = buf_slice(&e.bytes);
        copy = mem_copy(whole.ptr, whole.len);
        marked = slice_of(copy, whole.len);
        queue_file_init(&before, over(&whole));
        while (queue_file_next(&before, &was) == QUEUE_FILE_READ_ITEM) {
            if (was.type == 'R') {
                mark = queue_file_mark_done(was.offset);
                apply(copy, &mark);
            }
        }
        if (before.envelope.warn_offset != 0) {
            mark = queue_file_mark_warned(before.envelope.warn_offset);
            apply(copy, &mark);
        }
        if (before.envelope.trace_offset != 0) {
            mark = queue_file_mark_killed(before.envelope.trace_offset);
            apply(copy, &mark);
        }
        queue_file_fini(&before);
        queue_file_init(&before, over(&whole));
        queue_file_init(&after, over(&marked));
        while (queue_file_next(&before, &was) == QUEUE_FILE_READ_ITEM) {
            assert_int_equal(queue_file_next(&after, &is), QUEUE_FILE_READ_ITEM);
            assert_int_equal(is.type, was.type == 'R' ? 'D' : was.type);
            assert_int_equal(is.offset, was.offset);
            ASSERT_SLICE(is.address, was.address);
            ASSERT_SLICE(is.original, was.original);
            assert_int_equal(is.notify, was.notify);
        }
        assert_int_equal(queue_file_next(&after, &is), QUEUE_FILE_READ_END);
        assert_int_equal(after.envelope.undelivered, 0);
        assert_int_equal(after.envelope.done, before.envelope.undelivered + before.envelope.done);
        assert_int_equal(after.envelope.warn_s, before.envelope.warn_offset != 0 ? -1 : 0);
        assert_int_equal(after.envelope.trace_flags, 0);
        ASSERT_SLICE(after.text[QUEUE_FILE_SENDER], before.text[QUEUE_FILE_SENDER]);
        queue_file_fini(&before);
        queue_file_fini(&after);
        mem_free(copy);
        example_fini(&e);
    }
}

/* Each length of a record, over the bounds of its length bytes. */
static void records_of_each_length_are_written_as_they_are_read(void **unused)
{
    static const size_t lengths[] = {0,     1,     126,   127,  128,  129,
                                     16383, 16384, 65536, 8190, 8192, QUEUE_FILE_RECORD_MAX};

    (void)unused;
    for (size_t i = 0; i < COUNT(lengths); i++) {
        struct queue_file_reader r;
        struct queue_file_rcpt rcpt;
        struct slice bytes;
        char *address = mem_new(lengths[i] + 1);
        struct made m;

        memset(address, 'a', lengths[i]);
        made_init(&m);
        (void)put(&m, 'T', "100 5");
        (void)put(&m, 'S', "");
        (void)put(&m, 'R', address);
        put_content(&m, "0");
        (void)put(&m, 'E', "");
        bytes = buf_slice(&m.bytes);
        queue_file_init(&r, over(&bytes));
        assert_int_equal(queue_file_next(&r, &rcpt), QUEUE_FILE_READ_ITEM);
        ASSERT_SLICE(rcpt.address, slice_of(address, lengths[i]));
        assert_int_equal(queue_file_next(&r, &rcpt), QUEUE_FILE_READ_END);
        queue_file_fini(&r);
        buf_fini(&m.bytes);
        mem_free(address);
    }
}

UNIT_MAIN(cmocka_unit_test(each_record_of_each_example_is_read),
          cmocka_unit_test(reading_goes_on_behind_any_recipient),
          cmocka_unit_test(what_makes_no_sense_is_told),
          cmocka_unit_test(the_first_or_the_last_of_several_counts),
          cmocka_unit_test(a_circle_of_pointers_ends),
          cmocka_unit_test(backward_pointers_are_counted), cmocka_unit_test(records_have_limits),
          cmocka_unit_test(a_million_recipients_are_read_in_slices),
          cmocka_unit_test(damage_at_each_byte_is_no_surprise),
          cmocka_unit_test(a_disk_that_fails_makes_no_file_corrupt),
          cmocka_unit_test(marks_change_these_bytes), cmocka_unit_test(a_mark_changes_nothing_else),
          cmocka_unit_test(records_of_each_length_are_written_as_they_are_read))
