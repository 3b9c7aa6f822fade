/*
 * mailq -p: asking a mailq server, ours or a ZMailer's, over its own protocol.
 */
#ifndef ZMAILER_REMOTE_MAILQ_H
#define ZMAILER_REMOTE_MAILQ_H

#include <stdbool.h>

/* Is this command line of mailq one for a server, with a -p? */
bool remote_mailq_meant(int argc, char **argv);

/* Run it; the exit status is of sysexits. */
int remote_mailq_main(int argc, char **argv);

#endif
