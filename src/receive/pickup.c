#include "pickup.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "address.h"
#include "check.h"
#include "clock.h"
#include "filters.h"
#include "hash.h"
#include "header.h"
#include "line_ends.h"
#include "local_mail.h"
#include "log.h"
#include "maildrop.h"
#include "mem.h"
#include "printable.h"
#include "role.h"
#include "route.h"
#include "stream.h"
#include "wire.h"

#define SCAN_US       (60 * US_PER_S) /* a scan finds files that inotify has missed */
#define LATER_US      (60 * US_PER_S) /* wait after a 4xx reply */
#define READ_SIZE     65536u
#define INSIDE_MAX    (1u << 20) /* content in the frame; at most spool_inline_limit */
#define KNOWN_MAX     10000u     /* maximum of remembered files */
#define SAME_NAME_MAX 1000u      /* maximum of files with one name in corrupt/ */
#define TURN_BYTES    (1u << 20) /* bytes read in a turn */
#define TURN_FILES    256u       /* directory entries per turn */
#define SENT_MAX      64u        /* maximum of submissions without an answer */
#define FILTERED_MAX  16u        /* maximum of mails at filters */

enum known_state {
    KNOWN_FILTERED, /* filters have its mail */
    KNOWN_SENT,     /* the queue process has its mail, with `token` */
    KNOWN_LATER,    /* deferred by queue or filters until `due` */
    KNOWN_LEFT,     /* unusable, and logged */
};

struct pickup_mail;

/* A file that scans ignore for now. */
struct known_file {
    UT_hash_handle hh;
    char *name; /* key of the hash */
    enum known_state state;
    uint64_t token;
    struct mono due;
    uint64_t scan; /* number of the last scan that saw the file */
    dev_t device;  /* identity of the file that was read; its name may belong to another file now */
    ino_t inode;
    struct pickup_mail *mail; /* mail in KNOWN_FILTERED; owned */
    struct arrival arrival;   /* result of the rules, for the log, in KNOWN_FILTERED and
                               * KNOWN_SENT */
    char *envelope;           /* envelope for these log lines; owned, or NULL */
};

/* A complete mail. */
struct pickup_mail {
    struct pickup *pickup;
    struct known_file *item;
    struct draft draft;
    struct filters *filters; /* owned; NULL: none */
    unsigned flags;          /* bits of enum envelope_flag */
    struct wall arrived;
    uid_t owner;
    char class_name[CLASS_NAME_MAX];
    enum class_source class_source;
    char error[500]; /* route that refuses the mail; empty: accepted */
};

/* The file that is being read. */
struct pickup_file {
    char *name;
    int fd;
    struct stat st;
    struct buf head; /* start of the file, until the envelope is complete */
    struct maildrop envelope;
    uint64_t content_left; /* bytes of the file that are not read yet */

    struct line_ends line_ends;
    struct local_mail mail; /* content in wire form */
};

struct pickup {
    struct role *role;
    struct rule_set *rules; /* rules of the configuration */
    struct channel *queue;  /* NULL: no queue process now */
    int directory;
    int corrupt; /* descriptor of the subdirectory, or -1 */
    DIR *scan;
    struct event *watch;
    struct event *scan_timer;
    struct event *turn_timer;
    struct event *stop_timer;
    bool scanning;
    bool scan_wanted;
    uint64_t scan_number;
    uint64_t last_token;
    unsigned sent, filtered;
    struct draft_budget budget; /* without a limit, because the number of mails in memory has one */
    struct streams *streams;
    struct filter_hub hub;
    struct filter_set *filters; /* non_smtpd_milters; NULL: none */
    struct known_file *items;   /* hash by name */
    struct pickup_file *file;   /* NULL: no file is being read */
};

/* ---- known files ---------------------------------------------------------------------------- */

static struct known_file *find_known(struct pickup *p, const char *name)
{
    struct known_file *item;

    HASH_FIND_STR(p->items, name, item);
    return item;
}

static struct known_file *add_known(struct pickup *p, const char *name, enum known_state state)
{
    struct known_file *item = mem_new(sizeof *item);

    item->name = mem_string(name);
    item->state = state;
    item->scan = p->scan_number;
    HASH_ADD_KEYPTR(hh, p->items, item->name, strlen(item->name), item);
    return item;
}

static void free_mail(struct pickup_mail *mail)
{
    if (mail != NULL) {
        filters_free(mail->filters);
        draft_drop(&mail->draft);
        mem_free(mail);
    }
}

