/*
 * Bounces, delay notices and success notices of the queue process: their recipients, their time and
 * their form. Code calls all three reports.
 *
 * A report joins the open batch together with the mark that it was made, so a crash leaves both or
 * neither. A store that can't promise this makes the report first.
 *
 * There are two traditions. Ours is Postfix's: one report for failures, another for successes; a
 * report on mail of the null sender goes to notify_double_bounce. Mail that another system's router
 * wrote gets one report for all results of a message, in the registered layout, which follows a
 * form. A report that has no sender to go to goes to the form's own recipients. With report_form
 * that layout is used for all mail.
 */
#include "queue_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "header.h"
#include "log.h"
#include "mail_class.h"
#include "mem.h"
#include "observer.h"
#include "pass_end.h"
#include "queue.h"
#include "printable.h"
#include "report.h"
#include "report_draft.h"
#include "spool_division.h"
#include "spool_verbose.h"
#include "value.h"
#include "xtext.h"

/* Recipients read from the spool in one call. */
#define READ_PAGE 500
/* Bytes of the original that are read for a report; it never returns more. */
#define REPORT_ORIGINAL_MAX (4u << 20)

/* Reason for which a report without a recipient is kept; the name of its file may end with it. */
#define ERROR_ON_ERROR "error-on-error"

static const struct report_layout *layout;

void report_layout_register(const struct report_layout *that)
{
    CHECK(layout == NULL || layout == that);
    layout = that;
}

/* ---- lines ---------------------------------------------------------------------------------- */

void report_line(struct queue *q, const char *format, ...)
{
    struct buf text;
    va_list args;

    buf_init(&text, LOG_LINE_MAX);
    va_start(args, format);
    (void)buf_addv(&text, format, args);
    va_end(args);
    if (!text.failed) { /* ids and numbers: never that long */
        log_info("%s", buf_cstr(&text));
        observer_line(q, buf_cstr(&text));
    }
    buf_fini(&text);
}

void report_completed(struct queue *q, struct slice line)
{
    q->counts.completed++;
    report_line(q, "%.*s", SLICE_ARGS(line));
}

void report_verbose(struct queue *q, struct msg_id id, const char *format, ...)
{
    struct buf text;
    va_list args;

    if (!spool_divides(q->spool)) {
        return; /* only control files have this option */
    }
    buf_init(&text, LOG_LINE_MAX);
    va_start(args, format);
    (void)buf_addv(&text, format, args);
    va_end(args);
    if (!text.failed) {
        spool_verbose(q->spool, id, buf_slice(&text));
    }
    buf_fini(&text);
}

const char *queue_message_name(const struct spool_message *m, char room[QUEUE_NAME_MAX])
{
    if (m->spoolid.len > 0) {
        (void)snprintf(room, QUEUE_NAME_MAX, "%.*s",
                       SLICE_ARGS(m->spoolid)); /* cut: no spool has such names */
    } else {
        spool_id_print(spool_whole(m), room);
    }
    return room;
}

/* ---- parts of a report ---------------------------------------------------------------------- */

/* Did another mail system's router write the message? Its users expect that system's reports. */
static bool is_foreign(const struct spool_message *m)
{
    return m->spoolid.len > 0;
}

/* Reads the original, as far as a report may return it. */
static int read_original(struct queue *q, struct msg_id id, struct buf *bytes)
{
    uint64_t size;
    int fd, rc = spool_read_content(q->spool, id, bytes, &fd, &size);

    if (rc != 0 || fd < 0) {
        return rc;
    }
    while (buf_len(bytes) < REPORT_ORIGINAL_MAX && !bytes->failed) {
        char *room = buf_room(bytes, 65536);
        ssize_t n = room == NULL ? -1 : pread(fd, room, 65536, (off_t)buf_len(bytes));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            rc = n < 0 && room != NULL ? -errno : 0;
            break;
        }
        buf_grew(bytes, (size_t)n);
    }
    (void)close(fd); /* read only */
    return rc;
}

