/*
 * Mail addresses as RFC 5321 writes them on the wire, and as RFC 5322 writes them in headers.
 *
 * Two forms are known here.
 * - A *path* is what stands in MAIL FROM and RCPT TO: `<local@domain>`, perhaps with a source
 * route.
 * - A *stored address* is what the rest of the program carries, keeps and compares: `local@domain`
 *   without angle brackets, the local part quoted if and only if it has to be, without control
 *   characters, at most ADDRESS_MAX bytes. The null sender is the empty string. Put between angle
 *   brackets it is a path again.
 *
 * A domain is a host name, an address literal in square brackets, or with ADDRESS_UTF8 a name with
 * U-labels. Case is kept as given. Slices point into the input and last as long as it does.
 */
#ifndef SMTP_ADDRESS_H
#define SMTP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "envelope.h"
#include "slice.h"

/* RFC 5321, 4.5.3.1.1 and 4.5.3.1.2. The local part is measured as it would be stored. */
#define ADDRESS_LOCAL_MAX  64
#define ADDRESS_DOMAIN_MAX 255
_Static_assert(ADDRESS_LOCAL_MAX + 1 + ADDRESS_DOMAIN_MAX <= ADDRESS_MAX, "an address fits");

/* What a caller is ready to accept; a bit set. */
enum address_option {
    ADDRESS_UTF8 = 1 << 0,       /* UTF-8 in local part and domain (RFC 6531) */
    ADDRESS_NULL = 1 << 1,       /* the null path `<>` */
    ADDRESS_POSTMASTER = 1 << 2, /* `<postmaster>`, in any case, without a domain */
    ADDRESS_NO_DOMAIN = 1 << 3,  /* any local part without a domain */
    ADDRESS_NO_BRACKETS = 1 << 4 /* a path without `<` and `>`: it ends at a blank */
};

enum address_error {
    ADDRESS_OK,
    ADDRESS_NOT_A_PATH, /* no `<`, or nothing at all */
    ADDRESS_UNCLOSED,   /* no `>` */
    ADDRESS_EMPTY,      /* `<>` where an address is needed */
    ADDRESS_BAD_ROUTE,  /* a source route that is none */
    ADDRESS_BAD_LOCAL,  /* neither dot-string nor quoted string */
    ADDRESS_LOCAL_TOO_LONG,
    ADDRESS_NO_DOMAIN_GIVEN, /* a local part alone where a domain is needed */
    ADDRESS_BAD_DOMAIN,      /* neither host name nor address literal */
    ADDRESS_DOMAIN_TOO_LONG,
    ADDRESS_NEEDS_UTF8, /* non-ASCII bytes without ADDRESS_UTF8 (553 5.6.7) */
    ADDRESS_BAD_UTF8,   /* non-ASCII bytes that are not UTF-8 */
};

/* The parts as written; both empty for the null path. The local part keeps its quotes. */
struct address {
    struct slice local;
    struct slice domain; /* empty when there is none; literals keep their brackets */
};

/* Parse the path at the start of `in`. A source route is checked and dropped. On ADDRESS_OK
 * *ret_used is the length of the path, brackets included; what follows is the caller's. Outputs are
 * untouched on failure. */
enum address_error address_parse_path(struct slice in, unsigned options,
                                      struct address *ret_address, size_t *ret_used);

/* Parse `local@domain` that is all of `in`. Quoting may be needless: see address_print. */
enum address_error address_parse(struct slice in, unsigned options, struct address *ret_address);

/* A sentence without full stop for the reply that refuses such a path. */
const char *address_error_text(enum address_error error);

/* Append the stored form. False when the buffer is full. */
bool address_print(const struct address *address, struct buf *out);

/* Append the local part without its quoting, as a mailbox or alias is named. May hold any printable
 * byte, blanks and `@` included. */
bool address_unquote_local(struct slice local, struct buf *out);

/* Append `bytes` as a local part, quoted if need be; false (nothing useful appended) when it is
 * empty or has bytes no local part can have: control characters. */
bool address_quote_local(struct slice bytes, struct buf *out);

/* Is it a stored address: valid, and printed the way address_print does? The empty string is one
 * with ADDRESS_NULL. */
bool address_is_stored(struct slice stored, unsigned options);

/* Append an address whose local part is not quoted as it stands in SMTP; as it is where that can't
 * be done. *out is sticky. */
void address_put_external(struct slice address, struct buf *out);

/* Split a stored address at its last `@` outside quotes; without one, all is local part. */
struct address address_split(struct slice stored);

/* Is it a host name or address literal within ADDRESS_DOMAIN_MAX? */
bool address_domain_valid(struct slice domain, bool utf8);

/* Only bytes below 128? */
bool address_is_ascii(struct slice bytes);

/* Well-formed UTF-8 (printable.h) without C1 control characters, which have no place in
 * an address. */
bool address_utf8_valid(struct slice bytes);

/*
 * The addresses of one header value (To, Cc, Bcc, From, ...), one at a time, for `sendmail -t`.
 * Understands display names, quoted strings, comments, groups, routes, folding and blanks between
 * the parts of an address. Encoded words only ever stand in display names and are passed over.
 * Linear in the length of the value.
 */
struct address_list {
    struct slice rest; /* borrowed header value, not yet read */
    unsigned options;  /* of enum address_option */
    bool in_group;
};

/* Deeper nested comments make an element bad. */
#define ADDRESS_COMMENT_DEPTH_MAX 32

enum address_list_event {
    ADDRESS_LIST_ADDRESS, /* *out holds the next address in stored form */
    ADDRESS_LIST_BAD,     /* the next element is no address; *out holds the first ADDRESS_MAX bytes
                             of it, control characters replaced */
    ADDRESS_LIST_END,
};

/* ADDRESS_NULL, ADDRESS_POSTMASTER and ADDRESS_NO_BRACKETS mean nothing here. */
void address_list_init(struct address_list *list, struct slice value, unsigned options);

/* The next element; *out, of at least ADDRESS_MAX bytes, is cleared first. */
enum address_list_event address_list_next(struct address_list *list, struct buf *out);

#endif
