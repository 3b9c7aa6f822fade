/*
 * Services: protocols next to HTTP in the control process. A program registers them before its
 * roles begin. If a service needs the parent (for sockets or files), an extension of the same name
 * provides that there (extension.h).
 */
#ifndef CONTROL_SERVICE_H
#define CONTROL_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "role.h"

#define SERVICES_MAX 4

struct control;

struct service {
    const char *name; /* name in its frames, and before the colon in its listeners' URLs */

    /* Makes the state of the service, before confinement. `role` and `control` are borrowed until
     * its end. `daemon_pid` is the parent's. */
    void *(*begin)(struct role *role, struct control *control, int64_t daemon_pid);

    /* Takes a listening socket. */
    void (*listener)(void *state, struct slice url, int fd);

    /* Handles a frame of the extension; `fd` (-1: none) is taken. Returns false if the frame is
     * invalid. */
    bool (*heard)(void *state, const struct wire_service *m, int fd);

    /* Applies a new configuration. */
    void (*reload)(void *state);
    void (*end)(void *state);
};

/* Registers a service, once; it is borrowed for ever. */
void service_register(const struct service *service);

#endif
