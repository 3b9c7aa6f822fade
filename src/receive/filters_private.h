/*
 * What the files of filters.h share.
 *
 *   filters.c       questions, verdicts, what comes of them
 *   filter_link.c   the connection to one filter
 *   filter_steps.c  what a filter is told at each stage
 */
#ifndef RECEIVE_FILTERS_PRIVATE_H
#define RECEIVE_FILTERS_PRIVATE_H

#include "filter_changes.h"
#include "filters.h"
#include "milter.h"
#include "stream.h"
#include "times.h"

/* Text of a reason for a log line, and of a macro. */
#define FILTERS_TEXT_MAX 300

/* Drawn in filter_link.c. */
enum link_state { LINK_NONE, LINK_ASKED, LINK_CONNECTING, LINK_OPEN };

/* A question is a range of these, which each filter goes through. */
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
    uint64_t token; /* in ASKED */
    uint32_t attempt;
    bool more_addresses;    /* in CONNECTING: another attempt makes sense */
    struct stream *stream;  /* from CONNECTING on */
    struct milter milter;   /* in OPEN */
    struct mono output_due; /* when what waits has to be taken; MONO_NEVER: nothing waits */
    bool connected;         /* it has heard CONNECT */
    char *helo;             /* that it has heard, with the TLS description; owned; NULL: none */
    bool in_message;        /* it has heard MAIL */
    bool lost;              /* in_message, and the connection went away: `why` */
    bool skipped;           /* for this message */
    bool has_refused;       /* the session: `refusal` */
    struct filters_answer refusal;
    char why[FILTERS_TEXT_MAX];
};

struct filters {
    struct filter_hub *hub;
    struct filter_set *set;
    filters_done *done;
    void *arg;
    struct link links[MILTER_LIST_MAX];

    /* the client; strings are owned */
    char *name, *ip, *helo, *tls, *user, *mechanism;
    int family;
    uint16_t port;

    /* the message */
    char id[FILTER_ID_SIZE];
    char *sender, *parameters, *rcpt; /* owned */
    struct draft *draft;              /* of the question; NULL: it is not about one */
    struct filter_changes changes;
    char *hold; /* owned; NULL: none */
    unsigned flags;
    bool discards;

    /* the question */
    bool is_asked;
    bool in_call; /* the answer is to be returned, not told */
    enum stage first, last;
    size_t at; /* the filter */
    enum stage stage;
    size_t header_at, rcpt_at;
    uint64_t body_at;
    struct filters_answer answer;
};

/* Ask the filters on, from where they stand; at the end `done` is called. */
void filters_advance(struct filters *f);

/* ---- filter_link.c; of a connection that changes by itself filters_advance is told. */

/* Ask the parent for a socket. */
void filter_link_ask(struct link *l);

/* Send what waits; each byte that the filter takes is a sign of life. */
void filter_link_flush(struct link *l);

/* Give a piece of what the filter has said to the engine. */
void filter_link_take_input(struct link *l);

/* NONE, whatever it was. */
void filter_link_close(struct link *l);

/* ---- filter_steps.c */

/* Tell an open filter what the stage has for it. False: nothing, or no more. */
bool filter_step(struct filters *f, struct link *l);

#endif
