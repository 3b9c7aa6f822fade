/*
 * Aliases and canonical addresses.
 *
 * An alias is an address that stands for others: in virtual_alias_maps any address, in alias_maps a
 * name of local_domains. Its addresses may be aliases again. One that stands for itself, too, is
 * delivered as well as the others. An alias that leads to itself by others is a loop.
 *
 * A canonical map gives an address another form: before aliases are expanded.
 *
 * Keys are those of KEYS_RECIPIENT. Where an address was found without its extension, its results
 * get the extension (Postfix's propagate_unmatched_extensions), except in alias_maps.
 */
#ifndef RULES_ALIASES_H
#define RULES_ALIASES_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "conf.h"
#include "envelope.h"
#include "slice.h"
#include "table.h"

#define ALIASES_MAX        10000u /* addresses that one may stand for, with those between */
#define ALIASES_LEVELS_MAX 100u   /* aliases of aliases */

/* Has the address an alias of its own? */
bool aliases_has(const struct tables *t, const struct conf *conf, struct slice address);

/* Receives an address that an alias stands for. */
typedef void aliases_put(void *arg, struct slice address);

/* Passes each address that `address` stands for to `put` once. Returns false if it is too much or
 * a loop; *ret_fault then has one line with table, line and address. *ret_hit has the first entry;
 * its line is 0 if the address is no alias, and passed itself. */
bool aliases_expand(const struct tables *t, const struct conf *conf, struct slice address,
                    aliases_put *put, void *arg, struct table_hit *ret_hit, struct buf *ret_fault);

/* Returns the canonical form of a sender's or recipient's address, by `list` (a list of canonical
 * maps) and then by canonical_maps; `address` itself, or in `room`. */
struct slice aliases_canonical(const struct tables *t, const struct conf *conf,
                               enum table_list list, struct slice address, char room[ADDRESS_MAX]);

#endif
