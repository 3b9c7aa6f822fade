/*
 * A database that answers anything, to all that reads mail from it: loader, desk, searches.
 *
 * The connection (link.h) is this file's: it answers what is asked with rows that begin as good
 * ones and are changed as the input says: other values, lengths, NULL, fewer columns, more rows
 * than were asked for; or it is lost. Between answers the input says what the queue does with the
 * mail. Wanted, beside no crash: what the desk hands out is within the limits of spool.h, whatever
 * else makes no sense is refused with words and can be quarantined, and texts that the columns of a
 * statement have are read as they were.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "answers.h"
#include "asks.h"
#include "check.h"
#include "class_name.h"
#include "columns.h"
#include "engine_search.h"
#include "loader.h"
#include "mem.h"
#include "parts.h"
#include "rows.h"

#define IDS       4
#define REPORT    1
#define PART      4
#define NOW       1000
#define ROWS_MAX  6
#define TEXT_LONG 3000
#define STEPS     200
#define CLAIMED   4

/* ---- the input ------------------------------------------------------------------------------- */

static struct slice input;

static unsigned byte(void)
{
    unsigned b = input.len > 0 ? (unsigned char)input.ptr[0] : 0;

    input = slice_skip(input, input.len > 0);
    return b;
}

static struct slice bytes(size_t len)
{
    struct slice s = slice_of(input.ptr, len < input.len ? len : input.len);

    input = slice_skip(input, s.len);
    return s;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The columns of a good row: P partition, I id, T time, Z size of the content, 0 to 9 an int, s a
 * smallint 0, l a bigint 0, A an address, X a transport, H a next hop, C the content, E no text. Of
 * the messages, 1 is a report part with one part left, and 4 is that: K kind, L parts left, N
 * pending, M whole. Of arrivals, n is a number and R tells of a message. Of notes, D is the
 * partition of V, a destination at H, and U a time to come. */
static const struct {
    const char *begins, *columns;
} questions[] = {
    {"SELECT f.p, f.id, due", "PITTTZ0sAEEEE00AEXHCs"},
    {"SELECT x.p, x.id, x.due, m.arrived", "PITTTZ0sAEEEE2N0100EMKLllC"},
    {"SELECT r.p, r.id, r.n", "PI100AEXH10TEEEEE"},
    {"SELECT u.p, u.id, r.n", "PI100AEXH10TEEEEE"},
    {"SELECT g.i, h.due, h.id", "1TI"},
    {"SELECT 0::smallint, state", "s2Hlls"},
    {"SELECT x.p, x.id, x.due FROM", "PIT"},
    {"SELECT x.p, x.id", "PI"},
    {"SELECT p, id", "PI"},
    {"SELECT p, what", "D1VHnUsE"},
    {"SELECT bytes", "C"},
    {"SELECT seq, parts FROM arrival", "nR"},
    {"DELETE FROM arrival", ""},
    {"INSERT INTO arrival", ""},
    {"WITH gone AS (DELETE FROM arrival", ""},
    {"SELECT id, p FROM", "IP"},
    {"SELECT from_node, n", "PIC"},
    {"SELECT n, to_node", "IPC"},
    {"SELECT set_config", "E"},
    {"INSERT INTO ask", ""},
    {"UPDATE ask", ""},
    {"DELETE FROM ask", ""},
    {"SELECT count(*)", "l"},
    {"SELECT transport, nexthop", "XHll"},
    {"SELECT min(", "T"},
};

static const char *columns_of(const char *sql)
{
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        if (strncmp(sql, questions[i].begins, strlen(questions[i].begins)) == 0) {
            return questions[i].columns;
        }
    }
    UNREACHABLE("a statement that is not in the table above");
}

static void put(PGresult *r, int row, int column, struct slice value)
{
    static char room[2 * TEXT_LONG];

    CHECK(value.len < sizeof room);
    if (value.len > 0) {
        memcpy(room, value.ptr, value.len);
    }
    CHECK(PQsetvalue(r, row, column, room, (int)value.len) != 0);
}

