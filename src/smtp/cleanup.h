/*
 * The clean-up of incoming mail, by each way in: SMTP, LMTP, `sendmail` and HTTP. People and
 * devices leave out fields that each message must have, and send fields that no recipient may see.
 *
 *                                               own clients    strangers
 *   Bcc, Resent-Bcc, Return-Path,
 *   Content-Length; `From ' lines on top        removed        removed
 *   From, Date, Message-ID, if missing          added          added by always_add_missing_headers
 *   addresses without a domain in From, To, ..  @$myorigin     unchanged
 *   addresses in From, To, ..                   canonical      unchanged
 *   fields over header_size_limit               cut            cut
 *   empty line before the body, if missing      added          added
 *
 * Own clients are those that may relay: of relay_networks, with a login or a token, and users of
 * this machine. cleanup_rules has the part of the table that depends on the client.
 *
 * The content passes in wire form (lines end with CRLF), field by field. All other bytes stay
 * unchanged, so that a signature over them stays valid. The result does not depend on how the input
 * is split, and a second clean-up changes nothing, if the added fields are within
 * header_size_limit. It is at most CLEANUP_GROWTH_MAX bytes longer than the input. No more than one
 * field is kept in memory.
 *
 * Departures from Postfix's cleanup(8), which does the same: `From ' lines are removed, not renamed
 * X-Mailbox-Line; completed fields keep their folding; several words, a!b and a%b are no address to
 * complete; with Resent- fields the original's From, Date and Message-ID are added, not Resent-
 * ones.
 */
#ifndef SMTP_CLEANUP_H
#define SMTP_CLEANUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "envelope.h"
#include "header.h"
#include "slice.h"

/* A line is read in pieces of so many bytes, as in Postfix (its line_length_limit). A field must
 * have its colon in the first one. */
#define CLEANUP_PIECE 2048
/* Largest limit of a field; a larger one means this. */
#define CLEANUP_FIELD_MAX (4u << 20)
/* Size of the header section, in its new form, up to which addresses are completed. */
#define CLEANUP_COMPLETED_MAX (1u << 20)
/* Bytes of the fields that are added. */
#define CLEANUP_MISSING_MAX 4000u
/* Maximum growth: those two, an empty line, and the end of an unfinished line. */
#define CLEANUP_GROWTH_MAX (CLEANUP_COMPLETED_MAX + CLEANUP_MISSING_MAX + 4)

/* Receives the result, in order. */
typedef void cleanup_put(void *arg, struct slice bytes);

/* Sets the values of missing fields. Called at most once for a message. The slices last until the
 * function that called returns. */
typedef void cleanup_values(void *arg, struct header_missing *ret_values);

/* Returns the canonical form of an address in a field of senders or of recipients: the address
 * itself, or one in `room`. */
typedef struct slice cleanup_canonical(void *arg, bool of_sender, struct slice address,
                                       char room[ADDRESS_MAX]);

/* The part of the table for one client; all is borrowed until cleanup_fini. */
struct cleanup_rules {
    uint64_t field_bytes; /* header_size_limit */
    struct slice origin;  /* domain of addresses that have none; empty: all stay unchanged */
    cleanup_canonical *canonical; /* with an origin only; NULL: there are no such maps */
    cleanup_values *values;       /* NULL: missing fields are not added */
    cleanup_put *put;
    void *arg; /* of these functions */
};

/* Place of the next piece. Private to cleanup.c. */
enum cleanup_place {
    CLEANUP_TOP,       /* before the first field */
    CLEANUP_FROM_LINE, /* within a `From ' line of more than one piece */
    CLEANUP_HEADER,
    CLEANUP_BODY,
};

/* A clean-up in progress. Its fields are private to cleanup.c. */
struct cleanup {
    struct cleanup_rules rules;
    enum cleanup_place place;
    bool in_line;     /* the next piece continues a line */
    struct buf held;  /* a field so far, then a piece so far */
    size_t field_len; /* of the field in `held` */
    uint64_t counted; /* bytes of the field as Postfix counts them: LF for CRLF, none at its end */
    struct buf room;  /* a completed field */
    unsigned present; /* of enum header_presence */
    uint64_t written; /* bytes of the new header section */
};

void cleanup_begin(struct cleanup *c, const struct cleanup_rules *rules);

/* Cleans the next bytes of the content, and passes on what is done. */
void cleanup_feed(struct cleanup *c, struct slice content);

/* Ends the content, perhaps within its header section, and passes on the rest. */
void cleanup_end(struct cleanup *c);

/* Releases all memory. May be called at any time, also twice, and on a zeroed struct. */
void cleanup_fini(struct cleanup *c);

/* Returns the number of bytes that were fed and not passed on yet. */
size_t cleanup_held(const struct cleanup *c);

#endif
