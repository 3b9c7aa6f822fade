/*
 * Calls of the postoffice engine, and their changes of the table. A batch's changes of files are
 * collected (postoffice_work.c) and made at its commit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "check.h"
#include "envelope.h"
#include "mem.h"
#include "postoffice_engine.h"

/* ---- events --------------------------------------------------------------------------------- */

void post_tell(struct postoffice *po, enum spool_event_type type, uint64_t id, const char *format,
               ...)
{
    va_list args;

    va_start(args, format);
    told_events_add(&po->events, type, (struct msg_id){id}, format, args);
    va_end(args);
}

static bool next_event(struct spool *sp, struct spool_event *ret_event)
{
    return told_events_next(&postoffice_of(sp)->events, ret_event);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

int need_part(struct postoffice *po, struct msg_id id, struct post_part **ret_part)
{
    char text[SPOOL_ID_TEXT_MAX];

    *ret_part = table_part(&po->table, id.n);
    if (*ret_part != NULL) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(&po->base, -ENOENT, "%s: no such message", text);
}

int need_rcpt(struct postoffice *po, struct msg_id id, uint32_t n, struct post_part **ret_part,
              uint32_t *ret_index)
{
    char text[SPOOL_ID_TEXT_MAX];
    int err = need_part(po, id, ret_part);

    if (err != 0) {
        return err;
    }
    *ret_index = table_rcpt_at((*ret_part)->file, n);
    if (*ret_index < (*ret_part)->file->rcpt_count &&
        (*ret_part)->file->rcpts[*ret_index].part == *ret_part) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(&po->base, -ENOENT, "%s: no recipient %u", text, (unsigned)n);
}

/* ---- the batch ------------------------------------------------------------------------------ */

static int begin(struct spool *sp)
{
    table_begin(&postoffice_of(sp)->table);
    return 0;
}

static void rollback(struct spool *sp)
{
    struct postoffice *po = postoffice_of(sp);

    work_drop(po);
    router_files_drop(po);
    table_undo(&po->table);
}

static int commit(struct spool *sp)
{
    struct postoffice *po = postoffice_of(sp);
    int err = work_commit(po);

    if (err != 0) {
        rollback(sp);
        return err;
    }
    work_drop(po);
    router_files_drop(po);
    table_commit(&po->table);
    return 0;
}

static void tidy(struct spool *sp)
{
    (void)sp; /* nothing accumulates */
}

static struct msg_id next_id(struct spool *sp)
{
    return (struct msg_id){table_next_id(&postoffice_of(sp)->table)};
}

static int submit(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    if (n->claim || n->m->parked.len > 0) {
        return spool_fail(sp, -ENOTSUP, "submit: mail goes to the router first");
    }
    return router_file_write(postoffice_of(sp), id, n, false);
}

static struct slice submitted_name(const struct spool *sp)
{
    return slice_string(((const struct postoffice *)sp)->texts);
}

/* ---- ends of recipients ---------------------------------------------------------------------- */

static void set_report_due(struct postoffice *po, struct post_file *file)
{
    struct post_file_fields to = file->f;

    if ((file->to_report > 0) == (to.report_due.us != WALL_NEVER.us)) {
        return;
    }
    to.report_due =
        file->to_report > 0 ? wall_after(po->now, po->options.report_interval_us) : WALL_NEVER;
    table_set_file(&po->table, file, to);
}

static struct wall report_due(const struct postoffice *po, const struct post_file *file)
{
    return file->pending == 0 ? po->now : file->f.report_due;
}

void arrange_root(struct postoffice *po, struct post_file *file)
{
    struct post_part *root = &file->root;
    struct post_fields to = root->f;

    set_report_due(po, file);
    if (root->f.claimed || root->pending > 0) {
        return; /* the end of its pass does the rest */
    }
    to.dormant = file->to_report == 0;
    if (!to.dormant) {
        to.state = SPOOL_DEFERRED;
        to.due = report_due(po, file);
        to.key = NULL;
    }
    if (memcmp(&to, &root->f, sizeof to) != 0) {
        table_set(&po->table, root, to);
    }
}

void end_rcpt(struct postoffice *po, struct post_file *file, uint32_t index, uint8_t state,
              char tag)
{
    struct post_rcpt to = file->rcpts[index];
    struct post_file_fields fields = file->f;

    CHECK(state != SPOOL_RCPT_PENDING);
    to.part = state < POST_DONE ? &file->root : NULL;
    to.state = state;
    to.tag = tag;
    table_set_rcpt(&po->table, file, index, to);
    if (tag == '-') {
        fields.failed++;
        table_set_file(&po->table, file, fields);
    }
}

void start_alternative(struct postoffice *po, struct post_file *file, uint32_t index)
{
    struct post_rcpt to = file->rcpts[index];

    to.part = table_divide(&po->table, file,
                           (struct post_fields){.state = SPOOL_DEFERRED,
                                                .due = po->now,
                                                .created = file->root.f.created,
                                                .warnings = file->root.f.warnings});
    to.state = SPOOL_RCPT_PENDING;
    table_set_rcpt(&po->table, file, index, to);
}

/* Finds the line of a recipient in the file. */
static int line_of(struct postoffice *po, struct post_file *file, uint32_t index, bool fresh,
                   struct post_view **ret_view, const struct control_rcpt **ret_line)
{
    int err = view_of(po, file, fresh, ret_view);

    if (err != 0) {
        return err;
    }
    *ret_line = control_file_find(&(*ret_view)->control, file->rcpts[index].offset);
    return *ret_line != NULL
               ? 0
               : spool_fail(&po->base, -EBADMSG, "transport/%.*s: no recipient at %u",
                            SLICE_ARGS(post_path(file)), (unsigned)file->rcpts[index].offset);
}

void end_alternative(struct postoffice *po, struct post_file *file, uint32_t index,
                     const struct post_view *view, const struct control_rcpt *line, bool failed,
                     uint8_t *state)
{
    const struct control_file *c = &view->control;

    for (uint32_t i = 0; i < file->rcpt_count; i++) {
        const struct control_rcpt *other = control_file_find(c, file->rcpts[i].offset);

        if (i == index || other == NULL || !other->alternative || other->class != line->class ||
            file->rcpts[i].state != POST_ALTERNATIVE) {
            continue;
        }
        if (failed) {
            start_alternative(po, file, i);
            *state = POST_DONE;
            return;
        }
        work_mark(work_on(po, file), other->offset, '+');
        end_rcpt(po, file, i, POST_DONE, '+');
    }
}

/* Notes the `d` line that a report will need and that the agent has not written. */
static void note_end(struct postoffice *po, struct post_file *file, uint32_t index,
                     const struct post_view *view, const struct control_rcpt *line,
                     const struct spool_verdict *v)
{
    const struct control_group *group = &view->control.groups[line->group];
    struct wall when = v->when.us != 0 ? v->when : po->now;
    struct control_diagnostic d = {.tag = ' ',
                                   .rcpt = file->rcpts[index].offset,
                                   .headers_at = group->headers_at,
                                   .dsn_at = line->dsn_at,
                                   .time_s = us_seconds(when.us),
                                   .notary = v->details,
                                   .text = v->diagnostic};

    work_note(work_on(po, file), index, &d);
}

/* ---- changes -------------------------------------------------------------------------------- */

static void hear(struct postoffice *po, struct wall now)
{
    po->now = now.us > po->now.us ? now : po->now;
}

static int defer(struct postoffice *po, struct post_file *file, uint32_t index,
                 const struct spool_verdict *v)
{
    struct post_rcpt to = file->rcpts[index];

    table_set_words(&po->table, &file->vertices[to.vertex], v,
                    v->attempted ? v->when : (struct wall){0});
    if (v->attempted && to.attempts < UINT16_MAX) {
        to.attempts++;
        table_set_rcpt(&po->table, file, index, to);
    }
    return 0;
}

static int settle(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    struct postoffice *po = postoffice_of(sp);
    bool failed = v->state == SPOOL_RCPT_FAILED;
    uint8_t state = v->done ? (uint8_t)POST_DONE : (uint8_t)v->state;
    const struct control_rcpt *line;
    struct post_view *view;
    struct post_file *file;
    struct post_part *p;
    uint32_t index;
    int err = need_rcpt(po, id, n, &p, &index);

    if (err != 0) {
        return err;
    }
    file = p->file;
    hear(po, v->when);
    if (!v->done && v->state == SPOOL_RCPT_PENDING) {
        return defer(po, file, index, v);
    }
    if (state == POST_DONE && v->attempted && !file->has_alternatives) {
        end_rcpt(po, file, index, state, failed ? '-' : '+');
        arrange_root(po, file);
        return 0;
    }
    /* This process alone marks recipients without an attempt, but an agent may have been faster. */
    err = line_of(po, file, index, !v->attempted, &view, &line);
    if (err != 0) {
        return err;
    }
    if (!v->attempted && (line->tag == '+' || line->tag == '-')) {
        size_t reports;

        (void)view_reports(view, line->offset, &reports); /* only the number matters */
        failed = line->tag == '-';
        state = reports == 0 ? (uint8_t)POST_DONE
                : failed     ? (uint8_t)SPOOL_RCPT_FAILED
                             : (uint8_t)SPOOL_RCPT_DELIVERED;
    } else {
        if (state < POST_DONE && !v->noted && !v->unreported) {
            note_end(po, file, index, view, line, v);
        }
        if (!v->attempted) {
            work_mark(work_on(po, file), line->offset, failed ? '-' : '+');
        }
    }
    if (line->alternative) {
        end_alternative(po, file, index, view, line, failed, &state);
    }
    if (state < POST_DONE && v->unreported) {
        state = POST_DONE;
    }
    end_rcpt(po, file, index, state, failed ? '-' : '+');
    arrange_root(po, file);
    return 0;
}

/* Does nothing: the file contains the routes. */
static int set_route(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                     struct slice nexthop, uint64_t route_generation)
{
    struct post_part *p;
    uint32_t index;

    (void)transport;
    (void)nexthop;
    (void)route_generation;
    return need_rcpt(postoffice_of(sp), id, n, &p, &index);
}

static int reported(struct spool *sp, struct msg_id id)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p;
    int err = need_part(po, id, &p);

    if (err != 0 || post_to_report(p) == 0) {
        return err;
    }
    for (uint32_t i = p->low; i < p->high; i++) {
        struct post_rcpt to = p->file->rcpts[i];

        if (to.part == p && to.state != SPOOL_RCPT_PENDING) {
            work_reported(work_on(po, p->file), to.offset);
            to.part = NULL;
            to.state = POST_DONE;
            table_set_rcpt(&po->table, p->file, i, to);
        }
    }
    set_report_due(po, p->file);
    return 0;
}

