/*
 * The mail server's side of the milter protocol (version 6, libmilter's), for one filter: without
 * I/O.
 *
 * The owner has the socket and the clock. It takes one step at a time and asks for what came of it:
 *
 *     milter_init                                      the connection is there
 *     a step: milter_connect, _helo, _mail, _rcpt, _data, _header, _end_of_header, _body, _end
 *     drain:  milter_next until MILTER_VERDICT or MILTER_FAILED; while it says MILTER_NEED_INPUT,
 *             write milter_output, read, give the bytes to milter_input
 *     at milter_deadline, when no input is there: milter_expire; drain
 *
 *   NEGOTIATING -> READY --step--> WAITING --verdict--> READY ... -> milter_quit
 *                                     |
 *                                     +--> FAILED: too late, gone, or out of step
 *
 * A step that the filter does not want, or to which it wants to say nothing, has its verdict
 * (CONTINUE) at once, so a header passes in one write. After ACCEPT the rest of the message, or of
 * the session when it came before MAIL, passes the same way.
 *
 *   connect helo (mail rcpt.. data header.. end_of_header body.. end | abort)..  quit
 *
 * Changes come as events of the last step, before its verdict: the owner collects them and applies
 * all of them or, if the filter fails, none. Everything a filter says is checked here: only actions
 * that it has asked for at the beginning, only at the end of a message, names and values of header
 * fields that are some, replies of 4xx and 5xx. What does not fit is MILTER_FAILED.
 *
 * Not offered: rejected recipients (SMFIP_RCPT_REJ), larger packets (SMFIP_MDS_*), unknown
 * commands. Lists of wanted macros are passed over: all that the owner knows are always sent.
 *
 * Source: libmilter's mfdef.h of sendmail 8.14 and later, for the numbers and letters.
 */
#ifndef SMTP_MILTER_H
#define SMTP_MILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* A body goes out in pieces of at most so many bytes. */
#define MILTER_BODY_MAX 65535
/* The longest packet that is taken from a filter. */
#define MILTER_PACKET_MAX (128 * 1024)
/* Most output that waits for the socket: no step is to be taken while more than half of it does. */
#define MILTER_OUTPUT_MAX (512 * 1024)
/* Longest text of a reply. */
#define MILTER_TEXT_MAX 480

struct milter_config {
    int64_t command_timeout_us; /* milter_command_timeout */
    int64_t content_timeout_us; /* milter_content_timeout: from a piece of content, or its end, to
                                   the verdict, each sign of progress counts anew */
    unsigned version;           /* the highest that is offered, 2..6; 0: 6 */
};

enum milter_verdict {
    MILTER_CONTINUE,
    MILTER_ACCEPT,   /* the filter wants no more of this message, or session */
    MILTER_REJECT,   /* 5.7.1; of a recipient when the step was one */
    MILTER_TEMPFAIL, /* 4.7.1, likewise */
    MILTER_REPLY,    /* the same with the filter's own code, status, text */
    MILTER_DISCARD,  /* take the message and throw it away */
    MILTER_CLOSE,    /* 421 and close the client's connection */
};

/* What a filter does to a message. */
enum milter_change {
    MILTER_ADD_HEADER,    /* name, value: at the end of the header */
    MILTER_INSERT_HEADER, /* likewise, so that it is number `index` of all; 0 is the first */
    MILTER_CHANGE_HEADER, /* number `index` (from 1) of this name; value empty: remove it */
    MILTER_ADD_RCPT,      /* value: the address in <>, or without; parameters are dropped */
    MILTER_DELETE_RCPT,   /* likewise */
    MILTER_CHANGE_SENDER, /* likewise */
    MILTER_REPLACE_BODY,  /* value: a piece, the first or one more; may be empty */
    MILTER_QUARANTINE,    /* value: why. Put the message on hold */
};

enum milter_event_type {
    MILTER_NEED_INPUT, /* nothing to tell yet */
    MILTER_VERDICT,
    MILTER_CHANGED,
    MILTER_FAILED, /* `text`: why. The connection is of no more use */
};

