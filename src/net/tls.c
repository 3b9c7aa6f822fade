#include "tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "printable.h"

/* Certificates of one file; a system's collection of authorities has some 150. */
#define CERTIFICATES_MAX 1000
/* Bytes of the file SYSTEM_TRUST, which is an option of the build. */
#define SYSTEM_TRUST_MAX (8u << 20)

struct tls_context {
    SSL_CTX *ctx;
};

struct tls {
    SSL *ssl;
    char **names; /* owned: names of tls_peer; none for a server or any name */
    size_t name_count;
    bool dns_ids;  /* copy of tls_peer's */
    char *error;   /* NULL without a failure */
    X509 *refused; /* owned: peer's certificate that verification refused; else NULL */
};

/* Returns the oldest reason in OpenSSL's queue; later ones are consequences. */
static const char *first_reason(void)
{
    unsigned long code = ERR_get_error();
    const char *text = code == 0 ? NULL : ERR_reason_error_string(code);

    if (code != 0 && ERR_SYSTEM_ERROR(code)) {
        text = strerror(ERR_GET_REASON(code));
    }
    ERR_clear_error();
    return text == NULL ? "unknown TLS error" : text;
}

/* Returns the flags for comparing names with those of a certificate. */
static unsigned name_flags(bool dns_ids)
{
    return X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
           (dns_ids ? X509_CHECK_FLAG_NEVER_CHECK_SUBJECT : 0);
}

/* ---- contexts ------------------------------------------------------------------------------- */

static struct tls_context *context_new(const SSL_METHOD *method)
{
    struct tls_context *context = mem_new(sizeof *context);
    SSL_CTX *ctx = SSL_CTX_new(method);

    CHECK(ctx != NULL); /* fails only without memory or with a broken library */
    CHECK(SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                       SSL_OP_IGNORE_UNEXPECTED_EOF); /* returns the options */
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER); /* returns the mode */
    /* One receive takes header and body of a record. */
    SSL_CTX_set_read_ahead(ctx, 1);
    /* Servers resume sessions by tickets, which cost them no memory; clients keep their
     * connections. */
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* returns the old mode */
    context->ctx = ctx;
    return context;
}

void tls_read_system_authorities(struct buf *ret_pem)
{
    int fd = open(SYSTEM_TRUST, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;

    buf_init(ret_pem, SYSTEM_TRUST_MAX);
    if (fd < 0) {
        return; /* no authorities: no server can be verified, which the log will show */
    }
    while (n > 0) {
        char *room = buf_room(ret_pem, 65536);

        n = room == NULL ? 0 : read(fd, room, 65536);
        if (n > 0) {
            buf_grew(ret_pem, (size_t)n);
        }
    }
    (void)close(fd); /* only read */
    if (ret_pem->failed) {
        buf_clear(ret_pem);
    }
}

bool tls_demand_dns_id(void *openssl_context, const char *name)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(openssl_context);

    X509_VERIFY_PARAM_set_hostflags(param, name_flags(true));
    return X509_VERIFY_PARAM_set1_host(param, name, 0) == 1;
}

void tls_context_free(struct tls_context *context)
{
    if (context == NULL) {
        return;
    }
    SSL_CTX_free(context->ctx); /* each session has its own reference */
    mem_free(context);
}

/* Prevents OpenSSL from requesting the password of an encrypted key on the terminal. */
static int no_password(char *to, int size, int for_writing, void *arg)
{
    (void)to;
    (void)size;
    (void)for_writing;
    (void)arg;
    return -1;
}

static BIO *bio_of(struct slice bytes)
{
    BIO *bio;

    CHECK(bytes.len <= INT_MAX);
    bio = BIO_new_mem_buf(bytes.len == 0 ? "" : bytes.ptr, (int)bytes.len);
    CHECK(bio != NULL);
    return bio;
}

/* Returns the next certificate, or NULL at the end, or at a broken one with an error in the
 * queue. */