/* Removes the item from the counts of KNOWN_SENT or KNOWN_FILTERED, and frees its mail. */
static void leave_state(struct pickup *p, struct known_file *item)
{
    if (item->state == KNOWN_SENT) {
        CHECK(p->sent > 0);
        p->sent--;
    } else if (item->state == KNOWN_FILTERED) {
        CHECK(p->filtered > 0);
        p->filtered--;
        free_mail(item->mail);
        item->mail = NULL;
    }
}

static void remove_known(struct pickup *p, struct known_file *item)
{
    leave_state(p, item);
    HASH_DEL(p->items, item);
    arrival_drop(&item->arrival);
    mem_free(item->envelope);
    mem_free(item->name);
    mem_free(item);
}

/* Leaves a file in place, logs it once, and ignores it in later scans. */
static void leave(struct pickup *p, const char *name, const char *why)
{
    if (HASH_COUNT(p->items) < KNOWN_MAX) {
        log_warning("maildrop/%s: %s: left there", name, why);
        (void)add_known(p, name, KNOWN_LEFT); /* found again by its name */
    }
}

/* Defers a file after a lack of memory or descriptors, which is temporary and not its fault. */
static void try_later(struct pickup *p, const char *name, const char *why)
{
    log_warning("maildrop/%s: %s: tried again later", name, why);
    add_known(p, name, KNOWN_LATER)->due = mono_after(clock_mono(), LATER_US);
}

/* Moves an unusable file to corrupt/. A number is added to its name if that name exists there. */
static void quarantine(struct pickup *p, const char *name, const char *why)
{
    char as[NAME_MAX + 1];
    int len = snprintf(as, sizeof as, "%s", name), rc = -1;

    for (unsigned i = 1; p->corrupt >= 0 && (size_t)len < sizeof as; i++) {
        rc = renameat2(p->directory, name, p->corrupt, as, RENAME_NOREPLACE);
        if (rc == 0 || errno != EEXIST || i == SAME_NAME_MAX) {
            break;
        }
        len = snprintf(as, sizeof as, "%s.%u", name, i);
    }
    if (rc != 0) {
        leave(p, name, why);
        return;
    }
    log_warning("maildrop/%s: %s: saved in maildrop/corrupt%s%s", name, why,
                strcmp(as, name) == 0 ? "" : "/", strcmp(as, name) == 0 ? "" : as);
}

/* Forgets files that no longer exist. */
static void forget_missing(struct pickup *p)
{
    struct known_file *item, *following;

    HASH_ITER(hh, p->items, item, following)
    {
        if (item->state != KNOWN_SENT && item->state != KNOWN_FILTERED &&
            item->scan != p->scan_number) {
            remove_known(p, item);
        }
    }
}

/* ---- reading one file ----------------------------------------------------------------------- */

static uint64_t inside_limit(const struct conf *conf)
{
    return conf->spool_inline_limit < INSIDE_MAX ? (uint64_t)conf->spool_inline_limit : INSIDE_MAX;
}

static void close_file(struct pickup *p)
{
    struct pickup_file *j = p->file;

    if (j == NULL) {
        return;
    }
    if (j->fd >= 0) {
        (void)close(j->fd); /* was only read */
    }
    maildrop_fini(&j->envelope);
    buf_fini(&j->head);
    local_mail_drop(&j->mail);
    mem_free(j->name);
    mem_free(j);
    p->file = NULL;
}

static void give_up(struct pickup *p, const char *why)
{
    quarantine(p, p->file->name, why);
    close_file(p);
}

static bool is_legal_name(const char *name)
{
    for (const char *c = name; *c != '\0'; c++) {
        if (!ascii_is_alnum(*c) && *c != '_') {
            return false;
        }
    }
    return name[0] != '\0';
}

/* Opens a file for reading, if it is a complete mail file. */
static void begin_file(struct pickup *p, const char *name)
{
    struct stat st, opened;
    int fd;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        fstatat(p->directory, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return; /* no longer exists */
    }
    if (!is_legal_name(name)) {
        leave(p, name, "it has no name of sendmail's");
        return;
    }
    if (!S_ISREG(st.st_mode)) {
        if (strcmp(name, "corrupt") != 0) {
            leave(p, name, "it is no regular file");
        }
        return;
    }
    if ((st.st_mode & 0700) != MAILDROP_COMPLETE) {
        return; /* being written */
    }
    if (st.st_nlink != 1) {
        leave(p, name, "it has more than one link");
        return;
    }
    fd = openat(p->directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            try_later(p, name, strerror(errno));
        } else if (errno != ENOENT) {
            leave(p, name, strerror(errno));
        }
        return;
    }
    if (fstat(fd, &opened) != 0 || opened.st_dev != st.st_dev || opened.st_ino != st.st_ino) {
        (void)close(fd); /* replaced meanwhile; the next scan handles the new file */
        return;
    }
    p->file = mem_new(sizeof *p->file);
    *p->file = (struct pickup_file){.fd = fd, .st = opened};
    p->file->name = mem_string(name);
    buf_init(&p->file->head, MAILDROP_HEAD_MAX + READ_SIZE);
    local_mail_begin(&p->file->mail, p->role->conf, p->rules, &p->budget,
                     inside_limit(p->role->conf));
}

