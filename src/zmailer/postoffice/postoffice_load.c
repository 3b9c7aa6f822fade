/*
 * Loads control files into the table, and loads them again after changes by other programs.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "envelope.h"
#include "mem.h"
#include "postoffice_engine.h"

/* Largest number of resyncs of a file before it is forgotten; a scan then finds it again. */
#define RESYNCS_MAX 30

/* ---- texts ----------------------------------------------------------------------------------- */

void post_spoolid(const struct post_file *file, char ret_text[CONTROL_SPOOLID_MAX])
{
    control_spoolid(file->number, us_seconds(file->arrived.us), file->mtime_ns, ret_text);
}

void tell_complete(struct postoffice *po, const struct post_file *file)
{
    char spoolid[CONTROL_SPOOLID_MAX], done[POST_PATH_MAX + 32];
    int len =
        snprintf(done, sizeof done, "scheduler done processing %.*s", SLICE_ARGS(post_name(file)));

    verbose_file(po, file, slice_of(done, (size_t)len)); /* fits */
    post_spoolid(file, spoolid);
    post_tell(po, SPOOL_EVENT_COMPLETE, file->root.id,
              "%s: complete (total %" PRIu32 " recipients, %" PRIu32 " failed)", spoolid,
              file->total, file->f.failed);
}

bool control_name(struct slice name, uint8_t *ret_state, struct slice *ret_name)
{
    uint8_t state = 0;

    if (slice_starts(name, SLICE(POST_HOLD))) {
        state = SPOOL_HOLD;
        name = slice_skip(name, strlen(POST_HOLD));
    } else if (slice_starts(name, SLICE(POST_DAMAGED))) {
        state = SPOOL_CORRUPT;
        name = slice_skip(name, strlen(POST_DAMAGED));
    }
    if (name.len == 0 || name.len > NAME_MAX - strlen(POST_DAMAGED) ||
        !ascii_is_digit(name.ptr[0])) {
        return false;
    }
    *ret_state = state;
    *ret_name = name;
    return true;
}

/* ---- types ----------------------------------------------------------------------------------- */

/* A file that is being loaded. */
struct arrival {
    const char *disk_path; /* path as found, with its prefix */
    char path[POST_PATH_MAX];
    struct slice name;
    uint64_t number;
    uint8_t state;    /* state in its name */
    int64_t lock_pid; /* live process that has locked a recipient; 0: none */
    struct post_view *view;
    struct stat message; /* status of the message file */
    bool has_message;
    struct buf reason; /* reason of the quarantine */
};

/* Decision about a recipient of a control file. */
struct disposition {
    bool kept;
    uint8_t state;
    char tag;   /* tag of its end */
    char fixed; /* tag that must be set now, or 0 */
};

/* Is one of a class of alternatives done (`done`), or open? */
static bool class_has(const struct control_file *c, const struct control_rcpt *r, bool done)
{
    for (size_t i = 0; i < c->rcpt_count; i++) {
        const struct control_rcpt *other = &c->rcpts[i];

        if (other->alternative && other->class == r->class &&
            (done ? other->tag == '+' : other->open)) {
            return true;
        }
    }
    return false;
}

/* Finds the end of a recipient in `d` lines whose writer did not set the tag, as after a crash. */
static bool written_end(const struct post_view *view, const struct control_rcpt *r,
                        enum spool_rcpt_state *ret_state)
{
    size_t count;
    const struct control_diagnostic *const *reports = view_reports(view, r->offset, &count);

    while (count > 0) {
        if (diagnostic_end(reports[--count], ret_state)) {
            return true;
        }
    }
    return false;
}

static char tag_of(enum spool_rcpt_state state)
{
    return state == SPOOL_RCPT_FAILED ? '-' : '+';
}

static struct disposition disposition_of(const struct post_view *view, const struct control_rcpt *r)
{
    const struct control_file *c = &view->control;
    struct disposition disposition = {.tag = r->tag};
    enum spool_rcpt_state end;
    size_t reports;