/* Ends a file with nothing left to do; it is removed at the commit. */
static void end_of_file(struct postoffice *po, struct post_file *file)
{
    struct post_file_fields to = file->f;

    if (po->options.keep_files) {
        return; /* keep it in the table, so that no scan finds it again */
    }
    tell_complete(po, file);
    to.gone = true;
    table_set_file(&po->table, file, to);
    work_on(po, file)->removed = true;
}

static bool has_parts(const struct post_file *file)
{
    const struct post_part *p;

    LIST_FOREACH(p, &file->parts, by_file)
    {
        if (!p->f.gone) {
            return true;
        }
    }
    return false;
}

/* Ends a message without recipients: a part is removed, the root becomes dormant. The file ends
 * with the last of them. */
static void end_part(struct postoffice *po, struct post_part *p)
{
    struct post_file *file = p->file;
    struct post_fields to = p->f;

    to.claimed = false;
    if (p == &file->root) {
        to.dormant = true;
    } else {
        to.gone = true;
    }
    table_set(&po->table, p, to);
    if (file->pending == 0 && file->to_report == 0 && file->root.f.dormant && !has_parts(file)) {
        end_of_file(po, file);
    }
}

static int finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p;
    int err = need_part(po, id, &p);

    if (err != 0) {
        return err;
    }
    *ret_gone = p->pending == 0 && post_to_report(p) == 0 && post_state(p) != SPOOL_CORRUPT &&
                !p->file->hollow;
    if (*ret_gone) {
        end_part(po, p);
        return 0;
    }
    if (p->f.claimed) {
        struct post_fields to = p->f;

        to.claimed = false;
        to.state = SPOOL_DEFERRED;
        to.due = p->pending == 0 ? report_due(po, p->file) : due;
        to.key = NULL;
        table_set(&po->table, p, to);
    }
    return 0;
}

