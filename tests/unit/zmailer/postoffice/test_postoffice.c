#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "postoffice_engine.h"
#include "rng.h"
#include "spool_fixture.h"

/* Example A of ZMailer's documentation: two groups, three destinations, four recipients. */
static const char example_a[] =
    "@ 0x00000007\ni 90417\no 412\nl <20240305.0912@mill.example>\ne miller@mill.example\n"
    "s local - miller@mill.example 1204\n"
    "r           smtp mx1.grain.example baker@grain.example 65534\n"
    "N NOTIFY=FAILURE,DELAY ORCPT=rfc822;baker@grain.example\nR HDRS\nn ENV+2B77\n"
    "r           smtp mx1.grain.example cook@grain.example 65534\nN NOTIFY=NEVER\n"
    "r           smtp oven.example \"odd user\"@oven.example 65534\n"
    "m\n"
    "Received: by mill.example id <S90417>; Tue, 5 Mar 2024 09:12:00 +0000\n"
    "From: miller@mill.example\nTo: baker@grain.example, cook@grain.example\nSubject: flour\n\n"
    "e miller@mill.example\ns local - miller@mill.example 1204\n"
    "r           local - storeman 310\n"
    "m\nFrom: miller@mill.example\nTo: storeman\nSubject: flour\n\n";
enum { BAKER = 115, COOK = 250, ODD = 325, STOREMAN = 600 };

static char dir[64];
static struct spool *sp;
static struct spool_options options;
static struct postoffice_options own_options;

#define NOW ((struct wall){INT64_C(2000000000) * US_PER_S})

/* ---- files ---------------------------------------------------------------------------------- */

