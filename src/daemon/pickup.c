#include "pickup.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "check.h"
#include "classify.h"
#include "clock.h"
#include "content.h"
#include "entropy.h"
#include "hash.h"
#include "header.h"
#include "log.h"
#include "maildrop.h"
#include "mem.h"
#include "printable.h"

#define SCAN_US         (60 * US_PER_S) /* inotify may miss a file; a scan does not */
#define LATER_US        (60 * US_PER_S) /* after a 4xx of the queue's */
#define READ_SIZE       65536u
#define INSIDE_MAX      (1u << 20) /* content in the frame; spool_inline_limit may be less */
#define HEADER_SEEN_MAX (1u << 20) /* how far the header is looked at for missing fields */
#define PREFIX_MAX      8192u      /* fields that are added */
#define ITEMS_MAX       10000u     /* files that are remembered */
#define SAME_NAME_MAX   1000u      /* files of one name in corrupt/ */
/* What a submission may take in a frame besides its content. */
#define ENVELOPE_BYTES_MAX (CHANNEL_BODY_MAX - INSIDE_MAX - PREFIX_MAX - 65536u)
/* What each recipient takes in a frame besides its texts. */
#define RCPT_BYTES 16u

enum item_state {
    ITEM_SENT,  /* the queue has it; `token` tells which answer is for it */
    ITEM_LATER, /* the queue could not take it; again at `due` */
    ITEM_LEFT,  /* can't be used; was mentioned */
};

/* A file that is to be passed over by scans for now. */
struct item {
    UT_hash_handle hh;
    char *name; /* the key */
    enum item_state state;
    uint64_t token;
    struct mono due;
    uint64_t scan; /* the last one that saw it */
    dev_t device;  /* of the file that was read: the name may be somebody else's by now */
    ino_t inode;
};

/* The file that is being read. */
struct job {
    char *name;
    int fd;
    struct stat st;
    struct buf head; /* from the start of the file, until the envelope is complete */
    struct maildrop envelope;
    uint64_t content_left; /* bytes of the file still to be read */

    /* content in wire form */
    bool after_cr;
    char last;
    struct buf out;  /* what is not in `memory` */
    int memory;      /* a memfd once `out` was too small, or -1 */
    uint64_t spilt;  /* bytes in it */
    struct buf seen; /* the header section, as far as it is looked at */
    struct content scanner;
    struct classify classify;
};

struct pickup {
    struct event_base *base;
    const struct conf *conf;
    struct channel *queue; /* borrowed, or NULL */
    int directory;
    int corrupt; /* its subdirectory, or -1 */
    DIR *scan;
    struct event *watch;
    struct event *scan_timer;
    struct event *turn_timer;
    bool scanning;
    bool scan_wanted;
    bool stopped;
    uint64_t scan_number;
    uint64_t last_token;
    unsigned sent;
    struct item *items; /* hash table by name */
    struct job *job;    /* or NULL */
};

/* ---- files that are passed over ------------------------------------------------------------- */

static struct item *find_item(struct pickup *p, const char *name)
{
    struct item *item;

    HASH_FIND_STR(p->items, name, item);
    return item;
}

static struct item *add_item(struct pickup *p, const char *name, enum item_state state)
{
    struct item *item = mem_new(sizeof *item);

    item->name = mem_string(name);
    item->state = state;
    item->scan = p->scan_number;
    HASH_ADD_KEYPTR(hh, p->items, item->name, strlen(item->name), item);
    return item;
}

static void remove_item(struct pickup *p, struct item *item)
{
    if (item->state == ITEM_SENT) {
        CHECK(p->sent > 0);
        p->sent--;
    }
    HASH_DEL(p->items, item);
    mem_free(item->name);
    mem_free(item);
}

/* A file that stays where it is and must not be mentioned in each scan. */
static void leave(struct pickup *p, const char *name, const char *why)
{
    if (HASH_COUNT(p->items) < ITEMS_MAX) {
        log_warning("maildrop/%s: %s: left there", name, why);
        (void)add_item(p, name, ITEM_LEFT); /* to be found by its name */
    }
}

/* Out of memory or descriptors (errno): not the mail's fault, and it may pass. */
static void try_later(struct pickup *p, const char *name)
{
    log_warning("maildrop/%s: %s: tried again later", name, strerror(errno));
    add_item(p, name, ITEM_LATER)->due = mono_after(clock_mono(), LATER_US);
}

/* Move a file that is no mail out of the way. One of the same name that is there already stays: the
 * new one gets a number. */
