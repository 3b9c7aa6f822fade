#include "unit.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "mailq_auth.h"

static struct mailq_peer peer_of(const char *text)
{
    struct mailq_peer peer = {.len = strchr(text, ':') != NULL ? 16 : 4};

    assert_int_equal(inet_pton(peer.len == 4 ? AF_INET : AF_INET6, text, peer.address), 1);
    return peer;
}

static struct mailq_auth *parse(const char *text, const char *want_problems)
{
    struct mailq_auth *auth;
    struct buf problems;

    buf_init(&problems, 10000);
    auth = mailq_auth_parse("auth", slice_string(text), &problems);
    assert_string_equal(buf_cstr(&problems), want_problems);
    buf_fini(&problems);
    return auth;
}

static void first_fitting_address_decides(void **unused)
{
    const struct {
        const char *list, *peer;
        bool want;
    } cases[] = {
        {"", "203.0.113.9", true},
        {"", "2001:db8::1", true},
        {"[127.0.0.0]/8", "127.1.2.3", true},
        {"[127.0.0.0]/8", "128.0.0.1", false},
        {"[127.0.0.1]", "127.0.0.1", true},
        {"[127.0.0.1]", "127.0.0.2", false},
        {"![10.0.0.1] [10.0.0.0]/8", "10.0.0.1", false},
        {"![10.0.0.1] [10.0.0.0]/8", "10.0.0.2", true},
        {"[10.0.0.0]/8,![10.0.0.1]", "10.0.0.1", true},
        {"[10.0.0.0]/9", "10.127.0.0", true},
        {"[10.0.0.0]/9", "10.128.0.0", false},
        {"[0.0.0.0]/0", "203.0.113.9", true},
        {"[0.0.0.0]/0", "2001:db8::1", false},
        {"[IPv6.2001:db8::]/32", "2001:db8:1::1", true},
        {"[ipv6:2001:db8::]/32", "2001:db9::1", false},
        {"[192.0.2.0]/24", "::ffff:192.0.2.7", true},
        {"![0.0.0.0]/0", "192.0.2.1", false},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mailq_peer peer = peer_of(cases[i].peer);
        struct mailq_auth *auth;
        char line[200];

        assert_true(snprintf(line, sizeof line, "u:p:ALL:%s\n", cases[i].list) > 0);
        auth = parse(line, "");
        if (mailq_auth_admits(auth, &peer) != cases[i].want) {
            fail_msg("%s and %s", cases[i].list, cases[i].peer);
        }
        assert_int_equal(mailq_auth_find(auth, &peer, SLICE("u")) != NULL, cases[i].want);
        assert_null(mailq_auth_find(auth, &peer, SLICE("v")));
        mailq_auth_free(auth);
    }
}

static void a_name_may_come_twice(void **unused)
{
    struct mailq_auth *auth = parse("# who may what\n"
                                    "* also a comment\n"
                                    "\n"
                                    "admin:far:SNMP QQ:[192.0.2.0]/24\r\n"
                                    "admin:near:ALL unheard-of:[127.0.0.1]\n"
                                    "nobody:nobody:SNMP QQ TT ETRN:\n",
                                    "");
    struct mailq_peer far = peer_of("192.0.2.7"), other = peer_of("198.51.100.1");
    const struct mailq_entry *entry;

    (void)unused;
    entry = mailq_auth_find(auth, &far, SLICE("admin"));
    assert_non_null(entry);
    assert_string_equal(entry->password, "far");
    assert_int_equal(entry->rights, MAILQ_MAY_SNMP | MAILQ_MAY_QQ);
    entry = mailq_auth_find(auth, &mailq_peer_local, SLICE("admin"));
    assert_non_null(entry);
    assert_int_equal(entry->rights, MAILQ_MAY_ALL);
    assert_null(mailq_auth_find(auth, &other, SLICE("admin")));
    entry = mailq_auth_find(auth, &other, SLICE("nobody"));
    assert_non_null(entry);
    assert_int_equal(entry->rights, MAILQ_MAY_SNMP | MAILQ_MAY_QQ | MAILQ_MAY_TT | MAILQ_MAY_ETRN);
    mailq_auth_free(auth);
}

static void bad_lines_admit_nobody(void **unused)
{
    struct mailq_auth *auth = parse(
        "u:p:ALL\n"
        "u:p:everything:\n"
        "u:p:ALL:[127.0.0.1\n"
        "u:p:ALL:[127.0.0.1]/33\n"
        "u:p:ALL:[127.0.0.1]x\n"
        "u:p:ALL:[IPv6.127.0.0.1]\n"
        "u:p:ALL:[127.0.0.1],anybody\n"
        "u:{SCRAM-SHA-256}1:ALL:\n"
        ":p:ALL:\n",
        "auth:1:8: \"\": expected user:password:rights:addresses\n"
        "auth:2:5: \"everything\": expected rights: SNMP, QQ, TT, ETRN, KILL, REROUTE, ALL or "
        "NONE\n"
        "auth:3:9: \"[127.0.0.1\": expected [ADDRESS]/BITS\n"
        "auth:4:9: \"[127.0.0.1]/33\": expected /0 to /32 after the address\n"
        "auth:5:9: \"[127.0.0.1]x\": expected /0 to /32 after the address\n"
        "auth:6:9: \"[IPv6.127.0.0.1]\": expected [192.0.2.1] or [IPv6.2001:db8::1]\n"
        "auth:7:21: \"anybody\": expected [ADDRESS]/BITS\n"
        "auth:8:3: \"{SCRAM-SHA-256}\": expected ROUNDS,SALT,STORED-KEY,SERVER-KEY after it\n"
        "auth:9:1: \"\": expected a user's name\n");

    (void)unused;
    assert_false(mailq_auth_admits(auth, &mailq_peer_local));
    mailq_auth_free(auth);
}

static void md5_is_as_recorded(void **unused)
{
    struct mailq_auth *auth = parse("nobody:nobody:ALL:\n", "");
    const struct mailq_entry *entry = mailq_auth_find(auth, &mailq_peer_local, SLICE("nobody"));
    const struct slice challenge = SLICE("220 MAILQ-V2-CHALLENGE: 1795179725.941915.10");

    (void)unused;
    assert_non_null(entry);
    assert_true(mailq_auth_md5_fits(entry, challenge, SLICE("7d68acac7103e7087184a487d29d758d")));
    assert_false(mailq_auth_md5_fits(entry, challenge, SLICE("7D68ACAC7103E7087184A487D29D758D")));
    assert_false(mailq_auth_md5_fits(entry, challenge, SLICE("7d68acac7103e7087184a487d29d758e")));
    assert_false(mailq_auth_md5_fits(entry, challenge, SLICE("7d68acac7103e7087184a487d29d758")));
    assert_false(mailq_auth_md5_fits(entry, challenge, SLICE("")));
    mailq_auth_free(auth);
}

UNIT_MAIN(cmocka_unit_test(first_fitting_address_decides), cmocka_unit_test(a_name_may_come_twice),
          cmocka_unit_test(bad_lines_admit_nobody), cmocka_unit_test(md5_is_as_recorded))
