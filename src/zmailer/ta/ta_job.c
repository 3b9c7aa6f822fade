#include "ta_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "envelope.h"
#include "mem.h"
#include "notary.h"

/* Smallest number of bytes from a tag to the end of the file; ZMailer's agents read as many. */
#define TAG_ROOM 16
/* Longest field of a notary except the address, and longest text, in bytes. */
#define FIELD_MAX 1024
#define TEXT_MAX  8192
/* Bytes of result lines that wait for their tags to be synced. */
#define RESULTS_MAX ((size_t)4 * TA_LINE_MAX)
/* Number of tries, a millisecond apart, to wait for another agent that changes the same tag or is
 * appending a line. */
#define PATIENCE 50

static void pause_ms(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* a signal may end it earlier */
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Does the path have at most two hash directories, each a capital letter, and a name that begins
 * with a digit? *ret_directories is the length of the directories in bytes. */
static bool path_valid(struct slice path, size_t *ret_directories)
{
    size_t at = 0;

    while (at < 4 && at + 1 < path.len && path.ptr[at] >= 'A' && path.ptr[at] <= 'Z' &&
           path.ptr[at + 1] == '/') {
        at += 2;
    }
    *ret_directories = at;
    path = slice_skip(path, at);
    return at + path.len < TA_JOB_PATH_MAX && path.len > 0 && ascii_is_digit(path.ptr[0]) &&
           slice_find(path, '/') == path.len && slice_find(path, '\0') == path.len;
}

/* Opens a regular file. Returns a descriptor or negative errno. */
static int open_regular(const char *path, int flags, struct stat *ret_st)
{
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, ret_st) != 0 || !S_ISREG(ret_st->st_mode) || ret_st->st_size < 0) {
        (void)close(fd); /* not a regular file */
        return -EINVAL;
    }
    return fd;
}

static int read_all(int fd, char *bytes, size_t size)
{
    size_t at = 0;

    while (at < size) {
        ssize_t n = pread(fd, bytes + at, size - at, (off_t)at);

        if (n == 0) {
            return -EIO; /* control and message files never shrink */
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static bool fail(struct ta_job *job, const char *what, const char *why)
{
    ta_agent_comment(job->agent, "%.*s: %s: %s", SLICE_ARGS(job->path), what, why);
    return false;
}

static bool read_control(struct ta_job *job)
{
    char path[TA_JOB_PATH_MAX];
    struct control_problem problem;
    struct stat st = {0};
    size_t size;
    int rc;

    (void)snprintf(path, sizeof path, "%.*s", SLICE_ARGS(job->path)); /* fits: path_valid */
    rc = open_regular(path, O_RDWR, &st);
    if (rc < 0) {
        return rc == -ENOENT ? false : fail(job, "open", strerror(-rc));
    }
    job->file = rc;
    if ((uint64_t)st.st_size > CONTROL_FILE_MAX) {
        return fail(job, "open", strerror(EFBIG));
    }
    size = (size_t)st.st_size;
    job->bytes = mem_new(size + 1);
    rc = read_all(job->file, job->bytes, size);
    if (rc != 0) {
        return fail(job, "read", strerror(-rc));
    }
    if (!control_file_parse(slice_of(job->bytes, size), &job->control, &problem)) {
        ta_agent_comment(job->agent, "%.*s: byte %llu: expected %s", SLICE_ARGS(job->path),
                         (unsigned long long)problem.offset, problem.expected);
        return false;
    }
    job->torn = job->control.ends_in_part;
    return true;
}

static bool open_message(struct ta_job *job, struct slice directories)
{
    char path[2 * TA_JOB_PATH_MAX];
    int len = snprintf(path, sizeof path, "../queue/%.*s%.*s", SLICE_ARGS(directories),
                       SLICE_ARGS(job->control.name));
    struct stat st = {0};
    int rc;

    /* the parser has checked that the name has no slash and begins with a digit */
    if (len < 0 || (size_t)len >= sizeof path || job->control.name.len == 0) {
        return fail(job, "message file", "no name, or one that is too long");
    }
    rc = open_regular(path, O_RDONLY, &st);
    if (rc < 0) {
        return fail(job, path, strerror(-rc));
    }
    job->message = rc;
    job->message_size = (uint64_t)st.st_size;
    job->arrived = (struct wall){st.st_mtim.tv_sec * US_PER_S + st.st_mtim.tv_nsec / 1000};
    control_spoolid(job->number, st.st_mtim.tv_sec, (uint32_t)st.st_mtim.tv_nsec, job->spoolid);
    if (job->control.body_at > job->message_size) {
        return fail(job, path, "shorter than the offset of its body");
    }
    return true;
}

/* ---- tags ----------------------------------------------------------------------------------- */

/* Locks one byte of the file against our other agents; ZMailer's agents ignore the lock. Returns
 * false if another agent holds it. */
static bool guard(const struct ta_job *job, uint64_t at, int tries)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};

    while (fcntl(job->file, F_OFD_SETLK, &lock) != 0) {
        if ((errno == EAGAIN || errno == EACCES) && --tries <= 0) {
            return false;
        }
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
            return true; /* the file system has no locks; go on without */
        }
        pause_ms();
    }
    return true;
}