/* Adds content of the file. Returns false if the draft has failed. */
static bool add_content(struct pickup *p, struct slice bytes)
{
    struct pickup_file *j = p->file;
    struct buf wire;

    CHECK(bytes.len <= j->content_left);
    j->content_left -= bytes.len;
    buf_init(&wire, 2 * READ_SIZE + 1);
    while (bytes.len > 0 && !j->mail.draft.failed) {
        struct slice part = slice_of(bytes.ptr, bytes.len < READ_SIZE ? bytes.len : READ_SIZE);

        buf_clear(&wire);
        local_mail_add(&j->mail, line_ends_add(&j->line_ends, part, &wire));
        bytes = slice_skip(bytes, part.len);
    }
    buf_fini(&wire);
    return !j->mail.draft.failed;
}

/* Ends the content, and its last line if that has no line end. Returns the reply of the rules; a
 * failure shows in the draft. */
static struct server_reply end_content(struct pickup *p)
{
    struct pickup_file *j = p->file;
    struct buf wire;

    buf_init(&wire, 8);
    local_mail_add(&j->mail, line_ends_finish(&j->line_ends, &wire));
    buf_fini(&wire);
    return local_mail_end(&j->mail, j->name);
}

/* Compares the complete envelope with the size of the file. Returns the fault, or NULL. */
static const char *check_envelope(const struct pickup *p, size_t head)
{
    const struct pickup_file *j = p->file;
    uint64_t limit = (uint64_t)p->role->conf->message_size_limit;

    if ((uint64_t)j->st.st_size != head + j->envelope.content_size) {
        return "its size is not the one in its head";
    }
    if (limit > 0 && j->envelope.content_size > limit) {
        return "it is larger than message_size_limit";
    }
    return NULL;
}

/* Handles a failed draft: its header is too large, or memory is short. */
static void draft_failed(struct pickup *p)
{
    const struct content_facts *facts = &p->file->mail.scanner.facts;

    if (!facts->header_ended && facts->bytes > DRAFT_HEADER_MAX) {
        give_up(p, "its header is too large");
        return;
    }
    try_later(p, p->file->name, "no memory");
    close_file(p);
}

/* Begins the draft with the sender, or adds recipient `*r` if it is not NULL. Returns the fault, or
 * NULL. */
static const char *take_address(struct pickup *p, struct slice address,
                                const struct maildrop_rcpt *r)
{
    struct draft *d = &p->file->mail.draft;
    char room[ADDRESS_MAX];
    struct wire_rcpt rcpt;
    bool ok;

    address = route_complete(p->role->conf, address, room);
    if (r == NULL) {
        ok = draft_begin(d, address, p->file->envelope.envid);
    } else {
        rcpt = (struct wire_rcpt){.address = address, .orcpt = r->orcpt, .notify = r->notify};
        ok = draft_add_rcpt(d, &rcpt, route_ignores_case(p->role->conf, address));
    }
    return ok ? NULL : "its recipients take too much room";
}

static const char *take_envelope(struct pickup *p)
{
    const struct maildrop *m = &p->file->envelope;
    const char *why = take_address(p, m->sender, NULL);

    for (size_t i = 0; i < m->rcpt_count && why == NULL; i++) {
        why = take_address(p, m->rcpts[i].address, &m->rcpts[i]);
    }
    if (why == NULL) {
        draft_keep_header(&p->file->mail.draft);
        local_mail_data(&p->file->mail, true, m->name);
    }
    return why;
}

/* Reads more of the head. The buffer doubles between two parses, so that a long list of recipients
 * takes linear time. */
