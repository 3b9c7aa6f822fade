#include "maildrop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "check.h"
#include "mem.h"

#define FIRST_LINE "sluice-maildrop 1\n"
/* Number of digits after "content ". With the line feed they end the head. */
#define SIZE_DIGITS    16
#define SIZE_MAX_VALUE 9999999999999999ull
/* Maximum attempts to find a free name. */
#define NAMES_MAX 100

static const struct {
    const char *word;
    unsigned flag;
} flag_words[] = {
    {"8bit", ENVELOPE_8BIT},         {"smtputf8", ENVELOPE_SMTPUTF8},
    {"ret_full", ENVELOPE_RET_FULL}, {"ret_hdrs", ENVELOPE_RET_HDRS},
    {"trace", ENVELOPE_TRACE},
};

static const struct {
    const char *word;
    unsigned notify;
} notify_words[] = {
    {"default", NOTIFY_DEFAULT},
    {"never", NOTIFY_NEVER},
    {"success", NOTIFY_SUCCESS},
    {"failure", NOTIFY_FAILURE},
    {"success,failure", NOTIFY_SUCCESS | NOTIFY_FAILURE},
    {"delay", NOTIFY_DELAY},
    {"success,delay", NOTIFY_SUCCESS | NOTIFY_DELAY},
    {"failure,delay", NOTIFY_FAILURE | NOTIFY_DELAY},
    {"success,failure,delay", NOTIFY_SUCCESS | NOTIFY_FAILURE | NOTIFY_DELAY},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- valid fields --------------------------------------------------------------------------- */

static bool is_text(struct slice s, size_t max)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] < ' ' || s.ptr[i] == 0x7f) {
            return false;
        }
    }
    return s.len <= max;
}

/* Printable ASCII without blanks. */
static bool is_word(struct slice s, size_t max)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] <= ' ' || s.ptr[i] >= 0x7f) {
            return false;
        }
    }
    return s.len > 0 && s.len <= max;
}

static bool is_address(struct slice s, unsigned options)
{
    return address_is_stored(s, options | ADDRESS_UTF8 | ADDRESS_NO_DOMAIN | ADDRESS_POSTMASTER);
}

/* "-" means none, so it is no value. */
static bool is_orcpt(struct slice s)
{
    return s.len == 0 || (is_word(s, DSN_ORCPT_MAX) && !slice_equal(s, SLICE("-")));
}

static const char *notify_word(unsigned notify)
{
    for (size_t i = 0; i < COUNT(notify_words); i++) {
        if (notify_words[i].notify == notify) {
            return notify_words[i].word;
        }
    }
    return NULL;
}

/* ---- writing the head ----------------------------------------------------------------------- */

static bool put_rcpt(const struct maildrop_rcpt *r, struct buf *out)
{
    const char *notify = notify_word(r->notify);

    return notify != NULL && is_orcpt(r->orcpt) && is_address(r->address, 0) &&
           buf_addf(out, "rcpt %s %.*s %.*s\n", notify,
                    SLICE_ARGS(r->orcpt.len == 0 ? SLICE("-") : r->orcpt), SLICE_ARGS(r->address));
}

bool maildrop_put(const struct maildrop *m, struct buf *out)
{
    unsigned known = 0;

    if (!is_address(m->sender, ADDRESS_NULL) || !is_text(m->name, MAILDROP_NAME_MAX) ||
        (m->envid.len > 0 && !is_word(m->envid, DSN_ENVID_MAX)) || m->rcpt_count == 0 ||
        m->rcpt_count > MAILDROP_RCPTS_MAX || m->content_size > SIZE_MAX_VALUE) {
        return false;
    }
    (void)buf_addf(out, FIRST_LINE "sender %.*s\n", SLICE_ARGS(m->sender)); /* errors are sticky */
    if (m->name.len > 0) {
        (void)buf_addf(out, "name %.*s\n", SLICE_ARGS(m->name));
    }
    if (m->envid.len > 0) {
        (void)buf_addf(out, "envid %.*s\n", SLICE_ARGS(m->envid));
    }
    for (size_t i = 0; i < COUNT(flag_words); i++) {
        known |= flag_words[i].flag;
        if ((m->flags & flag_words[i].flag) != 0) {
            (void)buf_addf(out, "flag %s\n", flag_words[i].word);
        }
    }
    for (size_t i = 0; i < m->rcpt_count; i++) {
        if (!put_rcpt(&m->rcpts[i], out)) {
            return false;
        }
    }
    return (m->flags & ~known) == 0 &&
           buf_addf(out, "content %0*llu\n", SIZE_DIGITS, (unsigned long long)m->content_size);
}

/* ---- reading the head -------------------------------------------------------------------------
 *
 * The reader goes line by line in a fixed order, so `stage` never decreases. */

