/*
 * Reading answers of the DNS, with the C library's reader. Packets are hostile input: what does not
 * parse is not there.
 */
#ifndef DELIVER_DNS_ANSWER_H
#define DELIVER_DNS_ANSWER_H

#include <arpa/nameser.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

/* What an empty answer without a time of its own is good for. */
#define DNS_ANSWER_TTL_NONE 0

/* A host name in text form, with its NUL. */
#define DNS_NAME_MAX 254

/* False when it is no DNS packet. */
bool dns_answer_parse(struct slice packet, ns_msg *ret_message);

/* The next record of `type` in the answer section, from number *at on; false at the end. */
bool dns_answer_next(ns_msg *message, int *at, ns_type type, ns_rr *ret_record);

/* The name that has the records of `type`, when it is not `name`: what `name` is an alias of.
 * False when it is none, when there are no such records, or when it is no valid host name. */
bool dns_answer_alias(struct slice packet, ns_type type, struct slice name,
                      char ret_alias[DNS_NAME_MAX]);

/* How many seconds the answer holds: the least of its records in answer and authority. */
uint32_t dns_answer_ttl(struct slice packet);

/* May this be asked for: 1..253 bytes of letters, digits, `-`, `_` and single inner dots? */
bool dns_name_valid(struct slice name);

#endif
