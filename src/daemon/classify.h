/*
 * Which class a message is of.
 *
 * The first of: the name in the field class_header of its header, where the client may say so (one
 * that may relay, the maildrop); the class of the listener it came in by; what default_class says.
 * The processes that take mail in see to the first two and look for the fields that mark bulk mail,
 * the queue process decides. No class is the empty name.
 *
 * Fields that mark bulk mail (default_class = auto), the first that is there counts:
 *
 *   List-Unsubscribe      RFC 2369: how to leave the list. RFC 8058 adds List-Unsubscribe-Post,
 *                         which does not come without it. Large mailbox providers demand both of
 *                         those who send to many.
 *   List-Id               RFC 2919: the name of the list that has sent it.
 *   Precedence            bulk, list or junk. No standard (RFC 2076 lists it among the discouraged,
 *                         RFC 3834 tells what responders make of it), but what list managers write.
 *
 * Auto-Submitted (RFC 3834) does not: it says that no human has sent the message, which is true of
 * a password reset.
 */
#ifndef DAEMON_CLASSIFY_H
#define DAEMON_CLASSIFY_H

#include "class_name.h"
#include "conf.h"
#include "header_scan.h"
#include "slice.h"

/* Looks at the header of a message while it comes in. Zeroed or after classify_drop there is
 * nothing in it. Fields are private to classify.c. */
struct classify {
    struct header_scan scan;
    char *class_header; /* owned: the configuration may change meanwhile; NULL: none */
};

/* A class; the name is empty for none. */
struct classified {
    struct slice name;
    enum class_source source;
};

/* Look at another message from its first byte on. */
void classify_begin(struct classify *c, const struct conf *conf);
void classify_feed(struct classify *c, struct slice content);
void classify_drop(struct classify *c);

/* What the message and its listener `url` (NULL: no listener) say: their class, or no name and the
 * field that marks it as bulk. Call after all content was fed. `may_name`: the header may name the
 * class. A name that is none is ignored, and a log line says so; `client` is whose message it is.
 * The result may be of `room`. */
struct classified classify_end(const struct classify *c, const struct conf *conf, bool may_name,
                               const char *url, const char *client, char room[CLASS_NAME_MAX]);

/* May mail have a class at all? */
bool classes_are_used(const struct conf *conf);

/* The class of mail from `sender` for which classify_end has said this; likewise. */
struct classified class_decide(const struct conf *conf, struct classified given,
                               struct slice sender, char room[CLASS_NAME_MAX]);

/* The class of a report of ours from `sender`; likewise. */
struct classified class_of_report(const struct conf *conf, struct slice sender,
                                  char room[CLASS_NAME_MAX]);

/* The class whose turns a stored message takes: its own, or, where it was stored without one,
 * `personal` if that is the class of unmarked mail. */
struct slice class_in_force(const struct conf *conf, struct slice stored);

#endif
