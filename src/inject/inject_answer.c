#include "inject_answer.h"

#include "printable.h"

void inject_answer_init(struct inject_answer *a)
{
    *a = (struct inject_answer){.least_code = 0};
    buf_init(&a->queued, INJECT_ANSWER_MAX);
    buf_init(&a->refused, INJECT_ANSWER_MAX);
}

void inject_answer_fini(struct inject_answer *a)
{
    buf_fini(&a->queued);
    buf_fini(&a->refused);
}

void json_put_text(struct buf *out, struct slice text)
{
    (void)buf_add_byte(out, '"'); /* errors of the buffer are sticky, here and below */
    while (text.len > 0) {
        unsigned char c = (unsigned char)text.ptr[0];
        size_t len = c < 128 ? 1 : utf8_length(text);

        if (c < ' ' || c == 127) {
            (void)buf_addf(out, "\\u%04x", c);
        } else if (c == '"' || c == '\\') {
            (void)buf_addf(out, "\\%c", c);
        } else if (len == 0) {
            (void)buf_add_byte(out, '?');
        } else {
            (void)buf_add(out, slice_of(text.ptr, len));
        }
        text = slice_skip(text, len == 0 ? 1 : len);
    }
    (void)buf_add_byte(out, '"');
}

void inject_answer_queued(struct inject_answer *a, struct slice id, struct slice rcpt,
                          uint32_t rcpts, bool repeated)
{
    (void)buf_add_string(&a->queued, a->queued_count == 0 ? "{\"id\":" : ",{\"id\":");
    json_put_text(&a->queued, id);
    if (rcpt.ptr != NULL) {
        (void)buf_add_string(&a->queued, ",\"recipient\":");
        json_put_text(&a->queued, rcpt);
    } else {
        (void)buf_addf(&a->queued, ",\"recipients\":%u", (unsigned)rcpts);
    }
    (void)buf_add_byte(&a->queued, '}');
    a->queued_count++;
    a->repeated = a->repeated || repeated;
}

void inject_answer_refused(struct inject_answer *a, struct slice rcpt, unsigned code,
                           struct slice status, struct slice text)
{
    (void)buf_add_string(&a->refused, a->refused_count == 0 ? "{" : ",{");
    if (rcpt.ptr != NULL) {
        (void)buf_add_string(&a->refused, "\"recipient\":");
        json_put_text(&a->refused, rcpt);
        (void)buf_add_byte(&a->refused, ',');
    }
    (void)buf_addf(&a->refused, "\"code\":%u,\"status\":", code);
    json_put_text(&a->refused, status);
    (void)buf_add_string(&a->refused, ",\"text\":");
    json_put_text(&a->refused, text);
    (void)buf_add_byte(&a->refused, '}');
    a->refused_count++;
    a->busy = a->busy || code == 452 || (code == 450 && slice_starts(status, SLICE("4.7.")));
    if (a->least_code == 0 || code < a->least_code) {
        a->least_code = code;
    }
}

void inject_answer_put(struct inject_answer *a, struct slice error, struct buf *out)
{
    const char *separator = "{";

    if (error.ptr != NULL) {
        (void)buf_add_string(out, "{\"error\":");
        json_put_text(out, error);
        separator = ",";
    }
    if (a->queued_count > 0 || a->refused_count > 0) {
        (void)buf_addf(out, "%s\"queued\":[", separator);
        (void)buf_add(out, buf_slice(&a->queued));
        (void)buf_add_string(out, "],\"refused\":[");
        (void)buf_add(out, buf_slice(&a->refused));
        (void)buf_add_string(out, a->repeated ? "],\"repeated\":true" : "]");
        separator = ",";
    }
    (void)buf_add_string(out, *separator == '{' ? "{}" : "}");
    (void)buf_add_byte(out, '\n');
}
