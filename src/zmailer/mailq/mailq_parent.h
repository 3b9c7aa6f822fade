/*
 * The mailq protocols in the parent, which has their sockets and reads the authfile: an extension
 * of it (extension.h).
 */
#ifndef ZMAILER_MAILQ_PARENT_H
#define ZMAILER_MAILQ_PARENT_H

/* Register it, for the daemon and for programs that check a configuration. */
void mailq_parent_register(void);

#endif