static void read_head(struct pickup *p, size_t *budget)
{
    struct pickup_file *j = p->file;
    size_t had = buf_len(&j->head), head, size = had < READ_SIZE ? READ_SIZE : had;
    const char *why = NULL;
    char *room;
    ssize_t n;

    size = size < MAILDROP_HEAD_MAX + READ_SIZE - had ? size : MAILDROP_HEAD_MAX + READ_SIZE - had;
    room = buf_room(&j->head, size);
    CHECK(room != NULL);
    n = read(j->fd, room, size);
    if (n <= 0) {
        give_up(p, n == 0 ? "it ends within the envelope" : strerror(errno));
        return;
    }
    buf_grew(&j->head, (size_t)n);
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    switch (maildrop_get(buf_slice(&j->head), &j->envelope, &head, &why)) {
    case MAILDROP_MORE:
        return;
    case MAILDROP_BAD:
        give_up(p, why);
        return;
    case MAILDROP_OK:
        break;
    }
    why = check_envelope(p, head);
    j->content_left = j->envelope.content_size;
    if (why == NULL && buf_len(&j->head) - head > j->content_left) {
        why = "it grew while it was read";
    }
    why = why != NULL ? why : take_envelope(p);
    if (why != NULL) {
        give_up(p, why);
    } else if (!add_content(p, slice_skip(buf_slice(&j->head), head))) {
        draft_failed(p);
    }
}

static void read_content(struct pickup *p, size_t *budget)
{
    char bytes[READ_SIZE];
    size_t size = p->file->content_left < sizeof bytes ? p->file->content_left : sizeof bytes;
    ssize_t n = read(p->file->fd, bytes, size);

    if (n <= 0) {
        give_up(p, n == 0 ? "it became shorter while it was read" : strerror(errno));
        return;
    }
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    if (!add_content(p, slice_of(bytes, (size_t)n))) {
        draft_failed(p);
    }
}

/* ---- the Received field --------------------------------------------------------------------- */

static int zone_minutes(struct wall t)
{
    return clock_zone(t) / 60;
}

static void add_trace(const struct pickup_mail *m, struct buf *out)
{
    (void)buf_addf(out, "Received: by %.255s (Sluice, from userid %u)\r\n\tid \1; ",
                   m->pickup->role->conf->myhostname, (unsigned)m->owner); /* errors are sticky */
    (void)header_date(m->arrived, zone_minutes(m->arrived), out);
    (void)buf_add_string(out, "\r\n");
}

/* ---- submitting ----------------------------------------------------------------------------- */

/* Returns the time when the file became complete, which its owner can't choose. */
static struct wall arrival(const struct pickup_file *j)
{
    struct wall t = {(int64_t)j->st.st_ctim.tv_sec * US_PER_S + j->st.st_ctim.tv_nsec / 1000};

    return t.us < clock_wall().us ? t : clock_wall();
}

static unsigned flags_of(const struct pickup_file *j)
{
    return j->envelope.flags |
           ((j->mail.scanner.facts.flags & CONTENT_8BIT) != 0 ? (unsigned)ENVELOPE_8BIT : 0);
}

/* Sets the envelope of *frame; *ret_rcpts has the recipients, to be freed. Refused mail gets a
 * route to `error:` and so bounces, because there is no client for a reply. */
static struct server_reply make_envelope(struct pickup *p, struct pickup_mail *m,
                                         struct wire_submit *frame, struct wire_rcpt **ret_rcpts)
{
    struct server_reply reply = SERVER_ACCEPT;

    *ret_rcpts = draft_envelope(&m->draft);
    frame->rcpt_count = draft_rcpts(&m->draft);
    if (m->error[0] == '\0') {
        frame->sender = draft_sender(&m->draft);
        reply = arrival_envelope(&m->item->arrival, p->role->conf, &frame->sender, ret_rcpts,
                                 &frame->rcpt_count, WIRE_RCPTS_MAX);
    } else {
        for (uint32_t i = 0; i < frame->rcpt_count; i++) {
            (*ret_rcpts)[i].target = slice_string(m->error);
        }
    }
    frame->rcpts = *ret_rcpts;
    return reply;
}

/* Keeps the file for another attempt. */
static void later(struct pickup *p, struct known_file *item)
{
    leave_state(p, item);
    arrival_drop(&item->arrival);
    item->state = KNOWN_LATER;
    item->due = mono_after(clock_mono(), LATER_US);
}

static void defer(struct pickup *p, struct known_file *item, unsigned code, struct slice status,
                  struct slice text)
{
    log_warning("maildrop/%s: tried again later: %u %.*s %.*s", item->name, code,
                SLICE_ARGS(status), SLICE_ARGS(text));
    later(p, item);
}

