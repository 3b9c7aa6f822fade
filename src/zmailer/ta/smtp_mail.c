#include "smtp_mail.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "check.h"
#include "envelope.h"
#include "lines.h"
#include "mem.h"
#include "mail_file.h"

#define OUT_MAX       (2 * TA_JOB_PIECE_MAX)
#define TEXTS_PER_MAX (ADDRESS_MAX + 1) /* bytes of an address in `texts` */

static const struct ta_job_result no_address = {
    .outcome = TA_JOB_FAILED,
    .status = {"5.1.3 (bad destination mailbox address syntax)", 46},
    .diagnostic = {"smtp; 553 (bad destination mailbox address syntax)", 50},
    .remote = {"", 0},
    .text = {"bad destination mailbox address syntax", 38},
};

static const struct ta_job_result no_sender = {
    .outcome = TA_JOB_FAILED,
    .status = {"5.1.7 (bad sender mailbox address syntax)", 41},
    .diagnostic = {"smtp; 553 (bad sender mailbox address syntax)", 45},
    .remote = {"", 0},
    .text = {"bad sender mailbox address syntax", 33},
};

static const struct ta_job_result no_host = {
    .outcome = TA_JOB_FAILED,
    .status = {"5.1.2 (bad destination host name syntax)", 40},
    .diagnostic = {"smtp; 550 (bad destination host name syntax)", 44},
    .remote = {"", 0},
    .text = {"bad destination host name syntax", 32},
};

/* ---- content -------------------------------------------------------------------------------- */

static bool has_8bit(struct slice piece)
{
    bool found = false;

    for (size_t i = 0; i < piece.len; i++) {
        found = found || (unsigned char)piece.ptr[i] >= 0x80;
    }
    return found;
}

static int write_content(int fd, struct ta_content *content, bool *ret_8bit)
{
    struct wirelines w;
    struct slice piece;
    struct buf out;
    int rc = 0, more;

    wirelines_init(&w);
    buf_init(&out, OUT_MAX);
    while (rc == 0 && (more = ta_content_read(content, &piece)) != 0) {
        rc = more < 0 ? more : 0;
        while (rc == 0 && piece.len > 0) {
            size_t len = piece.len < TA_JOB_PIECE_MAX ? piece.len : TA_JOB_PIECE_MAX;

            *ret_8bit = *ret_8bit || has_8bit(slice_of(piece.ptr, len));
            wirelines_add(&w, slice_of(piece.ptr, len), &out); /* fits */
            piece = slice_skip(piece, len);
            rc = mail_file_flush(fd, &out);
        }
    }
    if (rc == 0) {
        wirelines_end(&w, &out);
        rc = mail_file_flush(fd, &out);
    }
    buf_fini(&out);
    return rc;
}

/* Makes a memory file with the content for recipient `i`. Returns 0 or negative errno. */
static int make_content(struct smtp_mail *mail, const struct ta_job *job, size_t i)
{
    struct ta_content *content = mem_new(sizeof *content);
    struct stat st;
    bool is_8bit = false;
    int rc;

    ta_content_init(content, job, i);
    mail->content = memfd_create("message", MFD_CLOEXEC);
    rc = mail->content < 0 ? -errno : write_content(mail->content, content, &is_8bit);
    if (rc == 0 && fstat(mail->content, &st) != 0) {
        rc = -errno;
    }
    if (rc == 0) {
        mail->ask.size = (uint64_t)st.st_size;
        mail->ask.flags |= is_8bit ? (unsigned)ENVELOPE_8BIT : 0;
    }
    mem_free(content);
    return rc;
}

/* ---- addresses ------------------------------------------------------------------------------ */

/* Appends the stored form of an address to `texts`. Returns a slice with ptr NULL if the word is no
 * address. */
static struct slice take_address(struct smtp_mail *mail, struct slice word, bool *ret_utf8)
{
    size_t before = buf_len(&mail->texts);
    struct address address;

    if (address_parse(word, ADDRESS_UTF8 | ADDRESS_NO_DOMAIN, &address) != ADDRESS_OK ||
        !address_print(&address, &mail->texts)) {
        buf_truncate(&mail->texts, before);
        return slice_of(NULL, 0);
    }
    word = slice_skip(buf_slice(&mail->texts), before);
    *ret_utf8 = *ret_utf8 || !address_is_ascii(word);
    return word;
}

/* Returns the value if it may follow a `=` of MAIL or RCPT, otherwise an empty slice. */
static struct slice take_value(struct slice value, size_t max)
{
    if (value.len > max) {
        return slice_of("", 0);
    }
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] <= ' ' || value.ptr[i] > '~') {
            return slice_of("", 0);
        }
    }
    return value;
}

/* Does it contain only names and address literals, one or a list? Nothing else would be safe in a
 * transport's next hops. */