static bool class_wanted(const struct conf *conf, const char *class)
{
    for (size_t i = 0; i < conf->notify_classes.count; i++) {
        if (strcasecmp(conf->notify_classes.items[i], class) == 0) {
            return true;
        }
    }
    return false;
}

/* Do reports on this message follow a form? */
static bool follows_form(const struct queue *q, const struct spool_message *m)
{
    return layout != NULL && (is_foreign(m) || q->conf->report_form[0] != '\0');
}

/* Reads the form. Returns false if reports on this message follow none. */
static bool use_form(struct queue *q, const struct spool_message *m, struct report_form *form)
{
    struct slice file = slice_string(q->conf->report_form), bytes;

    *form = (struct report_form){.copy_count = 0};
    if (!follows_form(q, m)) {
        return false;
    }
    bytes = file.len > 0 ? role_file(q->role, file) : slice_of(NULL, 0);
    if (file.len == 0) {
        layout->builtin(form);
    } else if (bytes.ptr != NULL) {
        layout->read(bytes, form);
    } else {
        layout->missing(file, form);
    }
    return true;
}

/* Does the report return only the header? RET applies to failures only (RFC 3461, 4.3). */
static bool headers_only(const struct queue *q, const struct spool_message *m,
                         const struct report *r)
{
    unsigned ret = m->flags & (ENVELOPE_RET_FULL | ENVELOPE_RET_HDRS);

    if (r->kind != REPORT_FAILURE || r->postmaster_copy ||
        m->size > (uint64_t)q->conf->bounce_size_limit) {
        return true;
    }
    if (r->double_fault) {
        return false;
    }
    return ret == ENVELOPE_RET_HDRS ||
           (ret == 0 && q->conf->report_return == CONF_REPORT_RETURN_HEADERS);
}

/* ---- recipients of a report ----------------------------------------------------------------- */

#define READERS_MAX (1 + REPORT_FORM_COPIES_MAX)

struct readers {
    char *at[READERS_MAX]; /* owned */
    size_t count;
    char *sender;     /* sender of the report; owned */
    bool is_double;   /* the original was a report, or its sender must get none */
    bool is_copy;     /* copy of the sender's report for the postmaster */
    const char *keep; /* reason to keep the report instead of sending it, or NULL */
};

static void add_reader(struct queue *q, struct readers *to, const char *address, bool qualify)
{
    struct buf full;

    buf_init(&full, (size_t)2 * ADDRESS_MAX + 512);
    (void)buf_addf(&full, "%.*s", ADDRESS_MAX, address);
    if (qualify && strchr(address, '@') == NULL) {
        (void)buf_addf(&full, "@%.500s", q->conf->myorigin);
    }
    to->at[to->count++] = buf_take(&full);
}

static void readers_fini(struct readers *to)
{
    for (size_t i = 0; i < to->count; i++) {
        mem_free(to->at[i]);
    }
    mem_free(to->sender);
}

static char *double_bounce_sender(const struct queue *q)
{
    struct buf address;

    buf_init(&address, 4096);
    (void)buf_addf(&address, "%.500s@%.500s", q->conf->double_bounce_sender, q->conf->myorigin);
    return buf_take(&address);
}

/* Chooses the recipients in Postfix's way. */
static void choose_readers(struct queue *q, const struct spool_message *m, enum report_kind kind,
                           struct readers *to)
{
    const struct conf *conf = q->conf;
    char *double_sender = double_bounce_sender(q);

    if (m->sender.len > 0 && !slice_equal_nocase(m->sender, slice_string(double_sender))) {
        char *sender = mem_copy(m->sender.ptr, m->sender.len);

        add_reader(q, to, sender, false);
        to->sender = mem_string("");
        mem_free(sender);
    } else {
        to->is_double = true;
        to->sender = mem_string(double_sender);
        if (m->sender.len == 0 && kind == REPORT_FAILURE && conf->notify_double_bounce[0] != '\0' &&
            (class_wanted(conf, "2bounce") || class_wanted(conf, "bounce"))) {
            add_reader(q, to, conf->notify_double_bounce, true);
        } else if (m->sender.len == 0 && kind == REPORT_FAILURE && conf->store_error_on_error) {
            add_reader(q, to, "postmaster", true);
            to->keep = ERROR_ON_ERROR;
        }
    }
    mem_free(double_sender);
}

