/*
 * An override: an operator's decision about some mail, until it is cancelled or ends. The code
 * calls it `intervention`.
 *
 *     pause       the mail waits on disk, with a reason
 *     bounce      the mail is returned to its senders, with a text
 *     redirect    the mail goes to another next hop
 *     limit       parameters of its destinations have other values
 *
 * The mail is that for a destination (its transport and next hop, a domain, patterns of these),
 * from a sender, or of a class. This file has one override as a value: read from JSON, written as
 * JSON, compared with mail. `interventions.h` has all that are in force.
 *
 * Overrides have reference counts: a cancelled one is freed when the work after its end is done. In
 * a cluster they apply to all nodes (intervention_share.h), or to one node while the tables have no
 * place for them.
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

/* Longest texts, in bytes. */
#define INTERVENTION_TARGET_MAX 1024
#define INTERVENTION_TEXT_MAX   400 /* a reason, or the text of a bounce */
#define INTERVENTION_NAME_MAX   32
#define INTERVENTION_WHO_MAX    255 /* a caller, or a node */
/* Highest number of values of a limit. */
#define INTERVENTION_VALUES_MAX 16

enum intervention_verb {
    INTERVENTION_PAUSE,
    INTERVENTION_BOUNCE,
    INTERVENTION_REDIRECT,
    INTERVENTION_LIMIT,
    INTERVENTION_VERBS,
};

/* State of a stored override. An unreadable one is in force as a pause (`interventions.h`). */
enum intervention_stored {
    INTERVENTION_WHOLE,
    INTERVENTION_UNFIT,   /* intact, but this program or configuration does not support it */
    INTERVENTION_DAMAGED, /* differs from what was stored */
    INTERVENTION_LOST,    /* some overrides are missing or unreadable; unknown which */
};

enum intervention_scope { INTERVENTION_DESTINATION, INTERVENTION_SENDER, INTERVENTION_CLASS };

struct intervention {
    TAILQ_ENTRY(intervention) next;
    struct intervention *next_of_key; /* the next older one with the same key */
    UT_hash_handle hh;                /* of the newest with its key */
    char *key; /* owned; scope and target, by which mail finds it; patterns have one, too */
    unsigned references;
    uint64_t number;
    char name[INTERVENTION_NAME_MAX]; /* "pause-17" */
    enum intervention_verb verb;
    enum intervention_scope scope;
    char *target;    /* owned; as shown to users */
    char *transport; /* owned; NULL: any transport, and recipients' domains match, too */
    char *host;      /* owned; lower case: next hop or domain ("*": any), sender, or class */
    bool is_pattern;
    char *text;         /* owned; reason, or text of the bounce; may be empty */
    char *to_transport; /* owned; of a redirect; NULL: the recipient's own transport, if that is
                           SMTP */
    char *to;           /* owned; next hop of a redirect; NULL: another verb */
    json_t *values;     /* owned; values of a limit, {"name": "value"}; NULL: another verb */
    char *by;           /* owned; the caller who set it, as logged; may be empty */
    char *node;         /* owned; the node that got the request; empty: there is only one */
    enum intervention_stored stored;
    char *note;     /* owned; the damaged note; NULL: not damaged */
    bool is_shared; /* applies to all nodes */
    bool is_over;   /* no longer in force */
    struct wall since;
    struct wall until;   /* us 0: no end */
    uint64_t recipients; /* number of times that it was applied to a recipient, since the start */
    bool is_ending;      /* the commit of its end is in flight */
};

const char *intervention_verb_name(enum intervention_verb verb);

/* Reads an override from a request (docs/api.md). Returns one reference to it, without a number.
 * Returns NULL on an error, and appends its text to *error. */
struct intervention *intervention_read(const struct conf *conf, const json_t *object,
                                       struct wall now, struct buf *error);

/* Reads an override that intervention_json has written, as intervention_read. Its end may be past,
 * and its transport may be missing in the configuration, because it then concerns no mail. */
struct intervention *intervention_read_stored(const struct conf *conf, const json_t *object,
                                              struct buf *error);

/* Returns the pause that replaces an unreadable override: a pause of the mail that `object` names,
 * or of all mail if that is unreadable or NULL. `stored` is not INTERVENTION_WHOLE; a long `why` is
 * cut. The result is one reference, without a number. */
struct intervention *intervention_unreadable(const struct conf *conf, const json_t *object,
                                             enum intervention_stored stored, struct slice why);

/* Adds a checksum, for stores that have none. */
void intervention_seal(json_t *object);
/* Is the checksum right? True also if there is none, because an older program stored the object. */
bool intervention_is_whole(const json_t *object);

void intervention_number(struct intervention *i, uint64_t number);

struct intervention *intervention_ref(struct intervention *i);
void intervention_unref(struct intervention *i); /* may be NULL */

/* Returns the form that the API shows and the spool stores. */
json_t *intervention_json(const struct intervention *i);

/* Properties of mail that overrides are compared with. */
struct intervention_mail {
    struct slice sender, class_name; /* of the message; an empty sender is the null sender */
    struct slice domain;             /* of the recipient; any case; empty: none */
    const char *transport;           /* of its route */
    struct slice nexthop;            /* of its route; any case */
};

/* Does it apply to this mail? */
bool intervention_matches(const struct intervention *i, const struct intervention_mail *mail);

/* Does it apply to all mail for this destination, from any sender? */
bool intervention_matches_destination(const struct intervention *i, const char *transport,
                                      struct slice nexthop);

/* Does `a` have precedence over `b`, of the same verb? The order is senders, destinations,
 * patterns, transports, classes; among equals the newest is first. */
bool intervention_precedes(const struct intervention *a, const struct intervention *b);

/* Is the parameter, a name in the values of a limit, one of a transport as a whole? */
bool intervention_is_of_transport(const char *name);

/* Sets the values of a limit in a policy. */
void intervention_limit(const struct intervention *i, struct policy *policy);

/* Appends the key of a destination (transport NULL: any), sender or class to an empty buffer. */
void intervention_put_key(struct buf *out, enum intervention_scope scope, const char *transport,
                          struct slice text);

#endif
