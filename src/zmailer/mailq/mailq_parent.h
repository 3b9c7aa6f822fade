/*
 * The mailq protocols in the parent: an extension (extension.h) that opens their sockets and reads
 * the authfile.
 */
#ifndef ZMAILER_MAILQ_PARENT_H
#define ZMAILER_MAILQ_PARENT_H

/* Registers the extension, for the daemon and for programs that check a configuration. */
void mailq_parent_register(void);

#endif
