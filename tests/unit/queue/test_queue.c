/*
 * The role queue between played neighbours: a process that receives, two that deliver, one for
 * local mail, and control. The spool is real, in a directory of its own. One thread; time is moved,
 * not waited for.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sysexits.h>
#include <unistd.h>

#include <event2/event.h>
#include <sqlite3.h>

#include "away_spool.h"
#include "clock.h"
#include "conf.h"
#include "frame.h"
#include "lease_page.h"
#include "leased_spool.h"
#include "log.h"
#include "mem.h"
#include "memory_spool.h"
#include "queue.h"
#include "queue_ask.h"
#include "queue_report.h"
#include "role.h"
#include "row_sum.h"
#include "scheduler_logs.h"
#include "spool_check.h"
#include "zmailer_form.h"
#include "spool_engine.h"

#define ANSWERS_MAX 1100
#define ENTRIES_MAX 400

#define MINUTE_US (60 * US_PER_S)
#define HOUR_US   (60 * MINUTE_US)
#define DAY_US    (24 * HOUR_US)

/* What a delivering process was given. */
struct given {
    struct wire_deliver m;
    struct wire_deliver_rcpt *rcpts;
    char *body; /* of the frame; m points into it */
    int fd;
    struct channel *from;
};

static struct {
    struct role role;
    struct conf *conf;
    char dir[64];
    struct channel *receive, *deliver[2], *local, *control, *filter;
    struct given at_filter; /* what the filter waits for content of */
    char
        requeued[SPOOL_ID_TEXT_MAX]; /* the last that came back from the filter, under its new id */
    uint32_t filter_code;            /* of the last answer to it */
    bool filter_holds;               /* it answers nothing */
    struct wire_submit_done done[ANSWERS_MAX]; /* texts are in done_texts */
    char done_ids[ANSWERS_MAX][SPOOL_ID_TEXT_MAX];
    char done_status[ANSWERS_MAX][8];
    size_t done_count;
    struct given given[ENTRIES_MAX];
    size_t count; /* of given */
    json_t *answer;
    unsigned status;
    struct buf bytes; /* of an answer */
    struct wire_content content;
    char *content_bytes;
    size_t content_count;
    size_t forgets; /* WIRE_FORGET */
    struct wire_flow flow;
    struct wire_etrn_done etrn;
    bool closed[ROLE_COUNT];
    bool exited;
    int start_status;
    bool findings_wanted; /* of the auditor */
    uint64_t token;
    struct memory_later later; /* the spool, where it is not SQLite's */
    struct lease_page lease;   /* as the deliver process sees it */
} site;

/* Commits end later: the same tests again, with another spool, are a program of their own. */
#ifdef COMMITS_END_LATER
#define LATER_BY_DEFAULT true
#else
#define LATER_BY_DEFAULT false
#endif
static bool ends_later;
/* .. and one with a spool that has mail on another machine. */
#ifdef NOTHING_IS_AT_HAND
#define TURNS 300
#else
#define TURNS (ends_later ? 60 : 12)
#endif
/* Mail is stored in parts, in so many partitions; 0: it is not. */
static unsigned partitions;

/* The spool is one of several nodes: until when does the lease of this one hold? */
static bool has_lease;
static _Atomic int64_t lease_until_us;

static int open_later(const char *where, enum spool_open_mode mode,
                      const struct spool_options *options, struct buf *ret_error,
                      struct spool **ret_spool)
{
    int rc = 0;

    if (!ends_later && partitions == 0) {
        rc = sqlite_spool_open(where, mode, options, ret_error, ret_spool);
    } else {
        assert_int_equal(mode, SPOOL_OPEN_WRITE);
        *ret_spool =
            ends_later ? memory_spool_open_later(options, &site.later) : memory_spool_open(options);
    }
    if (rc == 0 && partitions > 0 && (*ret_spool)->engine->parts == NULL) {
        memory_spool_divide(*ret_spool, partitions);
    }
#ifdef NOTHING_IS_AT_HAND
    if (rc == 0 && ends_later) {
        away_spool(*ret_spool);
    }
#endif
    if (rc == 0 && has_lease) {
        leased_spool(*ret_spool, &lease_until_us);
    }
    return rc;
}

static const struct spool_scheme later_scheme = {
    .prefix = "sqlite:", .form = "of this test", .open = open_later};

/* What queue.c wants of role.c, which is not linked. */

void role_exit(struct role *role, int status)
{
    (void)role;
    assert_int_equal(status, 0);
    site.exited = true;
}

struct slice role_file(const struct role *role, struct slice path)
{
    (void)role;
    return slice_ends_nocase(path, SLICE("/form"))
               ? SLICE("SUB Returned\nADR Cc: archive\nHDR X-Site: yes\nCall us.\n")
               : slice_of(NULL, 0);
}

/* ---- the neighbours ------------------------------------------------------------------------- */

static void on_receive(void *arg, struct channel *ch)
{
    struct frame frame;
    enum channel_event event;

    (void)arg;
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.type == WIRE_FLOW) {
            assert_true(wire_get_flow(frame.body, &site.flow));
        } else if (frame.type == WIRE_ETRN_DONE) {
            assert_true(wire_get_etrn_done(frame.body, &site.etrn));
        } else {
            struct wire_submit_done *done = &site.done[site.done_count];

            assert_int_equal(frame.type, WIRE_SUBMIT_DONE);
            assert_true(site.done_count < ANSWERS_MAX);
            assert_true(wire_get_submit_done(frame.body, done));
            (void)snprintf(site.done_status[site.done_count], sizeof site.done_status[0], "%.*s",
                           SLICE_ARGS(done->status));
            (void)snprintf(site.done_ids[site.done_count++], SPOOL_ID_TEXT_MAX, "%.*s",
                           SLICE_ARGS(done->id));
        }
    }
    if (event == CHANNEL_CLOSED) {
        site.closed[ROLE_RECEIVE] = true;
        channel_pause(ch, true);
    }
}

static void on_agent_frame(void *arg, struct channel *ch)
{
    struct frame frame;
    enum channel_event event;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.type == WIRE_CONTENT) {
            assert_true(wire_get_content(frame.body, &site.content));
            mem_free(site.content_bytes);
            site.content_bytes = mem_copy(site.content.content.ptr, site.content.content.len);
            site.content_count++;
            if (frame.fd >= 0) {
                (void)close(frame.fd);
            }
            continue;
        }
        if (frame.type == WIRE_FORGET) {
            site.forgets++;
            continue;
        }
        if (frame.type == WIRE_LEASE) { /* each process has the same page */
            lease_page_fini(&site.lease);
            assert_true(lease_page_take(frame.fd, &site.lease));
            continue;
        }
        assert_true(!has_lease || site.lease.until_us != NULL);
        assert_int_equal(frame.type, WIRE_DELIVER);
        assert_true(site.count < ENTRIES_MAX);
        struct given *g = &site.given[site.count++];
        g->body = mem_copy(frame.body.ptr, frame.body.len);
        g->fd = frame.fd;
        g->from = ch;
        assert_true(wire_get_deliver(slice_of(g->body, frame.body.len), &g->m, &g->rcpts));
    }
    if (event == CHANNEL_CLOSED) {
        site.closed[*(enum wire_role *)arg] = true;
        channel_pause(ch, true);
    }
}

/* The process that shows requeued mail to rules and filters: they have nothing against it. */
static void filter_submit(struct channel *ch, struct slice content)
{
    const struct given *g = &site.at_filter;
    struct wire_rcpt *rcpts = mem_array(g->m.rcpt_count, sizeof *rcpts);

    for (uint32_t i = 0; i < g->m.rcpt_count; i++) {
        rcpts[i] = (struct wire_rcpt){.address = g->rcpts[i].address,
                                      .orcpt = g->rcpts[i].orcpt,
                                      .notify = g->rcpts[i].notify};
    }
    wire_put_submit(ch,
                    &(struct wire_submit){.token = g->m.entry,
                                          .sender = g->m.sender,
                                          .envid = g->m.envid,
                                          .flags = g->m.flags,
                                          .arrived = g->m.arrived,
                                          .origin = SLICE("milter"),
                                          .replaces = g->m.entry,
                                          .rcpts = rcpts,
                                          .rcpt_count = g->m.rcpt_count,
                                          .content = content},
                    -1);
    mem_free(rcpts);
}

static void filter_forget(void)
{
    mem_free(site.at_filter.body);
    mem_free(site.at_filter.rcpts);
    site.at_filter = (struct given){.body = NULL};
}

static void on_filter_frame(void *arg, struct channel *ch)
{
    struct given *g = &site.at_filter;
    struct wire_submit_done done;
    struct wire_content content;
    struct frame frame;

    (void)arg;
    while (channel_next(ch, &frame) == CHANNEL_FRAME) {
        switch (frame.type) {
        case WIRE_DELIVER:
            filter_forget();
            g->body = mem_copy(frame.body.ptr, frame.body.len);
            assert_true(wire_get_deliver(slice_of(g->body, frame.body.len), &g->m, &g->rcpts));
            assert_true(slice_equal(g->m.nexthop, WIRE_MILTER_REQUEUE));
            if (g->m.place == CONTENT_ON_DEMAND) {
                wire_put_need_content(ch, g->m.entry);
            } else if (!site.filter_holds) {
                filter_submit(ch, g->m.content);
            }
            break;
        case WIRE_CONTENT:
            assert_true(wire_get_content(frame.body, &content));
            if (!site.filter_holds) {
                filter_submit(ch, content.content);
            }
            break;
        case WIRE_SUBMIT_DONE:
            assert_true(wire_get_submit_done(frame.body, &done));
            site.filter_code = done.code;
            (void)snprintf(site.requeued, sizeof site.requeued, "%.*s", SLICE_ARGS(done.id));
            if (done.code == WIRE_SUBMIT_GIVE_BACK) {
                wire_put_result(
                    ch, &(struct wire_result){.entry = done.token, .outcome = OUTCOME_GIVEN_BACK});
            }
            break;
        case WIRE_LEASE:
            (void)close(frame.fd);
            break;
        default:
            fail_msg("a frame of type %u", frame.type);
        }
    }
}

static void on_answer(void *arg, struct channel *ch)
{
    struct wire_answer answer;
    struct frame frame;

    (void)arg;
    while (channel_next(ch, &frame) == CHANNEL_FRAME) {
        assert_int_equal(frame.type, WIRE_ANSWER);
        assert_true(wire_get_answer(frame.body, &answer));
        json_decref(site.answer);
        site.answer = json_loadb(answer.json.ptr, answer.json.len, 0, NULL);
        assert_non_null(site.answer);
        site.status = answer.status;
        buf_clear(&site.bytes);
        buf_add(&site.bytes, answer.bytes);
        if (frame.fd >= 0) {
            char bytes[4096];
            ssize_t n;

            while ((n = read(frame.fd, bytes, sizeof bytes)) > 0) {
                buf_add(&site.bytes, slice_of(bytes, (size_t)n));
            }
            (void)close(frame.fd);
        }
    }
}

static struct channel *connect_as(enum wire_role role, uint32_t index, uint32_t count,
                                  channel_ready *ready)
{
    static enum wire_role roles[ROLE_COUNT];
    struct wire_peer peer = {.role = role, .index = index, .count = count};
    int fds[2];

    roles[role] = role;
    site.closed[role] = false;
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    struct channel *ch = channel_new(site.role.base, fds[0], ready, &roles[role]);
    queue_role.peer(&site.role, &peer, fds[1]);
    return ch;
}

/* ---- time and turns ------------------------------------------------------------------------- */

static void turn(void)
{
    clock_forget();
    assert_true(event_base_loop(site.role.base, EVLOOP_NONBLOCK) >= 0);
    if (!site.exited) {
        queue_role.turn(&site.role);
    }
    channel_flush_all();
}

/* Enough turns for a question and what follows from it, and the time that results may wait for
 * their commit. */
static void settle(void)
{
    for (int i = 0; i < TURNS; i++) {
        if (i % 30 == 6) {
            clock_set_offset(clock_offset() + BATCH_WAIT_US);
        }
        turn();
    }
}

static void pass_time(int64_t us)
{
    settle();
    clock_set_offset(clock_offset() + us);
    clock_update();
    queue_role.clock_moved(&site.role);
    settle();
}

/* The wall clock is set, by so much since the test began; no time passes. */
static void set_clock(int64_t step_us)
{
    clock_set_step(step_us);
    settle();
}

/* No write to a file goes through any more. */
static void storage_fails(bool fails)
{
    static struct rlimit before;
    struct rlimit none;

    site.later.rc = fails ? -EIO : 0;
    if (before.rlim_max == 0) {
        assert_return_code(getrlimit(RLIMIT_FSIZE, &before), 0);
        assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    }
    none = (struct rlimit){.rlim_cur = 1, .rlim_max = before.rlim_max};
    assert_return_code(setrlimit(RLIMIT_FSIZE, fails ? &none : &before), 0);
}

/* ---- the role ------------------------------------------------------------------------------- */

static struct conf *load(const char *more)
{
    struct conf_world world = {.hostname = "mx.here.test"};
    struct conf_problems problems;
    struct conf *conf;
    struct buf text;

    buf_init(&text, 65536);
    buf_addf(&text,
             "myhostname = mx.here.test\nmyorigin = here.test\nretry_jitter = 0\n"
             "spool = sqlite:%s/queue.db\nrelay_domains = etrn.test\n"
             "state_directory = %s\nlocal_domains = here.test\n%s",
             site.dir, site.dir, more);
    conf = conf_load_text(buf_slice(&text), "test.conf", "/nonexistent", &world, &problems);
    if (conf == NULL) {
        struct buf out;
        buf_init(&out, 10000);
        conf_print_problems(&out, &problems);
        fail_msg("%s", buf_cstr(&out));
    }
    conf_problems_fini(&problems);
    buf_fini(&text);
    return conf;
}

/* Begins the process; false: it can't begin. */
static bool role_try(const char *more)
{
    static bool knows_operations;

    if (!knows_operations) {
        ask_register();
        report_layout_register(&zmailer_layout);
        observer_register(&scheduler_logs);
        knows_operations = true;
    }
    site.conf = load(more);
    site.role = (struct role){.ops = &queue_role, .base = event_base_new(), .conf = site.conf};
    site.exited = false;
    clock_update();
    site.start_status = queue_role.start(&site.role);
    if (site.start_status != 0) {
        event_base_free(site.role.base);
        conf_free(site.conf);
        return false;
    }
    site.receive = connect_as(ROLE_RECEIVE, 0, 1, on_receive);
    site.deliver[0] = connect_as(ROLE_DELIVER, 0, 1, on_agent_frame);
    site.local = connect_as(ROLE_LOCAL, 0, 1, on_agent_frame);
    site.control = connect_as(ROLE_CONTROL, 0, 1, on_answer);
    site.filter = connect_as(ROLE_FILTER, 0, 1, on_filter_frame);
    queue_role.begin(&site.role);
    settle();
    return true;
}

static void role_up(const char *more)
{
    assert_true(role_try(more));
}

static struct queue *inside(void)
{
    return site.role.state;
}

static void forget_first_given(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free(site.given[i].body);
        mem_free(site.given[i].rcpts);
        if (site.given[i].fd >= 0) {
            (void)close(site.given[i].fd);
        }
    }
    memmove(site.given, site.given + count, (site.count - count) * sizeof site.given[0]);
    site.count -= count;
}

static void forget_given(void)
{
    forget_first_given(site.count);
}

static void role_down(void)
{
    queue_role.end(&site.role);
    channel_free(site.receive);
    channel_free(site.deliver[0]);
    channel_free(site.deliver[1]);
    channel_free(site.local);
    channel_free(site.control);
    channel_free(site.filter);
    filter_forget();
    site.deliver[0] = site.deliver[1] = NULL;
    conf_free(site.conf);
    event_base_free(site.role.base);
    forget_given();
    site.done_count = 0;
}

static void start_with(const char *more)
{
    struct buf error;
    char log[100];

    memset(&site, 0, sizeof site);
    buf_init(&site.bytes, 1u << 26);
    buf_init(&error, 1000);
    spool_register(&later_scheme);
    site.later.looks = 2;
    (void)strcpy(site.dir, "/tmp/test_queue.XXXXXX");
    assert_non_null(mkdtemp(site.dir));
    (void)snprintf(log, sizeof log, "file:%s/log", site.dir);
    assert_true(log_open(log, "/", "postfix", "qmgr", &error));
    buf_fini(&error);
    clock_stand();
    clock_set_offset(0);
    clock_set_step(0);
    role_up(more);
}

static int start(void **state)
{
    (void)state;
    ends_later = LATER_BY_DEFAULT;
    start_with("");
    return 0;
}

/* For tests that look into the database, or at its files. */
static int start_sqlite(void **state)
{
    (void)state;
    ends_later = false;
    start_with("");
    return 0;
}

static int start_in_parts(void **state)
{
    (void)state;
    ends_later = LATER_BY_DEFAULT;
    partitions = 251;
    start_with("delay_warning_time = 3h\n");
    return 0;
}

static int start_later_in_parts(void **state)
{
    (void)state;
    ends_later = true;
    partitions = 251;
    start_with("");
    return 0;
}

static int start_later(void **state)
{
    (void)state;
    ends_later = true;
    start_with("");
    return 0;
}

/* Write out the log's lines, also while the storage fails. */
static void write_log(void)
{
    struct rlimit now, all;

    assert_return_code(getrlimit(RLIMIT_FSIZE, &now), 0);
    all = (struct rlimit){.rlim_cur = now.rlim_max, .rlim_max = now.rlim_max};
    assert_return_code(setrlimit(RLIMIT_FSIZE, &all), 0);
    log_flush();
    assert_return_code(setrlimit(RLIMIT_FSIZE, &now), 0);
}

static bool logged(const char *wanted)
{
    char path[100];
    struct buf all;
    bool found;
    int fd;
    ssize_t n;

    write_log();
    (void)snprintf(path, sizeof path, "%s/log", site.dir);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    buf_init(&all, 1u << 26);
    while ((n = read(fd, buf_room(&all, 65536), 65536)) > 0) {
        buf_grew(&all, (size_t)n);
    }
    (void)close(fd);
    found = strstr(buf_cstr(&all), wanted) != NULL;
    buf_fini(&all);
    return found;
}

static json_t *ask(unsigned status, const char *format, ...);

/* Every message that the log has made active, and every report that it names, was committed: the
 * spool has it, or the log has its end. Returns how many there were. */
static unsigned check_logged_messages(void)
{
    char path[100], line[4096], id[SPOOL_ID_TEXT_MAX], removed[100];
    unsigned count = 0;
    FILE *in;

    write_log();
    (void)snprintf(path, sizeof path, "%s/log", site.dir);
    in = fopen(path, "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in) != NULL) {
        const char *at = strstr(line, "notification: ");

        if (at != NULL) {
            at += strlen("notification: ");
        } else if (strstr(line, ": from=<") != NULL) {
            at = strstr(line, "]: ") + 3;
        } else {
            continue;
        }
        (void)snprintf(id, sizeof id, "%.*s", (int)strcspn(at, ":\n"), at);
        (void)snprintf(removed, sizeof removed, "%s: removed\n", id);
        if (!logged(removed)) {
            ask(200, "{\"op\":\"show\",\"id\":\"%s\"}", id);
        }
        count++;
    }
    assert_int_equal(fclose(in), 0);
    return count;
}

static int stop(void **state)
{
    char command[100];

    (void)state;
    storage_fails(false);
    site.later.holds = false;
    assert_true(site.findings_wanted || !logged("audit: "));
    role_down();
    json_decref(site.answer);
    buf_fini(&site.bytes);
    mem_free(site.content_bytes);
    lease_page_fini(&site.lease);
    has_lease = false;
    (void)snprintf(command, sizeof command, "rm -r %s", site.dir);
    assert_int_equal(system(command), 0);
    memory_later_free(&site.later);
    return 0;
}

static int stop_in_parts(void **state)
{
    (void)stop(state);
    partitions = 0;
    return 0;
}

/* Begin again with another configuration. */
static void start_again_with(const char *more)
{
    (void)stop(NULL);
    start_with(more);
}

static void restart(const char *more)
{
    role_down();
    role_up(more);
}

static void reload(const char *more)
{
    struct conf *old = site.conf;

    site.role.conf = site.conf = load(more);
    queue_role.reload(&site.role, old);
    conf_free(old);
    settle();
}

/* ---- acts ----------------------------------------------------------------------------------- */

/* Put a submission into the channel. `rcpts`: addresses with blanks between. */
static void put_full(const char *sender, const char *rcpts, uint32_t notify, uint32_t flags,
                     const char *envid, struct slice content, int fd, uint64_t fd_size)
{
    struct slice rest = slice_string(rcpts);
    struct wire_rcpt *list = mem_array(strlen(rcpts) / 2 + 1, sizeof *list);
    uint32_t count = 0;

    while (rest.ptr != NULL) {
        list[count++] = (struct wire_rcpt){.address = slice_cut(&rest, ' '), .notify = notify};
    }
    wire_put_submit(site.receive,
                    &(struct wire_submit){.token = ++site.token,
                                          .sender = slice_string(sender),
                                          .envid = slice_string(envid),
                                          .flags = flags,
                                          .arrived = clock_wall(),
                                          .client = SLICE("client.test[192.0.2.1]"),
                                          .origin = SLICE("smtp://127.0.0.1:25"),
                                          .trace = SLICE("Received: by here id \1\r\n"),
                                          .rcpts = list,
                                          .rcpt_count = count,
                                          .content = content,
                                          .fd_size = fd_size},
                    fd);
    mem_free(list);
}

static void put(const char *sender, const char *rcpts)
{
    put_full(sender, rcpts, 0, 0, "", SLICE("Subject: x\r\n\r\nbody\r\n"), -1, 0);
}

/* Submit and expect the answer's code. The id is in site.done_ids[site.done_count - 1]. */
static const char *submit_notify(const char *sender, const char *rcpts, uint32_t notify,
                                 unsigned code)
{
    size_t before = site.done_count;

    put_full(sender, rcpts, notify, 0, "", SLICE("Subject: x\r\n\r\nbody\r\n"), -1, 0);
    for (int i = 0; i < 100 && site.done_count == before; i++) {
        if (i % 30 == 6) {
            clock_set_offset(clock_offset() + BATCH_GATHER_US);
        }
        turn();
    }
    assert_int_equal(site.done_count, before + 1);
    assert_int_equal(site.done[before].code, code);
    settle();
    return site.done_ids[before];
}

static const char *submit(const char *sender, const char *rcpts)
{
    return submit_notify(sender, rcpts, 0, 250);
}

