/*
 * A message that comes as bytes and not in SMTP: what SMTP's engine sees to is done here.
 *
 *   intake_begin --> intake_add ... --> intake_finish --> intake_drop
 *                       |
 *                       +--> the owner's function, once: the header section is complete, here it
 *                            is; whose mail is it, and to whom? (draft_begin, draft_add_rcpt)
 *
 * Content of any line ends becomes wire form. Bcc and Resent-Bcc fields are dropped: the envelope
 * has these recipients, and the others are not to know. The fields that every mail has to have are
 * made where they are missing. Rules look at what results, and so can filters: the draft keeps its
 * header apart. The limits are SMTP's: message_size_limit, header_size_limit, hopcount_limit.
 *
 * Only the header section is held here; what has been looked at is the draft's. Embed it; fields
 * are private to intake.c but for `draft` and `arrival`.
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

/* The header section has come: set the envelope of `draft`. Code 0: go on. */
typedef struct server_reply intake_envelope(void *arg, struct slice header);

#define INTAKE_HEADER_TOO_LARGE                                                                    \
    ((struct server_reply){552, "5.3.4", SLICE("Header section is too large (header_size_limit)")})

struct intake {
    struct draft draft;
    struct classify classify;
    struct arrival arrival; /* what rules say of it */
    struct content scanner;
    struct line_ends ends;
    struct buf head; /* wire form, until the header section is complete */
    struct buf wire; /* scratch */
    bool converts;   /* its line ends are others */
    bool in_body;
    const struct receive_settings *settings; /* borrowed */
    intake_envelope *envelope;
    void *arg;
};

/* `rules` and `budget` are borrowed; the settings until intake_drop. */
void intake_begin(struct intake *i, const struct receive_settings *settings,
                  const struct conf *conf, struct rule_set *rules, struct draft_budget *budget,
                  intake_envelope *envelope, void *arg);

/* Release all that is held. Fine at any time, also twice, and zeroed. */
void intake_drop(struct intake *i);

/* More of the message; all of it has come: then the draft is finished, unless the message is
 * refused. Anything but code 0 refuses it: drop it then. The texts last until intake_drop, or are
 * the owner's. `client` is whose message it is, for the log. */
struct server_reply intake_add(struct intake *i, struct slice bytes);

/* The same of a message that compose.h writes: its body is in wire form and in ASCII, whatever the
 * client has sent, and is not looked at again. */
struct server_reply intake_add_composed(struct intake *i, struct slice bytes);
struct server_reply intake_finish(struct intake *i, const struct conf *conf, const char *client);

/* What was seen of it: a set of enum envelope_flag. */
unsigned intake_flags(const struct intake *i);

#endif