static bool host_valid(struct slice host)
{
    bool literal = slice_starts(host, SLICE("["));

    for (size_t i = 0; i < host.len; i++) {
        char c = host.ptr[i];

        if (!ascii_is_alnum(c) && memchr(".-_[]() \t", c, 9) == NULL && !(literal && c == ':')) {
            return false;
        }
    }
    return host.len > 0 && ta_job_word(host).len > 0;
}

static void take_rcpts(struct smtp_mail *mail, struct ta_job *job, size_t first, size_t end,
                       bool *ret_utf8)
{
    uint32_t count = 0;

    for (size_t i = first; i < end; i++) {
        const struct control_rcpt *r = job->rcpts[i].rcpt;
        struct slice address = take_address(mail, r->address.user, ret_utf8);

        if (address.ptr == NULL) {
            ta_job_settle(job, i, &no_address);
            continue;
        }
        mail->rcpts[count++] = (struct wire_deliver_rcpt){
            .n = (uint32_t)i,
            .address = address,
            .orcpt = take_value(control_dsn_word(r->dsn, SLICE("ORCPT")), DSN_ORCPT_MAX),
            .notify = control_notify(r->dsn),
        };
    }
    mail->ask.rcpts = mail->rcpts;
    mail->ask.rcpt_count = count;
}

/* ---- the mail ------------------------------------------------------------------------------- */

static void set_up(struct smtp_mail *mail, const struct smtp_options *options,
                   const struct ta_job *job, size_t rcpt_count)
{
    size_t room = (rcpt_count + 1) * TEXTS_PER_MAX + SMTP_OPTIONS_NEXTHOP_MAX;

    *mail = (struct smtp_mail){.content = -1};
    buf_init(&mail->texts, room);
    /* slices into the buffer are kept, so its memory must not move */
    CHECK(buf_room(&mail->texts, room) != NULL);
    mail->rcpts = mem_array(rcpt_count, sizeof mail->rcpts[0]);
    mail->ask = (struct wire_deliver){
        .transport = options->channel,
        .id = job->path,
        .sender = SLICE(""),
        .envid = take_value(job->control.envid, DSN_ENVID_MAX),
        .place = CONTENT_FD,
    };
    switch (job->control.ret) {
    case CONTROL_RET_UNKNOWN:
        break;
    case CONTROL_RET_FULL:
        mail->ask.flags = ENVELOPE_RET_FULL;
        break;
    case CONTROL_RET_HEADERS:
        mail->ask.flags = ENVELOPE_RET_HDRS;
        break;
    }
}

static void settle_run(struct ta_job *job, size_t first, size_t end,
                       const struct ta_job_result *result)
{
    for (size_t i = first; i < end; i++) {
        ta_job_settle(job, i, result);
    }
}

/* Fills in sender, recipients, next hop and content. Returns false if nothing is left to
 * deliver. */
static bool fill_in(struct smtp_mail *mail, const struct smtp_options *options, struct ta_job *job,
                    size_t first, size_t end)
{
    struct slice host = job->rcpts[first].rcpt->address.host, sender = ta_job_sender(job, first);
    bool utf8 = false;
    size_t before;
    int rc;

    if (sender.len > 0) {
        mail->ask.sender = take_address(mail, sender, &utf8);
        if (mail->ask.sender.ptr == NULL) {
            settle_run(job, first, end, &no_sender);
            return false;
        }
    }
    if (options->force_to == NULL && !host_valid(host)) {
        settle_run(job, first, end, &no_host);
        return false;
    }
    take_rcpts(mail, job, first, end, &utf8);
    if (mail->ask.rcpt_count == 0) {
        return false;
    }
    mail->ask.flags |= utf8 ? (unsigned)ENVELOPE_SMTPUTF8 : 0;
    before = buf_len(&mail->texts);
    smtp_options_nexthop(options, host, &mail->texts);
    CHECK(!mail->texts.failed);
    mail->ask.nexthop = slice_skip(buf_slice(&mail->texts), before);
    rc = make_content(mail, job, first);
    if (rc != 0) {
        ta_agent_comment(job->agent, "%.*s: cannot prepare the message: %s", SLICE_ARGS(job->path),
                         strerror(-rc));
        job->stuck = true;
    }
    return rc == 0;
}

bool smtp_mail_next(struct smtp_mail *mail, const struct smtp_options *options, struct ta_job *job,
                    size_t *first)
{
    while (*first < job->rcpt_count && !job->stuck) {
        size_t from = *first, end = ta_job_run(job, from);

        *first = end;
        set_up(mail, options, job, end - from);
        if (fill_in(mail, options, job, from, end)) {
            return true;
        }
        smtp_mail_fini(mail);
    }
    return false;
}

void smtp_mail_fini(struct smtp_mail *mail)
{
    if (mail->content >= 0) {
        (void)close(mail->content); /* a memory file */
    }
    mem_free(mail->rcpts);
    buf_fini(&mail->texts);
    *mail = (struct smtp_mail){.content = -1};
}
