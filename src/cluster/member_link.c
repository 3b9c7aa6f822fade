#include "member_link_private.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "boot_clock.h"
#include "mem.h"

static const char notify_sql[] =
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify('sluice_' || no, what) FROM "
    "unnest($1::smallint[], $2::text[]) u(no, what)";

/* Time limit for an answer that can be used to compare clocks. */
#define CLOCK_ANSWER_US (1 * US_PER_S)

static const char *const wake_words[] = {"mail", "lease", "ask", "text"};

/* ---- state of the connection ----------------------------------------------------------------- */

void member_link_keep_error(struct member_link *ml, const char *words)
{
    (void)snprintf(ml->error, sizeof ml->error, "%s", words); /* cut if too long */
}

static bool is_free(const struct member_link *ml)
{
    for (unsigned i = 0; i < ml->sent_count; i++) {
        if (ml->sent[i] != SENT_NOTIFY) {
            return false;
        }
    }
    return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

void member_link_end_with(struct member_link *ml, enum sent what)
{
    CHECK(ml->sent_count < SENT_MAX);
    ml->sent[ml->sent_count++] = what;
    link_sync(ml->link);
    ml->answer_by = mono_after(boot_now(), MEMBER_LINK_ANSWER_US);
}

static void add_woken(struct buf *numbers, struct buf *words, uint64_t nodes, const char *what)
{
    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        if ((nodes >> no & 1) != 0) {
            const char *comma = buf_len(numbers) > 1 ? "," : "";

            (void)buf_addf(numbers, "%s%d", comma, no); /* the buffers are large enough */
            (void)buf_addf(words, "%s%s", comma, what);
        }
    }
}

static void send_notify(struct member_link *ml)
{
    struct buf numbers, words;

    buf_init(&numbers, WAKES * MEMBERSHIP_NODES_MAX * 4);
    buf_init(&words, WAKES * MEMBERSHIP_NODES_MAX * 8);
    (void)buf_add_byte(&numbers, '{'); /* the buffers are large enough */
    (void)buf_add_byte(&words, '{');
    for (int what = 0; what < WAKES; what++) {
        add_woken(&numbers, &words, ml->wake[what], wake_words[what]);
        ml->told[what] = ml->wake[what];
        ml->wake[what] = 0;
    }
    (void)buf_add_byte(&numbers, '}');
    (void)buf_add_byte(&words, '}');
    link_send(ml->link, notify_sql,
              (struct link_param[]){link_text_param(buf_cstr(&numbers)),
                                    link_text_param(buf_cstr(&words))},
              2);
    member_link_end_with(ml, SENT_NOTIFY);
    buf_fini(&numbers);
    buf_fini(&words);
    ml->notify_at = mono_after(boot_now(), MEMBER_LINK_NOTIFY_US);
}

static void send_listen(struct member_link *ml, int no)
{
    char sql[64];

    (void)snprintf(sql, sizeof sql, "LISTEN sluice_%d", no); /* fits */
    ml->listens_as = no;
    link_send(ml->link, sql, NULL, 0);
    member_link_end_with(ml, SENT_LISTEN);
}

static bool is_any(const uint64_t nodes[WAKES])
{
    uint64_t any = 0;

    for (int what = 0; what < WAKES; what++) {
        any |= nodes[what];
    }
    return any != 0;
}

static bool notify_is_sent(const struct member_link *ml)
{
    return is_any(ml->told);
}

/* Puts lost notifications back, to be sent again. */
static void notify_was_lost(struct member_link *ml)
{
    for (int what = 0; what < WAKES; what++) {
        ml->wake[what] |= ml->told[what];
        ml->told[what] = 0;
    }
}

