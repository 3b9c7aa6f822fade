/*
 * Public addresses: separates addresses of the Internet from private ones.
 *
 * The domain that mail goes to chooses the name of its policy's host. If that host had a private
 * address, this process would connect to machines of its own network. Therefore it only connects to
 * public addresses.
 */
#ifndef FETCH_PUBLIC_ADDRESS_H
#define FETCH_PUBLIC_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Is the address outside all IPv4 blocks that are private, shared, local, reserved or multicast
 * (RFC 6890)? */
bool public_address_ipv4(const uint8_t address[4]);

/* Is the address global unicast (2000::/3), outside the blocks of RFC 6890? An embedded IPv4
 * address must be public, too (64:ff9b::/96, RFC 6052; 2002::/16, RFC 3056). */
bool public_address_ipv6(const uint8_t address[16]);

#endif
