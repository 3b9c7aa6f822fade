/*
 * The sqlite engine: opening, changes, claims. sqlite_schema.c has the tables, docs/spool.md the
 * on-disk format.
 *
 * The design keeps mail cheap that is delivered at once. Such a message is in passage: a record in
 * a file outside the database, and soon another record that ends it (passage.h). A batch of such
 * mail alone leaves the database unchanged: no transaction, no page. When a message stays
 * (deferred, held), sqlite_need_rows makes its rows, appended at the end of their tables and in no
 * secondary index, and list_message adds them to the indexes. A message with too many recipients or
 * too much content for passage has rows from the beginning.
 *
 * The write-ahead log. A commit appends changed pages to the log and syncs it: one sequential
 * write, one sync. Moving pages to the database (a checkpoint) takes two more syncs. SQLite would
 * do that every 1,000 pages. Instead spool_tidy does it when the caller is idle and there are
 * LOG_TIDY_PAGES; a commit does it only at LOG_MAX_PAGES. A page that was written many times is
 * then moved once.
 *
 * Mail that is deferred changes pages all over the indexes: with a log of 64 MiB the longest commit
 * of 500 such messages took 130 ms, with 16 MiB 55 ms, and with 8 MiB no less. The limit is smaller
 * still, because moving the log must fit into the reserve when the disk is full (reserve.h); a
 * larger log would use up the reserve and not be started over. A reader that stays in one
 * transaction for long also prevents that the log is started over; the log then grows until the
 * reader ends.
 */
#include "sqlite_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "check.h"
#include "log_vfs.h"
#include "mem.h"
#include "row_sum.h"
#include "sqlite_indexes.h"
#include "sqlite_schema.h"

#define PAGE_SIZE      4096
#define CACHE_KIB      16384
#define LOG_TIDY_PAGES 256  /* 1 MiB */
#define LOG_MAX_PAGES  512  /* 2 MiB, also the size to which the file is cut */
#define BUSY_MS        1000 /* for an operator who writes with the sqlite3 shell */
/* Far more space than opening a database takes, even if its log must be read again. */
#define OPENING_BYTES ((uint64_t)1 << 20)
/* Limit of old unlisted messages that one commit lists: more than a commit usually adds, so that
 * their number falls, and few enough to take no longer than the commit's sync. */
#define LIST_PER_COMMIT 512
#define PREFIX_ROOM     ((size_t)1 << 16)
#define REMOVED_MAX     1000 /* limit of rows in `removed`, before they are deleted */
#define LOCK_TEXT_MAX   64
/* Dead content in segments above which commits help to free room, and the bytes that each commit
 * moves: little compared with its other writes. */
#define DEAD_MAX         (UINT64_C(256) << 20)
#define EMPTY_PER_COMMIT (UINT64_C(256) << 10)
#define EMPTY_PER_TIDY   (UINT64_C(1) << 20)

/* Maximum number of looks at all indexes: damage of a table is met again and again. */
#define INDEX_LOOKS_MAX 3

/* The numbers above as SQL. secure_delete, a default of Debian's SQLite, would write every deleted
 * page once more; it is off, as a user who can read the disk could read the mail while it was
 * queued. */
static const char settings[] = "PRAGMA page_size = 4096;"
                               "PRAGMA journal_mode = WAL;"
                               "PRAGMA synchronous = FULL;"
                               "PRAGMA mmap_size = 0;"
                               "PRAGMA temp_store = MEMORY;"
                               "PRAGMA cache_size = -16384;"
                               "PRAGMA secure_delete = OFF;"
                               "PRAGMA trusted_schema = OFF;"
                               "PRAGMA cell_size_check = ON;"
                               "PRAGMA journal_size_limit = 2097152";
_Static_assert(PAGE_SIZE == 4096 && CACHE_KIB == 16384 && LOG_MAX_PAGES * PAGE_SIZE == 2097152,
               "settings");
_Static_assert(LOG_MAX_PAGES *PAGE_SIZE <= RESERVE_BYTES / 2, "moving the log fits the reserve");

/* ---- statements ----------------------------------------------------------------------------- */

static int errno_of(struct sqlite_spool *s, int rc)
{
    int system = s->db == NULL ? 0 : sqlite3_system_errno(s->db);

    switch (rc & 0xff) {
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_IOERR:
        return system == ENOSPC || system == EDQUOT || system == EFBIG ? -ENOSPC : -EIO;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EUCLEAN;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_CANTOPEN:
        return system == 0 ? -EIO : -system;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return -EACCES;
    case SQLITE_MISMATCH:
        return -EPROTO;
    case SQLITE_CONSTRAINT:
        return -EBADMSG;
    default:
        return -EIO;
    }
}

int sqlite_fail(struct sqlite_spool *s, int rc, const char *what)
{
    int err = errno_of(s, rc);
    int system = s->db == NULL ? 0 : sqlite3_system_errno(s->db);

    s->space_ran_out = s->space_ran_out || (err == -ENOSPC && s->lock_fd >= 0);
    s->damage_met = s->damage_met || err == -EUCLEAN;
    const char *advice = err == -EUCLEAN ? "; the database is damaged: with the daemon stopped, "
                                           "`sluice spool repair' makes a new one of what is left"
                                         : "";
    const char *why = err == -ENOSPC ? "no space left on the device"
                      : s->db != NULL && sqlite3_errcode(s->db) == rc ? sqlite3_errmsg(s->db)
                                                                      : sqlite3_errstr(rc);

    if ((rc & 0xff) == SQLITE_IOERR && err != -ENOSPC && system != 0) {
        return spool_fail(&s->base, err, "%s: %s: %s (%s)", what, s->path, why, strerror(system));
    }
    return spool_fail(&s->base, err, "%s: %s: %s%s", what, s->path, why, advice);
}

int sqlite_no_message(struct sqlite_spool *s, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    return spool_fail(&s->base, -ENOENT, "%s: no such message", text);
}

static sqlite3_stmt *prepared(struct sqlite_spool *s, enum statement which)
{
    sqlite3_stmt **st = &s->statements[which];

    if (*st == NULL) {
        (void)sqlite3_prepare_v3(s->db, sqlite_statement_sql[which], -1, SQLITE_PREPARE_PERSISTENT,
                                 st, NULL); /* on an error sqlite_step finds NULL and returns the
                                             * cause */
    }
    return *st;
}

/* Begins the transaction of a batch with its first statement that changes the database. Most
 * batches of passing mail have none. */
sqlite3_stmt *sqlite_ask(struct sqlite_spool *s, enum statement which)
{
    sqlite3_stmt *st = prepared(s, which), *first;

    if (st == NULL || !s->batch_open || s->in_transaction || sqlite3_stmt_readonly(st)) {
        return st;
    }
    first = prepared(s, ST_BEGIN);
    if (sqlite_step(s, first) != SQLITE_DONE) {
        return NULL; /* sqlite_step returns the connection's error */
    }
    (void)sqlite3_reset(first); /* always SQLITE_OK */
    s->in_transaction = true;
    return st;
}

int sqlite_step(struct sqlite_spool *s, sqlite3_stmt *st)
{
    return st == NULL ? sqlite3_extended_errcode(s->db) : sqlite3_step(st);
}

int sqlite_done(struct sqlite_spool *s, sqlite3_stmt *st, int rc)
{
    int err = rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : sqlite_fail(s, rc, "spool");

    if (st != NULL) {
        (void)sqlite3_reset(st); /* returns the error of the last step again */
    }
    /* After an error of the disk, even in a read, SQLite undoes the transaction. */
    if (err != 0 && s->in_transaction && sqlite3_get_autocommit(s->db)) {
        spool_batch_failed(&s->base, err);
    }
    return err;
}

/* Binding fails only for a wrong index or a text beyond SQLite's limits, which would be a bug.
 * sqlite_step handles NULL. */
void sqlite_bind_int(sqlite3_stmt *st, int at, int64_t value)
{
    if (st != NULL) {
        CHECK(sqlite3_bind_int64(st, at, value) == SQLITE_OK);
    }
}

void sqlite_bind_slice(sqlite3_stmt *st, int at, struct slice text)
{
    if (st != NULL) {
        CHECK(sqlite3_bind_text64(st, at, text.len == 0 ? "" : text.ptr, text.len, SQLITE_STATIC,
                                  SQLITE_UTF8) == SQLITE_OK);
    }
}

/* Runs a statement of the batch that returns no rows. A failure fails the batch, except -EBADMSG:
 * the tables refuse a change of a damaged row, and nothing has changed. */
static int run(struct sqlite_spool *s, sqlite3_stmt *st)
{
    int err = sqlite_done(s, st, sqlite_step(s, st));

    return err == 0 || err == -EBADMSG ? err : spool_batch_failed(&s->base, err);
}

static int run_on(struct sqlite_spool *s, enum statement which, struct msg_id id)
{
    sqlite3_stmt *st = sqlite_ask(s, which);

    sqlite_bind_int(st, 1, (int64_t)id.n);
    return run(s, st);
}

/* Has the last `run` changed any rows? */
static bool changed(struct sqlite_spool *s)
{
    return sqlite3_changes(s->db) > 0;
}

static bool claimable(enum spool_state state)
{
    return state == SPOOL_INCOMING || state == SPOOL_DEFERRED;
}

static unsigned order_of(enum spool_state state)
{
    CHECK(claimable(state));
    return state == SPOOL_INCOMING ? CLAIM_INCOMING : CLAIM_DEFERRED;
}

/* ---- counters ------------------------------------------------------------------------------- */

