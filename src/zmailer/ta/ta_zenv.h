/* ZMailer's variables for agents: from the file named by ZCONFIG in the environment, otherwise from
 * the file whose path is compiled in. Variables that the file does not set have compiled-in
 * values. */
#ifndef ZMAILER_TA_ZENV_H
#define ZMAILER_TA_ZENV_H

#include "conf.h"

/* Loads a configuration that only conf_zenv may be used with; free it with conf_free. Ends the
 * program with a message on standard error if the file can't be read. `program` is its name in that
 * message. */
struct conf *ta_zenv_load(const char *program);

#endif
