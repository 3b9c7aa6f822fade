/*
 * What the files of member_link.h share.
 *
 *   member_link.c     the connection: what is under way, when, and who is woken
 *   member_request.c  one request of membership.h as statements, and what their answers mean
 */
#ifndef CLUSTER_MEMBER_LINK_PRIVATE_H
#define CLUSTER_MEMBER_LINK_PRIVATE_H

#include "buf.h"
#include "member_link.h"

/* What is under way, in the order of its answers. */
enum sent {
    SENT_NOTHING,
    SENT_SETUP, /* which server is it? */
    SENT_LISTEN,
    SENT_REQUEST,
    SENT_ROLLBACK,
    SENT_NOTIFY,
};

/* Of a statement: where its answer goes, or what it means that it failed with 22012. */
enum purpose { OTHER, FENCE, CONDITION, RENEWAL, LIFE, CLAIM, CLUSTER, NODES, LEASES };

/* What nodes are notified of. */
enum wake { WAKE_MAIL, WAKE_LEASE, WAKE_ASK, WAKE_TEXT, WAKES };

#define STATEMENTS_MAX 12
#define SENT_MAX       4

struct member_link {
    int epoll_fd, timer; /* the timer is owned */
    struct link *link;   /* owned */
    struct membership *membership;
    struct membership_config config;
    const struct member_link_owner *owner;
    void *arg;
    struct mono connect_at, answer_by;
    struct mono locked_since; /* what was asked is refused for others' locks; or MONO_NEVER */
    struct mono timer_at;     /* for when the timer is set */
    bool is_set_up, by_consensus;
    int listens_as; /* the channel's number; MEMBERSHIP_NOBODY */

    enum sent sent[SENT_MAX];
    unsigned sent_count;

    /* the request */
    struct membership_action action;
    enum purpose purposes[STATEMENTS_MAX];
    unsigned statement_count, answered;
    bool committed, failed, warned;
    struct membership_answer answer;
    struct membership_view view;
    struct membership_node nodes[MEMBERSHIP_NODES_MAX];
    char names[MEMBERSHIP_NODES_MAX][MEMBERSHIP_NAME_MAX + 1];
    struct member_words words_read[MEMBERSHIP_NODES_MAX], words[MEMBERSHIP_NODES_MAX]; /* by no */
    uint64_t begun, renewals; /* the last renewal that was sent; that was answered */
    struct membership_lease leases[PARTITIONS];
    char texts[4][256]; /* of the view */
    struct member_renewal read, renewal;

    uint64_t wake[WAKES]; /* to be notified: a bit for each node */
    uint64_t told[WAKES]; /* by what is under way */
    bool has_asks, has_texts;
    struct mono notify_at;

    uint64_t reserve;
    int64_t tables,
        sent_tables; /* the fingerprint of ours, and as it was in the request; 0: none */
    enum { TABLES_KNOWN, TABLES_NEW, TABLES_IN_FORCE } tables_are, sent_are; /* to be */
    struct buf status;
    char error[LINK_ERROR_MAX];
};

/* ---- member_link.c --------------------------------------------------------------------------- */

/* What member_link_error says; cut. */
void member_link_keep_error(struct member_link *ml, const char *words);
/* What was sent is to be answered from now on. */
void member_link_end_with(struct member_link *ml, enum sent what);

/* ---- member_request.c ------------------------------------------------------------------------ */

/* ml->action, as one transaction. */
void member_link_send_request(struct member_link *ml);
/* What a statement has answered, into ml->answer, view and read. False: that is no answer to it. */
bool member_link_read_answer(struct member_link *ml, enum purpose purpose, const PGresult *r);
/* What it means that one has failed, into ml->answer. False: nothing that is known here. */
bool member_link_read_failure(struct member_link *ml, enum purpose purpose, const PGresult *r);
/* A text of less than `size` bytes, copied to `room`. False: there is none. */
bool member_link_text_at(const PGresult *r, int row, int column, char *room, size_t size,
                         struct slice *ret);

#endif
