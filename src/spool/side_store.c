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

#define LOST_WORDS "its file was damaged"
/* Limit of names that one pass reads. */
#define UNKNOWN_MAX 100

/* Suffixes of the sqlite engine's other files. */
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
 *   LOST     the file is missing or empty; the next change makes one from the notes in memory
 *   REFUSED  the file can't be read, so its notes are unknown
 */
enum side_state { SIDE_ABSENT, SIDE_OPEN, SIDE_LOST, SIDE_REFUSED };

struct side_store {
    char *path; /* owned */
    const struct spool_io *io;
    enum side_state state;
    struct spool *db;        /* owned; set in SIDE_OPEN */
    struct side_note *notes; /* owned; all valid notes of the store, in order of names */
    size_t count, size;
    struct side_note *damaged; /* owned; damaged notes of the file when it was opened */
    size_t damaged_count, damaged_size;
    bool failed; /* the last change failed, and that was logged */
    char error[SPOOL_ERROR_MAX];
    char line[SPOOL_ERROR_MAX + 64]; /* line for the log */
    bool has_line, is_warning;
};

/* ---- words ---------------------------------------------------------------------------------- */

static int fail(struct side_store *s, int err, const char *words)
{
    (void)snprintf(s->error, sizeof s->error, "%s", words); /* may be cut */
    return err;
}

static void tell(struct side_store *s, bool is_warning, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the next line for the log. A later line replaces an earlier one, as it has more
 * information. */
static void tell(struct side_store *s, bool is_warning, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(s->line, sizeof s->line, format, args); /* may be cut */
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

/* Returns the index of the first note whose name is not before `name`. */
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

static void free_note(struct side_note *n)
{
    mem_free(n->name);
    mem_free(n->text);
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
        free_note(&s->notes[i]);
        s->count--;
        memmove(s->notes + i, s->notes + i + 1, (s->count - i) * sizeof *s->notes);
    }
}

static void load_note(void *context, struct slice name, struct slice text, bool is_damaged)
{
    struct side_store *s = context;

    if (!is_damaged) {
        keep(s, name, text);
        return;
    }
    name = slice_of(name.ptr, name.len < SPOOL_NOTE_NAME_MAX ? name.len : SPOOL_NOTE_NAME_MAX);
    text = slice_of(text.ptr, text.len < SPOOL_NOTE_TEXT_MAX ? text.len : SPOOL_NOTE_TEXT_MAX);
    s->damaged = mem_grow(s->damaged, s->damaged_count, &s->damaged_size, sizeof *s->damaged);
    s->damaged[s->damaged_count++] = (struct side_note){.name = mem_copy(name.ptr, name.len),
                                                        .text = mem_copy(text.ptr, text.len),
                                                        .text_len = text.len};
}

static int load(struct side_store *s)
{
    return spool_notes_read(s->db, load_note, s);
}

/* ---- the database --------------------------------------------------------------------------- */

static char *path_with(const struct side_store *s, const char *suffix)
{
    size_t len = strlen(s->path) + strlen(suffix) + 1;
    char *path = mem_new(len);

    (void)snprintf(path, len, "%s%s", s->path, suffix); /* it fits */
    return path;
}

static bool is_there(const struct side_store *s)
{
    int fd = s->io->open(s->path, O_RDONLY, 0);

    if (fd >= 0) {
        (void)s->io->close(fd); /* opened for reading */
    }
    return fd != -ENOENT;
}

/* Removes the other files of a lost database, which SQLite would take for those of the next. */
static void remove_others(const struct side_store *s)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char *path = path_with(s, others[i]);

        (void)s->io->unlink(path); /* the file may be missing; if it stays, the engine refuses to
                                    * open */
        mem_free(path);
    }
}

static void close_db(struct side_store *s, enum side_state state)
{
    spool_close(s->db);
    s->db = NULL;
    s->state = state;
}

/* Renames the file, for a human to examine. */
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

/* Names of notes in the database that are not in memory: changes in a log file that was removed. */
struct unknown {
    const struct side_store *s;
    char names[UNKNOWN_MAX][SPOOL_NOTE_NAME_MAX + 1];
    size_t count;
};