static void total_add(struct sqlite_spool *s, enum spool_state state, int64_t by)
{
    uint64_t *total = spool_total_of(&s->totals, state);

    if (total != NULL) { /* a damaged row is counted under its previous state */
        *total = by < 0 && *total < (uint64_t)-by ? 0 : *total + (uint64_t)by;
    }
}

static void bytes_take(struct sqlite_spool *s, uint64_t size)
{
    s->totals.bytes -= size < s->totals.bytes ? size : s->totals.bytes;
}

int sqlite_flush_counts(struct sqlite_spool *s)
{
    struct sqlite_counts counts = s->counts;
    sqlite3_stmt *st;

    if (s->base.batch_error != 0) {
        return 0; /* the counts will be undone, and SQLite may have ended the transaction already */
    }
    s->counts = (struct sqlite_counts){.id = 0};
    if (counts.id == 0 || (counts.pending == 0 && counts.to_report == 0)) {
        return 0;
    }
    st = sqlite_ask(s, ST_MESSAGE_COUNTS);
    sqlite_bind_int(st, 1, (int64_t)counts.id);
    sqlite_bind_int(st, 2, counts.pending);
    sqlite_bind_int(st, 3, counts.to_report);
    return run(s, st);
}

static int count_move(struct sqlite_spool *s, struct msg_id id, int64_t pending, int64_t to_report)
{
    int err = s->counts.id == id.n ? 0 : sqlite_flush_counts(s);

    if (err == 0) {
        s->counts.id = id.n;
        s->counts.pending += pending;
        s->counts.to_report += to_report;
    }
    return err;
}

/* ---- damaged indexes ------------------------------------------------------------------------ */

/* Stores a warning for the log. */
static void warn(struct sqlite_spool *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void warn(struct sqlite_spool *s, const char *format, ...)
{
    va_list args;

    if (s->warning_count < SQLITE_WARNINGS_MAX) {
        va_start(args, format);
        (void)vsnprintf(s->warnings[s->warning_count++], SPOOL_ERROR_MAX, format, args); /* may be
                                                                                          * cut */
        va_end(args);
    }
}

static void tell_of_index(void *arg, const char *name, bool made)
{
    struct sqlite_spool *s = arg;

    warn(s, "spool %s: the index %s had a damaged page, and %s", s->path, name,
         made ? "was made again" : "can't be made again");
}

void sqlite_mend_indexes(struct sqlite_spool *s)
{
    if (s->damage_met && s->index_looks < INDEX_LOOKS_MAX && s->lock_fd >= 0) {
        s->index_looks++;
        if (indexes_mend(s->db, tell_of_index, s)) {
            s->due_is_broken = false;
        }
        s->damage_met = false;
    }
}

/* ---- the batch ------------------------------------------------------------------------------ */

/* Empties the table `removed` at the start of a batch, when the files of all its rows are gone. */
static void forget_removed(struct sqlite_spool *s)
{
    sqlite3_stmt *st;

    s->removed = 0;
    if (content_files_sync_dir(&s->content) == 0) {
        st = sqlite_ask(s, ST_REMOVED_CLEAR);
        (void)sqlite_done(s, st, sqlite_step(s, st)); /* superfluous rows have no effect */
    }
}

static int begin(struct spool *sp)
{
    struct sqlite_spool *s = sqlite_of(sp);

    sqlite_mend_indexes(s);
    s->totals_before = s->totals;
    s->passing_before = s->passing;
    claims_begin(&s->claims);
    s->batch_open = true;
    if (s->removed >= REMOVED_MAX) {
        forget_removed(s);
    }
    return 0;
}

bool sqlite_begin_alone(struct sqlite_spool *s)
{
    s->base.dirty = begin(&s->base) == 0;
    return s->base.dirty;
}

/* Resets the batch's state after its end. */
static void end_batch(struct sqlite_spool *s)
{
    s->batch_open = s->in_transaction = s->has_rows_beside = false;
}

/* Moves the log into the database as far as readers allow. A failure has no consequences: the log
 * is as durable as the database, and the next call tries again. */
static void checkpoint(struct sqlite_spool *s)
{
    int pages = 0, moved = 0;
    int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &moved);
    bool whole = rc == SQLITE_OK && moved == pages;

    /* A log that could not be moved completely is not started over. Remember its length, so that
     * not every commit tries again. */
    s->log_kept = whole ? 0 : s->log_pages;
    s->log_pages = s->log_kept; /* until the next commit updates it */
}

static void undo(struct sqlite_spool *s, bool in_doubt)
{
    /* SQLite may already have rolled back by itself, for example on a full disk. */
    if (!sqlite3_get_autocommit(s->db)) {
        sqlite3_stmt *st = prepared(s, ST_ROLLBACK);

        if (sqlite_step(s, st) != SQLITE_DONE) {
            CHECK(sqlite3_get_autocommit(s->db)); /* a rollback may fail only if there is no
                                                   * transaction */
        }
        if (st != NULL) {
            (void)sqlite3_reset(st);
        }
    }
    content_files_undone(&s->content, in_doubt);
    segments_undone(&s->segments, in_doubt);
    passage_undone(&s->passage);
    s->row_in_doubt = s->row_in_doubt || (in_doubt && s->in_transaction);
    s->commits += in_doubt; /* after a crash the failed commit may turn out durable */
    end_batch(s);
    s->totals = s->totals_before;
    s->passing = s->passing_before;
    s->counts = (struct sqlite_counts){.id = 0};
    tally_clear(&s->tally);
    claims_undo(&s->claims);
    sqlite_keys_undone(s);
    if (s->space_ran_out) {
        /* After the log was moved to the database and started over, later writes need little
         * space. */
        s->space_ran_out = false;
        reserve_release(&s->reserve);
        checkpoint(s);
    }
}

static void rollback(struct spool *sp)
{
    undo(sqlite_of(sp), false);
}

static int list_message(struct sqlite_spool *s, struct msg_id id)
{
    int err = sqlite_need_rows(s, id);
    struct claim_facts facts = claims_get(&s->claims, id.n);

    if (err != 0 || !facts.unlisted) {
        return err; /* a message in passage that can't be read is listed as corrupt */
    }
    err = run_on(s, ST_MESSAGE_LIST, id);
    if (err == 0) {
        err = run_on(s, ST_RCPT_LIST, id);
    }
    if (err == -EBADMSG) {
        err = 0; /* malformed rows stay out of the indexes; a read of them returns the fault */
    }
    if (err == 0 && facts.segment > 0) {
        segments_may_empty(&s->segments, facts.segment);
    }
    if (err == 0) {
        facts.unlisted = false;
        claims_set(&s->claims, id.n, facts);
        if (!facts.claimed) {
            claims_add_due(&s->claims, CLAIM_INCOMING, facts.due, id.n);
        }
        err = sqlite_tally_message(s, id, 1);
    }
    return err;
}

static int write_spool_row(struct sqlite_spool *s)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_SPOOL_WRITE);

    sqlite_bind_int(st, 1, (int64_t)s->last_id);
    sqlite_bind_int(st, 2, (int64_t)claims_unlisted_from(&s->claims, s->last_id + 1));
    sqlite_bind_int(st, 3, (int64_t)(s->totals.incoming - s->passing.incoming));
    sqlite_bind_int(st, 4, (int64_t)s->totals.deferred);
    sqlite_bind_int(st, 5, (int64_t)s->totals.hold);
    sqlite_bind_int(st, 6, (int64_t)s->totals.corrupt);
    sqlite_bind_int(st, 7, (int64_t)(s->totals.bytes - s->passing.bytes));
    sqlite_bind_int(st, 8, (int64_t)s->commits + 1);
    sqlite_bind_int(st, 9, (int64_t)s->passage_from);
    return run(s, st);
}

