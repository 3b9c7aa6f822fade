/*
 * Keys of parked mail, as the spool keeps them. "transport/destination" waits for the share of its
 * destination, for mail of a class with a tab and the class behind it, perhaps with its group
 * (bulk/17); neither addresses and next hops nor classes have control characters. With a prefix it
 * waits for its destination's time, or for a configuration that knows what to do with it.
 */
#ifndef QUEUE_PARK_KEY_H
#define QUEUE_PARK_KEY_H

#include "slice.h"

#define PARK_KEY_BEFORE_CLASS '\t'

#define PARK_KEY_RETRY "!retry "
#define PARK_KEY_STUCK "!stuck "
/* It waits for the end of a pause, whose name follows; or of several. */
#define PARK_KEY_PAUSE  "!pause "
#define PARK_KEY_PAUSES "!pause *"

enum park_kind { PARK_SHARE, PARK_RETRY, PARK_STUCK, PARK_PAUSE };
enum park_kind park_key_kind(struct slice key);

/* What people are shown of a key, "transport/destination", and its class with its group (empty:
 * none). */
struct slice park_key_place(struct slice key);
struct slice park_key_class(struct slice key);

#endif
