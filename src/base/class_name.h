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

/* Is it a name as it is stored? */
bool class_name_valid(struct slice name);

/* Read a name as people write it: case does not matter. False when it is none; *ret_name (of
 * `room`) is then untouched. */
bool class_name_parse(struct slice text, char room[CLASS_NAME_MAX], struct slice *ret_name);

/* The class of an envelope sender: the address, with `_` for bytes that a name can't have, and cut
 * to the longest name. Senders that differ only there are one class. */
struct slice class_name_of_sender(struct slice sender, char room[CLASS_NAME_MAX]);

#endif
