/*
 * What clients of the receive process have in common, whether they come by SMTP or HTTP: how they
 * are named, how many lines of log they may cause, memory and room at the queue, and the names
 * under which the limits on sending count them.
 */
#ifndef RECEIVE_RECEIVE_SHARED_H
#define RECEIVE_RECEIVE_SHARED_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "admission.h"
#include "receive_session.h"
#include "receive_settings.h"
#include "server.h"
#include "slice.h"

#define RECEIVE_NO_MEMORY                                                                          \
    ((struct server_reply){452, "4.3.1", SLICE("Insufficient memory, try again later")})
#define RECEIVE_NO_QUEUE                                                                           \
    ((struct server_reply){451, "4.3.0", SLICE("Queue is not available, try again later")})

/* How a client is shown: its address as text, and "localhost" or "unknown", as clients are not
 * looked up in the DNS. False: it has no IP address. */
bool receive_name_client(const struct sockaddr *addr, char ret_ip[INET6_ADDRSTRLEN],
                         const char **ret_name);

/* What limits on sending count a message for (struct wire_submit): the client's address, as far as
 * it counts, and the user; empty where no limit binds it. */
#define RECEIVE_SEND_CLIENT_MAX (INET6_ADDRSTRLEN + 4)
struct slice receive_send_client(const struct conf *conf, const unsigned char address[16],
                                 bool exempt, char room[RECEIVE_SEND_CLIENT_MAX]);
struct slice receive_send_login(const struct conf *conf, const char *user);

/* May a line be logged? If not it is counted, and told of later. */
bool receive_may_log(struct receive_sessions *all, unsigned quota);

/* Memory for more than `bytes` is free, or has been taken from clients slower than `self`. */
bool receive_has_memory(struct receive_sessions *all, const struct receive_settings *settings,
                        const struct place *self, uint64_t bytes);

/* May a message of `size` bytes begin? Code 0: yes. */
struct server_reply receive_room_for(struct receive_sessions *all,
                                     const struct receive_settings *settings,
                                     const struct place *self, uint64_t size);

/* An address as text, IPv4 in its own form. */
void receive_print_ip(const unsigned char ip[16], char ret_text[INET6_ADDRSTRLEN]);

/* Are there so many clients that bring nothing that only those that do are worth a line? */
bool receive_under_attack(const struct receive_sessions *all);

/* The quotas of lines, and the timer that tells what was not logged. */
void receive_quotas_init(struct receive_sessions *all);

/* The clocks were moved. */
void receive_sessions_clock_moved(struct receive_sessions *all);

/* Can the queue take a message at all? Code 0: yes. */
struct server_reply receive_queue_works(const struct receive_sessions *all);

#endif
