#include "control_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "envelope.h"
#include "mem.h"

/* Offset of a field's value, after letter and tag. */
#define VALUE_AT 2
#define LOCK_AT  2 /* offset of a recipient's lock columns, after the tag */

struct reader {
    struct slice bytes;
    size_t at; /* start of the current line */
    struct control_file *file;
    struct control_problem *problem;
    struct slice error_to;      /* value of the last `e` line */
    bool error_to_after_sender; /* that line was after the last `s` line */
    bool block_is_open;         /* the last block of headers does not end with an empty line */
    bool block_is_odd; /* a block contains the line of a sender, or follows a torn append: a
                        * separator of fields was lost */
    size_t rcpt_size, group_size, diagnostic_size;
    struct control_rcpt *last_rcpt; /* recipient to which an `N` line belongs; NULL if it has one
                                     * already */
    bool behind_router; /* the last line was a block or was appended, so appended lines may
                         * follow */
};

static bool wrong(struct reader *r, const char *at, const char *expected)
{
    r->problem->offset = (uint64_t)(at - r->bytes.ptr);
    r->problem->expected = expected;
    return false;
}

/* ---- words ---------------------------------------------------------------------------------- */

/* Cuts the next word off *rest, after blanks. A word ends at a blank outside quotes and, where
 * `lists` are allowed, outside parentheses. Returns false at the end of the line, for quotes or
 * parentheses that are not closed, and for a word that is too long. */
static bool next_word(struct slice *rest, bool lists, struct slice *ret_word)
{
    size_t from = 0, to;
    unsigned depth = 0;
    bool quoted = false;

    while (from < rest->len && rest->ptr[from] == ' ') {
        from++;
    }
    for (to = from; to < rest->len; to++) {
        char c = rest->ptr[to];

        if (c == '\\') {
            if (++to == rest->len) {
                return false;
            }
        } else if (c == '"') {
            quoted = !quoted;
        } else if (!quoted && lists && c == '(') {
            depth++;
        } else if (!quoted && lists && c == ')' && depth > 0) {
            depth--;
        } else if (!quoted && depth == 0 && (c == ' ' || c == '\t')) {
            break;
        }
    }
    if (quoted || depth > 0 || to == from || to - from > CONTROL_WORD_MAX) {
        return false;
    }
    *ret_word = slice_of(rest->ptr + from, to - from);
    *rest = slice_skip(*rest, to);
    return true;
}

static bool signed_number(struct slice s, int64_t *ret_value)
{
    bool negative = s.len > 0 && s.ptr[0] == '-';
    unsigned long long n;

    if (!slice_number(slice_skip(s, negative ? 1 : 0), INT64_MAX, &n)) {
        return false;
    }
    *ret_value = negative ? -(int64_t)n : (int64_t)n;
    return true;
}

static bool read_address(struct reader *r, struct slice rest, struct control_address *ret)
{
    const char *start = rest.ptr;
    struct slice uid;

    if (!next_word(&rest, false, &ret->channel) || !next_word(&rest, true, &ret->host) ||
        !next_word(&rest, false, &ret->user) || !next_word(&rest, false, &uid) ||
        !signed_number(uid, &ret->uid)) {
        return wrong(r, start, "CHANNEL HOST USER UID");
    }
    if (slice_trim(rest).len > 0) {
        return wrong(r, rest.ptr, "the end of the line after CHANNEL HOST USER UID");
    }
    return true;
}

/* ---- fields --------------------------------------------------------------------------------- */

static bool read_format(struct reader *r, struct slice value)
{
    unsigned format = 0;

    if (value.len != 10 || !slice_starts_nocase(value, SLICE("0x"))) {
        return wrong(r, value.ptr, "0x and 8 hexadecimal digits");
    }
    for (size_t i = 2; i < value.len; i++) {
        char c = ascii_lower(value.ptr[i]);

        if (!ascii_is_digit(c) && !(c >= 'a' && c <= 'f')) {
            return wrong(r, value.ptr + i, "a hexadecimal digit");
        }
        format = format << 4 | (unsigned)(ascii_is_digit(c) ? c - '0' : c - 'a' + 10);
    }
    if ((format & ~(unsigned)CONTROL_FORMAT_KNOWN) != 0) {
        return wrong(r, value.ptr, "no format bits but 0x00000007");
    }
    r->file->format = format;
    r->file->has_format = true;
    return true;
}

