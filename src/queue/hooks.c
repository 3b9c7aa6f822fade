#include "hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "clock.h"
#include "json.h"
#include "listing.h"
#include "log.h"
#include "mem.h"
#include "queue.h"
#include "spool_notes.h"

#define NOTE_PREFIX "journal/hook/"

/* ---- places --------------------------------------------------------------------------------- */

static struct hook_place *find(struct queue *q, struct slice name)
{
    for (size_t i = 0; i < q->hooks.count; i++) {
        if (slice_equal(name, slice_string(q->hooks.at[i].name))) {
            return &q->hooks.at[i];
        }
    }
    return NULL;
}

/* Returns NULL if there are too many. */
static struct hook_place *add(struct queue *q, struct slice name, uint64_t taken)
{
    struct hook_place *p;

    if (q->hooks.count == HOOKS_MAX) {
        if (!q->hooks.full_told) {
            log_error("web hook %.*s: there were %u of other names already (HOOKS_MAX): it gets "
                      "no events",
                      SLICE_ARGS(name), HOOKS_MAX);
            q->hooks.full_told = true;
        }
        return NULL;
    }
    p = &q->hooks.at[q->hooks.count++];
    *p = (struct hook_place){.taken = taken};
    memcpy(p->name, name.ptr, name.len);
    return p;
}

static void note(struct queue *q, const struct hook_place *p)
{
    char name[sizeof NOTE_PREFIX + HOOK_NAME_MAX], text[24];

    (void)snprintf(name, sizeof name, NOTE_PREFIX "%s", p->name); /* fits */
    (void)snprintf(text, sizeof text, "%" PRIu64, p->taken);      /* fits */
    /* An error fails the batch; the next note has the new position. */
    (void)spool_note_put(q->spool, slice_string(name), slice_string(text));
}

/* Skips a damaged note: its hook begins with the next event. */
static void read_note(void *context, struct slice name, struct slice text, bool is_damaged)
{
    struct queue *q = context;
    struct slice hook = slice_skip(name, strlen(NOTE_PREFIX));
    unsigned long long taken = 0;

    if (!is_damaged && slice_starts(name, SLICE(NOTE_PREFIX)) && hook_name_valid(hook) &&
        slice_number(text, INT64_MAX, &taken)) {
        (void)add(q, hook, taken < q->journal.last ? taken : q->journal.last);
    }
}

/* ---- events out ----------------------------------------------------------------------------- */

/* Counts the events that were deleted before the hook accepted them. */
static void count_lost(struct queue *q, struct hook_place *p, struct wire_hook_events *m)
{
    if (p->taken + 1 >= q->journal.first) {
        return;
    }
    m->lost_from = p->taken + 1;
    m->lost_to = q->journal.first - 1;
    if (p->taken + 1 > p->lost_noted) {
        p->lost += m->lost_to - p->taken;
        p->lost_noted = m->lost_to;
        log_warning("web hook %s: events %" PRIu64 " to %" PRIu64 " are kept no more (%s)", p->name,
                    m->lost_from, m->lost_to, q->journal.forgot_by);
    }
}

static void send_events(struct queue *q, struct hook_place *p)
{
    struct wire_hook_events m = {.name = slice_string(p->name)};
    struct buf lines;

    count_lost(q, p, &m);
    m.after = m.lost_to > 0 ? m.lost_to : p->taken;
    buf_init(&lines, WIRE_HOOK_PAGE_MAX);
    if (journal_read(q, m.after, WIRE_HOOK_PAGE, &lines, &m.last) == 0 &&
        (buf_len(&lines) > 0 || m.lost_to > 0)) {
        m.lines = buf_len(&lines) > 0 ? buf_slice(&lines) : SLICE("");
        p->wanted = false;
        p->sent = m.last;
        wire_put_hook_events(q->hooks.channel, &m);
    }
    buf_fini(&lines);
}

