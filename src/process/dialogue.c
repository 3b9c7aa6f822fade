#include "dialogue.h"

#include <string.h>

#include "buf.h"
#include "check.h"
#include "clock.h"
#include "mem.h"

/* Bytes of a line that are shown; each may need four. */
#define SHOWN_MAX      (WIRE_TEXT_MAX / 4 - 1)
#define NAME_MAX_SHOWN (WIRE_HOST_MAX / 4 - 1)

void dialogue_init(struct dialogue *d, struct channel *const *queue)
{
    *d = (struct dialogue){.queue = queue};
}

void dialogue_drop(struct dialogue *d)
{
    for (unsigned i = 0; i < d->count; i++) {
        mem_free(d->watches[i].what);
    }
    d->count = 0;
    d->on = false;
}

bool dialogue_watches(struct dialogue *d, struct slice body)
{
    struct dialogue_watch before[WIRE_WATCHES_MAX];
    unsigned before_count = d->count;
    struct wire_watches m;
    struct wire_watch *watches;

    if (!wire_get_watches(body, &m, &watches)) {
        return false;
    }
    memcpy(before, d->watches, sizeof before);
    for (uint32_t i = 0; i < m.watch_count; i++) {
        struct dialogue_watch *w = &d->watches[i];

        *w = (struct dialogue_watch){.number = m.watches[i].number, .kind = m.watches[i].kind};
        w->what = mem_copy(m.watches[i].what.ptr, m.watches[i].what.len);
        w->is_network = cidr_parse(m.watches[i].what, &w->network);
        for (unsigned j = 0; j < before_count; j++) {
            w->dropped += before[j].number == w->number ? before[j].dropped : 0;
        }
    }
    d->count = m.watch_count;
    d->on = d->count > 0;
    for (unsigned i = 0; i < before_count; i++) {
        mem_free(before[i].what);
    }
    mem_free(watches);
    return true;
}

/* ---- matching ------------------------------------------------------------------------------- */

static bool glob_nocase(struct slice pattern, struct slice text)
{
    char lower[WIRE_HOST_MAX * 2];

    if (text.len == 0 || text.len > sizeof lower) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        lower[i] = ascii_lower(text.ptr[i]);
    }
    return glob_match(pattern, slice_of(lower, text.len));
}

/* Returns "192.0.2.1" for "[192.0.2.1]:25", and "relay.example" for "relay.example:587". */
static struct slice bare_host(struct slice nexthop)
{
    struct slice host = nexthop;

    if (slice_starts(host, SLICE("["))) {
        host = slice_skip(host, 1);
        host.len = slice_find(host, ']');
    } else {
        host.len = slice_find(host, ':');
    }
    return host;
}

static struct slice address_of(struct slice peer)
{
    struct slice rest = slice_skip(peer, slice_find(peer, '['));

    return rest.len == 0 ? rest : bare_host(rest);
}

static bool is_for(struct slice what, const struct dialogue_facts *f)
{
    char text[WIRE_HOST_MAX * 2 + 2];
    size_t slash = slice_find(what, '/');

    if (slash < what.len) {
        struct buf both;
        bool met;

        buf_init(&both, sizeof text);
        met = buf_add(&both, f->transport) && buf_add_byte(&both, '/') &&
              buf_add(&both, f->nexthop) &&
              (slice_equal_nocase(what, buf_slice(&both)) || glob_nocase(what, buf_slice(&both)));
        buf_clear(&both);
        met = met || (buf_add(&both, f->transport) && buf_add_byte(&both, '/') &&
                      buf_add(&both, bare_host(f->nexthop)) && glob_nocase(what, buf_slice(&both)));
        buf_fini(&both);
        return met;
    }
    /* Brackets are a class of bytes in patterns, but part of the host in next hops. */
    return slice_equal_nocase(what, f->nexthop) || glob_nocase(what, f->nexthop) ||
           glob_nocase(what, bare_host(f->nexthop)) || glob_nocase(what, f->host) ||
           glob_nocase(what, address_of(f->peer));
}

