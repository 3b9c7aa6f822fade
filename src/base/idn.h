/*
 * A-labels of internationalized domain names (IDNA2008 with the mapping of UTS 46, by libidn2).
 *
 * A name with U-labels and the same name with A-labels are one domain: xn--bcher-kva.example is the
 * one with a u umlaut. All names are compared and looked up with A-labels; logs and listings show
 * them as given. A label that has no A-label stays as it is, and is found nowhere. So does one
 * whose mapped form is no label, as with a wide @ or a wide full stop.
 */
#ifndef BASE_IDN_H
#define BASE_IDN_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

/* Converts each label with bytes above 127. A name may begin with a dot, and have labels that are
 * patterns. Returns `name` itself if nothing changes or the result is longer than `size` bytes,
 * else the result, in `room`. */
struct slice idn_domain(struct slice name, char *room, size_t size);

/* Converts the domain of an address, after the last @, in the same way. The text is the domain if
 * there is no @. */
struct slice idn_address(struct slice address, char *room, size_t size);

#endif