static bool read_body_offset(struct reader *r, struct slice value)
{
    unsigned long long n;

    if (!slice_number(value, INT64_MAX, &n)) {
        return wrong(r, value.ptr, "the offset of the body");
    }
    r->file->body_at = n;
    return true;
}

static bool read_sender(struct reader *r, struct slice value)
{
    struct control_file *f = r->file;
    struct control_group *group;

    if (f->group_count == UINT32_MAX) {
        return wrong(r, value.ptr, "fewer senders");
    }
    f->groups = mem_grow(f->groups, f->group_count, &r->group_size, sizeof *f->groups);
    group = &f->groups[f->group_count++];
    *group = (struct control_group){.headers = {"", 0}, .headers_at = CONTROL_NONE};
    r->last_rcpt = NULL;
    r->error_to_after_sender = false;
    return read_address(r, value, &group->sender);
}

static bool is_column(char c)
{
    return c == ' ' || ascii_is_digit(c);
}

/* ---- process of a lock ---- */

/* Columns of a lock: six, of which ZMailer's programs require that the first is a digit or a blank.
 * A longer process id (Linux has 22 bits) is written as a digit with its two upper bits, and five
 * letters from 'a' on with four bits each. */
#define PID_DECIMAL_MAX 999999
#define PID_LETTERS_MAX 0x3fffff
#define LETTER_BITS     4

static bool is_letter(char c)
{
    return c >= 'a' && c < 'a' + (1 << LETTER_BITS);
}

static int64_t read_holder(struct slice columns)
{
    unsigned long long n;
    int64_t pid = columns.ptr[0] - '0';

    if (slice_number(slice_trim(columns), PID_DECIMAL_MAX, &n)) {
        return (int64_t)n;
    }
    for (size_t i = 1; i < columns.len; i++) {
        if (!is_letter(columns.ptr[i])) {
            return 0;
        }
        pid = (pid << LETTER_BITS) + (columns.ptr[i] - 'a');
    }
    return pid > PID_DECIMAL_MAX && pid <= PID_LETTERS_MAX ? pid : 0;
}

static void put_holder(int64_t pid, char ret_columns[CONTROL_COLUMN_PID])
{
    char text[CONTROL_COLUMN_PID + 1];

    if (pid <= PID_DECIMAL_MAX) {
        (void)snprintf(text, sizeof text, "%*u", CONTROL_COLUMN_PID, (unsigned)pid);
        memcpy(ret_columns, text, CONTROL_COLUMN_PID);
        return;
    }
    for (size_t i = CONTROL_COLUMN_PID - 1; i > 0; i--, pid >>= LETTER_BITS) {
        ret_columns[i] = (char)('a' + (pid & ((1 << LETTER_BITS) - 1)));
    }
    ret_columns[0] = (char)('0' + pid);
}

/* Reads the columns before a recipient's address: as the format defines or, without one, as the
 * bytes suggest. */
