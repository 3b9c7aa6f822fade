#include "spool.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "side_store.h"
#include "spool_engine.h"

#define MARK '\1' /* the byte in a content prefix that the id replaces */

/* Limit of the trace header with the id. */
#define PREFIX_MAX ((size_t)1 << 16)

/* ---- errors --------------------------------------------------------------------------------- */

int spool_fail(struct spool *sp, int err, const char *format, ...)
{
    va_list args;

    CHECK(err < 0);
    va_start(args, format);
    vsnprintf(sp->error, sizeof sp->error, format, args);
    va_end(args);
    sp->missed = sp->missed || err == -EAGAIN;
    return err;
}

int spool_batch_failed(struct spool *sp, int err)
{
    CHECK(sp->dirty);
    if (sp->batch_error == 0) {
        sp->batch_error = err;
    }
    return err;
}

void spool_lose_batch(struct spool *sp, int err)
{
    if (sp->dirty) {
        (void)spool_batch_failed(sp, err);
    }
}

bool spool_batch_is_lost(const struct spool *sp)
{
    return sp->dirty && sp->batch_error != 0;
}

const char *spool_error(const struct spool *sp)
{
    return sp->error;
}

static int refuse(struct spool *sp, struct msg_id id, const char *why)
{
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    return spool_fail(sp, -EINVAL, "%s: %s", text, why);
}

/* ---- helpers for engines -------------------------------------------------------------------- */

uint64_t *spool_total_of(struct spool_totals *totals, enum spool_state state)
{
    switch (state) {
    case SPOOL_INCOMING:
        return &totals->incoming;
    case SPOOL_DEFERRED:
        return &totals->deferred;
    case SPOOL_HOLD:
        return &totals->hold;
    case SPOOL_CORRUPT:
        return &totals->corrupt;
    }
    return NULL;
}

struct slice spool_domain(struct slice address)
{
    return slice_skip(address, slice_find_last(address, '@') + 1);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static const struct spool_scheme sqlite_scheme = {
    .prefix = "sqlite:", .form = "sqlite:PATH", .reads = true, .open = sqlite_spool_open};

/* All engines: the only data that spools share. */
static const struct spool_scheme *schemes[SPOOL_SCHEMES_MAX] = {&sqlite_scheme};
static size_t scheme_count = 1;

void spool_register(const struct spool_scheme *scheme)
{
    for (size_t i = 0; i < scheme_count; i++) {
        if (schemes[i] == scheme) {
            return;
        }
    }
    CHECK(scheme_count < SPOOL_SCHEMES_MAX);
    schemes[scheme_count++] = scheme;
}

/* Opens the side store if the engine lacks notes or events. */
static int open_side(const struct spool_options *options, struct buf *ret_error, struct spool *sp)
{
    bool is_complete = sp->engine->notes != NULL && sp->engine->events != NULL;

    return is_complete || options->side == NULL || sp->mode != SPOOL_OPEN_WRITE
               ? 0
               : side_store_open(options->side, options->io, ret_error, &sp->side);
}

static int open_with(const struct spool_scheme *scheme, const char *where,
                     enum spool_open_mode mode, const struct spool_options *options,
                     struct buf *ret_error, struct spool **ret_spool)
{
    int err = scheme->open(where, mode, options, ret_error, ret_spool);

    if (err != 0) {
        return err;
    }
    err = open_side(options, ret_error, *ret_spool);
    if (err != 0) {
        spool_close(*ret_spool);
        *ret_spool = NULL;
    }
    return err;
}

int spool_open(const char *url, enum spool_open_mode mode, const struct spool_options *options,
               struct buf *ret_error, struct spool **ret_spool)
{
    const char *before = " expected ";

