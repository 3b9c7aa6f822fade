/*
 * The sqlite engine: mail in passage. passage.h describes the files; this file uses their records
 * in place of rows, and makes rows when a message stays.
 */
#include "sqlite_engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mem.h"

/* Limit of rows that one commit makes to free files: about the number of messages that one
 * accepts. */
#define EMPTY_PER_COMMIT 64
/* Limits of one transaction of the start, which the log must hold. */
#define START_BYTES (UINT64_C(1) << 20)
#define START_KEYS  2048
/* Limit of content in a record, as a multiple of inline_limit and at most PASSAGE_CONTENT_MAX. The
 * record of a longer content names its place in a segment. */
#define CONTENT_FACTOR 2

/* ---- submit and end ------------------------------------------------------------------------- */

static uint64_t content_max(const struct sqlite_spool *s)
{
    uint64_t max = s->inline_limit * CONTENT_FACTOR;

    return max < PASSAGE_CONTENT_MAX ? max : PASSAGE_CONTENT_MAX;
}

bool sqlite_passage_takes(const struct sqlite_spool *s, const struct spool_new *n)
{
    size_t envelope = 4096; /* upper bound of its numbers */

    /* If each commit changes the database anyway, a second sync costs more than rows do. On a disk
     * that has been full, the database has free pages of mail that is gone, but a file must
     * grow. */
    if (!n->claim || s->rows_beside || !s->reserve.held || n->rcpt_count > PASSAGE_RCPTS_MAX ||
        n->size > segments_content_max(&s->segments)) {
        return false;
    }
    envelope += n->m->sender.len + n->m->client.len + n->m->reason.len;
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        const struct spool_rcpt *r = &n->rcpts[i];

        envelope += r->address.len + r->orcpt.len + r->transport.len + r->nexthop.len;
    }
    return passage_fits(&s->passage, envelope, n->size <= content_max(s) ? n->size : 0);
}

static void count_passing(struct sqlite_spool *s, uint64_t size, bool begins)
{
    s->passing.incoming += begins ? 1 : UINT64_MAX;
    s->passing.bytes += begins ? size : -size;
}

int sqlite_passage_failed(struct sqlite_spool *s, int err)
{
    s->space_ran_out = s->space_ran_out || err == -ENOSPC || err == -EDQUOT;
    (void)spool_fail(&s->base, err, "write: %s.d: %s", s->path, strerror(-err));
    return spool_batch_failed(&s->base, err);
}

int sqlite_passage_submit(struct sqlite_spool *s, struct msg_id id, const struct spool_new *n)
{
    static const struct spool_content none = {.bytes = {"", 0}, .fd = -1};
    struct claim_facts facts = {
        .due = n->m->due.us, .size = n->size, .claimed = true, .unlisted = true};
    bool in_segment = n->size > content_max(s);
    struct segment_place place = {.segment = 0};
    uint64_t sum = 0;
    int err = passage_open(&s->passage);

    if (err != 0) {
        return sqlite_passage_failed(s, err);
    }
    if (in_segment) {
        err = segments_append(&s->segments, id, n->prefix, n->content, &place, &sum);
    }
    if (err == 0) {
        buf_clear(&s->envelope);
        passage_envelope_add(&s->envelope, n->m, n->rcpts, place, sum);
        CHECK(!s->envelope.failed);
        err = passage_add(&s->passage, id, buf_slice(&s->envelope),
                          in_segment ? slice_of("", 0) : n->prefix, in_segment ? &none : n->content,
                          &facts.passage, &sum);
    }
    if (err != 0) {
        return spool_fail(&s->base, err, "submit: write content: %s.d: %s", s->path,
                          strerror(-err));
    }
    facts.in_file = in_segment;
    facts.segment = place.segment;
    claims_set(&s->claims, id.n, facts);
    count_passing(s, n->size, true);
    s->totals.incoming++;
    s->totals.bytes += n->size;
    return 0;
}

static int end(struct sqlite_spool *s, struct msg_id id, struct claim_facts facts, bool moved)
{
    int err = passage_end(&s->passage, id, facts.passage.file, moved);

    if (err != 0) {
        return sqlite_passage_failed(s, err);
    }
    count_passing(s, facts.size, false);
    return 0;
}

