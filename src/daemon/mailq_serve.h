/*
 * ZMailer's mailq protocols, served by the control process (parameter mailqsock): version 1 where
 * no authfile could be read at the start, else version 2, for which the parent reads that file
 * again for each client. The protocol is mailq_server.h's; here are the sockets
 * and the sessions; what is answered is mailq_answer.h's.
 *
 * In the protocol's words a transport is a channel, a destination a host, the two together a
 * thread, and a ring the threads of one transport.
 */
#ifndef DAEMON_MAILQ_SERVE_H
#define DAEMON_MAILQ_SERVE_H

#include "control.h"
#include "role.h"

struct mailq_service;

struct mailq_service *mailq_service_new(struct role *role, struct control *control,
                                        int64_t daemon_pid);

/* NULL is fine. Sessions end at once. */
void mailq_service_free(struct mailq_service *service);

/* A listening socket; taken. */
void mailq_service_listen(struct mailq_service *service, struct slice url, int fd);

/* Answer into `fd` (taken) as protocol 1 does, whichever is configured, and close it. */
void mailq_service_dump(struct mailq_service *service, int fd);

/* The authfile, as the parent has just read it: for the clients that wait for it. */
void mailq_service_authfile(struct mailq_service *service, struct slice text);

/* The configuration is a new one: read the auth file again, close sockets that it lacks. */
void mailq_service_reload(struct mailq_service *service);

#endif
