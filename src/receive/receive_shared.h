/*
 * Common functions for clients of the receive process by SMTP and HTTP: their names, quotas of log
 * lines, memory and room at the queue, and the names under which limits on sending count them.
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

/* Sets the text of the client's address, and "localhost" or "unknown" as its name: there is no DNS
 * lookup. Returns false if the client has no IP address. */
bool receive_name_client(const struct sockaddr *addr, char ret_ip[INET6_ADDRSTRLEN],
                         const char **ret_name);

/* Returns the name under which limits on sending count a message (struct wire_submit): the prefix
 * of the client's address, and in the next function the user. Empty if no limit applies. */
#define RECEIVE_SEND_CLIENT_MAX (INET6_ADDRSTRLEN + 4)
struct slice receive_send_client(const struct conf *conf, const unsigned char address[16],
                                 bool exempt, char room[RECEIVE_SEND_CLIENT_MAX]);
struct slice receive_send_login(const struct conf *conf, const char *user);

/* May a line be logged? If not, it is counted, and the count is logged later. */
bool receive_may_log(struct receive_sessions *all, unsigned quota);

/* Is memory for more than `bytes` free? Closes sessions of clients slower than `self` to free
 * memory. */
bool receive_has_memory(struct receive_sessions *all, const struct receive_settings *settings,
                        const struct place *self, uint64_t bytes);

/* Checks whether a message of `size` bytes may begin. Returns code 0 if so. */
struct server_reply receive_room_for(struct receive_sessions *all,
                                     const struct receive_settings *settings,
                                     const struct place *self, uint64_t size);

/* Prints an address as text, IPv4 in its own form. */
void receive_print_ip(const unsigned char ip[16], char ret_text[INET6_ADDRSTRLEN]);

/* Is a quota of log lines used up? Then only clients that send mail are logged. */
bool receive_under_attack(const struct receive_sessions *all);

/* Initializes the quotas of log lines and their timer. */
void receive_quotas_init(struct receive_sessions *all);

/* Updates streams and quotas after a change of the clocks. */
void receive_sessions_clock_moved(struct receive_sessions *all);

/* Checks whether the queue accepts messages at all. Returns code 0 if so. */
struct server_reply receive_queue_works(const struct receive_sessions *all);

#endif