static void put_number(PGresult *r, int row, int column, unsigned width, uint64_t n)
{
    char room[8];

    for (unsigned i = 0; i < width; i++) {
        room[i] = (char)(n >> (8 * (width - 1 - i)));
    }
    put(r, row, column, slice_of(room, width));
}

static void put_good(PGresult *r, int row, int column, char what, uint64_t id)
{
    switch (what) {
    case 'P':
        put_number(r, row, column, 2, parts_home((struct msg_id){id}));
        break;
    case 'I':
        put_number(r, row, column, 8, id);
        break;
    case 'T':
        put_number(r, row, column, 8, NOW);
        break;
    case 'Z':
        put_number(r, row, column, 8, 4);
        break;
    case 'C':
        put(r, row, column, SLICE("text"));
        break;
    case 's':
        put_number(r, row, column, 2, 0);
        break;
    case 'l':
        put_number(r, row, column, 8, 0);
        break;
    case 'A':
        put(r, row, column, SLICE("a@example.org"));
        break;
    case 'X':
        put(r, row, column, SLICE("smtp"));
        break;
    case 'H':
        put(r, row, column, SLICE("example.net"));
        break;
    case 'E':
        put(r, row, column, SLICE(""));
        break;
    case 'K':
    case 'L':
        put_number(r, row, column, 2, id == REPORT);
        break;
    case 'N':
        put_number(r, row, column, 4, id != REPORT);
        break;
    case 'n':
        put_number(r, row, column, 8, id);
        break;
    case 'R':
        put(r, row, column,
            slice_of((char[20]){[1] = 1,
                                [3] = (char)parts_home((struct msg_id){id}),
                                [11] = (char)id,
                                [19] = 4},
                     20));
        break;
    case 'D':
        put_number(r, row, column, 2,
                   partition_of(&(struct spool_rcpt){.transport = SLICE("smtp"),
                                                     .nexthop = SLICE("example.net")},
                                SLICE("")));
        break;
    case 'V':
        put(r, row, column, SLICE("smtp/example.net"));
        break;
    case 'U':
        put_number(r, row, column, 8, UINT64_C(1) << 60);
        break;
    case 'M':
        put_number(r, row, column, 8, id == PART ? REPORT : id);
        break;
    default:
        put_number(r, row, column, 4, (uint64_t)(what - '0'));
    }
}

static void put_bad(PGresult *r, int row, int column)
{
    static char text[TEXT_LONG];
    unsigned how = byte();

    switch (how % 6) {
    case 0:
        CHECK(PQsetvalue(r, row, column, NULL, -1) != 0);
        break;
    case 1:
        put(r, row, column, bytes(how / 6));
        break;
    case 2:
        put_number(r, row, column, 8, byte());
        break;
    case 3:
        put_number(r, row, column, 4, byte());
        break;
    case 4:
        put_number(r, row, column, 8, (uint64_t)byte() << (8 * (how / 6 % 8)));
        break;
    case 5:
        memset(text, (int)(how / 6 + ' '), sizeof text);
        put(r, row, column, slice_of(text, (size_t)byte() * TEXT_LONG / 256));
        break;
    }
}

static PGresult *make_answer(const char *sql)
{
    const char *columns = columns_of(sql);
    PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc attributes[COLUMNS_MAX + 16];
    unsigned first = byte(), rows = first % ROWS_MAX;
    int count = (int)strlen(columns);

    CHECK(r != NULL);
    if (first >= 250 && (int)first - 250 < count) { /* not what was asked for */
        count = (int)first - 250;
    }
    memset(attributes, 0, sizeof attributes);
    for (int i = 0; i < count; i++) {
        attributes[i].name = (char[]){"c"};
        attributes[i].format = 1;
    }
    CHECK(count == 0 || PQsetResultAttrs(r, count, attributes) != 0);
    for (unsigned row = 0; count > 0 && row < rows; row++) {
        unsigned how = byte();

        for (int i = 0; i < count; i++) {
            put_good(r, (int)row, i, columns[i], 1 + how % IDS);
        }
        for (unsigned n = how / IDS % 4; n > 0; n--) {
            put_bad(r, (int)row, (int)(byte() % (unsigned)count));
        }
    }
    return r;
}

/* ---- the connection -------------------------------------------------------------------------- */