/* One verdict for all recipients of entry `i`, with the site's reply; what follows takes turns. */
static void put_verdict(size_t i, enum wire_outcome outcome, enum wire_verdict_kind kind,
                        const char *status, const char *reply, const char *text)
{
    const struct given *g = &site.given[i];
    struct wire_verdict *v = mem_array(g->m.rcpt_count, sizeof *v);
    char reason[200];

    assert_true(i < site.count);
    for (uint32_t j = 0; j < g->m.rcpt_count; j++) {
        v[j] = (struct wire_verdict){.n = g->rcpts[j].n,
                                     .kind = kind,
                                     .status = slice_string(status),
                                     .reply = slice_string(reply),
                                     .text = slice_string(text),
                                     .relay = SLICE("mx.there.test[192.0.2.9]:25")};
    }
    (void)snprintf(reason, sizeof reason, "%s %s", status, text);
    wire_put_result(g->from, &(struct wire_result){.entry = g->m.entry,
                                                   .outcome = outcome,
                                                   .reason = slice_string(reason),
                                                   .verdicts = v,
                                                   .verdict_count = g->m.rcpt_count});
    mem_free(v);
}

/* The same, and what follows from it. */
static void replied(size_t i, enum wire_outcome outcome, enum wire_verdict_kind kind,
                    const char *status, const char *reply, const char *text)
{
    put_verdict(i, outcome, kind, status, reply, text);
    settle();
}

/* The same without a reply. */
static void verdict(size_t i, enum wire_outcome outcome, enum wire_verdict_kind kind,
                    const char *status, const char *text)
{
    replied(i, outcome, kind, status, "", text);
}

static void sent(size_t i)
{
    replied(i, OUTCOME_OK, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok", "");
}

static void deferred(size_t i)
{
    replied(i, OUTCOME_OK, VERDICT_DEFERRED, "4.2.0", "450 4.2.0 later",
            "host mx.there.test[192.0.2.9] said: 450 4.2.0 later (in reply to RCPT TO command)");
}

static void bounced(size_t i)
{
    replied(i, OUTCOME_OK, VERDICT_BOUNCED, "5.1.1", "550 5.1.1 who",
            "host mx.there.test[192.0.2.9] said: 550 5.1.1 who (in reply to RCPT TO command)");
}

/* Ask, and expect a status. */
static json_t *ask(unsigned status, const char *format, ...)
{
    char question[1000];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(question, sizeof question, format, args);
    va_end(args);
    json_decref(site.answer);
    site.answer = NULL;
    wire_put_ask(site.control, &(struct wire_ask){.token = 1, .json = slice_string(question)});
    for (int i = 0; i < 1000 && site.answer == NULL; i++) {
        turn();
    }
    assert_non_null(site.answer);
    if (site.status != status) {
        fail_msg("%s: status %u, %s", question, site.status, json_dumps(site.answer, 0));
    }
    return site.answer;
}

static json_int_t number(const json_t *object, const char *name)
{
    assert_true(json_is_integer(json_object_get(object, name)));
    return json_integer_value(json_object_get(object, name));
}

static const char *text(const json_t *object, const char *name)
{
    const char *string = json_string_value(json_object_get(object, name));

    assert_non_null(string);
    return string;
}

/* Messages on disk, in all states. */
static json_int_t messages(void)
{
    return number(ask(200, "{\"op\":\"count\"}"), "count");
}

static const char *state_of(const char *id)
{
    return text(ask(200, "{\"op\":\"show\",\"id\":\"%s\"}", id), "queue_name");
}

/* Until the next attempt, in seconds. */
static double wait_of(const char *id)
{
    const json_t *m = ask(200, "{\"op\":\"show\",\"id\":\"%s\"}", id);

    return json_real_value(json_object_get(m, "next_attempt")) -
           (double)clock_wall().us / (double)US_PER_S;
}

static void check_wait(const char *id, double want)
{
    double got = wait_of(id);

    if (got < want - 2 || got > want + 2) {
        fail_msg("wanted %f, got %f", want, got);
    }
}

static void changed(const char *op, const char *id)
{
    assert_int_equal(json_array_size(json_object_get(
                         ask(200, "{\"op\":\"%s\",\"ids\":[\"%s\"]}", op, id), "changed")),
                     1);
    settle();
}

static void check_address(size_t i, uint32_t j, const char *want)
{
    char got[ADDRESS_MAX + 1];

    assert_true(i < site.count && j < site.given[i].m.rcpt_count);
    (void)snprintf(got, sizeof got, "%.*s", SLICE_ARGS(site.given[i].rcpts[j].address));
    assert_string_equal(got, want);
}

/* The content of entry `i`: it came with it, or is asked for where it is not at hand. */
static struct slice content_of(size_t i)
{
#ifdef NOTHING_IS_AT_HAND
    if (site.given[i].m.place == CONTENT_ON_DEMAND) {
        if (site.content_count == 0 || site.content.entry != site.given[i].m.entry) {
            wire_put_need_content(site.given[i].from, site.given[i].m.entry);
            settle();
            assert_true(site.content_count > 0);
            assert_int_equal(site.content.entry, site.given[i].m.entry);
        }
        assert_true(site.content.ok);
        return slice_of(site.content_bytes, site.given[i].m.size);
    }
#endif
    assert_int_equal(site.given[i].m.place, CONTENT_INSIDE);
    return site.given[i].m.content;
}

static bool content_has(size_t i, const char *wanted)
{
    struct slice c = content_of(i);

    return memmem(c.ptr, c.len, wanted, strlen(wanted)) != NULL;
}

/* The next entry is a report to `to` that says so. */
static void check_report(size_t i, const char *to, const char *wanted)
{
    assert_int_equal(site.count, i + 1);
    assert_int_equal(site.given[i].m.sender.len, 0);
    check_address(i, 0, to);
    if (!content_has(i, wanted)) {
        fail_msg("no %s in %.*s", wanted, SLICE_ARGS(site.given[i].m.content));
    }
}

/* ---- the way through ------------------------------------------------------------------------ */

static void a_message_is_committed_answered_delivered_and_gone(void **state)
{
    (void)state;
    submit("a@here.test", "b@there.test");
    assert_int_equal(site.count, 1);
    assert_int_equal(messages(), 1);
    check_address(0, 0, "b@there.test");
    assert_true(content_has(0, "Subject: x"));
    assert_true(content_has(0, site.done_ids[0]));
    sent(0);
    assert_int_equal(messages(), 0);
    assert_true(logged("status=sent (250 2.0.0 Ok)"));
    assert_true(logged(": removed"));
}

static void nothing_is_answered_or_delivered_before_the_commit(void **state)
{
    (void)state;
    storage_fails(true);
    submit_notify("a@here.test", "b@there.test", 0, 451);
    assert_int_equal(site.count, 0);
    assert_false(site.flow.storage_ok);
    submit_notify("a@here.test", "b@there.test", 0, 451); /* without an attempt */
    storage_fails(false);
    pass_time(2 * US_PER_S);
    assert_true(site.flow.storage_ok);
    assert_int_equal(messages(), 0);
    assert_int_equal(site.count, 0);
    submit("a@here.test", "b@there.test");
    assert_int_equal(site.count, 1);
}

static void results_wait_for_the_storage_and_nothing_starts_meanwhile(void **state)
{
    (void)state;
    const char *id = submit("a@here.test", "b@there.test");
    char line[100];
    submit("a@here.test", "c@other.test");
    submit("a@here.test", "d@third.test");
    assert_int_equal(site.count, 3);
    storage_fails(true);
    sent(0);
    deferred(1);
    assert_false(site.flow.storage_ok);
    submit_notify("a@here.test", "e@there.test", 0, 451);
    pass_time(10 * US_PER_S);
    bounced(2);
    assert_int_equal(site.count, 3);
    ask(503, "{\"op\":\"hold\",\"ids\":[\"%s\"]}", site.done_ids[1]);
    storage_fails(false);
    pass_time(2 * US_PER_S);
    assert_true(site.flow.storage_ok);
    ask(404, "{\"op\":\"show\",\"id\":\"%s\"}", id);
    assert_string_equal(state_of(site.done_ids[1]), "deferred");
    check_report(3, "a@here.test", "550 5.1.1 who");
    assert_true(logged("sender non-delivery notification: "));
    sent(3);
    assert_int_equal(messages(), 1);
    (void)snprintf(line, sizeof line, "%s: removed\n", id);
    assert_true(logged(line));
}

static void what_was_not_committed_is_not_logged(void **state)
{
    (void)state;
    submit("a@here.test", "b@there.test");
    assert_int_equal(check_logged_messages(), 1);
    storage_fails(true);
    bounced(0);
    assert_false(site.flow.storage_ok);
    submit_notify("a@here.test", "c@there.test", 0, 451);
    assert_int_equal(check_logged_messages(), 1);
    assert_false(logged(": removed"));
    for (int i = 0; i < 3; i++) {
        pass_time(2 * US_PER_S); /* each try of it fails, too */
        assert_int_equal(check_logged_messages(), 1);
    }
    storage_fails(false);
    pass_time(2 * US_PER_S);
    assert_true(site.flow.storage_ok);
    check_report(1, "a@here.test", "550 5.1.1 who");
    assert_int_equal(check_logged_messages(), 3); /* the report is named once, and active once */
    assert_true(logged("sender non-delivery notification: "));
}

/* How long the loop would sleep after another turn; more by what the turn takes. */
static int64_t sleep_us(void)
{
    const struct queue *q = site.role.state;
    struct timeval before, at;

    assert_return_code(gettimeofday(&before, NULL), 0);
    turn();
    assert_true(event_pending(q->timer, EV_TIMEOUT, &at));
    return (at.tv_sec - before.tv_sec) * US_PER_S + (at.tv_usec - before.tv_usec);
}

/* Does the loop go on with another turn, without a sleep? The times differ by what the event loop
 * makes of two clocks. */
static bool goes_on(void)
{
    const struct queue *q = site.role.state;
    struct timeval now, at;

    turn();
    assert_true(event_pending(q->timer, EV_TIMEOUT, &at));
    assert_return_code(gettimeofday(&now, NULL), 0);
    return (at.tv_sec - now.tv_sec) * US_PER_S + (at.tv_usec - now.tv_usec) < 500 * US_PER_MS;
}

static void the_loop_sleeps_while_it_can_only_wait(void **state)
{
    (void)state;
    submit("a@here.test", "b@there.test");
    submit("a@here.test", "c@other.test");
    deferred(1);
    storage_fails(true);
    sent(0);
    pass_time(HOUR_US); /* the deferred one is due, but results wait for the storage */
    assert_int_equal(site.count, 2);
    assert_true(sleep_us() > 500 * US_PER_MS);
    storage_fails(false);
    pass_time(2 * US_PER_S);
    assert_int_equal(site.count, 3);
    site.role.stopping = true;
    queue_role.stop(&site.role);
    settle();
    assert_true(sleep_us() > 500 * US_PER_MS);
}

static void a_change_that_could_not_be_stored_is_no_success(void **state)
{
    (void)state;
    const char *id = submit("a@here.test", "b@there.test");

    deferred(0);
    storage_fails(true);
    ask(503, "{\"op\":\"hold\",\"ids\":[\"%s\"]}", id);
    storage_fails(false);
    pass_time(2 * US_PER_S);
    assert_string_equal(state_of(id), "deferred");
}

static void a_restart_continues_where_the_commits_ended(void **state)
{
    (void)state;
    submit("a@here.test", "b@there.test c@other.test");
    submit("a@here.test", "d@third.test");
    assert_int_equal(site.count, 3);
    sent(0);
    restart("");
    assert_int_equal(site.count, 2);
    sent(0);
    sent(1);
    assert_int_equal(messages(), 0);
}

/* ---- agents that break the rules, or go ----------------------------------------------------- */

static void put_result(struct channel *ch, uint64_t entry, const uint32_t *n, uint32_t count)
{
    struct wire_verdict v[8] = {0};

    for (uint32_t i = 0; i < count; i++) {
        v[i] = (struct wire_verdict){
            .n = n[i], .kind = VERDICT_SENT, .status = SLICE("2.0.0"), .text = SLICE("Ok")};
    }
    wire_put_result(ch,
                    &(struct wire_result){.entry = entry, .verdicts = v, .verdict_count = count});
    settle();
}

static void a_wrong_result_closes_the_connection_and_defers_its_entries(void **state)
{
    static const struct {
        uint64_t entry_add;
        uint32_t n[3], count;
        bool other; /* sent by the local process */
    } cases[] = {
        {1000, {1, 2}, 2, false}, /* unknown entry */
        {0, {1, 2}, 2, true},     /* of another agent */
        {0, {1, 3}, 2, false},    /* not a recipient of it */
        {0, {1, 1}, 2, false},    /* twice */
        {0, {1}, 1, false},       /* missing */
        {0, {1, 2, 3}, 3, false}, /* too many */
        {0, {0}, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *id = submit("a@here.test", "b@there.test c@there.test");
        const char *mine = submit("a@here.test", "u@here.test");

        assert_int_equal(site.count, 2);
        assert_int_equal(site.given[0].m.rcpt_count, 2);
        put_result(cases[i].other ? site.local : site.deliver[0],
                   site.given[0].m.entry + cases[i].entry_add, cases[i].n, cases[i].count);
        assert_true(site.closed[cases[i].other ? ROLE_LOCAL : ROLE_DELIVER]);
        assert_false(site.closed[cases[i].other ? ROLE_DELIVER : ROLE_LOCAL]);
        assert_string_equal(state_of(cases[i].other ? mine : id), "deferred");
        assert_string_equal(state_of(cases[i].other ? id : mine), "active");
        start_again_with("");
    }
}

static void a_frame_that_does_not_decode_closes_the_connection(void **state)
{
    (void)state;
    const char *id = submit("a@here.test", "b@there.test");

    buf_add_string(channel_begin(site.deliver[0], WIRE_RESULT), "nonsense");
    channel_end(site.deliver[0], -1);
    settle();
    assert_true(site.closed[ROLE_DELIVER]);
    assert_string_equal(state_of(id), "deferred");
    buf_add_string(channel_begin(site.receive, WIRE_SUBMIT), "nonsense");
    channel_end(site.receive, open("/dev/null", O_RDONLY | O_CLOEXEC));
    settle();
    assert_true(site.closed[ROLE_RECEIVE]);
}

static void content_is_handed_out_once(void **state)
{
    (void)state;
    const char *id = submit("a@here.test", "b@there.test");

    wire_put_need_content(site.deliver[0], site.given[0].m.entry); /* it came with the entry */
    settle();
    assert_true(site.closed[ROLE_DELIVER]);
    assert_string_equal(state_of(id), "deferred");
}

static void what_a_lost_agent_had_is_deferred_and_what_comes_waits_for_it(void **state)
{
    (void)state;
    const char *first = submit("a@here.test", "b@there.test"), *second;

    channel_free(site.deliver[0]);
    site.deliver[0] = NULL;
    settle();
    assert_string_equal(state_of(first), "deferred");
    assert_true(logged("the delivering process ended unexpectedly"));
    second = submit("a@here.test", "c@other.test");
    assert_int_equal(site.count, 1);
    assert_string_equal(state_of(second), "active");
    site.deliver[0] = connect_as(ROLE_DELIVER, 0, 1, on_agent_frame);
    settle();
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 1);
}

static void what_waits_for_an_agent_that_never_comes_back_is_deferred(void **state)
{
    (void)state;
    channel_free(site.deliver[0]);
    site.deliver[0] = NULL;
    settle();
    const char *id = submit("a@here.test", "c@other.test");
    pass_time(QUEUE_AGENT_WAIT_US - 2 * US_PER_S);
    assert_string_equal(state_of(id), "active");
    pass_time(4 * US_PER_S);
    assert_string_equal(state_of(id), "deferred");
    id = submit("a@here.test", "d@other.test"); /* now it is known that nobody delivers */
    assert_string_equal(state_of(id), "deferred");
    assert_true(logged("delivery temporarily suspended: the delivering process can't be started"));
    site.deliver[0] = connect_as(ROLE_DELIVER, 0, 1, on_agent_frame);
    settle();
    (void)submit("a@here.test", "e@other.test");
    assert_int_equal(site.count, 1);
    sent(0);
}

static void what_is_given_back_goes_on_soon(void **state)
{
    (void)state;
    const char *id = submit("a@here.test", "c@other.test");

    wire_put_result(site.deliver[0], &(struct wire_result){.entry = site.given[0].m.entry,
                                                           .outcome = OUTCOME_GIVEN_BACK});
    settle();
    assert_int_equal(site.count, 1);
    check_wait(id, 1);
    pass_time(2 * US_PER_S);
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

/* ---- the lease of a node -------------------------------------------------------------------- */

static void renew_lease(void)
{
    lease_until_us = clock_mono().us + HOUR_US;
    settle();
}

static int start_leased(void **state)
{
    (void)state;
    ends_later = LATER_BY_DEFAULT;
    has_lease = true;
    lease_until_us = 0;
    start_with("default_destination_recipient_limit = 10\n");
    renew_lease();
    return 0;
}

/* The process saw the lease over. `kinds`: of the recipients; NULL: of none. */
static void broke_off(size_t i, const enum wire_verdict_kind *kinds)
{
    const struct given *g = &site.given[i];
    struct wire_verdict v[10] = {0};

    for (uint32_t j = 0; j < g->m.rcpt_count; j++) {
        v[j] = (struct wire_verdict){.n = g->rcpts[j].n,
                                     .kind = kinds == NULL ? VERDICT_NONE : kinds[j],
                                     .status = SLICE("5.1.1"),
                                     .text = SLICE("who"),
                                     .relay = SLICE("mx")};
    }
    wire_put_result(g->from,
                    &(struct wire_result){.entry = g->m.entry,
                                          .outcome = OUTCOME_BROKEN_OFF,
                                          .verdicts = v,
                                          .verdict_count = kinds == NULL ? 0 : g->m.rcpt_count});
    settle();
}

static void nothing_is_handed_out_while_the_lease_is_over(void **state)
{
    (void)state;
    char id[SPOOL_ID_TEXT_MAX];
    const json_t *a;

    assert_true(lease_holds(&site.lease));
    (void)strcpy(id, submit("a@here.test", "b@there.test"));
    assert_int_equal(site.count, 1);
    pass_time(2 * HOUR_US);
    assert_false(lease_holds(&site.lease));
    submit("a@here.test", "c@there.test"); /* mail is accepted */
    assert_int_equal(site.count, 1);
    assert_true(logged("this node's lease is over"));
    broke_off(0, NULL);
    assert_int_equal(site.count, 1);
    assert_string_equal(state_of(id), "active"); /* where it was */
    a = ask(200, "{\"op\":\"why\",\"id\":\"%s\"}", id);
    a = json_array_get(json_object_get(a, "groups"), 0);
    assert_string_equal(text(a, "binds"), "lease");
    assert_null(json_object_get(a, "estimate"));
    a = json_array_get(json_object_get(ask(200, "{\"op\":\"overview\"}"), "problems"), 0);
    assert_string_equal(text(a, "problem"), "lease");
    renew_lease();
    a = ask(200, "{\"op\":\"overview\"}");
    assert_int_equal(json_array_size(json_object_get(a, "problems")), 0);
    assert_true(logged("this node's lease holds: deliveries go on"));
    assert_int_equal(site.count, 3);
    assert_int_equal(number(ask(200, "{\"op\":\"status\"}"), "in_flight"), 2);
    a = ask(200, "{\"op\":\"why\",\"id\":\"%s\"}", id);
    a = json_array_get(json_object_get(a, "groups"), 0);
    assert_string_equal(text(a, "binds"), "delivering");
    for (size_t i = 1; i < 3; i++) {
        sent(i);
    }
    assert_int_equal(messages(), 0);
    assert_false(logged("status=deferred"));
}

static void what_waits_for_a_process_goes_back_when_the_lease_ends(void **state)
{
    (void)state;
    channel_free(site.deliver[0]);
    settle();
    submit("a@here.test", "b@there.test"); /* handed out to a process that is away */
    lease_until_us = 0;
    settle();
    site.deliver[0] = connect_as(ROLE_DELIVER, 0, 1, on_agent_frame);
    settle();
    assert_int_equal(site.count, 0);
    renew_lease();
    assert_int_equal(site.count, 1);
    sent(0);
    assert_int_equal(messages(), 0);
}

/* It fails with the lease, and its claims with it: of these no event tells. */
static void what_a_batch_has_claimed_that_failed_goes_with_the_lease(void **state)
{
    (void)state;
    struct queue *q = site.role.state;
    struct msg_id n;
    const char *id;

    submit("a@here.test", "b@there.test");
    assert_int_equal(site.count, 1);
    lease_until_us = 0;
    settle();
    id = submit("a@here.test", "c@other.test"); /* it is in memory, and waits for the lease */
    assert_true(spool_id_parse(slice_string(id), &n));
    assert_non_null(active_find(&q->active, n));
    assert_int_equal(spool_remove(q->spool, n), 0); /* another node has it */
    assert_int_equal(spool_commit(q->spool), 0);
    leased_spool_lose();
    external_tell(q);
    renew_lease();
    assert_null(active_find(&q->active, n));
    assert_int_equal(site.count, 1);
    sent(0); /* what is claimed still was not lost */
    assert_int_equal(messages(), 0);
}

static void only_those_without_a_verdict_go_again(void **state)
{
    static const enum wire_verdict_kind kinds[] = {VERDICT_NONE, VERDICT_BOUNCED, VERDICT_NONE};
    (void)state;

    submit("s@from.test", "b@there.test c@there.test d@there.test");
    assert_int_equal(site.given[0].m.rcpt_count, 3);
    lease_until_us = 0;
    settle();
    broke_off(0, kinds);
    assert_true(logged("to=<c@there.test>, relay=mx") && logged("dsn=5.1.1, status=bounced (who)"));
    assert_false(logged("to=<b@there.test>"));
    assert_int_equal(site.count, 1);
    renew_lease();
    pass_time(2 * US_PER_S);
    assert_int_equal(site.count, 3); /* the report is the other */
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(site.given[i].m.rcpt_count, site.given[i].m.sender.len == 0 ? 1 : 2);
        sent(i);
    }
    assert_int_equal(messages(), 0);
}

/* A process that says so of a lease that holds can't keep this one busy. */
static void what_is_broken_off_without_need_waits(void **state)
{
    (void)state;
    const char *id = submit("a@here.test", "c@other.test");

    broke_off(0, NULL);
    assert_int_equal(site.count, 1);
    check_wait(id, 1);
    pass_time(2 * US_PER_S);
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

/* ---- reports -------------------------------------------------------------------------------- */

static void mixed_verdicts_of_one_message_are_settled_one_by_one(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", "a@one.test b@two.test c@three.test");

    assert_int_equal(site.count, 3);
    for (size_t i = 0; i < 3; i++) {
        char domain = site.given[i].rcpts[0].address.ptr[0];

        if (domain == 'a') {
            sent(i);
        } else if (domain == 'b') {
            deferred(i);
        } else {
            bounced(i);
        }
    }
    check_report(3, "s@from.test", "<c@three.test>");
    assert_false(content_has(3, "b@two.test"));
    sent(3);
    assert_int_equal(number(ask(200, "{\"op\":\"show\",\"id\":\"%s\"}", id), "recipients_pending"),
                     1);
    pass_time(HOUR_US);
    assert_int_equal(site.count, 5);
    check_address(4, 0, "b@two.test");
    sent(4);
    assert_int_equal(messages(), 0);
}

static void reports_follow_what_the_sender_asked_for(void **state)
{
    static const struct {
        uint32_t notify;
        enum wire_verdict_kind kind;
        const char *rcpt, *want; /* in the report; NULL: none */
    } cases[] = {
        {NOTIFY_DEFAULT, VERDICT_BOUNCED, "b@there.test", "Action: failed"},
        {NOTIFY_FAILURE, VERDICT_BOUNCED, "b@there.test", "Action: failed"},
        {NOTIFY_SUCCESS, VERDICT_BOUNCED, "b@there.test", NULL},
        {NOTIFY_NEVER, VERDICT_BOUNCED, "b@there.test", NULL},
        {NOTIFY_DEFAULT, VERDICT_SENT, "b@there.test", NULL},
        {NOTIFY_SUCCESS, VERDICT_SENT, "b@there.test", NULL}, /* that site sends its own */
        {NOTIFY_SUCCESS, VERDICT_RELAYED, "b@there.test", "Action: relayed"},
        {NOTIFY_SUCCESS, VERDICT_SENT, "b@here.test", "Action: delivered"},
        {NOTIFY_FAILURE, VERDICT_SENT, "b@here.test", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t before = site.count;

        submit_notify("s@from.test", cases[i].rcpt, cases[i].notify, 250);
        assert_int_equal(site.count, before + 1);
        verdict(before, OUTCOME_OK, cases[i].kind,
                cases[i].kind == VERDICT_BOUNCED ? "5.1.1" : "2.0.0", "said so");
        if (cases[i].want != NULL) {
            check_report(before + 1, "s@from.test", cases[i].want);
            sent(before + 1);
        }
        assert_int_equal(site.count, before + (cases[i].want != NULL ? 2 : 1));
        assert_int_equal(messages(), 0);
    }
}

static void a_report_tells_the_envelope_id_and_the_other_sites_words(void **state)
{
    (void)state;
    put_full("s@from.test", "b@there.test", 0, ENVELOPE_RET_HDRS, "QQ314159",
             SLICE("Subject: x\r\n\r\nbody-text\r\n"), -1, 0);
    settle();
    bounced(0);
    check_report(1, "s@from.test", "Original-Envelope-Id: QQ314159");
    assert_true(content_has(1, "Remote-MTA: dns; mx.there.test\r\n"));
    assert_true(content_has(1, "Diagnostic-Code: smtp; 550 5.1.1 who\r\n"));
    assert_true(content_has(1, "Subject: x"));
    assert_false(content_has(1, "body-text"));
    /* The report has its route from the start. */
    const json_t *list = json_object_get(ask(200, "{\"op\":\"destinations\"}"), "destinations");
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(text(json_array_get(list, 0), "nexthop"), "from.test");
}

static void the_null_sender_gets_no_report(void **state)
{
    (void)state;
    submit("", "b@there.test");
    bounced(0);
    assert_int_equal(site.count, 1);
    assert_int_equal(messages(), 0);
    assert_true(logged("undeliverable, and no one can get the report"));
}

static void a_double_bounce_goes_to_those_who_want_it_and_ends_there(void **state)
{
    (void)state;
    start_again_with("notify_classes = 2bounce\nnotify_double_bounce = boss@there.test\n");
    submit("", "b@there.test");
    bounced(0);
    assert_int_equal(site.count, 2);
    check_address(1, 0, "boss@there.test");
    assert_true(slice_equal(site.given[1].m.sender, SLICE("double-bounce@here.test")));
    bounced(1);
    assert_int_equal(site.count, 2);
    assert_int_equal(messages(), 0);
}

/* The entry for `rcpt`, which is one of the last two. */
static size_t entry_for(const char *rcpt)
{
    struct slice last;

    assert_true(site.count >= 2);
    last = site.given[site.count - 1].rcpts[0].address;
    return slice_equal(last, slice_string(rcpt)) ? site.count - 1 : site.count - 2;
}

static void the_postmaster_gets_the_copies_he_asked_for(void **state)
{
    size_t copy;

    (void)state;
    start_again_with("notify_classes = bounce, delay\nbounce_notice_recipient = boss\n"
                     "delay_notice_recipient = clock@there.test\ndelay_warning_time = 1h\n");
    submit("s@from.test", "b@there.test");
    bounced(0);
    assert_int_equal(site.count, 3);
    check_address(entry_for("s@from.test"), 0, "s@from.test");
    copy = entry_for("boss@here.test");
    check_address(copy, 0, "boss@here.test");
    assert_true(slice_equal(site.given[copy].m.sender, SLICE("double-bounce@here.test")));
    assert_true(content_has(copy, "Subject: Postmaster Copy: Undelivered Mail\r\n"));
    assert_true(content_has(copy, "Content-Type: text/rfc822-headers\r\n"));
    sent(entry_for("s@from.test"));
    bounced(copy); /* and nobody hears of that */
    assert_int_equal(site.count, 3);
    assert_int_equal(messages(), 0);

    submit("s@from.test", "b@there.test");
    deferred(3);
    pass_time(2 * HOUR_US);
    deferred(4);
    assert_int_equal(site.count, 7);
    copy = entry_for("clock@there.test");
    check_address(copy, 0, "clock@there.test");
    assert_true(content_has(copy, "Subject: Postmaster Warning: Delayed Mail\r\n"));
    sent(5);
    sent(6);
    assert_int_equal(messages(), 1);
}

/* The parent opens it, as this process can't. */
static void lines_about_messages_go_to_syslog_where_wanted(void **state)
{
    struct frame frame = {.type = WIRE_LOG_SINK};
    char line[500];
    struct buf body;
    ssize_t len;
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds), 0);
    report_line(site.role.state, "S0: nobody listens");
    buf_init(&body, 100);
    frame_put_u64(&body, LOG_SINK_SYSLOG);
    frame.body = buf_slice(&body);
    frame.fd = fds[1];
    assert_true(queue_role.parent_frame(&site.role, &frame));
    report_line(site.role.state, "S%d: complete (total %d recipients, 0 failed)", 1, 2);
    turn();
    len = recv(fds[0], line, sizeof line - 1, MSG_DONTWAIT);
    assert_true(len > 0);
    line[len] = '\0';
    assert_int_equal(strncmp(line, "<22>", 4), 0); /* mail.info */
    assert_non_null(strstr(line, " scheduler["));
    assert_non_null(strstr(line, "]: S1: complete (total 2 recipients, 0 failed)"));
    assert_int_equal(recv(fds[0], line, sizeof line, MSG_DONTWAIT), -1);
    assert_true(logged("S1: complete"));
    /* What the parent must not send ends the connection. */
    frame.fd = -1;
    assert_false(queue_role.parent_frame(&site.role, &frame));
    buf_fini(&body);
    close(fds[0]);
}

static void a_form_gives_the_words_and_more_readers(void **state)
{
    (void)state;
    start_again_with("report_form = form\n");
    submit("s@from.test", "b@there.test c@there.test");
    bounced(0);
    assert_int_equal(site.count, 3);
    check_address(1, 0, "archive@here.test");
    check_address(2, 0, "s@from.test");
    for (size_t i = 1; i < 3; i++) {
        assert_true(content_has(i, "Subject: Returned [FAILED(2)]\r\n"));
        assert_true(content_has(i, "X-Site: yes\r\n"));
        assert_true(content_has(i, "Call us.\r\nReporting-MTA: dns; "));
        assert_true(
            content_has(i, "FAILED:\r\n  Final Recipient:\r\n      rfc822; b@there.test\r\n"));
    }
    sent(1);
    sent(2);
    assert_int_equal(messages(), 0);
}

static void a_form_that_is_missing_is_told_to_the_postmaster(void **state)
{
    (void)state;
    start_again_with("report_form = lost\n");
    submit("s@from.test", "b@there.test");
    bounced(0);
    assert_int_equal(site.count, 3);
    check_address(1, 0, "postmaster@here.test");
    check_address(2, 0, "s@from.test");
    assert_true(content_has(1, "Subject: Multiple-fault: Report template missing [FAILED(1)]\r\n"));
}

static void what_a_report_returns_by_default_can_be_the_header(void **state)
{
    (void)state;
    submit("s@from.test", "b@there.test");
    bounced(0);
    assert_true(content_has(1, "Content-Type: message/rfc822\r\n"));
    sent(1);
    start_again_with("report_return = headers\n");
    submit("s@from.test", "b@there.test");
    bounced(site.count - 1);
    assert_true(content_has(site.count - 1, "Content-Type: text/rfc822-headers\r\n"));
}

static void a_report_for_nobody_can_be_kept(void **state)
{
    (void)state;
    start_again_with("notify_double_bounce =\nstore_error_on_error = 1\n");
    submit("", "b@there.test");
    bounced(0);
    assert_int_equal(site.count, 1);
    assert_int_equal(messages(), 1);
    assert_true(logged("no one can get the report: it is kept"));
    assert_int_equal(
        json_array_size(json_object_get(
            ask(200, "{\"op\":\"list\",\"filter\":{\"state\":\"hold\"}}"), "messages")),
        1);
}

static void mail_that_is_too_old_is_returned_after_an_attempt(void **state)
{
    (void)state;
    start_again_with("maximal_queue_lifetime = 1d\nbounce_queue_lifetime = 1h\n");
    submit("s@from.test", "b@there.test");
    deferred(0);
    submit("", "c@there.test");
    deferred(1);
    pass_time(2 * HOUR_US);
    assert_int_equal(site.count, 4);
    deferred(2);
    deferred(3);
    assert_int_equal(messages(), 1); /* the one of the null sender is dropped */
    pass_time(DAY_US);
    assert_int_equal(site.count, 5);
    deferred(4);
    check_report(5, "s@from.test", "450 4.2.0 later");
    sent(5);
    assert_int_equal(messages(), 0);
    assert_true(logged("from=<s@from.test>, status=expired, returned to sender"));
}

/* ---- the wall clock is set ------------------------------------------------------------------ */

static void mail_keeps_its_time_when_the_clock_is_set(void **state)
{
    static const int64_t steps[] = {-3 * DAY_US, 365 * DAY_US, -10 * 365 * DAY_US, 30 * US_PER_S};
    size_t given = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(steps); i++) {
        set_clock(0);
        submit("s@from.test", "b@there.test");
        deferred(given++);
        set_clock(steps[i]);
        pass_time(290 * US_PER_S);
        assert_int_equal(site.count, given); /* minimal_backoff_time is not over */
        pass_time(11 * US_PER_S);
        assert_int_equal(site.count, given + 1);
        sent(given++);
        assert_int_equal(messages(), 0);
    }
    assert_true(logged("the clock was set back by 259200 s, from 2"));
    assert_true(logged("the clock was set forward by 31536000 s, from 2"));
}