static void set_aside(struct pickup *p, const char *name, const char *why)
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

/* Forget what is not there any more. */
static void forget_missing(struct pickup *p)
{
    struct item *item, *following;

    HASH_ITER(hh, p->items, item, following)
    {
        if (item->state != ITEM_SENT && item->scan != p->scan_number) {
            remove_item(p, item);
        }
    }
}

/* ---- reading one file ----------------------------------------------------------------------- */

static void free_job(struct pickup *p)
{
    struct job *j = p->job;

    if (j == NULL) {
        return;
    }
    if (j->fd >= 0) {
        (void)close(j->fd); /* only read */
    }
    if (j->memory >= 0) {
        (void)close(j->memory); /* never sent */
    }
    maildrop_fini(&j->envelope);
    buf_fini(&j->head);
    buf_fini(&j->out);
    buf_fini(&j->seen);
    classify_drop(&j->classify);
    mem_free(j->name);
    mem_free(j);
    p->job = NULL;
}

static void give_up(struct pickup *p, const char *why)
{
    set_aside(p, p->job->name, why);
    free_job(p);
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

/* Begin with a file, if it is one to begin with. */
static void begin_job(struct pickup *p, const char *name)
{
    struct stat st, opened;
    int fd;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        fstatat(p->directory, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return; /* gone */
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
            try_later(p, name);
        } else if (errno != ENOENT) {
            leave(p, name, strerror(errno));
        }
        return;
    }
    if (fstat(fd, &opened) != 0 || opened.st_dev != st.st_dev || opened.st_ino != st.st_ino) {
        (void)close(fd); /* exchanged in between; the next scan sees what it is now */
        return;
    }
    p->job = mem_new(sizeof *p->job);
    *p->job = (struct job){.fd = fd, .st = opened, .memory = -1, .last = '\n'};
    p->job->name = mem_string(name);
    buf_init(&p->job->head, MAILDROP_HEAD_MAX + READ_SIZE);
    buf_init(&p->job->out, INSIDE_MAX + 4 * READ_SIZE);
    buf_init(&p->job->seen, HEADER_SEEN_MAX);
    content_init(&p->job->scanner, CONTENT_COUNTED);
    classify_begin(&p->job->classify, p->conf);
}