static void unguard(const struct ta_job *job, uint64_t at)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};

    (void)fcntl(job->file, F_OFD_SETLK, &lock); /* closing the file does the same */
}

/* Writes our lock as it stands in the file. Returns its length, 0 if the line has no columns for
 * it. */
static size_t own_mark(const struct ta_job *job, const struct control_rcpt *r,
                       char ret_bytes[CONTROL_MARK_MAX])
{
    return control_mark(r, '~', job->agent->pid, ret_bytes);
}

/* Does the tag still begin with `was`? The file may have changed since it was read. */
static bool tag_is(const struct ta_job *job, const struct control_rcpt *r, const char *was,
                   size_t len)
{
    char there[TAG_ROOM];
    ssize_t n = pread(job->file, there, sizeof there, (off_t)r->offset + 1);

    return n == (ssize_t)sizeof there && memcmp(there, was, len) == 0 &&
           (!r->has_lock || there[1] == ' ' || ascii_is_digit(there[1]));
}

static bool put_tag(const struct ta_job *job, const struct control_rcpt *r, const char *mark,
                    size_t len)
{
    return pwrite(job->file, mark, len, (off_t)r->offset + 1) == (ssize_t)len;
}

static bool lock_rcpt(struct ta_job *job, const struct control_rcpt *r)
{
    char mark[CONTROL_MARK_MAX];
    size_t len = own_mark(job, r, mark);
    bool ok = guard(job, r->offset + 1, 1);

    if (ok) {
        ok = tag_is(job, r, " ", 1) && put_tag(job, r, mark, len);
        unguard(job, r->offset + 1);
    }
    return ok;
}

/* Replaces our lock by the tag of the result. A tag that another process has changed meanwhile
 * stays as it is. */
