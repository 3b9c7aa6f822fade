/*
 * An intervention: what an operator has decided about some mail, until it is cancelled or ends.
 *
 *     pause       the mail waits on disk, with a reason
 *     bounce      it is returned to its senders, with a text
 *     redirect    it goes to another next hop
 *     limit       parameters of its destinations have other values
 *
 * "Some mail" is that for a destination (its transport and next hop, a domain, patterns of these),
 * from a sender, or of a class. Here is one intervention as a value: read from JSON, written as
 * JSON, compared with mail. interventions.h has all that hold.
 *
 * Interventions are shared by reference: one that is cancelled lasts until the work that follows
 * from it is done. In a cluster they are of all nodes (intervention_share.h), or, where its tables
 * have no place for them, of one.
 */
#ifndef QUEUE_INTERVENTION_H
#define QUEUE_INTERVENTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "conf.h"
#include "hash.h"
#include "policy.h"
#include "slice.h"
#include "times.h"

/* Bytes. */
#define INTERVENTION_TARGET_MAX 1024
#define INTERVENTION_TEXT_MAX   400 /* of a reason, a report's text */
#define INTERVENTION_NAME_MAX   32
#define INTERVENTION_WHO_MAX    255 /* of a caller, a node */
/* Values of one limit. */
#define INTERVENTION_VALUES_MAX 16

enum intervention_verb {
    INTERVENTION_PAUSE,
    INTERVENTION_BOUNCE,
    INTERVENTION_REDIRECT,
    INTERVENTION_LIMIT,
    INTERVENTION_VERBS,
};

enum intervention_scope { INTERVENTION_DESTINATION, INTERVENTION_SENDER, INTERVENTION_CLASS };

struct intervention {
    TAILQ_ENTRY(intervention) next;
    struct intervention *next_of_key; /* older ones of the same key */
    UT_hash_handle hh;                /* of the newest of its key */
    char *key; /* owned: scope and target in one, what mail is looked up by; patterns have it too */
    unsigned references;
    uint64_t number;
    char name[INTERVENTION_NAME_MAX]; /* "pause-17" */
    enum intervention_verb verb;
    enum intervention_scope scope;
    char *target;    /* owned: as people are shown it */
    char *transport; /* owned: of a destination; NULL: any, and recipients' domains match, too */
    char *host;      /* owned: next hop or domain, lower case, "*": any; sender; class */
    bool is_pattern;
    char *text;         /* owned: reason, or text of the report; may be empty */
    char *to_transport; /* owned: of a redirect; NULL: the recipient's own, if that is SMTP */
    char *to;           /* owned: its next hop; NULL: of another verb */
    json_t *values;     /* owned: of a limit, {"name": "value"}; else NULL */
    char *by;           /* owned: who has asked for it, as the log names callers; may be empty */
    char *node;         /* owned: the node that was asked; empty: there are no others */
    bool is_shared;     /* it is of all nodes */
    bool is_over;       /* it holds no more */
    struct wall since;
    struct wall until;   /* us 0: it has no end */
    uint64_t recipients; /* that it was applied to since the start, each time counted */
    bool is_ending;      /* the commit of its end is under way */
};

const char *intervention_verb_name(enum intervention_verb verb);

/* Read one from a question (docs/api.md), or as intervention_json has written it. NULL: *error has
 * what was expected. It has no number yet, and one reference. */
struct intervention *intervention_read(const struct conf *conf, const json_t *object,
                                       struct wall now, struct buf *error);

void intervention_number(struct intervention *i, uint64_t number);

struct intervention *intervention_ref(struct intervention *i);
void intervention_unref(struct intervention *i); /* NULL is fine */

/* As the API shows it and the spool keeps it. */
json_t *intervention_json(const struct intervention *i);

/* Mail, as interventions see it. */
struct intervention_mail {
    struct slice sender, class_name; /* of the message; sender empty: the null sender */
    struct slice domain;             /* of the recipient, any case; empty: it has none */
    const char *transport;           /* where it goes */
    struct slice nexthop;            /* likewise, any case */
};

/* Is it about this mail? */
bool intervention_matches(const struct intervention *i, const struct intervention_mail *mail);

/* Is it about all mail for this destination, from any sender? */
bool intervention_matches_destination(const struct intervention *i, const char *transport,
                                      struct slice nexthop);

/* Does `a` hold before `b`, of the same verb? What names senders goes before what names a
 * destination, then a pattern, a transport, a class; of equals the newest. */
bool intervention_precedes(const struct intervention *a, const struct intervention *b);

/* Put the values of a limit into a policy. */
void intervention_limit(const struct intervention *i, struct policy *policy);

/* What is looked up: append the key of a destination (transport NULL: any), sender or class to an
 * empty buffer. */
void intervention_put_key(struct buf *out, enum intervention_scope scope, const char *transport,
                          struct slice text);

#endif
