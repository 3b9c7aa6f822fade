/*
 * ZMailer's variables for programs that need no more of a configuration.
 */
#ifndef ZMAILER_VARIABLES_H
#define ZMAILER_VARIABLES_H

#include "buf.h"
#include "conf.h"

/* A configuration that says nothing but what ZMailer's variables say, from the file `path`, NULL:
 * the compiled-in one; conf_zenv and conf_postoffice know them. NULL after an error; what is wrong
 * is appended to *messages, a line each. Free with conf_free. */
struct conf *zmailer_variables(const char *path, struct buf *messages);

/* `path` itself, or below the working directory; `suffix` is added. To be freed. */
char *zmailer_absolute(const char *path, const char *suffix);

#endif