/* Chooses the postmaster for a copy of the sender's report. Returns false if no copy of this kind
 * is wanted. */
static bool choose_postmaster(struct queue *q, enum report_kind kind, struct readers *to)
{
    const struct conf *conf = q->conf;
    const char *address = kind == REPORT_FAILURE ? conf->bounce_notice_recipient
                          : kind == REPORT_DELAY ? conf->delay_notice_recipient
                                                 : "";

    if (address[0] == '\0' || !class_wanted(conf, kind == REPORT_FAILURE ? "bounce" : "delay")) {
        return false;
    }
    add_reader(q, to, address, true);
    to->sender = double_bounce_sender(q);
    to->is_double = to->is_copy = true;
    return true;
}

/* Chooses the recipients for mail of another system's router. Their addresses are not completed, as
 * the report goes to that router. */
static void choose_foreign_readers(struct queue *q, const struct spool_message *m,
                                   const struct report_form *form, struct readers *to)
{
    to->sender = mem_string("");
    to->is_double = (m->flags & ENVELOPE_REPORT) != 0;
    if (!to->is_double) {
        char *sender = mem_copy(m->sender.ptr, m->sender.len);

        add_reader(q, to, envelope_is_mailbox(m->sender) ? sender : "postmaster", false);
        mem_free(sender);
    }
    for (size_t i = 0; i < form->copy_count; i++) {
        add_reader(q, to, form->copies[i], false);
    }
    if (to->count == 0 && q->conf->store_error_on_error) {
        add_reader(q, to, "postmaster", false);
        to->keep = ERROR_ON_ERROR;
    }
}

/* ---- submission of a report ----------------------------------------------------------------- */

/* Returns "rfc822;ADDRESS" in xtext, so that notices about the report name its address. */
static char *orcpt_of(const char *address)
{
    struct buf text;

    buf_init(&text, (size_t)3 * ADDRESS_MAX + 16);
    (void)buf_add_string(&text, "rfc822;");
    (void)xtext_encode(slice_string(address), &text);
    if (text.failed || buf_len(&text) > DSN_ORCPT_MAX) {
        buf_fini(&text);
        return mem_string("");
    }
    return buf_take(&text);
}

/* Must the report pass the filters before it is sent? `is_notice`: it is for the postmaster
 * only. */
static bool is_filtered(const struct queue *q, bool is_notice)
{
    const struct conf *conf = q->conf;

    if (conf->non_smtpd_milters[0] == '\0' || conf_spool_routes(conf)) {
        return false;
    }
    for (size_t i = 0; i < conf->internal_mail_filter_classes.count; i++) {
        if (strcasecmp(conf->internal_mail_filter_classes.items[i],
                       is_notice ? "notify" : "bounce") == 0) {
            return true;
        }
    }
    return false;
}

/* Stores the report in the open batch. If filters must see it, its recipients are routed to them;
 * the message that returns from there is routed like all mail. */
