/*
 * Password of the spool's server, for commands that open the spool themselves.
 */
#ifndef CLI_SPOOL_SECRET_H
#define CLI_SPOOL_SECRET_H

#include "buf.h"
#include "conf.h"

#define SPOOL_SECRET_MAX 4096

/* Appends the contents of spool_password_file; nothing if there is none. Returns 0, or negative
 * errno with *ret_error. The caller wipes the text (buf_wipe). */
int spool_secret_read(const struct conf *conf, struct buf *ret_text, struct buf *ret_error);

#endif
