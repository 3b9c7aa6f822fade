/*
 * Names of classes: the kinds of mail that share a delivery agent fairly ("bulk", "reset").
 *
 * A name is 1 to CLASS_NAME_MAX bytes of lower-case ASCII letters, digits and - _ . + = @, so that
 * it can stand in a log line, a URL, a pattern and a file as it is. Mail without a class has the
 * empty name.
 */
#ifndef BASE_CLASS_NAME_H
#define BASE_CLASS_NAME_H

#include <stdbool.h>

#include "slice.h"

#define CLASS_NAME_MAX 128

/* The class of mail with the null sender, where each sender is a class. */
#define CLASS_NAME_NULL_SENDER "mailer-daemon"

/* The classes of default_class = auto: mail that says of itself that it is sent to many, and all
 * other. */
#define CLASS_NAME_BULK     "bulk"
#define CLASS_NAME_PERSONAL "personal"

/* Where a message has its class from. The numbers are in spools: they keep their meaning. */
enum class_source {
    CLASS_SOURCE_NONE,     /* it has no class, or was stored before this was kept */
    CLASS_SOURCE_HEADER,   /* the field class_header */
    CLASS_SOURCE_LISTENER, /* class= of the listener that it came in by */
    CLASS_SOURCE_SENDER,   /* its envelope sender */
    CLASS_SOURCE_LIST_UNSUBSCRIBE,
    CLASS_SOURCE_LIST_ID,
    CLASS_SOURCE_PRECEDENCE,
    CLASS_SOURCE_DEFAULT, /* it has none of these three fields */
    CLASS_SOURCE_REPORT,  /* it is a report of ours */
    CLASS_SOURCE_LOGIN,   /* the user that has logged in to send it */
};
#define CLASS_SOURCE_MAX CLASS_SOURCE_LOGIN

/* "List-Id", "listener", ...; empty for CLASS_SOURCE_NONE. */
const char *class_source_word(enum class_source source);

/* Is it a name as it is stored? */
bool class_name_valid(struct slice name);

/* Read a name as users write it: case does not matter. False when it is none; *ret_name (of
 * `room`) is then untouched. */
bool class_name_parse(struct slice text, char room[CLASS_NAME_MAX], struct slice *ret_name);

/* The class of an envelope sender: the address, with `_` for bytes that a name can't have, and cut
 * to the longest name. Senders that differ only there are one class. */
struct slice class_name_of_sender(struct slice sender, char room[CLASS_NAME_MAX]);

#endif
