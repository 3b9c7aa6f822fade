#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "main_cf.h"

#define FILES_MAX 12

static unsigned reads; /* of files other than main.cf and master.cf that exist */

/* Files of a world without a disk: "NAME" and text, alternately, ended by NULL. */
static int read_here(void *arg, const char *path, size_t max, struct buf *out)
{
    (void)max;
    for (const char *const *file = arg; *file != NULL; file += 2) {
        if (strcmp(file[0], path) == 0) {
            reads += strstr(path, ".cf") == NULL;
            return buf_add_string(out, file[1]) ? 0 : -EFBIG;
        }
    }
    return -ENOENT;
}

/* Imports a main.cf, a master.cf (NULL: a usual one) and other files. */
static void import(const char *main_cf, const char *master_cf, const char *const *others,
                   struct buf *out, struct import_report *ret_report)
{
    const char *files[2 * FILES_MAX + 5] = {"/etc/postfix/main.cf", main_cf};
    struct main_cf_world world = {.hostname = "mx.example.org", .read = read_here, .arg = files};
    size_t n = 2;

    files[n++] = "/etc/postfix/master.cf";
    files[n++] = master_cf != NULL ? master_cf : "smtp inet n - y - - smtpd\n";
    for (size_t i = 0; others != NULL && others[i] != NULL; i++) {
        files[n++] = others[i];
    }
    buf_init(out, 4 << 20);
    assert_int_equal(main_cf_import("/etc/postfix", &world, out, ret_report), 0);
}

/* Is `want` in the text? An empty one is no line at all. */
static void has(struct buf *out, const char *want)
{
    if (strstr(buf_cstr(out), want) == NULL) {
        print_error("not there: %s\nin:\n%s\n", want, buf_cstr(out));
        fail();
    }
}

static void has_not(struct buf *out, const char *unwanted)
{
    if (strstr(buf_cstr(out), unwanted) != NULL) {
        print_error("there: %s\nin:\n%s\n", unwanted, buf_cstr(out));
        fail();
    }
}

