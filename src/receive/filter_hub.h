/*
 * Base of all filter connections and callouts of a process: requests to the parent for sockets.
 *
 * Each request is answered once, soon, and in order. The process ends with the parent.
 */
#ifndef RECEIVE_FILTER_HUB_H
#define RECEIVE_FILTER_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "frame.h"
#include "role.h"
#include "slice.h"

struct streams;
struct filter_question;

struct filter_hub {
    struct role *role;
    struct streams *streams;
    struct filter_question *questions; /* hash of open requests by token */
    uint64_t last_token;
    uint64_t last_id; /* last number of filter_hub_name */
};

/* Receives a socket that is connecting or connected, and owns it; or `fd` is -1 and `error` has the
 * reason. `addresses`: number of attempts that make sense. */
typedef void filter_socket(void *arg, int fd, uint32_t addresses, struct slice error);

/* Borrows both pointers. */
void filter_hub_init(struct filter_hub *hub, struct role *role, struct streams *streams);

/* Forgets all open requests. */
void filter_hub_fini(struct filter_hub *hub);

/* Requests a socket. Returns a token for filter_hub_forget. */
uint64_t filter_hub_ask(struct filter_hub *hub, const char *address, uint32_t attempt,
                        filter_socket *answer, void *arg);
void filter_hub_forget(struct filter_hub *hub, uint64_t token);

/* Handles a frame from the parent, as role_ops.parent_frame. */
bool filter_hub_frame(struct filter_hub *hub, const struct frame *frame);

/* Makes a name for a message (macro i), which has no queue id before it is stored. */
#define FILTER_ID_SIZE 16
void filter_hub_name(struct filter_hub *hub, char ret_id[FILTER_ID_SIZE]);

#endif
