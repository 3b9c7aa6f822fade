/*
 * The role agents with a queue process that the test plays. The agents are real processes: shell
 * scripts that write down what they were told.
 */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_table.h"
#include "agents_role.h"
#include "clock.h"
#include "mem.h"
#include "played_queue.h"
#include "ta.h"
#include "door.h"
#include "zmailer_dialect.h"

#define FILE_MAX 1000000

static struct {
    struct agent_report report; /* the last one; without texts */
    size_t ended;               /* agents that were reported to have ended */
    char top[64];
} site;

static bool on_frame(const struct frame *frame)
{
    if (frame->type != WIRE_AGENT) {
        return false;
    }
    assert_true(agent_report_read(frame->body, &site.report));
    site.report.transport = site.report.host = slice_of("", 0);
    site.ended += site.report.ended;
    return true;
}

static void move_clock(int64_t us)
{
    clock_set_offset(clock_offset() + us);
    clock_update();
    agents_role.clock_moved(&played.role);
}

static void write_file(const char *name, mode_t mode, const char *text)
{
    char path[200];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", site.top, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_return_code(chmod(path, mode), 0);
}

static void make_directory(const char *name)
{
    char path[200];

    (void)snprintf(path, sizeof path, "%s/%s", site.top, name);
    assert_return_code(mkdir(path, 0777), 0);
}

/* What the agents have written down; the caller frees it. */
static char *heard(const char *name)
{
    char path[200];
    char *text = mem_new(FILE_MAX);
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", site.top, name);
    file = fopen(path, "r");
    if (file != NULL) {
        (void)!fread(text, 1, FILE_MAX - 1, file);
        (void)fclose(file);
    }
    return text;
}

/* An agent whose shell script has `body` run for each job; $path, $host and $n are the job's. */
static void make_agent(const char *name, const char *body)
{
    char path[60], text[2000];

    (void)snprintf(path, sizeof path, "bin/ta/%s", name);
    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\n"
                   "echo '#hungry'\n"
                   "while IFS= read -r line; do\n"
                   "  [ -n \"$line\" ] || { echo \"%s end\" >>%s/heard; exit 0; }\n"
                   "  echo \"%s $line\" >>%s/heard\n"
                   "  if [ \"$line\" != '#idle' ]; then\n"
                   "    path=${line%%%%\t*}; host=${line#*\t}; n=${path##*/}; n=${n%%%%-*}\n"
                   "    %s\n"
                   "  fi\n"
                   "  echo '#hungry'\n"
                   "done\n",
                   name, site.top, name, site.top, body);
    write_file(path, 0755, text);
}

static void load(const char *extra)
{
    struct buf text;

    buf_init(&text, 65536);
    buf_addf(&text,
             "myhostname = mx.here.test\nstate_directory = %s\nspool = postoffice:%s/po\n"
             "zenv_file = %s/zmailer.conf\n%s",
             site.top, site.top, site.top, extra);
    zmailer_open_conf();
    played_configure(buf_slice(&text), site.top);
    buf_fini(&text);
}

static const char clauses[] = "ok/*\n\tagent=ta command=\"A=1 B=${LOGDIR} ok\"\n"
                              "slow/*\n\tagent=ta maxthr=3 command=\"top=${TOP} slow\"\n"
                              "one/*\n\tagent=ta maxring=1 command=\"ok\"\n"
                              "batch/*\n\tagent=ta overfeed=2 command=\"ok\"\n"
                              "bound/*\n\tagent=ta command=\"bound $host ${channel} x-$LOGDIR\"\n"
                              "stop/*\n\tagent=ta command=\"stop\"\n"
                              "later/*\n\tagent=ta command=\"later\"\n"
                              "noted/*\n\tagent=ta command=\"noted\"\n"
                              "die/*\n\tagent=ta command=\"die\"\n"
                              "quit/*\n\tagent=ta command=\"quit\"\n"
                              "cut/*\n\tagent=ta command=\"cut\"\n"
                              "odd/*\n\tagent=ta command=\"odd\"\n"
                              "silent/*\n\tagent=ta command=\"silent\"\n"
                              "resync/*\n\tagent=ta command=\"resync\"\n"
                              "flood/*\n\tagent=ta command=\"flood\"\n"
                              "endless/*\n\tagent=ta command=\"endless\"\n"
                              "hang/*\n\tagent=ta command=\"hang\"\n"
                              "gone/*\n\tagent=ta command=\"/nonexistent/agent\"\n"
                              "mute/*\n\tagent=ta command=\"mute\"\n"
                              "polite/*\n\tagent=ta command=\"top=${TOP} polite\"\n"
                              "who/*\n\tagent=ta command=\"who\" user=nobody\n"
                              "nobody/*\n\tagent=ta command=\"ok\" user=no-such-user\n";

