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
    assert_int_equal(problems.count, 0);
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
        {"a/* command=\"x # y\"#", NULL, "1:20 error: a blank is expected after the closing `\"'"},
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

/* Values that sites have, in a clause of channel a or, with PARAM, a line of their own, and what
 * they come to. ZMailer starts with all but those that want an error. */
static const struct {
    const char *line;
    const char *name;    /* of the value that is looked at */
    const char *value;   /* NULL: an error */
    const char *warning; /* the remedy; NULL: none */
} odd_values[] = {
    {"interval=2m", "interval", "2m", NULL},
    {"interval=5m,", "interval", "5m", "read as `5m'"},
    {"interval=5m/10m", "interval", "5m", "read as `5m'"},
    {"interval=1h5m20x", "interval", "1h5m20s", "read as `1h5m20s'"},
    {"interval=-5m", "interval", "1m", "what holds without it holds"},
    {"interval=soon", "interval", "1m", "what holds without it holds"},
    {"interval=\"\"", "interval", "1m", "what holds without it holds"},
    {"interval=101d", "interval", "14w2d", "read as `14w2d'"},
    {"interval=99999999999999999999d", "interval", "14w2d", "read as `14w2d'"},
    {"interval=0", "interval", "0s", NULL},
    {"idlemax=200d", "idlemax", "14w2d", "read as `14w2d'"},
    {"idlemax=10minutes", "idlemax", "10m", "read as `10m'"},
    {"idlemax=never", "idlemax", "0s", "what holds without it holds"},
    {"idlemax=-1", "idlemax", "0s", "what holds without it holds"},
    {"expiry=101d", "expiry", "14w2d", "read as `14w2d'"},
    {"expiry=365d", "expiry", "14w2d", "read as `14w2d'"},
    {"expiry=3 days", "expiry", NULL, NULL}, /* `days' is an unknown word */
    {"expiry=3days", "expiry", "3d", "read as `3d'"},
    {"expiry=\"3d 12h\"", "expiry", "3d", "read as `3d'"},
    {"expiry=none", "expiry", "3d", "what holds without it holds"},
    {"expiry=3M", "expiry", "3m", NULL},
    {"expiry2=101d", "expiry2", "14w2d", "read as `14w2d'"},
    {"expiry2=-1", "expiry2", "0s", "what holds without it holds"},
    {"expiry2=1d?", "expiry2", "1d", "read as `1d'"},
    {"reporttimes=\"1h 2h 3h 4h 5h\"", "reporttimes", "1h 2h 3h 4h", "read as `1h 2h 3h 4h'"},
    {"reporttimes=\"1h soon 3h\"", "reporttimes", "1h 3h", "read as `1h 3h'"},
    {"reporttimes=200d", "reporttimes", "14w2d", "read as `14w2d'"},
    {"reporttimes=no", "reporttimes", "", "what holds without it holds"},
    {"reporttimes=\"4h; 1d\"", "reporttimes", "4h 1d", "read as `4h 1d'"},
    {"retries=\"1.5 2\"", "retries", "1 2", "read as `1 2'"},
    {"retries=\"1x 2x 4x\"", "retries", "1 2 4", "read as `1 2 4'"},
    {"retries=\"1;2\"", "retries", "1", "read as `1'"},
    {"retries=\"+1 2\"", "retries", "1 2", "read as `1 2'"},
    {"retries=99999999999", "retries", "2147483647", "read as `2147483647'"},
    {"retries=\"1,2,4\"", "retries", "1 2 4", NULL},
    {"retries=\"1 0\"", "retries", NULL, NULL},
    {"retries=\"1 -2\"", "retries", NULL, NULL},
    {"retries=often", "retries", NULL, NULL},
    {"skew=1x", "skew", "1", "read as `1'"},
    {"skew=2.5", "skew", "2", "read as `2'"},
    {"skew=1000000", "skew", "100000", "read as `100000'"},
    {"skew=0", "skew", NULL, NULL},
    {"skew=-1", "skew", NULL, NULL},
    {"skew=x", "skew", NULL, NULL},
    {"maxta=100x", "maxta", "100", "read as `100'"},
    {"maxta=all", "maxta", "0", "read as `0'"},
    {"maxta=\"\"", "maxta", "0", "read as `0'"},
    {"maxta=99999999999999999999", "maxta", "2147483647", "read as `2147483647'"},
    {"maxtransports=5;", "maxta", "5", "read as `5'"},
    {"maxchannel=5k", "maxchannel", "5", "read as `5'"},
    {"maxchannel=-5x", "maxchannel", "0", "read as `0'"},
    {"maxchannel=1.9", "maxchannel", "1", "read as `1'"},
    {"maxchannel=\" 7 \"", "maxchannel", "7", NULL},
    {"maxring=many", "maxring", "0", "read as `0'"},
    {"maxring=+3", "maxring", "3", "read as `3'"},
    {"maxring=3,", "maxring", "3", "read as `3'"},
    {"maxrings=0x10", "maxring", "0", "read as `0'"},
    {"maxthr=2/host", "maxthr", "2", "read as `2'"},
    {"maxthr=none", "maxthr", "1", "read as `0'"},
    {"overfeed=10%", "overfeed", "10", "read as `10'"},
    {"overfeed=yes", "overfeed", "0", "read as `0'"},
    {"overfeed=-99", "overfeed", "0", NULL},
    {"user=0x", "user", "0", "read as `0'"},
    {"user=65534/nobody", "user", "65534", "read as `65534'"},
    {"user=99999999999", "user", NULL, NULL},
    {"user=-2", "user", NULL, NULL},
    {"user=no-such-user-here", "user", NULL, NULL},
    {"group=1a", "group", "1", "read as `1'"},
    {"group=no-such-group-here", "group", NULL, NULL},
    {"ageorder=maybe", "ageorder", "yes", "read as `yes'"},
    {"ageorder=1", "ageorder", "yes", NULL},
    {"queueonly=on", "queueonly", "yes", "read as `yes'"},
    {"queueonly=\"\"", "queueonly", "yes", "read as `yes'"},
    {"wakeuprestartonly=true", "wakeuprestartonly", "yes", "read as `yes'"},
    {"bychannel=channel", "bychannel", "yes", "read as `yes'"},
    {"byhost=host", "byhost", "yes", "read as `yes'"},
    {"priority=5x", "priority", "5", "read as `5'"},
    {"priority=+5", "priority", "5", "read as `5'"},
    {"priority=20", "priority", NULL, NULL},
    {"priority=low", "priority", NULL, NULL},
    {"nice=-40,", "nice", "-40", "read as `-40'"},
    {"nice=40", "nice", NULL, NULL},
    {"syspriority=1.5", "syspriority", "1", "read as `1'"},
    {"sysnice=3d", "sysnice", "3", "read as `3'"},
    {"sysnice=\"\"", "sysnice", NULL, NULL},
    {"expiryform=\"a b/c\"", "expiryform", "a b/c", NULL},
    {"deliveryform=${X}", "deliveryform", "${X}", NULL},
    {"command=\"\"", "command", "", NULL},
    {"maxhost=3", "maxta", NULL, NULL},
    {"PARAMglobal-report-interval = 2d", "global_report_interval", "2d", NULL},
    {"PARAMglobal-report-interval = 0", "global_report_interval", "5m",
     "what holds without it holds"},
    {"PARAMglobal-report-interval = 101d", "global_report_interval", "14w2d", "read as `14w2d'"},
    {"PARAMglobal-report-interval = 15min", "global_report_interval", "15m", "read as `15m'"},
    {"PARAMglobal-report-interval = never", "global_report_interval", "5m",
     "what holds without it holds"},
    {"PARAMmsgwriteasync = 2x", "msgwriteasync", "yes", "read as `yes'"},
    {"PARAMmsgwriteasync = true", "msgwriteasync", "no", "read as `no'"},
    {"PARAMstore-error-on-error = on", "store_error_on_error", "no", "read as `no'"},
    {"PARAMstore-error-on-error = \"\"", "store_error_on_error", "no", "read as `no'"},
    {"PARAMauthfile = \"${NOSUCH}/x\"", "authfile", "${NOSUCH}/x", "used: ${NOSUCH}/x"},
    {"PARAMauthfile = \"${NOSUCH\"", "authfile", "${NOSUCH", "used: ${NOSUCH"},
    {"PARAMmailqsock = \"TCP:${NOSUCH}\"", "mailqsock", "TCP:${NOSUCH}", "used: TCP:${NOSUCH}"},
    {"PARAMmailqsock = UNIX:x", "mailqsock", "TCP:174", "used: TCP:174"},
    {"PARAMmailqsock = TCP:@", "mailqsock", "TCP:174", "used: TCP:174"},
    {"PARAMmailqsock = 127.0.0.1:174", "mailqsock", "TCP:174", "used: TCP:174"},
    {"PARAMmailqsock = no-such-service", "mailqsock", "TCP:no-such-service", NULL},
    {"PARAMnotifysock = foo", "notifysock", "/var/spool/postoffice/.scheduler.notify",
     "used: /var/spool/postoffice/.scheduler.notify"},
    {"PARAMnotifysock = UNIX:foo", "notifysock", "/var/spool/postoffice/.scheduler.notify",
     "used: /var/spool/postoffice/.scheduler.notify"},
    {"PARAMnotifysock = TCP:17", "notifysock", "/var/spool/postoffice/.scheduler.notify",
     "used: /var/spool/postoffice/.scheduler.notify"},
    {"PARAMnosuch = 1", "authfile", NULL, NULL},
};