/* Put what is in `out` into a memfd. */
static bool spill(struct job *j)
{
    if (j->memory < 0) {
        j->memory = memfd_create("sluice-mail", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (j->memory < 0) {
            return false;
        }
    }
    while (buf_len(&j->out) > 0) {
        struct slice out = buf_slice(&j->out);
        ssize_t n = write(j->memory, out.ptr, out.len);

        if (n < 0 && errno != EINTR) {
            return false;
        }
        if (n > 0) {
            buf_consume(&j->out, (size_t)n);
            j->spilt += (uint64_t)n;
        }
    }
    return true;
}

/* Look at content in wire form: count, and keep the header. */
static void examine(struct job *j, struct slice wire)
{
    struct slice rest = wire, ignored;
    size_t used;

    classify_feed(&j->classify, wire);
    if (!j->scanner.facts.header_ended && !buf_add(&j->seen, wire)) {
        j->seen.failed = false; /* what has been seen of such a header has to do */
    }
    while (rest.len > 0) {
        (void)content_feed(&j->scanner, rest, &used, &ignored); /* counted: never says "end" */
        rest = slice_skip(rest, used);
    }
}

/* Append `in` to the content with line ends made CRLF. A CR that no LF follows becomes a blank:
 * some programs take it for a line end, some do not, and mail must mean the same to all. */
static void convert(struct job *j, struct slice in)
{
    char *start = buf_room(&j->out, 2 * in.len + 1), *to = start;

    CHECK(start != NULL);
    for (size_t i = 0; i < in.len; i++) {
        char c = in.ptr[i];

        if (j->after_cr && c != '\n') {
            *to++ = ' ';
        }
        j->after_cr = c == '\r';
        if (c == '\n') {
            *to++ = '\r';
        }
        if (c != '\r') {
            *to++ = j->last = c;
        }
    }
    examine(j, slice_of(start, (size_t)(to - start)));
    buf_grew(&j->out, (size_t)(to - start));
}

/* The last line gets an end when it has none. */
static void convert_end(struct job *j)
{
    if (j->after_cr || j->last != '\n') {
        j->after_cr = false;
        convert(j, SLICE("\n"));
    }
    content_finish(&j->scanner);
}

static int64_t inside_limit(const struct conf *conf)
{
    return conf->spool_inline_limit < INSIDE_MAX ? conf->spool_inline_limit : INSIDE_MAX;
}

static bool add_content(struct pickup *p, struct slice bytes)
{
    struct job *j = p->job;

    CHECK(bytes.len <= j->content_left);
    j->content_left -= bytes.len;
    while (bytes.len > 0) {
        struct slice part = slice_of(bytes.ptr, bytes.len < READ_SIZE ? bytes.len : READ_SIZE);

        convert(j, part);
        bytes = slice_skip(bytes, part.len);
        if ((int64_t)buf_len(&j->out) > inside_limit(p->conf) && !spill(j)) {
            return false;
        }
    }
    return true;
}

/* The envelope is complete: check the file's size against it. */
static const char *check_envelope(const struct pickup *p, size_t head)
{
    const struct job *j = p->job;
    uint64_t limit = (uint64_t)p->conf->message_size_limit;

    if ((uint64_t)j->st.st_size != head + j->envelope.content_size) {
        return "it is longer or shorter than it says";
    }
    if (limit > 0 && j->envelope.content_size > limit) {
        return "it is larger than message_size_limit";
    }
    return NULL;
}

static void no_memory(struct pickup *p)
{
    try_later(p, p->job->name);
    free_job(p);
}

/* Read on in the head. The buffer doubles before it is looked at again, so that a long list of
 * recipients is read in linear time. */
static void read_head(struct pickup *p, size_t *budget)
{
    struct job *j = p->job;
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
    if (why != NULL) {
        give_up(p, why);
    } else if (!add_content(p, slice_skip(buf_slice(&j->head), head))) {
        no_memory(p);
    }
}

static void read_content(struct pickup *p, size_t *budget)
{
    char bytes[READ_SIZE];
    size_t size = p->job->content_left < sizeof bytes ? p->job->content_left : sizeof bytes;
    ssize_t n = read(p->job->fd, bytes, size);

    if (n <= 0) {
        give_up(p, n == 0 ? "it became shorter while it was read" : strerror(errno));
        return;
    }
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    if (!add_content(p, slice_of(bytes, (size_t)n))) {
        no_memory(p);
    }
}

/* ---- what is added -------------------------------------------------------------------------- */

/* A display name: as a quoted string, or as an encoded word (RFC 2047) when it is not ASCII. */
static void add_name(struct slice name, struct buf *out)
{
    bool ascii = address_is_ascii(name);

    (void)buf_add_string(out, ascii ? "\"" : "=?utf-8?q?"); /* sticky, all of it */
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];

        if (ascii) {
            (void)buf_addf(out, "%s%c", c == '"' || c == '\\' ? "\\" : "", c);
        } else if (ascii_is_alnum(c)) {
            (void)buf_add_byte(out, c);
        } else {
            (void)buf_addf(out, "=%02X", (unsigned char)c);
        }
    }
    (void)buf_add_string(out, ascii ? "\" " : "?= ");
}

static void add_from(const struct pickup *p, struct slice sender, struct buf *out)
{
    (void)buf_add_string(out, "From: "); /* sticky, all of it */
    if (sender.len == 0) {
        (void)buf_addf(out, "MAILER-DAEMON@%.255s\r\n", p->conf->myhostname);
        return;
    }
    if (p->job->envelope.name.len > 0) {
        add_name(p->job->envelope.name, out);
        (void)buf_addf(out, "<%.*s>\r\n", SLICE_ARGS(sender));
    } else {
        (void)buf_addf(out, "%.*s\r\n", SLICE_ARGS(sender));
    }
}

static int zone_minutes(struct wall t)
{
    return clock_zone(t) / 60;
}

/* Fields that every mail has to have (RFC 5322, 3.6), and the empty line when there was no header
 * at all. */
static void add_missing(const struct pickup *p, struct slice sender, struct wall arrived,
                        struct buf *out)
{
    const struct job *j = p->job;
    struct slice seen = buf_slice(&j->seen);
    unsigned present = header_presence(seen);

    if ((present & HEADER_FROM) == 0) {
        add_from(p, sender, out);
    }
    if ((present & HEADER_DATE) == 0) {
        (void)buf_add_string(out, "Date: "); /* sticky, all of it */
        (void)header_date(arrived, zone_minutes(arrived), out);
        (void)buf_add_string(out, "\r\n");
    }
    if ((present & HEADER_MESSAGE_ID) == 0) {
        (void)buf_addf(out, "Message-ID: <%lld.%016" PRIx64 "@%.255s>\r\n",
                       (long long)us_seconds(arrived.us), entropy_u64(), p->conf->myhostname);
    }
    if (j->scanner.facts.header_bytes == 0 && !slice_starts(seen, SLICE("\r\n"))) {
        (void)buf_add_string(out, "\r\n");
    }
}

