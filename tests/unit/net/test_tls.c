#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mem.h"
#include "tls.h"
#include "tls_fixture.h"

#define STEPS_MAX 20

/* A server and a client with a socket pair between them. */
struct pair {
    int fds[2];
    struct tls_context *server_context, *client_context;
    struct tls *server, *client;
};

static void pair_open(struct pair *p, bool with_authority, const struct tls_peer *peer)
{
    struct buf error;

    buf_init(&error, 1000);
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->fds), 0);
    p->server_context =
        tls_server_new(slice_string(fixture_certificate), slice_string(fixture_key), &error);
    assert_non_null(p->server_context);
    p->client_context =
        tls_client_new(slice_string(with_authority ? fixture_authority : ""), &error);
    assert_non_null(p->client_context);
    assert_int_equal(buf_len(&error), 0);
    p->server = tls_accept(p->server_context, p->fds[0]);
    p->client = tls_connect(p->client_context, p->fds[1], peer);
}

static void pair_close(struct pair *p)
{
    tls_free(p->server);
    tls_free(p->client);
    tls_context_free(p->server_context);
    tls_context_free(p->client_context);
    (void)close(p->fds[0]);
    (void)close(p->fds[1]);
}

static bool waits(enum tls_result result)
{
    return result == TLS_WANT_READ || result == TLS_WANT_WRITE;
}

/* Shake hands until the client has a result. */
static enum tls_result shake(struct pair *p)
{
    enum tls_result client = TLS_WANT_READ, server = TLS_WANT_READ;

    for (int i = 0; i < STEPS_MAX && (waits(client) || waits(server)); i++) {
        if (waits(client)) {
            client = tls_handshake(p->client);
        }
        if (waits(server)) {
            server = tls_handshake(p->server);
        }
        if (client == TLS_FAILED) {
            break;
        }
    }
    return client;
}

