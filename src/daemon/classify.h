/*
 * Which class a message is of.
 *
 * The first of: the name in the field class_header of its header, where whoever sends it may say so
 * (a client that may relay, the maildrop); the class of the listener it came in by; what
 * default_class says. The processes that take mail in see to the first two, the queue process to
 * the last. No class is the empty name.
 */
#ifndef DAEMON_CLASSIFY_H
#define DAEMON_CLASSIFY_H

#include "class_name.h"
#include "conf.h"
#include "slice.h"

/* How much of a message is looked at for its header. */
#define CLASSIFY_HEADER_MAX (1u << 20)

/* The class that the header names. `content` is the message from its beginning, as far as the
 * header is to be looked at. A name that is none is ignored, and a log line says so; `client` is
 * whose message it is. The result may be of `room`. */
struct slice class_of_header(const struct conf *conf, struct slice content, const char *client,
                             char room[CLASS_NAME_MAX]);

/* The class of the listener `url`; likewise. */
struct slice class_of_listener(const struct conf *conf, const char *url, char room[CLASS_NAME_MAX]);

/* May mail have a class at all? */
bool classes_are_used(const struct conf *conf);

/* The class of mail from `sender` that has none; likewise. */
struct slice class_by_default(const struct conf *conf, struct slice sender,
                              char room[CLASS_NAME_MAX]);

#endif