int sqlite_passage_done(struct sqlite_spool *s, struct msg_id id)
{
    struct claim_facts facts = claims_get(&s->claims, id.n);
    int err = end(s, id, facts, false);

    if (err != 0) {
        return err;
    }
    if (facts.segment > 0) {
        segments_release(&s->segments, facts.segment, facts.size);
    }
    s->totals.incoming -= s->totals.incoming > 0;
    s->totals.bytes -= facts.size < s->totals.bytes ? facts.size : s->totals.bytes;
    claims_set(&s->claims, id.n, (struct claim_facts){.claimed = false});
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

bool sqlite_is_passing(const struct sqlite_spool *s, struct msg_id id)
{
    return s->lock_fd >= 0 && claims_get(&s->claims, id.n).passage.file != 0;
}

/* Reads the record, and decodes it to s->passing_mail. -EBADMSG with a text: the record is
 * damaged. */
static int read_mail(struct sqlite_spool *s, struct msg_id id, bool with_content,
                     struct passage_mail *ret_mail)
{
    struct claim_facts facts = claims_get(&s->claims, id.n);
    struct passage_envelope *e = &s->passing_mail;
    int err = passage_read(&s->passage, facts.passage, id, with_content, ret_mail);

    if (err == -EBADMSG) {
        return sqlite_damaged(s, id, "it is %s", passage_why(&s->passage));
    }
    if (err != 0) {
        return spool_fail(&s->base, err, "read mail in passage: %s.d: %s", s->path, strerror(-err));
    }
    if (!passage_envelope_read(ret_mail->envelope, e)) {
        return sqlite_damaged(s, id, "its record in passage makes no sense");
    }
    e->m.id = id;
    return 0;
}

static void keep_text(struct sqlite_spool *s, struct slice *text)
{
    *text = text_pool_add(&s->pool, *text);
}

int sqlite_passage_read(struct sqlite_spool *s, struct msg_id id, struct spool_message *ret_message)
{
    struct spool_message *m = &s->passing_mail.m;
    struct passage_mail mail;
    int err = read_mail(s, id, false, &mail);

    if (err != 0) {
        return err;
    }
    text_pool_clear(&s->pool);
    m->parked = SLICE("");
    keep_text(s, &m->sender);
    keep_text(s, &m->envid);
    keep_text(s, &m->client);
    keep_text(s, &m->reason);
    keep_text(s, &m->class_name);
    *ret_message = *m;
    return 0;
}

int sqlite_passage_read_rcpts(struct sqlite_spool *s, struct msg_id id, uint32_t after, size_t max,
                              struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct passage_envelope *e = &s->passing_mail;
    struct passage_mail mail;
    size_t count = 0;
    int err = read_mail(s, id, false, &mail);

    if (err != 0) {
        return err;
    }
    text_pool_clear(&s->pool);
    for (uint32_t i = after; i < e->m.rcpt_total && count < max; i++) {
        struct spool_rcpt *r = &e->rcpts[i];

        r->status = r->diagnostic = r->remote = r->reply = r->tls = SLICE("");
        keep_text(s, &r->address);
        keep_text(s, &r->orcpt);
        keep_text(s, &r->transport);
        keep_text(s, &r->nexthop);
        ret_rcpts[count++] = *r;
    }
    *ret_count = count;
    return 0;
}

int sqlite_passage_read_content(struct sqlite_spool *s, struct msg_id id, struct buf *ret_bytes,
                                int *ret_fd, uint64_t *ret_size)
{
    const struct passage_envelope *e = &s->passing_mail;
    struct passage_mail mail;
    uint64_t sum = 0;
    int err = read_mail(s, id, true, &mail);

    if (err != 0) {
        return err;
    }
    if (e->place.segment > 0) {
        err = sqlite_segments_read(s, id, e->place, e->m.size, &sum, ret_bytes, ret_fd);
        if (err == -EBADMSG) {
            return sqlite_damaged(s, id, "its content is %s", segments_why(&s->segments));
        }
    } else {
        sum = checksum_of(mail.content);
        if (mail.content.len != e->m.size || sum != mail.content_sum) {
            return sqlite_damaged(s, id,
                                  "its content is not what was stored: its checksum does not "
                                  "match");
        }
        err = sqlite_hand_out(mail.content, ret_bytes, ret_fd);
    }
    if (err != 0) {
        return spool_fail(&s->base, err, "read content: %s.d: %s", s->path, strerror(-err));
    }
    *ret_size = e->m.size;
    return 0;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Inserts the rows of a message as it was submitted. Does not check the content; a later read
 * detects damage. */
static int insert(struct sqlite_spool *s, struct msg_id id, const struct passage_mail *mail,
                  const struct passage_envelope *e, bool may_append,
                  struct segment_place *ret_place)
{
    struct spool_new n = {.m = &e->m,
                          .rcpts = e->rcpts,
                          .rcpt_count = e->m.rcpt_total,
                          .size = e->m.size,
                          .claim = true};
    struct spool_content content = {.bytes = mail->content, .fd = -1};
    struct segment_place place = e->place;
    uint64_t sum = e->content_sum, again;
    int err = 0;

    *ret_place = place;
    if (e->place.segment > 0) {
        return sqlite_insert(s, id, &n, NULL, place, sum);
    }
    sum = mail->content_sum;
    if (!may_append || mail->content.len <= s->inline_limit) {
        return sqlite_insert(s, id, &n, &mail->content, place, sum);
    }
    err = segments_append(&s->segments, id, SLICE(""), &content, &place, &again);
    if (err != 0) {
        return sqlite_passage_failed(s, err);
    }
    *ret_place = place;
    return sqlite_insert(s, id, &n, NULL, place, sum);
}

/* Inserts a quarantined message with the known facts, for a record that can't be read. */
static int insert_unreadable(struct sqlite_spool *s, struct msg_id id, struct claim_facts facts)
{
    char reason[SPOOL_ERROR_MAX];
    sqlite3_stmt *st;
    int err;

    memcpy(reason, s->base.error, sizeof reason);
    st = sqlite_ask(s, ST_MESSAGE_UNREADABLE);
    sqlite_bind_int(st, 1, (int64_t)id.n);
    sqlite_bind_int(st, 2, (int64_t)facts.size);
    sqlite_bind_slice(st, 3, slice_string(reason));
    err = sqlite_done(s, st, sqlite_step(s, st));
    if (err != 0) {
        return spool_batch_failed(&s->base, err);
    }
    s->totals.incoming -= s->totals.incoming > 0;
    s->totals.corrupt++;
    return 0;
}

int sqlite_need_rows(struct sqlite_spool *s, struct msg_id id)
{
    struct claim_facts facts = claims_get(&s->claims, id.n);
    struct segment_place place = {.segment = 0};
    struct passage_mail mail;
    int err;

    if (facts.passage.file == 0) {
        return 0;
    }
    err = read_mail(s, id, true, &mail);
    if (err == -EBADMSG) {
        err = insert_unreadable(s, id, facts);
        if (err == 0 && facts.segment > 0) {
            segments_release(&s->segments, facts.segment, facts.size);
        }
        if (err == 0) {
            err = end(s, id, facts, true);
        }
        if (err == 0) {
            claims_set(&s->claims, id.n, (struct claim_facts){.claimed = false});
        }
        return err;
    }
    if (err != 0) {
        return err;
    }
    err = insert(s, id, &mail, &s->passing_mail, true, &place);
    if (err == 0) {
        err = end(s, id, facts, true);
    }
    if (err == 0) {
        facts.in_file = place.segment > 0;
        facts.segment = place.segment;
        facts.passage.file = 0;
        claims_set(&s->claims, id.n, facts);
    }
    return err;
}

static int need_rows_of_all(struct sqlite_spool *s)
{
    struct msg_id ids[EMPTY_PER_COMMIT];
    size_t count;
    int err = 0;

    while (err == 0 && (count = claims_in_passage(&s->claims, 0, EMPTY_PER_COMMIT, ids)) > 0) {
        for (size_t i = 0; err == 0 && i < count; i++) {
            err = sqlite_need_rows(s, ids[i]);
        }
    }
    return err;
}

int sqlite_need_all_rows(struct sqlite_spool *s)
{
    struct msg_id any;

    if (s->lock_fd < 0 || claims_in_passage(&s->claims, 0, 1, &any) == 0) {
        return 0;
    }
    if (s->batch_open) {
        return need_rows_of_all(s);
    }
    if (sqlite_begin_alone(s)) {
        (void)need_rows_of_all(s);    /* an error has failed the batch */
        (void)spool_commit(&s->base); /* if this fails, the sums omit mail in passage */
    }
    return 0;
}

int sqlite_passage_empty(struct sqlite_spool *s)
{
    struct msg_id ids[EMPTY_PER_COMMIT];
    uint32_t file = s->can_not_move ? 0 : passage_to_empty(&s->passage);
    size_t count = file == 0 ? 0 : claims_in_passage(&s->claims, file, EMPTY_PER_COMMIT, ids);
    int err = 0;

    for (size_t i = 0; err == 0 && i < count; i++) {
        err = sqlite_need_rows(s, ids[i]);
    }
    s->can_not_move = s->can_not_move || err == -EUCLEAN; /* the next batch does without */
    return err;
}

/* ---- searches ------------------------------------------------------------------------------- */

/* Does an address match the condition, a complete address or "@domain"? */
static bool address_matches(struct slice address, struct slice wanted)
{
    if (wanted.len > 0 && wanted.ptr[0] == '@') {
        return slice_equal_nocase(spool_domain(address), slice_skip(wanted, 1));
    }
    return slice_equal_nocase(address, wanted);
}

static bool is_at(const struct spool_rcpt *r, struct slice destination)
{
    size_t slash = slice_find(destination, '/');
    struct slice transport = slice_of(destination.ptr, slash);
    struct slice nexthop = slice_skip(destination, slash + 1);

    if (slash > 0 && slash < destination.len && slice_equal(r->transport, transport) &&
        slice_equal(r->nexthop, nexthop)) {
        return true;
    }
    return (r->transport.len > 0 && slice_equal(r->nexthop, destination)) ||
           slice_equal_nocase(spool_domain(r->address), destination);
}

static bool envelope_matches(const struct passage_envelope *e, const struct spool_filter *f)
{
    bool rcpt = f->rcpt.len == 0, destination = f->destination.len == 0;

    if (f->sender.len > 0 &&
        !(slice_equal(f->sender, SLICE("<>")) ? e->m.sender.len == 0
                                              : address_matches(e->m.sender, f->sender))) {
        return false;
    }
    if ((f->class_name.len > 0 && !slice_equal(f->class_name, e->m.class_name)) ||
        (f->arrived_before.us != 0 && e->m.arrived.us >= f->arrived_before.us) ||
        (f->arrived_after.us != 0 && e->m.arrived.us <= f->arrived_after.us)) {
        return false;
    }
    for (uint32_t i = 0; i < e->m.rcpt_total && !(rcpt && destination); i++) {
        rcpt = rcpt || address_matches(e->rcpts[i].address, f->rcpt);
        destination = destination || is_at(&e->rcpts[i], f->destination);
    }
    return rcpt && destination;
}

static bool asks_for_envelope(const struct spool_filter *f)
{
    return f->sender.len > 0 || f->rcpt.len > 0 || f->destination.len > 0 ||
           f->class_name.len > 0 || f->arrived_before.us != 0 || f->arrived_after.us != 0;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = ((const struct msg_id *)a)->n, y = ((const struct msg_id *)b)->n;

    return (x > y) - (x < y);
}

int sqlite_passage_search(struct sqlite_spool *s, const struct spool_filter *f,
                          struct msg_id **ret_ids, size_t *ret_count)
{
    size_t count = 0, kept = 0;
    struct msg_id *ids;
    int err = 0;

    *ret_ids = NULL;
    *ret_count = 0;
    if (s->lock_fd < 0 || s->passing.incoming == 0 ||
        (f->states != 0 && (f->states & 1u << SPOOL_INCOMING) == 0)) {
        return 0;
    }
    ids = mem_array(s->claims.unlisted.count, sizeof ids[0]);
    count = claims_in_passage(&s->claims, 0, s->claims.unlisted.count, ids);
    for (size_t i = 0; err == 0 && i < count; i++) {
        struct claim_facts facts = claims_get(&s->claims, ids[i].n);
        struct passage_mail mail;
        bool matches = ids[i].n > f->after.n && facts.size >= f->size_min &&
                       (f->size_max == 0 || facts.size <= f->size_max);

        if (matches && asks_for_envelope(f)) {
            err = read_mail(s, ids[i], false, &mail);
            matches = err == 0 && envelope_matches(&s->passing_mail, f);
            err = err == -EBADMSG ? 0 : err; /* reported when the message is read for delivery */
        }
        if (matches) {
            ids[kept++] = ids[i];
        }
    }
    if (err != 0) {
        mem_free(ids);
        return err;
    }
    qsort(ids, kept, sizeof ids[0], compare_ids);
    *ret_ids = ids;
    *ret_count = kept;
    return 0;
}

/* ---- start and end of a holder -------------------------------------------------------------- */

struct start {
    struct sqlite_spool *s;
    bool in_transaction;
    uint64_t messages, bytes, lowest;        /* counts of the open transaction */
    uint64_t keys;                           /* count of the open transaction */
    uint64_t refused;                        /* number of all refused records */
    void (*made)(void *context, int64_t id); /* or NULL */
    void *context;
};

static int exec(struct sqlite_spool *s, enum statement which)
{
    sqlite3_stmt *st = sqlite_ask(s, which);

    return sqlite_done(s, st, sqlite_step(s, st));
}

static int start_commit(struct start *start, const struct passage_found *found)
{
    struct sqlite_spool *s = start->s;
    sqlite3_stmt *st = sqlite_ask(s, ST_SPOOL_START);
    int err;

    sqlite_bind_int(st, 1, (int64_t)(found != NULL ? found->last_id : 0));
    sqlite_bind_int(st, 2, start->messages > 0 ? (int64_t)start->lowest : INT64_MAX);
    sqlite_bind_int(st, 3, (int64_t)start->messages);
    sqlite_bind_int(st, 4, (int64_t)start->bytes);
    sqlite_bind_int(st, 5, (int64_t)(found != NULL ? found->commits : 0));
    sqlite_bind_int(st, 6, (int64_t)(found != NULL ? found->next : 0));
    err = sqlite_done(s, st, sqlite_step(s, st));
    if (err == 0) {
        err = sqlite_flush_keys(s);
    }
    if (err == 0) {
        err = exec(s, ST_COMMIT);
    }
    start->in_transaction = false;
    start->messages = start->bytes = start->keys = 0;
    return err;
}

static int start_begin(struct start *start)
{
    int err = start->in_transaction ? 0 : exec(start->s, ST_BEGIN);

    start->in_transaction = err == 0;
    return err;
}

/* Has the message rows already? Then an earlier start was interrupted. */
static int has_rows(struct sqlite_spool *s, struct msg_id id, bool *ret_has)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_MESSAGE_EXISTS);
    int rc;

    sqlite_bind_int(st, 1, (int64_t)id.n);
    rc = sqlite_step(s, st);
    *ret_has = rc == SQLITE_ROW;
    return sqlite_done(s, st, rc);
}

