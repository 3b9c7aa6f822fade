/*
 * Random histories of a queue directory in which cleanup, agents, postsuper, flush and a manager
 * that is killed now and then do what they do, in any order. After each step every message is in
 * exactly one place, or was removed by one who may; in the end each recipient was delivered once.
 */
#include "postfix_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "mem.h"
#include "queue_tree.h"
#include "rng.h"
#include "services.h"
#include "spool_conclusion.h"
#include "spool_external.h"

#define NOW_S     INT64_C(1795346264)
#define HISTORIES 10
#define STEPS     500
#define MAILS     40
#define RCPTS     5
#define AGENTS    20
#define ROUNDS    300

static const char *const places[] = {"incoming", "active", "deferred", "hold", "corrupt"};

struct mail {
    char name[16];
    unsigned rcpts;
    bool written; /* cleanup(8) has done its part */
    bool live;    /* it must be somewhere */
    unsigned delivered[RCPTS];
};

/* A delivery of all that is pending of a message, whatever becomes of its manager. */
struct agent {
    bool busy;
    int fd; /* -1: the file was gone */
    struct mail *mail;
    struct msg_id id;
    unsigned manager;
    uint32_t n[RCPTS];
    uint64_t offset[RCPTS];
    size_t count;
    uint32_t after; /* the last that it was given */
};

struct world {
    struct queue_tree tree;
    struct spool *sp;
    struct postfix_services services;
    struct rng rng;
    struct wall now;
    struct mail mails[MAILS];
    size_t mail_count;
    struct agent agents[AGENTS];
    unsigned manager; /* how many there were */
    bool well;        /* every delivery succeeds */
};

static bool one_in(struct world *w, uint64_t n)
{
    return rng_below(&w->rng, n) == 0;
}

static void path_in(const struct mail *m, const char *place, char ret[64])
{
    if (strcmp(place, "deferred") == 0) {
        (void)snprintf(ret, 64, "deferred/%c/%s", m->name[0], m->name);
    } else {
        (void)snprintf(ret, 64, "%s/%s", place, m->name);
    }
}

/* Where it is; NULL when it is nowhere. */
static const char *place_of(struct world *w, const struct mail *m)
{
    const char *found = NULL;

    for (size_t i = 0; i < COUNT(places); i++) {
        char path[64];

        path_in(m, places[i], path);
        if (queue_tree_has(&w->tree, path)) {
            assert_null(found);
            found = places[i];
        }
    }
    return found;
}

static void check(struct world *w)
{
    for (size_t i = 0; i < w->mail_count; i++) {
        const struct mail *m = &w->mails[i];
        const char *place = place_of(w, m);

        if (m->live != (place != NULL) || (place != NULL && strcmp(place, "corrupt") == 0)) {
            fail_msg("%s is in %s", m->name, place != NULL ? place : "no place");
        }
    }
}

static struct mail *mail_of(struct world *w, struct slice name)
{
    for (size_t i = 0; i < w->mail_count; i++) {
        if (slice_equal(name, slice_string(w->mails[i].name))) {
            return &w->mails[i];
        }
    }
    fail_msg("no mail %.*s", SLICE_ARGS(name));
    return NULL;
}

/* ---- services ------------------------------------------------------------------------------- */

static void ask(void *context, struct msg_id id, const struct queue_file_envelope *m,
                const struct queue_file_rcpt *rcpt)
{
    struct world *w = context;

    (void)m;
    postfix_routed(w->sp, id, rcpt->n,
                   &(struct postfix_route){.disposal = POSTFIX_DELIVER,
                                           .transport = SLICE("smtp"),
                                           .nexthop = SLICE("example.org"),
                                           .recipient = rcpt->address});
}

static void forget(void *context, struct msg_id id)
{
    (void)context;
    (void)id;
}

static void conclude(void *context, struct msg_id id, bool deferred, struct wall due)
{
    struct world *w = context;
    struct mail *m = mail_of(w, postfix_message(w->sp, id)->queue_id);

    if (deferred && !postfix_pass_is_usable(w->sp, id)) {
        postfix_concluded(w->sp, id, POSTFIX_CORRUPT, due); /* it is gone */
    } else if (deferred) {
        postfix_concluded(w->sp, id, POSTFIX_DEFERRED, due);
    } else {
        char path[64];

        path_in(m, "active", path);
        if (queue_tree_has(&w->tree, path)) {
            for (unsigned i = 0; i < m->rcpts; i++) {
                assert_int_equal(m->delivered[i], 1);
            }
            m->live = false;
        }
        postfix_concluded(w->sp, id, POSTFIX_REMOVED, due);
    }
}

/* ---- the manager and its agents ------------------------------------------------------------- */

static void start_manager(struct world *w)
{
    struct buf error;

    buf_init(&error, 1000);
    assert_int_equal(
        postfix_spool_open(w->tree.path, &(struct spool_options){0},
                           &(struct postfix_spool_options){.rcpt_limit = 3, .rcpt_minimum = 2},
                           &error, &w->sp),
        0);
    buf_fini(&error);
    w->services =
        (struct postfix_services){.context = w, .ask = ask, .forget = forget, .conclude = conclude};
    assert_int_equal(postfix_use_services(w->sp, &w->services), 0);
    w->manager++;
}

