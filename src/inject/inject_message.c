#include "inject_message.h"

#include <jansson.h>

#include "check.h"
#include "compose.h"
#include "inject_mail_private.h"
#include "mem.h"
#include "template.h"

/* Largest message that is made if message_size_limit is higher or unlimited. */
#define COMPOSED_MAX ((uint64_t)256 << 20)
/* Limit of a piece, which one call of compose_next appends, with encodings and header. */
#define PIECE_MAX ((size_t)1 << 30)

enum stage {
    STAGE_TEXT, /* fills values into the text */
    STAGE_HTML, /* fills values into the HTML */
    STAGE_BEGIN,
    STAGE_COMPOSE,
    STAGE_WHOLE, /* the document has the whole message */
};

struct inject_message {
    const struct inject_mail *m;
    size_t number;
    enum stage stage;
    struct slice rest; /* rest of a whole message */
    json_t *element;   /* owned; the recipient's object, or NULL if it has no values */
    const json_t *own; /* values in `element` */
    bool failed;
    struct template template; /* text that is being filled in */
    struct buf subject, text, html;
    struct buf *values; /* owned; values of `fields` */
    struct compose_field *fields;
    struct compose_mailbox *from, *reply_to, *to, *cc;
    struct compose_attachment *attachments; /* owned, like all pointers above */
    struct compose *compose;
    struct buf piece;
};

static struct slice value_of(void *arg, struct slice name)
{
    const struct inject_message *im = arg;

    return inject_mail_value(im->m, im->own, name);
}

static void begin_text(struct inject_message *im, enum stage stage)
{
    im->stage = stage;
    template_init(&im->template, stage == STAGE_TEXT ? im->m->text : im->m->html,
                  stage == STAGE_HTML);
}

struct inject_message *inject_message_new(const struct inject_mail *m, size_t number)
{
    struct inject_message *im = mem_new(sizeof *im);
    uint64_t limit = m->limits.message_bytes > 0 && m->limits.message_bytes < COMPOSED_MAX
                         ? m->limits.message_bytes
                         : COMPOSED_MAX;

    im->m = m;
    im->number = number;
    buf_init(&im->subject, INJECT_FIELD_MAX);
    buf_init(&im->text, (size_t)limit);
    buf_init(&im->html, (size_t)limit);
    buf_init(&im->piece, PIECE_MAX);
    if (m->whole.ptr != NULL) {
        im->rest = m->whole;
        im->stage = STAGE_WHOLE;
    } else if (!m->divided) {
        im->stage = STAGE_BEGIN;
    } else {
        const struct inject_mailbox *rcpt = &m->recipients.all[number];

        if (rcpt->element.len > 0) {
            im->element = json_loadb(rcpt->element.ptr, rcpt->element.len, 0, NULL);
            im->failed = im->element == NULL; /* it was valid before, but memory may be missing */
        }
        im->own = json_object_get(im->element, "substitutions");
        begin_text(im, STAGE_TEXT);
    }
    return im;
}

void inject_message_free(struct inject_message *im)
{
    if (im == NULL) {
        return;
    }
    compose_free(im->compose);
    for (size_t i = 0; im->values != NULL && i < im->m->field_count; i++) {
        buf_fini(&im->values[i]);
    }
    buf_fini(&im->subject);
    buf_fini(&im->text);
    buf_fini(&im->html);
    buf_fini(&im->piece);
    mem_free(im->values);
    mem_free(im->fields);
    mem_free(im->from);
    mem_free(im->reply_to);
    mem_free(im->to);
    mem_free(im->cc);
    mem_free(im->attachments);
    json_decref(im->element);
    mem_free(im);
}

uint64_t inject_message_memory(const struct inject_message *im)
{
    return sizeof *im + buf_len(&im->text) + buf_len(&im->html) +
           (im->compose != NULL ? compose_memory(im->compose) : 0);
}

/* Copies mailboxes, in which no names are replaced. */
static struct compose_mailbox *mailboxes_of(const struct inject_mail *m,
                                            const struct inject_mailbox *all, size_t count)
{
    struct compose_mailbox *boxes = mem_array(count + 1, sizeof *boxes);

    for (size_t i = 0; i < count; i++) {
        boxes[i] = (struct compose_mailbox){
            inject_mail_address(m, &all[i]),
            slice_of(buf_slice(&m->pool).ptr + all[i].name_at, all[i].name_len)};
    }
    return boxes;
}

/* Returns a text for a header field, in `room` if values are filled in. */
static struct slice field_text(struct inject_message *im, struct slice text, struct buf *room)
{
    struct template template;

