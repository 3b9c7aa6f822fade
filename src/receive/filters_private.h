/*
 * Shared declarations of the files of filters.h.
 *
 *   filters.c       questions, verdicts and their effects
 *   filter_link.c   the connection to one filter
 *   filter_steps.c  packets for a filter at each stage
 */
#ifndef RECEIVE_FILTERS_PRIVATE_H
#define RECEIVE_FILTERS_PRIVATE_H

#include "filter_changes.h"
#include "filters.h"
#include "milter.h"
#include "stream.h"
#include "times.h"

/* Maximum bytes of a reason in a log line, and of a macro. */
#define FILTERS_TEXT_MAX 300

/* filter_link.c has a picture of the states. */
enum link_state { LINK_NONE, LINK_ASKED, LINK_CONNECTING, LINK_OPEN };

/* Stages of a message. A question is a range of stages that each filter passes. */
enum stage {
    STAGE_CONNECT,
    STAGE_HELO,
    STAGE_MAIL,
    STAGE_RCPT,
    STAGE_DATA,
    STAGE_HEADER,
    STAGE_END_OF_HEADER,
    STAGE_BODY,
    STAGE_END,
    STAGE_DONE,
};

struct link {
    struct filters *filters;
    const struct milter_spec *spec;
    enum link_state state;
    uint64_t token; /* token of the hub, in LINK_ASKED */
    uint32_t attempt;
    bool more_addresses;    /* in LINK_CONNECTING: true if another attempt makes sense */
    struct stream *stream;  /* stream from LINK_CONNECTING on */
    struct milter milter;   /* engine, in LINK_OPEN */
    struct mono output_due; /* deadline of waiting output; MONO_NEVER: no output waits */
    bool connected;         /* true if CONNECT was sent */
    char *helo;             /* HELO that was sent last, with the TLS description; owned; NULL:
                             * none */
    bool in_message;        /* true if MAIL was sent */
    bool lost;              /* true after a loss of a needed connection; `why` has the reason */
    bool skipped;           /* true if this message passes without the filter */
    bool has_refused;       /* true if the filter refused the session with `refusal` */
    struct filters_answer refusal;
    char why[FILTERS_TEXT_MAX];
};

struct filters {
    struct filter_hub *hub;
    struct filter_set *set;
    filters_done *done;
    void *arg;
    struct link links[MILTER_LIST_MAX];

    /* ---- the client; strings are owned */
    char *name, *ip, *helo, *tls, *user, *mechanism;
    int family;
    uint16_t port;

    /* ---- the message */
    char id[FILTER_ID_SIZE];
    char *sender, *parameters, *rcpt; /* owned */
    struct draft *draft;              /* draft of the question; NULL for a question without one */
    struct filter_changes changes;
    char *hold; /* reason to put on hold; owned; NULL: none */
    unsigned flags;
    bool discards;

    /* ---- the question */
    bool is_asked;
    bool in_call; /* true during a call that returns the answer, so `done` is not called */
    enum stage first, last;
    size_t at; /* index of the filter that has the question */
    enum stage stage;
    size_t header_at, rcpt_at;
    uint64_t body_at;
    struct filters_answer answer;
};

/* Continues the open question; calls `done` at its end. */
void filters_advance(struct filters *f);

/* ---- filter_link.c; calls filters_advance after a change of the connection */

/* Requests a socket from the parent. */
void filter_link_ask(struct link *l);

/* Sends waiting output, and restarts its deadline if the filter accepts bytes. */
void filter_link_flush(struct link *l);

/* Passes a piece of input to the engine. */
void filter_link_take_input(struct link *l);

/* Closes the connection in any state; the state is LINK_NONE afterwards. */
void filter_link_close(struct link *l);

/* ---- filter_steps.c */

/* Sends an open filter the next packet of the stage. Returns false if there is none. */
bool filter_step(struct filters *f, struct link *l);

#endif