static X509 *next_certificate(BIO *bio)
{
    X509 *certificate = PEM_read_bio_X509_AUX(bio, NULL, no_password, NULL);

    if (certificate == NULL && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE) {
        ERR_clear_error(); /* the regular end */
    }
    return certificate;
}

static bool use_chain(SSL_CTX *ctx, struct slice pem)
{
    BIO *bio = bio_of(pem);
    X509 *certificate = PEM_read_bio_X509_AUX(bio, NULL, no_password, NULL);
    bool ok = certificate != NULL && SSL_CTX_use_certificate(ctx, certificate) == 1;

    X509_free(certificate);
    for (size_t i = 0; ok && i < CERTIFICATES_MAX; i++) {
        certificate = next_certificate(bio);
        if (certificate == NULL) {
            ok = ERR_peek_error() == 0;
            break;
        }
        if (SSL_CTX_add0_chain_cert(ctx, certificate) != 1) {
            X509_free(certificate); /* the context did not take it */
            ok = false;
        }
    }
    BIO_free(bio);
    return ok;
}

static bool use_key(SSL_CTX *ctx, struct slice pem)
{
    BIO *bio = bio_of(pem);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    bool ok = key != NULL && SSL_CTX_use_PrivateKey(ctx, key) == 1;

    EVP_PKEY_free(key);
    BIO_free(bio);
    return ok;
}

struct tls_context *tls_server_new(struct slice certificate, struct slice key,
                                   struct buf *ret_error)
{
    struct tls_context *context = context_new(TLS_server_method());
    const char *what = NULL;

    ERR_clear_error();
    /* Clients send passwords: OpenSSL must not keep decrypted bytes. */
    (void)SSL_CTX_set_options(context->ctx, SSL_OP_CIPHER_SERVER_PREFERENCE |
                                                SSL_OP_CLEANSE_PLAINTEXT); /* the options */
    (void)SSL_CTX_set_dh_auto(context->ctx, 1); /* cannot fail with this value */
    if (!use_chain(context->ctx, certificate)) {
        what = "certificate chain";
    } else if (!use_key(context->ctx, key)) {
        what = "private key";
    } else if (SSL_CTX_check_private_key(context->ctx) != 1) {
        what = "certificate and private key";
    }
    if (what != NULL) {
        (void)buf_addf(ret_error, "%s: %s", what, first_reason()); /* may be cut */
        tls_context_free(context);
        return NULL;
    }
    return context;
}

struct tls_context *tls_client_new(struct slice authorities, struct buf *ret_error)
{
    struct tls_context *context = context_new(TLS_client_method());
    X509_STORE *store = SSL_CTX_get_cert_store(context->ctx);
    BIO *bio = bio_of(authorities);
    bool ok = true;
    size_t count = 0;

    CHECK(SSL_CTX_dane_enable(context->ctx) == 1); /* permits DANE; sessions enable it */
    ERR_clear_error();
    while (ok && count < CERTIFICATES_MAX) {
        X509 *certificate = next_certificate(bio);

        if (certificate == NULL) {
            ok = ERR_peek_error() == 0;
            break;
        }
        ok = X509_STORE_add_cert(store, certificate) == 1;
        X509_free(certificate);
        count++;
    }
    BIO_free(bio);
    if (!ok || (count == 0 && authorities.len > 0)) {
        (void)buf_addf(ret_error, "certificate authorities: %s",
                       ok ? "no PEM certificate is in it" : first_reason()); /* as above */
        tls_context_free(context);
        return NULL;
    }
    return context;
}

/* ---- sessions ------------------------------------------------------------------------------- */

static struct tls *session_new(struct tls_context *context, int fd)
{
    struct tls *t = mem_new(sizeof *t);

    t->ssl = SSL_new(context->ctx);
    CHECK(t->ssl != NULL);
    CHECK(SSL_set_fd(t->ssl, fd) == 1);
    return t;
}

