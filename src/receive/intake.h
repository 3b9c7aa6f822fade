/*
 * A message that is received as bytes and not by SMTP. Does for it what the engine of SMTP does for
 * its messages.
 *
 *   intake_begin --> intake_add ... --> intake_finish --> intake_drop
 *                       |
 *                       +--> the owner's function, once, with the complete header section: sets
 *                            sender and recipients (draft_begin, draft_add_rcpt)
 *
 * Content with any line ends is converted to wire form. Rules check it, it is cleaned up as mail of
 * own clients (cleanup.h), and filters can check the result, because the draft keeps its header
 * apart. The limits are those of SMTP: message_size_limit, header_section_size_limit,
 * hopcount_limit.
 *
 * The struct holds only the header section; checked content is in the draft. Embed the struct; its
 * fields except `draft` and `arrival` are private to intake.c.
 */
#ifndef RECEIVE_INTAKE_H
#define RECEIVE_INTAKE_H

#include <stdbool.h>

#include "buf.h"
#include "arrival.h"
#include "classify.h"
#include "content.h"
#include "draft.h"
#include "line_ends.h"
#include "receive_settings.h"
#include "server.h"
#include "slice.h"

/* Sets the envelope of `draft` by the complete header section. Returns code 0, or the reply that
 * refuses the message. */
typedef struct server_reply intake_envelope(void *arg, struct slice header);

#define INTAKE_HEADER_TOO_LARGE                                                                    \
    ((struct server_reply){552, "5.3.4",                                                           \
                           SLICE("Header section is too large (header_section_size_limit)")})

struct intake {
    struct draft draft;
    struct classify classify;
    struct arrival arrival; /* state of the rules */
    struct content scanner;
    struct line_ends ends;
    struct buf head; /* header section in wire form, until it is complete */
    struct buf wire; /* scratch buffer */
    bool converts;   /* true if line ends are converted */
    bool in_body;
    const struct receive_settings *settings; /* borrowed */
    intake_envelope *envelope;
    void *arg;
};

/* Begins a message. Borrows `rules` and `budget`, and the settings until intake_drop. */
void intake_begin(struct intake *i, const struct receive_settings *settings,
                  const struct conf *conf, struct rule_set *rules, struct draft_budget *budget,
                  intake_envelope *envelope, void *arg);

/* Releases all memory. May be called at any time, also twice, and on a zeroed struct. */
void intake_drop(struct intake *i);

/* Adds a piece of the message. Returns code 0, or the reply that refuses the message; then call
 * intake_drop. The reply's text lasts until intake_drop, or belongs to the owner. */
struct server_reply intake_add(struct intake *i, struct slice bytes);

/* Adds a piece of a message that compose.h writes, like intake_add. Its body is in wire form and
 * ASCII, and is not scanned again. intake_finish ends any message and its draft, with a reply like
 * intake_add; `client` names the client in the log. */
struct server_reply intake_add_composed(struct intake *i, struct slice bytes);
struct server_reply intake_finish(struct intake *i, const char *client);

/* Returns flags of enum envelope_flag that follow from the content. */
unsigned intake_flags(const struct intake *i);

#endif
