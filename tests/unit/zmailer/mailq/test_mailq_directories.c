#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mailq_directories.h"

static char top[] = "/tmp/mailq-directories-XXXXXX";

static const char *below(const char *name)
{
    static char path[300];

    assert_true(snprintf(path, sizeof path, "%s/%s", top, name) > 0);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(below(name), "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static const char *const directories[] = {"router", "transport", "transport/A", "transport/A/B",
                                          "deferred"};
static const char *const files[] = {"router/17",        "transport/1", "transport/.hidden",
                                    "transport/A/B/90", "deferred/1",  ".pid.scheduler",
                                    ".pid.router"};

static void remove_all(void)
{
    for (size_t i = 0; i < COUNT(files); i++) {
        (void)remove(below(files[i])); /* some are gone */
    }
    for (size_t i = COUNT(directories); i > 0; i--) {
        (void)remove(below(directories[i - 1]));
    }
    assert_int_equal(remove(top), 0);
}

static void assert_printed(bool want_ok, const char *format)
{
    char want[2000];
    struct buf out;

    assert_true(snprintf(want, sizeof want, format, top, top, top) > 0);
    buf_init(&out, 10000);
    assert_int_equal(mailq_directories_put(&out, top), want_ok);
    assert_string_equal(buf_cstr(&out), want);
    buf_fini(&out);
}

static void files_are_counted_and_processes_looked_for(void **unused)
{
    char pid[30];

    (void)unused;
    assert_non_null(mkdtemp(top));
    for (size_t i = 0; i < COUNT(directories); i++) {
        assert_int_equal(mkdir(below(directories[i]), 0700), 0);
    }
    assert_printed(true, "0 entries in %s/router/ directory: never started\n"
                         "0 messages in %s/transport/ directory: never started\n");
    assert_true(snprintf(pid, sizeof pid, "%d\n", (int)getpid()) > 0);
    write_file(".pid.scheduler", pid);
    write_file(".pid.router", pid);
    assert_printed(true, "0 entries in %s/router/ directory: idle\n"
                         "0 messages in %s/transport/ directory: idle\n");
    for (size_t i = 0; i < COUNT(files); i++) {
        write_file(files[i], pid);
    }
    assert_printed(true, "1 entry in %s/router/ directory: processing\n"
                         "1 message deferred\n"
                         "2 messages in %s/transport/ directory: working\n");
    write_file(".pid.scheduler", "999999999\n");
    write_file(".pid.router", "999999999\n");
    assert_printed(true, "1 entry in %s/router/ directory: no daemon\n"
                         "1 message deferred\n"
                         "2 messages in %s/transport/ directory: no scheduler daemon\n");
    assert_int_equal(remove(below(".pid.scheduler")), 0);
    assert_int_equal(remove(below("router/17")), 0);
    assert_int_equal(remove(below("router")), 0);
    assert_printed(false, "%s/router/ directory: No such file or directory\n"
                          "1 message deferred\n"
                          "2 messages in %s/transport/ directory: never started "
                          "\"%s/transport\" polluted\n");
    remove_all();
}

UNIT_MAIN(cmocka_unit_test(files_are_counted_and_processes_looked_for))
