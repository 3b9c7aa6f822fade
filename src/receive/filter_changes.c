#include "filter_changes.h"

#include <string.h>

#include "address.h"
#include "check.h"

#define HOLD_MAX     1000
#define ENVELOPE_MAX (FILTER_CHANGES_MAX * (ADDRESS_MAX + 8u))
/* Size of the pieces in which a new body is converted and stored. */
#define PIECE_SIZE 32768u

/* Record before each address in `envelope`; not aligned. */
struct record {
    uint16_t change; /* enum milter_change */
    uint16_t len;
};

void filter_changes_begin(struct filter_changes *c, struct draft *draft, uint64_t inline_max,
                          uint64_t body_max)
{
    filter_changes_drop(c);
    *c = (struct filter_changes){.draft = draft, .body_max = body_max};
    buf_init(&c->envelope, ENVELOPE_MAX);
    buf_init(&c->hold, HOLD_MAX);
    draft_init(&c->body, draft->budget, inline_max);
}

void filter_changes_drop(struct filter_changes *c)
{
    if (c->draft != NULL) {
        header_edit_free(c->edit);
        buf_fini(&c->envelope);
        buf_fini(&c->hold);
        draft_drop(&c->body);
    }
    *c = (struct filter_changes){.draft = NULL};
}

static enum filter_change_result bad(const char **ret_why, const char *why)
{
    *ret_why = why;
    return FILTER_CHANGE_BAD;
}

static void look_for_8bit(struct filter_changes *c, struct slice text)
{
    c->has_8bit = c->has_8bit || !address_is_ascii(text);
}

static enum filter_change_result take_header(struct filter_changes *c, const struct milter_event *e,
                                             const char **ret_why)
{
    bool ok;

    if (c->edit == NULL) {
        c->edit = header_edit_new(draft_header(c->draft));
    }
    look_for_8bit(c, e->value);
    ok = e->change == MILTER_ADD_HEADER ? header_edit_add(c->edit, e->name, e->value)
         : e->change == MILTER_INSERT_HEADER
             ? header_edit_insert(c->edit, e->index, e->name, e->value)
             : header_edit_change(c->edit, e->index, e->name, e->value);
    return ok ? FILTER_CHANGE_OK : bad(ret_why, "it changes too much of the header");
}

/* Stores an address. Any address that a client could send is valid, and <> as a sender. */
static enum filter_change_result take_address(struct filter_changes *c,
                                              const struct milter_event *e, const char **ret_why)
{
    struct record record = {.change = (uint16_t)e->change};
    struct address address = {.local = {"", 0}};
    struct buf stored;
    bool ok;

    buf_init(&stored, ADDRESS_MAX);
    ok = (e->value.len == 0 && e->change == MILTER_CHANGE_SENDER) ||
         (address_parse(e->value, ADDRESS_UTF8 | ADDRESS_POSTMASTER, &address) == ADDRESS_OK &&
          address_print(&address, &stored));
    record.len = (uint16_t)buf_len(&stored);
    ok = ok && buf_add(&c->envelope, slice_of(&record, sizeof record)) &&
         buf_add(&c->envelope, buf_slice(&stored));
    buf_fini(&stored);
    return ok ? FILTER_CHANGE_OK : bad(ret_why, "it names an address that is none");
}

static enum filter_change_result add_body(struct filter_changes *c, struct slice wire,
                                          const char **ret_why)
{
    if (c->body.fd_size + buf_len(&c->body.content) + wire.len > c->body_max) {
        return bad(ret_why, "its body is larger than message_size_limit");
    }
    return draft_add_content(&c->body, wire) ? FILTER_CHANGE_OK : FILTER_CHANGE_NO_MEMORY;
}

