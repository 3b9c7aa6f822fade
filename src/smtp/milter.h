/*
 * The mail server's side of the milter protocol (version 6, libmilter's), for one filter: without
 * I/O.
 *
 * The owner has the socket and the clock. It takes one step at a time and then drains the results:
 *
 *     milter_init                                      after connecting
 *     a step: milter_connect, _helo, _mail, _rcpt, _data, _header, _end_of_header, _body, _end
 *     drain:  milter_next until MILTER_VERDICT or MILTER_FAILED; while it returns
 *             MILTER_NEED_INPUT, write milter_output, read, pass the bytes to milter_input
 *     at milter_deadline, if there is no input: milter_expire; drain
 *
 *   NEGOTIATING -> READY --step--> WAITING --verdict--> READY ... -> milter_quit
 *                                     |
 *                                     +--> FAILED: too late, gone, or out of step
 *
 * A step that the filter does not want, or does not answer, has its verdict (CONTINUE) at once, so
 * a header is sent in one write. After ACCEPT the rest of the message, or of the session if ACCEPT
 * came before MAIL, passes the same way.
 *
 *   connect helo (mail rcpt.. data header.. end_of_header body.. end | abort)..  quit
 *
 * Changes are events of the last step, before its verdict: the owner collects them and applies all
 * of them or, if the filter fails, none. All of a filter's answers are checked here. Allowed are
 * actions that it requested in the negotiation, only at the end of a message, valid names and
 * values of header fields, and replies of 4xx and 5xx. Any other answer is MILTER_FAILED.
 *
 * Not offered: rejected recipients (SMFIP_RCPT_REJ), larger packets (SMFIP_MDS_*), unknown
 * commands. Lists of wanted macros are ignored: all macros that the owner has are always sent.
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

/* Maximum of bytes of one piece of a body. */
#define MILTER_BODY_MAX 65535
/* Longest packet that is accepted from a filter. */
#define MILTER_PACKET_MAX (128 * 1024)
/* Maximum of output that waits for the socket. The owner must not take a step while more than half
 * of it waits. */
#define MILTER_OUTPUT_MAX (512 * 1024)
/* Longest text of a reply. */
#define MILTER_TEXT_MAX 480

struct milter_config {
    int64_t command_timeout_us; /* milter_command_timeout */
    int64_t content_timeout_us; /* milter_content_timeout: from a piece of content, or its end, to
                                 * the verdict; restarted by each sign of progress */
    unsigned version;           /* highest version that is offered, 2..6; 0: 6 */
};

enum milter_verdict {
    MILTER_CONTINUE,
    MILTER_ACCEPT,   /* the filter wants no more of this message, or session */
    MILTER_REJECT,   /* 5.7.1; refuses the recipient after milter_rcpt */
    MILTER_TEMPFAIL, /* 4.7.1; refuses the recipient after milter_rcpt */
    MILTER_REPLY,    /* refuses with the filter's own code, status and text */
    MILTER_DISCARD,  /* accept the message and drop it */
    MILTER_CLOSE,    /* reply 421 and close the client's connection */
};

/* A change that a filter makes to a message. */
enum milter_change {
    MILTER_ADD_HEADER,    /* name, value: at the end of the header */
    MILTER_INSERT_HEADER, /* name, value: so that it is number `index` of all fields; 0 is the
                           * first */
    MILTER_CHANGE_HEADER, /* field number `index` (from 1) of this name; value empty: remove it */
    MILTER_ADD_RCPT,      /* value: the address without <>; parameters are dropped */
    MILTER_DELETE_RCPT,   /* value: as for MILTER_ADD_RCPT */
    MILTER_CHANGE_SENDER, /* value: as for MILTER_ADD_RCPT */
    MILTER_REPLACE_BODY,  /* value: the first or a further piece; may be empty */
    MILTER_QUARANTINE,    /* value: the reason. Put the message on hold */
};

enum milter_event_type {
    MILTER_NEED_INPUT, /* no result yet */
    MILTER_VERDICT,
    MILTER_CHANGED,
    MILTER_FAILED, /* `text` is the reason; the connection can't be used any longer */
};