static bool read_columns(struct reader *r, struct slice *value, struct control_rcpt *rcpt)
{
    const struct control_file *f = r->file;
    bool lock, delay;
    size_t columns = 0;
    unsigned long long n;

    if (f->has_format) {
        lock = (f->format & CONTROL_FORMAT_PID) != 0;
        delay = (f->format & CONTROL_FORMAT_DELAY) != 0;
    } else {
        lock = value->len > CONTROL_COLUMN_PID && is_column(value->ptr[0]);
        delay = lock && value->len > CONTROL_COLUMN_PID + CONTROL_COLUMN_DELAY &&
                is_column(value->ptr[CONTROL_COLUMN_PID]);
    }
    columns = (lock ? (size_t)CONTROL_COLUMN_PID : 0) + (delay ? (size_t)CONTROL_COLUMN_DELAY : 0);
    if (value->len <= columns) {
        return wrong(r, value->ptr, "an address after the columns of lock and delay");
    }
    for (size_t i = 0; i < columns; i++) {
        if (!is_column(value->ptr[i]) && (i == 0 || i >= CONTROL_COLUMN_PID || !lock ||
                                          rcpt->tag != '~' || !is_letter(value->ptr[i]))) {
            return wrong(r, value->ptr + i, "a digit or a blank in the columns of lock and delay");
        }
    }
    rcpt->has_lock = lock;
    if (lock) {
        rcpt->lock_pid = read_holder(slice_of(value->ptr, CONTROL_COLUMN_PID));
    }
    rcpt->has_delay = delay;
    if (delay && slice_number(slice_trim(slice_of(value->ptr + columns - CONTROL_COLUMN_DELAY,
                                                  CONTROL_COLUMN_DELAY)),
                              9999, &n)) {
        rcpt->warnings = (uint32_t)n;
    }
    *value = slice_skip(*value, columns);
    return true;
}

static bool read_rcpt(struct reader *r, struct slice line, struct slice value)
{
    struct control_file *f = r->file;
    struct control_rcpt *rcpt;
    struct slice class;
    unsigned long long n;

    if (f->group_count == 0 || f->groups[f->group_count - 1].headers_at != CONTROL_NONE) {
        return wrong(r, line.ptr, "a sender before the first recipient");
    }
    if (memchr(" ~+-", line.ptr[1], 4) == NULL) {
        return wrong(r, line.ptr + 1, "a tag: blank, ~, + or -");
    }
    f->rcpts = mem_grow(f->rcpts, f->rcpt_count, &r->rcpt_size, sizeof *f->rcpts);
    rcpt = &f->rcpts[f->rcpt_count++];
    *rcpt = (struct control_rcpt){
        .offset = r->at,
        .tag = line.ptr[1],
        .alternative = line.ptr[0] == 'X',
        .group = (uint32_t)(f->group_count - 1),
        .dsn_at = CONTROL_NONE,
        .dsn = {"", 0},
    };
    if (!read_columns(r, &value, rcpt)) {
        return false;
    }
    if (rcpt->alternative) {
        if (!next_word(&value, false, &class) || !slice_number(class, UINT32_MAX, &n)) {
            return wrong(r, value.ptr, "the number of the class of alternatives");
        }
        rcpt->class = n;
    }
    r->last_rcpt = rcpt;
    return read_address(r, value, &rcpt->address);
}

/* Parses an offset, which may be missing ("-1" or nothing). */
static bool diagnostic_offset(struct slice text, uint64_t *ret)
{
    int64_t n;

    *ret = CONTROL_NONE;
    if (text.len == 0) {
        return true;
    }
    if (!signed_number(text, &n)) {
        return false;
    }
    if (n >= 0) {
        *ret = (uint64_t)n;
    }
    return true;
}

/* Reads a `d` line. A line that can't be parsed is the result of a crash within an append, perhaps
 * with the next append after it. The report may then lack a text, but no recipient is lost, because
 * its tag is separate. */
static void read_diagnostic(struct reader *r, struct slice line, struct slice value)
{
    struct control_file *f = r->file;
    struct control_diagnostic d = {.offset = r->at, .tag = line.ptr[1]};
    struct slice rest = value, names = slice_cut(&rest, '\t'), field[5];
    bool ok = rest.ptr != NULL;

    for (size_t i = 0; i < 5; i++) {
        field[i] = names.ptr == NULL ? SLICE("") : slice_cut(&names, ':');
    }
    if (!ok || names.ptr != NULL || !diagnostic_offset(field[0], &d.rcpt) ||
        d.rcpt == CONTROL_NONE || !diagnostic_offset(field[1], &d.headers_at) ||
        !diagnostic_offset(field[2], &d.dsn_at) || !signed_number(field[4], &d.time_s)) {
        f->damaged_diagnostics++;
        return;
    }
    d.notary = slice_cut(&rest, '\t');
    d.text = rest.ptr == NULL ? slice_of(d.notary.ptr + d.notary.len, 0) : rest;
    f->diagnostics =
        mem_grow(f->diagnostics, f->diagnostic_count, &r->diagnostic_size, sizeof *f->diagnostics);
    f->diagnostics[f->diagnostic_count++] = d;
}

