/*
 * The role pickup with a queue process that the test plays; the directory and its files are real.
 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "maildrop.h"
#include "mem.h"
#include "played_queue.h"

#define SUBMITS_MAX 200

static struct {
    char top[64];
    uint64_t tokens[SUBMITS_MAX];
    char last[2000]; /* the last submission, in words */
    size_t submits;
} site;

static bool on_frame(const struct frame *frame)
{
    struct wire_submit m;
    struct wire_rcpt *rcpts;

    assert_int_equal(frame->type, WIRE_SUBMIT);
    assert_true(wire_get_submit(frame->body, &m, &rcpts));
    assert_true(site.submits < SUBMITS_MAX);
    site.tokens[site.submits++] = m.token;
    snprintf(site.last, sizeof site.last, "%.*s %.*s<%.*s> %.*s (%u) %.*s", SLICE_ARGS(m.origin),
             SLICE_ARGS(m.client), SLICE_ARGS(m.sender), SLICE_ARGS(rcpts[0].address), m.rcpt_count,
             SLICE_ARGS(m.content));
    mem_free(rcpts);
    return true;
}

static int start(void **state)
{
    char text[300], path[100];

    (void)state;
    memset(&site, 0, sizeof site);
    played_init(&pickup_role);
    played.on_frame = on_frame;
    (void)snprintf(site.top, sizeof site.top, "/tmp/test_pickup.XXXXXX");
    assert_non_null(mkdtemp(site.top));
    (void)snprintf(path, sizeof path, "%s/drop", site.top);
    assert_return_code(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/drop/corrupt", site.top);
    assert_return_code(mkdir(path, 0700), 0);
    (void)snprintf(text, sizeof text,
                   "myhostname = mx.here.test\nmyorigin = here.test\nstate_directory = %s\n"
                   "maildrop = drop\n*/*\n\tuser=nobody\n",
                   site.top);
    played_configure(slice_string(text), site.top);
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

/* A file as sendmail leaves it; `ret_name` is its name. */
static void drop(const char *rcpt, char ret_name[64])
{
    struct maildrop_rcpt to = {NOTIFY_DEFAULT, {"", 0}, slice_string(rcpt)};
    const struct maildrop m = {
        .sender = SLICE("me"), .name = SLICE("I"), .envid = {"", 0}, .rcpts = &to, .rcpt_count = 1};
    struct maildrop_file f;
    char path[100];

    (void)snprintf(path, sizeof path, "%s/drop", site.top);
    assert_int_equal(maildrop_create(&f, path, &m), 0);
    maildrop_write(&f, SLICE("Date: x\nMessage-ID: y\n\nbody"));
    if (ret_name != NULL) {
        (void)snprintf(ret_name, 64, "%s", f.name);
    }
    assert_int_equal(maildrop_commit(&f), 0);
}

static size_t files_in(const char *directory)
{
    char path[100];
    DIR *d;
    size_t count = 0;

    (void)snprintf(path, sizeof path, "%s/%s", site.top, directory);
    d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        count += e->d_type == DT_REG;
    }
    (void)closedir(d);
    return count;
}

static void answer(uint64_t token, uint32_t code)
{
    wire_put_submit_done(played.channel, &(struct wire_submit_done){.token = token,
                                                                    .code = code,
                                                                    .status = SLICE("x.0.0"),
                                                                    .text = SLICE("so"),
                                                                    .id = SLICE("4Vq1")});
}

static void a_file_becomes_mail_and_goes_with_the_commit(void **state)
{
    char want[300];

    (void)state;
    drop("friend", NULL);
    played_await_other(&site.submits, 1);
    (void)snprintf(
        want, sizeof want,
        "pickup userid %u<me@here.test> friend@here.test (1) Date: x\r\nMessage-ID: y\r\n"
        "From: \"I\" <me@here.test>\r\n\r\nbody\r\n",
        (unsigned)geteuid());
    assert_string_equal(site.last, want);
    played_settle();
    assert_int_equal(files_in("drop"), 1);
    answer(site.tokens[0], 250);
    played_settle();
    assert_int_equal(files_in("drop"), 0);
    assert_int_equal(site.submits, 1);
}

static void refused_for_good_is_moved_and_for_now_is_tried_again(void **state)
{
    (void)state;
    drop("a@x.test", NULL);
    played_await_other(&site.submits, 1);
    answer(site.tokens[0], 452);
    played_settle();
    drop("b@x.test", NULL); /* a new file causes a scan, which passes over the first */
    played_await_other(&site.submits, 2);
    answer(site.tokens[1], 554);
    played_settle();
    assert_int_equal(site.submits, 2);
    assert_int_equal(files_in("drop"), 1);
    assert_int_equal(files_in("drop/corrupt"), 1);
    clock_set_offset(61 * US_PER_S);
    drop("c@x.test", NULL);
    played_await_other(&site.submits, 4);
    answer(site.tokens[2], 250);
    answer(site.tokens[3], 250);
    played_settle();
    assert_int_equal(files_in("drop"), 0);
}

static void a_new_queue_process_gets_what_the_old_one_had_not_answered(void **state)
{
    (void)state;
    drop("a@x.test", NULL);
    played_await_other(&site.submits, 1);
    channel_free(played.channel);
    played.channel = NULL;
    played_settle();
    assert_true(played.lost);
    drop("b@x.test", NULL);
    played_settle();
    assert_int_equal(site.submits, 1);
    played_connect();
    played_await_other(&site.submits, 3);
    assert_int_not_equal(site.tokens[1], site.tokens[0]);
    answer(site.tokens[0], 250); /* of the old one: names nothing any more */
    played_settle();
    assert_int_equal(files_in("drop"), 2);
    answer(site.tokens[1], 250);
    answer(site.tokens[2], 250);
    played_settle();
    assert_int_equal(files_in("drop"), 0);
}

static void a_stop_waits_for_answers_and_begins_nothing(void **state)
{
    (void)state;
    drop("a@x.test", NULL);
    played_await_other(&site.submits, 1);
    played.role.stopping = true;
    pickup_role.stop(&played.role);
    drop("b@x.test", NULL);
    played_settle();
    assert_false(played.exited);
    assert_int_equal(site.submits, 1);
    answer(site.tokens[0], 250);
    played_settle();
    assert_true(played.exited);
    assert_int_equal(files_in("drop"), 1);
}

static void a_file_that_took_the_name_meanwhile_stays(void **state)
{
    char name[64], path[200], away[200];

    (void)state;
    drop("a@x.test", name);
    played_await_other(&site.submits, 1);
    (void)snprintf(path, sizeof path, "%s/drop/%s", site.top, name);
    (void)snprintf(away, sizeof away, "%s/away", site.top);
    assert_return_code(rename(path, away), 0);
    assert_return_code(close(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)), 0);
    answer(site.tokens[0], 250);
    played_settle();
    assert_int_equal(files_in("drop"), 1);
}