static int finish_all_done(struct spool *sp, struct msg_id id)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p;
    int err = need_part(po, id, &p);

    if (err == 0 && post_state(p) == SPOOL_CORRUPT) {
        err = spool_fail(sp, -EINVAL, "a message that was quarantined is not deleted");
    }
    if (err != 0) {
        return err;
    }
    for (uint32_t i = table_rcpt_next(p, 0, true); i < p->high;
         i = table_rcpt_next(p, i + 1, true)) {
        struct spool_verdict v = {.state = SPOOL_RCPT_DELIVERED, .done = true, .attempted = true};

        err = settle(sp, id, p->file->rcpts[i].offset, &v);
        if (err != 0) {
            return spool_batch_failed(sp, err);
        }
    }
    if (post_to_report(p) == 0) {
        end_part(po, p);
    }
    return 0;
}

/* ---- fields of a message --------------------------------------------------------------------- */

/* Holds, releases or quarantines the whole file, because the state is part of its name. Ends other
 * claims of the file and reports that to their holders. */
static void set_file_state(struct postoffice *po, struct post_file *file, uint8_t state,
                           struct slice reason)
{
    struct post_file_fields to = file->f;
    struct post_part *p;

    to.state = state;
    to.reason = state == 0 ? NULL : mem_copy(reason.ptr, reason.len);
    table_set_file(&po->table, file, to);
    (void)work_on(po, file); /* the commit renames it */
    LIST_FOREACH(p, &file->parts, by_file)
    {
        if (p->f.claimed && state != 0) {
            struct post_fields fields = p->f;

            fields.claimed = false;
            table_set(&po->table, p, fields);
            post_tell(po, SPOOL_EVENT_CHANGED, p->id, "held or quarantined");
        }
    }
}