static void write_zenv(const char *logdir)
{
    char zenv[300];

    (void)snprintf(zenv, sizeof zenv,
                   "MAILBIN=%s/bin\nLOGDIR=%s\nPATH=/usr/bin:/bin\nZCONFIG=/etc/zc\nSECRET=x\n"
                   "TOP=%s\n",
                   site.top, logdir, site.top);
    write_file("zmailer.conf", 0644, zenv);
}

static int start(void **state)
{
    (void)state;
    memset(&site, 0, sizeof site);
    played_init(&agents_role);
    played.on_frame = on_frame;
    (void)snprintf(site.top, sizeof site.top, "/tmp/test_agents.XXXXXX");
    assert_non_null(mkdtemp(site.top));
    assert_return_code(chmod(site.top, 0777), 0); /* agents may be other users */
    make_directory("po");
    make_directory("po/transport");
    make_directory("bin");
    make_directory("bin/ta");
    write_zenv("/log");
    make_agent("ok", "printf '%s/100\\t\\tok3 done\\n' $n");
    make_agent("slow",
               "while [ ! -e $top/go ]; do sleep 0.01; done; printf '%s/100\\t\\tok done\\n' $n");
    make_agent("stop", "printf '%s/100\\t\\tdeferall no route\\n' $n");
    make_agent("later", "printf '%s/100\\tu\\001delayed\\0014.4.1 (x)\\001d\\001dns; mx.x\\t"
                        "retryat +300 busy now\\n' $n");
    make_agent("noted", "printf '%s/100\\t\\terror2 smtp; 550 5.1.1 user unknown\\n' $n");
    make_agent("die", "kill -9 $$");
    make_agent("quit", "printf '%s/100\\t\\tok done\\n' $n; exit 70");
    make_agent("cut", "printf '%s/100\\t\\tok' $n; exit 0");
    make_agent("odd", "printf '7/100\\t\\tok\\n%s/99\\t\\tok\\n%s/100\\t\\tfrobnicate\\n' $n $n; "
                      "printf '%s/100\\t\\tok first\\n%s/100\\t\\terror second\\n' $n $n; "
                      "echo junk; echo '#resync ../../etc/passwd'");
    make_agent("silent", ":");
    make_agent("resync", "echo \"#resync $path\"");
    make_agent("flood", "yes '# flood' | head -n 200000; printf '%s/100\\t\\tok done\\n' $n");
    make_agent("endless", "tr '\\0' x </dev/zero");
    make_agent("hang", "sleep 100 & wait");
    write_file("bin/ta/mute", 0755, "#!/bin/sh\nread -r line\n");
    make_agent("polite",
               "trap \"echo polite quit >>$top/heard\" QUIT; echo polite ready >>$top/heard; "
               "while [ ! -e $top/go ]; do sleep 0.01; done; printf '%s/100\\t\\tok done\\n' $n");
    write_file("bin/ta/bound", 0755,
               "#!/bin/sh\n{ echo \"$0 $*\"; env; pwd; ulimit -n; ls /proc/self/fd; } >$0.$1\n"
               "echo '#hungry'\nwhile IFS= read -r line && [ -n \"$line\" ]; do\n"
               "echo \"$line\" >>$0.$1; echo '#hungry'; done\n");
    write_file("bin/ta/who", 0755,
               "#!/bin/sh\necho '#hungry'\nwhile read -r n host && [ -n \"$n\" ]; do\n"
               "printf '%s/100\\t\\tok %s\\n#hungry\\n' $n $(id -un); done\n");
    load(clauses);
    played_start();
    return 0;
}