static int submit(struct queue *q, const struct spool_message *m, const struct readers *to,
                  unsigned flags, struct slice text, struct msg_id *ret_id)
{
    struct spool_message message = {.sender = slice_string(to->sender),
                                    .flags = flags,
                                    .arrived = clock_wall(),
                                    .created = clock_wall(),
                                    .due = clock_wall(),
                                    .client = SLICE("local report")};
    const struct spool_content content = {.bytes = text, .fd = -1};
    struct spool_rcpt rcpts[READERS_MAX];
    char class_room[CLASS_NAME_MAX], *orcpts[READERS_MAX];
    struct route *routes = mem_array(to->count, sizeof *routes);
    struct classified class;
    bool filtered;
    int rc;

    filtered = to->keep == NULL && !is_foreign(m) && is_filtered(q, to->is_double);
    class = class_of_report(q->conf, message.sender, class_room);
    message.class_name = class.name;
    message.class_source = class.source;
    for (size_t i = 0; i < to->count; i++) {
        struct slice address = slice_string(to->at[i]);

        route_address(q->conf, message.sender, address, &routes[i]);
        orcpts[i] = is_foreign(m) ? orcpt_of(to->at[i]) : mem_string("");
        rcpts[i] = (struct spool_rcpt){
            .address = address,
            .orcpt = slice_string(orcpts[i]),
            .notify = NOTIFY_NEVER,
            .transport = filtered ? SLICE("milter") : slice_string(routes[i].transport),
            .nexthop = filtered ? WIRE_MILTER_REPORTS : slice_string(routes[i].nexthop),
            .route_generation = filtered ? SPOOL_ROUTE_FIXED : queue_route_generation(q)};
    }
    message.report_due = pass_report_due(q->conf, &message);
    rc = spool_submit(q->spool, &message, rcpts, (uint32_t)to->count, slice_of("", 0), &content,
                      false, slice_string(to->keep), ret_id);
    for (size_t i = 0; i < to->count; i++) {
        mem_free(orcpts[i]);
    }
    mem_free(routes);
    return rc;
}

static void log_report(struct queue *q, const struct spool_message *m, const struct readers *to,
                       enum report_kind kind, struct msg_id new_id)
{
    static const char *const kinds[] = {[REPORT_FAILURE] = "non-delivery",
                                        [REPORT_DELAY] = "delay",
                                        [REPORT_SUCCESS] = "delivery status"};
    struct slice submitted = spool_submitted_name(q->spool);
    char name[QUEUE_NAME_MAX], new_text[QUEUE_NAME_MAX];

    if (submitted.len > 0) {
        (void)snprintf(new_text, sizeof new_text, "%.*s", SLICE_ARGS(submitted)); /* may be cut */
    } else {
        spool_id_print(new_id, new_text);
    }
    journal_report_sent(q, queue_message_name(m, name), m, new_id, slice_string(to->at[0]),
                        kinds[kind]);
    if (to->keep != NULL) {
        log_warning("%s: undeliverable, and no one can get the report: it is kept as %s",
                    queue_message_name(m, name), new_text);
    } else if (is_foreign(m)) {
        report_line(q, "%s: Created 'delivery' report on spoolid: %s", queue_message_name(m, name),
                    new_text);
    } else {
        log_as("bounce", log_pid(), "%s: %s %s notification: %s", queue_message_name(m, name),
               to->is_double ? "postmaster" : "sender", kinds[kind], new_text);
    }
}

/* Writes the report on the draft's recipients and stores it for its readers. */
static int write_report(struct queue *q, const struct spool_message *m, enum report_kind kind,
                        const struct report_draft *d, const struct report_form *form,
                        const struct readers *to)
{
    char name[QUEUE_NAME_MAX], message_id[QUEUE_NAME_MAX + 20];
    struct report r = {
        .kind = kind,
        .reporting_mta = slice_string(is_foreign(m) ? q->conf->myorigin : q->conf->myhostname),
        .queue_id = slice_string(queue_message_name(m, name)),
        .envid = m->envid,
        .arrival = m->arrived,
        .sender = slice_string(to->at[0]),
        .double_fault = form != NULL && to->is_double && is_foreign(m),
        .form = form,
        .postmaster_copy = to->is_copy,
        .now = clock_wall(),
        .seed = entropy_u64(),
        .rcpts = d->rcpts,
        .rcpt_count = d->count,
    };
    struct buf original, text;
    struct msg_id new_id;
    unsigned flags;
    int rc;

    buf_init(&original, REPORT_ORIGINAL_MAX + 65536);
    buf_init(&text, REPORT_ORIGINAL_MAX + REPORT_FRAME_MAX +
                        (size_t)REPORT_RCPTS_MAX * REPORT_PER_RCPT_MAX);
    rc = read_original(q, m->id, &original);
    if (rc == -EBADMSG) {
        goto out; /* quarantined; reported when its original can be read */
    }
    if (rc != 0) {
        log_warning("%s: the report goes without the original: %s", name, spool_error(q->spool));
        buf_clear(&original);
    }
    /* A message may have several reports, so the id has a random part. */
    (void)snprintf(message_id, sizeof message_id, "%s.%016" PRIx64, name, entropy_u64()); /* fits */
    r.message_id = slice_string(message_id);
    r.utc_offset_minutes = clock_zone(r.now) / 60;
    r.original = buf_slice(&original);
    r.headers_only = headers_only(q, m, &r);
    if (report_build(&r, &text, &flags)) {
        rc = submit(q, m, to, flags, buf_slice(&text), &new_id);
        if (rc == 0) {
            import_new_mail(&q->import);
            q->counts.reports++;
            log_report(q, m, to, kind, new_id);
        }
    } else {
        log_error("%s: the report is too large", name);
        rc = 0;
    }
out:
    buf_fini(&original);
    buf_fini(&text);
    return rc;
}

