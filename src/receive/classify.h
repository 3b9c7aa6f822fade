/*
 * Which class a message is of.
 *
 * The first of: the name in the field class_header of its header, where the client may say so (one
 * that may relay, the maildrop); the class of the user that has logged in to send it; that of the
 * listener it came in by; what default_class says. Here are the first three, and the fields that
 * mark bulk mail; the queue process decides (mail_class.h). No class is the empty name.
 *
 * Fields that mark bulk mail (default_class = auto), the first that is there counts:
 *
 *   List-Unsubscribe      RFC 2369: how to leave the list. RFC 8058 adds List-Unsubscribe-Post,
 *                         which does not come without it. Large mailbox providers demand both of
 *                         senders of bulk mail.
 *   List-Id               RFC 2919: the name of the list that has sent it.
 *   Precedence            bulk, list or junk. No standard (RFC 2076 lists it among the discouraged,
 *                         RFC 3834 tells what responders make of it), but what list managers write.
 *
 * Auto-Submitted (RFC 3834) does not: it says that no human has sent the message, which is true of
 * a password reset.
 */
#ifndef RECEIVE_CLASSIFY_H
#define RECEIVE_CLASSIFY_H

#include "class_name.h"
#include "conf.h"
#include "header_scan.h"
#include "mail_class.h"
#include "slice.h"

/* Looks at the header of a message while it comes in. Zeroed or after classify_drop there is
 * nothing in it. Fields are private to classify.c. */
struct classify {
    struct header_scan scan;
    char *class_header; /* owned: the configuration may change meanwhile; NULL: none */
};

/* Look at another message from its first byte on. */
void classify_begin(struct classify *c, const struct conf *conf);
void classify_feed(struct classify *c, struct slice content);
void classify_drop(struct classify *c);

/* What the message, the login it came by (its class; empty: none) and its listener `url` (NULL: no
 * listener) say: their class, or no name and the field that marks it as bulk. Call after all
 * content was fed. `may_name`: the header may name the class. A name that is none is ignored, and a
 * log line says so; `client` is whose message it is. The result may be of `room`. */
struct classified classify_end(const struct classify *c, const struct conf *conf, bool may_name,
                               struct slice of_login, const char *url, const char *client,
                               char room[CLASS_NAME_MAX]);

#endif