static int stop(void **state)
{
    char command[200];

    (void)state;
    played_end();
    /* An agent that is at its end may still write there. */
    (void)snprintf(command, sizeof command, "until rm -rf %s 2>/dev/null; do sleep 0.1; done",
                   site.top);
    return system(command);
}

/* A job with one recipient, at offset 100. */
static void put(uint64_t entry, const char *transport, const char *nexthop, const char *path)
{
    struct wire_deliver_rcpt rcpt = {.n = 100, .address = SLICE("joe@there.test")};

    wire_put_deliver(played.channel,
                     &(struct wire_deliver){.entry = entry,
                                            .transport = slice_string(transport),
                                            .nexthop = slice_string(nexthop),
                                            .id = SLICE("S4711A"),
                                            .path = slice_string(path),
                                            .sender = SLICE("a@here.test"),
                                            .rcpts = &rcpt,
                                            .rcpt_count = 1,
                                            .size = 20,
                                            .place = CONTENT_NONE},
                     -1);
}

static const struct played_result *result_of(uint64_t entry)
{
    for (size_t i = 0; i < played.count; i++) {
        if (played.results[i].m.entry == entry) {
            return &played.results[i];
        }
    }
    fail_msg("no result for entry %u", (unsigned)entry);
    return NULL;
}

static void check(uint64_t entry, enum wire_outcome outcome, enum wire_verdict_kind kind,
                  enum wire_report report, const char *text)
{
    const struct played_result *r = result_of(entry);
    const struct wire_verdict *v = &r->verdicts[0];

    assert_int_equal(r->m.outcome, outcome);
    assert_int_equal(r->m.verdict_count, 1);
    if (!slice_starts(v->text, slice_string(text))) {
        fail_msg("wanted %s, got %.*s", text, SLICE_ARGS(v->text));
    }
    assert_int_equal(v->kind, kind);
    assert_int_equal(v->report, report);
    assert_true(r->m.thread_stops || !v->stops_thread);
    assert_int_equal(v->n, 100);
}

static bool is_heard(const void *want)
{
    char *text = heard("heard");
    bool same = strcmp(text, want) == 0;

    mem_free(text);
    return same;
}

/* The agents have written this, or will. */
static void check_heard(const char *want)
{
    if (!played_until(is_heard, want)) {
        fail_msg("wanted %s, got %s", want, heard("heard"));
    }
}

/* The agents slow and polite end their jobs. */
static void go(void)
{
    write_file("go", 0644, "");
}

static bool is_idle(const void *unused)
{
    (void)unused;
    return site.report.state == TA_IDLE && site.report.owed == 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void a_job_is_done_and_the_agent_rests(void **state)
{
    (void)state;
    put(1, "ok", "there.test", "A/4711");
    played_await(1);
    check(1, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_NONE, "done");
    check_heard("ok A/4711\tthere.test\nok #idle\n");
    assert_true(played_until(is_idle, NULL));
    put(2, "ok", "there.test", "A/4712");
    put(3, "ok", "other.test", "4713-2");
    played_await(3);
    played_settle();
    check(3, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_NONE, "done");
    assert_int_equal(site.ended, 0);
}

static void threads_of_a_ring_share_its_agent(void **state)
{
    (void)state;
    put(1, "one", "a.test", "1");
    put(2, "one", "b.test", "2");
    put(3, "one", "c.test", "3");
    played_await(3);
    check_heard("ok 1\ta.test\nok 2\tb.test\nok 3\tc.test\nok #idle\n");
}

static bool three_rest(const void *unused)
{
    char *text = heard("heard");
    size_t count = 0;

    (void)unused;
    for (const char *at = text; (at = strstr(at, "slow #idle\n")) != NULL; at++) {
        count++;
    }
    mem_free(text);
    return count == 3;
}

static void a_thread_has_up_to_maxthr_agents(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 10; i++) {
        put(i, "slow", "slow.test", "1");
    }
    check_heard("slow 1\tslow.test\nslow 1\tslow.test\nslow 1\tslow.test\n");
    go();
    played_await(10);
    assert_true(played_until(three_rest, NULL));
    load(""); /* all of them end, and are counted */
    played_await_other(&site.ended, 3);
}

