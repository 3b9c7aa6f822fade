/*
 * Keys of parked mail, as the spool stores them.
 *
 * A plain key, "transport/destination", parks mail that waits for the share of its destination. For
 * mail of a class, a tab and the class follow, with the group if there is one (bulk/17). No
 * address, next hop or class has control characters. Mail that was never deferred has PARK_KEY_NEW
 * before its key.
 *
 * The other prefixes are for mail that waits for its destination's time, for a request (queueonly),
 * for another configuration, for the end of a pause, or for another program that has locked it.
 */
#ifndef QUEUE_PARK_KEY_H
#define QUEUE_PARK_KEY_H

#include <stdbool.h>

#include "slice.h"
#include "spool.h"

#define PARK_KEY_BEFORE_CLASS '\t'

#define PARK_KEY_NEW     "!new "
#define PARK_KEY_RETRY   "!retry "
#define PARK_KEY_REQUEST "!request "
#define PARK_KEY_STUCK   "!stuck "
/* Mail that waits for the end of the pause whose name follows, or of several pauses. */
#define PARK_KEY_PAUSE  "!pause "
#define PARK_KEY_PAUSES "!pause *"
#define PARK_KEY_LOCKED SPOOL_PARKED_LOCKED

enum park_kind { PARK_SHARE, PARK_RETRY, PARK_REQUEST, PARK_STUCK, PARK_PAUSE, PARK_LOCKED };
enum park_kind park_key_kind(struct slice key);

/* Was the mail of this key of PARK_SHARE never deferred? */
bool park_key_is_new(struct slice key);

/* Returns a part of a key that people read: "transport/destination", or the class with its group
 * (empty: none). */
struct slice park_key_place(struct slice key);
struct slice park_key_class(struct slice key);

#endif