    if (!im->m->divided) {
        return text;
    }
    template_init(&template, text, false);
    while (!room->failed && !template_put(&template, INJECT_FIELD_MAX, value_of, im, room)) {
        /* a field is short, so this ends soon */
    }
    im->failed = im->failed || room->failed;
    return room->failed ? SLICE("") : buf_slice(room);
}

/* Returns a text of the document, or its filled in form. */
static struct slice filled(const struct inject_message *im, struct slice text,
                           const struct buf *room)
{
    if (!im->m->divided || text.len == 0) {
        return text;
    }
    return buf_len(room) > 0 ? buf_slice(room) : SLICE(""); /* empty if all its values are */
}

static void begin_composing(struct inject_message *im)
{
    const struct inject_mail *m = im->m;
    const struct inject_mailbox *rcpt = m->divided ? &m->recipients.all[im->number] : NULL;
    struct compose_message composed = {
        .to_count = m->divided ? 1 : m->to.count,
        .cc_count = m->cc.count,
        .reply_to_count = m->reply_to.count,
        .field_count = m->field_count,
        .attachment_count = m->attachment_count,
        .text = filled(im, m->text, &im->text),
        .html = filled(im, m->html, &im->html),
    };

    im->values = mem_array(m->field_count + 1, sizeof *im->values);
    im->fields = mem_array(m->field_count + 1, sizeof *im->fields);
    for (size_t i = 0; i < m->field_count; i++) {
        buf_init(&im->values[i], INJECT_FIELD_MAX);
        im->fields[i] = (struct compose_field){m->fields[i].name,
                                               field_text(im, m->fields[i].value, &im->values[i])};
    }
    im->attachments = mem_array(m->attachment_count + 1, sizeof *im->attachments);
    for (size_t i = 0; i < m->attachment_count; i++) {
        const struct inject_attachment *a = &m->attachments[i];

        im->attachments[i] =
            (struct compose_attachment){a->name, a->type, a->id, a->content, a->is_inline};
    }
    im->from = mailboxes_of(m, m->from.all, 1);
    im->reply_to = mailboxes_of(m, m->reply_to.all, m->reply_to.count);
    im->to = mailboxes_of(m, m->divided ? rcpt : m->to.all, composed.to_count);
    im->cc = mailboxes_of(m, m->cc.all, m->cc.count);
    composed.from = im->from[0];
    composed.reply_to = im->reply_to;
    composed.to = im->to;
    composed.cc = im->cc;
    composed.fields = im->fields;
    composed.attachments = im->attachments;
    composed.subject = field_text(im, m->subject, &im->subject);
    im->compose = compose_new(&composed);
}

/* Fills in the next piece of the text. */
static void fill_in(struct inject_message *im, size_t bytes)
{
    bool is_text = im->stage == STAGE_TEXT;
    struct buf *out = is_text ? &im->text : &im->html;
    bool end = template_put(&im->template, bytes, value_of, im, out);

    im->failed = im->failed || out->failed;
    if (end && is_text) {
        begin_text(im, STAGE_HTML);
    } else if (end) {
        im->stage = STAGE_BEGIN;
    }
}

static bool compose_some(struct inject_message *im, size_t bytes, struct slice *ret_piece)
{
    bool end;

    buf_clear(&im->piece);
    end = compose_next(im->compose, bytes, &im->piece);
    im->failed = im->failed || im->piece.failed;
    *ret_piece = buf_slice(&im->piece);
    return end;
}

static bool go_on(struct inject_message *im, size_t bytes, struct slice *ret_piece)
{
    switch (im->stage) {
    case STAGE_TEXT:
    case STAGE_HTML:
        fill_in(im, bytes);
        return false;
    case STAGE_BEGIN:
        begin_composing(im);
        im->stage = STAGE_COMPOSE;
        return false;
    case STAGE_COMPOSE:
        return compose_some(im, bytes, ret_piece);
    case STAGE_WHOLE:
        *ret_piece = slice_of(im->rest.ptr, im->rest.len < bytes ? im->rest.len : bytes);
        im->rest = slice_skip(im->rest, ret_piece->len);
        return im->rest.len == 0;
    }
    UNREACHABLE("a stage");
}

enum inject_message_result inject_message_next(struct inject_message *im, size_t bytes,
                                               struct slice *ret_piece)
{
    bool end;

    *ret_piece = slice_of(NULL, 0);
    end = !im->failed && go_on(im, bytes, ret_piece);
    return im->failed ? INJECT_MESSAGE_TOO_LARGE : end ? INJECT_MESSAGE_END : INJECT_MESSAGE_MORE;
}