/* Is it an `s` line? No header line looks like one. */
static bool is_sender(struct slice line)
{
    struct control_address ignored;
    struct control_problem problem;
    struct reader r = {.bytes = line, .problem = &problem};

    return slice_starts(line, SLICE("s ")) &&
           read_address(&r, slice_skip(line, VALUE_AT), &ignored);
}

/* Reads the block of headers after an `m` (or `M`), up to the first empty line, and sets r->at
 * after it. */
static void read_block(struct reader *r, bool headers)
{
    struct control_file *f = r->file;
    size_t from = r->at + 2, to = from;

    r->block_is_odd = r->block_is_odd || f->damaged_diagnostics > 0;
    while (to < r->bytes.len && r->bytes.ptr[to] != '\n') {
        struct slice rest = slice_skip(r->bytes, to), line = slice_cut(&rest, '\n');

        r->block_is_odd = r->block_is_odd || is_sender(line);
        to += line.len + (rest.ptr != NULL ? 1 : 0);
    }
    if (headers && f->group_count > 0) {
        f->groups[f->group_count - 1].headers = slice_of(r->bytes.ptr + from, to - from);
        f->groups[f->group_count - 1].headers_at = from;
    }
    r->last_rcpt = NULL;
    r->block_is_open = to == r->bytes.len;
    r->at = to < r->bytes.len ? to + 1 : to;
}

static void read_ret(struct control_file *f, struct slice value)
{
    if (slice_equal_nocase(value, SLICE("HDRS"))) {
        f->ret = CONTROL_RET_HEADERS;
    } else if (slice_equal_nocase(value, SLICE("FULL"))) {
        f->ret = CONTROL_RET_FULL;
    }
}

/* Is it one word, as in lines before those of recipients? A line with more words has lost its line
 * feed, and a recipient follows in it. */
static bool is_one_word(struct slice value)
{
    return slice_find(slice_trim(value), ' ') == slice_trim(value).len;
}

static bool is_dsn(struct slice value)
{
    while (value.ptr != NULL) {
        struct slice word = slice_cut(&value, ' ');

        if (word.len > 0 && slice_find(word, '=') == word.len) {
            return false;
        }
    }
    return true;
}

/* Reads a field. A tag other than a blank hides the field, except for fields that have tags of
 * their own. */
static bool read_field(struct reader *r, struct slice line)
{
    struct control_file *f = r->file;
    struct slice value = slice_skip(line, VALUE_AT);

    if (line.ptr[0] == 'r' || line.ptr[0] == 'X') {
        return read_rcpt(r, line, value);
    }
    if (line.ptr[0] == 'd') {
        read_diagnostic(r, line, value);
        return true;
    }
    if (line.ptr[1] != ' ') {
        return true;
    }
    /* Only recipients have blanks here. A recipient whose letter is damaged would otherwise be
     * skipped, and lost. */
    if (slice_starts(value, SLICE(" "))) {
        return wrong(r, value.ptr, "a value right after the blank");
    }
    switch (line.ptr[0]) {
    case '@':
        return read_format(r, value);
    case 'v':
        f->verbose = value;
        return true;
    case 'i':
        f->name = value;
        return true;
    case 'o':
        return read_body_offset(r, value);
    case 'l':
        f->log_id = value;
        return true;
    case 'e':
        r->error_to = value;
        r->error_to_after_sender = true;
        return true;
    case 'x':
        f->obsoletes = value;
        return true;
    case 'T':
        f->etrn = value;
        return true;
    case 's':
        return read_sender(r, value);
    case 'N':
        if (!is_dsn(value)) {
            return wrong(r, value.ptr, "words KEYWORD=VALUE");
        }
        if (r->last_rcpt != NULL) {
            r->last_rcpt->dsn = value;
            r->last_rcpt->dsn_at = r->at;
            r->last_rcpt = NULL;
        }
        return true;
    case 'R':
        read_ret(f, value);
        return is_one_word(value) || wrong(r, value.ptr, "one word");
    case 'n':
        f->envid = value;
        return is_one_word(value) || wrong(r, value.ptr, "one word");
    case 'b':
        return true;
    default:
        return wrong(r, line.ptr, "one of the fields @vioelxsTrXNRnmMbd");
    }
}

