/*
 * Reading answers of the DNS, with the C library's reader.
 *
 * Packets are hostile input: what does not parse is no answer, and what is in front of it does not
 * count either. Records of another name than that of the question count: an answer to a name that
 * is an alias has those of the name it leads to.
 */
#ifndef NET_DNS_ANSWER_H
#define NET_DNS_ANSWER_H

#include <arpa/nameser.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "resolver.h"
#include "slice.h"

/* What an empty answer without a time of its own is good for. */
#define DNS_ANSWER_TTL_NONE 0

/* A host name in text form, with its NUL. */
#define DNS_NAME_MAX 254

/* False when it is no DNS packet. */
bool dns_answer_parse(struct slice packet, ns_msg *ret_message);

/* The next record of `type` in the answer section, from number *at on; false at the end, and at a
 * record that does not parse. */
bool dns_answer_next(ns_msg *message, int *at, ns_type type, ns_rr *ret_record);

/* The data of the first `max` records of a type, in their order; they are parts of the packet.
 * *ret_count is how many there are in all, perhaps more than `max`. False for what is no packet. */
bool dns_answer_records(struct slice packet, enum resolver_type type, struct slice *ret_data,
                        size_t max, size_t *ret_count);

/* Append the text of a TXT record, its strings joined (RFC 7208, 3.3, as RFC 8461, 3.1 wants it).
 * False when the data is malformed, or *out is full. */
bool dns_answer_text(struct slice data, struct buf *out);

/* The name that has the records of `type`, when it is not `name`: what `name` is an alias of.
 * False when it is none, when there are no such records, or when it is no valid host name. */
bool dns_answer_alias(struct slice packet, ns_type type, struct slice name,
                      char ret_alias[DNS_NAME_MAX]);

/* How many seconds the answer holds: the least of its records in answer and authority. */
uint32_t dns_answer_ttl(struct slice packet);

/* May this be asked for: 1..253 bytes of letters, digits, `-`, `_` and single inner dots? */
bool dns_name_valid(struct slice name);

#endif