static void a_host_bound_agent_knows_its_host(void **state)
{
    char want[1000];
    char *text;

    (void)state;
    assert_return_code(setenv("TZ", "UTC", 1), 0);
    put(1, "bound", "a.test", "B/C/1");
    put(2, "bound", "b.test", "2");
    played_await(2);
    check(1, OUTCOME_OK, VERDICT_NONE, WIRE_REPORT_DUE, "");
    text = heard("bin/ta/bound.a.test");
    (void)snprintf(want, sizeof want, "%s/bin/ta/bound a.test bound x-/log\n", site.top);
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "TZ=UTC\n"));
    assert_non_null(strstr(text, "PATH=/usr/bin:/bin\n"));
    assert_non_null(strstr(text, "ZCONFIG=/etc/zc\n"));
    (void)snprintf(want, sizeof want, "%s/po/transport\n32\n0\n1\n2\n", site.top);
    assert_non_null(strstr(text, want)); /* and the one of ls itself */
    assert_non_null(strstr(text, "\nB/C/1\n"));
    assert_null(strstr(text, "SECRET"));
    mem_free(text);
}

/* Of an ordinary user all agents are his. */
static void another_user_needs_root(void **state)
{
    const struct passwd *me = getpwuid(geteuid());

    (void)state;
    assert_non_null(me);
    put(1, "who", "a.test", "1");
    put(2, "nobody", "a.test", "2");
    played_await(2);
    check(1, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_DUE, geteuid() == 0 ? "nobody" : me->pw_name);
    check(2, OUTCOME_CRASH, VERDICT_NONE, WIRE_REPORT_DUE,
          "transport agent \"ok\" cannot be started: mail system configuration error: unknown user "
          "no-such-user");
}

static bool queue_is_cut(const void *arg)
{
    (void)arg;
    return played.channel == NULL;
}

/* ---- what agents say ------------------------------------------------------------------------- */

static void a_stop_gives_the_rest_of_the_thread_back(void **state)
{
    (void)state;
    put(1, "stop", "a.test", "1");
    put(2, "stop", "a.test", "2");
    put(3, "stop", "b.test", "3");
    played_await(3);
    check(1, OUTCOME_OK, VERDICT_DEFERRED, WIRE_REPORT_DUE, "no route");
    assert_true(result_of(1)->m.thread_stops && result_of(1)->verdicts[0].stops_thread);
    assert_int_equal(result_of(2)->m.outcome, OUTCOME_GIVEN_BACK);
    check(3, OUTCOME_OK, VERDICT_DEFERRED, WIRE_REPORT_DUE, "no route");
}