static int take(void *context, const struct passage_mail *mail)
{
    struct start *start = context;
    struct sqlite_spool *s = start->s;
    struct passage_envelope *e = &s->passing_mail;
    struct segment_place place;
    bool has = false;
    int err = mail->id.n == 0 || mail->id.n > SQLITE_LAST_ID_MAX ||
                      !passage_envelope_read(mail->envelope, e)
                  ? sqlite_damaged(s, mail->id, "its record in passage makes no sense")
                  : start_begin(start);

    if (err == 0) {
        err = has_rows(s, mail->id, &has);
    }
    if (err != 0 || has) {
        start->refused += err == -EBADMSG;
        return err == -EBADMSG ? 0 : err;
    }
    e->m.id = mail->id;
    err = insert(s, mail->id, mail, e, false, &place);
    if (err != 0) {
        start->refused += err == -EBADMSG; /* rows left by damage have its id */
        return err == -EBADMSG ? 0 : err;
    }
    start->lowest = start->messages == 0 || mail->id.n < start->lowest ? mail->id.n : start->lowest;
    start->messages++;
    start->bytes += e->m.size;
    if (start->made != NULL) {
        start->made(start->context, (int64_t)mail->id.n);
        return 0; /* the caller ends the transaction */
    }
    return start->bytes >= START_BYTES ? start_commit(start, NULL) : 0;
}