static int disk_free(const struct sqlite_spool *s, uint64_t *ret_bytes)
{
    struct statvfs st;

    if (statvfs(s->path, &st) != 0) {
        return -errno;
    }
    *ret_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

/* Returns how many bytes may be copied to empty a segment. The segment's room is only freed when
 * all of it is copied, and the space that the reserve has freed is for results: without them no
 * mail leaves a full disk. So a copy begins only if it fits next to the log. The more mail is
 * delivered, the less must be copied. */
static uint64_t room_to_empty(const struct sqlite_spool *s)
{
    uint64_t bytes = 0;

    if (s->reserve.held) {
        return UINT64_MAX;
    }
    if (disk_free(s, &bytes) != 0 || bytes < RESERVE_BYTES / 2) {
        return 0;
    }
    return bytes - RESERVE_BYTES / 2 + segments_spare_bytes(&s->segments);
}

/* Empties segments during a commit once there is much to gain; under load the spool is never
 * tidied. */
static int empty_segments(struct sqlite_spool *s)
{
    uint32_t poorest = segments_poorest(&s->segments, false, room_to_empty(s));

    int err = poorest == 0 || segments_dead_bytes(&s->segments) < DEAD_MAX
                  ? 0
                  : sqlite_segments_empty(s, poorest, EMPTY_PER_COMMIT);

    if (err == -EUCLEAN) {
        segments_can_not_empty(&s->segments, poorest); /* the next batch skips this segment */
    }
    return err;
}

/* Adds rows to `removed` for files of an earlier commit that failed in doubt: this commit proves
 * that they are not needed. delete_message does the same for its own file. */
static int remove_doubtful(struct sqlite_spool *s)
{
    int err = 0;

    for (size_t i = 0; err == 0 && i < s->content.in_doubt; i++) {
        err = run_on(s, ST_REMOVED_ADD, (struct msg_id){s->content.doomed.ids[i]});
        s->removed++;
    }
    return err;
}

/* Lists some of the old messages that are not listed yet. */
static int list_old(struct sqlite_spool *s)
{
    int err = 0;

    for (int i = 0; err == 0 && i < LIST_PER_COMMIT; i++) {
        uint64_t oldest = claims_unlisted_from(&s->claims, s->last_id + 1);

        if (oldest + SQLITE_UNLISTED_SPAN > s->last_id || oldest == s->can_not_list) {
            break;
        }
        err = list_message(s, (struct msg_id){oldest});
        if (err == -EUCLEAN) {
            s->can_not_list = oldest; /* the next batch skips this message */
        }
    }
    return err;
}

/* Completes the batch's changes of the database. */
static int prepare_commit(struct sqlite_spool *s)
{
    int err = sqlite_flush_counts(s);

    if (err == 0) {
        err = sqlite_flush_keys(s);
    }
    if (err == 0) {
        err = remove_doubtful(s);
    }
    if (err == 0) {
        err = list_old(s);
    }
    if (err == 0) {
        err = sqlite_passage_empty(s);
    }
    if (err == 0) {
        err = empty_segments(s);
    }
    if (err == 0) {
        err = sqlite_tally_write(s);
    }
    return err == 0 && (s->in_transaction || s->row_in_doubt) ? write_spool_row(s) : err;
}

/* Syncs the batch's data outside the database. *ret_in_doubt: after an error, some of it may turn
 * out durable. */
static int write_beside(struct sqlite_spool *s, bool *ret_in_doubt)
{
    int err = content_files_sync(&s->content);

    if (err == 0) {
        err = segments_sync(&s->segments);
    }
    if (err == 0 && passage_dirty(&s->passage)) {
        err = passage_write(&s->passage, s->commits + 1, s->last_id, s->in_transaction);
        *ret_in_doubt = err != 0;
    }
    if (err != 0) {
        s->space_ran_out = s->space_ran_out || err == -ENOSPC || err == -EDQUOT;
        return spool_fail(&s->base, err, "sync content: %s.d: %s", s->path, strerror(-err));
    }
    return 0;
}

/* Finds the file of a name; false if there is none. Uses statx(2) without the times. After a
 * stat(2) the next write would give the file new times (Linux 6.13), and each sync would have to
 * write its inode, too. */
static bool find_place(const char *path, struct sqlite_place *ret_place)
{
    struct statx st;

    if (statx(AT_FDCWD, path, 0, STATX_INO, &st) != 0) {
        return false;
    }
    *ret_place = (struct sqlite_place){makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino};
    return true;
}

/* Checks that the names of the open files still lead to them: data written to a removed file is
 * lost when this process ends. Two system calls cost far less than the sync that follows. */
static int check_places(struct sqlite_spool *s)
{
    struct sqlite_place now = {0, 0};

    if (s->database.inode == 0) {
        return 0; /* a test's file system, which has no names */
    }
    if (!find_place(s->path, &now) || now.inode != s->database.inode ||
        now.device != s->database.device) {
        return spool_fail(&s->base, -ESTALE,
                          "the database was removed or replaced while it is in use: %s", s->path);
    }
    if (!find_place(s->log_path, &now)) {
        now.inode = 0;
    }
    if (s->log.inode == 0) {
        s->log = now; /* the first change creates the log */
    } else if (now.inode != s->log.inode || now.device != s->log.device) {
        return spool_fail(&s->base, -ESTALE,
                          "the log was removed or replaced while it is in use: %s", s->log_path);
    }
    return 0;
}

/* Writes the lock file: the process that has the spool open, and the number of commits. It is not
 * synced: after a power failure it may have a lower number than there were commits, never a higher
 * one. */
static void write_lock(struct sqlite_spool *s)
{
    char text[64];
    int len = snprintf(text, sizeof text, "%-12ld\n%-20llu\n", (long)getpid(),
                       (unsigned long long)s->commits);

    (void)s->io->pwrite(s->lock_fd, text, (size_t)len, 0); /* only for information; the lock itself
                                                            * is flock's */
}

static int commit(struct spool *sp)
{
    struct sqlite_spool *s = sqlite_of(sp);
    bool in_doubt = false;
    sqlite3_stmt *st;
    int err = prepare_commit(s);

    if (err == 0) {
        err = check_places(s);
    }
    if (err == 0) {
        err = write_beside(s, &in_doubt);
    }
    if (err == 0 && s->in_transaction) {
        st = prepared(s, ST_COMMIT);
        err = sqlite_done(s, st, sqlite_step(s, st));
        in_doubt = err != 0;
    }
    if (err != 0) {
        undo(s, in_doubt);
        return err;
    }
    if (s->in_transaction || passage_dirty(&s->passage)) {
        s->commits++;
        write_lock(s);
    }
    s->row_in_doubt = s->row_in_doubt && !s->in_transaction;
    s->rows_beside = s->has_rows_beside;
    end_batch(s);
    claims_commit(&s->claims);
    content_files_committed(&s->content);
    segments_committed(&s->segments);
    passage_committed(&s->passage);
    sqlite_keys_committed(s);
    if (s->log_pages - s->log_kept >= LOG_MAX_PAGES) {
        checkpoint(s);
    }
    return 0;
}

/* Empties a segment in a batch of its own, which no caller waits for. A failure has no
 * consequences. */
static void empty_some(struct sqlite_spool *s)
{
    /* On a disk that has been full, room is worth more. */
    uint32_t poorest = segments_poorest(&s->segments, !s->reserve.held, room_to_empty(s));

    if (poorest == 0) {
        return;
    }
    if (!sqlite_begin_alone(s)) {
        return;
    }
    (void)sqlite_segments_empty(s, poorest, EMPTY_PER_TIDY); /* an error has failed the batch */
    if (spool_commit(&s->base) != 0) {
        segments_can_not_empty(&s->segments, poorest); /* prevents an immediate retry */
    }
}

static void tidy(struct spool *sp)
{
    struct sqlite_spool *s = sqlite_of(sp);

    uint64_t free_now = 0;

    segments_tidy(&s->segments);
    empty_some(s);

    if (s->log_pages - s->log_kept >= LOG_TIDY_PAGES) {
        checkpoint(s);
    }
    /* Twice, so that the next commit still finds space. */
    if (!s->reserve.held && disk_free(s, &free_now) == 0 && free_now >= 2 * RESERVE_BYTES) {
        reserve_fill(&s->reserve);
    }
}

static int on_log_grown(void *context, sqlite3 *db, const char *name, int pages)
{
    struct sqlite_spool *s = context;

    (void)db;   /* always s->db */
    (void)name; /* always "main" */
    s->log_pages = pages;
    return SQLITE_OK;
}

/* ---- submit --------------------------------------------------------------------------------- */

/* Returns all of the content as one slice: the caller's if it is in one piece, else a copy. */
static int gather(struct sqlite_spool *s, const struct spool_new *n, struct slice *ret_all)
{
    const struct spool_content *content = n->content;
    char *room;
    int err;

    if (n->prefix.len == 0 && content->fd < 0) {
        *ret_all = content->bytes;
        return 0;
    }
    buf_clear(&s->bytes);
    buf_add(&s->bytes, n->prefix);
    buf_add(&s->bytes, content->bytes);
    if (content->fd >= 0) {
        room = buf_room(&s->bytes, content->fd_size);
        CHECK(room != NULL);
        err = spool_io_read_all(s->io, content->fd, room, content->fd_size, 0);
        if (err != 0) {
            return spool_fail(&s->base, err, "submit: read content: %s", strerror(-err));
        }
        buf_grew(&s->bytes, content->fd_size);
    }
    CHECK(!s->bytes.failed);
    *ret_all = buf_slice(&s->bytes);
    return 0;
}

static int insert_content(struct sqlite_spool *s, struct msg_id id, struct slice bytes)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_CONTENT_INSERT);

    sqlite_bind_int(st, 1, (int64_t)id.n);
    if (st != NULL) {
        CHECK(sqlite3_bind_blob64(st, 2, bytes.len == 0 ? "" : bytes.ptr, bytes.len,
                                  SQLITE_STATIC) == SQLITE_OK);
    }
    return run(s, st);
}

static void lower(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        text[i] = ascii_lower(text[i]);
    }
}

/* Returns the domain of an address in lower case, in the caller's `space`. */
static struct slice lower_domain(struct slice address, char space[ADDRESS_MAX])
{
    struct slice domain = spool_domain(address);

    CHECK(domain.len <= ADDRESS_MAX);
    if (domain.len > 0) {
        memcpy(space, domain.ptr, domain.len);
        lower(space, domain.len);
    }
    return slice_of(space, domain.len);
}

static void bind_parked(sqlite3_stmt *st, int at, struct slice key)
{
    if (key.len > 0) {
        sqlite_bind_slice(st, at, key);
    } else if (st != NULL) {
        CHECK(sqlite3_bind_null(st, at) == SQLITE_OK);
    }
}

static void bind_place(sqlite3_stmt *st, int at, struct segment_place place)
{
    if (place.segment > 0) {
        sqlite_bind_int(st, at, place.segment);
        sqlite_bind_int(st, at + 1, (int64_t)place.at);
    } else if (st != NULL) {
        CHECK(sqlite3_bind_null(st, at) == SQLITE_OK);
        CHECK(sqlite3_bind_null(st, at + 1) == SQLITE_OK);
    }
}

