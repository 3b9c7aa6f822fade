/*
 * Reads DNS answers, with the C library's parser.
 *
 * Packets are hostile input. A packet that does not parse is no answer; records before the fault do
 * not count either. Records of another name than the query's count, because the answer for an alias
 * has the records of its target.
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

/* Validity of an empty answer without a time to live, in seconds. */
#define DNS_ANSWER_TTL_NONE 0

/* Bytes of a host name as text, with its NUL. */
#define DNS_NAME_MAX 254

/* Begins to read a packet. Returns false if it is not a DNS packet. */
bool dns_answer_parse(struct slice packet, ns_msg *ret_message);

/* Finds the next record of `type` in the answer section, from number *at on. Returns false at the
 * end, and at a record that does not parse. */
bool dns_answer_next(ns_msg *message, int *at, ns_type type, ns_rr *ret_record);

/* Finds the data of the first `max` records of a type, in order, as parts of the packet. *ret_count
 * is the number of all, perhaps more than `max`. Returns false if it is not a DNS packet. */
bool dns_answer_records(struct slice packet, enum resolver_type type, struct slice *ret_data,
                        size_t max, size_t *ret_count);

/* Appends the text of a TXT record, with its strings joined (RFC 7208, 3.3, and RFC 8461, 3.1).
 * Returns false if the data is malformed or *out is full. */
bool dns_answer_text(struct slice data, struct buf *out);

/* Finds the target of `name` if it is an alias: the name that has the records of `type`. Returns
 * false if it is not an alias, there are no such records, or the target is not a valid host
 * name. */
bool dns_answer_alias(struct slice packet, ns_type type, struct slice name,
                      char ret_alias[DNS_NAME_MAX]);

/* Returns the validity of the answer in seconds: the smallest time to live of its records in answer
 * and authority. */
uint32_t dns_answer_ttl(struct slice packet);

/* Can this name be queried: 1..253 bytes of letters, digits, `-`, `_` and single inner dots? */
bool dns_name_valid(struct slice name);

#endif