static int take_key(void *context, struct msg_id id, struct slice record)
{
    struct start *start = context;
    int err = start_begin(start);

    if (err == 0) {
        err = sqlite_take_passing_key(start->s, id, record);
    }
    start->refused += err == -EBADMSG;
    start->keys++;
    if (err != 0) {
        return err == -EBADMSG ? 0 : err;
    }
    return start->keys >= START_KEYS ? start_commit(start, NULL) : 0;
}

int sqlite_passage_begin(struct sqlite_spool *s, uint64_t *ret_damaged)
{
    struct start start = {.s = s};
    struct passage_found found = {.last_id = 0};
    sqlite3_stmt *st = sqlite_ask(s, ST_SPOOL_TAG);
    uint64_t tag = 0;
    int rc = sqlite_step(s, st), err;

    if (rc == SQLITE_ROW) {
        tag = (uint64_t)sqlite3_column_int64(st, 0);
    }
    err = sqlite_done(s, st, rc);
    s->base.dirty = true; /* functions that make rows need an open batch */
    if (err == 0) {
        err = passage_begin(&s->passage,
                            &(struct passage_start){.tag = tag,
                                                    .from = s->passage_from,
                                                    .commits = s->commits,
                                                    .told = s->commits_told,
                                                    .take = take,
                                                    .take_key = take_key,
                                                    .context = &start},
                            &found);
        if (err != 0 && s->base.error[0] == '\0') {
            err = spool_fail(&s->base, err, "read mail in passage: %s.d: %s", s->path,
                             strerror(-err));
        }
    }
    if (err == 0 && found.batches > 0) {
        err = start_begin(&start);
        if (err == 0) {
            err = start_commit(&start, &found);
        }
    }
    if (err != 0 && !sqlite3_get_autocommit(s->db)) {
        (void)exec(s, ST_ROLLBACK); /* or closing would */
    }
    s->base.dirty = false;
    s->base.batch_error = 0;
    *ret_damaged = found.damaged + start.refused;
    return err;
}

