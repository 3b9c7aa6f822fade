#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "conf.h"

static const struct conf_world world = {.hostname = "mail.example.org"};

static struct conf *load(const char *text, struct conf_problems *problems)
{
    return conf_load_text(slice_string(text), "test", "/etc/sluice", &world, problems);
}

static struct conf *load_clean(const char *text)
{
    struct conf_problems problems;
    struct conf *conf = load(text, &problems);

    for (size_t i = 0; i < problems.count; i++) {
        print_error("%u:%u %s\n", problems.at[i].line, problems.at[i].column, problems.at[i].text);
    }
    assert_int_equal(problems.count, 0);
    assert_non_null(conf);
    conf_problems_fini(&problems);
    return conf;
}

static void an_empty_file_gives_the_defaults(void **state)
{
    struct conf *c = load_clean("");

    (void)state;
    assert_string_equal(c->myhostname, "mail.example.org");
    assert_string_equal(c->mydomain, "example.org");
    assert_string_equal(c->myorigin, "mail.example.org");
    assert_string_equal(c->smtpd_banner, "mail.example.org ESMTP");
    assert_string_equal(c->state_directory, "/var/spool/sluice");
    assert_string_equal(c->spool, "sqlite:/var/spool/sluice/queue.db");
    assert_string_equal(c->control_socket, "/var/spool/sluice/control.sock");
    assert_int_equal(c->control_socket_mode, 0660);
    assert_int_equal(c->spool_inline_limit, 16 * 1024);
    assert_int_equal(c->queue_run_delay_us, 300 * US_PER_S);
    assert_int_equal(c->maximal_queue_lifetime_us, 5 * US_PER_DAY);
    assert_int_equal(c->address_verify_pending_request_limit, 5000);
    assert_int_equal(c->local_domains.count, 3);
    assert_string_equal(c->local_domains.items[1], "localhost.example.org");
    assert_int_equal(c->defaults.process_limit, 100);
    assert_string_equal(c->defaults.helo_name, "mail.example.org");
    assert_int_equal(c->defaults.tls_security_level, CONF_TLS_MAY);
    assert_int_equal(c->notify_classes.count, 2);
    conf_free(c);
}

static void values_refer_to_each_other_in_any_order(void **state)
{
    struct conf *c = load_clean("myorigin = $mydomain\n"
                                "smtpd_banner = ${myhostname} $(mydomain) $$5 ${relayhost?yes}"
                                "${relayhost:no} ${mydomain?<${myorigin}>}\n"
                                "mydomain = late.example\n"
                                "fast_flush_domains = $relay_domains\n"
                                "relay_domains = a.example,\n  b.example\n"
                                "smtp_destination_recipient_limit = "
                                "$default_destination_recipient_limit\n");

    (void)state;
    assert_string_equal(c->myorigin, "late.example");
    assert_string_equal(c->smtpd_banner, "mail.example.org late.example $5 no <late.example>");
    assert_int_equal(c->fast_flush_domains.count, 2);
    conf_free(c);
}

