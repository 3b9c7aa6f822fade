#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conf.h"
#include "param.h"
#include "door.h"
#include "zmailer_dialect.h"

/* As programs do at their start. */
__attribute__((constructor)) static void know_dialects(void)
{
    zmailer_open_conf();
}

/* Nothing is found but the variables. */
static int read_variables(void *variables, const char *path, size_t max, struct buf *out)
{
    (void)max;
    return strcmp(path, "/etc/zmailer/zmailer.conf") == 0 && buf_add_string(out, variables)
               ? 0
               : -ENOENT;
}

static struct conf *load(const char *text, const char *variables, struct conf_problems *problems)
{
    const struct conf_world world = {.hostname = "mail.example.org",
                                     .check_users = true,
                                     .read = read_variables,
                                     .arg = (char *)(uintptr_t)variables};

    return conf_load_text(slice_string(text), "scheduler.conf", "/etc/zmailer", &world, problems);
}

static struct conf *load_clean(const char *text)
{
    struct conf_problems problems;
    struct conf *conf = load(text, "", &problems);

    for (size_t i = 0; i < problems.count; i++) {
        print_error("%u:%u %s\n", problems.at[i].line, problems.at[i].column, problems.at[i].text);
    }
    assert_int_equal(problems.count, 0);
    conf_problems_fini(&problems);
    return conf;
}

/* The first problem of a text, as "LINE:COLUMN SEVERITY: TEXT". */
static void assert_problem(const char *text, const char *want)
{
    struct conf_problems problems;
    struct conf *conf = load(text, "", &problems);
    char found[600] = "none";

    if (problems.count > 0) {
        const struct conf_problem *p = &problems.at[0];

        (void)snprintf(found, sizeof found, "%u:%u %s: %s", p->line, p->column,
                       p->severity == CONF_ERROR ? "error" : "warning", p->text);
    }
    assert_string_equal(found, want);
    assert_int_equal(conf == NULL, problems.errors > 0);
    conf_problems_fini(&problems);
    conf_free(conf);
}

static struct policy policy(const struct conf *conf, const char *channel, const char *host)
{
    struct policy p;

    policy_for(conf, slice_string(channel), slice_string(host), &p);
    return p;
}

static void a_scheduler_conf_says_for_each_value_where_it_stands(void **state)
{
    static const struct {
        const char *channel, *host, *name, *value;
        unsigned line; /* 0: built in */
    } want[] = {
        {"local", "-", "interval", "10s", 12},
        {"local", "-", "expiry", "3h", 12},
        {"local", "-", "expiry2", "0s", 0},
        {"local", "-", "idlemax", "20m", 6},
        {"local", "-", "retries", "1 1 2 3 5 8 13 21 34", 7},
        {"local", "-", "maxring", "10", 8},
        {"local", "-", "maxta", "0", 8},
        {"local", "-", "maxchannel", "5", 12},
        {"local", "-", "maxthr", "1", 0},
        {"local", "-", "overfeed", "150", 0},
        {"local", "-", "user", "root", 9},
        {"local", "-", "group", "daemon", 9},
        {"local", "-", "skew", "5", 10},
        {"local", "-", "wakeuprestartonly", "yes", 10},
        {"local", "-", "ageorder", "no", 0},
        {"local", "-", "agent", "ta", 14},
        {"local", "-", "command", "mailbox -8 -V", 14},
        {"error", "mx.example", "command", "errormail", 16},
        {"smtp", "a.slow.example", "interval", "1h", 24},
        {"smtp", "a.slow.example", "retries", "1 2 4", 24},
        {"smtp", "zoo.example", "maxthr", "2", 25},
        {"SMTP", "Mail.Example.FI", "overfeed", "0", 25},
        {"smtp", "mail.example.fi", "ageorder", "yes", 26},
        {"smtp", "mail.example.fi", "command", "TZ=UTC smtp -c $channel -l ${LOGDIR}/smtp#1 $host",
         26},
        {"smtp", "mail.example.fi", "expiry", "3d", 6},
        {"smtp", "*literal", "queueonly", "yes", 29},
        {"smtp", "*literal", "retries", "24", 29},
        {"smtp", "*literal", "expiry", "5d", 28},
        {"smtp", "xliteral", "command", "smtp -c $channel -l ${LOGDIR}/smtp", 30},
        {"smtp", "boo.example", "maxring", "20", 30},
        {"smtp", "boo.example", "interval", "5m", 6},
        {"usenet", "", "reporttimes", "1h 4h", 31},
        {"usenet", "", "nice", "5", 31},
    };
    struct conf_problems problems;
    struct conf *c = conf_load(DATA_DIR "/manual-scheduler.conf", NULL, &problems);
    struct policy_origin origins[PARAM_COUNT_MAX];
    struct policy p;

    (void)state;
    assert_non_null(c);
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.at[0].text, "ageorder has no effect"));
    for (size_t i = 0; i < COUNT(want); i++) {
        const struct param *param = param_find_in_clause(slice_string(want[i].name));
        struct buf value;

        assert_true(policy_explain(c, slice_string(want[i].channel), slice_string(want[i].host), &p,
                                   origins));
        buf_init(&value, 1000);
        param_print(&value, param, &p);
        assert_string_equal(buf_cstr(&value), want[i].value);
        assert_int_equal(origins[param - param_table].line, want[i].line);
        buf_fini(&value);
    }
    assert_false(policy_explain(c, SLICE("uucp"), SLICE("x"), &p, origins));
    assert_string_equal(c->mailqsock, "TCP:174");
    assert_string_equal(c->authfile, "/etc/zmailer/scheduler.auth");
    assert_int_equal(c->global_report_interval_us, 3920 * US_PER_S);
    conf_problems_fini(&problems);
    conf_free(c);
}