/* Submits the mail to the queue process. */
static void send_mail(struct pickup *p, struct pickup_mail *m)
{
    struct known_file *item = m->item;
    struct wire_submit frame = {.token = ++p->last_token,
                                .flags =
                                    m->flags | (m->filters != NULL ? filters_flags(m->filters) : 0),
                                .arrived = m->arrived,
                                .pid = (uint32_t)getpid(),
                                .origin = SLICE("pickup"),
                                .class_name = slice_string(m->class_name),
                                .class_source = m->class_source,
                                .hold = arrival_hold(&item->arrival)};
    char client[32], login[32] = "";
    struct wire_rcpt *rcpts;
    struct server_reply reply = make_envelope(p, m, &frame, &rcpts);
    struct buf trace;

    if (reply.code != 0) {
        mem_free(rcpts);
        defer(p, item, reply.code, slice_string(reply.status), reply.text);
        return;
    }
    frame.rules = arrival_rules(&item->arrival);
    (void)snprintf(client, sizeof client, "userid %u", (unsigned)m->owner); /* fits */
    frame.client = slice_string(client);
    if (m->filters != NULL) {
        (void)snprintf(login, sizeof login, "milter_id=%s", filters_id(m->filters)); /* fits */
        frame.login = slice_string(login);
        frame.hold = frame.hold.len > 0 ? frame.hold : filters_hold(m->filters);
    }
    buf_init(&trace, WIRE_TRACE_MAX);
    add_trace(m, &trace);
    CHECK(!trace.failed);
    frame.trace = buf_slice(&trace);
    draft_submit(&m->draft, p->queue, &frame);
    mem_free(rcpts);
    buf_fini(&trace);
    leave_state(p, item); /* frees the mail */
    item->state = KNOWN_SENT;
    item->token = frame.token;
    p->sent++;
}