static void no_mail_is_given_up_for_a_clock_that_was_set_forward(void **state)
{
    (void)state;
    start_again_with("maximal_queue_lifetime = 1d\ndelay_warning_time = 2h\n");
    submit("s@from.test", "b@there.test");
    submit("s@from.test", "c@there.test");
    deferred(0);
    clock_set_step(365 * DAY_US);
    deferred(1); /* the step is seen at this event */
    pass_time(301 * US_PER_S);
    assert_int_equal(site.count, 4); /* no report of failure or delay */
    deferred(2);
    deferred(3);
    assert_int_equal(messages(), 2);
    set_clock(0); /* it is set right again */
    pass_time(HOUR_US);
    assert_int_equal(site.count, 6);
    deferred(4);
    deferred(5);
    assert_int_equal(messages(), 2);
    pass_time(DAY_US); /* now it is as old as it may be */
    deferred(6);
    deferred(7);
    assert_true(logged("status=expired, returned to sender"));
}

static void a_clock_that_is_set_twice_counts_twice(void **state)
{
    (void)state;
    submit("s@from.test", "b@there.test");
    deferred(0);
    storage_fails(true); /* nothing in the spool can be moved yet */
    set_clock(-3 * DAY_US);
    set_clock(-5 * DAY_US);
    storage_fails(false);
    pass_time(2 * US_PER_S);
    pass_time(290 * US_PER_S);
    assert_int_equal(site.count, 1);
    pass_time(10 * US_PER_S);
    assert_int_equal(site.count, 2);
    sent(1);
}

static void mail_of_the_future_is_due_soon_after_a_start(void **state)
{
    (void)state;
    submit("s@from.test", "b@there.test");
    deferred(0);
    role_down();
    clock_set_step(-3 * DAY_US);
    role_up("");
    assert_true(logged("times that lie in the future are corrected"));
    pass_time(301 * US_PER_S);
    assert_int_equal(site.count, 1);
    deferred(0);
    assert_int_equal(messages(), 1);
    role_down();
    role_up(""); /* ids of the future remain, and mean nothing any more */
    pass_time(HOUR_US);
    sent(0);
    assert_int_equal(messages(), 0);
}

/* Ids of one of several nodes run ahead of its clock, and others' clocks gave the times. */
static void ids_of_the_future_alarm_nobody_where_nodes_share_a_spool(void **state)
{
    (void)state;
    submit("s@from.test", "b@there.test");
    deferred(0);
    role_down();
    clock_set_step(-HOUR_US);
    role_up("");
    assert_false(logged("times that lie in the future are corrected"));
}

static void threads_keep_their_time_when_the_clock_is_set(void **state)
{
    (void)state;
    start_again_with("smtp/*\n\tinterval=10m retries=1\n");
    submit("s@from.test", "b@there.test");
    deferred(0);
    set_clock(-3 * DAY_US);
    pass_time(21 * 60 * US_PER_S);
    assert_int_equal(site.count, 2);
    deferred(1);
    set_clock(3 * DAY_US);
    pass_time(US_PER_S);
    assert_int_equal(site.count, 2);
    pass_time(21 * 60 * US_PER_S);
    assert_int_equal(site.count, 3);
    sent(2);
}

static void a_delay_is_told_once(void **state)
{
    (void)state;
    start_again_with("delay_warning_time = 1h\n");
    submit("s@from.test", "b@there.test");
    submit_notify("t@from.test", "n@there.test", NOTIFY_FAILURE, 250);
    deferred(0);
    deferred(1);
    pass_time(2 * HOUR_US);
    assert_int_equal(site.count, 4);
    deferred(2);
    deferred(3);
    check_report(4, "s@from.test", "Action: delayed");
    sent(4);
    pass_time(2 * HOUR_US);
    assert_int_equal(site.count, 7);
    deferred(5);
    deferred(6);
    assert_int_equal(site.count, 7);
    assert_int_equal(messages(), 2);
}

static void the_end_of_a_delay_is_told_when_wanted(void **state)
{
    (void)state;
    start_again_with("delay_warning_time = 1h\nconfirm_delay_cleared = yes\n");
    submit("s@from.test", "b@there.test");
    deferred(0);
    pass_time(2 * HOUR_US);
    deferred(1);
    check_report(2, "s@from.test", "Action: delayed");
    sent(2);
    pass_time(2 * HOUR_US);
    assert_int_equal(site.count, 4);
    sent(3);
    check_report(4, "s@from.test", "Action: relayed");
    sent(4);
    assert_int_equal(messages(), 0);
}

static void with_soft_bounce_nothing_is_final(void **state)
{
    (void)state;
    start_again_with("soft_bounce = yes\n");
    const char *id = submit("s@from.test", "b@there.test");
    bounced(0);
    assert_int_equal(site.count, 1);
    assert_string_equal(state_of(id), "deferred");
    assert_true(logged("dsn=4.1.1, status=SOFTBOUNCE"));
}

static void waits_double_between_their_bounds(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", "b@there.test");

    deferred(0);
    check_wait(id, 300);
    pass_time(301 * US_PER_S);
    deferred(1);
    check_wait(id, 301);
    pass_time(302 * US_PER_S);
    deferred(2);
    check_wait(id, 603);
    pass_time(DAY_US);
    deferred(3);
    check_wait(id, 4000);
}

/* ---- operators ------------------------------------------------------------------------------ */