static const char *path_of(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* In a static buffer; "" when there is none. */
static const char *read_file(const char *name)
{
    static char text[1 << 16];
    FILE *file = fopen(path_of(name), "r");
    size_t len = 0;

    if (file != NULL) {
        len = fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    text[len] = '\0';
    return text;
}

static bool exists(const char *name)
{
    struct stat st;

    return lstat(path_of(name), &st) == 0;
}

/* A control file and its message, as a router leaves them. */
static void put(const char *name, const char *control)
{
    char path[128];

    (void)snprintf(path, sizeof path, "queue/%s", name);
    write_file(path, "env-end\nSubject: flour\n\nHello.\n");
    (void)snprintf(path, sizeof path, "transport/%s", name);
    write_file(path, control);
}

/* One with the given lines of recipients. */
static void put_rcpts(const char *name, const char *lines)
{
    char control[8192];

    (void)snprintf(control, sizeof control,
                   "@ 0x00000007\ni %s\no 24\nl <%s@here.example>\ne me@here.example\n"
                   "s local - me@here.example 500\n%sm\nSubject: flour\n\n",
                   name, name, lines);
    put(name, control);
}

static char tag_at(const char *name, size_t offset)
{
    char path[128];

    (void)snprintf(path, sizeof path, "transport/%s", name);
    return read_file(path)[offset + 1];
}

/* As an agent marks a recipient. */
static void mark(const char *name, size_t offset, const char *columns)
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof path, "transport/%s", name);
    file = fopen(path_of(path), "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset + 1, SEEK_SET), 0);
    assert_true(fputs(columns, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void append(const char *name, const char *line)
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof path, "transport/%s", name);
    file = fopen(path_of(path), "a");
    assert_non_null(file);
    assert_true(fputs(line, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static size_t count_files(const char *name)
{
    char command[600], text[32] = "";
    FILE *pipe;

    (void)snprintf(command, sizeof command, "ls -A '%s' | wc -l", path_of(name));
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(text, sizeof text, pipe));
    assert_int_equal(pclose(pipe), 0);
    return (size_t)strtoul(text, NULL, 10);
}

/* ---- the spool ------------------------------------------------------------------------------ */

static void open_spool(void)
{
    struct buf error;
    int err;

    buf_init(&error, 1024);
    err = postoffice_open(dir, &options, &own_options, &error, &sp);
    if (err != 0) {
        printf("# %s\n", buf_cstr(&error));
    }
    assert_int_equal(err, 0);
    buf_fini(&error);
}

static int set_up(void **state)
{
    static const char *const names[] = {"", "public", "router", "queue", "transport", "postman"};

    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/postoffice-test-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    for (size_t i = 1; i < COUNT(names); i++) {
        CHECK(mkdir(path_of(names[i]), 0755) == 0);
    }
    options = (struct spool_options){.id_floor = 1000};
    own_options = (struct postoffice_options){.hostname = "mill.example",
                                              .report_interval_us = 900 * US_PER_S};
    open_spool();
    return 0;
}

static void audit(void)
{
    table_audit(&((struct postoffice *)sp)->table);
}

static int tear_down(void **state)
{
    struct fixture fx;

    (void)state;
    audit();
    spool_close(sp);
    (void)snprintf(fx.dir, sizeof fx.dir, "%s", dir);
    fixture_fini(&fx);
    return 0;
}

/* As after a crash: what was not committed is gone. */
static void restart(void)
{
    spool_close(sp);
    open_spool();
}

/* All that is there, as after a full scan. */
static void poll_all(void)
{
    struct wall again;

    ((struct postoffice *)sp)->scan.next_us = 0;
    do {
        fixture_ok(sp, spool_poll(sp, NOW, &again));
    } while (again.us <= NOW.us);
    audit();
}

static void commit(void)
{
    fixture_ok(sp, spool_commit(sp));
    audit();
}

static struct msg_id claim_one(enum spool_state from, struct wall now)
{
    struct msg_id id = {0};
    size_t count;

    fixture_ok(sp, spool_claim(sp, from, now, 1, &id, &count));
    return count == 1 ? id : (struct msg_id){0};
}

/* Load what is there and claim it. */
static struct msg_id load(void)
{
    struct msg_id id;

    poll_all();
    id = claim_one(SPOOL_INCOMING, NOW);
    assert_int_not_equal(id.n, 0);
    return id;
}

static bool nothing_due(struct wall now)
{
    return claim_one(SPOOL_INCOMING, now).n == 0 && claim_one(SPOOL_DEFERRED, now).n == 0;
}

/* Offsets of the recipients as a text, "115 250"; in a static buffer. */
static const char *rcpts_of(struct msg_id id, bool only_pending)
{
    static char text[256];
    struct spool_rcpt rcpts[16];
    size_t count;

    text[0] = '\0';
    fixture_ok(sp, spool_read_rcpts(sp, id, 0, only_pending, 16, rcpts, &count));
    for (size_t i = 0; i < count; i++) {
        size_t at = strlen(text);

        (void)snprintf(text + at, sizeof text - at, "%s%u", i == 0 ? "" : " ",
                       (unsigned)rcpts[i].n);
    }
    return text;
}

/* Events of one type as one text, a line each; all events are taken. In a static buffer. */
static const char *events_of(enum spool_event_type type)
{
    static char text[2048];
    struct spool_event event;

    text[0] = '\0';
    while (spool_next_event(sp, &event)) {
        size_t at = strlen(text);

        if (event.type == type) {
            (void)snprintf(text + at, sizeof text - at, "%.*s\n", SLICE_ARGS(event.text));
        }
    }
    return text;
}

static void settle(struct msg_id id, uint32_t n, struct spool_verdict v)
{
    v.when = NOW;
    fixture_ok(sp, spool_settle(sp, id, n, &v));
}

static void delivered(struct msg_id id, uint32_t n)
{
    settle(id, n,
           (struct spool_verdict){.state = SPOOL_RCPT_DELIVERED, .done = true, .attempted = true});
}

static void failed(struct msg_id id, uint32_t n)
{
    settle(id, n,
           (struct spool_verdict){
               .state = SPOOL_RCPT_FAILED,
               .attempted = true,
               .diagnostic = SLICE("smtp; 550 user unknown"),
               .details = SLICE("you@x\001failed\0015.1.1 (no such user)\001smtp; 550\001dns; x")});
}

static bool finish(struct msg_id id, struct wall due)
{
    bool gone;

    fixture_ok(sp, spool_finish(sp, id, due, &gone));
    return gone;
}

/* ---- the way through ------------------------------------------------------------------------ */

static void a_file_is_read_as_the_router_wrote_it(void **state)
{
    struct spool_rcpt rcpts[5];
    struct spool_message m;
    struct msg_id id;
    size_t count;

    (void)state;
    put("90417", example_a);
    id = load();
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_true(slice_equal(m.sender, SLICE("miller@mill.example")));
    assert_true(slice_equal(m.path, SLICE("90417")));
    assert_true(slice_equal(m.envid, SLICE("ENV+2B77")));
    assert_int_equal(m.rcpt_pending, 4);
    assert_int_equal(m.flags, ENVELOPE_RET_HDRS);
    assert_true(slice_starts(m.spoolid, SLICE("S90417")));
    fixture_ok(sp, spool_read_rcpts(sp, id, 0, true, 5, rcpts, &count));
    assert_int_equal(count, 4);
    assert_int_equal(rcpts[1].n, COOK);
    assert_true(slice_equal(rcpts[1].address, SLICE("cook@grain.example")));
    assert_int_equal(rcpts[1].notify, NOTIFY_NEVER);
    assert_true(slice_equal(rcpts[1].transport, SLICE("smtp")));
    assert_true(slice_equal(rcpts[1].nexthop, SLICE("mx1.grain.example")));
    assert_true(slice_equal(rcpts[0].orcpt, SLICE("rfc822;baker@grain.example")));
    assert_true(slice_equal(rcpts[3].control, SLICE("local - storeman 310")));
    assert_true(rcpts[0].route_generation == SPOOL_ROUTE_FIXED);
    fixture_ok(sp, spool_read_rcpts(sp, id, BAKER, true, 2, rcpts, &count));
    assert_int_equal(count, 2);
    assert_int_equal(rcpts[1].n, ODD);
}

/* The headers are those of the control file, as a router has rewritten them. */
static void content_is_headers_and_body_in_a_buffer_or_a_file(void **state)
{
    static const char want[] = "Subject: flour\n\nHello.\n";
    static const size_t limits[] = {1000, sizeof want - 1, sizeof want - 2};
    struct msg_id id;

    (void)state;
    put_rcpts("7", "r           smtp a.example u@a.example 1\n");
    id = load();
    for (size_t i = 0; i < COUNT(limits); i++) {
        char text[64] = "";
        struct buf bytes;
        uint64_t size;
        int fd;

        buf_init(&bytes, limits[i]);
        fixture_ok(sp, spool_read_content(sp, id, &bytes, &fd, &size));
        assert_int_equal(size, sizeof want - 1);
        assert_int_equal(fd >= 0, limits[i] < sizeof want - 1);
        if (fd >= 0) {
            assert_int_equal(pread(fd, text, sizeof text, 0), sizeof want - 1);
            close(fd);
        } else {
            memcpy(text, buf_slice(&bytes).ptr, buf_len(&bytes));
        }
        assert_string_equal(text, want);
        buf_fini(&bytes);
    }
    assert_int_equal(count_files("public"), 0);
}

static void both_files_go_when_all_is_done(void **state)
{
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    id = load();
    fixture_ok(sp, spool_finish_all_done(sp, id));
    assert_true(exists("transport/90417"));
    commit();
    assert_false(exists("transport/90417"));
    assert_false(exists("queue/90417"));
    assert_non_null(
        strstr(events_of(SPOOL_EVENT_COMPLETE), ": complete (total 4 recipients, 0 failed)"));
    assert_true(nothing_due(NOW));
}

static void destinations_that_are_put_off_wait_each_for_itself(void **state)
{
    static const uint32_t grain[] = {BAKER, COOK}, oven[] = {ODD}, baker[] = {BAKER};
    struct wall later = wall_after(NOW, 60 * US_PER_S),
                much_later = wall_after(NOW, 600 * US_PER_S);
    struct msg_id root, waiting, got[3];
    struct spool_message m;
    size_t count;
    bool more;

    (void)state;
    put("90417", example_a);
    root = load();
    fixture_ok(sp, spool_put_off(sp, root, grain, 2, SLICE("!retry smtp/mx1"), later));
    fixture_ok(sp, spool_put_off(sp, root, oven, 1, SLICE("!retry smtp/oven"), much_later));
    commit();
    assert_string_equal(rcpts_of(root, true), "600");
    delivered(root, STOREMAN);
    assert_true(finish(root, NOW));
    commit();
    assert_int_equal(spool_read(sp, root, &m), -ENOENT);
    assert_true(exists("transport/90417"));
    assert_true(nothing_due(NOW));

    /* Each in its own time. */
    waiting = claim_one(SPOOL_DEFERRED, later);
    assert_string_equal(rcpts_of(waiting, true), "115 250");
    assert_true(nothing_due(later));
    delivered(waiting, COOK);
    fixture_ok(sp, spool_put_off(sp, waiting, baker, 1, SLICE("!retry smtp/mx1"), much_later));
    assert_true(finish(waiting, NOW));
    commit();

    /* All that waits under a key at once. */
    fixture_ok(sp, spool_claim_parked(sp, SLICE("!retry smtp/mx1"), NOW, 3, got, &count, &more));
    assert_int_equal(count, 1);
    assert_string_equal(rcpts_of(got[0], true), "115");
    delivered(got[0], BAKER);
    assert_true(finish(got[0], NOW));
    fixture_ok(sp, spool_wake(sp, SLICE("!retry smtp/oven"), NOW, &count));
    assert_int_equal(count, 1);
    waiting = claim_one(SPOOL_DEFERRED, NOW);
    fixture_ok(sp, spool_finish_all_done(sp, waiting));
    commit();
    assert_false(exists("transport/90417"));
    assert_true(nothing_due(much_later));
}

/* ---- results -------------------------------------------------------------------------------- */

/* A report on the message of `id`, to its sender. */
static void submit_report(void)
{
    const struct spool_message m = {.sender = SLICE(""), .envid = SLICE("")};
    const struct spool_rcpt rcpt = {.address = SLICE("miller@mill.example"),
                                    .notify = NOTIFY_NEVER};
    const struct spool_content content = {.bytes = SLICE("Subject: report\n\nBad.\n"), .fd = -1};
    struct msg_id id;

    fixture_ok(sp, spool_submit(sp, &m, &rcpt, 1, SLICE(""), &content, false, SLICE(""), &id));
}

static void reports_gather_until_nothing_is_pending(void **state)
{
    static const uint32_t others[] = {COOK, ODD, STOREMAN};
    struct wall much_later = wall_after(NOW, 3600 * US_PER_S);
    struct msg_id root, rest;
    struct spool_rcpt r;
    size_t count;

    (void)state;
    put("90417", example_a);
    root = load();
    failed(root, BAKER);
    fixture_ok(sp, spool_put_off(sp, root, others, 3, SLICE("!retry"), much_later));
    assert_false(finish(root, NOW));
    commit();
    assert_non_null(strstr(read_file("transport/90417"),
                           "\nd 115:387:176::2000000000\tyou@x\001failed\0015.1.1"));

    /* Not before the interval has passed, as others may follow. */
    assert_true(nothing_due(wall_after(NOW, 899 * US_PER_S)));
    assert_int_equal(claim_one(SPOOL_DEFERRED, wall_after(NOW, 900 * US_PER_S)).n, root.n);
    assert_string_equal(rcpts_of(root, true), "");
    fixture_ok(sp, spool_read_rcpts(sp, root, 0, false, 1, &r, &count));
    assert_int_equal(count, 1);
    assert_int_equal(r.state, SPOOL_RCPT_FAILED);
    assert_true(slice_equal(r.status, SLICE("5.1.1")));
    assert_true(slice_equal(r.diagnostic, SLICE("smtp; 550 user unknown")));
    submit_report();
    fixture_ok(sp, spool_reported(sp, root));
    assert_true(finish(root, NOW));
    commit();
    assert_non_null(strstr(read_file("transport/90417"), "\nd+115:"));
    assert_int_equal(count_files("router"), 1);

    /* The next one has the rest to itself, and is due at once. */
    rest = claim_one(SPOOL_DEFERRED, much_later);
    assert_string_equal(rcpts_of(rest, true), "250 325 600");
    delivered(rest, COOK);
    delivered(rest, ODD);
    failed(rest, STOREMAN);
    assert_true(finish(rest, NOW));
    commit();
    root = claim_one(SPOOL_DEFERRED, much_later);
    assert_string_equal(rcpts_of(root, false), "600");
    fixture_ok(sp, spool_reported(sp, root));
    assert_true(finish(root, NOW));
    commit();
    assert_false(exists("transport/90417"));
    assert_false(exists("queue/90417"));
    assert_non_null(strstr(events_of(SPOOL_EVENT_COMPLETE), "(total 4 recipients, 2 failed)"));
}

static void what_is_expired_is_marked_and_stays_so(void **state)
{
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    id = load();
    settle(id, BAKER,
           (struct spool_verdict){.state = SPOOL_RCPT_FAILED,
                                  .diagnostic = SLICE("expired after 3 days"),
                                  .details = SLICE("\003\001failed\0015.4.7\001\001")});
    commit();
    assert_int_equal(tag_at("90417", BAKER), '-');
    assert_non_null(strstr(read_file("transport/90417"), "\nd 115:387:176::"));
    restart();
    id = load();
    assert_string_equal(rcpts_of(id, true), "250 325 600");
    assert_string_equal(rcpts_of(id, false), "115 250 325 600");
}

static void a_batch_that_is_undone_leaves_nothing(void **state)
{
    static const uint32_t baker[] = {BAKER};
    const char *before;
    struct spool_message m;
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    id = load();
    failed(id, COOK);
    delivered(id, ODD);
    fixture_ok(sp, spool_put_off(sp, id, baker, 1, SLICE("key"), NOW));
    submit_report();
    fixture_ok(sp, spool_hold(sp, id, SLICE("look")));
    sp->batch_error = -EIO; /* as a storage that fails does */
    assert_int_equal(spool_commit(sp), -EIO);
    audit();
    before = read_file("transport/90417");
    assert_string_equal(before, example_a);
    assert_int_equal(count_files("public"), 0);
    assert_int_equal(count_files("router"), 0);
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_int_equal(m.state, SPOOL_INCOMING);
    assert_int_equal(m.rcpt_pending, 4);
    assert_true(spool_is_claimed(sp, id));
    assert_true(nothing_due(NOW));
}

static void reports_are_handed_to_the_router(void **state)
{
    char command[600];
    char text[1024] = "";
    FILE *pipe;

    (void)state;
    submit_report();
    assert_int_equal(count_files("router"), 0);
    commit();
    assert_int_equal(count_files("public"), 0);
    (void)snprintf(command, sizeof command, "cat '%s'/[0-9]*", path_of("router"));
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_true(fread(text, 1, sizeof text - 1, pipe) > 0);
    assert_int_equal(pclose(pipe), 0);
    assert_string_equal(text, "rcvdfrom STDIN (\"\?\?\"@mill.example)\nchannel error\nerrormsg\n"
                              "todsn ORCPT=rfc822;miller@mill.example\n"
                              "to <miller@mill.example>\nenv-end\nSubject: report\n\nBad.\n");
}

/* ---- back to the router --------------------------------------------------------------------- */

/* The one file in router/ that has these words. */
static const char *letter_with(const char *words)
{
    static char text[1024];
    char command[1200];
    FILE *pipe;
    size_t len;

    (void)snprintf(command, sizeof command, "cat $(grep -lF '%s' '%s'/[0-9]*)", words,
                   path_of("router"));
    pipe = popen(command, "r");
    assert_non_null(pipe);
    len = fread(text, 1, sizeof text - 1, pipe);
    text[len] = '\0';
    assert_int_equal(pclose(pipe), 0);
    return text;
}

/* Its first recipient that is still to be delivered. */
static uint32_t first_pending(struct msg_id id)
{
    struct spool_rcpt r;
    size_t count;

    fixture_ok(sp, spool_read_rcpts(sp, id, 0, true, 1, &r, &count));
    assert_int_equal(count, 1);
    return r.n;
}

static size_t reroute(struct msg_id id, const uint32_t *ns, size_t count)
{
    size_t gone;

    fixture_ok(sp, spool_reroute(sp, id, ns, count, &gone));
    return gone;
}

static void each_group_goes_back_to_the_router_as_it_came(void **state)
{
    static const uint32_t ns[] = {BAKER, COOK, STOREMAN};
    const char *report_lines = "rcvdfrom STDIN (\"\?\?\"@mill.example)\n"
                               "from <miller@mill.example>\nenvid ENV+2B77\nnotaryret HDRS\n";
    struct msg_id id;
    char want[1024];

    (void)state;
    put("90417", example_a);
    id = load();
    assert_int_equal(reroute(id, ns, COUNT(ns)), 3);
    assert_string_equal(rcpts_of(id, false), "325");
    assert_int_equal(tag_at("90417", BAKER), ' '); /* not before the router file is safe */
    commit();
    assert_int_equal(count_files("router"), 2);
    assert_int_equal(count_files("public"), 0);
    (void)snprintf(want, sizeof want,
                   "%stodsn NOTIFY=FAILURE,DELAY ORCPT=rfc822;baker@grain.example\n"
                   "to <baker@grain.example>\n"
                   "todsn NOTIFY=NEVER ORCPT=rfc822;cook@grain.example\nto <cook@grain.example>\n"
                   "env-end\n"
                   "Received: by mill.example id <S90417>; Tue, 5 Mar 2024 09:12:00 +0000\n"
                   "From: miller@mill.example\nTo: baker@grain.example, cook@grain.example\n"
                   "Subject: flour\n\n",
                   report_lines);
    assert_string_equal(letter_with("to <cook@grain.example>"), want);
    (void)snprintf(want, sizeof want,
                   "%stodsn ORCPT=rfc822;storeman\nto <storeman>\nenv-end\n"
                   "From: miller@mill.example\nTo: storeman\nSubject: flour\n\n",
                   report_lines);
    assert_string_equal(letter_with("to <storeman>"), want);
    assert_int_equal(tag_at("90417", BAKER), '+');
    assert_int_equal(tag_at("90417", COOK), '+');
    assert_int_equal(tag_at("90417", ODD), ' ');
    assert_int_equal(tag_at("90417", STOREMAN), '+');
    assert_null(strstr(read_file("transport/90417"), "\nd"));

    restart();
    assert_string_equal(rcpts_of(load(), false), "325");
}

static void bodies_go_back_byte_by_byte(void **state)
{
    char command[600], *long_body;
    struct msg_id id;
    uint32_t n;

    (void)state;
    put_rcpts("7", "r           smtp h.example u@h.example 65534\n");
    write_file("queue/7", "env-end\nSubject: flour\n\none\r\ntwo\r");
    id = load();
    n = first_pending(id);
    assert_int_equal(reroute(id, &n, 1), 1);
    assert_true(finish(id, NOW));
    commit();
    assert_false(exists("transport/7"));
    assert_false(exists("queue/7"));
    assert_non_null(
        strstr(letter_with("to <u@h.example>"), "\nenv-end\nSubject: flour\n\none\r\ntwo\r"));

    /* What is too large for memory goes through a file. */
    long_body = mem_new((3 << 20) + 1);
    memset(long_body, 'x', 3 << 20);
    memcpy(long_body, "env-end\nSubject: flour\n\n", 24);
    put_rcpts("8", "r           smtp h.example v@h.example 65534\n");
    write_file("queue/8", long_body);
    mem_free(long_body);
    id = load();
    n = first_pending(id);
    assert_int_equal(reroute(id, &n, 1), 1);
    commit();
    (void)snprintf(command, sizeof command, "find '%s' -size +3071k -size -3074k | grep -q .",
                   path_of("router"));
    assert_int_equal(system(command), 0);
}

static void who_is_locked_done_or_no_mailbox_stays(void **state)
{
    char columns[16];
    struct msg_id id;
    struct spool_rcpt r[5];
    uint32_t ns[5];
    size_t count;

    (void)state;
    put_rcpts("7", "r           local - \"|/bin/prog\" 10\nr           local - /var/file 10\n"
                   "r           local - u1 10\nr           local - u2 10\n"
                   "r           local - u3 10\n");
    id = load();
    fixture_ok(sp, spool_read_rcpts(sp, id, 0, true, COUNT(r), r, &count));
    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++) {
        ns[i] = r[i].n;
    }
    (void)snprintf(columns, sizeof columns, "~%6d", (int)getpid());
    mark("7", ns[2], columns);
    mark("7", ns[3], "+      ");
    assert_int_equal(reroute(id, ns, count), 1);
    commit();
    assert_int_equal(count_files("router"), 1);
    assert_non_null(strstr(letter_with("to <u3>"), "\ntodsn ORCPT=rfc822;u3\nto <u3>\nenv-end\n"));
    assert_int_equal(tag_at("7", ns[0]), ' ');
    assert_int_equal(tag_at("7", ns[1]), ' ');
    assert_int_equal(tag_at("7", ns[2]), '~');
    assert_int_equal(tag_at("7", ns[4]), '+');
    assert_int_equal(spool_reroute(sp, id, &ns[4], 1, &count), -ENOENT);
}

static int rename_fails(int from_dir, const char *from, int to_dir, const char *to)
{
    (void)from_dir;
    (void)from;
    (void)to_dir;
    (void)to;
    return -EIO;
}

/* A crash before the router file is in its place would find all of its recipients open. */
static void a_router_that_takes_nothing_leaves_everything_open(void **state)
{
    static const uint32_t ns[] = {BAKER, STOREMAN};
    struct spool_io io = spool_io_real;
    struct msg_id id;

    (void)state;
    io.renameat = rename_fails;
    options.io = &io;
    restart();
    put("90417", example_a);
    id = load();
    assert_int_equal(reroute(id, ns, 2), 2);
    assert_int_equal(spool_commit(sp), -EIO);
    audit();
    assert_int_equal(count_files("public"), 0);
    assert_int_equal(count_files("router"), 0);
    assert_string_equal(read_file("transport/90417"), example_a);
    assert_string_equal(rcpts_of(id, true), "115 250 325 600");
    restart();
    assert_string_equal(rcpts_of(load(), true), "115 250 325 600");
}

/* ---- after a crash -------------------------------------------------------------------------- */

/* A number that no process has. */
static const char *dead_lock(void)
{
    static char columns[8];
    pid_t pid = fork();

    if (pid == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)snprintf(columns, sizeof columns, "~%6d", (int)pid);
    return columns;
}

static void locks_of_the_dead_are_taken_off(void **state)
{
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    mark("90417", BAKER, dead_lock());
    mark("90417", COOK, "+      ");
    id = load();
    assert_string_equal(rcpts_of(id, true), "115 325 600");
    assert_int_equal(tag_at("90417", BAKER), ' ');
}

/* In a container no init may ask for it, ever. */
static void who_has_ended_and_was_not_asked_for_locks_nothing(void **state)
{
    char columns[8];
    siginfo_t info;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    put("90417", example_a);
    (void)snprintf(columns, sizeof columns, "~%6d", (int)pid);
    mark("90417", BAKER, columns);
    assert_string_equal(rcpts_of(load(), true), "115 250 325 600");
    assert_int_equal(tag_at("90417", BAKER), ' ');
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The message file as it was before its removal, which a kill has prevented. */
static void leave_message(const struct stat *before)
{
    const struct timespec times[] = {before->st_atim, before->st_mtim};

    write_file("queue/90417", "env-end\nSubject: flour\n\nHello.\n");
    assert_int_equal(utimensat(AT_FDCWD, path_of("queue/90417"), times, 0), 0);
}

static void a_kill_between_two_removals_leaves_no_debris(void **state)
{
    static const char *const controls[] = {"transport/.90417", "transport/90417",
                                           "transport/.hold.90417", "transport/.damaged.90417"};
    struct stat before, other;
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    id = load();
    assert_int_equal(lstat(path_of("queue/90417"), &before), 0);
    fixture_ok(sp, spool_finish_all_done(sp, id));
    commit();
    assert_false(exists("queue/90417"));
    for (size_t i = 0; i < COUNT(controls); i++) { /* a router's, or one that came back */
        leave_message(&before);
        write_file(controls[i], example_a);
        restart();
        assert_true(exists("queue/90417"));
        assert_int_equal(unlink(path_of(controls[i])), 0);
    }
    other = before;
    other.st_mtim.tv_nsec ^= 1;
    leave_message(&other); /* another message, whose control file was not written yet */
    restart();
    assert_true(exists("queue/90417"));
    leave_message(&before);
    restart();
    assert_false(exists("queue/90417"));
}

static void a_record_of_removals_that_is_none_removes_nothing(void **state)
{
    static const char *const paths[] = {
        "../victim", "/victim", "victim", "A/../90417", "A/R/X/90417", "90417/x", "", ".", "A/"};
    char record[400];
    struct stat st;

    (void)state;
    for (size_t i = 0; i < COUNT(paths); i++) {
        put("90417", example_a);
        write_file("victim", "x");
        write_file("queue/victim", "x");
        assert_int_equal(unlink(path_of("transport/90417")), 0);
        assert_int_equal(lstat(path_of("queue/victim"), &st), 0);
        memset(record, ' ', sizeof record);
        (void)snprintf(record, sizeof record, "%s %lld.%09ld%*s", paths[i],
                       (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, 330, "");
        record[319] = '\n';
        record[320] = '\0';
        write_file(".scheduler.removing", record);
        restart();
        assert_true(exists("victim") && exists("queue/victim") && exists("queue/90417"));
    }
}

static void a_file_that_an_agent_works_on_waits(void **state)
{
    char columns[8];
    struct wall again;

    (void)state;
    put("90417", example_a);
    (void)snprintf(columns, sizeof columns, "~%6d", (int)getpid());
    mark("90417", BAKER, columns);
    poll_all();
    assert_non_null(strstr(events_of(SPOOL_EVENT_LOG), "held locked by PID="));
    assert_true(nothing_due(NOW));
    mark("90417", BAKER, "+      ");
    poll_all(); /* not even a scan finds it earlier */
    assert_true(nothing_due(NOW));
    fixture_ok(sp, spool_poll(sp, wall_after(NOW, 32 * US_PER_S), &again));
    assert_string_equal(rcpts_of(claim_one(SPOOL_INCOMING, NOW), true), "250 325 600");
}

static void an_end_that_is_only_written_down_counts(void **state)
{
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    mark("90417", BAKER, dead_lock());
    append("90417", "d 115:387:176::1\tx\001delivered\0012.0.0\001\001\tok\n");
    append("90417", "d 325:387:-1::1\tx\001failed\0015.0.0\001\001\tno\n");
    append("90417", "d 600:635:-1::1\tx\001delayed\0014.0.0\001\001\tlater\n");
    id = load();
    assert_string_equal(rcpts_of(id, true), "250 600");
    assert_string_equal(rcpts_of(id, false), "115 250 325 600");
    assert_int_equal(tag_at("90417", BAKER), '+');
    assert_int_equal(tag_at("90417", ODD), '-');
}

static void a_file_with_nothing_left_is_removed(void **state)
{
    (void)state;
    put_rcpts("7", "r+          smtp a.example u@a.example 1\n"
                   "r-          smtp a.example v@a.example 1\n"
                   "N NOTIFY=NEVER\n");
    poll_all();
    assert_false(exists("transport/7"));
    assert_false(exists("queue/7"));
    assert_non_null(strstr(events_of(SPOOL_EVENT_COMPLETE), "(total 2 recipients, 1 failed)"));
}

/* A crash between an agent's mark and the line that we would have written. */
static void a_failure_that_nobody_has_written_down_is_reported(void **state)
{
    struct spool_rcpt r;
    struct msg_id id;
    size_t count;

    (void)state;
    put_rcpts("7", "r+          smtp a.example u@a.example 1\n"
                   "r-          smtp a.example v@a.example 1\n"
                   "r-          smtp a.example w@a.example 1\n"
                   "N NOTIFY=SUCCESS\n");
    poll_all();
    id = claim_one(SPOOL_DEFERRED, NOW);
    fixture_ok(sp, spool_read_rcpts(sp, id, 0, false, 1, &r, &count));
    assert_int_equal(count, 1);
    assert_int_equal(r.state, SPOOL_RCPT_FAILED);
    assert_true(slice_equal(r.address, SLICE("v@a.example")));
    assert_true(slice_starts(r.diagnostic, SLICE("delivery has failed")));
    assert_null(strchr(rcpts_of(id, false), ' ')); /* of w nobody wants to hear */
}

static void what_agents_wrote_before_a_restart_is_reported(void **state)
{
    struct msg_id id;

    (void)state;
    put_rcpts("7", "r-          smtp a.example u@a.example 1\n");
    append("7", "d 89:150:-1::1\tx\001failed\0015.0.0\001\001\tno\n");
    poll_all();
    assert_int_equal(claim_one(SPOOL_INCOMING, NOW).n, 0);
    id = claim_one(SPOOL_DEFERRED, NOW);
    assert_int_not_equal(id.n, 0);
    assert_string_equal(rcpts_of(id, true), "");
}

/* ---- files that are not as they should be --------------------------------------------------- */

static void damaged_files_are_quarantined_and_stay(void **state)
{
    static const struct {
        const char *name, *control, *why;
    } cases[] = {
        {"11", "@ 0x00000017\ni 11\n", "no format bits but"},
        {"12", "@ 0x00000007\ni 12\no 0\n", "an `l` line"},
        {"13", "@ 0x00000007\no 0\nl x\n", "an `i` line"},
        {"14", "@ 0x00000007\ni 15\no 0\nl x\ns local - m 1\nr           smtp a b@a 1\nm\n\n",
         "names another message"},
        {"15", "@ 0x00000007\ni 15\no 0\nl x\ns local - m 1\nr           smtp a b@a 1\n",
         "the end of the file is missing"},
        {"16", "@ 0x00000007\ni 16\no 0\nl x\ns local - m 1\nr           smtp a b@a 1\nm\nA: b\n",
         "the end of the file is missing"},
        {"17", "@ 0x00000007\ni 17\no 0\nl x\ns local - m 1\nm\n\n", "0 recipients"},
        {"18", "", "an `i` line"},
    };
    struct spool_message m;
    struct msg_id ids[COUNT(cases) + 1];
    char path[64];
    size_t count;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        put(cases[i].name, cases[i].control);
    }
    put("90417", example_a);
    for (unsigned turn = 0; turn < 2; turn++) {
        poll_all();
        fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.states = 1U << SPOOL_CORRUPT},
                                  COUNT(ids), ids, &count));
        assert_int_equal(count, COUNT(cases));
        for (size_t i = 0; i < count; i++) {
            fixture_ok(sp, spool_read(sp, ids[i], &m));
            for (size_t j = 0; j < COUNT(cases); j++) {
                if (slice_equal(m.path, slice_string(cases[j].name))) {
                    assert_non_null(
                        memmem(m.reason.ptr, m.reason.len, cases[j].why, strlen(cases[j].why)));
                }
            }
        }
        for (size_t i = 0; i < COUNT(cases); i++) {
            (void)snprintf(path, sizeof path, "transport/.damaged.%s", cases[i].name);
            assert_true(exists(path));
            (void)snprintf(path, sizeof path, "queue/%s", cases[i].name);
            assert_true(exists(path));
        }
        assert_int_not_equal(claim_one(SPOOL_INCOMING, NOW).n, 0); /* it stops nobody else */
        assert_true(nothing_due(NOW));
        restart();
    }
}

static const uint32_t all_rcpts[] = {BAKER, COOK, ODD, STOREMAN};
static const char *const destinations[] = {
    "smtp/mx1.grain.example baker@grain.example", "smtp/mx1.grain.example cook@grain.example",
    "smtp/oven.example \"odd user\"@oven.example", "local/- storeman"};

/* All goes where it went before byte `changed` was, and nobody is missing; but for the recipient
 * whose own address was changed. */
static void goes_where_it_went(struct msg_id id, size_t changed)
{
    struct spool_rcpt rcpts[8];
    bool seen[COUNT(all_rcpts)] = {false};
    size_t count;

    if (spool_read_rcpts(sp, id, 0, false, 8, rcpts, &count) != 0) {
        return; /* told as an error */
    }
    for (size_t i = 0; i < count; i++) {
        char text[256];

        (void)snprintf(text, sizeof text, "%.*s/%.*s %.*s", SLICE_ARGS(rcpts[i].transport),
                       SLICE_ARGS(rcpts[i].nexthop), SLICE_ARGS(rcpts[i].address));
        for (size_t j = 0; j < COUNT(all_rcpts); j++) {
            if (rcpts[i].n != all_rcpts[j]) {
                continue;
            }
            seen[j] = true;
            if (changed < rcpts[i].n || changed >= rcpts[i].n + 14 + strlen(destinations[j])) {
                assert_string_equal(text, destinations[j]);
            }
        }
    }
    for (size_t j = 0; j < COUNT(all_rcpts); j++) {
        if (!seen[j] && changed != all_rcpts[j] + 1) {
            print_error("byte %zu: the recipient at %u is forgotten\n", changed,
                        (unsigned)all_rcpts[j]);
            fail();
        }
    }
}

/* Take in the bytes as a control file and look at it; then remove it. */
static void try_bytes(const char *bytes, size_t len, size_t changed)
{
    struct msg_id id = {0};
    struct spool_message m;
    size_t count;
    FILE *file;

    write_file("queue/90417", "env-end\nSubject: flour\n\nHello.\n");
    file = fopen(path_of("transport/90417"), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    poll_all();
    fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.states = 0}, 1, &id, &count));
    assert_int_equal(count, 1); /* whatever it is, it is there */
    fixture_ok(sp, spool_read(sp, id, &m));
    if (m.state != SPOOL_CORRUPT) {
        goes_where_it_went(id, changed);
    }
    fixture_ok(sp, spool_remove(sp, id));
    commit();
    (void)events_of(SPOOL_EVENT_LOG);
}

