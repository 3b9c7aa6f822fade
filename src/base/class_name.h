/*
 * Names of classes: the kinds of mail that share a delivery agent fairly ("bulk", "reset").
 *
 * A name is 1 to CLASS_NAME_MAX bytes of lower-case ASCII letters, digits and - _ . + = @, so that
 * it needs no quoting in a log line, a URL, a pattern and a file. Mail without a class has the
 * empty name.
 */
#ifndef BASE_CLASS_NAME_H
#define BASE_CLASS_NAME_H

#include <stdbool.h>

#include "slice.h"

#define CLASS_NAME_MAX 128

/* Class of mail with the null sender, if each sender is a class. */
#define CLASS_NAME_NULL_SENDER "mailer-daemon"

/* Classes of default_class = auto: mail whose header marks it as sent to many, and all other
 * mail. */
#define CLASS_NAME_BULK     "bulk"
#define CLASS_NAME_PERSONAL "personal"

/* Source of a message's class. The numbers are in spools: they keep their meaning. */
enum class_source {
    CLASS_SOURCE_NONE,     /* no class, or stored by a version without this field */
    CLASS_SOURCE_HEADER,   /* header field class_header */
    CLASS_SOURCE_LISTENER, /* class= of the listener that received the message */
    CLASS_SOURCE_SENDER,   /* envelope sender */
    CLASS_SOURCE_LIST_UNSUBSCRIBE,
    CLASS_SOURCE_LIST_ID,
    CLASS_SOURCE_PRECEDENCE,
    CLASS_SOURCE_DEFAULT, /* none of the three fields above is in the header */
    CLASS_SOURCE_REPORT,  /* the message is our own report */
    CLASS_SOURCE_LOGIN,   /* user who logged in to send the message */
};
#define CLASS_SOURCE_MAX CLASS_SOURCE_LOGIN

/* Returns "List-Id", "listener", ...; empty for CLASS_SOURCE_NONE. */
const char *class_source_word(enum class_source source);

/* Is this a name as it is stored? */
bool class_name_valid(struct slice name);

/* Parses a name as users write it, in any case. Returns false if the name is invalid; *ret_name,
 * which points into `room`, is then untouched. */
bool class_name_parse(struct slice text, char room[CLASS_NAME_MAX], struct slice *ret_name);

/* Returns the class of an envelope sender: the address, with `_` for bytes that a name can't have,
 * cut to the longest name. Senders that differ only in these are one class. */
struct slice class_name_of_sender(struct slice sender, char room[CLASS_NAME_MAX]);

#endif