/* Removes the file that was read, unless another file has its name now. */
static void remove_file(struct pickup *p, const struct known_file *item)
{
    struct stat st;

    if (fstatat(p->directory, item->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_dev == item->device && st.st_ino == item->inode &&
        unlinkat(p->directory, item->name, 0) != 0) {
        log_error("maildrop/%s: queued, but it can't be removed: %s", item->name, strerror(errno));
    }
}

/* Removes the file of a mail and forgets it. */
static void forget_file(struct pickup *p, struct known_file *item)
{
    remove_file(p, item);
    remove_known(p, item);
}

static void refuse(struct pickup_mail *m, const char *status, struct slice text)
{
    (void)snprintf(m->error, sizeof m->error, "error:%s %.*s", status,
                   SLICE_ARGS(text)); /* or is cut */
}

static void log_item_rules(const struct known_file *item, const char *id)
{
    arrival_log(&item->arrival, id, "local", item->envelope);
}

static void wake(struct pickup *p);

/* Handles the answer of the filters. */
static void mail_filtered(struct pickup_mail *m)
{
    const struct filters_answer *answer = filters_answer(m->filters);
    struct pickup *p = m->pickup;
    struct known_file *item = m->item;

    if (answer->result == FILTERS_DISCARD) {
        log_info("maildrop/%s: milter-discard: %s, milter_id=%s", item->name, item->envelope,
                 filters_id(m->filters));
        log_item_rules(item, "NOQUEUE");
        forget_file(p, item);
    } else if (answer->result == FILTERS_REFUSE && answer->code < 500) {
        log_item_rules(item, "NOQUEUE");
        defer(p, item, answer->code, slice_string(answer->status), slice_string(answer->text));
    } else if (p->queue == NULL) {
        later(p, item);
    } else {
        if (answer->result == FILTERS_REFUSE) {
            log_info("maildrop/%s: milter-reject: %u %s %s; %s, milter_id=%s", item->name,
                     answer->code, answer->status, answer->text, item->envelope,
                     filters_id(m->filters));
            refuse(m, answer->status, slice_string(answer->text));
        }
        send_mail(p, m);
    }
    wake(p);
}

static void on_filters(void *arg, struct filters *f)
{
    (void)f;
    mail_filtered(arg);
}

/* Makes a mail of the file that was read, and moves its draft there. */
static struct pickup_mail *make_mail(struct pickup *p, struct wall arrived)
{
    struct pickup_file *j = p->file;
    struct pickup_mail *m = mem_new(sizeof *m);
    char client[32], class_room[CLASS_NAME_MAX];
    struct classified class;

    m->pickup = p;
    m->arrived = arrived;
    m->owner = j->st.st_uid;
    m->flags = flags_of(j);
    (void)snprintf(client, sizeof client, "userid %u", (unsigned)m->owner); /* fits */
    class =
        classify_end(&j->mail.classify, p->role->conf, true, SLICE(""), NULL, client, class_room);
    (void)snprintf(m->class_name, sizeof m->class_name, "%.*s", SLICE_ARGS(class.name)); /* fits */
    m->class_source = class.source;
    m->draft = j->mail.draft;
    draft_init(&j->mail.draft, &p->budget, 0); /* the draft was moved */
    m->item = add_known(p, j->name, KNOWN_FILTERED);
    m->item->mail = m;
    m->item->device = j->st.st_dev;
    m->item->inode = j->st.st_ino;
    m->item->envelope = local_mail_envelope(&m->draft);
    m->item->arrival = j->mail.arrival;
    j->mail.arrival = (struct arrival){.set = NULL};
    p->filtered++;
    return m;
}

/* Passes a mail to the filters, or to the queue process without them. */
static void pass_on(struct pickup *p, struct pickup_mail *m)
{
    static const struct filters_client local = {
        .name = {"localhost", 9}, .ip = {"127.0.0.1", 9}, .family = 4};

    if (p->filters == NULL || m->error[0] != '\0') {
        send_mail(p, m);
        return;
    }
    m->filters = filters_new(&p->hub, p->filters, on_filters, m);
    if (filters_whole(m->filters, &local, &m->draft)) {
        mail_filtered(m);
    }
}

/* Handles the end of a file. */
static void finish_file(struct pickup *p)
{
    struct server_reply ruled = end_content(p);
    struct pickup_file *j = p->file;
    struct wall arrived = arrival(j);
    bool discards = j->mail.arrival.ruling.discard;
    char status[ACTION_STATUS_MAX];
    struct pickup_mail *m;

    if ((int64_t)j->mail.scanner.facts.received > p->role->conf->hopcount_limit) {
        give_up(p, "too many hops: it goes round in circles");
        return;
    }
    if (j->mail.draft.failed) {
        draft_failed(p);
        return;
    }
    (void)snprintf(status, sizeof status, "%s",
                   ruled.code != 0 ? ruled.status : ""); /* equal sizes */
    m = make_mail(p, arrived);
    close_file(p);
    if (ruled.code == 0 && !discards) {
        pass_on(p, m);
    } else if (ruled.code / 100 == 5) {
        refuse(m, status, ruled.text);
        pass_on(p, m);
    } else {
        log_item_rules(m->item, "NOQUEUE");
        if (ruled.code != 0) {
            defer(p, m->item, ruled.code, slice_string(status), ruled.text);
        } else {
            forget_file(p, m->item);
        }
    }
}

static struct known_file *find_token(struct pickup *p, uint64_t token)
{
    struct known_file *item, *following;

    HASH_ITER(hh, p->items, item, following)
    {
        if (item->state == KNOWN_SENT && item->token == token) {
            return item;
        }
    }
    return NULL;
}

static void take_answer(struct pickup *p, const struct wire_submit_done *done)
{
    struct known_file *item = find_token(p, done->token);
    char why[256], id[WIRE_ID_MAX + 1];

    if (item == NULL) {
        return; /* answer to a submission before a restart of the queue process */
    }
    (void)snprintf(id, sizeof id, "%.*s", SLICE_ARGS(done->id)); /* fits */
    log_item_rules(item, id[0] != '\0' ? id : "NOQUEUE");
    if (done->code >= 200 && done->code < 300) {
        forget_file(p, item);
    } else if (done->code >= 500) {
        char *name = mem_string(item->name);
        (void)snprintf(why, sizeof why, "refused: %u %.*s %.*s", done->code,
                       SLICE_ARGS(done->status), SLICE_ARGS(done->text)); /* may be cut */
        remove_known(p, item);
        quarantine(p, name, why);
        mem_free(name);
    } else {
        defer(p, item, done->code, done->status, done->text);
    }
    wake(p);
}

/* ---- scanning ------------------------------------------------------------------------------- */

/* Continues in the next turn of the loop. */
static void wake(struct pickup *p)
{
    static const struct timeval soon = {0};

    if (p->queue != NULL && !p->role->stopping) {
        CHECK(event_add(p->turn_timer, &soon) == 0);
    }
}

/* Should the scan read this file now? */
static bool is_due(struct pickup *p, const char *name)
{
    struct known_file *item = find_known(p, name);

    if (item == NULL) {
        return true;
    }
    item->scan = p->scan_number;
    if (item->state == KNOWN_LATER && mono_reached(item->due, clock_mono())) {
        remove_known(p, item);
        return true;
    }
    return false;
}

/* Handles the next file. Returns false at the end of the scan. */
static bool scan_next(struct pickup *p)
{
    struct dirent *entry;

    if (!p->scanning) {
        if (!p->scan_wanted) {
            return false;
        }
        p->scan_wanted = false;
        p->scanning = true;
        p->scan_number++;
        rewinddir(p->scan);
    }
    entry = readdir(p->scan);
    if (entry == NULL) {
        p->scanning = false;
        forget_missing(p);
        return p->scan_wanted;
    }
    if (is_due(p, entry->d_name)) {
        begin_file(p, entry->d_name);
    }
    return true;
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    struct pickup *p = arg;
    size_t budget = TURN_BYTES;

    (void)fd;
    (void)what;
    for (unsigned looked = 0; looked < TURN_FILES && budget > 0;) {
        if (p->queue == NULL || p->role->stopping || p->sent == SENT_MAX ||
            p->filtered == FILTERED_MAX) {
            return; /* a new channel or an answer continues */
        }
        if (p->file == NULL) {
            if (!scan_next(p)) {
                return;
            }
            looked++;
        } else if (p->file->envelope.rcpt_count == 0) {
            read_head(p, &budget);
        } else if (p->file->content_left > 0) {
            read_content(p, &budget);
        } else {
            finish_file(p);
        }
    }
    wake(p);
}

static void on_scan_timer(evutil_socket_t fd, short what, void *arg)
{
    struct pickup *p = arg;

    (void)fd;
    (void)what;
    p->scan_wanted = true;
    wake(p);
}

/* Starts a scan after any change of the directory. */
static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct pickup *p = arg;
    char events[8192];

    (void)what;
    while (read(fd, events, sizeof events) > 0) {
        p->scan_wanted = true;
    }
    wake(p);
}