static void store_warnings(struct postoffice *po, struct post_part *p, uint32_t warnings)
{
    for (uint32_t i = table_rcpt_next(p, 0, true); i < p->high;
         i = table_rcpt_next(p, i + 1, true)) {
        work_warnings(work_on(po, p->file), p->file->rcpts[i].offset, warnings);
    }
}

static void forget_tries(struct postoffice *po, struct post_part *p)
{
    for (uint32_t i = table_rcpt_next(p, 0, true); i < p->high;
         i = table_rcpt_next(p, i + 1, true)) {
        struct post_rcpt to = p->file->rcpts[i];

        to.attempts = 0;
        table_set_rcpt(&po->table, p->file, i, to);
    }
}

/* Makes all parts of a released file due. */
static void make_due(struct postoffice *po, struct post_file *file, struct wall due)
{
    struct post_part *p = &file->root;

    for (bool first = true; p != NULL;
         p = first ? LIST_FIRST(&file->parts) : LIST_NEXT(p, by_file), first = false) {
        struct post_fields to = p->f;

        to.due = due;
        to.key = NULL;
        if (!p->f.gone) {
            table_set(&po->table, p, to);
        }
    }
}

static int change(struct spool *sp, const struct spool_change *c)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p = table_part(&po->table, c->from->id.n);
    struct post_fields to;

    CHECK(p != NULL); /* the caller has just read it */
    to = p->f;
    to.due = c->to->due;
    to.created = c->to->created;
    to.warnings = c->to->warnings;
    to.force_expire = c->to->force_expire;
    to.claimed = p->f.claimed && !c->end_claim;
    to.key = c->to->parked.len > 0 ? table_key(&po->table, c->to->parked) : NULL;
    if (c->to->state == SPOOL_INCOMING || c->to->state == SPOOL_DEFERRED) {
        to.state = (uint8_t)c->to->state;
    }
    table_set(&po->table, p, to);
    if (c->to->warnings != c->from->warnings && c->to->warnings > 0) {
        store_warnings(po, p, c->to->warnings);
    }
    if (c->forget_tries) {
        forget_tries(po, p);
    }
    if (c->to->state == SPOOL_HOLD) {
        set_file_state(po, p->file, SPOOL_HOLD, c->to->reason);
    } else if (c->from->state == SPOOL_HOLD) {
        set_file_state(po, p->file, 0, SLICE(""));
        make_due(po, p->file, c->to->due);
        if (p->file->hollow) { /* not a message until it was loaded again, after the commit */
            to = p->f;
            to.dormant = true;
            table_set(&po->table, p, to);
        }
    }
    return 0;
}