enum stage { AT_FIRST, AT_SENDER, AT_NAME, AT_ENVID, AT_FLAGS, AT_RCPTS, AT_END };

struct maildrop_reader {
    struct maildrop m;
    size_t rcpt_size;
    enum stage stage;
    size_t flag_next; /* index of the next flag: flags are in the order of their table, each at most
                       * once */
    const char *why;
};

static bool bad(struct maildrop_reader *r, const char *why)
{
    r->why = why;
    return false;
}

/* Is this a "key value" line? If so, *line becomes the value. */
static bool take_key(struct slice *line, const char *key)
{
    size_t len = strlen(key);

    if (!slice_starts(*line, slice_string(key)) || line->len <= len || line->ptr[len] != ' ') {
        return false;
    }
    *line = slice_skip(*line, len + 1);
    return true;
}

static bool get_flag(struct maildrop_reader *r, struct slice word)
{
    for (; r->flag_next < COUNT(flag_words); r->flag_next++) {
        if (slice_equal(word, slice_string(flag_words[r->flag_next].word))) {
            r->m.flags |= flag_words[r->flag_next++].flag;
            return true;
        }
    }
    return bad(r, "a flag is unknown or at the wrong place");
}

static bool get_rcpt(struct maildrop_reader *r, struct slice line)
{
    struct maildrop_rcpt rcpt = {0};
    struct slice word = slice_cut(&line, ' ');
    size_t i;

    for (i = 0; i < COUNT(notify_words); i++) {
        if (slice_equal(word, slice_string(notify_words[i].word))) {
            rcpt.notify = notify_words[i].notify;
            break;
        }
    }
    rcpt.orcpt = line.ptr == NULL ? slice_of("", 0) : slice_cut(&line, ' ');
    rcpt.address = line.ptr == NULL ? slice_of("", 0) : line;
    if (i == COUNT(notify_words) || rcpt.orcpt.len == 0) {
        return bad(r, "a recipient's line is damaged");
    }
    if (slice_equal(rcpt.orcpt, SLICE("-"))) {
        rcpt.orcpt = slice_of("", 0);
    }
    if (!is_orcpt(rcpt.orcpt) || !is_address(rcpt.address, 0)) {
        return bad(r, "a recipient is no address");
    }
    if (r->m.rcpt_count == MAILDROP_RCPTS_MAX) {
        return bad(r, "too many recipients");
    }
    r->m.rcpts = mem_grow(r->m.rcpts, r->m.rcpt_count, &r->rcpt_size, sizeof rcpt);
    r->m.rcpts[r->m.rcpt_count++] = rcpt;
    return true;
}

static bool get_size(struct maildrop_reader *r, struct slice digits)
{
    unsigned long long size;

    if (digits.len != SIZE_DIGITS || !slice_number(digits, SIZE_MAX_VALUE, &size)) {
        return bad(r, "the length of the content is no number");
    }
    if (r->m.rcpt_count == 0) {
        return bad(r, "there are no recipients");
    }
    r->m.content_size = size;
    r->stage = AT_END;
    return true;
}

/* Reads a line that is optional or may come more than once. */
static bool get_later_line(struct maildrop_reader *r, struct slice line)
{
    if (r->stage < AT_ENVID && take_key(&line, "name")) {
        r->stage = AT_ENVID;
        r->m.name = line;
        return (line.len > 0 && is_text(line, MAILDROP_NAME_MAX)) || bad(r, "the name is no text");
    }
    if (r->stage < AT_FLAGS && take_key(&line, "envid")) {
        r->stage = AT_FLAGS;
        r->m.envid = line;
        return is_word(line, DSN_ENVID_MAX) || bad(r, "the envelope id is no word");
    }
    if (r->stage <= AT_FLAGS && take_key(&line, "flag")) {
        r->stage = AT_FLAGS;
        return get_flag(r, line);
    }
    if (take_key(&line, "rcpt")) {
        r->stage = AT_RCPTS;
        return get_rcpt(r, line);
    }
    if (take_key(&line, "content")) {
        return get_size(r, line);
    }
    return bad(r, "a line is unknown or at the wrong place");
}

static bool get_line(struct maildrop_reader *r, struct slice line)
{
    switch (r->stage) {
    case AT_FIRST:
        r->stage = AT_SENDER;
        return slice_equal(line, slice_of(FIRST_LINE, strlen(FIRST_LINE) - 1)) ||
               bad(r, "it is no file of sendmail's");
    case AT_SENDER:
        r->stage = AT_NAME;
        if (!take_key(&line, "sender") || !is_address(line, ADDRESS_NULL)) {
            return bad(r, "the sender is no address");
        }
        r->m.sender = line;
        return true;
    case AT_NAME:
    case AT_ENVID:
    case AT_FLAGS:
    case AT_RCPTS:
        return get_later_line(r, line);
    case AT_END:
        break;
    }
    UNREACHABLE("nothing is read after the end");
}

