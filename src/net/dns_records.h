/*
 * The records in the answer section of a DNS packet.
 *
 * Packets are read as hostile: what does not parse is no answer, and what is in front of it does
 * not count either. Records of another name count: an answer to a name that is an alias has those
 * of the name it leads to.
 */
#ifndef NET_DNS_RECORDS_H
#define NET_DNS_RECORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "resolver.h"
#include "slice.h"

/* The data of the first `max` records of a type, in their order; they are parts of the packet.
 * *ret_count is how many there are in all, perhaps more than `max`. False for what is no packet. */
bool dns_records(struct slice packet, enum resolver_type type, struct slice *ret_data, size_t max,
                 size_t *ret_count);

/* Append the text of a TXT record, its strings joined (RFC 7208, 3.3, as RFC 8461, 3.1 wants it).
 * False when the data is malformed, or *out is full. */
bool dns_text_add(struct slice data, struct buf *out);

#endif
