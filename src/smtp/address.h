/*
 * Mail addresses as RFC 5321 writes them on the wire, and as RFC 5322 writes them in headers.
 *
 * They have two forms here.
 * - A *path* is the argument of MAIL FROM and RCPT TO: `<local@domain>`, perhaps with a source
 *   route.
 * - A *stored address* is the form that the rest of the program carries, keeps and compares:
 *   `local@domain` without angle brackets, the local part quoted if and only if it must be, without
 *   control characters, at most ADDRESS_MAX bytes. The null sender is the empty string. A stored
 *   address in angle brackets is a path again.
 *
 * A domain is a host name, an address literal in square brackets, or with ADDRESS_UTF8 a name with
 * U-labels. Case is kept as given. Slices point into the input and last as long as it does.
 *
 * As Postfix does, the parsers accept some forms that RFC 5321 forbids and people send: dots at odd
 * places of a local part, which the stored form quotes; one dot after a domain, which it drops;
 * blanks inside the angle brackets; and a semicolon after them.
 */
#ifndef SMTP_ADDRESS_H
#define SMTP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "envelope.h"
#include "slice.h"

/* Limit of RFC 5321, 4.5.3.1.2. The local part may be longer than the 64 octets of 4.5.3.1.1, as in
 * VERP and SRS senders, as long as the stored address is at most ADDRESS_MAX bytes. */
#define ADDRESS_DOMAIN_MAX 255

/* Forms that a caller accepts; a bit set. */
enum address_option {
    ADDRESS_UTF8 = 1 << 0,       /* UTF-8 in local part and domain (RFC 6531) */
    ADDRESS_NULL = 1 << 1,       /* the null path `<>` */
    ADDRESS_POSTMASTER = 1 << 2, /* `<postmaster>`, in any case, without a domain */
    ADDRESS_NO_DOMAIN = 1 << 3,  /* any local part without a domain */
    ADDRESS_NO_BRACKETS = 1 << 4 /* a path without `<` and `>`: it ends at a blank */
};

enum address_error {
    ADDRESS_OK,
    ADDRESS_NOT_A_PATH,      /* no `<`, or empty input */
    ADDRESS_UNCLOSED,        /* no `>` */
    ADDRESS_EMPTY,           /* `<>` where an address is required */
    ADDRESS_BAD_ROUTE,       /* an invalid source route */
    ADDRESS_BAD_LOCAL,       /* neither dot-string nor quoted string */
    ADDRESS_TOO_LONG,        /* the stored address is longer than ADDRESS_MAX */
    ADDRESS_NO_DOMAIN_GIVEN, /* only a local part where a domain is required */
    ADDRESS_BAD_DOMAIN,      /* neither host name nor address literal */
    ADDRESS_DOMAIN_TOO_LONG,
    ADDRESS_NEEDS_UTF8, /* non-ASCII bytes without ADDRESS_UTF8 (553 5.6.7) */
    ADDRESS_BAD_UTF8,   /* non-ASCII bytes that are not UTF-8 */
};

/* Parts of an address as written; both empty for the null path. The local part keeps its quotes. */
struct address {
    struct slice local;
    struct slice domain; /* empty if there is none; literals keep their brackets */
};

/* Parses the path at the start of `in`. A source route is checked and dropped. On ADDRESS_OK
 * *ret_used is the length of the path, brackets included; the caller handles the rest. Outputs are
 * untouched on failure. */
enum address_error address_parse_path(struct slice in, unsigned options,
                                      struct address *ret_address, size_t *ret_used);

/* Parses `local@domain` that fills `in`. Its quotes may be superfluous: see address_print. */
enum address_error address_parse(struct slice in, unsigned options, struct address *ret_address);

/* Returns a sentence without full stop for the reply that refuses such a path. */
const char *address_error_text(enum address_error error);

/* Appends the stored form. Returns false if the buffer is full. */
bool address_print(const struct address *address, struct buf *out);

/* Appends the local part without its quotes, as the name of a mailbox or alias. It may contain any
 * printable byte, blanks and `@` included. */
bool address_unquote_local(struct slice local, struct buf *out);

/* Appends `bytes` as a local part, quoted if necessary, as an empty one is. Returns false, with
 * partial output, if `bytes` has control characters, which no local part can have. */
bool address_quote_local(struct slice bytes, struct buf *out);

/* Is this a stored address: valid, and exactly as address_print prints it? The empty string is one
 * with ADDRESS_NULL. */
bool address_is_stored(struct slice stored, unsigned options);

/* Appends an address with an unquoted local part in its form for SMTP, or unchanged if it has no
 * such form or is the null sender. The error of *out is sticky. */
void address_put_external(struct slice address, struct buf *out);

/* Splits a stored address at its last `@` outside quotes; without one, all is local part. */
struct address address_split(struct slice stored);

/* Is this a host name or address literal within ADDRESS_DOMAIN_MAX? */
bool address_domain_valid(struct slice domain, bool utf8);

/* Are all bytes below 128? */
bool address_is_ascii(struct slice bytes);

/* Is this well-formed UTF-8 (printable.h) without C1 control characters, which addresses must not
 * contain? */
bool address_utf8_valid(struct slice bytes);

/*
 * The addresses of one header value (To, Cc, Bcc, From, ...), one at a time, for `sendmail -t`.
 * Display names, quoted strings, comments, groups, routes, folding and blanks between the parts of
 * an address are parsed. Encoded words occur only in display names and are skipped. Linear in the
 * length of the value.
 */
struct address_list {
    struct slice rest; /* unread rest of the header value; borrowed */
    unsigned options;  /* of enum address_option */
    bool in_group;
};

/* Maximum nesting of comments; deeper nesting makes an element bad. */
#define ADDRESS_COMMENT_DEPTH_MAX 32

enum address_list_event {
    ADDRESS_LIST_ADDRESS, /* *out has the next address in stored form */
    ADDRESS_LIST_BAD,     /* the next element is not an address; *out has its first ADDRESS_MAX
                           * bytes, with control characters replaced */
    ADDRESS_LIST_END,
};

/* Starts reading a header value. ADDRESS_NULL, ADDRESS_POSTMASTER and ADDRESS_NO_BRACKETS have no
 * effect. */
void address_list_init(struct address_list *list, struct slice value, unsigned options);

/* Reads the next element; *out, of at least ADDRESS_MAX bytes, is cleared first. */
enum address_list_event address_list_next(struct address_list *list, struct buf *out);

#endif
