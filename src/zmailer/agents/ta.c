#include "ta.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"

static const struct {
    const char *word;
    enum ta_status status;
} statuses[] = {
    {"ok", TA_OK},
    {"ok2", TA_OK2},
    {"ok3", TA_OK3},
    {"error", TA_ERROR},
    {"error2", TA_ERROR2},
    {"deferred", TA_DEFERRED},
    {"deferback", TA_DEFERBACK},
    {"deferall", TA_DEFERALL},
    {"retryat", TA_RETRYAT},
};
#define STATUS_COUNT (sizeof statuses / sizeof statuses[0])

/* ---- lines ---------------------------------------------------------------------------------- */

/* Cuts the first word off *rest, with one blank or tab after it. */
static struct slice cut_word(struct slice *rest)
{
    size_t len = 0;
    struct slice word;

    while (len < rest->len && rest->ptr[len] != ' ' && rest->ptr[len] != '\t') {
        len++;
    }
    word = slice_of(rest->ptr, len);
    *rest = slice_skip(*rest, len < rest->len ? len + 1 : len);
    return word;
}

/* Parses "+N" from now, or "N" since 1970. Anything else is no time. */
static void parse_retry(struct ta_event *event)
{
    struct slice rest = event->text, word = cut_word(&rest);
    unsigned long long n;

    event->text = rest;
    event->retry_is_relative = word.len > 0 && word.ptr[0] == '+';
    if (slice_number(slice_skip(word, event->retry_is_relative ? 1 : 0), INT64_MAX / 2, &n)) {
        event->retry_s = (int64_t)n;
    }
}

bool ta_parse_result(struct slice line, struct ta_event *ret_event, const char **ret_what)
{
    struct slice rest = line, name = slice_cut(&rest, '\t'), number;
    unsigned long long n, offset;

    if (slice_find(name, '/') == name.len) {
        *ret_what = "NUMBER/OFFSET";
        return false;
    }
    if (rest.ptr == NULL) {
        *ret_what = "a tab after NUMBER/OFFSET";
        return false;
    }
    ret_event->notary = slice_cut(&rest, '\t');
    if (rest.ptr == NULL) {
        *ret_what = "a tab after the notary";
        return false;
    }
    number = slice_cut(&name, '/');
    if (!slice_number(number, UINT64_MAX, &n) || !slice_number(name, UINT64_MAX, &offset)) {
        *ret_what = "two numbers as NUMBER/OFFSET";
        return false;
    }
    ret_event->number = n;
    ret_event->offset = offset;
    ret_event->status_word = cut_word(&rest);
    ret_event->text = rest;
    ret_event->status = TA_UNKNOWN;
    for (size_t i = 0; i < STATUS_COUNT; i++) {
        if (slice_equal(ret_event->status_word, slice_string(statuses[i].word))) {
            ret_event->status = statuses[i].status;
        }
    }
    if (ret_event->status == TA_RETRYAT) {
        parse_retry(ret_event);
    }
    return true;
}

/* Appends text of a result; bytes that would end its field or line are replaced. */
static void put_text(struct buf *out, struct slice text, bool in_field)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        (void)buf_add_byte(out, c == '\n' ? '\r' : c == '\0' || (in_field && c == '\t') ? ' ' : c);
    }
}

void ta_put_result(struct buf *out, uint64_t number, uint64_t offset, struct slice notary,
                   enum ta_status status, struct slice text)
{
    CHECK(status < STATUS_COUNT);
    (void)buf_addf(out, "%" PRIu64 "/%" PRIu64 "\t", number, offset);
    put_text(out, notary, true);
    (void)buf_addf(out, "\t%s", statuses[status].word);
    if (text.len > 0) {
        (void)buf_add_byte(out, ' ');
        put_text(out, text, false);
    }
    (void)buf_add_byte(out, '\n');
}

void ta_parse_order(struct slice line, struct ta_order *ret_order)
{
    struct slice rest = line;

    *ret_order = (struct ta_order){.type = TA_ORDER_END, .path = {"", 0}, .host = {"", 0}};
    if (slice_equal(line, SLICE("#idle"))) {
        ret_order->type = TA_ORDER_IDLE;
    } else if (line.len > 0) {
        ret_order->type = TA_ORDER_JOB;
        ret_order->path = slice_cut(&rest, '\t');
        if (rest.ptr != NULL) {
            ret_order->host = rest;
        }
    }
}

/* ---- state of the agent ---------------------------------------------------------------------- */

void ta_init(struct ta *ta, bool host_bound, uint32_t overfeed)
{
    *ta = (struct ta){.state = TA_LARVA, .host_bound = host_bound, .overfeed = overfeed, .owed = 1};
    buf_init(&ta->line, TA_LINE_MAX);
    buf_init(&ta->output, (size_t)4 * TA_OUTPUT_MAX);
}

void ta_fini(struct ta *ta)
{
    buf_fini(&ta->line);
    buf_fini(&ta->output);
}

