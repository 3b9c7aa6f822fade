#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conf.h"
#include "door.h"
#include "zmailer_dialect.h"

/* As programs do at their start. */
__attribute__((constructor)) static void know_dialects(void)
{
    zmailer_open_conf();
}

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
    assert_int_equal(c->minimal_backoff_time_us, 300 * US_PER_S);
    assert_int_equal(c->maximal_queue_lifetime_us, 5 * US_PER_DAY);
    assert_int_equal(c->local_domains.count, 0); /* nothing is delivered here unless it is said */
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

#define NEXT_HOP                                                                                   \
    "expected a next hop of the form host, [host], host:port, [host]:port or unix:path, or a "     \
    "pattern of these"

static void every_problem_has_a_position_and_says_what_is_expected(void **state)
{
    static const struct {
        const char *text, *want; /* the first problem */
    } cases[] = {
        {"service_throttle_tiem = 1", "1:1 error: unknown parameter `service_throttle_tiem', did "
                                      "you mean `service_throttle_time'?"},
        {"xyzzy = 1", "1:1 error: unknown parameter `xyzzy'"},
        {"\nminimal_backoff_time = soon",
         "2:24 error: minimal_backoff_time: found `soon', expected a time in "
         "s, m, h, d or w (s when it has no unit) from 1s to 14w2d"},
        {"soft_bounce = maybe", "1:15 error: soft_bounce: found `maybe', expected yes or no"},
        {"smtpd_recipient_limit = 0", "1:25 error: smtpd_recipient_limit: found `0', expected a "
                                      "number of recipients from 1 to 1000000"},
        {"message_size_limit = -1",
         "1:22 error: message_size_limit: found `-1', expected a size in "
         "bytes, k, M or G, at least 0"},
        {"control_socket_mode = 0999", "1:23 error: control_socket_mode: found `0999', expected an "
                                       "octal number from 0000 to 0777"},
        {"smtp_tls_security_level = maybe",
         "1:27 error: smtp_tls_security_level: found `maybe', "
         "expected none, may, encrypt, verify, secure, dane or dane-only"},
        {"relay_networks = 127.0.0.0/8\n   10.0.0.1/8", "1:18 error: relay_networks: found "
                                                        "`10.0.0.1/8', expected a list of "
                                                        "address/bits"},
        {"local_domains = hash:/etc/postfix/domains",
         "1:17 error: local_domains: found `hash:/etc/postfix/domains', expected a list of domain "
         "pattern; tables of Postfix are not read"},
        {"relay_domains = a.example /etc/postfix/domains",
         "1:17 error: relay_domains: found `/etc/postfix/domains', expected a list of domain "
         "pattern"},
        {"relay_networks = cidr:/etc/postfix/nets",
         "1:18 error: relay_networks: found `cidr:/etc/postfix/nets', expected a list of "
         "address/bits; tables of Postfix are not read"},
        {"transport_maps = ldap:/etc/postfix/ldap.cf",
         "1:18 error: transport_maps: found `ldap:/etc/postfix/ldap.cf', expected a list of file; "
         "tables of Postfix are not read"},
        {"listen = smtp://127.0.0.1:25 smtp://*:25\nrelay_networks = 10.0.0.0/8 0.0.0.0/0",
         "2:18 error: relay_networks holds all addresses or a large part of them, and smtp://*:25 "
         "is open to other machines: anyone could send any mail; set allow_open_relay = yes if "
         "that is meant"},
        {"listen = smtp://*:25\nrelay_networks = 0.0.0.0/1 128.0.0.0/1",
         "2:18 error: relay_networks holds all addresses or a large part of them, and smtp://*:25 "
         "is open to other machines: anyone could send any mail; set allow_open_relay = yes if "
         "that is meant"},
        {"listen = smtp://*:25\nrelay_networks = 10.0.0.0/8 64.0.0.0/4 80.0.0.0/4 96.0.0.0/8",
         "2:18 error: relay_networks holds all addresses or a large part of them, and smtp://*:25 "
         "is open to other machines: anyone could send any mail; set allow_open_relay = yes if "
         "that is meant"},
        {"listen = smtp://*:25\nrelay_networks = [2000::]/4 [3000::]/4",
         "2:18 error: relay_networks holds all addresses or a large part of them, and smtp://*:25 "
         "is open to other machines: anyone could send any mail; set allow_open_relay = yes if "
         "that is meant"},
        {"header_checks = regexp:/x", "1:17 error: header_checks: found `regexp:/x', expected a "
                                      "list of file or pcre:file; tables of Postfix are not read"},
        {"always_bcc = archive", "1:14 error: always_bcc: found `archive', expected mail address"},
        {"content_filter = nowhere:[127.0.0.1]:10025",
         "1:18 error: content_filter: `nowhere:[127.0.0.1]:10025' names a transport that nothing "
         "declares"},
        {"listen = proxy=yes smtp://*:25",
         "1:10 error: listen has a proxy=yes that no address stands before"},
        {"listen = smtp://127.0.0.1:25 proxy=yes smtp://*:25 proxy=yes\n"
         "smtpd_upstream_proxy_networks = 0.0.0.0/0",
         "2:33 error: smtpd_upstream_proxy_networks holds all addresses or a large part of them, "
         "and smtp://*:25 is open to other machines: anyone could take the address of a client "
         "that may relay; set allow_open_relay = yes if that is meant"},
        {"listen = smtp://127.0.0.1:25 proxy=yes\nrelay_networks = 0.0.0.0/0",
         "2:18 error: relay_networks holds all addresses or a large part of them, and "
         "smtp://127.0.0.1:25 is open to other machines: anyone could send any mail; set "
         "allow_open_relay = yes if that is meant"},
        {"listen = filtered=yes smtp://*:25",
         "1:10 error: listen has a filtered=yes that no address stands before"},
        {"listen = smtp://[2001:db8::1]:25\nrelay_networks = [::]/0",
         "2:18 error: relay_networks holds all addresses or a large part of them, and "
         "smtp://[2001:db8::1]:25 is open to other machines: anyone could send any mail; set "
         "allow_open_relay = yes if that is meant"},
        {"maximal_queue_lifetime = 101",
         "1:26 error: maximal_queue_lifetime: found `101', expected "
         "a time in s, m, h, d or w (d when it has no unit) from 0s "
         "to 14w2d"},
        {"spool = memory:", "1:9 error: spool: found `memory:', expected sqlite:PATH, "
                            "postgresql:URL, postoffice:DIR or postfix:DIR"},
        {"spool = postgresql:db/queue", "1:9 error: spool: found `postgresql:db/queue', "
                                        "expected sqlite:PATH, postgresql:URL, postoffice:DIR "
                                        "or postfix:DIR"},
        {"smtpd_use_tls = yes", "1:1 error: unknown parameter `smtpd_use_tls', see "
                                "smtpd_tls_security_level, and tls_cert (and tls_key)"},
        {"smtpd_tls_security_level = encrypt",
         "1:28 error: smtpd_tls_security_level = encrypt accepts mail with TLS only, and there is "
         "none: set tls_cert"},
        {"inet_interfaces = all", "1:1 error: unknown parameter `inet_interfaces', see listen"},
        {"gmail.com maxring=3",
         "1:1 warning: clause `gmail.com' has no effect: nothing declares a transport "
         "`gmail.com', did you mean `smtp/gmail.com'?"},
        {"relayhost = a b", "1:13 error: relayhost: found `a b', expected nexthop"},
        {"myhostname = two words", "1:14 error: myhostname: found `two words', expected host name"},
        {"myorigin = $nothing", "1:12 error: myorigin: `nothing' is no known parameter"},
        {"myorigin = $", "1:12 error: myorigin: `' follows a `$' and is no name; a dollar "
                         "sign is written `$$'"},
        {"myorigin = ${a", "1:12 error: myorigin: `{a' has a bracket that nothing closes"},
        {"myorigin = $mydomain\nmydomain = $myorigin",
         "2:12 error: mydomain: `$myorigin' contains itself, or is nested too deep"},
        {"minimal_backoff_time = 2h", "1:24 warning: minimal_backoff_time makes "
                                      "maximal_backoff_time less than minimal_backoff_time; it is "
                                      "raised"},
        {"maximal_backoff_time = 10s", "1:24 warning: maximal_backoff_time makes "
                                       "maximal_backoff_time less than minimal_backoff_time; it is "
                                       "raised"},
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
        {"smtp/user@a.example maxthr=1",
         "1:1 warning: clause `smtp/user@a.example' can match no destination: " NEXT_HOP},
        {"smtp/*@a.example maxthr=1",
         "1:1 warning: clause `smtp/*@a.example' can match no destination: " NEXT_HOP},
        {"smtp/[192.0.2.7]25 maxthr=1",
         "1:1 warning: clause `smtp/[192.0.2.7]25' can match no destination: " NEXT_HOP},
        {"smtp/[mx_1!] maxthr=1",
         "1:1 warning: clause `smtp/[mx_1!]' can match no destination: " NEXT_HOP},
        {"smtp/a.example:99999 maxthr=1",
         "1:1 warning: clause `smtp/a.example:99999' can match no destination: " NEXT_HOP},
        {"smtp/*.a.example:99999 maxthr=1",
         "1:1 warning: clause `smtp/*.a.example:99999' can match no destination: " NEXT_HOP},
        {"smtp/[mx*.a.example]:0 maxthr=1",
         "1:1 warning: clause `smtp/[mx*.a.example]:0' can match no destination: " NEXT_HOP},
        {"smtp/a..example maxthr=1",
         "1:1 warning: clause `smtp/a..example' can match no destination: " NEXT_HOP},
        {"smtp/*..example maxthr=1",
         "1:1 warning: clause `smtp/*..example' can match no destination: " NEXT_HOP},
        {"smtp/[300.1.1.1] maxthr=1",
         "1:1 warning: clause `smtp/[300.1.1.1]' can match no destination: " NEXT_HOP},
        {"sm*p?/* maxthr=1", "1:1 warning: clause `sm*p?/*' has no effect: nothing declares a "
                             "transport `sm*p?'"},
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
        {"listen = auth=yes smtp://*:25", "1:10 error: listen has an auth=yes that no address "
                                          "stands before"},
        {"listen = submission://*\nauth_users = u", "1:10 error: listen has an address for logins, "
                                                    "which are offered with TLS only: set "
                                                    "tls_cert"},
        {"listen = smtp://*:25 auth=yes\ntls_cert = c", "1:10 error: listen has an address for "
                                                        "logins, and no setting names who may log "
                                                        "in: set auth_users or auth_dovecot"},
        {"listen = smtp://*:25 class=a/b",
         "1:10 error: listen: found `class=a/b', expected a list of smtp://HOST:PORT, "
         "lmtp://HOST:PORT, lmtp:unix:PATH, submission://HOST, submissions://HOST, "
         "http://HOST:PORT or https://HOST:PORT, each perhaps with class=NAME, auth=yes, "
         "filtered=yes and proxy=yes"},
        {"listen = http://*:8025\napi_tokens = t",
         "1:10 error: listen has http://*:8025, which other machines reach: tokens would cross the "
         "network in clear; expected https://"},
        {"listen = https://*:8025\napi_tokens = t",
         "1:10 error: listen has https://*:8025, and no certificate for it: set tls_cert"},
        {"listen = http://[::1]:8025",
         "1:10 error: listen has http://[::1]:8025, and no setting names "
         "who may send mail there: set api_tokens"},
        {"listen = http://localhost:8025 auth=yes\napi_tokens = t",
         "1:10 error: listen has auth=yes after an address for HTTP: its clients have tokens"},
        {"listen = http://127.0.0.1\napi_tokens = t",
         "1:10 error: listen: found `http://127.0.0.1', expected a list of smtp://HOST:PORT, "
         "lmtp://HOST:PORT, lmtp:unix:PATH, submission://HOST, submissions://HOST, "
         "http://HOST:PORT or https://HOST:PORT, each perhaps with class=NAME, auth=yes, "
         "filtered=yes and proxy=yes"},
        {"spool = postgresql://db/queue\nsmtp/a maxring=1\nsmtp/* maxring=2",
         "3:1 warning: clause `smtp/*': of a cluster one node delivers to all destinations that "
         "share a maxring; maxchannel, with cluster_limits = divide, is of all"},
        {"smtp/[a maxthr=1", "1:1 error: pattern `smtp/[a': `[' without `]'"},
        {"smtp/a", "1:1 warning: clause `smtp/a' has no values, and none follows whose values it "
                   "could take"},
        {"PARAMxyz = 1",
         "1:1 error: unknown PARAM `xyz', expected mailqsock, authfile, notifysock, "
         "global-report-interval, msgwriteasync or store-error-on-error"},
        {"soft_bounce = no\nsoft_bounce = yes", "2:1 warning: soft_bounce was set before, at "
                                                "test:1; this value holds"},
        {"listen = smtp://127.0.0.1:10026 filtered=yes proxy=yes",
         "1:10 warning: listen has filtered=yes after smtp://127.0.0.1:10026, which other "
         "machines reach: their mail would meet no rule and no filter"},
        {"listen = smtp://*:10026 filtered=yes",
         "1:10 warning: listen has filtered=yes after smtp://*:10026, which other machines reach: "
         "their mail would meet no rule and no filter"},
        {"enable_long_queue_ids = yes",
         "1:1 warning: enable_long_queue_ids has no effect: queue ids "
         "are never reused here"},
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
         "1:18 error: control_listen has 127.0.0.1:8025; http://HOST:PORT or https://HOST:PORT is "
         "expected"},
        {"control_listen = http://127.0.0.1:8025",
         "1:18 error: control_listen has http://127.0.0.1:8025, and no setting names who may call: "
         "set "
         "api_tokens (sluice token add), or leave it empty and use control_socket"},
        {"control_listen = http://192.0.2.1:8025",
         "1:18 error: control_listen has http://192.0.2.1:8025, which other machines reach: tokens "
         "would cross the network in clear; expected https://"},
        {"control_listen = https://192.0.2.1:8025",
         "1:18 error: control_listen has https://192.0.2.1:8025, and no certificate for it: set "
         "tls_cert"},
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

/* For tests, and behind a firewall. */
static void an_open_relay_is_possible(void **state)
{
    (void)state;
    conf_free(
        load_clean("listen = smtp://127.0.0.1:25 smtp://[::1]:25 smtp://localhost:25 lmtp:unix:s\n"
                   "relay_networks = 0.0.0.0/0 [::]/0\n"));
    conf_free(load_clean("listen = smtp://0.0.0.0:25\nrelay_networks = 0.0.0.0/0\n"
                         "allow_open_relay = yes\n"));
    conf_free(load_clean("listen = smtp://0.0.0.0:25 smtp://127.0.0.1:26 proxy=yes "
                         "submission://* proxy=yes\ntls_cert = c\nauth_users = u\n"
                         "smtpd_upstream_proxy_networks = 0.0.0.0/0\n"));
    conf_free(load_clean("listen = smtp://0.0.0.0:25 proxy=yes\n"));
    conf_free(load_clean("listen = smtp://0.0.0.0:25\nrelay_networks = 10.0.0.0/8 172.16.0.0/12 "
                         "192.168.0.0/16 198.18.0.0/15 10.1.0.0/16 [2001:db8::]/32 [fd00::]/8\n"));
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
    assert_int_equal(c->qmgr_message_active_limit, 10000);
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
                               "own/* agent=pipe command=\"/bin/x -y\" queueonly\n"
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
    const char *names[] = {"transport_retry_time", "local_destination_recipient_limit",
                           "relayhots"};
    struct conf *c = load_clean("transport_retry_time = 200\n");
    struct buf out;

    (void)state;
    buf_init(&out, 100000);
    assert_false(conf_print(&out, c, names, 3, false));
    assert_string_equal(buf_cstr(&out), "transport_retry_time = 3m20s\n"
                                        "local_destination_recipient_limit = 1\n"
                                        "unknown parameter `relayhots', did you mean "
                                        "`relayhost'?\n");
    buf_clear(&out);
    assert_true(conf_explain(&out, c, "transport_retry_time"));
    assert_string_equal(
        buf_cstr(&out),
        "transport_retry_time: how long a transport without agents is left alone\n"
        "  value: a time in s, m, h, d or w (s when it has no unit) from 1s to 14w2d\n"
        "  default: 60s\n  scope: everything\n  now: transport_retry_time = 3m20s\n");
    buf_clear(&out);
    conf_print_man(&out);
    assert_false(out.failed);
    assert_non_null(strstr(buf_cstr(&out), ".It Cm maximal_backoff_time Pq default : Ql 4000s\n"));
    buf_fini(&out);
    conf_free(c);
}

static void what_is_set_in_vain_is_said(void **state)
{
    static const char text[] = "enable_long_queue_ids = yes\n";
    const char *names[] = {"enable_long_queue_ids", "qmgr_fudge_factor"};
    struct conf_problems problems;
    struct conf *c = conf_load_text(slice_string(text), "t", "/", &world, &problems);
    struct buf out;

    (void)state;
    assert_non_null(c);
    buf_init(&out, 100000);
    conf_print_problems(&out, &problems);
    assert_string_equal(buf_cstr(&out),
                        "t:1:1: warning: enable_long_queue_ids has no effect: queue "
                        "ids are never reused here\n");
    buf_clear(&out);
    assert_true(conf_print(&out, c, names, COUNT(names), false));
    assert_string_equal(buf_cstr(&out),
                        "# enable_long_queue_ids has no effect: queue ids are never "
                        "reused here\nenable_long_queue_ids = yes\n"
                        "qmgr_fudge_factor = 100\n");
    buf_fini(&out);
    conf_problems_fini(&problems);
    conf_free(c);
}

static void write_file(const char *path, struct slice text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text.ptr, 1, text.len, f), text.len);
    assert_int_equal(fclose(f), 0);
}