static void a_postoffice_has_the_defaults_of_the_manual_page(void **state)
{
    struct conf *c = load_clean("a/* command=x\n");
    struct policy p = policy(c, "smtp", "nobody.speaks.of.it");

    (void)state;
    assert_string_equal(c->spool, "postoffice:/var/spool/postoffice");
    assert_string_equal(conf_postoffice(c), "/var/spool/postoffice");
    assert_string_equal(c->state_directory, "/var/spool/postoffice/.sluice");
    assert_string_equal(c->notifysock, "/var/spool/postoffice/.scheduler.notify");
    assert_string_equal(c->mailqsock, "TCP:174");
    assert_string_equal(c->maildrop, "");
    assert_int_equal(c->shutdown_timeout_us, 2 * US_PER_S);
    assert_int_equal(c->listen.count, 0);
    assert_int_equal(p.ring, 0);
    assert_int_equal(p.agent, CONF_AGENT_TA);
    assert_string_equal(p.command, "");
    p = policy(c, "a", "b");
    assert_int_equal(p.interval_us, US_PER_MINUTE);
    assert_int_equal(p.idlemax_us, 0);
    assert_int_equal(p.expiry_us, 3 * US_PER_DAY);
    assert_int_equal(p.expiry2_us, 0);
    assert_int_equal(p.retries.count, 9);
    assert_int_equal(p.overfeed, 150);
    assert_int_equal(p.maxthr, 1);
    assert_int_equal(p.destination_concurrency_limit, 0);
    assert_int_equal(p.process_limit, 0);
    assert_false(p.destination_concurrency_feedback);
    assert_int_equal(p.skew, 5);
    assert_string_equal(p.user, "root");
    assert_string_equal(p.group, "daemon");
    conf_free(c);
}

static void other_spools_keep_their_defaults(void **state)
{
    struct conf *c = load_clean("a/* agent=pipe command=x\n");

    (void)state;
    assert_null(conf_postoffice(c));
    assert_string_equal(c->spool, "sqlite:/var/spool/sluice/queue.db");
    assert_string_equal(c->mailqsock, "");
    assert_int_equal(policy(c, "a", "b").overfeed, 0);
    assert_string_equal(policy(c, "a", "b").user, "");
    conf_free(c);
}

static void variables_say_where_the_postoffice_and_its_sockets_are(void **state)
{
    struct conf_problems problems;
    struct conf *c = load("* command=x\n",
                          "POSTOFFICE=/po\nSCHEDULERNOTIFY=/run/n\nSCHEDULERDIRHASH=2\n"
                          "SYSLOGFLG=rC\nORGDOMAIN=org.example\nMAILSHARE=/share\n"
                          "RENDEZVOUS=/run/dump\n",
                          &problems);

    (void)state;
    assert_string_equal(c->spool, "postoffice:/po");
    assert_int_equal(c->postoffice_hash_levels, 2);
    assert_true(c->scheduler_syslog);
    assert_string_equal(c->myorigin, "org.example");
    assert_string_equal(c->report_form, "/share/forms/delivery");
    assert_string_equal(c->mailq_dump_file, "/run/dump");
    assert_string_equal(c->state_directory, "/po/.sluice");
    assert_string_equal(c->notifysock, "/run/n");
    conf_free(c);
    conf_problems_fini(&problems);
    c = load("spool = postoffice:/own\na/* command=x\nPARAMnotifysock=UNIX:/n\n",
             "POSTOFFICE=/po\nSCHEDULERNOTIFY=/run/n\nSCHEDULERDIRHASH=3\nSYSLOGFLG=r\n",
             &problems);
    assert_string_equal(c->spool, "postoffice:/own");
    assert_string_equal(c->notifysock, "/n");
    assert_int_equal(c->postoffice_hash_levels, 0);
    assert_false(c->scheduler_syslog);
    conf_free(c);
    conf_problems_fini(&problems);
}