static void every_problem_has_a_position_and_says_what_is_expected(void **state)
{
    static const struct {
        const char *text, *want; /* the first problem */
    } cases[] = {
        {"queue_run_delya = 1", "1:1 error: unknown parameter `queue_run_delya', did you mean "
                                "`queue_run_delay'?"},
        {"xyzzy = 1", "1:1 error: unknown parameter `xyzzy'"},
        {"\nqueue_run_delay = soon",
         "2:19 error: queue_run_delay: found `soon', expected a time in "
         "s, m, h, d or w (s when it has no unit) from 1s to 14w2d"},
        {"soft_bounce = maybe", "1:15 error: soft_bounce: found `maybe', expected yes or no"},
        {"smtpd_recipient_limit = 0", "1:25 error: smtpd_recipient_limit: found `0', expected a "
                                      "number of recipients from 1 to 1000000"},
        {"message_size_limit = -1",
         "1:22 error: message_size_limit: found `-1', expected a size in "
         "bytes, k, M or G, at least 0"},
        {"control_socket_mode = 0999", "1:23 error: control_socket_mode: found `0999', expected an "
                                       "octal number from 0000 to 0777"},
        {"smtp_tls_security_level = maybe", "1:27 error: smtp_tls_security_level: found `maybe', "
                                            "expected none, may, encrypt or verify"},
        {"relay_networks = 127.0.0.0/8\n   10.0.0.1/8", "1:18 error: relay_networks: found "
                                                        "`10.0.0.1/8', expected a list of "
                                                        "address/bits"},
        {"maximal_queue_lifetime = 101",
         "1:26 error: maximal_queue_lifetime: found `101', expected "
         "a time in s, m, h, d or w (d when it has no unit) from 0s "
         "to 14w2d"},
        {"spool = files", "1:9 error: spool: found `files', expected sqlite:PATH, postoffice:DIR "
                          "or memory:"},
        {"spool = postgresql://db/queue", "1:9 error: spool: found `postgresql://db/queue', "
                                          "expected sqlite:PATH, postoffice:DIR or memory:"},
        {"smtpd_tls_security_level = may",
         "1:1 error: unknown parameter `smtpd_tls_security_level', see tls_cert (and tls_key), "
         "which offers STARTTLS to clients"},
        {"inet_interfaces = all", "1:1 error: unknown parameter `inet_interfaces', see listen"},
        {"gmail.com maxring=3",
         "1:1 warning: clause `gmail.com' has no effect: nothing declares a transport "
         "`gmail.com', did you mean `smtp/gmail.com'?"},
        {"relayhost = a b", "1:13 error: relayhost: found `a b', expected nexthop"},
        {"myhostname = two words", "1:14 error: myhostname: found `two words', expected host name"},
        {"myorigin = $nothing", "1:12 error: myorigin: `nothing' is no known parameter"},
        {"myorigin = $", "1:12 error: myorigin: `' stands behind a `$' and is no name; a dollar "
                         "sign is written `$$'"},
        {"myorigin = ${a", "1:12 error: myorigin: `{a' has a bracket that nothing closes"},
        {"myorigin = $mydomain\nmydomain = $myorigin",
         "2:12 error: mydomain: `$myorigin' contains itself, or is nested too deep"},
        {"minimal_backoff_time = 2h", "1:24 error: minimal_backoff_time is greater than "
                                      "maximal_backoff_time"},
        {"maximal_backoff_time = 10s", "1:24 error: maximal_backoff_time is less than "
                                       "minimal_backoff_time"},
        {"bounce_queue_lifetime = 6d", "1:25 warning: bounce_queue_lifetime makes "
                                       "bounce_queue_lifetime greater than maximal_queue_lifetime; "
                                       "it is lowered"},
        {"qmgr_message_recipient_limit = 10", "1:32 warning: qmgr_message_recipient_limit makes "
                                              "qmgr_message_recipient_limit less than "
                                              "qmgr_message_active_limit; it is raised"},
        {"smtp_destination_concurrency_positive_feedback = 2",
         "1:50 warning: smtp_destination_concurrency_positive_feedback: ignoring malformed or "
         "unreasonable feedback: 2; 1 holds"},
        {"default_destination_concurrency_positive_feedback =",
         "1:52 error: default_destination_concurrency_positive_feedback: found `', expected a "
         "number "
         "from 0 to 1, alone or divided by a number, concurrency or sqrt_concurrency"},
        {"slow_destination_rate_delay = 1s", "1:31 warning: slow_destination_rate_delay has no "
                                             "effect: nothing declares a transport `slow'"},
        {"smptd_recipient_limit = 5", "1:25 warning: smptd_recipient_limit has no effect: nothing "
                                      "declares a transport `smptd', did you mean "
                                      "`smtpd_recipient_limit'?"},
        {"slow/* maxthr=1", "1:1 warning: clause `slow/*' has no effect: nothing declares a "
                            "transport `slow'"},
        {"slow/* agent=pipe", "1:1 error: clause `slow/*' needs command=... for its agent"},
        {"smtp/* maxthrr=1", "1:8 error: unknown word in a clause, `maxthrr', did you mean "
                             "`maxthr'?"},
        {"smtp/* maxthr", "1:8 error: maxthr needs a value: maxthr=..."},
        {"smtp/* maxthr=x", "1:15 error: maxthr: found `x', expected a number of agents"},
        {"smtp/* retries=\"1 0\"",
         "1:16 error: retries: found `0', expected a list of positive numbers, or 0 alone"},
        {"smtp/* weight=2", "1:8 error: weight is for clauses class/NAME only"},
        {"* weight=2", "1:3 error: weight is for clauses class/NAME only"},
        {"class/bulk maxthr=2",
         "1:12 error: maxthr: a class has weight= and fairness= and nothing else"},
        {"class/bulk weight=0", "1:19 error: weight: found `0', expected a number of shares from "
                                "1 to 1000"},
        {"class/bulk weight=1001", "1:19 error: weight: found `1001', expected a number of shares "
                                   "from 1 to 1000"},
        {"class/bulk\nsmtp/* maxthr=2", "1:1 warning: clause `class/bulk' has no values, and none "
                                        "follows whose values it could take"},
        {"smtp/a\nclass/* weight=2", "1:1 warning: clause `smtp/a' has no values, and none "
                                     "follows whose values it could take"},
        {"class_header = X Class",
         "1:16 error: class_header: found `X Class', expected name of a header field"},
        {"default_class = bulk", "1:17 error: default_class: found `bulk', expected none, "
                                 "sender or auto"},
        {"listen = class=bulk smtp://*:25", "1:10 error: listen has a class=NAME that no address "
                                            "stands before"},
        {"listen = smtp://*:25 class=a class=b", "1:10 error: listen has a class=NAME that no "
                                                 "address stands before"},
        {"listen = smtp://*:25 class=a/b",
         "1:10 error: listen: found `class=a/b', expected a list of smtp://HOST:PORT, "
         "lmtp://HOST:PORT or lmtp:unix:PATH, each perhaps with class=NAME"},
        {"smtp/[a maxthr=1", "1:1 error: pattern `smtp/[a': `[' without `]'"},
        {"smtp/a", "1:1 warning: clause `smtp/a' has no values, and none follows whose values it "
                   "could take"},
        {"PARAMxyz = 1",
         "1:1 error: unknown PARAM `xyz', expected mailqsock, authfile, notifysock, "
         "global-report-interval, msgwriteasync or store-error-on-error"},
        {"soft_bounce = no\nsoft_bounce = yes", "2:1 warning: soft_bounce was set before, at "
                                                "test:1; this value holds"},
        {"hash_queue_depth = 2", "1:1 warning: hash_queue_depth has no effect: the spool has no "
                                 "such directories"},
        {"default_transport = nowhere",
         "1:21 error: default_transport: `nowhere' names a transport "
         "that nothing declares"},
        {"default_transport = smtp:a b", "1:21 error: default_transport: `smtp:a b' has a next hop "
                                         "that is none of host, [host], host:port, [host]:port, "
                                         "unix:path"},
        {"defer_transports = nowhere",
         "1:20 warning: defer_transports: nothing declares a transport "
         "`nowhere'"},
        {"control_listen = 127.0.0.1:8025",
         "1:18 error: control_listen is refused: over TCP the interface can't tell its clients "
         "apart, and each of them may read and delete all mail; leave it empty and use "
         "control_socket"},
        {"transport_maps = missing",
         "1:18 error: transport_maps: can't read /etc/sluice/missing: No "
         "such file or directory"},
        {"include missing", "1:9 error: can't read /etc/sluice/missing: No such file or directory"},
        {"include", "1:1 error: include: a file name is expected"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct conf_problems problems;
        struct conf *conf = load(cases[i].text, &problems);
        char found[600];

        assert_true(problems.count > 0);
        const struct conf_problem *p = &problems.at[0];
        if (p->line == 0) {
            snprintf(found, sizeof found, "%s: %s: %s", p->file,
                     p->severity == CONF_ERROR ? "error" : "warning", p->text);
        } else {
            snprintf(found, sizeof found, "%u:%u %s: %s", p->line, p->column,
                     p->severity == CONF_ERROR ? "error" : "warning", p->text);
        }
        assert_string_equal(found, cases[i].want);
        assert_int_equal(conf == NULL, problems.errors > 0);
        conf_problems_fini(&problems);
        conf_free(conf);
    }
}

static void a_nul_byte_is_refused_with_its_place(void **state)
{
    struct conf_problems problems;

    (void)state;
    assert_null(conf_load_text(SLICE("a = b\nc\0d"), "test", "/", &world, &problems));
    assert_int_equal(problems.at[0].line, 2);
    assert_int_equal(problems.at[0].column, 2);
    conf_problems_fini(&problems);
}

static void problems_beyond_the_table_are_counted(void **state)
{
    struct conf_problems problems;
    struct buf text, out;

    (void)state;
    buf_init(&text, 100000);
    buf_init(&out, 100000);
    for (int i = 0; i < 150; i++) {
        (void)buf_addf(&text, "x%d = 1\n", i);
    }
    assert_null(load(buf_cstr(&text), &problems));
    assert_int_equal(problems.count, CONF_PROBLEMS_MAX);
    assert_int_equal(problems.dropped, 50);
    assert_int_equal(problems.errors, 150);
    conf_print_problems(&out, &problems);
    assert_non_null(strstr(buf_cstr(&out), "test:100:1: error: unknown parameter `x99'\n"
                                           "150 errors, 0 warnings; 50 of them not shown\n"));
    conf_problems_fini(&problems);
    buf_fini(&text);
    buf_fini(&out);
}

static void a_main_cf_reads_without_errors(void **state)
{
    struct conf_problems problems;
    struct conf *c = conf_load(DATA_DIR "/main.cf", &world, &problems);

    (void)state;
    assert_non_null(c);
    assert_int_equal(problems.errors, 0);
    assert_int_equal(c->queue_run_delay_us, 200 * US_PER_S);
    assert_int_equal(c->maximal_queue_lifetime_us, 3 * US_PER_DAY);
    assert_int_equal(c->delay_warning_time_us, 4 * US_PER_HOUR);
    assert_int_equal(c->relay_networks.count, 3);
    assert_int_equal(c->local_domains.count, 3);
    assert_int_equal(c->defer_transports.count, 1);
    conf_problems_fini(&problems);
    conf_free(c);
}

static void a_scheduler_conf_reads_without_errors(void **state)
{
    struct conf_problems problems;
    struct conf *c = conf_load(DATA_DIR "/scheduler.conf", &world, &problems);
    struct policy p;

    (void)state;
    assert_non_null(c);
    assert_int_equal(problems.count, 0);
    assert_string_equal(c->authfile, "/etc/zmailer/scheduler.auth");
    assert_string_equal(c->mailqsock, "TCP:1740");
    assert_int_equal(c->global_report_interval_us, US_PER_MINUTE);
    assert_true(c->store_error_on_error);
    policy_for(c, SLICE("smtp"), SLICE("Example.org"), &p);
    assert_int_equal(p.agent, CONF_AGENT_TA);
    assert_int_equal(p.interval_us, 30 * US_PER_S);
    assert_int_equal(p.expiry_us, US_PER_HOUR);
    assert_int_equal(p.maxchannel, 50);
    assert_int_equal(p.overfeed, 150);
    assert_int_equal(p.retries.count, 4);
    assert_string_equal(p.command, "TESTVAR=x smtp -c $channel -x -p 2525 -l ${LOGDIR}/smtp");
    policy_for(c, SLICE("smtp-etrn"), SLICE("a"), &p);
    assert_true(p.queueonly);
    assert_int_equal(p.maxring, 20);
    conf_problems_fini(&problems);
    conf_free(c);
}

static void the_built_in_text_is_sound(void **state)
{
    struct conf *c = load_clean(conf_default_text);

    (void)state;
    assert_string_equal(c->spool, "sqlite:/etc/sluice/run/queue.db");
    assert_string_equal(c->control_socket, "/etc/sluice/run/control.sock");
    assert_string_equal(conf_transport_find(c, SLICE("local"))->policy.maildir,
                        "/etc/sluice/run/mail/%d/%u/");
    conf_free(c);
}

/* What `config show` prints means the same when it is read again. */
static void what_is_shown_reads_back(void **state)
{
    static const char text[] = "relayhost = [a.example]:25\n"
                               "lmtp_destination_recipient_limit = 1\n"
                               "*/* skew=2\n"
                               "smtp/a\n"
                               "smtp/b maxthr=3 retries=\"1 2\"\n"
                               "*/* skew=3\n"
                               "class/a weight=2\n"
                               "own/* agent=pipe command=\"/bin/x -y\" ageorder\n"
                               "listen = smtp://*:25 class=bulk lmtp:unix:sock\n";
    struct conf *c = load_clean(text), *again;
    struct buf first, second;

    (void)state;
    buf_init(&first, 100000);
    buf_init(&second, 100000);
    assert_true(conf_print(&first, c, NULL, 0, true));
    again = load_clean(buf_cstr(&first));
    assert_true(conf_print(&second, again, NULL, 0, true));
    assert_string_equal(buf_cstr(&first), buf_cstr(&second));
    assert_int_equal(c->route_generation, again->route_generation);
    conf_free(c);
    conf_free(again);
    buf_fini(&first);
    buf_fini(&second);
}

static void parameters_are_shown_and_explained(void **state)
{
    const char *names[] = {"queue_run_delay", "local_destination_recipient_limit", "relayhots"};
    struct conf *c = load_clean("queue_run_delay = 200\n");
    struct buf out;

    (void)state;
    buf_init(&out, 100000);
    assert_false(conf_print(&out, c, names, 3, false));
    assert_string_equal(buf_cstr(&out), "queue_run_delay = 3m20s\n"
                                        "local_destination_recipient_limit = 1\n"
                                        "unknown parameter `relayhots', did you mean "
                                        "`relayhost'?\n");
    buf_clear(&out);
    assert_true(conf_explain(&out, c, "queue_run_delay"));
    assert_string_equal(
        buf_cstr(&out),
        "queue_run_delay: period in which deferred mail is looked at\n"
        "  value: a time in s, m, h, d or w (s when it has no unit) from 1s to 14w2d\n"
        "  default: 300s\n  scope: everything\n  now: queue_run_delay = 3m20s\n");
    buf_clear(&out);
    conf_print_man(&out);
    assert_false(out.failed);
    assert_non_null(strstr(buf_cstr(&out), ".It Cm maximal_backoff_time Pq default : Ql 4000s\n"));
    buf_fini(&out);
    conf_free(c);
}

/* Cut anywhere, or with any byte changed, a file is read or refused, and never more than that. */
static void a_damaged_file_does_no_harm(void **state)
{
    static char text[8192];
    static const char bytes[] = {'\0', '\n', ' ', '"', '=', '$', '\\', '*', '[', '{', '#', '\xff'};
    FILE *files[] = {fopen(DATA_DIR "/main.cf", "r"), fopen(DATA_DIR "/scheduler.conf", "r")};
    struct conf_problems problems;
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        assert_non_null(files[i]);
        len += fread(text + len, 1, sizeof text - len, files[i]);
        fclose(files[i]);
    }
    for (size_t i = 0; i < len; i += 3) {
        char kept = text[i];

        conf_free(conf_load_text(slice_of(text, i), "cut", "/", &world, &problems));
        conf_problems_fini(&problems);
        text[i] = bytes[i / 3 % sizeof bytes];
        conf_free(conf_load_text(slice_of(text, len), "flip", "/", &world, &problems));
        conf_problems_fini(&problems);
        text[i] = kept;
    }
}

UNIT_MAIN(cmocka_unit_test(an_empty_file_gives_the_defaults),
          cmocka_unit_test(values_refer_to_each_other_in_any_order),
          cmocka_unit_test(every_problem_has_a_position_and_says_what_is_expected),
          cmocka_unit_test(a_nul_byte_is_refused_with_its_place),
          cmocka_unit_test(problems_beyond_the_table_are_counted),
          cmocka_unit_test(a_main_cf_reads_without_errors),
          cmocka_unit_test(a_scheduler_conf_reads_without_errors),
          cmocka_unit_test(the_built_in_text_is_sound), cmocka_unit_test(what_is_shown_reads_back),
          cmocka_unit_test(parameters_are_shown_and_explained),
          cmocka_unit_test(a_damaged_file_does_no_harm))
