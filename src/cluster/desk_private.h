/*
 * What the files of desk.h share.
 *
 *   desk.c         what is on the desk and why it stays there; batches, and their undo
 *   desk_counts.c  how much is stored in each partition, and parked under each key
 *   desk_calls.c   what the queue changes, claims and reads
 *   desk_parts.c   the same of messages in parts
 *   desk_load.c    what comes from the database
 */
#ifndef CLUSTER_DESK_PRIVATE_H
#define CLUSTER_DESK_PRIVATE_H

#include "desk.h"

/* ---- desk.c: values -------------------------------------------------------------------------- */

/* Copy the texts into a block of their own, and let the slices point there. */
void desk_pack_message(struct desk_fields *f);
void desk_pack_rcpt(struct desk_rcpt *r);
/* The only functions that change a message's own fields, and a recipient, that are there: in a
 * batch they log what was before. `to` of the first is a copy (desk_copy_fields) and taken with its
 * block; that of the second is packed here. */
void desk_set_fields(struct desk *d, struct desk_message *msg, struct desk_fields to);
struct desk_fields desk_copy_fields(const struct desk_message *msg);
void desk_set_rcpt(struct desk *d, struct desk_message *msg, struct desk_rcpt *r,
                   struct desk_rcpt to);
/* Index of recipient n, or of where it would be. */
uint32_t desk_rcpt_place(const struct desk_message *msg, uint32_t n);

/* ---- desk.c: messages ------------------------------------------------------------------------ */

/* One that is gone until it is filled. */
struct desk_message *desk_add_message(struct desk *d, uint64_t id);
void desk_drop_content(struct desk *d, struct desk_message *msg);
/* Its content, recipients and fields. */
void desk_drop_rows(struct desk *d, struct desk_message *msg);
/* Into the order of due times, if it can be claimed; which of the orders (DUE_..) that is. */
void desk_place(struct desk *d, struct desk_message *msg);
unsigned desk_due_order(enum spool_state state);
/* Two of the reasons for which it stays on the desk; and when the last has ended it leaves, which
 * frees it. */
void desk_set_looked(struct desk *d, struct desk_message *msg, bool is_looked);
void desk_set_ready(struct desk *d, struct desk_message *msg, bool is_ready);
void desk_may_leave(struct desk *d, struct desk_message *msg);
/* What was looked at the longest time ago leaves. */
void desk_trim_looked(struct desk *d);
/* It, or its content or parts, is to be loaded; and is not any more. */
void desk_miss(struct desk *d, struct desk_message *msg);
void desk_unmiss(struct desk *d, struct desk_message *msg);
/* If it is a part: those of its message are not all here any more. */
void desk_forget_parts_of(const struct desk *d, const struct desk_message *msg);
/* For qsort of pointers to messages. */
int desk_id_order(const void *a, const void *b);

/* ---- desk.c: by id; errors as spool_engine.h ------------------------------------------------- */

/* The words of the error begin with the id. Returns `err`. */
int desk_fail_by_id(struct desk *d, struct msg_id id, int err, const char *words);
/* May it be changed? */
bool desk_is_ours(const struct desk *d, const struct desk_message *msg);
/* A message that is there: any; one to be changed, else `other`; one whose rows make sense; one
 * with both, else -ENOENT; with its recipient n. -EAGAIN when it has to be loaded. */
int desk_need(struct desk *d, struct msg_id id, struct desk_message **ret_msg);
int desk_need_own(struct desk *d, struct msg_id id, int other, struct desk_message **ret_msg);
int desk_need_right(struct desk *d, struct msg_id id, struct desk_message **ret_msg);
int desk_need_right_own(struct desk *d, struct msg_id id, struct desk_message **ret_msg);
int desk_need_rcpt(struct desk *d, struct msg_id id, uint32_t n, struct desk_message **ret_msg,
                   struct desk_rcpt **ret_rcpt);

/* ---- desk_counts.c --------------------------------------------------------------------------- */

/* Add what a message counts for, or take it away. */
void desk_count_fields(struct desk *d, const struct desk_fields *f, bool add);
/* What was counted as arrived is told again. Takes `arrived`, by partition; NULL is fine. */
void desk_uncount_arrived(struct desk *d, struct spool_totals *arrived);
/* Partitions have left. */
void desk_forget_counts(struct desk *d, const struct partition_set *partitions);
/* Among the messages with the key of its being parked, and out of these. */
void desk_link_key(struct desk *d, struct desk_message *msg);
void desk_unlink_key(struct desk *d, struct desk_message *msg);
void desk_drop_key_if_empty(struct desk *d, struct desk_key *key);

/* ---- desk_parts.c ---------------------------------------------------------------------------- */

/* A part that is there, among those of its message; and out of these, before its fields change. */
void desk_link_part(struct desk *d, struct desk_message *msg);
void desk_unlink_part(struct desk *d, struct desk_message *msg);

/* ---- desk_calls.c: new messages -------------------------------------------------------------- */

/* Into `content`, which has room for n->size. 0 or negative errno. */
int desk_read_all(const struct spool_new *n, char *content);
/* Recipient i of `n`, as number i + 1. */
void desk_fill_new_rcpt(struct desk_rcpt *to, const struct spool_new *n, uint32_t i);
/* Its fields, in the open batch; texts are copied. `content` is taken; NULL: it is not kept. */
void desk_set_new(struct desk *d, struct desk_message *msg, struct desk_fields fields,
                  char *content);

#endif
