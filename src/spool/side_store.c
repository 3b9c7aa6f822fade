#include "side_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "spool_engine.h"
#include "spool_notes.h"

/* What the engine has beside its database. */
static const char *const others[] = {"-wal", "-shm", ".lock", ".repaired"};

struct side_note {
    char *name, *text; /* owned */
    size_t text_len;
};

/*
 *   ABSENT --first change--> OPEN <--next change-- LOST     REFUSED
 *                             |                     ^
 *                             +--removed, damaged---+
 *
 *   ABSENT   there is no file yet
 *   OPEN     the notes in memory are those of the file
 *   LOST     there is no file, or nothing in it; the next one gets the notes in memory
 *   REFUSED  there is a file that could not be read, so what is in it is not known
 */
enum side_state { SIDE_ABSENT, SIDE_OPEN, SIDE_LOST, SIDE_REFUSED };

struct side_store {
    char *path; /* owned */
    const struct spool_io *io;
    enum side_state state;
    struct spool *db;        /* owned; of SIDE_OPEN */
    struct side_note *notes; /* owned; in order of names: all that it has */
    size_t count, size;
    bool failed; /* the last change; told */
    char error[SPOOL_ERROR_MAX];
    char line[SPOOL_ERROR_MAX + 64]; /* for the log */
    bool has_line, is_warning;
};

/* ---- words ---------------------------------------------------------------------------------- */

static int fail(struct side_store *s, int err, const char *words)
{
    (void)snprintf(s->error, sizeof s->error, "%s", words); /* cut is fine */
    return err;
}

