#include "unit.h"

#include <string.h>

#include "main_cf.h"

static void a_main_cf_becomes_ours(void **unused)
{
    static const struct {
        const char *in, *want;
        unsigned kept, changed, needless, lost;
    } cases[] = {
        {"myhostname = mx.example.org\nrelayhost = [a]:587\n",
         "myhostname = mx.example.org\nrelayhost = [a]:587\n", 2, 0, 0, 0},
        {"mydestination = $myhostname,\n  localhost\n", "local_domains = $myhostname, localhost\n",
         0, 1, 0, 0},
        {"inet_interfaces = all\n", "listen = smtp://*:25\n", 0, 1, 0, 0},
        {"inet_interfaces = 192.0.2.1, ::1 [::2]\n",
         "listen = smtp://192.0.2.1:25 smtp://[::1]:25 smtp://[::2]:25\n", 0, 1, 0, 0},
        {"transport_maps = hash:/etc/postfix/transport\n",
         "transport_maps = /etc/postfix/transport\n", 0, 1, 0, 0},
        {"transport_maps = ldap:x\n",
         "# transport_maps = ldap:x\n#   only text files are tables here, not databases and "
         "servers\n",
         0, 0, 0, 1},
        {"smtp_tls_security_level = secure\n", "smtp_tls_security_level = secure\n", 0, 1, 0, 0},
        {"biff = no\n", "# biff = no\n#   nothing is lost without it\n", 0, 0, 1, 0},
        {"smtpd_banner = $mail_name\n",
         "# smtpd_banner = $mail_name\n#   $mail_name is not known here\n", 0, 0, 0, 1},
        {"smtpd_banner = ${myhostname} ESMTP $mail_name\n",
         "# smtpd_banner = ${myhostname} ESMTP $mail_name\n#   $mail_name is not known here\n", 0,
         0, 0, 1},
        {"virtual_alias_maps = hash:/x\n",
         "# virtual_alias_maps = hash:/x\n#   addresses are not rewritten here\n", 0, 0, 0, 1},
        {"strict_mailbox_ownership = no\n",
         "# strict_mailbox_ownership = no\n#   there is nothing like it here\n", 0, 0, 0, 1},
        {"maximal_queue_lifetime = soon\n",
         "# maximal_queue_lifetime = soon\n#   the value is none of ours, which is a time", 0, 0, 0,
         1},
        {"# only a comment\n\nsmtp inet n - y\n",
         "# line 3 is no parameter and was passed over\n# Postfix's default of mydestination\n"
         "local_domains = $myhostname localhost.$mydomain localhost\n",
         0, 0, 0, 1},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct main_cf_counts n;
        struct buf out;

        buf_init(&out, 10000);
        main_cf_import(slice_string(cases[i].in), &out, &n);
        if (strncmp(buf_cstr(&out), cases[i].want, strlen(cases[i].want)) != 0) {
            assert_string_equal(buf_cstr(&out), cases[i].want);
        }
        assert_int_equal(n.kept, cases[i].kept);
        assert_int_equal(n.changed, cases[i].changed);
        assert_int_equal(n.needless, cases[i].needless);
        assert_int_equal(n.lost, cases[i].lost);
        buf_fini(&out);
    }
}

UNIT_MAIN(cmocka_unit_test(a_main_cf_becomes_ours))
