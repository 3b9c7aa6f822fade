/*
 * ZMailer's variables, for programs that need no other configuration.
 */
#ifndef ZMAILER_VARIABLES_H
#define ZMAILER_VARIABLES_H

#include "buf.h"
#include "conf.h"

/* Loads a configuration with ZMailer's variables only, for conf_zenv and conf_postoffice, from the
 * file `path` (NULL: the compiled-in one). Returns NULL on error, with one line per fault appended
 * to *messages. Free with conf_free. */
struct conf *zmailer_variables(const char *path, struct buf *messages);

/* Returns `path`, made absolute by the working directory, with `suffix` added. The caller frees
 * it. */
char *zmailer_absolute(const char *path, const char *suffix);

#endif