static void a_slow_queue_gets_a_bounded_number(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        drop("a@x.test", NULL);
    }
    played_await_other(&site.submits, 64);
    played_settle();
    assert_int_equal(site.submits, 64);
    for (size_t i = 0; i < site.submits && i < 100; i++) {
        answer(site.tokens[i], 250);
        if (i + 1 == site.submits) {
            played_settle();
        }
    }
    played_await_other(&site.submits, 100);
    played_settle();
    assert_int_equal(files_in("drop"), 0);
}

static void a_frame_that_does_not_decode_ends_the_channel(void **state)
{
    (void)state;
    wire_put_flow(played.channel, &(struct wire_flow){.storage_ok = true});
    played_settle();
    assert_non_null(played.channel);
    wire_put_number(played.channel, WIRE_SUBMIT_DONE, 1);
    played_settle();
    assert_null(played.channel);
    assert_true(played.lost);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

UNIT_MAIN(TEST(a_file_becomes_mail_and_goes_with_the_commit),
          TEST(refused_for_good_is_moved_and_for_now_is_tried_again),
          TEST(a_new_queue_process_gets_what_the_old_one_had_not_answered),
          TEST(a_stop_waits_for_answers_and_begins_nothing),
          TEST(a_file_that_took_the_name_meanwhile_stays), TEST(a_slow_queue_gets_a_bounded_number),
          TEST(a_frame_that_does_not_decode_ends_the_channel))
