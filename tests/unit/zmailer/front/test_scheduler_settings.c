#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "conf.h"
#include "scheduler_settings.h"

static char directory[] = "/tmp/sluice-test-settings-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[200];
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(directory));
    assert_int_equal(chdir(directory), 0);
    write_file("scheduler.conf", "PARAMmailqsock=TCP:1740\nsmtp/* command=x\n");
    write_file("zenv", "POSTOFFICE=/from/zenv\nMAILSHARE=/share\nLOGDIR=/log\n");
    write_file("zenv-hash", "SCHEDULERDIRHASH=1\n");
    write_file("zenv-odd", "SCHEDULERDIRHASH=12\nRENDEZVOUS=/from/zenv\n");
    return 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"scheduler.conf", "zenv", "zenv-hash", "zenv-odd"};

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(unlink(names[i]), 0);
    }
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(directory), 0);
    return 0;
}

static char *const no_files[] = {NULL};

static const struct scheduler_options plain = {.files = no_files,
                                               .mailq_protocol = 1,
                                               .scan_files = 40000,
                                               .scan_s = 5,
                                               .fd_limit = 32,
                                               .start_rate = 30};

static struct scheduler_settings make(const struct scheduler_options *o)
{
    struct scheduler_settings s;
    struct buf messages;

    buf_init(&messages, 4000);
    assert_true(scheduler_settings_make(o, "/usr/sbin/scheduler", &s, &messages));
    assert_int_equal(buf_len(&messages), 0);
    buf_fini(&messages);
    return s;
}

/* The configuration that the settings are, with the scheduler.conf of this directory. */
static struct conf *load(struct scheduler_options o)
{
    struct scheduler_settings s;
    struct conf_problems problems;
    struct conf *conf;

    o.conf = "scheduler.conf";
    s = make(&o);
    conf = conf_load_text(buf_slice(&s.text), s.path, "/nowhere", NULL, &problems);
    assert_int_equal(problems.count, 0);
    conf_problems_fini(&problems);
    scheduler_settings_fini(&s);
    return conf;
}

static void places_come_from_options_then_variables_then_the_program(void **state)
{
    struct scheduler_options o = plain;
    struct scheduler_settings s = make(&o);

    (void)state;
    assert_string_equal(s.postoffice, "/var/spool/postoffice");
    assert_string_equal(s.conf, "/etc/zmailer/scheduler.conf");
    assert_string_equal(s.log, "/var/log/zmailer/scheduler");
    assert_string_equal(s.path, "/var/spool/postoffice/.sluice/sluice.conf");
    scheduler_settings_fini(&s);
    o.zenv = "zenv";
    s = make(&o);
    assert_string_equal(s.postoffice, "/from/zenv");
    assert_string_equal(s.conf, "/share/scheduler.conf");
    assert_string_equal(s.log, "/log/scheduler");
    scheduler_settings_fini(&s);
    o.postoffice = "/from/option";
    o.conf = "own.conf";
    o.mode = SCHEDULER_FOREGROUND;
    s = make(&o);
    assert_string_equal(s.postoffice, "/from/option");
    assert_true(strncmp(s.conf, directory, strlen(directory)) == 0);
    assert_string_equal(s.conf + strlen(directory), "/own.conf");
    assert_null(s.log);
    scheduler_settings_fini(&s);
    o.log = "/own/log";
    s = make(&o);
    assert_string_equal(s.log, "/own/log");
    scheduler_settings_fini(&s);
}

static void options_become_parameters(void **state)
{
    struct scheduler_options o = {
        .hash_levels = 2,
        .freeze = true,
        .headers_only = true,
        .mailq_short = true,
        .read_queue_first = true,
        .mailq_protocol = 2,
        .scan_files = 77,
        .scan_s = 7,
        .fd_limit = 99,
        .start_rate = 8,
        .only = "smtp/$*",
        .rendezvous = "/a$b",
        .statistics = "/stat",
        .log = "/log$",
        .postoffice = "/po",
        .files = (char *const[]){(char[]){"A/1"}, (char[]){"/po/transport/2"}, (char[]){"/other/3"},
                                 NULL},
    };
    struct conf *c = load(o);

    (void)state;
    assert_non_null(c);
    assert_string_equal(c->spool, "postoffice:/po");
    assert_string_equal(c->log, "file:/log$");
    assert_string_equal(c->mailqsock, "TCP:1740");
    assert_int_equal(c->postoffice_hash_levels, 2);
    assert_int_equal(c->postoffice_scan_files, 77);
    assert_int_equal(c->postoffice_scan_time_us, 7 * US_PER_S);
    assert_int_equal(c->agent_fd_limit, 99);
    assert_int_equal(c->agent_start_rate, 8);
    assert_int_equal(c->mailq_protocol, 2);
    assert_true(c->agent_freeze && c->mailq_short && c->read_queue_first);
    assert_int_equal(c->report_return, CONF_REPORT_RETURN_HEADERS);
    assert_string_equal(c->deliver_only, "smtp/$*");
    assert_string_equal(c->mailq_dump_file, "/a$b");
    assert_string_equal(c->statistics_log, "/stat");
    assert_int_equal(c->postoffice_files.count, 3);
    assert_string_equal(c->postoffice_files.items[0], "A/1");
    assert_string_equal(c->postoffice_files.items[1], "2");
    assert_string_equal(c->postoffice_files.items[2], "/other/3");
    conf_free(c);
}

static void the_variable_for_hashing_beats_the_option(void **state)
{
    struct scheduler_options o = plain;
    struct conf *c;

    (void)state;
    o.hash_levels = 2;
    o.zenv = "zenv-hash";
    c = load(o);
    assert_int_equal(c->postoffice_hash_levels, 1);
    conf_free(c);
    o.zenv = "zenv-odd"; /* only 1 and 2 count */
    c = load(o);
    assert_int_equal(c->postoffice_hash_levels, 2);
    assert_string_equal(c->mailq_dump_file, "/from/zenv");
    conf_free(c);
}

static void variables_that_cannot_be_read_are_an_error(void **state)
{
    struct scheduler_options o = plain;
    struct scheduler_settings s;
    struct buf messages;

    (void)state;
    o.zenv = "/nowhere/zenv";
    buf_init(&messages, 4000);
    assert_false(scheduler_settings_make(&o, "scheduler", &s, &messages));
    assert_string_equal(buf_cstr(&messages), "command line:1:13: error: can't read /nowhere/zenv: "
                                             "No such file or directory\n");
    buf_fini(&messages);
    scheduler_settings_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_come_from_options_then_variables_then_the_program),
        cmocka_unit_test(options_become_parameters),
        cmocka_unit_test(the_variable_for_hashing_beats_the_option),
        cmocka_unit_test(variables_that_cannot_be_read_are_an_error),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
