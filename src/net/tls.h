/*
 * TLS: the only adapter to OpenSSL 3. No other module includes an OpenSSL header.
 *
 * A context is made from bytes in memory, because a confined process opens no files, and serves any
 * number of sessions. A session works on a non-blocking socket that its owner keeps, polls and
 * closes; each call either finishes or returns the event that the socket must wait for.
 *
 * Protocols below TLS 1.2, renegotiation and compression are off. Buffers are freed while a session
 * is idle (about 40 KiB less for each). A peer that closes the connection without a close_notify
 * counts as TLS_CLOSED: SMTP marks all ends itself, and many peers do this.
 *
 * OpenSSL uses write(2), so the process must ignore SIGPIPE (streams_new does). Make one context
 * before confinement, so that the library loads its files.
 */
#ifndef NET_TLS_H
#define NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

struct tls_context;
struct tls;

/* Makes a server's context of a certificate chain (own certificate first) and a private key, both
 * PEM. Returns NULL and appends a text to *ret_error if they are not valid. */
struct tls_context *tls_server_new(struct slice certificate, struct slice key,
                                   struct buf *ret_error);

/* Makes a client's context. `authorities`: trusted certificates in PEM; empty: no server is
 * trusted, and each session with verification fails. Returns NULL and appends a text to *ret_error
 * if `authorities` is not empty and has no certificate, or a broken one. */
struct tls_context *tls_client_new(struct slice authorities, struct buf *ret_error);

/* Reads the system's trusted authorities in PEM. Initializes *ret_pem (owned by the caller), which
 * stays empty if there are none. Call it before confinement. */
void tls_read_system_authorities(struct buf *ret_pem);

/* Makes sessions of `openssl_context` (SSL_CTX *) fail unless the certificate has `name` as a
 * DNS-ID (RFC 6125); the common name does not count. For a library that makes its own sessions. */
bool tls_demand_dns_id(void *openssl_context, const char *name);

/* Frees a context; its sessions continue. NULL is fine. */
void tls_context_free(struct tls_context *context);

/* A TLSA record (RFC 6698, section 2.1). */
struct tls_record {
    uint8_t usage;    /* 2: DANE-TA, 3: DANE-EE; no others */
    uint8_t selector; /* 0: the certificate, 1: its public key */
    uint8_t matching; /* 0: full data, 1: SHA-256, 2: SHA-512 */
    struct slice data;
};

/* Does the data match its description: a hash of the right length, a certificate, a key? */
bool tls_record_usable(const struct tls_record *record);

/* A client's requirements for the server; texts are copied. */
struct tls_peer {
    const char *sni; /* server name to send; NULL or an IP address: none */
    /* Names of which the certificate must have one if `verify`; otherwise they only decide between
     * TLS_TRUSTED and TLS_VERIFIED. ".example.org" is each name below example.org. No names: any
     * certificate. */
    const char *const *names;
    size_t name_count;
    /* a name must be a DNS-ID; otherwise the common name counts if there are none (RFC 6125,
     * section 6.4.4) */
    bool dns_ids;
    bool verify; /* the handshake fails without a verified certificate */
    /* Records of which one must match, instead of the authorities; only with `verify`. With DANE-EE
     * neither names nor dates count (RFC 7672, section 3.1.1). With DANE-TA the names count, and
     * the first must be the name with the records. */
    const struct tls_record *records;
    size_t record_count;
};

/* Is it an IP address? Such names are compared with a certificate's addresses. */
bool tls_is_address(const char *name);

/* Makes a session on a connected non-blocking socket; does not begin the handshake. `fd` stays the
 * caller's and must be open until tls_free. */
struct tls *tls_accept(struct tls_context *context, int fd);
struct tls *tls_connect(struct tls_context *context, int fd, const struct tls_peer *peer);

/* Frees a session without close_notify, which tls_shutdown sends. NULL is fine. */
void tls_free(struct tls *t);

enum tls_result {
    TLS_OK,
    TLS_WANT_READ,  /* call again when the socket is readable */
    TLS_WANT_WRITE, /* call again when the socket is writable */
    TLS_CLOSED,     /* the peer has ended the stream */
    TLS_FAILED,     /* a permanent failure; tls_error() */
};

enum tls_result tls_handshake(struct tls *t);

/* Reads up to `size` bytes; *ret_len > 0 only with TLS_OK. */
enum tls_result tls_read(struct tls *t, char *to, size_t size, size_t *ret_len);

/* Writes some of `bytes` (not empty). After TLS_WANT_.. the next call must begin with the same
 * bytes; their address may differ, and more may follow. */
enum tls_result tls_write(struct tls *t, struct slice bytes, size_t *ret_len);

/* Sends the end of the output, without waiting for the peer. */
void tls_shutdown(struct tls *t);

/* Can tls_read return bytes although the socket is not readable? */
bool tls_pending(const struct tls *t);

/* A client's proof of its server's identity. */
enum tls_trust {
    TLS_ANONYMOUS, /* no certificate */
    TLS_UNTRUSTED, /* not signed by a trusted authority, or expired */
    TLS_TRUSTED,   /* signed, but no expected name matches, or there is none */
    TLS_VERIFIED,  /* signed, and for an expected name */
    TLS_DANE_TA,   /* an issuer matches a TLSA record, and a name is expected */
    TLS_DANE_EE,   /* the certificate itself matches a TLSA record */
};
enum tls_trust tls_trust(const struct tls *t);

/* Has the server's certificate one of these names (`dns_ids`: as in tls_peer)? Does not check who
 * has signed it. */
bool tls_is_for(const struct tls *t, const char *const *names, size_t count, bool dns_ids);

/* Returns "TLSv1.3" and "TLS_AES_256_GCM_SHA384", after the handshake; the strings are static. */
const char *tls_version(const struct tls *t);
const char *tls_cipher(const struct tls *t);

/* Appends "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits)"; call it after the
 * handshake. */
void tls_describe(const struct tls *t, struct buf *out);

/* Appends a description of the peer's certificate, even of a refused one, as one printable line:
 * "mx.example.org www.example.org; issued by Example CA; until 2026-12-01". Appends nothing if
 * there was none. At most TLS_NAMES_SHOWN names. */
#define TLS_NAMES_SHOWN 20
void tls_describe_certificate(const struct tls *t, struct buf *out);

/* Returns the reason of a failure as one printable line; empty without a failure. Lasts as long as
 * the session. */
const char *tls_error(const struct tls *t);

#endif