static bool is_met(const struct dialogue_watch *w, const struct dialogue_facts *f)
{
    struct slice what = slice_string(w->what);

    switch (w->kind) {
    case WATCH_DESTINATION:
        return !f->is_client && is_for(what, f);
    case WATCH_CLIENT:
        return f->is_client &&
               ((w->is_network && f->client != NULL && cidr_match(&w->network, f->client)) ||
                glob_nocase(what, f->host) || glob_nocase(what, address_of(f->peer)));
    case WATCH_MESSAGE:
        return f->id.len > 0 && slice_equal(what, f->id);
    case WATCH_KINDS:
        break;
    }
    UNREACHABLE("a kind beyond the enum");
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Adds a peer's text as printable ASCII. */
static void add_shown(struct buf *out, struct slice text)
{
    size_t len = text.len < SHOWN_MAX ? text.len : SHOWN_MAX;

    for (size_t i = 0; i < len; i++) {
        char c = text.ptr[i];

        if (c == '\\') {
            (void)buf_add_string(out, "\\\\"); /* fits, as below */
        } else if (c >= ' ' && c <= '~') {
            (void)buf_add_byte(out, c);
        } else {
            (void)buf_addf(out, "\\x%02X", (unsigned)(unsigned char)c);
        }
    }
    CHECK(!out->failed);
}

static bool may_send(struct dialogue *d)
{
    struct mono now = clock_mono();

    if (d->second.us == 0 || mono_reached(mono_after(d->second, US_PER_S), now)) {
        d->second = now;
        d->lines = 0;
    }
    if (*d->queue == NULL || d->lines >= DIALOGUE_LINES_MAX ||
        channel_waiting(*d->queue) > DIALOGUE_WAITING_MAX) {
        return false;
    }
    d->lines++;
    return true;
}

static void send_line(struct dialogue *d, struct dialogue_watch *w, uint64_t connection,
                      const struct dialogue_facts *f, enum wire_said said, bool ours,
                      struct slice text, uint64_t bytes)
{
    struct slice parts[] = {text, f->peer, f->source, f->tls, f->transport, f->nexthop, f->id};
    /* Each byte may need four, except in our own texts. */
    static const size_t shown_max[] = {SHOWN_MAX,        NAME_MAX_SHOWN, NAME_MAX_SHOWN,
                                       2 * WIRE_TLS_MAX, NAME_MAX_SHOWN, NAME_MAX_SHOWN,
                                       WIRE_ID_MAX};
    struct buf shown[sizeof parts / sizeof parts[0]];
    struct wire_dialogue m = {.watch = w->number,
                              .dropped = w->dropped,
                              .process = SLICE(""),
                              .connection = connection,
                              .at = clock_wall(),
                              .said = said,
                              .ours = ours,
                              .bytes = bytes};

    if (!may_send(d)) {
        w->dropped++;
        return;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        parts[i].len = parts[i].len < shown_max[i] ? parts[i].len : shown_max[i];
        buf_init(&shown[i], WIRE_TEXT_MAX);
        add_shown(&shown[i], parts[i]);
    }
    m.text = buf_slice(&shown[0]);
    m.peer = buf_slice(&shown[1]);
    m.source = buf_slice(&shown[2]);
    m.tls = buf_slice(&shown[3]);
    if (f->transport.len > 0) {
        CHECK(buf_add_byte(&shown[4], '/') && buf_add(&shown[4], buf_slice(&shown[5])));
    }
    m.destination = buf_slice(&shown[4]);
    m.id = buf_slice(&shown[6]);
    w->dropped = 0;
    wire_put_dialogue(*d->queue, &m);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        buf_fini(&shown[i]);
    }
}

static void send_to_all(struct dialogue *d, struct dialogue_end *end,
                        const struct dialogue_facts *f, enum wire_said said, bool ours,
                        struct slice text, uint64_t bytes)
{
    if (end->number == 0) {
        end->number = ++d->connections;
    }
    for (unsigned i = 0; i < d->count; i++) {
        if (is_met(&d->watches[i], f)) {
            send_line(d, &d->watches[i], end->number, f, said, ours, text, bytes);
        }
    }
}

void dialogue_tell(struct dialogue *d, struct dialogue_end *end, const struct dialogue_facts *facts,
                   enum wire_said said, bool ours, struct slice text, uint64_t bytes)
{
    if (said == SAID_CONTENT) {
        end->content += bytes;
        end->content_ours = ours;
        return;
    }
    if (end->content > 0) {
        send_to_all(d, end, facts, SAID_CONTENT, end->content_ours, SLICE(""), end->content);
        end->content = 0;
    }
    send_to_all(d, end, facts, said, ours, text, bytes);
}

void dialogue_tell_lines(struct dialogue *d, struct dialogue_end *end,
                         const struct dialogue_facts *facts, bool ours, struct slice lines)
{
    while (lines.len > 0) {
        size_t lf = slice_find(lines, '\n'), len = lf < lines.len ? lf + 1 : lf;
        struct slice line = slice_of(lines.ptr, lf);

        if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
            line.len--;
        }
        dialogue_tell(d, end, facts, SAID_LINE, ours, line, len);
        lines = slice_skip(lines, len);
    }
}