static enum report_kind kind_of(const struct report_draft *d)
{
    enum report_kind kind = REPORT_SUCCESS;

    for (size_t i = 0; i < d->count && kind != REPORT_FAILURE; i++) {
        kind = d->rcpts[i].action == REPORT_FAILED    ? REPORT_FAILURE
               : d->rcpts[i].action == REPORT_DELAYED ? REPORT_DELAY
                                                      : kind;
    }
    return kind;
}

/* Reports to the sender, the postmaster, both or none. */
static int send_report(struct queue *q, const struct spool_message *m, const struct report_draft *d)
{
    struct readers to = {.count = 0}, postmaster = {.count = 0};
    enum report_kind kind = kind_of(d);
    struct report_form form;
    bool has_form = use_form(q, m, &form);
    char name[QUEUE_NAME_MAX];
    int rc = 0;

    if (is_foreign(m)) {
        choose_foreign_readers(q, m, &form, &to);
    } else {
        choose_readers(q, m, kind, &to);
        for (size_t i = 0; has_form && to.count > 0 && i < form.copy_count; i++) {
            add_reader(q, &to, form.copies[i], true);
        }
    }
    if (to.count > 0) {
        rc = write_report(q, m, kind, d, has_form ? &form : NULL, &to);
    } else if (kind == REPORT_FAILURE) {
        log_warning("%s: undeliverable, and no one can get the report: dropped",
                    queue_message_name(m, name));
    }
    if (rc == 0 && to.count > 0 && !to.is_double && !is_foreign(m) &&
        choose_postmaster(q, kind, &postmaster)) {
        rc = write_report(q, m, kind, d, has_form ? &form : NULL, &postmaster);
    }
    readers_fini(&to);
    readers_fini(&postmaster);
    if (has_form) {
        report_form_fini(&form);
    }
    return rc;
}

/* ---- reported recipients -------------------------------------------------------------------- */

/* Sets of enum report_action. */
#define FAILURES  (1u << REPORT_FAILED)
#define DELAYS    (1u << REPORT_DELAYED)
#define SUCCESSES (1u << REPORT_DELIVERED | 1u << REPORT_RELAYED | 1u << REPORT_EXPANDED)

/* Counts of recipients with one of these actions. */
struct tally {
    uint64_t told, ignored; /* reported; not reported, since the sender wants no report */
};

/* Does the sender want a report of this action? For results of the queue process this was
 * checked before they were stored; for results that an agent wrote into a control file it is
 * checked here. */
static bool is_wanted(const struct spool_message *m, const struct spool_rcpt *r,
                      enum report_action action)
{
    bool by_default = r->notify == NOTIFY_DEFAULT;

    switch (action) {
    case REPORT_FAILED:
        return by_default || (r->notify & NOTIFY_FAILURE) != 0 ||
               (is_foreign(m) && (m->flags & ENVELOPE_REPORT) != 0);
    case REPORT_DELAYED:
        return (by_default && !is_foreign(m)) || (r->notify & NOTIFY_DELAY) != 0;
    case REPORT_DELIVERED:
    case REPORT_RELAYED:
    case REPORT_EXPANDED:
        /* for our own mail, success may end a delay of which the sender has a notice */
        return !is_foreign(m) || (r->notify & NOTIFY_SUCCESS) != 0;
    }
    UNREACHABLE("all actions are there");
}