struct tls *tls_accept(struct tls_context *context, int fd)
{
    struct tls *t = session_new(context, fd);

    SSL_set_accept_state(t->ssl);
    return t;
}

bool tls_is_address(const char *name)
{
    unsigned char ip[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1;
}

bool tls_record_usable(const struct tls_record *r)
{
    static const size_t lengths[] = {0, 32, 64}; /* lengths of hashes */
    const unsigned char *at = (const unsigned char *)r->data.ptr;
    X509 *certificate;
    EVP_PKEY *key;
    bool ok;

    if ((r->usage != 2 && r->usage != 3) || r->selector > 1 || r->matching > 2 ||
        r->data.len == 0 || r->data.len > LONG_MAX) {
        return false;
    }
    if (r->matching != 0) {
        return r->data.len == lengths[r->matching];
    }
    if (r->selector == 0) {
        certificate = d2i_X509(NULL, &at, (long)r->data.len);
        ok = certificate != NULL;
        X509_free(certificate);
    } else {
        key = d2i_PUBKEY(NULL, &at, (long)r->data.len);
        ok = key != NULL;
        EVP_PKEY_free(key);
    }
    ERR_clear_error();
    return ok && at == (const unsigned char *)r->data.ptr + r->data.len;
}

/* Sets the expected names: the first replaces previous ones, others are added. An address must be
 * the only name. */
static void want_names(SSL *ssl, const struct tls_peer *peer, size_t from)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

    for (size_t i = from; i < peer->name_count; i++) {
        const char *name = peer->names[i];

        CHECK((tls_is_address(name) ? X509_VERIFY_PARAM_set1_ip_asc(param, name)
               : i == 0             ? SSL_set1_host(ssl, name)
                                    : SSL_add1_host(ssl, name)) == 1);
    }
}

/* Sets the TLSA records; skips those that the library refuses. Returns false if none is left,
 * because the library would then ignore DANE. */
static bool want_records(SSL *ssl, const struct tls_peer *peer)
{
    bool some = false;

    CHECK(peer->name_count > 0);
    CHECK(SSL_dane_enable(ssl, peer->names[0]) == 1);
    (void)SSL_dane_set_flags(ssl, DANE_FLAG_NO_DANE_EE_NAMECHECKS); /* returns the old ones */
    for (size_t i = 0; i < peer->record_count; i++) {
        const struct tls_record *r = &peer->records[i];

        CHECK(r->usage == 2 || r->usage == 3); /* other usages would be misinterpreted */
        some = SSL_dane_tlsa_add(ssl, r->usage, r->selector, r->matching,
                                 (const unsigned char *)r->data.ptr, r->data.len) == 1 ||
               some;
    }
    ERR_clear_error();
    want_names(ssl, peer, 1);
    return some;
}

/* Keeps a refused certificate, because the library does not. */
static int on_verified(int good, X509_STORE_CTX *verification)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *t = SSL_get_app_data(ssl);
    X509 *certificate = X509_STORE_CTX_get0_cert(verification);

    if (!good && t->refused == NULL && certificate != NULL && X509_up_ref(certificate) == 1) {
        t->refused = certificate;
    }
    return good;
}

struct tls *tls_connect(struct tls_context *context, int fd, const struct tls_peer *peer)
{
    struct tls *t = session_new(context, fd);