static void a_clause_takes_nothing_from_one_that_is_not_its_first_match(void **state)
{
    struct conf *c = load_clean("smtp/*.org command=a maxring=3\n"
                                "smtp/* command=b interval=9m size_limit=1M\n");

    (void)state;
    assert_int_equal(policy(c, "smtp", "x.org").interval_us, US_PER_MINUTE);
    assert_int_equal(policy(c, "smtp", "x.org").size_limit, 0);
    assert_string_equal(policy(c, "smtp", "x.org").command, "a");
    conf_free(c);
}

static void the_defaults_clause_holds_for_what_follows_it(void **state)
{
    struct conf *c = load_clean("a/x command=a\n"
                                "*/* queueonly interval=2m\n"
                                "b/x command=b\n"
                                "* interval=3m wakeuprestartonly\n"
                                "c/x\n"
                                "c/y\n"
                                "d command=d\n");
    struct policy p = policy(c, "a", "x");

    (void)state;
    assert_false(p.queueonly);
    assert_int_equal(p.interval_us, US_PER_MINUTE);
    p = policy(c, "b", "x");
    assert_true(p.queueonly && !p.wakeuprestartonly);
    assert_int_equal(p.interval_us, 2 * US_PER_MINUTE);
    /* Flags add up; empty clauses have the next one's values, and rings of their own. */
    p = policy(c, "c", "x");
    assert_true(p.queueonly && p.wakeuprestartonly);
    assert_int_equal(p.interval_us, 3 * US_PER_MINUTE);
    assert_string_equal(p.command, "d");
    assert_string_equal(policy_clause(c, p.ring), "c/x");
    assert_string_equal(policy_clause(c, policy(c, "d", "any").ring), "d");
    /* What only the defaults clause matches, no clause matches. */
    assert_int_equal(policy(c, "e", "x").ring, 0);
    conf_free(c);
}