static void poll_once(struct world *w)
{
    struct spool_event event;
    struct wall again;

    assert_int_equal(spool_poll(w->sp, w->now, &again), 0);
    while (spool_next_event(w->sp, &event)) {
    }
}

static void end_pass(struct world *w, struct msg_id id, bool deferred)
{
    int64_t wait_s = 1 + (int64_t)rng_below(&w->rng, 300);

    assert_int_equal(spool_conclude(w->sp, id, deferred, wall_after(w->now, wait_s * US_PER_S)), 0);
    assert_int_equal(spool_commit(w->sp), 0);
}

/* It has the recipients that are in memory, or the next of the file. False: there are none. */
static bool start_agent(struct world *w, struct agent *a, struct msg_id id, uint32_t after)
{
    struct spool_rcpt r[RCPTS];
    char path[200];

    *a = (struct agent){.busy = true,
                        .id = id,
                        .manager = w->manager,
                        .after = after,
                        .mail = mail_of(w, postfix_message(w->sp, id)->queue_id)};
    assert_int_equal(spool_want_rcpts(w->sp, id, after, 1 + rng_below(&w->rng, 3)), 0);
    assert_int_equal(spool_read_rcpts(w->sp, id, after, true, RCPTS, r, &a->count), 0);
    if (a->count == 0) {
        a->busy = false;
        return false;
    }
    a->after = r[a->count - 1].n;
    for (size_t i = 0; i < a->count; i++) {
        struct postfix_rcpt rcpt;
        int type = postfix_rcpt_state(w->sp, id, r[i].n);

        assert_true(type == 'R' || type == -ENOENT); /* what is done is never tried again */
        a->n[i] = r[i].n;
        assert_true(postfix_rcpt(w->sp, id, r[i].n, &rcpt));
        a->offset[i] = rcpt.offset;
    }
    (void)snprintf(path, sizeof path, "%s/active/%s", w->tree.path, a->mail->name);
    a->fd = open(path, O_RDWR | O_CLOEXEC);
    if (a->fd >= 0) {
        assert_return_code(flock(a->fd, LOCK_SH | LOCK_NB), errno); /* the manager's is dropped */
    }
    return true;
}

static void claim_one(struct world *w)
{
    static const enum spool_state from[2] = {SPOOL_INCOMING, SPOOL_DEFERRED};
    struct agent *a = NULL;
    struct msg_id id;
    size_t count;

    for (size_t i = 0; i < AGENTS && a == NULL; i++) {
        a = w->agents[i].busy ? NULL : &w->agents[i];
    }
    if (a == NULL) {
        return;
    }
    assert_int_equal(spool_claim(w->sp, from[rng_below(&w->rng, 2)], w->now, 1, &id, &count), 0);
    if (count == 1 && !start_agent(w, a, id, 0)) {
        end_pass(w, id, false);
    }
}

static void end_agent(struct world *w, struct agent *a)
{
    static const struct spool_verdict deferred = {.state = SPOOL_RCPT_PENDING};
    bool of_this_manager = a->manager == w->manager;
    struct spool_message m;

    for (size_t i = 0; i < a->count; i++) {
        if (a->fd < 0 || (!w->well && one_in(w, 3))) {
            if (of_this_manager) {
                assert_int_equal(spool_settle(w->sp, a->id, a->n[i], &deferred), 0);
            }
            continue;
        }
        assert_int_equal(pwrite(a->fd, "D", 1, (off_t)a->offset[i]), 1);
        a->mail->delivered[a->n[i] - 1]++;
        assert_int_equal(a->mail->delivered[a->n[i] - 1], 1);
        if (of_this_manager) {
            assert_int_equal(
                spool_settle(w->sp, a->id, a->n[i],
                             &(struct spool_verdict){.state = SPOOL_RCPT_DELIVERED, .done = true}),
                0);
        }
    }
    if (a->fd >= 0) {
        (void)close(a->fd);
    }
    a->busy = false;
    if (of_this_manager) {
        assert_int_equal(spool_commit(w->sp), 0);
        if (!start_agent(w, a, a->id, a->after)) {
            assert_int_equal(spool_read(w->sp, a->id, &m), 0);
            end_pass(w, a->id, m.rcpt_pending > 0);
        }
    }
}

/* ---- the others ----------------------------------------------------------------------------- */

static void new_mail(struct world *w)
{
    struct mail *m = &w->mails[w->mail_count];
    struct buf bytes;
    char path[64];

    if (w->mail_count == MAILS) {
        return;
    }
    *m = (struct mail){.live = true, .rcpts = 1 + (unsigned)rng_below(&w->rng, RCPTS)};
    (void)snprintf(m->name, sizeof m->name, "%X%02zu", (unsigned)(w->mail_count % 16),
                   w->mail_count);
    buf_init(&bytes, 10000);
    queue_tree_message(&bytes, "a@b", "r", m->rcpts);
    path_in(m, "incoming", path);
    queue_tree_put(&w->tree, path, buf_slice(&bytes), 0600, us_seconds(w->now.us));
    buf_fini(&bytes);
    w->mail_count++;
}

