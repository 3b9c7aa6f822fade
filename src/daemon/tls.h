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
#ifndef DAEMON_TLS_H
#define DAEMON_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

struct tls_context;
struct tls;

/* A server's: certificate chain (own certificate first) and private key, both PEM. NULL with a text
 * appended to *ret_error when they are no good. */
struct tls_context *tls_server_new(struct slice certificate, struct slice key,
                                   struct buf *ret_error);

/* A client's. `authorities` is PEM with the certificates to trust; empty: nobody is trusted, and
 * every session that asks for verification fails. */
struct tls_context *tls_client_new(struct slice authorities, struct buf *ret_error);

/* Sessions that exist go on. NULL is fine. */
void tls_context_free(struct tls_context *context);

/* What a client wants of the server; texts are copied. */
struct tls_peer {
    const char *sni;  /* server name to send; NULL (or an IP address) = none */
    const char *name; /* host name the certificate must be for when `verify`; when not, it only
                         decides between TLS_TRUSTED and TLS_VERIFIED. NULL = any */
    bool verify;      /* the handshake fails unless the certificate is verified */
};

/* A session on a connected non-blocking socket; the handshake is not begun. `fd` stays the
 * caller's and must be open until tls_free. */
struct tls *tls_accept(struct tls_context *context, int fd);
struct tls *tls_connect(struct tls_context *context, int fd, const struct tls_peer *peer);

/* Does not say goodbye; tls_shutdown does. NULL is fine. */
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

/* How much a client knows of the server it talks to; for the log. */
enum tls_trust {
    TLS_ANONYMOUS, /* no certificate */
    TLS_UNTRUSTED, /* not signed by an authority, or out of date */
    TLS_TRUSTED,   /* signed, but the name does not match, or none was asked for */
    TLS_VERIFIED,  /* signed, and for the name asked for */
};
enum tls_trust tls_trust(const struct tls *t);

/* Append "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits)". After the handshake. */
void tls_describe(const struct tls *t, struct buf *out);

/* Why it failed, as one printable line; empty before. Lasts as long as the session. */
const char *tls_error(const struct tls *t);

#endif