static int insert_message(struct sqlite_spool *s, struct msg_id id, const struct spool_new *n,
                          bool in_file, struct segment_place place, uint64_t content_sum)
{
    const struct spool_message *m = n->m;
    sqlite3_stmt *st = sqlite_ask(s, ST_MESSAGE_INSERT);
    char domain[ADDRESS_MAX];

    sqlite_bind_int(st, 1, (int64_t)id.n);
    sqlite_bind_int(st, 2, !n->claim);
    sqlite_bind_int(st, 3, m->state);
    sqlite_bind_int(st, 4, m->due.us);
    sqlite_bind_int(st, 5, m->arrived.us);
    sqlite_bind_int(st, 6, m->created.us);
    sqlite_bind_int(st, 7, (int64_t)n->size);
    sqlite_bind_int(st, 8, in_file);
    sqlite_bind_int(st, 9, m->flags);
    sqlite_bind_int(st, 10, n->rcpt_count);
    sqlite_bind_slice(st, 11, m->sender);
    sqlite_bind_slice(st, 12, lower_domain(m->sender, domain));
    sqlite_bind_slice(st, 13, m->envid);
    sqlite_bind_slice(st, 14, m->client);
    sqlite_bind_slice(st, 15, m->reason);
    bind_parked(st, 16, m->parked);
    sqlite_bind_slice(st, 17, m->class_name);
    sqlite_bind_int(st, 18, (int64_t)content_sum);
    sqlite_bind_int(st, 19, (int64_t)row_sum_message(m, content_sum));
    sqlite_bind_int(st, 20, m->class_source);
    bind_place(st, 21, place);
    return run(s, st);
}

static int insert_rcpt(struct sqlite_spool *s, struct msg_id id, uint32_t number,
                       const struct spool_rcpt *r, bool listed)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_RCPT_INSERT);
    char space[ADDRESS_MAX];
    struct slice domain = lower_domain(r->address, space);
    struct spool_rcpt numbered = *r;

    numbered.n = number;
    sqlite_bind_int(st, 1, (int64_t)id.n);
    sqlite_bind_int(st, 2, number);
    sqlite_bind_int(st, 3, listed);
    sqlite_bind_int(st, 4, r->notify);
    sqlite_bind_int(st, 5, (int64_t)r->route_generation);
    sqlite_bind_slice(st, 6, r->address);
    sqlite_bind_slice(st, 7, domain);
    sqlite_bind_slice(st, 8, r->transport);
    sqlite_bind_slice(st, 9, r->transport.len == 0 ? domain : r->nexthop);
    sqlite_bind_slice(st, 10, r->orcpt);
    sqlite_bind_int(st, 11, (int64_t)row_sum_rcpt(id, &numbered));
    return run(s, st);
}

int sqlite_insert(struct sqlite_spool *s, struct msg_id id, const struct spool_new *n,
                  const struct slice *inline_bytes, struct segment_place place,
                  uint64_t content_sum)
{
    int err = inline_bytes != NULL ? insert_content(s, id, *inline_bytes) : 0;

    if (err == 0) {
        err = insert_message(s, id, n, inline_bytes == NULL, place, content_sum);
    }
    for (uint32_t i = 0; err == 0 && i < n->rcpt_count; i++) {
        err = insert_rcpt(s, id, i + 1, &n->rcpts[i], !n->claim);
    }
    return err;
}

static struct msg_id next_id(struct spool *sp)
{
    struct sqlite_spool *s = sqlite_of(sp);

    CHECK(s->last_id < INT64_MAX - 1);
    return (struct msg_id){++s->last_id};
}

static int submit(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    struct sqlite_spool *s = sqlite_of(sp);
    const struct spool_message *m = n->m;
    bool in_file = n->size > s->inline_limit;
    struct segment_place place = {.segment = 0};
    struct slice bytes = SLICE("");
    uint64_t sum = 0;
    int err;

    if (sqlite_passage_takes(s, n)) {
        return sqlite_passage_submit(s, id, n);
    }
    if (in_file) {
        err = n->size <= segments_content_max(&s->segments)
                  ? segments_append(&s->segments, id, n->prefix, n->content, &place, &sum)
                  : content_files_write(&s->content, id, n->prefix, n->content, &sum);
        if (err != 0) {
            return spool_fail(sp, err, "submit: write content: %s.d: %s", s->path, strerror(-err));
        }
    } else {
        err = gather(s, n, &bytes);
        if (err == 0) {
            sum = checksum_of(bytes);
        }
    }
    if (err == 0) {
        err = sqlite_insert(s, id, n, in_file ? NULL : &bytes, place, sum);
    }
    if (err == -EBADMSG) {
        /* Rows of this id exist already, which only damage can cause; some rows are written. */
        err = spool_batch_failed(sp, -EIO);
    }
    if (err != 0) {
        return err;
    }
    total_add(s, m->state, 1);
    s->totals.bytes += n->size;
    if (n->claim) {
        claims_set(&s->claims, id.n,
                   (struct claim_facts){.due = m->due.us,
                                        .size = n->size,
                                        .in_file = in_file,
                                        .segment = place.segment,
                                        .claimed = true,
                                        .unlisted = true});
    } else if (claimable(m->state)) {
        claims_add_due(&s->claims, order_of(m->state), m->due.us, id.n);
    }
    return sqlite_tally_message(s, id, 1);
}

/* ---- recipients ----------------------------------------------------------------------------- */

static sqlite3_stmt *ask_rcpt(struct sqlite_spool *s, enum statement which, struct msg_id id,
                              uint32_t n)
{
    sqlite3_stmt *st = sqlite_ask(s, which);

    sqlite_bind_int(st, 1, (int64_t)id.n);
    sqlite_bind_int(st, 2, n);
    return st;
}

static int rcpt_state(struct sqlite_spool *s, struct msg_id id, uint32_t n, int *ret_state)
{
    sqlite3_stmt *st = ask_rcpt(s, ST_RCPT_STATE, id, n);
    int rc = sqlite_step(s, st), err;
    char text[SPOOL_ID_TEXT_MAX];

    if (rc == SQLITE_ROW) {
        *ret_state = sqlite3_column_int(st, 0);
    }
    err = sqlite_done(s, st, rc);
    if (err == 0 && rc == SQLITE_DONE) {
        spool_id_print(id, text);
        err = spool_fail(&s->base, -ENOENT, "%s: no recipient %u", text, (unsigned)n);
    }
    return err;
}

static void bind_verdict(sqlite3_stmt *st, const struct spool_verdict *v)
{
    sqlite_bind_int(st, 3, v->attempted);
    sqlite_bind_int(st, 4, v->when.us);
    sqlite_bind_slice(st, 5, v->status);
    sqlite_bind_slice(st, 6, v->diagnostic);
    sqlite_bind_slice(st, 7, v->remote);
    sqlite_bind_slice(st, 8, v->reply);
    sqlite_bind_slice(st, 9, v->tls);
}

/* Settles a pending recipient as done or deferred, the two frequent results, in one statement.
 * *ret_hit: was the recipient pending? */
static int settle_pending(struct sqlite_spool *s, struct msg_id id, uint32_t n,
                          const struct spool_verdict *v, bool *ret_hit)
{
    sqlite3_stmt *st = ask_rcpt(s, v->done ? ST_RCPT_DONE : ST_RCPT_DEFER, id, n);
    int err;

    if (!v->done) {
        bind_verdict(st, v);
    }
    err = run(s, st);
    if (err != 0) {
        return err;
    }
    *ret_hit = changed(s);
    return *ret_hit && v->done ? count_move(s, id, -1, 0) : 0;
}

static int settle(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    struct sqlite_spool *s = sqlite_of(sp);
    bool hit = false;
    sqlite3_stmt *st;
    int before = 0, err = 0;

    bool is_pending = !v->done && v->state == SPOOL_RCPT_PENDING;

    err = sqlite_need_rows(s, id);
    if (err == 0 && !is_pending) {
        err = sqlite_tally_rcpt(s, id, n, -1);
    }
    if (err == 0 && (v->done || is_pending)) {
        err = settle_pending(s, id, n, v, &hit);
    }
    if (err != 0 || hit) {
        return err;
    }
    err = rcpt_state(s, id, n, &before);
    if (err != 0) {
        return err;
    }
    bool was_pending = before == SPOOL_RCPT_PENDING;
    st = ask_rcpt(s, v->done ? ST_RCPT_DELETE : ST_RCPT_SETTLE, id, n);
    if (!v->done) {
        bind_verdict(st, v);
        sqlite_bind_int(st, 10, v->state);
    }
    err = run(s, st);
    if (err == 0 && is_pending) {
        err = sqlite_tally_rcpt(s, id, n, 1); /* it was not pending before */
    }
    return err != 0 ? err
                    : count_move(s, id, is_pending - was_pending,
                                 (!v->done && !is_pending) - !was_pending);
}

static int set_route(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                     struct slice nexthop, uint64_t route_generation)
{
    struct sqlite_spool *s = sqlite_of(sp);
    int err = sqlite_need_rows(s, id), state;
    sqlite3_stmt *st;

    if (err == 0) {
        err = sqlite_tally_rcpt(s, id, n, -1);
    }
    if (err != 0) {
        return err;
    }
    st = ask_rcpt(s, ST_RCPT_ROUTE, id, n);
    sqlite_bind_slice(st, 3, transport);
    sqlite_bind_slice(st, 4, nexthop);
    sqlite_bind_int(st, 5, (int64_t)route_generation);
    err = run(s, st);
    if (err == 0 && !changed(s)) {
        return rcpt_state(s, id, n, &state); /* sets -ENOENT and its text */
    }
    return err != 0 ? err : sqlite_tally_rcpt(s, id, n, 1);
}