/* A job that crosses the stop is returned, one that follows the acknowledgement is done. */
static void a_stop_holds_until_the_queue_has_processed_it(void **state)
{
    (void)state;
    played.is_slow = true;
    put(1, "stop", "a.test", "1");
    played_await(1);
    assert_true(result_of(1)->m.thread_stops);
    put(2, "stop", "a.test", "2");
    put(3, "stop", "b.test", "3");
    played_await(3);
    assert_int_equal(result_of(2)->m.outcome, OUTCOME_GIVEN_BACK);
    assert_true(result_of(2)->m.thread_stops);
    check(3, OUTCOME_OK, VERDICT_DEFERRED, WIRE_REPORT_DUE, "no route");
    wire_put_go_on(played.channel, 1);
    put(4, "stop", "a.test", "4");
    put(5, "stop", "b.test", "5");
    played_await(5);
    check(4, OUTCOME_OK, VERDICT_DEFERRED, WIRE_REPORT_DUE, "no route");
    assert_int_equal(result_of(5)->m.outcome, OUTCOME_GIVEN_BACK);
    played_connect(); /* another queue process has sent nothing before */
    put(6, "stop", "b.test", "6");
    played_await(6);
    check(6, OUTCOME_OK, VERDICT_DEFERRED, WIRE_REPORT_DUE, "no route");
    wire_put_go_on(played.channel, 4); /* that one stopped nothing here: the channel ends */
    assert_true(played_until(queue_is_cut, NULL));
}

static void a_retry_time_goes_to_the_queue(void **state)
{
    const struct played_result *r;
    int64_t wait_us;

    (void)state;
    put(1, "later", "a.test", "1");
    played_await(1);
    check(1, OUTCOME_OK, VERDICT_DEFERRED, WIRE_REPORT_DUE, "busy now");
    r = result_of(1);
    wait_us = r->m.thread_until.us - clock_wall().us;
    assert_true(r->m.thread_stops && wait_us > 200 * US_PER_S && wait_us <= 300 * US_PER_S);
    assert_true(slice_equal(r->verdicts[0].status, SLICE("4.4.1")));
    assert_true(slice_equal(r->verdicts[0].relay, SLICE("mx.x")));
    assert_true(slice_starts(r->verdicts[0].details, SLICE("u\001delayed")));
}

static void a_status_without_notary_is_in_the_text(void **state)
{
    (void)state;
    put(1, "noted", "a.test", "1");
    played_await(1);
    check(1, OUTCOME_OK, VERDICT_BOUNCED, WIRE_REPORT_WRITTEN, "smtp; 550 5.1.1 user unknown");
    assert_true(slice_equal(result_of(1)->verdicts[0].status, SLICE("5.1.1")));
}

static void silence_and_resync_are_results(void **state)
{
    (void)state;
    put(1, "silent", "a.test", "1");
    put(2, "resync", "a.test", "A/2");
    played_await(2);
    check(1, OUTCOME_OK, VERDICT_NONE, WIRE_REPORT_DUE, "");
    check(2, OUTCOME_OK, VERDICT_NONE, WIRE_REPORT_DUE, "");
    assert_false(result_of(1)->m.resync);
    assert_true(result_of(2)->m.resync);
}

static void lies_change_nothing(void **state)
{
    (void)state;
    put(1, "odd", "a.test", "1");
    put(2, "ok", "a.test", "2");
    played_await(2);
    check(1, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_DUE, "first");
    assert_false(result_of(1)->m.resync);
    check(2, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_NONE, "done");
}

static void a_flood_keeps_nobody_waiting(void **state)
{
    (void)state;
    put(1, "flood", "a.test", "1");
    put(2, "endless", "a.test", "2");
    put(3, "ok", "a.test", "3");
    played_await(3);
    check(1, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_DUE, "done");
    check(2, OUTCOME_CRASH, VERDICT_NONE, WIRE_REPORT_DUE, "transport agent endless[");
    check(3, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_NONE, "done");
    assert_int_equal(site.ended, 1);
}

/* ---- their end ------------------------------------------------------------------------------- */

static void what_a_dead_agent_had_comes_back(void **state)
{
    (void)state;
    put(1, "die", "a.test", "1");
    put(2, "die", "a.test", "2");
    put(3, "quit", "a.test", "3");
    put(4, "cut", "a.test", "4");
    played_await(4);
    check(1, OUTCOME_CRASH, VERDICT_NONE, WIRE_REPORT_DUE, "transport agent die[");
    assert_true(result_of(1)->m.resync && result_of(1)->m.thread_stops);
    assert_true(result_of(1)->m.pid > 0);
    assert_int_equal(result_of(2)->m.outcome, OUTCOME_GIVEN_BACK);
    check(3, OUTCOME_CRASH, VERDICT_SENT, WIRE_REPORT_DUE, "done"); /* it said so before */
    assert_true(result_of(3)->m.resync);
    check(4, OUTCOME_CRASH, VERDICT_NONE, WIRE_REPORT_DUE, "transport agent cut["); /* no LF */
}

