/*
 * Is an address one of the public Internet?
 *
 * The name of a policy's host is chosen by the domain that mail goes to. A domain whose host has an
 * address of our own networks would have us connect to our own machines; so only public addresses
 * are connected to.
 */
#ifndef FETCH_PUBLIC_ADDRESS_H
#define FETCH_PUBLIC_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Not one of the IPv4 blocks that are private, shared, local, reserved or multicast (RFC 6890). */
bool public_address_ipv4(const uint8_t address[4]);

/* A global unicast address (2000::/3) but for the blocks of RFC 6890 and addresses with an IPv4
 * address inside that is not public (64:ff9b::/96, RFC 6052; 2002::/16, RFC 3056). */
bool public_address_ipv6(const uint8_t address[16]);

#endif