static int reported(struct spool *sp, struct msg_id id)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct sqlite_brief brief;
    int err = sqlite_need_rows(s, id);

    if (err == 0) {
        err = sqlite_read_brief(s, id, &brief);
    }
    if (err == 0) {
        err = run_on(s, ST_RCPT_REPORTED, id);
    }
    return err != 0 ? err : count_move(s, id, 0, -(int64_t)sqlite3_changes(s->db));
}

/* ---- the end of a message ------------------------------------------------------------------- */

static int delete_message(struct sqlite_spool *s, struct msg_id id, const struct sqlite_brief *b)
{
    int err = b->has_rcpts ? sqlite_tally_message(s, id, -1) : 0;

    if (err == 0) {
        err = run_on(s, ST_RCPT_DELETE_ALL, id);
    }
    if (s->counts.id == id.n) {
        s->counts.id = 0;
        s->counts.pending = s->counts.to_report = 0;
    }
    if (err == 0 && !b->in_file) {
        err = run_on(s, ST_CONTENT_DELETE, id);
    }
    if (err == 0) {
        err = run_on(s, ST_MESSAGE_DELETE, id);
    }
    if (err != 0) {
        return err;
    }
    if (b->in_file && b->segment > 0) {
        segments_release(&s->segments, b->segment, b->size);
    } else if (b->in_file) {
        /* A crash before the file is removed leaves content that no message names. This row proves
         * that the content is not needed; otherwise the content could be that of a lost row. */
        err = run_on(s, ST_REMOVED_ADD, id);
        if (err != 0) {
            return err;
        }
        s->removed++;
        content_files_doom(&s->content, id);
    }
    total_add(s, b->state, -1);
    bytes_take(s, b->size);
    claims_set(&s->claims, id.n, (struct claim_facts){.claimed = false});
    return 0;
}

/* Ends a claim; the message is due again at `due`. */
static int defer(struct sqlite_spool *s, struct msg_id id, const struct sqlite_brief *b,
                 struct wall due)
{
    struct claim_facts facts = claims_get(&s->claims, id.n);
    sqlite3_stmt *st =
        sqlite_ask(s, b->state == SPOOL_DEFERRED ? ST_MESSAGE_SET_DUE : ST_MESSAGE_DEFER);
    int err;

    sqlite_bind_int(st, 1, (int64_t)id.n);
    sqlite_bind_int(st, 2, due.us);
    err = run(s, st);
    if (err == 0 && facts.unlisted) {
        err = list_message(s, id);
    }
    if (err != 0) {
        return err;
    }
    total_add(s, b->state, -1);
    total_add(s, SPOOL_DEFERRED, 1);
    claims_set(&s->claims, id.n, (struct claim_facts){.claimed = false});
    claims_add_due(&s->claims, CLAIM_DEFERRED, due.us, id.n);
    return 0;
}

static int finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct sqlite_brief brief;
    int err = sqlite_need_rows(s, id);
    bool gone;

    if (err == 0) {
        err = sqlite_read_brief(s, id, &brief);
    }
    if (err != 0) {
        return err;
    }
    if (brief.has_rcpts != brief.counts_rcpts && brief.state != SPOOL_CORRUPT) {
        return sqlite_damaged(s, id,
                              brief.has_rcpts ? "it has recipients that it does not count"
                                              : "recipients that it counts are missing");
    }
    gone = !brief.has_rcpts && brief.state != SPOOL_CORRUPT;
    if (gone) {
        err = delete_message(s, id, &brief);
    } else if (claims_get(&s->claims, id.n).claimed) {
        err = defer(s, id, &brief, due);
    }
    if (err == 0) {
        *ret_gone = gone;
    }
    return err;
}

static int finish_all_done(struct spool *sp, struct msg_id id)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct claim_facts facts = claims_get(&s->claims, id.n);
    struct sqlite_brief brief = {.state = SPOOL_INCOMING,
                                 .size = facts.size,
                                 .in_file = facts.in_file,
                                 .segment = facts.segment};
    int err;

    if (sqlite_is_passing(s, id)) {
        return sqlite_passage_done(s, id);
    }
    if (!facts.unlisted) {
        err = sqlite_read_brief(s, id, &brief);
        if (err == 0 && brief.state == SPOOL_CORRUPT) {
            err = spool_fail(sp, -EINVAL, "a message that was quarantined is not deleted");
        }
        if (err != 0) {
            return err;
        }
    }
    return delete_message(s, id, &brief);
}

static int remove_message(struct spool *sp, struct msg_id id)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct sqlite_brief brief;
    int err;

    if (sqlite_is_passing(s, id)) {
        return sqlite_passage_done(s, id);
    }
    err = sqlite_read_brief(s, id, &brief);
    return err != 0 ? err : delete_message(s, id, &brief);
}

/* ---- changes of a message's own fields ------------------------------------------------------ */

/* Resets the attempts and routes of the pending recipients. */
static int forget_tries(struct sqlite_spool *s, struct msg_id id)
{
    int err = sqlite_tally_message(s, id, -1);

    if (err == 0) {
        err = run_on(s, ST_RCPT_FORGET_TRIES, id);
    }
    return err != 0 ? err : sqlite_tally_message(s, id, 1);
}

static int change(struct spool *sp, const struct spool_change *c)
{
    struct sqlite_spool *s = sqlite_of(sp);
    const struct spool_message *from = c->from, *to = c->to;
    struct msg_id id = from->id;
    struct claim_facts facts;
    bool moves = from->state != to->state || from->due.us != to->due.us ||
                 from->created.us != to->created.us || c->end_claim;
    sqlite3_stmt *st;
    int err = from->state == SPOOL_CORRUPT && to->state != SPOOL_CORRUPT ? sqlite_accept(s, id)
                                                                         : sqlite_need_rows(s, id);

    if (err != 0) {
        return err;
    }
    facts = claims_get(&s->claims, id.n);
    if (moves) {
        st = sqlite_ask(s, ST_MESSAGE_CHANGE);
        sqlite_bind_int(st, 2, to->state);
        sqlite_bind_int(st, 3, to->due.us);
        sqlite_bind_int(st, 4, to->created.us);
        sqlite_bind_int(st, 5, to->warnings > 0);
        sqlite_bind_int(st, 6, to->force_expire);
        sqlite_bind_slice(st, 7, to->reason);
        bind_parked(st, 8, to->parked);
    } else { /* does not touch the indexes */
        st = sqlite_ask(s, ST_MESSAGE_SET_FLAGS);
        sqlite_bind_int(st, 2, to->warnings > 0);
        sqlite_bind_int(st, 3, to->force_expire);
    }
    sqlite_bind_int(st, 1, (int64_t)id.n);
    err = run(s, st);
    if (err == 0 && c->forget_tries) {
        err = forget_tries(s, id);
        err = err == -EBADMSG ? 0 : err; /* a read of malformed rows returns the fault */
    }
    if (err == 0 && moves && facts.unlisted) {
        err = list_message(s, id);
    }
    if (err != 0) {
        return err;
    }
    total_add(s, from->state, -1);
    total_add(s, to->state, 1);
    if (c->end_claim) {
        facts.claimed = facts.unlisted = false;
        claims_set(&s->claims, id.n, facts);
    }
    if (moves && claimable(to->state) && !claims_get(&s->claims, id.n).claimed) {
        claims_add_due(&s->claims, order_of(to->state), to->due.us, id.n);
    }
    return 0;
}

static int quarantine(struct spool *sp, struct msg_id id, struct slice reason)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct sqlite_brief brief;
    bool was_unlisted;
    sqlite3_stmt *st;
    int err = sqlite_need_rows(s, id);

    if (err == 0) {
        err = sqlite_read_brief(s, id, &brief);
    }
    if (err == 0) {
        err = sqlite_flush_counts(s);
    }
    if (err != 0) {
        return err;
    }
    st = sqlite_ask(s, ST_MESSAGE_QUARANTINE);
    sqlite_bind_int(st, 1, (int64_t)id.n);
    sqlite_bind_slice(st, 2, reason);
    err = run(s, st);
    if (err == 0) {
        err = run_on(s, ST_RCPT_LIST, id);
        err = err == -EBADMSG ? 0 : err; /* malformed rows stay out of the indexes */
    }
    if (err != 0) {
        return err;
    }
    total_add(s, brief.state, -1);
    total_add(s, SPOOL_CORRUPT, 1);
    was_unlisted = claims_get(&s->claims, id.n).unlisted;
    claims_set(&s->claims, id.n, (struct claim_facts){.claimed = false});
    return was_unlisted ? sqlite_tally_message(s, id, 1) : 0;
}

/* ---- claims --------------------------------------------------------------------------------- */

/* A walk along the index of due times, from the cursor on. */
struct walk {
    struct sqlite_spool *s;
    unsigned order;
    enum statement part; /* ST_WALK_SAME_DUE, then ST_WALK_LATER */
    sqlite3_stmt *st;    /* NULL when the walk has ended */
};

static enum spool_state state_of(unsigned order)
{
    return order == CLAIM_INCOMING ? SPOOL_INCOMING : SPOOL_DEFERRED;
}