void hooks_more(struct queue *q)
{
    for (size_t i = 0; i < q->hooks.count && q->hooks.channel != NULL; i++) {
        struct hook_place *p = &q->hooks.at[i];

        if (p->wanted && p->taken < q->journal.last) {
            send_events(q, p);
        }
    }
}

static bool take_ask(struct queue *q, struct slice body)
{
    struct wire_hook_ask m;
    struct hook_place *p;

    if (!wire_get_hook_ask(body, &m) || !hook_name_valid(m.name)) {
        return false;
    }
    p = find(q, m.name);
    if (p == NULL) {
        p = add(q, m.name, q->journal.last); /* a new hook: begin with the next event */
        if (p == NULL) {
            return true;
        }
        note(q, p);
    }
    if (!q->journal.on && !q->hooks.off_told) {
        log_warning("web hooks get no events: there is no journal (events = no, or the spool has "
                    "no place for one)");
        q->hooks.off_told = true;
    }
    p->wanted = true;
    p->sent = 0;
    hooks_more(q);
    return true;
}

/* ---- dead letters --------------------------------------------------------------------------- */

/* Are these lines of the journal, in its order? */
static bool are_ours(struct queue *q, uint64_t after, uint64_t last, struct slice letters)
{
    struct slice wanted = slice_of(letters.ptr, slice_find(letters, '\n'));

    while (letters.len > 0 && after < last) {
        struct buf lines;
        struct slice rest;
        uint64_t before = after;

        buf_init(&lines, WIRE_HOOK_PAGE_MAX);
        if (journal_read(q, after, WIRE_HOOK_PAGE, &lines, &after) != 0 || after == before) {
            buf_fini(&lines);
            return false;
        }
        for (rest = buf_slice(&lines); rest.len > 0 && letters.len > 0;) {
            struct slice line = slice_of(rest.ptr, slice_find(rest, '\n'));

            if (slice_equal(line, wanted)) {
                letters = slice_skip(letters, wanted.len + 1);
                wanted = slice_of(letters.ptr, slice_find(letters, '\n'));
            }
            rest = slice_skip(rest, line.len + 1);
        }
        buf_fini(&lines);
    }
    return letters.len == 0;
}

static uint64_t count_lines(struct slice lines)
{
    uint64_t count = 0;

    for (size_t i = 0; i < lines.len; i++) {
        count += lines.ptr[i] == '\n';
    }
    return count;
}

/* Returns 0 or a negative errno; -EFBIG: no room. */
static int write_letters(struct queue *q, const struct hook_place *p, struct slice letters)
{
    char path[PATH_MAX];
    struct stat st;
    int fd, rc = 0;

    (void)snprintf(path, sizeof path, "%s/web_hook.%s.dead", q->conf->state_directory,
                   p->name); /* a cut path can't be opened */
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = -errno;
    } else if ((uint64_t)st.st_size + letters.len > (uint64_t)q->conf->web_hook_dead_size) {
        rc = -EFBIG;
    }
    if (rc == 0) {
        ssize_t n = write(fd, letters.ptr, letters.len);

        rc = n < 0 ? -errno : (size_t)n < letters.len ? -ENOSPC : fsync(fd) != 0 ? -errno : 0;
        if (rc != 0 && ftruncate(fd, st.st_size) != 0) { /* leave no half line */
            log_warning("%s: %s", path, strerror(errno));
        }
    }
    if (fd >= 0) {
        (void)close(fd); /* synced already */
    }
    return rc;
}

static void bury(struct queue *q, struct hook_place *p, struct slice letters)
{
    uint64_t count = count_lines(letters);
    int rc = count == 0 ? 0 : write_letters(q, p, letters);

    if (rc == 0) {
        p->dead += count;
        p->full_told = false;
        return;
    }
    p->dropped += count;
    if (!p->full_told) {
        log_warning("web hook %s: dead letters are dropped: %s", p->name,
                    rc == -EFBIG ? "web_hook_dead_size is reached" : strerror(-rc));
        p->full_told = true;
    }
}