static void each_parameter_becomes_a_line_or_a_note(void **unused)
{
    static const struct {
        const char *in, *want, *unwanted; /* NULL: any */
    } cases[] = {
        {"relayhost = [a]:587\n", "\nrelayhost = [a]:587\n", NULL},
        {"relayhost = [smtp.example.net]:submission\n",
         "\nrelayhost = [smtp.example.net]:submission\n", "defer_transports"},
        {"relayhost = [a]:25, [b]:25\n", "\nrelayhost = [a]:25\nsmtp_fallback_relay = [b]:25\n",
         NULL},
        {"relayhost = [a]:nosuchservice\n", "could lose mail: expected nexthop, got `[a]:nosuch",
         "\nrelayhost"},
        {"relayhost = [a]:nosuchservice\n", "\ndefer_transports = smtp relay\n", NULL},
        {"relayhost = [a]:nosuchservice\ndefer_transports = uucp, smtp\n",
         "remove from this line: relay\ndefer_transports = uucp, smtp relay\n",
         "\ndefer_transports = smtp"},
        {"defer_transports = uucp\n", "\ndefer_transports = uucp\n", "remove from this line"},
        {"relayhost = [a]:nosuchservice\ndefault_transport = uucp:x\n",
         "\ndefer_transports = smtp relay uucp\n", NULL},
        {"mydestination = $myhostname,\n  localhost\n", "\nlocal_domains = $myhostname localhost\n",
         NULL},
        {"x = y\n", "\nlocal_domains = $myhostname localhost.$mydomain localhost\n", NULL},
        {"mydestination =\n", "\nlocal_domains =\n", "\nlocal/*"},
        {"inet_interfaces = all\n", "\nlisten = smtp://*:25\n", NULL},
        {"x = y\n", "\nlisten = smtp://*:25\n", NULL},
        {"inet_interfaces = 192.0.2.1, ::1 [::2]\n",
         "\nlisten = smtp://192.0.2.1:25 smtp://[::1]:25 smtp://[::2]:25\n", NULL},
        {"inet_interfaces = loopback-only\n", "\nlisten = smtp://127.0.0.1:25 smtp://[::1]:25\n",
         NULL},
        {"inet_interfaces = loopback-only\ninet_protocols = ipv4\n",
         "\nlisten = smtp://127.0.0.1:25\n", NULL},
        {"inet_protocols = ipv4\n", "\nlisten = smtp://0.0.0.0:25\n", NULL},
        {"transport_maps = ldap:x\n", "could lose mail: ldap:x is no text file with keys",
         "\ntransport_maps"},
        {"transport_maps = ldap:x\n", "#   - tables in databases and servers (transport_maps)",
         NULL},
        {"smtp_tls_security_level = secure\n", "\nsmtp_tls_security_level = secure\n", NULL},
        {"smtp_tls_security_level =\n", "TLS is used where the site offers it", "\nsmtp_tls_sec"},
        {"smtp_tls_security_level = fingerprint\n", "could send in clear text: certificates", NULL},
        {"smtp_tls_security_level = high\n", "could send in clear text: expected none, may,", NULL},
        {"smtp_enforce_tls = yes\n", "\nsmtp_tls_security_level = verify\n", NULL},
        {"biff = no\n", "Not needed here\n# main.cf:1: biff = no\n#   nothing is lost without it\n",
         NULL},
        {"append_dot_mydomain = no\n", "never done here", "Differs"},
        {"append_dot_mydomain = yes\n", "domains without a dot are not completed", NULL},
        {"smtpd_banner = $myhostname ESMTP $mail_name\n",
         "\nsmtpd_banner = $myhostname ESMTP Sluice\n", NULL},
        {"smtpd_banner = $nothing\n", "$nothing is not known", "\nsmtpd_banner"},
        /* a $name of which nothing is known empties the value */
        {"mydestination = $myhostname $more\n",
         "mydestination = $myhostname $more\n#   could refuse mail: $more is not known", NULL},
        {"virtual_mailbox_domains = $more\n", "could refuse mail: $more is not known", NULL},
        {"virtual_transport = $more\n", "could lose mail: $more is not known", NULL},
        {"mynetworks = $more\n", "mynetworks = $more\n#   could", NULL},
        {"smtp_sasl_password_maps = $more\n", "\ndefer_transports = smtp relay\n", NULL},
        {"smtpd_client_restrictions = $more, reject_rbl_client x.example\n",
         "could accept mail that Postfix refuses: $more is not known", "that is so here"},
        {"dir = /srv\nheader_checks = pcre:$dir/none\n", "can't be read", "\nheader_checks"},
        {"strict_mailbox_ownership = no\n", "there is nothing like it here", NULL},
        {"maximal_queue_lifetime = soon\n", "could lose mail: expected a time", NULL},
        {"maximal_queue_lifetime = 3d\nmaximal_queue_lifetime = 4d\n",
         "\nmaximal_queue_lifetime = 4d\n", "lifetime = 3d"},
        {"smtputf8_enable = no\n",
         "could accept mail that Postfix refuses: mail with addresses in UTF-8", NULL},
        {"smtputf8_enable = yes\n", "that is always so here", NULL},
        {"soft_bounce = yes\n", "\nsoft_bounce = yes\n", NULL},
        {"mail_owner = postfix\n", "processes have users of their own", "\nmail_owner"},
        {"postscreen_greet_action = enforce\n",
         "business of another program\n# main.cf:1: postscreen_", NULL},
        {"maillog_file = /var/log/postfix.log\n", "\nlog = file:/var/log/postfix.log\n", NULL},
        {"smtpd_milters = unix:opendkim/s, inet:localhost:8891\n",
         "\nsmtpd_milters = unix:/var/spool/postfix/opendkim/s, inet:localhost:8891\n", NULL},
        /* the service is in the queue directory (chroot), so that absolute paths are there, too */
        {"smtpd_milters = { unix:/run/s, default_action=accept }\n",
         "\nsmtpd_milters = { unix:/var/spool/postfix/run/s, default_action=accept }\n", NULL},
        {"smtpd_milters = {\n", "could accept mail that Postfix refuses: expected",
         "\nsmtpd_milters"},
        {"smtpd_milters = {}\n", "\nsmtpd_milters = {", NULL}, /* the check refuses it */
        {"smtpd_milters = { inet:127.0.0.1:1\n", "could accept mail that Postfix refuses: expected",
         "\nsmtpd_milters"},
        {"non_smtpd_milters = unix:/run/s\n", "\nnon_smtpd_milters = unix:/run/s\n", NULL},
        {"mailbox_transport = lmtp:unix:private/lmtp\n",
         "\nlocal_transport = lmtp:unix:/var/spool/postfix/private/lmtp\n", "\nlocal/*"},
        {"mailbox_command = procmail\n", "could lose mail: mail for users of this machine", NULL},
        {"home_mailbox = Maildir/\n", "could lose mail: mail for users of this machine", NULL},
        {"myorigin = /etc/mailname\n", "/etc/mailname can't be read", "\nmyorigin"},
        {"mynetworks = 127.0.0.0/8 [::1]/128 10.0.0.0/8\n",
         "\nrelay_networks = 127.0.0.0/8 [::1]/128 10.0.0.0/8\n", NULL},
        {"mynetworks = 127.0.0.0/8, 10.0.0.0/8, !10.1.0.0/16\n", "\nrelay_networks = 127.0.0.0/8\n",
         NULL},
        {"mynetworks = 10.0.0.0/8, x.example, y.example\n",
         "x.example y.example are left out: expected", "y.example is"},
        {"mynetworks = 127.0.0.0/8, office.example\n", "office.example is left out", NULL},
        {"smtp_sasl_password_maps = hash:/etc/postfix/sasl\n", "Postfix does not log in either",
         "relay_auth ="},
        {"smtp_sasl_auth_enable = yes\nsmtp_sasl_password_maps = static:a:b\n",
         "could lose mail: write a file of mode 0600", "\nrelay_auth ="},
        {"smtp_tls_wrappermode = yes\n", "use port 587", NULL},
        {"virtual_mailbox_domains = mysql:/etc/postfix/d.cf\n",
         "could refuse mail: these domains are not known", "\nrelay_domains"},
        {"local_recipient_maps =\n", "any name is accepted at these domains",
         "\nlocal_recipient_maps"},
        {"x = y\n", "\nlocal_recipient_maps = unix:passwd.byname\n", NULL},
        {"local_recipient_maps = $alias_maps\n", "could accept mail that Postfix refuses: any name",
         NULL},
        {"local_recipient_maps = unix:passwd.byname ldap:users\n",
         "could accept mail that Postfix refuses: ldap:users is no text file", NULL},
        {"virtual_mailbox_maps = hash:/x\n", "could refuse mail: the domains in this table", NULL},
        {"mydestination =\nhome_mailbox = Maildir/\n", "has no effect without the settings",
         "could lose"},
        /* each is made of the other by default */
        {"myhostname = mx.$mydomain\n", "\nmyhostname = mx.$mydomain\n", NULL},
        {"inet_interfaces = 192.0.2.1, 2001:db8::1\n",
         "\nsmtp_bind_address = 192.0.2.1\nsmtp_bind_address6 = 2001:db8::1\n", NULL},
        {"inet_interfaces = 192.0.2.1, 127.0.0.1\n", "\nlisten = ", "\nsmtp_bind_address"},
        {"inet_interfaces = 192.0.2.1\nsmtp_bind_address = 192.0.2.9\n",
         "\nsmtp_bind_address = 192.0.2.9\n", "bind_address = 192.0.2.1"},
        {"smtpd_authorized_xclient_hosts = 127.0.0.1\n", "XCLIENT", NULL},
        {"luser_relay = admin@example.org\n", "could lose mail: mail for names that do not", NULL},
        {"disable_dns_lookups = yes\n", "could lose mail: MX records are looked up", NULL},
        {"unknown_client_reject_code = 550\n", "codes of replies are fixed", "Differs"},
        /* rows that a prefix or a row before hid, and values that are not so here */
        {"mime_header_checks = pcre:/x\n", "could accept mail that Postfix refuses: header_checks",
         NULL},
        {"nested_header_checks = pcre:/x\n", "could accept mail that Postfix refuses: header_c",
         NULL},
        {"mime_header_checks = $header_checks\nheader_checks =\n",
         "header_checks see these headers, too", "could accept"},
        {"proxy_interfaces = 198.51.100.7\n", "could lose mail: mail for domains whose MX", NULL},
        {"proxy_read_maps = x\n", "of Postfix's proxymap alone", NULL},
        {"lmtp_tls_policy_maps = hash:/x\n", "could send in clear text: write clauses", NULL},
        {"lmtp_tls_security_level = encrypt\n", "\nlmtp_tls_security_level = encrypt\n", NULL},
        {"lmtp_tls_security_level = fingerprint\n", "\nlmtp_tls_security_level = encrypt\n",
         "defer_transports"},
        {"inet_interfaces = [192.0.2.1x\n", "\nlisten", "\nsmtp_bind_address"},
        {"relay_domains = a.example\nrelay_transport = $more\n",
         "\ndefer_transports = smtp relay\n", "\nrelay_transport"},
        {"lmtp_tls_security_level = x\n", "could send in clear text: expected none", NULL},
        {"tls_server_sni_maps = hash:/x\n", "could refuse mail: there is one certificate", NULL},
        {"unknown_local_recipient_reject_code = 450\n", "could refuse mail: unknown names", NULL},
        {"unknown_local_recipient_reject_code = 550\n", "always so here", "unknown names"},
        {"mailbox_transport_maps = hash:/x\n", "could lose mail: mail of all users", NULL},
        {"canonical_maps = hash:/x\n", "could lose mail: /x can't be read", NULL},
        {"sender_canonical_maps = ldap:x\n", "could lose mail: ldap:x is no text file", NULL},
        {"alias_maps =\n", "\nlisten", "/etc/aliases"},
        {"x = y\n", "\nlisten", "/etc/aliases"},
        {"alias_maps = hash:/etc/aliases\n", "could lose mail: /etc/aliases can't be read", NULL},
        {"smtp_generic_maps = hash:/x\n", "could lose mail: addresses are not rewritten", NULL},
        {"relocated_maps = hash:/x\n", "addresses are not rewritten", "could lose mail: addresses"},
        {"smtp_tls_CApath = /etc/ssl/private-authorities\n", "could lose mail: the system's", NULL},
        {"smtp_tls_CApath = /etc/ssl/certs\n", "the system's authorities count", "lose mail: the"},
        {"smtpd_forbid_bare_newline = no\n", "could refuse mail: content with lone LF", NULL},
        {"smtpd_forbid_bare_newline = reject\n", "always so here", "lone LF"},
        {"smtpd_relay_restrictions = permit_tls_all_clientcerts, reject_unauth_destination\n",
         "could refuse mail: certificates of clients give no rights", "that is so here"},
        {"mynetworks_style = subnet\ncompatibility_level = 3.6\n",
         "could refuse mail: Postfix may take the networks", NULL},
        {"compatibility_level = 3.6\n", "\nlisten", "Postfix may take the networks"},
        {"compatibility_level = 10\n", "\nlisten", "Postfix may take the networks"},
        {"not a parameter\n", "main.cf:1: (a line)", NULL},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct import_report report;
        struct buf out;

        import(cases[i].in, NULL, NULL, &out, &report);
        has(&out, cases[i].want);
        if (cases[i].unwanted != NULL) {
            has_not(&out, cases[i].unwanted);
        }
        import_report_fini(&report);
        buf_fini(&out);
    }
}