/* As sendmail and sluice read a file that is being edited. */
static void tools_need_only_the_places(void **state)
{
    static const char *const needed[] = {"state_directory", "maildrop", NULL};
    static const struct {
        const char *text, *maildrop, *spool; /* maildrop NULL: refused */
        int64_t size_limit;
    } cases[] = {
        {"state_directory = /s\nmaildrop = m\n", "/s/m", "sqlite:/s/queue.db", 10240000},
        /* errors of any kind elsewhere */
        {"state_directory = /s\nsoft_bounce = maybe\n", "/s/maildrop", "sqlite:/s/queue.db", 0},
        {"state_directory = /s\nno_such_name = 1\nmessage_size_limit = 7\n", "/s/maildrop",
         "sqlite:/s/queue.db", 7},
        {"state_directory = /s\nmessage_size_limit = much\n", "/s/maildrop", "sqlite:/s/queue.db",
         0},
        {"state_directory = /s\nspool = sqllite:x\n", "/s/maildrop", "", 0},
        {"state_directory = /s\ntransport_maps = /nowhere/map\n", "/s/maildrop",
         "sqlite:/s/queue.db", 0},
        {"state_directory = /s\ndefault_transport = nothing\nbroken\n\n = x\n[/[ maxthr=x\n",
         "/s/maildrop", "sqlite:/s/queue.db", 0},
        {"include /nowhere\nstate_directory = /s\n", "/s/maildrop", "sqlite:/s/queue.db", 0},
        {"soft_bounce = maybe\n", "/var/spool/sluice/maildrop", "sqlite:/var/spool/sluice/queue.db",
         0},
        {"state_directory = /s\nmaildrop agent=pipe comand=x\n", "/s/maildrop",
         "sqlite:/s/queue.db", 0},
        /* mistyped, but what is meant is plain */
        {"state_directroy = /s\n", "/s/maildrop", "sqlite:/s/queue.db", 0},
        {"state_directroy = /s\nstate_directory = /t\n", "/t/maildrop", "sqlite:/t/queue.db", 0},
        /* in these themselves */
        {"state_directory = $nothing\n", NULL, NULL, 0},
        {"state_directory /s\n", NULL, NULL, 0},
        {"maildrop = ${x\nstate_directory = /s\n", NULL, NULL, 0},
        {"include /nowhere\n", NULL, NULL, 0},
    };
    char path[] = "/tmp/test_conf.XXXXXX";
    int fd = mkstemp(path);
    struct conf_problems problems;

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct conf *c;

        write_file(path, slice_string(cases[i].text));
        c = conf_load_places(path, needed, &problems);
        assert_int_equal(problems.errors > 0, i > 0);
        assert_int_equal(c != NULL, cases[i].maildrop != NULL);
        if (c != NULL) {
            assert_string_equal(c->maildrop, cases[i].maildrop);
            assert_string_equal(c->spool, cases[i].spool);
            assert_int_equal(c->message_size_limit, cases[i].size_limit);
            assert_string_equal(c->default_transport, "smtp");
        }
        conf_problems_fini(&problems);
        conf_free(c);
    }
    assert_int_equal(unlink(path), 0);
    assert_null(conf_load_places(path, needed, &problems));
    conf_problems_fini(&problems);
}

