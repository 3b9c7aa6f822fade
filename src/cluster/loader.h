/*
 * Brings mail from the database to the desk: what is due and can be claimed soon, what was
 * asked for by id or key, content, and at the start how much there is. It asks and never waits.
 *
 * What is due is read ahead: when fewer than LOADER_LOW messages are ready, up to LOADER_HIGH.
 * Mail of other nodes' partitions comes to be looked at only.
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
/* Between two looks for all that is due, whatever is thought to be known of it. */
#define LOADER_SWEEP_US (60 * INT64_C(1000000))

struct loader;

/* All is borrowed but `target`'s connection, which is the loader's own. */
struct loader *loader_new(int epoll_fd, const struct link_target *target, struct desk *desk,
                          struct finder *finder, struct arrivals *arrivals,
                          struct handover *handover);
void loader_free(struct loader *l); /* NULL is fine */

/* What lists have told of it need not look for. Borrowed; NULL: nothing has. */
void loader_set_lists(struct loader *l, const struct cluster_search *lists);

/* Ask how much there is in partitions that have come, and what is handed over of destinations
 * there; their mail is asked for after that. Until it is answered nothing may be committed. */
void loader_count(struct loader *l, const struct partition_set *partitions);
bool loader_is_counting(const struct loader *l);
/* Are arrivals being deleted, not with a batch? */
bool loader_is_deleting(const struct loader *l);
/* Was all counted that had come, since this was asked last? */
bool loader_has_counted(struct loader *l);

/* Mail that is due at `now` (us, wall clock) is wanted: it comes to the desk, to be claimed. */
void loader_want(struct loader *l, int64_t now);
/* Bring these messages, unless the desk has them. */
void loader_bring(struct loader *l, const struct spool_routed *mail, size_t count);
/* Mail with this key is wanted. False: there is none that is not on the desk. */
bool loader_want_key(struct loader *l, struct slice key);
/* Bring what is ours and has its row in fresh table `table` to the desk, without its content: a
 * page with each call that finds none under way. False: it was walked through to its end. */
bool loader_bring_passing(struct loader *l, unsigned table);
bool loader_is_bringing_passing(const struct loader *l);
/* Ask for rows of arrival that other nodes have written for this one, node `no`; at `now` (us, as
 * boot_now) those that were read and have joined no batch for long are deleted. */
void loader_look_for_arrivals(struct loader *l, int no, int64_t incarnation, int64_t now);
/* Partitions have left: what is being read may have been changed by others since. */
void loader_let_go(struct loader *l);

/* Ask for what calls to the desk have missed (-EAGAIN). In each turn, too. */
void loader_ask(struct loader *l);
/* When the epoll descriptor is readable. Never waits. */
void loader_turn(struct loader *l);

/* Messages that only a sweep has found, as nothing had told of them: it should be 0. What is
 * younger than this is not counted, as it may be told of still. */
#define LOADER_MISSED_US (10 * INT64_C(1000000))
uint64_t loader_missed(const struct loader *l);

/* Has something come since the last call? */
bool loader_has_come(struct loader *l);
/* Nothing is asked or to be asked. */
bool loader_is_idle(const struct loader *l);

/* Its connection, which is the loader's, for what it says of it (reader_refusal). */
const struct reader *loader_reader(const struct loader *l);

#endif
