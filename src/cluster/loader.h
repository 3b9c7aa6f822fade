/*
 * Loader: reads mail from the database to the desk: mail that is due soon, mail requested by id or
 * key, content, and the counts of gained partitions. It never waits. Due mail is read ahead: if
 * fewer than LOADER_LOW messages are ready, up to LOADER_HIGH are loaded. Foreign mail is loaded
 * only to be read.
 */
#ifndef CLUSTER_LOADER_H
#define CLUSTER_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "arrivals.h"
#include "cluster_search.h"
#include "desk.h"
#include "finder.h"
#include "handover.h"
#include "reader.h"

#define LOADER_LOW  64
#define LOADER_HIGH 256
/* Time between two sweeps, which search for all due mail regardless of the finder's places. */
#define LOADER_SWEEP_US (60 * INT64_C(1000000))

struct loader;

/* Creates the loader, with a connection of its own. All arguments are borrowed. */
struct loader *loader_new(int epoll_fd, const struct link_target *target, struct desk *desk,
                          struct finder *finder, struct arrivals *arrivals,
                          struct handover *handover);
void loader_free(struct loader *l); /* NULL is allowed */

/* Sets lists whose places save lookups. Borrowed; NULL for none. */
void loader_set_lists(struct loader *l, const struct cluster_search *lists);

/* Counts the mail of gained partitions and reads their handed over states, before their mail is
 * loaded. Until the answer nothing may be committed. */
void loader_count(struct loader *l, const struct partition_set *partitions);
bool loader_is_counting(const struct loader *l);
/* Are arrivals being deleted without a batch? */
bool loader_is_deleting(const struct loader *l);
/* Was the last count completed since the last call? */
bool loader_has_counted(struct loader *l);

/* Requests mail that is due at `now` (microseconds, wall clock), to be claimed. */
void loader_want(struct loader *l, int64_t now);
/* Loads these messages, unless the desk has them. */
void loader_bring(struct loader *l, const struct spool_routed *mail, size_t count);
/* Requests mail parked under this key. Returns false if the desk has all of it. */
bool loader_want_key(struct loader *l, struct slice key);
/* Makes the next call of loader_want_key query the key again, as some of its mail was claimed. */
void loader_look_at_key_again(struct loader *l);
/* Loads own mail of fresh table `table`, without content. Each call requests a page if none is in
 * flight. Returns false at the end of the table. */
bool loader_bring_passing(struct loader *l, unsigned table);
bool loader_is_bringing_passing(const struct loader *l);
/* Requests arrivals for this node, `no`. Deletes arrivals that were read long before `now`
 * (microseconds of boot_now) and are in no batch. */
void loader_look_for_arrivals(struct loader *l, int no, int64_t incarnation, int64_t now);
/* Notes that partitions were let go, so that answers in flight may be out of date. */
void loader_let_go(struct loader *l);

/* Requests mail for which calls to the desk have returned -EAGAIN. loader_turn does this, too. */
void loader_ask(struct loader *l);
/* Handles the connection without waiting; must be called when the epoll descriptor is readable. */
void loader_turn(struct loader *l);

/* Returns the number of messages that only a sweep has found; it should be 0. Messages younger than
 * LOADER_MISSED_US are not counted, as their arrival may still be read. */
#define LOADER_MISSED_US (10 * INT64_C(1000000))
uint64_t loader_missed(const struct loader *l);

/* Was anything loaded since the last call? */
bool loader_has_come(struct loader *l);
/* Is nothing in flight, and nothing to request? */
bool loader_is_idle(const struct loader *l);

/* Returns the loader's connection, for its errors (reader_refusal). */
const struct reader *loader_reader(const struct loader *l);

#endif