static void send_what_is_due(struct member_link *ml, struct mono now)
{
    int no = membership_number(ml->membership);

    if (!link_is_up(ml->link) || !ml->is_set_up) {
        return;
    }
    if (is_free(ml)) {
        if (no != MEMBERSHIP_NOBODY && no != ml->listens_as) {
            send_listen(ml, no);
        } else if (membership_next(ml->membership, now, &ml->action)) {
            member_link_send_request(ml);
        }
    }
    if (is_any(ml->wake) && !notify_is_sent(ml) && mono_reached(ml->notify_at, now)) {
        send_notify(ml);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool is_sync(const PGresult *r)
{
    return PQresultStatus(r) == PGRES_PIPELINE_SYNC;
}

static bool is_good(const PGresult *r)
{
    return PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK;
}

static void tell_others(struct member_link *ml)
{
    for (int p = 0; p < PARTITIONS; p++) {
        int no = MEMBERSHIP_NOBODY;

        if (!partition_set_has(&ml->action.partitions, p)) {
            continue;
        }
        if (ml->action.type == MEMBERSHIP_RELEASE) {
            no = ml->action.to[p];
        } else if (ml->action.type == MEMBERSHIP_WISH) {
            no = membership_owner(ml->membership, p);
        }
        if (no >= 0) {
            ml->wake[WAKE_LEASE] |= UINT64_C(1) << no;
        }
    }
}

/* Tries another host if this one is unfit. In an old primary, commits that wait for a standby for
 * ever may hold locks that are needed. */
static void look_elsewhere(struct member_link *ml, struct mono now)
{
    bool is_locked = ml->answer.outcome == MEMBERSHIP_AGAIN;

    if (is_locked) {
        ml->locked_since = mono_min(ml->locked_since, now);
    } else if (ml->action.type != MEMBERSHIP_LOOK) {
        ml->locked_since = MONO_NEVER;
    }
    if (!link_has_others(ml->link)) {
        return;
    }
    if (membership_health(ml->membership) == MEMBERSHIP_UNFIT &&
        !membership_is_settling(ml->membership)) {
        link_pass_over(ml->link, membership_words(ml->membership));
    } else if (is_locked &&
               mono_reached(mono_after(ml->locked_since, MEMBER_LINK_ANSWER_US), now)) {
        ml->locked_since = MONO_NEVER;
        link_pass_over(ml->link, "what the node needs is locked in the database");
    }
}

static void take_renewal(struct member_link *ml)
{
    bool is_of_ours = ml->sent_tables == ml->tables;

    ml->renewal = ml->read;
    if (!is_of_ours) {
        ml->renewal.route = 0;
    } else if (ml->sent_are == ml->tables_are) {
        ml->tables_are = TABLES_KNOWN;
    }
}

/* Compares the clocks. The database's clock was read in the middle of the request, with an error of
 * at most half its duration. */
static void measure_clock(struct member_link *ml)
{
    int64_t took = boot_now().us - ml->asked_at.us;

    if (ml->server_us != 0 && took < CLOCK_ANSWER_US) {
        ml->clock_us = wall_now().us - took / 2 - ml->server_us;
    }
}

/* Had an earlier request of this connection another session of the server? */
static bool session_changed(struct member_link *ml)
{
    int64_t before = ml->session;

    ml->session = ml->session_read;
    return before != 0 && before != ml->session;
}

static void request_ends(struct member_link *ml)
{
    if (session_changed(ml)) {
        link_drop(ml->link, LINK_SHARED_SESSION);
        return;
    }
    measure_clock(ml);
    ml->answer.view = ml->view.nodes != NULL && ml->view.leases != NULL ? &ml->view : NULL;
    if (ml->answer.outcome == MEMBERSHIP_DONE && ml->answer.view == NULL &&
        (ml->action.type == MEMBERSHIP_LOOK || ml->action.type == MEMBERSHIP_RENEW)) {
        link_drop(ml->link, "the database has not answered all that was asked");
        return;
    }
    if (ml->answer.outcome == MEMBERSHIP_DONE) {
        if (ml->action.type != MEMBERSHIP_LOOK) { /* LOOK succeeds without any commit */
            ml->error[0] = '\0';
        }
        if (ml->answer.view != NULL) {
            ml->read.format = ml->view.format;
        }
        take_renewal(ml);
        if (ml->answer.view != NULL) {
            memcpy(ml->words, ml->words_read, sizeof ml->words);
        }
        if (ml->action.type == MEMBERSHIP_RENEW) {
            ml->renewals = ml->begun;
        }
        tell_others(ml);
    }
    membership_answered(ml->membership, boot_now(), &ml->answer);
    ml->is_confirmed =
        ml->is_confirmed || (ml->answer.view != NULL && !ml->answer.view->lacks_marker);
    look_elsewhere(ml, boot_now());
}

/* Ends a failed transaction. If a lock was missing, it may belong to an abandoned session, which is
 * ended. The answer of that statement is ignored, as other engines refuse it. */
static void send_rollback(struct member_link *ml)
{
    char room[LINK_NUMBER_SIZE];
    const struct link_param dead_us = link_number_param(room, ml->config.times->dead_us);

    link_send(ml->link, "ROLLBACK", NULL, 0);
    if (ml->answer.outcome == MEMBERSHIP_AGAIN) {
        link_send(ml->link, LINK_SQL_END_ABANDONED("$1::bigint * interval '1 us'"), &dead_us, 1);
    }
    member_link_end_with(ml, SENT_ROLLBACK);
}

static void request_answer(struct member_link *ml, const PGresult *r)
{
    enum purpose purpose;

    if (is_sync(r)) {
        if (ml->failed) {
            ml->statement_count = 0;
            send_rollback(ml);
        } else if (!ml->committed || ml->warned) {
            /* The commit is durable on this server only, or unknown. */
            link_drop(ml->link, "the database has not committed as it should");
        } else {
            request_ends(ml);
        }
        return;
    }
    purpose = ml->purposes[ml->answered < STATEMENTS_MAX ? ml->answered : 0];
    ml->answered++;
    if (PQresultStatus(r) == PGRES_PIPELINE_ABORTED) {
        return;
    }
    if (is_good(r) && purpose == CLUSTER && PQntuples(r) == 0) {
        link_drop(ml->link, "the table cluster has no row");
    } else if (is_good(r) ? !member_link_read_answer(ml, purpose, r)
                          : !member_link_read_failure(ml, purpose, r)) {
        const char *words = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);

        link_drop(ml->link, is_good(r)      ? "the database has answered with something else"
                            : words != NULL ? words
                                            : PQresultErrorMessage(r));
    }
}

/* YugabyteDB returns "PostgreSQL 11.2-YB-2.19", CockroachDB "CockroachDB CCL v22". */
static void setup_answer(struct member_link *ml, const PGresult *r)
{
    char room[128];
    struct slice version;

    if (is_sync(r)) {
        ml->is_set_up = true;
    } else if (!is_good(r)) {
        link_drop(ml->link, PQresultErrorMessage(r));
    } else if (PQntuples(r) == 1 && member_link_text_at(r, 0, 0, room, sizeof room, &version)) {
        ml->by_consensus = !slice_starts(version, SLICE("PostgreSQL ")) ||
                           memmem(version.ptr, version.len, "-YB-", 4) != NULL;
    }
}

static void notify_answer(struct member_link *ml, const PGresult *r)
{
    if (is_sync(r)) {
        memset(ml->told, 0, sizeof ml->told);
    } else if (!is_good(r)) { /* it followed a request that failed */
        for (int what = 0; what < WAKES; what++) {
            ml->wake[what] |= ml->told[what];
        }
    }
}

static void answer(void *arg, struct link *l, const PGresult *r)
{
    struct member_link *ml = arg;
    enum sent what = ml->sent_count > 0 ? ml->sent[0] : SENT_NOTHING;

    (void)l;
    if (is_sync(r) && ml->sent_count > 0) {
        memmove(ml->sent, ml->sent + 1, --ml->sent_count * sizeof ml->sent[0]);
    }
    switch (what) {
    case SENT_NOTHING:
        link_drop(ml->link, "the database answers what was not asked");
        return;
    case SENT_SETUP:
        setup_answer(ml, r);
        return;
    case SENT_LISTEN: /* without LISTEN the node polls */
        return;
    case SENT_REQUEST:
        request_answer(ml, r);
        return;
    case SENT_ROLLBACK:
        if (is_sync(r)) {
            request_ends(ml);
        }
        return;
    case SENT_NOTIFY:
        notify_answer(ml, r);
        return;
    }
}

static void notice(void *arg, struct link *l, const char *state, const char *words)
{
    struct member_link *ml = arg;

    (void)l;
    (void)words;
    ml->warned = ml->warned || strncmp(state, "01", 2) == 0; /* such as "committed locally" */
}

static void notified(void *arg, struct link *l, const char *payload)
{
    struct member_link *ml = arg;

    (void)l;
    if (strcmp(payload, wake_words[WAKE_LEASE]) == 0) {
        membership_wake(ml->membership);
    } else if (strcmp(payload, wake_words[WAKE_ASK]) == 0) {
        ml->has_asks = true;
    } else if (strcmp(payload, wake_words[WAKE_TEXT]) == 0) {
        ml->has_texts = true;
    } else {
        ml->owner->woken(ml->arg);
    }
}

static void changed(void *arg, struct link *l, bool is_up)
{
    struct member_link *ml = arg;

    ml->sent_count = 0;
    notify_was_lost(ml);
    ml->has_asks = true; /* notifications may have been missed while not connected */
    ml->is_set_up = ml->is_confirmed = false;
    ml->session = ml->session_read = 0;
    ml->listens_as = MEMBERSHIP_NOBODY;
    if (is_up) {
        char sql[64];

        (void)snprintf(sql, sizeof sql, "SET lock_timeout = %d", MEMBER_LINK_LOCK_MS); /* fits */
        link_send(l, sql, NULL, 0);
        link_send(l, "SELECT version()", NULL, 0);
        member_link_end_with(ml, SENT_SETUP);
        return;
    }
    member_link_keep_error(ml, link_error(l));
    membership_lost(ml->membership, boot_now());
    ml->connect_at = mono_after(boot_now(), MEMBER_LINK_AGAIN_US);
}

/* ---- interface ------------------------------------------------------------------------------- */

static const struct link_owner owner = {
    .changed = changed, .answer = answer, .notice = notice, .notified = notified};

static void set_timer(struct member_link *ml, struct mono now)
{
    struct mono at = ml->connect_at;
    int64_t us;

    if (!link_is_down(ml->link)) {
        at = is_free(ml) && ml->is_set_up ? membership_wake_at(ml->membership) : MONO_NEVER;
        at = ml->sent_count > 0 ? mono_min(at, ml->answer_by) : at;
        if (!notify_is_sent(ml) && is_any(ml->wake)) {
            at = mono_min(at, ml->notify_at);
        }
    }
    if (ml->timer_at.us > now.us && ml->timer_at.us <= at.us) {
        return; /* the timer ends at that time or before */
    }
    us = at.us <= now.us ? 1 : at.us - now.us > US_PER_S ? US_PER_S : at.us - now.us;
    struct itimerspec spec = {.it_value = {us / US_PER_S, us % US_PER_S * 1000}};
    CHECK(timerfd_settime(ml->timer, 0, &spec, NULL) == 0);
    ml->timer_at = mono_after(now, us);
}

struct member_link *member_link_new(int epoll_fd, const struct link_target *target,
                                    const struct membership_config *config,
                                    const struct member_link_owner *told, void *arg)
{
    struct member_link *ml = mem_new(sizeof *ml);
    struct epoll_event e = {.events = EPOLLIN};

    ml->epoll_fd = epoll_fd;
    ml->config = *config;
    ml->owner = told;
    ml->arg = arg;
    ml->listens_as = MEMBERSHIP_NOBODY;
    ml->locked_since = MONO_NEVER;
    ml->clock_us = MEMBER_LINK_NO_CLOCK;
    for (int no = 0; no < MEMBERSHIP_NODES_MAX; no++) {
        ml->words[no] = (struct member_words){.interventions = MEMBER_LINK_UNSAID,
                                              .clock_us = MEMBER_LINK_NO_CLOCK};
    }
    buf_init(&ml->status, 65536);
    ml->membership = membership_new(config);
    ml->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(ml->timer >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, ml->timer, &e) == 0);
    ml->link = link_new(epoll_fd, target, &owner, ml);
    link_prepare(ml->link, &(const char *){notify_sql}, 1);
    link_connect(ml->link);
    set_timer(ml, boot_now());
    return ml;
}