    if (r->tag == ' ' || r->tag == '~') {
        if (r->open && written_end(view, r, &end)) {
            disposition =
                (struct disposition){.kept = true, .state = (uint8_t)end, .fixed = tag_of(end)};
            disposition.tag = disposition.fixed;
            return disposition;
        }
        disposition.fixed = r->tag == '~' ? ' ' : '\0';
        disposition.kept = true;
        disposition.state = r->open ? (uint8_t)SPOOL_RCPT_PENDING : (uint8_t)POST_ALTERNATIVE;
        if (!r->open && class_has(c, r, true)) {
            disposition.kept = false;
            disposition.fixed = '+';
        }
        return disposition;
    }
    (void)view_reports(view, r->offset, &reports); /* only the number matters */
    disposition.kept = reports > 0 && !(r->alternative && r->tag == '-' &&
                                        (class_has(c, r, true) || class_has(c, r, false)));
    if (!written_end(view, r, &end)) {
        end = r->tag == '-' ? SPOOL_RCPT_FAILED : SPOOL_RCPT_DELIVERED;
    }
    disposition.state = (uint8_t)end;
    return disposition;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static bool words_fit(const struct control_file *c, struct buf *reason)
{
    for (size_t i = 0; i < c->rcpt_count; i++) {
        const struct control_address *a = &c->rcpts[i].address;

        if (a->channel.len > SPOOL_ROUTE_MAX || control_host_key(a->host).len > SPOOL_ROUTE_MAX) {
            (void)buf_addf(reason, "offset %" PRIu64 ": expected words of at most %d bytes",
                           c->rcpts[i].offset, SPOOL_ROUTE_MAX);
            return false;
        }
    }
    return true;
}

/* Does the file have only what a router writes? Adds to the parser's checks. */
static bool is_sound(const struct arrival *a, struct buf *reason)
{
    const struct control_file *c = &a->view->control;

    if (c->etrn.len > 0) {
        (void)buf_add_string(reason, "expected no recipients in a request to try a host");
    } else if (!slice_equal(c->name, a->name)) {
        (void)buf_addf(reason, "the `i` line names another message, %.*s", SLICE_ARGS(c->name));
    } else if (!c->is_whole) {
        (void)buf_add_string(reason, "the end of the file is missing");
    } else if (c->rcpt_count == 0 || c->rcpt_count > SPOOL_RCPTS_MAX) {
        (void)buf_addf(reason, "%zu recipients, 1 to %" PRIu32 " are expected", c->rcpt_count,
                       SPOOL_RCPTS_MAX);
    } else if (c->error_to.len > SPOOL_SENDER_MAX) {
        (void)buf_addf(reason, "an error address of %zu bytes, at most %d are expected",
                       c->error_to.len, SPOOL_SENDER_MAX);
    } else {
        return words_fit(c, reason);
    }
    return false;
}

/* ---- quarantine ------------------------------------------------------------------------------ */

/* Renames a damaged file, so that it is recognized after a restart. Does not replace another
 * file. */
static bool rename_aside(struct postoffice *po, const struct arrival *a)
{
    char to[POST_PATH_MAX];
    struct stat st;

    post_path_of(slice_string(a->path), POST_DAMAGED, to);
    return !po->options.keep_files && fstatat(po->transport, to, &st, AT_SYMLINK_NOFOLLOW) != 0 &&
           po->io->renameat(po->transport, a->disk_path, po->transport, to) == 0;
}

static enum load_result load_damaged(struct postoffice *po, const struct arrival *a)
{
    struct slice reason = buf_slice(&a->reason);
    struct post_file *file = table_file_new(slice_string(a->path), SLICE(""), SLICE(""), 0, 0);