/* A router that changes the letters of an address can't be caught; all else is. */
static void damage_is_noticed_wherever_it_is(void **state)
{
    const size_t len = sizeof example_a - 1;
    char bytes[sizeof example_a];

    (void)state;
    for (size_t at = 0; at < len; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            memcpy(bytes, example_a, len);
            bytes[at] = (char)((unsigned char)bytes[at] ^ 1U << bit);
            try_bytes(bytes, len, at);
        }
    }
    for (size_t i = 0; i < COUNT(all_rcpts); i++) {
        for (const char *letter = "@ioleTsNRnmMbdvx"; *letter != '\0'; letter++) {
            memcpy(bytes, example_a, len);
            bytes[all_rcpts[i]] = *letter;
            try_bytes(bytes, len, all_rcpts[i]);
        }
    }
}

/* Between two groups nothing tells that there was another; a router syncs a file before it gives it
 * its name, so none is cut there. */
static void a_file_that_was_cut_is_noticed(void **state)
{
    const size_t between = 543, error_line = between + sizeof "e miller@mill.example";

    (void)state;
    for (size_t cut = 1; cut < sizeof example_a - 1; cut++) {
        if (cut != between && cut != error_line) {
            try_bytes(example_a, cut, cut);
        }
    }
}

static void a_missing_message_loses_nothing(void **state)
{
    struct spool_totals t;

    (void)state;
    put("90417", example_a);
    assert_int_equal(unlink(path_of("queue/90417")), 0);
    poll_all();
    fixture_ok(sp, spool_totals(sp, &t));
    assert_int_equal(t.corrupt, 1);
    assert_true(exists("transport/.damaged.90417"));
    assert_non_null(strstr(events_of(SPOOL_EVENT_WARNING), "queue/90417 is missing"));
}

