/*
 * The channel from a process that looks up names to the resolve process, which queries name servers
 * for it (resolve.c).
 *
 *     WIRE_DNS_QUERY -->         <-- WIRE_DNS_ANSWER
 *
 * The channel is lost when the resolve process ends. Its queries stay, and are sent again on the
 * next channel; each owner decides how long it waits.
 */
#ifndef NET_DNS_LINK_H
#define NET_DNS_LINK_H

#include <stdbool.h>

#include "slice.h"

struct event_base;
struct wire_dns_answer;
struct dns_link;
struct dns_link_query;

/* Makes a link without a channel. */
struct dns_link *dns_link_new(struct event_base *base);

/* Frees a link; there must be no queries. NULL is fine. */
void dns_link_free(struct dns_link *link);

/* Takes the channel to the resolve process: the first one, or a new one after its restart. */
void dns_link_peer(struct dns_link *link, int fd);

/* Receives the answer, once, from the loop; `m` lasts for the call. The query has ended. */
typedef void dns_link_done(void *arg, const struct wire_dns_answer *m);

/* Sends a query for a name that dns_name_valid accepts, now or as soon as there is a channel. */
struct dns_link_query *dns_link_ask(struct dns_link *link, struct slice name, unsigned type,
                                    bool prove, dns_link_done *done, void *arg);

/* Ends a query that has no answer. NULL is fine. */
void dns_link_cancel(struct dns_link_query *q);

#endif