    SSL_set_connect_state(t->ssl);
    SSL_set_hostflags(t->ssl, name_flags(peer->dns_ids));
    t->dns_ids = peer->dns_ids;
    t->names = mem_array(peer->name_count, sizeof t->names[0]);
    while (t->name_count < peer->name_count) {
        t->names[t->name_count] = mem_string(peer->names[t->name_count]);
        t->name_count++;
    }
    /* Without `verify` the chain is checked as well, but not the name: OpenSSL stops at the first
     * fault, and a wrong name would hide whether the chain is valid. */
    if (!peer->verify) {
        SSL_set_verify(t->ssl, SSL_VERIFY_NONE, NULL);
    } else {
        CHECK(SSL_set_app_data(t->ssl, t) == 1);
        SSL_set_verify(t->ssl, SSL_VERIFY_PEER, on_verified);
        if (peer->record_count == 0) {
            want_names(t->ssl, peer, 0);
        } else if (!want_records(t->ssl, peer)) {
            t->error = mem_string("no TLSA record can be used"); /* makes the handshake fail */
        }
    }
    if (peer->sni != NULL && !tls_is_address(peer->sni)) {
        (void)SSL_set_tlsext_host_name(t->ssl, peer->sni); /* refuses too long a name */
    }
    return t;
}

void tls_free(struct tls *t)
{
    if (t == NULL) {
        return;
    }
    SSL_free(t->ssl);
    for (size_t i = 0; i < t->name_count; i++) {
        mem_free(t->names[i]);
    }
    X509_free(t->refused);
    mem_free(t->names);
    mem_free(t->error);
    mem_free(t);
}

static enum tls_result failed(struct tls *t, const char *text)
{
    if (t->error == NULL) {
        t->error = mem_string(text);
    }
    ERR_clear_error();
    return TLS_FAILED;
}

/* Returns the result of a call that did not succeed. */
static enum tls_result result_of(struct tls *t, int returned)
{
    int saved_errno = errno;
    long verified;

    switch (SSL_get_error(t->ssl, returned)) {
    case SSL_ERROR_WANT_READ:
        return TLS_WANT_READ;
    case SSL_ERROR_WANT_WRITE:
        return TLS_WANT_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_CLOSED;
    case SSL_ERROR_SYSCALL:
        return saved_errno == 0 ? TLS_CLOSED : failed(t, strerror(saved_errno));
    default:
        verified = SSL_get_verify_result(t->ssl);
        if (SSL_get_verify_mode(t->ssl) != SSL_VERIFY_NONE && verified != X509_V_OK) {
            return failed(t, X509_verify_cert_error_string(verified));
        }
        return failed(t, first_reason());
    }
}

/* Clears OpenSSL's error queue and errno, on which the result of the next call depends. */
static void before_call(void)
{
    ERR_clear_error();
    errno = 0;
}

enum tls_result tls_handshake(struct tls *t)
{
    enum tls_result result;
    int returned;

    if (t->error != NULL) {
        return TLS_FAILED;
    }
    before_call();
    returned = SSL_do_handshake(t->ssl);
    if (returned == 1) {
        return TLS_OK;
    }
    result = result_of(t, returned);
    return result == TLS_CLOSED ? failed(t, "connection closed by the peer") : result;
}

enum tls_result tls_read(struct tls *t, char *to, size_t size, size_t *ret_len)
{
    int returned;

    before_call();
    returned = SSL_read_ex(t->ssl, to, size, ret_len);
    return returned == 1 ? TLS_OK : result_of(t, returned);
}

enum tls_result tls_write(struct tls *t, struct slice bytes, size_t *ret_len)
{
    int returned;

    CHECK(bytes.len > 0);
    before_call();
    returned = SSL_write_ex(t->ssl, bytes.ptr, bytes.len, ret_len);
    return returned == 1 ? TLS_OK : result_of(t, returned);
}

void tls_shutdown(struct tls *t)
{
    if (t->error == NULL && SSL_is_init_finished(t->ssl)) {
        (void)SSL_shutdown(t->ssl); /* the peer may be gone */
        ERR_clear_error();
    }
}

bool tls_pending(const struct tls *t)
{
    return SSL_has_pending(t->ssl) == 1;
}