static void what_was_repaired_by_hand_goes_on(void **state)
{
    struct spool_totals t;

    (void)state;
    put("90417", "nonsense\n");
    poll_all();
    write_file("transport/.damaged.90417", example_a);
    assert_int_equal(rename(path_of("transport/.damaged.90417"), path_of("transport/90417")), 0);
    poll_all();
    fixture_ok(sp, spool_totals(sp, &t));
    assert_int_equal(t.corrupt, 0);
    assert_string_equal(rcpts_of(claim_one(SPOOL_INCOMING, NOW), true), "115 250 325 600");
}

static void what_was_quarantined_is_read_anew_when_it_is_released(void **state)
{
    struct spool_totals t;
    struct msg_id id;
    size_t count;

    (void)state;
    put("90417", example_a);
    assert_int_equal(rename(path_of("queue/90417"), path_of("elsewhere")), 0);
    poll_all();
    fixture_ok(
        sp, spool_scan(sp, &(struct spool_filter){.states = 1U << SPOOL_CORRUPT}, 1, &id, &count));
    assert_int_equal(rename(path_of("elsewhere"), path_of("queue/90417")), 0);
    fixture_ok(sp, spool_hold(sp, id, SLICE("repaired")));
    commit();
    assert_true(exists("transport/.hold.90417"));
    fixture_ok(sp, spool_release(sp, id, NOW));
    commit();
    assert_true(nothing_due(NOW));
    poll_all();
    fixture_ok(sp, spool_totals(sp, &t));
    assert_int_equal(t.incoming, 1);
    assert_string_equal(rcpts_of(claim_one(SPOOL_INCOMING, NOW), true), "115 250 325 600");
}

