/*
 * ZMailer's mailq protocols, served by the control process (parameter mailqsock): version 1 where
 * no authfile could be read at the start, else version 2, for which the parent reads that file
 * again for each client. The protocol is mailq_server.h's; here are the sockets
 * and the sessions; what is answered is mailq_answer.h's.
 *
 * In the protocol's words a transport is a channel, a destination a host, the two together a
 * thread, and a ring the threads of one transport.
 */
#ifndef ZMAILER_MAILQ_SERVE_H
#define ZMAILER_MAILQ_SERVE_H

/* Register them as a service of the control process (service.h). */
void mailq_service_register(void);

/* Its name, and what it and its extension in the parent say to each other. */
#define MAILQ_SERVICE "mailq"
enum mailq_frame {
    MAILQ_NEED_AUTHFILE, /* to the parent: the authfile as it is now */
    MAILQ_AUTHFILE,      /* its text; empty when it can't be read, or must not be trusted */
    MAILQ_DUMP,          /* a socket that wants the answer of protocol 1, whichever is configured */
};

#endif