static void an_agent_that_does_not_start_is_not_tried_again_and_again(void **state)
{
    (void)state;
    put(1, "gone", "a.test", "1");
    played_await(1);
    check(1, OUTCOME_CRASH, VERDICT_NONE, WIRE_REPORT_DUE,
          "transport agent agent does not start: it ended with exit status 1: cannot execute "
          "/nonexistent/agent: No such file or directory");
    assert_true(result_of(1)->m.thread_stops);
    assert_false(result_of(1)->m.resync);
    assert_int_equal(site.ended, 1);
    put(2, "gone", "b.test", "2");
    played_await(2);
    assert_int_equal(site.ended, 1);
    move_clock(2 * US_PER_S);
    put(3, "gone", "b.test", "3");
    played_await(3);
    assert_int_equal(site.ended, 2);
}

static void a_job_that_hangs_is_ended_by_daemon_timeout(void **state)
{
    (void)state;
    put(1, "hang", "a.test", "1");
    check_heard("hang 1\ta.test\n");
    played_settle();
    assert_int_equal(played.count, 0);
    move_clock(18001 * US_PER_S);
    played_settle();
    move_clock(60 * US_PER_S); /* and when it does not listen it is killed */
    played_await(1);
    check(1, OUTCOME_CRASH, VERDICT_NONE, WIRE_REPORT_DUE, "transport agent hang[");
}

static void idle_agents_end_after_idlemax(void **state)
{
    (void)state;
    put(1, "ok", "a.test", "1");
    played_await(1);
    check_heard("ok 1\ta.test\nok #idle\n");
    assert_true(played_until(is_idle, NULL));
    move_clock(100 * US_PER_S);
    played_settle();
    assert_int_equal(site.ended, 0);
    move_clock(100 * US_PER_S);
    played_await_other(&site.ended, 1);
    check_heard("ok 1\ta.test\nok #idle\nok end\n");
}

static void a_stop_lets_jobs_end_and_gives_back_the_rest(void **state)
{
    (void)state;
    put(1, "slow", "a.test", "1");
    while (site.report.fed.us == 0) {
        played_turn();
    }
    put(2, "slow", "a.test", "2");
    played_turn();
    played.role.stopping = true;
    agents_role.stop(&played.role);
    go();
    played_await(2);
    check(1, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_DUE, "done");
    assert_int_equal(result_of(2)->m.outcome, OUTCOME_GIVEN_BACK);
    played_await_other(&site.ended, 1);
    played_turn();
    assert_true(played.exited);
}

static void a_lost_queue_gets_no_old_results(void **state)
{
    (void)state;
    put(1, "slow", "a.test", "1");
    while (site.report.fed.us == 0) {
        played_turn();
    }
    put(2, "slow", "a.test", "2");
    played_turn();
    played_connect();
    go();
    put(1, "ok", "a.test", "1");
    played_await(1);
    played_settle();
    assert_int_equal(played.count, 1);
    check(1, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_NONE, "done");
}

static void a_reload_ends_agents_of_changed_clauses_only(void **state)
{
    (void)state;
    put(1, "ok", "a.test", "1");
    put(2, "silent", "a.test", "2");
    played_await(2);
    played_settle();
    load("new/*\n\tagent=ta command=\"silent\"\n"
         "silent/*\n\tagent=ta command=\"silent\"\n"
         "ok/*\n\tagent=ta command=\"C=1 ok\"\n");
    played_await_other(&site.ended, 1);
    put(3, "silent", "a.test", "3");
    put(4, "ok", "a.test", "4");
    played_await(4);
    played_settle();
    assert_int_equal(site.ended, 1);
}