static void what_an_operator_does_to_mail_under_way_holds_when_its_result_comes(void **state)
{
    static const struct {
        const char *op;
        enum wire_verdict_kind kind;
        const char *want; /* state; NULL: gone */
        bool again;       /* it is tried again at once */
        bool report;
    } cases[] = {
        {"hold", VERDICT_SENT, NULL, false, false},
        {"hold", VERDICT_DEFERRED, "hold", false, false},
        {"hold", VERDICT_BOUNCED, NULL, false, true},
        {"delete", VERDICT_SENT, NULL, false, false},
        {"delete", VERDICT_DEFERRED, NULL, false, false},
        {"delete", VERDICT_BOUNCED, NULL, false, false},
        {"requeue", VERDICT_SENT, NULL, false, false},
        {"requeue", VERDICT_DEFERRED, "active", true, false},
        {"requeue", VERDICT_BOUNCED, NULL, false, true},
        {"expire", VERDICT_SENT, NULL, false, false},
        {"expire", VERDICT_DEFERRED, NULL, false, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char id[SPOOL_ID_TEXT_MAX];

        (void)strcpy(id, submit("s@from.test", "b@there.test"));
        changed(cases[i].op, id);
        assert_int_equal(site.count, 1);
        verdict(0, OUTCOME_OK, cases[i].kind, cases[i].kind == VERDICT_SENT ? "2.0.0" : "4.0.0",
                "so");
        assert_int_equal(site.count, cases[i].again || cases[i].report ? 2 : 1);
        if (cases[i].want == NULL) {
            ask(404, "{\"op\":\"show\",\"id\":\"%s\"}", id);
            assert_int_equal(messages(), cases[i].report ? 1 : 0);
        } else {
            assert_string_equal(state_of(cases[i].again ? site.requeued : id), cases[i].want);
        }
        start_again_with("");
    }
}

static void mail_held_and_released_under_way_is_tried_once_at_a_time(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", "b@there.test");

    changed("hold", id);
    changed("release", id);
    assert_int_equal(site.count, 1);
    deferred(0);
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

static void a_requeue_begins_anew_without_those_who_have_it(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", "a@one.test b@two.test");

    sent(0);
    deferred(1);
    pass_time(DAY_US);
    deferred(2);
    check_wait(id, 4000);
    changed("requeue", id);
    assert_int_equal(site.count, 4);
    assert_int_equal(site.given[3].m.rcpt_count, 1);
    check_address(3, 0, "b@two.test");
    ask(404, "{\"op\":\"show\",\"id\":\"%s\"}", id);
    deferred(3);
    check_wait(site.requeued, 300);
    /* Its route is known again. */
    const json_t *list = json_object_get(ask(200, "{\"op\":\"destinations\"}"), "destinations");
    assert_string_equal(text(json_array_get(list, 0), "transport"), "smtp");
}

static void what_an_operator_does_to_requeued_mail_holds_at_the_filter(void **state)
{
    (void)state;
    char id[SPOOL_ID_TEXT_MAX];

    (void)strcpy(id, submit("s@from.test", "b@there.test"));
    deferred(0);
    site.filter_holds = true;
    changed("requeue", id);
    assert_non_null(site.at_filter.body);
    changed("hold", id);
    filter_submit(site.filter, SLICE("Subject: x\r\n\r\nbody\r\n"));
    settle();
    assert_int_equal(site.filter_code, WIRE_SUBMIT_GIVE_BACK);
    assert_string_equal(state_of(id), "hold");
    assert_int_equal(messages(), 1);
    site.filter_holds = false;
    changed("requeue", id);
    assert_int_equal(site.filter_code, 250);
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

static void requeued_mail_that_can_not_be_stored_stays_what_it_was(void **state)
{
    (void)state;
    char id[SPOOL_ID_TEXT_MAX];

    (void)strcpy(id, submit("s@from.test", "b@there.test"));
    deferred(0);
    site.filter_holds = true;
    changed("requeue", id);
    storage_fails(true);
    filter_submit(site.filter, SLICE("Subject: x\r\n\r\nbody\r\n"));
    settle();
    storage_fails(false);
    assert_int_equal(site.filter_code, 451);
    pass_time(2 * US_PER_S);
    assert_string_equal(state_of(id), "active"); /* at the filter, which submits it again */
    assert_int_equal(messages(), 1);
    filter_submit(site.filter, SLICE("Subject: x\r\n\r\nbody\r\n"));
    settle();
    assert_int_equal(site.filter_code, 250);
    assert_int_equal(messages(), 1);
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

static void a_process_that_ends_at_the_filter_leaves_the_mail(void **state)
{
    (void)state;
    char id[SPOOL_ID_TEXT_MAX];

    (void)strcpy(id, submit("s@from.test", "b@there.test"));
    deferred(0);
    site.filter_holds = true;
    changed("requeue", id);
    channel_free(site.filter);
    site.filter = connect_as(ROLE_FILTER, 0, 1, on_filter_frame);
    settle();
    assert_string_equal(state_of(id), "deferred");
    site.filter_holds = false;
    changed("flush", id);
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

static void expired_mail_is_returned_without_another_attempt(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", "b@there.test");

    deferred(0);
    changed("expire", id);
    check_report(1, "s@from.test", "450 4.2.0 later");
    assert_true(logged("status=force-expired, returned to sender"));
}

static void changes_take_filters_pages_and_dry_runs(void **state)
{
    const json_t *a;

    (void)state;
    start_again_with("smtp_destination_concurrency_limit = 1\n"
                     "initial_destination_concurrency = 1\n");
    for (int i = 0; i < 250; i++) {
        put("s@from.test", "b@there.test");
        if (i % 50 == 49) {
            settle();
            site.done_count = 0;
        }
    }
    assert_int_equal(messages(), 250);
    a = ask(200, "{\"op\":\"hold\",\"filter\":{\"sender\":\"s@from.test\"},\"dry_run\":true}");
    assert_int_equal(number(a, "matched"), 200);
    assert_int_equal(json_array_size(json_object_get(a, "changed")), 0);
    a = ask(200, "{\"op\":\"hold\",\"filter\":{\"sender\":\"s@from.test\"}}");
    assert_int_equal(json_array_size(json_object_get(a, "changed")), 200);
    char after[SPOOL_ID_TEXT_MAX];
    (void)snprintf(after, sizeof after, "%s", text(a, "next"));
    a = ask(200, "{\"op\":\"hold\",\"filter\":{\"sender\":\"s@from.test\"},\"after\":\"%s\"}",
            after);
    assert_int_equal(json_array_size(json_object_get(a, "changed")), 50);
    assert_null(json_object_get(a, "next"));
    a = ask(200, "{\"op\":\"totals\"}");
    assert_int_equal(number(a, "hold"), 250);
    a = ask(200, "{\"op\":\"hold\",\"ids\":[\"nonsense\",\"7\",\"%s\"]}", after);
    assert_int_equal(json_array_size(json_object_get(a, "errors")), 3);
    ask(200, "{\"op\":\"delete\",\"filter\":{\"state\":\"hold\"}}");
    ask(200, "{\"op\":\"delete\",\"filter\":{\"state\":\"hold\"}}");
    assert_int_equal(messages(), 0);
}

static void a_change_by_filter_may_meet_mail_that_waits_for_its_commit(void **state)
{
    (void)state;
    put("s@from.test", "b@there.test");
    channel_flush_all();
    ask(200, "{\"op\":\"delete\",\"filter\":{}}"); /* in the same turn, before or after it */
    settle();
    assert_true(messages() <= 1);
}

static void questions_that_make_no_sense_are_refused(void **state)
{
    static const struct {
        const char *question;
        unsigned want;
    } cases[] = {
        {"", 400},
        {"{", 400},
        {"[]", 400},
        {"{}", 400},
        {"{\"op\":7}", 400},
        {"{\"op\":\"dance\"}", 404},
        {"{\"op\":\"show\"}", 400},
        {"{\"op\":\"show\",\"id\":\"4\"}", 400},
        {"{\"op\":\"cat\",\"id\":\"4\"}", 400},
        {"{\"op\":\"why\",\"id\":[]}", 400},
        {"{\"op\":\"hold\"}", 400},
        {"{\"op\":\"hold\",\"ids\":[],\"filter\":{}}", 400},
        {"{\"op\":\"hold\",\"ids\":{}}", 400},
        {"{\"op\":\"hold\",\"ids\":[7]}", 400},
        {"{\"op\":\"list\",\"filter\":{\"x\":1}}", 400},
        {"{\"op\":\"list\",\"filter\":{\"state\":\"asleep\"}}", 400},
        {"{\"op\":\"list\",\"filter\":[]}", 400},
        {"{\"op\":\"list\",\"after\":\"x\"}", 400},
        {"{\"op\":\"list\",\"max\":0}", 200},
        {"{\"op\":\"list\",\"max\":-1}", 200},
        {"{\"op\":\"sites\",\"cursor\":-5}", 200},
        {"{\"op\":\"site\"}", 400},
        {"{\"op\":\"site\",\"filter\":{\"destination\":7}}", 400},
        {"{\"op\":\"site\",\"filter\":{\"destination\":\"smtp/\"}}", 400},
        {"{\"op\":\"site\",\"filter\":{\"destination\":\"none/x\"}}", 404},
        {"{\"op\":\"site\",\"filter\":{\"destination\":\"x\"}}", 200},
    };

    (void)state;
    submit("s@from.test", "b@there.test");
    for (size_t i = 0; i < COUNT(cases); i++) {
        ask(cases[i].want, "%s", cases[i].question);
    }
}

static void the_state_of_all_can_be_seen(void **state)
{
    (void)state;
    char id[SPOOL_ID_TEXT_MAX];
    const json_t *a;

    (void)strcpy(id, submit("s@from.test", "b@there.test"));
    a = ask(200, "{\"op\":\"status\"}");
    assert_int_equal(number(a, "in_flight"), 1);
    assert_int_equal(number(a, "submitted"), 1);
    assert_int_equal(number(a, "active_messages"), 1);
    a = ask(200, "{\"op\":\"sites\"}");
    assert_string_equal(text(json_array_get(json_object_get(a, "sites"), 0), "destination"),
                        "there.test");
    a = ask(200, "{\"op\":\"why\",\"id\":\"%s\"}", id);
    assert_int_equal(number(json_array_get(json_object_get(a, "recipients"), 0), "group"), 0);
    a = json_array_get(json_object_get(a, "groups"), 0);
    assert_string_equal(text(a, "binds"), "delivering");
    assert_int_equal(number(a, "recipients"), 1);
    a = ask(200, "{\"op\":\"list\",\"filter\":{\"recipient\":\"@there.test\"}}");
    assert_int_equal(json_array_size(json_object_get(a, "messages")), 1);
    a = ask(200, "{\"op\":\"count\",\"filter\":{\"state\":[\"hold\"]}}");
    assert_int_equal(number(a, "count"), 0);
    ask(200, "{\"op\":\"cat\",\"id\":\"%s\"}", id);
    assert_non_null(strstr(buf_cstr(&site.bytes), "Subject: x"));
}

static void a_flush_makes_mail_due_and_revives_its_destination(void **state)
{
    (void)state;
    start_again_with("concurrency_feedback_rule = postfix\n"
                     "initial_destination_concurrency = 1\n");
    const char *id = submit("s@from.test", "b@there.test");

    verdict(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.1", "connect to there.test: refused");
    assert_true(logged("destination is dead"));
    const char *second = submit("s@from.test", "c@there.test");
    assert_int_equal(site.count, 1);
    assert_string_equal(state_of(second), "deferred");
    assert_true(logged("dsn=4.4.1, status=deferred (delivery temporarily suspended: connect to"));
    ask(200, "{\"op\":\"flush\",\"filter\":{\"destination\":\"there.test\"}}");
    settle();
    assert_true(site.count >= 2);
    assert_int_equal(site.forgets, 1); /* what the agent kept for it, too */
    (void)id;
}

static void etrn_is_for_those_domains_only_and_revives_them(void **state)
{
    (void)state;
    start_again_with("concurrency_feedback_rule = postfix\n"
                     "initial_destination_concurrency = 1\nrelay_transport = smtp\n");
    submit("s@from.test", "b@etrn.test");
    verdict(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.1", "connect to etrn.test: refused");
    wire_put_etrn(site.receive, &(struct wire_etrn){.token = 1, .domain = SLICE("there.test")});
    settle();
    assert_int_equal(site.etrn.code, 459);
    assert_int_equal(site.count, 1);
    wire_put_etrn(site.receive, &(struct wire_etrn){.token = 1, .domain = SLICE("etrn.test")});
    settle();
    assert_int_equal(site.etrn.code, 250);
    assert_int_equal(site.count, 2);
}

/* ---- content and size ----------------------------------------------------------------------- */

static void large_content_travels_in_descriptors(void **state)
{
    char path[100], *bytes;
    size_t size = 400000;
    int fd;
    ssize_t n;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/big", site.dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bytes = mem_new(size);
    memset(bytes, 'x', size);
    assert_int_equal(write(fd, bytes, size), size);
    put_full("s@from.test", "b@there.test", 0, 0, "", SLICE("Subject: x\r\n"), fd, size);
    settle();
    assert_int_equal(site.done[0].code, 250);
    assert_int_equal(site.count, 1);
    assert_int_equal(site.given[0].m.place, CONTENT_FD);
    assert_true(site.given[0].m.size > size);
    n = pread(site.given[0].fd, bytes, size, 0);
    assert_int_equal(n, size);
    assert_memory_equal(bytes, "Received: by here id ", 21);
    ask(200, "{\"op\":\"cat\",\"id\":\"%s\"}", site.done_ids[0]);
    assert_int_equal(buf_len(&site.bytes), site.given[0].m.size);
    mem_free(bytes);
    sent(0);
    assert_int_equal(messages(), 0);
}

static void beyond_the_budget_content_is_sent_on_demand(void **state)
{
    size_t size = 9u << 20;
    char *bytes = mem_new(size);

    (void)state;
    memset(bytes, 'x', size);
    start_again_with("spool_inline_limit = 12m\n");
    for (size_t i = 0; i < 8; i++) {
        char rcpt[40];

        (void)snprintf(rcpt, sizeof rcpt, "u@there%zu.test", i);
        put_full("s@from.test", rcpt, 0, 0, "", slice_of(bytes, size), -1, 0);
        for (int j = 0; j < 2000 && site.count < i + 1; j++) {
            turn();
        }
        assert_int_equal(site.count, i + 1);
    }
    assert_int_equal(site.given[6].m.place, CONTENT_INSIDE);
    assert_int_equal(site.given[7].m.place, CONTENT_ON_DEMAND);
    wire_put_need_content(site.deliver[0], site.given[7].m.entry);
    for (int j = 0; j < 2000 && site.content_count == 0; j++) {
        turn();
    }
    assert_true(site.content.ok);
    assert_int_equal(strlen(site.content_bytes), site.given[7].m.size);
    sent(7);
    assert_false(site.closed[ROLE_DELIVER]);
    mem_free(bytes);
}

static void content_that_is_missing_quarantines_its_message(void **state)
{
    char path[100];
    int fd;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/big", site.dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_return_code(ftruncate(fd, 400000), 0);
    put_full("s@from.test", "b@there.test", 0, 0, "", SLICE("x\r\n"), fd, 400000);
    settle();
    deferred(0);
    (void)snprintf(path, sizeof path, "rm %s/queue.db.d/*", site.dir);
    assert_int_equal(system(path), 0);
    pass_time(HOUR_US);
    assert_int_equal(site.count, 1);
    assert_int_equal(messages(), 1);
    assert_true(logged("quarantined as corrupt"));
    assert_string_equal(state_of(site.done_ids[0]), "corrupt");
    ask(409, "{\"op\":\"cat\",\"id\":\"%s\"}", site.done_ids[0]);
    pass_time(30 * DAY_US); /* it is kept, and the sender is told nothing that is not known */
    assert_int_equal(site.count, 1);
    assert_int_equal(messages(), 1);
}

static void a_descriptor_that_is_shorter_than_promised_is_refused(void **state)
{
    (void)state;
    put_full("s@from.test", "b@there.test", 0, 0, "", SLICE("x\r\n"),
             open("/dev/null", O_RDONLY | O_CLOEXEC), 400000);
    settle();
    assert_true(site.done[0].code >= 400);
    assert_int_equal(messages(), 0);
    submit("s@from.test", "b@there.test");
}

static void a_list_of_10000_is_read_in_portions(void **state)
{
    struct buf rcpts;
    size_t delivered = 0;

    (void)state;
    start_again_with("qmgr_message_recipient_limit = 1000\nqmgr_message_active_limit = 100\n"
                     "default_recipient_limit = 1000\nsmtp_destination_recipient_limit = 50\n");
    buf_init(&rcpts, 1u << 20);
    for (int i = 0; i < 10000; i++) {
        buf_addf(&rcpts, "%suser%d@there%d.test", i > 0 ? " " : "", i, i % 7);
    }
    put(("s@from.test"), buf_cstr(&rcpts));
    buf_fini(&rcpts);
    for (int i = 0; i < 100 && site.done_count == 0; i++) {
        turn();
    }
    assert_int_equal(site.done[0].code, 250);
    for (int i = 0; i < 1000 && delivered < 10000; i++) {
        const json_t *a = ask(200, "{\"op\":\"status\"}");

        assert_true(number(a, "active_recipients") <= 2100);
        settle();
        for (size_t j = 0; j < site.count; j++) {
            delivered += site.given[j].m.rcpt_count;
            sent(j);
            if (site.count > ENTRIES_MAX - 50) {
                break;
            }
        }
        forget_given();
    }
    assert_int_equal(delivered, 10000);
    assert_int_equal(messages(), 0);
}

static void a_long_listing_is_cut_not_fatal(void **state)
{
    struct buf rcpts;
    const json_t *a;

    (void)state;
    start_again_with("default_destination_recipient_limit = 1000\n");
    buf_init(&rcpts, 1u << 20);
    for (int i = 0; i < 1000; i++) {
        buf_addf(&rcpts, "%suser%d@there.test", i > 0 ? " " : "", i);
    }
    for (int i = 0; i < 50; i++) {
        put("s@from.test", buf_cstr(&rcpts));
        settle();
    }
    buf_fini(&rcpts);
    a = ask(200, "{\"op\":\"list\",\"max\":1000,\"recipients\":1000}");
    assert_true(json_array_size(json_object_get(a, "messages")) < 50);
    assert_non_null(json_object_get(a, "next"));
}

/* ---- limits, routes, the end ---------------------------------------------------------------- */

static void beyond_the_active_limit_mail_waits_on_disk_in_order(void **state)
{
    (void)state;
    start_again_with("qmgr_message_active_limit = 2\nqmgr_message_recipient_limit = 2\n");
    for (int i = 0; i < 6; i++) {
        char rcpt[40];

        (void)snprintf(rcpt, sizeof rcpt, "u%d@there%d.test", i, i);
        put("s@from.test", rcpt);
    }
    settle();
    assert_int_equal(site.done_count, 6);
    assert_int_equal(site.count, 2);
    assert_true(logged("qmgr_message_active_limit: "));
    for (size_t i = 0; i < 6; i++) {
        char want[40];

        (void)snprintf(want, sizeof want, "u%zu@there%zu.test", i, i);
        check_address(i, 0, want);
        sent(i);
    }
    assert_int_equal(messages(), 0);
}

/* One of 32 places is for a class with less mail in memory than the others have. */
static void bulk_that_fills_the_active_queue_keeps_no_other_class_out(void **state)
{
    (void)state;
    start_again_with("qmgr_message_active_limit = 32\nqmgr_message_recipient_limit = 32\n"
                     "default_class = sender\n");
    for (int i = 0; i < 60; i++) {
        char rcpt[40];

        (void)snprintf(rcpt, sizeof rcpt, "u%d@there%d.test", i, i);
        put("bulk@from.test", rcpt);
    }
    settle();
    assert_int_equal(site.count, 30);
    submit("reset@from.test", "b@there.test");
    assert_int_equal(site.count, 31);
    check_address(30, 0, "b@there.test");
    for (size_t i = 0; i < 61; i++) {
        sent(i);
    }
    assert_int_equal(messages(), 0);
}

static void new_and_deferred_mail_take_turns(void **state)
{
    size_t old = 0;

    (void)state;
    start_again_with("qmgr_message_active_limit = 4\nqmgr_message_recipient_limit = 4\n"
                     "qmgr_destination_share = 0\n");
    for (int i = 0; i < 8; i++) {
        submit("old@from.test", "b@there.test");
        deferred((size_t)i);
    }
    pass_time(HOUR_US);
    forget_given();
    settle();
    restart("qmgr_message_active_limit = 1\nqmgr_message_recipient_limit = 1\n"
            "qmgr_destination_share = 0\n");
    for (int i = 0; i < 4; i++) {
        put("new@from.test", "b@there.test");
    }
    settle();
    restart("qmgr_message_active_limit = 8\nqmgr_message_recipient_limit = 8\n"
            "qmgr_destination_share = 0\n"
            "initial_destination_concurrency = 20\n");
    assert_int_equal(site.count, 8);
    for (size_t i = 0; i < 8; i++) {
        old += slice_equal(site.given[i].m.sender, SLICE("old@from.test"));
    }
    assert_int_equal(old, 4);
}

/* ---- mail that waits on disk for its destination ----------------------------------------------
 */

/* Room for ten messages, and one delivery at a time to each destination. */
static const char narrow[] = "qmgr_message_active_limit = 10\nqmgr_message_recipient_limit = 10\n"
                             "initial_destination_concurrency = 1\n"
                             "smtp_destination_concurrency_limit = 1\n";

static void submit_many(const char *site_name, int count)
{
    for (int i = 0; i < count; i++) {
        char rcpt[60];

        (void)snprintf(rcpt, sizeof rcpt, "u%d@%s", i, site_name);
        submit("s@from.test", rcpt);
    }
}

/* `count` clients send at once; turns until all have their answers. How many waited for others? */
static unsigned send_together(int count)
{
    const struct batch *batch = &((struct queue *)site.role.state)->batch;
    size_t before = site.done_count;
    unsigned waited = 0;

    for (int i = 0; i < count; i++) {
        put("s@from.test", "r@mute.test");
    }
    for (int i = 0; i < 1000 && site.done_count < before + (size_t)count; i++) {
        turn();
        if (batch->gathers) {
            waited++;
            assert_true(site.done_count < before + (size_t)count); /* not committed, not answered */
            clock_set_offset(clock_offset() + BATCH_GATHER_US);
        }
    }
    assert_int_equal(site.done_count, before + (size_t)count);
    return waited;
}

static void the_first_of_many_submissions_waits_for_the_others(void **state)
{
    (void)state;
    assert_int_equal(send_together(1), 0); /* a quiet system commits at once */
    for (int i = 0; i < 20; i++) {
        (void)send_together(8);
    }
    assert_int_equal(send_together(1), 1);
    for (int i = 0; i < 20; i++) {
        (void)send_together(1);
    }
    assert_int_equal(send_together(1), 0); /* and one that has become quiet, again */
    assert_int_equal(send_together(2), 0);
}

static void the_times_of_much_mail_move_page_by_page(void **state)
{
    (void)state;
    start_again_with(narrow);
    submit_many("full.test", 250);
    assert_int_equal(site.count, 1);
    set_clock(-3 * DAY_US);
    assert_true(logged("the times of 250 waiting messages were looked at"));
    for (size_t i = 0; i < 250; i++) {
        assert_int_equal(site.count, i + 1);
        sent(i);
    }
    assert_int_equal(messages(), 0);
}

static void mail_that_is_deferred_while_times_move_waits_as_long_as_ever(void **state)
{
    (void)state;
    start_again_with(narrow);
    submit_many("full.test", 250);
    submit("s@from.test", "b@there.test");
    assert_int_equal(site.count, 2);
    clock_set_step(365 * DAY_US);
    deferred(1); /* the step is seen at this event */
    pass_time(301 * US_PER_S);
    settle(); /* nothing is at hand at first */
    assert_int_equal(site.count, 3);
    check_address(2, 0, "b@there.test");
}

static json_int_t status_number(const char *name)
{
    return number(ask(200, "{\"op\":\"status\"}"), name);
}

static void a_full_destination_leaves_room_and_gets_all_its_mail_in_order(void **state)
{
    (void)state;
    start_again_with(narrow);
    submit_many("full.test", 30);
    assert_int_equal(site.count, 1);
    assert_true(status_number("active_messages") <= 6);
    assert_string_equal(state_of(site.done_ids[29]), "deferred");
    assert_true(logged("(waits on disk: smtp/full.test holds its share of the active queue)"));
    submit("s@from.test", "b@well.test");
    assert_int_equal(site.count, 2);
    check_address(1, 0, "b@well.test");
    sent(1);
    for (size_t i = 0; i < 30; i++) {
        char want[40];

        (void)snprintf(want, sizeof want, "u%zu@full.test", i);
        check_address(i == 0 ? 0 : i + 1, 0, want);
        sent(i == 0 ? 0 : i + 1);
    }
    assert_int_equal(messages(), 0);
    assert_int_equal(status_number("parked_destinations"), 0);
}

static void mail_for_several_destinations_is_not_parked(void **state)
{
    (void)state;
    start_again_with(narrow);
    submit_many("full.test", 20);
    submit("s@from.test", "b@well.test c@full.test");
    assert_int_equal(site.count, 2);
    check_address(1, 0, "b@well.test");
    sent(1);
}

static void what_is_parked_is_known_after_a_restart(void **state)
{
    size_t done = 0;

    (void)state;
    start_again_with(narrow);
    submit_many("full.test", 20);
    restart(narrow);
    assert_int_equal(site.count, 1);
    check_address(0, 0, "u0@full.test");
    assert_true(status_number("active_messages") <= 6);
    while (done < site.count) {
        sent(done++);
    }
    assert_int_equal(done, 20);
    assert_int_equal(messages(), 0);
}

/* Each class is parked for itself: few messages of one go between many of another. */
static void parked_classes_take_turns_after_a_restart_too(void **state)
{
    char conf[400];
    size_t done = 0, last = 0;

    (void)state;
    (void)snprintf(conf, sizeof conf, "%sdefault_class = sender\n", narrow);
    start_again_with(conf);
    submit_many("full.test", 40);
    for (int i = 0; i < 8; i++) {
        submit("other@from.test", "r@full.test");
    }
    assert_true(status_number("active_messages") <= 10);
    assert_string_equal(state_of(site.done_ids[47]), "deferred");
    restart(conf);
    for (; done < site.count; done++) {
        if (slice_equal(site.given[done].m.sender, SLICE("other@from.test"))) {
            last = done;
        }
        sent(done);
    }
    assert_int_equal(done, 48);
    assert_int_equal(messages(), 0);
    assert_true(last < 24);
    assert_int_equal(status_number("parked_destinations"), 0);
}

/* Nobody asks for it while its destination is full, but it is looked at. */
static void what_is_parked_too_long_is_told_of_and_returned(void **state)
{
    char conf[400];

    (void)state;
    (void)snprintf(conf, sizeof conf,
                   "%sdelay_warning_time = 1h\nmaximal_queue_lifetime = 1d\n"
                   "maximal_backoff_time = 4000s\n",
                   narrow);
    start_again_with(conf);
    submit_many("full.test", 20);
    const char *last = site.done_ids[19];
    check_wait(last, 300);
    pass_time(400 * US_PER_S);
    check_wait(last, 400);
    pass_time(HOUR_US - 400 * US_PER_S);
    assert_true(logged("sender delay notification: "));
    assert_string_equal(state_of(last), "deferred");
    pass_time(DAY_US);
    assert_true(logged("status=expired, returned to sender"));
    ask(404, "{\"op\":\"show\",\"id\":\"%s\"}", last);
}

static void mail_of_a_dead_destination_comes_back_when_it_is_well(void **state)
{
    char conf[400];

    (void)state;
    (void)snprintf(conf, sizeof conf, "%sconcurrency_feedback_rule = postfix\n", narrow);
    start_again_with(conf);
    submit_many("dead.test", 4);
    verdict(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.1", "connect to dead.test: refused");
    assert_true(logged("destination is dead"));
    assert_int_equal(site.count, 1);
    pass_time(2000 * US_PER_S);
    verdict(1, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.1", "connect to dead.test: refused");
    assert_int_equal(site.count, 2);
    check_wait(site.done_ids[3], 2000);
    /* The destination is dead for 300 s. What was tried has a time of its own, as before. */
    pass_time(310 * US_PER_S);
    for (size_t i = 2; i < site.count; i++) {
        sent(i);
    }
    assert_int_equal(site.count, 5);
    assert_int_equal(messages(), 1);
}

/* ---- new mail and deferred mail ------------------------------------------------------------- */

/* The mailbox in the address of a delivery's first recipient. */
static char mailbox_of(size_t i)
{
    return site.given[i].rcpts[0].address.ptr[0];
}

/* 60 messages are deferred as their site is dead; when it is back and a few of them are in memory 5
 * new ones come. */
static void new_mail_does_not_wait_for_the_deferred_mail_of_its_site(void **state)
{
    static const char *const shares[] = {"100", "0"};

    (void)state;
    for (size_t k = 0; k < COUNT(shares); k++) {
        char conf[400], rcpt[60];
        size_t done, at_once, came, last = 0;

        (void)snprintf(conf, sizeof conf,
                       "qmgr_message_active_limit = 20\nqmgr_message_recipient_limit = 20\n"
                       "initial_destination_concurrency = 1\n"
                       "smtp_destination_concurrency_limit = 1\n"
                       "concurrency_feedback_rule = postfix\nqmgr_destination_share = %s\n",
                       shares[k]);
        start_again_with(conf);
        submit_many("site.test", 60);
        verdict(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.1", "connect to it: refused");
        assert_true(logged("destination is dead"));
        assert_int_equal(status_number("active_messages"), 0);
        while (park_ageing_at(&inside()->parking).us != MONO_NEVER.us) {
            pass_time(US_PER_S); /* parked new mail becomes deferred mail, page by page */
        }
        pass_time(300 * US_PER_S);
        assert_int_equal(site.count, 2);
        at_once = (size_t)status_number("active_messages");
        came = at_once; /* behind the one that was tried */
        for (int i = 0; i < 5; i++) {
            (void)snprintf(rcpt, sizeof rcpt, "n%d@site.test", i);
            submit("s@from.test", rcpt);
        }
        for (done = 1; done < site.count; done++) {
            if (mailbox_of(done) == 'n') {
                last = done;
            }
            sent(done);
        }
        assert_true(done >= 64);              /* what was tried itself has a time of its own */
        assert_true(last > came);             /* what was in memory goes first, */
        assert_true(last < came + 2 * 5 + 1); /* and then every other one is new */
    }
}

/* New mail fills the active queue, more of it waits and comes, for other sites. */
static void deferred_mail_gets_places_while_new_mail_waits(void **state)
{
    static const char *const limits[] = {"1", "2", "3", "20"};

    (void)state;
    for (size_t k = 0; k < COUNT(limits); k++) {
        size_t limit = (size_t)atoi(limits[k]), taken = 0, number = 0, from;
        char conf[400], rcpt[60];

        (void)snprintf(conf, sizeof conf,
                       "qmgr_message_active_limit = %s\nqmgr_message_recipient_limit = 20\n"
                       "retry_jitter = 0\n",
                       limits[k]);
        start_again_with(conf);
        for (size_t i = 0; i < 10; i++) {
            (void)snprintf(rcpt, sizeof rcpt, "d%zu@later%zu.test", i, i);
            submit("s@from.test", rcpt);
            deferred(i);
        }
        for (; number < 2 * limit; number++) {
            (void)snprintf(rcpt, sizeof rcpt, "n@new%zu.test", number);
            submit("s@from.test", rcpt);
        }
        assert_int_equal(site.count, 10 + limit);
        pass_time(301 * US_PER_S);
        assert_int_equal(site.count, 10 + limit);
        from = site.count;
        for (size_t done = 10; done < from + 20; done++) {
            (void)snprintf(rcpt, sizeof rcpt, "n@new%zu.test", number++);
            submit("s@from.test", rcpt);
            sent(done);
            assert_int_equal(site.count, done + limit + 1);
            taken += done >= from && mailbox_of(done) == 'd';
        }
        assert_int_equal(taken, 10); /* of 20 places */
    }
}

/* Deferred mail comes for ever, and new mail gets every other place. */
static void new_mail_gets_places_while_deferred_mail_waits(void **state)
{
    size_t taken = 0;
    char rcpt[60];

    (void)state;
    start_again_with("qmgr_message_active_limit = 2\nqmgr_message_recipient_limit = 20\n"
                     "retry_jitter = 0\n");
    for (size_t i = 0; i < 40; i++) {
        (void)snprintf(rcpt, sizeof rcpt, "d%zu@later%zu.test", i, i);
        submit("s@from.test", rcpt);
        deferred(i);
    }
    pass_time(301 * US_PER_S);
    assert_int_equal(site.count, 42);
    for (size_t i = 0; i < 10; i++) {
        (void)snprintf(rcpt, sizeof rcpt, "n@new%zu.test", i);
        submit("s@from.test", rcpt);
    }
    for (size_t done = 40; done < 62; done++) {
        sent(done);
        taken += mailbox_of(done) == 'n';
    }
    assert_int_equal(taken, 10); /* of the 20 places after the first two */
}

/* Each of 1,000 has its place in the spool changed; a turn does so for some of them. */
static void a_death_with_much_mail_does_not_keep_other_mail_waiting(void **state)
{
    (void)state;
    start_again_with("initial_destination_concurrency = 1\nqmgr_destination_share = 0\n"
                     "concurrency_feedback_rule = postfix\n");
    for (int i = 0; i < 1000; i++) {
        put("s@from.test", "r@dead.test");
    }
    for (int i = 0; i < 100 && site.done_count < 1000; i++) {
        settle();
    }
    assert_int_equal(site.count, 1);
    put("s@from.test", "r@well.test");
    put_verdict(0, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.1", "", "connect to it: refused");
    for (int i = 0; i < 20 && site.count < 2; i++) {
        clock_set_offset(clock_offset() + BATCH_GATHER_US); /* results alone wait for longer */
        turn();
    }
    assert_true(logged("destination is dead"));
    assert_int_equal(site.count, 2);
    check_address(1, 0, "r@well.test");
    assert_true(HASH_COUNT(((struct queue *)site.role.state)->active.msgs) > 100);
    assert_true(goes_on());
    for (int i = 0; i < 100 && status_number("active_messages") > 1; i++) {
        settle();
    }
    assert_int_equal(status_number("active_messages"), 1);
    assert_string_equal(state_of(site.done_ids[0]), "deferred");
    assert_string_equal(state_of(site.done_ids[999]), "deferred");
}

/* What was deferred or parked together is spread by a tenth of its wait. */
static void a_backlog_does_not_come_back_as_one_wave(void **state)
{
    double first[2] = {1e9, 1e9}, last[2] = {0, 0};
    char conf[400];

    (void)state;
    (void)snprintf(conf, sizeof conf, "%sretry_jitter = 10\n", narrow);
    start_again_with(conf);
    submit_many("full.test", 40);
    for (size_t i = 0; i < 20; i++) {
        deferred(i);
    }
    for (size_t i = 0; i < 40; i++) {
        double wait = wait_of(site.done_ids[i]);
        size_t parked = i / 20;

        if (strcmp(state_of(site.done_ids[i]), "active") == 0) {
            continue;
        }
        assert_true(wait > 295 && wait < 335);
        first[parked] = wait < first[parked] ? wait : first[parked];
        last[parked] = wait > last[parked] ? wait : last[parked];
    }
    assert_true(last[0] - first[0] > 5);
    assert_true(last[1] - first[1] > 5);
}

static void what_is_parked_can_be_held_removed_and_requeued(void **state)
{
    (void)state;
    start_again_with(narrow);
    submit_many("full.test", 20);
    const char *held = site.done_ids[17], *removed = site.done_ids[18], *again = site.done_ids[19];

    changed("hold", held);
    changed("delete", removed);
    changed("requeue", again);
    changed("flush", site.done_ids[16]);
    assert_string_equal(state_of(held), "hold");
    assert_int_equal(site.count, 1);
    for (size_t i = 0; i < site.count; i++) {
        sent(i);
    }
    assert_int_equal(site.count, 18);
    assert_int_equal(messages(), 1);
    changed("release", held);
    assert_int_equal(site.count, 19);
    sent(18);
    assert_int_equal(messages(), 0);
}

static void a_reload_frees_parked_mail_from_its_old_route(void **state)
{
    char conf[400];

    (void)state;
    start_again_with(narrow);
    submit_many("full.test", 20);
    (void)snprintf(conf, sizeof conf, "%srelayhost = [relay.test]\n", narrow);
    reload(conf);
    for (size_t i = 0; i < site.count; i++) {
        sent(i);
    }
    assert_int_equal(site.count, 20);
    assert_true(slice_equal(site.given[19].m.nexthop, SLICE("[relay.test]")));
    assert_int_equal(messages(), 0);
}

static void a_reload_moves_mail_to_its_new_route(void **state)
{
    (void)state;
    start_again_with("smtp_destination_concurrency_limit = 1\n"
                     "initial_destination_concurrency = 1\n");
    for (int i = 0; i < 3; i++) {
        submit("s@from.test", "b@there.test");
    }
    assert_int_equal(site.count, 1);
    reload("relayhost = [Relay.Test]:2525\n");
    assert_int_equal(site.count, 3);
    for (size_t i = 1; i < 3; i++) {
        assert_true(slice_equal(site.given[i].m.nexthop, SLICE("[Relay.Test]:2525")));
    }
    for (size_t i = 0; i < 3; i++) {
        sent(i);
    }
    assert_int_equal(messages(), 0);
}

static void a_reload_keeps_the_next_hop_as_it_was_written(void **state)
{
    static const char one[] =
        "relayhost = [Relay.Test]:2525\nsmtp_destination_recipient_limit = 1\n"
        "smtp_destination_concurrency_limit = 1\n"
        "initial_destination_concurrency = 1\n";

    (void)state;
    start_again_with(one);
    submit("s@from.test", "B@there.test");
    submit("s@from.test", "B@there.test");
    assert_int_equal(site.count, 1);
    reload(one);
    sent(0);
    assert_int_equal(site.count, 2);
    assert_true(slice_equal(site.given[1].m.nexthop, SLICE("[Relay.Test]:2525")));
}

static void deferred_transports_wait_until_they_are_asked_for(void **state)
{
    (void)state;
    start_again_with("defer_transports = smtp\n");
    const char *id = submit("s@from.test", "b@there.test");

    assert_int_equal(site.count, 0);
    assert_string_equal(state_of(id), "deferred");
    assert_true(logged("dsn=4.3.2, status=deferred (deferred transport)"));
    pass_time(HOUR_US);
    assert_int_equal(site.count, 0);
    changed("flush", id);
    assert_int_equal(site.count, 1);
    sent(0);
    assert_int_equal(messages(), 0);
}

static void mail_for_a_kind_of_agent_that_no_program_has_is_deferred(void **state)
{
    (void)state;
    start_again_with("smtp/*\n\tagent=ta command=\"agent\"\n");
    const char *id = submit("s@from.test", "b@there.test");

    assert_int_equal(site.count, 0);
    assert_string_equal(state_of(id), "deferred");
    assert_true(logged("status=deferred (no process delivers for this transport)"));
}

static void an_operation_that_no_program_has_is_refused(void **state)
{
    (void)state;
    (void)ask(404, "{\"op\":\"threads\"}"); /* the answer is the fixture's */
    (void)ask(400, "{\"ops\":\"status\"}");
}

static void a_destination_that_clogs_the_queue_is_named(void **state)
{
    (void)state;
    start_again_with("qmgr_message_active_limit = 10\nqmgr_message_recipient_limit = 10\n"
                     "initial_destination_concurrency = 1\n");
    for (int i = 0; i < 5; i++) {
        submit("s@from.test", "b@there.test");
    }
    assert_true(logged("mail for there.test is using up 3 of 10 active queue entries"));
    assert_false(logged("mail for there.test is using up 4 of"));
}

static void changes_of_a_window_are_logged_when_wanted(void **state)
{
    (void)state;
    start_again_with("destination_concurrency_feedback_debug = yes\n");
    for (int i = 0; i < 3; i++) {
        submit("s@from.test", "b@there.test");
    }
    sent(0);
    assert_true(logged("qmgr_queue_unthrottle: queue there.test: limit 20 window 6 success"));
    verdict(1, OUTCOME_SITE_FAIL, VERDICT_DEFERRED, "4.4.1", "connect to there.test: refused");
    assert_true(logged("qmgr_queue_throttle: queue there.test: limit 20 window"));
}

/* Behind the queue's back. */
static void damage_recipients(void)
{
    char path[100];
    sqlite3 *db;

    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "PRAGMA ignore_check_constraints = 1;"
                                  "UPDATE recipient SET notify = 9999999",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void a_row_that_makes_no_sense_is_quarantined_and_kept(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", "b@there.test");
    deferred(0);
    damage_recipients();
    pass_time(HOUR_US);
    assert_int_equal(site.count, 1);
    assert_string_equal(state_of(id), "corrupt");
    assert_int_equal(messages(), 1);
}

static void damage(const char *sql)
{
    char path[100];
    sqlite3 *db;

    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Those who are left are shown, and delivered to when an operator says so; nobody is told that the
 * others got it. */
static void recipients_that_are_missing_are_told(void **state)
{
    char id[SPOOL_ID_TEXT_MAX];

    (void)state;
    (void)snprintf(id, sizeof id, "%s",
                   submit("s@from.test", "a@there.test b@there.test c@there.test"));
    deferred(0);
    damage("DELETE FROM recipient WHERE n = 2");
    pass_time(HOUR_US);
    assert_int_equal(site.count, 1);
    assert_string_equal(state_of(id), "corrupt");
    assert_true(logged("of 3 recipients that wait 2 are there"));
    assert_false(logged("removed"));
    assert_int_equal(json_array_size(json_object_get(
                         ask(200, "{\"op\":\"show\",\"id\":\"%s\"}", id), "recipients")),
                     2);
    ask(200, "{\"op\":\"hold\",\"ids\":[\"%s\"]}", id);
    settle();
    ask(200, "{\"op\":\"release\",\"ids\":[\"%s\"]}", id);
    pass_time(2 * US_PER_S);
    assert_int_equal(site.count, 2);
    assert_int_equal(site.given[1].m.rcpt_count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

static void all_recipients_missing_is_no_end(void **state)
{
    char id[SPOOL_ID_TEXT_MAX];

    (void)state;
    (void)snprintf(id, sizeof id, "%s", submit("s@from.test", "a@there.test c@there.test"));
    deferred(0);
    damage("DELETE FROM recipient");
    pass_time(HOUR_US);
    assert_string_equal(state_of(id), "corrupt");
    assert_int_equal(site.count, 1);
    assert_int_equal(messages(), 1);
}

static void a_number_out_of_order_stops_nothing(void **state)
{
    char id[SPOOL_ID_TEXT_MAX];

    (void)state;
    (void)snprintf(id, sizeof id, "%s",
                   submit("s@from.test", "a@there.test b@there.test c@there.test"));
    deferred(0);
    damage("UPDATE recipient SET n = 7 WHERE n = 2");
    restart("");
    size_t before = site.count;
    submit("s@from.test", "d@other.test");
    assert_int_equal(site.count, before + 1);
    sent(before);
    pass_time(HOUR_US);
    assert_string_equal(state_of(id), "corrupt");
    assert_int_equal(site.count, before + 1);
    assert_int_equal(messages(), 1);
}

static void a_nul_in_a_row_spoils_no_list(void **state)
{
    (void)state;
    submit("s@from.test", "a@there.test");
    deferred(0);
    submit("s@from.test", "b@there.test");
    deferred(1);
    damage("UPDATE recipient SET diagnostic = 'a' || char(0) || 'b' WHERE address LIKE 'a@%';"
           "UPDATE message SET client = 'x' || char(0) WHERE id = (SELECT max(id) FROM message)");
    assert_int_equal(json_array_size(json_object_get(ask(200, "{\"op\":\"list\"}"), "messages")),
                     2);
    pass_time(HOUR_US);
    assert_int_equal(json_array_size(json_object_get(ask(200, "{\"op\":\"list\"}"), "messages")),
                     2);
}

/* The first page of recipients, which holds those of the first message alone. */
static void lose_a_page(void)
{
    unsigned char root[4096], zeros[4096] = {0};
    char path[100];
    sqlite3_stmt *st;
    sqlite3 *db;
    off_t at;
    int fd;

    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT rootpage FROM sqlite_schema WHERE name = "
                                        "'recipient'",
                                        -1, &st, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    at = (sqlite3_column_int(st, 0) - 1) * (off_t)4096;
    sqlite3_finalize(st);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, root, sizeof root, at), sizeof root);
    assert_int_equal(root[0], 2); /* an interior page of an index */
    unsigned char *cell = root + (root[12] << 8 | root[13]);
    at = ((off_t)cell[0] << 24 | cell[1] << 16 | cell[2] << 8 | cell[3]) - 1;
    assert_int_equal(pwrite(fd, zeros, sizeof zeros, at * 4096), sizeof zeros);
    close(fd);
}

static void a_page_that_is_lost_stops_no_other_mail(void **state)
{
    char id[SPOOL_ID_TEXT_MAX];
    struct buf rcpts;

    (void)state;
    buf_init(&rcpts, 1u << 20);
    for (int i = 0; i < 200; i++) {
        buf_addf(&rcpts, "%suser%d@there.test", i > 0 ? " " : "", i);
    }
    (void)snprintf(id, sizeof id, "%s", submit("s@from.test", buf_cstr(&rcpts)));
    buf_fini(&rcpts);
    for (size_t i = 0; i < site.count; i++) {
        deferred(i);
    }
    role_down();
    lose_a_page();
    site.findings_wanted = true;
    role_up("");
    size_t before = site.count;
    pass_time(HOUR_US);
    submit("s@from.test", "b@other.test");
    assert_int_equal(site.count, before + 1);
    sent(before);
    pass_time(HOUR_US);
    assert_true(status_number("audit_findings") > 0);
    assert_true(logged("waits for `sluice spool repair'"));
    submit("s@from.test", "c@other.test");
    sent(before + 1);
    assert_int_equal(site.count, before + 2); /* nothing of the first is tried over and over */
}

static unsigned logged_times(const char *wanted)
{
    char path[100], line[4096];
    unsigned count = 0;
    FILE *in;

    write_log();
    (void)snprintf(path, sizeof path, "%s/log", site.dir);
    in = fopen(path, "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in) != NULL) {
        count += strstr(line, wanted) != NULL;
    }
    assert_int_equal(fclose(in), 0);
    return count;
}

/* ---- damaged pages --------------------------------------------------------------------------- */

/* They take long, and are the same in all programs. */
#ifndef COMMITS_END_LATER

#define PAGE_BYTES      4096
#define MIXED_MESSAGES  28
#define MIXED_RCPTS_MAX 20
#define MIXED_BYTES_MAX 24000
#define MIXED_CONF      "spool_inline_limit = 10000\nminimal_backoff_time = 300s\n"

/* A spool with small and large messages, few and many recipients, deferred and held mail. */
static struct {
    char ids[MIXED_MESSAGES][SPOOL_ID_TEXT_MAX];
    unsigned rcpts[MIXED_MESSAGES];
    unsigned copies[MIXED_MESSAGES][MIXED_RCPTS_MAX];
    bool believes; /* the harm may look like a change that was meant */
} mixed;

static bool mixed_is_held(unsigned i)
{
    return i % 9 == 4;
}

/* The content of the i-th message; its length and each line depend on `i`. */
static struct slice mixed_content(unsigned i, char room[MIXED_BYTES_MAX])
{
    static const size_t sizes[] = {100, 700, 2500, 300, 6000, 22000, 1500};
    size_t wanted = sizes[i % (sizeof sizes / sizeof sizes[0])], len = 0;

    len += (size_t)snprintf(room, MIXED_BYTES_MAX, "Subject: %u\r\n\r\n", i);
    for (unsigned line = 0; len < wanted; line++) {
        len += (size_t)snprintf(room + len, MIXED_BYTES_MAX - len, "%u %u filling\r\n", i, line);
    }
    return slice_of(room, len);
}

/* Behind the queue's back: a copy of the store, or a copy that takes its place. */
static void copy_store(bool back)
{
    char command[400];

    (void)snprintf(command, sizeof command,
                   back ? "cd %s && rm -rf queue.db* unstored && cp -a saved/. ."
                        : "cd %s && mkdir saved && cp -a queue.db* saved/",
                   site.dir);
    assert_int_equal(system(command), 0);
}

static void mixed_fill(void)
{
    char content[MIXED_BYTES_MAX];
    struct buf rcpts;

    memset(&mixed, 0, sizeof mixed);
    buf_init(&rcpts, 1u << 16);
    for (unsigned i = 0; i < MIXED_MESSAGES; i++) {
        static const unsigned counts[] = {1, 2, 4, 1, MIXED_RCPTS_MAX};

        mixed.rcpts[i] = counts[i % 5];
        buf_clear(&rcpts);
        for (unsigned j = 0; j < mixed.rcpts[i]; j++) {
            buf_addf(&rcpts, "%sr%u.%u@there.test", j > 0 ? " " : "", i, j);
        }
        put_full("s@from.test", buf_cstr(&rcpts), 0, 0, "", mixed_content(i, content), -1, 0);
        settle();
        assert_int_equal(site.done[site.done_count - 1].code, 250);
        (void)strcpy(mixed.ids[i], site.done_ids[site.done_count - 1]);
        for (size_t g = 0; g < site.count; g++) {
            deferred(g);
        }
        forget_given();
        site.done_count = 0;
        if (mixed_is_held(i)) {
            changed("hold", mixed.ids[i]);
        }
    }
    buf_fini(&rcpts);
}

/* All that was handed out is sent; the copies are counted, and held against what was submitted. */
static void mixed_deliver(void)
{
    for (int idle = 0; idle < 2;) {
        size_t count = site.count;

        for (size_t g = 0; g < count; g++) {
            const struct given *given = &site.given[g];
            char expected[MIXED_BYTES_MAX];
            struct slice content, body;
            unsigned i = 0, j = 0;

            for (uint32_t r = 0; r < given->m.rcpt_count; r++) {
                char address[ADDRESS_MAX + 1];

                (void)snprintf(address, sizeof address, "%.*s",
                               SLICE_ARGS(given->rcpts[r].address));
                if (sscanf(address, "r%u.%u@there.test", &i, &j) != 2) {
                    assert_int_equal(given->m.sender.len, 0); /* it is a bounce or a delay notice */
                    continue;
                }
                assert_true(i < MIXED_MESSAGES && j < mixed.rcpts[i]);
                assert_true(mixed.believes || !mixed_is_held(i));
                mixed.copies[i][j]++;
            }
            content = mixed_content(i, expected);
            body = given->m.content;
            if (given->m.place == CONTENT_FD) {
                assert_true(given->m.size > content.len);
            } else if (given->m.sender.len > 0) {
                assert_true(body.len > content.len);
                assert_memory_equal(body.ptr + body.len - content.len, content.ptr, content.len);
            }
            put_verdict(g, OUTCOME_OK, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok", "");
        }
        settle();
        idle = count == 0 ? idle + 1 : 0;
        forget_first_given(count);
    }
}

/* Does the process begin? Else the log names the command. */
static bool mixed_up(const char *what)
{
    if (role_try(MIXED_CONF)) {
        return true;
    }
    if (site.start_status != EX_DATAERR || !logged("sluice spool repair")) {
        fail_msg("%s: the start ends with %d and does not name the command", what,
                 site.start_status);
    }
    return false;
}

static off_t mixed_pages(void)
{
    struct stat st;
    char path[100];

    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    assert_return_code(stat(path, &st), 0);
    return st.st_size / PAGE_BYTES;
}

/* What the harm is: `bytes` are written at `at`. */
static void mixed_harm(off_t at, const void *bytes, size_t len)
{
    char path[100];
    int fd;

    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, at), len);
    (void)close(fd);
}

static void forget_log(void)
{
    char path[100];

    write_log();
    (void)snprintf(path, sizeof path, "%s/log", site.dir);
    assert_return_code(truncate(path, 0), 0);
}

/* No recipient has two copies; who has none is held, or named. */
static void mixed_check(const char *what)
{
    for (unsigned i = 0; i < MIXED_MESSAGES; i++) {
        for (unsigned j = 0; j < mixed.rcpts[i]; j++) {
            char line[100];

            if (mixed.copies[i][j] > 1) {
                fail_msg("%s: %u copies for r%u.%u of %s", what, mixed.copies[i][j], i, j,
                         mixed.ids[i]);
            }
            (void)snprintf(line, sizeof line, "%s: ", mixed.ids[i]);
            if (mixed.copies[i][j] == 0 && !mixed.believes && !mixed_is_held(i) && !logged(line) &&
                !logged("mail after the damage")) {
                fail_msg("%s: %s is not named", what, mixed.ids[i]);
            }
        }
    }
    if (logged_times("storage works again") > 1) {
        fail_msg("%s: the storage fails and works %u times", what,
                 logged_times("storage works again"));
    }
}

/* The life of the mixed spool with harm done to it: before a start, or while the process has not
 * read those pages yet. */
static void mixed_life(const char *what, bool running, off_t at, const void *bytes, size_t len)
{
    memset(mixed.copies, 0, sizeof mixed.copies);
    forget_log();
    copy_store(true);
    if (!running) {
        mixed_harm(at, bytes, len);
    }
    if (mixed_up(what)) {
        if (running) {
            mixed_harm(at, bytes, len);
        }
        for (int starts = 0; starts < 2; starts++) {
            for (int hours = 0; hours < 3; hours++) {
                pass_time(HOUR_US);
                mixed_deliver();
            }
            role_down();
            if (starts == 1 || !mixed_up(what)) {
                break;
            }
        }
        mixed_check(what);
    }
}

static void mixed_begin(void)
{
    start_again_with(MIXED_CONF);
    site.findings_wanted = true;
    mixed_fill();
    role_down();
    copy_store(false);
}

static void mixed_end(void)
{
    copy_store(true);
    role_up(MIXED_CONF);
}

static void whichever_page_is_lost_no_recipient_has_two_copies(void **state)
{
    static const unsigned char zeros[PAGE_BYTES];
    off_t pages;

    (void)state;
    mixed_begin();
    pages = mixed_pages();
    for (off_t page = 0; page < pages; page++) {
        for (int running = 0; running < 2; running++) {
            char what[100];

            (void)snprintf(what, sizeof what, "page %d, %s", (int)page + 1,
                           running ? "running" : "stopped");
            mixed_life(what, running, page * PAGE_BYTES, zeros, sizeof zeros);
        }
    }
    mixed_end();
}

static unsigned char mixed_byte(off_t at)
{
    unsigned char byte;
    char path[100];
    int fd;

    copy_store(true);
    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    (void)close(fd);
    return byte;
}

/* Single bytes: of each page one in its header and one anywhere. A state or a time that is possible
 * is believed, so not all mail goes out or is named. */
static void whichever_byte_changes_no_recipient_has_two_copies(void **state)
{
    off_t pages;
    struct rng rng;

    (void)state;
    mixed_begin();
    pages = mixed_pages();
    mixed.believes = true;
    rng_init(&rng, 20261128);
    for (off_t page = 0; page < pages; page++) {
        for (int in_header = 0; in_header < 2; in_header++) {
            off_t at = page * PAGE_BYTES +
                       (off_t)(in_header ? rng_below(&rng, 12) : rng_below(&rng, PAGE_BYTES));
            unsigned char byte = mixed_byte(at) ^ (unsigned char)(1 + rng_below(&rng, 255));
            char what[100];

            (void)snprintf(what, sizeof what, "byte %ld is %d now", (long)at, byte);
            mixed_life(what, false, at, &byte, 1);
        }
    }
    mixed_end();
}

/* A leaf of a table or index, the `at`-th of them. */
static void lose_a_leaf(const char *name, int at)
{
    static const unsigned char zeros[PAGE_BYTES];
    sqlite3_stmt *st;
    char path[100];
    sqlite3 *db;
    off_t page;

    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = "
                                        "'leaf' ORDER BY pageno LIMIT 1 OFFSET ?2",
                                        -1, &st, NULL),
                     SQLITE_OK);
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int(st, 2, at);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    page = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    mixed_harm((page - 1) * PAGE_BYTES, zeros, sizeof zeros);
}

/* Those that can't be stored come to rest; each of the others costs one commit more at most. */
static void isolating_damage_in_a_batch_takes_a_commit_for_each_result_at_most(void **state)
{
    static const char wide[] = "default_destination_concurrency_limit = 400\n"
                               "initial_destination_concurrency = 400\n"
                               "minimal_backoff_time = 300s\n";
    enum { COUNT = 100 };
    char delivered[COUNT][SPOOL_ID_TEXT_MAX];
    uint64_t commits;
    size_t count;

    (void)state;
    start_again_with(wide);
    site.findings_wanted = true;
    for (unsigned i = 0; i < COUNT; i++) {
        (void)submit("s@from.test", "a@there.test b@there.test");
        deferred(0);
        forget_given();
        site.done_count = 0;
    }
    role_down();
    lose_a_leaf("content", 1);
    role_up(wide);
    pass_time(HOUR_US);
    count = site.count;
    assert_in_range(count, 10, COUNT - 1); /* some content can't be read */
    commits = inside()->batch.commits;
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(delivered[i], sizeof delivered[i], "%.*s", SLICE_ARGS(site.given[i].m.id));
        put_verdict(i, OUTCOME_OK, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok", "");
    }
    settle();
    assert_true(inside()->batch.commits - commits <= count + 10);
    assert_int_equal(logged_times("status=sent"), 2 * count);
    assert_int_equal(logged_times("commit failed"), 0);
    assert_int_equal(logged_times("storage works again"), 0);
    pass_time(HOUR_US);
    restart(wide);
    pass_time(HOUR_US);
    for (size_t i = 0; i < site.count; i++) { /* what could not be read may be readable by now */
        for (size_t j = 0; j < count; j++) {
            assert_false(slice_equal(site.given[i].m.id, slice_string(delivered[j])));
        }
    }
}

static void told_nothing(void *context, const char *line)
{
    (void)context;
    (void)line;
}

/* No operator is told that something was done with mail that waits for a repair. */
static void damaged_mail_is_refused(void)
{
    static const char *const ops[] = {"requeue", "release", "expire", "flush"};
    size_t damaged = 0;
    json_t *a;

    for (unsigned i = 0; i < MIXED_MESSAGES; i++) {
        struct msg_id id;

        assert_true(spool_id_parse(slice_string(mixed.ids[i]), &id));
        if (!damage_is_hidden(&inside()->damage, id)) {
            continue;
        }
        damaged++;
        for (size_t op = 0; op < COUNT(ops); op++) {
            a = ask(200, "{\"op\":\"%s\",\"ids\":[\"%s\"]}", ops[op], mixed.ids[i]);
            assert_int_equal(json_array_size(json_object_get(a, "changed")), 0);
            assert_int_equal(json_array_size(json_object_get(a, "errors")), 1);
        }
    }
    assert_true(damaged > 0);
    a = json_array_get(json_object_get(ask(200, "{\"op\":\"overview\"}"), "problems"), 0);
    assert_string_equal(text(a, "problem"), "damage");
}

static void results_that_rest_are_stored_after_a_repair(void **state)
{
    struct spool_repaired repaired;
    char path[100], url[100];
    struct buf error;

    (void)state;
    mixed_begin();
    (void)snprintf(path, sizeof path, "%s/unstored_results", site.dir);
    lose_a_leaf("recipient", 0);
    role_up(MIXED_CONF);
    pass_time(HOUR_US);
    mixed_deliver();
    damaged_mail_is_refused();
    role_down();
    assert_return_code(access(path, R_OK), 0);
    assert_true(logged("results could not be stored: they are kept in"));
    (void)snprintf(url, sizeof url, "sqlite:%s/queue.db", site.dir);
    buf_init(&error, 1000);
    assert_int_equal(spool_repair(url, told_nothing, NULL, &error, &repaired), 0);
    buf_fini(&error);
    role_up(MIXED_CONF);
    for (int i = 0; i < 3; i++) {
        pass_time(HOUR_US);
        mixed_deliver();
    }
    mixed_check("repaired");
    assert_int_equal(access(path, R_OK), -1);
}

#endif

/* A crash before the commit delivers again: then the log has one line for each. */
static void deliveries_are_logged_after_their_commit(void **state)
{
    (void)state;
    submit("a@here.test", "b@there.test");
    storage_fails(true);
    sent(0);
    assert_int_equal(logged_times("status=sent"), 0);
    storage_fails(false);
    pass_time(2 * US_PER_S);
    assert_int_equal(logged_times("status=sent"), 1);
    assert_int_equal(messages(), 0);
}

static void a_quarantine_waits_for_the_storage(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", "b@there.test");
    deferred(0);
    damage_recipients();
    storage_fails(true);
    pass_time(HOUR_US);
    assert_false(site.flow.storage_ok);
    storage_fails(false);
    pass_time(2 * US_PER_S);
    assert_true(site.flow.storage_ok);
    assert_int_equal(site.count, 1);
    assert_string_equal(state_of(id), "corrupt");
}

static void results_that_arrive_during_the_stop_count(void **state)
{
    (void)state;
    start_again_with("initial_destination_concurrency = 2\n");
    const char *first = submit("s@from.test", "b@there.test c@other.test");
    submit("s@from.test", "d@there.test");
    submit("s@from.test", "e@there.test"); /* waits */
    assert_int_equal(site.count, 3);
    site.role.stopping = true;
    queue_role.stop(&site.role);
    settle();
    assert_false(site.exited);
    submit_notify("s@from.test", "f@there.test", 0, 451);
    sent(0);
    deferred(1);
    bounced(2);
    assert_true(site.exited);
    assert_int_equal(site.count, 3);
    (void)first;
    restart("");
    /* The report, the one that waited; the deferred one keeps its time. */
    assert_int_equal(site.count, 2);
    assert_int_equal(messages(), 3);
}

static void a_stop_waits_for_results_only_so_long(void **state)
{
    (void)state;
    submit("s@from.test", "b@there.test");
    site.role.stopping = true;
    queue_role.stop(&site.role);
    settle();
    assert_false(site.exited);
    pass_time(site.conf->shutdown_timeout_us + US_PER_S);
    assert_true(site.exited);
    restart("");
    assert_int_equal(site.count, 1);
}

/* ---- the auditor ---------------------------------------------------------------------------- */

/* Enough time for a suspicion to be confirmed, without the word of a moved clock, which would make
 * the queue look at everything by itself. */
static void audit(void)
{
    for (int i = 0; i < 8; i++) {
        clock_set_offset(clock_offset() + 25 * US_PER_S);
        settle();
    }
}

static void check_findings(json_int_t findings, json_int_t repaired)
{
    site.findings_wanted = true;
    assert_int_equal(status_number("audit_findings"), findings);
    assert_int_equal(status_number("audit_repaired"), repaired);
}

/* A deferred message, 300 s before its time. */
static struct msg_id deferred_message(void)
{
    struct msg_id id;

    assert_true(spool_id_parse(slice_string(submit("s@from.test", "b@there.test")), &id));
    deferred(0);
    return id;
}

/* Claim it behind the queue's back. */
static void steal(struct msg_id id)
{
    struct msg_id claimed;
    size_t count;

    assert_int_equal(spool_claim(inside()->spool, SPOOL_DEFERRED, wall_after(clock_wall(), DAY_US),
                                 1, &claimed, &count),
                     0);
    assert_int_equal(count, 1);
    assert_int_equal(claimed.n, id.n);
}

static void the_auditor_finds_nothing_where_nothing_is_wrong(void **state)
{
    (void)state;
    (void)deferred_message();
    submit("s@from.test", "b@there.test");
    audit();
    assert_true(status_number("audit_rounds") >= 2);
    assert_int_equal(status_number("audit_findings"), 0);
}

static void a_claim_without_a_message_is_found_and_the_mail_goes_on(void **state)
{
    (void)state;
    steal(deferred_message());
    pass_time(400 * US_PER_S);
    assert_int_equal(site.count, 1); /* nobody moves it */
    audit();
    check_findings(1, 1);
    assert_true(logged(": it is claimed, and not in memory"));
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

static void a_message_that_the_scheduler_has_lost_goes_on(void **state)
{
    struct msg_id id = deferred_message();
    struct spool_message m;

    (void)state;
    steal(id);
    assert_int_equal(spool_read(inside()->spool, id, &m), 0);
    active_add(&inside()->active, &m, SLICE("personal"), clock_mono(), clock_wall());
    pass_time(400 * US_PER_S);
    assert_int_equal(site.count, 1);
    audit();
    check_findings(1, 1);
    assert_true(logged(": it is in memory, and the scheduler does not know it"));
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

static void a_delivery_that_the_scheduler_does_not_know_is_forgotten(void **state)
{
    static const uint32_t rcpts[] = {99};
    struct delivery *f;

    (void)state;
    submit("s@from.test", "b@there.test");
    f = delivery_add(&inside()->active, 12345, inside()->active.msgs, 0, SLICE("there.test"), rcpts,
                     1, clock_mono());
    f->sent = true;
    audit();
    check_findings(1, 1);
    assert_true(logged("a delivery to there.test that the scheduler does not know"));
    assert_null(delivery_find(&inside()->active, 12345));
    sent(0);
    assert_int_equal(messages(), 0);
}

static void a_message_that_is_not_claimed_any_more_is_read_anew(void **state)
{
    (void)state;
    start_again_with("initial_destination_concurrency = 1\n");
    submit("s@from.test", "b@there.test");
    submit("s@from.test", "c@there.test"); /* waits */
    spool_unclaim(inside()->spool, inside()->active.msgs->id);
    audit();
    check_findings(1, 1);
    assert_true(logged(": it is in memory, and not claimed"));
    for (size_t done = 0; done < site.count; done++) {
        sent(done);
        audit();
    }
    assert_int_equal(messages(), 0);
}

static void due_mail_that_is_overlooked_is_found(void **state)
{
    (void)state;
    (void)deferred_message();
    inside()->import.next_due = WALL_NEVER;
    for (int i = 0; i < 3; i++) {
        audit();
    }
    check_findings(1, 1);
    assert_true(logged(" s, there is room, and it is not read"));
    assert_int_equal(site.count, 2);
}

static void a_row_behind_the_order_of_due_times_is_found(void **state)
{
    struct msg_id id = deferred_message();
    char path[100], change[100], text[SPOOL_ID_TEXT_MAX];
    sqlite3 *db;

    (void)state;
    pass_time(HOUR_US); /* the order has been walked up to here */
    deferred(1);
    spool_id_print(id, text);
    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)snprintf(change, sizeof change, "UPDATE message SET due = 1000");
    assert_int_equal(sqlite3_exec(db, change, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    inside()->import.next_due = WALL_NEVER;
    audit();
    check_findings(1, 1);
    assert_true(logged(": it is due, and was overlooked"));
    assert_int_equal(site.count, 3);
    assert_string_equal(state_of(text), "active");
}

static void a_delivery_that_never_ends_is_told_of(void **state)
{
    (void)state;
    submit("s@from.test", "b@there.test");
    pass_time(2 * DAY_US);
    audit();
    check_findings(1, 0);
    assert_true(logged("smtp/there.test: a delivery has not ended"));
    sent(0);
    assert_int_equal(messages(), 0);
}

/* ---- commits that end later ------------------------------------------------------------------ */

/* From now on commits end, with `rc`. */
static void commits_end(int rc)
{
    site.later.rc = rc;
    memory_later_hold(&site.later, false);
    settle();
    site.later.rc = 0;
}

static void nothing_is_answered_before_its_commit_has_ended(void **state)
{
    (void)state;
    memory_later_hold(&site.later, true);
    put("a@here.test", "b@there.test");
    settle();
    put("a@here.test", "c@other.test");
    settle();
    put("a@here.test", "d@third.test"); /* a few wait for the end of the one that is under way */
    put("a@here.test", "e@third.test");
    settle();
    assert_int_equal(site.done_count, 0);
    assert_int_equal(site.count, 0);
    commits_end(0);
    assert_int_equal(site.done_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(site.done[i].code, 250);
    }
    assert_int_equal(site.count, 4);
    assert_int_equal(number(ask(200, "{\"op\":\"status\"}"), "commits"), 2);
}

static void put_many(int count)
{
    for (int i = 0; i < count; i++) {
        put("a@here.test", "many@there.test");
    }
    settle();
}

/* What it has changed can't be claimed before its end, however long that takes. */
static void what_a_late_commit_has_changed_is_not_overlooked(void **state)
{
    (void)state;
    submit("s@from.test", "b@there.test");
    memory_later_hold(&site.later, true);
    deferred(0);
    for (int i = 0; i < 3; i++) {
        audit();
    }
    commits_end(0);
    check_findings(0, 0);
    assert_int_equal(site.count, 2);
}

static void many_do_not_wait_for_the_commit_before_theirs(void **state)
{
    (void)state;
    memory_later_hold(&site.later, true);
    put_many(1);
    put_many(BATCH_ENOUGH_LATER); /* both are under way, as many as can be */
    put_many(BATCH_ENOUGH_LATER);
    put_many(1);
    commits_end(0);
    assert_int_equal(site.done_count, 2 * BATCH_ENOUGH_LATER + 2);
    assert_int_equal(number(ask(200, "{\"op\":\"status\"}"), "commits"), 3);
}

/* More clients than a commit had: what has come at its end waits for as many more. */
static void in_busy_times_commits_are_spaced_out(void **state)
{
    const struct batch *batch = &((struct queue *)site.role.state)->batch;

    (void)state;
    memory_later_hold(&site.later, true);
    put_many(BATCH_GATHER_MIN);
    put_many(BATCH_GATHER_MIN);
    pass_time(BATCH_SPACE_US / 2);
    memory_later_hold(&site.later, false);
    turn();
    assert_int_equal(site.done_count, 0);
    for (int i = 0; i < 10; i++) {
        turn();
    }
    assert_int_equal(site.done_count, BATCH_GATHER_MIN);
    assert_true(batch->is_spaced);
    for (int i = 0; i < BATCH_GATHER_MIN; i++) {
        put("a@here.test", "many@there.test");
    }
    for (int i = 0; i < 10; i++) {
        turn();
    }
    assert_int_equal(site.done_count, BATCH_GATHER_MIN);
    clock_set_offset(clock_offset() + BATCH_SPACE_US);
    for (int i = 0; i < 10; i++) {
        turn();
    }
    assert_int_equal(site.done_count, 3 * BATCH_GATHER_MIN);
    settle();
    assert_int_equal(number(ask(200, "{\"op\":\"status\"}"), "commits"), 2);
}

static void turns(int count)
{
    for (int i = 0; i < count; i++) {
        turn();
    }
}

static void clock_goes(int64_t us)
{
    clock_set_offset(clock_offset() + us);
    turns(10);
}

/* `count` messages are stored by one commit, which takes so long. */
static void store_slowly(int count, int64_t us)
{
    size_t before = site.done_count;

    memory_later_hold(&site.later, true);
    for (int i = 0; i < count; i++) {
        put("a@here.test", "many@there.test");
    }
    turns(10);
    clock_goes(us);
    assert_int_equal(site.done_count, before);
    memory_later_hold(&site.later, false);
    turns(10);
    assert_int_equal(site.done_count, before + (size_t)count);
}

/* The same clients send again, one before the others: it waits as long as their last commit took,
 * at most. */
static void the_first_of_many_waits_as_long_as_a_slow_commit_took(void **state)
{
    size_t before;

    (void)state;
    for (int i = 0; i < 20; i++) {
        store_slowly(8, BATCH_SPACE_US / 2);
    }
    before = site.done_count;
    put("a@here.test", "many@there.test");
    turns(10);
    clock_goes(BATCH_GATHER_US);
    for (int i = 0; i < 4; i++) {
        put("a@here.test", "many@there.test");
    }
    clock_goes(0);
    assert_int_equal(site.done_count, before);
    put("a@here.test", "many@there.test"); /* six of eight: that is enough */
    turns(10);
    assert_int_equal(site.done_count, before + 6);
    put("a@here.test", "many@there.test");
    turns(10);
    clock_goes(BATCH_GATHER_US); /* the last commit was a quick one */
    assert_int_equal(site.done_count, before + 7);
    store_slowly(8, BATCH_SPACE_US / 2);
    before = site.done_count;
    put("a@here.test", "many@there.test");
    turns(10);
    clock_goes(BATCH_SPACE_US / 2 - BATCH_GATHER_US);
    assert_int_equal(site.done_count, before);
    clock_goes(BATCH_GATHER_US);
    assert_int_equal(site.done_count, before + 1);
    store_slowly(8, 10 * BATCH_SPACE_US);
    before = site.done_count;
    put("a@here.test", "many@there.test");
    turns(10);
    clock_goes(BATCH_SPACE_US - 1);
    assert_int_equal(site.done_count, before);
    clock_goes(1); /* no longer than that */
    assert_int_equal(site.done_count, before + 1);
}

static void tell_sent(size_t i)
{
    put_verdict(i, OUTCOME_OK, VERDICT_SENT, "2.0.0", "250 2.0.0 Ok", "");
    turns(10);
}

static void results_alone_wait_as_long_as_a_slow_commit_took(void **state)
{
    const struct batch *batch = &((struct queue *)site.role.state)->batch;

    (void)state;
    store_slowly(3, BATCH_SPACE_US / 2);
    assert_int_equal(batch->commits, 1);
    tell_sent(0);
    clock_goes(BATCH_SPACE_US / 2 - 1);
    assert_int_equal(batch->commits, 1);
    clock_goes(1);
    assert_int_equal(batch->commits, 2);
    tell_sent(1); /* that one was quick */
    clock_goes(BATCH_WAIT_US);
    assert_int_equal(batch->commits, 3);
    tell_sent(2);
    submit("a@here.test", "one@there.test"); /* with a client's it does not wait */
    assert_int_equal(batch->commits, 4);
}

static void a_commit_that_fails_takes_the_younger_ones_with_it(void **state)
{
    (void)state;
    const char *first = submit("a@here.test", "b@there.test"), *second, *third;
    second = submit("a@here.test", "c@other.test");
    third = submit("a@here.test", "d@third.test");
    assert_int_equal(site.count, 3);
    memory_later_hold(&site.later, true);
    sent(0); /* the first commit, */
    assert_false(logged("status=sent"));
    bounced(1); /* the second: both under way, */
    put("a@here.test", "e@fourth.test");
    settle();
    deferred(2); /* and the open batch */
    assert_false(logged(": removed"));
    site.later.rc = -EIO;
    memory_later_hold(&site.later, false);
    settle();
    assert_false(logged(": removed"));
    assert_int_equal(site.done_count, 4);
    assert_int_equal(site.done[3].code, 451);
    assert_false(site.flow.storage_ok);
    assert_int_equal(site.count, 3);
    site.later.rc = 0;
    pass_time(2 * US_PER_S);
    assert_true(site.flow.storage_ok);
    ask(404, "{\"op\":\"show\",\"id\":\"%s\"}", first);
    ask(404, "{\"op\":\"show\",\"id\":\"%s\"}", second);
    assert_string_equal(state_of(third), "deferred");
    check_report(3, "a@here.test", "550 5.1.1 who"); /* one only */
    sent(3);
    assert_int_equal(messages(), 1);
    assert_true(logged(": removed"));
}

/* What the message waits for. */
static const char *binds(const char *id)
{
    const json_t *groups =
        json_object_get(ask(200, "{\"op\":\"why\",\"id\":\"%s\"}", id), "groups");

    return json_string_value(json_object_get(json_array_get(groups, 0), "binds"));
}

/* The results of both deliveries can't be stored by themselves. */
static void rest_two(void)
{
    memory_later_hold(&site.later, true);
    deferred(0);
    sent(1);
    site.later.rc = -EUCLEAN;
    memory_later_hold(&site.later, false);
    settle();
}

static void results_that_can_t_be_stored_hold_up_no_other_mail_and_are_tried_again(void **state)
{
    (void)state;
    site.findings_wanted = true;
    const char *deferred_id = submit("a@here.test", "b@there.test");
    const char *sent_id = submit("a@here.test", "c@other.test");
    assert_int_equal(site.count, 2);
    rest_two();
    site.later.rc = 0;
    assert_true(logged("it can't be read or changed on disk"));
    pass_time(2 * QUEUE_CHECK_PERIOD_US);
    assert_true(site.flow.storage_ok);
    assert_int_equal(site.count, 2); /* neither goes again now */
    assert_string_equal(binds(sent_id), "storage");
    submit("a@here.test", "d@third.test");
    sent(2);
    assert_int_equal(messages(), 2);

    site.later.rc = -EUCLEAN; /* still */
    pass_time(QUEUE_REST_US);
    assert_true(site.flow.storage_ok);
    assert_int_equal(messages(), 2);
    site.later.rc = 0;
    pass_time(QUEUE_REST_US);
    assert_int_equal(messages(), 2); /* not so soon */
    pass_time(QUEUE_REST_US + 2 * QUEUE_CHECK_PERIOD_US);
    ask(404, "{\"op\":\"show\",\"id\":\"%s\"}", sent_id);
    assert_string_equal(state_of(deferred_id), "deferred");
    assert_string_equal(binds(deferred_id), "not_due");
    assert_int_equal(site.count, 3); /* no delivery was repeated */
    pass_time(HOUR_US);
    assert_int_equal(site.count, 4);
    sent(3);
    assert_int_equal(messages(), 0);
}

/* Else there would be no end to them. */
static void what_rests_takes_places_in_memory(void **state)
{
    (void)state;
    start_again_with("qmgr_message_active_limit = 3\nqmgr_message_recipient_limit = 3\n");
    site.findings_wanted = true;
    submit("a@here.test", "b@there.test");
    submit("a@here.test", "c@other.test");
    rest_two();
    site.later.rc = 0;
    pass_time(2 * QUEUE_CHECK_PERIOD_US);
    submit("a@here.test", "d@third.test");
    submit("a@here.test", "e@fourth.test");
    settle();
    assert_int_equal(site.count, 3);
    pass_time(QUEUE_REST_US + 2 * QUEUE_CHECK_PERIOD_US);
    assert_int_equal(site.count, 4);
    sent(2);
    sent(3);
    assert_int_equal(messages(), 1); /* the first one was deferred */
}

static void results_that_rest_are_lost_with_their_partition(void **state)
{
    (void)state;
    site.findings_wanted = true;
    (void)submit("a@here.test", "b@there.test");
    const char *id = submit("a@here.test", "c@other.test");
    struct msg_id n;
    struct queue *q = site.role.state;

    rest_two();
    pass_time(2 * QUEUE_CHECK_PERIOD_US);
    assert_true(spool_id_parse(slice_string(id), &n));
    damage_leave(q, n, false); /* asked for, it is tried once more, */
    pass_time(2 * QUEUE_CHECK_PERIOD_US);
    assert_true(spool_is_claimed(q->spool, n));
    assert_false(logged("may be delivered again"));
    damage_leave(q, n, true); /* and then it goes */
    site.later.rc = 0;
    pass_time(2 * QUEUE_CHECK_PERIOD_US);
    assert_true(logged("may be delivered again"));
    assert_int_equal(site.count, 3); /* it is here still: so it goes from here */
    sent(2);
    pass_time(2 * QUEUE_REST_US);
    assert_int_equal(messages(), 1);
}

static void what_another_node_has_leaves_memory_and_stores_nothing(void **state)
{
    (void)state;
    site.findings_wanted = true;
    struct queue *q = site.role.state;
    const char *id = submit("a@here.test", "b@there.test");
    struct msg_id n;
    uint64_t commits = q->batch.commits;

    assert_true(spool_id_parse(slice_string(id), &n));
    assert_int_equal(site.count, 1);
    queue_lose(q, n);
    settle();
    assert_non_null(active_find(&q->active, n)); /* its delivery is under way */
    deferred(0);
    settle();
    assert_null(active_find(&q->active, n));
    assert_false(batch_has(&q->batch, n));
    assert_true(q->batch.commits <= commits + 1); /* of the result */
    assert_string_equal(state_of(id), "active");  /* as it was, for whoever has it */
}

static void what_comes_back_while_its_delivery_is_under_way_goes_on(void **state)
{
    (void)state;
    struct queue *q = site.role.state;
    const char *id = submit("a@here.test", "b@there.test");
    struct msg_id n;

    assert_true(spool_id_parse(slice_string(id), &n));
    queue_lose(q, n);
    settle();
    assert_false(pass_load(q, n, ADMITTED_NOT)); /* claimed again: it is in memory still */
    deferred(0);
    settle();
    assert_int_equal(site.count, 2); /* it goes again */
}

static void results_that_come_while_others_are_stored_again_wait_behind_them(void **state)
{
    (void)state;
    const char *id = submit("a@here.test", "b@there.test c@other.test");
    assert_int_equal(site.count, 2);
    memory_later_hold(&site.later, true);
    deferred(0);
    site.later.rc = -EIO;
    memory_later_hold(&site.later, false);
    settle();
    assert_false(site.flow.storage_ok);
    site.later.rc = 0;
    memory_later_hold(&site.later, true);
    pass_time(2 * US_PER_S); /* the first is being stored again */
    sent(1);                 /* the end of the pass rests on both */
    assert_int_equal(number(ask(200, "{\"op\":\"status\"}"), "delivered"), 1);
    assert_false(site.flow.storage_ok);
    commits_end(0);
    assert_true(site.flow.storage_ok);
    assert_string_equal(state_of(id), "deferred");
    assert_int_equal(json_array_size(json_object_get(site.answer, "recipients")), 1);
    pass_time(HOUR_US);
    assert_int_equal(site.count, 3);
    check_address(2, 0, "c@other.test");
}

static void what_may_be_undone_is_not_tried_again(void **state)
{
    (void)state;
    submit("a@here.test", "b@there.test");
    memory_later_hold(&site.later, true);
    deferred(0);
    pass_time(HOUR_US); /* it is due */
    assert_int_equal(site.count, 1);
    commits_end(0);
    assert_int_equal(site.count, 2);
    sent(1);
    assert_int_equal(messages(), 0);
}

/* Put a question, to be answered in turns to come. */
static void put_ask(const char *op, const char *id)
{
    char question[200];

    (void)snprintf(question, sizeof question, "{\"op\":\"%s\",\"ids\":[\"%s\"]}", op, id);
    json_decref(site.answer);
    site.answer = NULL;
    wire_put_ask(site.control, &(struct wire_ask){.token = 1, .json = slice_string(question)});
    settle();
}

static void an_operators_answer_waits_for_the_end_of_its_commit(void **state)
{
    (void)state;
    const char *id = submit("a@here.test", "b@there.test");

    deferred(0);
    memory_later_hold(&site.later, true);
    put_ask("hold", id);
    assert_null(site.answer);
    assert_false(logged("placed on hold"));
    commits_end(-EIO);
    assert_non_null(site.answer);
    assert_int_equal(site.status, 503);
    assert_string_equal(state_of(id), "deferred");
    pass_time(2 * US_PER_S);
    memory_later_hold(&site.later, true);
    put_ask("hold", id);
    put_ask("delete", id); /* on top of the one that is under way */
    assert_null(site.answer);
    commits_end(0);
    assert_int_equal(site.status, 200);
    assert_int_equal(messages(), 0);
    assert_true(logged("placed on hold"));
}

/* How many answers name the limit. */
static size_t count_full(size_t from)
{
    size_t count = 0;

    for (size_t i = from; i < site.done_count; i++) {
        count += site.done[i].code == 451 && strcmp(site.done_status[i], "4.3.2") == 0;
    }
    return count;
}

static void beside_a_slow_commit_so_many_submissions_wait(void **state)
{
    (void)state;
    memory_later_hold(&site.later, true);
    put("a@here.test", "b@there.test");
    settle();
    for (int i = 1; i < BATCH_WAITING_MAX + 5; i++) { /* as long as it is not slow, more */
        put("a@here.test", "c@there.test");
    }
    settle();
    assert_int_equal(site.done_count, 0);
    pass_time(BATCH_SLOW_US);
    put("a@here.test", "d@there.test");
    settle();
    assert_int_equal(site.done_count, 1);
    assert_int_equal(count_full(0), 1);
    assert_true(logged("wait for a slow commit: more is refused"));
    assert_true(site.flow.storage_ok);
    commits_end(0);
    assert_int_equal(site.done_count, BATCH_WAITING_MAX + 6);
    put("a@here.test", "e@there.test");
    settle();
    pass_time(US_PER_S);
    assert_int_equal(site.done_count, BATCH_WAITING_MAX + 7);
    assert_int_equal(count_full(0), 1);
}

static void beside_a_slow_commit_so_many_bytes_wait(void **state)
{
    size_t size = BATCH_WAITING_SIZE / 2 + 1;
    char path[100];
    int fd;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/big", site.dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    memory_later_hold(&site.later, true);
    for (int i = 0; i < 2; i++) { /* the second is too much */
        put_full("a@here.test", "b@there.test", 0, 0, "", SLICE("Subject: x\r\n"), dup(fd), size);
        settle();
        pass_time(BATCH_SLOW_US);
        assert_int_equal(site.done_count, i);
    }
    put("a@here.test", "c@there.test"); /* there is room for this one */
    settle();
    assert_int_equal(count_full(0), 1);
    commits_end(0);
    assert_int_equal(site.done_count, 3);
    assert_int_equal(messages(), 2);
    (void)close(fd);
}

static void who_waits_for_a_commit_that_does_not_end_is_told_to_try_again(void **state)
{
    (void)state;
    memory_later_hold(&site.later, true);
    for (int i = 0; i < 3; i++) { /* two are under way, one is in the open batch */
        put("a@here.test", "b@there.test");
        settle();
    }
    pass_time(BATCH_PATIENCE_US - US_PER_S);
    assert_int_equal(site.done_count, 0);
    pass_time(2 * US_PER_S);
    assert_int_equal(site.done_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(site.done[i].code, 451);
    }
    assert_false(site.flow.storage_ok);
    pass_time(
        2 * QUEUE_CHECK_PERIOD_US); /* it does not end by itself: each try would be stored, later */
    assert_false(site.flow.storage_ok);
    submit_notify("a@here.test", "c@there.test", 0, 451);
    commits_end(0);
    assert_true(site.flow.storage_ok);
    assert_int_equal(site.done_count, 4); /* those that were stored all the same are not told of */
    assert_int_equal(messages(), 3);
}

static void after_a_commit_that_ends_late_and_fails_storage_is_tried_again(void **state)
{
    (void)state;
    memory_later_hold(&site.later, true);
    put("a@here.test", "b@there.test");
    settle();
    pass_time(BATCH_PATIENCE_US + US_PER_S);
    assert_int_equal(site.done[0].code, 451);
    commits_end(-EIO);
    assert_false(site.flow.storage_ok);
    pass_time(2 * QUEUE_CHECK_PERIOD_US);
    assert_true(site.flow.storage_ok);
    submit("a@here.test", "c@there.test");
    assert_int_equal(messages(), 1);
}

static void a_client_that_has_gone_gets_no_answer(void **state)
{
    (void)state;
    memory_later_hold(&site.later, true);
    put("a@here.test", "b@there.test");
    settle();
    channel_free(site.receive);
    site.receive = NULL;
    settle();
    commits_end(0);
    assert_int_equal(site.count, 1); /* it was committed all the same */
    sent(0);
    assert_int_equal(messages(), 0);
}

static void a_stop_waits_for_commits_under_way(void **state)
{
    (void)state;
    submit("a@here.test", "b@there.test");
    memory_later_hold(&site.later, true);
    put("a@here.test", "c@other.test");
    settle();
    sent(0);
    site.role.stopping = true;
    queue_role.stop(&site.role);
    settle();
    assert_false(site.exited);
    assert_int_equal(site.done_count, 1);
    commits_end(0);
    assert_true(site.exited);
    assert_int_equal(site.done_count, 2);
    assert_int_equal(site.done[1].code, 250);
    restart("");
    assert_int_equal(messages(), 1); /* the first is delivered, the second is there */
}

static void a_stop_waits_for_commits_only_so_long(void **state)
{
    (void)state;
    submit("a@here.test", "b@there.test");
    memory_later_hold(&site.later, true);
    sent(0);
    site.role.stopping = true;
    queue_role.stop(&site.role);
    settle();
    assert_false(site.exited);
    pass_time(site.conf->shutdown_timeout_us + US_PER_S);
    assert_true(site.exited);
    restart(""); /* what was under way when the process ended has not happened */
    memory_later_hold(&site.later, false);
    settle();
    assert_int_equal(messages(), 1);
    assert_int_equal(site.count, 1);
}

/* ---- mail in parts -------------------------------------------------------------------------- */

#define FOUR "a@one.test b@two.test c@three.test d@four.test"

/* The entry that has this recipient alone, the youngest. */
static size_t entry_of(const char *address)
{
    for (size_t i = site.count; i-- > 0;) {
        if (site.given[i].m.rcpt_count == 1 &&
            slice_equal(site.given[i].rcpts[0].address, slice_string(address))) {
            return i;
        }
    }
    fail_msg("%s was not handed out", address);
    return 0;
}

/* How many lines the log has with that. */
static unsigned count_logged(const char *wanted)
{
    char path[100], line[4096];
    unsigned count = 0;
    FILE *in;

    write_log();
    (void)snprintf(path, sizeof path, "%s/log", site.dir);
    in = fopen(path, "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in) != NULL) {
        count += strstr(line, wanted) != NULL;
    }
    assert_int_equal(fclose(in), 0);
    return count;
}

/* The log's lines about the message's end. */
static unsigned ends_of(const char *id)
{
    char removed[100];

    (void)snprintf(removed, sizeof removed, "%s: removed\n", id);
    return count_logged(removed);
}

/* A store of two partitions, of which the other one is that of one next hop; what is to move is
 * only looked at. */
static struct wall due_when_moved;

static unsigned place(const struct spool *sp, const struct spool_rcpt *r)
{
    (void)sp;
    return slice_equal(r->nexthop, SLICE("[192.0.2.7]"));
}

static int lies_in_the_first(const struct spool *sp, struct msg_id id)
{
    (void)sp;
    (void)id;
    return 0;
}

static int look_at_move(struct spool *sp, struct msg_id id, const struct spool_relocation *m)
{
    struct spool_message message;

    assert_int_equal(spool_read(sp, id, &message), 0);
    if (due_when_moved.us == 0) {
        due_when_moved = wall_min(message.due, m->due);
    }
    return 0;
}

/* Else it waits at its new node, where nothing says that it is about it. */
static void a_redirect_makes_mail_due_before_a_reload_moves_it(void **state)
{
    (void)state;
    struct queue *q = site.role.state;
    const struct spool_engine *before = q->spool->engine;
    static struct spool_parts_part parts; /* for the teardown of a test that failed, too */
    static struct spool_engine engine;
    json_t *object = json_pack("{s:s, s:s, s:s}", "verb", "redirect", "destination", "there.test",
                               "nexthop", "[192.0.2.7]");
    struct intervention *redirect;
    struct buf error;

    parts = *before->parts;
    engine = *before;
    parts.partition = place;
    parts.lies_in = lies_in_the_first;
    parts.move = look_at_move;
    engine.parts = &parts;
    q->spool->engine = &engine;
    due_when_moved.us = 0;
    submit("a@here.test", "b@there.test");
    deferred(0);
    settle();
    buf_init(&error, 1000);
    redirect = intervention_read(site.conf, object, clock_wall(), &error);
    assert_non_null(redirect);
    intervention_number(redirect, 1);
    interventions_reroute(q);
    interventions_enter(q, redirect, false);
    settle();
    assert_true(due_when_moved.us != 0);
    assert_true(due_when_moved.us <= clock_wall().us);
    buf_fini(&error);
    json_decref(object);
    q->spool->engine = before;
}

/* ---- orders whose rows are damaged ---------------------------------------------------------- */

#ifndef COMMITS_END_LATER
static void change_spool(const char *sql)
{
    char path[100];
    sqlite3 *db;

    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Without old copies of rows. */
static char *read_spool(size_t *ret_len)
{
    char path[100], *bytes = mem_new(1u << 20);
    FILE *in;

    change_spool("VACUUM");
    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    in = fopen(path, "r");
    assert_non_null(in);
    *ret_len = fread(bytes, 1, 1u << 20, in);
    assert_true(*ret_len < 1u << 20);
    assert_int_equal(fclose(in), 0);
    return bytes;
}

/* The whole database; what a process has left beside it goes. */
static void write_spool(const char *bytes, size_t len)
{
    static const char *const beside[] = {"-wal", "-shm", ".lock"};
    char path[100];
    FILE *out;

    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/queue.db%s", site.dir, beside[i]);
        (void)unlink(path); /* it may not be there */
    }
    (void)snprintf(path, sizeof path, "%s/queue.db", site.dir);
    out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, len, out), len);
    assert_int_equal(fclose(out), 0);
}

static void flush_all(void)
{
    pass_time(HOUR_US);
    ask(200, "{\"op\":\"flush\",\"filter\":{}}");
    settle();
}

/* What is ordered may go to no other site, and nothing that is paused may go at all; with damage
 * there is a pause of all mail. */
static void check_damaged_order(const char *what, size_t at, bool may_be_harmless)
{
    const json_t *problem;
    bool found = false;
    size_t i;

    clock_set_offset(0); /* else mail would expire */
    role_up("");
    flush_all();
    if (site.count > 0) {
        fail_msg("byte %zu of %s is damaged: %s goes to %s", at, what,
                 site.given[0].rcpts[0].address.ptr, site.given[0].m.nexthop.ptr);
    }
    ask(200, "{\"op\":\"overview\"}");
    json_array_foreach(json_object_get(site.answer, "problems"), i, problem)
    {
        found = found || strcmp(text(problem, "problem"), "unreadable") == 0;
    }
    if (!found && !may_be_harmless) {
        fail_msg("byte %zu of %s is damaged, and nobody notices", at, what);
    }
    role_down();
}

/* A cell of the table: its sizes, the name, the text, the sum. */
static void damage_each_byte(const char *bytes, size_t len, const char *name)
{
    const char *at = memmem(bytes, len, name, strlen(name));
    char *copy = mem_copy(bytes, len);

    assert_non_null(at);
    for (const char *end = strchr(at, '}') + 1 + 8, *p = at - 8; p < end; p++) {
        size_t i = (size_t)(p - bytes);

        copy[i] = (char)(copy[i] ^ 1 << i % 8);
        write_spool(copy, len);
        /* In front of the name are sizes, and perhaps the end of another row; a text may be
         * shorter or longer than was stored, and then that is noticed. */
        check_damaged_order(name, (size_t)(p - at), p < at);
        copy[i] = bytes[i];
    }
    mem_free(copy);
}

static void no_damaged_byte_of_an_order_lets_its_mail_go(void **state)
{
    static const char *const names[] = {"intervention/000000000001", "intervention/000000000002"};
    size_t len;
    char *bytes;

    (void)state;
    ask(200, "{\"op\":\"intervene\",\"verb\":\"pause\",\"destination\":\"x.adv\"}");
    ask(200, "{\"op\":\"intervene\",\"verb\":\"pause\",\"sender\":\"news@shop.test\"}");
    submit("s@from.test", "a@x.adv b@x.adv");
    submit("news@shop.test", "a@elsewhere.test");
    settle();
    assert_int_equal(site.count, 0);
    role_down();
    bytes = read_spool(&len);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        damage_each_byte(bytes, len, names[i]);
    }
    write_spool(bytes, len);
    mem_free(bytes);
    clock_set_offset(0);
    role_up("");
    flush_all();
    assert_int_equal(site.count, 0); /* sound, all are in force */
}

/* A bounce, a redirect or a limit that can't be read holds all mail until it is cancelled. */
static void a_damaged_order_holds_all_mail_until_it_is_cancelled(void **state)
{
    size_t len;
    char *bytes, *at;

    (void)state;
    ask(200, "{\"op\":\"intervene\",\"verb\":\"bounce\",\"destination\":\"x.adv\"}");
    role_down();
    bytes = read_spool(&len);
    at = memmem(bytes, len, "x.adv", 5);
    assert_non_null(at);
    *at = 'y';
    write_spool(bytes, len);
    mem_free(bytes);
    role_up("");
    assert_true(logged("intervention/000000000001 in the spool is damaged"));
    submit("s@from.test", "a@elsewhere.test");
    assert_int_equal(site.count, 0);
    restart("");
    pass_time(DAY_US);
    assert_int_equal(site.count, 0);
    ask(200, "{\"op\":\"interventions\"}");
    assert_true(json_is_true(json_object_get(
        json_array_get(json_object_get(site.answer, "interventions"), 0), "unreadable")));
    ask(200, "{\"op\":\"cancel\",\"id\":\"pause-1\"}");
    settle();
    assert_int_equal(site.count, 1);
    sent(0);
    restart("");
    ask(200, "{\"op\":\"interventions\"}");
    assert_int_equal(json_array_size(json_object_get(site.answer, "interventions")), 0);
}

/* One that is intact, and that this program can't do, holds its own mail. */
static void an_order_that_is_not_known_holds_its_own_mail(void **state)
{
    static const char order[] =
        "{\"number\":1,\"verb\":\"turn\",\"destination\":\"x.adv\",\"reason\":\"\"}";
    char sql[300];

    (void)state;
    role_down();
    (void)snprintf(
        sql, sizeof sql, "INSERT INTO note VALUES ('intervention/000000000001', '%s', %lld)", order,
        (long long)row_sum_note(SLICE("intervention/000000000001"), slice_string(order)));
    change_spool(sql);
    role_up("");
    submit("s@from.test", "a@x.adv");
    submit("s@from.test", "a@elsewhere.test");
    assert_int_equal(site.count, 1);
    check_address(0, 0, "a@elsewhere.test");
    sent(0);
    ask(200, "{\"op\":\"cancel\",\"id\":\"pause-1\"}");
    settle();
    assert_int_equal(site.count, 2);
    sent(1);
}
#endif

static void what_parts_have_to_report_is_gathered(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", FOUR);

    assert_int_equal(site.count, 4);
    assert_int_equal(messages(), 1);
    assert_true(content_has(entry_of("d@four.test"), id)); /* its trace has the message's id */
    bounced(entry_of("c@three.test"));
    sent(entry_of("b@two.test"));
    pass_time(MINUTE_US);
    bounced(entry_of("a@one.test"));
    deferred(entry_of("d@four.test"));
    pass_time(3 * MINUTE_US);
    assert_int_equal(site.count, 4); /* the report waits for others to fail, too */
    pass_time(MINUTE_US);
    check_report(4, "s@from.test", "<a@one.test>");
    assert_true(content_has(4, "<c@three.test>"));
    assert_false(content_has(4, "b@two.test") || content_has(4, "d@four.test"));
    assert_true(content_has(4, id));
    sent(4);
    assert_int_equal(messages(), 1);
    pass_time(10 * MINUTE_US);
    assert_int_equal(site.count, 6); /* the one that waits is tried again */
    check_address(5, 0, "d@four.test");
    assert_int_equal(ends_of(id), 0);
    sent(5);
    assert_int_equal(messages(), 0);
    assert_int_equal(site.count, 6);
    assert_int_equal(ends_of(id), 1);
}

static void with_the_last_part_the_report_goes_at_once(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", FOUR);

    bounced(entry_of("a@one.test"));
    sent(entry_of("b@two.test"));
    sent(entry_of("c@three.test"));
    assert_int_equal(site.count, 4);
    bounced(entry_of("d@four.test"));
    check_report(4, "s@from.test", "<a@one.test>");
    assert_true(content_has(4, "<d@four.test>"));
    assert_int_equal(ends_of(id), 1);
    assert_int_equal(messages(), 1); /* the report */
    sent(4);
    assert_int_equal(messages(), 0);
    assert_true(count_logged("removed") == 2);
}

static void successes_of_parts_are_told_as_failures_are(void **state)
{
    (void)state;
    submit_notify("s@from.test", FOUR, NOTIFY_SUCCESS, 250);
    for (size_t i = 0; i < 4; i++) {
        replied(i, OUTCOME_OK, VERDICT_RELAYED, "2.0.0", "250 2.0.0 Ok", "");
    }
    check_report(4, "s@from.test", "Action: relayed");
    assert_true(content_has(4, "<a@one.test>") && content_has(4, "<d@four.test>"));
    sent(4);
    assert_int_equal(messages(), 0);
}

static void the_delay_of_parts_is_told_once(void **state)
{
    (void)state;
    submit("s@from.test", FOUR);
    sent(entry_of("b@two.test"));
    for (size_t i = 0; i < 4; i++) {
        if (i != entry_of("b@two.test")) {
            deferred(i);
        }
    }
    for (size_t hours = 0, tried = 4; hours < 8; hours++) {
        pass_time(HOUR_US);
        for (; tried < site.count; tried++) {
            if (site.given[tried].m.sender.len > 0) {
                deferred(tried);
                continue;
            }
            assert_true(hours >= 2);
            assert_true(
                content_has(tried, "Action: delayed") && content_has(tried, "<a@one.test>") &&
                content_has(tried, "<c@three.test>") && content_has(tried, "<d@four.test>"));
            assert_false(content_has(tried, "b@two.test"));
            sent(tried);
        }
    }
    assert_int_equal(count_logged("sender delay notification"), 1);
    assert_int_equal(messages(), 1);
}

static void parts_that_are_too_old_are_returned_together(void **state)
{
    (void)state;
    size_t reports = 0;

    submit("s@from.test", FOUR);
    for (size_t i = 0; i < 4; i++) {
        deferred(i);
    }
    for (size_t days = 0, tried = 4; days < 6; days++) {
        pass_time(DAY_US);
        for (; tried < site.count; tried++) {
            if (site.given[tried].m.sender.len > 0) {
                deferred(tried);
            } else {
                reports += content_has(tried, "Action: failed");
                sent(tried);
            }
        }
    }
    assert_int_equal(reports, 1);
    assert_int_equal(count_logged("status=expired"), 4);
    assert_int_equal(messages(), 0);
}

static void what_is_done_to_a_message_is_done_to_its_parts(void **state)
{
    (void)state;
    char id[SPOOL_ID_TEXT_MAX];

    (void)strcpy(id, submit("s@from.test", FOUR));
    deferred(entry_of("a@one.test"));
    changed("hold", id);
    assert_string_equal(state_of(id), "hold");
    deferred(entry_of("b@two.test"));
    sent(entry_of("c@three.test"));
    deferred(entry_of("d@four.test"));
    pass_time(2 * HOUR_US);
    assert_int_equal(site.count, 4);
    assert_int_equal(
        number(ask(200, "{\"op\":\"count\",\"filter\":{\"state\":\"hold\"}}"), "count"), 1);
    changed("release", id);
    assert_int_equal(site.count, 7);
    deferred(4);
    deferred(5);
    deferred(6);
    changed("flush", id);
    assert_int_equal(site.count, 10);
    deferred(7);
    deferred(8);
    deferred(9);
    changed("expire", id);
    check_report(10, "s@from.test", "<a@one.test>");
    assert_true(content_has(10, "<b@two.test>") && content_has(10, "<d@four.test>"));
    sent(10);
    assert_int_equal(messages(), 0);
    assert_int_equal(ends_of(id), 1);
}

static void a_message_in_parts_is_requeued_with_each(void **state)
{
    (void)state;
    char id[SPOOL_ID_TEXT_MAX];

    (void)strcpy(id, submit("s@from.test", FOUR));
    for (size_t i = 0; i < 4; i++) {
        deferred(i);
    }
    changed("requeue", id);
    assert_int_equal(site.count, 8);
    for (size_t i = 4; i < 8; i++) {
        sent(i);
    }
    assert_int_equal(messages(), 0);
}

static void why_a_message_waits_is_told_of_all_its_parts(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", FOUR);
    json_t *why;

    sent(entry_of("b@two.test"));
    deferred(entry_of("c@three.test"));
    why = ask(200, "{\"op\":\"why\",\"id\":\"%s\"}", id);
    assert_int_equal(number(why, "recipients_pending"), 3);
    assert_int_equal(json_array_size(json_object_get(why, "recipients")), 3);
    assert_int_equal(json_array_size(json_object_get(why, "groups")), 3);
}

static void a_message_is_removed_with_its_parts(void **state)
{
    (void)state;
    char id[SPOOL_ID_TEXT_MAX];

    (void)strcpy(id, submit("s@from.test", FOUR));
    bounced(entry_of("a@one.test"));
    changed("delete", id);
    assert_int_equal(messages(), 0);
    bounced(entry_of("b@two.test")); /* nobody is told */
    pass_time(HOUR_US);
    assert_int_equal(site.count, 4);
    ask(404, "{\"op\":\"show\",\"id\":\"%s\"}", id);
}

static void the_last_part_frees_a_message_on_hold(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", FOUR);

    changed("hold", id);
    for (size_t i = 0; i < 4; i++) {
        sent(i); /* they were under way */
    }
    assert_int_equal(messages(), 0);
}

static void mail_for_one_partition_has_no_parts(void **state)
{
    (void)state;
    submit("s@from.test", "a@one.test b@one.test c@one.test");
    assert_int_equal(site.count, 1);
    bounced(0);
    check_report(1, "s@from.test", "<b@one.test>");
    sent(1);
    assert_int_equal(messages(), 0);
}

static void parts_outlast_the_process(void **state)
{
    (void)state;
    const char *id = submit("s@from.test", FOUR);

    bounced(entry_of("a@one.test"));
    sent(entry_of("b@two.test"));
    restart("");
    assert_int_equal(site.count, 2);
    bounced(entry_of("c@three.test"));
    restart("");
    assert_int_equal(site.count, 1);
    sent(0);
    check_report(1, "s@from.test", "<a@one.test>");
    assert_true(content_has(1, "<c@three.test>"));
    assert_int_equal(ends_of(id), 1);
}

#ifdef NOTHING_IS_AT_HAND
/* As while a database is silent. */
static void a_question_about_what_does_not_come_at_hand_ends(void **state)
{
    char question[100];
    const char *id;

    (void)state;
    id = submit("s@from.test", "a@one.test");
    deferred(0);
    away_spool_hold(true);
    (void)snprintf(question, sizeof question, "{\"op\":\"hold\",\"ids\":[\"%s\"]}", id);
    wire_put_ask(site.control, &(struct wire_ask){.token = 1, .json = slice_string(question)});
    settle();
    assert_null(site.answer);
    clock_set_offset(clock_offset() + OPERATION_WAIT_US);
    settle();
    assert_non_null(site.answer);
    assert_int_equal(site.status, 503);
    away_spool_hold(false);
    assert_string_equal(state_of(id), "deferred");
    ask(200, "%s", question);
    assert_string_equal(state_of(id), "hold");
}
#endif

#define PARTS_TEST(f)  cmocka_unit_test_setup_teardown(f, start_in_parts, stop_in_parts)
#define QUEUE_TEST(f)  cmocka_unit_test_setup_teardown(f, start, stop)
#define SQLITE_TEST(f) cmocka_unit_test_setup_teardown(f, start_sqlite, stop)
#define LEASE_TEST(f)  cmocka_unit_test_setup_teardown(f, start_leased, stop)
/* Of what is found by itself when something comes. */
#ifdef NOTHING_IS_AT_HAND
#define AT_HAND_TEST(f) SQLITE_TEST(f)
#else
#define AT_HAND_TEST(f) QUEUE_TEST(f)
#endif
#define LATER_TEST(f) cmocka_unit_test_setup_teardown(f, start_later, stop)

UNIT_MAIN(
#ifndef COMMITS_END_LATER
    SQLITE_TEST(no_damaged_byte_of_an_order_lets_its_mail_go),
    SQLITE_TEST(a_damaged_order_holds_all_mail_until_it_is_cancelled),
    SQLITE_TEST(an_order_that_is_not_known_holds_its_own_mail),
#endif
    QUEUE_TEST(a_message_is_committed_answered_delivered_and_gone),
    QUEUE_TEST(the_first_of_many_submissions_waits_for_the_others),
    QUEUE_TEST(the_auditor_finds_nothing_where_nothing_is_wrong),
    QUEUE_TEST(a_claim_without_a_message_is_found_and_the_mail_goes_on),
    QUEUE_TEST(a_message_that_the_scheduler_has_lost_goes_on),
    QUEUE_TEST(a_delivery_that_the_scheduler_does_not_know_is_forgotten),
    AT_HAND_TEST(a_message_that_is_not_claimed_any_more_is_read_anew),
    AT_HAND_TEST(due_mail_that_is_overlooked_is_found),
    SQLITE_TEST(a_row_behind_the_order_of_due_times_is_found),
    QUEUE_TEST(a_delivery_that_never_ends_is_told_of),
    QUEUE_TEST(nothing_is_answered_or_delivered_before_the_commit),
    QUEUE_TEST(results_wait_for_the_storage_and_nothing_starts_meanwhile),
    QUEUE_TEST(what_was_not_committed_is_not_logged),
    QUEUE_TEST(the_loop_sleeps_while_it_can_only_wait),
    QUEUE_TEST(a_change_that_could_not_be_stored_is_no_success),
    QUEUE_TEST(a_restart_continues_where_the_commits_ended),
    QUEUE_TEST(a_wrong_result_closes_the_connection_and_defers_its_entries),
    QUEUE_TEST(a_frame_that_does_not_decode_closes_the_connection),
    QUEUE_TEST(content_is_handed_out_once),
    QUEUE_TEST(what_a_lost_agent_had_is_deferred_and_what_comes_waits_for_it),
    QUEUE_TEST(what_waits_for_an_agent_that_never_comes_back_is_deferred),
    QUEUE_TEST(what_is_given_back_goes_on_soon),
    LEASE_TEST(nothing_is_handed_out_while_the_lease_is_over),
    LEASE_TEST(what_waits_for_a_process_goes_back_when_the_lease_ends),
    LEASE_TEST(what_a_batch_has_claimed_that_failed_goes_with_the_lease),
    LEASE_TEST(only_those_without_a_verdict_go_again),
    LEASE_TEST(what_is_broken_off_without_need_waits),
    QUEUE_TEST(mixed_verdicts_of_one_message_are_settled_one_by_one),
    QUEUE_TEST(reports_follow_what_the_sender_asked_for),
    QUEUE_TEST(a_report_tells_the_envelope_id_and_the_other_sites_words),
    QUEUE_TEST(the_null_sender_gets_no_report),
    QUEUE_TEST(a_double_bounce_goes_to_those_who_want_it_and_ends_there),
    QUEUE_TEST(lines_about_messages_go_to_syslog_where_wanted),
    QUEUE_TEST(the_postmaster_gets_the_copies_he_asked_for),
    QUEUE_TEST(a_form_gives_the_words_and_more_readers),
    QUEUE_TEST(a_form_that_is_missing_is_told_to_the_postmaster),
    QUEUE_TEST(what_a_report_returns_by_default_can_be_the_header),
    QUEUE_TEST(a_report_for_nobody_can_be_kept),
    QUEUE_TEST(mail_that_is_too_old_is_returned_after_an_attempt), QUEUE_TEST(a_delay_is_told_once),
    QUEUE_TEST(the_end_of_a_delay_is_told_when_wanted),
    QUEUE_TEST(with_soft_bounce_nothing_is_final), QUEUE_TEST(waits_double_between_their_bounds),
    QUEUE_TEST(what_an_operator_does_to_mail_under_way_holds_when_its_result_comes),
    QUEUE_TEST(mail_held_and_released_under_way_is_tried_once_at_a_time),
    QUEUE_TEST(a_requeue_begins_anew_without_those_who_have_it),
    QUEUE_TEST(what_an_operator_does_to_requeued_mail_holds_at_the_filter),
    QUEUE_TEST(requeued_mail_that_can_not_be_stored_stays_what_it_was),
    QUEUE_TEST(a_process_that_ends_at_the_filter_leaves_the_mail),
    QUEUE_TEST(mail_keeps_its_time_when_the_clock_is_set),
    QUEUE_TEST(no_mail_is_given_up_for_a_clock_that_was_set_forward),
    QUEUE_TEST(the_times_of_much_mail_move_page_by_page),
    QUEUE_TEST(mail_that_is_deferred_while_times_move_waits_as_long_as_ever),
    QUEUE_TEST(a_clock_that_is_set_twice_counts_twice),
    QUEUE_TEST(mail_of_the_future_is_due_soon_after_a_start),
    LEASE_TEST(ids_of_the_future_alarm_nobody_where_nodes_share_a_spool),
    QUEUE_TEST(threads_keep_their_time_when_the_clock_is_set),
    QUEUE_TEST(expired_mail_is_returned_without_another_attempt),
    QUEUE_TEST(changes_take_filters_pages_and_dry_runs),
    QUEUE_TEST(a_change_by_filter_may_meet_mail_that_waits_for_its_commit),
    QUEUE_TEST(questions_that_make_no_sense_are_refused), QUEUE_TEST(the_state_of_all_can_be_seen),
    QUEUE_TEST(a_flush_makes_mail_due_and_revives_its_destination),
    QUEUE_TEST(etrn_is_for_those_domains_only_and_revives_them),
    SQLITE_TEST(large_content_travels_in_descriptors),
    AT_HAND_TEST(beyond_the_budget_content_is_sent_on_demand),
    SQLITE_TEST(content_that_is_missing_quarantines_its_message),
    QUEUE_TEST(a_descriptor_that_is_shorter_than_promised_is_refused),
    QUEUE_TEST(a_list_of_10000_is_read_in_portions), QUEUE_TEST(a_long_listing_is_cut_not_fatal),
    QUEUE_TEST(beyond_the_active_limit_mail_waits_on_disk_in_order),
    QUEUE_TEST(bulk_that_fills_the_active_queue_keeps_no_other_class_out),
    QUEUE_TEST(new_and_deferred_mail_take_turns), QUEUE_TEST(a_reload_moves_mail_to_its_new_route),
    QUEUE_TEST(a_reload_keeps_the_next_hop_as_it_was_written),
    QUEUE_TEST(deferred_transports_wait_until_they_are_asked_for),
    QUEUE_TEST(mail_for_a_kind_of_agent_that_no_program_has_is_deferred),
    QUEUE_TEST(an_operation_that_no_program_has_is_refused),
    QUEUE_TEST(a_destination_that_clogs_the_queue_is_named),
    QUEUE_TEST(changes_of_a_window_are_logged_when_wanted),
    SQLITE_TEST(a_row_that_makes_no_sense_is_quarantined_and_kept),
    SQLITE_TEST(recipients_that_are_missing_are_told),
    SQLITE_TEST(all_recipients_missing_is_no_end), SQLITE_TEST(a_number_out_of_order_stops_nothing),
    SQLITE_TEST(a_nul_in_a_row_spoils_no_list),
    SQLITE_TEST(a_page_that_is_lost_stops_no_other_mail),

#ifndef COMMITS_END_LATER
    SQLITE_TEST(whichever_page_is_lost_no_recipient_has_two_copies),
    SQLITE_TEST(whichever_byte_changes_no_recipient_has_two_copies),
    SQLITE_TEST(isolating_damage_in_a_batch_takes_a_commit_for_each_result_at_most),
    SQLITE_TEST(results_that_rest_are_stored_after_a_repair),
#endif
    QUEUE_TEST(deliveries_are_logged_after_their_commit),
    SQLITE_TEST(a_quarantine_waits_for_the_storage),
    QUEUE_TEST(results_that_arrive_during_the_stop_count),
    QUEUE_TEST(a_stop_waits_for_results_only_so_long),
    QUEUE_TEST(a_full_destination_leaves_room_and_gets_all_its_mail_in_order),
    QUEUE_TEST(mail_for_several_destinations_is_not_parked),
    QUEUE_TEST(what_is_parked_is_known_after_a_restart),
    QUEUE_TEST(parked_classes_take_turns_after_a_restart_too),
    QUEUE_TEST(what_is_parked_too_long_is_told_of_and_returned),
    QUEUE_TEST(mail_of_a_dead_destination_comes_back_when_it_is_well),
    QUEUE_TEST(a_death_with_much_mail_does_not_keep_other_mail_waiting),
    QUEUE_TEST(a_backlog_does_not_come_back_as_one_wave),
    QUEUE_TEST(new_mail_does_not_wait_for_the_deferred_mail_of_its_site),
    QUEUE_TEST(deferred_mail_gets_places_while_new_mail_waits),
    QUEUE_TEST(new_mail_gets_places_while_deferred_mail_waits),
    QUEUE_TEST(what_is_parked_can_be_held_removed_and_requeued),
    QUEUE_TEST(a_reload_frees_parked_mail_from_its_old_route),
    PARTS_TEST(a_redirect_makes_mail_due_before_a_reload_moves_it),
    PARTS_TEST(what_parts_have_to_report_is_gathered),
    PARTS_TEST(with_the_last_part_the_report_goes_at_once),
    PARTS_TEST(successes_of_parts_are_told_as_failures_are),
    PARTS_TEST(the_delay_of_parts_is_told_once),
    PARTS_TEST(parts_that_are_too_old_are_returned_together),
    PARTS_TEST(what_is_done_to_a_message_is_done_to_its_parts),
    PARTS_TEST(a_message_in_parts_is_requeued_with_each),
    PARTS_TEST(why_a_message_waits_is_told_of_all_its_parts),
    PARTS_TEST(a_message_is_removed_with_its_parts),
    PARTS_TEST(the_last_part_frees_a_message_on_hold),
    PARTS_TEST(mail_for_one_partition_has_no_parts),
#ifdef NOTHING_IS_AT_HAND
    QUEUE_TEST(a_question_about_what_does_not_come_at_hand_ends),
#endif
    LATER_TEST(nothing_is_answered_before_its_commit_has_ended),
    LATER_TEST(what_a_late_commit_has_changed_is_not_overlooked),
    LATER_TEST(many_do_not_wait_for_the_commit_before_theirs),
    LATER_TEST(in_busy_times_commits_are_spaced_out),
    LATER_TEST(the_first_of_many_waits_as_long_as_a_slow_commit_took),
    LATER_TEST(results_alone_wait_as_long_as_a_slow_commit_took),
    LATER_TEST(a_commit_that_fails_takes_the_younger_ones_with_it),
    LATER_TEST(results_that_can_t_be_stored_hold_up_no_other_mail_and_are_tried_again),
    LATER_TEST(what_rests_takes_places_in_memory),
    LATER_TEST(results_that_rest_are_lost_with_their_partition),
    LATER_TEST(what_another_node_has_leaves_memory_and_stores_nothing),
    LATER_TEST(what_comes_back_while_its_delivery_is_under_way_goes_on),
    LATER_TEST(results_that_come_while_others_are_stored_again_wait_behind_them),
    LATER_TEST(what_may_be_undone_is_not_tried_again),
    LATER_TEST(an_operators_answer_waits_for_the_end_of_its_commit),
    LATER_TEST(beside_a_slow_commit_so_many_submissions_wait),
    LATER_TEST(beside_a_slow_commit_so_many_bytes_wait),
    LATER_TEST(who_waits_for_a_commit_that_does_not_end_is_told_to_try_again),
    LATER_TEST(after_a_commit_that_ends_late_and_fails_storage_is_tried_again),
    LATER_TEST(a_client_that_has_gone_gets_no_answer),
    LATER_TEST(a_stop_waits_for_commits_under_way),
    LATER_TEST(a_stop_waits_for_commits_only_so_long),
    cmocka_unit_test_setup_teardown(parts_outlast_the_process, start_later_in_parts, stop_in_parts))
