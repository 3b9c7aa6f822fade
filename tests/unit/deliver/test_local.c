/*
 * The role local with a queue process that the test plays; maildirs and commands are real.
 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lease_page.h"
#include "mem.h"
#include "played_queue.h"

static struct {
    char top[64];
} site;

static void configure(const char *time_limit)
{
    struct buf text;

    buf_init(&text, 65536);
    buf_addf(
        &text,
        "myhostname = mx.here.test\nstate_directory = %s\ncommand_time_limit = %s\n"
        "command_output_limit = 2000\nrecipient_delimiter = +\n"
        "%s"
        "box/*\n\tagent=maildir maildir=mail/%%d/%%u\n"
        "save/*\n\tagent=pipe command=\"/bin/sh -c 'cat >%s/out; echo $SENDER $RECIPIENT'\"\n"
        "exit/*\n\tagent=pipe command=\"/bin/sh -c 'echo $NEXTHOP; exit $NEXTHOP'\"\n"
        "done/*\n\tagent=pipe command=\"/bin/sh -c 'true'\"\n"
        "hang/*\n\tagent=pipe command=\"/bin/sh -c 'sleep 100 & sleep 100'\"\n"
        "slow/*\n\tagent=pipe command=\"/bin/sh -c 'cat >%s/out; while [ ! -e %s/go ]; do sleep "
        "0.01; done'\"\n"
        "flood/*\n\tagent=pipe command=\"/bin/sh -c 'yes | head -c 3000000; exit 75'\"\n"
        "kill/*\n\tagent=pipe command=\"/bin/sh -c 'kill -11 $$'\"\n"
        "gone/*\n\tagent=pipe command=\"/nonexistent/program\"\n"
        "fds/*\n\tagent=pipe command=\"/bin/sh -c 'ls /proc/self/fd | wc -l'\"\n"
        "who/*\n\tagent=pipe command=\"/usr/bin/id -un\" user=nobody\n"
        "nobody/*\n\tagent=maildir maildir=mail/%%u user=no-such-user\n"
        "small/*\n\tagent=maildir size_limit=5\n",
        site.top, time_limit, geteuid() == 0 ? "*/*\n\tuser=nobody\n" : "", site.top, site.top,
        site.top);
    played_configure(buf_slice(&text), site.top);
    buf_fini(&text);
}

static int start(void **state)
{
    (void)state;
    played_init(&local_role);
    (void)snprintf(site.top, sizeof site.top, "/tmp/test_local.XXXXXX");
    assert_non_null(mkdtemp(site.top));
    assert_return_code(chmod(site.top, 0777), 0); /* children may be other users */
    configure("1000s");
    played_start();
    return 0;
}

static int stop(void **state)
{
    char command[100];

    (void)state;
    played_end();
    (void)snprintf(command, sizeof command, "rm -rf %s", site.top);
    return system(command);
}

static void put(uint64_t entry, const char *transport, const char *nexthop, const char *rcpts,
                enum wire_content_place place, int fd)
{
    struct wire_deliver_rcpt list[10] = {0};
    struct slice rest = slice_string(rcpts);
    struct slice content = SLICE("Subject: x\r\n\r\nbody\r\n");
    uint32_t count = 0;

    while (rest.ptr != NULL) {
        list[count] =
            (struct wire_deliver_rcpt){.n = count + 100, .address = slice_cut(&rest, ' ')};
        count++;
    }
    wire_put_deliver(
        played.channel,
        &(struct wire_deliver){.entry = entry,
                               .transport = slice_string(transport),
                               .nexthop = slice_string(nexthop),
                               .id = SLICE("4Vq1"),
                               .sender = SLICE("a@here.test"),
                               .rcpts = list,
                               .rcpt_count = count,
                               .size = content.len,
                               .place = place,
                               .content = place == CONTENT_INSIDE ? content : slice_of("", 0)},
        fd);
}

static void put_simple(uint64_t entry, const char *transport, const char *nexthop)
{
    put(entry, transport, nexthop, "Joe+x@There.test", CONTENT_INSIDE, -1);
}