static void find_unknown(void *context, struct slice name, struct slice text, bool is_damaged)
{
    struct unknown *u = context;

    (void)text;
    if (!is_damaged && u->count < UNKNOWN_MAX && !is_at(u->s, find(u->s, name), name)) {
        memcpy(u->names[u->count], name.ptr, name.len);
        u->names[u->count++][name.len] = '\0';
    }
}

static int remove_unknown(struct side_store *s)
{
    struct unknown u;
    int err;

    do {
        u = (struct unknown){.s = s};
        err = spool_notes_read(s->db, find_unknown, &u);
        for (size_t i = 0; err == 0 && i < u.count; i++) {
            err = spool_note_remove(s->db, slice_string(u.names[i]));
        }
    } while (err == 0 && u.count == UNKNOWN_MAX);
    return err;
}

/* Writes all notes in memory to a new database. */
static int put_all(struct side_store *s)
{
    int err = remove_unknown(s), committed;

    for (size_t i = 0; err == 0 && i < s->count; i++) {
        err = spool_note_put(s->db, slice_string(s->notes[i].name),
                             slice_of(s->notes[i].text, s->notes[i].text_len));
    }
    if (err == 0 && s->damaged_count > 0) {
        err = spool_note_put(s->db, SLICE(SPOOL_NOTE_LOST), SLICE(LOST_WORDS));
    }
    committed = spool_commit(s->db);
    err = err != 0 ? err : committed;
    return err == 0 ? 0 : fail(s, err, spool_error(s->db));
}

/* Opens a database to write to, if none is open. */
static int need_db(struct side_store *s)
{
    bool was_lost = s->state == SIDE_LOST;
    int err;

    if (s->state == SIDE_OPEN) {
        return 0;
    }
    if (s->state == SIDE_REFUSED) {
        return -EIO; /* s->error has the cause */
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

/* Begins a new file after the notes of a damaged one were lost. The new file must have
 * SPOOL_NOTE_LOST, or the next start would find nothing wrong. */
static void begin_again(struct side_store *s)
{
    set_aside(s);
    keep(s, SLICE(SPOOL_NOTE_LOST), SLICE(LOST_WORDS));
    (void)need_db(s); /* if this fails, the next change tries again and reports it */
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
        (void)buf_add_string(ret_error, s->error); /* errors are sticky */
        side_store_close(s);
        return err;
    }
    if (is_damage(err)) {
        begin_again(s);
    } else if (err != 0) {
        close_db(s, SIDE_REFUSED);
        tell(
            s, true,
            "%s; without it no intervention is known, and there are no events until the next start",
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
        free_note(&s->notes[i]);
    }
    for (size_t i = 0; i < s->damaged_count; i++) {
        free_note(&s->damaged[i]);
    }
    mem_free(s->damaged);
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

/* Prepares another attempt with another file; false if that can't help. */
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

/* Makes a change durable. */
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

static int apply_remove_damaged(struct spool *db, const void *arg)
{
    const struct slice *name = arg;

    return spool_note_remove_damaged(db, *name);
}

int side_note_remove_damaged(struct side_store *s, struct slice name)
{
    int err = s->state == SIDE_REFUSED ? 0 : do_change(s, apply_remove_damaged, &name);
    size_t kept = 0;

    for (size_t i = 0; err == 0 && i < s->damaged_count; i++) {
        if (slice_equal(slice_string(s->damaged[i].name), name)) {
            free_note(&s->damaged[i]);
        } else {
            s->damaged[kept++] = s->damaged[i];
        }
    }
    s->damaged_count = err == 0 ? kept : s->damaged_count;
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

int side_notes_read(const struct side_store *s, spool_note_read *read, void *context)
{
    for (size_t i = 0; i < s->count; i++) {
        read(context, slice_string(s->notes[i].name),
             slice_of(s->notes[i].text, s->notes[i].text_len), false);
    }
    for (size_t i = 0; i < s->damaged_count; i++) {
        read(context, slice_string(s->damaged[i].name),
             slice_of(s->damaged[i].text, s->damaged[i].text_len), true);
    }
    return s->state == SIDE_REFUSED ? -EIO : 0;
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