bool tls_is_for(const struct tls *t, const char *const *names, size_t count, bool dns_ids)
{
    X509 *certificate = SSL_get0_peer_certificate(t->ssl);

    for (size_t i = 0; certificate != NULL && i < count; i++) {
        if ((tls_is_address(names[i])
                 ? X509_check_ip_asc(certificate, names[i], 0)
                 : X509_check_host(certificate, names[i], 0, name_flags(dns_ids), NULL)) == 1) {
            return true;
        }
    }
    return false;
}

enum tls_trust tls_trust(const struct tls *t)
{
    uint8_t usage;

    if (SSL_get0_peer_certificate(t->ssl) == NULL) {
        return TLS_ANONYMOUS;
    }
    if (SSL_get_verify_result(t->ssl) != X509_V_OK) {
        return TLS_UNTRUSTED;
    }
    if (SSL_get0_dane_authority(t->ssl, NULL, NULL) >= 0) {
        CHECK(SSL_get0_dane_tlsa(t->ssl, &usage, NULL, NULL, NULL, NULL) >= 0);
        return usage == 3 ? TLS_DANE_EE : TLS_DANE_TA;
    }
    return tls_is_for(t, (const char *const *)t->names, t->name_count, t->dns_ids) ? TLS_VERIFIED
                                                                                   : TLS_TRUSTED;
}

const char *tls_version(const struct tls *t)
{
    return SSL_get_version(t->ssl);
}

const char *tls_cipher(const struct tls *t)
{
    return SSL_CIPHER_get_name(SSL_get_current_cipher(t->ssl));
}

void tls_describe(const struct tls *t, struct buf *out)
{
    const SSL_CIPHER *cipher = SSL_get_current_cipher(t->ssl);
    int algorithm_bits = 0;
    int bits = SSL_CIPHER_get_bits(cipher, &algorithm_bits);

    (void)buf_addf(out, "%s with cipher %s (%d/%d bits)", SSL_get_version(t->ssl),
                   SSL_CIPHER_get_name(cipher), bits, algorithm_bits); /* may be cut */
}

static void add_text(struct buf *out, const char *before, struct slice text)
{
    (void)buf_add_string(out, before); /* may be cut */
    (void)printable_add(out, text, text.len);
}

static void add_names(X509 *certificate, struct buf *out)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    int count = sk_GENERAL_NAME_num(names), shown = 0;

    for (int i = 0; i < count && shown < TLS_NAMES_SHOWN; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);

        if (name->type == GEN_DNS) {
            add_text(out, shown++ > 0 ? " " : "",
                     slice_of((const char *)ASN1_STRING_get0_data(name->d.dNSName),
                              (size_t)ASN1_STRING_length(name->d.dNSName)));
        }
    }
    if (shown == TLS_NAMES_SHOWN) {
        (void)buf_add_string(out, " ...");
    }
    sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free);
    if (shown == 0) {
        char text[256] = "";

        (void)X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text,
                                        sizeof text); /* there may be none */
        add_text(out, "CN=", slice_string(text));
    }
}

void tls_describe_certificate(const struct tls *t, struct buf *out)
{
    X509 *certificate = SSL_get0_peer_certificate(t->ssl);
    char issuer[256], until[16];
    struct tm tm;

    certificate = certificate == NULL ? t->refused : certificate;
    if (certificate == NULL) {
        return;
    }
    add_names(certificate, out);
    if (X509_NAME_get_text_by_NID(X509_get_issuer_name(certificate), NID_commonName, issuer,
                                  sizeof issuer) < 0) {
        (void)X509_NAME_oneline(X509_get_issuer_name(certificate), issuer, sizeof issuer);
    }
    add_text(out, "; issued by ", slice_string(issuer));
    if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm) == 1 &&
        strftime(until, sizeof until, "%Y-%m-%d", &tm) > 0) {
        add_text(out, "; until ", slice_string(until));
    }
    ERR_clear_error(); /* parts may be malformed */
}

const char *tls_error(const struct tls *t)
{
    return t->error == NULL ? "" : t->error;
}
