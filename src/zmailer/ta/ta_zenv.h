/* ZMailer's variables, as agents know them: from the file that the environment names as ZCONFIG,
 * else from the one whose path is compiled in, with compiled-in values where it says nothing. */
#ifndef ZMAILER_TA_ZENV_H
#define ZMAILER_TA_ZENV_H

#include "conf.h"

/* A configuration for conf_zenv and nothing else; free with conf_free. Ends the program, with words
 * on standard error, when the file can't be read. `program` is for these. */
struct conf *ta_zenv_load(const char *program);

#endif