/* Reports the recipients with these actions, in as many messages as their number needs. */
static int report_on(struct queue *q, const struct spool_message *m, unsigned actions,
                     struct wall retry_until, struct tally *tally)
{
    struct spool_rcpt page[READ_PAGE];
    struct report_draft draft = {.count = 0};
    uint32_t after = 0;
    size_t count;
    int rc;

    do {
        rc = spool_read_rcpts(q->spool, m->id, after, actions == DELAYS, READ_PAGE, page, &count);
        for (size_t i = 0; rc == 0 && i < count; i++) {
            enum report_action action = report_draft_action(&page[i]);

            after = page[i].n;
            if ((actions & 1u << action) == 0) {
                continue;
            }
            if (is_wanted(m, &page[i], action)) {
                report_draft_add(&draft, &page[i], action,
                                 action == REPORT_DELAYED ? retry_until : (struct wall){0});
                tally->told++;
            } else {
                tally->ignored++;
            }
        }
        if (rc == 0 && draft.count > 0 &&
            (count < READ_PAGE || draft.count > REPORT_RCPTS_MAX - READ_PAGE)) {
            rc = send_report(q, m, &draft);
            report_draft_fini(&draft);
        }
    } while (rc == 0 && count == READ_PAGE);
    report_draft_fini(&draft);
    return rc;
}

int report_results(struct queue *q, const struct spool_message *m)
{
    bool together = follows_form(q, m);
    bool unwanted = is_foreign(m) && m->sender.len == 0 && (m->flags & ENVELOPE_REPORT) == 0;
    struct tally tally = {.ignored = unwanted ? m->rcpt_to_report : 0};
    char name[QUEUE_NAME_MAX];
    int rc = 0;

    if (is_foreign(m) && q->conf->deliver_only[0] != '\0') {
        return spool_reported(q->spool, m->id); /* the store of its mail system has no such mark */
    }
    if (!unwanted) {
        rc = report_on(q, m, together ? FAILURES | SUCCESSES : FAILURES, (struct wall){0}, &tally);
    }
    if (rc == 0 && !together) {
        rc = report_on(q, m, SUCCESSES, (struct wall){0}, &tally);
    }
    if (rc == 0 && is_foreign(m) && tally.told == 0) {
        report_line(q, "%s: Nothing to report, ignorecount: %" PRIu64, queue_message_name(m, name),
                    tally.ignored);
    }
    return rc == 0 ? spool_reported(q->spool, m->id) : rc;
}

/* ---- delays --------------------------------------------------------------------------------- */

/* Finds the policy of the destination of the message's first recipient. Deferred recipients of such
 * a message share one destination. Returns false if none is found. */
static bool policy_of(struct queue *q, const struct spool_message *m, struct policy *ret_policy)
{
    struct spool_rcpt r;
    size_t count;

    if (!is_foreign(m) || spool_read_rcpts(q->spool, m->id, 0, true, 1, &r, &count) != 0 ||
        count == 0) {
        return false;
    }
    policy_for(q->conf, r.transport, r.nexthop, ret_policy);
    return true;
}

/* Returns the age at which warning number `n` (from 0) is due; US_FOREVER: never. */
static int64_t warning_age(const struct conf *conf, struct conf_list times, uint32_t n)
{
    int64_t us;

    if (times.count == 0) {
        return n == 0 && conf->delay_warning_time_us > 0 ? conf->delay_warning_time_us : US_FOREVER;
    }
    return n < times.count && interval_parse(slice_string(times.items[n]), US_PER_S, &us)
               ? us
               : US_FOREVER; /* checked when the configuration was read */
}

