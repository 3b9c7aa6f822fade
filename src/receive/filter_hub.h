/*
 * What the filter connections of a process share: the way to sockets, which the parent makes.
 *
 * Each question is answered once, soon, and in order; when the parent is gone, so is this process.
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
    struct filter_question *questions; /* a hash by token */
    uint64_t last_token;
    uint64_t last_id; /* of messages, for filters */
};

/* `fd`: a socket that is connecting, or connected, and is the callee's; or -1, and `error` says
 * why. `addresses`: how many attempts make sense. */
typedef void filter_socket(void *arg, int fd, uint32_t addresses, struct slice error);

/* Both are borrowed. */
void filter_hub_init(struct filter_hub *hub, struct role *role, struct streams *streams);

/* Questions that are open are forgotten. */
void filter_hub_fini(struct filter_hub *hub);

/* Ask for a socket. The token is for filter_hub_forget. */
uint64_t filter_hub_ask(struct filter_hub *hub, const char *address, uint32_t attempt,
                        filter_socket *answer, void *arg);
void filter_hub_forget(struct filter_hub *hub, uint64_t token);

/* As role_ops.parent_frame. */
bool filter_hub_frame(struct filter_hub *hub, const struct frame *frame);

/* A name for a message, which has no queue id before it is stored: macro i. */
#define FILTER_ID_SIZE 16
void filter_hub_name(struct filter_hub *hub, char ret_id[FILTER_ID_SIZE]);

#endif