#define SENT_MAX 256

struct link {
    const struct link_owner *owner;
    void *arg;
    bool is_up, is_connecting, is_dropped;
    const char *sent[SENT_MAX]; /* NULL: a sync */
    unsigned first, count;
};

struct link *link_new(int epoll_fd, const struct link_target *target,
                      const struct link_owner *owner, void *arg)
{
    struct link *l = mem_new(sizeof *l);

    (void)epoll_fd;
    (void)target;
    l->owner = owner;
    l->arg = arg;
    return l;
}

void link_free(struct link *l)
{
    mem_free(l);
}

void link_connect(struct link *l)
{
    CHECK(link_is_down(l));
    l->is_connecting = true;
}

static void go_down(struct link *l)
{
    l->is_up = l->is_connecting = l->is_dropped = false;
    l->count = 0;
    l->owner->changed(l->arg, l, false);
    l->is_connecting = true; /* before its owner's time to try again: no clock runs here */
}

void link_drop(struct link *l, const char *why)
{
    (void)why;
    if (!link_is_down(l)) {
        go_down(l);
    }
}

void link_pass_over(struct link *l, const char *why)
{
    link_drop(l, why);
}

bool link_has_others(const struct link *l)
{
    (void)l;
    return true;
}

bool link_is_up(const struct link *l)
{
    return l->is_up && !l->is_dropped;
}

bool link_is_down(const struct link *l)
{
    return !l->is_up && !l->is_connecting;
}

const char *link_error(const struct link *l)
{
    (void)l;
    return "";
}

/* Nothing is prepared here. */
bool link_is_refused(const struct link *l)
{
    (void)l;
    return false;
}

static void queue_up(struct link *l, const char *sql)
{
    CHECK(l->is_up);
    if (l->count == SENT_MAX) {
        l->is_dropped = true; /* as without memory */
    } else {
        l->sent[(l->first + l->count++) % SENT_MAX] = sql;
    }
}

void link_send(struct link *l, const char *sql, const struct link_param *params, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK(params[i].bytes == NULL || params[i].len < COLUMNS_BYTES_MAX);
    }
    queue_up(l, sql);
}

void link_sync(struct link *l)
{
    queue_up(l, NULL);
}

void link_flush(struct link *l)
{
    (void)l;
}

void link_prepare(struct link *l, const char *const *sql, unsigned count)
{
    (void)l;
    (void)sql;
    (void)count;
}

void link_turn(struct link *l)
{
    if (l->is_dropped || (l->is_up && byte() == 255)) {
        go_down(l);
        return;
    }
    if (l->is_connecting) {
        l->is_connecting = false;
        l->is_up = true;
        l->owner->changed(l->arg, l, true);
    }
    for (unsigned i = 0; i < SENT_MAX && l->is_up && l->count > 0; i++) {
        const char *sql = l->sent[l->first];
        PGresult *r =
            sql == NULL ? PQmakeEmptyPGresult(NULL, PGRES_PIPELINE_SYNC) : make_answer(sql);

        l->first = (l->first + 1) % SENT_MAX;
        l->count--;
        l->owner->answer(l->arg, l, r);
        PQclear(r);
    }
}

/* ---- what the queue does --------------------------------------------------------------------- */

struct world {
    struct spool base;
    struct desk desk;
    struct finder finder;
    struct arrivals arrivals;
    struct handover handover;
    struct partition_set all;
    int64_t looks;
    struct loader *loader;
    struct engine_search *search;
    struct asks *asks;
    uint32_t asked;
};

static void check_text(struct slice text, size_t max)
{
    CHECK(text.len <= max && slice_find(text, '\0') == text.len);
}

static void check_message(const struct spool_message *m)
{
    CHECK(m->state >= SPOOL_INCOMING && m->state <= SPOOL_CORRUPT);
    CHECK(m->size <= SPOOL_CONTENT_MAX && (m->flags & ~(unsigned)MESSAGE_FLAGS) == 0);
    CHECK(m->rcpt_total <= SPOOL_RCPTS_MAX && m->rcpt_pending <= SPOOL_RCPTS_MAX);
    CHECK(m->class_name.len == 0 || class_name_valid(m->class_name));
    CHECK(m->parked.len == 0 || m->state == SPOOL_DEFERRED);
    check_text(m->sender, SPOOL_SENDER_MAX);
    check_text(m->envid, DSN_ENVID_MAX);
    check_text(m->client, SPOOL_REMOTE_MAX);
    check_text(m->reason, SPOOL_DIAGNOSTIC_MAX);
    check_text(m->parked, SPOOL_PARKED_MAX);
}