/* Is a delay notice due? A clause may have its own times, which go into *ret_times and *until. */
static bool warning_is_due(struct queue *q, const struct spool_message *m, int64_t age_us,
                           struct conf_list *ret_times, struct wall *until)
{
    struct policy policy;

    *ret_times = (struct conf_list){NULL, 0};
    if (m->sender.len == 0 || q->conf->deliver_only[0] != '\0') {
        return false;
    }
    if (policy_of(q, m, &policy)) {
        *ret_times = policy.reporttimes;
        *until = policy.expiry_us > 0 ? wall_after(m->created, policy.expiry_us) : *until;
    }
    return age_us >= warning_age(q->conf, *ret_times, m->warnings);
}

bool report_delay_is_due(struct queue *q, const struct spool_message *m, int64_t age_us)
{
    struct conf_list times;
    struct wall until = WALL_NEVER;

    return warning_is_due(q, m, age_us, &times, &until);
}

int report_delay(struct queue *q, const struct spool_message *m, int64_t age_us, struct wall until)
{
    struct conf_list times;
    struct tally tally = {0};
    uint32_t warnings = m->warnings;
    int rc;

    if (!warning_is_due(q, m, age_us, &times, &until)) {
        return 0;
    }
    rc = report_on(q, m, DELAYS, until, &tally);
    /* Warnings that were missed while no daemon ran make one notice. */
    while (rc == 0 && age_us >= warning_age(q->conf, times, warnings)) {
        rc = spool_set_warned(q->spool, m->id);
        warnings++;
    }
    return rc;
}

/* ---- notices to the postmaster only --------------------------------------------------------- */

#define LOGIN_NOTICE_US (24 * 3600 * US_PER_S)
#define NOTICE_MAX      8192

static void write_login_notice(const struct queue *q, const struct destination *d,
                               struct slice words, struct buf *out)
{
    struct wall now = clock_wall();
    const char *origin = q->conf->myorigin;

    (void)buf_add_string(out, "Date: ");
    (void)header_date(now, clock_zone(now) / 60, out);
    (void)buf_addf(
        out,
        "\r\nFrom: Mail Delivery System <MAILER-DAEMON@%.255s>\r\n"
        "To: postmaster@%.255s\r\n"
        "Subject: no login at %.255s\r\n"
        "Message-Id: <login.%016" PRIx64 "@%.255s>\r\n"
        "Auto-Submitted: auto-generated\r\n"
        "\r\n"
        "Mail for this next hop waits, and is not returned meanwhile, because it does\r\n"
        "not let %.255s in:\r\n"
        "\r\n"
        "    next hop  %.255s\r\n"
        "    it says   ",
        origin, origin, d->nexthop, entropy_u64(), q->conf->myhostname, q->conf->myhostname,
        d->nexthop);
    (void)printable_add(out, words, 900);
    (void)buf_add_string(
        out, "\r\n\r\n"
             "The logins are in the file that relay_auth names; `sluice reload' takes "
             "a changed\r\none, and `sluice flush' asks again at once. There is at most "
             "one notice a day.\r\n");
}

void report_login_refused(struct queue *q, struct destination *d, struct slice words)
{
    const struct spool_message none = {.sender = SLICE("")};
    struct readers to = {.count = 0};
    struct msg_id id;
    struct buf text;
    int rc;

    if (!mono_reached(d->next_login_notice, clock_mono()) || !class_wanted(q->conf, "software")) {
        return;
    }
    d->next_login_notice = mono_after(clock_mono(), LOGIN_NOTICE_US);
    buf_init(&text, NOTICE_MAX);
    write_login_notice(q, d, words, &text);
    to.sender = double_bounce_sender(q);
    add_reader(q, &to, "postmaster", true);
    rc = text.failed ? -EMSGSIZE : submit(q, &none, &to, 0, buf_slice(&text), &id);
    if (rc == 0) {
        import_new_mail(&q->import);
        q->counts.reports++;
    } else {
        log_warning("%s: no login there, and the postmaster can't get a notice: %s", d->nexthop,
                    strerror(-rc));
    }
    readers_fini(&to);
    buf_fini(&text);
}