/* The text begins like that. */
static void check(size_t at, uint32_t i, enum wire_verdict_kind kind, const char *status,
                  const char *text)
{
    const struct wire_verdict *v = &played.results[at].verdicts[i];

    if (!slice_starts(v->text, slice_string(text))) {
        fail_msg("wanted %s, got %.*s", text, SLICE_ARGS(v->text));
    }
    assert_true(slice_equal(v->status, slice_string(status)));
    assert_int_equal(v->kind, kind);
    assert_int_equal(v->n, i + 100);
    assert_int_equal(played.results[at].m.outcome, OUTCOME_OK);
}

/* The command slow ends. */
static void go(void)
{
    char path[100];

    (void)snprintf(path, sizeof path, "%s/go", site.top);
    (void)close(open(path, O_CREAT | O_WRONLY, 0644));
}

static bool is_asked(const void *entry)
{
    return played.content_asked == *(const uint64_t *)entry;
}

static size_t count_files(const char *dir)
{
    char path[200];
    size_t count = 0;
    struct dirent *entry;
    DIR *d;

    (void)snprintf(path, sizeof path, "%s/%s", site.top, dir);
    d = opendir(path);
    assert_non_null(d);
    while ((entry = readdir(d)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(d);
    return count;
}

/* ---- maildir -------------------------------------------------------------------------------- */

static void each_recipient_has_a_mailbox(void **state)
{
    (void)state;
    put(5, "box", "there.test", "Joe+x@There.test ..@there.test ann@there.test joe@there.test",
        CONTENT_INSIDE, -1);
    played_await(1);
    assert_int_equal(played.results[0].m.entry, 5);
    check(0, 0, VERDICT_SENT, "2.0.0", "delivered to maildir");
    check(0, 1, VERDICT_BOUNCED, "5.1.1", "the local part can");
    check(0, 2, VERDICT_SENT, "2.0.0", "delivered to maildir");
    check(0, 3, VERDICT_SENT, "2.0.0", "delivered to maildir");
    assert_true(slice_equal(played.results[0].verdicts[0].relay, SLICE("maildir")));
    assert_int_equal(count_files("mail/there.test/joe/new"), 2);
    assert_int_equal(count_files("mail/there.test/ann/new"), 1);
}

static void content_comes_by_descriptor_or_on_demand(void **state)
{
    int fd = memfd_create("content", 0);

    (void)state;
    assert_int_equal(write(fd, "x\r\n", 3), 3);
    put(1, "box", "there.test", "joe@there.test", CONTENT_FD, fd);
    played_await(1);
    check(0, 0, VERDICT_SENT, "2.0.0", "delivered to maildir");
    put(2, "box", "there.test", "joe@there.test", CONTENT_ON_DEMAND, -1);
    assert_true(played_until(is_asked, &(uint64_t){2}));
    wire_put_content(played.channel,
                     &(struct wire_content){.entry = 2, .ok = true, .content = SLICE("x\r\n")}, -1);
    played_await(2);
    check(1, 0, VERDICT_SENT, "2.0.0", "delivered to maildir");
    put(3, "box", "there.test", "joe@there.test", CONTENT_ON_DEMAND, -1);
    assert_true(played_until(is_asked, &(uint64_t){3}));
    wire_put_content(played.channel, &(struct wire_content){.entry = 3, .ok = false}, -1);
    played_await(3);
    check(2, 0, VERDICT_DEFERRED, "4.3.0", "message content can't be read");
    assert_int_equal(count_files("mail/there.test/joe/new"), 2);
}

static void what_keeps_a_mailbox_from_being_written(void **state)
{
    char path[100];

    (void)state;
    put_simple(1, "nobody", "x");
    played_await(1);
    check(0, 0, VERDICT_DEFERRED, "4.3.5",
          "mail system configuration error: unknown user no-such-user");
    put_simple(2, "small", "x");
    played_await(2);
    check(1, 0, VERDICT_BOUNCED, "5.3.4", "message size 20 exceeds size limit 5");
    (void)snprintf(path, sizeof path, "%s/mail", site.top);
    (void)close(open(path, O_CREAT | O_WRONLY, 0600)); /* in the way */
    put_simple(3, "box", "x");
    played_await(3);
    check(2, 0, VERDICT_DEFERRED, "4.3.0", "maildir delivery failed: open");
    put_simple(4, "smtp", "x");
    played_await(4);
    check(3, 0, VERDICT_DEFERRED, "4.3.5", "mail system configuration error: not a local");
}

/* ---- commands ------------------------------------------------------------------------------- */

static void a_command_gets_the_message_and_its_values(void **state)
{
    char path[100], content[100] = "";
    int fd;

    (void)state;
    put(1, "save", "x", "joe@there.test ann@there.test", CONTENT_INSIDE, -1);
    played_await(1);
    check(0, 0, VERDICT_SENT, "2.0.0",
          "delivered via save service (a@here.test joe@there.test ann@there.test)");
    check(0, 1, VERDICT_SENT, "2.0.0", "delivered via save service");
    assert_true(slice_equal(played.results[0].verdicts[0].relay, SLICE("save")));
    (void)snprintf(path, sizeof path, "%s/out", site.top);
    fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, content, sizeof content - 1), 17);
    assert_string_equal(content, "Subject: x\n\nbody\n");
    (void)close(fd);
}