static void check_rcpt(const struct spool_message *m, const struct spool_rcpt *r)
{
    CHECK(r->n >= 1 && r->n <= m->rcpt_total && r->address.len > 0);
    CHECK(r->state >= SPOOL_RCPT_PENDING && r->state <= SPOOL_RCPT_RELAYED);
    CHECK(r->transport.len > 0 || r->nexthop.len == 0);
    check_text(r->address, ADDRESS_MAX);
    check_text(r->orcpt, DSN_ORCPT_MAX);
    check_text(r->transport, SPOOL_ROUTE_MAX);
    check_text(r->nexthop, SPOOL_ROUTE_MAX);
    check_text(r->status, SPOOL_STATUS_MAX);
    check_text(r->diagnostic, SPOOL_DIAGNOSTIC_MAX);
    check_text(r->reply, SPOOL_REPLY_MAX);
    check_text(r->remote, SPOOL_REMOTE_MAX);
    check_text(r->tls, SPOOL_TLS_MAX);
}

static void look_at(struct world *w, struct msg_id id)
{
    struct spool_rcpt rcpts[ROWS_MAX];
    struct spool_message m;
    struct buf content;
    uint64_t size;
    size_t count;
    int fd = -1;

    if (desk_read(&w->desk, id, &m) != 0) {
        CHECK(w->base.error[0] != '\0');
        return;
    }
    check_message(&m);
    if (desk_read_rcpts(&w->desk, id, 0, byte() % 2 == 0, ROWS_MAX, rcpts, &count) == 0) {
        CHECK(count <= ROWS_MAX);
        for (size_t i = 0; i < count; i++) {
            check_rcpt(&m, &rcpts[i]);
        }
    }
    buf_init(&content, SPOOL_INLINE_MAX);
    if (desk_read_content(&w->desk, id, &content, &fd, &size) == 0) {
        CHECK(size == m.size && (fd >= 0 || buf_len(&content) == size));
    }
    buf_fini(&content);
    if (fd >= 0) {
        (void)close(fd);
    }
}

static void settle_all(struct world *w, struct msg_id id)
{
    static const enum spool_rcpt_state states[] = {SPOOL_RCPT_PENDING, SPOOL_RCPT_FAILED};
    struct spool_verdict v = {.attempted = true, .status = SLICE("4.0.0")};
    struct spool_rcpt rcpts[ROWS_MAX];
    struct desk_message *msg = desk_find(&w->desk, id);
    bool is_gone;
    size_t count;

    if (msg == NULL || !msg->f.claimed ||
        desk_read_rcpts(&w->desk, id, 0, true, ROWS_MAX, rcpts, &count) != 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned how = byte();

        v.done = how % 3 == 0;
        v.state = states[how % 2];
        if (desk_rcpt(msg, rcpts[i].n) != NULL) { /* else it is one of its parts' */
            CHECK(desk_settle(&w->desk, id, rcpts[i].n, &v) == 0);
        }
    }
    if (spool_is_part(&msg->f.m)) {
        CHECK(desk_give(&w->desk, id, (struct wall){NOW}) == 0);
    } else if (byte() % 2 == 0) {
        CHECK(desk_reported(&w->desk, id) == 0);
    }
    CHECK(desk_finish(&w->desk, id, (struct wall){NOW + byte()}, &is_gone) == 0);
}