static void files_are_read(void **unused)
{
    static const char *const files[] = {
        "/etc/mailname",
        "mail.example.net\n", /* as Debian has it */
        "/etc/postfix/local-host-names",
        "# ours\nexample.net\nexample.com, shop.example\n",
        "/etc/postfix/networks",
        "# LAN\n192.0.2.0/24 OK\n[2001:db8::]/32 x\n",
        "/etc/postfix/transport",
        "example.com smtp:[smtp.example.net]:submission\n",
        "/etc/postfix/sasl",
        "@domain.test me:secret\n[smtp.example.net]:587 d:pw\n",
        "/etc/postfix/policy",
        "bank.example secure\n[a]:587 encrypt\n.b.example may\n",
        "/etc/postfix/odd",
        "bank.example secure match=x\n",
        "/etc/postfix/sockets",
        "x lmtp:unix:private/lmtp\n",
        "/etc/postfix/vhosts",
        "one.example x\ntwo.example x\n",
        "/etc/postfix/virtual",
        "one.example x\nmx.example.org x\nroot a@b\na@two.example b\n@three.example c\n",
        NULL,
    };
    static const struct {
        const char *in, *want, *unwanted;
    } cases[] = {
        {"myorigin = /etc/mailname\n", "\nmyorigin = mail.example.net\n", NULL},
        {"mydestination = $config_directory/local-host-names, localhost\n",
         "\nlocal_domains = example.net example.com shop.example localhost\n", NULL},
        {"mynetworks = cidr:/etc/postfix/networks, 127.0.0.0/8\n",
         "\nrelay_networks = 192.0.2.0/24 [2001:db8::]/32 127.0.0.0/8\n", NULL},
        {"transport_maps = proxy:lmdb:$config_directory/transport\n",
         "\ntransport_maps = /etc/postfix/transport\n", NULL},
        {"relay_domains = hash:/etc/postfix/vhosts\n",
         "\nrelay_domains = one.example .one.example two.example .two.example\n", NULL},
        {"relay_domains = hash:/etc/postfix/vhosts\nparent_domain_matches_subdomains =\n",
         "\nrelay_domains = one.example two.example\n", NULL},
        {"virtual_alias_maps = hash:/etc/postfix/virtual\n",
         "\nvirtual_alias_maps = /etc/postfix/virtual\n", "is left out"},
        {"virtual_alias_maps = hash:/etc/postfix/virtual\n",
         "\nvirtual_alias_domains = one.example\n", "are left out"},
        {"virtual_alias_maps = hash:/etc/postfix/virtual\nvirtual_alias_domains = a.example\n",
         "\nvirtual_alias_domains = a.example\n", NULL},
        {"virtual_alias_maps = hash:/etc/postfix/virtual\nvirtual_alias_domains =\n",
         "\nvirtual_alias_maps", "\nvirtual_alias_domains"},
        {"virtual_alias_domains = hash:/etc/postfix/vhosts\n",
         "\nvirtual_alias_domains = one.example two.example\n", NULL},
        {"virtual_alias_domains = ldap:x\n", "could refuse mail: ldap:x is no text file", NULL},
        /* aliases are no list of recipients, whatever the type of their table is */
        {"alias_maps = lmdb:/etc/postfix/vhosts\n", "\nlocal_recipient_maps = unix:passwd.byname\n",
         NULL},
        {"alias_maps = proxy:cdb:/etc/postfix/vhosts\n"
         "local_recipient_maps = cdb:/etc/postfix/vhosts cdb:/etc/postfix/vhosts2\n",
         "could accept mail that Postfix refuses: /etc/postfix/vhosts2 can't be read", NULL},
        {"transport_maps = hash:/etc/postfix/sockets\n",
         "could lose mail: /etc/postfix/sockets has a relative path of a socket",
         "\ntransport_maps"},
        /* domains of mailboxes next to some that transport_maps takes elsewhere */
        {"relay_domains = example.com\nvirtual_mailbox_domains = two.example\n"
         "transport_maps = hash:/etc/postfix/transport\nvirtual_transport = lmtp:[127.0.0.1]:24\n",
         "\nrelay_domains = example.com .example.com two.example\n"
         "relay_transport = lmtp:[127.0.0.1]:24\n",
         "\nrelay_recipient_maps"},
        {"relay_domains = mx.example.org b.example\n", "\nrelay_domains = b.example .b.example\n",
         NULL},
        {"relay_domains = $mydestination hash:/etc/postfix/vhosts .one.example\n",
         "\nrelay_domains = one.example two.example .two.example .one.example\n", NULL},
        {"relay_domains = example.net\nvirtual_mailbox_domains = two.example\n"
         "transport_maps = hash:/etc/postfix/transport\nvirtual_transport = lmtp:[127.0.0.1]:24\n",
         "could refuse mail: relay_domains is in use", "\nrelay_transport"},
        {"smtp_sasl_auth_enable = yes\nsmtp_sasl_password_maps = hash:/etc/postfix/sasl\n",
         "\nrelay_auth = /etc/postfix/sasl\n", "secret"},
        {"smtp_tls_policy_maps = hash:/etc/postfix/policy\n",
         "\nsmtp/bank.example\nrelay/bank.example\n    "
         "tls_security_level=secure\nsmtp/[a]:587\nrelay/[a]:587\n    "
         "tls_security_level=encrypt\nsmtp/*.b.example\nrelay/*.b.example\n    "
         "tls_security_level=may\n",
         NULL},
        {"smtp_tls_policy_maps = hash:/etc/postfix/odd\n",
         "could send in clear text: `bank.example", "\nsmtp/bank"},
        {"virtual_mailbox_domains = hash:/etc/postfix/vhosts\n"
         "virtual_transport = lmtp:unix:private/dovecot-lmtp\n"
         "virtual_mailbox_maps = mysql:/etc/postfix/users.cf\n",
         "\nrelay_domains = one.example two.example\n"
         "relay_transport = lmtp:unix:/var/spool/postfix/private/dovecot-lmtp\n"
         "relay_recipient_maps = lmtp:\n",
         NULL},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct import_report report;
        struct buf out;

        import(cases[i].in, NULL, files, &out, &report);
        has(&out, cases[i].want);
        if (cases[i].unwanted != NULL) {
            has_not(&out, cases[i].unwanted);
        }
        import_report_fini(&report);
        buf_fini(&out);
    }
}