static void trust_depends_on_authority_and_name(void **unused)
{
    static const struct {
        const char *name;
        bool authority, verify;
        enum tls_result want;
        enum tls_trust want_trust;
        const char *want_error;
    } cases[] = {
        {"mx.example.test", true, true, TLS_OK, TLS_VERIFIED, ""},
        {"mx.example.test", true, false, TLS_OK, TLS_VERIFIED, ""},
        {NULL, true, true, TLS_OK, TLS_TRUSTED, ""},
        {"other.example.test", true, false, TLS_OK, TLS_TRUSTED, ""},
        {"mx.example.test", false, false, TLS_OK, TLS_UNTRUSTED, ""},
        {"other.example.test", true, true, TLS_FAILED, TLS_UNTRUSTED, "hostname mismatch"},
        {"192.0.2.1", true, true, TLS_FAILED, TLS_UNTRUSTED, "IP address mismatch"},
        {"mx.example.test", false, true, TLS_FAILED, TLS_UNTRUSTED,
         "unable to get local issuer certificate"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct tls_peer peer = {.sni = cases[i].name,
                                .names = &cases[i].name,
                                .name_count = cases[i].name != NULL,
                                .verify = cases[i].verify};
        struct pair p;

        pair_open(&p, cases[i].authority, &peer);
        assert_int_equal(shake(&p), cases[i].want);
        assert_string_equal(tls_error(p.client), cases[i].want_error);
        if (cases[i].want == TLS_OK) {
            assert_int_equal(tls_trust(p.client), cases[i].want_trust);
            assert_int_equal(tls_trust(p.server), TLS_ANONYMOUS);
        }
        pair_close(&p);
    }
}

/* Of the fixture: hashes of the server's certificate and key, the keys themselves. */
#define BYTES(text)                                                                                \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
#define LEAF                                                                                       \
    "\xae\x5c\x97\x67\x91\x0e\x86\x87\x45\x25\xff\xf4\x5a\x8d\x06\x27"                             \
    "\xb6\x73\x8b\x19\x1d\xb3\xc6\x80\x1d\x01\xad\x33\x44\x25\x3b\x4c"
#define LEAF_KEY                                                                                   \
    "\x77\x43\x20\xcf\x2e\x5d\xb2\xd7\xcc\xc5\x8b\x2b\x46\x95\xbe\xb1"                             \
    "\x95\xb6\x2c\xa7\xe4\x2e\xf1\x6e\x81\xc1\x13\x14\xff\x99\xfa\xad"
#define AUTHORITY_KEY_WHOLE                                                                        \
    "\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01"     \
    "\x07\x03\x42\x00\x04\x4a\xef\x59\xe2\xcf\xd0\x5a\x0a\x66\xb2\x03\x6a\xff\x06\x86\x8e\x65"     \
    "\x1e\x0a\x9b\x6c\x64\x7d\x6f\xcc\x69\x96\x66\x4c\x80\xd6\xf7\x94\x59\x2c\x44\xd6\x7b\xde"     \
    "\x6b\xbe\x09\x52\xa5\xe8\xc3\x8f\x8f\x4a\xe7\xbb\x59\xea\x19\x6b\xf5\x42\x00\xd4\x3d\x3b"     \
    "\xfb\x0d\x48"

static const struct tls_record leaf = {3, 0, 1, BYTES(LEAF)}, leaf_key = {3, 1, 1, BYTES(LEAF_KEY)},
                               other = {3, 1, 1, BYTES(LEAF)}, /* a hash of something else */
    authority_key = {2, 1, 0, BYTES(AUTHORITY_KEY_WHOLE)},
                               unusable = {3, 1, 0, BYTES(LEAF)}; /* no key */

/* Whatever the authorities in the context are: records stand in their place. */
static void records_decide_in_place_of_authorities(void **unused)
{
    static const struct {
        const char *names[2];
        const struct tls_record *records[2];
        bool authority;
        enum tls_result want;
        enum tls_trust want_trust;
        const char *want_error;
    } cases[] = {
        {{"another.test"}, {&leaf}, false, TLS_OK, TLS_DANE_EE, ""},
        {{"another.test"}, {&leaf_key}, true, TLS_OK, TLS_DANE_EE, ""},
        {{"another.test"}, {&other, &leaf_key}, false, TLS_OK, TLS_DANE_EE, ""},
        {{"mx.example.test"}, {&other}, true, TLS_FAILED, 0, "no matching DANE TLSA records"},
        {{"mx.example.test"}, {&authority_key}, false, TLS_OK, TLS_DANE_TA, ""},
        {{"base.test", "mx.example.test"}, {&authority_key}, false, TLS_OK, TLS_DANE_TA, ""},
        {{"base.test", "another.test"}, {&authority_key}, true, TLS_FAILED, 0, "hostname mismatch"},
        {{"mx.example.test"}, {&unusable}, true, TLS_FAILED, 0, "no TLSA record can be used"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct tls_record records[2];
        struct tls_peer peer = {.sni = cases[i].names[0],
                                .names = cases[i].names,
                                .name_count = cases[i].names[1] != NULL ? 2 : 1,
                                .verify = true,
                                .records = records};
        struct pair p;

        while (peer.record_count < 2 && cases[i].records[peer.record_count] != NULL) {
            records[peer.record_count] = *cases[i].records[peer.record_count];
            peer.record_count++;
        }
        pair_open(&p, cases[i].authority, &peer);
        assert_int_equal(shake(&p), cases[i].want);
        assert_string_equal(tls_error(p.client), cases[i].want_error);
        if (cases[i].want == TLS_OK) {
            assert_int_equal(tls_trust(p.client), cases[i].want_trust);
        }
        pair_close(&p);
    }
}

static void records_that_are_not_what_they_say_cannot_be_used(void **unused)
{
    static const struct {
        struct tls_record record;
        bool want;
    } cases[] = {
        {{3, 0, 1, BYTES(LEAF)}, true},
        {{2, 1, 1, BYTES(LEAF)}, true},
        {{2, 1, 0, BYTES(AUTHORITY_KEY_WHOLE)}, true},
        {{3, 1, 2, BYTES(LEAF LEAF_KEY)}, true},
        {{0, 0, 1, BYTES(LEAF)}, false},
        {{1, 0, 1, BYTES(LEAF)}, false},
        {{4, 0, 1, BYTES(LEAF)}, false},
        {{3, 2, 1, BYTES(LEAF)}, false},
        {{3, 1, 3, BYTES(LEAF)}, false},
        {{3, 1, 1, BYTES("short")}, false},
        {{3, 1, 2, BYTES(LEAF)}, false},
        {{3, 1, 0, BYTES(LEAF)}, false},
        {{2, 0, 0, BYTES(AUTHORITY_KEY_WHOLE)}, false},        /* no certificate */
        {{2, 1, 0, BYTES(AUTHORITY_KEY_WHOLE "more")}, false}, /* and something behind it */
        {{3, 1, 0, BYTES("")}, false},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(tls_record_usable(&cases[i].record), cases[i].want);
    }
}

static void one_of_several_names_is_enough(void **unused)
{
    static const struct {
        const char *names[2];
        enum tls_result want;
    } cases[] = {
        {{"another.test", "mx.example.test"}, TLS_OK},
        {{"example.test", ".example.test"}, TLS_OK}, /* a name below the domain */
        {{"test", ".test"}, TLS_OK},
        {{"another.test", ".another.test"}, TLS_FAILED},
        {{"example.test", "x.mx.example.test"}, TLS_FAILED},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct tls_peer peer = {.names = cases[i].names, .name_count = 2, .verify = true};
        struct pair p;

        pair_open(&p, true, &peer);
        assert_int_equal(shake(&p), cases[i].want);
        if (cases[i].want == TLS_OK) {
            assert_int_equal(tls_trust(p.client), TLS_VERIFIED);
            assert_true(tls_is_for(p.client, cases[i].names, 2, true));
            assert_string_equal(tls_version(p.client), "TLSv1.3");
            assert_string_equal(tls_cipher(p.client), "TLS_AES_256_GCM_SHA384");
        }
        pair_close(&p);
    }
}

static void the_session_is_described_for_the_log(void **unused)
{
    static const struct tls_peer peer = {0};
    struct pair p;
    struct buf text;

    (void)unused;
    pair_open(&p, false, &peer);
    assert_int_equal(shake(&p), TLS_OK);
    buf_init(&text, 200);
    tls_describe(p.server, &text);
    assert_string_equal(buf_cstr(&text),
                        "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits)");
    buf_fini(&text);
    pair_close(&p);
}

static void bytes_arrive_and_the_end_is_seen(void **unused)
{
    static const struct tls_peer peer = {0};
    struct pair p;
    char to[20];
    size_t len;

    (void)unused;
    pair_open(&p, false, &peer);
    assert_int_equal(shake(&p), TLS_OK);
    assert_int_equal(tls_read(p.server, to, sizeof to, &len), TLS_WANT_READ);
    assert_int_equal(tls_write(p.client, SLICE("EHLO x\r\n"), &len), TLS_OK);
    assert_int_equal(len, 8);
    assert_int_equal(tls_read(p.server, to, 4, &len), TLS_OK);
    assert_int_equal(len, 4);
    assert_true(tls_pending(p.server));
    assert_int_equal(tls_read(p.server, to + 4, sizeof to - 4, &len), TLS_OK);
    assert_memory_equal(to, "EHLO x\r\n", 8);
    assert_false(tls_pending(p.server));
    tls_shutdown(p.client);
    assert_int_equal(tls_read(p.server, to, sizeof to, &len), TLS_CLOSED);
    pair_close(&p);
}

static void a_connection_that_just_ends_counts_as_closed(void **unused)
{
    static const struct tls_peer peer = {0};
    struct pair p;
    char to[20];
    size_t len;

    (void)unused;
    pair_open(&p, false, &peer);
    assert_int_equal(shake(&p), TLS_OK);
    assert_return_code(shutdown(p.fds[1], SHUT_WR), 0);
    assert_int_equal(tls_read(p.server, to, sizeof to, &len), TLS_CLOSED);
    pair_close(&p);
}

static void garbage_fails_the_handshake_with_a_reason(void **unused)
{
    static const struct tls_peer peer = {0};
    static const char *const garbage[] = {"EHLO client.example\r\n", "\x16\x03\x01\xff\xff\x01\x02",
                                          "\x80\x80\x01\x03\x01"};

    (void)unused;
    for (size_t i = 0; i < COUNT(garbage); i++) {
        struct pair p;

        pair_open(&p, false, &peer);
        assert_int_equal(write(p.fds[1], garbage[i], strlen(garbage[i])), strlen(garbage[i]));
        assert_return_code(shutdown(p.fds[1], SHUT_WR), 0);
        assert_int_equal(tls_handshake(p.server), TLS_FAILED);
        assert_true(strlen(tls_error(p.server)) > 0);
        pair_close(&p);
    }
}

static void a_large_write_is_taken_in_parts(void **unused)
{
    static const struct tls_peer peer = {0};
    size_t size = 4 << 20, sent = 0, got = 0;
    char *bytes = mem_new(size), *to = mem_new(size);
    struct pair p;

    (void)unused;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (char)(i * 31 + i / 251);
    }
    pair_open(&p, false, &peer);
    assert_int_equal(shake(&p), TLS_OK);
    while (got < size) {
        size_t len;

        while (sent < size) {
            enum tls_result result = tls_write(p.client, slice_of(bytes + sent, size - sent), &len);
            if (result != TLS_OK) {
                assert_int_equal(result, TLS_WANT_WRITE);
                break;
            }
            sent += len;
        }
        while (got < size) {
            enum tls_result result = tls_read(p.server, to + got, size - got, &len);
            if (result != TLS_OK) {
                assert_int_equal(result, TLS_WANT_READ);
                break;
            }
            got += len;
        }
    }
    assert_memory_equal(bytes, to, size);
    pair_close(&p);
    mem_free(bytes);
    mem_free(to);
}

static void bad_certificates_and_keys_are_refused_with_a_reason(void **unused)
{
    static const char encrypted[] = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
                                    "MAAA\n"
                                    "-----END ENCRYPTED PRIVATE KEY-----\n";
    const struct {
        const char *certificate, *key, *want;
    } cases[] = {
        {"", fixture_key, "certificate chain: no start line"},
        {"-----BEGIN CERTIFICATE-----\nxyz", fixture_key, "certificate chain: "},
        {fixture_certificate, "", "private key: "},
        {fixture_certificate, fixture_certificate, "private key: "},
        {fixture_certificate, encrypted, "private key: "},
        {fixture_authority, fixture_key, "private key: key values mismatch"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf error;

        buf_init(&error, 1000);
        assert_null(
            tls_server_new(slice_string(cases[i].certificate), slice_string(cases[i].key), &error));
        assert_true(slice_starts(buf_slice(&error), slice_string(cases[i].want)));
        buf_fini(&error);
    }
}

static void broken_authorities_are_refused(void **unused)
{
    struct buf error;

    (void)unused;
    buf_init(&error, 1000);
    assert_null(tls_client_new(
        SLICE("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), &error));
    assert_true(slice_starts(buf_slice(&error), SLICE("certificate authorities: ")));
    buf_clear(&error);
    assert_null(tls_client_new(SLICE("no certificate\n"), &error));
    assert_string_equal(buf_cstr(&error), "certificate authorities: no PEM certificate is in it");
    buf_fini(&error);
}

UNIT_MAIN(cmocka_unit_test(trust_depends_on_authority_and_name),
          cmocka_unit_test(records_decide_in_place_of_authorities),
          cmocka_unit_test(records_that_are_not_what_they_say_cannot_be_used),
          cmocka_unit_test(one_of_several_names_is_enough),
          cmocka_unit_test(the_session_is_described_for_the_log),
          cmocka_unit_test(bytes_arrive_and_the_end_is_seen),
          cmocka_unit_test(a_connection_that_just_ends_counts_as_closed),
          cmocka_unit_test(garbage_fails_the_handshake_with_a_reason),
          cmocka_unit_test(a_large_write_is_taken_in_parts),
          cmocka_unit_test(bad_certificates_and_keys_are_refused_with_a_reason),
          cmocka_unit_test(broken_authorities_are_refused))
