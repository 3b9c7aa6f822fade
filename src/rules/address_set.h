/*
 * A set of addresses, compared without case, as Postfix finds duplicates.
 */
#ifndef RULES_ADDRESS_SET_H
#define RULES_ADDRESS_SET_H

#include <stdbool.h>

#include "slice.h"

struct address_set; /* NULL: the empty set */

/* Adds an address. Returns false if the set has it already. */
bool address_set_add(struct address_set **set, struct slice address);

/* Empties the set. */
void address_set_clear(struct address_set **set);

#endif
