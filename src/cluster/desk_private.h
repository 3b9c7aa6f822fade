/*
 * Shared by the files of desk.h:
 *
 *   desk.c         messages on the desk and their reasons to stay; batches and undo
 *   desk_counts.c  totals of each partition, and of mail parked under each key
 *   desk_calls.c   changes, claims and reads of the queue process
 *   desk_parts.c   the same for messages in parts
 *   desk_load.c    messages that are loaded from the database
 */
#ifndef CLUSTER_DESK_PRIVATE_H
#define CLUSTER_DESK_PRIVATE_H

#include "desk.h"

/* ---- desk.c: values -------------------------------------------------------------------------- */

/* Copies the texts into one new block and points the slices there. */
void desk_pack_message(struct desk_fields *f);
void desk_pack_rcpt(struct desk_rcpt *r);
/* Changes the fields of a message. Only this function and desk_set_rcpt change messages and
 * recipients on the desk; in an open batch they log the previous value. Takes `to` with its block,
 * which is a copy from desk_copy_fields. */
void desk_set_fields(struct desk *d, struct desk_message *msg, struct desk_fields to);
struct desk_fields desk_copy_fields(const struct desk_message *msg);
void desk_set_rcpt(struct desk *d, struct desk_message *msg, struct desk_rcpt *r,
                   struct desk_rcpt to);
/* Returns the index of recipient n, or the index at which n would be inserted. */
uint32_t desk_rcpt_place(const struct desk_message *msg, uint32_t n);

/* ---- desk.c: messages ------------------------------------------------------------------------ */

/* Adds a message, which is gone until it is filled in. */
struct desk_message *desk_add_message(struct desk *d, uint64_t id);
void desk_drop_content(struct desk *d, struct desk_message *msg);
/* Drops content, recipients and fields. */
void desk_drop_rows(struct desk *d, struct desk_message *msg);
/* Puts the message into the order of due times if it can be claimed. desk_due_order returns the
 * number of that order (DUE_..). */
void desk_place(struct desk *d, struct desk_message *msg);
unsigned desk_due_order(enum spool_state state);
/* Sets two of the reasons for which a message stays on the desk. desk_may_leave removes and frees
 * the message if no reason is left. */
void desk_set_looked(struct desk *d, struct desk_message *msg, bool is_looked);
void desk_set_ready(struct desk *d, struct desk_message *msg, bool is_ready);
void desk_may_leave(struct desk *d, struct desk_message *msg);
/* Removes the messages that were read longest ago. */
void desk_trim_looked(struct desk *d);
/* Puts the message on the list of missed mail, as it, its content or its parts must be loaded;
 * desk_unmiss takes it off the list. */
void desk_miss(struct desk *d, struct desk_message *msg);
void desk_unmiss(struct desk *d, struct desk_message *msg);
/* Notes, if the message is a part, that the parts of its whole message are no longer all on the
 * desk. */
void desk_forget_parts_of(const struct desk *d, const struct desk_message *msg);
/* Compares two pointers to messages for qsort. */
int desk_id_order(const void *a, const void *b);

/* ---- desk.c: messages by id; errors of spool_engine.h ---------------------------------------- */

/* Sets an error text that begins with the id. Returns `err`. */
int desk_fail_by_id(struct desk *d, struct msg_id id, int err, const char *words);
/* Can this node change the message? */
bool desk_is_ours(const struct desk *d, const struct desk_message *msg);
/* Finds a message and returns 0, or returns the error with its text. desk_need finds any message;
 * -EAGAIN if it must be loaded first. desk_need_own returns `other` for a foreign message,
 * desk_need_right returns -EBADMSG for one with invalid rows. desk_need_right_own checks both, with
 * -ENOENT for a foreign one; desk_need_rcpt also finds recipient n. */
int desk_need(struct desk *d, struct msg_id id, struct desk_message **ret_msg);
int desk_need_own(struct desk *d, struct msg_id id, int other, struct desk_message **ret_msg);
int desk_need_right(struct desk *d, struct msg_id id, struct desk_message **ret_msg);
int desk_need_right_own(struct desk *d, struct msg_id id, struct desk_message **ret_msg);
int desk_need_rcpt(struct desk *d, struct msg_id id, uint32_t n, struct desk_message **ret_msg,
                   struct desk_rcpt **ret_rcpt);

/* ---- desk_counts.c --------------------------------------------------------------------------- */

/* Adds the message to the totals, or subtracts it. */
void desk_count_fields(struct desk *d, const struct desk_fields *f, bool add);
/* Subtracts arrivals, whose rows will be read again. Takes `arrived`, by partition; NULL is
 * allowed. */
void desk_uncount_arrived(struct desk *d, struct spool_totals *arrived);
/* Forgets the totals of partitions that were let go. */
void desk_forget_counts(struct desk *d, const struct partition_set *partitions);
/* Links a parked message into the list of its key, and unlinks it. */
void desk_link_key(struct desk *d, struct desk_message *msg);
void desk_unlink_key(struct desk *d, struct desk_message *msg);
void desk_drop_key_if_empty(struct desk *d, struct desk_key *key);

/* ---- desk_parts.c ---------------------------------------------------------------------------- */

/* Links a loaded part into the list of its whole message. desk_unlink_part must be called before
 * the fields change. */
void desk_link_part(struct desk *d, struct desk_message *msg);
void desk_unlink_part(struct desk *d, struct desk_message *msg);

/* ---- desk_calls.c: new messages -------------------------------------------------------------- */

/* Reads the content of `n` into `content`, which must have room for n->size bytes. Returns 0 or a
 * negative errno. */
int desk_read_all(const struct spool_new *n, char *content);
/* Fills in recipient i of `n`, as number i + 1. */
void desk_fill_new_rcpt(struct desk_rcpt *to, const struct spool_new *n, uint32_t i);
/* Sets the fields of a new message in the open batch; copies the texts. Takes `content`; NULL if it
 * is not kept. */
void desk_set_new(struct desk *d, struct desk_message *msg, struct desk_fields fields,
                  char *content);

#endif
