/*
 * TLS: the one adapter to OpenSSL 3. Nothing else of ours includes an OpenSSL header.
 *
 * A context is made from bytes in memory, since a confined process opens no files, and serves any
 * number of sessions. A session works on a non-blocking socket that its owner keeps, polls and
 * closes; every call either finishes or says what the socket has to be ready for.
 *
 * Protocols below TLS 1.2, renegotiation and compression are off. Buffers are released while a
 * session is idle (about 40 KiB less for each). A peer that closes the connection without saying so
 * in TLS counts as TLS_CLOSED: SMTP marks the end of everything itself, and many peers do it.
 *
 * OpenSSL writes with write(2): the process must ignore SIGPIPE (streams_new sees to it). Make one
 * context before the process is confined, so that the library has loaded what it needs.
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

/* A server's: certificate chain (own certificate first) and private key, both PEM. NULL with a text
 * appended to *ret_error when they are no good. */
struct tls_context *tls_server_new(struct slice certificate, struct slice key,
                                   struct buf *ret_error);

/* A client's. `authorities` is PEM with the certificates to trust; empty: no server is trusted, and
 * every session that asks for verification fails. NULL with a text appended to *ret_error when it
 * is not empty and has none, or a broken one. */
struct tls_context *tls_client_new(struct slice authorities, struct buf *ret_error);

/* The authorities that the system trusts, PEM: initialises *ret_pem (owned by the caller), which
 * stays empty where there are none. For use before a process is confined. */
void tls_read_system_authorities(struct buf *ret_pem);

/* For a library that makes its own sessions: those of `openssl_context` (SSL_CTX *) fail unless the
 * certificate has `name` as a DNS-ID (RFC 6125); the common name does not count. */
bool tls_demand_dns_id(void *openssl_context, const char *name);

/* Sessions that exist go on. NULL is fine. */
void tls_context_free(struct tls_context *context);

/* A TLSA record (RFC 6698, section 2.1). */
struct tls_record {
    uint8_t usage;    /* 2: DANE-TA, 3: DANE-EE; no others */
    uint8_t selector; /* 0: certificate, 1: its public key */
    uint8_t matching; /* 0: all of it, 1: SHA-256, 2: SHA-512 */
    struct slice data;
};

/* Is the data what the record says it is: a hash of the right length, a certificate, a key? */
bool tls_record_usable(const struct tls_record *record);

/* What a client wants of the server; texts are copied. */
struct tls_peer {
    const char *sni; /* server name to send; NULL (or an IP address) = none */
    /* Names of which the certificate must have one when `verify`; when not, they only decide
     * between TLS_TRUSTED and TLS_VERIFIED. ".example.org" is every name below example.org.
     * None = any will do. */
    const char *const *names;
    size_t name_count;
    bool dns_ids; /* a name must be one of the DNS-IDs; without it the common name counts where the
                     certificate has none (RFC 6125, section 6.4.4) */
    bool verify;  /* the handshake fails unless the certificate is verified */
    /* With records (and `verify`): one of them must match, in place of the authorities. With
     * DANE-EE neither names nor dates count (RFC 7672, section 3.1.1); with DANE-TA the names do,
     * of which the first is then the one under which the records were found. */
    const struct tls_record *records;
    size_t record_count;
};

/* Is it an IP address? Such names are compared with a certificate's addresses. */
bool tls_is_address(const char *name);

/* A session on a connected non-blocking socket; the handshake is not begun. `fd` stays the
 * caller's and must be open until tls_free. */
struct tls *tls_accept(struct tls_context *context, int fd);
struct tls *tls_connect(struct tls_context *context, int fd, const struct tls_peer *peer);

/* Sends no close_notify; tls_shutdown does. NULL is fine. */
void tls_free(struct tls *t);

enum tls_result {
    TLS_OK,
    TLS_WANT_READ,  /* call again when the socket is readable */
    TLS_WANT_WRITE, /* ... writable */
    TLS_CLOSED,     /* the peer has ended the stream */
    TLS_FAILED,     /* for good; tls_error() */
};

enum tls_result tls_handshake(struct tls *t);

/* Read up to `size` bytes; *ret_len > 0 with TLS_OK only. */
enum tls_result tls_read(struct tls *t, char *to, size_t size, size_t *ret_len);

/* Write some of `bytes` (not empty). After TLS_WANT_ the next call must offer the same bytes,
 * perhaps at another address and perhaps with more behind them. */
enum tls_result tls_write(struct tls *t, struct slice bytes, size_t *ret_len);

/* Say that nothing more will be written, without waiting for the peer. */
void tls_shutdown(struct tls *t);

/* May tls_read have something without the socket becoming readable? */
bool tls_pending(const struct tls *t);

/* How much a client knows of the server it talks to. */
enum tls_trust {
    TLS_ANONYMOUS, /* no certificate */
    TLS_UNTRUSTED, /* not signed by an authority, or out of date */
    TLS_TRUSTED,   /* signed, but no name matches, or none was asked for */
    TLS_VERIFIED,  /* signed, and for a name asked for */
    TLS_DANE_TA,   /* an issuer matches a TLSA record, and the name is one asked for */
    TLS_DANE_EE,   /* the certificate itself matches one */
};
enum tls_trust tls_trust(const struct tls *t);

/* Has the server's certificate one of these names (`dns_ids`: as tls_peer has it)? Says nothing of
 * who has signed it. */
bool tls_is_for(const struct tls *t, const char *const *names, size_t count, bool dns_ids);

/* "TLSv1.3" and "TLS_AES_256_GCM_SHA384". After the handshake; static. */
const char *tls_version(const struct tls *t);
const char *tls_cipher(const struct tls *t);

/* Append "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits)". After the handshake. */
void tls_describe(const struct tls *t, struct buf *out);

/* Append what the peer's certificate says of itself, also when it was refused, as one printable
 * line: "mx.example.org www.example.org; issued by Example CA; until 2026-12-01". Nothing when
 * there was none. At most TLS_NAMES_SHOWN names. */
#define TLS_NAMES_SHOWN 20
void tls_describe_certificate(const struct tls *t, struct buf *out);

/* Why it failed, as one printable line; empty before. Lasts as long as the session. */
const char *tls_error(const struct tls *t);

#endif