static void add_trace(const struct pickup *p, struct wall arrived, struct buf *out)
{
    (void)buf_addf(out, "Received: by %.255s (Sluice, from userid %u)\r\n\tid \1; ",
                   p->conf->myhostname, (unsigned)p->job->st.st_uid); /* sticky, all of it */
    (void)header_date(arrived, zone_minutes(arrived), out);
    (void)buf_add_string(out, "\r\n");
}

/* An address without a domain is one of $myorigin. NULL: it has one. */
static char *qualify(const struct pickup *p, struct slice address)
{
    struct buf b;

    if (address.len == 0 || address_split(address).domain.len > 0) {
        return NULL;
    }
    buf_init(&b, ADDRESS_MAX + CONF_LINE_MAX);
    (void)buf_addf(&b, "%.*s@%s", SLICE_ARGS(address), p->conf->myorigin); /* within the limit */
    return buf_take(&b);
}

/* ---- submitting ----------------------------------------------------------------------------- */

/* When the file was complete: a time that its owner can't choose. */
static struct wall arrival(const struct job *j)
{
    struct wall t = {(int64_t)j->st.st_ctim.tv_sec * US_PER_S + j->st.st_ctim.tv_nsec / 1000};

    return t.us < clock_wall().us ? t : clock_wall();
}

struct addresses {
    struct wire_rcpt *rcpts;
    char **owned; /* the ones that were completed, else NULL; the sender's is the last */
    size_t count;
    struct slice sender;
    const char *why; /* they can't be sent, or NULL */
};

static void take_addresses(const struct pickup *p, struct addresses *a)
{
    const struct maildrop *m = &p->job->envelope;
    uint64_t bytes = 0;

    a->count = m->rcpt_count;
    a->rcpts = mem_array(a->count, sizeof *a->rcpts);
    a->owned = mem_array(a->count + 1, sizeof *a->owned);
    a->why = NULL;
    a->owned[a->count] = qualify(p, m->sender);
    a->sender = a->owned[a->count] == NULL ? m->sender : slice_string(a->owned[a->count]);
    if (a->sender.len > ADDRESS_MAX) {
        a->why = "the sender's address is too long";
    }
    for (size_t i = 0; i < a->count; i++) {
        const struct maildrop_rcpt *from = &m->rcpts[i];

        a->owned[i] = qualify(p, from->address);
        a->rcpts[i] = (struct wire_rcpt){.address = a->owned[i] == NULL ? from->address
                                                                        : slice_string(a->owned[i]),
                                         .orcpt = from->orcpt,
                                         .notify = from->notify};
        bytes += a->rcpts[i].address.len + from->orcpt.len + RCPT_BYTES;
        if (a->rcpts[i].address.len > ADDRESS_MAX) {
            a->why = "a recipient's address is too long";
        }
    }
    if (bytes > ENVELOPE_BYTES_MAX) {
        a->why = "its recipients take too much room";
    }
}

static void free_addresses(struct addresses *a)
{
    for (size_t i = 0; i <= a->count; i++) {
        mem_free(a->owned[i]);
    }
    mem_free(a->owned);
    mem_free(a->rcpts);
}

static unsigned flags_of(const struct job *j)
{
    return j->envelope.flags |
           ((j->scanner.facts.flags & CONTENT_8BIT) != 0 ? (unsigned)ENVELOPE_8BIT : 0);
}