enum maildrop_result maildrop_get(struct slice in, struct maildrop *ret, size_t *ret_head,
                                  const char **ret_why)
{
    struct maildrop_reader r = {.m = {.sender = {"", 0}, .name = {"", 0}, .envid = {"", 0}}};
    struct slice rest = in;

    while (r.stage != AT_END) {
        size_t len = slice_find(rest, '\n');

        if (len == rest.len) {
            bool too_long = in.len >= MAILDROP_HEAD_MAX;
            maildrop_fini(&r.m);
            if (too_long) {
                *ret_why = "the envelope is too long";
            }
            return too_long ? MAILDROP_BAD : MAILDROP_MORE;
        }
        if (!get_line(&r, slice_of(rest.ptr, len))) {
            maildrop_fini(&r.m);
            *ret_why = r.why;
            return MAILDROP_BAD;
        }
        rest = slice_skip(rest, len + 1);
    }
    *ret = r.m;
    *ret_head = in.len - rest.len;
    return MAILDROP_OK;
}

void maildrop_fini(struct maildrop *m)
{
    mem_free(m->rcpts);
    m->rcpts = NULL;
    m->rcpt_count = 0;
}

/* ---- writing a file ------------------------------------------------------------------------- */

static void write_all(struct maildrop_file *f, struct slice bytes)
{
    while (f->error == 0 && bytes.len > 0) {
        ssize_t n = write(f->fd, bytes.ptr, bytes.len);

        if (n >= 0) {
            bytes = slice_skip(bytes, (size_t)n);
        } else if (errno != EINTR) {
            f->error = -errno;
        }
    }
}

/* Creates a file with a unique name: time and process, and a number if that name exists. */
static int create(struct maildrop_file *f)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    for (unsigned i = 0; i < NAMES_MAX; i++) {
        (void)snprintf(f->name, sizeof f->name, "%08llX%05lX%lX_%u", (unsigned long long)now.tv_sec,
                       now.tv_nsec / 1000, (long)getpid(), i); /* fits */
        f->fd = openat(f->directory, f->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                       MAILDROP_INCOMPLETE);
        if (f->fd >= 0 || errno != EEXIST) {
            break;
        }
    }
    return f->fd >= 0 ? 0 : -errno;
}

int maildrop_create(struct maildrop_file *f, const char *directory, const struct maildrop *m)
{
    struct buf head;
    int error;

    *f = (struct maildrop_file){.fd = -1};
    buf_init(&head, MAILDROP_HEAD_MAX);
    if (!maildrop_put(m, &head)) {
        buf_fini(&head);
        return -EINVAL;
    }
    f->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (f->directory < 0) {
        error = -errno;
        buf_fini(&head);
        return error;
    }
    error = create(f);
    if (error != 0) {
        (void)close(f->directory); /* no file was created */
        buf_fini(&head);
        return error;
    }
    f->head_size = buf_len(&head);
    write_all(f, buf_slice(&head));
    buf_fini(&head);
    return 0;
}

void maildrop_write(struct maildrop_file *f, struct slice content)
{
    write_all(f, content);
    f->content_size += content.len;
}

static void put_size(struct maildrop_file *f)
{
    char digits[SIZE_DIGITS + 1];

    if (f->error != 0) {
        return;
    }
    if (f->content_size > SIZE_MAX_VALUE) {
        f->error = -EFBIG;
        return;
    }
    (void)snprintf(digits, sizeof digits, "%0*llu", SIZE_DIGITS,
                   (unsigned long long)f->content_size); /* fits */
    if (pwrite(f->fd, digits, SIZE_DIGITS, (off_t)f->head_size - 1 - SIZE_DIGITS) != SIZE_DIGITS) {
        f->error = -errno;
    }
}

int maildrop_commit(struct maildrop_file *f)
{
    int error;

    put_size(f);
    if (f->error == 0 &&
        (fsync(f->fd) != 0 || fchmod(f->fd, MAILDROP_COMPLETE) != 0 || fsync(f->fd) != 0)) {
        f->error = -errno;
    }
    if (f->error != 0) {
        error = f->error;
        maildrop_abort(f);
        return error;
    }
    (void)close(f->fd);        /* synced */
    (void)close(f->directory); /* O_PATH: no data to write */
    return 0;
}

void maildrop_abort(struct maildrop_file *f)
{
    /* A file that can't be removed stays incomplete, and pickup ignores it. */
    (void)unlinkat(f->directory, f->name, 0);
    (void)close(f->fd);
    (void)close(f->directory);
}