/* ---- the process ---------------------------------------------------------------------------- */

static bool take_done(struct queue *q, struct slice body)
{
    struct wire_hook_done m;
    struct hook_place *p;

    if (!wire_get_hook_done(body, &m)) {
        return false;
    }
    p = find(q, m.name);
    /* Only about events in flight. The journal may have deleted some of them meanwhile. */
    if (p == NULL || p->sent == 0 || m.last > p->sent || m.last < p->taken ||
        (m.given_up && p->taken + 1 >= q->journal.first &&
         !are_ours(q, p->taken, m.last, m.letters))) {
        return false;
    }
    if (m.given_up) {
        bury(q, p, m.letters);
    }
    p->taken = m.last;
    p->sent = 0;
    note(q, p);
    return true;
}

static bool take_failing(struct queue *q, struct slice body)
{
    struct wire_hook_failing m;
    struct hook_place *p;

    if (!wire_get_hook_failing(body, &m)) {
        return false;
    }
    p = find(q, m.name);
    if (p == NULL) {
        return false;
    }
    mem_free(p->why);
    p->why = NULL;
    if (m.why.len == 0) {
        p->failing = (struct wall){0};
    } else {
        p->why = mem_copy(m.why.ptr, m.why.len);
        p->failing = p->failing.us == 0 ? clock_wall() : p->failing;
    }
    return true;
}

static bool take_frame(struct queue *q, const struct frame *frame)
{
    if (frame->fd >= 0) {
        (void)close(frame->fd); /* the process sends none */
        return false;
    }
    switch (frame->type) {
    case WIRE_HOOK_ASK:
        return take_ask(q, frame->body);
    case WIRE_HOOK_DONE:
        return take_done(q, frame->body);
    case WIRE_HOOK_FAILING:
        return take_failing(q, frame->body);
    default:
        return false;
    }
}

static void lose(struct queue *q)
{
    channel_free(q->hooks.channel);
    q->hooks.channel = NULL;
    for (size_t i = 0; i < q->hooks.count; i++) {
        q->hooks.at[i].wanted = false;
        q->hooks.at[i].sent = 0;
    }
}

static void on_hook(void *arg, struct channel *ch)
{
    struct queue *q = arg;
    struct frame frame;
    enum channel_event event;

    queue_clock_look(q);
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (!take_frame(q, &frame)) {
            log_error("hook: protocol violation: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        lose(q);
    }
}

void hooks_adopt(struct queue *q, int fd)
{
    if (q->hooks.channel != NULL) {
        lose(q);
    }
    q->hooks.channel = channel_new(q->role->base, fd, on_hook, q);
}

/* ---- begin and end -------------------------------------------------------------------------- */

void hooks_begin(struct queue *q)
{
    q->hooks = (struct hook_places){.count = 0};
    (void)spool_notes_read(q->spool, read_note, q); /* on an error all hooks are new */
}

void hooks_end(struct queue *q)
{
    channel_free(q->hooks.channel);
    for (size_t i = 0; i < q->hooks.count; i++) {
        mem_free(q->hooks.at[i].why);
    }
}

json_t *hooks_json(const struct queue *q)
{
    json_t *array = json_array();

    for (size_t i = 0; i < q->hooks.count; i++) {
        const struct hook_place *p = &q->hooks.at[i];
        json_t *one = json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I}", "name", p->name, "taken", (json_int_t)p->taken,
            "behind", (json_int_t)(q->journal.last > p->taken ? q->journal.last - p->taken : 0),
            "lost", (json_int_t)p->lost, "dead", (json_int_t)p->dead, "dropped",
            (json_int_t)p->dropped);

        CHECK(one != NULL);
        if (p->why != NULL) {
            json_put_time(one, "failing_since", p->failing);
            json_put(one, "error", listing_text(slice_string(p->why)));
        }
        json_add(array, one);
    }
    return array;
}