    CHECK(options->inline_limit <= SPOOL_INLINE_MAX);
    for (size_t i = scheme_count; i-- > 0;) {
        size_t len = strlen(schemes[i]->prefix);

        if (strncmp(url, schemes[i]->prefix, len) == 0 && url[len] != '\0' &&
            (mode == SPOOL_OPEN_WRITE || schemes[i]->reads)) {
            return open_with(schemes[i], url + len, mode, options, ret_error, ret_spool);
        }
    }
    (void)buf_addf(ret_error, "spool %s:", url); /* errors are sticky */
    for (size_t i = 0; i < scheme_count; i++) {
        if (mode == SPOOL_OPEN_WRITE || schemes[i]->reads) {
            (void)buf_addf(ret_error, "%s%s", before, schemes[i]->form);
            before = " or ";
        }
    }
    return -EINVAL;
}

void spool_close(struct spool *sp)
{
    if (sp == NULL) {
        return;
    }
    if (sp->dirty) {
        sp->engine->rollback(sp);
    }
    side_store_close(sp->side);
    sp->side = NULL; /* engines call spool_next_event once more while they close */
    sp->engine->close(sp);
}

/* ---- the batch ------------------------------------------------------------------------------ */

/* Begins a change: opens a batch, if none is open. */
static int change_begin(struct spool *sp)
{
    int err;

    if (sp->mode != SPOOL_OPEN_WRITE) {
        return spool_fail(sp, -EROFS, "the spool is open for reading only");
    }
    if (sp->dirty) {
        return sp->batch_error; /* spool_error still has the text of the call that failed */
    }
    err = sp->engine->begin(sp);
    sp->dirty = err == 0;
    return err;
}

/* Resets the batch's state after its end; the result is returned elsewhere. */
static void batch_closed(struct spool *sp)
{
    sp->dirty = false;
    sp->batch_error = 0;
}

static int commit_later(struct spool *sp)
{
    int err;

    CHECK(sp->commits_under_way == 0);
    spool_commit_begin(sp);
    while (!spool_commit_end(sp, &err)) {
        (void)spool_commits_wait(sp, US_PER_S); /* the engine has a time limit of its own */
    }
    return err;
}

int spool_commit(struct spool *sp)
{
    int err = sp->batch_error;

    if (!sp->dirty) {
        return 0;
    }
    if (sp->engine->commits != NULL) {
        return commit_later(sp);
    }
    if (err != 0) {
        sp->engine->rollback(sp);
    } else {
        err = sp->engine->commit(sp);
    }
    batch_closed(sp);
    return err;
}

bool spool_dirty(const struct spool *sp)
{
    return sp->dirty;
}

void spool_tidy(struct spool *sp)
{
    CHECK(!sp->dirty);
    if (sp->mode == SPOOL_OPEN_WRITE) {
        sp->engine->tidy(sp);
    }
    if (sp->side != NULL) {
        side_store_tidy(sp->side);
    }
}

/* ---- commits that end later ----------------------------------------------------------------- */

void spool_commit_begin(struct spool *sp)
{
    const struct spool_commits_part *part = sp->engine->commits;

    CHECK(sp->commits_under_way < spool_commits_max(sp));
    if (part == NULL) {
        sp->commit_error = spool_commit(sp);
    } else {
        int err = change_begin(sp);

        if (err == 0) {
            part->begin(sp);
        } else if (sp->dirty) {
            sp->engine->rollback(sp);
        }
        sp->commit_error = err;
        batch_closed(sp);
    }
    sp->commits_under_way++;
}

static bool commit_has_ended(struct spool *sp, int *ret_rc)
{
    spool_commits_turn(sp);
    return sp->engine->commits->end(sp, ret_rc);
}

/* Has the oldest commit ended? The result is the engine's, or the error of a commit that could not
 * begin. */
static bool later_ended(struct spool *sp, int *ret_rc)
{
    if (sp->commit_error != 0 && sp->commits_under_way == 1) {
        *ret_rc = sp->commit_error;
        if (sp->dirty) {
            sp->engine->rollback(sp);
        }
    } else if (!commit_has_ended(sp, ret_rc)) {
        return false;
    }
    if (*ret_rc != 0) {
        batch_closed(sp);
    }
    if (*ret_rc != 0 && sp->commit_error != 0 && sp->commits_under_way > 1) {
        sp->commit_error = -ECANCELED;
    }
    return true;
}

bool spool_commit_end(struct spool *sp, int *ret_rc)
{
    if (sp->commits_under_way == 0) {
        return false;
    }
    if (sp->engine->commits == NULL) {
        *ret_rc = sp->commit_error;
    } else if (!later_ended(sp, ret_rc)) {
        return false;
    }
    sp->commits_under_way--;
    if (sp->commits_under_way == 0) {
        sp->commit_error = 0;
    }
    return true;
}

void spool_commits_turn(struct spool *sp)
{
    if (sp->engine->commits != NULL && sp->engine->commits->turn != NULL) {
        sp->engine->commits->turn(sp);
    }
}

bool spool_commit_is_wanted(const struct spool *sp)
{
    const struct spool_commits_part *part = sp->engine->commits;

    return part != NULL && part->is_wanted != NULL && part->is_wanted(sp);
}

bool spool_missed(struct spool *sp)
{
    bool missed = sp->missed;

    sp->missed = false;
    return missed;
}

int spool_want(struct spool *sp, struct msg_id id, unsigned what)
{
    const struct spool_commits_part *part = sp->engine->commits;

    return part == NULL || part->want == NULL
               ? 0
               : part->want(sp, id, (what & SPOOL_WANT_CONTENT) != 0);
}

unsigned spool_commits_under_way(const struct spool *sp)
{
    return sp->commits_under_way;
}

unsigned spool_commits_max(const struct spool *sp)
{
    /* After a commit that could not begin no other may begin before its result was returned. */
    return sp->engine->commits == NULL ? 1
           : sp->commit_error != 0     ? sp->commits_under_way
                                       : sp->engine->commits->max;
}

bool spool_has_lease(const struct spool *sp)
{
    return sp->engine->lease != NULL;
}

int64_t spool_lease_left_us(const struct spool *sp)
{
    return spool_has_lease(sp) ? sp->engine->lease->left_us(sp) : US_FOREVER;
}

unsigned spool_lease_nodes(const struct spool *sp)
{
    unsigned nodes =
        spool_has_lease(sp) && sp->engine->lease->nodes != NULL ? sp->engine->lease->nodes(sp) : 1;

    return nodes > 0 ? nodes : 1;
}

const char *spool_lease_why(const struct spool *sp)
{
    return spool_has_lease(sp) && sp->engine->lease->why != NULL ? sp->engine->lease->why(sp) : "";
}

int64_t spool_clock_off_us(const struct spool *sp)
{
    return spool_has_lease(sp) && sp->engine->lease->clock_off_us != NULL
               ? sp->engine->lease->clock_off_us(sp)
               : 0;
}

void spool_lease_ended(struct spool *sp)
{
    if (spool_has_lease(sp) && sp->engine->lease->ended != NULL) {
        sp->engine->lease->ended(sp);
    }
}

void spool_set_secret(struct spool *sp, struct slice secret)
{
    if (sp->engine->set_secret != NULL) {
        sp->engine->set_secret(sp, secret);
    }
}

void spool_route_by(struct spool *sp, uint64_t fingerprint)
{
    CHECK(fingerprint != 0);
    if (sp->engine->routes != NULL) {
        sp->engine->routes->route_by(sp, fingerprint);
    }
}

uint64_t spool_route_generation(const struct spool *sp, uint64_t fingerprint)
{
    return sp->engine->routes != NULL ? sp->engine->routes->generation(sp) : fingerprint;
}

bool spool_route_is_stale(const struct spool *sp, uint64_t stored, uint64_t own)
{
    bool is_other = sp->engine->routes != NULL ? stored < own || stored > SPOOL_ROUTE_GENERATION_MAX
                                               : stored != own;

    return is_other && stored != SPOOL_ROUTE_FIXED;
}

bool spool_route_is_newer(const struct spool *sp, uint64_t stored, uint64_t own)
{
    return sp->engine->routes != NULL && stored > own && stored <= SPOOL_ROUTE_GENERATION_MAX;
}

bool spool_routes_are_in_force(const struct spool *sp)
{
    return sp->engine->routes == NULL || sp->engine->routes->are_in_force(sp);
}

bool spool_finds_stale_routes(const struct spool *sp)
{
    return sp->engine->routes != NULL && sp->engine->routes->stale != NULL;
}

int spool_stale_routes(struct spool *sp, uint64_t own, const struct spool_routed *after, size_t max,
                       struct spool_routed *ret, size_t *ret_count)
{
    *ret_count = 0;
    return spool_finds_stale_routes(sp)
               ? sp->engine->routes->stale(sp, own, after, max, ret, ret_count)
               : spool_fail(sp, -ENOTSUP, "this spool has no numbers of routes");
}

int spool_commits_fd(const struct spool *sp)
{
    return sp->engine->commits == NULL ? -1 : sp->engine->commits->fd(sp);
}

bool spool_commits_wait(struct spool *sp, int64_t wait_us)
{
    struct pollfd ready = {.fd = spool_commits_fd(sp), .events = POLLIN};
    int64_t ms = wait_us <= 0 ? 0 : wait_us / US_PER_MS + 1;

    return ready.fd < 0 || poll(&ready, 1, ms < INT_MAX ? (int)ms : INT_MAX) > 0;
}

/* Is this a valid word of an envelope: at most `max` bytes, without NUL? Tools that read a spool
 * would take a NUL for its end. */
static bool word_fits(struct slice word, size_t max)
{
    return word.len <= max && slice_find(word, '\0') == word.len;
}

/* Returns the storable part of a free text: at most `max` bytes, up to a NUL. */
static struct slice cut(struct slice text, size_t max)
{
    text.len = text.len < max ? text.len : max;
    return slice_of(text.ptr, text.len > 0 ? slice_find(text, '\0') : 0);
}

static bool route_fits(struct slice transport, struct slice nexthop)
{
    return word_fits(transport, SPOOL_ROUTE_MAX) && word_fits(nexthop, SPOOL_ROUTE_MAX) &&
           (transport.len > 0 || nexthop.len == 0);
}

static bool rcpt_fits(const struct spool_rcpt *r)
{
    return r->address.len > 0 && word_fits(r->address, ADDRESS_MAX) &&
           word_fits(r->orcpt, DSN_ORCPT_MAX) && route_fits(r->transport, r->nexthop) &&
           (r->notify & ~(unsigned)NOTIFY_BITS) == 0 && r->route_generation <= INT64_MAX;
}

static bool message_fits(const struct spool_message *m, const struct spool_rcpt *rcpts,
                         uint32_t rcpt_count)
{
    if ((m->class_name.len > 0 && !class_name_valid(m->class_name)) ||
        (unsigned)m->class_source > CLASS_SOURCE_MAX || !word_fits(m->parked, SPOOL_PARKED_MAX) ||
        !word_fits(m->sender, SPOOL_SENDER_MAX) || !word_fits(m->envid, DSN_ENVID_MAX) ||
        (m->flags & ~(unsigned)MESSAGE_FLAGS) != 0 || rcpt_count == 0 ||
        rcpt_count > SPOOL_RCPTS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < rcpt_count; i++) {
        if (!rcpt_fits(&rcpts[i])) {
            return false;
        }
    }
    return true;
}

/* Copies the prefix with the id in place of its mark. */
static bool prefix_build(struct slice prefix, struct msg_id id, struct buf *ret_prefix)
{
    char text[SPOOL_ID_TEXT_MAX];
    size_t mark = slice_find(prefix, MARK);

    buf_add(ret_prefix, slice_of(prefix.ptr, mark));
    if (mark < prefix.len) {
        spool_id_print(id, text);
        buf_add_string(ret_prefix, text);
        buf_add(ret_prefix, slice_skip(prefix, mark + 1));
    }
    return !ret_prefix->failed;
}

int spool_submit(struct spool *sp, const struct spool_message *m, const struct spool_rcpt *rcpts,
                 uint32_t rcpt_count, struct slice content_prefix,
                 const struct spool_content *content, bool claim, struct slice hold_reason,
                 struct msg_id *ret_id)
{
    struct spool_message stored = *m;
    struct spool_new n = {
        .m = &stored, .rcpts = rcpts, .rcpt_count = rcpt_count, .content = content, .claim = claim};
    struct msg_id id;
    struct buf prefix;
    int err;