bool ta_is_idle(const struct ta *ta)
{
    return ta->state == TA_IDLE && ta->owed == 0;
}

static void send_line(struct ta *ta, struct slice path, struct slice host)
{
    CHECK(memchr(path.ptr, '\n', path.len) == NULL && memchr(path.ptr, '\t', path.len) == NULL);
    CHECK(memchr(host.ptr, '\n', host.len) == NULL);
    (void)buf_add(&ta->output, path);
    if (!ta->host_bound && path.ptr[0] != '#') {
        (void)buf_add_byte(&ta->output, '\t');
        (void)buf_add(&ta->output, host);
    }
    (void)buf_add_byte(&ta->output, '\n');
    ta->owed++;
}

void ta_job(struct ta *ta, struct slice path, struct slice host)
{
    CHECK(path.len > 0 && path.ptr[0] != '#');
    CHECK(ta->state != TA_ENDING);
    /* the first job of a thread is sent alone, so that a site that is down costs one attempt */
    ta->feeding = ta->state == TA_STUFF && ta->feeding;
    ta->state = TA_STUFF;
    send_line(ta, path, host);
}

void ta_no_job(struct ta *ta)
{
    CHECK(ta->state == TA_LARVA || ta->state == TA_STUFF);
    ta->feeding = false;
    ta->state = ta->owed == 0 ? TA_FINISH : TA_STUFF;
}

void ta_idle(struct ta *ta)
{
    CHECK(ta->state == TA_FINISH && ta->owed == 0);
    ta->state = TA_IDLE;
    ta->told_idle = true;
    send_line(ta, SLICE("#idle"), SLICE(""));
}

void ta_stop_feeding(struct ta *ta)
{
    ta->stop_feeding = ta->state == TA_STUFF;
}

void ta_end(struct ta *ta)
{
    if (ta->state != TA_ENDING) {
        (void)buf_add_byte(&ta->output, '\n');
        ta->state = TA_ENDING;
    }
}

/* Makes an event that requests work, if the agent can take some now. */
static bool wants_work(struct ta *ta, struct ta_event *event)
{
    if (ta->state == TA_STUFF && ta->owed == 0) {
        ta->feeding = !ta->stop_feeding;
        if (ta->stop_feeding) {
            ta->state = TA_FINISH;
        }
    }
    if (ta->state == TA_LARVA && ta->owed == 0) {
        event->type = TA_FEED;
        return true;
    }
    if (ta->state == TA_STUFF && ta->feeding) {
        if (ta->owed <= ta->overfeed && buf_len(&ta->output) <= TA_OUTPUT_MAX &&
            !ta->stop_feeding) {
            event->type = TA_FEED;
            return true;
        }
        ta->feeding = false; /* the next batch is sent when this one is answered */
    }
    if (ta->state == TA_FINISH && ta->owed == 0) {
        ta->stop_feeding = false;
        event->type = TA_DETACH;
        return true;
    }
    if (ta->state == TA_IDLE && ta->owed == 0 && ta->told_idle) {
        ta->told_idle = false;
        event->type = TA_REST;
        return true;
    }
    return false;
}

static void take_result(struct ta_event *event)
{
    if (!ta_parse_result(event->line, event, &event->what)) {
        event->type = TA_MALFORMED;
        return;
    }
    event->type = TA_RESULT;
}

/* Handles a line. Returns true if it is an event. */
static bool take_line(struct ta *ta, struct ta_event *event)
{
    event->line = buf_slice(&ta->line);
    if (slice_starts(event->line, SLICE("#hungry"))) {
        if (ta->owed == 0) {
            return false; /* a surplus #hungry is ignored */
        }
        ta->owed--;
        event->type = TA_HUNGRY;
        return true;
    }
    if (slice_starts(event->line, SLICE("#resync "))) {
        event->type = TA_RESYNC;
        event->path = slice_trim(slice_skip(event->line, strlen("#resync ")));
    } else if (event->line.len == 0 || event->line.ptr[0] == '#') {
        event->type = TA_COMMENT;
    } else {
        take_result(event);
    }
    return true;
}

void ta_next(struct ta *ta, struct buf *in, struct ta_event *ret_event)
{
    for (;;) {
        struct slice waiting = buf_slice(in);
        size_t len = slice_find(waiting, '\n');

        *ret_event = (struct ta_event){.type = TA_NEED_INPUT, .what = ""};
        if (wants_work(ta, ret_event)) {
            return;
        }
        if (len > TA_LINE_MAX) {
            ret_event->type = TA_BROKEN;
            return;
        }
        if (len == waiting.len) {
            return;
        }
        buf_clear(&ta->line);
        (void)buf_add(&ta->line, slice_of(waiting.ptr, len)); /* fits */
        buf_consume(in, len + 1);
        if (take_line(ta, ret_event)) {
            return;
        }
    }
}