static void links_and_directories_are_not_followed(void **state)
{
    (void)state;
    put("90417", example_a);
    assert_int_equal(rename(path_of("transport/90417"), path_of("elsewhere")), 0);
    assert_int_equal(symlink(path_of("elsewhere"), path_of("transport/90417")), 0);
    assert_int_equal(mkdir(path_of("transport/90418"), 0755), 0);
    assert_int_equal(mkfifo(path_of("transport/90419"), 0644), 0);
    assert_int_equal(mkdir(path_of("outside"), 0755), 0);
    put("../outside/5", "i 5\n");
    assert_int_equal(symlink(path_of("outside"), path_of("transport/A")), 0);
    poll_all();
    assert_true(nothing_due(NOW));
    assert_string_equal(read_file("elsewhere"), example_a);
    assert_true(exists("outside/5"));
}

static void of_two_files_with_one_number_the_second_waits(void **state)
{
    struct msg_id id;

    (void)state;
    put_rcpts("7", "r           smtp a.example u@a.example 1\n");
    id = load();
    put_rcpts("7-2", "r           smtp b.example v@b.example 1\n");
    poll_all();
    poll_all();
    assert_true(nothing_due(NOW));
    assert_string_equal(events_of(SPOOL_EVENT_LOG), "transport/7-2 waits: 7 has the same number\n");
    fixture_ok(sp, spool_finish_all_done(sp, id));
    commit();
    assert_true(exists("transport/7-2"));
    assert_int_not_equal(load().n, 0);
}