void member_link_free(struct member_link *ml)
{
    if (ml == NULL) {
        return;
    }
    link_free(ml->link);
    (void)epoll_ctl(ml->epoll_fd, EPOLL_CTL_DEL, ml->timer, NULL);
    (void)close(ml->timer);
    membership_free(ml->membership);
    buf_fini(&ml->status);
    mem_free(ml);
}

void member_link_turn(struct member_link *ml)
{
    link_turn(ml->link);
    if (link_is_down(ml->link) && mono_reached(ml->connect_at, boot_now())) {
        link_connect(ml->link);
    } else if (link_is_up(ml->link) && ml->sent_count > 0 &&
               mono_reached(ml->answer_by, boot_now())) {
        link_pass_over(ml->link, "the database does not answer");
    }
    send_what_is_due(ml, boot_now());
    link_flush(ml->link);
    set_timer(ml, boot_now());
}

struct membership *member_link_membership(struct member_link *ml)
{
    return ml->membership;
}

void member_link_reserve(struct member_link *ml, uint64_t id)
{
    CHECK(id <= INT64_MAX);
    ml->reserve = id > ml->reserve ? id : ml->reserve;
}

const struct member_renewal *member_link_renewal(const struct member_link *ml)
{
    return &ml->renewal;
}

void member_link_tables(struct member_link *ml, uint64_t fingerprint, bool in_force)
{
    CHECK(fingerprint > 0 && fingerprint <= INT64_MAX);
    if ((int64_t)fingerprint != ml->tables) {
        ml->tables = (int64_t)fingerprint;
        ml->renewal.route = 0;
    }
    ml->tables_are = in_force ? TABLES_IN_FORCE : TABLES_NEW;
    membership_wake(ml->membership);
}