static void set_tag(struct ta_job *job, const struct control_rcpt *r, char tag)
{
    char was[CONTROL_MARK_MAX], mark[CONTROL_MARK_MAX];
    size_t was_len = own_mark(job, r, was), len = control_mark(r, tag, 0, mark);

    if (was_len == 0) {
        was[0] = ' ';
        was_len = 1;
    }
    (void)guard(job, r->offset + 1, PATIENCE); /* with or without it the recipient is ours */
    if (!tag_is(job, r, was, was_len) || !put_tag(job, r, mark, len)) {
        ta_agent_comment(job->agent, "%.*s: the lock at %llu is lost", SLICE_ARGS(job->path),
                         (unsigned long long)r->offset);
    }
    unguard(job, r->offset + 1);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static bool is_for_us(const struct control_rcpt *r, struct slice channel, struct slice host)
{
    return r->open && slice_equal(r->address.channel, channel) &&
           (host.len == 0 || slice_equal_nocase(r->address.host, host) ||
            slice_equal_nocase(control_host_key(r->address.host), host));
}

static bool lock_rcpts(struct ta_job *job, struct slice host)
{
    const struct control_file *f = &job->control;
    struct stat st;

    job->rcpts = mem_array(f->rcpt_count + 1, sizeof job->rcpts[0]);
    for (size_t i = 0; i < f->rcpt_count; i++) {
        const struct control_rcpt *r = &f->rcpts[i];

        if (is_for_us(r, job->agent->channel, host) && lock_rcpt(job, r)) {
            job->rcpts[job->rcpt_count++] = (struct ta_job_rcpt){.rcpt = r};
        }
    }
    /* a file without a name was removed after we opened it, and its mail with it */
    return job->rcpt_count > 0 && fstat(job->file, &st) == 0 && st.st_nlink > 0;
}

bool ta_job_open(struct ta_job *job, struct ta_agent *agent, const struct ta_order *order)
{
    struct slice host = order->host.len > 0 ? order->host : agent->host;
    size_t directories;
    bool ok;

    *job = (struct ta_job){.agent = agent, .path = order->path, .file = -1, .message = -1};
    buf_init(&job->results, RESULTS_MAX);
    ok = path_valid(order->path, &directories) &&
         control_spool_number(slice_skip(order->path, directories), &job->number) &&
         read_control(job) && open_message(job, slice_of(order->path.ptr, directories)) &&
         lock_rcpts(job, host);
    if (!ok) {
        ta_job_close(job);
        ta_agent_resync(agent, order->path);
    }
    return ok;
}

void ta_job_close(struct ta_job *job)
{
    for (size_t i = 0; i < job->rcpt_count; i++) {
        if (!job->rcpts[i].settled) {
            set_tag(job, job->rcpts[i].rcpt, ' ');
        }
    }
    ta_job_tell(job);
    buf_fini(&job->results);
    if (job->file >= 0) {
        (void)close(job->file); /* all that counts is synced */
    }
    if (job->message >= 0) {
        (void)close(job->message); /* only read */
    }
    mem_free(job->rcpts);
    control_file_fini(&job->control);
    mem_free(job->bytes);
    *job = (struct ta_job){.file = -1, .message = -1};
}

static const struct control_group *group_of(const struct ta_job *job, size_t i)
{
    CHECK(i < job->rcpt_count);
    return &job->control.groups[job->rcpts[i].rcpt->group];
}

struct slice ta_job_word(struct slice word)
{
    return slice_equal(word, SLICE("-")) ? slice_of(word.ptr, 0) : word;
}

struct slice ta_job_sender(const struct ta_job *job, size_t i)
{
    const struct control_address *sender = &group_of(job, i)->sender;
    struct slice user = ta_job_word(sender->user);

    if (slice_equal(sender->channel, SLICE("error")) || slice_equal(user, SLICE("<>"))) {
        user.len = 0;
    }
    return user;
}

static bool same_mail(const struct ta_job *job, size_t i, size_t j)
{
    const struct control_group *a = group_of(job, i), *b = group_of(job, j);

    return a == b || (slice_equal(ta_job_sender(job, i), ta_job_sender(job, j)) &&
                      slice_equal(a->headers, b->headers));
}

size_t ta_job_run(const struct ta_job *job, size_t first)
{
    size_t end = first + 1;

    while (end < job->rcpt_count && same_mail(job, first, end) &&
           slice_equal(job->rcpts[first].rcpt->address.host, job->rcpts[end].rcpt->address.host)) {
        end++;
    }
    return end;
}

/* ---- results -------------------------------------------------------------------------------- */

static const struct {
    const char *action;
    char tag;
    enum ta_status plain;  /* no report is due, or not yet */
    enum ta_status noted;  /* our `d` line was written */
    enum ta_status fallen; /* the `d` line could not be written */
} outcomes[] = {
    [TA_JOB_DELIVERED] = {"delivered", '+', TA_OK3, TA_OK2, TA_OK},
    [TA_JOB_RELAYED] = {"relayed", '+', TA_OK3, TA_OK2, TA_OK},
    [TA_JOB_PASSED] = {"relayed", '+', TA_OK3, TA_OK3, TA_OK3},
    [TA_JOB_FAILED] = {"failed", '-', TA_ERROR2, TA_ERROR2, TA_DEFERRED},
    [TA_JOB_DEFERRED] = {"delayed", ' ', TA_DEFERRED, TA_DEFERRED, TA_DEFERRED},
    [TA_JOB_DEFERRED_ALL] = {"delayed", ' ', TA_DEFERALL, TA_DEFERALL, TA_DEFERALL},
};

/* Must a `d` line be written? */
static bool is_noted(const struct control_rcpt *r, enum ta_job_outcome outcome)
{
    return outcome == TA_JOB_FAILED ||
           ((outcome == TA_JOB_DELIVERED || outcome == TA_JOB_RELAYED) &&
            (control_notify(r->dsn) & NOTIFY_SUCCESS) != 0);
}

static struct slice cut(struct slice s, size_t max)
{
    return slice_of(s.ptr, s.len < max ? s.len : max);
}

/* Appends all six fields, because the reports of ZMailer 3.0.1 fail with fewer. */
static void put_notary(struct buf *out, const struct ta_job *job, const struct control_rcpt *r,
                       const struct ta_job_result *result)
{
    char agent[64];

    (void)snprintf(agent, sizeof agent, "%s[%d]", job->agent->name, (int)job->agent->pid);
    notary_put(out, &(struct notary){
                        .address = cut(r->address.user, CONTROL_WORD_MAX),
                        .action = slice_string(outcomes[result->outcome].action),
                        .status = cut(result->status, FIELD_MAX),
                        .diagnostic = cut(result->diagnostic, FIELD_MAX),
                        .host = cut(result->remote, FIELD_MAX),
                        .agent = slice_string(agent),
                    });
    CHECK(!out->failed);
}

/* Does the file end in an incomplete line that stays so? An agent may still be writing that line,
 * or have died while doing so. */
static bool ends_in_part(const struct ta_job *job)
{
    struct stat before, after;
    char last;

    if (!job->torn) {
        return false;
    }
    for (int i = 0; i < PATIENCE; i++) {
        if (fstat(job->file, &before) != 0 || before.st_size == 0 ||
            pread(job->file, &last, 1, before.st_size - 1) != 1 || last == '\n') {
            return false;
        }
        pause_ms();
        if (fstat(job->file, &after) == 0 && after.st_size == before.st_size) {
            return true;
        }
    }
    return false;
}

/* Appends the line to the file with one write, whole or not at all, and syncs it. */
static int append(struct ta_job *job, struct slice line)
{
    int flags = fcntl(job->file, F_GETFL), rc;
    struct stat st;
    ssize_t n;

    /* Sets the flag on the same open file, because the name may belong to another file by now. */
    if (flags < 0 || fcntl(job->file, F_SETFL, flags | O_APPEND) != 0) {
        return -errno;
    }
    n = write(job->file, line.ptr, line.len);
    rc = n == (ssize_t)line.len ? 0 : n < 0 ? -errno : -ENOSPC;
    if (n > 0 && rc != 0) {
        off_t end = lseek(job->file, 0, SEEK_CUR);

        /* If another process has appended after our partial line, both stay; readers skip the
         * merged line. */
        if (fstat(job->file, &st) == 0 && st.st_size == end) {
            rc = ftruncate(job->file, end - n) == 0 ? rc : -errno;
        }
    }
    if (fcntl(job->file, F_SETFL, flags) != 0) {
        rc = -errno; /* tags would be appended, too */
    }
    return rc == 0 && fsync(job->file) != 0 ? -errno : rc;
}

static bool note(struct ta_job *job, const struct control_rcpt *r, struct slice notary,
                 struct slice text)
{
    const struct control_group *group = &job->control.groups[r->group];
    struct control_diagnostic d = {
        .tag = ' ',
        .rcpt = r->offset,
        .headers_at = group->headers_at,
        .dsn_at = r->dsn_at,
        .time_s = (int64_t)time(NULL),
        .notary = notary,
        .text = text,
    };
    struct buf line;
    int rc;

    if (job->stuck) {
        return false;
    }
    buf_init(&line, TA_JOB_NOTARY_MAX + TEXT_MAX + 200);
    if (ends_in_part(job)) {
        (void)buf_add_byte(&line, '\n');
    }
    control_put_diagnostic(&line, &d);
    CHECK(!line.failed);
    rc = append(job, buf_slice(&line));
    buf_fini(&line);
    job->torn = false;
    if (rc != 0) {
        job->stuck = job->agent->stop = true;
        job->agent->exit_status = EX_IOERR;
        buf_init(&line, TA_JOB_PATH_MAX + 200);
        (void)buf_addf(&line, "#HELP! %s[%d]: cannot append to %.*s: %s\n", job->agent->name,
                       (int)job->agent->pid, SLICE_ARGS(job->path), strerror(-rc));
        ta_agent_say(job->agent, buf_slice(&line));
        buf_fini(&line);
    }
    return rc == 0;
}

/* A failure whose `d` line can't be written is tried again, because its bounce would not be sent. A
 * success must not be tried again, so the scheduler is asked to write the line. */
void ta_job_settle(struct ta_job *job, size_t i, const struct ta_job_result *result)
{
    const struct control_rcpt *r = job->rcpts[i].rcpt;
    enum ta_status status = outcomes[result->outcome].plain;
    char tag = outcomes[result->outcome].tag;
    struct slice text =
        slice_of(result->text.ptr, result->text.len < TEXT_MAX ? result->text.len : TEXT_MAX);
    struct buf notary;

    CHECK(!job->rcpts[i].settled);
    buf_init(&notary, TA_JOB_NOTARY_MAX);
    if (tag == ' ' || is_noted(r, result->outcome)) {
        put_notary(&notary, job, r, result);
    }
    if (is_noted(r, result->outcome)) {
        if (note(job, r, buf_slice(&notary), text)) {
            status = outcomes[result->outcome].noted;
            buf_clear(&notary);
        } else {
            status = outcomes[result->outcome].fallen;
            tag = tag == '-' ? ' ' : tag;
        }
    }
    set_tag(job, r, tag);
    job->unsynced = job->unsynced || tag != ' ';
    if (buf_len(&job->results) > RESULTS_MAX - TA_LINE_MAX) {
        ta_job_tell(job);
    }
    ta_put_result(&job->results, job->number, r->offset, buf_slice(&notary), status, text);
    CHECK(!job->results.failed);
    job->rcpts[i].settled = true;
    buf_fini(&notary);
}

void ta_job_tell(struct ta_job *job)
{
    if (job->unsynced && fdatasync(job->file) != 0) {
        (void)fail(job, "sync", strerror(errno)); /* the recipients have their mail; a power cut may
                                                   * repeat the delivery */
    }
    job->unsynced = false;
    if (buf_len(&job->results) > 0) {
        ta_agent_say(job->agent, buf_slice(&job->results));
        buf_clear(&job->results);
    }
}

void ta_job_settle_rest(struct ta_job *job, const struct ta_job_result *result)
{
    for (size_t i = 0; i < job->rcpt_count; i++) {
        if (!job->rcpts[i].settled) {
            ta_job_settle(job, i, result);
        }
    }
}

/* ---- content -------------------------------------------------------------------------------- */

void ta_content_init(struct ta_content *c, const struct ta_job *job, size_t i)
{
    c->fd = job->message;
    c->headers = group_of(job, i)->headers;
    c->at = job->control.body_at;
    c->next = TA_CONTENT_HEADERS;
}

static int read_body(struct ta_content *c, struct slice *ret_piece)
{
    ssize_t n;

    do {
        n = pread(c->fd, c->piece, sizeof c->piece, (off_t)c->at);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return -errno;
    }
    c->at += (uint64_t)n;
    *ret_piece = slice_of(c->piece, (size_t)n);
    return n > 0;
}

int ta_content_read(void *arg, struct slice *ret_piece)
{
    struct ta_content *c = arg;

    switch (c->next) {
    case TA_CONTENT_HEADERS:
        c->next = TA_CONTENT_GAP;
        *ret_piece = c->headers;
        return 1;
    case TA_CONTENT_GAP:
        c->next = TA_CONTENT_BODY;
        *ret_piece = SLICE("\n");
        return 1;
    case TA_CONTENT_BODY:
        return read_body(c, ret_piece);
    }
    UNREACHABLE("a part beyond the enum");
}