/* Appends lines with a number each. */
static void add_lines(struct buf *text, const char *before, const char *after, unsigned count)
{
    buf_init(text, 4 << 20);
    for (unsigned i = 0; i < count; i++) {
        assert_true(buf_addf(text, "%s%u%s\n", before, i, after));
    }
}

/* Thousands of domains, routes and policies take time in proportion to their number. */
static void long_lists_are_read_once(void **unused)
{
    static const unsigned counts[] = {1500, 40000};
    struct import_report report;
    struct buf out, domains, policies;

    (void)unused;
    for (size_t i = 0; i < COUNT(counts); i++) {
        const char *files[] = {"/etc/postfix/domains", NULL, "/etc/postfix/policies", NULL, NULL};

        add_lines(&domains, "d", ".example.com slow:[192.0.2.1]", counts[i]);
        add_lines(&policies, "p", ".example.com encrypt", counts[i] / 10);
        files[1] = buf_cstr(&domains);
        files[3] = buf_cstr(&policies);
        reads = 0;
        import("relay_domains = hash:domains\ntransport_maps = hash:domains\n"
               "virtual_mailbox_domains = v.example\nvirtual_transport = lmtp:[127.0.0.1]:24\n"
               "smtp_tls_policy_maps = hash:policies\n",
               "smtp inet n - n - - smtpd\nslow unix - - n - - smtp\n", files, &out, &report);
        assert_int_equal(reads, 2);
        has(&out, "\nslow/p149.example.com\n    tls_security_level=encrypt\n");
        has(&out, i == 0 ? ".d1498.example.com d1499.example.com .d1499.example.com v.example\n"
                         : "could refuse mail: the line would be longer than 65536 bytes");
        has(&out, i == 0 ? "slow/p149" : "is read in part: there is no room for more than 3000 l");
        import_report_fini(&report);
        buf_fini(&out);
        buf_fini(&domains);
        buf_fini(&policies);
    }
}