    CHECK(claim + (hold_reason.len > 0) + (m->parked.len > 0) <= 1);
    if (!message_fits(m, rcpts, rcpt_count)) {
        return spool_fail(sp, -EINVAL, "submit: an address or a parameter is longer than allowed");
    }
    err = change_begin(sp);
    if (err != 0) {
        return err;
    }
    id = sp->engine->next_id(sp);
    buf_init(&prefix, PREFIX_MAX);
    if (!prefix_build(content_prefix, id, &prefix) ||
        __builtin_add_overflow(content->bytes.len + buf_len(&prefix),
                               content->fd >= 0 ? content->fd_size : 0, &n.size) ||
        n.size > SPOOL_CONTENT_MAX) {
        err = refuse(sp, id, "the content is larger than allowed");
        goto out;
    }
    stored.id = id;
    stored.size = n.size;
    stored.state = hold_reason.len > 0 ? SPOOL_HOLD
                   : m->parked.len > 0 ? SPOOL_DEFERRED
                                       : SPOOL_INCOMING;
    stored.reason = cut(hold_reason.len > 0 ? hold_reason : m->reason, SPOOL_DIAGNOSTIC_MAX);
    stored.client = cut(m->client, SPOOL_REMOTE_MAX);
    stored.rcpt_total = stored.rcpt_pending = rcpt_count;
    stored.rcpt_to_report = 0;
    stored.warnings = 0;
    stored.force_expire = false;
    n.prefix = buf_slice(&prefix);
    err = sp->engine->parts != NULL && rcpt_count > 1 ? parts_submit(sp, id, &n)
                                                      : sp->engine->submit(sp, id, &n);
    if (err == 0) {
        *ret_id = id;
    }
out:
    buf_fini(&prefix);
    return err;
}

struct slice spool_submitted_name(const struct spool *sp)
{
    return sp->engine->submitted_name != NULL ? sp->engine->submitted_name(sp) : SLICE("");
}

int spool_settle(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    struct spool_verdict stored = *v;
    int err = change_begin(sp);

    if (err != 0) {
        return err;
    }
    stored.status = cut(v->status, SPOOL_STATUS_MAX);
    stored.diagnostic = cut(v->diagnostic, SPOOL_DIAGNOSTIC_MAX);
    stored.reply = cut(v->reply, SPOOL_REPLY_MAX);
    stored.remote = cut(v->remote, SPOOL_REMOTE_MAX);
    stored.tls = cut(v->tls, SPOOL_TLS_MAX);
    stored.details = cut(v->details, SPOOL_DETAILS_MAX);
    return sp->engine->settle(sp, id, n, &stored);
}

int spool_set_route(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                    struct slice nexthop, uint64_t route_generation)
{
    int err;

    if (!route_fits(transport, nexthop) || route_generation > INT64_MAX) {
        return refuse(sp, id, "a route is longer than allowed, or has a nexthop alone");
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->set_route(sp, id, n, transport, nexthop, route_generation);
}

int spool_reported(struct spool *sp, struct msg_id id)
{
    int err = change_begin(sp);

    return err != 0 ? err : sp->engine->reported(sp, id);
}

int spool_finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone)
{
    int err = change_begin(sp);

    return err != 0 ? err : sp->engine->finish(sp, id, due, ret_gone);
}

int spool_finish_all_done(struct spool *sp, struct msg_id id)
{
    int err = change_begin(sp);

    return err != 0 ? err : sp->engine->finish_all_done(sp, id);
}

void spool_unclaim(struct spool *sp, struct msg_id id)
{
    CHECK(sp->mode == SPOOL_OPEN_WRITE);
    sp->engine->unclaim(sp, id);
}

/* ---- changes of a message's own fields: which state may follow which ------------------------ */

/* Begins a change of `id`: *ret_from is the message, *ret_to a copy to alter. */
static int alter_begin(struct spool *sp, struct msg_id id, struct spool_message *ret_from,
                       struct spool_message *ret_to)
{
    int err = change_begin(sp);

