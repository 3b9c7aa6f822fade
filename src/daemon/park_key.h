/*
 * Keys of parked mail, as the spool keeps them: "transport/destination", for mail of a class with a
 * tab and the class behind it. Neither addresses and next hops nor classes have control characters.
 */
#ifndef DAEMON_PARK_KEY_H
#define DAEMON_PARK_KEY_H

#include "slice.h"

#define PARK_KEY_BEFORE_CLASS '\t'

/* What people are shown of a key, "transport/destination", and its class (empty: none). */
struct slice park_key_place(struct slice key);
struct slice park_key_class(struct slice key);

#endif