int sqlite_passage_recover(sqlite3 *db, const char *dir, struct sqlite_passing *passing,
                           void (*made)(void *context, int64_t id), void *context)
{
    struct sqlite_spool *s = mem_new(sizeof *s);
    struct start start = {.s = s, .in_transaction = true, .made = made, .context = context};
    int err;

    s->db = db;
    s->io = &spool_io_real;
    s->path = mem_string(dir);
    s->base.dirty = true; /* functions that make rows need an open batch */
    passage_init(&s->passage, s->io, dir, 0);
    err = passage_begin(&s->passage,
                        &(struct passage_start){.tag = passing->tag,
                                                .from = passing->from,
                                                .commits = passing->commits,
                                                .told = passing->told,
                                                .only_look = true,
                                                .take = take,
                                                .context = &start},
                        &passing->found);
    passing->tag = s->passage.tag;
    passing->damaged = passing->found.damaged + start.refused;
    for (size_t i = 0; i < ST_COUNT; i++) {
        (void)sqlite3_finalize(s->statements[i]); /* returns the error of the last step again */
    }
    passage_fini(&s->passage);
    text_pool_fini(&s->pool);
    mem_free(s->path);
    mem_free(s);
    return err;
}

static int look(void *context, const struct passage_mail *mail)
{
    (void)context;
    (void)mail; /* passage_begin counts it */
    return 0;
}