    if (err == 0) {
        err = sp->engine->read(sp, id, ret_from);
    }
    if (err == 0) {
        *ret_to = *ret_from;
    }
    return err;
}

int spool_set_warned(struct spool *sp, struct msg_id id)
{
    struct spool_message from, to;
    int err = alter_begin(sp, id, &from, &to);

    if (err != 0) {
        return err;
    }
    to.warnings += to.warnings < UINT32_MAX;
    return sp->engine->change(sp, &(struct spool_change){.from = &from, .to = &to});
}

int spool_set_force_expire(struct spool *sp, struct msg_id id)
{
    struct spool_message from, to;
    int err = alter_begin(sp, id, &from, &to);

    if (err != 0) {
        return err;
    }
    to.force_expire = true;
    return sp->engine->change(sp, &(struct spool_change){.from = &from, .to = &to});
}

int spool_hold(struct spool *sp, struct msg_id id, struct slice reason)
{
    struct spool_message from, to;
    char copy[SPOOL_DIAGNOSTIC_MAX]; /* a read may end the lifetime of the caller's slice */
    int err;

    reason = cut(reason, sizeof copy);
    if (reason.len > 0) {
        memcpy(copy, reason.ptr, reason.len);
    }
    err = alter_begin(sp, id, &from, &to);
    if (err != 0) {
        return err;
    }
    to.state = SPOOL_HOLD;
    to.reason = slice_of(copy, reason.len);
    to.parked = SLICE("");
    return sp->engine->change(sp,
                              &(struct spool_change){.from = &from, .to = &to, .end_claim = true});
}

int spool_release(struct spool *sp, struct msg_id id, struct wall now)
{
    struct spool_message from, to;
    int err = alter_begin(sp, id, &from, &to);

    if (err != 0) {
        return err;
    }
    if (from.state != SPOOL_HOLD) {
        return refuse(sp, id, "is not on hold");
    }
    to.state = SPOOL_DEFERRED;
    to.due = now;
    to.reason = SLICE("");
    return sp->engine->change(sp, &(struct spool_change){.from = &from, .to = &to});
}

int spool_requeue(struct spool *sp, struct msg_id id, struct wall now)
{
    struct spool_message from, to;
    int err = alter_begin(sp, id, &from, &to);

    if (err != 0) {
        return err;
    }
    if (from.state == SPOOL_CORRUPT) {
        return refuse(sp, id, "is corrupt");
    }
    to.state = SPOOL_INCOMING;
    to.created = to.due = now;
    to.warnings = 0;
    to.force_expire = false;
    to.reason = to.parked = SLICE("");
    return sp->engine->change(
        sp,
        &(struct spool_change){.from = &from, .to = &to, .end_claim = true, .forget_tries = true});
}

int spool_set_due(struct spool *sp, struct msg_id id, struct wall due)
{
    struct spool_message from, to;
    int err = alter_begin(sp, id, &from, &to);

    if (err != 0) {
        return err;
    }
    if (from.state == SPOOL_CORRUPT) {
        return refuse(sp, id, "is corrupt");
    }
    to.due = due;
    return sp->engine->change(sp, &(struct spool_change){.from = &from, .to = &to});
}

int spool_set_times(struct spool *sp, struct msg_id id, struct wall due, struct wall created)
{
    struct spool_message from, to;
    int err = alter_begin(sp, id, &from, &to);

    if (err == 0) {
        to.due = due;
        to.created = created;
        err = sp->engine->change(sp, &(struct spool_change){.from = &from, .to = &to});
    }
    return err;
}

struct msg_id spool_mark(struct spool *sp)
{
    return sp->engine->next_id(sp);
}

int spool_park(struct spool *sp, struct msg_id id, struct slice key, struct wall due)
{
    struct spool_message from, to;
    char copy[SPOOL_PARKED_MAX]; /* a read may end the lifetime of the caller's slice */
    int err;

    if (key.len == 0 || !word_fits(key, SPOOL_PARKED_MAX)) {
        return refuse(sp, id, "a key to park it under is expected");
    }
    memcpy(copy, key.ptr, key.len);
    err = alter_begin(sp, id, &from, &to);
    if (err != 0) {
        return err;
    }
    if (from.state != SPOOL_INCOMING && from.state != SPOOL_DEFERRED) {
        return refuse(sp, id, "is on hold or corrupt");
    }
    to.state = SPOOL_DEFERRED;
    to.due = due;
    to.parked = slice_of(copy, key.len);
    return sp->engine->change(sp,
                              &(struct spool_change){.from = &from, .to = &to, .end_claim = true});
}

int spool_remove(struct spool *sp, struct msg_id id)
{
    int err = change_begin(sp);

    return err != 0 ? err : sp->engine->remove(sp, id);
}

int spool_quarantine(struct spool *sp, struct msg_id id, struct slice reason)
{
    int err = change_begin(sp);

    return err != 0 ? err : sp->engine->quarantine(sp, id, cut(reason, SPOOL_DIAGNOSTIC_MAX));
}

/* ---- mail that is divided, and woken --------------------------------------------------------- */

bool spool_divides(const struct spool *sp)
{
    return sp->engine->division != NULL;
}

int spool_put_off(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  struct slice key, struct wall due)
{
    int err;

    if (!spool_divides(sp)) {
        return spool_fail(sp, -ENOTSUP, "messages of this spool can't be divided");
    }
    if (key.len == 0 || !word_fits(key, SPOOL_PARKED_MAX)) {
        return refuse(sp, id, "a key to park it under is expected");
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->division->put_off(sp, id, ns, count, key, due);
}

int spool_give(struct spool *sp, struct msg_id id, struct wall due)
{
    int err;

    if (sp->engine->parts == NULL) {
        return spool_fail(sp, -ENOTSUP, "messages of this spool have no parts");
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->parts->give(sp, id, due);
}

bool spool_lies_elsewhere(const struct spool *sp, struct msg_id id, const struct spool_rcpt *r)
{
    const struct spool_parts_part *part = sp->engine->parts;
    int here = part != NULL && part->move != NULL ? part->lies_in(sp, id) : -1;

    return here >= 0 && parts_place(sp, r, (unsigned)here) != (unsigned)here;
}

int spool_move(struct spool *sp, struct msg_id id, struct wall due, struct wall report_due,
               uint32_t *ret_moved)
{
    int err;

    *ret_moved = 0;
    if (sp->engine->parts == NULL || sp->engine->parts->move == NULL) {
        return 0;
    }
    err = change_begin(sp);
    return err != 0 ? err : parts_move(sp, id, due, report_due, ret_moved);
}

int spool_parts_want(struct spool *sp, struct msg_id whole)
{
    const struct spool_parts_part *part = sp->engine->parts;

    return part == NULL || part->want == NULL ? 0 : part->want(sp, whole);
}

int spool_parts_of(struct spool *sp, struct msg_id whole, struct msg_id after, size_t max,
                   struct msg_id *ret_ids, size_t *ret_count)
{
    *ret_count = 0;
    return sp->engine->parts == NULL
               ? 0
               : sp->engine->parts->parts_of(sp, whole, after, max, ret_ids, ret_count);
}

bool spool_due_by_scans(const struct spool *sp)
{
    return sp->engine->search != NULL && sp->engine->search->due_by_scans;
}

bool spool_concludes(const struct spool *sp)
{
    return sp->engine->conclusion != NULL;
}

int spool_conclude(struct spool *sp, struct msg_id id, bool deferred, struct wall due)
{
    int err;

    if (!spool_concludes(sp)) {
        return spool_fail(sp, -ENOTSUP, "passes of this spool end in the queue process");
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->conclusion->conclude(sp, id, deferred, due);
}

int spool_reroute(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  size_t *ret_count)
{
    int err;

    *ret_count = 0;
    if (sp->engine->reroute == NULL) {
        return spool_fail(sp, -ENOTSUP, "this spool has no router");
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->reroute->reroute(sp, id, ns, count, ret_count);
}

/* Messages are claimed for a moment, so that the next call does not find them again. */
int spool_wake(struct spool *sp, struct slice key, struct wall due, size_t *ret_count)
{
    struct msg_id ids[64];
    size_t count, total = 0;
    bool more = true;

    while (more) {
        int err = spool_claim_parked(sp, key, due, sizeof ids / sizeof ids[0], ids, &count, &more);

        if (err != 0) {
            *ret_count = total;
            return err;
        }
        for (size_t i = 0; i < count; i++) {
            spool_unclaim(sp, ids[i]);
        }
        total += count;
    }
    *ret_count = total;
    return 0;
}

/* ---- external changes, and events ----------------------------------------------------------- */

int spool_external_fd(const struct spool *sp)
{
    return sp->engine->external != NULL ? sp->engine->external->fd(sp) : -1;
}

int spool_poll(struct spool *sp, struct wall now, struct wall *ret_again)
{
    CHECK(sp->mode == SPOOL_OPEN_WRITE);
    CHECK(!sp->dirty);
    if (sp->engine->external == NULL) {
        *ret_again = WALL_NEVER;
        return 0;
    }
    return sp->engine->external->poll(sp, now, ret_again);
}

void spool_look(struct spool *sp)
{
    if (sp->engine->external != NULL) {
        sp->engine->external->look(sp);
    }
}

bool spool_single_pass(const struct spool *sp)
{
    return sp->engine->external != NULL && sp->engine->external->single_pass(sp);
}

int spool_resync(struct spool *sp, struct slice path)
{
    CHECK(sp->mode == SPOOL_OPEN_WRITE);
    CHECK(!sp->dirty);
    return sp->engine->external != NULL
               ? sp->engine->external->resync(sp, path)
               : spool_fail(sp, -ENOTSUP, "no other program writes to this spool");
}

int spool_key_find(struct spool *sp, struct spool_key *k, struct wall now, uint64_t max)
{
    int err;

    CHECK(k->key.len > 0 && k->key.len <= SPOOL_KEY_MAX);
    if (sp->engine->keys == NULL) {
        return spool_fail(sp, -ENOTSUP, "this spool keeps no keys");
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->keys->find(sp, k, now, max);
}

int spool_key_add(struct spool *sp, const struct spool_key *k)
{
    CHECK(sp->dirty);
    CHECK(k->key.len > 0 && k->key.len <= SPOOL_KEY_MAX);
    return sp->engine->keys->add(sp, k);
}

/* Returns the result of a side store's call, with its text. */
static int beside(struct spool *sp, int err)
{
    return err == 0 || err == -ENOENT ? err : spool_fail(sp, err, "%s", side_store_error(sp->side));
}

static int no_events(struct spool *sp)
{
    return spool_fail(sp, -ENOTSUP, "this spool keeps no journal of events");
}

int spool_events_range(struct spool *sp, bool count_bytes, struct spool_events_range *ret)
{
    if (sp->engine->events != NULL) {
        return sp->engine->events->range(sp, count_bytes, ret);
    }
    return sp->side == NULL ? no_events(sp)
                            : beside(sp, side_events_range(sp->side, count_bytes, ret));
}

int spool_events_add(struct spool *sp, uint64_t first, uint64_t last, struct wall at,
                     struct slice lines)
{
    int err;

    CHECK(first > 0 && first <= last && last <= INT64_MAX);
    if (sp->engine->events == NULL) {
        return sp->side == NULL ? no_events(sp)
                                : beside(sp, side_events_add(sp->side, first, last, at, lines));
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->events->add(sp, first, last, at, lines);
}

int spool_events_read(struct spool *sp, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                      struct slice *ret_lines)
{
    CHECK(number <= INT64_MAX);
    if (sp->engine->events != NULL) {
        return sp->engine->events->read(sp, number, ret_first, ret_last, ret_lines);
    }
    return sp->side == NULL
               ? no_events(sp)
               : beside(sp, side_events_read(sp->side, number, ret_first, ret_last, ret_lines));
}

int spool_events_forget(struct spool *sp, uint64_t *ret_bytes)
{
    int err;

    *ret_bytes = 0;
    if (sp->engine->events == NULL) {
        return sp->side == NULL ? no_events(sp)
                                : beside(sp, side_events_forget(sp->side, ret_bytes));
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->events->forget(sp, ret_bytes);
}

static int no_notes(struct spool *sp)
{
    return spool_fail(sp, -ENOTSUP, "this spool keeps no notes");
}

static bool note_name_fits(struct slice name)
{
    return name.len > 0 && name.len <= SPOOL_NOTE_NAME_MAX;
}

int spool_note_put(struct spool *sp, struct slice name, struct slice text)
{
    int err;

    if (!note_name_fits(name) || text.len == 0 || text.len > SPOOL_NOTE_TEXT_MAX) {
        return spool_fail(sp, -EINVAL, "a note is too long, or empty");
    }
    if (sp->engine->notes == NULL) {
        return sp->side == NULL ? no_notes(sp) : beside(sp, side_note_put(sp->side, name, text));
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->notes->put(sp, name, text);
}

int spool_note_remove(struct spool *sp, struct slice name)
{
    int err;

    CHECK(note_name_fits(name));
    if (sp->engine->notes == NULL) {
        return sp->side == NULL ? no_notes(sp) : beside(sp, side_note_remove(sp->side, name));
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->notes->remove(sp, name);
}

int spool_note_remove_damaged(struct spool *sp, struct slice name)
{
    int err;

    if (sp->engine->notes == NULL) {
        return sp->side == NULL ? no_notes(sp)
                                : beside(sp, side_note_remove_damaged(sp->side, name));
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->notes->remove_damaged(sp, name);
}

int spool_notes_read(struct spool *sp, spool_note_read *read, void *context)
{
    if (sp->engine->notes != NULL) {
        return sp->engine->notes->read(sp, read, context);
    }
    return sp->side == NULL ? no_notes(sp) : beside(sp, side_notes_read(sp->side, read, context));
}

bool spool_has_shared(const struct spool *sp)
{
    return sp->engine->shared != NULL && sp->engine->shared->is_there(sp);
}

int spool_shared_put(struct spool *sp, uint32_t token, bool reroutes, struct slice text)
{
    int err;

    CHECK(token != 0 && spool_has_shared(sp));
    if (text.len == 0 || text.len > SPOOL_SHARED_TEXT_MAX) {
        return spool_fail(sp, -EINVAL, "a text for all nodes is too long, or empty");
    }
    err = change_begin(sp);
    return err != 0 ? err : sp->engine->shared->put(sp, token, reroutes, text);
}

int spool_shared_remove(struct spool *sp, uint64_t number, bool reroutes)
{
    int err = change_begin(sp);

    return err != 0 ? err : sp->engine->shared->remove(sp, number, reroutes);
}

uint64_t spool_shared_look(struct spool *sp)
{
    return sp->engine->shared->look(sp);
}

uint64_t spool_shared_looks(const struct spool *sp)
{
    return sp->engine->shared->looks(sp);
}

uint64_t spool_shared_changes(const struct spool *sp)
{
    return sp->engine->shared->changes(sp);
}

void spool_shared_go_by(struct spool *sp, uint64_t changes)
{
    sp->engine->shared->go_by(sp, changes);
}

uint64_t spool_shared_watch(struct spool *sp)
{
    return sp->engine->shared->watch(sp);
}

bool spool_shared_behind(struct spool *sp, uint64_t watch, uint64_t changes, uint64_t *ret_nodes)
{
    return sp->engine->shared->behind(sp, watch, changes, ret_nodes);
}

uint64_t spool_shared_reroutes(const struct spool *sp)
{
    return spool_has_shared(sp) ? sp->engine->shared->reroutes(sp) : 0;
}

bool spool_shared_next(const struct spool *sp, uint64_t after, struct spool_shared *ret)
{
    return sp->engine->shared->next(sp, after, ret);
}

bool spool_shared_is_cut(const struct spool *sp)
{
    return sp->engine->shared->is_cut(sp);
}

void spool_verbose(struct spool *sp, struct msg_id id, struct slice line)
{
    if (sp->engine->verbose != NULL) {
        sp->engine->verbose->add(sp, id, line);
    }
}

bool spool_next_event(struct spool *sp, struct spool_event *ret_event)
{
    bool is_warning = false;
    const char *line = sp->side == NULL ? NULL : side_store_line(sp->side, &is_warning);

    if (line != NULL) {
        *ret_event = (struct spool_event){
            .type = is_warning ? SPOOL_EVENT_WARNING : SPOOL_EVENT_LOG, .text = slice_string(line)};
        return true;
    }
    return sp->engine->next_event != NULL && sp->engine->next_event(sp, ret_event);
}

/* ---- reading -------------------------------------------------------------------------------- */

int spool_claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                struct msg_id *ret_ids, size_t *ret_count)
{
    CHECK(sp->mode == SPOOL_OPEN_WRITE);
    CHECK(from == SPOOL_INCOMING || from == SPOOL_DEFERRED);
    return sp->engine->claim(sp, from, now, max, ret_ids, ret_count);
}

int spool_next_due(struct spool *sp, struct wall *ret_due)
{
    CHECK(sp->mode == SPOOL_OPEN_WRITE);
    return sp->engine->next_due(sp, ret_due);
}

int spool_claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                       struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    int err = change_begin(sp);

    return err != 0 ? err
                    : sp->engine->claim_parked(sp, key, now, max, ret_ids, ret_count, ret_more);
}

int spool_parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                      size_t *ret_count)
{
    return sp->engine->parked_keys(sp, after, max, ret_keys, ret_count);
}

bool spool_is_claimed(const struct spool *sp, struct msg_id id)
{
    return sp->engine->is_claimed(sp, id);
}

size_t spool_claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    return sp->engine->claimed(sp, cursor, max, ret_ids);
}

int spool_read(struct spool *sp, struct msg_id id, struct spool_message *ret_message)
{
    return sp->engine->read(sp, id, ret_message);
}

int spool_read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                     size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    return sp->engine->read_rcpts(sp, id, after, only_pending, max, ret_rcpts, ret_count);
}

int spool_want_rcpts(struct spool *sp, struct msg_id id, uint32_t after, size_t max)
{
    CHECK(max > 0);
    return sp->engine->want_rcpts == NULL ? 0 : sp->engine->want_rcpts(sp, id, after, max);
}

int spool_read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                       uint64_t *ret_size)
{
    return sp->engine->read_content(sp, id, ret_bytes, ret_fd, ret_size);
}

int spool_totals(struct spool *sp, struct spool_totals *ret_totals)
{
    return sp->engine->totals(sp, ret_totals);
}

int spool_free_bytes(struct spool *sp, uint64_t *ret_bytes)
{
    return sp->engine->free_bytes(sp, ret_bytes);
}

/* ---- searches ------------------------------------------------------------------------------- */

/* Returns the part, or NULL with an error if the engine lacks it. */
static const struct spool_search_part *search_of(struct spool *sp)
{
    if (sp->engine->search == NULL) {
        (void)spool_fail(sp, -ENOTSUP, "this spool can't be searched from here");
    }
    return sp->engine->search;
}

/* Only messages that other programs know have names; in other spools no message matches. */
static bool asks_for_unknown_name(const struct spool *sp, const struct spool_filter *f)
{
    return f->name.len > 0 && sp->engine->external == NULL;
}

int spool_scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
               size_t *ret_count)
{
    const struct spool_search_part *search = search_of(sp);

    if (search == NULL) {
        return -ENOTSUP;
    }
    if (asks_for_unknown_name(sp, f)) {
        *ret_count = 0;
        return 0;
    }
    return search->scan(sp, f, max, ret_ids, ret_count);
}

int spool_count(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    const struct spool_search_part *search = search_of(sp);

    if (search == NULL) {
        return -ENOTSUP;
    }
    if (asks_for_unknown_name(sp, f)) {
        *ret_count = 0;
        return 0;
    }
    return search->count(sp, f, ret_count);
}

bool spool_scan_goes_on(const struct spool *sp, struct msg_id *ret_after)
{
    const struct spool_search_part *search = sp->engine->search;

    return search != NULL && search->goes_on != NULL && search->goes_on(sp, ret_after);
}

int spool_walk(struct spool *sp, enum spool_walk_by by, struct spool_walk *w, size_t max,
               struct spool_walked *ret, size_t *ret_count)
{
    const struct spool_search_part *search = search_of(sp);

    CHECK(!w->ended);
    return search == NULL || search->walk == NULL
               ? spool_fail(sp, -ENOTSUP, "this spool can not be summed up")
               : search->walk(sp, by, w, max, ret, ret_count);
}

int spool_destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                       size_t *ret_count)
{
    const struct spool_search_part *search = search_of(sp);

    return search == NULL ? -ENOTSUP : search->destinations(sp, max, ret, ret_count);
}

int spool_destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                            struct spool_destination *ret, size_t *ret_count)
{
    const struct spool_search_part *search = search_of(sp);

    return search == NULL ? -ENOTSUP : search->destinations_from(sp, from, max, ret, ret_count);
}

int spool_oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived)
{
    const struct spool_search_part *search = search_of(sp);
    struct spool_filter filter = {.states = 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED};
    struct spool_message m;
    struct msg_id id;
    struct buf name;
    size_t count = 0;
    int rc;

    if (search == NULL) {
        return -ENOTSUP;
    }
    if (search->oldest != NULL) {
        return search->oldest(sp, of, ret_arrived);
    }
    buf_init(&name, (size_t)2 * SPOOL_ROUTE_MAX + 2);
    (void)buf_addf(&name, "%.*s/%.*s", SLICE_ARGS(of->transport),
                   SLICE_ARGS(of->nexthop)); /* it fits */
    filter.destination = buf_slice(&name);
    rc = spool_scan(sp, &filter, 1, &id, &count);
    rc = rc == 0 && count == 0 ? -ENOENT : rc;
    rc = rc == 0 ? spool_read(sp, id, &m) : rc;
    buf_fini(&name);
    if (rc == 0) {
        *ret_arrived = m.arrived;
    }
    return rc;
}