/* Hand it to the queue. The prefix goes in front of content, wherever that is. */
static void send_submission(struct pickup *p, const struct addresses *a)
{
    struct job *j = p->job;
    struct wire_submit m = {.token = ++p->last_token,
                            .sender = a->sender,
                            .envid = j->envelope.envid,
                            .flags = flags_of(j),
                            .arrived = arrival(j),
                            .pid = (uint32_t)getpid(),
                            .origin = SLICE("pickup"),
                            .rcpts = a->rcpts,
                            .rcpt_count = (uint32_t)a->count,
                            .fd_size = j->spilt};
    struct buf trace, content;
    struct item *item;
    struct classified class;
    char client[32], class_room[CLASS_NAME_MAX];

    (void)snprintf(client, sizeof client, "userid %u", (unsigned)j->st.st_uid); /* fits */
    m.client = slice_string(client);
    class = classify_end(&j->classify, p->conf, true, NULL, client, class_room);
    m.class_name = class.name;
    m.class_source = class.source;
    buf_init(&trace, WIRE_TRACE_MAX);
    add_trace(p, m.arrived, &trace);
    buf_init(&content, PREFIX_MAX + INSIDE_MAX + 4 * READ_SIZE);
    add_missing(p, a->sender, m.arrived, &content);
    (void)buf_add(&content, buf_slice(&j->out)); /* sticky */
    CHECK(!trace.failed);
    CHECK(!content.failed);
    m.trace = buf_slice(&trace);
    m.content = buf_slice(&content);
    wire_put_submit(p->queue, &m, j->memory);
    j->memory = -1; /* the channel's now */
    buf_fini(&content);
    buf_fini(&trace);

    item = add_item(p, j->name, ITEM_SENT);
    item->token = m.token;
    item->device = j->st.st_dev;
    item->inode = j->st.st_ino;
    p->sent++;
}

/* All of the file has been read. */
static void finish_job(struct pickup *p)
{
    static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    struct job *j = p->job;
    struct addresses a;

    convert_end(j);
    if ((int64_t)j->scanner.facts.received > p->conf->hopcount_limit) {
        give_up(p, "too many hops: it goes round in circles");
        return;
    }
    if (j->memory >= 0 && (!spill(j) || lseek(j->memory, 0, SEEK_SET) != 0 ||
                           fcntl(j->memory, F_ADD_SEALS, seals) != 0)) {
        no_memory(p);
        return;
    }
    take_addresses(p, &a);
    if (a.why != NULL) {
        give_up(p, a.why);
    } else {
        send_submission(p, &a);
        free_job(p);
    }
    free_addresses(&a);
}

/* The file that was read, and no other that has got its name since. */
static void remove_file(struct pickup *p, const struct item *item)
{
    struct stat st;

    if (fstatat(p->directory, item->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_dev == item->device && st.st_ino == item->inode &&
        unlinkat(p->directory, item->name, 0) != 0) {
        log_error("maildrop/%s: queued, but it can't be removed: %s", item->name, strerror(errno));
    }
}

static struct item *find_token(struct pickup *p, uint64_t token)
{
    struct item *item, *following;

    HASH_ITER(hh, p->items, item, following)
    {
        if (item->state == ITEM_SENT && item->token == token) {
            return item;
        }
    }
    return NULL;
}

static void later(struct pickup *p, struct item *item)
{
    CHECK(item->state == ITEM_SENT);
    item->state = ITEM_LATER;
    item->due = mono_after(clock_mono(), LATER_US);
    p->sent--;
}

static void wake(struct pickup *p);

void pickup_done(struct pickup *p, const struct wire_submit_done *done)
{
    struct item *item = find_token(p, done->token);
    char why[256];

    if (item == NULL) {
        return; /* of a submission before the queue was restarted */
    }
    if (done->code >= 200 && done->code < 300) {
        remove_file(p, item);
        remove_item(p, item);
    } else if (done->code >= 500) {
        char *name = mem_string(item->name);
        (void)snprintf(why, sizeof why, "refused: %u %.*s %.*s", done->code,
                       SLICE_ARGS(done->status), SLICE_ARGS(done->text)); /* cut is fine */
        remove_item(p, item);
        set_aside(p, name, why);
        mem_free(name);
    } else {
        log_warning("maildrop/%s: tried again later: %u %.*s %.*s", item->name, done->code,
                    SLICE_ARGS(done->status), SLICE_ARGS(done->text));
        later(p, item);
    }
    wake(p);
}

/* ---- scanning ------------------------------------------------------------------------------- */

/* Go on soon, but let others have their turn. */
static void wake(struct pickup *p)
{
    static const struct timeval soon = {0};

    if (p->queue != NULL && !p->stopped) {
        CHECK(event_add(p->turn_timer, &soon) == 0);
    }
}

/* Is the file to be looked at now? */
static bool is_due(struct pickup *p, const char *name)
{
    struct item *item = find_item(p, name);

    if (item == NULL) {
        return true;
    }
    item->scan = p->scan_number;
    if (item->state == ITEM_LATER && mono_reached(item->due, clock_mono())) {
        remove_item(p, item);
        return true;
    }
    return false;
}

/* Look at the next file. False at the end of the scan. */
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
        begin_job(p, entry->d_name);
    }
    return true;
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    struct pickup *p = arg;
    size_t budget = PICKUP_TURN_BYTES;

    (void)fd;
    (void)what;
    for (unsigned looked = 0; looked < PICKUP_TURN_FILES && budget > 0;) {
        if (p->queue == NULL || p->stopped || p->sent == PICKUP_PENDING_MAX) {
            return; /* pickup_queue or pickup_done wakes us */
        }
        if (p->job == NULL) {
            if (!scan_next(p)) {
                return;
            }
            looked++;
        } else if (p->job->envelope.rcpt_count == 0) {
            read_head(p, &budget);
        } else if (p->job->content_left > 0) {
            read_content(p, &budget);
        } else {
            finish_job(p);
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

/* Something has happened in the directory; the scan finds out what. */
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

/* ---- life ----------------------------------------------------------------------------------- */

/* Only a directory of our own: what a user made under this name may be anything. */
static int open_corrupt(int directory)
{
    int fd = openat(directory, "corrupt", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_uid != geteuid())) {
        (void)close(fd); /* nothing was done with it */
        fd = -1;
    }
    return fd;
}

/* Without a watch the periodic scan has to do. */
static void watch(struct pickup *p)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (fd < 0 ||
        inotify_add_watch(fd, p->conf->maildrop, IN_ATTRIB | IN_MOVED_TO | IN_ONLYDIR) < 0) {
        log_warning("%s: not watched, mail there waits up to a minute: %s", p->conf->maildrop,
                    strerror(errno));
        if (fd >= 0) {
            (void)close(fd); /* watches nothing */
        }
        return;
    }
    p->watch = event_new(p->base, fd, EV_READ | EV_PERSIST, on_watch, p);
    CHECK(p->watch != NULL);
    CHECK(event_add(p->watch, NULL) == 0);
}