static int remove_message(struct spool *sp, struct msg_id id)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_file_fields to;
    struct post_part *p, *other;
    int err = need_part(po, id, &p);

    if (err != 0) {
        return err;
    }
    LIST_FOREACH(other, &p->file->parts, by_file)
    {
        if (other != p && other->f.claimed) {
            post_tell(po, SPOOL_EVENT_CHANGED, other->id, "removed");
        }
    }
    if (p != &p->file->root && p->file->root.f.claimed) {
        post_tell(po, SPOOL_EVENT_CHANGED, p->file->root.id, "removed");
    }
    to = p->file->f;
    to.gone = true;
    table_set_file(&po->table, p->file, to);
    work_on(po, p->file)->removed = true;
    return 0;
}

static int quarantine(struct spool *sp, struct msg_id id, struct slice reason)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_fields to;
    struct post_part *p;
    int err = need_part(po, id, &p);

    if (err == 0) {
        to = p->f;
        to.key = NULL;
        to.claimed = false;
        table_set(&po->table, p, to);
        set_file_state(po, p->file, SPOOL_CORRUPT, reason);
    }
    return err;
}

/* ---- dividing ------------------------------------------------------------------------------- */

static bool takes_more(const struct post_part *p, const struct post_key *key)
{
    return p != NULL && !p->f.gone && !p->f.claimed && p->f.key == key;
}

/* Returns the part for recipients that are put off under the key: the existing part of this file,
 * or a new one. */
static struct post_part *part_under(struct postoffice *po, struct post_part *from, uint32_t index,
                                    struct post_key *key, struct wall due)
{
    struct post_file *file = from->file;
    uint32_t vertex = file->rcpts[index].vertex;
    struct post_part *to = file->vertices[vertex].put_off;
    struct post_fields fields = from->f;

    if (takes_more(to, key)) {
        fields = to->f;
        fields.due = due;
        table_set(&po->table, to, fields);
        return to;
    }
    fields.state = SPOOL_DEFERRED;
    fields.due = due;
    fields.key = key;
    fields.claimed = false;
    to = table_divide(&po->table, file, fields);
    to->put_off_vertex = vertex;
    file->vertices[vertex].put_off = to;
    return to;
}

static int put_off(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                   struct slice key, struct wall due)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p, *to;
    uint32_t index;
    int err = need_part(po, id, &p);

    for (size_t i = 0; err == 0 && i < count; i++) {
        err = need_rcpt(po, id, ns[i], &p, &index);
        if (err == 0 && p->file->rcpts[index].state != SPOOL_RCPT_PENDING) {
            err = spool_fail(sp, -ENOENT, "recipient %u is not pending", (unsigned)ns[i]);
        }
    }
    if (err != 0 || count == 0) {
        return err;
    }
    to = part_under(po, p, table_rcpt_at(p->file, ns[0]), table_key(&po->table, key), due);
    for (size_t i = 0; i < count; i++) {
        struct post_rcpt moved;

        index = table_rcpt_at(p->file, ns[i]);
        moved = p->file->rcpts[index];
        moved.part = to;
        table_set_rcpt(&po->table, p->file, index, moved);
    }
    arrange_root(po, p->file);
    return 0;
}

/* ---- claims --------------------------------------------------------------------------------- */

static void set_claimed(struct postoffice *po, struct post_part *p, bool claimed)
{
    struct post_fields to = p->f;

    to.claimed = claimed;
    table_set(&po->table, p, to);
}

