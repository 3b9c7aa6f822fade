/*
 * Mail without a client on its way through the rules: a file of sendmail, or mail that an operator
 * requeues.
 *
 *     local_mail_begin --> draft_begin, draft_add_rcpt --> local_mail_data --> local_mail_add ...
 *                      --> local_mail_end
 *
 * The content passes the checks and the clean-up into the draft, and is scanned for the class of
 * the message. Afterwards the caller passes the draft to filters (filters.h), makes the final
 * recipients (arrival_envelope) and submits the draft.
 *
 * Embed the struct; the caller may move the draft and the arrival out after local_mail_end.
 */
#ifndef RECEIVE_LOCAL_MAIL_H
#define RECEIVE_LOCAL_MAIL_H

#include "arrival.h"
#include "classify.h"
#include "content.h"
#include "draft.h"
#include "rule_set.h"
#include "slice.h"

struct local_mail {
    struct draft draft;
    struct content scanner; /* valid facts after local_mail_end */
    struct classify classify;
    struct arrival arrival;
};

/* Begins a message: then set the envelope of the draft. Takes a reference to `rules`; borrows the
 * budget. */
void local_mail_begin(struct local_mail *m, const struct conf *conf, struct rule_set *rules,
                      struct draft_budget *budget, uint64_t inline_max);

/* Begins the content. `is_own` and `name` are as in struct arrival_author: mail that was received
 * before is not completed again. */
void local_mail_data(struct local_mail *m, bool is_own, struct slice name);

/* Adds content in wire form. A failure shows in the draft. */
void local_mail_add(struct local_mail *m, struct slice wire);

/* Ends the content and the draft; a failure shows in the draft. Returns the reply of the rules to
 * the message; code 0: accepted. The reply lasts as long as the arrival. `name` is for the log. */
struct server_reply local_mail_end(struct local_mail *m, const char *name);

/* Releases all memory. May be called at any time, also twice. */
void local_mail_drop(struct local_mail *m);

/* Returns "from=<sender> to=<first recipient>", the form of Postfix in log lines about rules. The
 * caller frees the text. */
char *local_mail_envelope(const struct draft *d);

#endif