static enum filter_change_result take_body(struct filter_changes *c, struct slice piece,
                                           const char **ret_why)
{
    enum filter_change_result result = FILTER_CHANGE_OK;
    struct buf wire;

    if (!c->has_body) {
        c->has_body = true;
        result = add_body(c, SLICE("\r\n"), ret_why); /* empty line before it */
    }
    look_for_8bit(c, piece);
    buf_init(&wire, 2 * PIECE_SIZE + 1);
    while (result == FILTER_CHANGE_OK && piece.len > 0) {
        struct slice part = slice_of(piece.ptr, piece.len < PIECE_SIZE ? piece.len : PIECE_SIZE);

        buf_clear(&wire);
        result = add_body(c, line_ends_add(&c->line_ends, part, &wire), ret_why);
        piece = slice_skip(piece, part.len);
    }
    buf_fini(&wire);
    return result;
}

enum filter_change_result filter_changes_take(struct filter_changes *c,
                                              const struct milter_event *event,
                                              const char **ret_why)
{
    CHECK(c->draft != NULL);
    if (event->change != MILTER_REPLACE_BODY && ++c->count > FILTER_CHANGES_MAX) {
        return bad(ret_why, "it changes too much");
    }
    switch (event->change) {
    case MILTER_ADD_HEADER:
    case MILTER_INSERT_HEADER:
    case MILTER_CHANGE_HEADER:
        return take_header(c, event, ret_why);
    case MILTER_ADD_RCPT:
    case MILTER_DELETE_RCPT:
    case MILTER_CHANGE_SENDER:
        return take_address(c, event, ret_why);
    case MILTER_REPLACE_BODY:
        return take_body(c, event->value, ret_why);
    case MILTER_QUARANTINE:
        buf_clear(&c->hold);
        (void)buf_add(&c->hold,
                      slice_of(event->value.ptr,
                               event->value.len < HOLD_MAX - 1 ? event->value.len : HOLD_MAX - 1));
        if (buf_len(&c->hold) == 0) {
            (void)buf_add_string(&c->hold, "quarantined"); /* fits */
        }
        return FILTER_CHANGE_OK;
    }
    UNREACHABLE("a change that is none");
}

static bool apply_envelope(struct filter_changes *c)
{
    struct slice rest = buf_slice(&c->envelope);
    struct record record;

    while (rest.len > 0 && !c->draft->failed) {
        struct slice address;

        memcpy(&record, rest.ptr, sizeof record);
        address = slice_of(rest.ptr + sizeof record, record.len);
        rest = slice_skip(rest, sizeof record + record.len);
        if (record.change == MILTER_CHANGE_SENDER) {
            (void)draft_set_sender(c->draft, address);
        } else if (record.change == MILTER_DELETE_RCPT) {
            (void)draft_remove_rcpt(c->draft, address);
        } else {
            (void)draft_add_rcpt(c->draft, &(struct wire_rcpt){.address = address}, false);
        }
    }
    return !c->draft->failed;
}

static bool apply_header(struct filter_changes *c)
{
    struct buf header;
    bool ok;

    if (c->edit == NULL || !header_edit_changed(c->edit)) {
        return true;
    }
    buf_init(&header, DRAFT_HEADER_MAX);
    ok = header_edit_put(c->edit, &header);
    header_edit_free(c->edit); /* borrows the old header */
    c->edit = NULL;
    ok = ok && draft_set_header(c->draft, buf_slice(&header));
    buf_fini(&header);
    return ok;
}

enum filter_change_result filter_changes_apply(struct filter_changes *c, const char **ret_why)
{
    enum filter_change_result result = FILTER_CHANGE_OK;
    struct buf end;

    CHECK(c->draft != NULL);
    if (c->has_body) {
        buf_init(&end, 8);
        result = add_body(c, line_ends_finish(&c->line_ends, &end), ret_why);
        buf_fini(&end);
        if (result == FILTER_CHANGE_OK && !draft_finish(&c->body)) {
            result = FILTER_CHANGE_NO_MEMORY;
        }
        if (result == FILTER_CHANGE_OK) {
            draft_move_body(c->draft, &c->body);
        }
        c->has_body = false;
    }
    if (result == FILTER_CHANGE_OK && (!apply_header(c) || !apply_envelope(c))) {
        result = FILTER_CHANGE_NO_MEMORY;
    }
    return result;
}