static void a_reload_ends_agents_whose_variables_have_changed(void **state)
{
    (void)state;
    put(1, "ok", "a.test", "1");
    put(2, "silent", "a.test", "2");
    played_await(2);
    played_settle();
    write_zenv("/other");
    load(clauses);
    played_await_other(&site.ended, 1);
    played_settle();
    assert_int_equal(site.ended, 1); /* the other one names none of them */
}

static void an_agent_that_never_asks_for_work_is_ended(void **state)
{
    (void)state;
    put(1, "mute", "a.test", "1");
    played_settle();
    move_clock(601 * US_PER_S);
    played_await(1);
    check(1, OUTCOME_CRASH, VERDICT_NONE, WIRE_REPORT_DUE,
          "transport agent mute does not start: it ended with");
    assert_int_equal(site.ended, 1);
}

static void a_quit_is_an_empty_line_more_and_a_signal(void **state)
{
    (void)state;
    put(1, "polite", "a.test", "1");
    check_heard("polite 1\ta.test\npolite ready\n");
    played.role.stopping = true;
    played.role.stop_how = STOP_QUIT;
    agents_role.stop(&played.role);
    played_settle();
    go();
    played_await_other(&site.ended, 1);
    check(1, OUTCOME_OK, VERDICT_SENT, WIRE_REPORT_DUE, "done");
    check_heard("polite 1\ta.test\npolite ready\npolite quit\npolite end\n");
}

static void nothing_starts_while_frozen(void **state)
{
    char text[4000];

    (void)state;
    (void)snprintf(text, sizeof text, "agent_freeze = yes\n%s", clauses);
    load(text);
    put(1, "ok", "a.test", "1");
    played_settle();
    check_heard("");
    load(clauses);
    played_await(1);
}

static void bad_jobs_come_back_with_a_reason(void **state)
{
    static const struct {
        const char *host, *path;
    } cases[] = {{"a.test", "A/x1"}, {"a.test", "1\n2"}, {"a\tb", "1"}, {"", "1"}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        put(i, "ok", cases[i].host, cases[i].path);
    }
    played_await(COUNT(cases));
    for (size_t i = 0; i < COUNT(cases); i++) {
        check(i, OUTCOME_CRASH, VERDICT_NONE, WIRE_REPORT_DUE, "the ");
    }
    check_heard("");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

UNIT_MAIN(TEST(a_job_is_done_and_the_agent_rests), TEST(threads_of_a_ring_share_its_agent),
          TEST(a_thread_has_up_to_maxthr_agents), TEST(a_host_bound_agent_knows_its_host),
          TEST(another_user_needs_root), TEST(a_stop_gives_the_rest_of_the_thread_back),
          TEST(a_stop_holds_until_the_queue_has_processed_it), TEST(a_retry_time_goes_to_the_queue),
          TEST(a_status_without_notary_is_in_the_text), TEST(silence_and_resync_are_results),
          TEST(lies_change_nothing), TEST(a_flood_keeps_nobody_waiting),
          TEST(what_a_dead_agent_had_comes_back),
          TEST(an_agent_that_does_not_start_is_not_tried_again_and_again),
          TEST(a_job_that_hangs_is_ended_by_daemon_timeout), TEST(idle_agents_end_after_idlemax),
          TEST(a_stop_lets_jobs_end_and_gives_back_the_rest),
          TEST(a_lost_queue_gets_no_old_results),
          TEST(a_reload_ends_agents_of_changed_clauses_only),
          TEST(a_reload_ends_agents_whose_variables_have_changed),
          TEST(an_agent_that_never_asks_for_work_is_ended),
          TEST(a_quit_is_an_empty_line_more_and_a_signal), TEST(nothing_starts_while_frozen),
          TEST(bad_jobs_come_back_with_a_reason))
