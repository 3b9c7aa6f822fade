/*
 * The password of the spool's server, as commands find it that open the spool themselves.
 */
#ifndef CLI_SPOOL_SECRET_H
#define CLI_SPOOL_SECRET_H

#include "buf.h"
#include "conf.h"

#define SPOOL_SECRET_MAX 4096

/* Append what spool_password_file has; nothing when there is none. 0 or a negative errno with
 * *ret_error. The caller wipes the text (buf_wipe). */
int spool_secret_read(const struct conf *conf, struct buf *ret_text, struct buf *ret_error);

#endif