/* Was the line appended by a program? After a power cut an appended line may consist of zeros, in
 * part or whole; elsewhere zeros would be damage that hides a recipient. */
static bool is_appended(const struct reader *r, struct slice line)
{
    return line.len > 0 && (line.ptr[0] == 'd' || (line.ptr[0] == '\0' && r->behind_router));
}

static bool read_line(struct reader *r)
{
    struct slice rest = slice_skip(r->bytes, r->at);
    size_t len = slice_find(rest, '\n');
    struct slice line = slice_of(rest.ptr, len);

    if (len == rest.len) {
        if (!is_appended(r, line)) {
            return wrong(r, rest.ptr, "a line feed at the end of the line");
        }
        r->file->ends_in_part = true; /* its writer has not finished, or never will */
        r->at = r->bytes.len;
        return true;
    }
    if (len == 1 && (line.ptr[0] == 'm' || line.ptr[0] == 'M')) {
        read_block(r, line.ptr[0] == 'm');
        r->behind_router = true;
        return true;
    }
    if (is_appended(r, line) && memchr(line.ptr, '\0', len) != NULL) {
        r->file->damaged_diagnostics++;
        r->behind_router = true;
        r->at += len + 1;
        return true;
    }
    if (len < VALUE_AT) {
        return wrong(r, line.ptr, "a field letter and a tag");
    }
    if (memchr(line.ptr, '\0', len) != NULL) {
        return wrong(r, line.ptr, "no NUL bytes");
    }
    if (!read_field(r, line)) {
        return false;
    }
    r->behind_router = line.ptr[0] == 'd';
    r->at += len + 1;
    return true;
}

/* ---- whole file ------------------------------------------------------------------------------ */

/* Chooses the address for failure reports, as ZMailer does: the user of the last sender, unless an
 * `e` line follows it or the sender has no user. Failures of a bounce are sent to no address. */
static void decide_error_to(struct reader *r)
{
    struct control_file *f = r->file;
    const struct control_address *sender;

    f->error_to = r->error_to;
    if (f->group_count == 0) {
        return;
    }
    sender = &f->groups[f->group_count - 1].sender;
    f->is_bounce = slice_equal(sender->channel, SLICE("error"));
    if (f->is_bounce) {
        f->error_to = SLICE("");
    } else if (!r->error_to_after_sender && !slice_equal(sender->user, SLICE("-"))) {
        f->error_to = sender->user;
    }
}

static bool check_whole(struct reader *r)
{
    const struct control_file *f = r->file;
    const char *end = r->bytes.ptr + r->bytes.len;

    if (f->etrn.len > 0) {
        return true;
    }
    if (f->name.len == 0) {
        return wrong(r, end, "an `i` line with the name of the message file");
    }
    if (memchr(f->name.ptr, '/', f->name.len) != NULL || !ascii_is_digit(f->name.ptr[0])) {
        return wrong(r, f->name.ptr, "a file's name that begins with a digit and has no slash");
    }
    if (f->log_id.len == 0) {
        return wrong(r, end, "an `l` line with the log identification");
    }
    return true;
}

static int by_class_and_offset(const void *a, const void *b)
{
    const struct control_rcpt *const *x = a, *const *y = b;

    if ((*x)->class != (*y)->class) {
        return (*x)->class < (*y)->class ? -1 : 1;
    }
    return (*x)->offset < (*y)->offset ? -1 : 1;
}

/* Sets `open`. Alternatives of a class are tried one at a time: the first that has not failed, or
 * none if one of the class is done. */
