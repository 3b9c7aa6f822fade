/*
 * The permanent secret of the auth process: auth.key in the state directory.
 *
 * The SCRAM salt of an unknown user is made from it, so that the salt is as constant as a real
 * user's. The stamps of logins are made from it, so that they stay valid when the process is
 * restarted. Several machines with the same users need the same file.
 */
#ifndef PARENT_AUTH_KEY_H
#define PARENT_AUTH_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "conf.h"
#include "wire.h"

/* Reads the secret, or makes it if the file is missing. Returns false and the reason in *ret_error
 * on a failure. */
bool auth_key_get(const struct conf *conf, uint8_t ret_key[WIRE_AUTH_KEY_SIZE],
                  struct buf *ret_error);

#endif