/* An event. Slices last until the next call. */
struct milter_event {
    enum milter_event_type type;
    enum milter_verdict verdict;
    unsigned code;       /* MILTER_REPLY: 400..599 */
    struct slice status; /* MILTER_REPLY: "5.7.1" of the same class, or empty */
    struct slice text;   /* MILTER_REPLY, MILTER_FAILED */
    enum milter_change change;
    uint32_t index;
    struct slice name;  /* name of a header field: printable, without colon and blanks */
    struct slice value; /* value of a header field: lines end in CRLF and all but the first begin
                         * with a blank or tab; without the last line end; begins with the blank
                         * that follows the colon */
};

/* A macro, under the name that filters use: "i", "{auth_authen}". */
struct milter_macro {
    const char *name;
    struct slice value;
};

/* A connection to a filter. Fields are private to milter.c. */
struct milter {
    const struct milter_config *config;
    struct buf in, out;
    size_t taken;    /* bytes of `in`: the packet of the event being reported */
    struct buf text; /* text of that event */
    struct mono deadline;
    uint32_t actions, protocol, version;
    uint8_t state, step, offered;
    char error[200];
    bool at_once;      /* whether the step has its verdict without the filter */
    bool done_session; /* ACCEPT before MAIL */
    bool done_message; /* ACCEPT after MAIL, or another final verdict */
    bool skips_body;
    bool lost;
};

/* Starts the negotiation on a new connection. *config is borrowed. */
void milter_init(struct milter *m, const struct milter_config *config, struct mono now);
void milter_fini(struct milter *m);

/* Can a step be taken? False while negotiating, during a step, and after a failure. */
bool milter_is_ready(const struct milter *m);

/* Does the filter still want a message's content, or (milter_wants_body) its body? */
bool milter_wants_content(const struct milter *m);
bool milter_wants_body(const struct milter *m);

/* Frees memory between messages. The slices of the last event become invalid. */
void milter_rest(struct milter *m);

/* Sends the macros for a step; to be called directly before it. They are valid until message or
 * session ends. */
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

/* Takes a step; milter_next returns its verdict. `family` is 4, 6, 'L' (a Unix socket, `address` is
 * its path) or 0 (not known). `name` is the client's host name, or "[address]". */
void milter_connect(struct milter *m, struct slice name, int family, struct slice address,
                    uint16_t port, struct mono now);
void milter_helo(struct milter *m, struct slice helo, struct mono now);
/* Takes a step with an envelope address, without angle brackets; `parameters` are the words after
 * it in the command, may be empty. */
void milter_mail(struct milter *m, struct slice address, struct slice parameters, struct mono now);
void milter_rcpt(struct milter *m, struct slice address, struct slice parameters, struct mono now);
void milter_data(struct milter *m, struct mono now);
/* Takes a step with a field as in the message: the value begins after the colon and has its line
 * ends. */
void milter_header(struct milter *m, struct slice name, struct slice value, struct mono now);
void milter_end_of_header(struct milter *m, struct mono now);
void milter_body(struct milter *m, struct slice piece, struct mono now);
void milter_end(struct milter *m, struct mono now);

/* Ends the transaction; another may begin with milter_mail. During a step or the negotiation the
 * connection becomes FAILED instead. */
void milter_abort(struct milter *m);

/* Ends the session; the owner then writes the output and closes. */
void milter_quit(struct milter *m);

/* Adds bytes from the filter, all of them. */
void milter_input(struct milter *m, struct slice in, struct mono now);

/* Returns the next event. */
void milter_next(struct milter *m, struct milter_event *ret_event);

struct buf *milter_output(struct milter *m);

/* Returns the time at which the owner must look for input once more and call milter_expire. */
struct mono milter_deadline(const struct milter *m);
void milter_expire(struct milter *m, struct mono now);

/* Records that the connection ended, in any way. */
void milter_lost(struct milter *m);

#endif