/* Slices last until the next call. */
struct milter_event {
    enum milter_event_type type;
    enum milter_verdict verdict;
    unsigned code;       /* MILTER_REPLY: 400..599 */
    struct slice status; /* MILTER_REPLY: "5.7.1" of the same class, or empty */
    struct slice text;   /* MILTER_REPLY, MILTER_FAILED */
    enum milter_change change;
    uint32_t index;
    struct slice name;  /* of a header field: printable, without colon and blanks */
    struct slice value; /* of one: lines end in CRLF and all but the first begin with a blank or
                           tab; without the last line end; begins with the blank that is to stand
                           behind the colon */
};

/* A macro, by the name that filters know it by: "i", "{auth_authen}". */
struct milter_macro {
    const char *name;
    struct slice value;
};

/* Fields are private to milter.c. */
struct milter {
    const struct milter_config *config;
    struct buf in, out;
    size_t taken;    /* of `in`: the packet of the event being reported */
    struct buf text; /* of that event */
    struct mono deadline;
    uint32_t actions, protocol, version;
    uint8_t state, step, offered;
    char error[200];
    bool at_once;      /* the step has its verdict without the filter */
    bool done_session; /* ACCEPT before MAIL */
    bool done_message; /* ACCEPT after it, or another final verdict */
    bool skips_body;
    bool lost;
};

/* A connection was made. *config is borrowed. */
void milter_init(struct milter *m, const struct milter_config *config, struct mono now);
void milter_fini(struct milter *m);

/* May a step be taken? False while negotiating, while one is under way, and after a failure. */
bool milter_is_ready(const struct milter *m);

/* Is there any sense in taking a message's content apart for it? In its body? */
bool milter_wants_content(const struct milter *m);
bool milter_wants_body(const struct milter *m);

/* Between messages: give memory back. What the last event pointed to is gone. */
void milter_rest(struct milter *m);

/* Macros for a step, to be called right before it. They hold until message or session ends. */
enum milter_macros_of {
    MILTER_AT_CONNECT = 'C',
    MILTER_AT_HELO = 'H',
    MILTER_AT_MAIL = 'M',
    MILTER_AT_RCPT = 'R',
    MILTER_AT_DATA = 'T',
    MILTER_AT_END_OF_HEADER = 'N',
    MILTER_AT_END = 'E',
};
void milter_macros(struct milter *m, enum milter_macros_of step, const struct milter_macro *macros,
                   size_t count);

/* The steps. `family` is 4, 6, 'L' (a Unix socket, `address` is its path) or 0 (not known). `name`
 * is the client's host name, or "[address]". */
void milter_connect(struct milter *m, struct slice name, int family, struct slice address,
                    uint16_t port, struct mono now);
void milter_helo(struct milter *m, struct slice helo, struct mono now);
/* `address` without angle brackets; `parameters` as they stood behind it, may be empty. */
void milter_mail(struct milter *m, struct slice address, struct slice parameters, struct mono now);
void milter_rcpt(struct milter *m, struct slice address, struct slice parameters, struct mono now);
void milter_data(struct milter *m, struct mono now);
/* A field as it stands in the message: the value begins behind the colon and has its line ends. */
void milter_header(struct milter *m, struct slice name, struct slice value, struct mono now);
void milter_end_of_header(struct milter *m, struct mono now);
void milter_body(struct milter *m, struct slice piece, struct mono now);
void milter_end(struct milter *m, struct mono now);

/* The transaction is off, in any state: another may begin with milter_mail. A step that was under
 * way has no verdict. */
void milter_abort(struct milter *m);

/* Say goodbye: write the output, close. */
void milter_quit(struct milter *m);

/* Bytes from the filter. Takes all. */
void milter_input(struct milter *m, struct slice in, struct mono now);

/* The next thing to know. */
void milter_next(struct milter *m, struct milter_event *ret_event);

struct buf *milter_output(struct milter *m);

/* When to look for input once more and call milter_expire. */
struct mono milter_deadline(const struct milter *m);
void milter_expire(struct milter *m, struct mono now);

/* The end of the connection, whichever way. */
void milter_lost(struct milter *m);

#endif