static void values_that_ZMailer_starts_with_are_warnings_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(odd_values); i++) {
        const char *line = odd_values[i].line, *name = odd_values[i].name;
        bool is_param = strncmp(line, "PARAM", 5) == 0;
        const struct param *param =
            is_param ? param_find(slice_string(name)) : param_find_in_clause(slice_string(name));
        struct conf_problems problems;
        const char *found = NULL;
        char text[300];
        struct policy p;
        struct conf *c;
        struct buf value;

        (void)snprintf(text, sizeof text, "%s%s\n", is_param ? "a command=x\n" : "a command=x\n ",
                       line);
        c = load(text, "", &problems);
        for (size_t k = 0; k < problems.count; k++) {
            const struct conf_problem *problem = &problems.at[k];

            if (strstr(problem->text, "has no effect") == NULL) {
                if (problem->line != 2 || problem->column < (is_param ? 1 : 2) ||
                    strcmp(problem->file, "scheduler.conf") != 0) {
                    fail_msg("%s: %s:%u:%u: %s", line, problem->file, problem->line,
                             problem->column, problem->text);
                }
                found = problem->text;
            }
        }
        if ((c == NULL) != (odd_values[i].value == NULL) ||
            (c != NULL && (odd_values[i].warning == NULL) != (found == NULL))) {
            fail_msg("%s: %s", line, found == NULL ? "no problem" : found);
        }
        if (c != NULL) {
            p = policy(c, "a", "host");
            buf_init(&value, 1000);
            param_print(&value, param, is_param ? (const void *)c : &p);
            if (strcmp(buf_cstr(&value), odd_values[i].value) != 0) {
                fail_msg("%s: %s", line, buf_cstr(&value));
            }
            buf_fini(&value);
            if (found != NULL && strstr(found, odd_values[i].warning) == NULL) {
                fail_msg("%s: %s", line, found);
            }
        }
        conf_problems_fini(&problems);
        conf_free(c);
    }
}