static void an_exit_status_is_a_verdict(void **state)
{
    static const struct {
        const char *code;
        enum wire_verdict_kind kind;
        const char *status, *text;
    } table[] = {
        {"0", VERDICT_SENT, "2.0.0", "delivered via exit service (0)"},
        {"1", VERDICT_DEFERRED, "4.3.0",
         "Command died with status 1: \"/bin/sh\". Command output: 1"},
        {"67", VERDICT_BOUNCED, "5.1.1", "user unknown. Command output: 67"},
        {"75", VERDICT_DEFERRED, "4.3.0", "temporary failure. Command output: 75"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        put_simple(i, "exit", table[i].code);
        played_await(i + 1);
        check(i, 0, table[i].kind, table[i].status, table[i].text);
    }
}

static void commands_that_misbehave_are_temporary_failures(void **state)
{
    (void)state;
    put_simple(1, "kill", "x");
    played_await(1);
    check(0, 0, VERDICT_DEFERRED, "4.3.0", "Command died with signal 11: \"/bin/sh\"");
    put_simple(2, "gone", "x");
    played_await(2);
    check(1, 0, VERDICT_DEFERRED, "4.3.5", "cannot execute \"/nonexistent/program\": No such file");
    put_simple(3, "flood", "x");
    played_await(3);
    check(2, 0, VERDICT_DEFERRED, "4.3.0", "temporary failure. Command output: y");
    configure("1s");
    put_simple(4, "hang", "x");
    played_await(4);
    check(3, 0, VERDICT_DEFERRED, "4.3.0", "Command time limit exceeded: \"/bin/sh\"");
}

/* This process stood still: the time limit has passed, but the command ended before. */
static void a_command_that_ended_in_time_is_not_late(void **state)
{
    siginfo_t ended;

    (void)state;
    configure("1s");
    put_simple(1, "done", "x");
    do {
        played_turn();
    } while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0); /* it is begun */
    assert_return_code(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT), 0);
    assert_return_code(usleep(1100000), 0); /* command_time_limit is told by the kernel */
    played_await(1);
    check(0, 0, VERDICT_SENT, "2.0.0", "delivered via done service");
}

static void a_hanging_command_holds_up_nobody(void **state)
{
    (void)state;
    put_simple(1, "hang", "x");
    put_simple(2, "exit", "0");
    played_await(1);
    assert_int_equal(played.results[0].m.entry, 2);
}

static void a_command_inherits_nothing(void **state)
{
    (void)state;
    put_simple(1, "fds", "x");
    played_await(1);
    /* Standard input, output and error, and the one by which ls reads the directory. */
    check(0, 0, VERDICT_SENT, "2.0.0", "delivered via fds service (4)");
}

static void a_command_runs_as_its_user(void **state)
{
    (void)state;
    put_simple(1, "who", "x");
    played_await(1);
    if (geteuid() == 0) {
        check(0, 0, VERDICT_SENT, "2.0.0", "delivered via who service (nobody)");
    } else {
        check(0, 0, VERDICT_DEFERRED, "4.3.5", "mail system configuration error: only root can");
    }
}

/* ---- the lease ------------------------------------------------------------------------------ */

