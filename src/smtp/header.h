/*
 * Header fields of RFC 5322: finding them in content, and writing the few that a mail system adds.
 *
 * Content is in wire form (CRLF). A local submission may have bare LF line ends; both are accepted
 * here. Slices point into the content and last as long as it does.
 */
#ifndef SMTP_HEADER_H
#define SMTP_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* One field. The value starts after the colon and keeps its folding, without the last line end. */
struct header_field {
    struct slice name;
    struct slice value;
    struct slice whole; /* name to last line end */
};

/* Cuts the next field from *rest. Returns false at the end of the header section: *rest is then the
 * remainder, the empty line (if any) included. A field that is cut short by the end of `*rest` is
 * returned as it is. */
bool header_next(struct slice *rest, struct header_field *ret_field);

/* Finds the first field called `name`, in any case. *ret_field is untouched if there is none. */
bool header_find(struct slice content, struct slice name, struct header_field *ret_field);

/* Appends the value with folding undone and blanks at both ends removed (RFC 5322, 2.2.3). */
bool header_unfold(struct slice value, struct buf *out);

/* Fields that every message must have (RFC 5322, 3.6); a bit set. */
enum header_presence {
    HEADER_DATE = 1 << 0,
    HEADER_MESSAGE_ID = 1 << 1,
    HEADER_FROM = 1 << 2,
};

/* Values for missing fields. */
struct header_missing {
    struct slice from; /* value of From */
    struct slice hostname;
    struct wall time;
    int utc_offset_minutes;
    uint64_t random; /* unique among messages of this time */
};

/* Appends Message-ID, Date and From, in Postfix's order, except those that are `present` (a set of
 * enum header_presence). */
bool header_put_missing(unsigned present, const struct header_missing *m, struct buf *out);

/* Appends a date, as "Fri, 21 Nov 1997 09:55:06 -0600". The offset is minutes east of UTC,
 * -1439..1439, and must be given: no function here reads a clock or a time zone. `time` before 1970
 * or beyond 9999 is clamped. */
#define HEADER_DATE_MAX 32
bool header_date(struct wall time, int utc_offset_minutes, struct buf *out);

/* Returns the protocol's name for the `with` clause (RFC 3848, RFC 6531): SMTP, ESMTP, ESMTPS,
 * LMTP, LMTPS, UTF8SMTP, UTF8SMTPS, UTF8LMTP, UTF8LMTPS. If the client has logged in, all but the
 * first get an A at the end, as ESMTPA and ESMTPSA. */
const char *header_protocol(bool lmtp, bool extended, bool tls, bool login, bool utf8);

/* Values of a Received: field. All are borrowed. Texts come from outside and are made harmless:
 * control characters, and in comments parentheses and backslashes, become `?`. */
struct header_trace {
    struct slice helo;        /* name that the client used in HELO; may be empty */
    struct slice client_name; /* from DNS; empty = "unknown" */
    struct slice client_ip;   /* text without brackets, "192.0.2.1" or "2001:db8::1" */
    const char *protocol;     /* result of header_protocol */
    struct slice tls;         /* "TLSv1.3 with cipher ..."; empty = none */
    struct slice hostname;    /* ours */
    struct slice recipient;   /* the only recipient, stored form, for the `for` clause; else
                               * empty */
    struct wall time;
    int utc_offset_minutes;
};

/* Appends "Received: ... id " to `before` and the text after the queue id, line end included, to
 * `after`: the id is not known until the message is committed. */
bool header_received(const struct header_trace *trace, struct buf *before, struct buf *after);

#endif
