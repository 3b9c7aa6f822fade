/*
 * Server of ZMailer's mailq protocols in the control process (parameter mailqsock). It serves
 * version 1 if no authfile could be read at the start. Otherwise it serves version 2, and the
 * parent reads the authfile again for each client. This module has the sockets and sessions;
 * mailq_server.h has the protocol, mailq_answer.h the answers.
 *
 * In the protocol's words a transport is a channel, a destination a host, both together a thread,
 * and a ring the threads of one transport.
 */
#ifndef ZMAILER_MAILQ_SERVE_H
#define ZMAILER_MAILQ_SERVE_H

/* Registers the protocols as a service of the control process (service.h). */
void mailq_service_register(void);

/* Name of the service, and its frames to and from its extension in the parent. */
#define MAILQ_SERVICE "mailq"
enum mailq_frame {
    MAILQ_NEED_AUTHFILE, /* to the parent: send the current authfile */
    MAILQ_AUTHFILE,      /* text of the authfile; empty if it can't be read or must not be
                          * trusted */
    MAILQ_DUMP,          /* a socket for an answer of protocol 1, whatever version is configured */
};

#endif