/* A child waits right after its fork until it is let go on; shared with it. */
static struct held {
    _Atomic bool holds, waits;
} * held;

static void hold_child(void)
{
    while (held->holds) {
        held->waits = true;
        (void)usleep(1000);
    }
}

static void hold_children(void)
{
    if (held == NULL) {
        held = mmap(NULL, sizeof *held, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(held, MAP_FAILED);
        assert_int_equal(pthread_atfork(NULL, NULL, hold_child), 0);
    }
    held->waits = false;
    held->holds = true;
}

static bool child_waits(const void *arg)
{
    (void)arg;
    return held->waits;
}

/* What is in the file out and in the mailbox of joe. */
static bool was_delivered(void)
{
    char command[300];

    (void)snprintf(command, sizeof command,
                   "[ -e %s/out ] || [ -n \"$(find %s -path '*/new/*')\" ]", site.top, site.top);
    return system(command) == 0;
}

static void a_child_that_was_started_looks_once_more(void **state)
{
    static const char *const transports[] = {"box", "save"};
    struct lease_page page;

    (void)state;
    assert_int_equal(lease_page_make(&page), 0);
    wire_put_lease(played.channel, lease_page_share(&page));
    put_simple(1, "box", "x"); /* no child is started */
    played_await(1);
    assert_int_equal(played.results[0].m.outcome, OUTCOME_BROKEN_OFF);
    for (size_t i = 0; i < COUNT(transports); i++) {
        hold_children();
        lease_page_set(&page, MONO_NEVER);
        put_simple(2 + i, transports[i], "x");
        assert_true(played_until(child_waits, NULL));
        lease_page_set(&page, (struct mono){0});
        held->holds = false;
        played_await(2 + i);
        assert_int_equal(played.results[1 + i].m.outcome, OUTCOME_BROKEN_OFF);
        assert_int_equal(played.results[1 + i].m.verdict_count, 0);
        assert_false(was_delivered());
    }
    lease_page_set(&page, MONO_NEVER);
    for (size_t i = 0; i < COUNT(transports); i++) {
        put_simple(10 + i, transports[i], "x");
        played_await(4 + i);
        assert_int_equal(played.results[3 + i].verdicts[0].kind, VERDICT_SENT);
    }
    assert_true(was_delivered());
    lease_page_fini(&page);
}

static void copies_from_before_stand_when_the_rest_is_broken_off(void **state)
{
    const struct played_result *r = &played.results[0];
    struct lease_page page;

    (void)state;
    assert_int_equal(lease_page_make(&page), 0);
    wire_put_lease(played.channel, lease_page_share(&page));
    lease_page_set(&page, MONO_NEVER);
    hold_children();
    put(1, "box", "x", "joe@there.test ann@there.test bob@there.test", CONTENT_INSIDE, -1);
    assert_true(played_until(child_waits, NULL));
    held->holds = false;
    while (!was_delivered()) { /* the first of them */
        (void)usleep(1000);
    }
    hold_children(); /* before this process hears of the end of the first one */
    assert_true(played_until(child_waits, NULL));
    lease_page_set(&page, (struct mono){0});
    held->holds = false;
    played_await(1);
    assert_int_equal(r->m.outcome, OUTCOME_BROKEN_OFF);
    assert_int_equal(r->m.verdict_count, 3);
    assert_int_equal(r->verdicts[0].kind, VERDICT_SENT);
    assert_int_equal(r->verdicts[1].kind, VERDICT_NONE);
    assert_int_equal(r->verdicts[1].n, 101);
    assert_int_equal(r->verdicts[2].kind, VERDICT_NONE);
    lease_page_fini(&page);
}

/* Another node waits. */
static void what_has_not_begun_is_called_back(void **state)
{
    static const char *const transports[] = {"box", "save"};
    struct lease_page page;

    (void)state;
    assert_int_equal(lease_page_make(&page), 0);
    wire_put_lease(played.channel, lease_page_share(&page));
    lease_page_set(&page, MONO_NEVER);
    put(1, "box", "x", "joe@there.test", CONTENT_ON_DEMAND, -1); /* it waits for its content */
    wire_put_break_off(played.channel, 1);
    played_await(1);
    assert_int_equal(played.results[0].m.outcome, OUTCOME_BROKEN_OFF);
    for (size_t i = 0; i < COUNT(transports); i++) {
        hold_children();
        put(2 + i, transports[i], "x", "joe@there.test ann@there.test", CONTENT_INSIDE, -1);
        assert_true(played_until(child_waits, NULL));
        wire_put_break_off(played.channel, 2 + i);
        wire_put_break_off(played.channel, 99); /* which has ended */
        played_settle();
        held->holds = false;
        played_await(2 + i);
        assert_int_equal(played.results[1 + i].m.outcome, OUTCOME_BROKEN_OFF);
        assert_int_equal(played.results[1 + i].m.verdict_count, 0);
        assert_false(was_delivered());
    }
    lease_page_fini(&page);
}

static bool is_there(const void *arg)
{
    (void)arg;
    return was_delivered();
}

static void a_command_that_runs_ends_by_itself(void **state)
{
    struct lease_page page;
    char path[100];

    (void)state;
    assert_int_equal(lease_page_make(&page), 0);
    wire_put_lease(played.channel, lease_page_share(&page));
    lease_page_set(&page, MONO_NEVER);
    put_simple(1, "slow", "x");
    assert_true(played_until(is_there, NULL));
    wire_put_break_off(played.channel, 1);
    played_settle();
    (void)snprintf(path, sizeof path, "%s/go", site.top);
    close(open(path, O_WRONLY | O_CREAT, 0666));
    played_await(1);
    assert_int_equal(played.results[0].m.outcome, OUTCOME_OK);
    assert_int_equal(played.results[0].verdicts[0].kind, VERDICT_SENT);
    lease_page_fini(&page);
}

/* ---- the process ---------------------------------------------------------------------------- */

static void a_stop_waits_for_children_and_gives_back_the_rest(void **state)
{
    (void)state;
    put_simple(1, "slow", "x");
    put(2, "box", "x", "joe@there.test", CONTENT_ON_DEMAND, -1);
    assert_true(played_until(is_asked, &(uint64_t){2}));
    played.role.stopping = true;
    local_role.stop(&played.role);
    played_await(1);
    assert_int_equal(played.results[0].m.entry, 2);
    assert_int_equal(played.results[0].m.outcome, OUTCOME_GIVEN_BACK);
    assert_false(played.exited);
    go();
    played_await(2);
    check(1, 0, VERDICT_SENT, "2.0.0", "delivered via slow service");
    played_turn();
    assert_true(played.exited);
}

static void a_new_queue_hears_nothing_of_the_old_ones_entries(void **state)
{
    (void)state;
    put_simple(1, "slow", "x");
    put(2, "box", "x", "joe@there.test", CONTENT_ON_DEMAND, -1);
    assert_true(played_until(is_asked, &(uint64_t){2}));
    played_connect();
    put_simple(1, "exit", "0");
    played_await(1);
    check(0, 0, VERDICT_SENT, "2.0.0", "delivered via exit service");
    go();
    for (int i = 0; i < 10; i++) {
        played_settle();
    }
    assert_true(played.lost);
    assert_int_equal(played.count, 1);
}

#define SITE_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

UNIT_MAIN(
    SITE_TEST(each_recipient_has_a_mailbox), SITE_TEST(content_comes_by_descriptor_or_on_demand),
    SITE_TEST(what_keeps_a_mailbox_from_being_written),
    SITE_TEST(a_command_gets_the_message_and_its_values), SITE_TEST(an_exit_status_is_a_verdict),
    SITE_TEST(commands_that_misbehave_are_temporary_failures),
    SITE_TEST(a_command_that_ended_in_time_is_not_late),
    SITE_TEST(a_hanging_command_holds_up_nobody), SITE_TEST(a_command_inherits_nothing),
    SITE_TEST(a_command_runs_as_its_user), SITE_TEST(a_child_that_was_started_looks_once_more),
    SITE_TEST(copies_from_before_stand_when_the_rest_is_broken_off),
    SITE_TEST(what_has_not_begun_is_called_back), SITE_TEST(a_command_that_runs_ends_by_itself),
    SITE_TEST(a_stop_waits_for_children_and_gives_back_the_rest),
    SITE_TEST(a_new_queue_hears_nothing_of_the_old_ones_entries))