/* ---- the queue process ---------------------------------------------------------------------- */

/* Exits a stopping process if no file waits for an answer. */
static void stop_if_done(struct pickup *p)
{
    if (p->role->stopping && p->sent == 0) {
        role_exit(p->role, EX_OK);
    }
}

static void on_stop_timer(evutil_socket_t fd, short what, void *arg)
{
    struct pickup *p = arg;

    (void)fd;
    (void)what;
    role_exit(p->role, EX_OK);
}

/* Forgets submissions without an answer, so that the next scan repeats them. */
static void forget_queue(struct pickup *p)
{
    struct known_file *item, *following;

    channel_free(p->queue);
    p->queue = NULL;
    HASH_ITER(hh, p->items, item, following)
    {
        if (item->state == KNOWN_SENT) {
            remove_known(p, item);
        }
    }
}

/* Handles a frame. Returns false if it does not decode or has an unexpected type. */
static bool queue_frame(struct pickup *p, const struct frame *frame)
{
    struct wire_submit_done done;
    struct wire_flow flow;

    switch (frame->type) {
    case WIRE_SUBMIT_DONE:
        if (!wire_get_submit_done(frame->body, &done)) {
            return false;
        }
        take_answer(p, &done);
        return true;
    case WIRE_FLOW: /* ignored: files can wait, and the answers suffice */
        return wire_get_flow(frame->body, &flow);
    default:
        return false;
    }
}

static void on_queue(void *arg, struct channel *ch)
{
    struct pickup *p = arg;
    struct frame frame;
    enum channel_event event;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.fd >= 0) {
            (void)close(frame.fd); /* no frame has one */
        }
        if (!queue_frame(p, &frame)) {
            log_error("queue: a frame of type %u does not decode: connection closed", frame.type);
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        forget_queue(p);
        role_queue_lost(p->role);
    }
    stop_if_done(p);
}

/* ---- the role ------------------------------------------------------------------------------- */

/* Opens corrupt/ if this user owns it: an entry that another user made can be anything. */
static int open_corrupt(int directory)
{
    int fd = openat(directory, "corrupt", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_uid != geteuid())) {
        (void)close(fd); /* was only opened */
        fd = -1;
    }
    return fd;
}

/* Watches the directory. Without a watch only the periodic scan finds files. */
static void watch(struct pickup *p)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (fd < 0 ||
        inotify_add_watch(fd, p->role->conf->maildrop, IN_ATTRIB | IN_MOVED_TO | IN_ONLYDIR) < 0) {
        log_warning("%s: not watched, mail there waits up to a minute: %s", p->role->conf->maildrop,
                    strerror(errno));
        if (fd >= 0) {
            (void)close(fd); /* watches nothing */
        }
        return;
    }
    p->watch = event_new(p->role->base, fd, EV_READ | EV_PERSIST, on_watch, p);
    CHECK(p->watch != NULL);
    CHECK(event_add(p->watch, NULL) == 0);
}

static void event_make(struct event **ret, struct role *role, short what, event_callback_fn act)
{
    *ret = event_new(role->base, -1, what, act, role->state);
    CHECK(*ret != NULL);
}

