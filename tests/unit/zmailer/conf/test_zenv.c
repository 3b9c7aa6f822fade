#include "unit.h"

#include <errno.h>
#include <string.h>

#include "conf.h"
#include "conf_private.h"
#include "zenv.h"
#include "door.h"
#include "zmailer_dialect.h"

/* As programs do at their start. */
__attribute__((constructor)) static void know_dialects(void)
{
    zmailer_open_conf();
}

/* ZMailer's file is `zenv`, whatever its path; a NULL text: there is none. */
static int read_zenv(void *zenv, const char *path, size_t max, struct buf *out)
{
    (void)max;
    if (zenv == NULL) {
        return -ENOENT;
    }
    assert_non_null(strstr(path, "zmailer.conf"));
    assert_true(buf_add_string(out, zenv));
    return 0;
}

static struct conf *load(const char *text, const char *zenv, struct conf_problems *problems)
{
    struct conf_world world = {
        .hostname = "mail.example.org", .read = read_zenv, .arg = (char *)(uintptr_t)zenv};

    return conf_load_text(slice_string(text), "sluice.conf", "/etc/sluice", &world, problems);
}

static struct conf *load_clean(const char *text, const char *zenv)
{
    struct conf_problems problems;
    struct conf *conf = load(text, zenv, &problems);

    assert_int_equal(problems.count, 0);
    assert_non_null(conf);
    conf_problems_fini(&problems);
    return conf;
}

/* The only problem of a configuration. */
static void assert_problem(const char *text, const char *zenv, const char *file, unsigned line,
                           const char *problem)
{
    struct conf_problems problems;
    struct conf *conf = load(text, zenv, &problems);

    assert_int_equal(problems.count, 1);
    assert_string_equal(problems.at[0].file, file);
    assert_int_equal(problems.at[0].line, line);
    assert_string_equal(problems.at[0].text, problem);
    conf_problems_fini(&problems);
    conf_free(conf);
}

#define ZENV_LINE "zenv_file = /etc/zmailer.conf\n"

static void a_value_is_the_rest_of_the_first_line_of_its_name(void **state)
{
    struct conf *c = load_clean(ZENV_LINE, "# ZMailer\n"
                                           "\n"
                                           "LOGDIR= \t/var/log/mail  \n"
                                           "PATH=/bin:/usr/bin\n"
                                           "PATH=/never\n"
                                           "QUOTED=\"a b\" # c\n"
                                           "EMPTY=\n"
                                           "EQUALS=a=b\n"
                                           "LAST=no newline");

    (void)state;
    assert_string_equal(conf_zenv(c, SLICE("LOGDIR")), "/var/log/mail  ");
    assert_string_equal(conf_zenv(c, SLICE("PATH")), "/bin:/usr/bin");
    assert_string_equal(conf_zenv(c, SLICE("QUOTED")), "\"a b\" # c");
    assert_string_equal(conf_zenv(c, SLICE("EMPTY")), "");
    assert_string_equal(conf_zenv(c, SLICE("EQUALS")), "a=b");
    assert_string_equal(conf_zenv(c, SLICE("LAST")), "no newline");
    assert_null(conf_zenv(c, SLICE("ZCONFIG")));
    assert_null(conf_zenv(c, SLICE("path")));
    assert_null(conf_zenv(c, SLICE("")));
    conf_free(c);
}

static void four_names_always_have_a_value(void **state)
{
    struct conf *c = load_clean("", NULL);

    (void)state;
    assert_string_equal(conf_zenv(c, SLICE("POSTOFFICE")), "/var/spool/postoffice");
    assert_string_equal(conf_zenv(c, SLICE("MAILBIN")), "/usr/lib/zmailer");
    assert_string_equal(conf_zenv(c, SLICE("MAILSHARE")), "/etc/zmailer");
    assert_string_equal(conf_zenv(c, SLICE("LOGDIR")), "/var/log/zmailer");
    conf_free(c);
}

static void the_spool_says_what_postoffice_is(void **state)
{
    struct conf *c = load_clean(ZENV_LINE "spool = postoffice:/po\n", "POSTOFFICE=/other\n");

    (void)state;
    assert_string_equal(conf_zenv(c, SLICE("POSTOFFICE")), "/po");
    conf_free(c);
    c = load_clean(ZENV_LINE, "POSTOFFICE=/other\n");
    assert_string_equal(conf_zenv(c, SLICE("POSTOFFICE")), "/other");
    conf_free(c);
}

static void a_postoffice_reads_the_compiled_in_file_if_there_is_one(void **state)
{
    struct conf *c = load_clean("spool = postoffice:/po\n", "PATH=/bin\n");

    (void)state;
    assert_string_equal(conf_zenv(c, SLICE("PATH")), "/bin");
    assert_string_equal(c->zenv_file, "/etc/zmailer/zmailer.conf");
    conf_free(c);
    c = load_clean("spool = postoffice:/po\n", NULL);
    assert_string_equal(c->zenv_file, "");
    conf_free(c);
}

static void a_file_that_is_named_must_be_there(void **state)
{
    (void)state;
    assert_problem("log = stderr\n" ZENV_LINE, NULL, "sluice.conf", 2,
                   "can't read /etc/zmailer.conf: No such file or directory");
}

static void other_lines_are_pointed_out(void **state)
{
    static const char text[] = "not NAME=value: the line sets nothing";

    (void)state;
    assert_problem(ZENV_LINE, "A=1\nexport\n", "/etc/zmailer.conf", 2, text);
    assert_problem(ZENV_LINE, "export B=1\n", "/etc/zmailer.conf", 1, text);
    assert_problem(ZENV_LINE, "=1\n", "/etc/zmailer.conf", 1, text);
}

static void param_lines_contain_variables(void **state)
{
    struct conf *c = load_clean(ZENV_LINE "PARAMauthfile=${MAILSHARE}/scheduler.auth\n"
                                          "PARAMmailqsock=\"UNIX:${POSTOFFICE}/${A}$A\"\n"
                                          "PARAMnotifysock=/$\n",
                                "MAILSHARE=/share\nPOSTOFFICE=/po\nA=${A}\n");

    (void)state;
    assert_string_equal(c->authfile, "/share/scheduler.auth");
    assert_string_equal(c->mailqsock, "UNIX:/po/${A}$A");
    assert_string_equal(c->notifysock, "/$");
    conf_free(c);
}

static void an_unknown_variable_is_an_error_where_it_stands(void **state)
{
    (void)state;
    assert_problem(ZENV_LINE "PARAMauthfile=/${NONE}\n", "A=1\n", "sluice.conf", 2,
                   "authfile: `${NONE}' is no variable of zenv_file");
    assert_problem(ZENV_LINE "PARAMauthfile=/${A\n", "A=1\n", "sluice.conf", 2,
                   "authfile: `${A' is no variable of zenv_file");
}

UNIT_MAIN(cmocka_unit_test(a_value_is_the_rest_of_the_first_line_of_its_name),
          cmocka_unit_test(four_names_always_have_a_value),
          cmocka_unit_test(the_spool_says_what_postoffice_is),
          cmocka_unit_test(a_postoffice_reads_the_compiled_in_file_if_there_is_one),
          cmocka_unit_test(a_file_that_is_named_must_be_there),
          cmocka_unit_test(other_lines_are_pointed_out),
          cmocka_unit_test(param_lines_contain_variables),
          cmocka_unit_test(an_unknown_variable_is_an_error_where_it_stands))