void member_link_status(struct member_link *ml, const char *json)
{
    buf_clear(&ml->status);
    CHECK(buf_add(&ml->status, slice_string(json)));
}

void member_link_expect(struct member_link *ml, const struct member_marker *marker)
{
    ml->marker = *marker;
}

int64_t member_link_clock(const struct member_link *ml)
{
    return ml->clock_us;
}

const struct member_words *member_link_words(const struct member_link *ml, int no)
{
    CHECK(no >= 0 && no < MEMBERSHIP_NODES_MAX);
    return &ml->words[no];
}

uint64_t member_link_renew(struct member_link *ml)
{
    membership_wake(ml->membership);
    return ml->begun + 1;
}

uint64_t member_link_renewals(const struct member_link *ml)
{
    return ml->renewals;
}

void member_link_notify(struct member_link *ml, int no)
{
    CHECK(no >= 0 && no < MEMBERSHIP_NODES_MAX);
    ml->wake[WAKE_MAIL] |= UINT64_C(1) << no;
}

void member_link_notify_ask(struct member_link *ml, int no)
{
    CHECK(no >= 0 && no < MEMBERSHIP_NODES_MAX);
    ml->wake[WAKE_ASK] |= UINT64_C(1) << no;
}

void member_link_notify_text(struct member_link *ml, int no)
{
    CHECK(no >= 0 && no < MEMBERSHIP_NODES_MAX);
    ml->wake[WAKE_TEXT] |= UINT64_C(1) << no;
}

bool member_link_has_asks(struct member_link *ml)
{
    bool has_asks = ml->has_asks;

    ml->has_asks = false;
    return has_asks;
}

bool member_link_has_texts(struct member_link *ml)
{
    bool has_texts = ml->has_texts;

    ml->has_texts = false;
    return has_texts;
}

const char *member_link_error(const struct member_link *ml)
{
    return ml->error;
}