    file->number = a->number;
    file->hollow = true;
    file->on_disk = a->state;
    if (a->state != SPOOL_CORRUPT && rename_aside(po, a)) {
        file->on_disk = SPOOL_CORRUPT;
    }
    file->f.state = SPOOL_CORRUPT;
    file->f.reason = mem_copy(reason.ptr, reason.len);
    if (a->view != NULL) {
        file->listed = a->view->listed;
    }
    if (a->has_message) {
        file->size = (uint64_t)a->message.st_size;
        file->arrived.us = a->message.st_mtim.tv_sec * US_PER_S;
    }
    file->root.f =
        (struct post_fields){.state = SPOOL_DEFERRED, .due = po->now, .created = file->arrived};
    table_add(&po->table, file);
    if (a->state != SPOOL_CORRUPT) {
        post_tell(po, SPOOL_EVENT_WARNING, file->root.id, "transport/%s is quarantined: %.*s",
                  a->path, SLICE_ARGS(reason));
    }
    return LOAD_DONE;
}

/* ---- filling the table ----------------------------------------------------------------------- */

uint32_t address_hash(struct slice address)
{
    char lower[ADDRESS_MAX];
    size_t len = address.len < sizeof lower ? address.len : sizeof lower;

    for (size_t i = 0; i < len; i++) {
        lower[i] = ascii_lower(address.ptr[i]);
    }
    return (uint32_t)hash_bytes(lower, len);
}

/* A recipient, for sorting by destination. */
struct placed {
    const struct control_rcpt *r;
    struct slice channel, host;
    uint32_t index;
};

static int compare_nocase(struct slice a, struct slice b)
{
    size_t len = a.len < b.len ? a.len : b.len;

    for (size_t i = 0; i < len; i++) {
        int order = ascii_lower(a.ptr[i]) - ascii_lower(b.ptr[i]);

        if (order != 0) {
            return order;
        }
    }
    return (a.len > b.len) - (a.len < b.len);
}

static int by_destination(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    int order = compare_nocase(x->channel, y->channel);

    order = order != 0 ? order : compare_nocase(x->host, y->host);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

static bool same_destination(const struct placed *a, const struct placed *b)
{
    return compare_nocase(a->channel, b->channel) == 0 && compare_nocase(a->host, b->host) == 0;
}

static struct slice lower(struct slice word, char room[SPOOL_ROUTE_MAX])
{
    CHECK(word.len <= SPOOL_ROUTE_MAX);
    for (size_t i = 0; i < word.len; i++) {
        room[i] = ascii_lower(word.ptr[i]);
    }
    return slice_of(room, word.len);
}

static void fill_vertices(struct postoffice *po, struct post_file *file,
                          const struct placed *placed)
{
    char channel[SPOOL_ROUTE_MAX], host[SPOOL_ROUTE_MAX];
    uint32_t vertex = 0;

    for (uint32_t i = 0; i < file->rcpt_count; i++) {
        if (i == 0 || !same_destination(&placed[i], &placed[i - 1])) {
            struct post_vertex *v = &file->vertices[vertex++];

            v->file = file;
            v->dest = table_dest(&po->table, lower(placed[i].channel, channel),
                                 lower(placed[i].host, host));
        }
        file->rcpts[placed[i].index].vertex = vertex - 1;
    }
    CHECK(vertex == file->vertex_count);
}

static void fill_rcpt(struct post_file *file, struct post_rcpt *to, const struct control_rcpt *r,
                      const struct disposition *disposition)
{
    bool belongs = disposition->state != POST_ALTERNATIVE;

    to->offset = (uint32_t)r->offset;
    to->state = disposition->state;
    to->tag = disposition->tag;
    to->part = belongs ? &file->root : NULL;
    to->address_hash = address_hash(r->address.user);
    to->domain_hash = address_hash(spool_domain(r->address.user));
}

/* Sorts the kept recipients by destination. Returns them, with the number of destinations in
 * *ret_vertices. */
static struct placed *place_all(const struct post_view *view, uint32_t *ret_count,
                                uint32_t *ret_vertices)
{
    const struct control_file *c = &view->control;
    struct placed *placed = mem_array(c->rcpt_count + 1, sizeof *placed);
    uint32_t count = 0, vertices = 0;

    for (size_t i = 0; i < c->rcpt_count; i++) {
        const struct control_rcpt *r = &c->rcpts[i];

        if (disposition_of(view, r).kept) {
            placed[count] = (struct placed){.r = r,
                                            .channel = r->address.channel,
                                            .host = control_host_key(r->address.host),
                                            .index = count};
            count++;
        }
    }
    qsort(placed, count, sizeof *placed, by_destination);
    for (uint32_t i = 0; i < count; i++) {
        vertices += i == 0 || !same_destination(&placed[i], &placed[i - 1]);
    }
    *ret_count = count;
    *ret_vertices = vertices;
    return placed;
}

static unsigned ret_flag(enum control_ret ret)
{
    switch (ret) {
    case CONTROL_RET_FULL:
        return ENVELOPE_RET_FULL;
    case CONTROL_RET_HEADERS:
        return ENVELOPE_RET_HDRS;
    case CONTROL_RET_UNKNOWN:
        return 0;
    }
    return 0;
}

static void fill_file(struct post_file *file, const struct arrival *a)
{
    const struct control_file *c = &a->view->control;

    file->number = a->number;
    file->on_disk = file->f.state = a->state;
    file->total = (uint32_t)c->rcpt_count;
    file->owner = a->message.st_uid;
    file->log_hash = (uint32_t)hash_bytes(c->log_id.ptr, c->log_id.len);
    file->size = (uint64_t)a->message.st_size;
    file->arrived.us = a->message.st_mtim.tv_sec * US_PER_S + a->message.st_mtim.tv_nsec / 1000;
    file->mtime_ns = (uint32_t)a->message.st_mtim.tv_nsec;
    file->listed = a->view->listed;
    file->flags = (uint8_t)(ret_flag(c->ret) | (c->is_bounce ? (unsigned)ENVELOPE_REPORT : 0));
    file->is_verbose = c->verbose.len > 0;
}

/* Adds the file to the table, or removes it if it is finished. */
static enum load_result load_sound(struct postoffice *po, const struct arrival *a)
{
    const struct control_file *c = &a->view->control;
    uint32_t count, vertices, warnings = UINT32_MAX, at = 0;
    struct placed *placed = place_all(a->view, &count, &vertices);
    struct slice envid = c->envid.len <= DSN_ENVID_MAX ? c->envid : SLICE("");
    struct post_file *file =
        table_file_new(slice_string(a->path), c->error_to, envid, count, vertices);
    bool reports = false;

    fill_file(file, a);
    for (size_t i = 0; i < c->rcpt_count; i++) {
        struct disposition disposition = disposition_of(a->view, &c->rcpts[i]);

        file->f.failed += disposition.tag == '-';
        if (disposition.kept) {
            fill_rcpt(file, &file->rcpts[at++], &c->rcpts[i], &disposition);
            file->has_alternatives = file->has_alternatives || c->rcpts[i].alternative;
            reports = reports ||
                      (disposition.state != SPOOL_RCPT_PENDING && disposition.state < POST_DONE);
        }
        if (disposition.kept && disposition.state == SPOOL_RCPT_PENDING &&
            c->rcpts[i].warnings < warnings) {
            warnings = c->rcpts[i].warnings;
        }
    }
    fill_vertices(po, file, placed);
    mem_free(placed);
    file->root.f = (struct post_fields){.state = SPOOL_INCOMING,
                                        .due = wall_min(file->arrived, po->now),
                                        .created = file->arrived,
                                        .warnings = warnings == UINT32_MAX ? 0 : warnings};
    if (reports) {
        file->f.report_due = wall_after(po->now, po->options.report_interval_us);
    }
    if (file->f.state == SPOOL_HOLD) {
        file->f.reason = mem_string("held by an operator");
    }
    table_add(&po->table, file);
    arrange_root(po, file);
    return LOAD_DONE;
}

/* ---- before loading -------------------------------------------------------------------------- */

/* Handles a request to try a host, written by ZMailer's SMTP server. */
static enum load_result load_etrn(struct postoffice *po, const struct arrival *a)
{
    struct slice rest = slice_trim(a->view->control.etrn), domain = slice_cut(&rest, ' ');
    char name[ADDRESS_MAX + 1];
    int err = po->options.keep_files ? 0 : po->io->unlinkat(po->transport, a->disk_path);

    if (err != 0) {
        post_tell(po, SPOOL_EVENT_WARNING, 0, "transport/%s can't be removed: %s", a->disk_path,
                  strerror(-err));
        return LOAD_FAILED; /* otherwise each scan would find it again */
    }
    if (domain.len > ADDRESS_MAX) {
        return LOAD_DONE; /* no host name is as long */
    }
    for (size_t i = 0; i < domain.len; i++) {
        name[i] = ascii_lower(domain.ptr[i]);
    }
    post_tell(po, SPOOL_EVENT_ETRN, 0, "%.*s", (int)domain.len, name);
    return LOAD_DONE;
}

/* Returns the live process that has locked a recipient of the file, or 0. */
static int64_t lock_of(const struct post_view *view)
{
    int64_t pid = 0;

    for (size_t i = 0; i < view->control.rcpt_count && pid == 0; i++) {
        pid = lock_holder(&view->control.rcpts[i]);
    }
    return pid;
}

/* Parks a file that another program has locked. If its mail is requested nevertheless, agents
 * refuse the locked recipients, and a resync reads the file. */
static void park_locked(struct postoffice *po, struct post_file *file, int64_t pid)
{
    struct post_fields to = file->root.f;
    char words[64];

    (void)snprintf(words, sizeof words, SPOOL_PARKED_LOCKED "process %" PRId64, pid); /* fits */
    to.key = table_key(&po->table, slice_string(words));
    to.state = SPOOL_DEFERRED;
    /* the scan, which loads it again, comes first */
    to.due = wall_after(po->now, LOAD_LOCKED_US + US_PER_S);
    table_set(&po->table, &file->root, to);
    (void)snprintf(words, sizeof words, "locked by process %" PRId64, pid); /* fits */
    for (uint32_t i = 0; i < file->vertex_count; i++) {
        table_set_words(&po->table, &file->vertices[i],
                        &(struct spool_verdict){.diagnostic = slice_string(words)},
                        (struct wall){0});
    }
    file->is_locked = true;
    post_tell(po, SPOOL_EVENT_LOG, file->root.id,
              "Skipped a job-file because it is held locked by PID=%06" PRId64, pid);
}

/* May the file, which was locked when it was loaded, be loaded again? Not if it was requested, held
 * or divided meanwhile. */
static bool still_waits_locked(const struct post_file *file)
{
    return file->is_locked && file->f.state == 0 && !file->root.f.claimed &&
           file->root.f.key != NULL && LIST_EMPTY(&file->parts);
}

/* Corrects tags: locks of dead processes, ends that only `d` lines have, and alternatives that are
 * no longer needed. *ret_fixed: the file has changed. */
static int fix_tags(struct postoffice *po, const struct arrival *a, bool *ret_fixed)
{
    for (size_t i = 0; i < a->view->control.rcpt_count && !po->options.keep_files; i++) {
        const struct control_rcpt *r = &a->view->control.rcpts[i];
        struct disposition disposition = disposition_of(a->view, r);
        int err = disposition.fixed == '\0' ? 0 : mark_now(po, a->disk_path, r, disposition.fixed);

        if (err != 0) {
            return err;
        }
        *ret_fixed = *ret_fixed || disposition.fixed != '\0';
    }
    return 0;
}

/* Makes the hash directories of a path, as routers do. */
static int make_hash(struct postoffice *po, int base, const char *path)
{
    for (size_t len = 1; path[len] == '/'; len += 2) {
        char part[8];
        int err;

        memcpy(part, path, len);
        part[len] = '\0';
        err = po->io->mkdirat(base, part, 02755);
        if (err != 0 && err != -EEXIST) {
            return err;
        }
    }
    return 0;
}

static int move(struct postoffice *po, int base, const char *from, const char *to)
{
    int err = make_hash(po, base, to);

    return err != 0 ? err : po->io->renameat(base, from, base, to);
}

/* Moves a file from the top level to its hash directory, the control file first. Updates
 * a->path. */
static void move_into_hash(struct postoffice *po, struct arrival *a)
{
    char hash[5], to[POST_PATH_MAX];
    struct stat st;

    if (po->options.hash_levels == 0 || a->state != 0 || strchr(a->path, '/') != NULL ||
        po->options.keep_files) {
        return;
    }
    control_hash_directory(a->number, po->options.hash_levels, hash);
    if (snprintf(to, sizeof to, "%s%s", hash, a->path) >= (int)sizeof to ||
        fstatat(po->transport, to, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
        move(po, po->transport, a->path, to) != 0) {
        return; /* the file can stay where it is */
    }
    if (move(po, po->queue, a->path, to) != 0) {
        post_tell(po, SPOOL_EVENT_WARNING, 0, "queue/%s can't be moved to queue/%s", a->path, to);
    } /* find_message tries again */
    (void)strcpy(a->path, to);
    a->disk_path = a->path;
}

/* Finds the message file, and completes a move that a crash interrupted. */
static int find_message(struct postoffice *po, struct arrival *a)
{
    const char *slash = strrchr(a->path, '/');
    int err = fstatat(po->queue, a->path, &a->message, AT_SYMLINK_NOFOLLOW) != 0 ? -errno : 0;

    if (err == -ENOENT && slash != NULL && !po->options.keep_files &&
        fstatat(po->queue, slash + 1, &a->message, AT_SYMLINK_NOFOLLOW) == 0) {
        err = move(po, po->queue, slash + 1, a->path);
    }
    a->has_message = err == 0 && S_ISREG(a->message.st_mode);
    return err == -ENOENT ? 0 : err;
}

/* ---- obsoleted mail -------------------------------------------------------------------------- */

/* Is the file the message that the other one obsoletes, and do both have the same sender and
 * owner? */
static bool is_obsolete(struct postoffice *po, const struct post_file *file,
                        const struct arrival *by)
{
    const struct control_file *c = &by->view->control;
    struct post_view *view;

    return file->log_hash == (uint32_t)hash_bytes(c->obsoletes.ptr, c->obsoletes.len) &&
           !file->hollow && file->owner == by->message.st_uid &&
           slice_equal_nocase(post_sender(file), c->error_to) &&
           view_of(po, file, false, &view) == 0 && slice_equal(view->control.log_id, c->obsoletes);
}

/* Removes messages that the new one obsoletes. It compares all messages, which takes a millisecond
 * for some hundred thousand; such mail is rare. */
static void purge_obsolete(struct postoffice *po, const struct arrival *by)
{
    struct post_file *file, *next;
    char spoolid[CONTROL_SPOOLID_MAX], control[POST_PATH_MAX], message[POST_PATH_MAX];

    if (by->view->control.obsoletes.len == 0 || po->options.keep_files) {
        return;
    }
    HASH_ITER(hh, po->table.files, file, next)
    {
        if (is_obsolete(po, file, by)) {
            post_spoolid(file, spoolid);
            post_tell(po, SPOOL_EVENT_COMPLETE, file->root.id, "%s: obsoleted by %.*s", spoolid,
                      SLICE_ARGS(by->name));
            post_control_path(file, file->on_disk, control);
            post_control_path(file, 0, message);
            forget_file(po, file);
            remove_files(po, control, message);
        }
    }
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool all_done(const struct post_view *view)
{
    for (size_t i = 0; i < view->control.rcpt_count; i++) {
        if (disposition_of(view, &view->control.rcpts[i]).kept) {
            return false;
        }
    }
    return true;
}

/* Removes a file in which all recipients are done and reported. */
static enum load_result load_complete(struct postoffice *po, const struct arrival *a)
{
    struct post_file *file = table_file_new(slice_string(a->path), SLICE(""), SLICE(""), 0, 0);

    fill_file(file, a);
    for (size_t i = 0; i < a->view->control.rcpt_count; i++) {
        file->f.failed += a->view->control.rcpts[i].tag == '-';
    }
    tell_complete(po, file);
    mem_free(file->rcpts);
    mem_free(file->vertices);
    mem_free(file);
    remove_files(po, a->disk_path, a->path);
    return LOAD_DONE;
}

static enum load_result failed(struct postoffice *po, const struct arrival *a, int err)
{
    /* only the first failure is reported, because often no file at all can be read */
    if (po->scan.failed++ == 0) {
        post_tell(po, SPOOL_EVENT_WARNING, 0, "transport/%s can't be read: %s", a->disk_path,
                  strerror(-err));
    }
    return LOAD_FAILED;
}

static int compare_offsets(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Writes the `d` lines of failures that an agent has marked and left to the scheduler, if no
 * process lived to write them. Without these lines the sender would get no report. */
static int note_untold(struct postoffice *po, const struct arrival *a, bool *ret_noted)
{
    const struct control_file *c = &a->view->control;
    uint64_t *told = mem_array(c->diagnostic_count + 1, sizeof *told);
    struct buf lines;
    int err = 0;

    for (size_t i = 0; i < c->diagnostic_count; i++) {
        told[i] = c->diagnostics[i].rcpt;
    }
    qsort(told, c->diagnostic_count, sizeof *told, compare_offsets);
    buf_init(&lines, POST_CONTROL_MAX);
    if (c->ends_in_part) {
        (void)buf_add_byte(&lines, '\n'); /* checked below */
    }
    for (size_t i = 0; i < c->rcpt_count && !po->options.keep_files; i++) {
        const struct control_rcpt *r = &c->rcpts[i];
        unsigned notify = control_notify(r->dsn);

        if (r->tag == '-' && !r->alternative &&
            (notify == NOTIFY_DEFAULT || (notify & NOTIFY_FAILURE) != 0 || c->is_bounce) &&
            bsearch(&r->offset, told, c->diagnostic_count, sizeof *told, compare_offsets) == NULL) {
            control_put_diagnostic(&lines,
                                   &(struct control_diagnostic){
                                       .tag = ' ',
                                       .rcpt = r->offset,
                                       .headers_at = c->groups[r->group].headers_at,
                                       .dsn_at = r->dsn_at,
                                       .time_s = us_seconds(po->now.us),
                                       .notary = SLICE("\003\1failed\1\1\1"),
                                       .text = SLICE("delivery has failed; the reason is lost")});
            *ret_noted = true;
        }
    }
    mem_free(told);
    if (*ret_noted) {
        err = lines.failed ? -EFBIG : append_now(po, a->disk_path, buf_slice(&lines));
    }
    buf_fini(&lines);
    return err;
}

/* Loads the file after it was read. */
static enum load_result load_view(struct postoffice *po, struct arrival *a)
{
    bool fixed = false;
    int err = find_message(po, a);

    if (err != 0) {
        return failed(po, a, err);
    }
    if (a->state == SPOOL_CORRUPT) {
        (void)is_sound(a, &a->reason); /* only the reason matters */
        if (buf_len(&a->reason) == 0) {
            (void)buf_add_string(&a->reason, a->has_message ? "quarantined before the last start"
                                                            : "the message file is missing");
        }
        return load_damaged(po, a);
    }
    if (!is_sound(a, &a->reason)) {
        return load_damaged(po, a);
    }
    if (a->lock_pid != 0 && a->has_message) {
        (void)load_sound(po, a); /* always done */
        park_locked(po, table_file(&po->table, a->number), a->lock_pid);
        return LOAD_LOCKED;
    }
    err = fix_tags(po, a, &fixed);
    err = err != 0 ? err : note_untold(po, a, &fixed);
    if (err != 0) {
        return failed(po, a, err);
    }
    if (fixed) { /* another alternative may be open now */
        view_free(a->view);
        a->view = NULL;
        err = view_read(po, a->disk_path, &a->reason, &a->view);
        if (err != 0) {
            return failed(po, a, err);
        }
    }
    if (all_done(a->view) && a->state == 0 && !po->options.keep_files) {
        return load_complete(po, a);
    }
    if (!a->has_message) {
        (void)buf_addf(&a->reason, "the message file queue/%s is missing", a->path);
        return load_damaged(po, a);
    }
    purge_obsolete(po, a);
    return load_sound(po, a);
}

static enum load_result load_number(struct postoffice *po, struct arrival *a)
{
    struct post_file *known = table_file(&po->table, a->number);
    bool was_locked =
        known != NULL && slice_equal(post_name(known), a->name) && still_waits_locked(known);
    int err;

    if (known != NULL && !was_locked) {
        if (slice_equal(post_name(known), a->name)) {
            return LOAD_DONE; /* even if it was found at another place */
        }
        if (!known->same_number_told) {
            known->same_number_told = true;
            post_tell(po, SPOOL_EVENT_LOG, 0, "transport/%s waits: %.*s has the same number",
                      a->path, SLICE_ARGS(post_name(known)));
        }
        return LOAD_SAME_NUMBER;
    }
    err = view_read(po, a->disk_path, &a->reason, &a->view);
    a->lock_pid = err == 0 ? lock_of(a->view) : 0;
    if (was_locked && a->lock_pid != 0) {
        park_locked(po, known, a->lock_pid);
        return LOAD_LOCKED;
    }
    if (was_locked) {
        forget_file(po, known);
    }
    if (err == -ENOENT) {
        return LOAD_GONE;
    }
    if (err == -EBADMSG) {
        (void)find_message(po, a); /* reads the message's size */
        return load_damaged(po, a);
    }
    if (err != 0) {
        return failed(po, a, err);
    }
    if (a->view->control.etrn.len > 0 && a->view->control.rcpt_count == 0) {
        return load_etrn(po, a);
    }
    if (a->lock_pid == 0) {
        move_into_hash(po, a);
    }
    return load_view(po, a);
}

enum load_result load_file(struct postoffice *po, const char *path)
{
    struct arrival a = {.disk_path = path};
    struct slice whole = slice_string(path);
    size_t slash = slice_find_last(whole, '/'), hash = slash == whole.len ? 0 : slash + 1;
    enum load_result result;

    if (!control_name(slice_skip(whole, hash), &a.state, &a.name) ||
        !control_spool_number(a.name, &a.number)) {
        return LOAD_GONE; /* not a control file */
    }
    (void)snprintf(a.path, sizeof a.path, "%.*s%.*s", (int)hash, path, SLICE_ARGS(a.name));
    buf_init(&a.reason, SPOOL_DIAGNOSTIC_MAX);
    result = load_number(po, &a);
    view_free(a.view);
    buf_fini(&a.reason);
    return result;
}

/* ---- loading again --------------------------------------------------------------------------- */

void forget_file(struct postoffice *po, struct post_file *file)
{
    const struct post_part *p;

    if (file->root.f.claimed) {
        post_tell(po, SPOOL_EVENT_CHANGED, file->root.id, "gone");
    }
    LIST_FOREACH(p, &file->parts, by_file)
    {
        if (p->f.claimed) {
            post_tell(po, SPOOL_EVENT_CHANGED, p->id, "gone");
        }
    }
    cache_drop(&po->cache, file->number);
    table_forget(&po->table, file);
}

/* Updates one recipient from the file's current content. */
static int compare_rcpt(struct postoffice *po, struct post_file *file, const char *path,
                        const struct post_view *view, uint32_t index)
{
    struct post_rcpt *known = &file->rcpts[index];
    const struct control_rcpt *r = control_file_find(&view->control, known->offset);
    bool unlocked;
    struct disposition disposition;

    if (r == NULL) {
        return -EBADMSG;
    }
    disposition = disposition_of(view, r);
    unlocked = r->tag == ' ' || (r->tag == '~' && lock_holder(r) == 0);
    if (known->state == SPOOL_RCPT_PENDING) {
        if (disposition.kept && disposition.state == SPOOL_RCPT_PENDING) {
            return unlocked && r->tag == '~' ? mark_now(po, path, r, ' ') : 0;
        }
        if (unlocked && disposition.fixed != '\0' &&
            mark_now(po, path, r, disposition.fixed) != 0) {
            return -EIO;
        }
        end_rcpt(po, file, index, disposition.kept ? disposition.state : (uint8_t)POST_DONE,
                 disposition.fixed != '\0' ? disposition.fixed : r->tag);
        return 0;
    }
    if (known->state == POST_ALTERNATIVE) {
        if (disposition.kept && disposition.state == SPOOL_RCPT_PENDING) {
            start_alternative(po, file, index);
        }
        return 0;
    }
    /* an agent reported the end and did not live to write it */
    return unlocked ? mark_now(po, path, r, known->tag) : 0;
}

/* Updates parts that have lost recipients: reports the change to their holders, and removes empty
 * parts without one. */
static void after_changes(struct postoffice *po, struct post_file *file)
{
    struct post_part *p = &file->root, *next;

    if (p->f.claimed && p->pending != p->pending_before) {
        post_tell(po, SPOOL_EVENT_CHANGED, p->id, "recipients are done with");
    }
    for (p = LIST_FIRST(&file->parts); p != NULL; p = next) {
        next = LIST_NEXT(p, by_file);
        if (p->pending == 0 && !p->f.claimed) {
            struct post_fields to = p->f;

            to.gone = true;
            table_set(&po->table, p, to);
        } else if (p->f.claimed && p->pending != p->pending_before) {
            post_tell(po, SPOOL_EVENT_CHANGED, p->id, "recipients are done with");
        }
    }
    arrange_root(po, file);
}

static void end_file(struct postoffice *po, struct post_file *file)
{
    char control[POST_PATH_MAX], message[POST_PATH_MAX];

    if (file->pending > 0 || file->to_report > 0 || file->root.f.claimed ||
        !LIST_EMPTY(&file->parts) || file->f.state != 0 || po->options.keep_files) {
        return;
    }
    tell_complete(po, file);
    post_control_path(file, file->on_disk, control);
    post_control_path(file, 0, message);
    forget_file(po, file);
    remove_files(po, control, message);
}

/* Returns the current view of the file, with all ends written. */
static int view_again(struct postoffice *po, const struct post_file *file, const char *path,
                      struct post_view **ret_view)
{
    struct arrival a = {.disk_path = path};
    bool noted = false;
    int err;

    cache_drop(&po->cache, file->number);
    err = view_of(po, file, true, &a.view);
    err = err != 0 ? err : note_untold(po, &a, &noted);
    if (err == 0 && noted) {
        cache_drop(&po->cache, file->number);
        err = view_of(po, file, true, &a.view);
    }
    if (err == 0) {
        *ret_view = a.view;
    }
    return err;
}

int load_again(struct postoffice *po, struct post_file *file)
{
    struct post_part *p;
    struct post_view *view = NULL;
    char path[POST_PATH_MAX];
    int err;

    post_control_path(file, file->on_disk, path);
    if (++file->resyncs > RESYNCS_MAX) {
        post_tell(po, SPOOL_EVENT_LOG, file->root.id,
                  "%s: too many Resync attempts this way, throwing it away...", path);
        forget_file(po, file);
        po->scan.next_us = 0;
        return spool_fail(&po->base, -ENOENT, "transport/%s: to be found again", path);
    }
    err = view_again(po, file, path, &view);
    if (err == -ENOENT) {
        post_tell(po, SPOOL_EVENT_LOG, file->root.id, " .. FILE OPEN FAILED!");
        forget_file(po, file);
        return spool_fail(&po->base, err, "transport/%s: gone", path);
    }
    file->root.pending_before = file->root.pending;
    LIST_FOREACH(p, &file->parts, by_file)
    {
        p->pending_before = p->pending;
    }
    for (uint32_t i = 0; err == 0 && i < file->rcpt_count; i++) {
        err = compare_rcpt(po, file, path, view, i);
    }
    if (err == 0) {
        cache_drop(&po->cache, file->number); /* tags may have been set */
    }
    after_changes(po, file);
    end_file(po, file);
    return err == 0 ? 0 : spool_fail(&po->base, err, "transport/%s: %s", path, strerror(-err));
}
