/*
 * Shared by the files of member_link.h:
 *
 *   member_link.c     the connection: what is sent and when, and wakes
 *   member_request.c  requests of membership.h as statements, and their answers
 */
#ifndef CLUSTER_MEMBER_LINK_PRIVATE_H
#define CLUSTER_MEMBER_LINK_PRIVATE_H

#include "buf.h"
#include "member_link.h"

/* Kinds of groups of statements in flight, in the order of their answers. */
enum sent {
    SENT_NOTHING,
    SENT_SETUP, /* which server is it? */
    SENT_LISTEN,
    SENT_REQUEST,
    SENT_ROLLBACK,
    SENT_NOTIFY,
};

/* Purpose of a statement: where its answer goes, or the meaning of a failure with 22012. */
enum purpose { OTHER, FENCE, CONDITION, RENEWAL, LIFE, CLAIM, CLUSTER, NODES, LEASES };

/* Reasons to notify other nodes. */
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
    struct mono locked_since; /* time since when locks of others refuse requests; or MONO_NEVER */
    struct mono timer_at;     /* end of the timer */
    bool is_set_up, by_consensus;
    bool is_confirmed;                        /* whether the marker was found in this connection */
    struct member_marker marker, sent_marker; /* to search for; in the request in flight */
    struct mono asked_at;                     /* time of the request in flight */
    int64_t session, session_read;            /* process of the server's session; 0 if unknown */
    int64_t server_us;                        /* database's clock in the answer; 0 if missing */
    int64_t clock_us;                         /* described at member_link_clock */
    int listens_as;                           /* number of the channel, or MEMBERSHIP_NOBODY */

    enum sent sent[SENT_MAX];
    unsigned sent_count;

    /* The request in flight. */
    struct membership_action action;
    enum purpose purposes[STATEMENTS_MAX];
    unsigned statement_count, answered;
    bool committed, failed, warned;
    struct membership_answer answer;
    struct membership_view view;
    struct membership_node nodes[MEMBERSHIP_NODES_MAX];
    char names[MEMBERSHIP_NODES_MAX][MEMBERSHIP_NAME_MAX + 1];
    struct member_words words_read[MEMBERSHIP_NODES_MAX],
        words[MEMBERSHIP_NODES_MAX]; /* by node number */
    uint64_t begun, renewals;        /* number of the last renewal sent and answered */
    struct membership_lease leases[PARTITIONS];
    char texts[4][256]; /* texts of the view */
    struct member_renewal read, renewal;

    uint64_t wake[WAKES]; /* nodes to notify, as bits */
    uint64_t told[WAKES]; /* nodes that the NOTIFY in flight has, as bits */
    bool has_asks, has_texts;
    struct mono notify_at;

    uint64_t reserve;
    int64_t tables,
        sent_tables; /* fingerprint of the own tables and of those in the request; or 0 */
    enum { TABLES_KNOWN, TABLES_NEW, TABLES_IN_FORCE } tables_are, sent_are; /* state of both */
    struct buf status;
    char error[LINK_ERROR_MAX];
};

/* ---- member_link.c --------------------------------------------------------------------------- */

/* Sets the text of member_link_error, cut if too long. */
void member_link_keep_error(struct member_link *ml, const char *words);
/* Ends a group of statements with a sync; its answers are expected from now on. */
void member_link_end_with(struct member_link *ml, enum sent what);

/* ---- member_request.c ------------------------------------------------------------------------ */

/* Sends ml->action as one transaction. */
void member_link_send_request(struct member_link *ml);
/* Reads the answer of a statement into ml->answer, view and read. Returns false if the answer is
 * invalid. */
bool member_link_read_answer(struct member_link *ml, enum purpose purpose, const PGresult *r);
/* Reads the failure of a statement into ml->answer. Returns false for an unknown failure. */
bool member_link_read_failure(struct member_link *ml, enum purpose purpose, const PGresult *r);
/* Copies a text of less than `size` bytes to `room`. Returns false if there is none. */
bool member_link_text_at(const PGresult *r, int row, int column, char *room, size_t size,
                         struct slice *ret);

#endif