int sqlite_passage_look(struct sqlite_spool *s, struct sqlite_passing *ret_passing)
{
    struct sqlite_passing passing = {.tag = s->segments.tag, .told = s->commits_told};
    struct spool_totals totals;
    uint64_t last_id, unlisted_from;
    struct passage p;
    int err = sqlite_read_spool(s, &totals, &last_id, &unlisted_from);

    if (err != 0) {
        return err;
    }
    passing.from = s->passage_from;
    passing.commits = s->commits;
    passage_init(&p, s->io, s->passage.dir, 0);
    err = passage_begin(&p,
                        &(struct passage_start){.tag = passing.tag,
                                                .from = passing.from,
                                                .commits = passing.commits,
                                                .told = passing.told,
                                                .only_look = true,
                                                .take = look},
                        &passing.found);
    passage_fini(&p);
    passing.damaged = passing.found.damaged;
    if (err == 0) {
        *ret_passing = passing;
    }
    return err;
}

void sqlite_passage_finish(struct sqlite_spool *s)
{
    if (!s->holds || s->passage.sequence == s->passage_from || !sqlite_begin_alone(s)) {
        return;
    }
    if (need_rows_of_all(s) == 0 && sqlite_need_key_rows(s) == 0) {
        /* This commit makes all earlier batches void, so no marks are needed. */
        s->passage_from = s->passage.sequence;
        passage_end_all(&s->passage);
        s->row_in_doubt = true;
    }
    (void)spool_commit(&s->base); /* a failure has no consequences: the next start does the same */
}