/* A copy of the defaults clause, and clauses that take another's values, have what was read. */
static void a_value_that_is_read_otherwise_is_inherited(void **state)
{
    struct conf_problems problems;
    struct conf *c =
        load("* maxring=3k\n* overfeed=4\na/x\na/y expiry=2d!\na/z command=x\n", "", &problems);

    (void)state;
    assert_int_equal(problems.errors, 0);
    assert_int_equal(policy(c, "a", "z").maxring, 3);
    assert_int_equal(policy(c, "a", "x").expiry_us, 2 * US_PER_DAY);
    conf_problems_fini(&problems);
    conf_free(c);
}

static void bad_patterns_are_read_as_far_as_they_go(void **state)
{
    static const struct {
        const char *pattern, *remedy;
        const char *matches, *not ; /* hosts */
    } cases[] = {
        {"smtp/{a,b}.se", "read as `{a,b}'", "b", "b.se"},
        {"smtp/*.{se,fi}x", "read as `*.{se,fi}'", "a.fi", "a.fix"},
        {"smtp/*.{se,fi", "read as `*.{se,fi}'", "a.fi", "a.no"},
        {"smtp/[ab", "it matches nothing", NULL, "a"},
        {"smtp/x\\", "it matches nothing", NULL, "x"},
        {"{smtp,x}y/*", "read as `{smtp,x}'", "any", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct conf_problems problems;
        char text[100];
        struct conf *c;

        (void)snprintf(text, sizeof text, "\n%s command=x\n", cases[i].pattern);
        c = load(text, "", &problems);
        assert_non_null(c);
        assert_int_equal(problems.count, 1);
        assert_int_equal(problems.at[0].severity, CONF_WARNING);
        assert_int_equal(problems.at[0].line, 2);
        assert_int_equal(problems.at[0].column, 1);
        assert_non_null(strstr(problems.at[0].text, cases[i].remedy));
        if (cases[i].matches != NULL) {
            assert_int_equal(policy(c, "smtp", cases[i].matches).ring, 1);
        }
        if (cases[i].not != NULL) {
            assert_int_equal(policy(c, "smtp", cases[i].not ).ring, 0);
        }
        conf_problems_fini(&problems);
        conf_free(c);
    }
}

/* Our own configurations are read strictly. */
static void other_spools_tolerate_nothing(void **state)
{
    static const char *const lines[] = {
        "a/* agent=pipe command=x maxchannel=5k\n", "a/* agent=pipe command=x interval=5m,\n",
        "a/* agent=pipe command=x ageorder=maybe\n", "a/{b,c}.se agent=pipe command=x\n"};

    (void)state;
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct conf_problems problems;

        assert_null(load(lines[i], "", &problems));
        assert_int_equal(problems.errors, 1);
        conf_problems_fini(&problems);
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
         "2:10 warning: maxring: found `many', expected a number of agents; read as `0'"},
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
        {"a command=x interval=soon", "1:22 warning: interval: found `soon', expected a time in s, "
                                      "m, h, d or w (s when it has no unit) from 0s to 14w2d; what "
                                      "holds without it holds"},
        {"PARAMmailqsock=UNIX:x", "1:16 error: mailqsock: `UNIX:x' is none of TCP:PORT, "
                                  "TCP:SERVICE, UNIX:/PATH and /PATH"},
        {"PARAMnotifysock=x", "1:17 error: notifysock: `x' is neither UNIX:/PATH nor /PATH"},
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
    assert_non_null(c);
    assert_int_equal(problems.count, 1);
    assert_non_null(problems.at[0].file);
    assert_string_equal(problems.at[0].text, "notifysock: `run/n' is neither UNIX:/PATH nor /PATH; "
                                             "used: /po/.scheduler.notify");
    conf_free(c);
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
          cmocka_unit_test(values_that_ZMailer_starts_with_are_warnings_with_their_place),
          cmocka_unit_test(a_value_that_is_read_otherwise_is_inherited),
          cmocka_unit_test(bad_patterns_are_read_as_far_as_they_go),
          cmocka_unit_test(other_spools_tolerate_nothing),
          cmocka_unit_test(what_is_wrong_is_said_where_it_stands))