static void decide_open(struct control_file *f)
{
    const struct control_rcpt **alternatives = mem_array(f->rcpt_count + 1, sizeof *alternatives);
    size_t count = 0;

    for (size_t i = 0; i < f->rcpt_count; i++) {
        f->rcpts[i].open = f->rcpts[i].tag == ' ' || f->rcpts[i].tag == '~';
        if (f->rcpts[i].alternative) {
            alternatives[count++] = &f->rcpts[i];
        }
    }
    qsort(alternatives, count, sizeof *alternatives, by_class_and_offset);
    for (size_t i = 0, end; i < count; i = end) {
        bool taken = false;

        for (end = i; end < count && alternatives[end]->class == alternatives[i]->class; end++) {
            taken = taken || alternatives[end]->tag == '+';
        }
        for (size_t j = i; j < end; j++) {
            struct control_rcpt *r = &f->rcpts[alternatives[j] - f->rcpts];

            r->open = r->open && !taken;
            taken = taken || r->open;
        }
    }
    mem_free(alternatives);
}

static bool is_whole(const struct reader *r)
{
    const struct control_file *f = r->file;

    for (size_t i = 0; i < f->group_count; i++) {
        if (f->groups[i].headers_at == CONTROL_NONE) {
            return false;
        }
    }
    return f->group_count > 0 && !r->block_is_open && !r->block_is_odd;
}

bool control_file_parse(struct slice bytes, struct control_file *ret_file,
                        struct control_problem *ret_problem)
{
    struct reader r = {
        .bytes = bytes, .file = ret_file, .problem = ret_problem, .error_to = {"", 0}};
    bool ok = true;

    *ret_file = (struct control_file){
        .name = {"", 0},
        .log_id = {"", 0},
        .verbose = {"", 0},
        .obsoletes = {"", 0},
        .etrn = {"", 0},
        .error_to = {"", 0},
        .envid = {"", 0},
    };
    if (bytes.len > CONTROL_FILE_MAX) {
        ok = wrong(&r, bytes.ptr + CONTROL_FILE_MAX, "at most 1 GiB");
    }
    while (ok && r.at < bytes.len) {
        ok = read_line(&r);
    }
    ok = ok && check_whole(&r);
    if (ok) {
        decide_error_to(&r);
        decide_open(ret_file);
        ret_file->is_whole = is_whole(&r);
    } else {
        control_file_fini(ret_file);
    }
    return ok;
}

void control_file_fini(struct control_file *f)
{
    mem_free(f->groups);
    mem_free(f->rcpts);
    mem_free(f->diagnostics);
    *f = (struct control_file){0};
}

/* ---- recipients ----------------------------------------------------------------------------- */

const struct control_rcpt *control_file_find(const struct control_file *f, uint64_t offset)
{
    size_t low = 0, high = f->rcpt_count; /* in the order of their offsets */

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (f->rcpts[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < f->rcpt_count && f->rcpts[low].offset == offset ? &f->rcpts[low] : NULL;
}

struct slice control_dsn_word(struct slice dsn, struct slice name)
{
    while (dsn.ptr != NULL) {
        struct slice value = slice_cut(&dsn, ' '), word = slice_cut(&value, '=');

        if (value.ptr != NULL && slice_equal_nocase(word, name)) {
            return value;
        }
    }
    return SLICE("");
}

unsigned control_notify(struct slice dsn)
{
    static const struct {
        const char *word;
        unsigned wish;
    } wishes[] = {
        {"NEVER", NOTIFY_NEVER},
        {"SUCCESS", NOTIFY_SUCCESS},
        {"FAILURE", NOTIFY_FAILURE},
        {"DELAY", NOTIFY_DELAY},
    };
    struct slice words = control_dsn_word(dsn, SLICE("NOTIFY"));
    unsigned notify = NOTIFY_DEFAULT;

    while (words.ptr != NULL) {
        struct slice word = slice_cut(&words, ',');

        for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
            if (slice_equal_nocase(word, slice_string(wishes[i].word))) {
                notify |= wishes[i].wish;
            }
        }
    }
    return notify;
}

struct slice control_host_key(struct slice host)
{
    size_t at = 0;

    while (at < host.len && host.ptr[at] == '(') {
        at++;
    }
    if (at == 0) {
        return host;
    }
    while (at < host.len && memchr(" \t()", host.ptr[at], 4) == NULL) {
        at++;
    }
    return slice_of(host.ptr, at);
}

size_t control_mark(const struct control_rcpt *r, char tag, int64_t pid,
                    char ret_bytes[CONTROL_MARK_MAX])
{
    CHECK(memchr(" ~+-", tag, 4) != NULL);
    ret_bytes[0] = tag;
    if (!r->has_lock) {
        return tag == '~' ? 0 : 1;
    }
    if (tag == '~') {
        if (pid <= 0 || pid > PID_LETTERS_MAX) {
            return 0;
        }
        put_holder(pid, ret_bytes + 1);
    } else {
        memset(ret_bytes + 1, ' ', CONTROL_COLUMN_PID);
    }
    return CONTROL_MARK_MAX;
}

static void put_offset(struct buf *out, uint64_t offset)
{
    if (offset == CONTROL_NONE) {
        (void)buf_add_string(out, "-1");
    } else {
        (void)buf_addf(out, "%" PRIu64, offset);
    }
}

static void put_text(struct buf *out, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        (void)buf_add_byte(out, c == '\n' ? '\r' : c == '\t' || c == '\0' ? ' ' : c);
    }
}

