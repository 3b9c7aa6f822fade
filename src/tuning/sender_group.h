/*
 * Groups of a class: senders whose mail takes turns with that of others (class_fairness).
 *
 * A group is one of SENDER_GROUPS, found by a hash of a name: the sender's, its domain's, or the
 * client's. So memory is bounded whatever names senders use. Two senders that happen to share a
 * group (one pair in SENDER_GROUPS) share its turns. The hash never changes: groups are in the keys
 * of parked mail.
 *
 * With class_fairness_merge, a list whose return paths differ from message to message (VERP, tags,
 * bounce numbers) is one sender. Its name is found as follows:
 *
 *   1. Case does not matter.
 *   2. The local part ends before a `+`, unless that is its first byte.
 *   3. If it has a `=` it ends before its first `-`, or is empty if there is no `-`:
 *      "list-user=domain", "list-return-12-user=domain", "SRS0=...".
 *   4. A word (letters and digits) with a digit in it ends the local part: before the word if it
 *      has 8 bytes or more or is all hexadecimal, else before its first digit.
 *   5. Then `-`, `_`, `.` and `=` at the end are removed.
 *
 * The rest of the local part may be empty: then all such senders of a domain are one. The domain is
 * not changed. Merging too much costs fairness within one domain only; merging too little gives a
 * list more than its part.
 */
#ifndef TUNING_SENDER_GROUP_H
#define TUNING_SENDER_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "params.h"
#include "slice.h"

/* Number of groups. With more of them one slow destination where all have mail could fill the
 * active queue, because each may have some 50 messages there. */
#define SENDER_GROUPS 64

#define SENDER_NAME_MAX 320

/* Returns the name of a sender; a longer one is cut. */
struct slice sender_name(struct slice sender, bool merge, char room[SENDER_NAME_MAX]);

/* Returns the group, 1..SENDER_GROUPS, or 0 for CONF_CLASS_FAIRNESS_NONE. `client` is
 * "name[address]" or another name of the message's origin. */
uint32_t sender_group(enum conf_class_fairness by, bool merge, struct slice sender,
                      struct slice client);

#endif
