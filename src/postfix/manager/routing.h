/*
 * Decisions of Postfix's queue manager about a recipient, before and after the answer of
 * trivial-rewrite: redirects, content filters, mail that must not be delivered now or at all.
 *
 *     routing_begin --> decided at once, or a question for the resolver --answer--> routing_end
 */
#ifndef POSTFIX_ROUTING_H
#define POSTFIX_ROUTING_H

#include <stdbool.h>

#include "rewrite_client.h"
#include "services.h"
#include "settings.h"

struct routing_params {
    struct slice default_filter_nexthop, myhostname, defer_transports, double_bounce_sender;
    uint64_t probe_limit; /* limit of messages of address verification in memory */
};

struct routing_params routing_params_of(const struct settings *s);

/* The properties of a message on which a recipient's route depends. */
struct routing_message {
    const struct queue_file_envelope *envelope;
    bool force_expire, flushed;
    bool was_redirected; /* another of its recipients has the redirect's address */
    uint64_t probes;     /* number of messages of address verification in memory */
};

enum routing_step { ROUTING_DECIDED, ROUTING_ASK };

/* Decides on a recipient before its route is known. ROUTING_DECIDED: *ret_route is set.
 * ROUTING_ASK: address, sender and kind of *ret_question are set. Slices are borrowed from the
 * arguments. */
enum routing_step routing_begin(const struct routing_params *params,
                                const struct routing_message *m, struct slice recipient,
                                struct rewrite_question *ret_question,
                                struct postfix_route *ret_route);

/* Decides on a recipient after the answer. Slices as above; nexthop has at most ROUTING_NEXTHOP_MAX
 * bytes. */
#define ROUTING_NEXTHOP_MAX 512
void routing_end(const struct routing_params *params, const struct routing_message *m,
                 const struct rewrite_answer *answer, struct postfix_route *ret_route);

#endif