static void a_message_is_followed_in_a_file_that_is_there(void **state)
{
    static const char *const wrong[] = {"../../outside", "/tmp/x", "../public/link", "..",
                                        "../public/missing"};
    char lines[512], name[16];
    struct msg_id id;

    (void)state;
    write_file("public/v_1", "Hello\n");
    assert_int_equal(symlink(path_of("public/v_1"), path_of("public/link")), 0);
    put("7", "@ 0x00000007\nv ../public/./v_1\ni 7\no 24\nl <7@x>\ns local - m 1\n"
             "r           smtp a b@a 1\nm\n\n");
    id = load();
    spool_verbose(sp, id, SLICE("scheduler processing 7"));
    assert_string_equal(read_file("public/v_1"), "Hello\nscheduler processing 7\n");
    for (size_t i = 0; i < COUNT(wrong); i++) {
        (void)snprintf(name, sizeof name, "%zu", 8 + i);
        (void)snprintf(lines, sizeof lines,
                       "@ 0x00000007\nv %s\ni %s\no 24\nl <7@x>\ns local - m 1\n"
                       "r           smtp a b@a 1\nm\n\n",
                       wrong[i], name);
        put(name, lines);
        spool_verbose(sp, load(), SLICE("no"));
    }
    assert_string_equal(read_file("public/v_1"), "Hello\nscheduler processing 7\n");
    assert_false(exists("public/missing"));
}

static void a_file_that_follows_a_message_is_no_business_of_roots_groups(void **state)
{
    static const struct {
        uid_t owner;
        gid_t group;
        mode_t mode;
        bool written;
    } cases[] = {{0, 0, 0664, false},
                 {0, 0, 0660, false},
                 {0, 0, 0666, true},
                 {1234, 0, 0600, true},
                 {1234, 0, 0460, false}};
    char lines[512], name[16];

    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    assert_return_code(chmod(path_of("."), 0755), errno);
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_file("public/v_1", "Hello\n");
        assert_return_code(chown(path_of("public/v_1"), cases[i].owner, cases[i].group), errno);
        assert_return_code(chmod(path_of("public/v_1"), cases[i].mode), errno);
        (void)snprintf(name, sizeof name, "%zu", 8 + i);
        (void)snprintf(lines, sizeof lines,
                       "@ 0x00000007\nv ../public/v_1\ni %s\no 24\nl <7@x>\ns local - m 1\n"
                       "r           smtp a b@a 1\nm\n\n",
                       name);
        put(name, lines);
        (void)snprintf(name, sizeof name, "queue/%zu", 8 + i);
        assert_return_code(chown(path_of(name), 1234, 1234), errno);
        spool_verbose(sp, load(), SLICE("followed"));
        assert_string_equal(read_file("public/v_1"),
                            cases[i].written ? "Hello\nfollowed\n" : "Hello\n");
        assert_return_code(unlink(path_of("public/v_1")), errno);
    }
}

/* ---- alternatives --------------------------------------------------------------------------- */

static const char alternatives[] = "X           1 smtp a.example u@a.example 1\n"
                                   "X           1 smtp b.example u@b.example 1\n"
                                   "X           1 smtp c.example u@c.example 1\n"
                                   "X           2 smtp d.example v@d.example 1\n";
enum { FIRST = 89, SECOND = 132, THIRD = 175, OTHER = 218 };

static void of_alternatives_one_is_tried_at_a_time(void **state)
{
    struct msg_id id, next;

    (void)state;
    put_rcpts("7", alternatives);
    id = load();
    assert_string_equal(rcpts_of(id, false), "89 218");
    mark("7", FIRST, "-      ");
    failed(id, FIRST);
    mark("7", OTHER, "+      ");
    delivered(id, OTHER);
    assert_true(finish(id, NOW));
    commit();
    assert_int_equal(tag_at("7", OTHER), '+');
    next = claim_one(SPOOL_DEFERRED, NOW);
    assert_string_equal(rcpts_of(next, false), "132");
    assert_true(nothing_due(wall_after(NOW, 3600 * US_PER_S))); /* the failure is known */
    mark("7", SECOND, "+      ");
    delivered(next, SECOND);
    assert_int_equal(tag_at("7", THIRD), ' ');
    commit();
    assert_int_equal(tag_at("7", THIRD), '+');
    assert_true(finish(next, NOW));
    commit();
    assert_false(exists("transport/7"));
}

static void when_all_alternatives_fail_the_last_is_reported(void **state)
{
    static const uint32_t offsets[] = {FIRST, SECOND, THIRD};
    struct msg_id id;

    (void)state;
    put_rcpts("7", alternatives);
    id = load();
    mark("7", OTHER, "+      ");
    delivered(id, OTHER);
    for (size_t i = 0; i < COUNT(offsets); i++) {
        mark("7", offsets[i], "-      ");
        failed(id, offsets[i]);
        (void)finish(id, NOW);
        commit();
        id = claim_one(SPOOL_DEFERRED, NOW);
    }
    assert_string_equal(rcpts_of(id, false), "175");
    restart();
    poll_all();
    id = claim_one(SPOOL_DEFERRED, NOW);
    assert_string_equal(rcpts_of(id, false), "89 132 175");
}

static void alternatives_survive_a_restart(void **state)
{
    struct msg_id id;

    (void)state;
    put_rcpts("7", alternatives);
    mark("7", FIRST, "-      ");
    id = load();
    assert_string_equal(rcpts_of(id, false), "132 218");
    mark("7", SECOND, "+      ");
    restart();
    id = load();
    assert_string_equal(rcpts_of(id, false), "218");
    assert_int_equal(tag_at("7", THIRD), '+');
}

/* ---- obsoletes ------------------------------------------------------------------------------ */

static void put_obsoleting(const char *name, const char *what, const char *error_to)
{
    char control[1024];

    (void)snprintf(control, sizeof control,
                   "@ 0x00000007\ni %s\no 24\nl <%s@x>\nx %s\ns local - %s 500\n"
                   "r           smtp a.example u@a.example 1\nm\n\n",
                   name, name, what, error_to);
    put(name, control);
}

static void a_message_takes_back_one_of_the_same_sender(void **state)
{
    (void)state;
    put_rcpts("7", "r           smtp a.example u@a.example 1\n");
    put_rcpts("8", "r           smtp a.example u@a.example 1\n");
    poll_all();
    put_obsoleting("9", "<7@here.example>", "me@here.example");
    put_obsoleting("10", "<8@here.example>", "somebody@else.example");
    poll_all();
    assert_false(exists("transport/7"));
    assert_false(exists("queue/7"));
    assert_true(exists("transport/8"));
    assert_true(exists("transport/9"));
    assert_non_null(strstr(events_of(SPOOL_EVENT_COMPLETE), ": obsoleted by 9"));
}

/* ---- many ----------------------------------------------------------------------------------- */

enum { MANY = 20000 };

/* One file, many recipients; each has its turn, and nothing is quadratic that would be felt. */
static void a_long_list_is_worked_off(void **state)
{
    char *control = mem_new(MANY * 80 + 1024);
    struct spool_rcpt page[500];
    struct msg_id root, part;
    uint32_t after = 0, seen = 0;
    size_t count, len;

    (void)state;
    len = (size_t)sprintf(control, "@ 0x00000007\ni 7\no 24\nl <7@x>\ns local - me@x 500\n");
    for (unsigned i = 0; i < MANY; i++) {
        len += (size_t)sprintf(control + len, "r           smtp h%u.example u%u@x 65534\n",
                               i % 5000, i);
    }
    (void)strcpy(control + len, "m\n\n");
    put("7", control);
    mem_free(control);
    root = load();
    do {
        uint32_t ns[COUNT(page)];

        fixture_ok(sp, spool_read_rcpts(sp, root, after, true, COUNT(page), page, &count));
        for (size_t i = 0; i < count; i++) {
            ns[i] = after = page[i].n;
        }
        for (size_t i = 0; i < count; i++) {
            char key[64];

            if (seen++ % 2 == 0) {
                failed(root, ns[i]);
            } else {
                (void)snprintf(key, sizeof key, "!retry %u", seen % 5000);
                fixture_ok(sp, spool_put_off(sp, root, &ns[i], 1, slice_string(key), NOW));
            }
        }
    } while (count == COUNT(page));
    assert_int_equal(seen, MANY);
    assert_false(finish(root, NOW));
    commit();
    seen = 0;
    while ((part = claim_one(SPOOL_DEFERRED, NOW)).n != 0 && part.n != root.n) {
        struct spool_message m;

        fixture_ok(sp, spool_read(sp, part, &m));
        seen += m.rcpt_pending;
        fixture_ok(sp, spool_finish_all_done(sp, part));
    }
    commit();
    assert_int_equal(seen, MANY / 2);
    assert_int_equal(part.n, root.n); /* its reports, as nothing else is left */
    fixture_ok(sp, spool_reported(sp, root));
    assert_true(finish(root, NOW));
    commit();
    assert_false(exists("transport/7"));
}