static void do_batch(struct world *w)
{
    struct partition_set told = {{0}};
    unsigned how = byte();

    desk_begin(&w->desk);
    for (uint64_t n = 1; n <= IDS; n++) {
        struct msg_id id = {n};
        struct spool_message m;
        int err = desk_read(&w->desk, id, &m);

        if (err == -EBADMSG) {
            CHECK(desk_quarantine(&w->desk, id, SLICE("it makes no sense")) == 0);
            CHECK(desk_read(&w->desk, id, &m) == 0);
        } else if (err == 0 && m.state == SPOOL_CORRUPT && how % 4 == 0) {
            CHECK(desk_remove(&w->desk, id) == 0 || desk_find(&w->desk, id)->wrong != NULL);
        } else {
            settle_all(w, id);
        }
    }
    if (how % 8 == 7) {
        desk_rollback(&w->desk);
        return;
    }
    w->desk.fresh_now = how % DESK_FRESH_TABLES;
    committer_batch_free(rows_write(&w->desk, desk_begin_commit(&w->desk)));
    if (how % 8 == 6) {
        desk_undo_all(&w->desk);
    } else {
        desk_keep_oldest(&w->desk, &told);
    }
}

static void claim_some(struct world *w, unsigned how)
{
    struct msg_id ids[CLAIMED];
    size_t count = 0;
    bool more;

    if (how % 3 == 0) {
        desk_begin(&w->desk);
        CHECK(desk_claim_parked(&w->desk, SLICE("example.net"), (struct wall){NOW}, CLAIMED, ids,
                                &count, &more) == 0);
        desk_rollback(&w->desk);
    } else {
        CHECK(desk_claim(&w->desk, how % 3 == 1 ? SPOOL_INCOMING : SPOOL_DEFERRED,
                         (struct wall){NOW}, CLAIMED, ids, &count) == 0);
    }
    CHECK(count <= CLAIMED);
    if (how >= 128 && count > 0) {
        desk_unclaim(&w->desk, ids[0]);
    }
}

static void search(struct world *w, unsigned how)
{
    struct cluster_search *s = engine_search_of(w->search);
    struct spool_filter f = {.states = how, .after = {how / 16 % IDS}};
    struct spool_destination found[2], from = {SLICE("smtp"), SLICE("example.net"), 0, 0};
    struct msg_id ids[2];
    struct wall oldest;
    uint64_t total;
    size_t count = 0;

    engine_search_turn(w->search);
    switch (how % 5) {
    case 0:
        (void)cluster_search_scan(s, &f, 2, ids, &count);
        break;
    case 1:
        (void)cluster_search_count(s, &f, &total);
        break;
    case 2:
        (void)cluster_search_destinations(s, 2, found, &count);
        break;
    case 3:
        (void)cluster_search_destinations_from(s, &from, 2, found, &count);
        break;
    case 4:
        (void)cluster_search_oldest(s, &from, &oldest);
        break;
    }
    CHECK(count <= 2);
}

static void ask_others(struct world *w, unsigned how)
{
    struct spool_told told;

    asks_turn(w->asks, how % 16 == 15 ? SPOOL_NOBODY : 0, how % 8 == 7, ++w->looks * ASKS_LOOK_US);
    switch (how % 4) {
    case 0:
        (void)asks_ask(w->asks, &w->base, 1, ++w->asked, SLICE("{}"));
        break;
    case 1:
        asks_end(w->asks, how / 4 % (w->asked + 1));
        break;
    default:
        for (unsigned n = 0; n < how / 16 && asks_next_told(w->asks, &told); n++) {
            CHECK(told.node >= 0 && told.node < SPOOL_NODES_MAX && told.token != 0);
            CHECK(told.text.len <= (told.is_question ? SPOOL_QUESTION_MAX : SPOOL_ANSWER_MAX));
            if (told.is_question) {
                asks_answer(w->asks, told.token, SLICE("{}"));
            } else {
                CHECK(told.token <= w->asked);
            }
        }
        break;
    }
}

static void take_over(struct world *w)
{
    struct spool_suspension s;

    while (handover_next(&w->handover, &s)) {
        CHECK(s.left_us > 0 && s.left_us <= SPOOL_SUSPENSION_US_MAX && s.deaths <= UINT8_MAX);
        CHECK(s.transport.len > 0 && s.destination.len > 0);
        CHECK(s.destination.len <= SPOOL_SUSPENSION_NAME_MAX);
        CHECK(s.nexthop.len <= SPOOL_SUSPENSION_NAME_MAX);
        CHECK(s.reason.len <= SPOOL_SUSPENSION_REASON_MAX);
    }
}