static void unclaim(struct spool *sp, struct msg_id id)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p = table_part(&po->table, id.n);

    if (p != NULL && p->f.claimed) {
        set_claimed(po, p, false);
    }
}

static struct post_part *first_due(const struct postoffice *po, enum spool_state state)
{
    struct heap_node *top = heap_top(&po->table.due[state == SPOOL_INCOMING ? 0 : 1]);

    return top == NULL ? NULL : CONTAINER_OF(top, struct post_part, due);
}

static int claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p;
    size_t count = 0;

    hear(po, now);
    while (count < max && (p = first_due(po, from)) != NULL && p->f.due.us <= now.us) {
        set_claimed(po, p, true);
        ret_ids[count++] = (struct msg_id){p->id};
    }
    *ret_count = count;
    return 0;
}

static int claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_key *parked = table_key_find(&po->table, key);
    struct post_part *p;
    size_t count = 0;

    while (parked != NULL && count < max && (p = TAILQ_FIRST(&parked->parts)) != NULL) {
        struct post_fields to = p->f;

        to.claimed = true;
        to.due = now;
        to.key = NULL;
        table_set(&po->table, p, to); /* the key remains until the batch ends, at least */
        ret_ids[count++] = (struct msg_id){p->id};
    }
    *ret_count = count;
    *ret_more = parked != NULL && !TAILQ_EMPTY(&parked->parts);
    return 0;
}

static int next_due(struct spool *sp, struct wall *ret_due)
{
    static const enum spool_state states[] = {SPOOL_INCOMING, SPOOL_DEFERRED};
    struct wall due = WALL_NEVER;

    for (size_t i = 0; i < 2; i++) {
        const struct post_part *p = first_due(postoffice_of(sp), states[i]);

        if (p != NULL) {
            due = wall_min(due, p->f.due);
        }
    }
    *ret_due = due;
    return 0;
}

static bool is_claimed(const struct spool *sp, struct msg_id id)
{
    const struct post_part *p = table_part(&((const struct postoffice *)sp)->table, id.n);

    return p != NULL && p->f.claimed;
}

/* Lists claimed messages. The cursor is the id that was examined last. */
static size_t claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    const struct post_table *t = &((const struct postoffice *)sp)->table;
    size_t i = table_after(t, *cursor), end = i + 4 * max, count = 0;

    for (; i < t->id_count && i < end && count < max; i++) {
        const struct post_part *p = t->by_id[i].part;

        *cursor = t->by_id[i].id;
        if (p != NULL && p->f.claimed && table_part(t, p->id) != NULL) {
            ret_ids[count++].n = p->id;
        }
    }
    if (i >= t->id_count) {
        *cursor = 0;
    }
    return count;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int read_message(struct spool *sp, struct msg_id id, struct spool_message *ret_message)
{
    struct postoffice *po = postoffice_of(sp);
    char spoolid[CONTROL_SPOOLID_MAX];
    const struct post_file *file;
    struct post_part *p;
    int err = need_part(po, id, &p), len;

    if (err != 0) {
        return err;
    }
    file = p->file;
    post_spoolid(file, spoolid);
    len = snprintf(po->texts, sizeof po->texts, "%s", spoolid);
    *ret_message = (struct spool_message){
        .id = id,
        .state = post_state(p),
        .sender = post_sender(file),
        .envid = post_envid(file),
        .flags = file->flags,
        .arrived = file->arrived,
        .created = p->f.created,
        .due = p->f.due,
        .size = file->size,
        .rcpt_total = file->total,
        .rcpt_pending = p->pending,
        .rcpt_to_report = post_to_report(p),
        .warnings = p->f.warnings,
        .force_expire = p->f.force_expire,
        .reason = slice_string(file->f.reason),
        .parked = p->f.key != NULL ? slice_of(p->f.key->name, p->f.key->len) : SLICE(""),
        .client = SLICE(""),
        .class_name = SLICE(""),
        .path = post_path(file),
        .spoolid = slice_of(po->texts, (size_t)len),
        .listed = file->listed,
    };
    return 0;
}

