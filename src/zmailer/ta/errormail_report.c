#include "errormail_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "entropy.h"
#include "envelope.h"
#include "lines.h"
#include "mem.h"
#include "report.h"
#include "ta_local.h"
#include "ta_run.h"
#include "ta_submit.h"
#include "zmailer_dialect.h"
#include "zmailer_form.h"

/* Largest original in bytes that is returned whole; of a larger one the header alone is
 * returned. */
#define ORIGINAL_MAX 50000
#define WHY_MAX      2048
#define PATH_SIZE    1024
#define ID_SIZE      (CONTROL_SPOOLID_MAX + 32)

static const struct status undeliverable = {STATUS_PERMANENT, 1, 0};
static const struct status system_trouble = {STATUS_TRANSIENT, 3, 0};

/* Recipients `first` .. `end` - 1, which share one report. */
struct batch {
    struct ta_job *job;
    size_t first, end;
};

static struct slice form_of(const struct batch *b)
{
    return b->job->rcpts[b->first].rcpt->address.host;
}

static bool wants_failures(const struct control_rcpt *r)
{
    unsigned notify = control_notify(r->dsn);

    return notify == NOTIFY_DEFAULT || (notify & NOTIFY_FAILURE) != 0;
}

/* ---- forms ---------------------------------------------------------------------------------- */

static bool is_file_name(struct slice name)
{
    return name.len > 0 && name.ptr[0] != '.' && slice_find(name, '/') == name.len;
}

/* Reads a form. A missing form makes a report that names the problem to the postmaster. */
static void read_form(const struct errormail *m, struct slice name, struct report_form *form)
{
    const char *share = conf_zenv(m->zenv, SLICE("MAILSHARE"));
    char path[PATH_SIZE], bytes[REPORT_FORM_MAX];
    struct stat st;
    ssize_t got = -1;
    int len = snprintf(path, sizeof path, "%s/forms/%.*s", share, SLICE_ARGS(name)), fd = -1;

    if (is_file_name(name) && len > 0 && (size_t)len < sizeof path) {
        fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    }
    if (fd >= 0) {
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
            got = read(fd, bytes, sizeof bytes);
        }
        (void)close(fd); /* only read */
    }
    if (got < 0) {
        zmailer_layout.missing(name, form);
    } else {
        zmailer_layout.read(slice_of(bytes, (size_t)got), form);
    }
}

/* ---- the report ----------------------------------------------------------------------------- */

/* Appends the original in wire form. Returns false if it is too large to be returned whole. */
static bool read_original(const struct ta_job *job, size_t i, struct buf *out)
{
    struct ta_content *content = mem_new(sizeof *content);
    struct wirelines w;
    struct slice piece;

    wirelines_init(&w);
    ta_content_init(content, job, i);
    while (buf_len(out) < ORIGINAL_MAX && ta_content_read(content, &piece) > 0) {
        wirelines_add(&w, slice_of(piece.ptr, piece.len < ORIGINAL_MAX ? piece.len : ORIGINAL_MAX),
                      out);
    }
    wirelines_end(&w, out);
    mem_free(content);
    return buf_len(out) < ORIGINAL_MAX;
}

/* Describes the recipients whose sender wants failure reports. Returns their number. */
static size_t describe(const struct batch *b, struct slice text, struct report_rcpt *rcpts)
{
    size_t count = 0;

    for (size_t i = b->first; i < b->end; i++) {
        const struct control_rcpt *r = b->job->rcpts[i].rcpt;

        if (wants_failures(r)) {
            rcpts[count++] = (struct report_rcpt){
                .address = r->address.user,
                .orcpt = control_dsn_word(r->dsn, SLICE("ORCPT")),
                .action = REPORT_FAILED,
                .status = undeliverable,
                .remote_mta = SLICE(""),
                .diagnostic = SLICE(""),
                .text = text,
                .status_words = SLICE(""),
                .remote_type = SLICE(""),
                .diagnostic_type = SLICE(""),
                .agent = SLICE(""),
                .control = SLICE(""),
            };
        }
    }
    return count;
}

static int zone_minutes(struct wall now)
{
    time_t seconds = (time_t)us_seconds(now.us);
    struct tm local;

    return localtime_r(&seconds, &local) == NULL ? 0 : (int)(local.tm_gmtoff / 60);
}

struct text_source {
    struct slice rest;
};

static int read_text(void *arg, struct slice *ret_piece)
{
    struct text_source *s = arg;

    *ret_piece = s->rest;
    s->rest.len = 0;
    return ret_piece->len > 0;
}

