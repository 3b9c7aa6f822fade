/*
 * Services: protocols beside HTTP in which the control process is asked. A program registers them
 * before its roles begin. What a service needs of the parent (its sockets, files) is an extension
 * there (extension.h) of the same name.
 */
#ifndef CONTROL_SERVICE_H
#define CONTROL_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "role.h"

#define SERVICES_MAX 4

struct control;

struct service {
    const char *name; /* its listeners' URLs begin with it and a colon; its frames have it */

    /* Before confinement; what is returned is the state of the functions that follow. Both are
     * borrowed until its end. `daemon_pid` is the parent's. */
    void *(*begin)(struct role *role, struct control *control, int64_t daemon_pid);

    /* A listening socket; taken. */
    void (*listener)(void *state, struct slice url, int fd);

    /* The extension says something; `fd` (-1: none) is taken. False: it must not. */
    bool (*heard)(void *state, const struct wire_service *m, int fd);

    /* The configuration is a new one. */
    void (*reload)(void *state);
    void (*end)(void *state);
};

/* Borrowed for good. Once for each. */
void service_register(const struct service *service);

#endif