static void change_mode(struct world *w, const char *path, mode_t mode)
{
    char full[200];

    (void)snprintf(full, sizeof full, "%s/%s", w->tree.path, path);
    assert_return_code(chmod(full, mode), errno);
}

static void operate(struct world *w)
{
    struct mail *m = w->mail_count > 0 ? &w->mails[rng_below(&w->rng, w->mail_count)] : NULL;
    const char *place = m != NULL ? place_of(w, m) : NULL;
    char from[64], to[64];

    if (place == NULL) {
        return;
    }
    path_in(m, place, from);
    if (!m->written) {
        m->written = true; /* cleanup(8) has come to the end */
        change_mode(w, from, 0700);
        postfix_trigger(w->sp, POSTFIX_SCAN_INCOMING);
    } else if (strcmp(place, "hold") == 0) { /* postsuper -H */
        path_in(m, "deferred", to);
        queue_tree_rename(&w->tree, from, to);
    } else if (one_in(w, 8)) { /* postsuper -d */
        queue_tree_unlink(&w->tree, from);
        m->live = false;
    } else if (strcmp(place, "deferred") == 0 && one_in(w, 2)) { /* flush(8) */
        change_mode(w, from, 0740);
        path_in(m, "incoming", to);
        queue_tree_rename(&w->tree, from, to);
        postfix_trigger(w->sp, POSTFIX_SCAN_INCOMING);
    } else { /* postsuper -h */
        path_in(m, "hold", to);
        queue_tree_rename(&w->tree, from, to);
    }
}

static void step(struct world *w)
{
    struct agent *a = &w->agents[rng_below(&w->rng, AGENTS)];

    switch (rng_below(&w->rng, 12)) {
    case 0:
        new_mail(w);
        break;
    case 1:
    case 2:
    case 3:
        poll_once(w);
        break;
    case 4:
    case 5:
        claim_one(w);
        break;
    case 6:
    case 7:
        if (a->busy) {
            end_agent(w, a);
        }
        break;
    case 8:
    case 9:
        operate(w);
        break;
    case 10:
        w->now = wall_after(w->now, (int64_t)rng_below(&w->rng, 100) * US_PER_S);
        postfix_trigger(w->sp, (unsigned)rng_below(&w->rng, 16));
        break;
    case 11:
        if (one_in(w, 10)) { /* a kill: nothing in memory matters */
            spool_close(w->sp);
            start_manager(w);
        }
        break;
    }
}

/* All is released and every delivery succeeds. */
static void drain(struct world *w)
{
    bool left = true;

    w->well = true;
    for (unsigned round = 0; left; round++) {
        assert_true(round < ROUNDS);
        w->now = wall_after(w->now, 100 * US_PER_S);
        left = false;
        for (size_t i = 0; i < w->mail_count; i++) {
            struct mail *m = &w->mails[i];
            char from[64], to[64];

            path_in(m, "hold", from);
            if (queue_tree_has(&w->tree, from)) {
                path_in(m, "deferred", to);
                queue_tree_rename(&w->tree, from, to);
            } else if (!m->written && m->live) {
                m->written = true;
                path_in(m, "incoming", from);
                change_mode(w, from, 0700);
            }
            left |= m->live;
        }
        postfix_trigger(w->sp,
                        POSTFIX_SCAN_INCOMING | POSTFIX_SCAN_DEFERRED | POSTFIX_SCAN_IGNORE_TIME);
        for (unsigned i = 0; i < 10; i++) {
            poll_once(w);
            claim_one(w);
        }
        for (size_t i = 0; i < AGENTS; i++) {
            if (w->agents[i].busy) {
                end_agent(w, &w->agents[i]);
            }
        }
        check(w);
    }
    for (size_t i = 0; i < w->mail_count; i++) {
        for (unsigned r = 0; r < w->mails[i].rcpts; r++) {
            assert_true(w->mails[i].delivered[r] <= 1); /* 0: it was deleted */
        }
    }
}

static void nothing_is_lost_and_nothing_goes_twice(void **unused)
{
    struct world *w = mem_new(sizeof *w);

    (void)unused;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        memset(w, 0, sizeof *w);
        rng_init(&w->rng, seed);
        w->now.us = NOW_S * US_PER_S;
        queue_tree_make(&w->tree);
        start_manager(w);
        print_message("seed %u\n", (unsigned)seed);
        for (unsigned i = 0; i < STEPS; i++) {
            step(w);
            check(w);
        }
        drain(w);
        spool_close(w->sp);
        queue_tree_remove(&w->tree);
    }
    mem_free(w);
}

UNIT_MAIN(cmocka_unit_test(nothing_is_lost_and_nothing_goes_twice))