struct pickup *pickup_new(struct event_base *base, const struct conf *conf, struct buf *ret_error)
{
    static const struct timeval period = {.tv_sec = SCAN_US / US_PER_S};
    int fd = open(conf->maildrop, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct pickup *p;
    DIR *scan;
    int copy;

    copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    scan = copy < 0 ? NULL : fdopendir(copy);
    if (scan == NULL) {
        (void)buf_addf(ret_error, "%s: %s", conf->maildrop, strerror(errno)); /* sticky */
        if (copy >= 0) {
            (void)close(copy); /* only read */
        }
        if (fd >= 0) {
            (void)close(fd);
        }
        return NULL;
    }
    p = mem_new(sizeof *p);
    p->base = base;
    p->conf = conf;
    p->directory = fd;
    p->scan = scan;
    p->corrupt = open_corrupt(fd);
    if (p->corrupt < 0) {
        log_error("%s/corrupt is not a directory of this user: what can't be used stays in %s",
                  conf->maildrop, conf->maildrop);
    }
    p->scan_wanted = true;
    p->scan_timer = event_new(base, -1, EV_PERSIST, on_scan_timer, p);
    p->turn_timer = evtimer_new(base, on_turn, p);
    CHECK(p->scan_timer != NULL);
    CHECK(p->turn_timer != NULL);
    CHECK(event_add(p->scan_timer, &period) == 0);
    watch(p);
    return p;
}

void pickup_free(struct pickup *p)
{
    struct item *item, *following;

    if (p == NULL) {
        return;
    }
    free_job(p);
    HASH_ITER(hh, p->items, item, following)
    {
        remove_item(p, item);
    }
    if (p->watch != NULL) {
        int fd = event_get_fd(p->watch);
        event_free(p->watch);
        (void)close(fd); /* only read */
    }
    event_free(p->scan_timer);
    event_free(p->turn_timer);
    if (p->corrupt >= 0) {
        (void)close(p->corrupt);
    }
    (void)closedir(p->scan);
    (void)close(p->directory);
    mem_free(p);
}

void pickup_queue(struct pickup *p, struct channel *queue)
{
    struct item *item, *following;

    p->queue = queue;
    if (queue == NULL) {
        HASH_ITER(hh, p->items, item, following)
        {
            if (item->state == ITEM_SENT) {
                remove_item(p, item);
            }
        }
    }
    p->scan_wanted = true;
    wake(p);
}

void pickup_stop(struct pickup *p)
{
    p->stopped = true;
}

void pickup_reload(struct pickup *p, const struct conf *conf)
{
    p->conf = conf;
    p->scan_wanted = true;
    wake(p);
}