/* ---- any calls, in any order ---------------------------------------------------------------- */

enum { FILES = 6, SEEDS = 60, BATCHES = 40 };

/* All that can be asked, as a text; owned by the caller. */
static char *whole_state(void)
{
    struct msg_id ids[200];
    struct buf text;
    size_t count;

    buf_init(&text, 1 << 20);
    fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.states = 0}, COUNT(ids), ids, &count));
    for (size_t i = 0; i < count; i++) {
        struct spool_rcpt rcpts[64];
        struct spool_message m;
        size_t n;

        fixture_ok(sp, spool_read(sp, ids[i], &m));
        (void)buf_addf(&text, "%llu %d due %lld key '%.*s' claimed %d expire %d warned %u '%.*s':",
                       (unsigned long long)m.id.n, m.state, (long long)m.due.us,
                       SLICE_ARGS(m.parked), spool_is_claimed(sp, m.id), m.force_expire,
                       (unsigned)m.warnings, SLICE_ARGS(m.reason));
        fixture_ok(sp, spool_read_rcpts(sp, ids[i], 0, false, COUNT(rcpts), rcpts, &n));
        for (size_t j = 0; j < n; j++) {
            (void)buf_addf(&text, " %u=%d/%u '%.*s'", (unsigned)rcpts[j].n, rcpts[j].state,
                           (unsigned)rcpts[j].attempts, SLICE_ARGS(rcpts[j].diagnostic));
        }
        (void)buf_add_byte(&text, '\n');
    }
    assert_false(text.failed);
    return buf_take(&text);
}

/* A recipient that is still to be delivered; 0: none. */
static uint32_t any_rcpt(struct rng *rng, struct msg_id id)
{
    struct spool_rcpt rcpts[64];
    size_t count;

    fixture_ok(sp, spool_read_rcpts(sp, id, 0, true, COUNT(rcpts), rcpts, &count));
    return count == 0 ? 0 : rcpts[rng_below(rng, count)].n;
}

/* One call; what is refused is. */
static void any_call(struct rng *rng)
{
    static const struct slice keys[] = {{"one", 3}, {"two", 3}, {"three", 5}};
    struct wall when = wall_after(NOW, (int64_t)rng_below(rng, 100) * US_PER_S);
    struct slice key = keys[rng_below(rng, COUNT(keys))];
    struct msg_id ids[200], id;
    size_t count;
    uint32_t n;
    bool flag;

    fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.states = 0}, COUNT(ids), ids, &count));
    if (count == 0) {
        return;
    }
    id = ids[rng_below(rng, count)];
    n = any_rcpt(rng, id);
    switch (rng_below(rng, 17)) {
    case 0:
    case 1:
        (void)spool_claim(sp, rng_below(rng, 2) == 0 ? SPOOL_INCOMING : SPOOL_DEFERRED, when, 2,
                          ids, &count);
        break;
    case 2:
    case 3:
        (void)(n != 0 && spool_put_off(sp, id, &n, 1, key, when) == 0);
        break;
    case 4:
        (void)spool_claim_parked(sp, key, when, 2, ids, &count, &flag);
        break;
    case 5:
        (void)spool_wake(sp, key, when, &count);
        break;
    case 6:
        (void)spool_finish(sp, id, when, &flag);
        break;
    case 7:
        (void)(rng_below(rng, 4) == 0 ? spool_finish_all_done(sp, id)
                                      : spool_set_due(sp, id, when));
        break;
    case 8:
        (void)spool_hold(sp, id, SLICE("held"));
        break;
    case 9:
        (void)spool_release(sp, id, when);
        break;
    case 10:
        (void)(rng_below(rng, 8) == 0 ? spool_remove(sp, id) : spool_requeue(sp, id, when));
        break;
    case 11:
        (void)spool_park(sp, id, key, when);
        break;
    case 12:
        (void)(rng_below(rng, 2) == 0 ? spool_set_warned(sp, id) : spool_set_force_expire(sp, id));
        break;
    case 13:
        (void)spool_reported(sp, id);
        break;
    case 14:
        (void)(n != 0 && spool_reroute(sp, id, &n, 1, &count) == 0);
        break;
    default:
        if (n != 0) {
            struct spool_verdict v = {.state = rng_below(rng, 2) == 0 ? SPOOL_RCPT_PENDING
                                                                      : SPOOL_RCPT_FAILED,
                                      .attempted = rng_below(rng, 4) != 0,
                                      .done = rng_below(rng, 4) == 0,
                                      .diagnostic = key,
                                      .when = when};

            (void)spool_settle(sp, id, n, &v);
        }
        break;
    }
}

static void put_any(struct rng *rng, unsigned number)
{
    char name[16], lines[4096] = "";
    size_t len = 0, count = 1 + rng_below(rng, 12);

    (void)snprintf(name, sizeof name, "%u", 100 + number);
    for (size_t i = 0; i < count; i++) {
        len +=
            (size_t)snprintf(lines + len, sizeof lines - len, "%s smtp h%u.example u%zu@x 65534\n",
                             rng_below(rng, 6) == 0 ? "X           1" : "r          ",
                             (unsigned)rng_below(rng, 4), i);
    }
    put_rcpts(name, lines);
}

/* The invariants hold after every batch; one that fails leaves everything as it was. */
static void batches_happen_as_a_whole_or_not_at_all(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rng rng;

        rng_init(&rng, seed);
        for (unsigned i = 0; i < FILES; i++) {
            put_any(&rng, i);
        }
        poll_all();
        for (unsigned batch = 0; batch < BATCHES; batch++) {
            char *before, *after;
            bool fails = rng_below(&rng, 2) == 0;

            if (fails) {
                before = whole_state();
            }
            /* Claims of no batch stay, so a batch that is to be compared begins with a change. */
            fixture_ok(sp, spool_wake(sp, SLICE("nothing"), NOW, &(size_t){0}));
            for (unsigned i = 0; i < 8; i++) {
                any_call(&rng);
            }
            if (fails) {
                sp->batch_error = -EIO; /* as a storage that fails does */
                assert_int_equal(spool_commit(sp), -EIO);
                after = whole_state();
                if (strcmp(before, after) != 0) {
                    print_error("seed %llu\nbefore\n%safter\n%s", (unsigned long long)seed, before,
                                after);
                    fail();
                }
                mem_free(before);
                mem_free(after);
            } else {
                fixture_ok(sp, spool_commit(sp));
            }
            audit();
            (void)events_of(SPOOL_EVENT_LOG);
        }
        tear_down(NULL);
        set_up(NULL);
    }
}

/* ---- operators ------------------------------------------------------------------------------ */

static void held_mail_is_held_after_a_restart(void **state)
{
    struct spool_message m;
    struct spool_totals t;
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    id = load();
    fixture_ok(sp, spool_hold(sp, id, SLICE("suspicious")));
    commit();
    assert_false(exists("transport/90417"));
    assert_true(exists("transport/.hold.90417"));
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_true(slice_equal(m.reason, SLICE("suspicious")));
    restart();
    poll_all();
    fixture_ok(sp, spool_totals(sp, &t));
    assert_int_equal(t.hold, 1);
    assert_true(nothing_due(NOW));
    fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.states = 0}, 1, &id, &(size_t){0}));
    fixture_ok(sp, spool_release(sp, id, NOW));
    commit();
    assert_true(exists("transport/90417"));
    assert_int_equal(claim_one(SPOOL_DEFERRED, NOW).n, id.n);
    assert_string_equal(rcpts_of(id, true), "115 250 325 600");
}

static void removing_takes_both_files_whatever_their_state(void **state)
{
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    put("11", "nonsense\n");
    poll_all();
    while (
        fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.states = 0}, 1, &id, &(size_t){0})),
        true) {
        struct spool_totals t;

        fixture_ok(sp, spool_remove(sp, id));
        commit();
        fixture_ok(sp, spool_totals(sp, &t));
        if (t.incoming + t.deferred + t.hold + t.corrupt == 0) {
            break;
        }
    }
    assert_int_equal(count_files("transport"), 0);
    assert_int_equal(count_files("queue"), 0);
}

/* ---- finding files -------------------------------------------------------------------------- */