static struct slice cut(struct slice text, size_t max)
{
    return slice_of(text.ptr, text.len < max ? text.len : max);
}

/* Returns the line from the channel to its end. */
static struct slice control_data(const struct post_view *view, const struct control_rcpt *line)
{
    const char *from = line->address.channel.ptr, *end = view->bytes + view->size;
    struct slice rest = slice_of(from, (size_t)(end - from));

    return slice_of(from, slice_find(rest, '\n'));
}

/* Returns the status without the comment after it: the third field of the notary. */
static struct slice notary_status(struct slice notary)
{
    struct slice status;

    (void)slice_cut(&notary, '\1');
    if (notary.ptr != NULL) {
        (void)slice_cut(&notary, '\1');
    }
    if (notary.ptr == NULL) {
        return SLICE("");
    }
    status = slice_cut(&notary, '\1');
    return cut(slice_cut(&status, ' '), SPOOL_STATUS_MAX);
}

/* Sets the last texts about a recipient. A pending one has those of its vertex's last failure. One
 * with a due report has those of the last `d` line, even if that is not written yet. */
static void fill_words(const struct post_file *file, uint32_t index, const struct post_view *view,
                       struct spool_rcpt *r)
{
    const struct post_rcpt *known = &file->rcpts[index];
    const struct post_vertex *v = &file->vertices[known->vertex];
    const struct post_text *words = v->words;
    const struct control_diagnostic *d = NULL;
    const struct control_diagnostic *const *reports;
    const struct post_note *note;
    const char *at;
    size_t count;

    if (known->state == SPOOL_RCPT_PENDING) {
        r->last_attempt.us = v->last_attempt_us;
        if (words != NULL) {
            r->status = slice_of(words->text, words->status_len);
            r->diagnostic = slice_of(words->text + words->status_len, words->diagnostic_len);
            r->reply = slice_of(r->diagnostic.ptr + words->diagnostic_len, words->reply_len);
            r->remote = slice_of(r->reply.ptr + words->reply_len, words->remote_len);
            at = r->remote.ptr + words->remote_len;
            r->details = slice_of(at, words->len - (size_t)(at - words->text));
        }
        return;
    }
    note = work_noted(file->work, index);
    reports = view_reports(view, known->offset, &count);
    if (note != NULL) {
        d = &note->d;
    } else if (count > 0) {
        d = reports[count - 1];
    }
    if (d != NULL) {
        r->status = notary_status(d->notary);
        r->diagnostic = cut(d->text, SPOOL_DIAGNOSTIC_MAX);
        r->details = cut(d->notary, SPOOL_DETAILS_MAX);
        r->last_attempt.us = d->time_s * US_PER_S;
    }
}

static void fill_read(const struct post_file *file, uint32_t index, const struct post_view *view,
                      const struct control_rcpt *line, struct spool_rcpt *r)
{
    const struct post_rcpt *known = &file->rcpts[index];
    const struct post_dest *dest = file->vertices[known->vertex].dest;
    struct slice orcpt = control_dsn_word(line->dsn, SLICE("ORCPT"));

    *r = (struct spool_rcpt){
        .n = known->offset,
        .address = cut(line->address.user, ADDRESS_MAX),
        .orcpt = orcpt.len <= DSN_ORCPT_MAX ? orcpt : SLICE(""),
        .notify = control_notify(line->dsn),
        .state = (enum spool_rcpt_state)known->state,
        .transport = dest_transport(dest),
        .nexthop = dest_nexthop(dest),
        .route_generation = SPOOL_ROUTE_FIXED,
        .attempts = known->attempts,
        .status = SLICE(""),
        .diagnostic = SLICE(""),
        .reply = SLICE(""),
        .remote = SLICE(""),
        .details = SLICE(""),
        .control = control_data(view, line),
    };
    fill_words(file, index, view, r);
}