static void walk_start(struct walk *w, struct sqlite_spool *s, unsigned order, enum statement part)
{
    struct claim_place cursor = s->claims.orders[order].cursor;

    *w = (struct walk){.s = s, .order = order, .part = part, .st = sqlite_ask(s, part)};
    sqlite_bind_int(w->st, 1, state_of(order));
    sqlite_bind_int(w->st, 2, cursor.due);
    if (part == ST_WALK_SAME_DUE) {
        sqlite_bind_int(w->st, 3, (int64_t)cursor.id);
    }
}

/* Finds the next row that is not claimed; the cursor advances over claimed ones. At the end
 * *ret_found is false. At the end and after an error the statement is reset. */
static int walk_next(struct walk *w, struct claim_place *ret_place, bool *ret_found)
{
    struct claims *claims = &w->s->claims;
    int rc, err;

    for (;;) {
        rc = sqlite_step(w->s, w->st);
        if (rc == SQLITE_ROW) {
            struct claim_place place = {sqlite3_column_int64(w->st, 0),
                                        (uint64_t)sqlite3_column_int64(w->st, 1)};

            /* Skip entries of a damaged index: out of order, or with an invalid time. The walk over
             * all rows by id finds their messages. */
            if (sqlite3_column_type(w->st, 0) != SQLITE_INTEGER || place.id > INT64_MAX ||
                !claim_place_before(claims->orders[w->order].cursor, place)) {
                continue;
            }
            if (!claims_get(claims, place.id).claimed) {
                *ret_place = place;
                *ret_found = true;
                return 0;
            }
            claims_advance(claims, w->order, place);
            continue;
        }
        err = sqlite_done(w->s, w->st, rc);
        if (err == -EUCLEAN) {
            /* Continue with other mail: the messages in memory, and those found by id. */
            if (!w->s->due_is_broken) {
                w->s->due_is_broken = true;
                warn(w->s,
                     "spool %s: the index of due times is damaged: mail after the damage is found "
                     "slowly, by its ids. With the daemon stopped, `sluice spool repair' makes a "
                     "new database",
                     w->s->path);
            }
            err = 0;
            w->part = ST_WALK_LATER;
        }
        if (err != 0 || w->part == ST_WALK_LATER) {
            w->st = NULL;
            *ret_found = false;
            return err;
        }
        walk_start(w, w->s, w->order, ST_WALK_LATER);
    }
}

static void walk_end(struct walk *w)
{
    if (w->st != NULL) {
        (void)sqlite3_reset(w->st); /* an unfinished walk has no error */
    }
}

/* Returns the first entry of the early heap that is still valid; drops invalid ones. */
static int early_next(struct sqlite_spool *s, unsigned order, struct claim_place *ret_place,
                      bool *ret_found)
{
    struct claim_place place;
    struct sqlite_brief brief;
    int err;

    while (claims_early(&s->claims, order, &place)) {
        if (!claims_get(&s->claims, place.id).claimed) {
            err = sqlite_read_brief(s, (struct msg_id){place.id}, &brief);
            if (err != 0 && err != -ENOENT) {
                return err;
            }
            if (err == 0 && brief.state == state_of(order) && brief.due == place.due) {
                *ret_place = place;
                *ret_found = true;
                return 0;
            }
        }
        claims_drop_early(&s->claims, order);
    }
    *ret_found = false;
    return 0;
}

static void unclaim(struct spool *sp, struct msg_id id)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct claim_facts facts = claims_get(&s->claims, id.n);
    struct sqlite_brief brief;

    if (!facts.claimed) {
        return;
    }
    facts.claimed = false;
    claims_set(&s->claims, id.n, facts);
    if (facts.unlisted) {
        claims_add_due(&s->claims, CLAIM_INCOMING, facts.due, id.n);
    } else if (sqlite_read_brief(s, id, &brief) != 0) {
        claims_restart(&s->claims); /* its place is unknown, so restart the walks */
    } else if (claimable(brief.state)) {
        claims_add_due(&s->claims, order_of(brief.state), brief.due, id.n);
    }
}

static int claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count)
{
    struct sqlite_spool *s = sqlite_of(sp);
    unsigned order = order_of(from);
    struct claim_place row, early;
    bool have_row, have_early;
    size_t count = 0;
    struct walk w;
    int err;

    sqlite_mend_indexes(s);
    walk_start(&w, s, order, ST_WALK_SAME_DUE);
    err = walk_next(&w, &row, &have_row);
    while (err == 0 && count < max) {
        struct claim_place place;

        err = early_next(s, order, &early, &have_early);
        if (err != 0) {
            break;
        }
        bool take_early = have_early && (!have_row || claim_place_before(early, row));
        if (!take_early && !have_row) {
            break;
        }
        place = take_early ? early : row;
        if (place.due > now.us) {
            break;
        }
        struct claim_facts facts = claims_get(&s->claims, place.id);
        facts.claimed = true;
        claims_set(&s->claims, place.id, facts);
        ret_ids[count++] = (struct msg_id){place.id};
        if (take_early) {
            claims_drop_early(&s->claims, order);
        }
        /* Pass the row, too, if the early entry was for it. */
        if (have_row && row.id == place.id) {
            claims_advance(&s->claims, order, row);
            err = walk_next(&w, &row, &have_row);
        }
    }
    walk_end(&w);
    if (err == 0) {
        *ret_count = count;
        return 0;
    }
    while (count > 0) {
        unclaim(sp, ret_ids[--count]);
    }
    return err;
}

/* Finds the first unclaimed messages of a key, and whether there are more. Claimed ones are only
 * met if they fell due before their key was requested, so they are few. */
static int find_parked(struct sqlite_spool *s, struct slice key, size_t max, struct msg_id *ret_ids,
                       size_t *ret_count, bool *ret_more)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_WALK_PARKED);
    size_t count = 0;
    bool more = false;
    int rc, err;

    sqlite_bind_slice(st, 1, key);
    while (!more && (rc = sqlite_step(s, st)) == SQLITE_ROW) {
        uint64_t id = (uint64_t)sqlite3_column_int64(st, 0);

        if (claims_get(&s->claims, id).claimed) {
            continue;
        }
        more = count == max;
        if (!more) {
            ret_ids[count++] = (struct msg_id){id};
        }
    }
    err = sqlite_done(s, st, more ? SQLITE_ROW : rc);
    if (err == 0) {
        *ret_count = count;
        *ret_more = more;
    }
    return err;
}

static int claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    struct sqlite_spool *s = sqlite_of(sp);
    size_t count;
    bool more;
    int err = find_parked(s, key, max, ret_ids, &count, &more);

    for (size_t i = 0; err == 0 && i < count; i++) {
        sqlite3_stmt *st = sqlite_ask(s, ST_MESSAGE_SET_DUE);

        sqlite_bind_int(st, 1, (int64_t)ret_ids[i].n);
        sqlite_bind_int(st, 2, now.us);
        err = run(s, st);
        claims_set(&s->claims, ret_ids[i].n, (struct claim_facts){.claimed = true});
    }
    if (err == 0) {
        *ret_count = count;
        *ret_more = more;
    }
    return err;
}

static int next_due(struct spool *sp, struct wall *ret_due)
{
    struct sqlite_spool *s = sqlite_of(sp);
    struct wall due = WALL_NEVER;
    struct claim_place place;
    bool found;
    int err = 0;

    for (unsigned order = 0; err == 0 && order < CLAIM_ORDERS; order++) {
        struct walk w;

        walk_start(&w, s, order, ST_WALK_SAME_DUE);
        err = walk_next(&w, &place, &found);
        walk_end(&w);
        if (err == 0 && found && place.due < due.us) {
            due.us = place.due;
        }
        if (err == 0) {
            err = early_next(s, order, &place, &found);
        }
        if (err == 0 && found && place.due < due.us) {
            due.us = place.due;
        }
    }
    if (err == 0) {
        *ret_due = due;
    }
    return err;
}

static bool is_claimed(const struct spool *sp, struct msg_id id)
{
    return claims_get(&((const struct sqlite_spool *)sp)->claims, id.n).claimed;
}