static void no_notify(void *arg, int node)
{
    (void)arg;
    CHECK(node >= 0 && node < SPOOL_NODES_MAX);
}

static void step(struct world *w)
{
    unsigned what = byte();
    struct msg_id id = {1 + what / 16 % IDS}, ids[CLAIMED];
    struct slice keys[2];
    struct wall due;
    size_t count;

    switch (what % 16) {
    case 0:
    case 1:
        loader_want(w->loader, NOW);
        break;
    case 2:
        (void)desk_want(&w->desk, id, what >= 128);
        break;
    case 3:
        (void)loader_want_key(w->loader, SLICE("example.net"));
        break;
    case 4:
    case 5:
        claim_some(w, byte());
        break;
    case 6:
    case 7:
        do_batch(w);
        break;
    case 8:
        look_at(w, id);
        break;
    case 9:
        search(w, byte());
        break;
    case 10:
        loader_look_for_arrivals(w->loader, 0, 1, ++w->looks * ARRIVALS_ALONE_US);
        break;
    case 11:
        if (desk_parts_want(&w->desk, id) == 0) {
            CHECK(desk_parts_of(&w->desk, id, (struct msg_id){0}, CLAIMED, ids, &count) == 0);
        }
        break;
    case 12:
        desk_tell(&w->desk, parts_home(id), id.n);
        break;
    case 13:
        CHECK(desk_next_due(&w->desk, WALL_NEVER, &due) == 0);
        CHECK(desk_parked_keys(&w->desk, SLICE(""), 2, keys, &count) == 0 && count <= 2);
        break;
    case 14:
        ask_others(w, byte());
        break;
    default:
        loader_count(w->loader, &w->all);
        take_over(w);
        break;
    }
    loader_turn(w->loader);
    (void)loader_has_come(w->loader);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* As a text column of a statement, and back. */
static void check_round_trip(struct slice text)
{
    PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc attribute = {.name = (char[]){"c"}, .format = 1};
    struct slice back = SLICE("");
    struct columns c;
    struct text_pool pool = {NULL, 0};

    columns_init(&c, "", "t");
    columns_bytes(&c, text);
    columns_row_open(&c);
    CHECK(r != NULL && PQsetResultAttrs(r, 1, &attribute) != 0);
    put(r, 0, 0, slice_of(c.column[0].bytes + 24, c.column[0].len - 24)); /* heads of array, text */
    if (answer_text(r, 0, 0, TEXT_LONG, &pool, &back)) {
        CHECK(slice_equal(back, text));
    } else {
        CHECK(slice_find(text, '\0') < text.len);
    }
    text_pool_fini(&pool);
    PQclear(r);
    columns_fini(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct link_target target;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct world *w = mem_new(sizeof *w);

    input = slice_of((const char *)data, size);
    check_round_trip(bytes(byte()));
    finder_init(&w->finder);
    arrivals_init(&w->arrivals);
    handover_init(&w->handover, &w->base, &w->finder);
    w->handover.has_table = true;
    desk_init(&w->desk, &w->base, &w->finder);
    w->loader = loader_new(epoll_fd, &target, &w->desk, &w->finder, &w->arrivals, &w->handover);
    w->search = engine_search_new(epoll_fd, &target, &w->base);
    w->asks = asks_new(epoll_fd, &target, no_notify, w);
    loader_set_lists(w->loader, engine_search_of(w->search));
    for (unsigned p = 0; p < PARTITIONS; p++) {
        finder_own(&w->finder, (uint16_t)p, true);
        partition_set_add(&w->all, (int)p);
    }
    loader_count(w->loader, &w->all);
    for (unsigned i = 0; i < STEPS && input.len > 0; i++) {
        step(w);
    }
    loader_free(w->loader);
    engine_search_free(w->search);
    asks_free(w->asks);
    desk_fini(&w->desk);
    arrivals_fini(&w->arrivals);
    handover_fini(&w->handover);
    finder_fini(&w->finder);
    mem_free(w);
    (void)close(epoll_fd);
    return 0;
}