static void files_are_moved_into_their_hash_directory(void **state)
{
    struct spool_message m;
    struct msg_id id;

    (void)state;
    own_options.hash_levels = 2;
    restart();
    put("90417", example_a);
    id = load();
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_true(slice_equal(m.path, SLICE("T/P/90417")));
    assert_true(exists("transport/T/P/90417"));
    assert_true(exists("queue/T/P/90417"));
    /* Found where it is, whatever is configured; a move cut in half is made whole. */
    own_options.hash_levels = 0;
    assert_int_equal(rename(path_of("queue/T/P/90417"), path_of("queue/90417")), 0);
    restart();
    id = load();
    assert_true(exists("queue/T/P/90417"));
    fixture_ok(sp, spool_finish_all_done(sp, id));
    commit();
    assert_false(exists("transport/T/P/90417"));
    assert_false(exists("queue/T/P/90417"));
}

static void a_request_to_try_a_host_is_heard_once(void **state)
{
    (void)state;
    write_file("transport/118842-etrn", "T Client.example [192.0.2.9]\n");
    poll_all();
    assert_string_equal(events_of(SPOOL_EVENT_ETRN), "client.example\n");
    assert_false(exists("transport/118842-etrn"));
}

static void announced_files_are_taken_at_once(void **state)
{
    static const char *const bad[] = {"NEW ../90417", "NEW 0417",   "NEW A/B/C/90417", "NEW /90417",
                                      "NEW a/90417",  "OLD 90417",  "NEW 90417/x",     "NEW ",
                                      "new 90417",    "NEW .90417", "NEW A//90417"};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct stat st;
    struct wall again;

    (void)state;
    own_options.notify_path = path_of("notify");
    (void)strcpy(address.sun_path, path_of("notify"));
    restart();
    poll_all();
    assert_true(spool_external_fd(sp) >= 0);
    assert_int_equal(stat(address.sun_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0200);
    put("90417", example_a);
    for (size_t i = 0; i < COUNT(bad); i++) {
        (void)sendto(fd, bad[i], strlen(bad[i]), 0, (struct sockaddr *)&address, sizeof address);
        fixture_ok(sp, spool_poll(sp, NOW, &again));
    }
    assert_true(nothing_due(NOW));
    assert_true(sendto(fd, "NEW 90417", 9, 0, (struct sockaddr *)&address, sizeof address) == 9);
    fixture_ok(sp, spool_poll(sp, NOW, &again));
    assert_int_not_equal(claim_one(SPOOL_INCOMING, NOW).n, 0);
    close(fd);
    own_options.notify_path = NULL;
}

/* ZMailer's scheduler works without its socket, too. */
static void without_its_socket_a_postoffice_opens_all_the_same(void **state)
{
    char path[200];

    (void)state;
    (void)snprintf(path, sizeof path, "/%0150d", 0);
    own_options.notify_path = path;
    restart();
    assert_non_null(strstr(events_of(SPOOL_EVENT_WARNING), "by reading the directories alone"));
    put("90417", example_a);
    poll_all();
    assert_int_not_equal(claim_one(SPOOL_INCOMING, NOW).n, 0);
    own_options.notify_path = NULL;
}

/* ---- resync --------------------------------------------------------------------------------- */

static void what_others_have_done_is_seen_by_a_resync(void **state)
{
    static const uint32_t oven[] = {ODD};
    struct wall later = wall_after(NOW, 60 * US_PER_S);
    struct msg_id id;

    (void)state;
    put("90417", example_a);
    id = load();
    fixture_ok(sp, spool_put_off(sp, id, oven, 1, SLICE("key"), later));
    commit();
    mark("90417", BAKER, "-      ");
    append("90417", "d 115:387:176::1\tx\001failed\0015.4.7\001\001\texpired\n");
    mark("90417", ODD, "+      ");
    mark("90417", COOK, dead_lock());
    fixture_ok(sp, spool_resync(sp, SLICE("90417")));
    audit();
    assert_string_equal(events_of(SPOOL_EVENT_CHANGED), "recipients are done with\n");
    assert_string_equal(rcpts_of(id, true), "250 600");
    assert_string_equal(rcpts_of(id, false), "115 250 600");
    assert_int_equal(tag_at("90417", COOK), ' ');
    assert_true(nothing_due(later));
    assert_int_equal(spool_resync(sp, SLICE("90418")), -ENOENT);
}

static void a_resync_of_a_file_where_all_is_done_ends_it(void **state)
{
    (void)state;
    put_rcpts("7", "r           smtp a.example u@a.example 1\n");
    poll_all();
    mark("7", 89, "+      ");
    fixture_ok(sp, spool_resync(sp, SLICE("7")));
    assert_false(exists("transport/7"));
    assert_non_null(strstr(events_of(SPOOL_EVENT_COMPLETE), "complete (total 1 recipients"));
}

static void a_file_that_is_read_again_too_often_is_found_anew(void **state)
{
    (void)state;
    put("90417", example_a);
    poll_all();
    for (unsigned i = 0; i < 30; i++) {
        fixture_ok(sp, spool_resync(sp, SLICE("90417")));
    }
    assert_int_equal(spool_resync(sp, SLICE("90417")), -ENOENT);
    assert_non_null(strstr(events_of(SPOOL_EVENT_LOG), "too many Resync attempts"));
    assert_int_not_equal(load().n, 0);
}

static void a_file_that_vanishes_is_forgotten(void **state)
{
    struct spool_totals t;

    (void)state;
    put("90417", example_a);
    poll_all();
    assert_int_equal(unlink(path_of("transport/90417")), 0);
    assert_int_equal(spool_resync(sp, SLICE("90417")), -ENOENT);
    fixture_ok(sp, spool_totals(sp, &t));
    assert_int_equal(t.incoming, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

UNIT_MAIN(
    TEST(a_file_is_read_as_the_router_wrote_it),
    TEST(content_is_headers_and_body_in_a_buffer_or_a_file), TEST(both_files_go_when_all_is_done),
    TEST(destinations_that_are_put_off_wait_each_for_itself),
    TEST(reports_gather_until_nothing_is_pending), TEST(what_is_expired_is_marked_and_stays_so),
    TEST(a_batch_that_is_undone_leaves_nothing), TEST(reports_are_handed_to_the_router),
    TEST(each_group_goes_back_to_the_router_as_it_came), TEST(bodies_go_back_byte_by_byte),
    TEST(who_is_locked_done_or_no_mailbox_stays),
    TEST(a_router_that_takes_nothing_leaves_everything_open), TEST(locks_of_the_dead_are_taken_off),
    TEST(who_has_ended_and_was_not_asked_for_locks_nothing),
    TEST(a_kill_between_two_removals_leaves_no_debris),
    TEST(a_record_of_removals_that_is_none_removes_nothing),
    TEST(a_file_that_an_agent_works_on_waits), TEST(an_end_that_is_only_written_down_counts),
    TEST(a_file_with_nothing_left_is_removed),
    TEST(a_failure_that_nobody_has_written_down_is_reported),
    TEST(what_agents_wrote_before_a_restart_is_reported), TEST(damage_is_noticed_wherever_it_is),
    TEST(a_file_that_was_cut_is_noticed), TEST(damaged_files_are_quarantined_and_stay),
    TEST(a_missing_message_loses_nothing), TEST(what_was_repaired_by_hand_goes_on),
    TEST(what_was_quarantined_is_read_anew_when_it_is_released),
    TEST(links_and_directories_are_not_followed),
    TEST(of_two_files_with_one_number_the_second_waits),
    TEST(a_message_is_followed_in_a_file_that_is_there),
    TEST(a_file_that_follows_a_message_is_no_business_of_roots_groups),
    TEST(of_alternatives_one_is_tried_at_a_time),
    TEST(when_all_alternatives_fail_the_last_is_reported), TEST(alternatives_survive_a_restart),
    TEST(a_message_takes_back_one_of_the_same_sender), TEST(a_long_list_is_worked_off),
    TEST(batches_happen_as_a_whole_or_not_at_all), TEST(held_mail_is_held_after_a_restart),
    TEST(removing_takes_both_files_whatever_their_state),
    TEST(files_are_moved_into_their_hash_directory), TEST(a_request_to_try_a_host_is_heard_once),
    TEST(announced_files_are_taken_at_once),
    TEST(without_its_socket_a_postoffice_opens_all_the_same),
    TEST(what_others_have_done_is_seen_by_a_resync),
    TEST(a_resync_of_a_file_where_all_is_done_ends_it),
    TEST(a_file_that_is_read_again_too_often_is_found_anew),
    TEST(a_file_that_vanishes_is_forgotten))