static size_t claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    return claims_walk(&((const struct sqlite_spool *)sp)->claims, cursor, max, ret_ids);
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* Returns the size of the pages of deleted mail, which the database file keeps for new mail. */
static uint64_t unused_bytes(struct sqlite_spool *s)
{
    sqlite3_stmt *st = NULL;
    uint64_t pages = 0;

    if (sqlite3_prepare_v2(s->db, "PRAGMA freelist_count", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        pages = (uint64_t)sqlite3_column_int64(st, 0);
    }
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
    return pages * PAGE_SIZE;
}

/* Returns the space for new mail. While the reserve's file is missing, twice its size must stay
 * unused. */
static int free_bytes(struct spool *sp, uint64_t *ret_bytes)
{
    struct sqlite_spool *s = sqlite_of(sp);
    uint64_t bytes = 0;
    int err = disk_free(s, &bytes);

    if (err != 0) {
        return spool_fail(sp, err, "free space: %s: %s", s->path, strerror(-err));
    }
    bytes += unused_bytes(s) + segments_spare_bytes(&s->segments);
    if (s->lock_fd >= 0 && !s->reserve.held) {
        bytes = bytes > 2 * RESERVE_BYTES ? bytes - 2 * RESERVE_BYTES : 0;
    }
    *ret_bytes = bytes;
    return 0;
}

static bool next_event(struct spool *sp, struct spool_event *ret_event)
{
    struct sqlite_spool *s = sqlite_of(sp);

    if (s->warnings_told == s->warning_count) {
        return false;
    }
    *ret_event = (struct spool_event){.type = SPOOL_EVENT_WARNING,
                                      .text = slice_string(s->warnings[s->warnings_told++])};
    return true;
}

static void close_spool(struct spool *sp)
{
    struct sqlite_spool *s = sqlite_of(sp);

    sqlite_passage_finish(s);
    for (size_t i = 0; i < ST_COUNT; i++) {
        (void)sqlite3_finalize(s->statements[i]); /* returns the error of the last step again */
    }
    /* Closing moves the log into the database; if that fails, the next start does it. */
    CHECK(sqlite3_close(s->db) == SQLITE_OK);
    if (s->lock_fd >= 0) {
        (void)s->io->close(s->lock_fd); /* a failed write would not matter */
    }
    reserve_fini(&s->reserve);
    content_files_fini(&s->content);
    segments_fini(&s->segments);
    passage_fini(&s->passage);
    sqlite_keys_fini(s);
    claims_fini(&s->claims);
    tally_clear(&s->tally);
    text_pool_fini(&s->pool);
    buf_fini(&s->bytes);
    buf_fini(&s->envelope);
    mem_free(s->path);
    mem_free(s->log_path);
    mem_free(s);
}

static const struct spool_search_part search = {
    .scan = sqlite_scan,
    .count = sqlite_count,
    .destinations = sqlite_destinations,
    .destinations_from = sqlite_destinations_from,
    .walk = sqlite_walk,
};

static const struct spool_engine sqlite_engine = {
    .close = close_spool,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .tidy = tidy,
    .next_id = next_id,
    .submit = submit,
    .settle = settle,
    .set_route = set_route,
    .reported = reported,
    .finish = finish,
    .finish_all_done = finish_all_done,
    .change = change,
    .remove = remove_message,
    .quarantine = quarantine,
    .unclaim = unclaim,
    .claim = claim,
    .claim_parked = claim_parked,
    .parked_keys = sqlite_parked_keys,
    .next_due = next_due,
    .is_claimed = is_claimed,
    .claimed = claimed,
    .read = sqlite_read,
    .read_rcpts = sqlite_read_rcpts,
    .read_content = sqlite_read_content,
    .totals = sqlite_totals,
    .free_bytes = free_bytes,
    .next_event = next_event,
    .search = &search,
    .keys = &sqlite_keys,
    .notes = &sqlite_notes,
    .events = &sqlite_events,
};

static char *path_with(const char *path, const char *suffix)
{
    size_t size = strlen(path) + strlen(suffix) + 1;
    char *joined = mem_new(size);

    snprintf(joined, size, "%s%s", path, suffix);
    return joined;
}

/* Reads the lock file: returns the process that has the spool open, only for the message, as it may
 * be out of date; and sets the number of commits. */
static long lock_holder(struct sqlite_spool *s, int fd)
{
    char text[LOCK_TEXT_MAX];
    unsigned long long pid, commits;
    ssize_t n = s->io->pread(fd, text, sizeof text, 0);
    struct slice rest = slice_of(text, n > 0 ? (size_t)n : 0), first = slice_cut(&rest, '\n');

    if (slice_number(slice_trim(slice_cut(&rest, '\n')), INT64_MAX, &commits)) {
        s->commits_told = commits;
    }
    return slice_number(slice_trim(first), 0x7fffffff, &pid) ? (long)pid : 0;
}

/* Locks the spool for writing until the lock file is closed. */
static int take_lock(struct sqlite_spool *s)
{
    char *path = path_with(s->path, ".lock");
    int fd = s->io->open(path, O_RDWR | O_CREAT, 0600), err = 0;

    if (fd < 0) {
        err = spool_fail(&s->base, fd, "open %s: %s", path, strerror(-fd));
        goto out;
    }
    s->lock_fd = fd;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        err = errno == EWOULDBLOCK
                  ? spool_fail(&s->base, -EBUSY, "spool %s: held by process %ld", s->path,
                               lock_holder(s, fd))
                  : spool_fail(&s->base, -errno, "lock %s: %s", path, strerror(errno));
        goto out;
    }
    (void)lock_holder(s, fd); /* for the number of commits */
out:
    mem_free(path);
    return err;
}

static bool has_size(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && st.st_size > 0;
}

/* Refuses to create a database where parts of a spool exist: content, a log, or an unfinished
 * repair. A new database would make them lost. */
static int refuse_to_start_over(struct sqlite_spool *s)
{
    char *repaired = path_with(s->path, ".repaired");
    const char *what = has_size(s->log_path) ? "its log"
                       : has_size(repaired)  ? "an unfinished repair"
                       : content_files_are_there(&s->content) || segments_are_there(&s->segments) ||
                               passage_is_there(&s->passage)
                           ? "contents of its mail"
                           : NULL;

    mem_free(repaired);
    return what == NULL
               ? 0
               : spool_fail(&s->base, -EUCLEAN,
                            "spool %s: the database is missing or empty, but there is %s: put the "
                            "database back, or let `sluice spool repair' make one of what is left",
                            s->path, what);
}

/* Creates the database's file, readable by its owner alone: SQLite would apply the umask. Makes the
 * name durable. */
static int make_file(struct sqlite_spool *s)
{
    int fd, err = has_size(s->path) ? 0 : refuse_to_start_over(s);
    char *copy;

    if (err != 0) {
        return err;
    }
    fd = s->io->open(s->path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd == -EEXIST) {
        return 0;
    }
    if (fd < 0) {
        return spool_fail(&s->base, fd, "create %s: %s", s->path, strerror(-fd));
    }
    (void)s->io->close(fd); /* nothing was written */
    copy = mem_string(s->path);
    fd = s->io->open(dirname(copy), O_RDONLY | O_DIRECTORY, 0);
    err = fd < 0 ? fd : s->io->fsync(fd);
    if (fd >= 0) {
        (void)s->io->close(fd); /* opened for reading */
    }
    mem_free(copy);
    return err == 0
               ? 0
               : spool_fail(&s->base, err, "sync directory of %s: %s", s->path, strerror(-err));
}

static int exec(struct sqlite_spool *s, const char *sql)
{
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : sqlite_fail(s, rc, "open");
}

static int schema_result(struct sqlite_spool *s, int rc, const char *why)
{
    if (rc == SQLITE_OK) {
        return 0;
    }
    return rc == SQLITE_MISMATCH ? spool_fail(&s->base, -EPROTO, "spool %s: %s", s->path, why)
                                 : sqlite_fail(s, rc, why);
}

/* Loads the unlisted messages that were in memory when the last process ended. They are due now. */
static int load_unlisted(struct sqlite_spool *s, uint64_t from)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_UNLISTED);
    int rc;

    sqlite_bind_int(st, 1, (int64_t)from);
    while ((rc = sqlite_step(s, st)) == SQLITE_ROW) {
        int64_t size = sqlite3_column_int64(st, 2);
        struct claim_facts facts = {.due = sqlite3_column_int64(st, 1),
                                    .size = size < 0 ? 0 : (uint64_t)size,
                                    .in_file = sqlite3_column_int(st, 3) != 0,
                                    .segment = sqlite_segment_number(sqlite3_column_int64(st, 4)),
                                    .unlisted = true};
        uint64_t id = (uint64_t)sqlite3_column_int64(st, 0);

        sqlite_segments_name(s, facts.segment, sqlite3_column_int64(st, 5), size);

        claims_set(&s->claims, id, facts);
        claims_add_due(&s->claims, CLAIM_INCOMING, facts.due, id);
    }
    return sqlite_done(s, st, rc);
}

/* Raises last_id to the highest id in use, whatever the row `spool` has, so that no id is assigned
 * twice. */
static int pass_rows(struct sqlite_spool *s)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_HIGHEST_ID);
    int rc = sqlite_step(s, st);

    if (rc == SQLITE_ROW) {
        uint64_t highest = (uint64_t)sqlite3_column_int64(st, 0);

        s->last_id = s->last_id > highest ? s->last_id : highest;
    }
    return sqlite_done(s, st, rc);
}

/* State of the sweep over content files at the start. */
struct sweep {
    struct sqlite_spool *s;
    uint64_t last_id; /* last id known to the database */
    bool went_back;   /* the database is older than its last commit */
    uint64_t unknown, highest_unknown;
};

static bool was_removed(struct sqlite_spool *s, struct msg_id id)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_REMOVED_HAS);
    int rc;

    sqlite_bind_int(st, 1, (int64_t)id.n);
    rc = sqlite_step(s, st);
    return sqlite_done(s, st, rc) == 0 && rc == SQLITE_ROW;
}

/* Decides whether content that no message names is kept. It is removed if it is certainly not
 * needed: its message was finished, or never committed. Other content is kept and reported. */
static int content_wanted(void *context, struct msg_id id)
{
    struct sweep *sweep = context;
    struct sqlite_brief brief;
    int err = id.n <= INT64_MAX ? sqlite_read_brief(sweep->s, id, &brief) : 0;

    if (err == 0) {
        return 1;
    }
    if (err == -ENOENT && ((id.n > sweep->last_id && !sweep->went_back) ||
                           (id.n <= sweep->last_id && was_removed(sweep->s, id)))) {
        return 0;
    }
    sweep->unknown++;
    sweep->highest_unknown = id.n > sweep->highest_unknown ? id.n : sweep->highest_unknown;
    return 1;
}