/* Cut anywhere, or with any byte changed, a file is read or refused, and never more than that. */
static void a_damaged_file_does_no_harm(void **state)
{
    static char text[8192];
    static const char bytes[] = {'\0', '\n', ' ', '"', '=', '$', '\\', '*', '[', '{', '#', '\xff'};
    FILE *files[] = {fopen(DATA_DIR "/main.cf", "r"), fopen(DATA_DIR "/scheduler.conf", "r")};
    static const char *const needed[] = {"state_directory", NULL};
    char path[] = "/tmp/test_conf.XXXXXX";
    int fd = mkstemp(path);
    struct conf_problems problems;
    size_t len = 0;

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
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
        if (i % 31 == 0) {
            write_file(path, slice_of(text, len));
            conf_free(conf_load_places(path, needed, &problems));
            conf_problems_fini(&problems);
        }
        text[i] = kept;
    }
    assert_int_equal(unlink(path), 0);
}

/* The first clause that matches holds. */
static void a_clause_below_a_more_general_one_is_warned_of(void **state)
{
    static const struct {
        const char *text, *want; /* NULL: no problem */
    } cases[] = {
        {"smtp/* maxthr=1\nsmtp/a.example maxthr=2\n",
         "2: clause `smtp/a.example' has no effect: `smtp/*' in line 1 above matches all that it "
         "does, and the first that matches holds"},
        {"smtp/a.example maxthr=2\nsmtp/* maxthr=1\n", NULL},
        {"smtp/a.example maxthr=2\n\nsmtp/a.example maxthr=1\n",
         "3: clause `smtp/a.example' has no effect: `smtp/a.example' in line 1 above"},
        {"*/*.example maxthr=2\nsmtp/*.a.example maxthr=1\n",
         "2: clause `smtp/*.a.example' has no effect: `*/*.example' in line 1 above"},
        {"smtp/[ab].example maxthr=2\nsmtp/a.example maxthr=1\n",
         "2: clause `smtp/a.example' has no effect: `smtp/[ab].example' in line 1 above"},
        {"smtp/?.example maxthr=2\nsmtp/[ab].example maxthr=1\n", NULL}, /* not plain to see */
        {"smtp/*b*.example maxthr=2\nsmtp/[abc].example maxthr=1\n", NULL},
        {"smtp/a* maxthr=2\nsmtp/ab? maxthr=1\n", "2: clause `smtp/ab?' has no effect: `smtp/a*'"},
        {"smtp/a? maxthr=2\nsmtp/a* maxthr=1\n", NULL},
        {"relay/* maxthr=2\nsmtp/a.example maxthr=1\n", NULL},
        {"class/* weight=2\nclass/orders weight=1\n",
         "2: clause `class/orders' has no effect: `class/*' in line 1 above"},
        {"class/orders weight=2\nclass/* weight=1\nsmtp/* maxthr=1\n", NULL},
        {"*/* maxthr=3\nsmtp/a.example maxthr=1\n", NULL}, /* the defaults of all */
        {"*/a.example maxthr=3\nslow/* agent=smtp\nslow/a.example maxthr=1\n",
         "3: clause `slow/a.example' has no effect: `*/a.example' in line 1 above"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct conf_problems problems;
        struct conf *conf = load(cases[i].text, &problems);
        char found[400] = "";

        assert_non_null(conf);
        if (problems.count > 0) {
            snprintf(found, sizeof found, "%u: %s", problems.at[0].line, problems.at[0].text);
            assert_int_equal(problems.at[0].severity, CONF_WARNING);
        }
        if (cases[i].want == NULL) {
            assert_string_equal(found, "");
        } else {
            found[strlen(cases[i].want) < sizeof found ? strlen(cases[i].want) : 0] = '\0';
            assert_string_equal(found, cases[i].want);
        }
        conf_problems_fini(&problems);
        conf_free(conf);
    }
}

/* What a reload says of them is made of this. */
static void what_takes_a_restart_is_named(void **state)
{
    static const char *const changes[] = {
        "chroot_directory = /x",
        "control_socket_group = adm",
        "control_socket_mode = 0600",
        "deliver_processes = 2",
        "deliver_user = nobody",
        "events_file = /x/events",
        "log = syslog",
        "mail_owner = nobody",
        "read_queue_first = yes",
        "receive_processes = 3",
        "receive_user = nobody",
        "scheduler_syslog = yes",
        "spool_inline_limit = 1k",
        "statistics_log = /x/s",
        "syslog_name = mail",
    };
    struct conf_problems problems;
    struct conf *before = load("delay_warning_time = 1h\n", &problems), *after;
    struct buf names, text;

    (void)state;
    conf_problems_fini(&problems);
    buf_init(&names, 1000);
    buf_init(&text, 1000);
    for (size_t i = 0; i < COUNT(changes); i++) {
        struct slice name = slice_string(changes[i]);

        after = load(changes[i], &problems); /* a delay_warning_time is not told of */
        assert_non_null(after);
        conf_problems_fini(&problems);
        buf_clear(&names);
        buf_clear(&text);
        conf_put_delayed(before, after, &names);
        (void)buf_addf(&text, "%.*s\n", (int)slice_find(name, ' '), name.ptr);
        assert_string_equal(buf_cstr(&names), buf_cstr(&text));
        conf_free(after);
    }
    buf_fini(&names);
    buf_fini(&text);
    conf_free(before);
}

static void put_delayed(struct buf *out, const char *before, const char *after)
{
    struct conf_problems problems;
    struct conf *old = conf_load_text(slice_string(before), "test", "/", &world, &problems), *new;

    conf_problems_fini(&problems);
    new = conf_load_text(slice_string(after), "test", "/", &world, &problems);
    conf_problems_fini(&problems);
    assert_non_null(old);
    assert_non_null(new);
    buf_clear(out);
    conf_put_delayed(old, new, out);
    conf_free(old);
    conf_free(new);
}

/* The name of a node is $myhostname by default, and without effect on a spool that nodes do not
 * share. */
static void a_parameter_without_effect_is_not_delayed(void **state)
{
    const char *shared = "spool = " CONF_SPOOL_CLUSTER "db.test/mail\nmyhostname = b.test\n"
                         "cluster_standby = none\n";
    struct buf names;

    (void)state;
    buf_init(&names, 1000);
    put_delayed(&names, "myhostname = a.test\n", "myhostname = b.test\nsyslog_name = x\n");
    assert_string_equal(buf_cstr(&names), "syslog_name\n");
    put_delayed(&names, "myhostname = a.test\n", shared);
    assert_string_equal(buf_cstr(&names), "cluster_node\ncluster_standby\n");
    buf_fini(&names);
}

UNIT_MAIN(cmocka_unit_test(a_parameter_without_effect_is_not_delayed),
          cmocka_unit_test(what_takes_a_restart_is_named),
          cmocka_unit_test(a_clause_below_a_more_general_one_is_warned_of),
          cmocka_unit_test(an_empty_file_gives_the_defaults),
          cmocka_unit_test(values_refer_to_each_other_in_any_order),
          cmocka_unit_test(every_problem_has_a_position_and_says_what_is_expected),
          cmocka_unit_test(an_open_relay_is_possible),
          cmocka_unit_test(a_nul_byte_is_refused_with_its_place),
          cmocka_unit_test(problems_beyond_the_table_are_counted),
          cmocka_unit_test(a_main_cf_reads_without_errors),
          cmocka_unit_test(a_scheduler_conf_reads_without_errors),
          cmocka_unit_test(the_built_in_text_is_sound), cmocka_unit_test(what_is_shown_reads_back),
          cmocka_unit_test(parameters_are_shown_and_explained),
          cmocka_unit_test(what_is_set_in_vain_is_said),
          cmocka_unit_test(tools_need_only_the_places),
          cmocka_unit_test(a_damaged_file_does_no_harm))