static void tell(struct side_store *s, bool is_warning, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Of two that were not taken the later one says more. */
static void tell(struct side_store *s, bool is_warning, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(s->line, sizeof s->line, format, args); /* cut is fine */
    va_end(args);
    s->has_line = true;
    s->is_warning = is_warning;
}

const char *side_store_error(const struct side_store *s)
{
    return s->error;
}

const char *side_store_line(struct side_store *s, bool *ret_is_warning)
{
    struct spool_event event;

    if (!s->has_line && s->db != NULL && spool_next_event(s->db, &event)) {
        tell(s, true, "%.*s", SLICE_ARGS(event.text));
    }
    if (!s->has_line) {
        return NULL;
    }
    s->has_line = false;
    *ret_is_warning = s->is_warning;
    return s->line;
}

/* ---- notes in memory ------------------------------------------------------------------------ */

/* The index of the first one whose name is not before `name`. */
static size_t find(const struct side_store *s, struct slice name)
{
    size_t low = 0, high = s->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (slice_compare(slice_string(s->notes[middle].name), name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_at(const struct side_store *s, size_t i, struct slice name)
{
    return i < s->count && slice_equal(slice_string(s->notes[i].name), name);
}

static void keep(struct side_store *s, struct slice name, struct slice text)
{
    size_t i = find(s, name);

    if (!is_at(s, i, name)) {
        s->notes = mem_grow(s->notes, s->count, &s->size, sizeof *s->notes);
        memmove(s->notes + i + 1, s->notes + i, (s->count - i) * sizeof *s->notes);
        s->count++;
        s->notes[i] = (struct side_note){.name = mem_copy(name.ptr, name.len)};
    }
    mem_free(s->notes[i].text);
    s->notes[i].text = mem_copy(text.ptr, text.len);
    s->notes[i].text_len = text.len;
}

static void forget(struct side_store *s, struct slice name)
{
    size_t i = find(s, name);

    if (is_at(s, i, name)) {
        mem_free(s->notes[i].name);
        mem_free(s->notes[i].text);
        s->count--;
        memmove(s->notes + i, s->notes + i + 1, (s->count - i) * sizeof *s->notes);
    }
}

static int load(struct side_store *s)
{
    struct slice name = SLICE(""), text;
    char after[SPOOL_NOTE_NAME_MAX];
    int err;

    while ((err = spool_note_next(s->db, name, &name, &text)) == 0 && name.len <= sizeof after) {
        if (text.len > 0 && text.len <= SPOOL_NOTE_TEXT_MAX) {
            keep(s, name, text);
        }
        memcpy(after, name.ptr, name.len);
        name = slice_of(after, name.len);
    }
    return err == -ENOENT ? 0 : err;
}

/* ---- the database --------------------------------------------------------------------------- */

static char *path_with(const struct side_store *s, const char *suffix)
{
    size_t len = strlen(s->path) + strlen(suffix) + 1;
    char *path = mem_new(len);

    (void)snprintf(path, len, "%s%s", s->path, suffix); /* fits */
    return path;
}

static bool is_there(const struct side_store *s)
{
    int fd = s->io->open(s->path, O_RDONLY, 0);

    if (fd >= 0) {
        (void)s->io->close(fd); /* nothing was read */
    }
    return fd != -ENOENT;
}

/* Files of a database that is gone would be taken for those of the next. */
static void remove_others(const struct side_store *s)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char *path = path_with(s, others[i]);

        (void)s->io->unlink(path); /* it may not be there; else the engine refuses to begin */
        mem_free(path);
    }
}

static void close_db(struct side_store *s, enum side_state state)
{
    spool_close(s->db);
    s->db = NULL;
    s->state = state;
}

/* Out of the way, for a human to look at. */
static void set_aside(struct side_store *s)
{
    char *damaged = path_with(s, ".damaged");

    close_db(s, SIDE_LOST);
    if (s->io->renameat(AT_FDCWD, s->path, AT_FDCWD, damaged) == 0) {
        tell(s, true, "%s; it was set aside as %s, and a new one begins", s->error, damaged);
    }
    mem_free(damaged);
    remove_others(s);
}

static int open_db(struct side_store *s)
{
    const struct spool_options options = {.io = s->io};
    struct buf error;
    int err;

    buf_init(&error, SPOOL_ERROR_MAX);
    err = sqlite_spool_open(s->path, SPOOL_OPEN_WRITE, &options, &error, &s->db);
    if (err == 0) {
        s->state = SIDE_OPEN;
    } else {
        (void)fail(s, err, error.failed ? s->path : buf_cstr(&error));
    }
    buf_fini(&error);
    return err;
}

/* What is in it and not in memory is of a past that a log which was removed has changed. */
static int remove_unknown(struct side_store *s)
{
    struct slice name = SLICE(""), text;
    char at[SPOOL_NOTE_NAME_MAX];
    int err;

    while ((err = spool_note_next(s->db, name, &name, &text)) == 0 && name.len <= sizeof at) {
        memcpy(at, name.ptr, name.len);
        name = slice_of(at, name.len);
        if (!is_at(s, find(s, name), name)) {
            err = spool_note_remove(s->db, name);
            if (err != 0) {
                return err;
            }
        }
    }
    return err == -ENOENT ? 0 : err;
}

/* It is to have what was in the one before. */
static int put_all(struct side_store *s)
{
    int err = remove_unknown(s), committed;

    for (size_t i = 0; err == 0 && i < s->count; i++) {
        err = spool_note_put(s->db, slice_string(s->notes[i].name),
                             slice_of(s->notes[i].text, s->notes[i].text_len));
    }
    committed = spool_commit(s->db);
    err = err != 0 ? err : committed;
    return err == 0 ? 0 : fail(s, err, spool_error(s->db));
}

/* Have a database to write to. */
static int need_db(struct side_store *s)
{
    bool was_lost = s->state == SIDE_LOST;
    int err;

    if (s->state == SIDE_OPEN) {
        return 0;
    }
    if (s->state == SIDE_REFUSED) {
        return -EIO; /* error says what it was */
    }
    if (!is_there(s)) {
        remove_others(s);
    }
    err = open_db(s);
    if (err == 0 && was_lost) {
        err = put_all(s);
        if (err != 0) {
            close_db(s, SIDE_LOST);
        }
    }
    return err;
}

static bool is_damage(int err)
{
    return err == -EUCLEAN || err == -EBADMSG;
}

int side_store_open(const char *path, const struct spool_io *io, struct buf *ret_error,
                    struct side_store **ret_store)
{
    struct side_store *s = mem_new(sizeof *s);
    int err = 0;

    s->path = mem_string(path);
    s->io = io != NULL ? io : &spool_io_real;
    s->state = SIDE_ABSENT;
    if (is_there(s)) {
        err = open_db(s);
        err = err == 0 ? load(s) : err;
        if (err != 0 && s->db != NULL) {
            (void)fail(s, err, spool_error(s->db));
        }
    }
    if (err == -EBUSY) {
        (void)buf_add_string(ret_error, s->error); /* sticky */
        side_store_close(s);
        return err;
    }
    if (is_damage(err)) {
        set_aside(s);
    } else if (err != 0) {
        close_db(s, SIDE_REFUSED);
        tell(s, true, "%s; without it there are no interventions and events until the next start",
             s->error);
    }
    *ret_store = s;
    return 0;
}

void side_store_close(struct side_store *s)
{
    if (s == NULL) {
        return;
    }
    spool_close(s->db);
    for (size_t i = 0; i < s->count; i++) {
        mem_free(s->notes[i].name);
        mem_free(s->notes[i].text);
    }
    mem_free(s->notes);
    mem_free(s->path);
    mem_free(s);
}

void side_store_tidy(struct side_store *s)
{
    if (s->db != NULL) {
        spool_tidy(s->db);
    }
}

/* ---- changes -------------------------------------------------------------------------------- */

typedef int change(struct spool *db, const void *arg);

static int try_change(struct side_store *s, change *apply, const void *arg)
{
    int err = need_db(s), committed;

    if (err != 0) {
        return err;
    }
    err = apply(s->db, arg);
    if (err != 0) {
        (void)fail(s, err, spool_error(s->db));
    }
    committed = spool_commit(s->db);
    if (err == 0 && committed != 0) {
        err = fail(s, committed, spool_error(s->db));
    }
    return err;
}

/* Can another try help, with another file? */
static bool start_over(struct side_store *s, int err)
{
    if (err == -ESTALE) {
        tell(s, true, "%s; a new one begins", s->error);
        close_db(s, SIDE_LOST);
        return true;
    }
    if (is_damage(err) && s->state != SIDE_REFUSED) {
        set_aside(s);
        return true;
    }
    return false;
}

/* Do it, and make it durable. */
static int do_change(struct side_store *s, change *apply, const void *arg)
{
    int err = try_change(s, apply, arg);

    if (err != 0 && start_over(s, err)) {
        err = try_change(s, apply, arg);
    }
    if (err != 0 && !s->failed) {
        tell(s, true, "%s; until that is over no intervention can be changed, and events wait",
             s->error);
    } else if (err == 0 && s->failed) {
        tell(s, false, "%s: it can be written again", s->path);
    }
    s->failed = err != 0;
    return err;
}

struct put {
    struct slice name, text;
};

static int apply_put(struct spool *db, const void *arg)
{
    const struct put *p = arg;

    return spool_note_put(db, p->name, p->text);
}

int side_note_put(struct side_store *s, struct slice name, struct slice text)
{
    const struct put p = {name, text};
    int err = do_change(s, apply_put, &p);

    if (err == 0) {
        keep(s, name, text);
    }
    return err;
}

static int apply_remove(struct spool *db, const void *arg)
{
    const struct slice *name = arg;

    return spool_note_remove(db, *name);
}

int side_note_remove(struct side_store *s, struct slice name)
{
    int err = is_at(s, find(s, name), name) ? do_change(s, apply_remove, &name) : 0;

    if (err == 0) {
        forget(s, name);
    }
    return err;
}

struct add {
    uint64_t first, last;
    struct wall at;
    struct slice lines;
};

static int apply_add(struct spool *db, const void *arg)
{
    const struct add *a = arg;

    return spool_events_add(db, a->first, a->last, a->at, a->lines);
}

int side_events_add(struct side_store *s, uint64_t first, uint64_t last, struct wall at,
                    struct slice lines)
{
    const struct add a = {first, last, at, lines};

    return do_change(s, apply_add, &a);
}

static int apply_forget(struct spool *db, const void *arg)
{
    uint64_t *const *ret_bytes = arg;

    return spool_events_forget(db, *ret_bytes);
}

int side_events_forget(struct side_store *s, uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    return s->state == SIDE_OPEN ? do_change(s, apply_forget, &ret_bytes) : 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

int side_note_next(const struct side_store *s, struct slice after, struct slice *ret_name,
                   struct slice *ret_text)
{
    size_t i = find(s, after);

    i += is_at(s, i, after) ? 1 : 0;
    if (i == s->count) {
        return -ENOENT;
    }
    *ret_name = slice_string(s->notes[i].name);
    *ret_text = slice_of(s->notes[i].text, s->notes[i].text_len);
    return 0;
}

int side_events_range(struct side_store *s, bool count_bytes, struct spool_events_range *ret)
{
    int err = 0;

    *ret = (struct spool_events_range){.first = 1};
    if (s->state == SIDE_REFUSED) {
        return -EIO;
    }
    if (s->db != NULL) {
        err = spool_events_range(s->db, count_bytes, ret);
    }
    return err == 0 ? 0 : fail(s, err, spool_error(s->db));
}

int side_events_read(struct side_store *s, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                     struct slice *ret_lines)
{
    int err = -ENOENT;

    if (s->db != NULL) {
        err = spool_events_read(s->db, number, ret_first, ret_last, ret_lines);
    }
    return err == 0 || err == -ENOENT ? err : fail(s, err, spool_error(s->db));
}