static void lexical_rules(void **state)
{
    static const struct {
        const char *clause; /* of channel a */
        const char *name, *value;
    } cases[] = {
        {"a/* command=x#y", "command", "x#y"},
        {"a/* command=\"x # y\"#", NULL, "1:20 error: a blank is expected behind the closing `\"'"},
        {"a/* command=\"x # y\" # z", "command", "x # y"},
        {"a/* command = x", "command", "x"},
        {"a/* COMMAND=\"x\\\n y\"", "command", "x y"},
        {"a/*\tcommand=x\r\n\tmaxthr=2\r\n", "maxthr", "2"},
        {"a/* command=x MaxTransport=3", "maxta", "3"},
        {"a/* command=x maxtransports=3", "maxta", "3"},
        {"a/* command=x maxchannels=3", "maxchannel", "3"},
        {"a/* command=x maxrings=-3", "maxring", "0"},
        {"a/* command=x maxthr=0", "maxthr", "1"},
        {"a/* command=x overfeed=-1", "overfeed", "0"},
        {"a/* command=x interval=90", "interval", "1m30s"},
        {"a/* command=x interval=1h5m20", "interval", "1h5m20s"},
        {"a/* command=x retries=0", "retries", "0"},
        {"a/* command=x retries=\"\"", "retries", ""},
        {"a/* command=x user=0 group=12345", "group", "12345"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct param *param;
        struct conf_problems problems;
        struct policy p;
        struct conf *c;
        struct buf value;

        if (cases[i].name == NULL) {
            assert_problem(cases[i].clause, cases[i].value);
            continue;
        }
        c = load(cases[i].clause, "", &problems);
        if (c == NULL) {
            fail_msg("%s: %s", cases[i].clause, problems.at[0].text);
        }
        p = policy(c, "a", "host");
        param = param_find_in_clause(slice_string(cases[i].name));
        buf_init(&value, 1000);
        param_print(&value, param, &p);
        assert_string_equal(buf_cstr(&value), cases[i].value);
        buf_fini(&value);
        conf_problems_fini(&problems);
        conf_free(c);
    }
}

static void sockets_have_several_spellings(void **state)
{
    static const struct {
        const char *given, *want;
    } cases[] = {
        {"TCP:174", "TCP:174"},         {"tcp:mailq", "TCP:mailq"}, {"1740", "TCP:1740"},
        {"mailq", "TCP:mailq"},         {"TCP:174@x", "TCP:174"},   {"174@x:y/z", "TCP:174"},
        {"UNIX:/run/q", "UNIX:/run/q"}, {"/run/q", "UNIX:/run/q"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[100];
        struct conf *c;

        (void)snprintf(text, sizeof text, "PARAMmailqpath = \"%s\"\n", cases[i].given);
        c = load_clean(text);
        assert_string_equal(c->mailqsock, cases[i].want);
        conf_free(c);
    }
}

static void what_is_wrong_is_said_where_it_stands(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a command=x maxhost=3", "1:13 error: unknown word in a clause, `maxhost'"},
        {"a command=x\n\tgangschedule", "2:2 error: unknown word in a clause, `gangschedule'"},
        {"a command=x\n\tmaxring=many",
         "2:10 error: maxring: found `many', expected a number of agents"},
        {"a command=x user=no-such-user-here",
         "1:18 error: user: there is no user `no-such-user-here' here"},
        {"* group=no-such-group-here",
         "1:9 error: group: there is no group `no-such-group-here' here"},
        {"a command=x retries=\"1 0\"",
         "1:21 error: retries: found `0', expected a list of positive numbers, or 0 alone"},
        {"a command=x retries=\"0 1\"",
         "1:21 error: retries: found `0', expected a list of positive numbers, or 0 alone"},
        {"a command=x retries=often",
         "1:21 error: retries: found `often', expected a list of positive numbers, or 0 alone"},
        {"a command=x skew=0",
         "1:18 error: skew: found `0', expected a number of steps from 1 to 100000"},
        {"a command=x interval=soon", "1:22 error: interval: found `soon', expected a time in s, "
                                      "m, h, d or w (s when it has no unit) from 0s to 14w2d"},
        {"a command=x interval=5m,", "1:22 warning: interval: what stands behind `5m' is not read"},
        {"PARAMmailqsock=UNIX:x", "1:16 error: mailqsock: found `UNIX:x', expected TCP:PORT, "
                                  "TCP:SERVICE, UNIX:/PATH or /PATH"},
        {"PARAMmailqsock=TCP:@", "1:16 error: mailqsock: found `TCP:@', expected TCP:PORT, "
                                 "TCP:SERVICE, UNIX:/PATH or /PATH"},
        {"PARAMnotifysock=x", "1:17 error: notifysock: found `x', expected UNIX:/PATH or /PATH"},
        {"PARAM mailqsock=1", "1:6 error: `=' and a value are expected"},
        {"a command=x\nb/* interval=1m",
         "2:1 warning: clause `b/*' has no command: its mail waits until it has"},
        {"spool = postoffice:/po\na agent=smtp",
         "2:1 error: clause `a': the spool is a postoffice, whose mail only transport agents take: "
         "command=, without agent=, is expected"},
        {"spool = sqlite:q\na/x\na/* command=x",
         "3:1 error: clause `a/*': transport agents (command= without agent=pipe) need "
         "spool = postoffice:DIR"},
        {"spool = sqlite:q\n*/* command=x",
         "2:1 error: clause `*/*': transport agents (command= without agent=pipe) need "
         "spool = postoffice:DIR"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_problem(cases[i].text, cases[i].want);
    }
}

/* A configuration that is named by a relative path has relative directories. */
static void a_postoffice_may_be_relative_and_a_socket_of_a_variable_not(void **state)
{
    const struct conf_world world = {
        .hostname = "mail.example.org", .read = read_variables, .arg = (char *)(uintptr_t) ""};
    struct conf_problems problems;
    struct conf *c = conf_load_text(SLICE("spool = postoffice:po\na/* command=x\n"),
                                    "scheduler.conf", ".", &world, &problems);

    (void)state;
    assert_int_equal(problems.errors, 0);
    assert_non_null(strstr(c->notifysock, "po/.scheduler.notify"));
    conf_free(c);
    conf_problems_fini(&problems);

    c = load("spool = postoffice:/po\na/* command=x\n", "SCHEDULERNOTIFY=run/n\n", &problems);
    assert_null(c);
    assert_int_equal(problems.errors, 1);
    assert_non_null(problems.at[0].file);
    assert_string_equal(problems.at[0].text,
                        "notifysock: found `run/n', expected UNIX:/PATH or /PATH");
    conf_problems_fini(&problems);
}

UNIT_MAIN(cmocka_unit_test(a_scheduler_conf_says_for_each_value_where_it_stands),
          cmocka_unit_test(a_postoffice_has_the_defaults_of_the_manual_page),
          cmocka_unit_test(other_spools_keep_their_defaults),
          cmocka_unit_test(a_postoffice_may_be_relative_and_a_socket_of_a_variable_not),
          cmocka_unit_test(variables_say_where_the_postoffice_and_its_sockets_are),
          cmocka_unit_test(a_clause_takes_nothing_from_one_that_is_not_its_first_match),
          cmocka_unit_test(the_defaults_clause_holds_for_what_follows_it),
          cmocka_unit_test(lexical_rules), cmocka_unit_test(sockets_have_several_spellings),
          cmocka_unit_test(what_is_wrong_is_said_where_it_stands))