static int sweep_content(struct sqlite_spool *s, uint64_t last_id)
{
    struct sweep sweep = {.s = s, .last_id = last_id, .went_back = s->commits_told > s->commits};
    int err;

    if (sweep.went_back) {
        warn(
            s,
            "spool %s went back: %llu commits are missing, so mail may be lost or be sent again. "
            "Its log was cut or removed, or an older copy was put in its place. No segment in %s.d "
            "is written again while there is the file `keep'",
            s->path, (unsigned long long)(s->commits_told - s->commits), s->path);
    }
    err = content_files_sweep(&s->content, content_wanted, &sweep);
    /* Assign no id of existing content again; after the next commit such an id counts as an old
     * one. */
    s->last_id =
        sweep.highest_unknown > s->last_id && sweep.highest_unknown < (uint64_t)SQLITE_LAST_ID_MAX
            ? sweep.highest_unknown
            : s->last_id;
    if (sweep.went_back) {
        s->commits = s->commits_told;
    }
    if (sweep.unknown > 0) {
        warn(s,
             "spool %s: %llu contents in %s.d are of no message that is known; they are kept: "
             "`sluice spool check' names them, `sluice spool repair' makes messages of them",
             s->path, (unsigned long long)sweep.unknown, s->path);
    }
    return err == 0
               ? 0
               : spool_fail(&s->base, err, "remove orphans: %s.d: %s", s->path, strerror(-err));
}

/* Is the disk too full for a start? Opening needs space for the log and its index. */
static bool is_short_of_space(const struct sqlite_spool *s)
{
    uint64_t free_now = 0;

    return disk_free(s, &free_now) == 0 && free_now < OPENING_BYTES;
}

static int take_in_passage(struct sqlite_spool *s)
{
    uint64_t damaged = 0;
    int err = sqlite_passage_begin(s, &damaged);

    if (damaged > 0) {
        warn(s,
             "spool %s: %llu records of mail in passage are damaged: some of it may be lost, or be "
             "sent again",
             s->path, (unsigned long long)damaged);
    }
    return err;
}

static int open_for_writing(struct sqlite_spool *s, uint64_t id_floor)
{
    const char *why;
    uint64_t unlisted_from, known_id = 0;
    bool is_short = false;
    int err = take_lock(s), rc;

    if (err == 0) {
        err = make_file(s);
    }
    if (err != 0) {
        return err;
    }
    if (is_short_of_space(s)) {
        is_short = true;
        reserve_release(&s->reserve);
    }
    rc = sqlite3_open_v2(s->path, &s->db,
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                             SQLITE_OPEN_EXRESCODE,
                         log_vfs());
    if (rc != SQLITE_OK) {
        return sqlite_fail(s, rc, "open");
    }
    (void)sqlite3_busy_timeout(s->db, BUSY_MS); /* always SQLITE_OK */
    err = exec(s, settings);
    if (err != 0) {
        return err;
    }
    sqlite3_wal_hook(s->db, on_log_grown, s); /* replaces automatic checkpoints */
    rc = schema_upgrade(s->db, schema_steps, schema_version, &why);
    err = schema_result(s, rc, why);
    if (err == 0) {
        err = sqlite_read_spool(s, &s->totals, &s->last_id, &unlisted_from);
    }
    if (err == 0) {
        err = take_in_passage(s);
    }
    if (err == 0) {
        err = sqlite_read_spool(s, &s->totals, &s->last_id, &unlisted_from);
    }
    if (err == 0) {
        err = load_unlisted(s, unlisted_from);
    }
    if (err == 0) {
        known_id = s->last_id;
        s->last_id = s->last_id > id_floor ? s->last_id : id_floor;
        err = pass_rows(s);
    }
    if (err == 0) {
        err = sqlite_segments_begin(s);
    }
    if (err == 0) {
        err = sweep_content(s, known_id);
    }
    if (err == 0) {
        s->holds = true;
        write_lock(s);
        (void)find_place(s->path, &s->database); /* on failure the file is not checked */
        (void)find_place(s->log_path, &s->log);  /* on failure the file is not checked until there
                                                  * is one */
    }
    if (err == 0 && !is_short) {
        reserve_fill(&s->reserve); /* if skipped, tidy does it when there is space again */
    }
    return err;
}

static int open_read_only(struct sqlite_spool *s, const char *uri, const char **ret_why)
{
    int rc = sqlite3_open_v2(uri, &s->db,
                             SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX |
                                 SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE,
                             NULL);

    if (rc == SQLITE_OK) {
        (void)sqlite3_busy_timeout(s->db, BUSY_MS); /* always SQLITE_OK */
        rc = schema_check(s->db, schema_version, ret_why);
    }
    return rc;
}

/* Builds a URI: "file:", the path with special characters escaped, and the query. */
static char *path_uri(const char *path, const char *query)
{
    size_t size = 5 + 3 * strlen(path) + strlen(query) + 1, at = 5;
    char *uri = mem_new(size);

    memcpy(uri, "file:", 5);
    for (; *path != '\0'; path++) {
        at += (size_t)snprintf(uri + at, size - at, strchr("%?#", *path) ? "%%%02X" : "%c",
                               (unsigned char)*path);
    }
    snprintf(uri + at, size - at, "%s", query);
    return uri;
}

/* Opens the spool for reading. Readers share the log's index with the writing process through a
 * file, and need permission to create it. A user without that permission can still read the
 * database while no process writes to it and its log is empty. */
static int open_for_reading(struct sqlite_spool *s)
{
    char *uri = path_uri(s->path, ""), *still = path_uri(s->path, "?immutable=1");
    char *log = path_with(s->path, "-wal");
    const char *why = "open";
    uint64_t log_bytes = 0;
    int rc = open_read_only(s, uri, &why), fd;

    if ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY) {
        fd = s->io->open(log, O_RDONLY, 0);
        if (fd >= 0) {
            if (s->io->fstat_size(fd, &log_bytes) != 0) {
                log_bytes = 1; /* not known to be empty */
            }
            (void)s->io->close(fd); /* opened for reading */
        }
        if (fd == -ENOENT || (fd >= 0 && log_bytes == 0)) {
            (void)sqlite3_close(s->db); /* no statement is open */
            s->db = NULL;
            rc = open_read_only(s, still, &why);
        }
    }
    mem_free(uri);
    mem_free(still);
    mem_free(log);
    return schema_result(s, rc, why);
}

/* Warns that a reader sees rows only, not mail in passage. */
static void tell_of_passage(struct sqlite_spool *s)
{
    struct sqlite_passing passing;

    if (sqlite_passage_look(s, &passing) == 0 && passing.found.messages > 0) {
        warn(s,
             "spool %s: %llu messages in passage are not shown: the daemon takes them in when it "
             "starts",
             s->path, (unsigned long long)passing.found.messages);
    }
}

/* Warns of damage that prevents a start. A reader can read much of a damaged spool, but a process
 * that writes must find all unlisted rows, and the highest id. */
static void tell_of_damage(struct sqlite_spool *s)
{
    struct spool_totals totals;
    uint64_t last_id, unlisted_from = 0;
    int err = sqlite_read_spool(s, &totals, &last_id, &unlisted_from), rc;
    sqlite3_stmt *st;

    if (err == 0) {
        st = sqlite_ask(s, ST_UNLISTED);
        sqlite_bind_int(st, 1, (int64_t)unlisted_from);
        while ((rc = sqlite_step(s, st)) == SQLITE_ROW) {
            /* the row can be read */
        }
        err = sqlite_done(s, st, rc);
    }
    if (err == 0) {
        st = sqlite_ask(s, ST_HIGHEST_ID);
        err = sqlite_done(s, st, sqlite_step(s, st));
    }
    if (err == -EUCLEAN) {
        warn(s, "the daemon can't start with this spool: %s", s->base.error);
    }
}

int sqlite_spool_open(const char *where, enum spool_open_mode mode,
                      const struct spool_options *options, struct buf *ret_error,
                      struct spool **ret_spool)
{
    struct sqlite_spool *s = mem_new(sizeof *s);
    const struct spool_io *io = options->io == NULL ? &spool_io_real : options->io;
    char *dir = path_with(where, ".d");
    int err;

    /* Stop SQLite from counting its memory, with a lock at each malloc and free, for functions that
     * are not used here. From the second call on SQLite refuses, as it is in use then. */
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    s->base.engine = &sqlite_engine;
    s->base.mode = mode;
    s->path = mem_string(where);
    s->log_path = path_with(where, "-wal");
    s->io = io;
    s->lock_fd = -1;
    s->inline_limit = options->inline_limit;
    content_files_init(&s->content, io, dir);
    segments_init(&s->segments, io, dir, 0, options->segment_bytes);
    passage_init(&s->passage, io, dir,
                 options->segment_bytes < PASSAGE_FILE_BYTES ? (uint32_t)options->segment_bytes
                                                             : 0);
    buf_init(&s->envelope, PASSAGE_ENVELOPE_MAX);
    mem_free(dir);
    dir = path_with(where, ".reserve");
    reserve_init(&s->reserve, io, dir);
    mem_free(dir);
    buf_init(&s->bytes, SPOOL_INLINE_MAX + PREFIX_ROOM);
    claims_init(&s->claims);
    err = mode == SPOOL_OPEN_WRITE ? open_for_writing(s, options->id_floor) : open_for_reading(s);
    if (err == 0 && mode == SPOOL_OPEN_READ) {
        err = sqlite_segments_begin(s);
    }
    if (err == 0 && mode == SPOOL_OPEN_READ) {
        tell_of_passage(s);
        tell_of_damage(s);
    }
    if (err != 0) {
        buf_add_string(ret_error, s->base.error);
        close_spool(&s->base);
        return err;
    }
    *ret_spool = &s->base;
    return 0;
}
