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
        struct tls_peer peer = {
            .sni = cases[i].name, .name = cases[i].name, .verify = cases[i].verify};
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
    buf_fini(&error);
}

UNIT_MAIN(cmocka_unit_test(trust_depends_on_authority_and_name),
          cmocka_unit_test(the_session_is_described_for_the_log),
          cmocka_unit_test(bytes_arrive_and_the_end_is_seen),
          cmocka_unit_test(a_connection_that_just_ends_counts_as_closed),
          cmocka_unit_test(garbage_fails_the_handshake_with_a_reason),
          cmocka_unit_test(a_large_write_is_taken_in_parts),
          cmocka_unit_test(bad_certificates_and_keys_are_refused_with_a_reason),
          cmocka_unit_test(broken_authorities_are_refused))