void control_put_diagnostic(struct buf *out, const struct control_diagnostic *d)
{
    (void)buf_addf(out, "d%c%" PRIu64 ":", d->tag, d->rcpt);
    put_offset(out, d->headers_at);
    (void)buf_add_byte(out, ':');
    put_offset(out, d->dsn_at);
    (void)buf_addf(out, "::%" PRId64 "\t", d->time_s);
    put_text(out, d->notary);
    (void)buf_add_byte(out, '\t');
    put_text(out, d->text);
    (void)buf_add_byte(out, '\n');
}

/* ---- names ---------------------------------------------------------------------------------- */

bool control_spool_number(struct slice name, uint64_t *ret_number)
{
    size_t digits = 0;
    unsigned long long n;

    while (digits < name.len && ascii_is_digit(name.ptr[digits])) {
        digits++;
    }
    if (!slice_number(slice_of(name.ptr, digits), UINT64_MAX, &n)) {
        return false;
    }
    *ret_number = n;
    return true;
}

void control_hash_directory(uint64_t number, unsigned levels, char ret_path[5])
{
    CHECK(levels <= 2);
    if (levels == 2) {
        *ret_path++ = (char)('A' + number / 26 % 26);
        *ret_path++ = '/';
    }
    if (levels >= 1) {
        *ret_path++ = (char)('A' + number % 26);
        *ret_path++ = '/';
    }
    *ret_path = '\0';
}

void control_spoolid(uint64_t number, int64_t mtime_s, uint32_t mtime_ns,
                     char ret_text[CONTROL_SPOOLID_MAX])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123abcdefghijklmnopqrstuvwxyz4567890-=";
    time_t seconds = (time_t)mtime_s;
    struct tm utc = {0};
    unsigned year;
    int len;

    CHECK(mtime_ns < 1000000000);
    if (gmtime_r(&seconds, &utc) == NULL || utc.tm_year < -1900) {
        utc = (struct tm){.tm_mday = 1}; /* a clock with such an error is useless */
    }
    year = (unsigned)(utc.tm_year + 1900);
    len = snprintf(ret_text, CONTROL_SPOOLID_MAX, "S%" PRIu64 "%c%c%c%c%c%c%c%c", number,
                   letters[year >> 12 & 63], letters[year >> 6 & 63], letters[year & 63],
                   letters[utc.tm_mon & 63], letters[(utc.tm_mday - 1) & 63],
                   letters[utc.tm_hour & 63], letters[utc.tm_min & 63], letters[utc.tm_sec & 63]);
    for (int shift = 24; mtime_ns != 0 && shift >= 0; shift -= 6) {
        ret_text[len++] = letters[mtime_ns >> shift & 63];
    }
    ret_text[len] = '\0';
}