/* Opens everything that has a path, before the process is confined. */
static int pickup_start(struct role *role)
{
    static const struct timeval period = {.tv_sec = SCAN_US / US_PER_S};
    const char *path = role->conf->maildrop;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    DIR *scan = copy < 0 ? NULL : fdopendir(copy);
    struct pickup *p;

    if (scan == NULL) {
        log_error("%s: %s", path, strerror(errno));
        if (copy >= 0) {
            (void)close(copy); /* was only opened */
        }
        if (fd >= 0) {
            (void)close(fd);
        }
        return EX_OSERR;
    }
    p = mem_new(sizeof *p);
    role->state = p;
    p->role = role;
    p->directory = fd;
    p->scan = scan;
    p->corrupt = open_corrupt(fd);
    if (p->corrupt < 0) {
        log_error("%s/corrupt is not a directory of this user: what can't be used stays in %s",
                  path, path);
    }
    p->scan_wanted = true;
    p->budget.max = UINT64_MAX;
    p->streams = streams_new(role->base);
    filter_hub_init(&p->hub, role, p->streams);
    p->filters = filter_set_new(role->conf, role->conf->non_smtpd_milters);
    event_make(&p->scan_timer, role, EV_PERSIST, on_scan_timer);
    event_make(&p->turn_timer, role, 0, on_turn);
    event_make(&p->stop_timer, role, 0, on_stop_timer);
    CHECK(event_add(p->scan_timer, &period) == 0);
    watch(p);
    return arrival_use_rules(role, &p->rules) ? EX_OK : EX_SOFTWARE;
}

static void pickup_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct pickup *p = role->state;

    if (peer->role != ROLE_QUEUE) {
        (void)close(fd); /* no business with this process */
        return;
    }
    if (p->queue != NULL) {
        forget_queue(p);
    }
    p->queue = channel_new(role->base, fd, on_queue, p);
    p->scan_wanted = true;
    wake(p);
}

/* Applies the configuration and scans again. */
static void pickup_reload(struct role *role, const struct conf *old)
{
    struct pickup *p = role->state;

    (void)old;
    if (!arrival_use_rules(role, &p->rules)) {
        role_exit(role, EX_SOFTWARE);
        return;
    }
    filter_set_unref(p->filters); /* mail at filters has its own reference */
    p->filters = filter_set_new(role->conf, role->conf->non_smtpd_milters);
    p->scan_wanted = true;
    wake(p);
}

static bool pickup_parent_frame(struct role *role, const struct frame *frame)
{
    struct pickup *p = role->state;

    return filter_hub_frame(&p->hub, frame);
}

static void pickup_clock_moved(struct role *role)
{
    struct pickup *p = role->state;

    streams_clock_moved(p->streams);
    p->scan_wanted = true; /* deferred files may be due */
    wake(p);
}

/* Stops submissions; mail at filters stays in its file. Waits for answers of the queue process,
 * because a committed mail whose file remains would be submitted again after the next start. */
static void pickup_stop(struct role *role)
{
    struct pickup *p = role->state;
    struct known_file *item, *following;
    int64_t wait_us = role->conf->shutdown_timeout_us / 2;
    struct timeval wait = {.tv_sec = wait_us / US_PER_S, .tv_usec = wait_us % US_PER_S};

    CHECK(event_add(p->stop_timer, &wait) == 0);
    HASH_ITER(hh, p->items, item, following)
    {
        if (item->state == KNOWN_FILTERED) {
            remove_known(p, item);
        }
    }
    stop_if_done(p);
}

static void pickup_end(struct role *role)
{
    struct pickup *p = role->state;
    struct known_file *item, *following;

    close_file(p);
    HASH_ITER(hh, p->items, item, following)
    {
        remove_known(p, item);
    }
    rule_set_unref(p->rules);
    channel_free(p->queue);
    filter_hub_fini(&p->hub);
    filter_set_unref(p->filters);
    streams_free(p->streams);
    if (p->watch != NULL) {
        int fd = event_get_fd(p->watch);
        event_free(p->watch);
        (void)close(fd); /* was only read */
    }
    event_free(p->scan_timer);
    event_free(p->turn_timer);
    event_free(p->stop_timer);
    if (p->corrupt >= 0) {
        (void)close(p->corrupt);
    }
    (void)closedir(p->scan);
    (void)close(p->directory);
    mem_free(p);
}

static unsigned pickup_count(const struct conf *conf)
{
    return conf->maildrop[0] != '\0' ? 1 : 0;
}

const struct role_ops pickup_role = {
    .role = ROLE_PICKUP,
    .program = "pickup",
    .kind = ROLE_TAKES_MAIL,
    .count = pickup_count,
    .start = pickup_start,
    .peer = pickup_peer,
    .parent_frame = pickup_parent_frame,
    .reload = pickup_reload,
    .clock_moved = pickup_clock_moved,
    .stop = pickup_stop,
    .end = pickup_end,
};