static int submit(const struct errormail *m, const struct ta_job *job,
                  const struct report_form *form, struct slice text, char *spoolid, struct buf *why)
{
    struct text_source source = {text};
    struct ta_submit_rcpt rcpts[1 + REPORT_FORM_COPIES_MAX];
    struct ta_submission s = {.zenv = m->zenv,
                              .envelope = {.program = "errormail",
                                           .host = m->host,
                                           .sender = SLICE(""),
                                           .envid = SLICE("")},
                              .rcpts = rcpts,
                              .rcpt_count = 1,
                              .read = read_text,
                              .arg = &source};

    rcpts[0] = (struct ta_submit_rcpt){job->control.error_to, SLICE("NOTIFY=NEVER")};
    for (size_t i = 0; i < form->copy_count; i++) {
        rcpts[s.rcpt_count++] =
            (struct ta_submit_rcpt){slice_string(form->copies[i]), SLICE("NOTIFY=NEVER")};
    }
    return ta_submit(&s, spoolid, why);
}

/* Makes and submits the report. Returns 0 with the report's id in `spoolid` (empty: no report is
 * wanted), or negative errno with the reason in *why. */
static int make_report(const struct errormail *m, const struct batch *b, char *spoolid,
                       struct buf *why)
{
    const struct ta_job *job = b->job;
    struct report_rcpt *rcpts = mem_array(b->end - b->first, sizeof rcpts[0]);
    struct slice form_name = form_of(b);
    struct report r = {
        .kind = REPORT_FAILURE,
        .reporting_mta = slice_string(m->host),
        .queue_id = slice_string(job->spoolid),
        .envid = job->control.envid,
        .arrival = job->arrived,
        .sender = job->control.error_to,
        .now = ta_run_now(),
        .rcpts = rcpts,
    };
    struct report_form form;
    struct buf original, text, reason;
    char id[ID_SIZE];
    unsigned flags;
    int rc = 0;

    spoolid[0] = '\0';
    buf_init(&original, 3 * ORIGINAL_MAX + 2);
    buf_init(&reason, WHY_MAX);
    (void)buf_addf(&reason, "the address can't be delivered to (%.*s)", SLICE_ARGS(form_name));
    (void)snprintf(id, sizeof id, "%s/%lld", job->spoolid, (long long)us_seconds(r.now.us));
    read_form(m, form_name, &form);
    r.form = &form;
    r.message_id = slice_string(id);
    r.utc_offset_minutes = zone_minutes(r.now);
    r.seed = entropy_u64();
    r.rcpt_count = describe(b, buf_slice(&reason), rcpts);
    r.headers_only =
        !read_original(job, b->first, &original) || job->control.ret == CONTROL_RET_HEADERS;
    r.original = buf_slice(&original);
    buf_init(&text, REPORT_FRAME_MAX + r.rcpt_count * REPORT_PER_RCPT_MAX + buf_len(&original));
    if (r.rcpt_count > 0 && report_build(&r, &text, &flags)) {
        rc = submit(m, job, &form, buf_slice(&text), spoolid, why);
    } else if (r.rcpt_count > 0) {
        rc = -EMSGSIZE;
        (void)buf_add_string(why, "the report does not fit");
    }
    buf_fini(&text);
    report_form_fini(&form);
    buf_fini(&reason);
    buf_fini(&original);
    mem_free(rcpts);
    return rc;
}

static void settle(const struct batch *b, int rc, struct slice text)
{
    struct ta_job_result reported = {
        .outcome = TA_JOB_DELIVERED,
        .status = SLICE("2.0.0"),
        .diagnostic = SLICE("x-local; 250 (reported)"),
        .remote = SLICE(""),
        .text = text,
    };

    for (size_t i = b->first; i < b->end; i++) {
        if (rc == 0) {
            ta_job_settle(b->job, i, &reported);
        } else {
            ta_local_settle(b->job, i, system_trouble, text);
        }
    }
}

/* Mail that is itself a report gets no report, which prevents loops. */
void errormail_report(const struct errormail *m, struct ta_job *job, size_t first, size_t end)
{
    bool is_report = job->control.is_bounce || job->control.error_to.len == 0 ||
                     slice_equal(job->control.error_to, SLICE("<>"));
    struct batch batch = {.job = job, .first = first, .end = end};
    char spoolid[CONTROL_SPOOLID_MAX] = "";
    struct buf why;
    int rc;

    CHECK(first < end && end - first <= REPORT_RCPTS_MAX);
    buf_init(&why, WHY_MAX);
    rc = is_report ? 0 : make_report(m, &batch, spoolid, &why);
    if (rc == 0) {
        (void)buf_add_string(&why,
                             spoolid[0] == '\0' ? "no bounce is sent for this mail" : spoolid);
    }
    settle(&batch, rc, buf_slice(&why));
    buf_fini(&why);
}