/* Limits of this import are no silent ones. */
static void parts_that_are_passed_over_are_noted(void **unused)
{
    static const struct {
        const char *start, *before, *after;
        unsigned count;
        bool in_master;
        const char *want;
    } cases[] = {
        {"mydestination = a.example,\n", " d", ".example.com", 6000, false,
         "# main.cf:1: mydestination = \n#   could refuse mail: the value is longer"},
        {"", "x", " = y", 10001, false,
         "# main.cf:10001: (a line) = \n#   could lose mail: there are more than 10000 parameters"},
        {"", "x", " unix - - n - - lmtp", 1001, true,
         "# master.cf:1001: (a line) = \n#   could lose mail: there are more than 1000 services"},
        {"smtp inet n - n - - smtpd\nscan unix - n n - - pipe argv=x\n", " d", "", 20000, true,
         "(a line) = \n#   could lose mail: the line is longer"},
        {"smtp inet n - n - - smtpd\n", " -o x", "=y", 101, true,
         "# master.cf:1: smtp = \n#   could lose mail: the service has more than 100 options"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct import_report report;
        struct buf out, lines, text;

        add_lines(&lines, cases[i].before, cases[i].after, cases[i].count);
        buf_init(&text, 4 << 20);
        assert_true(buf_addf(&text, "%s%s", cases[i].start, buf_cstr(&lines)));
        import(cases[i].in_master ? "" : buf_cstr(&text),
               cases[i].in_master ? buf_cstr(&text) : NULL, NULL, &out, &report);
        has(&out, cases[i].want);
        import_report_fini(&report);
        buf_fini(&out);
        buf_fini(&lines);
        buf_fini(&text);
    }
    { /* tables end early at a line that is too long */
        static const char *const wants[] = {
            "could refuse mail: /etc/postfix/long is read in part: the line is longer",
            "could send in clear text: hash:/etc/postfix/long is read in part: the line is longer"};
        const char *files[] = {"/etc/postfix/long", NULL, NULL};
        struct import_report report;
        struct buf out, lines;

        add_lines(&lines, " d", ".example.com", 6000);
        lines.ptr[0] = 'x';
        files[1] = buf_cstr(&lines);
        import("relay_domains = hash:/etc/postfix/long\n"
               "smtp_tls_policy_maps = hash:/etc/postfix/long\n",
               NULL, files, &out, &report);
        for (size_t i = 0; i < COUNT(wants); i++) {
            has(&out, wants[i]);
        }
        import_report_fini(&report);
        buf_fini(&out);
        buf_fini(&lines);
    }
}

/* Refuses each line of a TLS policy, but one in each round. */
static bool check_slowly(struct slice text, struct buf *ret_faults)
{
    struct slice rest = text;

    for (unsigned line = 1; rest.len > 0; line++) {
        if (slice_starts(slice_cut(&rest, '\n'), SLICE("smtp/"))) {
            (void)buf_addf(ret_faults, "/etc/x:%u:1: error: no such thing\n", line);
            return false;
        }
    }
    return true;
}

static void faults_that_are_left_are_noted(void **unused)
{
    const char *files[] = {"/etc/postfix/main.cf",
                           "smtp_tls_policy_maps = hash:policies\n",
                           "/etc/postfix/master.cf",
                           "smtp inet n - n - - smtpd\n",
                           "/etc/postfix/policies",
                           NULL,
                           NULL};
    struct main_cf_world world = {.hostname = "mx.example.org",
                                  .read = read_here,
                                  .arg = files,
                                  .check = check_slowly,
                                  .check_path = "/etc/x"};
    struct import_report report;
    struct buf out, lines;

    (void)unused;
    add_lines(&lines, "d", " encrypt", 60);
    files[5] = buf_cstr(&lines);
    buf_init(&out, 1 << 20);
    assert_int_equal(main_cf_import("/etc/postfix", &world, &out, &report), 0);
    has(&out, "could lose mail: /etc/x:");
    import_report_fini(&report);
    buf_fini(&out);
    buf_fini(&lines);
}

/* Only users that the system lists are in a list of all users. */
static void users_of_servers_are_noted(void **unused)
{
    static const struct {
        const char *nsswitch, *want, *unwanted;
    } cases[] = {
        {"passwd: files systemd # sss\n", "\nlocal_recipient_maps = unix:passwd.byname\n",
         "getent"},
        {"group: sss\npasswd:   files [NOTFOUND=continue] sss\n",
         "could refuse mail: users that `getent passwd' does not list are refused. "
         "/etc/nsswitch.conf has `passwd: sss'",
         NULL},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *files[] = {"/etc/nsswitch.conf", cases[i].nsswitch, NULL};
        struct import_report report;
        struct buf out;

        import("", NULL, files, &out, &report);
        has(&out, cases[i].want);
        if (cases[i].unwanted != NULL) {
            has_not(&out, cases[i].unwanted);
        }
        import_report_fini(&report);
        buf_fini(&out);
    }
}

#define LAN "mynetworks = 127.0.0.0/8 198.51.100.0/22\n"

/* Rules of Postfix may admit a whole network under conditions. Here relay_networks has none. */
static void networks_relay_only_where_postfix_lets_them(void **unused)
{
    static const char *const files[] = {"/etc/postfix/clients", "192.0.2.7 REJECT\n",
                                        "/etc/postfix/senders", "spam.example REJECT\n", NULL};
    static const struct {
        const char *restrictions;
        bool want_all;
    } cases[] = {
        {"", true},
        {"smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination\n", true},
        {"smtpd_relay_restrictions =\n"
         "smtpd_recipient_restrictions = permit_mynetworks, reject_unauth_destination\n",
         true},
        {"smtpd_recipient_restrictions = reject_non_fqdn_sender, permit_mynetworks,\n"
         "  reject_unauth_destination\n",
         true},
        {"smtpd_client_restrictions = permit_mynetworks, reject_rbl_client a.example\n", true},
        {"smtpd_relay_restrictions = permit_sasl_authenticated, reject_unauth_destination\n",
         false},
        {"smtpd_relay_restrictions = reject\n", false},
        {"smtpd_client_restrictions = reject_rbl_client a.example, permit_mynetworks, reject\n",
         false},
        {"smtpd_recipient_restrictions = check_sender_access regexp:/x, permit_mynetworks, "
         "reject\n",
         false},
        {"smtpd_sender_restrictions = check_policy_service unix:private/p, permit\n", false},
        {"smtpd_sender_restrictions = permit_sasl_authenticated, reject\n", false},
        {"smtpd_recipient_restrictions = my_class, permit_mynetworks, reject\n", false},
        /* the condition is taken over */
        {"smtpd_sender_restrictions = check_sender_access hash:/etc/postfix/senders\n", true},
        {"smtpd_etrn_restrictions = reject\n", true},
        {"smtpd_sender_restrictions = $more\n", false},
        {"smtpd_client_restrictions = warn_if_reject reject_rbl_client a.example,\n"
         "  permit_mynetworks, reject\n",
         true},
        {"smtpd_client_restrictions = warn_if_reject check_client_access ldap:x\n", true},
        {"smtpd_client_restrictions = warn_if_reject permit_mynetworks, reject\n", true},
        {"smtpd_relay_restrictions = reject_rbl_client permit.example\n", false},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct import_report report;
        char main_cf[1000];
        struct buf out;

        (void)snprintf(main_cf, sizeof main_cf, LAN "%s", cases[i].restrictions);
        import(main_cf, NULL, files, &out, &report);
        has(&out, cases[i].want_all ? "\nrelay_networks = 127.0.0.0/8 198.51.100.0/22\n"
                                    : "\nrelay_networks = 127.0.0.0/8\n");
        has(&out, cases[i].want_all ? "From" : "could relay for strangers: only this machine");
        import_report_fini(&report);
        buf_fini(&out);
    }
}

static void access_tables_of_all_clients_are_taken(void **unused)
{
    static const char *const files[] = {"/etc/postfix/clients",
                                        "192.0.2.7 REJECT\n",
                                        "/etc/postfix/senders",
                                        "spam.example REJECT\n",
                                        "/etc/postfix/senders2",
                                        "spam.test REJECT\n",
                                        NULL};
    struct import_report report;
    struct buf out;

    (void)unused;
    import("smtpd_client_restrictions = check_client_access cidr:/etc/postfix/clients\n"
           "smtpd_sender_restrictions = check_sender_access hash:/etc/postfix/senders\n",
           NULL, files, &out, &report);
    has(&out, "\nclient_access = cidr:/etc/postfix/clients\n");
    has(&out, "\nsender_access = /etc/postfix/senders\n");
    import_report_fini(&report);
    buf_fini(&out);
    /* Postfix does not look own senders up there; here it would refuse them */
    import("smtpd_sender_restrictions = permit_mynetworks,\n"
           "  check_sender_access hash:/etc/postfix/senders\n",
           NULL, files, &out, &report);
    has_not(&out, "\nsender_access");
    has(&out, "could accept mail that Postfix refuses: not taken over: check_sender_access hash:");
    import_report_fini(&report);
    buf_fini(&out);
    import("smtpd_sender_restrictions = permit_auth_destination,\n"
           "  check_sender_access hash:/etc/postfix/senders\n",
           NULL, files, &out, &report);
    has_not(&out, "\nsender_access");
    import_report_fini(&report);
    buf_fini(&out);
    /* the names of two tables begin alike; what is logged only, and ETRN, refuse no mail */
    import("smtpd_sender_restrictions = check_sender_access hash:/etc/postfix/senders2,\n"
           "  check_sender_access hash:/etc/postfix/senders,\n"
           "  warn_if_reject check_client_access cidr:/etc/postfix/clients\n"
           "smtpd_etrn_restrictions = check_client_access hash:/etc/postfix/clients\n",
           NULL, files, &out, &report);
    has(&out, "\nsender_access = /etc/postfix/senders2 /etc/postfix/senders\n");
    has_not(&out, "\nclient_access");
    import_report_fini(&report);
    buf_fini(&out);
}

#define LOGINS                                                                                     \
    "smtpd_tls_chain_files = /etc/tls/key.pem, /etc/tls/crt.pem\n"                                 \
    "smtpd_sasl_type = dovecot\nsmtpd_sasl_path = private/auth\n"

static void services_become_listeners_and_transports(void **unused)
{
    static const char *const files[] = {"/etc/postfix/clients", "192.0.2.7 REJECT\n", NULL};
    static const struct {
        const char *main_cf, *master_cf, *want, *unwanted;
    } cases[] = {
        {LOGINS,
         "smtp inet n - n - - smtpd\nsubmission inet n - n - - smtpd\n"
         "  -o smtpd_sasl_auth_enable=yes\n"
         "  -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n",
         "\nlisten = smtp://*:25 submission://*:587\n", NULL},
        {LOGINS,
         "submission inet n - n - - smtpd\n  -o smtpd_sasl_auth_enable=yes\n"
         "  -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n",
         "\ntls_cert = /etc/tls/crt.pem\ntls_key = /etc/tls/key.pem\n"
         "auth_dovecot = /var/spool/postfix/private/auth\n",
         NULL},
        {LOGINS,
         "465 inet n - n - - smtpd -o smtpd_tls_wrappermode=yes -o smtpd_sasl_auth_enable=yes\n",
         "\nlisten = submissions://*:465\n", NULL},
        {LOGINS "smtpd_sasl_auth_enable = yes\n", NULL, "\nlisten = smtp://*:25 auth=yes\n", NULL},
        {LOGINS "smtpd_sasl_auth_enable = yes\n"
                "smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination\n",
         NULL, "could refuse mail: no logins on this listener", "auth=yes"},
        {"smtpd_sasl_auth_enable = yes\n", NULL, "could refuse mail: Cyrus SASL is not used",
         "auth=yes"},
        {"smtpd_sasl_auth_enable = yes\nsmtpd_sasl_type = dovecot\nsmtpd_sasl_path = "
         "inet:dovecot:1\n",
         NULL, "could refuse mail: Dovecot is asked at a Unix socket", "\nauth_dovecot"},
        {"smtpd_sasl_type = dovecot\nsmtpd_sasl_path = private/auth\n",
         "submission inet n - n - - smtpd\n  -o smtpd_sasl_auth_enable=yes\n"
         "  -o { smtpd_recipient_restrictions = permit_sasl_authenticated, reject }\n",
         "this listener is left out: logins need tls_cert", "submission://"},
        {LOGINS "mua = permit_sasl_authenticated,reject\n",
         "submission inet n - n - - smtpd\n# a comment\n  -o smtpd_sasl_auth_enable=yes\n"
         "  -o smtpd_client_restrictions=$mua\n",
         "\nlisten = submission://*:587\n", NULL},
        {"content_filter = amavis:[127.0.0.1]:10024\n",
         "smtp inet n - n - - smtpd\n"
         "amavis unix - - n - 2 smtp -o smtp_data_done_timeout=1200 -o "
         "smtp_send_xforward_command=yes\n"
         "127.0.0.1:10025 inet n - n - - smtpd -o content_filter= -o mynetworks=127.0.0.0/8\n",
         "\nlisten = smtp://*:25 smtp://127.0.0.1:10025 filtered=yes\n", NULL},
        /* filtered=yes takes filters and access tables from a listener */
        {LOGINS "content_filter = amavis:[127.0.0.1]:10024\n",
         "submission inet n - n - - smtpd -o smtpd_sasl_auth_enable=yes -o content_filter=\n"
         "  -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n",
         "could refuse mail: content_filter gets mail of this listener, too\n", "filtered=yes"},
        {"content_filter = amavis:[127.0.0.1]:10024\n",
         "192.0.2.1:10025 inet n - n - - smtpd -o content_filter=\n",
         "could lose mail: content_filter gets mail of this listener, too. If", "10025 filtered"},
        {"content_filter = amavis:[127.0.0.1]:10024\n",
         "127.0.0.1:10025 inet n - n - - smtpd -o content_filter=\n"
         "  -o smtpd_upstream_proxy_protocol=haproxy\n",
         "\nlisten = smtp://127.0.0.1:10025 proxy=yes\n", "10025 filtered"},
        {LOGINS "content_filter = amavis:[127.0.0.1]:10024\nsmtpd_sasl_auth_enable = yes\n"
                "inet_interfaces = loopback-only\ninet_protocols = ipv4\n",
         "10025 inet n - n - - smtpd -o content_filter=\n",
         "listen = smtp://127.0.0.1:10025 filtered=yes\n", "content_filter gets"},
        {"content_filter = amavis:[127.0.0.1]:10024\n",
         "amavis unix - - n - 2 smtp -o smtp_data_done_timeout=1200\n",
         "\namavis/*\n    agent=smtp\n    data_done_timeout=1200\n    process_limit=2\n", NULL},
        {"",
         "smtp inet n - n - 1 postscreen\nsmtpd pass - - n - - smtpd -o "
         "smtpd_sasl_auth_enable=no\n",
         "#   - postscreen\n", NULL},
        {"", "smtp inet n - n - - smtpd -o smtpd_upstream_proxy_protocol=haproxy\n",
         "\nlisten = smtp://*:25 proxy=yes\n", "left out"},
        {"", "smtp inet n - n - - smtpd -o smtpd_upstream_proxy_protocol=haproxy\n",
         "could refuse mail: only proxies in relay_networks may connect to this listener", NULL},
        {"mynetworks = 127.0.0.0/8, 10.0.0.0/8\nsmtpd_upstream_proxy_protocol = haproxy\n",
         "smtp inet n - n - - smtpd\n"
         "2525 inet n - n - - smtpd -o smtpd_upstream_proxy_protocol=\n",
         "\nlisten = smtp://*:25 proxy=yes smtp://*:2525\n", "relay for strangers"},
        {"postscreen_upstream_proxy_protocol = haproxy\n", "smtp inet n - n - - smtpd\n",
         "\nlisten = smtp://*:25\n", NULL},
        {"", "#smtp inet n - n - - smtpd\n", "\nlisten =\n", NULL},
        {"virtual_transport = dovecot\nvirtual_mailbox_domains = example.net\n",
         "dovecot unix - n n - - pipe\n"
         "  flags=DRhu user=vmail:mail argv=/usr/lib/dovecot/deliver -f ${sender} -d "
         "${recipient}\n",
         "\ndovecot/*\n    agent=pipe\n    user=vmail\n    group=mail\n"
         "    command=\"/usr/lib/dovecot/deliver -f ${sender} -d ${recipient}\"\n",
         NULL},
        {"", "uucp unix - n n - - pipe user=uucp argv=uux -r - $nexthop!rmail ($recipient)\n",
         "no parameter or table names it", "\nuucp/*"},
        {"mailbox_transport = odd\n",
         "odd unix - n n - - pipe user=x argv=y ${original_recipient}\n",
         "could lose mail: its command has ${original_recipient}", "\nodd/*"},
        {"", "smtp unix - - n - - smtp -o smtp_bind_address=192.0.2.3\n",
         "\nsmtp/*\n    agent=smtp\n    bind_address=192.0.2.3\n", NULL},
        {"",
         "smtp inet n - n - 1 postscreen -o postscreen_upstream_proxy_protocol=haproxy\n"
         "smtpd pass - - n - - smtpd\n",
         "\nlisten = smtp://*:25 proxy=yes\n", "left out"},
        {"", "policy unix - n n - 0 spawn user=nobody argv=/usr/bin/policyd-spf\n",
         "business of another program\n# master.cf:1: policy = spawn\n", NULL},
        {"", "628 inet n - n - - qmqpd\n", "could refuse mail: this listener is left out", ":628 "},
        {"", "cleanup unix n - n - 0 cleanup -o header_checks=pcre:/x -o always_bcc=a@b.example\n",
         "header_checks = pcre:/x\n#   could accept mail that Postfix refuses: without effect",
         NULL},
        {"", "cleanup unix n - n - 0 cleanup -o header_checks=pcre:/x -o always_bcc=a@b.example\n",
         "without effect: always_bcc", NULL},
        {LOGINS,
         "submission inet n - n - - smtpd -o smtpd_sasl_auth_enable=yes -o "
         "smtpd_client_restrictions=$mua\n",
         "smtpd_client_restrictions = $mua\n#   could accept mail that Postfix refuses: $mua is "
         "not known",
         NULL},
        {"relayhost = [a]:nosuchservice\ndefault_transport = slow:\n",
         "slow unix - - n - - smtp\nidle unix - - n - - smtp\n",
         "\ndefer_transports = smtp relay slow\n", NULL},
        /* values of a listener alone */
        {"", "2525 inet n - n - - smtpd -o mynetworks=10.0.0.0/8\n",
         "mynetworks = 10.0.0.0/8\n#   could relay for strangers: a listener", NULL},
        {"mynetworks = 10.0.0.0/8\n", "2525 inet n - n - - smtpd -o mynetworks=10.0.0.0/8\n",
         "listen = smtp://*:2525\n", "a listener"},
        {"", "2525 inet n - n - - smtpd -o content_filter=scan:x\nscan unix - - n - - smtp\n",
         "content_filter = scan:x\n#   could accept mail that Postfix refuses: a listener", NULL},
        {"",
         "smtp inet n - n - - smtpd\n"
         "2525 inet n - n - - smtpd -o smtpd_client_restrictions=reject_rbl_client,a.example,x\n",
         "could accept mail that Postfix refuses: not taken over: x. Tables", NULL},
        {"",
         "smtp inet n - n - - smtpd\n"
         "2525 inet n - n - - smtpd -o smtpd_client_restrictions=permit_mynetworks,reject\n",
         "could accept mail that Postfix refuses: all other clients are refused there", NULL},
        {"",
         "smtp inet n - n - - smtpd\n2525 inet n - n - - smtpd -o "
         "smtpd_relay_restrictions=permit_sasl_authenticated,reject_unauth_destination\n",
         "could relay for strangers: clients in relay_networks may send", NULL},
        {"smtpd_relay_restrictions = permit_sasl_authenticated, reject_unauth_destination\n",
         "smtp inet n - n - - smtpd\n2525 inet n - n - - smtpd -o "
         "smtpd_relay_restrictions=permit_mynetworks,reject_unauth_destination\n",
         "could refuse mail: clients in mynetworks can't send to other domains by", NULL},
        {"local_recipient_maps = hash:/etc/postfix/clients\n",
         "2525 inet n - n - - smtpd -o local_recipient_maps=\n",
         "local_recipient_maps = \n#   could refuse mail: a listener", NULL},
        /* users come from anywhere */
        {LOGINS "smtpd_client_restrictions = check_client_access cidr:/etc/postfix/clients\n",
         "smtp inet n - n - - smtpd\nsubmission inet n - n - - smtpd\n"
         "  -o smtpd_sasl_auth_enable=yes\n"
         "  -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n",
         "could refuse mail: client_access, sender_access and recipient_access apply", NULL},
        {LOGINS "smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination\n",
         "smtp inet n - n - - smtpd\n2525 inet n - n - - smtpd\n  -o smtpd_sasl_auth_enable=yes\n"
         "  -o smtpd_relay_restrictions=permit_sasl_authenticated,reject_unauth_destination\n",
         "smtp://*:2525 auth=yes", NULL},
        {"smtpd_milters = inet:127.0.0.1:1\n", "smtp inet n - n - - smtpd -o smtpd_milters=\n",
         "could refuse mail: a listener has no filters of its own", NULL},
        {"", "smtp inet n - n - - smtpd -o {\n", "\nlisten = smtp://*:25\n", NULL},
        {"", "smtp inet n - n - - smtpd -o smtpd_milters=inet:127.0.0.1:1\n",
         "could accept mail that Postfix refuses: a listener has no filters of its own", NULL},
        {"", "smtp unix - - n - - smtp -o smtp_tls_policy_maps=hash:/x\n",
         "smtp_tls_policy_maps = hash:/x\n#   could send in clear text: a transport has no value",
         NULL},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct import_report report;
        struct buf out;

        import(cases[i].main_cf, cases[i].master_cf, files, &out, &report);
        has(&out, cases[i].want);
        if (cases[i].unwanted != NULL) {
            has_not(&out, cases[i].unwanted);
        }
        import_report_fini(&report);
        buf_fini(&out);
    }
}

static void decisions_come_worst_first(void **unused)
{
    const char *order[] = {"could lose mail", "could refuse mail", "could relay for strangers",
                           "could send in clear text", "could accept mail"};
    struct import_report report;
    struct buf out, decisions;
    const char *at;

    (void)unused;
    import(LAN "smtputf8_enable = no\nsmtp_tls_security_level = x\n"
               "smtpd_relay_restrictions = reject_unauth_destination\nrelayhost = a b:c:d\n"
               "virtual_mailbox_domains = ldap:x\nmailbox_command = y\n",
           NULL, NULL, &out, &report);
    at = buf_cstr(&out);
    for (size_t i = 0; i < COUNT(order); i++) {
        at = strstr(at, order[i]);
        assert_non_null(at);
    }
    buf_init(&decisions, 100000);
    import_print_decisions(&report, &decisions);
    has(&decisions, "main.cf:6: virtual_mailbox_domains: could refuse mail: ");
    assert_true(import_decisions(&report) >= COUNT(order));
    buf_fini(&decisions);
    import_report_fini(&report);
    buf_fini(&out);
}

/* Refuses relayhost, relay_transport, one of two listeners, and a file that a table parameter
 * names. */
static bool check_here(struct slice text, struct buf *ret_faults)
{
    static const char *const bad[] = {"relayhost = ", "relay_transport = ", "smtp://192.0.2.1:25"};
    struct slice rest = text;
    unsigned line = 0;
    bool ok = true;

    while (rest.len > 0) {
        struct slice one = slice_cut(&rest, '\n');

        line++;
        for (size_t i = 0; i < COUNT(bad); i++) {
            if (one.len > 0 && one.ptr[0] != '#' &&
                memmem(one.ptr, one.len, bad[i], strlen(bad[i])) != NULL) {
                (void)buf_addf(ret_faults, "/etc/x:%u:1: error: %s is bad\n", line, bad[i]);
                ok = false;
            }
        }
        if (slice_starts(one, SLICE("transport_maps"))) {
            (void)buf_add_string(ret_faults, "/etc/postfix/transport:1:5: error: no such thing\n");
            ok = false;
        }
    }
    return ok;
}

static void what_the_check_refuses_is_left_out(void **unused)
{
    const char *files[] = {"/etc/postfix/main.cf",
                           "inet_interfaces = 192.0.2.1 127.0.0.1\nrelayhost = [a]\n"
                           "transport_maps = hash:transport\n"
                           "virtual_mailbox_domains = b.example\nvirtual_transport = nosuch\n",
                           "/etc/postfix/master.cf",
                           "smtp inet n - n - - smtpd\n",
                           "/etc/postfix/transport",
                           "x y\n",
                           NULL};
    struct main_cf_world world = {.hostname = "mx.example.org",
                                  .read = read_here,
                                  .arg = files,
                                  .check = check_here,
                                  .check_path = "/etc/x"};
    struct import_report report;
    struct buf out;

    (void)unused;
    buf_init(&out, 1 << 20);
    assert_int_equal(main_cf_import("/etc/postfix/main.cf", &world, &out, &report), 0);
    has(&out, "\nlisten = smtp://127.0.0.1:25\n");
    has(&out, "could refuse mail: smtp://192.0.2.1:25 is left out");
    has(&out, "could lose mail: relayhost =  is bad");
    has(&out, "could lose mail: /etc/postfix/transport:1:5: error: no such thing");
    has(&out, "could refuse mail: relay_transport =  is bad");
    has_not(&out, "\nrelayhost");
    has_not(&out, "\nrelay_domains");
    has_not(&out, "\ntransport_maps");
    import_report_fini(&report);
    buf_clear(&out);
    assert_int_equal(main_cf_import("/nowhere", &world, &out, &report), -ENOENT);
    import_report_fini(&report);
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(each_parameter_becomes_a_line_or_a_note),
          cmocka_unit_test(files_are_read), cmocka_unit_test(long_lists_are_read_once),
          cmocka_unit_test(parts_that_are_passed_over_are_noted),
          cmocka_unit_test(faults_that_are_left_are_noted),
          cmocka_unit_test(users_of_servers_are_noted),
          cmocka_unit_test(networks_relay_only_where_postfix_lets_them),
          cmocka_unit_test(access_tables_of_all_clients_are_taken),
          cmocka_unit_test(services_become_listeners_and_transports),
          cmocka_unit_test(decisions_come_worst_first),
          cmocka_unit_test(what_the_check_refuses_is_left_out))