static int read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_view *view = NULL;
    struct post_file *file;
    struct post_part *p;
    size_t count = 0;
    uint32_t i;
    int err = need_part(po, id, &p);

    if (err != 0) {
        return err;
    }
    file = p->file;
    i = after == 0 ? 0 : table_rcpt_behind(file, after);
    for (i = table_rcpt_next(p, i, only_pending); i < p->high && count < max;
         i = table_rcpt_next(p, i + 1, only_pending)) {
        const struct control_rcpt *line;

        if (view == NULL) {
            err = view_of(po, file, !only_pending && post_to_report(p) > 0, &view);
        }
        if (err != 0) {
            return err;
        }
        line = control_file_find(&view->control, file->rcpts[i].offset);
        if (line == NULL) {
            return spool_fail(sp, -EBADMSG, "transport/%.*s: no recipient at %u",
                              SLICE_ARGS(post_path(file)), (unsigned)file->rcpts[i].offset);
        }
        fill_read(file, i, view, line, &ret_rcpts[count++]);
    }
    *ret_count = count;
    return 0;
}

static int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p;
    uint32_t first;
    int err = need_part(po, id, &p);

    if (err != 0) {
        return err;
    }
    first = table_rcpt_next(p, 0, false);
    return original_read(po, p->file, first < p->high ? first : p->file->rcpt_count, ret_bytes,
                         ret_fd, ret_size);
}

static int totals(struct spool *sp, struct spool_totals *ret_totals)
{
    *ret_totals = postoffice_of(sp)->table.totals;
    ret_totals->files = HASH_COUNT(postoffice_of(sp)->table.files);
    return 0;
}

static int free_bytes(struct spool *sp, uint64_t *ret_bytes)
{
    struct statvfs st;

    if (fstatvfs(postoffice_of(sp)->queue, &st) != 0) {
        return spool_fail(sp, -errno, "queue: %s", strerror(errno));
    }
    *ret_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

/* ---- external changes ----------------------------------------------------------------------- */

static int external_fd(const struct spool *sp)
{
    return ((const struct postoffice *)sp)->notify;
}

static int poll_files(struct spool *sp, struct wall now, struct wall *ret_again)
{
    struct postoffice *po = postoffice_of(sp);

    hear(po, now);
    notify_poll(po, now);
    return scan_poll(po, now, ret_again);
}

static bool single_pass(const struct spool *sp)
{
    return ((const struct postoffice *)sp)->options.only != NULL;
}

static void look(struct spool *sp)
{
    postoffice_of(sp)->scan.next_us = 0;
}

static int resync(struct spool *sp, struct slice path)
{
    struct postoffice *po = postoffice_of(sp);
    size_t slash = slice_find_last(path, '/');
    struct slice name = slice_skip(path, slash == path.len ? 0 : slash + 1);
    struct post_file *file = NULL;
    uint64_t number;

    if (control_spool_number(name, &number)) {
        file = table_file(&po->table, number);
    }
    if (file == NULL || !slice_equal(post_name(file), name) || file->f.state != 0) {
        return spool_fail(sp, -ENOENT, "transport/%.*s: not known", SLICE_ARGS(path));
    }
    return load_again(po, file);
}

/* ---- the table of calls --------------------------------------------------------------------- */

const struct spool_engine postoffice_engine = {
    .close = post_close,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .tidy = tidy,
    .next_id = next_id,
    .submit = submit,
    .submitted_name = submitted_name,
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
    .parked_keys = search_parked_keys,
    .next_due = next_due,
    .is_claimed = is_claimed,
    .claimed = claimed,
    .read = read_message,
    .read_rcpts = read_rcpts,
    .read_content = read_content,
    .totals = totals,
    .free_bytes = free_bytes,
    .next_event = next_event,
    .search =
        &(const struct spool_search_part){
            .scan = search_scan,
            .count = search_count,
            .destinations = search_destinations,
            .destinations_from = search_destinations_from,
            .oldest = search_oldest,
        },
    .division = &(const struct spool_division_part){.put_off = put_off},
    .external = &(const struct spool_external_part){.fd = external_fd,
                                                    .poll = poll_files,
                                                    .look = look,
                                                    .resync = resync,
                                                    .single_pass = single_pass},
    .reroute = &(const struct spool_reroute_part){.reroute = reroute_rcpts},
    .verbose = &(const struct spool_verbose_part){.add = verbose_add},
};
