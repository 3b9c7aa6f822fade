/*
 * Class of a message.
 *
 * The class is the first of these that exists:
 * - the name in the header field class_header, where the client may set it (a client that may
 *   relay, or the maildrop);
 * - the class of the user that has logged in;
 * - the class of the listener;
 * - default_class.
 *
 * This module finds the first three, and the fields that mark bulk mail. The queue process makes
 * the decision (mail_class.h). No class is the empty name.
 *
 * Fields that mark bulk mail (default_class = auto); the first that exists counts:
 *
 *   List-Unsubscribe      RFC 2369: how to leave the list. RFC 8058 adds List-Unsubscribe-Post,
 *                         which never comes alone. Large mailbox providers require both of
 *                         senders of bulk mail.
 *   List-Id               RFC 2919: the name of the list that has sent the message.
 *   Precedence            bulk, list or junk. List managers write this field without a standard
 *                         (RFC 2076 lists it as discouraged; RFC 3834 describes its use by
 *                         automatic responders).
 *
 * Auto-Submitted (RFC 3834) is no such mark: a program also sends a password reset.
 */
#ifndef RECEIVE_CLASSIFY_H
#define RECEIVE_CLASSIFY_H

#include "class_name.h"
#include "conf.h"
#include "header_scan.h"
#include "mail_class.h"
#include "slice.h"

/* Scanner of a message's header while it is received. Zeroed, and after classify_drop, it is empty.
 * Its fields are private to classify.c. */
struct classify {
    struct header_scan scan;
    char *class_header; /* name of the field; owned, as a reload frees the configuration; NULL:
                         * none */
};

/* Begins another message. */
void classify_begin(struct classify *c, const struct conf *conf);
void classify_feed(struct classify *c, struct slice content);
void classify_drop(struct classify *c);

/* Returns the class of the message, or no name and the field that marks it as bulk mail. Call it
 * after all content was fed.
 *
 * `may_name`: the header may name the class. An invalid name is ignored and logged, with the
 * client's name `client`. `of_login`: class of the login; empty: none. `url`: the listener; NULL:
 * none. The returned name may point into `room`. */
struct classified classify_end(const struct classify *c, const struct conf *conf, bool may_name,
                               struct slice of_login, const char *url, const char *client,
                               char room[CLASS_NAME_MAX]);

#endif
